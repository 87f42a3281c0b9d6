/* Rows of logits become tokens, on all ranks that share their words: each looks at its own, they tell each other what
 * they found, some hundred bytes a row, and all choose the same. */
#include "runtime/exec/generate/generate.h"

enum { ROOM = 128 << 10 }; /* bytes of a part that are told at once, at least */

/* What a part found in a row, as ranks tell it; found->most candidates follow. */
typedef struct {
  ZxSum sum, model;
  uint32_t found, nbest, broken;
  float given;
  bool all;
  ZxCandidate best[ZX_TOP_LOGPROBS];
} Told;

struct ZxShared {
  ZxShare how;
  ZxTokenSampler *sampler;
  ZxFound *found;    /* by part */
  char *own, *all;   /* what is told of some rows: by this part, by all */
  char *more, *them; /* the same of one of them, which is looked at again */
  size_t room;       /* bytes of a part's */
};

ZxShared *zx_shared_new(ZbArena *a, const ZxShare *how, uint32_t vocabulary, uint32_t words) {
  ZxShared *s = ZB_NEW(a, ZxShared);
  *s = (ZxShared){.how = *how, .sampler = zx_sampler_new(a, vocabulary, words)};
  if (!how->parts) s->how = (ZxShare){.parts = 1, .each = vocabulary};
  s->found = ZB_NEWN(a, ZxFound, s->how.parts);
  for (uint32_t i = 0; i < s->how.parts; i++) {
    uint32_t first = zx_share_first(&s->how, vocabulary, i);
    zx_found_new(a, &s->found[i], first, zx_share_first(&s->how, vocabulary, i + 1) - first, s->how.each);
  }
  if (s->how.parts == 1) return s;
  s->room = sizeof(Told) + s->how.each * sizeof(ZxCandidate);
  if (s->room < ROOM) s->room = ROOM;
  s->own = zb_alloc(a, s->room), s->all = zb_alloc(a, s->room * s->how.parts);
  s->more = zb_alloc(a, s->room), s->them = zb_alloc(a, s->room * s->how.parts);
  return s;
}

uint32_t zx_share_first(const ZxShare *s, uint32_t vocabulary, uint32_t part) {
  uint64_t first = (uint64_t)part * s->each;
  return first < vocabulary ? (uint32_t)first : vocabulary;
}

/* ---- what is told ---- */
static size_t bytes_of(const ZxFound *f) { return sizeof(Told) + f->most * sizeof(ZxCandidate); }

static void write_found(const ZxFound *f, char *to) {
  Told *t = (Told *)(void *)to;
  memset(t, 0, sizeof *t);
  t->sum = f->sum, t->model = f->model, t->found = f->found, t->nbest = f->nbest, t->broken = f->broken;
  t->given = f->given, t->all = f->all;
  memcpy(t->best, f->best, f->nbest * sizeof *f->best);
  memcpy(t + 1, f->candidate, f->found * sizeof *f->candidate);
}

static void read_found(ZxFound *f, const char *from) {
  const Told *t = (const Told *)(const void *)from;
  f->sum = t->sum, f->model = t->model, f->found = t->found, f->nbest = t->nbest, f->broken = t->broken;
  f->given = t->given, f->all = t->all;
  memcpy(f->best, t->best, t->nbest * sizeof *t->best);
  memcpy(f->candidate, t + 1, t->found * sizeof *f->candidate);
}

/* ---- rows ---- */
static ZxRow row_of(const ZxWanted *w) { return zx_row(w->sequence, w->position); }

static const float *logits_of(const ZxShared *s, const float *logits, const ZxWanted *w) {
  return logits + (size_t)w->row * s->found[s->how.part].n;
}

/* Looks at this rank's words of a row again, and tells what it found, until all together have a token. */
static ZxSampled go_on(ZxShared *s, const ZxRow *row, const float *logits, ZxChosen *out, ZbErr *why) {
  ZxFound *own = &s->found[s->how.part];
  ZxSampled was;
  while ((was = zx_sample_choose(s->sampler, row, s->found, s->how.parts, &out->choice, why)) == ZX_MORE) {
    size_t bytes = bytes_of(own);
    zx_sample_part(s->sampler, row, logits, own);
    write_found(own, s->more);
    s->how.gather(s->how.ctx, s->more, bytes, s->them);
    for (uint32_t i = 0; i < s->how.parts; i++) read_found(&s->found[i], s->them + i * bytes);
  }
  return was;
}

/* Looks at as many rows as there is room to tell of, and returns how many; *bytes: of what is told. */
static uint32_t look(ZxShared *s, const ZxWanted *w, uint32_t n, const float *logits, size_t *bytes) {
  ZxFound *own = &s->found[s->how.part];
  uint32_t i = 0;
  for (*bytes = 0; i < n; i++) {
    ZxRow row = row_of(&w[i]);
    zx_found_begin(own, &row);
    if (*bytes + bytes_of(own) > s->room) break;
    zx_sample_part(s->sampler, &row, logits_of(s, logits, &w[i]), own);
    write_found(own, s->own + *bytes);
    *bytes += bytes_of(own);
  }
  return i;
}

static void choose_together(ZxShared *s, const ZxWanted *w, uint32_t n, const float *logits, ZxChosen *chosen,
                            ZbErr *why) {
  for (uint32_t first = 0, some; first < n; first += some) {
    size_t bytes, at = 0;
    some = look(s, w + first, n - first, logits, &bytes);
    ZB_ASSERT(some > 0);
    s->how.gather(s->how.ctx, s->own, bytes, s->all);
    for (uint32_t i = first; i < first + some; i++) {
      ZxRow row = row_of(&w[i]);
      for (uint32_t k = 0; k < s->how.parts; k++) {
        zx_found_begin(&s->found[k], &row);
        read_found(&s->found[k], s->all + k * bytes + at);
      }
      at += bytes_of(&s->found[0]);
      ZxChosen *c = &chosen[w[i].row];
      c->ok = go_on(s, &row, logits_of(s, logits, &w[i]), c, why) == ZX_CHOSEN;
    }
  }
}

void zx_shared_choose(ZxShared *s, const ZxWanted *w, uint32_t n, const float *logits, ZxChosen *chosen,
                      ZbErr *why) {
  if (s->how.parts > 1) {
    choose_together(s, w, n, logits, chosen, why);
    return;
  }
  for (uint32_t i = 0; i < n; i++) {
    ZxRow row = row_of(&w[i]);
    ZxChosen *c = &chosen[w[i].row];
    c->ok = zx_sample(s->sampler, &row, logits_of(s, logits, &w[i]), s->found, &c->choice, why);
  }
}
