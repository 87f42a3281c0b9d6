/* Outputs of the model into a weights file. Every rank writes its parts where they belong; of ranks that have
 * the same, the first does. A part is rows along the axis that is last in the file; what is contiguous in the file is written
 * at once. */
#include "runtime/exec/state/slices.h"
#include "runtime/exec/state/state.h"

#include <stdlib.h>
#include <string.h>

enum { ROOM = 1 << 16 }; /* values written at once */

struct ZxPredict {
  ZxEngine *e;
  ZbOut *out;
  ZxWeights *file;
  int64_t *tensor;    /* per output of the graph */
  uint64_t global, n; /* values that wait in `room`: of which place of the tensor, how many */
  float room[ROOM];
};

/* ---- the file ---- */
static bool info_of(const ZxEngine *e, const ZgIo *o, uint64_t samples, ZxTensorInfo *t, ZbErr *err) {
  const ZpPlan *p = e->p;
  if (!o->type.naxes || p->asked.batch == ZP_NONE || o->type.axis[0] != p->asked.batch)
    return zb_fail(err, "give it the axis `batch`, declared before its others",
                   "output `%s` cannot be written: samples are not its slowest axis", o->name);
  *t = (ZxTensorInfo){.path = o->name, .nshape = o->type.naxes, .shape = {(int64_t)samples}};
  uint16_t axes[ZG_MAX_AXES];
  zx_file_axes(p, o, axes);
  for (int i = 1; i < o->type.naxes; i++) t->shape[i] = p->layout.axis_valid[axes[i]];
  return true;
}

static ZxTensorInfo *infos(ZxEngine *e, uint64_t samples, ZbErr *err) {
  const ZgGraph *g = e->p->graph;
  ZxTensorInfo *t = ZB_NEWN(e->a, ZxTensorInfo, g->noutputs + 1);
  if (!g->noutputs)
    return zb_fail(err, "name what is to be written: `output x = ...`", "model %s has no outputs", g->model),
           NULL;
  for (uint32_t i = 0; i < g->noutputs; i++)
    if (!info_of(e, &g->outputs[i], samples, &t[i], err)) return NULL;
  return t;
}

static bool open_tensors(ZxPredict *t, const ZxTensorInfo *info, ZbErr *err) {
  t->file = zx_weights_open(zb_out_tmp(t->out), true, err);
  for (uint32_t i = 0; t->file && i < t->e->p->graph->noutputs; i++)
    if ((t->tensor[i] = zx_weights_find(t->file, &info[i], err)) < 0) return false;
  return t->file != NULL;
}

/* ---- parts ---- */
static bool flush(ZxPredict *t, uint32_t output) {
  uint64_t n = t->n;
  t->n = 0;
  return !n || zx_weights_write(t->file, t->tensor[output], t->global, n, t->room, t->e->err);
}

/* n values of the part, each `step` behind the one before, from value `at` on, belong to `global` of the tensor. */
static bool put(ZxPredict *t, const ZxOutput *x, uint64_t at, uint64_t step, uint64_t global, uint64_t n) {
  for (uint64_t done = 0, m; done < n; done += m) {
    if ((t->n == ROOM || t->global + t->n != global + done) && !flush(t, x->output)) return false;
    if (!t->n) t->global = global + done;
    m = n - done < ROOM - t->n ? n - done : ROOM - t->n;
    for (uint64_t i = 0; i < m; i++) {
      uint64_t from = at + (done + i) * step;
      t->room[t->n + i] = x->value->elem == ZK_BF16  ? zb_bf16_to_f32(((const uint16_t *)x->data)[from])
                          : x->value->elem == ZK_I32 ? (float)((const int32_t *)x->data)[from]
                                                     : ((const float *)x->data)[from];
    }
    t->n += m;
  }
  return true;
}

/* Among the ranks that have the same it is the first. */
static bool speaks_for(const ZxEngine *e, const ZpValue *v) {
  ZpDims same = 0;
  for (int d = 0; d < e->p->layout.mesh.ndims; d++)
    if (d != e->p->layout.mesh.pipe && v->state[d].kind == 'R') same |= 1u << d;
  return zp_group_index(&e->p->layout.mesh, e->rank, same) == 0;
}

/* Where the elements of an axis of a part are in the tensor. */
typedef struct {
  ZpPiece piece[ZP_PIECES];
  int n;
} Places;

