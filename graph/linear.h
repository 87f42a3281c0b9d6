/* linear: what `linear_attend` and its gradient say by their attributes, for every room, also for those that
 * know no graphs. OPS.md has the formulas. */
#ifndef ZUG_LINEAR_H
#define ZUG_LINEAR_H

#include <stdint.h>

#include "graph/ops.h"

/* Which operands there are besides q, k and v, in this order: bits of opt[0]. */
#define ZG_LINEAR_DECAY 1 /* g */
#define ZG_LINEAR_FEED 2  /* a */
#define ZG_LINEAR_PAIR 4  /* k2, v2 */

/* The bit of an operand, counted as if all were there: q, k, v, g, a, k2, v2. 0: it always is. */
static inline int zg_linear_bit(int operand) {
  return operand < 3 ? 0 : operand == 3 ? ZG_LINEAR_DECAY : operand == 4 ? ZG_LINEAR_FEED : ZG_LINEAR_PAIR;
}

static inline bool zg_is_linear_attend(int op) {
  return op == ZG_OP_LINEAR_ATTEND || op == ZG_OP_LINEAR_ATTEND_GRAD;
}
static inline int zg_linear_operands(int64_t more) {
  return 3 + (more & ZG_LINEAR_DECAY ? 1 : 0) + (more & ZG_LINEAR_FEED ? 1 : 0) +
         (more & ZG_LINEAR_PAIR ? 2 : 0);
}

static inline bool zg_outs_vary(int op) { return op == ZG_OP_LINEAR_ATTEND_GRAD || op == ZG_OP_RECENT; }
/* How many results an operation with these integers has: the gradient one for each operand, RECENT one for
 * each of several distances. */
static inline int zg_outs(int op, const int64_t *opt) {
  if (op == ZG_OP_RECENT) return opt[1] ? __builtin_popcountll((unsigned long long)opt[1]) : 1;
  return zg_outs_vary(op) ? zg_linear_operands(opt[0] & 7) : zg_op_info[op].nout;
}

/* Tokens of a chunk, within which tokens meet by products: the longer, the fewer states, and the more
 * products of pairs. With a feedback each chunk is a triangular system, whose solution wants it short. */
static inline int64_t zg_linear_chunk(int64_t more, int64_t tokens) {
  int64_t chunk = more & ZG_LINEAR_FEED ? 64 : 128;
  return tokens < chunk ? tokens : chunk;
}

/* FLOPs of the products of forward, a row and token: the state read and written, and pairs of a chunk, of
 * which the mask leaves half. */
static inline double zg_linear_flops(int64_t more, double chunk, double k, double v) {
  double pairs = more & ZG_LINEAR_PAIR ? 2 : 1, reads = more & ZG_LINEAR_FEED ? 2 : 1;
  return 2 * k * v * (reads + pairs) + chunk * (k + v) * reads * pairs;
}

#endif
