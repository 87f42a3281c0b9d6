/* The proofs of a plan. They share with what made it the graph, the mesh and what the plan says that the
 * recipe asks for: how large axes are, how it cuts storage, the optimizer, what is frozen. All else - what an
 * instruction must read and write, the bytes of every buffer, the layout of every value, the dims of every
 * reduction - is derived here a second time, and the plan is compared with it. So nothing here calls what
 * made the plan; of plan.h it uses types, the definitions of mesh.c (a rank's coordinates, the size of a
 * group) and of vstages.c (who owns which virtual stage) and, in messages, words.c.
 *
 * check.c     form, ownership, completeness, reductions
 * queues.c    pairs, deadlock
 * operands.c  what each instruction must read and write
 * contents.c  happens-before, contents
 * carried.c   which carried values have a cotangent
 * arena.c     sizes and places of buffers
 * beside.c    two plans in one arena
 * segment.c   local programs: what each call reads and writes
 * axes.c      ... along which axes
 * packed.c    ... and of weights in 8 and 4 bits
 * layout.c    ... where values lie, and how large they are
 * inputs.c    ... and that inputs are where the loader puts them
 * facts.c     axes, parameters and optimizers against graph and recipe
 * say.c       counter-examples in words
 *
 * Nobody outside reads this header: see zp_check and zp_check_segments in plan.h. */
#ifndef ZUG_PLAN_CHECK_H
#define ZUG_PLAN_CHECK_H

#include "runtime/plan/plan.h"

typedef struct {
  const ZpPlan *p;
  ZbErr *err;
  ZbArena *a; /* scratch */
  /* Per stage: number of its first instruction among all; base[nstages]: how many there are. */
  uint32_t *base;
  uint32_t *pos; /* per instruction: position in its queue */
  /* Per stage, per virtual stage of it (index * nheld) and held bucket: the last instance that uses it, or ZP_NONE; its
   * backward comes first. */
  uint32_t **last_user;
  ZpCotangents *cotangents; /* per segment: zp_check_cotangents */
  ZgGraph bound;            /* of zp_check_segments: the graph, whose axes all have the plan's sizes */
} Check;

/* For messages, in scratch memory: "stage 0 FWD(layer.1, mb 2)", "layer.1" */
const char *zp_say(const Check *c, uint32_t stage, uint32_t instr);
const char *zp_say_held(const Check *c, uint32_t bucket, uint32_t iter);
const char *zp_say_inst(const Check *c, uint32_t segment, uint32_t iter);
const char *zp_say_tag(const Check *c, uint64_t tag); /* contents: "parameters of layer.1" */
const char *zp_say_buf(const Check *c, uint32_t stage, uint32_t buf);
extern const char *const zp_buf_text[ZP_B_KINDS];
/* Fails with "stage 0 FWD(layer.1, mb 2) TEXT". */
bool zp_fail_at(const Check *c, uint32_t stage, uint32_t instr, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

bool zp_check_pairs(const Check *c);
bool zp_check_deadlock(const Check *c);
bool zp_check_operands(const Check *c, uint32_t stage, uint32_t instr);
bool zp_check_memory(const Check *c, uint32_t stage);
bool zp_check_buckets(const Check *c);
/* packed.c: the format of a packed parameter, or ZK_NONE; how many elements a slice takes; who has what is packed. */
ZkElem zp_packed_elem(const ZpPlan *p, uint32_t param);
uint64_t zp_slice_takes(const ZpPlan *p, const ZpSlice *s);
bool zp_check_packed(const Check *c);
uint64_t zp_whole_update(const ZpPlan *p, const ZpBucket *k); /* arena.c: bytes */
uint64_t zp_summed_doubles(const ZpPlan *p); /* arena.c: what a step adds up over all ranks */
bool zp_check_arena(const Check *c, uint32_t stage);
bool zp_check_beside(const Check *c);
/* Derives which carried values have cotangents, into c->cotangents; whether the plan says the same. */
bool zp_check_cotangents(Check *c);
/* Returns whether BWD of this instance needs denominators of losses. */
static inline bool zp_needs_denominator(const ZpPlan *p, const ZpInst *i) {
  return p->programs.segments[i->segment].has_loss && p->programs.segments[i->segment].list[ZP_COUNT].n;
}

#endif
