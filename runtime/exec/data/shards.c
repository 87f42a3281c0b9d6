/* A folder of files that is read as one: the samples of its first file, then those of the second ... No
 * sample is of two. */
#include "runtime/exec/data/file.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* ---- whether files go together ---- */
static const char alike[] = "make both by the same zdata command, or convert one of them";

static bool same_field(const ZxData *one, const ZxData *two, uint32_t i, ZbErr *err) {
  const ZxDataField *a = &zx_data_info(one)->field[i], *b = &zx_data_info(two)->field[i];
  if (zx_data_info(one)->stream && a->elem != b->elem)
    return zb_fail(err, alike, "%s cannot be mixed with %s: its tokens are %s, there they are %s",
                   zx_data_name(two), zx_data_name(one), zx_data_elem_name(b->elem),
                   zx_data_elem_name(a->elem));
  if (!strcmp(a->name, b->name) && a->elem == b->elem && a->values == b->values) return true;
  return zb_fail(err, alike,
                 "%s cannot be mixed with %s: its field %u is %s: %" PRIu64 " x %s, there it is %s: %" PRIu64
                 " x %s",
                 zx_data_name(two), zx_data_name(one), i, b->name, b->values, zx_data_elem_name(b->elem),
                 a->name, a->values, zx_data_elem_name(a->elem));
}

bool zx_data_alike(const ZxData *one, const ZxData *two, ZbErr *err) {
  static const char *const kinds[] = {"records", "a stream of tokens"};
  const ZxDataInfo *a = zx_data_info(one), *b = zx_data_info(two);
  if (a->stream != b->stream)
    return zb_fail(err, alike, "%s cannot be mixed with %s: it is %s, the other %s", zx_data_name(two),
                   zx_data_name(one), kinds[b->stream], kinds[a->stream]);
  if (a->windows != b->windows)
    return zb_fail(err, alike, "%s cannot be mixed with %s: it has %s, the other %s", zx_data_name(two),
                   zx_data_name(one), zx_windows_text(b->windows), zx_windows_text(a->windows));
  if (a->nfield != b->nfield)
    return zb_fail(err, alike, "%s cannot be mixed with %s: it has %u fields, the other %u",
                   zx_data_name(two), zx_data_name(one), b->nfield, a->nfield);
  for (uint32_t i = 0; i < a->nfield; i++)
    if (!same_field(one, two, i, err)) return false;
  return true;
}

/* ---- opening ---- */
static int is_data(const struct dirent *e) { return e->d_name[0] != '.' && zb_ends(e->d_name, ".bin"); }

static int by_name(const struct dirent **a, const struct dirent **b) {
  return strcmp((*a)->d_name, (*b)->d_name);
}

static bool open_file(ZxData *d, const char *folder, const char *name, ZbErr *err) {
  ZbText path = {0};
  zb_text_add(&path, "%s%s%s", folder, folder[strlen(folder) - 1] == '/' ? "" : "/", name);
  ZxData *file = zx_data_open_file(path.s, err);
  zb_text_free(&path);
  if (!file) return false;
  d->file[d->files++] = file;
  return d->files == 1 || zx_data_alike(d->file[0], file, err);
}

/* What the files say together. */
static void sum_up(ZxData *d) {
  const ZxDataInfo *first = &d->file[0]->info;
  uint64_t documents = 0;
  bool known = true;
  d->info = *first;
  d->info.field = calloc(first->nfield, sizeof *first->field);
  if (!d->info.field) zb_out_of_memory(0);
  memcpy(d->info.field, first->field, first->nfield * sizeof *first->field);
  d->info.count = d->info.data_sum = d->info.begin_sum = d->n = 0;
  for (uint32_t i = 0; i < d->files; i++) {
    const ZxDataInfo *x = &d->file[i]->info;
    uint64_t sums[] = {d->info.data_sum, x->data_sum, x->count}, begin[] = {d->info.begin_sum, x->begin_sum};
    d->info.count += x->count; /* no overflow: so many bytes are there */
    d->info.data_sum = XXH3_64bits(sums, sizeof sums);
    d->info.begin_sum = XXH3_64bits(begin, sizeof begin);
    d->n += d->file[i]->n;
    documents += x->documents;
    known &= x->documents > 0;
    for (uint32_t k = 0; k < x->nfield; k++) {
      uint64_t *limit = &d->info.field[k].limit, other = x->field[k].limit;
      *limit = *limit && other ? (*limit > other ? *limit : other) : 0; /* 0: not known */
    }
  }
  d->info.documents = known ? documents : 0;
  if (!known) d->info.begin_sum = 0;
}

ZxData *zx_data_open_folder(const char *path, ZbErr *err) {
  struct dirent **list;
  int n = scandir(path, &list, is_data, by_name);
  if (n < 0) {
    zb_fail_errno(err, errno, "check its permissions", "cannot open the folder %s", zb_show(path));
    return NULL;
  }
  ZxData *d = zx_data_new(path);
  bool ok = true;
  if (!n)
    ok = zb_fail(err, "name a file, or a folder that zdata --shard-size made",
                 "%s is a folder without .bin files", zb_show(path));
  if (n > ZX_DATA_SHARDS)
    ok = zb_fail(err, "put some together", "%s has %d .bin files; %d are the most", zb_show(path), n,
                 ZX_DATA_SHARDS);
  d->file = calloc((size_t)n + 1, sizeof(ZxData *));
  if (!d->file) zb_out_of_memory(0);
  for (int i = 0; i < n; i++) {
    ok = ok && open_file(d, path, list[i]->d_name, err);
    free(list[i]);
  }
  free(list);
  if (ok) return sum_up(d), d;
  zx_data_close(d);
  return NULL;
}

/* ---- which file ---- */
const ZxData *zx_data_file_of_sample(const ZxData *d, int64_t seq, uint64_t *sample) {
  for (uint32_t i = 0; i < d->files; i++) {
    uint64_t n = zx_data_samples(d->file[i], seq);
    if (*sample < n) return d->file[i];
    *sample -= n;
  }
  ZB_BUG("sample beyond the end of %s", d->name);
}
