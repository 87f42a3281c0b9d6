/* Attention of the tokens of a step, each with the keys of its own sequence, which lie in pages. */
#include "kernels/attend.h"
#include "kernels/ref/ref.h"

/* A token's sequence and position; and where a position of that sequence lies. */
typedef struct {
  uint16_t token, sequence, entry, page, within;
  const ZkView *table, *of, *position; /* of: the sequence of each token */
  int64_t size;                        /* positions of a page */
} Pages;

static RefIndex lies_at(const Pages *p, const RefIndex *i, int64_t sequence, int64_t position) {
  RefIndex of = ref_with(i, p->sequence, sequence), j = *i;
  ref_move(&of, p->entry, position / p->size);
  int64_t page = ref_id(p->table, &of);
  ZB_ASSERT(page >= 0);
  ref_move(&j, p->page, page);
  ref_move(&j, p->within, position % p->size);
  return j;
}

void REF(put_pages)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *x = &c->in[0], *to = &c->out[0];
  Pages p = {c->ax[0], c->ax[1], c->ax[2], c->ax[3], c->ax[4], &c->in[2], &c->in[3], &c->in[4], 0};
  p.size = ref_size(to, p.within);
  ZB_ASSERT(to->data == c->in[1].data);
  RefIndex i = {0};
  RefAxes all = ref_axes(&i, x, NULL, 0);
  REF_EACH(&i, all) {
    int64_t sequence = ref_id(p.of, &i);
    if (sequence < 0) continue;
    RefIndex j = lies_at(&p, &i, sequence, ref_id(p.position, &i));
    ref_put(to, &j, ref_get(x, &i));
  }
}

/* The operands of attend_pages and attend_own; NULL: there is none. */
typedef struct {
  Pages p;
  uint16_t h, w, s; /* s: of a bias by positions; of attend_own, of keys */
  const ZkView *q, *k, *v, *bias, *docs_q, *docs_k, *sink, *length;
  Num scale, cap;
  bool capped;
  int64_t part, window;
} Attention;

/* Tells operands from `first` on apart; `key` is the axis that keys have. */
static void tell_more(Attention *a, const ZkCall *c, int first, uint16_t key) {
  for (int i = first; i < c->nin; i++) {
    const ZkView *x = &c->in[i];
    bool keys = ref_find(x->axis, x->rank, key) >= 0, tokens = ref_find(x->axis, x->rank, a->p.token) >= 0;
    if (x->elem == ZK_I32) *(keys ? &a->docs_k : tokens ? &a->docs_q : &a->length) = x;
    else *(keys || ref_find(x->axis, x->rank, a->s) >= 0 ? &a->bias : &a->sink) = x;
  }
}

static Attention attention(const ZkCall *c) {
  bool pages = c->op == ZG_OP_ATTEND_PAGES;
  Attention a = {.h = c->ax[1],
                 .w = c->ax[2],
                 .s = c->ax[pages ? 7 : 4],
                 .q = &c->in[0],
                 .k = &c->in[1],
                 .v = &c->in[2],
                 .scale = num_of(c->num[0]),
                 .cap = num_of(c->num[1]),
                 .capped = c->num[1] > 0,
                 .part = c->opt[0],
                 .window = c->opt[1]};
  if (pages) {
    a.p = (Pages){c->ax[0], c->ax[3], c->ax[4], c->ax[5], c->ax[6], &c->in[3], &c->in[4], &c->in[5], 0};
    a.p.size = ref_size(a.k, a.p.within);
    tell_more(&a, c, 6, a.p.page);
  } else {
    a.p = (Pages){.token = c->ax[0], .sequence = c->ax[3], .of = &c->in[3]};
    tell_more(&a, c, 4, a.s);
  }
  return a;
}

/* Says whether the token at i sees the key at j; documents of queries are their keys', where these have
 * some. */
