/* admission: what belongs to a sequence alone, an encoder's text and keys of it, is made when the sequence
 * gets its slot. */
#ifndef ZUG_EXEC_ADMISSION_H
#define ZUG_EXEC_ADMISSION_H

#include "runtime/exec/engine/engine.h"

typedef struct ZxAdmission ZxAdmission;
/* Opens the engine of a plan's admission. `po`: the options of that plan, by which those of other lengths are
 * made. NULL with a message. */
ZxAdmission *zx_admission_new(ZbArena *a, const ZpPlan *steps, const ZpOptions *po, ZlSources *s, ZxComm *c,
                              const ZxEngineOptions *eo, ZbErr *err);
/* Returns its engine, which has the parameters. */
ZxEngine *zx_admission_engine(const ZxAdmission *x);
/* Makes what a source of n tokens, at most the longest, gives, and puts it into a slot's caches. False with a
 * message. */
bool zx_admit(ZxAdmission *x, ZxEngine *steps, uint32_t slot, const uint32_t *source, uint32_t n, ZbErr *err);
uint64_t zx_admission_used(const ZxAdmission *x); /* bytes of its arena that were touched so far */
void zx_admission_free(ZxAdmission *x);           /* NULL is allowed */

#endif
