/* Attention over whole tiles, which is what goes to cuDNN (kernels/cuda/attend_cudnn.c); the cases of the
 * CPU's kernels are all of other lengths. Heads alone and shared by groups of queries, of the sizes that its
 * kernels come in, and another. */
#include "tests/unit/kernels/attend.h"

static const AttendShape shapes[] = {
    {"b=2 s=128 h=3 d=64", "bshd", "bshd", 0.1},
    {"b=1 s=256 k=2 g=2 d=128", "bskgd", "bskd", 0.06},
    {"b=2 s=128 h=2 d=40", "bhsd", "bhsd", 0.15},
};
#define SHAPES (sizeof shapes / sizeof *shapes)

Test(attend_tiles, forward) {
  for (size_t i = 0; i < SHAPES; i++)
    for (int mask = 0; mask < 2; mask++) attend_forward(&shapes[i], mask);
}

Test(attend_tiles, gradient) {
  for (size_t i = 0; i < SHAPES; i++)
    for (int mask = 0; mask < 2; mask++) attend_gradient(&shapes[i], mask);
}
