/* Tiles of AMX, in assembly: compiled for any x86-64, run only where zk_bgemm_amx.here(). Private to kernels/cpu. */
#ifndef ZUG_KERNELS_AMX_H
#define ZUG_KERNELS_AMX_H

#include <stdint.h>

/* What ldtilecfg reads. */
typedef struct {
  uint8_t palette, start_row, zero[14];
  uint16_t bytes[16]; /* of a row of each tile */
  uint8_t rows[16];
} TileConfig;
_Static_assert(sizeof(TileConfig) == 64, "the layout is the CPU's");

/* What stands before each instruction: nothing, but where a test of them all includes a file of these. */
#ifndef BEFORE_AMX
#define BEFORE_AMX ""
#endif

/* Numbers of tiles are in the instruction, hence macros. */
#define TILE_ZERO(t) __asm__ volatile(BEFORE_AMX "tilezero %%tmm%c0" : : "i"(t))
#define TILE_LOAD(t, from, stride)                                                                           \
  __asm__ volatile(BEFORE_AMX "tileloadd (%1,%2,1), %%tmm%c0"                                                \
                   :                                                                                         \
                   : "i"(t), "r"(from), "r"((int64_t)(stride))                                               \
                   : "memory")
#define TILE_STORE(t, to, stride)                                                                            \
  __asm__ volatile(BEFORE_AMX "tilestored %%tmm%c0, (%1,%2,1)"                                               \
                   :                                                                                         \
                   : "i"(t), "r"(to), "r"((int64_t)(stride))                                                 \
                   : "memory")
#define TILE_CONFIGURE(config) __asm__ volatile(BEFORE_AMX "ldtilecfg %0" : : "m"(config))
#define TILE_RELEASE() __asm__ volatile(BEFORE_AMX "tilerelease") /* an idle thread has no tiles to save */

#endif
