/* Private to gguf: families, by what llama.cpp calls an architecture. */
#ifndef ZUG_EXEC_GGUF_NAMES_H
#define ZUG_EXEC_GGUF_NAMES_H

#include "runtime/exec/gguf/file.h"

/* Names at the hub of tensors of experts, which have one each; `*` is the expert. */
typedef struct {
  const char *router, *gate, *up, *down;
} ZxExperts;
/* pairs: rows of queries and keys that a rotation takes together follow each other in files; the hub has
 * all first ones of a head before all second ones. around: there are norms before and after each part of a
 * layer. */
typedef struct {
  const char *name, *model_type, *class; /* of a file; of the hub */
  bool pairs, around;
  float plus;               /* what was added to the factors of norms */
  const ZxExperts *experts; /* NULL: there are none */
} ZxFamily;
/* Returns the file's family; NULL with a message. */
const ZxFamily *zx_gguf_family(const ZxGgufFile *f, ZbErr *err);
/* Returns what the hub calls a tensor, or of a tensor of experts that of one: the same name where nothing
 * is known. */
const char *zx_gguf_hub_name(const ZxFamily *of, ZbArena *a, const char *name, int64_t expert);
/* Says whether a tensor has all experts, the outermost axis. */
bool zx_gguf_has_experts(const ZxFamily *of, const char *name);
/* Returns the number of a key behind the architecture and a point; `usual` where it is not there. */
double zx_gguf_size(const ZxGgufFile *f, const ZxFamily *of, const char *key, double usual);
/* The same of a count, from 1 on; it must be there if `usual` is 0. 0 with a message. */
int64_t zx_gguf_count_of(const ZxGgufFile *f, const ZxFamily *of, const char *key, int64_t usual, ZbErr *err);

#endif
