/* Normalizers: a piece of text becomes another one, before it is cut into words. */
#include "runtime/text/json.h"

/* ---- reading ---- */
static ZtNorm *add(ZtTokenizer *t, ZtNormKind kind) {
  ZB_PUSH(t->arena, t->norm, t->nnorm, (ZtNorm){.kind = kind});
  return &t->norm[t->nnorm - 1];
}

static void set_text(ZtNorm *m, const char *s) {
  m->text = s;
  m->text_n = strlen(s);
}

static bool read_form(ZtTokenizer *t, const char *type) {
  static const char *const forms[] = {
      [ZT_NFC] = "NFC", [ZT_NFD] = "NFD", [ZT_NFKC] = "NFKC", [ZT_NFKD] = "NFKD"};
  for (int i = 0; i < 4; i++)
    if (!strcmp(type, forms[i])) {
      add(t, ZT_NORM_FORM)->form = (ZtForm)i;
      return true;
    }
  return false;
}

static bool read_bert(ZtTokenizer *t, const cJSON *o, ZbErr *err) {
  static const char part[] = "normalizer BertNormalizer";
  ZtNorm *m = add(t, ZT_NORM_BERT);
  m->clean = m->chinese = m->lower = true;
  if (!zt_json_bool(part, o, "clean_text", ZT_MUST, &m->clean, err) ||
      !zt_json_bool(part, o, "handle_chinese_chars", ZT_MUST, &m->chinese, err) ||
      !zt_json_bool(part, o, "lowercase", ZT_MUST, &m->lower, err))
    return false;
  m->strip = m->lower;
  return zt_json_bool(part, o, "strip_accents", ZT_MAY, &m->strip, err);
}

static bool read_one(ZtTokenizer *t, const cJSON *o, const char *type, ZbErr *err) {
  const char *text = NULL;
  if (read_form(t, type)) return true;
  if (!strcmp(type, "BertNormalizer")) return read_bert(t, o, err);
  if (!strcmp(type, "Lowercase")) return add(t, ZT_NORM_LOWER);
  if (!strcmp(type, "StripAccents")) return add(t, ZT_NORM_STRIP_ACCENTS);
  if (!strcmp(type, "Strip")) {
    ZtNorm *m = add(t, ZT_NORM_STRIP);
    return zt_json_bool("normalizer Strip", o, "strip_left", ZT_MUST, &m->left, err) &&
           zt_json_bool("normalizer Strip", o, "strip_right", ZT_MUST, &m->right, err);
  }
  if (!strcmp(type, "Prepend")) {
    if (!zt_json_text(t, "normalizer Prepend", o, "prepend", ZT_MUST, &text, err)) return false;
    set_text(add(t, ZT_NORM_PREPEND), text);
    return true;
  }
  if (!strcmp(type, "Replace")) {
    ZtNorm *m = add(t, ZT_NORM_REPLACE);
    if (!zt_json_text(t, "normalizer Replace", o, "content", ZT_MUST, &text, err)) return false;
    set_text(m, text);
    return zt_json_pattern(t, "normalizer Replace", o, &m->pattern, err);
  }
  if (!strcmp(type, "Precompiled")) {
    if (!zt_json_text(t, "normalizer Precompiled", o, "precompiled_charsmap", ZT_MAY, &text, err))
      return false;
    return !text || zt_precompiled_init(t, add(t, ZT_NORM_PRECOMPILED), text, err);
  }
  return zb_fail(err, NULL, "the normalizer %s is not supported", zb_show(type));
}

bool zt_normalizers_read(ZtTokenizer *t, const cJSON *root, ZbErr *err) {
  if (!zt_json_sequence(t, "normalizer", zt_json(root, "normalizer"), "normalizers", read_one, err))
    return false;
  for (uint32_t i = 0; i < t->nnorm; i++)
    if (t->norm[i].kind == ZT_NORM_FORM || t->norm[i].kind == ZT_NORM_BERT) {
      t->forms = zt_forms_new(t->arena);
      break;
    }
  return true;
}

/* ---- running ---- */
static void lower(const char *s, size_t n, ZbText *out) {
  size_t bytes;
  for (size_t at = 0; at < n; at += bytes) {
    uint32_t to[2], c = zt_char(s + at, &bytes);
    int count = zt_lower(c, to);
    for (int i = 0; i < count; i++) zt_text_char(out, to[i]);
  }
}

