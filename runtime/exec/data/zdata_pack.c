/* zdata pack and zdata records: files and folders of text or raw values become one token or record file. */
#include "runtime/exec/data/zdata.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 64 << 10, LOOK = 8 << 10 /* bytes looked at to tell text from the rest */ };

bool zd_other_file(const char *in, const char *out, ZbErr *err) {
  if (!zb_same_file(in, out)) return true;
  return zb_fail(err, "choose another name", "-o %s would overwrite %s, from which it is made", zb_show(out),
                 zb_show(in));
}

/* ---- which files ---- */
typedef struct {
  ZbArena *a;
  const char **path;
  size_t n, skipped;
} Files;

/* No NUL at the beginning is text, as git has it. */
static bool is_text(const char *path, bool *text, ZbErr *err) {
  char head[LOOK];
  uint64_t size;
  int fd = zb_open_file(path, false, &size, err);
  if (fd < 0) return false;
  size_t n = size < sizeof head ? size : sizeof head;
  bool ok = zb_read_at(fd, path, head, n, 0, err);
  close(fd);
  *text = ok && !memchr(head, 0, n);
  return ok;
}

static int not_hidden(const struct dirent *e) { return e->d_name[0] != '.'; }
static int by_name(const struct dirent **a, const struct dirent **b) {
  return strcmp((*a)->d_name, (*b)->d_name);
}

static bool walk(Files *fs, const char *folder, ZbErr *err);

static bool take_path(Files *fs, const char *path, ZbErr *err) {
  struct stat st;
  bool text = false;
  if (lstat(path, &st) < 0)
    return zb_fail(err, NULL, "cannot look at %s: %s", zb_show(path), strerror(errno));
  if (S_ISDIR(st.st_mode)) return walk(fs, path, err);
  if (S_ISREG(st.st_mode) && !is_text(path, &text, err)) return false;
  if (text) ZB_PUSH(fs->a, fs->path, fs->n, path);
  else fs->skipped++;
  return true;
}

static bool walk(Files *fs, const char *folder, ZbErr *err) {
  struct dirent **list;
  int n = scandir(folder, &list, not_hidden, by_name);
  if (n < 0)
    return zb_fail(err, "check its permissions", "cannot open the folder %s: %s", zb_show(folder),
                   strerror(errno));
  bool ok = true;
  for (int i = 0; i < n; i++) {
    ok = ok && take_path(fs, zb_printf(fs->a, "%s/%s", folder, list[i]->d_name), err);
    free(list[i]);
  }
  free(list);
  return ok;
}

/* The named files, and what folders hold where `folders` is true. */
static bool collect_all(Files *fs, const ZdOptions *o, bool folders, ZbErr *err) {
  for (int i = 0; i < o->nfile; i++) {
    struct stat st;
    if (stat(o->file[i], &st) < 0)
      return zb_fail(err, "check the path", "cannot open %s: %s", zb_show(o->file[i]), strerror(errno));
    if (!S_ISDIR(st.st_mode)) ZB_PUSH(fs->a, fs->path, fs->n, o->file[i]);
    else if (!folders) return zb_fail(err, "name the files", "%s is a folder", zb_show(o->file[i]));
    else if (!walk(fs, o->file[i], err)) return false;
  }
  return true;
}

static bool collect(Files *fs, const ZdOptions *o, bool folders, ZbErr *err) {
  if (!collect_all(fs, o, folders, err)) return false;
  for (size_t i = 0; i < fs->n; i++)
    if (!zd_other_file(fs->path[i], o->out, err)) return false;
  return true;
}

/* ---- copying ---- */
/* What is learned while values pass: per field, the largest id + 1. */
typedef struct {
  ZxDataWriter *w;
  const ZxDataInfo *info;
  uint64_t unit;   /* bytes of a whole token or record */
  uint64_t *limit; /* one a field */
  uint64_t vocab;  /* 0, or all ids must be below */
  uint64_t bytes;
} Copy;

static uint64_t largest(const uint8_t *p, const ZxDataField *f) {
  uint64_t limit = 0;
  for (uint64_t i = 0; i < f->values; i++) {
    uint32_t v = 0;
    size_t size = zx_data_elem_bytes(f->elem);
    memcpy(&v, p + i * size, size);
    bool unknown = (size == 2 && v == UINT16_MAX) || (size == 4 && v == UINT32_MAX);
    if (f->elem == ZX_DATA_I32 && v > INT32_MAX) unknown = true; /* what it is, a model will say */
    if (!unknown && v + 1ull > limit) limit = v + 1ull;
  }
  return limit;
}

static bool look(Copy *c, const uint8_t *p, uint64_t n, const char *path, ZbErr *err) {
  for (uint64_t at = 0; at < n; at += c->unit)
    for (uint32_t i = 0; i < c->info->nfield; i++) {
      const ZxDataField *f = &c->info->field[i];
      if (f->elem == ZX_DATA_F32) continue;
      uint64_t limit = largest(p + at + f->at, f);
      if (c->vocab && limit > c->vocab)
        return zb_fail(err, "is --tokens the type that it was written with?",
                       "%s has the id %" PRIu64 "; --vocab says that ids are below %" PRIu64, zb_show(path),
                       limit - 1, c->vocab);
      if (limit > c->limit[i]) c->limit[i] = limit;
    }
  return true;
}

