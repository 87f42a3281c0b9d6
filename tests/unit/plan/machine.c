/* See machine.h. */
#include "tests/unit/plan/machine.h"

#include <stdlib.h>
#include <string.h>

#define LINE 64 /* bytes of which one number is kept */

typedef struct {
  uint64_t *line, n;
  bool *started, *done;
  uint32_t head[ZP_QUEUES];
} Stage;

typedef struct {
  const ZpPlan *p;
  Stage *stages;
  uint64_t seed, turn;
  const char *wrong;
} Machine;

/* A part of the arena; lines 0: there is none. */
typedef struct {
  uint64_t *at, lines;
} Part;

static uint64_t mix(uint64_t a, uint64_t b) { return zb_random_u64(a, b, 0); }

static Part part(Machine *m, uint32_t s, uint64_t at, uint64_t bytes) {
  uint64_t from = at / LINE, n = (bytes + LINE - 1) / LINE, all = m->stages[s].n;
  if (from <= all && n <= all - from) return (Part){m->stages[s].line + from, n};
  m->wrong = "outside of the arena";
  return (Part){NULL, 0};
}

static uint64_t read(Part x) {
  uint64_t h = x.lines;
  for (uint64_t i = 0; i < x.lines; i++) h = mix(h, x.at[i]);
  return h;
}
static void write(Part x, uint64_t h) {
  for (uint64_t i = 0; i < x.lines; i++) x.at[i] = mix(h, i);
}
static void add(Part x, uint64_t h) {
  for (uint64_t i = 0; i < x.lines; i++) x.at[i] += mix(h, i);
}

/* ---- what the engine finds ----------------------------------------------------------------------------- */
static const ZpStage *stage(const Machine *m, uint32_t s) { return &m->p->programs.stages[s]; }

static const ZpAccess *find_access(const Machine *m, uint32_t s, const ZpInstr *in, ZpBufKind kind,
                                   uint32_t pool) {
  for (uint32_t i = 0; i < in->naccess; i++) {
    const ZpBuf *b = &stage(m, s)->prog.bufs[in->access[i].buf];
    bool right = kind == ZP_B_BOUNDARY ? b->index == (pool & 1) : pool == ZP_NONE || b->pool == pool;
    if (b->kind == kind && right) return &in->access[i];
  }
  return NULL;
}

static const ZpBuf *find(const Machine *m, uint32_t s, const ZpInstr *in, ZpBufKind kind, uint32_t pool) {
  const ZpAccess *x = find_access(m, s, in, kind, pool);
  return x ? &stage(m, s)->prog.bufs[x->buf] : NULL;
}

/* The first bytes of that buffer. */
static Part part_of(Machine *m, uint32_t s, const ZpInstr *in, ZpBufKind kind, uint32_t pool,
                    uint64_t bytes) {
  const ZpBuf *b = bytes ? find(m, s, in, kind, pool) : NULL;
  if (bytes && !b) m->wrong = "a buffer that is not there";
  return b ? part(m, s, b->offset, bytes) : (Part){NULL, 0};
}

static Part scalars(Machine *m, uint32_t s, uint32_t index) {
  const ZpProgram *g = &stage(m, s)->prog;
  for (uint32_t i = 0; i < g->nbufs; i++)
    if (g->bufs[i].kind == ZP_B_SCALARS && g->bufs[i].index == index)
      return part(m, s, g->bufs[i].offset, LINE);
  m->wrong = "no scalars";
  return (Part){NULL, 0};
}

