/* Reads token and record files, and says which sample comes when. A file is never trusted: every size in it
 * is checked against the file's own before it is used. It is read by calls, not mapped: of a mapping without
 * its file, which was cut off or whose server failed, a process dies and names no file. See DATA.md for the
 * format. */
#include "kernels/elem.h"
#include "runtime/exec/data/file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are little-endian and read as they are");

enum { WINDOW = ZX_DATA_WINDOW, PIECE = 4 << 10 /* bytes: converted at a time */ };

/* What is read for n bytes at `at`, few: much around them where the reader is near to where it was; else the
 * record that they are in, or of a stream what its targets are later. */
static void read_ahead(const ZxData *d, uint64_t at, uint64_t n, uint64_t *from, uint64_t *len) {
  uint64_t before = d->window->end, record = d->info.stream ? 0 : d->info.record_bytes;
  *from = at, *len = n + 8;
  if (at < before + WINDOW && before < at + WINDOW) *from = at / (WINDOW / 2) * (WINDOW / 2), *len = WINDOW;
  else if (record && record <= WINDOW / 2 && at >= d->info.data_at) {
    *from = at - (at - d->info.data_at) % record;
    *len = at + n - *from > record ? at + n - *from : record;
  }
  if (*len > d->n - *from) *len = d->n - *from;
}

/* n bytes from byte `at` of the file. Rows of a sample may be a few bytes each, so around those more is
 * read. */
static bool get(const ZxData *d, uint64_t at, uint64_t n, void *out, ZbErr *err) {
  ZB_ASSERT(at <= d->n && n <= d->n - at);
  if (d->fd < 0) {
    if (n) memcpy(out, d->bytes + at, n);
    return true;
  }
  if (n > WINDOW / 2) return zb_read_at(d->fd, d->name, out, n, at, err);
  if (at < d->window->at || at + n > d->window->at + d->window->n) {
    uint64_t from, len;
    read_ahead(d, at, n, &from, &len);
    d->window->n = 0;
    if (!zb_read_at(d->fd, d->name, d->window->bytes, len, from, err)) return false;
    d->window->at = from;
    d->window->n = len;
  }
  d->window->end = at + n;
  memcpy(out, d->window->bytes + (at - d->window->at), n);
  return true;
}

/* ---- elements and fields ---- */
/* By the numbers that headers have. */
static const ZkElem elems[ZX_DATA_ELEMS] = {ZK_U8, ZK_U16, ZK_U32, ZK_I32, ZK_F32};

size_t zx_data_elem_bytes(ZxDataElem e) { return zk_plain_bytes(elems[e]); }
const char *zx_data_elem_name(ZxDataElem e) { return zk_elem_info[elems[e]].text; }
ZxDataElem zx_data_elem_of(const char *name) {
  int e = 0;
  while (e < ZX_DATA_ELEMS && strcmp(zx_data_elem_name((ZxDataElem)e), name)) e++;
  return (ZxDataElem)e;
}

static const struct {
  const char *text;
  bool whole;
} windows[] = {
#define X(name, whole, text) [ZX_WINDOWS_##name] = {text, whole},
    ZX_WINDOWS(X)
#undef X
};

bool zx_windows_whole(ZxWindows w) { return windows[w].whole; }
const char *zx_windows_text(ZxWindows w) { return windows[w].text; }

static bool name_is_good(const char name[ZX_DATA_NAME]) {
  size_t n = strnlen(name, ZX_DATA_NAME);
  if (n == 0 || n == ZX_DATA_NAME) return false;
  for (size_t i = 0; i < n; i++) {
    char c = name[i];
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    if (!letter && !(i && c >= '0' && c <= '9')) return false;
  }
  return true;
}

