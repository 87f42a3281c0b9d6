/* zdata import: tokens that other programs made: Megatron's .bin with its .idx, llm.c's .bin, nanoGPT's .bin. */
#include "runtime/zdata/zdata.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 64 << 10 /* tokens read at a time */ };

/* ---- ids of any type ---- */
static const struct {
  size_t bytes;
  ZxDataElem elem; /* that has room for them */
} types[] = {[ZD_U8] = {1, ZX_DATA_U8},   [ZD_I8] = {1, ZX_DATA_U8},   [ZD_U16] = {2, ZX_DATA_U16},
             [ZD_I16] = {2, ZX_DATA_U16}, [ZD_U32] = {4, ZX_DATA_U32}, [ZD_I32] = {4, ZX_DATA_U32},
             [ZD_I64] = {8, ZX_DATA_U32}};

size_t zd_ids_bytes(ZdIds t) { return types[t].bytes; }

static int64_t id_at(const uint8_t *p, ZdIds t) {
  int8_t c;
  uint16_t h;
  int16_t s;
  uint32_t w;
  int32_t i;
  int64_t x;
  switch (t) {
  case ZD_U8: return *p;
  case ZD_I8: return memcpy(&c, p, 1), c;
  case ZD_U16: return memcpy(&h, p, 2), h;
  case ZD_I16: return memcpy(&s, p, 2), s;
  case ZD_U32: return memcpy(&w, p, 4), w;
  case ZD_I32: return memcpy(&i, p, 4), i;
  default: return memcpy(&x, p, 8), x;
  }
}

/* ---- what is imported ---- */
/* A file of tokens. */
typedef struct {
  const char *path;
  int fd;
  uint64_t at, n; /* first byte of its tokens, and how many tokens; with an index that says where they are */
  ZdIds type;
  ZdMegatron *index; /* or NULL */
  uint32_t start;    /* the token that documents begin with; ZD_NO_END: not known */
} Source;

typedef struct {
  const ZdOptions *o;
  uint64_t vocab;
  ZxDataElem elem;     /* what is written: u32 of u16, too, where 65535 is an id */
  uint32_t start, end; /* given; or ZD_NO_END */
  ZdSink *sink;
  uint64_t limit; /* largest id + 1 */
  uint64_t token; /* of the file, for messages */
  bool within;    /* a document has begun */
  uint8_t raw[8 * CHUNK], out[4 * CHUNK];
} Import;

static bool bad_id(const Import *m, const Source *s, int64_t id, ZbErr *err) {
  if (m->vocab)
    return zb_fail(err, "is --vocab right, and the file's type?",
                   "%s: token %" PRIu64 " has the id %" PRId64 "; --vocab says that ids are below %" PRIu64,
                   zb_show(s->path), m->token, id, m->vocab);
  if (m->elem == ZX_DATA_U16 && id == UINT16_MAX)
    return zb_fail(err, "if it is an id, --vocab 65536 writes the file as u32",
                   "%s: token %" PRIu64 " has the id 65535, which means `unknown` in a file of u16",
                   zb_show(s->path), m->token);
  return zb_fail(err, "is it a file of tokens?",
                 "%s: token %" PRIu64 " has the id %" PRId64 "; ids are 0 to %" PRIu32, zb_show(s->path),
                 m->token, id, UINT32_MAX - 1);
}

/* m->raw, n ids, into m->out. */
static bool convert(Import *m, const Source *s, size_t n, ZbErr *err) {
  size_t from = types[s->type].bytes, to = zx_data_elem_bytes(m->elem);
  uint64_t limit = m->vocab            ? m->vocab
                   : s->type == ZD_U16 ? UINT16_MAX
                                       : UINT32_MAX; /* the largest means unknown */
  for (size_t i = 0; i < n; i++, m->token++) {
    int64_t id = id_at(m->raw + i * from, s->type);
    if (id < 0 || (uint64_t)id >= limit) return bad_id(m, s, id, err);
    if ((uint64_t)id >= m->limit) m->limit = (uint64_t)id + 1;
    memcpy(m->out + i * to, &id, to); /* little-endian */
  }
  if (!m->vocab)
    zd_sink_limit(m->sink, m->limit); /* a shard may be finished before the last token is known */
  return true;
}

/* n tokens of m->out, cut into documents where a token begins or ends one. Nothing is put behind a
 * document: what ends it is there. */