static const ZpBucket *bucket(const Machine *m, const ZpStageBucket *h) {
  return &m->p->programs.buckets[h->bucket];
}
/* Bytes of a bucket, of all of it or of a shard. */
static uint64_t bytes_of(const Machine *m, const ZpStageBucket *h, bool shard, ZkElem elem) {
  const ZpBucket *k = bucket(m, h);
  return zk_bytes(elem, k->elems / (shard ? (uint64_t)zp_group_size(&m->p->layout.mesh, k->shard) : 1));
}
static ZkElem elem(const Machine *m, const ZpStageBucket *h) { return (ZkElem)bucket(m, h)->elem; }
/* Bytes of a bucket's parameters, all of them. */
static uint64_t whole(const Machine *m, const ZpStageBucket *h) { return bytes_of(m, h, false, elem(m, h)); }
/* What the stage stores of held bucket h, from byte `at` of it on. */
static Part stored(Machine *m, uint32_t s, ZpBufKind kind, const ZpStageBucket *h, uint64_t at,
                   uint64_t bytes) {
  const ZpProgram *g = &stage(m, s)->prog;
  for (uint32_t i = 0; i < g->nbufs; i++)
    if (g->bufs[i].kind == kind && g->bufs[i].pool == h - stage(m, s)->held)
      return part(m, s, g->bufs[i].offset + at, bytes);
  m->wrong = "a bucket that is not stored";
  return (Part){NULL, 0};
}
static Part params(Machine *m, uint32_t s, const ZpStageBucket *h) {
  return stored(m, s, ZP_B_PARAM, h, 0, bytes_of(m, h, bucket(m, h)->gathers, elem(m, h)));
}
static Part grads(Machine *m, uint32_t s, const ZpStageBucket *h) {
  return stored(m, s, ZP_B_GRAD, h, 0, bytes_of(m, h, zp_stages_grads(bucket(m, h)), ZK_F32));
}
static Part own_grads(Machine *m, uint32_t s, const ZpStageBucket *h) {
  return stored(m, s, ZP_B_GRAD, h, 0, bytes_of(m, h, true, ZK_F32));
}

static Part own_params(Machine *m, uint32_t s, const ZpStageBucket *h) {
  return stored(m, s, ZP_B_PARAM, h, 0, bytes_of(m, h, true, elem(m, h)));
}
static Part states(Machine *m, uint32_t s, const ZpStageBucket *h) {
  uint64_t bytes = 0;
  for (int i = 1; i <= zp_states(m->p, bucket(m, h)); i++)
    bytes += bytes_of(m, h, true, zp_part_elem(m->p, bucket(m, h), i));
  return bytes ? stored(m, s, ZP_B_STATE, h, 0, bytes) : (Part){NULL, 0};
}

/* ---- compute ------------------------------------------------------------------------------------------- */
static const ZpVirtualStage *vstage(const Machine *m, uint32_t v) { return &m->p->programs.vstages[v]; }

static Part carried(Machine *m, uint32_t s, const ZpInstr *in, uint32_t inst) {
  const ZpStage *st = stage(m, s);
  const ZpSegment *g = &m->p->programs.segments[st->insts[inst].segment];
  const ZpVirtualStage *v = vstage(m, in->vstage);
  if (inst == v->first) return part_of(m, s, in, ZP_B_RECV_ACT, v->index, in->vstage ? g->carry_bytes : 0);
  if (!g->saves_carry) return part_of(m, s, in, ZP_B_BOUNDARY, inst, g->carry_bytes);
  const ZpBuf *slot = find(m, s, in, ZP_B_SLOT, ZP_NONE);
  if (slot) return part(m, s, slot->offset + st->saved_at[inst] + g->saved_bytes, g->carry_bytes);
  m->wrong = "no slot";
  return (Part){NULL, 0};
}

/* Finds where what is handed on to virtual stage `to` goes: to be sent, or, on the same stage, where that finds it. */
static Part handed_on(Machine *m, uint32_t s, const ZpInstr *in, uint32_t to, ZpBufKind send, ZpBufKind take,
                      uint64_t bytes) {
  bool none = to >= m->p->programs.nvstages, here = !none && vstage(m, to)->stage == s;
  return part_of(m, s, in, here ? take : send, vstage(m, here ? to : in->vstage)->index, none ? 0 : bytes);
}