bool zx_data_layout(ZxDataInfo *info, ZbErr *err) {
  if (info->nfield < 1 || info->nfield > ZX_DATA_MAX_FIELDS)
    return zb_fail(err, NULL, "%u fields; there must be 1 to %d", info->nfield, ZX_DATA_MAX_FIELDS);
  uint64_t at = 0;
  for (uint32_t i = 0; i < info->nfield; i++) {
    ZxDataField *f = &info->field[i];
    if (!name_is_good(f->name))
      return zb_fail(err, "use letters, digits and _, beginning with a letter, at most 39",
                     "field %u has no proper name", i);
    for (uint32_t j = 0; j < i; j++)
      if (!strcmp(info->field[j].name, f->name))
        return zb_fail(err, NULL, "two fields are named '%s'", f->name);
    uint64_t bytes;
    f->at = at;
    if (!f->values || !zb_mul_u64(f->values, zx_data_elem_bytes(f->elem), &bytes) || bytes > INT64_MAX / 2 ||
        !zb_add_u64(at, info->stream ? bytes : zb_round_up(bytes, 4), &at) || at > INT64_MAX / 2)
      return zb_fail(err, NULL, "field '%s' cannot have %" PRIu64 " values", f->name, f->values);
  }
  info->record_bytes = at;
  info->data_at = ZX_DATA_HEAD * (1 + (uint64_t)info->nfield);
  return true;
}

/* ---- the header ---- */
static uint32_t get32(const uint8_t *p) {
  uint32_t v;
  memcpy(&v, p, 4);
  return v;
}
static uint64_t get64(const uint8_t *p) {
  uint64_t v;
  memcpy(&v, p, 8);
  return v;
}

enum {
  AT_VERSION = 4,
  AT_KIND = 8,
  AT_NFIELD = 12,
  AT_COUNT = 16,
  AT_RECORD = 24,
  AT_DATA = 32,
  AT_DATA_SUM = 40,
  AT_DOCUMENTS = 48,
  AT_HEAD_SUM = 56
};
enum { KIND_STREAM = 1, KIND_RECORDS = 2 /* and behind them streams of other windows than CUT */ };
enum { FIELD_ELEM = 40, FIELD_LARGEST = 44, FIELD_VALUES = 48, FIELD_LIMIT = 56 }; /* the name is at 0 */

static void put32(uint8_t *p, uint32_t v) { memcpy(p, &v, 4); }
static void put64(uint8_t *p, uint64_t v) { memcpy(p, &v, 8); }

/* Of the header's bytes before the sum, and of the field table. */
uint64_t zx_data_head_sum(const uint8_t *p, uint32_t nfield) {
  uint64_t seed = XXH3_64bits(p, AT_HEAD_SUM);
  return XXH3_64bits_withSeed(p + ZX_DATA_HEAD, (size_t)nfield * ZX_DATA_HEAD, seed);
}

void zx_data_encode(const ZxDataInfo *info, uint8_t *out) {
  memset(out, 0, info->data_at);
  memcpy(out, "ZTOK", 4);
  put32(out + AT_VERSION, info->windows ? ZX_DATA_VERSION : info->documents ? 2 : 1);
  put32(out + AT_KIND, !info->stream   ? KIND_RECORDS
                       : info->windows ? KIND_RECORDS + info->windows
                                       : KIND_STREAM);
  put32(out + AT_NFIELD, info->nfield);
  put64(out + AT_COUNT, info->count);
  put64(out + AT_RECORD, info->record_bytes);
  put64(out + AT_DATA, info->data_at);
  put64(out + AT_DATA_SUM, info->data_sum);
  put64(out + AT_DOCUMENTS, info->documents);
  for (uint32_t i = 0; i < info->nfield; i++) {
    uint8_t *p = out + ZX_DATA_HEAD * (1 + (size_t)i);
    memcpy(p, info->field[i].name, strlen(info->field[i].name));
    put32(p + FIELD_ELEM, info->field[i].elem);
    put32(p + FIELD_LARGEST, info->field[i].largest);
    put64(p + FIELD_VALUES, info->field[i].values);
    put64(p + FIELD_LIMIT, info->field[i].limit);
  }
  put64(out + AT_HEAD_SUM, zx_data_head_sum(out, info->nfield));
}

bool zx_data_is_one(const uint8_t *head, size_t n) { return n >= 4 && !memcmp(head, "ZTOK", 4); }

static const char how[] = "make one: zdata pack TEXT... -o corpus.bin";
static const char altered[] = "make it again with zdata, or copy it again";

