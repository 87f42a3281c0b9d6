/* Bytes: that every buffer has as many as its contents take, and lies in the arena.
 *
 * What contents take is derived here a second time, from the mesh, the parameters and the segments; what
 * buckets, stages and buffers say of their own size is looked at only to be compared. */
#include "runtime/plan/check/check.h"

#define LINE 64 /* where things begin: kernels and devices count on it */

static uint64_t lines(uint64_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }

/* Returns the number of shards that bucket k is cut into. */
static uint64_t shards(const ZpPlan *p, const ZpBucket *k) {
  uint64_t n = 1;
  for (int d = 0; d < p->layout.mesh.ndims; d++)
    if (k->shard >> d & 1) n *= (uint64_t)p->layout.mesh.dim[d].size;
  return n;
}

static bool has_master(const ZpPlan *p, const ZpBucket *k) {
  return k->elem != ZK_F32 && !p->asked.forward_only && !k->frozen;
}

/* Returns the bytes of states: none of a frozen bucket; else those of its optimizer, and an average. */
static uint64_t states(const ZpPlan *p, const ZpBucket *k) {
  if (k->frozen || p->asked.forward_only) return 0;
  return (uint64_t)p->asked.optimizers[k->optimizer].states + (p->asked.average != 0);
}

/* Per element: what computes, what is missing to f32 if that is rounded, gradient, optimizer states. */
static uint64_t param_bytes(const ZpPlan *p, const ZpBucket *k) {
  return lines(zk_bytes((ZkElem)k->elem, k->elems / (k->gathers ? shards(p, k) : 1)));
}
static uint64_t master_bytes(const ZpPlan *p, const ZpBucket *k) {
  return has_master(p, k) ? lines(2 * (k->elems / shards(p, k))) : 0;
}
static uint64_t grad_bytes(const ZpPlan *p, const ZpBucket *k) {
  return lines(zk_bytes((ZkElem)k->grad, k->elems / (zp_shards_grads(k) ? shards(p, k) : 1)));
}
/* Returns the optimizer whose formats a bucket is laid out for, also if states are not kept; NULL: none. */
static const ZpOptimizer *formats_of(const ZpPlan *p, const ZpBucket *k) {
  return k->frozen || !p->asked.ngroups ? NULL : &p->asked.optimizers[k->optimizer];
}
/* Returns the second moments of a bucket's matrices: of each a number for each row, for each column, or both,
 * as it says; whole matrices are those of the ranks along the dims that cut some of them. */
static uint64_t moments(const ZpPlan *p, const ZpBucket *k) {
  uint64_t all = 0;
  if (k->frozen || p->asked.forward_only) return 0;
  ZpSecond second = p->asked.optimizers[k->optimizer].second;
  for (uint32_t i = 0; second && i < k->nslices; i++) {
    const ZpSlice *s = &k->slices[i];
    uint64_t n[3] = {1, 1, 1};
    double valid[3] = {1, 1, 1};
    for (int a = 0; a < s->naxes; a++) {
      uint8_t role = p->layout.roles[s->param][a];
      valid[role] *= (double)s->valid[a];
      n[role] *= (uint64_t)s->size[a];
      for (int d = 0; d < p->layout.mesh.ndims; d++)
        if (k->matrices >> d & 1 && s->state[d].kind == 'S' && s->state[d].axis == s->axis[a])
          n[role] *= (uint64_t)p->layout.mesh.dim[d].size;
    }
    bool tall = valid[ZP_ROWS] >= valid[ZP_COLS];
    if (second != ZP_SECOND_LONGER || tall) all += n[ZP_EACH] * n[ZP_ROWS];
    if (second == ZP_SECOND_BOTH || (second == ZP_SECOND_LONGER && !tall)) all += n[ZP_EACH] * n[ZP_COLS];
  }
  return all;
}
static uint64_t state_bytes(const ZpPlan *p, const ZpBucket *k) {
  uint64_t n = k->elems / shards(p, k), bytes = 0, sides = lines(zk_bytes(ZK_F32, moments(p, k)));
  if (!states(p, k)) return sides;
  const ZpOptimizer *o = &p->asked.optimizers[k->optimizer];
  for (int i = 0; i < o->states; i++) bytes += zk_bytes((ZkElem)o->state_elem[i], n);
  if (p->asked.average != 0) bytes += zk_bytes(ZK_F32, n);
  return lines(bytes) + sides;
}

