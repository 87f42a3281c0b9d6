/* What a step moves is what its plan says: every recipe named makes one step, with a
 * communicator that counts what it is given, and the counts are compared with the sums over the plan: by kind
 * of operation and by type, in number and in bytes.
 *
 *     mpirun -np 4 tests/scenarios/tools/moved GRAPH RECIPES DATA RECIPE...
 *
 * Bytes are those of one rank's whole tensor, as in a plan: of a gather what comes out, of a scatter what
 * goes in. What nodes send and receive by themselves, in rings, halos and rows of experts, is compared in
 * bytes alone; of rows, and of what is done in each of their rounds, with the least and the most that the
 * plan says. */
#include "kernels/kernels.h"
#include "runtime/exec/engine/engine.h"
#include "runtime/exec/state/state.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef enum { SEND, RECV, ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, KINDS } Kind;
static const char *const kind_text[] = {"send",       "receive",        "all-reduce",
                                        "all-gather", "reduce-scatter", "all-to-all"};
enum { ELEMS = ZK_ELEMS };
static const char *const elem_text[] = {"f32", "f64", "bf16", "bytes"};
typedef struct {
  uint64_t n, bytes;
} Count;
typedef Count Counts[KINDS][ELEMS];

/* ---- the communicator ---- */
static const ZxCommTable *plain;
static Counts moved;
static bool counting;

static void note(Kind kind, ZkElem elem, uint64_t bytes) {
  if (!counting) return;
  moved[kind][elem].n++;
  moved[kind][elem].bytes += bytes;
}
static uint64_t members(ZxComm *c, ZxGroup g) { return (uint64_t)plain->group_size(c, g); }
static uint64_t size_of(ZkElem e) { return e == ZK_F64 ? 8 : e == ZK_BF16 ? 2 : 4; }

static ZxRequest send(ZxComm *c, const void *p, size_t bytes, int peer, int tag) {
  note(SEND, ZK_U8, bytes);
  return plain->send(c, p, bytes, peer, tag);
}
static ZxRequest recv(ZxComm *c, void *p, size_t bytes, int peer, int tag) {
  note(RECV, ZK_U8, bytes);
  return plain->recv(c, p, bytes, peer, tag);
}
static ZxRequest all_reduce(ZxComm *c, ZxGroup g, void *p, size_t n, ZkElem e, ZxReduce how) {
  note(ALL_REDUCE, e, n * size_of(e));
  return plain->all_reduce(c, g, p, n, e, how);
}
static ZxRequest all_gather(ZxComm *c, ZxGroup g, const void *part, size_t bytes, void *out) {
  note(ALL_GATHER, ZK_U8, bytes * members(c, g));
  return plain->all_gather(c, g, part, bytes, out);
}
static ZxRequest reduce_scatter(ZxComm *c, ZxGroup g, void *in, size_t n, ZkElem e, ZxReduce how, void *out) {
  note(REDUCE_SCATTER, e, n * size_of(e) * members(c, g));
  return plain->reduce_scatter(c, g, in, n, e, how, out);
}
static ZxRequest all_to_all(ZxComm *c, ZxGroup g, const void *in, size_t bytes, void *out) {
  note(ALL_TO_ALL, ZK_U8, bytes * members(c, g));
  return plain->all_to_all(c, g, in, bytes, out);
}

/* ---- the plan ---- */
typedef struct {
  Counts least, most;
  uint64_t even, rounds; /* of collectives in rounds: if experts are chosen alike, and at most */
  bool parts;            /* nodes send by themselves, in several messages */
  int64_t rank;
} Planned;

static void add_times(Planned *x, Kind kind, ZkElem elem, uint64_t bytes, ZpRounds times) {
  x->least[kind][elem].n += times.even;
  x->least[kind][elem].bytes += times.even * bytes;
  x->most[kind][elem].n += times.most;
  x->most[kind][elem].bytes += times.most * bytes;
}

static void add(Planned *x, Kind kind, ZkElem elem, uint64_t bytes) {
  add_times(x, kind, elem, bytes, (ZpRounds){1, 1});
}

/* To neighbours, of which ranks at an end have fewer. */
static void add_halo(Planned *x, const ZpPlan *p, const ZpNode *k) {
  ZpHalo h = zp_halo(k);
  int64_t at = zp_group_index(&p->layout.mesh, x->rank, k->dims), n = zp_group_size(&p->layout.mesh, k->dims);
  for (int i = 0; i < 2; i++) {
    int64_t to = at + h.part[i].hop, from = at - h.part[i].hop;
    if (h.part[i].count && to >= 0 && to < n) add(x, SEND, ZK_U8, h.part[i].bytes);
    if (h.part[i].count && from >= 0 && from < n) add(x, RECV, ZK_U8, h.part[i].bytes);
  }
  x->parts = true;
}

/* All of a rank's rows, as many as it has or none: they come from it, or go to it. Those that come may be
 * all ranks'. */
