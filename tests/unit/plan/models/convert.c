/* Bringing a value from one state to another, exhaustively: every pair of states over three mesh dims, played
 * on simulated ranks with real numbers. */
#include "runtime/plan/local/shard.h"
#include "tests/unit/plan/models/plan.h"

#include <criterion/criterion.h>
#include <string.h>

enum { A = 8, B = 8, MOST = 3, RANKS = 8 };
typedef struct { /* what one rank has of x[a, b] */
  int a, b;
  int x[A][B];
} Local;

typedef struct {
  Model m;
  Plan q;
  ZpBuild build;
  ZgSegment s;
  ZgNode maker;
  ZgValue value;
  uint16_t axis[2]; /* of a and b */
} Bench;

static void bench_open(Bench *t) {
  memset(t, 0, sizeof *t);
  t->m = model_open("mlp", NULL, "-D inputs=8 -D hidden=8");
  t->q = plan_of(t->m.g, "mesh d0 = 2, d1 = 2, d2 = 2 split batch over d0, d1, d2 bind batch = 8");
  t->build = (ZpBuild){.p = t->q.p, .d = t->q.d};
  t->axis[0] = (uint16_t)zg_axis_find(t->m.g, "pixel");
  t->axis[1] = (uint16_t)zg_axis_find(t->m.g, "h1");
  t->maker = (ZgNode){.op = ZG_OP_MUL, .nin = 2, .nout = 1};
  t->value = (ZgValue){zg_type(ZG_REAL, t->axis, 2), 0};
  t->s = (ZgSegment){.nodes = &t->maker, .nnodes = 1, .nforward = 1, .values = &t->value, .nvalues = 1};
}

static void bench_close(Bench *t) {
  plan_close(&t->q);
  model_close(&t->m);
}

static int coord(int rank, int d) { return rank >> (MOST - 1 - d) & 1; }
/* Number of a rank in its group along `dims`, first dim slowest. */
static int member(int rank, ZpDims dims) {
  int i = 0;
  for (int d = 0; d < MOST; d++)
    if (dims >> d & 1) i = 2 * i + coord(rank, d);
  return i;
}
static bool together(int r, int q, ZpDims dims) { return member(r, ~dims & 7) == member(q, ~dims & 7); }

/* A rank's part of the true tensor, x[i][j] = 10 i + j + 1; of a partial value, numbers of which the group's
 * sum or maximum is true. */
static Local part(const Bench *t, const ZpState *s, int rank) {
  int from[2] = {0, 0}, n[2] = {A, B};
  bool first = true, partial = false, max = false;
  for (int d = 0; d < MOST; d++) {
    if (s[d].kind == 'P') partial = true, max |= s[d].max, first &= coord(rank, d) == 0;
    for (int k = 0; k < 2; k++)
      if (s[d].kind == 'S' && s[d].axis == t->axis[k]) n[k] /= 2, from[k] += n[k] * coord(rank, d);
  }
  ZpDims dims = 0;
  for (int d = 0; d < MOST; d++) dims |= s[d].kind == 'P' ? 1u << d : 0;
  int others = (1 << __builtin_popcount(dims)) - 1;
  Local l = {n[0], n[1], {{0}}};
  for (int i = 0; i < n[0]; i++)
    for (int j = 0; j < n[1]; j++) {
      int x = 10 * (from[0] + i) + from[1] + j + 1;
      l.x[i][j] = !partial ? x : max ? (first ? x : x - 5) : first ? x - 7 * others : 7;
    }
  return l;
}

static Local block(const Local *l, bool rows, int i, int n) {
  Local p = {rows ? l->a / n : l->a, rows ? l->b : l->b / n, {{0}}};
  for (int y = 0; y < p.a; y++)
    for (int x = 0; x < p.b; x++) p.x[y][x] = l->x[y + (rows ? i * p.a : 0)][x + (rows ? 0 : i * p.b)];
  return p;
}

