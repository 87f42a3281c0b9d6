/* Rows of experts: dispatch, combine, and what makes their rows' numbers. */
#include "base/base.h"
#include "kernels/ref/ref.h"

/* Rows of an expert are those of its ids, in the order of tokens, then of choices. */
void REF(slots)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *e = &c->in[0], *place = &c->out[0], *ends = &c->out[1];
  RefIndex i = {0};
  RefAxes tokens = ref_axes(&i, e, &c->ax[2], 1), choices = ref_only(&i, e, &c->ax[2], 1);
  int64_t row = 0;
  REF_EACH(&i, tokens) { REF_EACH(&i, choices) ref_put(place, &i, num_of_int(-1)); }
  for (int64_t expert = 0; expert < ref_size(ends, c->ax[0]); expert++) {
    REF_EACH(&i, tokens) {
      REF_EACH(&i, choices) {
        if (ref_id(e, &i) == expert) ref_put(place, &i, num_of_int(row++));
      }
    }
    RefIndex at = ref_with(&i, c->ax[0], expert);
    ref_put(ends, &at, num_of_int(row));
  }
}

void REF(round)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  int64_t rows = c->opt[1], first = c->opt[0] * rows;
  RefIndex i = {0};
  RefAxes all = ref_axes(&i, &c->in[0], NULL, 0);
  REF_EACH(&i, all) {
    int64_t end = ref_id(&c->in[0], &i) - first;
    ref_put(&c->out[0], &i, num_of_int(end < 0 ? 0 : end > rows ? rows : end));
  }
}

/* The index of rows that have this place; false: another round has it. */
static bool at_row(const ZkCall *c, const ZkView *rows, RefIndex *i) {
  int64_t slots = ref_size(rows, c->ax[1]), experts = ref_size(rows, c->ax[0]);
  int64_t place = ref_id(&c->in[1], i), row = place - c->opt[1];
  if (place < 0 || row < 0 || row >= slots * experts) return false;
  ref_move(i, c->ax[0], row / slots);
  ref_move(i, c->ax[1], row % slots);
  return true;
}

void REF(dispatch)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *x = &c->in[0], *y = &c->out[0];
  ref_zero(y);
  RefIndex i = {0};
  RefAxes all = ref_axes(&i, x, NULL, 0), more = ref_axes(&i, &c->in[1], NULL, 0);
  REF_EACH(&i, all) {
    REF_EACH(&i, more) {
      RefIndex j = i;
      if (at_row(c, y, &j)) ref_put(y, &j, ref_get(x, &i));
    }
  }
}

void REF(combine)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *y = &c->in[0], *x = &c->out[0];
  if (!c->accumulate) ref_zero(x);
  RefIndex i = {0};
  RefAxes ids = ref_axes(&i, &c->in[1], NULL, 0), rest = ref_axes(&i, y, c->ax, 2);
  REF_EACH(&i, ids) {
    REF_EACH(&i, rest) {
      RefIndex j = i;
      if (at_row(c, y, &j)) ref_add(x, &i, ref_get(y, &j));
    }
  }
}