static void add_rows(Planned *x, const ZpPlan *p, const ZpSegment *s, const ZpNode *k) {
  bool home = k->call.op == ZG_OP_COMBINE;
  uint64_t own = zp_node_bytes(s, k), others = own * (uint64_t)(zp_group_size(&p->layout.mesh, k->dims) - 1);
  x->most[SEND][ZK_U8].bytes += home ? others : own;
  x->most[RECV][ZK_U8].bytes += home ? own : others;
  x->parts = true;
}

static void add_ring(Planned *x, const ZpSegment *s, const ZpNode *k) {
  for (int kind = SEND; kind <= RECV; kind++) add(x, (Kind)kind, ZK_U8, zp_ring_bytes(s, k));
  x->parts = true;
}

static void add_nodes(Planned *x, const ZpPlan *p, const ZpSegment *s, const ZpList *l) {
  for (uint32_t i = 0; i < l->n; i++) {
    const ZpNode *k = &l->nodes[i];
    if (!k->dims) continue;
    const ZpValue *in = &s->values[k->in[0]], *out = &s->values[k->out[0]];
    ZkElem elem = in->elem == ZK_BF16 ? ZK_BF16 : ZK_F32;
    ZpRounds times = zp_rounds(p, s, l, i);
    bool rows = k->call.op == ZG_OP_DISPATCH || k->call.op == ZG_OP_COMBINE || k->call.op == ZG_OP_ROUND;
    if (k->rounds && !rows) x->even += times.even, x->rounds += times.most;
    switch (k->call.op) {
    case ZG_OP_ALL_REDUCE: add_times(x, ALL_REDUCE, elem, in->bytes, times); break;
    case ZG_OP_REDUCE_SCATTER: add_times(x, REDUCE_SCATTER, elem, in->bytes, times); break;
    case ZG_OP_ALL_GATHER: add_times(x, ALL_GATHER, ZK_U8, out->bytes, times); break;
    case ZG_OP_ALL_TO_ALL: add_times(x, ALL_TO_ALL, ZK_U8, in->bytes, times); break;
    case ZG_OP_ROUND: add(x, ALL_GATHER, ZK_U8, zp_node_bytes(s, k)); break; /* once for all */
    case ZG_OP_DISPATCH:
    case ZG_OP_COMBINE: add_rows(x, p, s, k); break;
    case ZG_OP_SHIFT: add_halo(x, p, k); break;
    case ZG_OP_ATTEND:
    case ZG_OP_ATTEND_GRAD: add_ring(x, s, k); break;
    default: ZB_ASSERT(!zp_sends(k)); break; /* slices and pads are local */
    }
  }
}

static void add_instr(Planned *x, const ZpPlan *p, const ZpStage *st, const ZpInstr *in) {
  const ZpSegment *s = in->inst < st->ninsts ? &p->programs.segments[st->insts[in->inst].segment] : NULL;
  switch (in->op) {
  case ZP_I_COUNT:
  case ZP_I_FWD:
  case ZP_I_BWD: add_nodes(x, p, s, &s->list[zp_phase(in->op)]); break;
  case ZP_I_SEND_ACT:
  case ZP_I_SEND_GRAD: add(x, SEND, ZK_U8, in->bytes); break;
  case ZP_I_RECV_ACT:
  case ZP_I_RECV_GRAD: add(x, RECV, ZK_U8, in->bytes); break;
  case ZP_I_GATHER_PARAMS:
  case ZP_I_PUBLISH_PARAMS: add(x, ALL_GATHER, ZK_U8, in->bytes); break;
  case ZP_I_SCATTER_GRADS:
    if (in->dims) add(x, in->coll == ZG_OP_REDUCE_SCATTER ? REDUCE_SCATTER : ALL_REDUCE, ZK_F32, in->bytes);
    break;
  case ZP_I_GATHER_UPDATES: add(x, ALL_GATHER, ZK_U8, in->bytes); break;
  case ZP_I_SCATTER_UPDATES: add(x, REDUCE_SCATTER, ZK_F32, in->bytes); break;
  case ZP_I_REDUCE_GRADS:
  case ZP_I_REDUCE_TIED: add(x, ALL_REDUCE, ZK_F32, in->bytes); break;
  case ZP_I_REDUCE_COUNT:
    if (in->dims) add(x, ALL_REDUCE, ZK_F64, in->bytes);
    break;
  case ZP_I_REDUCE_STEP: add(x, ALL_REDUCE, ZK_F64, in->bytes); break;
  default: ZB_ASSERT(in->queue == ZP_Q_COMPUTE); break;
  }
}

