/* Windows of whole documents, such as conversations: which of them share one, and what a window gives.
 *
 * Documents are laid by best fit, the longest first: each into the window whose rest is smallest among those that have
 * room, or into a new one (Johnson 1973: at most 11/9 of the fewest windows, and 6/9 more). Only lengths decide, so it
 * is the same on every rank. Then windows are in the order of their first documents:
 *
 *   documents of 3, 7, 2, 5 in windows of 8:  | 0 0 0 3 3 3 3 3 |  | 1 1 1 1 1 1 1 - |  | 2 2 - - - - - - |
 *
 * Positions that no document has (-) hold a token 0 that nobody is asked for, a document by itself. */
#include "runtime/exec/data/file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 4 << 10 /* bytes of tokens, read at a time */ };
#define NOWHERE UINT32_MAX

static const char altered[] = "make it again with zdata, or copy it again";

static void *room_for(uint64_t n, size_t size) {
  void *p = malloc(zb_array_bytes(n ? n : 1, size));
  if (!p) zb_out_of_memory(0);
  return p;
}

/* ---- where documents begin ---- */
bool zx_fit_open(ZxData *d, ZbErr *err) {
  const ZxDataInfo *info = &d->info;
  uint64_t n = info->documents ? info->documents : info->count > 0; /* a single one is not written down */
  if (!zx_windows_whole(info->windows)) return true;
  if (n >= NOWHERE)
    return zb_fail(err, "cut it into shards: zdata pack --shard-size", "%s has %" PRIu64 " documents",
                   d->name, n);
  if (info->windows == ZX_WINDOWS_PAIRS && n % 2)
    return zb_fail(err, altered, "%s is damaged: %" PRIu64 " documents are no pairs", d->name, n);
  ZxFit *f = d->fit = calloc(1, sizeof *f);
  if (!f) zb_out_of_memory(0);
  f->n = n;
  f->start = room_for(n + 1, sizeof *f->start);
  f->start[0] = 0;
  for (uint64_t i = 0, from; i < info->documents; i++)
    if (!zx_data_document(d, i, &from, &f->start[i + 1], err)) return false;
  f->start[n] = info->count;
  for (uint64_t i = 0; i < n; i++)
    if (f->start[i] >= f->start[i + 1])
      return zb_fail(err, altered, "%s is damaged: document %" PRIu64 " has no tokens", d->name, i);
  return true;
}

void zx_fit_free(ZxFit *f) {
  if (!f) return;
  free(f->start);
  free(f->first);
  free(f->doc);
  free(f);
}

static uint64_t length(const ZxFit *f, uint64_t i) { return f->start[i + 1] - f->start[i]; }

/* ---- which share a window ---- */
/* Windows with room, by how much: `at[r]` is the last of those with r tokens left, `before[w]` the one before it. */
typedef struct {
  uint64_t *has; /* a bit for each r */
  uint32_t *at, *before;
  int64_t seq;
} Rests;

static void put_rest(Rests *x, uint32_t window, uint64_t rest) {
  bool some = x->has[rest / 64] >> rest % 64 & 1;
  x->before[window] = some ? x->at[rest] : NOWHERE;
  x->at[rest] = window;
  x->has[rest / 64] |= 1ull << rest % 64;
}

/* Takes the window with the smallest rest of at least n; NOWHERE: there is none. */
static uint32_t take_rest(Rests *x, uint64_t n, uint64_t *rest) {
  uint64_t words = (uint64_t)x->seq / 64 + 1, k = n / 64, bits = x->has[k] & (~0ull << n % 64);
  while (!bits && ++k < words) bits = x->has[k];
  if (!bits) return NOWHERE;
  *rest = 64 * k + (uint64_t)__builtin_ctzll(bits);
  uint32_t window = x->at[*rest];
  if (x->before[window] == NOWHERE) x->has[*rest / 64] &= ~(1ull << *rest % 64);
  else x->at[*rest] = x->before[window];
  return window;
}

/* Writes into order[] the documents from the longest to the shortest, those of one length as they come. */
static void by_length(const ZxFit *f, int64_t seq, uint32_t *order) {
  uint64_t *at = calloc((size_t)seq + 2, sizeof *at);
  if (!at) zb_out_of_memory(0);
  for (uint64_t i = 0; i < f->n; i++) at[(uint64_t)seq - length(f, i) + 1]++;
  for (int64_t k = 0; k < seq; k++) at[k + 1] += at[k];
  for (uint64_t i = 0; i < f->n; i++) order[at[(uint64_t)seq - length(f, i)]++] = (uint32_t)i;
  free(at);
}