/* Adds up, for each bucket that no earlier stage holds, the values and states that a rank writes into a
 * checkpoint, which ranks that own the same elements divide evenly. */
static uint64_t snapshot_bytes(const ZpPlan *p, const ZpStage *st) {
  uint64_t bytes = 0;
  for (uint32_t h = 0; h < st->nheld; h++) {
    const ZpBucket *k = &p->programs.buckets[st->held[h].bucket];
    uint64_t own = k->elems / shards(p, k), same = 1;
    for (int d = 0; d < p->layout.mesh.ndims; d++)
      if ((k->replicas & ~k->shard) >> d & 1) same *= (uint64_t)p->layout.mesh.dim[d].size;
    if (st->held[h].norm_owner)
      bytes += zk_bytes(ZK_F32, own / same + (own % same > 0)) * (1 + states(p, k)) +
               zk_bytes(ZK_F32, moments(p, k));
  }
  return bytes;
}

/* ---- buckets ------------------------------------------------------------------------------------------- */
static bool dims_fit(const Check *c, const ZpBucket *k) {
  const ZpMesh *m = &c->p->layout.mesh;
  ZpDims ours = ((1u << m->ndims) - 1) & ~(m->pipe < 0 ? 0 : 1u << m->pipe);
  bool within = !(k->replicas & ~ours) && !(k->shard & ~k->replicas) && !(k->partial & ~k->replicas);
  if (within && !(k->frozen && k->partial)) return true;
  return zb_fail(c->err, NULL, "bucket %s is cut or reduced over dims along which it is not a copy", k->name);
}

/* Dims along which a matrix of Muon's is not whole on a rank. */
static ZpDims cutting_dims(const ZpPlan *p, const ZpBucket *k) {
  ZpDims cut = k->shard;
  if (p->asked.forward_only || k->frozen || !zp_takes_matrices(&p->asked.optimizers[k->optimizer])) return 0;
  for (uint32_t i = 0; i < k->nslices; i++) {
    const ZpSlice *s = &k->slices[i];
    for (int d = 0; d < p->layout.mesh.ndims; d++)
      for (int a = 0; a < s->naxes; a++)
        if (p->layout.roles[s->param][a] != ZP_EACH && s->state[d].kind == 'S' &&
            s->state[d].axis == s->axis[a])
          cut |= 1u << d;
  }
  return cut;
}

/* Returns the bytes of a gathered update: every part that ranks have of a matrix. */
uint64_t zp_whole_update(const ZpPlan *p, const ZpBucket *k) {
  uint64_t bytes = zk_bytes(ZK_F32, k->elems);
  for (int d = 0; d < p->layout.mesh.ndims; d++)
    if ((k->matrices & ~k->shard) >> d & 1) bytes *= (uint64_t)p->layout.mesh.dim[d].size;
  return bytes;
}

/* Checks that the recipe says in which formats parameters are read and gradients summed, over micro-batches
 * and over ranks; a state's measure is f32, and of what is frozen nothing is summed. */
static bool formats_fit(const ZpPlan *p, const ZpBucket *k) {
  bool measure = !k->frozen && p->asked.noptimizers && p->asked.optimizers[k->optimizer].kind == ZP_UPDATE;
  ZkElem elem = zp_precision_elem(p->asked.recipe->precision.compute);
  bool same = true;
  for (uint32_t i = 0; i < k->nslices; i++) {
    ZkElem packed = zp_packed_elem(p, k->slices[i].param);
    same &= k->elem == (packed == ZK_NONE ? elem : packed);
  }
  ZkElem grad = zp_precision_elem(p->asked.recipe->precision.grads);
  return same && k->grad == (measure || k->frozen ? ZK_F32 : grad) &&
         k->reduce == (measure ? ZK_F32 : zp_precision_elem(p->asked.recipe->precision.reduce));
}

/* Checks that a bucket is cut along the dims that would otherwise hold copies, as the recipe says, and that
 * its other fields follow from that. The other proofs then rely on the bucket. */
