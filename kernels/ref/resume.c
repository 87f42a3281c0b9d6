/* What goes on along a sequence from step to step, and rows that ids name. */
#include "kernels/ref/ref.h"

/* y = a h + b, h that of the sequence's token before: of this step, or as an earlier one left it. */
void REF(resume_scan)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *a = &c->in[0], *b = &c->in[1], *h = &c->in[2], *of = &c->in[3], *position = &c->in[4];
  uint16_t token = c->ax[0], sequence = c->ax[1];
  RefIndex i = {0};
  RefAxes rest = ref_axes(&i, b, &token, 1);
  REF_EACH(&i, rest) {
    for (int64_t t = 0; t < ref_size(b, token); t++) {
      RefIndex at = ref_with(&i, token, t);
      int64_t id = ref_id(of, &at);
      if (id < 0) {
        ref_put(&c->out[0], &at, NUM_0);
        continue;
      }
      ref_move(&at, sequence, id);
      Num before = ref_id(position, &at) == 0 ? NUM_0 : ref_get(h, &at);
      Num now = num_add(num_mul(ref_get(a, &at), before), ref_get(b, &at));
      ref_put(&c->out[0], &at, now);
      ref_put(h, &at, now);
    }
  }
}

/* x of `ago` tokens before the one at i. */
static Num ago_of(const ZkCall *c, const RefIndex *i, int64_t ago) {
  const ZkView *x = &c->in[0], *r = &c->in[1], *of = &c->in[2], *position = &c->in[3];
  int64_t t = ref_at(i, c->ax[0]), sequence = ref_id(of, i), at = ref_id(position, i) - ago;
  if (sequence < 0 || at < 0) return num_of(sequence < 0 ? 0 : c->num[0]);
  RefIndex j = ref_with(i, c->ax[0], t - ago);
  if (t >= ago && ref_id(of, &j) == sequence) return ref_get(x, &j);
  j = ref_with(i, c->ax[1], sequence);
  ref_move(&j, c->ax[2], at % ref_size(r, c->ax[2]));
  return ref_get(r, &j);
}

void REF(recent)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *x = &c->in[0], *r = &c->in[1];
  int64_t taps = c->nax > 3 ? ref_size(&c->out[0], c->ax[3]) : 0, by = c->opt[0];
  RefIndex i = {0}, k = {0};
  RefAxes all = ref_axes(&i, &c->out[0], NULL, 0), each = ref_axes(&k, x, &c->ax[0], 1);
  for (int o = 0, b = 0; o < c->nout; o++, b++) {
    while (c->opt[1] && !(c->opt[1] >> b & 1)) b++;
    if (c->opt[1]) by = b;
    REF_EACH(&i, all) {
      int64_t ago = taps ? (taps - 1 - ref_at(&i, c->ax[3])) * by : by;
      ref_put(&c->out[o], &i, ago_of(c, &i, ago));
    }
  }
  REF_EACH(&k, each) { /* a later token of the sequence takes the place of an earlier one */
    for (int64_t t = 0; t < ref_size(x, c->ax[0]); t++) {
      RefIndex at = ref_with(&k, c->ax[0], t);
      int64_t sequence = ref_id(&c->in[2], &at), position = ref_id(&c->in[3], &at);
      if (sequence < 0) continue;
      ref_move(&at, c->ax[1], sequence);
      ref_move(&at, c->ax[2], position % ref_size(r, c->ax[2]));
      ref_put(r, &at, ref_get(x, &at));
    }
  }
}

/* y[to] = x[from = ids[to]] */
void REF(rows)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *x = &c->in[0], *ids = &c->in[1], *y = &c->out[0];
  RefIndex i = {0};
  RefAxes all = ref_axes(&i, y, NULL, 0);
  REF_EACH(&i, all) {
    int64_t id = ref_id(ids, &i);
    RefIndex j = ref_with(&i, c->ax[0], id < 0 ? 0 : id);
    ref_put(y, &i, id < 0 ? NUM_0 : ref_get(x, &j));
  }
}
