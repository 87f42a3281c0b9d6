/* Compares, bit for bit, what ranks must hold alike: parameters, optimizer states, averages and states of
 * the model (runtime/plan/schedule/alike.c says which). Nothing else notices a bit that flips in one replica: its
 * loss drifts from that of the others, and checkpoints are a mixture, as each replica writes a part. */
#ifndef ZUG_EXEC_ALIKE_H
#define ZUG_EXEC_ALIKE_H

#include "runtime/exec/engine/engine.h"

typedef struct ZxAlike ZxAlike;
/* Takes the room that comparing needs, once. Collective: NULL on all ranks if one has none; a rank that knows
 * why says so in `err`. */
ZxAlike *zx_alike_open(ZxEngine *e, ZbErr *err);
/* Returns whether any two ranks have something that must be the same. */
bool zx_alike_any(const ZxAlike *x);
/* Returns whether ranks hold the same after `step`; if not, `err` names ranks and tensors. Collective,
 * between steps, and the same on all ranks. While they do it takes a pass over the memory and one small
 * all-gather, and allocates nothing. A device that fails ends the job. */
bool zx_alike(ZxAlike *x, int64_t step, ZbErr *err);
void zx_alike_close(ZxAlike *x); /* NULL is allowed */

#endif