static void work(Machine *m, uint32_t s, const ZpInstr *in) {
  const ZpStage *st = stage(m, s);
  const ZpInst *x = &st->insts[in->inst];
  const ZpSegment *g = &m->p->programs.segments[x->segment];
  const ZpVirtualStage *v = vstage(m, in->vstage);
  bool back = in->op == ZP_I_BWD, last = in->inst + 1 == v->first + v->ninsts, first = in->inst == v->first;
  const ZpBuf *slot = find(m, s, in, ZP_B_SLOT, ZP_NONE);
  uint64_t h = mix(mix(x->segment, x->iter), in->mb);
  Part none = {NULL, 0}, saved = none;
  if (!slot && (v->input_bytes || !m->p->asked.forward_only)) m->wrong = "no slot";
  if (m->wrong) return;
  if (slot) saved = part(m, s, slot->offset + st->saved_at[in->inst], g->saved_bytes);
  h = mix(h, read(slot ? part(m, s, slot->offset, v->input_bytes) : none));
  if (!back || g->saves_carry) h = mix(h, read(carried(m, s, in, in->inst)));
  for (uint32_t i = 0; i < x->nheld; i++) {
    const ZpStageBucket *held = &st->held[x->held[i]];
    bool gathered = bucket(m, held)->gathers;
    if (back && bucket(m, held)->frozen && !g->list[ZP_BWD].n) continue; /* it has no place for it */
    h = mix(h, read(gathered ? part_of(m, s, in, ZP_B_GATHER, held->bucket, whole(m, held))
                             : params(m, s, held)));
  }
  Part scratch = part_of(m, s, in, ZP_B_SCRATCH, ZP_NONE, g->list[zp_phase(in->op)].temp);
  if (!back) {
    write(saved, h);
    write(scratch, h);
    write(last ? handed_on(m, s, in, in->vstage + 1, ZP_B_SEND_ACT, ZP_B_RECV_ACT, g->carry_out_bytes)
               : carried(m, s, in, in->inst + 1),
          h);
    if (g->has_loss) add(scalars(m, s, ZP_SCALARS_SUMS), h);
    return;
  }
  h = mix(h, read(saved));
  bool end = last && in->vstage + 1 == m->p->programs.nvstages;
  h = mix(h, read(part_of(m, s, in, last ? ZP_B_RECV_GRAD : ZP_B_BOUNDARY, last ? v->index : in->inst + 1,
                          end ? 0 : g->dcarry_out_bytes)));
  if (g->has_loss) h = mix(h, read(scalars(m, s, ZP_SCALARS_COUNT)));
  write(scratch, h);
  write(first ? handed_on(m, s, in, in->vstage - 1, ZP_B_SEND_GRAD, ZP_B_RECV_GRAD, g->dcarry_bytes)
              : part_of(m, s, in, ZP_B_BOUNDARY, in->inst, g->dcarry_bytes),
        h);
  for (uint32_t i = 0; i < x->nheld; i++) {
    const ZpStageBucket *held = &st->held[x->held[i]];
    if (bucket(m, held)->frozen) continue;
    const ZpAccess *staged = find_access(m, s, in, ZP_B_STAGING, held->bucket);
    Part to = staged ? part_of(m, s, in, ZP_B_STAGING, held->bucket, bucket(m, held)->elems * 4)
                     : grads(m, s, held);
    if (staged && !(staged->mode & ZP_READ)) write(to, 0); /* it begins anew */
    add(to, h);
  }
}

static void optimize(Machine *m, uint32_t s, const ZpStageBucket *h) {
  Part own = own_params(m, s, h), state = states(m, s, h), master = {NULL, 0};
  if (elem(m, h) != ZK_F32)
    master = stored(m, s, ZP_B_PARAM, h, zp_param_bytes(m->p, h->bucket), bytes_of(m, h, true, ZK_U16));
  uint64_t x = mix(read(own), read(own_grads(m, s, h)));
  x = mix(mix(x, read(state)), mix(read(master), read(scalars(m, s, ZP_SCALARS_SUMS))));
  write(own, x), write(state, x + 1), write(master, x + 2);
}