static void append(Local *l, bool rows, const Local *p) {
  int y0 = rows ? l->a : 0, x0 = rows ? 0 : l->b;
  for (int y = 0; y < p->a; y++)
    for (int x = 0; x < p->b; x++) l->x[y + y0][x + x0] = p->x[y][x];
  l->a = y0 + p->a;
  l->b = x0 + p->b;
}

static void add(Local *l, const Local *p, bool max) {
  for (int y = 0; y < p->a; y++)
    for (int x = 0; x < p->b; x++) {
      int v = p->x[y][x];
      l->x[y][x] = max ? (v > l->x[y][x] ? v : l->x[y][x]) : l->x[y][x] + v;
    }
}

/* Zeros but for the group's i-th block; or all of it for the first, and nothing for the others. */
static Local pad(const Local *l, bool split, bool rows, int i, int n) {
  Local p = {l->a * (split && rows ? n : 1), l->b * (split && !rows ? n : 1), {{0}}};
  for (int y = 0; y < l->a && (split || i == 0); y++)
    for (int x = 0; x < l->b; x++)
      p.x[y + (split && rows ? i * l->a : 0)][x + (split && !rows ? i * l->b : 0)] = l->x[y][x];
  return p;
}

/* One instruction on all ranks. */
static void play(const Bench *t, const ZpNode *k, Local *all) {
  Local now[RANKS];
  int n = 1 << __builtin_popcount(k->dims);
  bool rows = k->axis == t->axis[0], rows2 = k->axis2 == t->axis[0];
  for (int r = 0; r < RANKS; r++) {
    Local got = {0, 0, {{0}}};
    int mine = member(r, k->dims), had = 0;
    for (int i = 0; i < n; i++) /* the group, in order */
      for (int q = 0; q < RANKS; q++) {
        if (!together(r, q, k->dims) || member(q, k->dims) != i) continue;
        Local in = all[q];
        switch (k->call.op) {
        case ZG_OP_REDUCE_SCATTER: in = block(&in, rows, mine, n); /* fall through */
        case ZG_OP_ALL_REDUCE: had++ ? add(&got, &in, k->call.opt[0] != 0) : (void)(got = in); break;
        case ZG_OP_ALL_TO_ALL: in = block(&in, rows2, mine, n); /* fall through */
        case ZG_OP_ALL_GATHER: had++ ? append(&got, rows, &in) : (void)(got = in); break;
        case ZG_OP_LOCAL_SLICE:
          if (q == r) got = block(&in, rows, mine, n);
          break;
        case ZG_OP_LOCAL_PAD:
          if (q == r) got = pad(&in, k->axis != ZP_NO_AXIS, rows, mine, n);
          break;
        default: cr_assert_fail("conversion by %s", zg_op_info[k->call.op].text);
        }
      }
    now[r] = got;
  }
  memcpy(all, now, sizeof now);
}

static ZpState state_number(const Bench *t, int i) {
  static const char kind[] = {'R', 'P', 'S', 'S', 'P'};
  ZpState s = {.kind = (uint8_t)kind[i], .max = i == 4};
  if (s.kind == 'S') s.axis = t->axis[i - 2];
  return s;
}

static const char *text(const Bench *t, const ZpState *s) {
  const char *out = "";
  for (int d = 0; d < MOST; d++)
    out = zb_printf(t->q.a, "%s%c%s ", out, s[d].kind,
                    s[d].kind == 'S' ? s[d].axis == t->axis[0] ? "a" : "b"
                    : s[d].max       ? "m"
                                     : "");
  return out;
}

/* The local program `out` in the making, of the one value of the bench. */
static ZpShard shard_into(Bench *t, ZpSegment *out, ZpVersion **versions) {
  return (ZpShard){.b = &t->build,
                   .p = t->q.p,
                   .s = &t->s,
                   .out = out,
                   .phase = ZP_FWD,
                   .versions = versions,
                   .node = &t->maker};
}

