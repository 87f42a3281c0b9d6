/* hub: weights of other programs, as folders on a hub have them: safetensors files in shards, under names and
 * in shapes of their own, with a config.json and a tokenizer's files beside.
 *
 * shards.c   tensors by name, of one file, a folder's shards, or a GGUF file
 * quantized.c  what of them is one weight, quantized (quantized.h has who writes such); coded.c  its values
 * box.c      a box of a tensor, read in few pieces, whatever the order in which its elements lie
 * map.c      what a parameter is there: parts of foreign tensors, by the graph's records (ZgForeign)
 * config.c   config.json: what the graph knows of it (ZgConfig), and what another folder says beside
 * export.c   all of a model's parameters as such a folder, or its adapters
 * adapter.c  what adapters' tensors are by their names (adapter.h), their config, and matrices with them added
 * pack.c     those in few bits, for other programs (pack.h)
 * zckpt_export.c   the command `zckpt export`
 *
 * Which model is called what there is the graph's knowledge: nothing here knows any model. Files are trusted
 * in nothing. Knows no ranks and no engine: state/load.c reads what a rank owns. */
#ifndef ZUG_EXEC_HUB_H
#define ZUG_EXEC_HUB_H

#include "graph/graph.h"
#include "runtime/exec/ckpt/weights.h"
#include "runtime/exec/gguf/gguf.h"

/* ---- shards.c ------------------------------------------------------------------------------------------ */
/* The files of `path`, which is a safetensors or GGUF file, or a folder: model.safetensors, or else
 * model.safetensors.index.json (the first of the list) and what it names, or else adapter_model.safetensors. False
 * with a message. */
bool zx_shards_list(ZbArena *a, const char *path, const char ***files, uint32_t *n, ZbErr *err);

/* Where a tensor is: tensor `tensor` of a file; or several of them make one, which is quantized. */
typedef struct ZxCoded ZxCoded;
typedef struct {
  uint32_t file;
  int64_t tensor;       /* of the file, or of the GGUF file */
  const ZxCoded *coded; /* NULL: it is not */
} ZxPlace;

/* Those files, open, all headers read. Lives in the arena; the files are open until it is closed. */
typedef struct {
  const char *path;
  ZxWeights **file;
  const char **name; /* of each file */
  uint32_t nfiles;
  ZxGguf *gguf;  /* not NULL: all of it, and there are no other files */
  ZbNames names; /* of tensors, of all files, as a model knows them */
  ZxPlace *at;   /* where each is */
} ZxShards;
/* A tensor that is in two files, or not in the file that the index says, is an error. What the config.json beside
 * says is quantized is one tensor, of f32. */
bool zx_shards_open(ZxShards *s, ZbArena *a, const char *path, ZbErr *err);
/* Adds the tensors of another path to those of open files, by names that begin with `mark`. What fails closes all. */
bool zx_shards_add(ZxShards *s, ZbArena *a, const char *path, const char *mark, ZbErr *err);
void zx_shards_close(ZxShards *s);
/* The number of a tensor, or ZB_NO_NAME; whether it can be read and has the shape that is wanted. */
uint32_t zx_shards_find(const ZxShards *s, const char *name);
bool zx_shards_fits(const ZxShards *s, uint32_t tensor, const ZxTensorInfo *want, ZbErr *err);
/* Returns name and shape of a tensor. */
ZxTensorInfo zx_shards_info(const ZxShards *s, uint32_t tensor);
/* As zx_weights_ahead; of codes and of GGUF files nothing is begun. */
void zx_shards_ahead(const ZxShards *s, uint32_t tensor);
/* Returns what codes of 4 bits a tensor has that need zero points of their own, "int4 of AWQ in groups of 128"; NULL:
 * none. */
const char *zx_shards_uneven(const ZxShards *s, uint32_t tensor);
/* Says what is quantized, and how: "7 of 12 tensors are int4 of AWQ in groups of 128"; nothing: nothing is. */
void zx_shards_tell(const ZxShards *s, ZbText *t);

/* ---- box.c --------------------------------------------------------------------------------------------- */
/* Elements of a tensor, of which index i[0], i[1], ... (i[a] < count[a]) is the tensor's element
 * from + sum of i[a] * stride[a], and belongs to place to + sum of i[a] * step[a] of an array. */
typedef struct {
  int naxes;
  int64_t count[ZG_MAX_AXES];
  int64_t from, stride[ZG_MAX_AXES];
  int64_t to, step[ZG_MAX_AXES];
} ZxBox;
/* Reads a box to out[0..n); what belongs outside of that is left out. Takes a few MB of memory, and reads
 * over gaps that are shorter than a seek is worth. */
