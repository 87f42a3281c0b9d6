/* Pairs and deadlock. Ranks of one stage run one program, so stages stand for all their ranks: a cycle among
 * ranks would be a cycle among stages.
 *
 * Every pair (and every collective of several stages) becomes one node: it happens on all sides or on none.
 * An edge goes from what must have happened to what waits: along each queue, as if it ran strictly one by one
 * (the real ones may keep several transfers in flight, which only helps), and along waits. If Kahn's
 * algorithm can take away all nodes, then in any state of a run something can happen. Example of a cycle,
 * both stages sending first:
 *   stage 0: SEND_ACT(mb 1), RECV_GRAD(mb 0)     stage 1: SEND_GRAD(mb 0), RECV_ACT(mb 1)
 *   SEND_ACT(mb 1) needs its partner, which waits for SEND_GRAD(mb 0), which needs its partner, behind
 *   SEND_ACT(mb 1)
 *
 * Devices get all that their streams do in the order of the lists, and may do it one by one
 * (exec/device/nccl.c): the lists too, of all stages together, must come to their ends. */
#include "runtime/plan/check/check.h"

typedef struct {
  uint32_t first, n; /* members: global numbers, chained by `next` */
} Pair;

static uint32_t stage_of(const Check *c, uint32_t id) {
  uint32_t lo = 0, hi = c->p->programs.nstages;
  while (hi - lo > 1) {
    uint32_t mid = (lo + hi) / 2;
    if (c->base[mid] <= id) lo = mid;
    else hi = mid;
  }
  return lo;
}
static const ZpInstr *instr_of(const Check *c, uint32_t id, uint32_t *stage) {
  *stage = stage_of(c, id);
  return &c->p->programs.stages[*stage].prog.instrs[id - c->base[*stage]];
}
static const char *say(const Check *c, uint32_t id) {
  uint32_t s = stage_of(c, id);
  return zp_say(c, s, id - c->base[s]);
}

static bool crosses(const ZpInstr *in) {
  return in->queue == ZP_Q_P2P || in->op == ZP_I_REDUCE_TIED || in->op == ZP_I_REDUCE_STEP;
}

/* Chains of all instructions with one pair number. next: per instruction. */
static bool collect(const Check *c, Pair *pairs, uint32_t *next) {
  uint32_t n = c->base[c->p->programs.nstages];
  for (uint32_t k = 0; k < n; k++) pairs[k] = (Pair){ZP_NONE, 0};
  for (uint32_t s = c->p->programs.nstages; s-- > 0;) {
    const ZpProgram *g = &c->p->programs.stages[s].prog;
    for (uint32_t i = g->ninstrs; i-- > 0;) {
      if (!crosses(&g->instrs[i])) continue;
      uint32_t pair = g->instrs[i].pair;
      if (pair >= n) return zb_fail(c->err, NULL, "%s has no pair number", zp_say(c, s, i));
      next[c->base[s] + i] = pairs[pair].first;
      pairs[pair].first = c->base[s] + i;
      pairs[pair].n++;
    }
  }
  return true;
}

static ZpInstrOp partner_op(int op) {
  return op == ZP_I_SEND_ACT    ? ZP_I_RECV_ACT
         : op == ZP_I_RECV_ACT  ? ZP_I_SEND_ACT
         : op == ZP_I_SEND_GRAD ? ZP_I_RECV_GRAD
                                : ZP_I_SEND_GRAD;
}

static bool transfer_fits(const Check *c, const Pair *pair, const uint32_t *next) {
  uint32_t sa, sb, x = pair->first;
  const ZpInstr *a = instr_of(c, x, &sa);
  const char *want = zp_instr_info[partner_op(a->op)].text;
  if (pair->n == 1)
    return zb_fail(c->err, NULL, "%s has no partner: stage %u has no %s(mb %u) of pair %u", say(c, x),
                   a->peer, want, a->mb, a->pair);
  const ZpInstr *b = instr_of(c, next[x], &sb);
  if (pair->n > 2)
    return zb_fail(c->err, NULL, "%u transfers have the same pair number, among them %s and %s", pair->n,
                   say(c, x), say(c, next[x]));
  if (b->op != partner_op(a->op) || a->peer != sb || b->peer != sa || a->mb != b->mb)
    return zb_fail(c->err, NULL,
                   "%s (with stage %u) and %s (with stage %u) are a pair, but do not mirror each other",
                   say(c, x), a->peer, say(c, next[x]), b->peer);
  /* The tuple into a virtual stage goes from the owner of the one before to its own; cotangents go back. */
  bool act = a->op == ZP_I_SEND_ACT || a->op == ZP_I_RECV_ACT,
       a_sends = a->op == ZP_I_SEND_ACT || a->op == ZP_I_SEND_GRAD;
  const ZpVirtualStage *later = &c->p->programs.vstages[a->vstage], *earlier = later - 1;
  uint32_t from = act ? earlier->stage : later->stage, to = act ? later->stage : earlier->stage;
  if (a->vstage != b->vstage || sa == sb || (a_sends ? sa : sb) != from || (a_sends ? sb : sa) != to)
    return zb_fail(c->err, NULL, "%s goes to stage %u, which is not the next", say(c, x), sb);
  if (a->bytes != b->bytes)
    return zb_fail(c->err, NULL, "%s has %llu bytes, but %s has %llu", say(c, x),
                   (unsigned long long)a->bytes, say(c, next[x]), (unsigned long long)b->bytes);
  return true;
}