static bool storage_fits(const Check *c, const ZpBucket *k) {
  const ZpZero *z = &c->p->asked.zero;
  ZpDims cut = k->replicas & z->over;
  if ((k->frozen || zk_is_packed((ZkElem)k->elem)) && !(z->what & ZL_SHARD_PARAMS)) cut = 0;
  bool params = cut && z->what & ZL_SHARD_PARAMS, grads = cut && z->what & ZL_SHARD_GRADS;
  ZpScatter scatters = !cut ? ZP_SCATTER_NEVER : grads ? ZP_SCATTER_EACH_MICROBATCH : ZP_SCATTER_AT_END;
  if (k->frozen) scatters = ZP_SCATTER_NEVER;
  if (k->shard == cut && k->gathers == params && k->keeps == (params && z->keep) && k->scatters == scatters &&
      k->republishes == (cut && !params) && k->reduces == (k->partial & ~cut) &&
      k->matrices == cutting_dims(c->p, k) && formats_fit(c->p, k))
    return true;
  return zb_fail(c->err, NULL, "bucket %s is stored otherwise than the recipe says", k->name);
}

/* Returns the elements of a line in f32, or of the longest block of its formats. */
static uint64_t line_of(const ZpPlan *p, const ZpBucket *k) {
  const ZpOptimizer *o = formats_of(p, k);
  uint64_t line = LINE / 4, block = zk_elem_info[k->elem].block;
  if (zk_is_packed((ZkElem)k->elem)) return 64 * block;
  for (int i = -1; i < (o ? ZP_MOST_STATES : 0); i++) {
    if (i >= 0) block = zk_elem_info[o->state_elem[i]].block;
    if (block > line) line = block;
  }
  return line;
}

/* Slices follow each other, each from a whole line or block on, and so does every rank's part; there is
 * nothing else. */
static bool slices_fit(const Check *c, const ZpBucket *k) {
  const uint64_t line = line_of(c->p, k), cut = line * shards(c->p, k);
  uint64_t end = 0;
  for (uint32_t i = 0; i < k->nslices; i++) {
    const ZpSlice *s = &k->slices[i];
    uint64_t n = 1;
    for (int a = 0; a < s->naxes; a++) n *= (uint64_t)s->size[a];
    if (s->at != (end + line - 1) / line * line || s->n != n || s->takes != zp_slice_takes(c->p, s))
      return zb_fail(
          c->err, NULL, "bucket %s: slice %u has %llu elements at %llu, but the one before ends at %llu",
          k->name, i, (unsigned long long)s->n, (unsigned long long)s->at, (unsigned long long)end);
    end = s->at + s->takes;
  }
  if (k->elems == (end + cut - 1) / cut * cut) return true;
  return zb_fail(c->err, NULL, "bucket %s has %llu elements for slices of %llu, in %llu parts", k->name,
                 (unsigned long long)k->elems, (unsigned long long)end, (unsigned long long)shards(c->p, k));
}

bool zp_check_buckets(const Check *c) {
  for (uint32_t i = 0; i < c->p->programs.nbuckets; i++)
    if (!dims_fit(c, &c->p->programs.buckets[i]) || !storage_fits(c, &c->p->programs.buckets[i]) ||
        !slices_fit(c, &c->p->programs.buckets[i]))
      return false;
  return true;
}

/* ---- buffers ------------------------------------------------------------------------------------------- */
static const ZpSegment *segment_at(const ZpPlan *p, const ZpStage *st, uint32_t i) {
  return &p->programs.segments[st->insts[i].segment];
}

static bool is_first(const ZpPlan *p, const ZpStage *st, uint32_t i) {
  for (uint32_t k = 0; k < st->nvstages; k++)
    if (p->programs.vstages[st->vstages[k]].first == i) return true;
  return false;
}

/* Returns the bytes that go from virtual stage v to the next, forward or back; 0 if there is none. Between
 * neighbours of one stage nothing is sent. */
static uint64_t bytes_after(const Check *c, uint32_t v, bool back, bool sent) {
  const ZpPrograms *g = &c->p->programs;
  if (v + 1 >= g->nvstages || (sent && g->vstages[v].stage == g->vstages[v + 1].stage)) return 0;
  const ZpVirtualStage *next = &g->vstages[v + 1];
  const ZpSegment *s = segment_at(c->p, &g->stages[next->stage], next->first);
  return back ? s->dcarry_bytes : s->carry_bytes;
}

/* Between instance i - 1 and i of one virtual stage. The tuple is in the slot if backward reads it. */
static uint64_t boundary_bytes(const ZpPlan *p, const ZpStage *st) {
  uint64_t most = 0;
  for (uint32_t i = 1; i < st->ninsts; i++) {
    const ZpSegment *g = segment_at(p, st, i);
    if (is_first(p, st, i)) continue;
    if (!g->saves_carry && g->carry_bytes > most) most = g->carry_bytes;
    if (g->dcarry_bytes > most) most = g->dcarry_bytes;
  }
  return most;
}

