/* Data into the input blocks of activation slots. Sample k of micro-batch m of step s is global sample (s -
 * 1) * global_batch + m * samples_per_micro_batch + k in every layout (a run that was resumed counts on from
 * its checkpoint); a rank reads only its part. */
#include "runtime/exec/comm/comm.h"
#include "runtime/exec/engine/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const ZpValue *value_of(const ZpPlan *p, const ZpInputUse *u) {
  return &p->programs.segments[u->value_segment].values[u->value];
}

static const ZpValue *input_value(const ZxEngine *e, const ZpInputUse *u) { return value_of(e->p, u); }

static bool is_whole(const ZgType *t) { return t->elem == ZG_INDEX || t->elem == ZG_I32; }

/* Values of one sample, without padding. */
static int64_t sample_values(const ZpPlan *p, const ZgType *t) {
  int64_t n = 1;
  for (int i = 0; i < t->naxes; i++)
    if (t->axis[i] != p->asked.batch) n *= p->layout.axis_valid[t->axis[i]];
  return n;
}

int64_t zx_sample_values(const ZpPlan *p) {
  return p->programs.ninputs ? sample_values(p, &p->graph->inputs[p->programs.inputs[0].input].type) : 0;
}

/* ---- whole numbers that bf16 rounds ---- */
enum { LOOKED_AT = 8, OF_EACH = 4096 }; /* samples, and values of each */

/* Of n whole numbers, one that bf16 does not have, the first; 0: none, or they are not all whole. */
static float rounded_one(const float *x, int64_t n) {
  float found = 0;
  for (int64_t i = 0; i < n; i++) {
    if (x[i] != rintf(x[i]) || fabsf(x[i]) > 1 << 24) return 0;
    if (found == 0 && zb_bf16_to_f32(zb_f32_to_bf16(x[i])) != x[i]) found = x[i];
  }
  return found;
}

/* Numbers of words, positions or classes that come as `real` are wrong beyond 256, and nothing fails: that is
 * said, once, of what the first samples of the data have. */
static void warn_of_rounding(ZxEngine *e, const ZpInputUse *u) {
  const ZgIo *io = &e->p->graph->inputs[u->input];
  int64_t n = sample_values(e->p, &io->type), looked = n < OF_EACH ? n : OF_EACH;
  float *x = ZB_NEWN(e->a, float, (size_t)(LOOKED_AT * looked)), found;
  for (uint64_t k = 0; k < LOOKED_AT; k++) {
    uint64_t nth;
    ZbErr none;
    ZxSampler s = zx_mix_sampler(e->o.data, e->o.order, e->o.seed, n, k, &nth);
    if (!zx_data_read(&s, io->name, nth, 0, looked, -1, x + (int64_t)k * looked, &none)) return;
  }
  if ((found = rounded_one(x, LOOKED_AT * looked)) == 0) return;
  zx_say((int)e->rank,
         "warning: input `%s` is `real`, computed with in bf16, and has whole numbers beyond 256: %.0f "
         "becomes %.0f; "
         "declare it `f32[..]`, or `i32[..]` if all are whole",
         io->name, (double)found, (double)zb_bf16_to_f32(zb_f32_to_bf16(found)));
}

static void warn_of_all(ZxEngine *e) {
  for (uint32_t i = 0; i < e->p->programs.ninputs; i++) {
    const ZpInputUse *u = &e->p->programs.inputs[i];
    bool again = false;
    for (uint32_t k = 0; k < i; k++) again |= e->p->programs.inputs[k].input == u->input;
    if (!again && input_value(e, u)->elem == ZK_BF16) warn_of_rounding(e, u);
  }
}

static bool has_input(const ZpPlan *p, const char *name) {
  for (uint32_t i = 0; i < p->programs.ninputs; i++)
    if (!strcmp(p->graph->inputs[p->programs.inputs[i].input].name, name)) return true;
  return false;
}

