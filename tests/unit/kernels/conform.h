/* Conformance: runs the kernel of an op on one case in many ways, each against the reference in f64. Whose
 * kernel, the program says: it links a Backend, of the CPU's kernels (cpu.c) or of others.
 *
 *   CONFORM(.op = ZG_OP_SOFTMAX, .dims = "b=3 s=17 e=33", .ax = "e", .in = {{"bse"}}, .out = {{"bse"}},
 *           .tol = 1e-6);
 *
 * A case runs with real tensors in f32, in bf16, and with bf16 operands and f32 results; with the axes of
 * every view lying in the order written and in shuffled orders; in each of the back end's ways. Results
 * start as NaN (or as something to add to, if the case accumulates), everything written lies between guard
 * bytes, scratch has exactly the size that the back end says, and operands must come back unchanged. */
#ifndef ZUG_TESTS_CONFORM_H
#define ZUG_TESTS_CONFORM_H

#include <criterion/criterion.h>

#include "graph/graph.h"
#include "kernels/kernels.h"
#include "tests/unit/breadth.h"

typedef struct Case Case;
typedef struct {
  const char *name;
  ZkKernel *(*kernel)(int op);
  size_t (*scratch)(const ZkCall *call, int threads);
  bool (*lacks)(int op); /* ops that this back end does not have, known and named: their tests are skipped */
  int ways;
  int (*open)(ZkEnv *env, int way); /* makes env->pool or ->device; returns the number of threads */
  void (*close)(ZkEnv *env);        /* what was called is done then */
  void *(*get)(size_t bytes); /* memory for buffers, at a multiple of 64, if it must not be the host's */
  void (*give_back)(void *p);
  void (*also)(const Case *c); /* what else is checked of a case; NULL: nothing */
  /* Prompts in bf16 have other kernels of attention than single tokens: results differ by roundings. */
  bool prompts;
  bool odd; /* in the last shuffle views begin one element after a multiple of 16 bytes */
} Backend;
extern const Backend backend;

/* Memory that the back end's kernels and the test see, at a multiple of 64. */
void *memory_new(size_t bytes);
void memory_free(void *p);

typedef enum {
  REAL,  /* f32 or bf16 */
  EXACT, /* f32 always */
  ID     /* i32 */
} Kind;

typedef struct {
  const char *axes; /* a letter each, in declared order; "" is a scalar, NULL ends the list */
  Kind kind;
  double lo, hi; /* uniform there, ids both included; lo = hi = 0: standard normal */
  double *value; /* instead: the elements, in declared order */
} Tensor;

struct Case {
  int op;
  const char *dims; /* "b=3 v=32@64/100": v is elements 64..96 of an axis of 100 */
  const char *ax;
  Tensor in[ZK_MAX_IN + 1], out[ZK_MAX_OUT + 1];
  double num[2];
  int64_t opt[2];
  const ZkPointwise *pointwise;
  bool accumulate;
  bool f32_only; /* not in bf16 */
  double floor;  /* absolute error allowed besides: rounding of what cancels */
  double tol; /* of f32 results, relative to the largest |result|; bf16 results may be off by 2^-8 besides */
  /* With bf16 operands, instead of tol where it is larger: what a kernel rounds to bf16 on its way. */
  double half_tol;
};

/* cr_assert for loops over elements: Criterion sends a message for every assertion, passed ones too. */
#define EACH_ASSERT(cond, ...)                                                                               \
  do {                                                                                                       \
    if (!(cond)) cr_assert_fail(__VA_ARGS__);                                                                \
  } while (0)

#define CONFORM(...) conform(__FILE__, __LINE__, &(Case){__VA_ARGS__})
void conform(const char *file, int line, const Case *c);
/* A push leaves out two of three orders of axes, but for tests that count calls. */
extern bool conform_leaves_none_out;
extern bool conform_repeatable; /* what calls say: the same bits in every run */
extern bool conform_invariant;  /* the same: batch-invariant */

/* Runs the back end's kernel on a call whose views have their memory, in way `way`. */
void run_call(const ZkCall *call, int way);

/* Shows fn the calls that a case is, without making them; and those that conform makes of it, which are fewer
 * with sanitizers. */
void each_call(const Case *c, void (*fn)(const ZkCall *call, void *arg), void *arg);
void each_made(const Case *c, void (*fn)(const ZkCall *call, void *arg), void *arg);

/* Results of the reference kernel in f64, in declared order, from malloc. Operands as conform has them in
 * f32. */
void reference(const Case *c, double *result[ZK_MAX_OUT]);

/* Fails unless the reference over residues does with a case what that over doubles does. */
void residues_agree(const Case *c);

/* Number of elements of a tensor of the case. */
int64_t count_of(const Case *c, const char *axes);

#endif
