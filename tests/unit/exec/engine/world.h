/* Ranks that are threads of one program, and a communicator of them that can do all that the engine asks for:
 * whole steps of many ranks are played where a unit test sees them. What is started is done late, when
 * somebody who takes part in it has asked for it a few times: who does not wait for it finds what was there
 * before. */
#ifndef ZUG_TEST_WORLD_H
#define ZUG_TEST_WORLD_H

#include "runtime/exec/comm/comm.h"

enum { WORLD_MOST = 8 };
typedef struct World World;

World *world_new(int ranks);
/* ... whose communicators exchange messages of a group at once, as those of devices do. */
World *world_exchanging(int ranks);
void world_free(World *w);
ZxComm *world_rank(World *w, int rank);
/* Each rank plays, with its own of n arguments of `bytes` bytes; all have when it returns. */
void world_play(World *w, void (*play)(void *arg), void *args, size_t bytes);
/* Sleeps until it is done, at once when all have come. For a thread that is a rank's beside its own. */
void world_await(ZxComm *c, ZxRequest request);
/* How many operations have been done since it was made. */
uint64_t world_done(const World *w);

#endif
