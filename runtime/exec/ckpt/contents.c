/* Which tensors a checkpoint has, in which file and at which byte: a pure function of the model, so that all
 * ranks know it without a word, and the same whatever the layout. */
#include "runtime/exec/ckpt/ckpt.h"

#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

static uint64_t elements(const ZxTensorInfo *t) {
  uint64_t n = 1;
  for (int i = 0; i < t->nshape; i++) n *= (uint64_t)t->shape[i];
  return n;
}

/* Files of tensors from..to-1, each as long as the limit allows. */
static bool cut(ZbArena *a, ZxContents *c, uint32_t from, uint32_t to, uint64_t most) {
  for (uint32_t i = from; i < to;) {
    ZxCkptFile f = {.first = i};
    uint64_t bytes = 0;
    do bytes += zk_bytes(ZK_F32, c->tensors[i].n), f.n++, i++;
    while (i < to && zk_bytes(ZK_F32, c->tensors[i].n) <= most &&
           bytes <= most - zk_bytes(ZK_F32, c->tensors[i].n));
    ZB_PUSH(a, c->files, c->nfiles, f);
  }
  return true;
}

/* The header of a file; where its tensors begin. */
static bool make_file(ZbArena *a, ZxContents *c, uint32_t file, ZbErr *err) {
  ZxCkptFile *f = &c->files[file];
  ZxTensorInfo *info = ZB_NEWN(a, ZxTensorInfo, f->n);
  for (uint32_t i = 0; i < f->n; i++) info[i] = c->tensors[f->first + i].info;
  ZbText t = {0};
  bool ok = zx_weights_head(&t, info, f->n, &f->bytes, err);
  if (ok) {
    uint64_t len = t.len, at = 8 + len;
    char *head = zb_alloc(a, 8 + len);
    memcpy(head, &len, 8);
    memcpy(head + 8, t.s, len);
    f->head = head;
    f->head_bytes = at;
    f->head_digest = XXH3_64bits(head, at);
    for (uint32_t i = f->first; i < f->first + f->n; i++) {
      c->tensors[i].file = file;
      c->tensors[i].at = at;
      at += zk_bytes(ZK_F32, c->tensors[i].n);
    }
    ZB_ASSERT(at == f->bytes);
    c->bytes += f->bytes;
  }
  zb_text_free(&t);
  return ok;
}

/* "model-00001-of-00002.safetensors" */
static void name_files(ZbArena *a, ZxContents *c, const char *stem, uint32_t from, uint32_t to) {
  for (uint32_t i = from; i < to; i++)
    c->files[i].name =
        zb_printf(a, "%s-%05" PRIu32 "-of-%05" PRIu32 ".safetensors", stem, i - from + 1, to - from);
}

/* Leaves out the axes that a state has not. */
static void lose_axes(ZxCkptTensor *t, uint32_t less) {
  const ZxTensorInfo whole = t->info;
  t->less = less;
  t->info.nshape = 0;
  for (int k = 0; k < whole.nshape; k++)
    if (!(less >> k & 1)) t->info.shape[t->info.nshape++] = whole.shape[k];
  t->n = elements(&t->info);
}

bool zx_contents_make(ZbArena *a, const ZxTensorInfo *params, uint32_t n, const char *const *states,
                      uint32_t nstates, const uint32_t *has, const uint32_t *less, uint64_t most,
                      ZxContents *out, ZbErr *err) {
  ZB_ASSERT(nstates <= ZX_MAX_STATES);
  *out = (ZxContents){.nparams = n, .nstates = nstates, .ntensors = n, .most = most};
  out->tensors = ZB_NEWN(a, ZxCkptTensor, n * (1 + nstates));
  out->first = ZB_NEWN(a, uint32_t, n + 1);
  for (uint32_t s = 0; s < nstates; s++) out->state[s] = states[s];
  for (uint32_t i = 0; i < n; i++)
    out->tensors[i] = (ZxCkptTensor){.info = params[i], .param = i, .n = elements(&params[i])};
  for (uint32_t i = 0; i < n; i++) {
    out->first[i] = out->ntensors;
    for (uint32_t s = 0; s < nstates; s++) {
      if (has && !(has[i] >> s & 1)) continue;
      ZxCkptTensor *t = &out->tensors[out->ntensors++];
      *t = out->tensors[i];
      t->state = s + 1;
      t->info.path = zb_printf(a, "%s.%s", params[i].path, states[s]);
      if (less && less[i * nstates + s]) lose_axes(t, less[i * nstates + s]);
    }
  }
  out->first[n] = out->ntensors;
  cut(a, out, 0, n, most);
  uint32_t models = out->nfiles;
  cut(a, out, n, out->ntensors, most);
  name_files(a, out, "model", 0, models);
  name_files(a, out, "optimizer", models, out->nfiles);
  for (uint32_t i = 0; i < out->nfiles; i++)
    if (!make_file(a, out, i, err)) return false;
  return true;
}

uint32_t zx_nstates_of(const ZxContents *c, uint32_t param) { return c->first[param + 1] - c->first[param]; }

uint32_t zx_state_named(const ZxContents *c, uint32_t param, const char *name) {
  for (uint32_t i = c->first[param]; i < c->first[param + 1]; i++)
    if (!strcmp(c->state[c->tensors[i].state - 1], name)) return i;
  return ZB_NO_NAME;
}

const char *zx_shape_text(ZbArena *a, const ZxTensorInfo *t) {
  const char *s = "[";
  for (int i = 0; i < t->nshape; i++) s = zb_printf(a, "%s%s%" PRId64, s, i ? ", " : "", t->shape[i]);
  return zb_printf(a, "%s]", s);
}

/* The mixing is one-to-one for every index, so that no change of a single value goes unseen. Sums of such
 * words do not depend on their order. */
ZB_WIDE uint64_t zx_digest(const float *x, uint64_t first, uint64_t n) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < n; i++) {
    uint32_t w;
    memcpy(&w, x + i, 4);
    uint64_t z = (first + i) * 0x9e3779b97f4a7c15ull + w * 0xd6e8feb86659fd93ull + 0x2545f4914f6cdd1dull;
    z = (z ^ (z >> 32)) * 0xd6e8feb86659fd93ull;
    sum += z ^ (z >> 32);
  }
  return sum;
}
