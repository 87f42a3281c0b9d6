/* What a machine has left for a process, and whether a run fits. */
#ifndef ZUG_EXEC_MEMORY_H
#define ZUG_EXEC_MEMORY_H

#include "runtime/exec/comm/comm.h"

/* Collective: whether the nodes, and the control groups there, have the `need` bytes of the host's memory
 * that each rank is going to touch. A line for people, of this rank's node, goes to `tell`. */
bool zx_check_memory(ZxComm *c, uint64_t need, ZbText *tell, ZbErr *err);

/* Where /proc, /sys and /dev are: "". A test program may replace it. */
extern const char zx_system[];

/* Of the control group, of those that this process is in (versions 1 and 2, and all above), that has the
 * least left. */
typedef struct {
  uint64_t left, limit;
  char name[256];
} ZxRoom;
bool zx_room_of_group(const char *root, ZxRoom *out); /* false: there is no limit */
/* Without a swap, and what could be swapped; left UINT64_MAX, and false: not known. */
bool zx_room_of_machine(const char *root, uint64_t *left, uint64_t *swap);

#endif