static bool put_cut(Import *m, const Source *s, size_t n, ZbErr *err) {
  size_t size = zx_data_elem_bytes(m->elem), from = 0;
  uint32_t start = m->start != ZD_NO_END || m->end != ZD_NO_END ? m->start : s->start;
  for (size_t i = 0; i < n; i++) {
    uint32_t id = 0;
    memcpy(&id, m->out + i * size, size);
    bool begins = id == start && (i > from || m->within), ends = id == m->end;
    if (begins) { /* what is before it ends */
      if (!zd_sink_put(m->sink, m->out + from * size, i - from, !m->within, false, err)) return false;
      from = i;
      m->within = false;
    }
    if (!ends) continue;
    if (!zd_sink_put(m->sink, m->out + from * size, i + 1 - from, !m->within, false, err)) return false;
    from = i + 1;
    m->within = false;
  }
  bool ok = n == from || zd_sink_put(m->sink, m->out + from * size, n - from, !m->within, false, err);
  m->within |= n > from;
  return ok;
}

/* n tokens from byte `at` of a file; of an indexed one they are a sequence. */
static bool import_part(Import *m, const Source *s, uint64_t at, uint64_t n, const ZdSequence *q,
                        ZbErr *err) {
  size_t size = types[s->type].bytes;
  bool begins = q && q->begins;
  do {
    uint64_t k = n < CHUNK ? n : CHUNK;
    if (!zb_read_at(s->fd, zb_show(s->path), m->raw, k * size, at, err) || !convert(m, s, k, err))
      return false;
    if (!(q ? zd_sink_put(m->sink, m->out, k, begins, false, err) : put_cut(m, s, k, err))) return false;
    begins = false;
    at += k * size;
    n -= k;
  } while (n);
  return true;
}

static bool import_file(Import *m, Source *s, ZdProgress *progress, uint64_t *done, ZbErr *err) {
  ZdSequence q;
  m->token = 0;
  m->within = false;
  if (!s->index) {
    const uint64_t step = CHUNK;
    for (uint64_t i = 0; i < s->n; i += step) {
      uint64_t n = s->n - i < step ? s->n - i : step;
      if (!import_part(m, s, s->at + i * types[s->type].bytes, n, NULL, err)) return false;
      zd_progress(progress, *done += n * types[s->type].bytes, zd_sink_tokens(m->sink));
    }
    return true;
  }
  while (zd_megatron_next(s->index, &q, err)) {
    if (!import_part(m, s, q.at, q.n, &q, err)) return false;
    zd_progress(progress, *done += q.n * types[s->type].bytes, zd_sink_tokens(m->sink));
  }
  return !err->text[0];
}

/* ---- which format a file has ---- */
/* The header of llm.c's files, 256 words of 4 bytes: dev/data/data_common.py there. Its scripts begin every
 * document with the end token of GPT-2, or with what begins a text of Llama 3. */
static const struct {
  uint32_t magic, version, start;
  ZdIds type;
} llmc[] = {{20240520, 1, 50256, ZD_U16}, {20240801, 7, 128000, ZD_U32}};
enum { LLMC_HEAD = 1024 };

static bool open_llmc(Source *s, const uint32_t head[3], uint64_t size, ZbErr *err) {
  for (size_t i = 0; i < sizeof llmc / sizeof *llmc; i++) {
    if (head[0] != llmc[i].magic) continue;
    if (head[1] != llmc[i].version)
      return zb_fail(err, NULL, "%s: llm.c's header has version %" PRIu32 "; this program reads %" PRIu32,
                     zb_show(s->path), head[1], llmc[i].version);
    s->type = llmc[i].type;
    s->start = llmc[i].start;
    s->at = LLMC_HEAD;
    s->n = head[2];
    uint64_t wanted = LLMC_HEAD + s->n * types[s->type].bytes;
    return size == wanted ||
           zb_fail(err, "make it again, or copy it again",
                   "%s is %s: its header promises %" PRIu32 " tokens in %" PRIu64 " bytes, it has %" PRIu64,
                   zb_show(s->path), size < wanted ? "truncated" : "too long", head[2], wanted, size);
  }
  return false;
}

/* "a.bin" of "a.idx" and the other way round; NULL: it is neither. */
static const char *other_of(ZbArena *a, const char *path, const char *have, const char *want) {
  size_t n = strlen(path), m = strlen(have);
  return n > m && !strcmp(path + n - m, have) ? zb_printf(a, "%.*s%s", (int)(n - m), path, want) : NULL;
}

static bool open_megatron(Source *s, const char *idx, const char *bin, ZbErr *err) {
  uint64_t size, bytes;
  s->path = bin;
  s->fd = zb_open_file(bin, false, &bytes, err);
  if (s->fd < 0) return false;
  int fd = zb_open_file(idx, false, &size, err);
  if (fd < 0 || !(s->index = zd_megatron_new(fd, idx, size, bytes, err))) return false;
  s->type = zd_megatron_type(s->index);
  s->n = bytes / types[s->type].bytes;
  return true;
}

