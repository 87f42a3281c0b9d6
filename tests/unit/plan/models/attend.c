/* What attention costs in a plan: FLOPs of the pairs that the mask leaves, saved values that no mask and no
 * second sequence makes larger, and what cannot be split. */
#include "tests/unit/plan/models/plan.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 2, SEQ = 64, PAST = 40, KV = 2, GRP = 3, HD = 8, WIDE = 12 };
static const char text[] =
    "model M { axis batch, seq, past, e = 16, kv = 2, grp = 3, hd = 8, wide = 12\n"
    "  input x: real[batch, seq, e] input y: real[batch, past, e] input d: i32[batch, seq]\n"
    "  param wq[e, kv, grp, hd], wk[e, kv, hd], wv[e, kv, hd], ww[e, kv, wide], b[kv, e] ~ normal(1)\n"
    "  q = dot[e](x, wq)\n"
    "  z = %s\n"
    "  loss sum[kv, grp](z) per x }\n";
static const char bind[] = "bind batch = 2, seq = 64, past = 40 ";
#define ONE "sum[hd](attend[seq, hd](q, dot[e](x, wk), dot[e](x, wv), "

static Model model_with(const char *z) {
  char whole[1024];
  snprintf(whole, sizeof whole, text, z);
  return model_open("attend", whole, NULL);
}

/* Of all nodes of an op in the plan's segments. */
static double flops_of(const ZpPlan *p, ZgOp op) {
  double sum = 0;
  for (uint32_t s = 0; s < p->graph->nsegments; s++)
    for (int phase = 0; phase < 2; phase++) {
      uint32_t n;
      const ZpNode *nodes = phase_nodes(&p->programs.segments[s], phase ? ZP_BWD : ZP_FWD, &n);
      for (uint32_t i = 0; i < n; i++) sum += nodes[i].call.op == op ? nodes[i].flops : 0;
    }
  return sum;
}

Test(attend, pairs) {
  static const int64_t sizes[] = {1, 2, 7, 64, 100}, windows[] = {0, 1, 3, 50, 64, 99, 100, 1000};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (size_t w = 0; w < sizeof windows / sizeof *windows; w++)
      for (int causal = 0; causal < 2; causal++) {
        int64_t n = sizes[i], seen = 0;
        for (int64_t q = 0; q < n; q++) {
          ZgSeen s = zg_attend_seen((ZgMask){causal, windows[w], 0}, q, n);
          seen += s.to - s.from;
          for (int64_t k = 0; k < n; k++) {
            int64_t far = q > k ? q - k : k - q;
            bool sees = (!causal || k <= q) && (!windows[w] || far < windows[w]);
            cr_assert_eq(sees, k >= s.from && k < s.to, "%d %d: %d sees %d", (int)n, (int)windows[w], (int)q,
                         (int)k);
          }
        }
        double pairs = zg_attend_pairs(causal, windows[w], n, n); /* of borders half: of a row at most one */
        cr_assert(fabs((double)seen - pairs) <= (double)n, "%d by window %d: %d pairs, not %g", (int)n,
                  (int)windows[w], (int)seen, pairs);
      }
}

