/* Lists of facts, compared on all ranks: first a digest of the whole; only where that differs are rank 0's
 * list and the differences from it sent around. */
#include "runtime/exec/comm/same.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum {
  TOLD_GROUPS = 4, /* of ranks that differ alike */
  TOLD_FACTS = 4,  /* of one kind, of one group */
  SHOWN = 60       /* bytes of a value */
};

static const struct {
  const char *one, *many;
} kinds[] = {[ZX_BUILD] = {"runs another build", "run another build"},
             [ZX_OPTIONS] = {"was given other options", "were given other options"},
             [ZX_GRAPH] = {"was given another stage graph", "were given another stage graph"},
             [ZX_RECIPE] = {"was given another recipe", "were given another recipe"},
             [ZX_CLUSTER] = {"was given another cluster", "were given another cluster"},
             [ZX_DATA] = {"was given other data", "were given other data"},
             [ZX_EVAL_DATA] = {"was given other held-out data", "were given other held-out data"},
             [ZX_INIT] = {"was given other initial weights", "were given other initial weights"},
             [ZX_PLAN] = {"made another plan", "made another plan"},
             [ZX_MEANS] = {"computes by other means", "compute by other means"}};
enum { KINDS = sizeof kinds / sizeof *kinds };

void zx_fact(ZxFacts *f, ZxFactKind kind, const char *name, const char *fmt, ...) {
  char text[1024];
  va_list ap;
  va_start(ap, fmt);
  int n = vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  char *value = zb_strdup(f->a, text);
  if (n >= (int)sizeof text) { /* the end is compared, if not shown */
    value = zb_alloc(f->a, (size_t)n + 1);
    va_start(ap, fmt);
    vsnprintf(value, (size_t)n + 1, fmt, ap);
    va_end(ap);
  }
  ZB_PUSH(f->a, f->fact, f->n, ((ZxFact){kind, zb_strdup(f->a, name), value}));
}

/* ---- lists as bytes: kind, name NUL, texts each with their NUL ---- */
static void put(ZbText *t, ZxFactKind kind, const char *name) {
  char k = (char)kind;
  zb_text_put(t, &k, 1);
  zb_text_put(t, name, strlen(name) + 1);
}
static void put_text(ZbText *t, const char *s) { zb_text_put(t, s, strlen(s) + 1); }

static void encode(const ZxFacts *f, ZbText *t) {
  for (uint32_t i = 0; i < f->n; i++) {
    put(t, f->fact[i].kind, f->fact[i].name);
    put_text(t, f->fact[i].value);
  }
}

static const char *next_text(const char **p) {
  const char *s = *p;
  *p += strlen(s) + 1;
  return s;
}

static ZxFacts decode(ZbArena *a, const ZbText *t) {
  ZxFacts f = {.a = a};
  for (const char *p = t->s, *end = p + t->len; p < end;) {
    ZxFact x = {.kind = (ZxFactKind)*p++};
    x.name = next_text(&p);
    x.value = next_text(&p);
    ZB_PUSH(a, f.fact, f.n, x);
  }
  return f;
}

/* ---- exchange ---- */
static bool alike(ZxComm *c, uint64_t digest) {
  double x[4] = {(double)(digest >> 32), 0, (double)(digest & 0xffffffff),
                 0};          /* 32 bits each, exact in a double; ... */
  x[1] = -x[0], x[3] = -x[2]; /* ... the negative gives the minimum */
  c->t->wait(c, c->t->all_reduce(c, 0, x, 4, ZK_F64, ZX_MAX));
  return x[0] == -x[1] && x[2] == -x[3];
}

/* `t` of rank `root` to all. */
static void share(ZxComm *c, ZbText *t, int root) {
  uint64_t n = t->len;
  c->t->wait(c, c->t->broadcast(c, 0, &n, sizeof n, root));
  if (c->t->rank(c) != root) {
    char zero[256] = {0};
    for (t->len = 0; t->len < n;) zb_text_put(t, zero, n - t->len < sizeof zero ? n - t->len : sizeof zero);
  }
  if (n) c->t->wait(c, c->t->broadcast(c, 0, t->s, n, root));
}

/* ---- differences ---- */
static const ZxFact *find(const ZxFacts *f, const ZxFact *like, uint32_t hint) {
  for (uint32_t k = 0; k < f->n; k++) {
    const ZxFact *x = &f->fact[(hint + k) % f->n];
    if (x->kind == like->kind && !strcmp(x->name, like->name)) return x;
  }
  return NULL;
}

