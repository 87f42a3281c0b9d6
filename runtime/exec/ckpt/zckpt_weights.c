/* zckpt weights: the parameters of a checkpoint as one safetensors file, for --init and other programs. */
#include "runtime/exec/ckpt/zckpt.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  ZxWeights *to;
  int64_t tensor;
} Copy;

static bool copy_piece(void *ctx, const float *x, uint64_t first, uint64_t n, ZbErr *err) {
  Copy *c = ctx;
  return zx_weights_write(c->to, c->tensor, first, n, x, err);
}

/* The tensor with the values of parameter i: its own, or the average's, which what was frozen has not. */
static uint32_t values_of(const ZsCkpt *k, uint32_t i, bool average) {
  uint32_t t = average ? zx_state_named(&k->m->c, i, "average") : i;
  return t == ZB_NO_NAME ? i : t;
}

static bool has_average(const ZsCkpt *k, ZbErr *err) {
  for (uint32_t s = 0; s < k->m->c.nstates; s++)
    if (!strcmp(k->m->c.state[s], "average")) return true;
  return zb_fail(err, "recipes keep one by `average 0.9999`", "%s has no average of the parameters",
                 zb_show(k->dir));
}

static bool copy_all(ZsCkpt *k, bool average, const char *tmp, ZbErr *err) {
  Copy c = {.to = zx_weights_open(tmp, true, err)};
  bool ok = c.to != NULL;
  for (uint32_t i = 0; ok && i < k->m->c.nparams; i++) {
    c.tensor = zx_weights_find(c.to, &k->m->c.tensors[i].info, err);
    ok = c.tensor >= 0 && zs_read(k, values_of(k, i, average), copy_piece, &c, err);
  }
  return c.to ? zx_weights_close(c.to, ok ? err : NULL) && ok : false;
}

ZsEnd zs_weights(const ZsOptions *o, ZbArena *a, ZbErr *err) {
  ZsCkpt k;
  /* A file among the checkpoint's own would make it one that is refused. */
  if (!zs_open(&k, a, o->path[0], err) || !zx_ckpt_look(k.m, k.dir, err) ||
      !zb_spares("-o", o->out, k.dir, err) || (o->average && !has_average(&k, err)))
    return ZS_FAILED;
  uint32_t n = k.m->c.nparams;
  ZxTensorInfo *t = ZB_NEWN(a, ZxTensorInfo, n);
  for (uint32_t i = 0; i < n; i++) t[i] = k.m->c.tensors[i].info;
  ZbOut *out = zx_weights_create(o->out, t, n, err);
  bool ok = out && copy_all(&k, o->average, zb_out_tmp(out), err);
  zs_close(&k);
  if (out && !ok) zb_out_discard(out);
  if (!ok || !zb_out_commit(out, err)) return ZS_FAILED;
  printf("%s: the %" PRIu32 " parameters of step %" PRId64 "%s\n", zb_show(o->out), n, k.m->step,
         o->average ? ", averaged" : "");
  return ZS_OK;
}
