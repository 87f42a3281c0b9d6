/* Attention over whole tiles, which is what goes to cuDNN (kernels/cuda/attend_cudnn.c); the cases of the
 * CPU's kernels are all of other lengths. Heads alone and shared by groups of queries, of the sizes that its
 * kernels come in, and another. */
#include "tests/scenarios/gpu/backend.h"
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
  for (int repeatable = 0; repeatable < 2; repeatable++)
    for (size_t i = 0; i < SHAPES; i++)
      for (int mask = 0; mask < 2; mask++) {
        conform_repeatable = repeatable;
        attend_gradient(&shapes[i], mask);
      }
}

/* A layer as GPT-2 has them, whose gradient is cut into pieces: 2 heads of 2 MiB each, then 1. */
Test(attend_tiles, pieces) {
  static const AttendShape layer = {"b=1 s=1024 h=4 d=64", "bshd", "bshd", 0.1};
  static const AttendShape groups = {"b=2 s=512 k=2 g=2 d=128", "bskgd", "bskd", 0.06};
  gpu_context()->attend_piece = 4 << 20;
  conform_repeatable = true; /* the heads' sums of dq would all fit */
  attend_gradient(&layer, 1);
  attend_gradient(&groups, 1);
}