static void compute(Machine *m, uint32_t s, const ZpInstr *in) {
  const ZpStage *st = stage(m, s);
  switch ((ZpInstrOp)in->op) {
  case ZP_I_ZERO_SUMS:
  case ZP_I_ZERO_GRADS:
    for (uint32_t h = 0; h < st->nheld && in->op == ZP_I_ZERO_GRADS; h++)
      if (!bucket(m, &st->held[h])->frozen) write(grads(m, s, &st->held[h]), 0);
    write(scalars(m, s, ZP_SCALARS_COUNT), 0);
    write(scalars(m, s, ZP_SCALARS_SUMS), 0);
    break;
  case ZP_I_LOAD:
    write(part_of(m, s, in, ZP_B_SLOT, ZP_NONE, vstage(m, in->vstage)->input_bytes), in->mb);
    break;
  case ZP_I_COUNT:
    if (m->p->programs.segments[st->insts[in->inst].segment].list[ZP_COUNT].n)
      add(scalars(m, s, ZP_SCALARS_COUNT),
          read(part_of(m, s, in, ZP_B_SLOT, ZP_NONE, vstage(m, in->vstage)->input_bytes)));
    break;
  case ZP_I_FWD:
  case ZP_I_BWD: work(m, s, in); break;
  case ZP_I_NORM_LOCAL:
    for (uint32_t h = 0; h < st->nheld; h++)
      if (st->held[h].norm_owner && !bucket(m, &st->held[h])->frozen)
        add(scalars(m, s, ZP_SCALARS_SUMS), read(own_grads(m, s, &st->held[h])));
    break;
  case ZP_I_OPT_STEP: optimize(m, s, &st->held[in->held]); break;
  default: m->wrong = "another queue's instruction";
  }
}

/* ---- transfers and collectives ------------------------------------------------------------------------- */
static void reduce(Part x) { write(x, mix(read(x), 77)); } /* with the same of other ranks */

static void collective(Machine *m, uint32_t s, const ZpInstr *in) {
  if (in->op == ZP_I_REDUCE_COUNT) {
    reduce(scalars(m, s, ZP_SCALARS_COUNT));
    return;
  }
  const ZpStageBucket *h = &stage(m, s)->held[in->held];
  uint64_t bytes = bucket(m, h)->elems * 4;
  switch ((ZpInstrOp)in->op) {
  case ZP_I_GATHER_PARAMS:
    write(part_of(m, s, in, ZP_B_GATHER, h->bucket, whole(m, h)), read(params(m, s, h)));
    break;
  case ZP_I_PUBLISH_PARAMS: write(params(m, s, h), read(own_params(m, s, h))); break;
  case ZP_I_SCATTER_GRADS: {
    Part all = in->in_place ? grads(m, s, h) : part_of(m, s, in, ZP_B_STAGING, h->bucket, bytes);
    uint64_t x = mix(mix(read(all), in->dims), in->dims ? in->coll : 0);
    if (in->in_place) write(own_grads(m, s, h), x);
    else write(all, x), add(own_grads(m, s, h), x);
    break;
  }
  case ZP_I_REDUCE_GRADS: reduce(own_grads(m, s, h)), add(own_grads(m, s, h), mix(in->dims, in->coll)); break;
  default: m->wrong = "another queue's instruction";
  }
}

/* The instructions that happen together with instruction i of stage s, itself among them: stage and
 * number. */
typedef struct {
  uint32_t n, stage[64], instr[64];
} Meeting;

static bool is_send(const ZpInstr *in) { return in->op == ZP_I_SEND_ACT || in->op == ZP_I_SEND_GRAD; }
static bool is_recv(const ZpInstr *in) { return in->op == ZP_I_RECV_ACT || in->op == ZP_I_RECV_GRAD; }

