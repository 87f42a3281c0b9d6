/* Which tokens may come in a state: trees of tokens are gone through beside the automaton. What was found is
 * remembered: a list of ids, behind which, inside of a string, stand all tokens of plain text. */
#include "runtime/exec/shape/grammar.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { SHAPE_BYTES = 16 << 20 /* from there on a shape forgets its states and masks */ };
typedef struct {
  uint32_t *id, n;
  uint64_t *bits; /* in place of ids, where they are many */
  bool known, in_text;
} Mask;
struct ZxShape {
  ZxShapes *of;
  ZxShape *next; /* the one that was wanted before it */
  atomic_uint owners;
  char *schema;
  size_t n;
  bool strict;
  ZbArena *a;
  ZxGrammar g;
  ZxAutomaton *m;
  Mask *mask; /* by state */
  uint32_t nmasks;
  size_t bytes; /* of masks */
  uint64_t era;
};
struct ZxShapes {
  const ZtTokenizer *t;
  uint32_t vocabulary;
  pthread_mutex_t lock; /* of all that follows, but for the last three */
  ZxVocabulary *v;
  ZxShape *first;         /* the latest */
  uint64_t *bits;         /* of the latest mask */
  uint32_t *found, *path; /* ids; states by depth */
};

/* ---- schemas ---- */
ZxShapes *zx_shapes_new(const ZtTokenizer *t, uint32_t vocabulary) {
  ZxShapes *x = calloc(1, sizeof *x);
  if (!x) zb_out_of_memory(sizeof *x);
  x->t = t;
  x->vocabulary = vocabulary;
  pthread_mutex_init(&x->lock, NULL);
  return x;
}

static void forget_masks(ZxShape *s) {
  for (uint32_t i = 0; i < s->nmasks; i++) {
    free(s->mask[i].id);
    free(s->mask[i].bits);
  }
  free(s->mask);
  s->mask = NULL;
  s->nmasks = 0;
  s->bytes = 0;
}

void zx_shape_release(ZxShape *s) {
  if (!s || atomic_fetch_sub(&s->owners, 1) > 1) return;
  forget_masks(s);
  zx_automaton_free(s->m);
  zb_arena_free(s->a);
  free(s->schema);
  free(s);
}

ZxShape *zx_shape_keep(ZxShape *s) {
  if (s) atomic_fetch_add(&s->owners, 1);
  return s;
}

void zx_shapes_free(ZxShapes *x) {
  if (!x) return;
  for (ZxShape *s = x->first, *next; s; s = next) {
    next = s->next;
    zx_shape_release(s);
  }
  if (x->v) zb_arena_free(x->v->a);
  pthread_mutex_destroy(&x->lock);
  free(x);
}

static bool open_vocabulary(ZxShapes *x, ZbErr *err) {
  if (x->v) return true;
  x->v = zx_vocabulary_new(x->t, x->vocabulary, err);
  if (!x->v) return false;
  x->bits = ZB_NEWN(x->v->a, uint64_t, x->v->words);
  x->found = ZB_NEWN(x->v->a, uint32_t, x->vocabulary);
  x->path = ZB_NEWN(x->v->a, uint32_t, x->v->longest + 2);
  return true;
}

static ZxShape *make(ZxShapes *x, const char *schema, size_t n, bool strict, ZbErr *err) {
  ZxShape *s = calloc(1, sizeof *s);
  if (!s) zb_out_of_memory(sizeof *s);
  *s = (ZxShape){.of = x, .n = n, .strict = strict, .a = zb_arena_new(), .era = 1};
  atomic_init(&s->owners, 1);
  s->schema = schema ? malloc(n + 1) : NULL;
  if (schema && !s->schema) zb_out_of_memory(n);
  if (schema) memcpy(s->schema, schema, n);
  zx_grammar_init(&s->g, s->a);
  if (zx_schema_read(&s->g, schema, n, strict, err) && zx_vocabulary_writes(x->v, s->g.needs, err)) {
    s->m = zx_automaton_new(&s->g, x->v->longest);
    return s;
  }
  zx_shape_release(s);
  return NULL;
}

/* Takes the shape that was wanted before out of the line; NULL: there is none. */
static ZxShape *take_known(ZxShapes *x, const char *schema, size_t n, bool strict) {
  for (ZxShape **at = &x->first, *s; (s = *at); at = &s->next) {
    if (!s->schema != !schema || s->strict != strict || s->n != n || (n && memcmp(s->schema, schema, n)))
      continue;
    *at = s->next;
    return s;
  }
  return NULL;
}

/* Lets go of those that were not wanted for longest. */
static void let_go(ZxShapes *x) {
  ZxShape **at = &x->first;
  for (int i = 0; i < ZX_SHAPES_KEPT && *at; i++) at = &(*at)->next;
  for (ZxShape *s = *at, *next; s; s = next) {
    next = s->next;
    zx_shape_release(s);
  }
  *at = NULL;
}

