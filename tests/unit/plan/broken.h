/* Good plans, which the tests of proofs break. */
#ifndef ZUG_TEST_BROKEN_H
#define ZUG_TEST_BROKEN_H

#include "tests/unit/plan/fake.h"

#define ANY UINT32_MAX

extern ZbArena *arena; /* of the test that runs */
void arena_setup(void);
void arena_teardown(void);

/* Three stages, ZeRO-3, tied ends, denominator from inputs: has every instruction but PUBLISH_PARAMS. */
extern const Fake rich;
/* With its programs; fails the test if a proof does. */
ZpPlan *good(Fake f);
/* The proofs must say that, somewhere in the counter-example. */
void rejects(const ZpPlan *p, const char *text);

/* As fake_find; the buffer of that kind, pool and index. Fail the test if there is none. */
ZpInstr *find_instr(const ZpPlan *p, uint32_t s, ZpInstrOp op, uint32_t mb, uint32_t what);
ZpBuf *find_buffer(const ZpPlan *p, uint32_t s, ZpBufKind kind, uint32_t pool, uint32_t index);
/* Instruction `from` moves to place `to`. */
void move_instr(ZpPlan *p, uint32_t s, uint32_t from, uint32_t to);

#endif