static bool read_fields(ZxData *d, const uint8_t *head, ZbErr *err) {
  ZxDataInfo *info = &d->info;
  info->field = calloc(info->nfield, sizeof *info->field);
  if (!info->field) zb_out_of_memory(0);
  for (uint32_t i = 0; i < info->nfield; i++) {
    const uint8_t *p = head + ZX_DATA_HEAD * (1 + (size_t)i);
    ZxDataField *f = &info->field[i];
    uint32_t elem = get32(p + FIELD_ELEM);
    if (elem >= ZX_DATA_ELEMS)
      return zb_fail(err, altered, "%s: field %u has the unknown element type %u", d->name, i, elem);
    memcpy(f->name, p, ZX_DATA_NAME);
    f->elem = (ZxDataElem)elem;
    f->largest = get32(p + FIELD_LARGEST);
    f->values = get64(p + FIELD_VALUES);
    f->limit = get64(p + FIELD_LIMIT);
  }
  ZbErr why;
  if (!zx_data_layout(info, &why)) return zb_fail(err, altered, "%s: %s", d->name, why.text);
  const ZxDataField *f = info->field;
  bool whole = zx_windows_whole(info->windows), tokens = f[0].values == 1 && f[0].elem <= ZX_DATA_U32;
  if (info->stream && !(tokens && info->nfield == (whole ? 2 : 1)))
    return zb_fail(err, altered, "%s: a stream must have one field of one u8, u16 or u32", d->name);
  if (whole && (f[1].values != 1 || f[1].elem != ZX_DATA_U8))
    return zb_fail(err, altered, "%s: what is learned of a stream must be one u8", d->name);
  return true;
}

/* What `p`, the header with its field table, says of itself and of the file. */
static bool read_sizes(ZxData *d, const uint8_t *p, ZbErr *err) {
  ZxDataInfo *info = &d->info;
  if (get64(p + AT_HEAD_SUM) != zx_data_head_sum(p, info->nfield))
    return zb_fail(err, altered, "%s: its header is damaged: the checksum differs", d->name);
  uint32_t kind = get32(p + AT_KIND);
  if (kind < KIND_STREAM || kind >= KIND_RECORDS + ZX_WINDOWS_KINDS)
    return zb_fail(err, altered, "%s: its header is damaged: unknown kind %u", d->name, kind);
  info->stream = kind != KIND_RECORDS;
  info->windows = kind > KIND_RECORDS ? (ZxWindows)(kind - KIND_RECORDS) : ZX_WINDOWS_CUT;
  info->count = get64(p + AT_COUNT);
  info->data_sum = get64(p + AT_DATA_SUM);
  info->documents = get64(p + AT_DOCUMENTS);
  if (!read_fields(d, p, err)) return false;
  if (get64(p + AT_RECORD) != info->record_bytes || get64(p + AT_DATA) != info->data_at)
    return zb_fail(err, altered, "%s: its header is damaged: the sizes contradict its fields", d->name);
  uint64_t bytes, total;
  if (!zb_mul_u64(info->count, info->record_bytes, &bytes) || !zb_add_u64(bytes, info->data_at, &total))
    return zb_fail(err, altered, "%s: its header is damaged: %" PRIu64 " %s of %" PRIu64 " bytes", d->name,
                   info->count, info->stream ? "tokens" : "records", info->record_bytes);
  uint32_t version = info->windows ? ZX_DATA_VERSION : info->documents ? 2 : 1;
  if (version != get32(p + AT_VERSION) || (info->documents && !info->stream) || info->documents > info->count)
    return zb_fail(err, altered, "%s: its header is damaged: %" PRIu64 " documents in %" PRIu64 " %s",
                   d->name, info->documents, info->count, info->stream ? "tokens" : "records");
  d->end = total;
  if (info->documents && /* as many as tokens, and those fit: no overflow but here */
      (total > UINT64_MAX - 16 || info->documents > (UINT64_MAX - 16 - total) / 8))
    return zb_fail(err, altered, "%s: its header is damaged: %" PRIu64 " documents", d->name,
                   info->documents);
  if (info->documents) total = zb_round_up(total, 8) + 8 * info->documents + 8;
  if (total != d->n)
    return zb_fail(err, altered,
                   "%s is %s: its header promises %" PRIu64 " %s in %" PRIu64 " bytes, it has %" PRIu64,
                   d->name, d->n < total ? "truncated" : "too long", info->count,
                   info->stream ? "tokens" : "records", total, d->n);
  return true;
}