/* Returns the scratch of the products for a matrix of `least` rows and `most` columns. */
static uint64_t product_bytes(const ZpPlan *p, uint64_t least, uint64_t most) {
  uint64_t bytes = 0;
  for (int i = 0; i < ZK_ORTHOGONAL_PRODUCTS && p->asked.scratch; i++) {
    ZkCall call = zk_orthogonal_product(i, (int64_t)least, (int64_t)most);
    uint64_t one = p->asked.scratch(&call, p->asked.threads);
    if (one > bytes) bytes = one;
  }
  return lines(bytes);
}

/* Returns the scratch for a matrix r x c, its result, two of its smaller side, and their products. */
static uint64_t orthogonal_bytes(const ZpPlan *p, const ZpBucket *k) {
  uint64_t most = 0;
  for (uint32_t i = 0; i < k->nslices; i++) {
    const ZpSlice *s = &k->slices[i];
    uint64_t side[3] = {1, 1, 1};
    for (int a = 0; a < s->naxes; a++) side[p->layout.roles[s->param][a]] *= (uint64_t)s->whole[a];
    uint64_t r = side[ZP_ROWS], c = side[ZP_COLS], least = r < c ? r : c;
    uint64_t bytes =
        2 * lines(r * c * 4) + 2 * lines(least * least * 4) + product_bytes(p, least, r + c - least);
    if (p->asked.optimizers[k->optimizer].kind == ZK_BY_ADAFACTOR)
      bytes = lines(r * c * 4) + lines(r * 4) + lines(c * 4);
    if (bytes > most) most = bytes;
  }
  return most;
}

static uint64_t scratch_bytes(const ZpPlan *p, const ZpStage *st) {
  uint64_t most = 0;
  for (uint32_t h = 0; h < st->nheld; h++) {
    const ZpBucket *k = &p->programs.buckets[st->held[h].bucket];
    if (p->asked.forward_only || k->frozen || !zp_takes_matrices(&p->asked.optimizers[k->optimizer]))
      continue;
    uint64_t bytes = orthogonal_bytes(p, k);
    if (bytes > most) most = bytes;
  }
  for (uint32_t i = 0; i < st->ninsts; i++) {
    const ZpSegment *g = segment_at(p, st, i);
    for (int k = 0; k < ZP_PHASES; k++)
      if (g->list[k].temp > most) most = g->list[k].temp;
  }
  return most;
}

/* Behind what instance i saves: the tuple that it takes in. */
static uint64_t saved_bytes(const ZpPlan *p, const ZpStage *st, uint32_t i) {
  const ZpSegment *g = segment_at(p, st, i);
  return g->saved_bytes + (!is_first(p, st, i) && g->saves_carry ? g->carry_bytes : 0);
}

static uint64_t slot_bytes(const ZpPlan *p, const ZpStage *st, const ZpVirtualStage *v) {
  uint32_t last = v->first + v->ninsts - 1;
  return st->saved_at[last] + saved_bytes(p, st, last);
}

/* Returns the largest that a virtual stage of it has. */
static uint64_t input_bytes(const ZpPlan *p, const ZpStage *st) {
  uint64_t most = 0;
  for (uint32_t k = 0; k < st->nvstages; k++) {
    uint64_t bytes = p->programs.vstages[st->vstages[k]].input_bytes;
    if (bytes > most) most = bytes;
  }
  return most;
}

/* Numerators and denominators of losses, what is added to them, a norm, and that of each parameter to whose
 * size an update is relative. */
uint64_t zp_summed_doubles(const ZpPlan *p) {
  uint64_t sums = 2 * (uint64_t)zg_losses(p->graph) + 2;
  for (uint32_t i = 0; !p->asked.forward_only && i < p->graph->nparams; i++) {
    const ZgParam *q = &p->graph->params[i];
    if (p->asked.ngroups && !(p->asked.frozen && p->asked.frozen[i]) &&
        p->asked.optimizers[p->asked.groups[p->asked.group[i]].optimizer].relative)
      sums += q->segment == ZG_NONE ? 1 : p->graph->segments[q->segment].trip;
  }
  return sums;
}

/* Returns the bytes of the engine's larger block of scalars: the sums of a step and one more, or denominators
 * with their reciprocals, the step's number, and what updates take of it. */
