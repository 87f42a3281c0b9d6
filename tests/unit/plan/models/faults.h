/* Faults planted one at a time in the local programs of a plan `q`: the proof refuses each, in words, and takes the plan
 * again when it is mended. */
#ifndef ZUG_TESTS_PLAN_FAULTS_H
#define ZUG_TESTS_PLAN_FAULTS_H

#include "tests/unit/plan/models/plan.h"

#include <criterion/criterion.h>
#include <string.h>

static inline void rejects(const ZpPlan *p, const char *text) {
  ZbErr err = {0};
  cr_assert(!zp_check_segments(p, &err), "accepted, but: %s", text);
  cr_assert(strstr(err.text, text), "says: %s\nnot: %s", err.text, text);
}

static inline void accepts(const ZpPlan *p) {
  ZbErr err = {0};
  cr_assert(zp_check_segments(p, &err), "%s", err.text);
}

#define WITH(field, changed, text)                                                                           \
  do {                                                                                                       \
    __typeof__(field) was_ = (field);                                                                        \
    (field) = (changed);                                                                                     \
    rejects(q.p, text);                                                                                      \
    (field) = was_;                                                                                          \
    accepts(q.p);                                                                                            \
  } while (0)

#endif