static bool read_head(ZxData *d, ZbErr *err) {
  uint8_t p[ZX_DATA_HEAD];
  if (!get(d, 0, d->n < sizeof p ? d->n : sizeof p, p, err)) return false;
  if (!zx_data_is_one(p, d->n)) return zb_fail(err, how, "%s is not a token file", d->name);
  if (d->n < ZX_DATA_HEAD)
    return zb_fail(err, altered, "%s is truncated: it ends within its header, at %" PRIu64 " bytes", d->name,
                   d->n);
  if (get32(p + AT_VERSION) < 1 || get32(p + AT_VERSION) > ZX_DATA_VERSION)
    return zb_fail(err, "use the zdata of the same version to make it",
                   "%s has format version %u; this program reads 1 to %d", d->name, get32(p + AT_VERSION),
                   ZX_DATA_VERSION);
  uint32_t n = d->info.nfield = get32(p + AT_NFIELD);
  if (n < 1 || n > ZX_DATA_MAX_FIELDS)
    return zb_fail(err, altered, "%s: its header is damaged: it counts %u fields", d->name, n);
  uint64_t bytes = ZX_DATA_HEAD * (1 + (uint64_t)n);
  if (d->n < bytes)
    return zb_fail(err, altered, "%s is truncated: it ends within its list of fields, at %" PRIu64 " bytes",
                   d->name, d->n);
  uint8_t *head = malloc(bytes);
  if (!head) zb_out_of_memory(0);
  bool ok = get(d, 0, bytes, head, err) && read_sizes(d, head, err);
  free(head);
  return ok && (!d->info.documents || get(d, d->n - 8, 8, &d->info.begin_sum, err)) && zx_fit_open(d, err);
}

/* ---- opening ---- */
ZxData *zx_data_new(const char *path) {
  ZxData *d = calloc(1, sizeof *d);
  if (!d || !(d->name = strdup(zb_show(path))) || !(d->path = strdup(path))) zb_out_of_memory(0);
  d->fd = -1;
  return d;
}

static ZxData *open_bytes(const char *name, int fd, const void *bytes, uint64_t n, ZbErr *err) {
  ZxData *d = zx_data_new(name);
  if (!(d->window = calloc(1, sizeof *d->window))) zb_out_of_memory(0);
  d->fd = fd;
  d->bytes = bytes;
  d->n = n;
  if (read_head(d, err)) return d;
  zx_data_close(d);
  return NULL;
}

ZxData *zx_data_of_bytes(const void *bytes, uint64_t n, const char *name, ZbErr *err) {
  return open_bytes(name, -1, bytes, n, err);
}

ZxData *zx_data_open_file(const char *path, ZbErr *err) {
  uint64_t n;
  int fd = zb_open_file(path, false, &n, err);
  if (fd < 0) return NULL;
  if (n) return open_bytes(path, fd, NULL, n, err);
  zb_fail(err, how, "%s is empty", zb_show(path));
  close(fd);
  return NULL;
}

ZxData *zx_data_open(const char *path, ZbErr *err) {
  struct stat st;
  bool folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
  return (folder ? zx_data_open_folder : zx_data_open_file)(path, err);
}

void zx_data_close(ZxData *d) {
  if (!d) return;
  for (uint32_t i = 0; i < d->files; i++) zx_data_close(d->file[i]);
  if (d->fd >= 0) close(d->fd);
  zx_fit_free(d->fit);
  free(d->file);
  free(d->info.field);
  free(d->window);
  free(d->name);
  free(d->path);
  free(d);
}

const char *zx_data_name(const ZxData *d) { return d->name; }
const char *zx_data_path(const ZxData *d) { return d->path; }
uint32_t zx_data_files(const ZxData *d) { return d->file ? d->files : 1; }
const ZxData *zx_data_file(const ZxData *d, uint32_t i) { return d->file ? d->file[i] : d; }
const ZxDataInfo *zx_data_info(const ZxData *d) { return &d->info; }
uint64_t zx_data_bytes(const ZxData *d) { return d->n; }
bool zx_data_get(const ZxData *d, uint64_t at, uint64_t n, void *out, ZbErr *err) {
  if (!d->file) return get(d, d->info.data_at + at, n, out, err);
  uint8_t *to = out;
  for (uint32_t i = 0; n; i++) {
    ZB_ASSERT(i < d->files);
    uint64_t has = d->file[i]->info.count * d->info.record_bytes, take = at < has ? has - at : 0;
    if (take > n) take = n;
    if (take && !zx_data_get(d->file[i], at, take, to, err)) return false;
    at = at < has ? 0 : at - has;
    to += take;
    n -= take;
  }
  return true;
}
uint64_t zx_data_tokens(const ZxData *d) { return d->info.stream ? d->info.count : 0; }

