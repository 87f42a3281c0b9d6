/* Plays a whole graph, forward and backward, on one rank in f64 with the reference kernels: what the
 * derivative tests differentiate numerically. Micro-batches = 1. */
#ifndef ZUG_TESTS_INTERP_H
#define ZUG_TESTS_INTERP_H

#include "graph/graph.h"
#include "kernels/kernels.h"

/* What numbers a graph is played on: how a call runs, and how a double is written and read. */
typedef struct {
  ZkKernel *run;
  void (*write)(void *to, double x);
  double (*read)(const void *from);
} InterpNumbers;

typedef struct {
  const ZgGraph *g;
  const InterpNumbers *numbers; /* NULL: doubles */
  ZbArena *a;
  int64_t *size;   /* by axis: data axes bound */
  double **param;  /* by parameter: iterations one after another, axes ascending */
  double **grad;   /* the same shape */
  double **input;  /* by input: numbers or ids */
  double **output; /* by output, after a run */
  int64_t *nparam; /* elements over all iterations */
  void ***kept;    /* by cache and iteration: what KEPT of a step's graph is, and KEEP keeps */
  bool means;      /* coins are their means, as in an evaluation */
  bool rounds;     /* what a node makes is rounded to f32, so that what overflows there does so here */
  double loss, num[ZG_MAX_LOSSES], den[ZG_MAX_LOSSES], aux;
} Interp;

/* Compiles the text of a model, which must be right. */
ZgGraph *interp_compile(ZbArena *a, const char *text);
/* `data` is the size of every data axis. Parameters and inputs are random and away from special points; ids
 * are valid, some -1 where the axis is not the table of a position. */
Interp *interp_new(const ZgGraph *g, ZbArena *a, int64_t data, uint64_t seed);
/* The same, piece by piece: sizes are the model's, where it has them; then parameters, and then, when all
 * sizes are there, inputs and room for outputs. */
Interp *interp_empty(const ZgGraph *g, ZbArena *a);
void interp_draw_params(Interp *m, uint64_t seed, double mean, double sigma);
void interp_draw_inputs(Interp *m, uint64_t seed);
int64_t interp_elements(const Interp *m, const ZgType *t);
/* Computes loss, and grad where `backward`. */
void interp_run(Interp *m, bool backward);
/* Compares all gradients with central differences; the largest |difference| / max(1, |gradient|), of at most
 * `per_param` elements of each parameter (spread evenly). */
double interp_check(Interp *m, int per_param);

#endif
