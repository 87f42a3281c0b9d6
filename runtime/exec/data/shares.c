/* Reads "A.bin:0.7,B.bin:0.3": paths, and how many samples each gives of a period of them. Weights are
 * decimals and taken exactly: 0.7 and 0.3 are 7 and 3 of 10. */
#include "runtime/exec/data/data.h"
#include "runtime/exec/data/mix.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

static const char how[] = "several files are A.bin:0.7,B.bin:0.3; a comma in a name is written \\,";

/* ---- the text ---- */
/* A decimal without sign or exponent: digits * 10^-behind. Zeros at its end behind the point do not count. */
typedef struct {
  uint64_t digits;
  int behind;
} Weight;

static bool read_weight(const char *s, Weight *w) {
  bool point = false, any = false;
  int zeros = 0;
  *w = (Weight){0};
  for (; *s; s++) {
    if (*s == '.' && !point) {
      point = true;
      continue;
    }
    if (*s < '0' || *s > '9') return false;
    any = true;
    if (point && *s == '0') {
      zeros++;
      continue;
    }
    for (; zeros > 0; zeros--, w->behind++)
      if (!zb_mul_u64(w->digits, 10, &w->digits)) return false;
    if (!zb_mul_u64(w->digits, 10, &w->digits) || !zb_add_u64(w->digits, (uint64_t)(*s - '0'), &w->digits))
      return false;
    w->behind += point;
  }
  return any;
}

/* One of several files. Its last colon is before the weight, so others may be in its name. */
static bool read_part(const char *part, const char **path, Weight *w, ZbArena *a, ZbErr *err) {
  char *name = zb_strdup(a, part), *colon = strrchr(name, ':');
  if (!colon) return zb_fail(err, how, "'%s' has no weight", zb_show(part));
  *colon = 0;
  if (!*name) return zb_fail(err, how, "a file without a name: '%s'", zb_show(part));
  if (!read_weight(colon + 1, w))
    return zb_fail(err, "weights are positive decimals such as 0.7 or 3", "%s: '%s' is not a weight",
                   zb_show(name), zb_show(colon + 1));
  if (!w->digits) return zb_fail(err, "leave the file out", "%s has the weight 0", zb_show(name));
  *path = name;
  return true;
}

/* Up to the next comma that no backslash is before, which is cut off; *text goes behind it, NULL at the
 * end. */
static const char *next_part(ZbArena *a, const char **text) {
  char *part = zb_strdup(a, *text), *to = part;
  const char *s = part;
  for (; *s && *s != ','; s++) {
    if (*s == '\\' && (s[1] == ',' || s[1] == '\\')) s++;
    *to++ = *s;
  }
  *text = *s ? *text + (s - part) + 1 : NULL;
  *to = 0;
  return part;
}

/* A file of just this name is meant, whatever is in it; and a name without comma and weight. */
static bool is_lone(ZbArena *a, const char *text) {
  Weight w;
  const char *colon = strrchr(text, ':');
  if (access(text, F_OK) == 0) return true;
  if (strchr(text, ',')) return false;
  return !colon ||
         (!read_weight(colon + 1, &w) && access(zb_strndup(a, text, (size_t)(colon - text)), F_OK) != 0);
}

/* ---- numbers of samples ---- */
/* To whole numbers in the same proportions. */
static bool to_whole(ZxShares *s, const Weight *w, uint64_t *whole, uint64_t *sum, ZbErr *err) {
  int behind = 0;
  uint64_t divisor = 0;
  for (uint32_t i = 0; i < s->n; i++)
    if (w[i].behind > behind) behind = w[i].behind;
  *sum = 0;
  for (uint32_t i = 0; i < s->n; i++) {
    whole[i] = w[i].digits;
    bool fits = true;
    for (int k = w[i].behind; fits && k < behind; k++) fits = zb_mul_u64(whole[i], 10, &whole[i]);
    if (!fits || !zb_add_u64(*sum, whole[i], sum))
      return zb_fail(err, "give weights of fewer digits", "%s: no room for its weight beside the others",
                     zb_show(s->path[i]));
    for (uint64_t x = whole[i]; x;) { /* Euclid */
      uint64_t rest = divisor % x;
      divisor = x;
      x = rest;
    }
  }
  for (uint32_t i = 0; i < s->n; i++) whole[i] /= divisor;
  *sum /= divisor;
  return true;
}

/* Shares of the longest period there is, by largest remainders. */
static void round_to_period(ZxShares *s, const uint64_t *whole, uint64_t sum, ZbArena *a) {
  unsigned __int128 *rest = ZB_NEWN(a, unsigned __int128, s->n);
  uint32_t given = 0;
  for (uint32_t i = 0; i < s->n; i++) {
    unsigned __int128 part = (unsigned __int128)whole[i] * ZX_MIX_PERIOD;
    s->share[i] = (uint32_t)(part / sum);
    rest[i] = part % sum;
    given += s->share[i];
  }
  for (; given < ZX_MIX_PERIOD; given++) {
    uint32_t most = 0;
    for (uint32_t i = 1; i < s->n; i++)
      if (rest[i] > rest[most]) most = i;
    s->share[most]++;
    rest[most] = 0;
  }
}

static bool share_out(ZxShares *s, const Weight *w, ZbArena *a, ZbErr *err) {
  uint64_t sum, *whole = ZB_NEWN(a, uint64_t, s->n);
  s->share = ZB_NEWN(a, uint32_t, s->n);
  if (!to_whole(s, w, whole, &sum, err)) return false;
  s->rounded = sum > ZX_MIX_PERIOD;
  s->period = s->rounded ? ZX_MIX_PERIOD : (uint32_t)sum;
  if (s->rounded) round_to_period(s, whole, sum, a);
  for (uint32_t i = 0; i < s->n; i++) {
    if (!s->rounded) s->share[i] = (uint32_t)whole[i];
    if (!s->share[i])
      return zb_fail(err, "give it more, or leave it out",
                     "%s: its weight comes to less than one sample in %d", zb_show(s->path[i]),
                     ZX_MIX_PERIOD);
  }
  return true;
}

ZxShares *zx_shares(ZbArena *a, const char *text, ZbErr *err) {
  ZxShares *s = ZB_NEW(a, ZxShares);
  Weight *w = NULL, one = {1, 0};
  uint32_t nw = 0;
  if (is_lone(a, text)) {
    ZB_PUSH(a, s->path, s->n, text);
    ZB_PUSH(a, w, nw, one);
  } else
    for (const char *rest = text; rest;) {
      const char *part = next_part(a, &rest), *path = NULL;
      if (s->n == ZX_MIX_FILES)
        return zb_fail(err, "put some together, with zdata", "more than %d files to mix", ZX_MIX_FILES), NULL;
      if (!read_part(part, &path, &one, a, err)) return NULL;
      ZB_PUSH(a, s->path, s->n, path);
      ZB_PUSH(a, w, nw, one);
    }
  return share_out(s, w, a, err) ? s : NULL;
}
