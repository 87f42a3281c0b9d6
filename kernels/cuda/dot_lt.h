/* What dot_lt.c and dot_trial.c share: a product as cuBLASLt sees it. */
#ifndef ZUG_KERNELS_CUDA_DOT_LT_H
#define ZUG_KERNELS_CUDA_DOT_LT_H

#include <cublasLt.h>

#include "kernels/cuda/dot.h"

/* rows x cols; `trans`: the rows have stride 1, and the columns are `ld` apart, else the other way round. */
typedef struct {
  int64_t rows, cols, ld, step; /* step: from one of the batch to the next */
  bool trans;
} ZkLtMatrix;

typedef struct {
  ZkDot d; /* with its classes in the order chosen */
  bool packed[3];
  ZkView pack[3]; /* where packed: the view in scratch, its data the offset there */
  ZkLtMatrix mat[3];
  size_t bytes; /* of scratch */
  int64_t cost;
} ZkLtLayout;

typedef struct ZkLtPlan ZkLtPlan;
struct ZkLtPlan {
  ZkLtPlan *next; /* of the context's */
  uint64_t key;   /* the same for this call on all ranks with such a GPU */
  bool settled;   /* the choice is that of all ranks */
  bool usable;
  const char *why;     /* it is not; NULL: it is, or it is better so */
  const char *untried; /* it is usable, and was not tried; why */
  char text[128];      /* of either, where it has figures */
  ZkDotEpilogue epi;
  ZkLtLayout layout;
  int left, right;     /* which operand comes first: cuBLASLt counts along columns */
  int64_t vector_step; /* of a bias or column sums, from one of the batch to the next */
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t mat[3];
  cublasLtMatmulAlgo_t algo;
  size_t workspace;
};

/* Where a product's operands and result lie, and what its epilogue reads and writes besides. */
typedef struct {
  void *at[3];
  const void *full; /* NULL: none */
  void *vector, *aux;
} ZkLtPlaces;

/* ---- dot_lt.c ---- */
ZkElem zk_lt_elem(const ZkDot *d, int i); /* in which operand i is multiplied */
bool zk_lt_sixteen(const ZkView *v);      /* it begins at a multiple of 16 bytes */
/* A bias that is added, or column sums: cuBLASLt calls both by one name. */
static inline bool zk_lt_has_vector(const ZkDotEpilogue *e) {
  return e->bias >= 0 || e->kind == ZKD_COLUMN_SUMS;
}
cublasStatus_t zk_lt_multiply(ZkCuda *cu, const ZkLtPlan *p, const ZkLtPlaces *l, bool add,
                              const cublasLtMatmulAlgo_t *algo, size_t workspace);

/* ---- dot_trial.c ---- */
/* Which of n proposals to take; -1: none, and p->why. */
int zk_lt_try(ZkCuda *cu, ZkLtPlan *p, const ZkCall *call, int n,
              const cublasLtMatmulHeuristicResult_t *found);

#endif
