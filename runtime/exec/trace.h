/* What every rank did in some steps, as a trace of Chrome's and Perfetto's JSON format: a process a rank,
 * queues as its threads, instructions as slices, arrows from sends to receives, and what of the arena is in
 * use.
 *
 * trace.c   brings the ranks' parts, which zp_trace_events makes, together into one file */
#ifndef ZUG_EXEC_TRACE_H
#define ZUG_EXEC_TRACE_H

#include "runtime/exec/engine/engine.h"

typedef struct ZxTrace ZxTrace;
/* Collective, before the first step: reserves the file (on rank 0), and finds out how far the clocks of nodes
 * are apart. NULL, on the ranks that know why with a message. */
ZxTrace *zx_trace_open(ZxComm *c, const char *path, ZbErr *err);
/* Collective, between steps: writes what the engines have of it. False, on all ranks; rank 0 knows why. */
bool zx_trace_write(ZxTrace *t, const ZpPlan *p, const ZxEngine *e, ZbErr *err);
void zx_trace_close(ZxTrace *t); /* NULL is allowed. What was not written leaves no file */

#endif
