/* What goes from rank to rank along a sequence that is split: the borders that a shift takes, and what chunks of
 * recurrences end with. */
#include "tests/unit/plan/models/faults.h"

/* ---- shifts -------------------------------------------------------------------------------------------- */
/* Played by ranks that only do what ZpHalo says, a shift is the shift of all. */
static void play(int ranks, int own, int by) {
  enum { MOST = 64, EDGE = -1 };
  int all = ranks * own, want[MOST], got[MOST];
  ZpNode n = {.axis = 7, .call = {.op = ZG_OP_SHIFT, .opt = {by}}};
  n.call.in[0] = (ZkView){.elem = ZK_F32, .rank = 2, .axis = {3, 7}, .size = {5, own}, .whole = {5, all}};
  ZpHalo h = zp_halo(&n);
  uint64_t bytes = 0;
  for (int i = 0; i < all; i++) want[i] = i - by >= 0 && i - by < all ? i - by : EDGE;
  for (int i = 0; i < all; i++) { /* what stays on its rank */
    int from = i % own - by;
    got[i] = from >= 0 && from < own ? i - by : EDGE;
  }
  for (int p = 0; p < 2; p++) {
    bytes += h.part[p].bytes;
    for (int r = 0; r < ranks; r++)
      for (int i = 0; i < (int)h.part[p].count; i++) {
        int to = r + (int)h.part[p].hop;
        cr_assert(h.part[p].hop != 0);
        if (to >= 0 && to < ranks) got[to * own + h.part[p].to + i] = r * own + (int)h.part[p].from + i;
      }
  }
  cr_expect_arr_eq(got, want, sizeof *want * (size_t)all, "%d ranks of %d, by %d", ranks, own, by);
  cr_expect_eq(zp_halo_bytes(&n), bytes);
  int far = by < 0 ? -by : by;
  if (far <= own && ranks > 1) cr_expect_eq(bytes, 4u * 5 * (unsigned)far, "%d by %d", own, by);
  if (far >= all) cr_expect_eq(bytes, 0);
}

Test(halo, shifts_by_any_distance) {
  for (int ranks = 1; ranks <= 5; ranks++)
    for (int own = 1; own <= 7; own++)
      for (int by = -ranks * own - 2; by <= ranks * own + 2; by++) play(ranks, own, by);
}

/* Only among the ranks of its stage that share its axis, and of parts that follow each other. */
Test(halo, faults) {
  Model m =
      model_open("halo",
                 "model M { axis batch, seq, a = 2  input x: real[batch, seq, a]  param w[a] ~ normal(1)\n"
                 "  y = shift[seq](x * w)  loss y * y per samples() }",
                 NULL);
  Plan q = plan_of(m.g, "bind batch = 2, seq = 8 mesh c = 2, d = 2 split seq over c split batch over d");
  ZpList *l = &q.p->programs.segments[0].list[ZP_FWD];
  ZpNode *n = l->nodes;
  while (n < l->nodes + l->n - 1 && !zp_is_halo(n)) n++;
  cr_assert(zp_is_halo(n) && n->dims == 1);
  WITH(n->dims, 2, "shifts over other ranks than those that share its axis");
  WITH(n->dims, 5, "is not a collective within a stage");
  WITH(q.p->layout.mesh.dim[0].zigzag, n->axis, "shifts positions that do not follow each other");
  plan_close(&q);
  model_close(&m);
}

/* Nobody waits for other ranks while a collective is under way: here both in the other order. */
Test(halo, nothing_beside) {
  Model m =
      model_open("halo",
                 "model M { axis batch, seq, a = 2, b = 4  input x: real[batch, seq, a]\n"
                 "  param w[a] ~ normal(1)  param v[a, b] ~ normal(1)\n"
                 "  y = x * w  z = dot[b](dot[a](x, v), v)  y = shift[seq](y)  loss y * z per samples() }",
                 NULL);
  Plan q = plan_of(m.g, "bind batch = 2, seq = 8 mesh c = 2, d = 2 split seq over c split b over d");
  ZpNode *n = q.p->programs.segments[0].list[ZP_FWD].nodes;
  uint32_t at = 0;
  while (!zp_is_halo(&n[at])) at++;
  cr_assert_eq(n[at + 1].call.op, ZG_OP_ALL_REDUCE);
  cr_assert(n[at].packs); /* of two samples */
  WITH(n[at].packs, false, "does not pack what does not lie in blocks");
  WITH(n[at].scratch_bytes, 31,
       "has not the scratch to pack"); /* a row of 16 bytes to and from a neighbour */
  uint16_t seq = (uint16_t)n[at].axis, b = (uint16_t)zg_axis_find(m.g, "b"); /* which y has not */
  WITH(n[at].axis, b, "is not a shift over ranks");
  n[at].axis = n[at].call.ax[0] = b;
  rejects(q.p, "goes along other axes than the model");
  n[at].axis = n[at].call.ax[0] = seq;
  ZpNode shift = n[at];
  n[at] = n[at + 1], n[at + 1] = shift;
  n[at].until = at + 1;
  q.p->asked.pins = true; /* a device that goes on meanwhile */
  WITH(n[at].until, at + 2, "waits for other ranks while a collective is under way");
  plan_close(&q);
  model_close(&m);
}