static bool members_fit(const Check *c, const Pair *pair, const uint32_t *next) {
  uint32_t s0, s, before = ZP_NONE;
  const ZpInstr *a = instr_of(c, pair->first, &s0);
  bool step = a->op == ZP_I_REDUCE_STEP;
  const ZpTied *tied = step ? NULL : &c->p->programs.tied[a->tied];
  uint32_t want = step ? c->p->programs.nstages : tied->nstages;
  for (uint32_t x = pair->first; x != ZP_NONE; x = next[x]) {
    const ZpInstr *b = instr_of(c, x, &s);
    if (b->op != a->op || b->tied != a->tied || b->bytes != a->bytes || b->dims != a->dims ||
        b->coll != a->coll || s == before)
      return zb_fail(c->err, NULL, "%s and %s are parts of one collective (pair %u), but differ",
                     say(c, pair->first), say(c, x), a->pair);
    before = s;
    bool listed = step;
    for (uint32_t i = 0; !listed && i < tied->nstages; i++) listed = tied->stages[i] == s;
    if (!listed || (!step && c->p->programs.stages[s].held[b->held].tied != a->tied))
      return zb_fail(c->err, NULL, "%s is none of the stages with a copy of %s", say(c, x),
                     c->p->programs.buckets[tied->bucket].name);
  }
  if (pair->n != want)
    return zb_fail(c->err, NULL, "%s meets %u stages instead of %u", say(c, pair->first), pair->n - 1,
                   want - 1);
  return true;
}

bool zp_check_pairs(const Check *c) {
  uint32_t n = c->base[c->p->programs.nstages], s;
  Pair *pairs = ZB_NEWN(c->a, Pair, n);
  uint32_t *next = ZB_NEWN(c->a, uint32_t, n);
  if (!collect(c, pairs, next)) return false;
  for (uint32_t k = 0; k < n; k++) {
    if (!pairs[k].n) continue;
    bool p2p = instr_of(c, pairs[k].first, &s)->queue == ZP_Q_P2P;
    if (p2p ? !transfer_fits(c, &pairs[k], next) : !members_fit(c, &pairs[k], next)) return false;
  }
  return true;
}

/* ---- deadlock ------------------------------------------------------------------------------------------ */
typedef struct {
  const Check *c;
  uint32_t n;
  uint32_t *node;    /* per instruction: number of the first member of its node */
  uint32_t *next;    /* next member */
  uint32_t *blocked; /* per node: edges into it not yet taken away */
  uint32_t *before;  /* per instruction: the one before it in its queue, or ZP_NONE */
} Net;

static void fill_net(Net *t, uint32_t *nout) {
  const Check *c = t->c;
  for (uint32_t s = 0; s < c->p->programs.nstages; s++) {
    const ZpProgram *g = &c->p->programs.stages[s].prog;
    for (int q = 0; q < ZP_QUEUES; q++) {
      for (uint32_t k = 0; k < g->nqueue[q]; k++) {
        uint32_t i = g->queue[q][k], id = c->base[s] + i;
        t->before[id] = k ? c->base[s] + g->queue[q][k - 1] : ZP_NONE;
        if (k) nout[t->before[id]]++, t->blocked[t->node[id]]++;
        for (uint32_t w = 0; w < g->instrs[i].nwait; w++)
          nout[c->base[s] + g->instrs[i].wait[w]]++, t->blocked[t->node[id]]++;
      }
    }
  }
}

/* Returns a member of `node` that waits for something in a node that is still blocked: *from. */
static uint32_t blocked_member(const Net *t, uint32_t node, uint32_t *from) {
  for (uint32_t id = node; id != ZP_NONE; id = t->next[id]) {
    uint32_t s;
    const ZpInstr *in = instr_of(t->c, id, &s);
    for (uint32_t w = 0; w <= in->nwait; w++) {
      *from = w == in->nwait ? t->before[id] : t->c->base[s] + in->wait[w];
      if (*from != ZP_NONE && t->blocked[t->node[*from]]) return id;
    }
  }
  ZB_BUG("a blocked instruction waits for nothing");
}