ZxShape *zx_shapes_get(ZxShapes *x, const char *schema, size_t n, bool strict, ZbErr *err) {
  if (!schema) n = 0;
  pthread_mutex_lock(&x->lock);
  ZxShape *s = open_vocabulary(x, err) ? take_known(x, schema, n, strict) : NULL;
  if (!s && x->v) s = make(x, schema, n, strict, err);
  if (s) {
    s->next = x->first;
    x->first = s;
    let_go(x);
    zx_shape_keep(s);
  }
  pthread_mutex_unlock(&x->lock);
  return s;
}

/* ---- answers ---- */
/* Forgets states once they are many, but for the one where an answer is; others are found again. */
static void keep_small(ZxShape *s, ZxShaped *at) {
  if (zx_automaton_bytes(s->m) + s->bytes < SHAPE_BYTES) return;
  forget_masks(s);
  at->state = zx_automaton_forget(s->m, at->state);
  at->era = ++s->era;
}

bool zx_shape_follow(ZxShape *s, ZxShaped *at, const uint32_t *id, uint32_t n) {
  const ZxVocabulary *v = s->of->v;
  if (at->era != s->era || at->n > n || at->state == ZX_NOWHERE) *at = (ZxShaped){s->era, ZX_BEGINNING, 0};
  for (; at->n < n; at->n++) {
    uint32_t t = id[at->n], k = 0;
    keep_small(s, at);
    if (t >= v->vocabulary || !v->text[t]) return false;
    for (; k < v->length[t]; k++)
      if (!(at->state = zx_automaton_next(s->m, at->state, (uint8_t)v->text[t][k]))) return false;
  }
  return true;
}

bool zx_shape_whole(const ZxShape *s, const ZxShaped *at) { return zx_automaton_must_end(s->m, at->state); }

/* Adds the tokens of a tree that go on from a state to x->found, and returns how many there are then. */
static uint32_t find(ZxShape *s, const ZxTrie *t, uint32_t state, uint32_t n) {
  const ZxVocabulary *v = s->of->v;
  uint32_t *path = s->of->path, *found = s->of->found;
  path[0] = state;
  for (uint32_t i = 0; i < t->nodes;) {
    uint32_t depth = t->depth[i], to = zx_automaton_next(s->m, path[depth], t->byte[i]);
    if (to == ZX_NOWHERE) {
      i = t->past[i];
      continue;
    }
    path[depth + 1] = to;
    for (uint32_t id = t->id[i++]; id != ZT_NONE; id = v->same[id]) found[n++] = id;
  }
  return n;
}

static void set(uint64_t *bits, uint32_t id) { bits[id / 64] |= 1ull << id % 64; }

static void fill(ZxShape *s, Mask *k, uint32_t state) {
  const ZxVocabulary *v = s->of->v;
  k->known = true;
  k->in_text = zx_automaton_in_text(s->m, state);
  uint32_t n = find(s, &v->other, state, 0);
  if (!k->in_text) n = find(s, &v->plain, state, n);
  bool many = n > 2 * v->words;
  size_t bytes = many ? v->words * sizeof *k->bits : n * sizeof *k->id;
  void *p = calloc(1, bytes + 1);
  if (!p) zb_out_of_memory(bytes);
  s->bytes += bytes;
  if (many) k->bits = p;
  else k->id = memcpy(p, s->of->found, bytes);
  k->n = many ? 0 : n;
  for (uint32_t i = 0; i < n && many; i++) set(k->bits, s->of->found[i]);
}

/* Returns the mask of a state, in which many have theirs. */
static const Mask *mask_of(ZxShape *s, uint32_t state) {
  state = zx_automaton_alike(s->m, state);
  if (state >= s->nmasks) {
    uint32_t n = s->nmasks ? s->nmasks : 64;
    while (n <= state) n *= 2;
    s->mask = realloc(s->mask, n * sizeof *s->mask);
    if (!s->mask) zb_out_of_memory(n * sizeof *s->mask);
    memset(s->mask + s->nmasks, 0, (n - s->nmasks) * sizeof *s->mask);
    s->bytes += (n - s->nmasks) * sizeof *s->mask;
    s->nmasks = n;
  }
  if (!s->mask[state].known) fill(s, &s->mask[state], state);
  return &s->mask[state];
}

const uint64_t *zx_shape_mask(ZxShape *s, const ZxShaped *at, const uint32_t *end, uint32_t nend) {
  const ZxVocabulary *v = s->of->v;
  uint64_t *bits = s->of->bits;
  ZB_ASSERT(at->era == s->era);
  const Mask *k = mask_of(s, at->state);
  const uint64_t *from = k->in_text ? v->plain_bits : k->bits;
  if (from) memcpy(bits, from, v->words * sizeof *bits);
  else memset(bits, 0, v->words * sizeof *bits);
  for (uint32_t i = 0; i < v->words && k->in_text && k->bits; i++) bits[i] |= k->bits[i];
  for (uint32_t i = 0; i < k->n; i++) set(bits, k->id[i]);
  bool may_end = zx_automaton_may_end(s->m, at->state);
  for (uint32_t i = 0; i < nend && may_end; i++)
    if (end[i] < v->vocabulary) set(bits, end[i]);
  return bits;
}
