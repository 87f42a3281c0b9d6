/* Precompiled: SentencePiece's table of replacements, a double array of darts-clone and texts.
 *
 * The library goes over extended grapheme clusters. If one has fewer than 6 bytes and something that it
 * begins with is in the table, the whole cluster becomes what the shortest such beginning stands for;
 * otherwise each of its characters is looked for by itself. */
#include "runtime/text/room.h"

const char zt_cluster_pattern[] = "\\X"; /* an extended grapheme cluster */

static int digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* False: it is no base64. */
static bool decode(const char *s, size_t n, uint8_t *out, size_t *out_n) {
  while (n && s[n - 1] == '=') n--;
  uint32_t bits = 0, have = 0;
  *out_n = 0;
  for (size_t i = 0; i < n; i++) {
    int d = digit(s[i]);
    if (d < 0) return false;
    bits = bits << 6 | (uint32_t)d;
    have += 6;
    if (have < 8) continue;
    have -= 8;
    out[(*out_n)++] = (uint8_t)(bits >> have);
    bits &= (1u << have) - 1;
  }
  return true;
}

bool zt_precompiled_init(ZtTokenizer *t, ZtNorm *norm, const char *base64, ZbErr *err) {
  static const char part[] = "normalizer Precompiled: `precompiled_charsmap`";
  size_t n = strlen(base64), bytes;
  uint32_t *words = ZB_NEWN(t->arena, uint32_t, n / 4 + 2), first;
  uint8_t *all = (uint8_t *)words;
  if (!decode(base64, n, all, &bytes)) return zb_fail(err, NULL, "%s is not base64", part);
  if (bytes < 8) return zb_fail(err, NULL, "%s is too short", part);
  memcpy(&first, all, 4);
  if (first % 4 || first < 4 || first > bytes - 4)
    return zb_fail(err, NULL, "%s: a table of %u bytes in %zu", part, first, bytes);
  norm->trie = words + 1;
  norm->trie_n = first / 4;
  norm->blob = (const char *)all + 4 + first;
  norm->blob_n = (uint32_t)(bytes - 4 - first);
  /* The words above have room for a NUL after the last byte. */
  if (zt_utf8_valid(norm->blob, norm->blob_n) < norm->blob_n)
    return zb_fail(err, NULL, "%s: its replacements are no UTF-8", part);
  norm->pattern = zt_pattern(t, zt_cluster_pattern, false, err);
  return norm->pattern;
}

/* What the shortest stored beginning of key[0..n) stands for; NULL: none. */
static const char *first_of(const ZtNorm *m, const char *key, size_t n) {
  uint32_t at = 0, unit = m->trie[0];
#define OFFSET(u) ((u) >> 10 << (((u)&512) >> 6))
  at = OFFSET(unit);
  for (size_t i = 0; i < n; i++) {
    uint8_t byte = (uint8_t)key[i];
    at ^= byte;
    if (!byte || at >= m->trie_n) return NULL;
    unit = m->trie[at];
    if ((unit & 0x800000ff) != byte) return NULL;
    at ^= OFFSET(unit);
    if (!(unit >> 8 & 1)) continue;
    if (at >= m->trie_n) return NULL;
    uint32_t text = m->trie[at] & 0x7fffffff;
    if (text >= m->blob_n || (text && ((uint8_t)m->blob[text] & 0xc0) == 0x80)) return NULL;
    return m->blob + text;
  }
#undef OFFSET
  return NULL;
}

static void cluster(const ZtNorm *m, const char *s, size_t n, ZbText *out) {
  const char *to = n < 6 ? first_of(m, s, n) : NULL;
  if (to) {
    zb_text_put(out, to, strlen(to));
    return;
  }
  for (size_t at = 0, bytes; at < n; at += bytes) {
    bytes = zt_char_bytes((uint8_t)s[at]);
    to = first_of(m, s + at, bytes);
    zb_text_put(out, to ? to : s + at, to ? strlen(to) : bytes);
  }
}

bool zt_precompiled(ZtCoder *c, const ZtNorm *m, const char *s, size_t n, ZbText *out) {
  size_t begin = 0, end;
  while (begin < n) {
    /* An ASCII character before another one is a cluster, but for CR LF. */
    if ((uint8_t)s[begin] < 0x80 && s[begin] != '\r' && begin + 1 < n && (uint8_t)s[begin + 1] < 0x80) {
      cluster(m, s + begin, 1, out);
      begin++;
      if (!zt_may_grow(c, out->len)) return false;
      continue;
    }
    size_t from = begin;
    int found = zt_match(m->pattern, c->matcher, s, n, from, from, &begin, &end, c->err);
    if (found < 0) return false;
    if (!found || begin != from) ZB_BUG("\\X does not match at byte %zu of %zu", from, n);
    cluster(m, s + begin, end - begin, out);
    begin = end;
    if (!zt_may_grow(c, out->len)) return false;
  }
  return true;
}
