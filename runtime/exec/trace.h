/* What every rank did in some steps, as a trace of Chrome's and Perfetto's JSON format: a process a rank,
 * queues as its threads, instructions as slices, arrows from sends to receives, and what of the arena is in
 * use.
 *
 * trace.c        brings the ranks' parts together into one file; trace_json.c makes the part of one */
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

/* The events of one rank, with a comma and a newline between them. Times are `clock` later than the spans'
 * say, and count from `zero`. */
void zx_trace_events(const ZpPlan *p, int64_t rank, const ZxSpan *spans, uint64_t n, double clock,
                     double zero, ZbText *out);

#endif