bool zx_box_read(const ZxShards *s, uint32_t tensor, const ZxBox *b, float *out, uint64_t n, ZbErr *err);
/* The same in parts, which threads may read at once. *finite becomes false if a value that a part has read,
 * maybe in a gap, is not finite; then the box may have some. */
typedef struct {
  const ZxShards *files;
  uint32_t tensor;
  ZxBox box;
  float *out;
  uint64_t n;
} ZxReading;
bool zx_box_read_part(const ZxReading *r, int part, int parts, bool *finite, ZbErr *err);

/* ---- map.c --------------------------------------------------------------------------------------------- */
/* The names of one map of a graph, or the parameters' own. */
typedef struct {
  const ZgGraph *g;
  const char *names; /* NULL: their own */
  uint32_t *begin;   /* records of parameter i: record[begin[i]..begin[i + 1]) */
  uint32_t *record;  /* of g->foreign */
} ZxMap;
/* Of a verified graph. False with a message if there is no such map; it lists those that there are. */
bool zx_map_open(ZxMap *m, ZbArena *a, const ZgGraph *g, const char *names, ZbErr *err);
/* A part of a parameter: a view of tensor `info`. */
typedef struct {
  ZxTensorInfo info;
  int64_t first, stride[ZG_MAX_AXES]; /* of declared axes */
  int fixed;                          /* -1, or the axis of which it has one index, `at` */
  int64_t at;
} ZxPart;
/* How many parts; part k of iteration `iter` of a parameter, whose own path and shape there are `own`. */
uint32_t zx_map_parts(const ZxMap *m, uint32_t param);
ZxPart zx_map_part(const ZxMap *m, ZbArena *a, uint32_t param, uint32_t iter, const ZxTensorInfo *own,
                   uint32_t k);
/* How often a parameter is there; path and shape of one iteration. */
uint32_t zx_map_iterations(const ZgGraph *g, uint32_t param);
ZxTensorInfo zx_map_own(ZbArena *a, const ZgGraph *g, uint32_t param, uint32_t iter);
/* Whether foreign tensors of that name are without interest. */
bool zx_map_ignores(const ZxMap *m, const char *name);
/* Whether record i of what the graph ignores is a copy, by this map; that tensor, and the mapped one. */
bool zx_map_copy(const ZxMap *m, uint32_t i, ZxTensorInfo *copy, ZxTensorInfo *of);

/* ---- config.c ------------------------------------------------------------------------------------------ */
/* The text of config.json, to be freed: what the graph says (NULL without a message: nothing, and there is no
 * `like`) and the types of values, over what the text `like` says beside (may be NULL; `name` is its file's).
 * Keys are in order, numbers as they were written. quantized: quantization_config, or NULL. */
char *zx_config(const ZgGraph *g, const char *names, ZkElem as, const char *quantized, const char *like,
                const char *name, ZbErr *err);

/* ---- export.c ------------------------------------------------------------------------------------------ */
/* Of a graph with adapters: they alone, as peft has them, or matrices with adapters added. */
typedef enum { ZX_EXPORT_ALL, ZX_EXPORT_ADAPTERS, ZX_EXPORT_MERGED } ZxExportWhat;
typedef struct {
  ZxExportWhat what;
  const char *out, *like; /* folders; like: NULL, or where a tokenizer's files and other keys are */
  ZkElem as;
  ZkElem packed;   /* a packed one, of matrices [out, in] that products alone use; another: like the rest */
  uint64_t most;   /* bytes of tensors in a file */
  bool force;      /* an export that is there may be replaced */
  uint64_t window; /* values of a tensor that are in memory at once; 0: 16 M */
} ZxExportOptions;
typedef struct {
  ZxExportWhat what;
  uint32_t tensors, files, copied;
  uint64_t bytes;  /* of tensors */
  bool config;     /* there is a config.json, or adapter_config.json */
  uint32_t merged; /* matrices that have been added to */
  uint32_t packed; /* tensors of another program's names that are in few bits, in this format */
  ZkElem format;
} ZxExported;
/* Writes parameters, which `from` has under their own names, under those of the map. The folder has its name
 * when it is whole. */
bool zx_export(ZbArena *a, const ZxMap *m, const ZxShards *from, const ZxExportOptions *o, ZxExported *out,
               ZbErr *err);

#endif