/* Converts, plays, compares; returns the instructions taken that move data. */
static uint32_t convert(Bench *t, const ZpState *from, const ZpState *to) {
  ZpSegment out = {0};
  ZpVersion *versions = NULL;
  ZpShard h = shard_into(t, &out, &versions);
  zp_version_add(&h, 0, zp_new_value(&h, &t->value.type, from));
  uint32_t v = zp_convert(&h, 0, to), traffic = 0;
  cr_assert(zp_state_eq(&h, out.values[v].state, to));
  Local all[RANKS];
  for (int r = 0; r < RANKS; r++) all[r] = part(t, from, r);
  const ZpList *l = &out.list[ZP_FWD];
  for (uint32_t i = 0; i < l->n; i++) {
    play(t, &l->nodes[i], all);
    traffic += zp_sends(&l->nodes[i]);
  }
  ZpNode sum = {.call = {.op = ZG_OP_ALL_REDUCE}};
  ZpState whole[ZP_MAX_DIMS];
  memcpy(whole, to, sizeof whole);
  for (int d = 0; d < MOST; d++)
    if (to[d].kind == 'P') sum.dims |= 1u << d, whole[d] = (ZpState){.kind = 'R'};
  if (sum.dims) play(t, &sum, all); /* what the parts of a sum come to is the value, whoever has what of it */
  for (int r = 0; r < RANKS; r++) {
    Local want = part(t, whole, r);
    cr_assert(!memcmp(&want, &all[r], sizeof want), "from %s to %s: rank %d has something else",
              text(t, from), text(t, to), r);
  }
  cr_assert_eq(zp_convert(&h, 0, to), v, "a conversion is made once");
  return traffic;
}

/* A partial value stays as it is only where nothing else is partial in another way, so sums and maxima are
 * not mixed. */
Test(convert, every_pair_of_states) {
  Bench t;
  bench_open(&t);
  uint32_t pairs = 0, dear = 0;
  for (int i = 0; i < 5 * 5 * 5; i++)
    for (int j = 0; j < 4 * 4 * 4; j++) {
      int f[MOST] = {i / 25, i / 5 % 5, i % 5}, g[MOST] = {j / 16, j / 4 % 4, j % 4};
      ZpState from[ZP_MAX_DIMS] = {0}, to[ZP_MAX_DIMS] = {0};
      bool sum = false, max = false, ok = true;
      uint32_t changes = 0;
      for (int d = 0; d < MOST; d++) {
        from[d] = state_number(&t, f[d]);
        to[d] = state_number(&t, g[d]);
        if (to[d].kind == 'P') ok &= from[d].kind == 'P', to[d] = from[d]; /* nothing becomes partial */
        sum |= from[d].kind == 'P' && !from[d].max;
        max |= from[d].max;
        changes += from[d].kind != to[d].kind || from[d].axis != to[d].axis;
      }
      bool keeps = false;
      for (int d = 0; d < MOST; d++) keeps |= to[d].kind == 'P';
      if (!ok || (sum && max) || keeps) continue;
      uint32_t n = convert(&t, from, to);
      cr_assert_leq(n, 2 * changes + 1);
      pairs++;
      dear += n > changes;
    }
  cr_log_info("%u pairs of states, %u need more instructions than dims change", pairs, dear);
  cr_assert_gt(pairs, 2000);
  cr_assert_lt(dear * 10, pairs);
  bench_close(&t);
}

/* A whole value and a split one become parts of a sum without traffic, beside what is partial already; but
 * not a cut that another one of the same axis stands upon. */
Test(convert, becomes_partial) {
  Bench t;
  bench_open(&t);
  uint32_t cases = 0;
  for (int i = 0; i < 4 * 4 * 4; i++)
    for (uint32_t dims = 1; dims < 1u << MOST; dims++) {
      int f[MOST] = {i / 16, i / 4 % 4, i % 4};
      ZpState from[ZP_MAX_DIMS] = {0}, to[ZP_MAX_DIMS] = {0};
      bool ok = true;
      for (int d = 0; d < MOST; d++) {
        from[d] = to[d] = state_number(&t, f[d]);
        if (dims >> d & 1) to[d] = state_number(&t, 1);
        for (int e = 0; e < MOST; e++) ok &= e == d || from[d].kind != 'S' || f[e] != f[d];
      }
      if (!ok) continue;
      uint32_t n = convert(&t, from, to);
      cr_assert_eq(n, 0, "from %s to %s takes %u instructions", text(&t, from), text(&t, to), n);
      cases++;
    }
  cr_assert_gt(cases, 200);
  bench_close(&t);
}