/* A run without steps has no data. */
bool zx_inputs_fit(const ZpPlan *p, ZxMix *data, ZbErr *err) {
  if (data && !zx_mix_arrange(data, zx_sample_values(p), has_input(p, "doc"), err)) return false;
  for (uint32_t i = 0; data && i < p->programs.ninputs; i++) {
    const ZgIo *io = &p->graph->inputs[p->programs.inputs[i].input];
    const ZpValue *v = value_of(p, &p->programs.inputs[i]);
    if (!zx_mix_check_field(data, io->name, is_whole(&io->type), sample_values(p, &io->type), err))
      return false;
    if (io->type.elem == ZG_INDEX &&
        !zx_mix_check_ids(data, io->name, p->layout.axis_valid[io->type.of], err))
      return false;
    if (!v->type.naxes || v->axis[0] != p->asked.batch)
      return zb_fail(err, "declare the axis `batch` first", "input `%s`: samples are not its slowest axis",
                     io->name);
  }
  return true;
}

void zx_open_inputs(ZxEngine *e) {
  if (!e->o.data) return;
  uint64_t longest = 0; /* row of all inputs */
  for (uint32_t i = 0; i < e->p->programs.ninputs; i++) {
    const ZpValue *v = input_value(e, &e->p->programs.inputs[i]);
    for (int a = 0; a < v->type.naxes; a++)
      if ((uint64_t)v->size[a] > longest) longest = (uint64_t)v->size[a];
  }
  e->row = ZB_NEWN(e->a, float, longest);
  if (e->rank == 0 && !e->p->asked.forward_only) warn_of_all(e);
}

uint64_t zx_engine_data_samples(const ZxEngine *e) {
  uint64_t least = UINT64_MAX;
  ZB_ASSERT(zx_mix_files(e->o.data) == 1);
  for (uint32_t i = 0; i < e->p->programs.ninputs; i++) {
    const ZgType *t = &e->p->graph->inputs[e->p->programs.inputs[i].input].type;
    uint64_t n = zx_data_samples(zx_mix_file(e->o.data, 0), sample_values(e->p, t));
    if (n < least) least = n;
  }
  return e->p->programs.ninputs ? least : 0;
}

/* Where element i of the rank's part of an axis is in all of it; and how many follow it there without a gap. */
static int64_t place_of(const ZxEngine *e, const ZpValue *v, int axis, int64_t i, int64_t *n) {
  ZpPiece piece[ZP_PIECES];
  int last = zp_view_pieces(&e->p->layout.mesh, v, e->rank, v->axis[axis], v->size[axis], piece) - 1, k = 0;
  while (k < last && i >= piece[k + 1].from) k++;
  *n = piece[k].from + piece[k].n - i;
  return piece[k].to + i - piece[k].from;
}

void zx_file_axes(const ZpPlan *p, const ZgIo *io, uint16_t axes[ZG_MAX_AXES]) {
  int n = 1;
  axes[0] = p->asked.batch;
  for (int i = 0; i < io->type.naxes; i++) {
    uint16_t axis = io->type.axis[zg_io_axis(io, i)];
    if (axis != p->asked.batch) axes[n++] = axis;
  }
}

void zx_axes_in_memory(const ZpPlan *p, const ZgIo *io, const ZpValue *v, int at[ZG_MAX_AXES]) {
  uint16_t axes[ZG_MAX_AXES];
  zx_file_axes(p, io, axes);
  for (int i = 0; i < v->type.naxes; i++)
    for (at[i] = 0; v->axis[at[i]] != axes[i];) at[i]++;
}

/* n values of a row of the file to every `stride`-th place. */
static void put_row(ZxEngine *e, const ZpValue *v, int64_t n, int64_t stride, char *to) {
  if (v->elem == ZK_BF16 && stride == 1) {
    zk_cpu_to_bf16(e->env, n, e->row, (uint16_t *)(void *)to);
    return;
  }
  for (int64_t i = 0; i < n; i++) {
    if (v->elem == ZK_BF16) ((uint16_t *)(void *)to)[i * stride] = zb_f32_to_bf16(e->row[i]);
    else memcpy(to + 4 * i * stride, &e->row[i], 4);
  }
}