/* Messages are told apart by pair numbers, and otherwise by order; so are collectives, by group alone. */
static bool meets(const ZpInstr *a, uint32_t s, const ZpInstr *b, uint32_t t) {
  if (is_send(a)) return is_recv(b) && a->peer == t && b->peer == s && a->pair == b->pair;
  if (is_recv(a)) return is_send(b) && a->peer == t && b->peer == s && a->pair == b->pair;
  if (a->op == ZP_I_REDUCE_STEP) return b->op == ZP_I_REDUCE_STEP;
  return b->op == ZP_I_REDUCE_TIED && a->tied == b->tied;
}

static uint32_t expected(const Machine *m, const ZpInstr *in) {
  if (in->queue == ZP_Q_P2P) return 2;
  return in->op == ZP_I_REDUCE_STEP   ? m->p->programs.nstages
         : in->op == ZP_I_REDUCE_TIED ? m->p->programs.tied[in->tied].nstages
                                      : 1;
}

static bool gather(const Machine *m, uint32_t s, uint32_t i, Meeting *to) {
  const ZpInstr *in = &stage(m, s)->prog.instrs[i];
  uint32_t want = expected(m, in);
  *to = (Meeting){1, {s}, {i}};
  for (uint32_t t = 0; want > 1 && t < m->p->programs.nstages; t++) {
    const ZpProgram *g = &stage(m, t)->prog;
    for (uint32_t k = 0; t != s && k < g->ninstrs; k++) {
      if (!m->stages[t].started[k] || m->stages[t].done[k] || !meets(in, s, &g->instrs[k], t)) continue;
      to->stage[to->n] = t;
      to->instr[to->n++] = k;
      break;
    }
  }
  return to->n == want;
}

static Part transferred(Machine *m, uint32_t s, const ZpInstr *in) {
  static const ZpBufKind kinds[] = {ZP_B_SEND_ACT, ZP_B_RECV_ACT, ZP_B_SEND_GRAD, ZP_B_RECV_GRAD};
  return part_of(m, s, in, kinds[in->op - ZP_I_SEND_ACT], ZP_NONE, in->bytes);
}

static void happen(Machine *m, const Meeting *x) {
  const ZpInstr *in[64];
  Part part[64] = {{0}};
  uint64_t sum = 0;
  for (uint32_t k = 0; k < x->n; k++) in[k] = &stage(m, x->stage[k])->prog.instrs[x->instr[k]];
  if (in[0]->queue == ZP_Q_P2P) {
    uint32_t to = is_send(in[0]);
    Part from = transferred(m, x->stage[!to], in[!to]), at = transferred(m, x->stage[to], in[to]);
    if (from.lines > at.lines) m->wrong = "a message that is too long";
    for (uint64_t i = 0; !m->wrong && i < from.lines; i++) at.at[i] = from.at[i];
  } else if (in[0]->op == ZP_I_REDUCE_STEP || in[0]->op == ZP_I_REDUCE_TIED) {
    for (uint32_t k = 0; k < x->n; k++) {
      uint32_t s = x->stage[k];
      part[k] = in[k]->op == ZP_I_REDUCE_STEP ? scalars(m, s, ZP_SCALARS_SUMS)
                                              : own_grads(m, s, &stage(m, s)->held[in[k]->held]);
      sum += read(part[k]);
      if (in[k]->op == ZP_I_REDUCE_STEP) sum += read(scalars(m, s, ZP_SCALARS_COUNT));
    }
    for (uint32_t k = 0; k < x->n; k++) write(part[k], sum);
  } else {
    collective(m, x->stage[0], in[0]);
  }
  for (uint32_t k = 0; k < x->n; k++) m->stages[x->stage[k]].done[x->instr[k]] = true;
}

/* ---- queues -------------------------------------------------------------------------------------------- */
static uint32_t roll(Machine *m, uint32_t n) { return (uint32_t)(zb_random_u64(m->seed, 1, m->turn++) % n); }

