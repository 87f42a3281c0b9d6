/* Which new words of a model begin as which others: --new-tokens. */
#include "runtime/exec/run/run.h"
#include "runtime/exec/state/grow.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Reads a word's number, or its text in the tokenizer, which may be NULL. */
static bool word_of(const ZtTokenizer *t, const char *s, uint32_t *out, ZbErr *err) {
  char *end;
  unsigned long n = strtoul(s, &end, 10);
  *out = (uint32_t)n;
  if (*s >= '0' && *s <= '9' && !*end && n < UINT32_MAX) return true;
  *out = t ? zt_id(t, s) : UINT32_MAX;
  return *out != UINT32_MAX || zb_fail(err, "give its number",
                                       t ? "--new-tokens: the tokenizer has no token '%s'"
                                         : "--new-tokens: there is no tokenizer.json that has a token '%s'",
                                       zb_show(s));
}

static bool take_pair(ZxNewWords *w, ZbArena *a, const ZtTokenizer *t, char *pair, ZbErr *err) {
  char *as = strrchr(pair, '=');
  ZxLikeWord l;
  if (!as || as == pair || !as[1])
    return zb_fail(err, "give mean, or NEW=OLD,NEW=OLD", "--new-tokens cannot be '%s'", zb_show(pair));
  *as++ = 0;
  if (!word_of(t, pair, &l.word, err) || !word_of(t, as, &l.as, err)) return false;
  for (uint32_t i = 0; i < w->nlike; i++)
    if (w->like[i].word == l.word)
      return zb_fail(err, NULL, "--new-tokens says twice how %" PRIu32 " begins", l.word);
  ZB_PUSH(a, w->like, w->nlike, l);
  return true;
}

bool zx_run_new_words(ZxRun *r, ZxNewWords *w, ZbErr *err) {
  ZbArena *a = r->a;
  const char *text = r->o.new_tokens;
  *w = (ZxNewWords){0};
  if (!strcmp(text, "mean")) return true;
  ZtTokenizer *t = zt_load(zb_printf(a, "%s/tokenizer.json", r->o.init), NULL);
  char *words = zb_strdup(a, text), *pair;
  bool ok = true;
  while (ok && (pair = strsep(&words, ","))) ok = take_pair(w, a, t, pair, err);
  zt_free(t);
  return ok;
}