/* One local sample: rows of the axis that is written last, each contiguous in the file's sample, or two pieces of it. */
static bool feed_sample(ZxEngine *e, const ZpInputUse *u, uint64_t g, char *to) {
  const ZpValue *v = input_value(e, u);
  const ZgIo *io = &e->p->graph->inputs[u->input];
  uint64_t nth;
  ZxSampler s = zx_mix_sampler(e->o.data, e->o.order, e->o.seed, sample_values(e->p, &io->type), g, &nth);
  int64_t limit = io->type.elem == ZG_INDEX ? e->p->layout.axis_valid[io->type.of]
                  : io->type.elem == ZG_I32 ? ZX_ANY_I32
                                            : -1;
  int axes[ZG_MAX_AXES];
  int64_t n = 1, piece = 1, beside[ZG_MAX_AXES]; /* of each axis: how far elements are from each other here */
  zx_axes_in_memory(e->p, io, v, axes);
  for (int a = v->type.naxes - 1; a > 0; a--) beside[a] = n, n *= v->size[a];
  for (int64_t done = 0; done < n; done += piece) {
    int64_t at = 0, stride = 1, left = done, here = 0, step = 0;
    for (int i = v->type.naxes - 1; i > 0; i--) { /* global position of the piece's first value */
      int64_t follow;
      int a = axes[i];
      at += place_of(e, v, a, left % v->size[a], &follow) * stride;
      here += left % v->size[a] * beside[a];
      if (!step) step = beside[a], piece = follow;
      left /= v->size[a];
      stride *= e->p->layout.axis_valid[v->axis[a]];
    }
    char *out = to + (uint64_t)here * zk_plain_bytes((ZkElem)v->elem);
    bool direct = step <= 1 && v->elem != ZK_BF16;
    if (!zx_data_read(&s, io->name, nth, at, piece, limit, direct ? (void *)out : e->row, e->err))
      return false;
    if (!direct) put_row(e, v, piece, step, out);
  }
  return true;
}

/* Samples of a micro-batch that this rank reads of an input, and the number of the first of them in the
 * run. */
static int64_t samples(const ZpValue *v) { return v->size[0]; }
int64_t zx_first_sample(const ZxEngine *e, const ZpValue *v, uint32_t mb) {
  int64_t start = zp_view_start(&e->p->layout.mesh, v, e->rank, v->axis[0], v->size[0]);
  int64_t before = e->begin_sample + (e->step - 1 - e->begin_step) * e->p->asked.global_batch;
  return before + (int64_t)mb * e->p->layout.axis_size[e->p->asked.batch] + start;
}

/* Sample by sample, all inputs of one: they lie beside each other in a file. */
static bool feed(ZxEngine *e, char *inputs, uint32_t mb) {
  int64_t most = 0;
  for (uint32_t i = 0; i < e->p->programs.ninputs; i++) {
    int64_t n = samples(input_value(e, &e->p->programs.inputs[i]));
    if (n > most) most = n;
  }
  for (int64_t k = 0; k < most; k++)
    for (uint32_t i = 0; i < e->p->programs.ninputs; i++) {
      const ZpInputUse *u = &e->p->programs.inputs[i];
      const ZpValue *v = input_value(e, u);
      int64_t n = samples(v), start = zx_first_sample(e, v, mb);
      if (k < n &&
          !feed_sample(e, u, (uint64_t)(start + k), inputs + u->at + v->bytes / (uint64_t)n * (uint64_t)k))
        return false;
    }
  return true;
}

/* Of one micro-batch. */
static uint64_t input_bytes(const ZxEngine *e) {
  uint64_t end = 0;
  for (uint32_t i = 0; i < e->p->programs.ninputs; i++) {
    const ZpInputUse *u = &e->p->programs.inputs[i];
    if (end < u->at + input_value(e, u)->bytes) end = u->at + input_value(e, u)->bytes;
  }
  return end;
}

bool zx_engine_try_data(ZxEngine *e, int64_t steps, ZbErr *err) {
  char *room = malloc(input_bytes(e) + 1);
  if (!room) zb_out_of_memory(0);
  bool ok = true;
  e->err = err;
  for (e->step = 1; ok && e->step <= steps; e->step++)
    for (uint32_t mb = 0; ok && mb < e->p->asked.nmicro; mb++) ok = feed(e, room, mb);
  e->step = 0;
  free(room);
  return ok;
}

