/* Plays the programs of all stages as the engine does (runtime/exec/engine/play.c), with made-up numbers:
 * what an
 * instruction makes is a hash of all that it reads. So two plans that do the same end with the same numbers,
 * whatever the order in which transfers and collectives happen to start and to end; a plan of which that is
 * not true is broken.
 *
 * What the engine does not look at, this does not either: tags, bytes of collectives. A stage stands for all
 * its ranks, each of which holds the first part of what is cut. */
#ifndef ZUG_TEST_MACHINE_H
#define ZUG_TEST_MACHINE_H

#include "runtime/plan/plan.h"

/* One step, in the order that `seed` makes of it; the numbers in which it ends into *result. NULL, or what
 * went wrong: a deadlock, memory that is not there. */
const char *machine_play(const ZpPlan *p, uint64_t seed, uint64_t *result);

#endif
