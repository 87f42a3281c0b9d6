/* conv: what `conv`, its transpose and its gradient say by their axis arguments and attributes, for every
 * room, also for those that know no graphs. All three are about tensors x, w and y,
 *
 *   y[o, ..] = sum over k, .. of x[r = o stride + k dilate - before, ..] w[k, ..]
 *
 * where x is zero outside, of which they have two as operands and make the third. */
#ifndef ZUG_CONV_H
#define ZUG_CONV_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/ops.h"

#define ZG_CONV_DIMS 3 /* spatial axes; each has three axis arguments */

typedef enum { ZG_CONV_X, ZG_CONV_W, ZG_CONV_Y } ZgConvTensor;

static inline bool zg_is_conv(int op) {
  return op == ZG_OP_CONV || op == ZG_OP_CONV_TRANSPOSE || op == ZG_OP_CONV_GRAD;
}
/* Which of them operand 0, operand 1 and the result (2) are. */
static inline ZgConvTensor zg_conv_tensor(int op, int i) {
  static const uint8_t which[3][3] = {{ZG_CONV_X, ZG_CONV_W, ZG_CONV_Y},
                                      {ZG_CONV_Y, ZG_CONV_W, ZG_CONV_X},
                                      {ZG_CONV_X, ZG_CONV_Y, ZG_CONV_W}};
  return (ZgConvTensor)which[op == ZG_OP_CONV ? 0 : op == ZG_OP_CONV_TRANSPOSE ? 1 : 2][i];
}
/* What spatial axis d is called in x, w and y: axis arguments 3 d, 3 d + 1, 3 d + 2. The first and the third
 * may be the same, where y is as long as x. */
static inline uint16_t zg_conv_axis(const uint16_t *ax, int d, ZgConvTensor t) { return ax[3 * d + (int)t]; }

/* opt[1]: so many zeros before x and after it; or as many as a window is longer than 1, half of them before
 * (fewer, if they are odd), or all of them before. */
#define ZG_CONV_SAME (-1)
#define ZG_CONV_CAUSAL (-2)
#define ZG_CONV_MOST 65535 /* stride, dilation and zeros */

static inline int64_t zg_conv_before(int64_t pad, int64_t window, int64_t dilate) {
  int64_t more = (window - 1) * dilate;
  return pad >= 0 ? pad : pad == ZG_CONV_SAME ? more / 2 : more;
}
/* The size of y, of which the last window ends within the zeros after x; 0: x is too short. */
static inline int64_t zg_conv_size(int64_t size, int64_t window, int64_t stride, int64_t dilate,
                                   int64_t pad) {
  int64_t more = (window - 1) * dilate, room = size + (pad >= 0 ? 2 * pad : more) - more - 1;
  return room < 0 ? 0 : room / stride + 1;
}

#endif
