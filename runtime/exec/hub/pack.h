/* Private to hub: matrices that an export writes in few bits, as compressed-tensors has them, which
 * programs that serve read (pack-quantized: codes in words of 32 bits, symmetric, with a scale for each
 * group of a row). */
#ifndef ZUG_EXEC_PACK_H
#define ZUG_EXEC_PACK_H

#include "runtime/exec/hub/hub.h"

/* Says whether a part of a parameter is a matrix [out, in] that products alone use, and not to choose experts
 * by: what others call a linear layer. */
bool zx_pack_is_linear(const ZgGraph *g, uint32_t param, const ZxPart *part);
/* Says whether rows of a tensor are whole groups of a packed format. False with a message, which says what
 * would do. */
bool zx_pack_fits(const ZxTensorInfo *t, ZkElem packed, ZbErr *err);
/* Fills in the tensors that a matrix, MODULE.weight, becomes, in order: words, scales in format `as`, and
 * the shape. Returns how many. */
enum { ZX_PACK_TENSORS = 3, ZX_PACK_GROUP = 128 /* the largest group */ };
int zx_pack_tensors(ZbArena *a, const ZxTensorInfo *t, ZkElem packed, ZkElem as,
                    ZxFileTensor out[ZX_PACK_TENSORS]);
/* Rounds n values, whole groups: their words, and a scale of each group in format `as`. False: a value is
 * not finite, or too large. */
bool zx_pack_round(ZkElem packed, ZkElem as, const float *x, uint64_t n, uint32_t *words, void *scales);
/* Returns quantization_config as JSON. ignore: modules that stay as they are. */
const char *zx_pack_config(ZbArena *a, ZkElem packed, const char *const *ignore, uint32_t n);

#endif