/* ---- recurrences --------------------------------------------------------------------------------------- */
static const char text[] =
    "model M {\n"
    "  axis batch, seq, embed = 6, head = 4, k = 2, v = 4\n"
    "  input x: real[batch, seq, embed]\n"
    "  repeat 2 as layer {\n"
    "    param wq[embed, k], wk[embed, k], wv[embed, head, v], wg[embed, head] ~ normal(1)\n"
    "    param wo[head, v, embed] ~ normal(1)\n"
    "    g = -f32(sigmoid(dot[embed](x, wg)))\n"
    "    y = %s\n"
    "    x = x + dot[head, v](y, wo)\n  }\n"
    "  loss x * x per samples()\n}\n";

/* Bytes that a rank sends to neighbours in a layer's list; other collectives but sums of gradients: none. */
static uint64_t sent(const ZpPlan *p, ZpPhase phase) {
  uint32_t n;
  const ZpSegment *s = &p->programs.segments[segment_of(p, "layer", 0)];
  const ZpNode *nodes = phase_nodes(s, phase, &n);
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < n; i++) {
    if (zp_is_halo(&nodes[i])) bytes += zp_node_bytes(s, &nodes[i]);
    cr_expect(nodes[i].call.op != ZG_OP_ALL_GATHER && nodes[i].call.op != ZG_OP_ALL_TO_ALL, "%s",
              nodes[i].cause);
  }
  return bytes;
}

/* Over 4 ranks a rank takes what is before it, then what 1 and 2 before it have: three times what a chunk ends
 * with, and twice by what it multiplies. However long the sequence is. */
Test(halo, ends_of_chunks_alone) {
  enum { BATCH = 3, HEAD = 4, KEYS = 2, VALUES = 4, EMBED = 6, STATE = 4 * BATCH * HEAD * KEYS * VALUES };
  static const struct {
    const char *y;
    uint64_t forward, back;
  } cases[] = {
      {"linear_attend[seq, k, v](dot[embed](x, wq), dot[embed](x, wk), dot[embed](x, wv), decay = g)",
       3 * STATE + 2 * 4 * BATCH * HEAD, 3 * STATE + 2 * 4 * BATCH * HEAD},
      {"linear_attend[seq, k, v](dot[embed](x, wq), dot[embed](x, wk), dot[embed](x, wv))", 3 * STATE,
       3 * STATE},
      /* a feedback multiplies by a matrix */
      {"linear_attend[seq, k, v](dot[embed](x, wq), dot[embed](x, wk), dot[embed](x, wv), decay = g, "
       "feed = -0.1 * dot[embed](x, wk))",
       3 * STATE + 2 * 4 * BATCH * HEAD * KEYS * KEYS, 3 * STATE + 2 * 4 * BATCH * HEAD * KEYS * KEYS},
      {"cumsum[seq](dot[embed](x, wv))", 3 * 4 * BATCH * HEAD * VALUES, 3 * 4 * BATCH * HEAD * VALUES},
      /* backward: its factors want what is before each element, too */
      {"scan[seq](exp(g), dot[embed](x, wv))", 3 * 4 * BATCH * HEAD * VALUES + 2 * 4 * BATCH * HEAD,
       4 * 4 * BATCH * HEAD * VALUES + 2 * 4 * BATCH * HEAD},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char whole[1024];
    snprintf(whole, sizeof whole, text, cases[i].y);
    Model m = model_open("halo", whole, NULL);
    for (int length = 400; length <= 1600; length *= 2) {
      Plan q = plan_of(m.g, zb_printf(m.c.a, "bind batch = 3, seq = %d mesh c = 4 split seq over c", length));
      cr_expect_eq(sent(q.p, ZP_FWD), cases[i].forward, "%s: %d", cases[i].y, (int)sent(q.p, ZP_FWD));
      cr_expect_eq(sent(q.p, ZP_BWD), cases[i].back, "%s: %d", cases[i].y, (int)sent(q.p, ZP_BWD));
      if (length < 1600) { /* shorter chunks have other products */
        plan_close(&q);
        continue;
      }
      Plan one = plan_of(m.g, zb_printf(m.c.a, "bind batch = 3, seq = %d", length));
      cr_expect_float_eq(q.p->notes.model_flops, one.p->notes.model_flops, 1, "%s: %g FLOPs, not %g",
                         cases[i].y, q.p->notes.model_flops, one.p->notes.model_flops);
      plan_close(&one);
      plan_close(&q);
    }
    model_close(&m);
  }
}
