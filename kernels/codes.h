/* The values of the 256 codes of DYN8 and UDYN8, ascending: the dynamic map of Dettmers et al. (2021). Each
 * decade of [0.1, 1], [0.01, 0.1], ... is cut into equal parts, twice as many as the one below, and a code is
 * the middle of its part; the lowest of seven decades has one part, or two where there is no sign. 0 and 1
 * are codes of their own.
 *
 * A code is a share of the block's largest element, which is the scale. Unlike in the paper a scale has the
 * sign of that element, so that its own share is 1 and decoded values have the same codes; and a value without
 * sign that is not 0 does not become 0, as AdamW would then divide by eps. */
#ifndef ZUG_KERNELS_CODES_H
#define ZUG_KERNELS_CODES_H

#include "kernels/everywhere.h"

#include <stdbool.h>

/* Returns the value of part `part` of a decade, 0 to 6, of so many. */
ZK_EVERYWHERE float zk_code_part(int decade, int part, int parts) {
  const double ten[] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1};
  return (float)((0.1 + 0.9 * (part + 0.5) / parts) * ten[decade]);
}

ZK_EVERYWHERE float zk_code_value(bool sign, int code) {
  int zero = sign ? 127 : 0, at = code < zero ? zero - code : code - zero, decade = 0, first = sign ? 1 : 2;
  if (code == zero || code == 255) return code == 255;
  int i = sign ? at : at + 1; /* decade d begins where this is first << d */
  while (i >= first << (decade + 1)) decade++;
  float value = zk_code_part(decade, i - (first << decade), first << decade);
  return code < zero ? -value : value;
}

#endif
