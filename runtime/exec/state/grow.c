/* Rows of a table of words that its file has not: of a model with new tokens. They begin as the mean of
 * the rows that are there, so that no logit of a new word stands out (Hewitt 2021, "Initializing New Word
 * Embeddings for Pretrained Language Models"), or as the row of a word that is said. */
#include "runtime/exec/state/grow.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- rows ---------------------------------------------------------------------------------------------- */
int64_t zx_rows_there(const ZxShards *s, uint32_t tensor, const ZgGraph *g, uint32_t param,
                      const ZxPart *want) {
  const ZgParam *p = &g->params[param];
  ZxTensorInfo have = zx_shards_info(s, tensor);
  int64_t row = 1;
  if (!p->type.naxes || want->fixed >= 0 || want->first || have.nshape != want->info.nshape) return 0;
  for (int i = 1; i < have.nshape; i++) {
    if (have.shape[i] != want->info.shape[i]) return 0;
    row *= have.shape[i];
  }
  uint16_t words = p->type.axis[p->order[0]];
  bool table =
      zg_axis_is_looked_up(g, words) && g->axes[words].size == want->info.shape[0] && want->stride[0] == row;
  return table && have.shape[0] > 0 && have.shape[0] < want->info.shape[0] ? have.shape[0] : 0;
}

/* Numbers of a row, in the order in which the parameter has them. */
typedef struct {
  const ZxNewWords *words;
  const ZxShards *files;
  uint32_t tensor;
  const ZxPart *part;
  const ZxTensorInfo *own;
  int64_t row; /* numbers of one */
  uint64_t there;
  float *mean, *like;
  uint64_t liked; /* which row `like` has; `there`: none */
  const ZxWalk *at;
  ZbErr *err;
} Filling;

/* Reads rows from..from + n - 1. */
static bool read_rows(const Filling *f, uint64_t from, int64_t n, float *out) {
  ZxBox b = {.naxes = f->own->nshape, .from = f->part->first + (int64_t)from * f->part->stride[0]};
  int64_t step = 1;
  for (int i = b.naxes; i-- > 0; step *= f->own->shape[i]) {
    b.count[i] = i ? f->own->shape[i] : n;
    b.stride[i] = f->part->stride[i];
    b.step[i] = step;
  }
  return zx_box_read(f->files, f->tensor, &b, out, (uint64_t)(n * f->row), f->err);
}

static bool make_mean(Filling *f) {
  int64_t some = (1 << 20) / f->row + 1;
  double *sum = calloc((size_t)f->row, sizeof *sum);
  float *rows = malloc((size_t)(some * f->row) * sizeof *rows);
  if (!sum || !rows) zb_out_of_memory((size_t)(some * f->row) * sizeof *rows);
  bool ok = true;
  for (uint64_t at = 0; ok && at < f->there; at += (uint64_t)some) {
    int64_t n = f->there - at < (uint64_t)some ? (int64_t)(f->there - at) : some;
    ok = read_rows(f, at, n, rows);
    for (int64_t i = 0; ok && i < n * f->row; i++) sum[i % f->row] += (double)rows[i];
  }
  for (int64_t i = 0; ok && i < f->row; i++) f->mean[i] = (float)(sum[i] / (double)f->there);
  free(rows);
  free(sum);
  return ok;
}

/* Returns the row that word `word` begins with. */
static const float *row_of(Filling *f, uint64_t word) {
  for (uint32_t i = 0; i < f->words->nlike; i++) {
    uint64_t as = f->words->like[i].as;
    if (f->words->like[i].word != word) continue;
    if (as >= f->there)
      return zb_fail(f->err, "name a word that is there", "--new-tokens: %s has no row %" PRIu64,
                     zb_show(f->files->path), as),
             NULL;
    if (f->liked != as && !read_rows(f, as, 1, f->like)) return NULL;
    f->liked = as;
    return f->like;
  }
  return f->mean;
}

static bool fill_stretch(void *ctx, uint64_t global, uint64_t local, uint64_t n) {
  Filling *f = ctx;
  float *out = f->at->base + (local - f->at->first);
  for (uint64_t i = 0; i < n; i++) {
    uint64_t word = (global + i) / (uint64_t)f->row;
    const float *row = word < f->there ? NULL : row_of(f, word);
    if (word < f->there) continue;
    if (!row) return false;
    out[i] = row[(global + i) % (uint64_t)f->row];
  }
  return true;
}

bool zx_fill_rows(const ZxNewWords *w, const ZxShards *s, uint32_t tensor, const ZxPart *part, int64_t there,
                  const ZxWalk *at, ZbErr *err) {
  ZxTensorInfo own = zx_tensor_info(at->e, at->s->param, at->iter);
  Filling f = {.words = w,
               .files = s,
               .tensor = tensor,
               .part = part,
               .own = &own,
               .row = 1,
               .there = (uint64_t)there,
               .liked = (uint64_t)there,
               .at = at,
               .err = err};
  for (uint32_t i = 0; i < w->nlike; i++)
    if (w->like[i].word < there || w->like[i].word >= own.shape[0])
      return zb_fail(err, "name one that is new",
                     "--new-tokens: word %" PRIu32 " is not among those from %" PRId64 " to %" PRId64,
                     w->like[i].word, there, own.shape[0] - 1);
  for (int i = 1; i < own.nshape; i++) f.row *= own.shape[i];
  f.mean = malloc(2 * (size_t)f.row * sizeof *f.mean);
  if (!f.mean) zb_out_of_memory(2 * (size_t)f.row * sizeof *f.mean);
  f.like = f.mean + f.row;
  bool ok = make_mean(&f) &&
            zx_stretches(&at->e->p->layout.mesh, at->e->rank, at->s, at->first, at->last, fill_stretch, &f);
  free(f.mean);
  return ok;
}
