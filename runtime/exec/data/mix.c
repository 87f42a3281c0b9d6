/* Several files as one sequence of samples: by turns, and each file in its own order. */
#include "runtime/exec/data/data.h"
#include "runtime/exec/data/mix.h"

#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

struct ZxMix {
  ZbArena *a;
  const ZxShares *s;
  ZxTurns turns;
  ZxData **file;
};

/* ---- opening ---- */
/* One that is given twice, by whatever path, is a slip. */
static bool all_different(const ZxShares *s, ZbArena *a, ZbErr *err) {
  struct stat *st = ZB_NEWN(a, struct stat, s->n);
  for (uint32_t i = 0; i < s->n; i++) {
    if (stat(s->path[i], &st[i]) < 0) continue; /* to open it will say why */
    for (uint32_t j = 0; j < i; j++)
      if (st[i].st_ino && st[i].st_dev == st[j].st_dev && st[i].st_ino == st[j].st_ino)
        return zb_fail(err, "give it once, with the sum of its weights", "%s and %s are one file",
                       zb_show(s->path[j]), zb_show(s->path[i]));
  }
  return true;
}

static ZxMix *new_mix(ZbArena *a, const ZxShares *s) {
  ZxMix *m = ZB_NEW(a, ZxMix);
  m->a = a;
  m->s = s;
  m->turns = zx_turns(a, s->share, s->n, s->period);
  m->file = ZB_NEWN(a, ZxData *, s->n);
  return m;
}

ZxMix *zx_mix_open(const char *text, ZbErr *err) {
  ZbArena *a = zb_arena_new();
  const ZxShares *s = zx_shares(a, zb_strdup(a, text), err);
  if (!s || (s->n > 1 && !all_different(s, a, err))) return zb_arena_free(a), NULL;
  ZxMix *m = new_mix(a, s);
  for (uint32_t i = 0; i < s->n; i++) {
    m->file[i] = zx_data_open(s->path[i], err);
    if (m->file[i] && (!i || zx_data_alike(m->file[0], m->file[i], err))) continue;
    zx_mix_close(m);
    return NULL;
  }
  return m;
}

ZxMix *zx_mix_one(ZxData *d) {
  ZbArena *a = zb_arena_new();
  ZxShares *s = ZB_NEW(a, ZxShares);
  *s = (ZxShares){1, 1, ZB_NEW(a, const char *), ZB_NEW(a, uint32_t), false};
  s->path[0] = zx_data_name(d);
  s->share[0] = 1;
  ZxMix *m = new_mix(a, s);
  m->file[0] = d;
  return m;
}

void zx_mix_close(ZxMix *m) {
  if (!m) return;
  for (uint32_t i = 0; i < m->s->n; i++) zx_data_close(m->file[i]);
  zb_arena_free(m->a);
}

/* ---- what is in it ---- */
uint32_t zx_mix_files(const ZxMix *m) { return m->s->n; }
const ZxData *zx_mix_file(const ZxMix *m, uint32_t i) { return m->file[i]; }
const char *zx_mix_path(const ZxMix *m, uint32_t i) { return m->s->path[i]; }
uint32_t zx_mix_share(const ZxMix *m, uint32_t i) { return m->s->share[i]; }
uint32_t zx_mix_period(const ZxMix *m) { return m->s->period; }
bool zx_mix_rounded(const ZxMix *m) { return m->s->rounded; }

uint64_t zx_mix_digest(const ZxMix *m) {
  uint64_t sum = m->s->period;
  for (uint32_t i = 0; i < m->s->n; i++) {
    const ZxDataInfo *info = zx_data_info(m->file[i]);
    uint8_t *head = zb_alloc(m->a, info->data_at);
    zx_data_encode(info, head);
    uint64_t part[] = {sum, m->s->share[i], XXH3_64bits(head, info->data_at)};
    sum = XXH3_64bits(part, sizeof part);
    uint64_t with[] = {sum, info->begin_sum};
    if (info->documents) sum = XXH3_64bits(with, sizeof with);
  }
  return sum;
}

bool zx_mix_arrange(ZxMix *m, int64_t seq, bool apart, ZbErr *err) {
  for (uint32_t i = 0; i < m->s->n; i++)
    if (!zx_data_arrange(m->file[i], seq, apart, err)) return false;
  return true;
}

bool zx_mix_check_field(const ZxMix *m, const char *field, bool index, int64_t seq, ZbErr *err) {
  for (uint32_t i = 0; i < m->s->n; i++)
    if (!zx_data_check_field(m->file[i], field, index, seq, err)) return false;
  return true;
}

bool zx_mix_check_ids(const ZxMix *m, const char *field, int64_t limit, ZbErr *err) {
  for (uint32_t i = 0; i < m->s->n; i++)
    if (!zx_data_check_ids(m->file[i], field, limit, err)) return false;
  return true;
}

/* ---- samples ---- */
/* Files are shuffled apart from each other: two of equal length have nothing to do with each other. The
 * first is shuffled as a lone one. */
static uint64_t seed_of(uint64_t seed, uint32_t file) {
  return file ? zb_random_u64(seed, zb_stream("file of a mix"), file) : seed;
}

ZxSampler zx_mix_sampler(const ZxMix *m, ZxOrder order, uint64_t seed, int64_t seq, uint64_t g,
                         uint64_t *nth) {
  uint32_t file = zx_turn(&m->turns, g, nth);
  return (ZxSampler){m->file[file], order, seed_of(seed, file), seq};
}

uint64_t zx_mix_before(const ZxMix *m, uint32_t i, uint64_t g) { return zx_turns_before(&m->turns, i, g); }
