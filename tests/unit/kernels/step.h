/* Plays sequences through calls of a step's operations: prompts cut at random, several sequences in a step,
 * and tokens that are nobody's between them; each call against the reference, and every token's results. */
#ifndef ZUG_TESTS_STEP_H
#define ZUG_TESTS_STEP_H

#include "tests/unit/kernels/conform.h"

typedef enum {
  STEP_TOKEN,    /* of tokens: numbers that follow from their sequence and position */
  STEP_DOC,      /* the same: ids of documents, some below 0 */
  STEP_CONST,    /* the same in every step */
  STEP_CACHE,    /* what calls change; unknown at the start */
  STEP_DOCS,     /* the same of ids */
  STEP_STATE,    /* the same, always in f32 */
  STEP_PAGES,    /* where a sequence's pages are */
  STEP_SEQUENCE, /* of each token */
  STEP_POSITION,
  STEP_LENGTH,   /* of each sequence: between 0 and the size of axis j */
  STEP_DOCS_OWN, /* ids of documents of a sequence's own keys, along axis j */
  STEP_IDS,      /* of rows: tokens, or -1 */
  STEP_OUT,      /* results of tokens */
  STEP_ROWS      /* results of rows */
} StepKind;

#define STEP_TENSORS 14
#define STEP_CALLS 5
typedef struct {
  const char *axes; /* t: tokens, s: sequences; NULL ends */
  StepKind kind;
} StepTensor;
typedef struct {
  int op; /* 0 ends */
  const char *ax;
  const char *in, *out; /* tensors, by letters from a on */
  double num[2];
  int64_t opt[2];
} StepCall;
typedef struct {
  const char *dims; /* of axes but t, w, p, e, x: "k=2 h=16" */
  StepTensor tensor[STEP_TENSORS];
  StepCall call[STEP_CALLS];
  int64_t longest; /* of a sequence; 0: 40 */
  double tol;      /* 0: 1e-5 */
  /* In bf16, of a back end that has other kernels for prompts, relative to the largest. 0: none are. */
  double half_tol;
  double low;     /* operands of tokens are normal; or uniform between this and 0 */
  int low_tensor; /* in this one alone */
} StepCase;

#define STEP_SEQUENCES 4
/* How a case is played. */
typedef struct {
  ZkElem elem;
  uint64_t cut; /* 0: each sequence alone, in one step; else random */
  int64_t within;
  int way, shuffle; /* way: the back end's */
  bool judged;      /* against the reference */
} StepWay;

void step_play(const char *what, const StepCase *c, const StepWay *way, double **results, int64_t *count);
/* Plays a case in several ways: all must agree with the reference, and with each other to the bit, but as
 * `half_tol` allows. */
void step_check(const char *what, const StepCase *c);

#endif
