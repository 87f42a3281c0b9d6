/* Pre-tokenizers: a piece of text becomes words. Each works on every piece that the one before it made, so a
 * piece goes through all of them before the next one is made. */
#define _GNU_SOURCE
#include "runtime/text/json.h"

/* ---- bytes as characters: GPT-2's table ---- */
static bool shown(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

uint32_t zt_byte_char(uint8_t byte) {
  if (shown(byte)) return byte;
  if (byte <= 0x20) return 256u + byte;
  return byte == 0xad ? 323u : 256u + 33u + (byte - 0x7fu);
}

int zt_char_byte(uint32_t c) {
  if (c < 256) return shown(c) ? (int)c : -1;
  c -= 256;
  return c <= 0x20 ? (int)c : c < 67 ? (int)(c - 33 + 0x7f) : c == 67 ? 0xad : -1;
}

/* ---- reading ---- */
const char zt_gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static ZtPre *add(ZtTokenizer *t, ZtPreKind kind) {
  ZB_PUSH(t->arena, t->pre, t->npre, (ZtPre){.kind = kind});
  return &t->pre[t->npre - 1];
}

static bool read_behavior(ZtTokenizer *t, const char *part, const cJSON *o, ZtBehavior *out, ZbErr *err) {
  static const char *const names[] = {[ZT_REMOVED] = "Removed",
                                      [ZT_ISOLATED] = "Isolated",
                                      [ZT_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
                                      [ZT_MERGED_WITH_NEXT] = "MergedWithNext",
                                      [ZT_CONTIGUOUS] = "Contiguous"};
  const char *name = NULL;
  if (!zt_json_text(t, part, o, "behavior", ZT_MUST, &name, err)) return false;
  for (int i = 0; i < 5; i++)
    if (!strcmp(name, names[i])) {
      *out = (ZtBehavior)i;
      return true;
    }
  return zb_fail(err, NULL, "%s: the behavior %s is not supported", part, zb_show(name));
}

static bool read_metaspace(ZtTokenizer *t, const cJSON *o, ZbErr *err) {
  static const char part[] = "pre_tokenizer Metaspace";
  static const char *const names[] = {[ZT_ALWAYS] = "always", [ZT_FIRST] = "first", [ZT_NEVER] = "never"};
  ZtPre *p = add(t, ZT_PRE_METASPACE);
  const char *scheme = NULL;
  bool prefix = true;
  p->split = true;
  if (!zt_json_text(t, part, o, "replacement", ZT_MUST, &p->blank, err) ||
      !zt_json_text(t, part, o, "prepend_scheme", ZT_MAY, &scheme, err) ||
      !zt_json_bool(part, o, "split", ZT_MAY, &p->split, err) ||
      !zt_json_bool(part, o, "add_prefix_space", ZT_MAY, &prefix, err))
    return false;
  p->blank_n = strlen(p->blank);
  if (!p->blank_n || zt_char_bytes((uint8_t)p->blank[0]) != p->blank_n)
    return zb_fail(err, NULL, "%s: `replacement` is not one character", part);
  p->scheme = prefix ? ZT_ALWAYS : ZT_NEVER;
  if (!scheme) return true;
  for (int i = 0; i < 3; i++)
    if (!strcmp(scheme, names[i])) {
      p->scheme = (ZtScheme)i;
      return true;
    }
  return zb_fail(err, NULL, "%s: the prepend_scheme %s is not supported", part, zb_show(scheme));
}

static bool read_bytes(ZtTokenizer *t, const cJSON *o, ZbErr *err) {
  static const char part[] = "pre_tokenizer ByteLevel";
  ZtPre *p = add(t, ZT_PRE_BYTES);
  bool regex = true;
  p->map = true;
  if (!zt_json_bool(part, o, "add_prefix_space", ZT_MUST, &p->prefix_space, err) ||
      !zt_json_bool(part, o, "use_regex", ZT_MAY, &regex, err))
    return false;
  if (regex) p->pattern = zt_pattern(t, zt_gpt2_pattern, false, err);
  return p->pattern || !regex;
}

static bool read_one(ZtTokenizer *t, const cJSON *o, const char *type, ZbErr *err) {
  if (!strcmp(type, "ByteLevel")) return read_bytes(t, o, err);
  if (!strcmp(type, "Metaspace")) return read_metaspace(t, o, err);
  if (!strcmp(type, "Whitespace")) return add(t, ZT_PRE_WORDS);
  if (!strcmp(type, "WhitespaceSplit")) return add(t, ZT_PRE_WHITESPACE_SPLIT);
  if (!strcmp(type, "BertPreTokenizer")) return add(t, ZT_PRE_BERT);
  if (!strcmp(type, "Punctuation")) {
    ZtPre *p = add(t, ZT_PRE_PUNCTUATION);
    p->behavior = ZT_ISOLATED;
    return !zt_json(o, "behavior") || read_behavior(t, "pre_tokenizer Punctuation", o, &p->behavior, err);
  }
  if (!strcmp(type, "Digits")) {
    bool each = false;
    if (!zt_json_bool("pre_tokenizer Digits", o, "individual_digits", ZT_MUST, &each, err)) return false;
    add(t, ZT_PRE_DIGITS)->behavior = each ? ZT_ISOLATED : ZT_CONTIGUOUS;
    return true;
  }
  if (!strcmp(type, "Split")) {
    static const char part[] = "pre_tokenizer Split";
    ZtPre *p = add(t, ZT_PRE_SPLIT);
    return zt_json_pattern(t, part, o, &p->pattern, err) && read_behavior(t, part, o, &p->behavior, err) &&
           zt_json_bool(part, o, "invert", ZT_MUST, &p->invert, err);
  }
  return zb_fail(err, NULL, "the pre_tokenizer %s is not supported", zb_show(type));
}

bool zt_pretokenizers_read(ZtTokenizer *t, const cJSON *root, ZbErr *err) {
  return zt_json_sequence(t, "pre_tokenizer", zt_json(root, "pre_tokenizer"), "pretokenizers", read_one, err);
}

/* ---- parts: what becomes of matches and gaps ---- */
typedef struct {
  ZtCoder *c;
  uint32_t next; /* the pre-tokenizer after this one */
  const char *s;
  bool first, invert;
  ZtBehavior behavior;
  size_t begin, end; /* a part that waits for the next one */
  bool waits, waits_match;
} Parts;

static bool give(Parts *x, size_t begin, size_t end) {
  return begin == end || zt_pretokenize(x->c, x->next, x->s + begin, end - begin, x->first && !begin);
}

/* Whether the part that waits and the next one become one. */
static bool joins(const Parts *x, bool match) {
  switch (x->behavior) {
  case ZT_CONTIGUOUS: return x->waits_match == match;
  case ZT_MERGED_WITH_PREVIOUS: return match && !x->waits_match;
  case ZT_MERGED_WITH_NEXT: return !match && x->waits_match;
  default: return false;
  }
}

static bool part(Parts *x, size_t begin, size_t end, bool match) {
  if (begin == end && !match) return true; /* a match may be empty: what is around it is cut there */
  match ^= x->invert;
  if (match && x->behavior == ZT_REMOVED) return true;
  if (x->behavior <= ZT_ISOLATED) return give(x, begin, end);
  bool joined = x->waits && joins(x, match);
  if (joined) {
    x->end = end;
    /* What was merged takes no more: as a match if it ends with one, as a gap if it does not. */
    x->waits_match = match;
    return true;
  }
  if (x->waits && !give(x, x->begin, x->end)) return false;
  x->begin = begin;
  x->end = end;
  x->waits_match = match;
  x->waits = true;
  return true;
}

static bool last_part(Parts *x) { return !x->waits || give(x, x->begin, x->end); }

static bool by_pattern(Parts *x, const ZtPattern *pattern, size_t n) {
  size_t at = 0, last = ZT_FIRST_MATCH, begin, end;
  int found;
  while ((found = zt_match(pattern, x->c->matcher, x->s, n, at, last, &begin, &end, x->c->err)) > 0) {
    if (!part(x, at, begin, false) || !part(x, begin, end, true)) return false;
    at = last = end;
  }
  return !found && part(x, at, n, false) && last_part(x);
}

static bool by_set(Parts *x, ZtSet set, size_t n) {
  size_t gap = 0, bytes;
  for (size_t at = 0; at < n; at += bytes) {
    if (!zt_in(set, zt_char(x->s + at, &bytes))) continue;
    if (!part(x, gap, at, false) || !part(x, at, at + bytes, true)) return false;
    gap = at + bytes;
  }
  return part(x, gap, n, false) && last_part(x);
}

/* ---- running ---- */
static bool bytes_level(Parts *x, const ZtPre *p, ZbText *to, size_t n) {
  ZtCoder *c = x->c;
  if (p->prefix_space && n && x->s[0] != ' ') {
    to->len = 0;
    zb_text_put(to, " ", 1);
    zb_text_put(to, x->s, n++);
    x->s = to->s;
    if (!zt_grow(c, n)) return false;
  }
  if (!p->map) return p->pattern ? by_pattern(x, p->pattern, n) : zt_word(c, x->s, n);
  ZbText mapped = {0}; /* of one word; this is the rare case that something comes after ByteLevel */
  size_t at = 0, last = ZT_FIRST_MATCH, begin = 0, end = n;
  int found = 1;
  while (at < n && found > 0) {
    if (p->pattern) found = zt_match(p->pattern, c->matcher, x->s, n, at, last, &begin, &end, c->err);
    if (found <= 0) begin = end = n;
    for (int i = 0; found >= 0 && i < 2; i++) { /* the gap, the match */
      size_t from = i ? begin : at, till = i ? end : begin;
      mapped.len = 0;
      for (size_t k = from; k < till; k++) zt_text_char(&mapped, zt_byte_char((uint8_t)x->s[k]));
      if (till > from &&
          !(zt_grow(c, mapped.len) && zt_pretokenize(c, x->next, mapped.s, mapped.len, x->first && !from)))
        found = -1;
    }
    at = last = end;
  }
  zb_text_free(&mapped);
  return found >= 0;
}

static bool metaspace(Parts *x, const ZtPre *p, ZbText *to, size_t n) {
  to->len = 0;
  bool starts = n && (x->s[0] == ' ' || zt_starts(x->s, n, p->blank, p->blank_n));
  if (p->scheme != ZT_NEVER && !starts && (p->scheme == ZT_ALWAYS || x->first))
    zb_text_put(to, p->blank, p->blank_n);
  for (size_t at = 0, end; at < n; at = end + (end < n)) {
    const char *space = memchr(x->s + at, ' ', n - at);
    end = space ? (size_t)(space - x->s) : n;
    zb_text_put(to, x->s + at, end - at);
    if (end < n) zb_text_put(to, p->blank, p->blank_n);
  }
  x->s = to->s;
  if (!zt_grow(x->c, to->len)) return false;
  if (!p->split) return give(x, 0, to->len);
  x->behavior = ZT_MERGED_WITH_NEXT;
  size_t at = 0;
  for (const char *blank; (blank = memmem(x->s + at, to->len - at, p->blank, p->blank_n));) {
    size_t begin = (size_t)(blank - x->s);
    if (!part(x, at, begin, false) || !part(x, begin, begin + p->blank_n, true)) return false;
    at = begin + p->blank_n;
  }
  return part(x, at, to->len, false) && last_part(x);
}

/* BertPreTokenizer: white space goes, then each character of punctuation stands alone. */
static bool bert(Parts *x, size_t n) {
  size_t word = 0, bytes;
  x->behavior = ZT_ISOLATED;
  for (size_t at = 0; at < n; at += bytes) {
    uint32_t c = zt_char(x->s + at, &bytes);
    bool space = zt_in(ZT_SET_white_space, c), mark = !space && zt_in(ZT_SET_punctuation, c);
    if (!space && !mark) continue;
    if (!part(x, word, at, false) || (mark && !part(x, at, at + bytes, true))) return false;
    word = at + bytes;
  }
  return part(x, word, n, false);
}

/* Whitespace: runs of word characters, and of what is neither these nor white space. */
static bool words(Parts *x, size_t n) {
  enum { SPACE, WORD, OTHER } kind = SPACE, last = SPACE;
  size_t begin = 0, bytes;
  x->behavior = ZT_ISOLATED;
  for (size_t at = 0; at < n; at += bytes, last = kind) {
    uint32_t c = zt_char(x->s + at, &bytes);
    kind = zt_in(ZT_SET_word, c) ? WORD : zt_in(ZT_SET_white_space, c) ? SPACE : OTHER;
    if (kind == last) continue;
    if (last != SPACE && !part(x, begin, at, true)) return false;
    begin = at;
  }
  return last == SPACE || part(x, begin, n, true);
}

bool zt_pretokenize(ZtCoder *c, uint32_t k, const char *s, size_t n, bool first) {
  if (k == c->t->npre) return zt_word(c, s, n);
  const ZtPre *p = &c->t->pre[k];
  Parts x = {.c = c, .next = k + 1, .s = s, .first = first, .invert = p->invert, .behavior = p->behavior};
  switch (p->kind) {
  case ZT_PRE_BYTES: x.behavior = ZT_ISOLATED; return bytes_level(&x, p, &c->pre[k], n);
  case ZT_PRE_SPLIT: return by_pattern(&x, p->pattern, n);
  case ZT_PRE_METASPACE: return metaspace(&x, p, &c->pre[k], n);
  case ZT_PRE_WORDS: return words(&x, n);
  case ZT_PRE_WHITESPACE_SPLIT: x.behavior = ZT_REMOVED; return by_set(&x, ZT_SET_white_space, n);
  case ZT_PRE_BERT: return bert(&x, n);
  case ZT_PRE_PUNCTUATION: return by_set(&x, ZT_SET_punctuation, n);
  case ZT_PRE_DIGITS: return by_set(&x, ZT_SET_numeric, n);
  }
  ZB_BUG("pre-tokenizer %d", p->kind);
}
