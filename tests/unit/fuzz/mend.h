/* A mutation breaks lengths and checksums, and then a reader looks at nothing else. These mend them, a
 * function a format: sums by the code that readers and writers have them from. */
#ifndef ZUG_FUZZ_MEND_H
#define ZUG_FUZZ_MEND_H

#include <stddef.h>
#include <stdint.h>

size_t LLVMFuzzerMutate(uint8_t *x, size_t n, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *x, size_t n, size_t most, unsigned seed);

/* Each mends x[0..n), which has room for `most` bytes, and returns its new size. */
size_t fuzz_mend_zsg(uint8_t *x, size_t n, size_t most);
size_t fuzz_mend_data(uint8_t *x, size_t n, size_t most);
size_t fuzz_mend_manifest(uint8_t *x, size_t n, size_t most);
size_t fuzz_mend_weights(uint8_t *x, size_t n, size_t most);

/* Mutates, and mends all but each eighth input: those are for the checks themselves. */
#define FUZZ_MENDED_BY(mend)                                                                                 \
  size_t LLVMFuzzerCustomMutator(uint8_t *x, size_t n, size_t most, unsigned seed) {                         \
    n = LLVMFuzzerMutate(x, n, most);                                                                        \
    return seed % 8 ? mend(x, n, most) : n;                                                                  \
  }

/* Sets the size of x to `want`, where there is room, with zeros behind what there is. Returns it. */
static inline size_t fuzz_resize(uint8_t *x, size_t n, size_t want, size_t most) {
  if (want > most) return n;
  for (size_t i = n; i < want; i++) x[i] = 0;
  return want;
}

#endif
