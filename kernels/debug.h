/* Debug settings (debug.def), as values that whoever has a ZkEnv can read. Of one that is all zeros none is given. */
#ifndef ZUG_KERNELS_DEBUG_H
#define ZUG_KERNELS_DEBUG_H

#include "base/base.h"

typedef enum {
#define SETTING(id, ...) ZK_DEBUG_##id,
#include "kernels/debug.def"
  ZK_DEBUGS
} ZkDebugName;

typedef struct {
  uint32_t given; /* a bit for each */
  int64_t value[ZK_DEBUGS];
} ZkDebug;

/* What was given, or the default. */
static inline int64_t zk_debug(const ZkDebug *d, ZkDebugName n) {
  static const int64_t usual[] = {
#define SETTING(id, name, unit, least, most, usual, what) usual,
#include "kernels/debug.def"
  };
  return d->given >> n & 1 ? d->value[n] : usual[n];
}

/* Takes "NAME=VALUE"; of a name that comes twice the last counts. */
bool zk_debug_take(ZkDebug *d, const char *text, ZbErr *err);
const char *zk_debug_name(ZkDebugName n);
/* As it was given; "default" where it was not. */
const char *zk_debug_text(const ZkDebug *d, ZkDebugName n, char buf[24]);

#endif