static uint64_t place_in(const Places *p, uint64_t i) {
  int k = p->n - 1;
  while ((int64_t)i < p->piece[k].from) k--;
  return (uint64_t)(p->piece[k].to - p->piece[k].from) + i;
}

/* Row r of a part, along the last of `axes`, positions in memory; padding is left out. */
static bool put_row(ZxPredict *t, const ZxOutput *x, const Places *places, const int *axes, uint64_t r) {
  const ZpValue *v = x->value;
  int last = v->type.naxes - 1, along = axes[last];
  uint64_t beside[ZG_MAX_AXES], n = 1, global = 0, scale = 1, at = 0;
  for (int a = last; a >= 0; a--) beside[a] = n, n *= (uint64_t)v->size[a];
  uint64_t room = last ? (uint64_t)t->e->p->layout.axis_valid[v->axis[along]] : UINT64_MAX;
  for (int k = last - 1; k >= 0; k--) {
    int a = axes[k];
    uint64_t own = r % (uint64_t)v->size[a], i = place_in(&places[a], own);
    r /= (uint64_t)v->size[a];
    scale *= (uint64_t)t->e->p->layout.axis_valid[v->axis[axes[k + 1]]];
    if (a && i >= (uint64_t)t->e->p->layout.axis_valid[v->axis[a]]) return true;
    global += i * scale;
    at += own * beside[a];
  }
  for (int k = 0; k < places[along].n; k++) {
    ZpPiece p = places[along].piece[k];
    if ((uint64_t)p.to >= room) continue;
    uint64_t keep = room - (uint64_t)p.to, some = (uint64_t)p.n < keep ? (uint64_t)p.n : keep;
    if (!put(t, x, at + (uint64_t)p.from * beside[along], beside[along], global + (uint64_t)p.to, some))
      return false;
  }
  return true;
}

static bool take(ZxEngine *e, const ZxOutput *x) {
  ZxPredict *t = e->take_ctx;
  const ZpValue *v = x->value;
  Places places[ZG_MAX_AXES] = {{{{0, zx_first_sample(e, v, x->mb), v->size[0]}}, 1}};
  uint64_t rows = 1;
  int axes[ZG_MAX_AXES];
  if (!speaks_for(e, v)) return true;
  zx_axes_in_memory(e->p, &e->p->graph->outputs[x->output], v, axes);
  for (int a = 1; a < v->type.naxes; a++) {
    places[a].n = zp_view_pieces(&e->p->layout.mesh, v, e->rank, v->axis[a], v->size[a], places[a].piece);
    rows *= (uint64_t)v->size[axes[a - 1]];
  }
  for (uint64_t r = 0; r < rows; r++)
    if (!put_row(t, x, places, axes, r)) return false;
  return flush(t, x->output);
}

/* ---- from the beginning to the end ---- */
ZxPredict *zx_predict_open(ZxEngine *e, const char *path, uint64_t samples, ZbErr *err) {
  ZB_ASSERT(e->p->asked.outputs);
  ZxPredict *t = calloc(1, sizeof *t);
  if (!t) zb_out_of_memory(0);
  t->e = e;
  t->tensor = ZB_NEWN(e->a, int64_t, e->p->graph->noutputs + 1);
  ZxTensorInfo *info = infos(e, samples, err);
  bool ok = zx_agree(e->world, info != NULL);
  if (ok && !e->rank) t->out = zx_weights_create(path, info, e->p->graph->noutputs, err);
  ok = ok && zx_share_out(e, &t->out, "--predict", err) && zx_agree(e->world, open_tensors(t, info, err));
  if (!ok) {
    zx_predict_abandon(t);
    return NULL;
  }
  e->take_output = take;
  e->take_ctx = t;
  return t;
}

bool zx_predict_close(ZxPredict *t, ZbErr *err) {
  ZxComm *world = t->e->world;
  bool ok = zx_weights_close(t->file, err);
  t->file = NULL;
  if (zx_agree(world, ok)) {
    ok = zb_out_commit(t->out, err);
    t->out = NULL;
  }
  zx_predict_abandon(t);
  return zx_agree(world, ok);
}

void zx_predict_abandon(ZxPredict *t) {
  if (!t) return;
  t->e->take_output = NULL;
  zx_weights_close(t->file, NULL);
  zb_out_discard(t->out);
  free(t);
}
