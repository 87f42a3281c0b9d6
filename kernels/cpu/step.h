/* Shared by kernels of steps of generation: the sequence and position of each token. Private to kernels/cpu. */
#ifndef ZUG_KERNELS_STEP_H
#define ZUG_KERNELS_STEP_H

#include "kernels/cpu/cpu.h"

/* The tokens of a step: those of one sequence are neighbours, in order. */
typedef struct {
  const int32_t *sequence, *position;
  int64_t by_sequence, by_position; /* strides of tokens */
} ZkTokens;

static inline const int32_t *zk_ids(const ZkView *v) {
  ZB_ASSERT(v->elem == ZK_I32);
  return v->data;
}

/* Returns what a call's operands say of tokens; without positions, if they are NULL. */
static inline ZkTokens zk_tokens(const ZkView *sequence, const ZkView *position, uint16_t token) {
  ZkTokens t = {.sequence = zk_ids(sequence), .by_sequence = zk_axis_stride(sequence, token)};
  if (!position) return t;
  t.position = zk_ids(position);
  t.by_position = zk_axis_stride(position, token);
  return t;
}

/* Returns the sequence of a token; below 0: nobody's. */
static inline int64_t zk_sequence(const ZkTokens *t, int64_t token) {
  return t->sequence[token * t->by_sequence];
}
static inline int64_t zk_position(const ZkTokens *t, int64_t token) {
  return t->position[token * t->by_position];
}

/* Copies n elements, s and t apart; between different types it converts them. */
void zk_copy_run(const ZkView *to, int64_t at, int64_t s, const ZkView *from, int64_t off, int64_t t,
                 int64_t n);
/* Stores n times x. */
void zk_fill_run(const ZkView *to, int64_t at, int64_t s, float x, int64_t n);

#endif
