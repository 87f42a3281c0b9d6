/* What the parts of the pointwise kernel share: steps, the code made of them, and the instruction sets that
 * they exist for.
 *
 * A pointwise function runs on tiles of eight vectors that stay in registers from step to step: the
 * accumulator. A step works on the accumulator and up to two other operands and calls the next one, which
 * takes the accumulator as arguments, so that a step costs little more than its arithmetic: no loop, and no
 * trip of the result through memory. Example, x y + z in f32, and a second result of twice that:
 *
 *   LD x    MAD y, z    ST out 0    MUL 2    ST out 1    END
 *
 * pointwise.c         geometry: tiles out of views; runs them
 * pointwise_steps.def  the steps that compute
 * pointwise_code.c    from the ops of a pointwise function to steps
 * pointwise_steps.c   the steps, for each instruction set */
#ifndef ZUG_KERNELS_POINTWISE_H
#define ZUG_KERNELS_POINTWISE_H

#include "kernels/cpu/cpu.h"

#define ZK_TILE_MAX 128 /* elements in a tile of the widest vectors */

enum {
#define STEP(name, ...) ZK_STEP_##name,
#include "kernels/cpu/pointwise_steps.def"
#undef STEP
  ZK_STEP_FAST_SIN,
  ZK_STEP_FAST_COS,
  ZK_STEP_ST_M, /* stores the accumulator */
  ZK_STEP_ST_H,
  ZK_STEP_END,
  ZK_STEP_COUNT
};

typedef void ZkStepFn(void); /* its real type depends on the vectors */

typedef struct {
  union {
    ZkStepFn *fn;
    int64_t id; /* until zk_pointwise_link */
  };
  uint8_t p, q; /* operands in memory: which of the tile's places */
  float x, y;   /* or numbers */
} ZkStep;

/* A place that is another one in the next tile. */
typedef struct {
  uint8_t place, bytes; /* of an element */
} ZkMove;

/* Steps for one instruction set. */
typedef struct {
  const char *name;
  int tile; /* elements */
  ZkStepFn *const *fn;
  ZkStepFn *store_bf16; /* instead of the one for ST_H, unless NULL */
  /* Runs the steps on `tiles` tiles, moving places in between. */
  void (*run)(const ZkStep *steps, char **place, const ZkMove *move, int nmoves, int64_t tiles);
} ZkPointwiseSet;

/* The i-th set, from the least to the best; NULL if it or this machine does not have it. */
#define ZK_POINTWISE_SETS 4
const ZkPointwiseSet *zk_pointwise_set(int i);

/* ---- code ---- */
#define ZK_POINTWISE_REGS (ZK_MAX_IN + ZK_POINTWISE_MAX_OPS)
#define ZK_POINTWISE_MAX_STEPS 512
#define ZK_POINTWISE_PLACES 255

/* How an operand or result lies within a tile. */
typedef enum {
  ZK_LIES_F32,  /* eight vectors of f32 */
  ZK_LIES_BF16, /* of bf16 */
  ZK_LIES_SAME  /* an operand with one value for all tiles */
} ZkLies;

typedef struct {
  ZkLies in[ZK_MAX_IN], out[ZK_POINTWISE_OUT];
  float value[ZK_MAX_IN];            /* of LIES_SAME */
  uint16_t shares[ZK_POINTWISE_OUT]; /* bit i: the result has the memory of operand i */
} ZkPointwiseLayout;

/* Places are numbered: operands, results, then temporaries from `temp`, then constants from `constant`. */
typedef struct {
  int nsteps, temp, ntemps, constant, nconstants;
  float number[ZK_POINTWISE_REGS]; /* of each constant */
  ZkStep step[ZK_POINTWISE_MAX_STEPS];
} ZkPointwiseCode;

void zk_pointwise_code(ZkPointwiseCode *code, const ZkPointwise *pointwise, int nin,
                       const ZkPointwiseLayout *layout);
void zk_pointwise_link(ZkPointwiseCode *code, const ZkPointwiseSet *set);

/* The pointwise kernel on one instruction set. */
void zk_pointwise_run(const ZkEnv *env, const ZkCall *call, const ZkPointwiseSet *set);

#endif
