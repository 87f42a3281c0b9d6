/* adapter: what is known of adapters' tensors by their names, for exports (export.c). */
#ifndef ZUG_EXEC_HUB_ADAPTER_H
#define ZUG_EXEC_HUB_ADAPTER_H

#include "runtime/exec/hub/hub.h"

/* Says whether a foreign tensor is A or B of an adapter. */
bool zx_is_adapter(const char *tensor);
/* Returns the name of A, or of B, that a matrix would have; NULL: it is not called like a matrix. `lost`:
 * what names of the map have lost against those that adapters have. */
const char *zx_adapter_of(ZbArena *a, const char *tensor, const char *lost, bool second);
/* Returns the module of an adapter's tensor, and what it has before `tensor`'s, NULL if that is another
 * module. */
const char *zx_adapter_module(ZbArena *a, const char *adapter);
const char *zx_adapter_lost(ZbArena *a, const char *module, const char *tensor);
/* Appends the text of adapter_config.json. `base`: the folder of the model, or NULL. */
void zx_adapter_config(const ZgGraph *g, const char *names, const char *base, ZbText *out);

/* An adapter and how it counts: a[rank, in], and b[rank, out], which is B turned. */
typedef struct {
  const float *a, *b;
  int64_t rank, in, out;
  bool transposed; /* the matrix is [in, out] */
  double scale;
} ZxPair;
/* Adds scale B A to elements from..from + n - 1 of a matrix, which window[0..n) has. */
void zx_adapter_add(const ZxPair *p, float *window, int64_t from, int64_t n);

#endif
