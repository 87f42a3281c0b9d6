/* A number of 32 bits as two of 16: the nearest bf16, and how far that is from the number, in units of its last place.
 * Of numbers half-way between two bf16 the nearest is that away from 0: each bf16 is then the nearest of 65536 patterns
 * of bits at most, so 16 bits tell these apart. Of ties to even it would be that of 65537, or of 65535.
 *
 * Parameters that are read in bf16 are rounded so wherever they are made: those that are trained, whose f32 values are
 * both halves, and those that are only read. What is exported in bf16 is rounded as other programs do, ties to even. */
#ifndef ZUG_KERNELS_HALVES_H
#define ZUG_KERNELS_HALVES_H

#include <stdint.h>

#include "kernels/everywhere.h"

/* Returns the bits that are split: of a number its own, of all that is not a number one and the same. */
ZK_EVERYWHERE uint32_t zk_split_bits(uint32_t bits) {
  return (bits & 0x7fffffff) > 0x7f800000 ? 0x7fc00000 : bits;
}
ZK_EVERYWHERE uint16_t zk_high_half(uint32_t bits) {
  return (uint16_t)((zk_split_bits(bits) + 0x8000) >> 16);
}
/* The distance is below 0 where the bf16 is farther from 0 than the number. */
ZK_EVERYWHERE int16_t zk_low_half(uint32_t bits) { return (int16_t)(uint16_t)zk_split_bits(bits); }
ZK_EVERYWHERE uint32_t zk_join_halves(uint16_t high, int16_t low) {
  return ((uint32_t)high << 16) + (uint32_t)(int32_t)low;
}

#endif
