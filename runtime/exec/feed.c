/* Data into the input blocks of activation slots. Sample k of micro-batch m of step s is global sample
 * (s - 1) * global_batch + m * samples_per_micro_batch + k in every layout; a rank reads only its part. */
#include "runtime/exec/engine.h"

#include <string.h>

static const ZpValue *input_value(const ZxEngine *e, const ZpInputUse *u) {
  return &e->p->segments[u->value_segment].values[u->value];
}

static bool is_index(const ZgType *t) { return t->elem == ZG_INDEX; }

/* Values of one sample, without padding. */
static int64_t sample_values(const ZxEngine *e, const ZgType *t) {
  int64_t n = 1;
  for (int i = 0; i < t->naxes; i++)
    if (t->axis[i] != e->p->batch) n *= e->p->axis_valid[t->axis[i]];
  return n;
}

bool zx_check_inputs(ZxEngine *e, ZbErr *err) {
  uint64_t longest = 0; /* row of all inputs that are rounded */
  for (uint32_t i = 0; i < e->p->ninputs; i++) {
    const ZgIo *io = &e->p->graph->inputs[e->p->inputs[i].input];
    const ZpValue *v = input_value(e, &e->p->inputs[i]);
    if (!zx_data_check_field(e->o.data, io->name, is_index(&io->type), sample_values(e, &io->type), err)) return false;
    for (int a = 1; a < v->type.naxes; a++)
      if (v->axis[a] == e->p->batch)
        return zb_fail(err, "declare the axis `batch` first", "input `%s`: samples are not its slowest axis", io->name);
    uint64_t row = v->type.naxes ? (uint64_t)v->size[v->type.naxes - 1] : 1;
    if (v->elem == ZK_BF16 && row > longest) longest = row;
  }
  e->row = ZB_NEWN(e->a, float, longest);
  return true;
}

/* One local sample: rows of the last axis, each contiguous in the file's sample. */
static bool feed_sample(ZxEngine *e, const ZpInputUse *u, uint64_t g, char *to) {
  const ZpValue *v = input_value(e, u);
  const ZgIo *io = &e->p->graph->inputs[u->input];
  ZxSampler s = {e->o.data, e->o.order, e->o.seed, sample_values(e, &io->type)};
  int64_t limit = is_index(&io->type) ? e->p->axis_valid[io->type.of] : -1;
  int first = v->type.naxes && v->axis[0] == e->p->batch, last = v->type.naxes - 1;
  int64_t rows = 1, row = last >= first ? v->size[last] : 1;
  for (int a = first; a < last; a++) rows *= v->size[a];
  for (int64_t r = 0; r < rows; r++) {
    int64_t at = 0, stride = 1, left = r;
    for (int a = last; a >= first; a--) { /* global position of the row's first value */
      int64_t i = a == last ? 0 : left % v->size[a];
      if (a != last) left /= v->size[a];
      at += (i + zp_view_start(&e->p->mesh, v, e->rank, v->axis[a], v->size[a])) * stride;
      stride *= e->p->axis_valid[v->axis[a]];
    }
    char *out = to + (uint64_t)(r * row) * zk_elem_bytes((ZkElem)v->elem);
    bool wide = v->elem == ZK_BF16;
    if (!zx_data_read(&s, io->name, g, at, row, limit, wide ? (void *)e->row : out, e->err)) return false;
    if (wide) zk_cpu_to_bf16(e->env, row, e->row, (uint16_t *)(void *)out);
  }
  return true;
}

static bool feed(ZxEngine *e, char *inputs, uint32_t mb) {
  for (uint32_t i = 0; i < e->p->ninputs; i++) {
    const ZpInputUse *u = &e->p->inputs[i];
    const ZpValue *v = input_value(e, u);
    bool batched = v->type.naxes && v->axis[0] == e->p->batch;
    int64_t n = batched ? v->size[0] : 1;
    int64_t start = batched ? zp_view_start(&e->p->mesh, v, e->rank, v->axis[0], n) : 0;
    int64_t micro = e->p->batch == ZP_NONE ? 1 : e->p->axis_size[e->p->batch];
    for (int64_t k = 0; k < n; k++) {
      uint64_t g = (uint64_t)((e->step - 1) * e->p->global_batch + (int64_t)mb * micro + start + k);
      if (!feed_sample(e, u, g, inputs + u->at + v->bytes / (uint64_t)n * (uint64_t)k)) return false;
    }
  }
  return true;
}

uint64_t zx_input_bytes(const ZxEngine *e) {
  uint64_t end = 0;
  for (uint32_t i = 0; i < e->p->ninputs; i++) {
    const ZpInputUse *u = &e->p->inputs[i];
    if (end < u->at + input_value(e, u)->bytes) end = u->at + input_value(e, u)->bytes;
  }
  return end;
}

bool zx_feed(ZxEngine *e, char *inputs, uint32_t mb) {
  uint64_t bytes = zx_input_bytes(e), end = (uint64_t)(inputs - e->arena) + bytes;
  if (end > e->high) e->high = end;
  if (e->dev->host) return feed(e, inputs, mb);
  char *block = e->pinned + mb % e->nblocks * bytes;
  for (int tries = 0; mb && mb % e->nblocks == 0 && !e->dev->reached(e->env, e->pinned_event);) /* blocks are free again */
    if (!zx_poll(e)) zx_relax(e, &tries);
  if (!e->capturing && !feed(e, block, mb)) return false;
  e->dev->upload(e->env, inputs, block, bytes);
  if (!e->capturing) e->dev->record(e->env, e->pinned_event);
  return true;
}

bool zx_feed_all(ZxEngine *e) {
  for (uint32_t mb = 0; mb < e->p->nmicro; mb++)
    if (!feed(e, e->pinned + mb * zx_input_bytes(e), mb)) return false;
  return true;
}