static uint64_t scalars_bytes(const ZpPlan *p) {
  uint64_t losses = zg_losses(p->graph), sums = (zp_summed_doubles(p) + 1) * sizeof(double);
  uint64_t now = (losses + (losses + 2) / 2) * sizeof(double) + zk_step_state_bytes(p->asked.ngroups);
  return lines(now > sums ? now : sums);
}

/* Returns the bytes for the largest update by Muon: all updates pass through the same buffers. */
static uint64_t update_bytes(const ZpPlan *p, const ZpStage *st) {
  uint64_t most = 0;
  for (uint32_t h = 0; h < st->nheld; h++) {
    const ZpBucket *k = &p->programs.buckets[st->held[h].bucket];
    uint64_t bytes = zp_whole_update(p, k);
    if (!k->frozen && zp_takes_matrices(&p->asked.optimizers[k->optimizer]) && bytes > most) most = bytes;
  }
  return most;
}

/* Returns the bytes of all instances' caches, which lie one behind the other. */
static uint64_t cache_bytes(const ZpPlan *p, const ZpStage *st) {
  uint32_t last = st->ninsts - 1;
  return st->cache_at[last] + segment_at(p, st, last)->cache_bytes;
}

static uint64_t needed(const Check *c, uint32_t s, const ZpBuf *b) {
  const ZpPlan *p = c->p;
  const ZpStage *st = &p->programs.stages[s];
  const ZpBucket *k = NULL;
  uint32_t v = zp_is_of_vstage(b->kind) ? st->vstages[b->pool] : 0, before = v - 1; /* of none: no bytes */
  if (b->kind == ZP_B_GATHER || b->kind == ZP_B_STAGING) k = &p->programs.buckets[b->pool];
  if (zp_is_stored(b->kind)) k = &p->programs.buckets[st->held[b->pool].bucket];
  switch ((ZpBufKind)b->kind) {
  case ZP_B_SLOT: return slot_bytes(p, st, &p->programs.vstages[v]);
  case ZP_B_RECV_ACT: return v ? bytes_after(c, before, false, false) : 0;
  case ZP_B_SEND_ACT: return bytes_after(c, v, false, true);
  case ZP_B_RECV_GRAD: return bytes_after(c, v, true, false);
  case ZP_B_SEND_GRAD: return v ? bytes_after(c, before, true, true) : 0;
  case ZP_B_GATHER: return zk_bytes((ZkElem)k->elem, k->elems);
  case ZP_B_STAGING: return zk_bytes(ZK_F32, k->elems);
  case ZP_B_UPDATE: return update_bytes(p, st);
  case ZP_B_PARAM: return param_bytes(p, k) + master_bytes(p, k);
  case ZP_B_GRAD: return grad_bytes(p, k);
  case ZP_B_STATE: return state_bytes(p, k);
  case ZP_B_BOUNDARY: return boundary_bytes(p, st);
  case ZP_B_SCRATCH: return scratch_bytes(p, st);
  case ZP_B_CACHE: return cache_bytes(p, st);
  case ZP_B_SCALARS:
  case ZP_B_PINNED_SCALARS: return scalars_bytes(p);
  case ZP_B_PINNED_INPUTS: return input_bytes(p, st);
  case ZP_B_SNAPSHOT: return snapshot_bytes(p, st);
  case ZP_B_KINDS: break;
  }
  return UINT64_MAX;
}

/* Checks the inside of a slot: inputs, then the saved values of one instance after the other. */
static bool blocks_fit(const Check *c, uint32_t s) {
  const ZpStage *st = &c->p->programs.stages[s];
  for (uint32_t k = 0; k < st->nvstages; k++) {
    const ZpVirtualStage *v = &c->p->programs.vstages[st->vstages[k]];
    uint64_t end = v->input_bytes;
    for (uint32_t i = v->first; i < v->first + v->ninsts; i++) {
      bool fit = st->saved_at[i] >= end && st->saved_at[i] % LINE == 0 &&
                 zb_add_u64(st->saved_at[i], saved_bytes(c->p, st, i), &end);
      if (!fit)
        return zb_fail(c->err, NULL, "stage %u: what %s saves overlaps what lies before it in the slot", s,
                       zp_say_inst(c, st->insts[i].segment, st->insts[i].iter));
    }
  }
  uint64_t end = 0;
  for (uint32_t i = 0; i < st->ninsts; i++) {
    uint64_t bytes = segment_at(c->p, st, i)->cache_bytes;
    if (!bytes) continue;
    if (st->cache_at[i] < end || st->cache_at[i] % LINE || !zb_add_u64(st->cache_at[i], bytes, &end))
      return zb_fail(c->err, NULL, "stage %u: the caches of %s overlap those before them", s,
                     zp_say_inst(c, st->insts[i].segment, st->insts[i].iter));
  }
  if (st->scratch_bytes || !scratch_bytes(c->p, st)) return true;
  return zb_fail(c->err, NULL, "stage %u has temporaries, but no scratch", s);
}

