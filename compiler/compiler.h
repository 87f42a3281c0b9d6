/* compiler: from a syntax tree to a stage graph. One file per pass, in the order they run:
 *
 * num.c      static numbers, exact;  static.c  sizes and other statics, -D overrides
 * elab.c     instantiates a model and checks every type on the way: statements, repeats, the loss
 * expr.c     names and expressions;  call.c  calls of blocks;  builtin.c  the operations of the language,
 *            with operands.c and attention.c
 * apart.c    inputs that keep documents apart, which the model itself has not
 * compose.c  operations that are several of the graph's;  rope.c  rotary positions among them
 * weights.c  maps to foreign weights;  config.c  their config.json, read and made;
 * config_file.c  that file, and its keys that nobody reads
 * families.c which maps are of which `model_type`
 * adapter.c  the config of adapters, of a file or of options;  adapt.c  puts them beside matrices
 * place.c    which segment a value lives in, and how it reaches a later one
 * sep.c      is the loss separable over `batch`? (what makes micro-batches safe)
 * simpl.c    folds constants, shares equal values, drops what nothing uses
 * grad.c     reverse mode: appends each segment's backward nodes, one rule per operation
 * compile.c  the list of passes; main.c  the program zc
 *
 * Knows nothing of recipes, meshes or ranks. */
#ifndef ZUG_COMPILER_H
#define ZUG_COMPILER_H

#include "graph/graph.h"
#include "lang/lang.h"

typedef struct {
  const char *name, *value; /* -D name=value */
} ZcDefine;

typedef struct {
  const char *model; /* which model of the file; NULL: its only one */
  const ZcDefine *defines;
  uint32_t ndefines;
  const char *config;      /* a config.json that sets statics, as the model's map `names` says; NULL: none */
  const char *config_text; /* not NULL: what is in it, and `config` is for messages */
  const char *names;       /* NULL: its only map with a `config` */
  /* Adapters beside matrices: as peft's adapter_config.json says, a file or the folder that has it; or beside those of
   * these names, "q_proj,v_proj", or of all, "all-linear". Neither: none. rank 0: 8; alpha 0: twice the rank. Several
   * count by an input of the model, `adapter`: the number of one for each token, or -1. */
  const char *const *adapters;
  uint32_t nadapters;
  const char *lora;
  int64_t rank;
  double alpha, dropout;
  bool still; /* nothing is trained: dropout is left out */
  bool apart; /* the model gets inputs that keep documents of a sample apart (apart.c) */
  /* Called after each pass with its name and the graph, if not NULL (zc -d). */
  void (*after)(void *arg, const char *pass, const ZgGraph *g);
  void *arg;
} ZcOptions;

/* All passes: elaborate, simplify, differentiate, simplify again, with zg_verify after each. NULL when `d`
 * has errors. The graph lives in `a`. */
ZgGraph *zc_compile(ZbArena *a, ZlSources *s, ZlDiags *d, ZlProgram *p, const ZcOptions *opt);
/* The names of the passes in order, NULL at the end. */
extern const char *const zc_pass_names[];

/* Checks every model (or the one `opt` names), every block of the file, called or not, every recipe and every
 * cluster, without making a graph. A block that no model calls is instantiated with axes of its own. */
void zc_check(ZbArena *a, ZlSources *s, ZlDiags *d, ZlProgram *p, const ZcOptions *opt);

/* ---- the passes ---------------------------------------------------------------------------------------- */
/* Instantiates the model: a verified forward graph, or NULL with reports in `d`.
 * Provides: segments alternate straight and repeat; every segment's carry nodes come first, its carry_out
 * nodes last; loss_num and loss_den are in the last segment, the latter a function of inputs alone. */
ZgGraph *zc_elaborate(ZbArena *a, ZlSources *s, ZlDiags *d, ZlProgram *p, const ZcOptions *opt);

/* Folds constants, shares equal nodes, drops nodes and carried values that reach no sink.
 * Needs and keeps: a graph that verifies, with or without its backward part. */
void zc_simplify(ZgGraph *g);

/* Appends the backward nodes of every segment. Needs: forward nodes only (nnodes == nforward) in every
 * segment. Fails (with what is missing in *err) only for an operation without a gradient on the way to a
 * parameter. */
bool zc_differentiate(ZgGraph *g, ZbErr *err);

/* ---- families.c ---------------------------------------------------------------------------------------- */
/* A `model_type` that the `config` of a map has: weights `names` for `model`. */
typedef struct {
  const char *model, *names, *type;
  bool first; /* the first of that map: what it is for, and not only like */
} ZcFamily;
/* Returns those of the main file, *n of them, in order. */
ZcFamily *zc_families(ZbArena *a, const ZlProgram *p, uint32_t *n);

/* ---- list.c -------------------------------------------------------------------------------------------- */
struct ZlFile; /* lang/ast.h */
/* The blocks of a file, for people: heads, and first lines of the comments above them. */
void zc_list(ZlSources *s, const struct ZlFile *f, ZbText *out);

#endif
