/* gguf: files of llama.cpp, each a model with all that belongs to it: weights in blocks with scales of
 * their own, sizes, the tokenizer. Here such a file is seen as the folder that the hub has of the same
 * model.
 *
 * file.c       its head: values by key, and where tensors lie (file.h)
 * blocks.c     blocks as f32
 * names.c      what families, tensors and sizes are called there, and at the hub (names.h)
 * tensors.c    tensors by the hub's names, their rows in its order
 * config.c     config.json
 * tokenizer.c  tokenizer.json and tokenizer_config.json
 * folder.c     which of these there are
 *
 * Nothing of a file is trusted: sizes are checked before anything is
 * read or allocated. The format is that of ggml's docs/gguf.md, versions 2 and 3. */
#ifndef ZUG_EXEC_GGUF_H
#define ZUG_EXEC_GGUF_H

#include "runtime/exec/ckpt/weights.h"

/* Says whether a path is that of such a file, by its name. */
bool zx_is_gguf(const char *path);

/* ---- tensors.c ----------------------------------------------------------------------------------------- */
typedef struct ZxGguf ZxGguf;
/* Opens a file, and reads its head. Lives in the arena, and is open until it is closed. NULL with a
 * message, also where it is of a model that cannot be read. */
ZxGguf *zx_gguf_open(ZbArena *a, const char *path, ZbErr *err);
void zx_gguf_close(ZxGguf *g); /* NULL is allowed */
uint32_t zx_gguf_count(const ZxGguf *g);
/* Returns name and shape of a tensor as the hub has it, and what its blocks are called: "Q4_K". */
ZxTensorInfo zx_gguf_info(const ZxGguf *g, uint32_t tensor, const char **format);
/* Reads n values from flat element `at`, in the hub's order. */
bool zx_gguf_read(const ZxGguf *g, uint32_t tensor, uint64_t at, uint64_t n, float *out, ZbErr *err);

/* ---- folder.c ------------------------------------------------------------------------------------------ */
/* Returns the text of a file of such a folder, with a NUL behind its *n bytes; NULL without a message: the
 * folder does not have it. */
const char *zx_gguf_text(ZbArena *a, const char *path, const char *name, size_t *n, ZbErr *err);

#endif
