/* See alike.h. Each rank makes a digest of all that it holds in groups of a kind, and gathers those of all
 * ranks. Where they differ, ranks do so again for each part of each parameter. All ranks see the same
 * digests, so all go the same way. */
#include "runtime/exec/state/alike.h"
#include "runtime/exec/state/slices.h"
#include "runtime/exec/state/snapshot.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ITEMS = 32, HOST = 64 }; /* looked at together; bytes of a host's name */

struct ZxAlike {
  ZxEngine *e;
  ZpAlike *kind;
  uint32_t nkinds, slots;
  uint64_t *mine; /* slots of them, which the device can reach */
  uint64_t *all;  /* as many of each rank */
};

ZxAlike *zx_alike_open(ZxEngine *e, ZbErr *err) {
  ZxAlike *x = calloc(1, sizeof *x);
  if (!x) zb_out_of_memory(sizeof *x);
  *x = (ZxAlike){.e = e};
  x->kind = zp_alike(e->p, e->a, &x->nkinds);
  if (!x->nkinds) return x; /* on all ranks */
  x->slots = x->nkinds > ITEMS ? x->nkinds : ITEMS;
  x->all = ZB_NEWN(e->a, uint64_t, x->slots * (uint64_t)e->p->layout.mesh.nranks);
  x->mine = e->dev->pinned(e->env, x->slots * sizeof *x->mine, err);
  if (zx_agree(e->world, x->mine)) return x;
  zx_alike_close(x);
  return NULL;
}

bool zx_alike_any(const ZxAlike *x) { return x->nkinds; }

void zx_alike_close(ZxAlike *x) {
  if (x && x->mine) x->e->dev->unpin(x->e->env, x->mine);
  free(x);
}

/* ---- digests ---- */
/* Adds the digest of a part of elements from..to of a held bucket, which lie in its owned shard. */
static void add_part(ZxEngine *e, const ZpStageBucket *h, int part, uint64_t from, uint64_t to, uint64_t salt,
                     uint64_t *sum) {
  uint64_t own, end, n = to - from;
  zx_owned_shard(e, h, &own, &end);
  ZkFlat x = zk_flat_from(zx_part(e, h, part), from - own);
  e->dev->digest(e->env, x.at, zk_bytes(x.elem, n), salt, sum);
}

/* Gathers the first n slots of all ranks: x->all[rank * n + slot]. */
static void gather(ZxAlike *x, uint32_t n) {
  ZxEngine *e = x->e;
  ZbErr err = {0};
  if (!zx_finish(e, &err)) zx_die(e->world, "%s%s%s", err.text, *err.help ? "; " : "", err.help);
  e->world->t->wait(e->world, e->world->t->all_gather(e->world, 0, x->mine, n * sizeof *x->mine, x->all));
}

/* Gathers a digest of all that a rank holds in groups of each kind. */
static void gather_all(ZxAlike *x) {
  ZxEngine *e = x->e;
  memset(x->mine, 0, x->nkinds * sizeof *x->mine);
  for (uint32_t i = 0; i < e->st->nheld; i++) {
    const ZpStageBucket *h = &e->st->held[i];
    uint32_t kind = zp_alike_which(e->p, x->kind, x->nkinds, h);
    uint64_t from, to;
    int first, end = zp_held_parts(e->p, &e->p->programs.buckets[h->bucket], &first);
    if (kind == ZP_NONE) continue;
    zx_owned_shard(e, h, &from, &to);
    for (int part = first; part < end; part++)
      add_part(e, h, part, from, to, zb_mix64((uint64_t)h->bucket << 32 | h->iter) + (uint64_t)(part - first),
               &x->mine[kind]);
  }
  gather(x, x->nkinds);
}

/* ---- which ---- */
typedef struct {
  ZpOdd *odd; /* of each rank */
  char (*host)[HOST];
  ZbText tensors;
  uint32_t ntensors; /* that differ; the first few are in the text */
} Found;

