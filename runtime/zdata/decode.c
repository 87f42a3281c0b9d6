/* zdata decode: the text of a stream's tokens, or of a part of them. */
#include "runtime/zdata/zdata.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Tokens decoded at a time, and before these, as context: a token may be a part of a character, and the first
 * of a text may lose a blank. */
enum { STEP = 4096, CONTEXT = 16 };

/* ---- which tokens ---- */
static bool part_of(const ZdOptions *o, const ZxData *d, uint64_t *from, uint64_t *to, ZbErr *err) {
  const ZxDataInfo *info = zx_data_info(d);
  *from = o->from >= 0 ? (uint64_t)o->from : 0;
  *to = info->count;
  if (o->document >= 0) {
    uint64_t i = (uint64_t)o->document;
    if (o->from >= 0 || o->count >= 0)
      return zb_fail(err, "leave them out", "--from and --count do not go with --document");
    if (!info->documents)
      return zb_fail(err, "give --from and --count", "%s does not know its documents", zx_data_name(d));
    if (i >= info->documents)
      return zb_fail(err, "documents are numbered from 0",
                     "%s has %" PRIu64 " documents, and no document %" PRIu64, zx_data_name(d),
                     info->documents, i);
    return zx_data_document(d, i, from, to, err);
  }
  if (*from > info->count)
    return zb_fail(err, "a number of tokens", "--from cannot be '%" PRIu64 "': there are %" PRIu64, *from,
                   info->count);
  if (o->count >= 0 && (uint64_t)o->count < *to - *from) *to = *from + (uint64_t)o->count;
  return true;
}

/* Tokens from..to-1 as ids; those of unknown ones are of no token. */
static bool get_ids(const ZxData *d, uint64_t from, uint64_t to, uint32_t *id, ZbErr *err) {
  size_t size = zx_data_elem_bytes(zx_data_info(d)->field[0].elem), each = zx_data_info(d)->record_bytes,
         n = to - from;
  uint8_t raw[(4 + 1) * (CONTEXT + STEP)];
  if (!zx_data_get(d, from * each, n * each, raw, err)) return false;
  for (size_t i = 0; i < n; i++) {
    id[i] = 0;
    memcpy(&id[i], raw + i * each, size);
    if (size == 2 && id[i] == UINT16_MAX) id[i] = UINT32_MAX;
  }
  return true;
}

/* ---- decoding ---- */
static bool put_bytes(const ZxData *d, uint64_t from, uint64_t to, ZbErr *err) {
  uint32_t id[STEP];
  for (uint64_t n; from < to; from += n) {
    n = to - from < STEP ? to - from : STEP;
    if (!get_ids(d, from, from + n, id, err)) return false;
    for (uint64_t i = 0; i < n; i++)
      if (id[i] < 256) putchar((int)id[i]);
  }
  return true;
}

/* Ends within a character, as far as can be told: the next token may have the rest. */
static bool is_open(const ZbText *t) { return t->len >= 3 && !memcmp(t->s + t->len - 3, "\xef\xbf\xbd", 3); }

/* Each step is decoded with what is before it, whose text, decoded alone, is taken off again. Steps end
 * between characters. */
static bool put_text(const ZxData *d, const ZtTokenizer *t, uint64_t from, uint64_t to, ZbErr *err) {
  uint32_t id[CONTEXT + STEP];
  ZtCoder *coder = zt_coder_new(t);
  ZbText before = {0}, all = {0};
  bool ok = true;
  for (uint64_t at = from, n; ok && at < to; at += n) {
    uint64_t context = at - from < CONTEXT ? at - from : CONTEXT;
    n = to - at < STEP ? to - at : STEP;
    before.len = all.len = 0;
    ok = get_ids(d, at - context, at + n, id, err) && zt_decode(coder, id, context, 0, &before, err) &&
         zt_decode(coder, id, context + n, 0, &all, err);
    for (int tries = 0; ok && at + n < to && tries < 4 && n > 1 && is_open(&all); tries++) {
      all.len = 0;
      ok = zt_decode(coder, id, context + --n, 0, &all, err);
    }
    if (ok && all.len > before.len) fwrite(all.s + before.len, 1, all.len - before.len, stdout);
  }
  zb_text_free(&before);
  zb_text_free(&all);
  zt_coder_free(coder);
  return ok;
}

