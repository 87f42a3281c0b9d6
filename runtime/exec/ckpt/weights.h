/* safetensors files of f32 tensors by parameter path. Writing: one rank makes the file with its header
 * (zx_weights_create), then every owner writes its runs of elements at their place; nothing is gathered. */
#ifndef ZUG_EXEC_WEIGHTS_H
#define ZUG_EXEC_WEIGHTS_H

#include "base/base.h"
#include "kernels/elem.h"

typedef struct ZxWeights ZxWeights;
typedef struct {
  const char *path; /* "layer.3.attn.wq" */
  int nshape;
  int64_t shape[8]; /* declared order */
} ZxTensorInfo;
/* Adds a file's first bytes but for the header's length, which come before them: the header, padded with
 * spaces so that data begin at a multiple of 64. *total: the whole file's bytes. Tensors lie in the order
 * given. */
bool zx_weights_head(ZbText *t, const ZxTensorInfo *tensors, size_t n, uint64_t *total, ZbErr *err);
/* The formats in which values are read from files and written to them: f32, bf16, f16. */
enum { ZX_FILE_ELEMS = 3 };
extern const ZkElem zx_file_elems[ZX_FILE_ELEMS];
bool zx_is_file_elem(ZkElem e);
/* The same for values in another format, with data at a multiple of `align`. */
bool zx_weights_head_as(ZbText *t, const ZxTensorInfo *tensors, size_t n, ZkElem as, uint64_t align,
                        uint64_t *total, ZbErr *err);
/* A tensor of a file in any type: its name there, and bytes of an element. The same for these. */
typedef struct {
  ZxTensorInfo info;
  const char *dtype;
  uint64_t bytes;
} ZxFileTensor;
bool zx_weights_head_of(ZbText *t, const ZxFileTensor *tensors, size_t n, uint64_t align, uint64_t *total,
                        ZbErr *err);
/* Writes n values in a format of files, rounded to nearest, ties to even. Returns the index of the first that
 * is finite and too large for the format, or -1. */
int64_t zx_as(ZkElem as, const float *x, uint64_t n, void *out);
/* One rank: the file's temporary, at its full size; `tensors` in any order. Committed after all that wrote
 * have closed it. */
ZbOut *zx_weights_create(const char *path, const ZxTensorInfo *tensors, size_t n, ZbErr *err);
ZxWeights *zx_weights_open(const char *path, bool write, ZbErr *err); /* write: `path` is the temporary's */
/* Index of a tensor; checks its shape; -1 with a message (nearest name, or found and expected shape). */
int64_t zx_weights_find(const ZxWeights *w, const ZxTensorInfo *want, ZbErr *err);
/* Whether tensor i can be read, and has that shape. */
bool zx_weights_fits(const ZxWeights *w, int64_t i, const ZxTensorInfo *want, ZbErr *err);
uint64_t zx_weights_count(const ZxWeights *w);
/* Index of a tensor of this path, whatever it is, or -1; path of a tensor. */
int64_t zx_weights_at(const ZxWeights *w, const char *path);
const char *zx_weights_path(const ZxWeights *w, int64_t i);
/* Whether a tensor of a file has the shape that `whose`, "the model", wants. False with a message. */
bool zx_shape_is(const char *file, const ZxTensorInfo *t, const ZxTensorInfo *want, const char *whose,
                 const char *help, ZbErr *err);
/* Return path and shape of a tensor, and its dtype as the file says it. */
ZxTensorInfo zx_weights_info(const ZxWeights *w, int64_t i);
const char *zx_weights_dtype(const ZxWeights *w, int64_t i);
/* Begins to read tensor i, and some of what lies behind it, beside what the caller does. */
void zx_weights_ahead(const ZxWeights *w, int64_t i);
/* Reads n bytes from byte `at` of tensor i as they are, which are there. */
bool zx_weights_bytes(const ZxWeights *w, int64_t i, uint64_t at, uint64_t n, void *out, ZbErr *err);
/* n elements from flat element `at` of tensor i. Reading converts F32, BF16, F16 files to f32. */
bool zx_weights_read(const ZxWeights *w, int64_t i, uint64_t at, uint64_t n, float *out, ZbErr *err);
bool zx_weights_write(ZxWeights *w, int64_t i, uint64_t at, uint64_t n, const float *in, ZbErr *err);
bool zx_weights_close(ZxWeights *w, ZbErr *err); /* fsyncs when written */

#endif