enum { NAMED = 4 };

static void name_item(ZxEngine *e, const ZpAlikeItem *i, Found *f) {
  const char *path = zx_path(e, i->slice->param, i->held->iter);
  f->ntensors++;
  if (f->ntensors > NAMED) return;
  if (f->ntensors > 1) zb_text_add(&f->tensors, ", ");
  zb_text_add(&f->tensors, "%s", path);
  const ZpBucket *k = &e->p->programs.buckets[i->held->bucket];
  if (i->part == ZP_PART_ROUNDED)
    zb_text_add(&f->tensors, " (its %s values)", zk_elem_info[zp_part_elem(e->p, k, i->part)].text);
  if (i->part > 0) zb_text_add(&f->tensors, " (its %s)", zx_state_name(e->p, k, i->part));
}

/* Names what of `items`, gathered from number `from` on, differs on ranks of this stage. */
static void find_on(ZxAlike *x, uint32_t kind, uint32_t stage, uint32_t from, uint32_t n, Found *f) {
  ZxEngine *e = x->e;
  ZbArena *a = zb_arena_new();
  uint32_t items = zp_alike_items(e->p, stage, x->kind, x->nkinds, kind, NULL);
  ZpAlikeItem *item = ZB_NEWN(a, ZpAlikeItem, items + 1);
  zp_alike_items(e->p, stage, x->kind, x->nkinds, kind, item);
  for (uint32_t i = 0; i < n && from + i < items; i++) {
    ZpOdd *odd = ZB_NEWN(a, ZpOdd, e->p->layout.mesh.nranks);
    bool here = false;
    if (!zp_alike_odd(e->p, &x->kind[kind], x->all + i, n, odd)) continue;
    for (int64_t r = 0; r < e->p->layout.mesh.nranks; r++) {
      if (odd[r] > f->odd[r]) f->odd[r] = odd[r];
      here |= odd[r] && (e->p->layout.mesh.pipe < 0 ||
                         zp_coord(&e->p->layout.mesh, r, e->p->layout.mesh.pipe) == stage);
    }
    if (here) name_item(e, &item[from + i], f);
  }
  zb_arena_free(a);
}

/* Collective: finds what differs in groups of a kind. A tied parameter is the same item on each of its stages
 * and is named once. */
static void find(ZxAlike *x, uint32_t kind, Found *f) {
  ZxEngine *e = x->e;
  uint32_t most = 0, tied = x->kind[kind].tied;
  for (uint32_t s = 0; s < e->p->programs.nstages; s++) {
    uint32_t n = zp_alike_items(e->p, s, x->kind, x->nkinds, kind, NULL);
    if (n > most) most = n;
  }
  uint32_t items = zp_alike_items(e->p, e->stage, x->kind, x->nkinds, kind, NULL);
  ZpAlikeItem *item = ZB_NEWN(e->a, ZpAlikeItem, items + 1);
  zp_alike_items(e->p, e->stage, x->kind, x->nkinds, kind, item);
  for (uint32_t from = 0; from < most; from += ITEMS) {
    memset(x->mine, 0, ITEMS * sizeof *x->mine);
    for (uint32_t i = 0; i < ITEMS && from + i < items; i++) {
      const ZpAlikeItem *t = &item[from + i];
      uint64_t lo, hi;
      zx_owned_shard(e, t->held, &lo, &hi);
      if (lo < t->slice->at) lo = t->slice->at;
      if (hi > t->slice->at + t->slice->takes) hi = t->slice->at + t->slice->takes;
      if (lo < hi) add_part(e, t->held, t->part, lo, hi, 0, &x->mine[i]);
    }
    gather(x, ITEMS);
    for (uint32_t s = 0; s < e->p->programs.nstages; s++)
      if (tied == ZP_NONE || s == e->p->programs.tied[tied].stages[0]) find_on(x, kind, s, from, ITEMS, f);
  }
}