/* A window's targets need one token after it. */
uint64_t zx_data_samples(const ZxData *d, int64_t seq) {
  uint64_t all = 0;
  for (uint32_t i = 0; i < d->files; i++) all += zx_data_samples(d->file[i], seq);
  if (d->file) return all;
  if (!d->info.stream) return d->info.count;
  if (d->fit) return d->fit->seq == seq ? d->fit->windows : 0;
  return d->info.count && seq > 0 ? (d->info.count - 1) / (uint64_t)seq : 0;
}

/* ---- documents ---- */
static uint64_t documents_at(const ZxData *d) { return zb_round_up(d->end, 8); }

bool zx_data_document(const ZxData *d, uint64_t i, uint64_t *first, uint64_t *end, ZbErr *err) {
  uint64_t two[2], n = d->info.documents, count = d->info.count, before = 0;
  ZB_ASSERT(i < n);
  for (uint32_t k = 0; k < d->files; k++) {
    if (i < d->file[k]->info.documents) {
      if (!zx_data_document(d->file[k], i, first, end, err)) return false;
      *first += before;
      *end += before;
      return true;
    }
    i -= d->file[k]->info.documents;
    before += d->file[k]->info.count;
  }
  if (!get(d, documents_at(d) + 8 * i, sizeof two, two, err))
    return false; /* after the last comes the checksum */
  *first = two[0];
  *end = i + 1 < n ? two[1] : count;
  if (*first < *end && *end <= count && (i > 0 || !*first)) return true;
  return zb_fail(err, altered,
                 "%s is damaged: document %" PRIu64 " is from token %" PRIu64 " to before %" PRIu64, d->name,
                 i, *first, *end);
}

/* The document that token t is in. */
static bool document_of(const ZxData *d, uint64_t t, uint64_t *out, ZbErr *err) {
  uint64_t low = 0, high = d->info.documents, first; /* the last that begins at or before t */
  while (high - low > 1) {
    uint64_t middle = low + (high - low) / 2;
    if (!get(d, documents_at(d) + 8 * middle, 8, &first, err)) return false;
    if (first <= t) low = middle;
    else high = middle;
  }
  return *out = low, true;
}

/* What the beginnings say of the n tokens from `from` on, in a sample that begins at token `sample`: of each the
 * document's number (`doc`), or its place in it; both from 0 on within the sample. */
static bool read_documents(const ZxData *d, bool doc, uint64_t sample, uint64_t from, int64_t n,
                           int64_t limit, int32_t *out, ZbErr *err) {
  uint64_t first, end, begun, i;
  if (!document_of(d, sample, &begun, err) || !document_of(d, from, &i, err) ||
      !zx_data_document(d, i, &first, &end, err))
    return false;
  for (uint64_t t = from; t < from + (uint64_t)n; t++) {
    while (t >= end)
      if (!zx_data_document(d, ++i, &first, &end, err)) return false;
    if (t < first || i < begun)
      return zb_fail(err, altered, "%s is damaged: token %" PRIu64 " is in no document", d->name, t);
    uint64_t value = doc ? i - begun : t - (first > sample ? first : sample);
    if (limit != ZX_ANY_I32 && value >= (uint64_t)limit)
      return zx_data_bad_place(d, doc ? ZX_DOC : ZX_PLACE, t, value, limit, err);
    *out++ = (int32_t)value;
  }
  return true;
}

bool zx_data_bad_place(const ZxData *d, int which, uint64_t token, uint64_t value, int64_t limit,
                       ZbErr *err) {
  return zb_fail(err, "declare the input as i32, or a larger axis",
                 "%s: token %" PRIu64 " has `%s` %" PRIu64 " in its sample; the model knows 0 to %" PRId64,
                 d->name, token, which == ZX_DOC ? "doc" : "place", value, limit - 1);
}

