/* Element formats, from the rows of elem.def. Also for rooms that only read or write files of them: it needs
 * base.h and nothing else. */
#ifndef ZUG_KERNELS_ELEM_H
#define ZUG_KERNELS_ELEM_H

#include "base/base.h"

typedef enum {
#define E(NAME, text, file, bits, block, SCALE, ZERO, CODES) ZK_##NAME,
#include "kernels/elem.def"
#undef E
  ZK_ELEMS,
  ZK_NONE = ZK_ELEMS /* no format */
} ZkElem;

enum { /* for arrays of a block */
#define E(NAME, text, file, bits, block, SCALE, ZERO, CODES) ZK_##NAME##_BLOCK = block,
#include "kernels/elem.def"
#undef E
};

typedef enum { ZK_ZERO_NONE, ZK_ZERO_POINT, ZK_ZERO_OFFSET } ZkZero;
typedef enum { ZK_CODES_PLAIN, ZK_CODES_DYNAMIC, ZK_CODES_INTEGER, ZK_CODES_NORMAL } ZkCodes;

typedef struct {
  const char *text, *file;
  uint16_t bits, block;
  uint8_t scale, zero, codes; /* ZkElem, ZkZero, ZkCodes */
} ZkElemInfo;

static const ZkElemInfo zk_elem_info[ZK_ELEMS] = {
#define E(NAME, text, file, bits, block, SCALE, ZERO, CODES)                                                 \
  {text, file, bits, block, ZK_##SCALE, ZK_ZERO_##ZERO, ZK_CODES_##CODES},
#include "kernels/elem.def"
#undef E
};

static inline bool zk_is_plain(ZkElem e) {
  return zk_elem_info[e].block == 1 && zk_elem_info[e].bits % 8 == 0;
}

/* Returns whether it is a format of weights in panels (packed.h). */
static inline bool zk_is_packed(ZkElem e) { return zk_elem_info[e].codes >= ZK_CODES_INTEGER; }

/* Returns the bytes from an element to the next, in a plain format: those of a stride of 1. */
static inline size_t zk_plain_bytes(ZkElem e) {
  ZB_ASSERT(zk_is_plain(e));
  return zk_elem_info[e].bits / 8;
}

/* Returns the bytes of n elements, rounded up to whole blocks. */
static inline uint64_t zk_bytes(ZkElem e, uint64_t n) {
  const ZkElemInfo *x = &zk_elem_info[e];
  if (x->block == 1) return n * zk_plain_bytes(e);
  uint64_t zero = x->zero == ZK_ZERO_POINT ? x->bits : x->zero == ZK_ZERO_OFFSET ? 16 : 0;
  uint64_t bytes = (uint64_t)(x->block * x->bits + 7) / 8 + zk_plain_bytes((ZkElem)x->scale) + (zero + 7) / 8;
  return (n + x->block - 1) / x->block * bytes;
}

/* Returns how many elements have that many bytes, which are whole blocks. */
static inline uint64_t zk_elems(ZkElem e, uint64_t bytes) {
  uint64_t block = zk_elem_info[e].block;
  return bytes / zk_bytes(e, block) * block;
}

/* Returns the bytes of an element with its part of what its block shares: for estimates. */
static inline double zk_mean_bytes(ZkElem e) {
  return (double)zk_bytes(e, zk_elem_info[e].block) / zk_elem_info[e].block;
}

/* ---- matrices of packed weights: packed.h says how they lie --------------------------------------------- */
#define ZK_COLUMNS 16 /* of a panel */
static inline int64_t zk_packed_group(ZkElem e) { return zk_elem_info[e].block; }
static inline int64_t zk_packed_panels(int64_t columns) { return (columns + ZK_COLUMNS - 1) / ZK_COLUMNS; }
/* Returns the unit in which matrices of a format take elements: its bytes are a multiple of 64. */
static inline uint64_t zk_packed_unit(ZkElem e) { return 64 * (uint64_t)zk_elem_info[e].block; }
/* Returns the elements that a matrix takes, those that fill its last panel and unit included: zk_bytes makes
 * bytes of them. k: elements of a column, whole groups. */
static inline uint64_t zk_packed_elems(ZkElem e, int64_t columns, int64_t k) {
  return zb_round_up((uint64_t)(zk_packed_panels(columns) * ZK_COLUMNS * k), zk_packed_unit(e));
}

/* Elements of a format in a flat buffer. */
typedef struct {
  ZkElem elem;
  void *at;
} ZkFlat;

/* Returns those from `first` on, which begins a block. */
static inline ZkFlat zk_flat_from(ZkFlat x, uint64_t first) {
  ZB_ASSERT(first % zk_elem_info[x.elem].block == 0);
  return (ZkFlat){x.elem, (char *)x.at + zk_bytes(x.elem, first)};
}

/* Returns the format of that name in tables and commands, or ZK_NONE. */
static inline ZkElem zk_elem_named(const char *text) {
  int e = 0;
  while (e < ZK_ELEMS && strcmp(zk_elem_info[e].text, text)) e++;
  return (ZkElem)e;
}

#endif
