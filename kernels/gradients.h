/* Gradients of micro-batches that are added up in bf16: each sum is rounded up or down at random, so that what is lost of
 * small gradients is right in the mean (Gupta et al. 2015). What chance says of an element depends on the run's seed,
 * the step, the micro-batch, the parameter's path, and the element's number in the whole parameter: every layout draws
 * the same. For hosts and devices. */
#ifndef ZUG_KERNELS_GRADIENTS_H
#define ZUG_KERNELS_GRADIENTS_H

#include <stdint.h>

#include "kernels/everywhere.h"

/* A run of elements of a slice, from its element number `from` on; and which numbers the slice's elements have in the
 * whole parameter. Axes are those of the slice, slowest first. */
#define ZK_DRAW_AXES 8
typedef struct {
  uint64_t key; /* of all that chance depends on but the step and the element */
  int64_t from, first;
  int naxes;
  int64_t size[ZK_DRAW_AXES], stride[ZK_DRAW_AXES]; /* on this rank; in the whole parameter */
} ZkDraws;

/* Returns the number in the whole parameter of element e of the slice. */
ZK_EVERYWHERE int64_t zk_draw_place(const ZkDraws *d, int64_t e) {
  int64_t place = d->first;
  for (int i = d->naxes - 1; i > 0; i--) {
    place += e % d->size[i] * d->stride[i];
    e /= d->size[i];
  }
  return d->naxes ? place + e * d->stride[0] : place;
}

/* Mixes 32 bits: a bijection of which each bit depends on all (Wellons 2018, the one of least bias). */
ZK_EVERYWHERE uint32_t zk_draw_mix(uint32_t x) {
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) * 0x846ca68bu;
  return x ^ x >> 16;
}
/* Returns the key of a step: of neighbouring steps all bits are others. */
ZK_EVERYWHERE uint64_t zk_draw_key(uint64_t key, uint64_t step) {
  uint64_t z = key + 0x9e3779b97f4a7c15ull * (step + 1);
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return z ^ z >> 31;
}
/* Returns the 16 bits that are drawn for an element. */
ZK_EVERYWHERE uint32_t zk_draw(uint64_t key, int64_t place) {
  uint32_t low = zk_draw_mix((uint32_t)place ^ (uint32_t)key), high = (uint32_t)((uint64_t)place >> 32);
  return zk_draw_mix(low ^ (uint32_t)(key >> 32) ^ high * 0x9e3779b9u) >> 16;
}

/* Returns a number in bf16, farther from 0 than it is with the probability of what is cut off. */
ZK_EVERYWHERE uint16_t zk_round_by(uint32_t bits, uint32_t draw) {
  uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude >= 0x7f800000) return (uint16_t)(bits >> 16 | (magnitude > 0x7f800000 ? 0x40 : 0));
  return (uint16_t)((bits + draw) >> 16);
}

#endif
