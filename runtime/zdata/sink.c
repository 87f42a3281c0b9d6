/* Where tokens go, document by document: into one file, or into training and validation files, or into shards
 * of these. */
#include "runtime/zdata/zdata.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Training, validation, or all. */
typedef struct {
  const char *path; /* of its file, or, while it is made, of the folder of its shards */
  const char *name; /* what that is at the end */
  ZxDataWriter *w;  /* the open file; NULL: none */
  uint64_t bytes;   /* of the open file's tokens */
  uint64_t tokens, documents;
  uint32_t files;
} Part;

struct ZdSink {
  ZdTarget to;
  ZbArena *a;
  size_t size; /* bytes of a token */
  Part part[2], *now;
  int parts;
  ZdFolder *folder; /* of shards */
  uint64_t seen;    /* documents */
  bool some;        /* the document has tokens */
};

bool zd_target_options(ZdTarget *to, const ZdOptions *o, ZbErr *err) {
  if (o->seed >= 0 && o->split <= 0) return zb_fail(err, "leave it out", "--seed is for --split");
  to->shard = (uint64_t)o->shard_size;
  to->seed = o->seed >= 0 ? (uint64_t)o->seed : 0;
  to->split = o->split;
  return true;
}

/* ---- files ---- */
static bool open_file(ZdSink *s, Part *p, ZbErr *err) {
  ZxDataField field[] = {{.name = "tokens", .elem = s->to.elem, .values = 1},
                         {.name = "learned", .elem = ZX_DATA_U8, .values = 1}};
  uint32_t nfield = zx_windows_whole(s->to.windows) ? 2 : 1;
  ZxDataInfo info = {.stream = true, .windows = s->to.windows, .nfield = nfield, .field = field};
  if (p->files == ZX_DATA_SHARDS)
    return zb_fail(err, "give a larger --shard-size", "more than %d shards of %s", ZX_DATA_SHARDS,
                   zb_show(s->to.path));
  p->bytes = 0;
  p->w = zx_data_create(s->folder ? zb_printf(s->a, "%s/%05" PRIu32 ".bin", p->path, p->files) : p->path,
                        &info, err);
  p->files += p->w != NULL;
  return p->w != NULL;
}

static bool finish_file(ZdSink *s, Part *p, ZbErr *err) {
  ZxDataWriter *w = p->w;
  p->w = NULL;
  return zx_data_finish(w, (uint64_t[]){s->to.limit, 0}, err);
}

/* "a/b.bin" and "train" make "a/b.train.bin". */
static const char *with_word(ZbArena *a, const char *path, const char *word) {
  const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
  if (!dot || dot == path || (slash && dot <= slash + 1)) return zb_printf(a, "%s.%s", path, word);
  return zb_printf(a, "%.*s.%s%s", (int)(dot - path), path, word, dot);
}

static bool open_all(ZdSink *s, ZbErr *err) {
  static const char *const words[] = {"train", "valid"};
  const char *path = s->to.path;
  if (s->to.shard && !(s->folder = zd_folder_new(path, err))) return false;
  s->parts = s->to.split > 0 ? 2 : 1;
  for (int i = 0; i < s->parts; i++) {
    Part *p = &s->part[i];
    if (!s->folder) p->path = s->parts == 2 ? with_word(s->a, path, words[i]) : path;
    else if (s->parts == 1) p->path = zd_folder_path(s->folder);
    else if (!(p->path = zd_folder_add(s->folder, words[i], err))) return false;
    p->name = !s->folder ? p->path : s->parts == 1 ? path : zb_printf(s->a, "%s/%s", path, words[i]);
    if (!s->folder && !open_file(s, p, err)) return false;
  }
  return true;
}

ZdSink *zd_sink_new(const ZdTarget *to, ZbErr *err) {
  ZdSink *s = calloc(1, sizeof *s);
  if (!s) zb_out_of_memory(0);
  s->to = *to;
  s->a = zb_arena_new();
  size_t n = strlen(to->path);
  while (n > 1 && to->path[n - 1] == '/') n--;
  if (to->shard) s->to.path = zb_strndup(s->a, to->path, n);
  s->size = zx_data_elem_bytes(to->elem) + zx_windows_whole(to->windows);
  if (open_all(s, err)) return s;
  zd_sink_abandon(s);
  return NULL;
}

