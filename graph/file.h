/* Numbers of the .zsg file that write.c and read.c share. The format: FORMAT.md. */
#ifndef ZUG_GRAPH_FILE_H
#define ZUG_GRAPH_FILE_H

#include <stdint.h>

/* kind, name, bytes of a record, most records */
#define ZG_SECTIONS(X)                                                                                       \
  X(1, META, 8, 1)                                                                                           \
  X(2, STRE, 4, 1 << 20)                                                                                     \
  X(3, STRB, 1, 1 << 26)                                                                                     \
  X(4, LOCS, 12, 1 << 20)                                                                                    \
  X(5, AXIS, 16, ZG_MAX_GRAPH_AXES)                                                                          \
  X(6, TAGS, 4, 32)                                                                                          \
  X(7, TYPE, 20, 1 << 20)                                                                                    \
  X(8, PARM, 48, 1 << 20)                                                                                    \
  X(9, REGN, 16, 1 << 20)                                                                                    \
  X(10, INOU, 16, ZG_MAX_IO)                                                                                 \
  X(11, SEGM, 32, ZG_MAX_SEGMENTS)                                                                           \
  X(12, CARR, 4, 1 << 20)                                                                                    \
  X(13, NODE, 16, 1 << 20)                                                                                   \
  X(14, OPND, 4, 1 << 23)                                                                                    \
  X(15, AXAR, 2, 1 << 23)                                                                                    \
  X(16, ATTR, 8, 1 << 22)                                                                                    \
  X(17, RSLT, 4, 1 << 22)                                                                                    \
  X(18, FORN, 160, 1 << 20)                                                                                  \
  X(19, CONF, 12, ZG_MAX_KEYS)                                                                               \
  X(20, IGNO, 8, ZG_MAX_KEYS)                                                                                \
  X(21, LOSS, 8, ZG_MAX_LOSSES)                                                                              \
  X(22, STAT, 8, 1 << 20)                                                                                    \
  X(23, STEP, 16, 1 << 22)                                                                                   \
  X(24, ORDR, 12, ZG_MAX_IO)                                                                                 \
  X(25, COPY, 8, ZG_MAX_KEYS)                                                                                \
  X(26, EACH, 24, 1 << 20)                                                                                   \
  X(27, FORM, 8, 1 << 20)

enum {
#define X(kind, name, record, most) SEC_##name = kind,
  ZG_SECTIONS(X)
#undef X
};

#define ZSG_MAGIC "ZSG\x1a"
enum {
  ZSG_MAJOR = 1,
  /* With FORM; 5: EACH; 4: with ORDR; 3: states; 2: names of losses; 1: other optional sections; else 0. */
  ZSG_MINOR = 6,
  ZSG_HEADER = 64,    /* bytes; then the directory */
  ZSG_ENTRY = 32,     /* bytes of a directory entry */
  ZSG_KINDS = 17,     /* 1 to this: in every file */
  ZSG_ALL_KINDS = 27, /* the others: where they have records */
  ZSG_REQUIRED = 1,   /* flag of a section that a reader must know */
  ZSG_OP_VERSION = 1, /* of every op so far */
  ZSG_MAX_STRING = 255,
  ZSG_HAS_NUM = 1,
  ZSG_HAS_OPT0 = 2,
  ZSG_HAS_OPT1 = 4,
  ZSG_HAS_NUM1 = 8, /* attribute mask of a node */
  ZSG_REPEAT = 1,
  ZSG_BACKWARD = 2 /* flags of a segment */
};

static inline uint64_t zsg_get(const uint8_t *p, int bytes) {
  uint64_t v = 0;
  for (int i = bytes; i-- > 0;) v = v << 8 | p[i];
  return v;
}
static inline void zsg_set(uint8_t *p, int bytes, uint64_t v) {
  for (int i = 0; i < bytes; i++, v >>= 8) p[i] = (uint8_t)v;
}

#endif
