/* What several tests here compare with files beside them. */
#ifndef ZUG_TESTS_PLAN_WHOLE_H
#define ZUG_TESTS_PLAN_WHOLE_H

#include "tests/unit/plan/models/plan.h"

/* Fails unless the text, which it frees, is that of the file; writes the file anew with REGENERATE. */
void whole_expect(ZbText *got, const char *file);

#endif