/* ---- what is said ---- */
static void gather_hosts(ZxAlike *x, Found *f) {
  ZxEngine *e = x->e;
  char host[HOST] = "";
  gethostname(host, sizeof host - 1);
  f->host = zb_alloc(e->a, (size_t)e->p->layout.mesh.nranks * sizeof *f->host);
  e->world->t->wait(e->world, e->world->t->all_gather(e->world, 0, host, sizeof host, f->host));
}

/* Says "ranks 1 (on n2) and 3 (on n4)", those of which this was found; returns how many there are. */
static int64_t say_ranks(const ZxEngine *e, const Found *f, ZpOdd what, ZbText *out) {
  enum { MOST = 8 };
  int64_t n = 0, at = 0;
  for (int64_t r = 0; r < e->p->layout.mesh.nranks; r++) n += f->odd[r] == what;
  zb_text_add(out, n > 1 ? "ranks " : "rank ");
  for (int64_t r = 0; r < e->p->layout.mesh.nranks && at < MOST; r++) {
    if (f->odd[r] != what) continue;
    const char *before = !at ? "" : at + 1 == n ? " and " : ", ";
    zb_text_add(out, "%s%" PRId64 " (on %s)", before, r, zb_show(f->host[r]));
    at++;
  }
  if (n > at) zb_text_add(out, " and %" PRId64 " more", n - at);
  return n;
}

static void say(const ZxEngine *e, int64_t step, const Found *f, ZbErr *err) {
  ZbText t = {0};
  int64_t wrong = 0, either = 0;
  for (int64_t r = 0; r < e->p->layout.mesh.nranks; r++) {
    wrong += f->odd[r] == ZP_ODD;
    either += f->odd[r] == ZP_ODD_OR_NOT;
  }
  zb_text_add(&t, "%s", f->ntensors ? f->tensors.s : "padding, or what memory says only once,");
  if (f->ntensors > NAMED) zb_text_add(&t, " and %u more", f->ntensors - NAMED);
  if (wrong) {
    zb_text_add(&t, " of ");
    say_ranks(e, f, ZP_ODD, &t);
    zb_text_add(&t, " differ%s from what most of the ranks hold that should hold the same",
                wrong > 1 || f->ntensors > 1 ? "" : "s");
  }
  if (either) {
    zb_text_add(&t, wrong ? "; that of " : " of ");
    say_ranks(e, f, ZP_ODD_OR_NOT, &t);
    zb_text_add(&t, " differ from each other, and which of them is right cannot be told");
  }
  zb_fail(err,
          "look at these machines' memory and GPUs for errors, or leave them out; where machines of several "
          "kinds round differently, --compare-every 0",
          "step %" PRId64 ": replicas do not hold the same any more: %s", step, t.s);
  zb_text_free(&t);
}

bool zx_alike(ZxAlike *x, int64_t step, ZbErr *err) {
  ZxEngine *e = x->e;
  bool any = false;
  if (!x->nkinds) return true;
  gather_all(x);
  for (uint32_t k = 0; k < x->nkinds; k++)
    any |= zp_alike_odd(e->p, &x->kind[k], x->all + k, x->nkinds, NULL);
  if (!any) return true;
  Found f = {.odd = ZB_NEWN(e->a, ZpOdd, e->p->layout.mesh.nranks)};
  ZpOdd *odd = ZB_NEWN(e->a, ZpOdd, e->p->layout.mesh.nranks); /* of all that ranks hold of a kind */
  bool *differs = ZB_NEWN(e->a, bool, x->nkinds);
  for (uint32_t k = 0; k < x->nkinds; k++)
    differs[k] = zp_alike_odd(e->p, &x->kind[k], x->all + k, x->nkinds, odd);
  gather_hosts(x, &f);
  for (uint32_t k = 0; k < x->nkinds; k++)
    if (differs[k]) find(x, k, &f);
  if (!f.ntensors) f.odd = odd;
  say(e, step, &f, err);
  zb_text_free(&f.tensors);
  return false;
}
