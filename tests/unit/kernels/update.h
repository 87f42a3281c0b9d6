/* A state's update that the tests of flat kernels share. */
#ifndef ZUG_TESTS_KERNELS_UPDATE_H
#define ZUG_TESTS_KERNELS_UPDATE_H

#include "graph/ops.h"
#include "kernels/kernels.h"

/* w = (g - w != 0 ? 0.75 w : w) + sign(g - 1); registers from 2 on are the steps'. */
static const ZkUpdate mixed = {8,
                               {{ZG_OP_FILL, 0, 0, 0, 0, 0.75f},
                                {ZG_OP_MUL, 0, 2, 0, 0, 0},
                                {ZG_OP_FILL, 0, 0, 0, 0, 1},
                                {ZG_OP_SUB, 1, 4, 0, 0, 0},
                                {ZG_OP_SIGN, 5, 0, 0, 0, 0},
                                {ZG_OP_SUB, 1, 0, 0, 0, 0},
                                {ZG_OP_SELECT, 7, 3, 0, 0, 0},
                                {ZG_OP_ADD, 8, 6, 0, 0, 0}}};

#endif