/* Makes targets unknown that begin a document, of the n tokens from `from` on: nobody is asked for them. */
static bool forget_beginnings(const ZxData *d, uint64_t from, int64_t n, int32_t *out, ZbErr *err) {
  uint64_t first, end = from, i;
  if (!document_of(d, from, &i, err)) return false;
  for (; i < d->info.documents && end < from + (uint64_t)n; i++) {
    if (!zx_data_document(d, i, &first, &end, err)) return false;
    if (first >= from && first < from + (uint64_t)n) out[first - from] = -1;
  }
  return true;
}

/* ---- checksums ---- */
static bool sum_of(const ZxData *d, uint64_t from, uint64_t to, uint64_t *out, ZbErr *err) {
  enum { MUCH = 1 << 20 };
  uint8_t *piece = malloc(MUCH);
  XXH3_state_t *sum = XXH3_createState();
  if (!piece || !sum) zb_out_of_memory(0);
  XXH3_64bits_reset(sum);
  bool ok = true;
  for (uint64_t n; ok && from < to; from += n) {
    n = to - from < MUCH ? to - from : MUCH;
    ok = get(d, from, n, piece, err);
    if (ok) XXH3_64bits_update(sum, piece, n);
  }
  *out = XXH3_64bits_digest(sum);
  XXH3_freeState(sum);
  free(piece);
  return ok;
}

bool zx_data_verify(const ZxData *d, ZbErr *err) {
  uint64_t sum;
  for (uint32_t i = 0; i < d->files; i++)
    if (!zx_data_verify(d->file[i], err)) return false;
  if (d->file) return true;
  if (!sum_of(d, d->info.data_at, d->end, &sum, err)) return false;
  if (sum != d->info.data_sum)
    return zb_fail(err, altered, "%s is damaged: the checksum of its %s differs", d->name,
                   d->info.stream ? "tokens" : "records");
  if (!d->info.documents) return true;
  if (!sum_of(d, documents_at(d), d->n - 8, &sum, err)) return false;
  return sum == d->info.begin_sum ||
         zb_fail(err, altered, "%s is damaged: the checksum of its documents differs", d->name);
}

/* ---- fields ---- */
/* What a stream gives: its tokens, at two places, and what it knows of its documents. */
static const char *const stream_fields[] = {
    [ZX_TOKENS] = "tokens", [ZX_TARGETS] = "targets", [ZX_DOC] = "doc", [ZX_PLACE] = "place"};

static int stream_field(const char *name) {
  int i = 0;
  while (i < ZX_STREAM_FIELDS && strcmp(name, stream_fields[i])) i++;
  return i;
}

static const ZxDataField *find_field(const ZxData *d, const char *name) {
  if (d->info.stream) return stream_field(name) < ZX_STREAM_FIELDS ? &d->info.field[0] : NULL;
  for (uint32_t i = 0; i < d->info.nfield; i++)
    if (!strcmp(d->info.field[i].name, name)) return &d->info.field[i];
  return NULL;
}

/* Of a folder every file must know its own. */
static bool knows_documents(const ZxData *d, const char *field, ZbErr *err) {
  for (uint32_t i = 0; i < d->files; i++)
    if (!knows_documents(d->file[i], field, err)) return false;
  return d->file || d->info.documents || d->fit ||
         zb_fail(err, "make it anew of two texts or more: zdata pack --field, --end, several files",
                 "%s does not know where its documents begin, which '%s' is made of", d->name, field);
}

static bool no_field(const ZxData *d, const char *name, ZbErr *err) {
  if (d->info.stream)
    return zb_fail(err, "a model that is not a language model needs records: zdata table, zdata records",
                   "%s has no field '%s': it is a stream, which gives 'tokens', 'targets', 'doc' and 'place'",
                   d->name, name);
  ZbText list = {0};
  for (uint32_t i = 0; i < d->info.nfield; i++)
    zb_text_add(&list, "%s%s", i ? ", " : "", d->info.field[i].name);
  const char *names[ZX_DATA_MAX_FIELDS];
  for (uint32_t i = 0; i < d->info.nfield; i++) names[i] = d->info.field[i].name;
  const char *near = zb_nearest(name, names, d->info.nfield);
  char help[128] = "";
  if (near) snprintf(help, sizeof help, "did you mean '%s'?", near);
  zb_fail(err, help, "%s has no field '%s'; it has: %s", d->name, name, list.s);
  zb_text_free(&list);
  return false;
}

