/* Element formats, from the rows of elem.def. Also for rooms that only read or write files of them: it needs
 * base.h and nothing else. */
#ifndef ZUG_KERNELS_ELEM_H
#define ZUG_KERNELS_ELEM_H

#include "base/base.h"

typedef enum {
#define E(NAME, text, file, bits, block, SCALE, ZERO) ZK_##NAME,
#include "kernels/elem.def"
#undef E
  ZK_ELEMS,
  ZK_NONE = ZK_ELEMS /* no format */
} ZkElem;

enum { /* for arrays of a block */
#define E(NAME, text, file, bits, block, SCALE, ZERO) ZK_##NAME##_BLOCK = block,
#include "kernels/elem.def"
#undef E
};

typedef enum { ZK_ZERO_NONE, ZK_ZERO_POINT, ZK_ZERO_OFFSET } ZkZero;

typedef struct {
  const char *text, *file;
  uint16_t bits, block;
  uint8_t scale, zero; /* ZkElem, ZkZero */
} ZkElemInfo;

static const ZkElemInfo zk_elem_info[ZK_ELEMS] = {
#define E(NAME, text, file, bits, block, SCALE, ZERO) {text, file, bits, block, ZK_##SCALE, ZK_ZERO_##ZERO},
#include "kernels/elem.def"
#undef E
};

static inline bool zk_is_plain(ZkElem e) {
  return zk_elem_info[e].block == 1 && zk_elem_info[e].bits % 8 == 0;
}

/* Returns the bytes from an element to the next, in a plain format: those of a stride of 1. */
static inline size_t zk_plain_bytes(ZkElem e) {
  ZB_ASSERT(zk_is_plain(e));
  return zk_elem_info[e].bits / 8;
}

/* Returns the bytes of n elements without scales and zeros. */
static inline uint64_t zk_code_bytes(ZkElem e, uint64_t n) {
  uint64_t bits = zk_elem_info[e].bits;
  return bits % 8 == 0 ? n * (bits / 8) : (n * bits + 7) / 8;
}

/* Returns the bytes of the scales and zeros of the blocks that n elements take. */
static inline uint64_t zk_scale_bytes(ZkElem e, uint64_t n) {
  const ZkElemInfo *x = &zk_elem_info[e];
  if (x->block == 1) return 0;
  uint64_t blocks = (n + x->block - 1) / x->block;
  uint64_t zero = x->zero == ZK_ZERO_POINT ? x->bits : x->zero == ZK_ZERO_OFFSET ? 16 : 0;
  return blocks * zk_plain_bytes((ZkElem)x->scale) + (blocks * zero + 7) / 8;
}

/* Returns the bytes of n elements, rounded up to whole blocks, with their scales and zeros. */
static inline uint64_t zk_bytes(ZkElem e, uint64_t n) {
  uint64_t block = zk_elem_info[e].block;
  return zk_code_bytes(e, block == 1 ? n : (n + block - 1) / block * block) + zk_scale_bytes(e, n);
}

/* Returns the bytes of an element with its part of what its block shares: for estimates. */
static inline double zk_mean_bytes(ZkElem e) {
  return (double)zk_bytes(e, zk_elem_info[e].block) / zk_elem_info[e].block;
}

/* Elements of a format in a flat buffer. scale: those of its blocks; NULL in a plain format. */
typedef struct {
  ZkElem elem;
  void *at, *scale;
} ZkFlat;

/* Returns where n elements are that lie `at`, whole blocks; and where those from `first` on are, which begins a
 * block. */
static inline ZkFlat zk_flat(ZkElem e, void *at, uint64_t n) {
  ZB_ASSERT(n % zk_elem_info[e].block == 0);
  return (ZkFlat){e, at, zk_elem_info[e].block == 1 ? NULL : (char *)at + zk_code_bytes(e, n)};
}
static inline ZkFlat zk_flat_from(ZkFlat x, uint64_t first) {
  const ZkElemInfo *e = &zk_elem_info[x.elem];
  ZB_ASSERT(first % e->block == 0);
  x.at = (char *)x.at + zk_code_bytes(x.elem, first);
  if (x.scale) x.scale = (char *)x.scale + first / e->block * zk_plain_bytes((ZkElem)e->scale);
  return x;
}

/* Returns the format of that name in tables and commands, or ZK_NONE. */
static inline ZkElem zk_elem_named(const char *text) {
  int e = 0;
  while (e < ZK_ELEMS && strcmp(zk_elem_info[e].text, text)) e++;
  return (ZkElem)e;
}

#endif