static bool open_source(Source *s, const char *path, const ZdOptions *o, ZbArena *a, ZbErr *err) {
  const char *idx = other_of(a, path, ".bin", ".idx"), *bin = other_of(a, path, ".idx", ".bin");
  uint64_t size;
  uint32_t head[3] = {0};
  *s = (Source){.path = path, .fd = -1, .start = ZD_NO_END};
  if (bin) return open_megatron(s, path, bin, err);
  if (o->format == ZD_MEGATRON || (!o->format && idx && access(idx, F_OK) == 0))
    return idx ? open_megatron(s, idx, path, err)
               : zb_fail(err, "name the .idx or the .bin", "%s does not end in .bin", zb_show(path));
  s->fd = zb_open_file(path, false, &size, err);
  if (s->fd < 0 || (size >= LLMC_HEAD && !zb_read_at(s->fd, zb_show(path), head, sizeof head, 0, err)))
    return false;
  if (o->format != ZD_NANOGPT && (head[0] == llmc[0].magic || head[0] == llmc[1].magic))
    return open_llmc(s, head, size, err);
  if (o->format != ZD_NANOGPT)
    return zb_fail(err, "--format nanogpt takes a file of bare u16; zdata pack --tokens u32 one of u32",
                   "%s is not of llm.c, and has no .idx beside it as Megatron's", zb_show(path));
  s->type = ZD_U16;
  s->n = size / 2;
  return size % 2 == 0 || zb_fail(err, "is it the right file?",
                                  "%s does not consist of whole tokens of 2 bytes", zb_show(path));
}

/* ---- the command ---- */
/* All sources have one type; whether their documents are known, all of them. */
static bool agree(Import *m, const Source *s, int n, ZdTarget *to, ZbErr *err) {
  bool known = true;
  to->elem = types[s[0].type].elem;
  for (int i = 0; i < n; i++) {
    if (types[s[i].type].elem != to->elem)
      return zb_fail(err, "import them one by one", "%s has tokens of another type than %s",
                     zb_show(s[i].path), zb_show(s[0].path));
    if (s[i].index && (m->start != ZD_NO_END || m->end != ZD_NO_END))
      return zb_fail(err, "leave it out", "--%s: the index of %s says where documents begin",
                     m->start != ZD_NO_END ? "start" : "end", zb_show(s[i].path));
    known &= s[i].index || s[i].start != ZD_NO_END || m->start != ZD_NO_END || m->end != ZD_NO_END;
  }
  m->elem = to->elem = to->elem == ZX_DATA_U16 && m->vocab > UINT16_MAX ? ZX_DATA_U32 : to->elem;
  to->unknown = !known;
  return known || !to->split ||
         zb_fail(err, "--end ID or --start ID", "--split needs documents: which token ends or begins one?");
}

static bool import_all(Import *m, Source *s, const ZdOptions *o, ZbArena *a, ZbErr *err) {
  ZdTarget to = {.path = o->out, .end = ZD_NO_END, .limit = m->vocab};
  uint64_t bytes = 0, done = 0;
  bool ok = true;
  for (int i = 0; ok && i < o->nfile; i++) {
    ok = zb_spares("-o", o->out, o->file[i], err) && open_source(&s[i], o->file[i], o, a, err) &&
         zb_spares("-o", o->out, s[i].path, err);
    if (ok) bytes += s[i].n * types[s[i].type].bytes;
  }
  ok = ok && zd_target_options(&to, o, err) && agree(m, s, o->nfile, &to, err) &&
       (m->sink = zd_sink_new(&to, err));
  ZdProgress progress = zd_progress_new(bytes);
  for (int i = 0; ok && i < o->nfile; i++) {
    ok = import_file(m, &s[i], &progress, &done, err);
  }
  zd_progress_end(&progress);
  if (ok && !zd_sink_tokens(m->sink)) ok = zb_fail(err, NULL, "nothing to import: no file has a token");
  if (!ok || !zd_sink_finish(m->sink, err)) return false;
  printf(" from %d file%s\n", o->nfile, o->nfile == 1 ? "" : "s");
  return true;
}

bool zd_import(const ZdOptions *o, ZbArena *a, ZbErr *err) {
  Import *m = ZB_NEW(a, Import);
  m->vocab = (uint64_t)o->vocab;
  m->start = (uint32_t)o->start_id; /* -1 becomes ZD_NO_END */
  m->end = (uint32_t)o->end_id;
  Source *s = ZB_NEWN(a, Source, o->nfile);
  for (int i = 0; i < o->nfile; i++) s[i].fd = -1;
  bool ok = import_all(m, s, o, a, err);
  for (int i = 0; i < o->nfile; i++) {
    zd_megatron_free(s[i].index);
    if (s[i].fd >= 0) close(s[i].fd);
  }
  zd_sink_abandon(m->sink);
  return ok;
}