/* Finds each document's window by best fit; returns the number of windows. */
static uint32_t best_fit(const ZxFit *f, int64_t seq, uint32_t *window) {
  Rests x = {.seq = seq};
  uint32_t n = 0, *order = room_for(f->n, sizeof *order);
  x.has = calloc((size_t)seq / 64 + 1, sizeof *x.has);
  x.at = room_for((uint64_t)seq + 1, sizeof *x.at);
  x.before = room_for(f->n, sizeof *x.before);
  if (!x.has) zb_out_of_memory(0);
  by_length(f, seq, order);
  for (uint64_t i = 0; i < f->n; i++) {
    uint64_t rest = (uint64_t)seq, need = length(f, order[i]);
    uint32_t w = take_rest(&x, need, &rest);
    if (w == NOWHERE) w = n++;
    window[order[i]] = w;
    put_rest(&x, w, rest - need);
  }
  free(x.has);
  free(x.at);
  free(x.before);
  free(order);
  return n;
}

/* Lists the documents of each window, windows in the order of their first ones. */
static void list_windows(ZxFit *f, const uint32_t *window) {
  uint32_t seen = 0, *as = room_for(f->windows, sizeof *as);
  for (uint32_t w = 0; w < f->windows; w++) as[w] = NOWHERE;
  memset(f->first, 0, ((size_t)f->windows + 1) * sizeof *f->first);
  for (uint64_t i = 0; i < f->n; i++) {
    if (as[window[i]] == NOWHERE) as[window[i]] = seen++;
    f->first[as[window[i]] + 1]++;
  }
  for (uint32_t w = 0; w < f->windows; w++) f->first[w + 1] += f->first[w];
  for (uint64_t i = 0; i < f->n; i++) f->doc[f->first[as[window[i]]]++] = (uint32_t)i;
  for (uint32_t w = f->windows; w > 0; w--) f->first[w] = f->first[w - 1]; /* each now began the next one */
  f->first[0] = 0;
  free(as);
}

static bool all_fit(const ZxData *d, int64_t seq, ZbErr *err) {
  if (d->info.windows == ZX_WINDOWS_PAIRS && seq % 2)
    return zb_fail(err, "declare the input with an axis of 2, as in tokens[batch, side, seq]",
                   "%s has pairs, and the model wants %" PRId64 " values per sample, which have no halves",
                   d->name, seq);
  if (d->info.windows == ZX_WINDOWS_PAIRS) seq /= 2;
  for (uint64_t i = 0; i < d->fit->n; i++)
    if (length(d->fit, i) > (uint64_t)seq) {
      char help[120];
      snprintf(help, sizeof help,
               "`bind` a longer seq, or leave such out: zdata pack --seq %" PRId64 " --skip-bad", seq);
      return zb_fail(err, help, "%s: document %" PRIu64 " has %" PRIu64 " tokens, a window has %" PRId64,
                     d->name, i, length(d->fit, i), seq);
    }
  return true;
}

bool zx_data_arrange(ZxData *d, int64_t seq, bool apart, ZbErr *err) {
  for (uint32_t i = 0; i < d->files; i++)
    if (!zx_data_arrange(d->file[i], seq, apart, err)) return false;
  ZxFit *f = d->fit;
  if (!f || f->seq == seq || seq < 1) return true; /* a model without inputs has samples of nothing */
  if (!all_fit(d, seq, err)) return false;
  uint32_t *window = room_for(f->n, sizeof *window);
  bool share = apart && d->info.windows == ZX_WINDOWS_FIT, pairs = d->info.windows == ZX_WINDOWS_PAIRS;
  for (uint64_t i = 0; !share && i < f->n; i++) window[i] = (uint32_t)(pairs ? i / 2 : i);
  f->windows = share ? best_fit(f, seq, window) : (uint32_t)(pairs ? f->n / 2 : f->n);
  f->row = pairs ? seq / 2 : 0;
  f->first = realloc(f->first, zb_array_bytes((uint64_t)f->windows + 1, sizeof *f->first));
  f->doc = realloc(f->doc, zb_array_bytes(f->n + 1, sizeof *f->doc));
  if (!f->first || !f->doc) zb_out_of_memory(0);
  list_windows(f, window);
  f->seq = seq;
  free(window);
  return true;
}