/* A file's whole units, a piece at a time. */
static bool copy(Copy *c, const char *path, uint8_t *piece, uint64_t room, ZbErr *err) {
  FILE *f = zb_open_stream(path, err);
  if (!f) return false;
  bool ok = true;
  size_t n = 0;
  while (ok && (n = fread(piece, 1, room, f)) > 0) {
    if (ferror(f)) break;
    if (n % c->unit)
      ok = zb_fail(err, "is it the right file, and the right type?",
                   "%s does not consist of whole %s of %" PRIu64 " bytes: %" PRIu64 " are left over",
                   zb_show(path), c->info->stream ? "tokens" : "records", c->unit, (uint64_t)(n % c->unit));
    ok = ok && (c->unit == 1 || look(c, piece, n, path, err)) && zx_data_put(c->w, piece, n, err);
    c->bytes += n;
  }
  if (ok && ferror(f)) ok = zb_fail(err, NULL, "cannot read %s: %s", zb_show(path), strerror(errno));
  fclose(f);
  return ok;
}

/* Raw records hold no padding, but a file's have their fields at multiples of 4 bytes: refused before. */
static bool copy_all(const ZdOptions *o, Files *fs, ZxDataInfo *info, uint64_t vocab, ZbErr *err) {
  Copy c = {.info = info, .unit = info->record_bytes, .vocab = vocab};
  uint64_t room = c.unit < PIECE ? PIECE / c.unit * c.unit : c.unit;
  uint8_t *piece = malloc(room);
  c.limit = ZB_NEWN(fs->a, uint64_t, info->nfield);
  if (info->stream && info->field[0].elem == ZX_DATA_U8) c.limit[0] = 256;
  if (!piece) return zb_fail(err, NULL, "no memory for a record of %" PRIu64 " bytes", c.unit);
  c.w = zx_data_create(o->out, info, err);
  bool ok = c.w != NULL;
  for (size_t i = 0; ok && i < fs->n; i++) ok = copy(&c, fs->path[i], piece, room, err);
  free(piece);
  if (ok && !c.bytes)
    ok = zb_fail(err, fs->skipped ? "only text is taken from folders; name other files themselves" : NULL,
                 "nothing to pack: %zu files, all empty", fs->n);
  if (ok && vocab) c.limit[0] = vocab;
  if (!ok) zx_data_abandon(c.w);
  else ok = zx_data_finish(c.w, c.limit, err);
  if (!ok) return false;
  printf("%s: %" PRIu64 " %s from %zu file%s", zb_show(o->out), c.bytes / c.unit,
         info->stream ? "tokens" : "records", fs->n, fs->n == 1 ? "" : "s");
  if (fs->skipped) printf(", %zu that are no text left out", fs->skipped);
  printf("\n");
  return true;
}

bool zd_pack(const ZdOptions *o, ZbArena *a, ZbErr *err) {
  ZxDataField tokens = {.name = "tokens", .elem = ZX_DATA_U8, .values = 1};
  ZxDataInfo info = {.stream = true, .nfield = 1, .field = &tokens};
  Files fs = {.a = a};
  uint64_t vocab = 0;
  if (o->tokens) {
    tokens.elem = zx_data_elem_of(o->tokens);
    if (tokens.elem != ZX_DATA_U16 && tokens.elem != ZX_DATA_U32)
      return zb_fail(err, "--tokens u16 or --tokens u32", "--tokens cannot be '%s'", zb_show(o->tokens));
  }
  if (o->vocab && !o->tokens)
    return zb_fail(err, "leave it out", "--vocab is for --tokens; bytes have 256 ids");
  if (o->vocab && !zd_whole(o->vocab, 1, &vocab))
    return zb_fail(err, "--vocab 50257, say", "--vocab cannot be '%s'", zb_show(o->vocab));
  return zx_data_layout(&info, err) && collect(&fs, o, !o->tokens, err) &&
         copy_all(o, &fs, &info, vocab, err);
}

/* NAME:TYPE:VALUES */
static bool parse_field(ZxDataField *f, const char *text, ZbArena *a, ZbErr *err) {
  static const char how[] = "--field NAME:TYPE:VALUES, as in --field targets:i32:128";
  char *s = zb_strdup(a, text), *type = strchr(s, ':'), *values = type ? strchr(type + 1, ':') : NULL;
  if (!values) return zb_fail(err, how, "--field cannot be '%s'", zb_show(text));
  *type++ = *values++ = 0;
  f->elem = zx_data_elem_of(type);
  if (f->elem == ZX_DATA_ELEMS)
    return zb_fail(err, "types are u8, u16, u32, i32, f32", "--field %s: there is no type '%s'",
                   zb_show(text), zb_show(type));
  if (!zd_whole(values, 1, &f->values))
    return zb_fail(err, how, "--field %s: '%s' is no count", zb_show(text), zb_show(values));
  if (f->values * zx_data_elem_bytes(f->elem) % 4)
    return zb_fail(err, "add values to it, or use a wider type",
                   "--field %s: a field's bytes must be a multiple of 4", zb_show(text));
  if (strlen(s) >= sizeof f->name)
    return zb_fail(err, "at most 39 letters", "--field %s: the name is too long", zb_show(text));
  strcpy(f->name, s);
  return true;
}

bool zd_records(const ZdOptions *o, ZbArena *a, ZbErr *err) {
  ZxDataInfo info = {.nfield = (uint32_t)o->nfield, .field = ZB_NEWN(a, ZxDataField, o->nfield)};
  Files fs = {.a = a};
  if (!o->nfield) return zb_fail(err, "zdata --help shows how", "zdata records needs at least one --field");
  for (int i = 0; i < o->nfield; i++)
    if (!parse_field(&info.field[i], o->field[i], a, err)) return false;
  return zx_data_layout(&info, err) && collect(&fs, o, false, err) && copy_all(o, &fs, &info, 0, err);
}
