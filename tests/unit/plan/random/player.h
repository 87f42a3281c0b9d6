/* Parts of the player: player.c calls reach.c for nodes that reach over ranks in other ways than collectives. */
#ifndef ZUG_TESTS_PLAYER_H
#define ZUG_TESTS_PLAYER_H

#include "tests/unit/plan/random/play.h"

typedef struct { /* a node of an instance in a micro-batch */
  Play *y;
  uint32_t inst, mb;
  const ZpNode *k;
} At;

/* ---- player.c ---- */
const ZpSegment *segment_at(const At *n);
char *address(Play *y, Rank *r, uint32_t inst, const ZpValue *v);
/* Returns its call on a rank. Runs one, with scratch. */
ZkCall call_of(const At *n, Rank *r);
void run_call(const At *n, const Rank *r, ZkCall *c);
/* Lists where a rank's `size` elements of an axis are among those of its group along `dims`. */
const int64_t *held(ZbArena *a, const ZpPlan *p, ZpDims dims, int64_t rank, uint16_t axis, int64_t size);
/* Goes over the elements of a local tensor: their places in memory, and global indices. */
typedef struct {
  const ZpPlan *p;
  const ZpState *state;
  int64_t rank;
  int n;
  const uint16_t *axis;
  const int64_t *size;
  int64_t at[ZG_MAX_AXES], global[ZG_MAX_AXES];
} Walk;
Walk walk(const ZpPlan *p, const ZpState *state, int64_t rank, int n, const uint16_t *axis,
          const int64_t *size);
bool walk_on(Walk *w);
/* Returns the number of a global element in the unpadded tensor, or -1 in padding. */
int64_t walk_element(const ZpPlan *p, const Walk *w);

/* ---- reach.c ---- */
void play_ring(const At *n);
/* Rounds of experts: how many a region that begins with this node has; its nodes in round number `round`. */
int64_t play_rounds(const At *first);
void play_in_round(const At *n, const ZpNode *first, int64_t round);

#endif