static int compare(const ZpPlan *p, uint32_t stage, int rank) {
  Planned planned = {.rank = rank};
  const ZpStage *st = &p->programs.stages[stage];
  int wrong = 0;
  for (uint32_t i = 0; i < st->prog.ninstrs; i++) add_instr(&planned, p, st, &st->prog.instrs[i]);
  for (int k = 0; k < KINDS; k++)
    for (int e = 0; e < ELEMS; e++) {
      Count a = planned.least[k][e], b = moved[k][e], c = planned.most[k][e];
      bool parts = planned.parts && k <= RECV;
      if ((parts || (a.n <= b.n && b.n <= c.n)) && a.bytes <= b.bytes && b.bytes <= c.bytes) continue;
      zx_say(rank,
             "%s: %s of %s: %" PRIu64 " to %" PRIu64 " with %" PRIu64 " to %" PRIu64
             " bytes are planned, %" PRIu64 " with %" PRIu64 " done",
             p->asked.recipe->name, kind_text[k], elem_text[e], a.n, c.n, a.bytes, c.bytes, b.n, b.bytes);
      wrong++;
    }
  uint64_t other = planned.least[ALL_REDUCE][ZK_F32].n - planned.even; /* all-reduces outside of rounds */
  if (rank == 0 && planned.rounds)
    printf("%-12s all-reduces in rounds: %" PRIu64 " of %" PRIu64 " to %" PRIu64 "\n", p->asked.recipe->name,
           moved[ALL_REDUCE][ZK_F32].n - other, planned.even, planned.rounds);
  if (rank == 0)
    printf("%-12s all-reduce %" PRIu64 " of bf16, %" PRIu64 " of f32; reduce-scatter %" PRIu64 ", %" PRIu64
           "; all-gather %" PRIu64 "; all-to-all %" PRIu64 "; send %" PRIu64 "\n",
           p->asked.recipe->name, moved[ALL_REDUCE][ZK_BF16].n, moved[ALL_REDUCE][ZK_F32].n,
           moved[REDUCE_SCATTER][ZK_BF16].n, moved[REDUCE_SCATTER][ZK_F32].n, moved[ALL_GATHER][ZK_U8].n,
           moved[ALL_TO_ALL][ZK_U8].n, moved[SEND][ZK_U8].n);
  return wrong;
}

/* ---- a step ---- */
static ZpPlan *plan(ZbArena *a, const ZgGraph *g, const char *file, const char *name) {
  ZlSources *s = zl_sources_new(a);
  ZlDiags *d = zl_diags_new(a, s);
  ZlOptions lo = {NULL, 0};
  ZpOptions po = {.scratch = zx_device_cpu.scratch, .threads = 1, .supports = zx_device_cpu.supports};
  const char *only;
  ZlProgram *l = zl_load_named(a, s, d, zb_printf(a, "%s:%s", file, name), &lo, &only);
  const ZlRecipe *r = l ? zl_recipe(l, d, only) : NULL;
  ZpPlan *p = r && !zl_errors(d) ? zp_plan(a, g, r, d, &po) : NULL;
  ZbText t = {0};
  zl_print_text(d, &t);
  if (t.s && !p) fputs(t.s, stderr);
  zb_text_free(&t);
  return p;
}

static int step(ZxComm *c, ZbArena *a, ZpPlan *p, ZxMix *data) {
  ZbErr err = {0};
  ZkEnv env = {.pool = zk_pool_new(1)};
  ZxEngineOptions o = {.device = &zx_device_cpu, .env = &env, .data = data, .order = ZX_ORDER_SEQUENTIAL};
  ZxStep out;
  ZxEngine *e = zx_engine_new(a, p, c, &o, &err);
  bool ok = e && zx_engine_init(e, &err);
  memset(moved, 0, sizeof moved);
  counting = true;
  ok = ok && zx_engine_step(e, 1, &out, &err);
  counting = false;
  int rank = plain->rank(c), wrong = !ok;
  if (!ok) zx_say(rank, "%s: %s", p->asked.recipe->name, err.text);
  else
    wrong = compare(
        p, p->layout.mesh.pipe < 0 ? 0 : (uint32_t)zp_coord(&p->layout.mesh, rank, p->layout.mesh.pipe),
        rank);
  zx_engine_free(e);
  zk_pool_free(env.pool);
  return wrong;
}

int main(int argc, char **argv) {
  ZbErr err = {0};
  ZxComm *c = zx_comm_mpi(&argc, &argv, &err);
  ZbArena *a = zb_arena_new();
  ZgGraph *g = c && argc > 4 ? zg_read_file(a, argv[1], &err) : NULL;
  ZxMix *data = g ? zx_mix_open(argv[3], &err) : NULL;
  if (!data) return fprintf(stderr, "%s\n", *err.text ? err.text : "moved GRAPH RECIPES DATA RECIPE..."), 1;
  ZxCommTable counted = *c->t;
  plain = c->t;
  counted.send = send, counted.recv = recv, counted.all_reduce = all_reduce, counted.all_gather = all_gather;
  counted.reduce_scatter = reduce_scatter, counted.all_to_all = all_to_all;
  c->t = &counted;
  double wrong = 0;
  for (int i = 4; i < argc; i++) {
    ZpPlan *p = plan(a, g, argv[2], argv[i]);
    if (!p || p->layout.mesh.nranks != plain->size(c)) {
      zx_say(plain->rank(c), "%s: no plan for %d ranks", argv[i], plain->size(c));
      plain->abort(c, 1);
    }
    wrong += step(c, a, p, data);
  }
  c->t = plain;
  plain->wait(c, plain->all_reduce(c, 0, &wrong, 1, ZK_F64, ZX_SUM));
  zx_mix_close(data);
  zb_arena_free(a);
  plain->free(c);
  return wrong != 0;
}