Test(attend, flops_of_what_the_mask_leaves) {
  static const struct {
    const char *z;
    double features, pairs;
  } cases[] = {
      {ONE "mask = none))", 2 * HD, SEQ * SEQ},
      {ONE "mask = causal, cap = 5, same = d))", 2 * HD, SEQ * SEQ / 2.0},
      {ONE "mask = causal, window = 16))", 2 * HD, SEQ * 16 - 16 * 16 / 2.0},
      {ONE "mask = none, window = 16))", 2 * HD, 2 * SEQ * 16 - 16 * 16},
      {ONE "mask = causal, window = 500))", 2 * HD, SEQ * SEQ / 2.0},
      {"sum[hd](attend[seq, past, hd](q, dot[e](y, wk), dot[e](y, wv), mask = none, bias = dot[e](y, b)))",
       2 * HD, SEQ * PAST},
      {"sum[wide](attend[seq, hd](q, dot[e](x, wk), dot[e](x, ww), mask = causal))", HD + WIDE,
       SEQ * SEQ / 2.0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Model m = model_with(cases[i].z);
    Plan q = plan_of(m.g, bind), r = plan_of(m.g, zb_printf(m.c.a, "%smesh t = 2 split kv over t", bind));
    double forward = 2 * BATCH * KV * GRP * cases[i].features * cases[i].pairs;
    cr_expect_eq(flops_of(q.p, ZG_OP_ATTEND), forward, "%s", cases[i].z);
    cr_expect_eq(flops_of(q.p, ZG_OP_ATTEND_GRAD), 2 * forward, "%s", cases[i].z);
    cr_expect_eq(flops_of(q.p, ZG_OP_ATTEND_BIAS_GRAD), strstr(cases[i].z, "bias") ? forward : 0);
    cr_expect_eq(flops_of(r.p, ZG_OP_ATTEND), forward / 2, "%s", cases[i].z);
    plan_close(&q);
    plan_close(&r);
    model_close(&m);
  }
}

/* Only q, k, v, o and l are kept, whatever hides keys; and the ids that say so. */
Test(attend, saved_values) {
  static const char *const masks[] = {"mask = causal", "mask = causal, window = 5, cap = 3, same = d"};
  uint64_t bytes[2];
  for (int i = 0; i < 2; i++) {
    char z[256];
    snprintf(z, sizeof z, ONE "%s))", masks[i]);
    Model m = model_with(z);
    Plan q = plan_of(m.g, bind);
    bytes[i] = q.p->programs.stages[0].ledger.bytes[ZP_L_ACTIVATIONS];
    plan_close(&q);
    model_close(&m);
  }
  cr_expect_eq(bytes[1], bytes[0] + BATCH * SEQ * sizeof(int32_t), "%d, %d", (int)bytes[1], (int)bytes[0]);
}

/* Bytes of collectives in a phase as a rank sends them. */
static double sent(const ZpPlan *p, ZpPhase phase, ZgOp op) {
  uint32_t n;
  double sum = 0;
  const ZpNode *nodes = phase_nodes(&p->programs.segments[0], phase, &n);
  for (uint32_t i = 0; i < n; i++) {
    const ZpValue *v =
        &p->programs.segments[0].values[op == ZG_OP_ALL_GATHER ? nodes[i].out[0] : nodes[i].in[0]];
    double members = (double)zp_group_size(&p->layout.mesh, nodes[i].dims);
    if (nodes[i].call.op == op && nodes[i].dims) sum += (double)v->bytes * (members - 1) / members;
  }
  return sum;
}

/* What ranks that split the sequence send each other for attend: b are the bytes of a rank's k and v, a of
 * its q and o, which are the model's other tensors of a head. */
Test(attend, split_sequence) {
  enum { N = 2 };
  Model m = model_with(ONE "mask = causal, window = 20, same = d))");
  Plan one = plan_of(m.g, bind);
  Plan gather = plan_of(m.g, zb_printf(m.c.a, "%smesh c = 2 split seq over c attention gather", bind));
  Plan heads = plan_of(m.g, zb_printf(m.c.a, "%smesh c = 2 split seq over c attention heads over c", bind));
  double b = 2.0 * BATCH * SEQ / N * KV * HD * 4, a = b * GRP;
  cr_expect_eq(sent(gather.p, ZP_FWD, ZG_OP_ALL_GATHER), (N - 1) * b);
  cr_expect_eq(sent(gather.p, ZP_BWD, ZG_OP_ALL_GATHER), (N - 1) * b);
  cr_expect_eq(sent(gather.p, ZP_BWD, ZG_OP_REDUCE_SCATTER), (N - 1) * b);
  cr_expect_eq(sent(gather.p, ZP_FWD, ZG_OP_ALL_TO_ALL), 0);
  cr_expect_eq(sent(heads.p, ZP_FWD, ZG_OP_ALL_GATHER) + sent(heads.p, ZP_BWD, ZG_OP_ALL_GATHER), 0);
  cr_expect_eq(sent(heads.p, ZP_FWD, ZG_OP_ALL_TO_ALL), (N - 1) * (a + b) / N);
  cr_expect_eq(sent(heads.p, ZP_BWD, ZG_OP_ALL_TO_ALL), (N - 1) * (2 * a + 2 * b) / N - (N - 1) * a / 2 / N,
               "o is used by no product here, and so not twice");
  Plan *all[] = {&gather, &heads};
  for (int i = 0; i < 2; i++) {
    cr_expect_eq(flops_of(all[i]->p, ZG_OP_ATTEND), flops_of(one.p, ZG_OP_ATTEND) / N);
    cr_expect_eq(flops_of(all[i]->p, ZG_OP_ATTEND_GRAD), flops_of(one.p, ZG_OP_ATTEND_GRAD) / N);
    uint64_t docs = BATCH * SEQ * sizeof(int32_t); /* everybody has all of them */
    cr_expect_eq(all[i]->p->programs.stages[0].ledger.bytes[ZP_L_ACTIVATIONS] - docs,
                 (one.p->programs.stages[0].ledger.bytes[ZP_L_ACTIVATIONS] - docs) / N);
    plan_close(all[i]);
  }
  plan_close(&one);
  model_close(&m);
}

/* Unless it is said, what sends less: with three queries to a key, heads do from more than four ranks on, as
 * far as there are heads. */
Test(attend, ways_of_their_own) {
  static const struct {
    const char *recipe;
    bool heads;
  } cases[] = {{"mesh c = 2 split seq over c", false},
               {"mesh c = 2 split seq over c attention heads", true},
               {"mesh c = 8 split seq over c", true},
               {"mesh c = 4 split seq over c", false},
               {"mesh c = 8 split seq over c attention gather", false},
               {"mesh c = 8 split seq over c attention heads over c attention gather", true},
               {"mesh t = 2, c = 8 split seq over c split kv over t", true},
               {"mesh c = 8, t = 2 split seq over c split kv over t", false},
               {"mesh c = 8 split kv over c else seq", true}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    static const char many[] =
        "model M { axis batch, seq, e = 64, kv = 16, grp = 3, hd = 8\n"
        "  input x: real[batch, seq, e]\n"
        "  param wq[e, kv, grp, hd], wk[e, kv, hd], wv[e, kv, hd] ~ normal(1)\n"
        "  z = attend[seq, hd](dot[e](x, wq), dot[e](x, wk), dot[e](x, wv), mask = causal)\n"
        "  loss sum[kv, grp, hd](z) per x }\n";
    Model m = model_open("attend", many, NULL);
    Plan q = plan_of(m.g, zb_printf(m.c.a, "bind batch = 2, seq = 64 %s", cases[i].recipe));
    uint32_t n;
    const ZpNode *nodes = phase_nodes(&q.p->programs.segments[0], ZP_FWD, &n);
    for (uint32_t k = 0; k < n; k++)
      if (nodes[k].call.op == ZG_OP_ATTEND) {
        const ZpValue *v = &q.p->programs.segments[0].values[nodes[k].in[0]];
        for (int a = 0; a < v->type.naxes; a++)
          if (v->axis[a] == zg_axis_find(m.g, "seq"))
            cr_expect_eq(v->size[a] == 64, cases[i].heads, "%s", cases[i].recipe);
      }
    plan_close(&q);
    model_close(&m);
  }
}

/* What a rank keeps of a micro-batch falls as its part of the sequence, whichever way attention goes. */
Test(attend, activations_fall) {
  Model m = model_open("llama3", NULL, "layers=3 heads=8 kv_heads=8 width=64 inner=96 words=128");
  static const char *const ways[] = {"gather", "heads", "ring"};
  static const char base[] = "bind batch = 4, seq = 256 micro 2 ";
  Plan one = plan_bare(m.g, base);
  uint64_t all = one.p->programs.stages[0].ledger.bytes[ZP_L_ACTIVATIONS];
  for (int w = 0; w < 3; w++)
    for (int n = 2; n <= 8; n *= 2) {
      Plan q =
          plan_bare(m.g, zb_printf(m.c.a, "%smesh c = %d split seq over c attention %s", base, n, ways[w]));
      uint64_t part = q.p->programs.stages[0].ledger.bytes[ZP_L_ACTIVATIONS];
      cr_expect_eq(part * (uint64_t)n, all, "%s, %d: %d of %d", ways[w], n, (int)part, (int)all);
      plan_close(&q);
    }
  plan_close(&one);
  model_close(&m);
}

static const ZpNode *attend_of(const ZpPlan *p, ZpPhase phase) {
  uint32_t n, i = 0;
  const ZpNode *nodes = phase_nodes(&p->programs.segments[0], phase, &n);
  while (i < n && nodes[i].call.op != (phase == ZP_BWD ? ZG_OP_ATTEND_GRAD : ZG_OP_ATTEND)) i++;
  cr_assert(i < n);
  return &nodes[i];
}

/* Around a ring keys and values go once less than there are steps; so do the sums of their gradients, f32,
 * and home. Room is for two chunks, however many ranks there are. */
Test(attend, ring) {
  static const struct {
    const char *z, *mesh;
    uint32_t n, nsteps, steps[8];
  } cases[] = {
      {ONE "mask = causal))", "mesh c = 4", 4, 4, {0, 1, 2, 3}},
      {ONE "mask = none))", "mesh c = 8", 8, 8, {0, 1, 2, 3, 4, 5, 6, 7}},
      {ONE "mask = causal, window = 17))", "mesh c = 4", 4, 2, {0, 1}},
      {ONE "mask = causal, window = 18, same = d))", "mesh c = 4", 4, 3, {0, 1, 2}},
      {ONE "mask = none, window = 9))", "mesh c = 8", 8, 3, {0, 1, 7}},
      {ONE "mask = causal, window = 1))", "mesh c = 8", 8, 1, {0}},
      {ONE "mask = causal))", "mesh b = 2, c = 2", 4, 4, {0, 1, 2, 3}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Model m = model_with(cases[i].z);
    bool two = strstr(cases[i].mesh, "b =") != NULL;
    const char *split = two ? "split seq over b, c attention gather over c attention ring over b"
                            : "split seq over c attention ring";
    for (int half = 0; half < 2; half++) {
      Plan q = plan_bare(m.g, zb_printf(m.c.a, "%s %s %s%s", bind, cases[i].mesh, split,
                                        half ? " precision compute bf16" : ""));
      const ZpNode *forward = attend_of(q.p, ZP_FWD), *back = attend_of(q.p, ZP_BWD);
      uint64_t chunk = 2ull * BATCH * SEQ / cases[i].n * KV * HD, hops = cases[i].nsteps - 1,
               each = half ? 2 : 4;
      uint64_t o = half ? chunk / 2 * GRP * 4 : 0;
      cr_expect_eq(forward->nsteps, cases[i].nsteps, "%s: %u", cases[i].z, forward->nsteps);
      cr_expect(!memcmp(forward->steps, cases[i].steps, cases[i].nsteps * sizeof(uint32_t)), "%s",
                cases[i].z);
      cr_expect_eq(back->nsteps, cases[i].nsteps);
      cr_expect_eq(zp_node_bytes(&q.p->programs.segments[0], forward), hops * chunk * each);
      cr_expect_eq(zp_node_bytes(&q.p->programs.segments[0], back),
                   hops * chunk * each + (hops + (hops > 0)) * chunk * 4);
      cr_expect_eq(forward->scratch_bytes, 2 * chunk * each + o);
      cr_expect_eq(back->scratch_bytes, 2 * chunk * each + 2 * chunk * 4 + o);
      cr_expect_eq(sent(q.p, ZP_FWD, ZG_OP_ALL_GATHER) + sent(q.p, ZP_BWD, ZG_OP_REDUCE_SCATTER), 0);
      plan_close(&q);
    }
    model_close(&m);
  }
}

/* What a low rank makes is made again by every rank of what has that rank, which is gathered: keys' of all heads
 * and values' at once. Their gradients are as wide as they are. What is wider than it makes, or would take
 * longer to make than to send, is gathered itself. */
Test(attend, narrow) {
  static const char latent[] =
      "model M { axis batch, seq, e = 16, low = %d, head = 8, hd = 8\n"
      "  input x: real[batch, seq, e]\n"
      "  param d[e, low], wq[e, head, hd], wk[low, head, hd], wv[low, head, hd] ~ normal(1)\n"
      "  c = dot[e](x, d)\n"
      "  z = attend[seq, hd](dot[e](x, wq), dot[low](c, wk), dot[low](c, wv), mask = causal)\n"
      "  loss sum[head, hd](z) per x }\n";
  for (int i = 0; i < 3; i++) {
    int low = i == 0 ? 4 : i == 1 ? 32 : 2048;
    double kv = 2.0 * BATCH * SEQ / 4 * 64 * 4, c = 1.0 * BATCH * SEQ / 4 * low * 4;
    char whole[1024];
    snprintf(whole, sizeof whole, latent, low);
    Model m = model_open("attend", whole, NULL);
    Plan one = plan_of(m.g, "bind batch = 2, seq = 64");
    Plan q = plan_of(m.g, "bind batch = 2, seq = 64 mesh c = 4 split seq over c attention gather");
    double want = i == 0 ? c : kv;
    cr_expect_eq(sent(q.p, ZP_FWD, ZG_OP_ALL_GATHER), 3 * want, "%d: %g", low,
                 sent(q.p, ZP_FWD, ZG_OP_ALL_GATHER));
    cr_expect_eq(sent(q.p, ZP_BWD, ZG_OP_ALL_GATHER), 3 * want, "%d: %g", low,
                 sent(q.p, ZP_BWD, ZG_OP_ALL_GATHER));
    cr_expect_eq(sent(q.p, ZP_BWD, ZG_OP_REDUCE_SCATTER), 3 * kv, "%d", low);
    cr_expect_eq(q.p->notes.model_flops, one.p->notes.model_flops, "what is made again counts once");
    plan_close(&q);
    plan_close(&one);
    model_close(&m);
  }
}

/* ---- zigzag -------------------------------------------------------------------------------------------- */
/* Where element i of a member's part of axis 3 goes. */
static int64_t piece_place(const ZpMesh *m, ZpDims dims, int64_t member, int64_t length, int64_t i) {
  ZpPiece piece[ZP_PIECES];
  int n = zp_pieces(m, dims, 3, member, length, piece);
  for (int k = 0; k < n; k++)
    if (i >= piece[k].from && i < piece[k].from + piece[k].n) return piece[k].to + i - piece[k].from;
  cr_assert_fail("element %d of member %d is nowhere", (int)i, (int)member);
  return -1;
}

/* Two dims split zigzag, one that is faster cuts what they leave: every element is somewhere, rank r of n has
 * chunks r and 2n-1-r in order, and the parts put together dim by dim lie as those put together at once. */
Test(attend, zigzag_pieces) {
  static const int64_t sizes[][3] = {{2, 2, 1}, {4, 1, 2}, {2, 3, 3}, {1, 4, 4}, {3, 1, 1}, {1, 1, 3}};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
    ZpMesh m = {.ndims = 3, .pipe = -1};
    int64_t n = sizes[s][0] * sizes[s][1], last = sizes[s][2], all = 24 * n * last, length = all / n / last;
    for (int d = 0; d < 3; d++) m.dim[d] = (ZpDim){.size = sizes[s][d], .zigzag = d < 2 ? 3 : ZP_NO_AXIS};
    m.nranks = n * last;
    bool *seen = calloc((size_t)all, sizeof *seen);
    for (int64_t r = 0; r < m.nranks; r++)
      for (int64_t i = 0; i < length; i++) {
        int64_t at = piece_place(&m, 7, r, length, i), in = r % last * length + i, pair = r / last;
        int64_t chunk = all / (2 * n), own = in < chunk ? pair : 2 * n - 1 - pair;
        cr_assert(at >= 0 && at < all && !seen[at]);
        seen[at] = true;
        if (n > 1) cr_assert_eq(at, own * chunk + in % chunk, "%d: %d", (int)s, (int)at);
        else cr_assert_eq(at, r * length + i);
        int64_t by = piece_place(&m, 4, r % last, length, i);
        by = piece_place(&m, 2, r / last % sizes[s][1], length * last, by);
        by = piece_place(&m, 1, r / last / sizes[s][1], length * last * sizes[s][1], by);
        cr_assert_eq(by, at, "%d: element %d of rank %d", (int)s, (int)i, (int)r);
      }
    free(seen);
  }
}

/* Without a word, where a causal mask leaves all earlier keys and nothing is in the way; else contiguous. */
Test(attend, zigzag_where_it_balances) {
  static const struct {
    const char *z, *recipe;
    bool zigzag;
    double busiest; /* over the mean */
  } cases[] = {
      {ONE "mask = causal))", "mesh c = 4 split seq over c attention ring", true, 1},
      {ONE "mask = causal))", "mesh c = 4 split seq over c attention gather", true, 1},
      {ONE "mask = causal, same = d))", "mesh b = 2, c = 2 split seq over b, c attention gather", true, 1},
      {ONE "mask = causal))", "mesh c = 4 split seq over c contiguous attention gather", false, 1.75},
      {ONE "mask = causal))", "mesh c = 2 split seq over c contiguous attention ring", false, 1.5},
      {ONE "mask = causal))", "mesh c = 2 split seq over c attention heads", false, 1},
      {ONE "mask = causal))", "mesh c = 2 split seq over c zigzag attention heads", true, 1},
      {ONE "mask = none))", "mesh c = 4 split seq over c attention ring", false, 1},
      {ONE "mask = none))", "mesh c = 4 split seq over c zigzag attention ring", true, 1},
      {ONE "mask = causal, window = 8))", "mesh c = 4 split seq over c attention ring", false,
       16 * 8 / 120.0},
      {ONE "mask = causal))", "mesh c = 64 split seq over c attention gather", false, 127 / 64.0},
      {ONE "mask = causal))", "mesh c = 2, t = 2 split seq over c split kv over t else seq attention gather",
       true, 1},
      {ONE "mask = causal))", "mesh t = 2, c = 2 split seq over c split kv over t else seq attention gather",
       false, 1.5},
      {ONE "mask = causal)) + sum[hd](shift[seq](q, by = 1))", "mesh c = 4 split seq over c attention gather",
       false, 1.75},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Model m = model_with(cases[i].z);
    Plan q = plan_of(m.g, zb_printf(m.c.a, "%s %s", bind, cases[i].recipe));
    uint16_t seq = (uint16_t)zg_axis_find(m.g, "seq");
    bool zigzag = zp_is_zigzag(&q.p->layout.mesh, zp_all_dims(&q.p->layout.mesh), seq);
    const ZpNode *n = attend_of(q.p, ZP_FWD);
    cr_expect_eq(zigzag, cases[i].zigzag, "%s, %s: %s", cases[i].z, cases[i].recipe,
                 q.p->notes.order ? q.p->notes.order : "nothing said");
    cr_expect_float_eq(n->busiest / n->flops, cases[i].busiest, 1e-9, "%s, %s: %g", cases[i].z,
                       cases[i].recipe, n->busiest / n->flops);
    plan_close(&q);
    model_close(&m);
  }
}

/* Two chunks of a rank go round each by itself: with a window the earlier one to the next rank, the later one
 * to the rank before, as these are the next ones there. */
Test(attend, zigzag_ring) {
  static const struct {
    const char *z;
    uint32_t nsteps, steps[4];
    uint8_t chunks[4];
    double hops; /* of all that the rank has */
  } cases[] = {
      {ONE "mask = causal))", 4, {0, 1, 2, 3}, {3, 3, 3, 3}, 3},
      {ONE "mask = none))", 4, {0, 1, 2, 3}, {3, 3, 3, 3}, 3},
      {ONE "mask = causal, window = 9))", 3, {0, 1, 3}, {3, 1, 2}, 1},
      {ONE "mask = causal, window = 10))", 4, {0, 1, 2, 3}, {3, 1, 3, 3}, 2.5},
      {ONE "mask = causal, window = 1))", 1, {0}, {3}, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Model m = model_with(cases[i].z);
    Plan q = plan_of(m.g, zb_printf(m.c.a, "%s mesh c = 4 split seq over c zigzag attention ring", bind));
    ZpNode *n = (ZpNode *)(uintptr_t)attend_of(q.p, ZP_FWD);
    uint64_t bytes = 2ull * BATCH * SEQ / 4 * KV * HD * 4;
    cr_expect_eq(n->nsteps, cases[i].nsteps, "%s: %u", cases[i].z, n->nsteps);
    cr_expect(!memcmp(n->steps, cases[i].steps, n->nsteps * sizeof *n->steps), "%s", cases[i].z);
    cr_expect(!memcmp(n->chunks, cases[i].chunks, n->nsteps), "%s", cases[i].z);
    cr_expect_eq((double)zp_ring_bytes(&q.p->programs.segments[0], n), cases[i].hops * (double)bytes, "%s",
                 cases[i].z);
    uint8_t fewer[] = {3, 1, 1, 1};
    ZbErr err = {0};
    n->chunks = fewer; /* the later chunk does not go round */
    bool misses = cases[i].nsteps > 1;
    cr_expect_eq(zp_check_segments(q.p, &err), !misses, "%s", cases[i].z);
    cr_expect(!misses || strstr(err.text, "leaves out"), "%s", err.text);
    plan_close(&q);
    model_close(&m);
  }
}

Test(attend, zigzag_refused) {
  static const struct {
    const char *z, *recipe, *code, *says;
  } cases[] = {
      {ONE "mask = causal)) + sum[hd](shift[seq](q, by = 1))", "mesh c = 4 split seq over c zigzag", "Z0302",
       "needs its positions in order"},
      {ONE "mask = causal))", "mesh c = 64 split seq over c zigzag", "Z0302",
       "64 positions are not 128 chunks"},
      {ONE "mask = causal))", "mesh t = 2, c = 2 split seq over c zigzag split kv over t else seq", "Z0302",
       "`t`, which splits it too, comes before `c` in the mesh"},
      {ONE "mask = causal))", "mesh c = 2, d = 2 split kv over c zigzag split seq over d contiguous", "Z0809",
       "`c` splits no positions"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Model m = model_with(cases[i].z);
    Plan q = plan_try(m.g, zb_printf(m.c.a, "%s%s", bind, cases[i].recipe));
    const char *said = plan_messages(&q);
    bool warned = !strcmp(cases[i].code, "Z0809");
    cr_expect(!q.p != warned && strstr(said, cases[i].code) && strstr(said, cases[i].says), "%s: %s",
              cases[i].z, said);
    plan_close(&q);
    model_close(&m);
  }
  Model m = model_with(ONE "mask = causal))");
  Plan q = plan_try_pinned(m.g, zb_printf(m.c.a, "%smesh c = 2 split seq over c zigzag", bind));
  cr_expect(!q.p && strstr(plan_messages(&q), "Z0808") && strstr(plan_messages(&q), "for CPUs only"));
  plan_close(&q);
  q = plan_try_pinned(m.g, zb_printf(m.c.a, "%smesh c = 2 split seq over c attention gather", bind));
  cr_assert(q.p);
  cr_expect(!zp_is_zigzag(&q.p->layout.mesh, 1, (uint16_t)zg_axis_find(m.g, "seq")));
  cr_expect(strstr(q.p->notes.order, "contiguously"), "%s", q.p->notes.order);
  plan_close(&q);
  model_close(&m);
}

/* What has a bias, or keys of another sequence, does not go round. */
Test(attend, ring_of_what_cannot) {
  static const char *const cases[] = {
      ONE "mask = causal, bias = dot[e](x, b)))",
      "sum[hd](attend[seq, past, hd](q, dot[e](y, wk), dot[e](y, wv), mask = none))"};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Model m = model_with(cases[i]);
    Plan q = plan_of(m.g, zb_printf(m.c.a, "%smesh c = 4 split seq, past over c attention ring", bind));
    cr_expect_eq(attend_of(q.p, ZP_FWD)->dims, 0);
    cr_expect_eq(count_collectives(q.p, 0, ZP_FWD, ZG_OP_ALL_GATHER, "c"), i ? 2 : 3, "%d", (int)i);
    plan_close(&q);
    model_close(&m);
  }
}

/* The checker finds steps that are left out, in no order, and scratch that is too small. */
Test(attend, ring_is_checked) {
  Model m = model_with(ONE "mask = causal, window = 18))");
  static const char *const says[] = {"leaves out",      "in no order", "scratch", "other ranks",
                                     "cannot go round", "scratch",     "scratch"};
  for (int i = 0; i < 7; i++) {
    Plan q = plan_of(
        m.g, zb_printf(m.c.a, "%smesh c = 4, d = 2 split seq over c split kv over d attention ring", bind));
    ZpNode *n = (ZpNode *)(uintptr_t)attend_of(q.p, i % 2 ? ZP_FWD : ZP_BWD);
    uint32_t steps[] = {0, 2, 1};
    ZbErr err = {0};
    cr_assert(zp_check_segments(q.p, &err), "%s", err.text);
    if (i == 0) n->nsteps--;
    if (i == 1) n->steps = steps;
    if (i == 2) n->scratch_bytes = zp_ring(&q.p->programs.segments[0], n).bytes - 64;
    if (i == 3) n->dims = 2;
    if (i == 4) n->axis++;
    if (i > 4) n->scratch_bytes -= 64; /* a kernel's, forward and backward */
    cr_expect(!zp_check_segments(q.p, &err) && strstr(err.text, says[i]), "%d: %s", i, err.text);
    plan_close(&q);
  }
  model_close(&m);
}

Test(attend, ring_on_a_device) {
  Model m = model_with(ONE "mask = none))");
  Plan q = plan_try_pinned(m.g, zb_printf(m.c.a, "%smesh c = 2 split seq over c attention ring", bind));
  cr_expect(q.p, "%s", plan_messages(&q));
  plan_close(&q);
  model_close(&m);
}

Test(attend, refusals) {
  static const struct {
    const char *z, *recipe, *code, *says;
  } cases[] = {
      {"sum[wide](attend[seq, hd](q, dot[e](x, wk), dot[e](x, ww), mask = causal))",
       "mesh t = 2 split wide over t", "Z0302", "attend"},
      {ONE "mask = none))", "mesh t = 2 split hd over t", "Z0302", "attend"},
      {"sum[hd](attend[seq, past, hd](q, dot[e](y, wk), dot[e](y, wv), mask = causal))", "", "Z0309",
       "`seq` has 64 and `past` 40"},
      {"sum[hd](attend[seq, past, hd](q, dot[e](y, wk), dot[e](y, wv), mask = none, window = 3))", "",
       "Z0309", "`seq` has 64 and `past` 40"},
      {ONE "mask = none))", "mesh c = 4 split seq over c attention heads", "Z0301",
       "no axis of the keys' heads divides over `c` (4)"},
      {ONE "mask = none))", "mesh c = 2, t = 2 split seq over c split kv over t attention heads over c",
       "Z0301", "must come before `c` in the mesh"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Model m = model_with(cases[i].z);
    Plan q = plan_try(m.g, zb_printf(m.c.a, "%s%s", bind, cases[i].recipe));
    const char *said = plan_messages(&q);
    cr_expect(!q.p && strstr(said, cases[i].code) && strstr(said, cases[i].says), "%s: %s", cases[i].z, said);
    plan_close(&q);
    model_close(&m);
  }
}