/* ---- the memories -------------------------------------------------------------------------------------- */
static bool buffer_fits(const Check *c, uint32_t s, uint32_t b) {
  const ZpStage *st = &c->p->programs.stages[s];
  const ZpBuf *x = &st->prog.bufs[b];
  bool pinned = x->kind == ZP_B_PINNED_INPUTS || x->kind == ZP_B_PINNED_SCALARS;
  ZpMemory memory = pinned || x->kind == ZP_B_SNAPSHOT ? ZP_HOST : ZP_DEVICE;
  uint64_t end = UINT64_MAX, want = needed(c, s, x), total = st->ledger.total[memory];
  if (x->memory != memory)
    return zb_fail(c->err, NULL, "stage %u: %s is not in the %s's memory", s, zp_say_buf(c, s, b),
                   memory == ZP_HOST ? "host" : "device");
  if (!zb_add_u64(x->offset, x->bytes, &end) || end > total || x->offset % LINE)
    return zb_fail(c->err, NULL, "stage %u: %s lies at bytes %llu to %llu of %s of %llu", s,
                   zp_say_buf(c, s, b), (unsigned long long)x->offset, (unsigned long long)end,
                   memory == ZP_HOST ? "a host's memory" : "an arena", (unsigned long long)total);
  if (x->bytes < want)
    return zb_fail(c->err, NULL, "stage %u: %s has %llu bytes, but needs %llu", s, zp_say_buf(c, s, b),
                   (unsigned long long)x->bytes, (unsigned long long)want);
  return true;
}

static bool lines_add_up(const Check *c, uint32_t s, ZpMemory memory) {
  const ZpLedger *ledger = &c->p->programs.stages[s].ledger;
  uint64_t sum = 0;
  for (int l = 0; l < ZP_LEDGER_LINES; l++)
    if (zp_ledger_info[l].memory == memory && !zb_add_u64(sum, ledger->bytes[l], &sum))
      return zb_fail(c->err, NULL, "stage %u: the ledger overflows", s);
  if (sum == ledger->total[memory]) return true;
  return zb_fail(c->err, NULL, "stage %u: the lines of the ledger add up to %llu bytes, its total is %llu", s,
                 (unsigned long long)sum, (unsigned long long)ledger->total[memory]);
}

/* Inputs pass through at least one block, scalars through one each, where the device has its own memory. */
static bool pinned_fit(const Check *c, uint32_t s) {
  const ZpStage *st = &c->p->programs.stages[s];
  uint32_t inputs = 0, scalars = 0, snapshots = 0;
  for (uint32_t b = 0; b < st->prog.nbufs; b++) {
    inputs += st->prog.bufs[b].kind == ZP_B_PINNED_INPUTS;
    scalars += st->prog.bufs[b].kind == ZP_B_PINNED_SCALARS;
    snapshots += st->prog.bufs[b].kind == ZP_B_SNAPSHOT;
  }
  if (snapshots != c->p->asked.checkpoints)
    return zb_fail(c->err, NULL, "stage %u has room for %u snapshots", s, snapshots);
  bool any = c->p->asked.pins && input_bytes(c->p, st);
  if (inputs == st->prog.npinned && any == (inputs > 0) && scalars == (c->p->asked.pins ? 2 : 0)) return true;
  return zb_fail(c->err, NULL, "stage %u pins %u blocks of inputs (its plan says %u) and %u of scalars", s,
                 inputs, st->prog.npinned, scalars);
}

bool zp_check_arena(const Check *c, uint32_t s) {
  const ZpStage *st = &c->p->programs.stages[s];
  if (!blocks_fit(c, s) || !pinned_fit(c, s)) return false;
  if (!lines_add_up(c, s, ZP_DEVICE) || !lines_add_up(c, s, ZP_HOST)) return false;
  for (uint32_t b = 0; b < st->prog.nbufs; b++)
    if (!buffer_fits(c, s, b)) return false;
  return true;
}