/* What `mine` has otherwise than `first`, rank 0's: kind, name, mine, first's. */
static void differences(const ZxFacts *mine, const ZxFacts *first, ZbText *out) {
  for (uint32_t i = 0; i < mine->n; i++) {
    const ZxFact *x = &mine->fact[i], *y = find(first, x, i);
    if (y && !strcmp(x->value, y->value)) continue;
    put(out, x->kind, x->name);
    put_text(out, x->value);
    put_text(out, y ? y->value : "none");
  }
  for (uint32_t i = 0; i < first->n; i++) {
    const ZxFact *y = &first->fact[i];
    if (find(mine, y, i)) continue;
    put(out, y->kind, y->name);
    put_text(out, "none");
    put_text(out, y->value);
  }
}

/* As much of a value as shows where it differs from another one. */
static void show(const char *s, const char *other, ZbText *out) {
  size_t n = strlen(s), same = 0, from = 0;
  while (s[same] && s[same] == other[same]) same++;
  if (n > SHOWN && same > SHOWN / 2) from = same - SHOWN / 4;
  zb_text_add(out, "%s%s%s", from ? "..." : "", zb_show_n(s + from, n - from > SHOWN ? SHOWN : n - from),
              n - from > SHOWN ? "..." : "");
}

/* Lines of one group of ranks, a line for each kind of difference. */
static void tell(const ZbText *diffs, const int *rank, int n, ZbText *out) {
  uint32_t count[KINDS] = {0};
  bool open = false;
  for (int kind = 0; kind < KINDS; kind++) {
    for (const char *p = diffs->s, *end = p + diffs->len; p < end;) {
      int k = *p++;
      const char *name = next_text(&p), *mine = next_text(&p), *first = next_text(&p);
      if (k != kind || count[kind]++ >= TOLD_FACTS) continue;
      if (count[kind] == 1) {
        zb_text_add(out, "rank%s ", n > 1 ? "s" : "");
        zb_text_ranges(out, rank, n);
        zb_text_add(out, " %s: ", n > 1 ? kinds[kind].many : kinds[kind].one);
      }
      zb_text_add(out, "%s%s ", count[kind] > 1 ? "; " : "", name);
      show(mine, first, out);
      zb_text_add(out, " where rank 0 has ");
      show(first, mine, out);
      open = true;
    }
    if (count[kind] > TOLD_FACTS) zb_text_add(out, "; and %u more", count[kind] - TOLD_FACTS);
    if (open) zb_text_add(out, "\n");
    open = false;
  }
}

/* Ranks that differ from rank 0 alike are one group, and its lowest rank sends what it is. */
static void tell_groups(ZxComm *c, ZbArena *a, ZbText *mine, ZbText *out) {
  int size = c->t->size(c), me = c->t->rank(c), told = 0, left = 0;
  uint64_t *digest = ZB_NEWN(a, uint64_t, size), own = mine->len ? XXH3_64bits(mine->s, mine->len) | 1 : 0;
  int *rank = ZB_NEWN(a, int, size);
  c->t->wait(c, c->t->all_gather(c, 0, &own, sizeof own, digest));
  for (int r = 1; r < size; r++) {
    uint64_t group = digest[r];
    int n = 0;
    for (int k = r; k < size && group; k++)
      if (digest[k] == group) rank[n++] = k, digest[k] = 0;
    if (!n) continue;
    if (told++ >= TOLD_GROUPS) {
      left += n;
      continue;
    }
    ZbText diffs = {0};
    if (me == r) zb_text_put(&diffs, mine->s, mine->len);
    share(c, &diffs, r);
    if (me == 0) tell(&diffs, rank, n, out);
    zb_text_free(&diffs);
  }
  if (left && me == 0)
    zb_text_add(out, "%d more rank%s from rank 0 in other ways\n", left, left > 1 ? "s differ" : " differs");
}

bool zx_same(ZxComm *c, const ZxFacts *f, ZbText *out) {
  ZbText first = {0}, mine = {0};
  encode(f, &first);
  bool same = alike(c, first.len ? XXH3_64bits(first.s, first.len) : 0);
  if (!same) {
    ZbArena *a = zb_arena_new();
    share(c, &first, 0);
    ZxFacts theirs = decode(a, &first);
    differences(f, &theirs, &mine);
    tell_groups(c, a, &mine, out);
    zb_arena_free(a);
  }
  zb_text_free(&mine);
  zb_text_free(&first);
  return same;
}

bool zx_same_or_say(ZxComm *c, const ZxFacts *f) {
  ZbText t = {0};
  bool same = zx_same(c, f, &t);
  char *rest = NULL, *line = t.s ? strtok_r(t.s, "\n", &rest) : NULL;
  for (; line; line = strtok_r(NULL, "\n", &rest)) fprintf(stderr, "zrun: error: %s\n", line);
  if (t.s) fprintf(stderr, "  help: start all ranks with the same program, options, files and environment\n");
  zb_text_free(&t);
  return same;
}