static const char other_vocabulary[] = "was the file packed with another vocabulary than the model's?";

bool zx_data_check_field(const ZxData *d, const char *field, bool index, int64_t seq, ZbErr *err) {
  const ZxDataField *f = find_field(d, field);
  if (!f) return no_field(d, field, err);
  if (index && f->elem == ZX_DATA_F32)
    return zb_fail(err, NULL, "%s: the model wants indices in '%s', the file has real numbers (f32)", d->name,
                   field);
  if (!index && d->info.stream)
    return zb_fail(err, NULL, "%s: the model wants real numbers in '%s', the file has tokens (%s)", d->name,
                   field, zx_data_elem_name(f->elem));
  if (d->info.stream && stream_field(field) >= ZX_DOC && !knows_documents(d, field, err)) return false;
  if (!d->info.stream && (uint64_t)seq != f->values)
    return zb_fail(err, NULL,
                   "%s: the model wants %" PRId64 " values of '%s' per sample, the file has %" PRIu64,
                   d->name, seq, field, f->values);
  if (!zx_data_samples(d, seq)) {
    if (!d->info.stream) return zb_fail(err, NULL, "%s has no records", d->name);
    if (zx_windows_whole(d->info.windows))
      return zb_fail(err, "an input of another length needs records: zdata records",
                     "%s: '%s' has %" PRId64 " values per sample, a window has others", d->name, field, seq);
    return zb_fail(err, "use more text, or a shorter sequence",
                   "%s has %" PRIu64 " tokens; one sample takes %" PRId64 " and one more for the last target",
                   d->name, d->info.count, seq);
  }
  return true;
}

bool zx_data_check_ids(const ZxData *d, const char *field, int64_t limit, ZbErr *err) {
  for (uint32_t i = 0; d->file && i < d->files; i++)
    if (!zx_data_check_ids(d->file[i], field, limit, err)) return false;
  const ZxDataField *f = find_field(d, field);
  if (d->file || !f || (d->info.stream && stream_field(field) >= ZX_DOC)) return true;
  uint64_t beyond = d->info.stream ? f->largest : f->limit; /* of records that is of what is there */
  if (beyond <= (uint64_t)limit) return true;
  return zb_fail(err, other_vocabulary,
                 "%s: its largest id in '%s' is %" PRIu64 "; the model knows 0 to %" PRId64, d->name, field,
                 beyond - 1, limit - 1);
}

/* ---- the order of samples ----
 * A Feistel network over the smallest power of two that holds n, walked until it lands below n (Black and
 * Rogaway, "Ciphers with arbitrary finite domains", 2002): a permutation that needs no memory. */
uint64_t zx_data_permute(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t i) {
  ZB_ASSERT(i < n);
  int bits = n > 64 ? 64 - __builtin_clzll(n - 1) : 6; /* fewer would hardly mix */
  do {
    int left = bits / 2, right = bits - left; /* i = (high: left bits, low: right bits) */
    for (int round = 0; round < 8; round++) {
      uint64_t low = i & ((1ull << right) - 1), high = i >> right;
      high ^= zb_random_u64(seed, epoch, ((uint64_t)round << 58) ^ low) & ((1ull << left) - 1);
      i = low << left | high; /* halves change places, and so do their widths */
      int t = left;
      left = right;
      right = t;
    }
  } while (i >= n);
  return i;
}

uint64_t zx_data_place(const ZxSampler *s, uint64_t g) {
  uint64_t n = zx_data_samples(s->data, s->seq);
  ZB_ASSERT(n > 0); /* zx_data_check_field said so */
  return s->order == ZX_ORDER_SEQUENTIAL ? g % n : zx_data_permute(s->seed, g / n, n, g % n);
}