static bool ready(const Machine *m, uint32_t s, uint32_t i) {
  const ZpInstr *in = &stage(m, s)->prog.instrs[i];
  for (uint32_t k = 0; k < in->nwait; k++)
    if (!m->stages[s].done[in->wait[k]]) return false;
  return true;
}

/* The next of a queue, if it can start. */
static bool start(Machine *m, uint32_t s, int q) {
  Stage *x = &m->stages[s];
  const ZpProgram *g = &stage(m, s)->prog;
  if (x->head[q] == g->nqueue[q] || !ready(m, s, g->queue[q][x->head[q]])) return false;
  uint32_t i = g->queue[q][x->head[q]++];
  x->started[i] = true;
  if (q != ZP_Q_COMPUTE) return true;
  compute(m, s, &g->instrs[i]);
  return x->done[i] = true;
}

/* Something that has started and can end, does: the k-th such thing, or the last. */
static bool end(Machine *m, uint32_t k) {
  Meeting x, last = {0};
  for (uint32_t s = 0; s < m->p->programs.nstages; s++)
    for (uint32_t i = 0; i < stage(m, s)->prog.ninstrs; i++) {
      if (!m->stages[s].started[i] || m->stages[s].done[i] || !gather(m, s, i, &x)) continue;
      last = x;
      if (!k--) goto found;
    }
found:
  if (last.n) happen(m, &last);
  return last.n > 0;
}

/* Each order likes something: to start late, or to end late. */
static bool one_more(Machine *m) {
  uint32_t n = m->p->programs.nstages * ZP_QUEUES, first = roll(m, n);
  bool late = m->seed % 2;
  if (roll(m, 8) < (late ? 1 : 6) && end(m, roll(m, 4))) return true;
  for (uint32_t k = 0; k < n; k++)
    if (start(m, (first + k) % n / ZP_QUEUES, (int)((first + k) % ZP_QUEUES))) return true;
  return end(m, roll(m, 4));
}

static uint64_t numbers_of(Machine *m) {
  uint64_t all = 0;
  for (uint32_t s = 0; s < m->p->programs.nstages; s++) {
    for (uint32_t h = 0; h < stage(m, s)->nheld; h++) {
      const ZpStageBucket *x = &stage(m, s)->held[h];
      all = mix(all, read(params(m, s, x)));
      if (zp_states(m->p, bucket(m, x))) all = mix(all, read(states(m, s, x)));
    }
    all = mix(all, read(scalars(m, s, ZP_SCALARS_SUMS)));
  }
  return all;
}

const char *machine_play(const ZpPlan *p, uint64_t seed, uint64_t *result) {
  ZbArena *a = zb_arena_new();
  Machine m = {.p = p, .seed = seed, .stages = ZB_NEWN(a, Stage, p->programs.nstages)};
  uint32_t left = 0;
  for (uint32_t s = 0; s < p->programs.nstages; s++) {
    const ZpStage *st = &p->programs.stages[s];
    Stage *x = &m.stages[s];
    x->n = st->ledger.total[ZP_DEVICE] / LINE;
    x->line = ZB_NEWN(a, uint64_t, x->n);
    x->started = ZB_NEWN(a, bool, st->prog.ninstrs);
    x->done = ZB_NEWN(a, bool, st->prog.ninstrs);
    left += st->prog.ninstrs;
    for (uint32_t h = 0; h < st->nheld; h++)
      write(params(&m, s, &st->held[h]), mix(st->held[h].bucket, st->held[h].iter));
  }
  while (!m.wrong && one_more(&m)) {}
  for (uint32_t s = 0; s < p->programs.nstages; s++)
    for (uint32_t i = 0; i < p->programs.stages[s].prog.ninstrs; i++) left -= m.stages[s].done[i];
  if (!m.wrong && left) m.wrong = "deadlock";
  *result = m.wrong ? 0 : numbers_of(&m);
  zb_arena_free(a);
  return m.wrong;
}
