/* Plans played in this process, on simulated ranks with the CPU's kernels in f32 and collectives of our own: a step
 * of all micro-batches, stage by stage, which ends with losses, outputs and gradients. */
#ifndef ZUG_TESTS_PLAY_H
#define ZUG_TESTS_PLAY_H

#include "runtime/plan/plan.h"

typedef struct {           /* one rank's memory */
  int64_t id;              /* in the mesh; of the first stage */
  float ***param, ***grad; /* by bucket template, iteration */
  char *inputs, *temp;
  char **saved, **carry, **dcarry; /* by instance: what goes into it */
} Rank;
typedef struct { /* an output of a rank and micro-batch */
  uint32_t sink, mb, segment, value;
  int rank;
  const float *data;
} Output;

typedef struct {
  const ZpPlan *p;
  ZbArena *a;
  ZkEnv env;
  Rank *rank;
  int nranks;
  ZpInst *inst;
  uint32_t ninsts;
  bool late;     /* collectives that go beside calls happen when they are waited for; else when they begin */
  uint64_t data; /* which parameters and inputs */
  float seed[1 + ZG_MAX_LOSSES];
  uint64_t beside; /* such collectives that were played */
  double num[ZG_MAX_LOSSES], den[ZG_MAX_LOSSES], aux;
  Output *out;
  uint32_t nout;
} Play;

/* ---- player.c: parameters and inputs do not depend on the layout ---- */
void play(Play *y, const ZpPlan *p, bool late);
void play_with(Play *y, const ZpPlan *p, bool late, uint64_t data); /* with other such numbers; play has 0 */
void play_end(Play *y);

/* ---- differ.c ---- */
/* Return how far losses, denominators and gradients are from those of one rank; and those and outputs from those
 * of a plan of the same layout: in tolerances, so that up to 1 they are the same, and in `what` where. */
typedef char Where[200];
double play_differs(const Play *one, const Play *y, Where what);
double play_changed(const Play *was, const Play *y, Where what);

#endif