static void strip(const ZtNorm *m, const char *s, size_t n, ZbText *out) {
  size_t begin = 0, bytes;
  while (m->left && begin < n && zt_in(ZT_SET_white_space, zt_char(s + begin, &bytes))) begin += bytes;
  while (m->right && n > begin && zt_in(ZT_SET_white_space, zt_char(s + zt_char_before(s, n), &bytes)))
    n -= bytes;
  zb_text_put(out, s + begin, n - begin);
}

static void without(ZtSet set, const char *s, size_t n, ZbText *out) {
  size_t bytes;
  for (size_t at = 0; at < n; at += bytes)
    if (!zt_in(set, zt_char(s + at, &bytes))) zb_text_put(out, s + at, bytes);
}

static bool replace(ZtCoder *c, const ZtNorm *m, const char *s, size_t n, ZbText *out) {
  size_t at = 0, begin, end;
  int found;
  while ((found = zt_match(m->pattern, c->matcher, s, n, at, at, &begin, &end, c->err)) > 0) {
    zb_text_put(out, s + at, begin - at);
    zb_text_put(out, m->text, m->text_n);
    at = end;
    if (!zt_may_grow(c, out->len)) return false;
  }
  zb_text_put(out, s + at, n - at);
  return !found;
}

static bool ideograph(uint32_t c) { /* the eight ranges that the library has, the odd one too */
  return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) || (c >= 0x20000 && c <= 0x2a6df) ||
         (c >= 0x2a700 && c <= 0x2b73f) || (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
         (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

static void bert(ZtCoder *c, const ZtNorm *m, const char *s, size_t n, ZbText *out) {
  ZbText first = {0}, second = {0};
  size_t bytes;
  for (size_t at = 0; at < n; at += bytes) {
    uint32_t x = zt_char(s + at, &bytes);
    if (m->clean && zt_in(ZT_SET_bert_removed, x)) continue;
    if (m->clean && zt_in(ZT_SET_white_space, x)) x = ' ';
    bool apart = m->chinese && ideograph(x);
    if (apart) zb_text_put(&first, " ", 1);
    zt_text_char(&first, x);
    if (apart) zb_text_put(&first, " ", 1);
  }
  if (m->strip) {
    zt_form(c->t->forms, ZT_NFD, &c->stretch, first.s, first.len, &second);
    first.len = 0;
    without(ZT_SET_bert_nonspacing, second.s, second.len, &first);
  }
  if (m->lower) lower(first.s, first.len, out);
  else zb_text_put(out, first.len ? first.s : "", first.len);
  zb_text_free(&first);
  zb_text_free(&second);
}

static bool one(ZtCoder *c, const ZtNorm *m, const char *s, size_t n, ZbText *out) {
  switch (m->kind) {
  case ZT_NORM_FORM: zt_form(c->t->forms, m->form, &c->stretch, s, n, out); return true;
  case ZT_NORM_LOWER: lower(s, n, out); return true;
  case ZT_NORM_STRIP: strip(m, s, n, out); return true;
  case ZT_NORM_STRIP_ACCENTS: without(ZT_SET_accent, s, n, out); return true;
  case ZT_NORM_PREPEND:
    if (n) zb_text_put(out, m->text, m->text_n);
    zb_text_put(out, s, n);
    return true;
  case ZT_NORM_REPLACE: return replace(c, m, s, n, out);
  case ZT_NORM_BERT: bert(c, m, s, n, out); return true;
  case ZT_NORM_PRECOMPILED: return zt_precompiled(c, m, s, n, out);
  }
  ZB_BUG("normalizer %d", m->kind);
}

bool zt_normalize(ZtCoder *c, const char *s, size_t n, const char **out, size_t *out_n) {
  for (uint32_t i = 0; i < c->t->nnorm; i++) {
    ZbText *to = &c->norm[i % 2];
    to->len = 0;
    zb_text_put(to, "", 0);
    if (!one(c, &c->t->norm[i], s, n, to) || !zt_may_grow(c, to->len)) return false;
    s = to->s;
    n = to->len;
  }
  *out = s;
  *out_n = n;
  return !c->t->nnorm || zt_grow(c, n);
}
