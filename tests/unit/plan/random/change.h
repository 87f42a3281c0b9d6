/* One thing changed in a local program of a plan: what a mistaken pass might have made of it, or a slip. */
#ifndef ZUG_TESTS_CHANGE_H
#define ZUG_TESTS_CHANGE_H

#include "runtime/plan/plan.h"

typedef struct {
  ZpPlan *p;
  ZbArena *a;
  uint64_t seed, at; /* dice */
  ZpSegment *s, was; /* of the plan: lists and values are copies while it is changed */
  uint32_t segment;
  ZpList *l;
  ZpNode *n;    /* of l */
  bool cancels; /* it changes what a softmax may not see */
  char what[120];
} Change;

typedef struct {
  const char *name;
  bool (*make)(Change *c); /* false: there is nothing that can be changed so */
  /* Another function, which may agree with what was there at all numbers that come: the square root of a mask, a window
   * as long as the sequence. Numbers do not say that it means the same. */
  bool function;
} Kind;
extern const Kind change_kinds[];
extern const int change_nkinds;

/* Changes a random segment; false: nothing. Puts back what was there. */
bool change_make(Change *c, ZpPlan *p, int kind, uint64_t seed);
void change_end(Change *c);

#endif