/* ---- what is learned ---- */
/* Finds the end of a run of tokens that are all learned, or all not, from token `from` on. */
static bool run_end(const ZxData *d, uint64_t from, uint64_t to, uint64_t *end, bool *learned, ZbErr *err) {
  const ZxDataInfo *info = zx_data_info(d);
  uint8_t first, next;
  if (!zx_data_get(d, from * info->record_bytes + info->field[1].at, 1, &first, err)) return false;
  for (*end = from + 1; *end < to; ++*end) {
    if (!zx_data_get(d, *end * info->record_bytes + info->field[1].at, 1, &next, err)) return false;
    if (next != first) break;
  }
  *learned = first;
  return true;
}

static bool show_document(const ZxData *d, const ZtTokenizer *t, uint64_t from, uint64_t to, ZbErr *err) {
  bool colour = isatty(1) == 1, learned, ok = true;
  for (uint64_t end; ok && from < to; from = end) {
    ok = run_end(d, from, to, &end, &learned, err);
    if (ok && learned) printf("%s", colour ? "\033[30;42m" : "[[");
    ok = ok && (t ? put_text(d, t, from, end, err) : put_bytes(d, from, end, err));
    if (ok && learned) printf("%s", colour ? "\033[0m" : "]]");
  }
  printf("\n");
  return ok;
}

/* Shows documents one after the other, with a line between. */
static bool show_mask(const ZdOptions *o, const ZxData *d, const ZtTokenizer *t, uint64_t from, uint64_t to,
                      ZbErr *err) {
  const ZxDataInfo *info = zx_data_info(d);
  if (!zx_windows_whole(info->windows))
    return zb_fail(err, "leave --show-mask out", "%s says of no token whether it is learned: all are",
                   zx_data_name(d));
  if (!info->documents || o->document >= 0) return show_document(d, t, from, to, err);
  for (uint64_t i = 0, first, end; i < info->documents; i++) {
    if (!zx_data_document(d, i, &first, &end, err)) return false;
    if (end <= from || first >= to) continue;
    printf("---- document %" PRIu64 "\n", i);
    if (!show_document(d, t, first > from ? first : from, end < to ? end : to, err)) return false;
  }
  return true;
}

static bool decode(const ZdOptions *o, const ZxData *d, const ZtTokenizer *t, ZbErr *err) {
  const ZxDataInfo *info = zx_data_info(d);
  uint64_t from, to;
  if (!info->stream)
    return zb_fail(err, "zdata show tells what they are", "%s has no tokens but records", zx_data_name(d));
  if (!t && info->field[0].limit > 256 + 1)
    return zb_fail(err, "--tokenizer tokenizer.json", "%s: its tokens are no bytes, so a tokenizer is needed",
                   zx_data_name(d));
  if (t && info->field[0].limit > zt_size(t))
    return zb_fail(err, "give the one that it was made with",
                   "%s has ids below %" PRIu64 ", the tokenizer has them below %" PRIu32, zx_data_name(d),
                   info->field[0].limit, zt_size(t));
  if (!part_of(o, d, &from, &to, err)) return false;
  if (o->show_mask) return show_mask(o, d, t, from, to, err);
  return t ? put_text(d, t, from, to, err) : put_bytes(d, from, to, err);
}

bool zd_decode(const ZdOptions *o, ZbArena *a, ZbErr *err) {
  ZtTokenizer *t = o->tokenizer ? zt_load(zb_file_of(a, o->tokenizer, "tokenizer.json"), err) : NULL;
  if (o->tokenizer && !t) return false;
  ZxData *d = zx_data_open(o->file[0], err);
  bool ok = d && decode(o, d, t, err);
  zx_data_close(d);
  zt_free(t);
  return ok;
}