static bool same_document(const Attention *a, const RefIndex *i, const RefIndex *j) {
  if (!a->docs_k) return true;
  int64_t doc = ref_id(a->docs_k, j);
  return doc >= 0 && (!a->docs_q || ref_id(a->docs_q, i) == doc);
}

static Num score(const Attention *a, const RefIndex *i, const RefIndex *j) {
  Num sum = NUM_0;
  RefIndex ie = *i, je = *j;
  for (int64_t e = 0; e < ref_size(a->q, a->h); e++) {
    ref_move(&ie, a->h, e), ref_move(&je, a->h, e);
    sum = num_add(sum, num_mul(ref_get(a->q, &ie), ref_get(a->k, &je)));
  }
  sum = num_mul(a->scale, sum);
  if (a->capped) sum = num_mul(a->cap, num_tanh(num_div(sum, a->cap)));
  return a->bias ? num_add(sum, ref_get(a->bias, j)) : sum;
}

/* Value number e of the key at j: a part of the key, where it has none of its own. */
static Num value_at(const Attention *a, const RefIndex *j, int64_t e) {
  bool own = ref_find(a->v->axis, a->v->rank, a->w) >= 0;
  RefIndex at = ref_with(j, own ? a->w : a->h, own ? e : a->part + e);
  return ref_get(a->v, &at);
}

/* Keys [from, to) of the token at i, which is of `sequence`. */
typedef struct {
  int64_t sequence, from, to;
} Keys;

static Keys keys_of(const Attention *a, const RefIndex *i) {
  Keys k = {.sequence = ref_id(a->p.of, i)};
  if (k.sequence < 0) return k;
  if (!a->p.table) {
    RefIndex of = ref_with(i, a->p.sequence, k.sequence);
    k.to = a->length ? ref_id(a->length, &of) : ref_size(a->k, a->s);
    return k;
  }
  int64_t last = ref_id(a->p.position, i);
  k.from = a->window > 0 && last >= a->window ? last - a->window + 1 : 0;
  k.to = last + 1;
  return k;
}

static RefIndex key_at(const Attention *a, const RefIndex *i, int64_t sequence, int64_t key) {
  RefIndex j = a->p.table ? lies_at(&a->p, i, sequence, key) : ref_with(i, a->p.sequence, sequence);
  ref_move(&j, a->s, key);
  return j;
}

static void attend(const ZkCall *c) {
  Attention a = attention(c);
  const ZkView *o = &c->out[0];
  RefIndex i = {0};
  RefAxes rows = ref_axes(&i, a.q, &a.h, 1), wide = ref_only(&i, o, &a.w, 1);
  REF_EACH(&i, rows) {
    Keys keys = keys_of(&a, &i);
    Num before = a.sink ? ref_get(a.sink, &i) : num_of(ZK_ATTEND_LOW), peak = before, sum = NUM_0;
    REF_EACH(&i, wide) ref_put(o, &i, NUM_0);
    for (int64_t key = keys.from; key < keys.to; key++) {
      RefIndex j = key_at(&a, &i, keys.sequence, key);
      if (same_document(&a, &i, &j)) peak = num_max(peak, score(&a, &i, &j));
    }
    if (a.sink) sum = num_exp(num_sub(before, peak));
    for (int64_t key = keys.from; key < keys.to; key++) {
      RefIndex j = key_at(&a, &i, keys.sequence, key);
      if (!same_document(&a, &i, &j)) continue;
      Num weight = num_exp(num_sub(score(&a, &i, &j), peak));
      sum = num_add(sum, weight);
      REF_EACH(&i, wide) ref_add(o, &i, num_mul(weight, value_at(&a, &j, ref_at(&i, a.w))));
    }
    if (num_equal(sum, NUM_0)) sum = NUM_1; /* a query that sees nothing */
    REF_EACH(&i, wide) ref_put(o, &i, num_div(ref_get(o, &i), sum));
  }
}

void REF(attend_pages)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  attend(c);
}

void REF(attend_own)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  attend(c);
}