static bool report_cycle(const Net *t, uint32_t node) {
  uint32_t *step = ZB_NEWN(t->c->a, uint32_t, t->n), from, nlinks = 0; /* per node: when visited, from 1 */
  uint32_t *waits = ZB_NEWN(t->c->a, uint32_t, t->n), *on = ZB_NEWN(t->c->a, uint32_t, t->n);
  while (!step[node]) {
    step[node] = nlinks + 1;
    waits[nlinks] = blocked_member(t, node, &from);
    on[nlinks++] = from;
    node = t->node[from];
  }
  ZbText text = {0};
  uint32_t start = step[node] - 1;
  for (uint32_t k = start; k < nlinks; k++) {
    if (k - start == 6 && nlinks - k > 2) { /* long enough to see; the last link closes it */
      zb_text_add(&text, ", and so on over %u more", nlinks - k - 1);
      k = nlinks - 1;
    }
    uint32_t partner = k == start ? ZP_NONE : on[k - 1];
    if (k == start) zb_text_add(&text, "%s waits for %s", say(t->c, waits[k]), say(t->c, on[k]));
    else if (partner == waits[k]) zb_text_add(&text, ", which waits for %s", say(t->c, on[k]));
    else zb_text_add(&text, ", whose partner %s waits for %s", say(t->c, waits[k]), say(t->c, on[k]));
  }
  if (on[nlinks - 1] != waits[start]) zb_text_add(&text, ", the partner of %s", say(t->c, waits[start]));
  zb_fail(t->c->err, NULL, "deadlock: %s", text.s);
  zb_text_free(&text);
  return false;
}

/* Checks that all stages go on in their lists; one that has come to a member of a pair waits there for the
 * others. */
static bool lists_end(const Check *c, const Pair *pairs) {
  uint32_t stages = c->p->programs.nstages, *at = ZB_NEWN(c->a, uint32_t, stages);
  uint32_t *here = ZB_NEWN(c->a, uint32_t, c->base[stages]); /* members of a pair that were come to */
  bool *waiting = ZB_NEWN(c->a, bool, stages);
  for (bool moved = true; moved;) {
    moved = false;
    for (uint32_t s = 0; s < stages; s++) {
      const ZpProgram *g = &c->p->programs.stages[s].prog;
      for (; at[s] < g->ninstrs; at[s]++, waiting[s] = false, moved = true) {
        const ZpInstr *in = &g->instrs[at[s]];
        if (!crosses(in)) continue;
        if (!waiting[s]) here[in->pair]++, waiting[s] = moved = true;
        if (here[in->pair] < pairs[in->pair].n) break;
      }
    }
  }
  for (uint32_t s = 0; s < stages; s++)
    if (at[s] < c->p->programs.stages[s].prog.ninstrs)
      return zb_fail(c->err, NULL, "deadlock: in the order of the lists %s waits for its partner for ever",
                     zp_say(c, s, at[s]));
  return true;
}

bool zp_check_deadlock(const Check *c) {
  uint32_t n = c->base[c->p->programs.nstages], s, nready = 0, done = 0;
  Net t = {c,
           n,
           ZB_NEWN(c->a, uint32_t, n),
           ZB_NEWN(c->a, uint32_t, n),
           ZB_NEWN(c->a, uint32_t, n),
           ZB_NEWN(c->a, uint32_t, n)};
  Pair *pairs = ZB_NEWN(c->a, Pair, n);
  for (uint32_t id = 0; id < n; id++) t.node[id] = id, t.next[id] = ZP_NONE;
  if (!collect(c, pairs, t.next)) return false;
  for (uint32_t k = 0; k < n; k++)
    for (uint32_t x = pairs[k].first; x != ZP_NONE; x = t.next[x]) t.node[x] = pairs[k].first;
  /* Edges by the instruction they leave: out[at[id]..at[id + 1]). */
  uint32_t *at = ZB_NEWN(c->a, uint32_t, n + 2);
  fill_net(&t, at + 2);
  for (uint32_t id = 0; id < n; id++) at[id + 2] += at[id + 1];
  uint32_t *out = ZB_NEWN(c->a, uint32_t, at[n + 1]), *ready = ZB_NEWN(c->a, uint32_t, n);
  for (uint32_t id = 0; id < n; id++) {
    const ZpInstr *in = instr_of(c, id, &s);
    if (t.before[id] != ZP_NONE) out[at[t.before[id] + 1]++] = id;
    for (uint32_t w = 0; w < in->nwait; w++) out[at[c->base[s] + in->wait[w] + 1]++] = id;
  }
  uint32_t nodes = 0;
  for (uint32_t id = 0; id < n; id++) {
    if (t.node[id] != id) continue;
    nodes++;
    if (!t.blocked[id]) ready[nready++] = id;
  }
  for (; done < nready; done++)
    for (uint32_t id = ready[done]; id != ZP_NONE; id = t.next[id])
      for (uint32_t k = at[id]; k < at[id + 1]; k++)
        if (--t.blocked[t.node[out[k]]] == 0) ready[nready++] = t.node[out[k]];
  if (done == nodes) return lists_end(c, pairs);
  for (uint32_t id = 0; id < n; id++)
    if (t.node[id] == id && t.blocked[id]) return report_cycle(&t, id);
  return true;
}
