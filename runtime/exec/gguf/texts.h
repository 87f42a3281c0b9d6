/* Private to gguf: the texts that a folder would have beside weights. Each appends it; false with a
 * message. */
#ifndef ZUG_EXEC_GGUF_TEXTS_H
#define ZUG_EXEC_GGUF_TEXTS_H

#include "runtime/exec/gguf/file.h"

/* ---- tokenizer.c --------------------------------------------------------------------------------------- */
/* Puts bos_token_id and eos_token_id into an object. */
void zx_gguf_ids(const ZxGgufFile *f, ZbJson *j);
bool zx_gguf_tokenizer(const ZxGgufFile *f, ZbText *out, ZbErr *err);
/* Special tokens by name, and the template of conversations. */
bool zx_gguf_tokenizer_config(const ZxGgufFile *f, ZbText *out, ZbErr *err);

/* ---- config.c ------------------------------------------------------------------------------------------ */
bool zx_gguf_config(const ZxGgufFile *f, ZbText *out, ZbErr *err);

#endif