/* ---- what was wrong with a step ---- */
static bool sane(const ZpValue *v, const char *p, uint64_t bytes) {
  if (v->elem == ZK_F32) return zb_not_finite((const float *)(const void *)p, bytes / 4) < 0;
  for (uint64_t i = 0; i < bytes; i += 2)
    if ((p[i + 1] & 0x7f) == 0x7f && p[i] & 0x80) return false; /* all bits of a bf16's exponent */
  return true;
}

/* The first bad one of this rank, as sample * inputs + input; -1: none. */
static int64_t bad_here(ZxEngine *e, char *room) {
  int64_t first = -1;
  for (uint32_t mb = 0; mb < e->p->asked.nmicro; mb++) {
    if (!feed(e, room, mb)) return first;
    for (uint32_t i = 0; i < e->p->programs.ninputs; i++) {
      const ZpInputUse *u = &e->p->programs.inputs[i];
      const ZpValue *v = input_value(e, u);
      int64_t n = samples(v), start = zx_first_sample(e, v, mb);
      uint64_t each = v->bytes / (uint64_t)n;
      if (is_whole(&e->p->graph->inputs[u->input].type)) continue;
      for (int64_t k = 0; k < n; k++) {
        int64_t at = (start + k) * e->p->graph->ninputs + u->input;
        if (!sane(v, room + u->at + each * (uint64_t)k, each) && (first < 0 || at < first)) first = at;
      }
    }
  }
  return first;
}

bool zx_bad_input(ZxEngine *e, ZxBadInput *out) {
  ZbErr none, *err = e->err;
  char *room = malloc(input_bytes(e) + 1);
  e->err = &none;
  int64_t at = room ? bad_here(e, room) : -1;
  e->err = err;
  free(room);
  if ((at = zx_lowest(e->world, at)) < 0) return false;
  const ZgIo *io = &e->p->graph->inputs[(uint64_t)at % e->p->graph->ninputs];
  uint64_t sample = (uint64_t)at / e->p->graph->ninputs, nth;
  ZxSampler s =
      zx_mix_sampler(e->o.data, e->o.order, e->o.seed, sample_values(e->p, &io->type), sample, &nth);
  *out = (ZxBadInput){io->name, sample, zx_data_name(s.data), zx_data_place(&s, nth)};
  return true;
}

/* The source of a sequence that is admitted is the only input. */
static bool feed_source(const ZxEngine *e, char *inputs) {
  for (uint32_t i = 0; i < e->p->programs.ninputs; i++)
    memcpy(inputs + e->p->programs.inputs[i].at, e->source, input_value(e, &e->p->programs.inputs[i])->bytes);
  return true;
}

static bool fill(ZxEngine *e, char *to, uint32_t mb) {
  return e->sizes ? zx_feed_tokens(e, to) : e->source ? feed_source(e, to) : feed(e, to, mb);
}

bool zx_feed(ZxEngine *e, char *inputs, uint32_t mb) {
  uint64_t bytes = input_bytes(e), end = (uint64_t)(inputs - e->arena) + bytes;
  if (end > e->high) e->high = end;
  uint32_t n = e->st->prog.npinned;
  if (!n) return fill(e, inputs, mb); /* into the arena */
  char *block = zx_buf_at(e, &e->pinned_inputs[mb % n]);
  ZxWait w = {0};
  while (mb && mb % n == 0 && !e->dev->reached(e->env, e->pinned_event)) /* blocks are free again */
    if (zx_poll(e)) zx_moved(e, &w);
    else zx_relax(e, &w, ZX_FOR_DEVICE);
  zx_moved(e, &w);
  if (!e->capturing && !fill(e, block, mb)) return false;
  e->dev->upload(e->env, inputs, block, bytes);
  if (!e->capturing) e->dev->record(e->env, e->pinned_event);
  return true;
}

bool zx_feed_all(ZxEngine *e) {
  for (uint32_t mb = 0; mb < e->st->prog.npinned; mb++)
    if (!fill(e, zx_buf_at(e, &e->pinned_inputs[mb]), mb)) return false;
  return true;
}