ZxFilled zx_data_filled(const ZxData *d) {
  ZxFilled all = {0};
  int64_t seq = 0;
  for (uint32_t i = 0; i < zx_data_files(d); i++) {
    const ZxFit *f = zx_data_file(d, i)->fit;
    if (!f || !f->seq) return (ZxFilled){0};
    all.documents += f->n;
    all.windows += f->windows;
    seq = f->seq;
  }
  if (all.windows) all.padding = 1 - (double)d->info.count / ((double)all.windows * (double)seq);
  return all;
}

/* ---- what a window gives ---- */
/* Reads n tokens from token `first` on; those that are not learned are unknown, if they are asked for. */
static bool read_ids(const ZxData *d, uint64_t first, int64_t n, bool asked, int64_t limit, int32_t *out,
                     ZbErr *err) {
  const ZxDataField *f = &d->info.field[0], *learned = &d->info.field[1];
  uint64_t size = d->info.record_bytes, left = (uint64_t)n;
  for (uint64_t take; left; left -= take, first += take) {
    uint8_t piece[PIECE];
    take = left < PIECE / size ? left : PIECE / size;
    if (!zx_data_get(d, first * size, take * size, piece, err)) return false;
    for (uint64_t i = 0; i < take; i++) {
      int64_t id = zx_data_id(piece + i * size, f->elem, 0);
      if (limit == ZX_ANY_I32 ? id > INT32_MAX : id >= limit)
        return zx_data_bad_id(d, f, first + i, id, limit, err);
      *out++ = asked && !piece[i * size + learned->at] ? -1 : (int32_t)id;
    }
  }
  return true;
}

/* Writes numbers of documents, or places in one. */
static bool put_numbers(const ZxData *d, int which, uint64_t token, uint64_t number, int64_t from, int64_t to,
                        int64_t limit, int32_t *out, ZbErr *err) {
  for (int64_t i = from; i < to; i++) {
    uint64_t value = which == ZX_DOC ? number : (uint64_t)i;
    if (limit != ZX_ANY_I32 && value >= (uint64_t)limit)
      return zx_data_bad_place(d, which, token + (uint64_t)i, value, limit, err);
    *out++ = (int32_t)value;
  }
  return true;
}

/* Reads what a document, the window's `number`th, has at its places from..to-1. */
static bool read_part(const ZxData *d, int which, uint64_t document, uint64_t number, int64_t from,
                      int64_t to, int64_t limit, int32_t *out, ZbErr *err) {
  uint64_t start = d->fit->start[document], first = start + (uint64_t)from;
  int64_t n = to - from;
  if (which >= ZX_DOC) return put_numbers(d, which, start, number, from, to, limit, out, err);
  if (which == ZX_TOKENS) return read_ids(d, first, n, false, limit, out, err);
  if (to == (int64_t)length(d->fit, document)) out[--n] = -1; /* nothing follows its last token */
  return read_ids(d, first + 1, n, true, limit, out, err);
}

/* Writes what positions [from, to) have, of those that are read, [s0, end), where no document is. */
static bool put_padding(const ZxData *d, int which, uint64_t number, int64_t from, int64_t to, int64_t s0,
                        int64_t end, int64_t limit, int32_t *out, ZbErr *err) {
  if (from < s0) from = s0;
  if (to > end) to = end;
  if (which == ZX_DOC) return put_numbers(d, which, 0, number, from, to, limit, out + (from - s0), err);
  for (; from < to; from++) out[from - s0] = which == ZX_TARGETS ? -1 : 0;
  return true;
}

bool zx_fit_read(const ZxData *d, int which, uint64_t w, int64_t s0, int64_t ns, int64_t limit, int32_t *out,
                 ZbErr *err) {
  const ZxFit *f = d->fit;
  int64_t at = 0, end = s0 + ns;
  ZB_ASSERT(w < f->windows && s0 >= 0 && end <= f->seq && limit >= 0);
  uint32_t begin = f->first[w], n = f->first[w + 1] - begin;
  for (uint32_t k = 0; k < n && at < end; k++) {
    uint32_t document = f->doc[begin + k];
    int64_t here = f->row ? f->row * k : at, has = (int64_t)length(f, document);
    if (!put_padding(d, which, n, at, here, s0, end, limit, out, err)) return false;
    int64_t from = s0 > here ? s0 - here : 0, to = end - here < has ? end - here : has;
    if (from < to && !read_part(d, which, document, k, from, to, limit, out + (here + from - s0), err))
      return false;
    at = here + has;
  }
  return put_padding(d, which, n, at, f->seq, s0, end, limit, out, err);
}