/* ---- values ---- */
/* All ones is "unknown" in u16 and u32, as -1 is in i32. */
int64_t zx_data_id(const uint8_t *p, ZxDataElem e, uint64_t i) {
  uint16_t h;
  uint32_t w;
  int32_t v;
  switch (e) {
  case ZX_DATA_U8: return p[i];
  case ZX_DATA_U16: return memcpy(&h, p + 2 * i, 2), h == UINT16_MAX ? -1 : h;
  case ZX_DATA_U32: return memcpy(&w, p + 4 * i, 4), w == UINT32_MAX ? -1 : (int64_t)w;
  default: return memcpy(&v, p + 4 * i, 4), v;
  }
}

bool zx_data_bad_id(const ZxData *d, const ZxDataField *f, uint64_t at, int64_t id, int64_t limit,
                    ZbErr *err) {
  if (limit == ZX_ANY_I32)
    return zb_fail(err, "declare the input as real",
                   "%s: value %" PRIu64 " of '%s' is %" PRId64 "; i32 ends at %d", d->name, at, f->name, id,
                   INT32_MAX);
  if (d->info.stream)
    return zb_fail(err, other_vocabulary,
                   "%s: token %" PRIu64 " has the id %" PRId64 "; the model knows 0 to %" PRId64, d->name, at,
                   id, limit - 1);
  return zb_fail(err, other_vocabulary,
                 "%s: record %" PRIu64 ", '%s', value %" PRIu64 " is %" PRId64
                 "; the model knows 0 to %" PRId64 ", and -1 for unknown",
                 d->name, at / f->values, f->name, at % f->values, id, limit - 1);
}

bool zx_data_read(const ZxSampler *s, const char *field, uint64_t g, int64_t s0, int64_t ns, int64_t limit,
                  void *out, ZbErr *err) {
  const ZxData *d = s->data;
  const ZxDataField *f = find_field(d, field);
  ZB_ASSERT(f && s0 >= 0 && ns >= 0 && s0 <= s->seq - ns);
  uint64_t sample = zx_data_place(s, g);
  if (d->file) {
    ZxSampler one = {.order = ZX_ORDER_SEQUENTIAL, .seq = s->seq};
    one.data = zx_data_file_of_sample(d, s->seq, &sample);
    return zx_data_read(&one, field, sample, s0, ns, limit, out, err);
  }
  int which = d->info.stream ? stream_field(field) : 0;
  if (d->fit) return zx_fit_read(d, which, sample, s0, ns, limit, out, err);
  uint64_t first = (uint64_t)s0; /* position in the field of this sample */
  uint64_t record = d->info.data_at, size = zx_data_elem_bytes(f->elem);
  if (d->info.stream) {
    first += sample * (uint64_t)s->seq + (which == ZX_TARGETS);
    ZB_ASSERT(first + (uint64_t)ns <= d->info.count);
    if (which >= ZX_DOC)
      return read_documents(d, which == ZX_DOC, first - (uint64_t)s0, first, ns, limit, out, err);
  } else {
    ZB_ASSERT((uint64_t)s->seq == f->values);
    record += sample * d->info.record_bytes + f->at;
  }
  ZB_ASSERT(limit < 0 || f->elem != ZX_DATA_F32);
  if (f->elem == ZX_DATA_F32) return get(d, record + 4 * first, 4 * (uint64_t)ns, out, err);
  for (uint64_t done = 0, n; done < (uint64_t)ns; done += n) {
    uint8_t piece[PIECE];
    n = (uint64_t)ns - done < PIECE / size ? (uint64_t)ns - done : PIECE / size;
    if (!get(d, record + (first + done) * size, n * size, piece, err)) return false;
    for (uint64_t i = 0; i < n; i++) {
      int64_t v = zx_data_id(piece, f->elem, i);
      if (limit < 0) {
        ((float *)out)[done + i] = (float)v;
        continue;
      }
      if (limit == ZX_ANY_I32 ? v > INT32_MAX : v < -1 || v >= limit)
        return zx_data_bad_id(d, f, first + done + i + (d->info.stream ? 0 : sample * f->values), v, limit,
                              err);
      ((int32_t *)out)[done + i] = (int32_t)v;
    }
  }
  bool apart = which == ZX_TARGETS && d->info.windows == ZX_WINDOWS_APART && d->info.documents;
  return !apart || forget_beginnings(d, first, ns, out, err);
}