void zd_sink_abandon(ZdSink *s) {
  if (!s) return;
  for (int i = 0; i < s->parts; i++) zx_data_abandon(s->part[i].w);
  zd_folder_discard(s->folder);
  zb_arena_free(s->a);
  free(s);
}

/* ---- tokens ---- */
uint64_t zd_sink_tokens(const ZdSink *s) { return s->part[0].tokens + s->part[1].tokens; }
uint64_t zd_sink_documents(const ZdSink *s) { return s->part[0].documents + s->part[1].documents; }

static bool put(ZdSink *s, const void *tokens, size_t n, ZbErr *err) {
  s->now->tokens += n;
  s->now->bytes += n * s->size;
  return zx_data_put(s->now->w, tokens, n * s->size, err);
}

/* Which part a document belongs to depends on its number and the seed alone. */
static Part *part_of(ZdSink *s, uint64_t document) {
  if (s->parts == 1) return s->part;
  return &s->part[zb_random_unit(s->to.seed, zb_stream("split of documents"), document) >= s->to.split];
}

/* A shard that is full is followed by another: where a document begins, or, if the document is as long as
 * another shard, within it. */
static bool next_shard(ZdSink *s, uint64_t full, ZbErr *err) {
  Part *p = s->now;
  if (p->w && (!s->folder || p->bytes < full)) return true;
  if (p->w && !finish_file(s, p, err)) return false;
  return open_file(s, p, err);
}

bool zd_sink_put(ZdSink *s, const void *tokens, size_t n, bool begins, bool ends, ZbErr *err) {
  bool pairs = s->to.windows == ZX_WINDOWS_PAIRS; /* whose two documents go to one file */
  if (begins) {
    s->now = part_of(s, pairs ? s->seen / 2 : s->seen);
    s->seen++;
    s->some = false;
  }
  if (n) {
    uint32_t before = s->now->files;
    uint64_t full = pairs && s->seen % 2 == 0 ? UINT64_MAX / 2 : s->to.shard;
    if (!next_shard(s, s->some && !s->to.unknown ? 2 * full : full, err)) return false;
    if (!s->to.unknown && (!s->some || s->now->files != before) && !zx_data_begin_document(s->now->w, err))
      return false;
    s->now->documents += !s->some;
    s->some = true;
  }
  if (n && !put(s, tokens, n, err)) return false;
  return !ends || !s->some || s->to.end == ZD_NO_END || put(s, &s->to.end, 1, err); /* little-endian */
}

void zd_sink_limit(ZdSink *s, uint64_t limit) { s->to.limit = limit; }

/* ---- the end ---- */
static bool finish(ZdSink *s, ZbErr *err) {
  bool ok = true;
  for (int i = 0; i < s->parts; i++)
    if (!s->part[i].tokens)
      return zb_fail(err, "give another --split or --seed, or more documents",
                     "all %" PRIu64 " documents are for %s: none is left for %s", zd_sink_documents(s),
                     i ? "training" : "validation", i ? "validation" : "training");
  if (s->folder) {
    for (int i = 0; ok && i < s->parts; i++) ok = !s->part[i].w || finish_file(s, &s->part[i], err);
    ZdFolder *folder = s->folder;
    s->folder = NULL;
    if (ok) return zd_folder_commit(folder, err);
    zd_folder_discard(folder);
    return false;
  }
  for (int i = 0; ok && i < s->parts; i++) ok = zx_data_seal(s->part[i].w, (uint64_t[]){s->to.limit, 0}, err);
  for (int i = 0; ok && i < s->parts; i++) {
    ZxDataWriter *w = s->part[i].w;
    s->part[i].w = NULL;
    ok = zx_data_commit(w, err);
  }
  return ok;
}

bool zd_sink_finish(ZdSink *s, ZbErr *err) {
  if (!finish(s, err)) return false;
  for (int i = 0; i < s->parts; i++) {
    const Part *p = &s->part[i];
    printf("%s: %" PRIu64 " tokens", zb_show(p->name), p->tokens);
    if (!s->to.unknown) printf(" of %" PRIu64 " document%s", p->documents, p->documents == 1 ? "" : "s");
    if (s->to.shard) printf(" in %" PRIu32 " shard%s", p->files, p->files == 1 ? "" : "s");
    printf(i + 1 < s->parts ? "\n" : "");
  }
  return true;
}