/* The usual ones take one instruction over all dims at once. */
Test(convert, usual) {
  Bench t;
  bench_open(&t);
  static const struct {
    const char *from, *to;
    uint32_t n;
  } cases[] = {
      {"PPP", "RRR", 1}, {"PPP", "aaa", 1}, {"aaa", "RRR", 1}, {"RRR", "aab", 0},
      {"aaa", "bbb", 1}, {"aaa", "abR", 2}, {"PRR", "aRR", 1}, {"aRb", "RRR", 2},
      {"Paa", "aaa", 2}, {"mmm", "RRR", 1}, {"RPR", "aaa", 1}, {"aaR", "RaR", 1},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ZpState s[2][ZP_MAX_DIMS] = {{{0}}};
    for (int k = 0; k < 2; k++)
      for (int d = 0; d < MOST; d++)
        s[k][d] = state_number(&t, (int)(strchr("RPabm", (k ? cases[i].to : cases[i].from)[d]) - "RPabm"));
    uint32_t n = convert(&t, s[0], s[1]);
    cr_expect_eq(n, cases[i].n, "%s to %s takes %u instructions, not %u", cases[i].from, cases[i].to, n,
                 cases[i].n);
  }
  bench_close(&t);
}

/* What is scattered over one dim and reduced over another is scattered first: then a part is reduced. */
Test(convert, scatters_before_it_reduces) {
  Bench t;
  bench_open(&t);
  ZpSegment out = {0};
  ZpVersion *versions = NULL;
  ZpShard h = shard_into(&t, &out, &versions);
  ZpState r = state_number(&t, 0), p = state_number(&t, 1), a = state_number(&t, 2);
  ZpState from[ZP_MAX_DIMS] = {p, p, r}, to[ZP_MAX_DIMS] = {r, a, r};
  for (int d = MOST; d < ZP_MAX_DIMS; d++) from[d] = to[d] = r;
  zp_version_add(&h, 0, zp_new_value(&h, &t.value.type, from));
  zp_convert(&h, 0, to);
  const ZpNode *made = out.list[ZP_FWD].nodes;
  cr_assert_eq(out.list[ZP_FWD].n, 2);
  cr_assert_eq(made[0].call.op, ZG_OP_REDUCE_SCATTER);
  cr_assert_eq(made[1].call.op, ZG_OP_ALL_REDUCE);
  cr_assert_eq(2 * out.values[made[1].in[0]].bytes, out.values[made[0].in[0]].bytes);
  bench_close(&t);
}

/* A part of what is whole already, or was on the way, costs nothing more. */
Test(convert, reuses_what_is_whole) {
  Bench t;
  bench_open(&t);
  ZpSegment out = {0};
  ZpVersion *versions = NULL;
  ZpShard h = shard_into(&t, &out, &versions);
  ZpState a = state_number(&t, 2), r = state_number(&t, 0);
  ZpState split[ZP_MAX_DIMS] = {a, a, r}, second[ZP_MAX_DIMS] = {r, a, r}, whole[ZP_MAX_DIMS] = {r, r, r};
  for (int d = MOST; d < ZP_MAX_DIMS; d++) split[d] = second[d] = whole[d] = r;
  zp_version_add(&h, 0, zp_new_value(&h, &t.value.type, split));
  zp_convert(&h, 0, second);
  zp_convert(&h, 0, whole);
  const ZpNode *made = out.list[ZP_FWD].nodes;
  cr_assert_eq(out.list[ZP_FWD].n, 2);
  cr_assert_eq(made[0].call.op, ZG_OP_ALL_GATHER);
  cr_assert_eq(made[0].dims, 3);
  cr_assert_eq(made[1].call.op, ZG_OP_LOCAL_SLICE);
  bench_close(&t);
}
