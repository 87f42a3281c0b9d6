/* Shared by lang's own files; nobody else may include it (tests may): sources, the embedded library, recipes as
 * written, and the parser's state. */
#ifndef ZUG_LANG_INTERNAL_H
#define ZUG_LANG_INTERNAL_H

#include "lang/ast.h"

#define ZL_MAX_FILE (16u << 20) /* bytes of one source file */
#define ZL_MAX_FILES 256        /* files of one program */
#define ZL_MAX_NAME 100         /* bytes of a name; stage graphs take 255 for a whole path */

/* ---- span.c ---- */
/* Adds a file; the text (NUL after n bytes) is kept, not copied. Returns its number. */
int32_t zl_source_add(ZlSources *s, const char *name, const char *text, size_t n);
/* Returns the bytes of the mark with which some editors begin a UTF-8 file: 3 or 0. The mark is not part of the text. */
uint32_t zl_bom(const char *text, size_t n);
/* The line (1-based) of a file without its newline; NULL past the end. */
const char *zl_source_line(const ZlSources *s, int32_t file, uint32_t line, uint32_t *len);
/* Line and column of byte `at` of a file. */
void zl_source_at(const ZlSources *s, int32_t file, uint32_t at, uint32_t *line, uint32_t *col);

/* ---- embedded text, generated at build time: name and text in turn, then NULL ---- */
extern const char *const zl_stdlib[];    /* "std/nn.zug", ... */
extern const char *const zl_errors_md[]; /* "Z0001", its section of ERRORS.md, ... */

/* ---- recipes and clusters as written ---- */
typedef struct {
  double value;
  bool integer;
  int64_t i;
  ZlSpan span;
} ZlNumber;

/* The unit of a quantity. */
typedef enum { ZL_U_BYTES, ZL_U_BYTES_S, ZL_U_FLOPS, ZL_U_SECONDS, ZL_U_NONE } ZlUnit;
typedef struct {
  ZlName name;
  double value; /* in bytes, bytes/s, 1/s or s; of a mesh or bind: the number */
  ZlUnit unit;
  bool integer;
  int64_t i;
  ZlSpan span; /* of the value */
  bool open;   /* mesh: `?`, to be chosen */
} ZlQuantity;

typedef enum {
#define DIRECTIVE(NAME, ...) ZL_D_##NAME,
#define NUMBER DIRECTIVE
#define CHOICE DIRECTIVE
#define LATER DIRECTIVE
#include "lang/directives.def"
  ZL_DIRECTIVES
} ZlDirectiveKind;

/* An amount as it is written: `first to TO over OVER to ...`. */
typedef struct {
  ZlExpr *first, **to, **over;
  uint32_t n, nover; /* the same */
} ZlAmountAst;

/* `lr = 0.02 / sqrt(embed / 768)`, `cosine`, in parentheses behind an optimizer or another word. */
typedef struct {
  ZlName key; /* key.s NULL for a bare value */
  ZlAmountAst value;
  ZlSpan span;
} ZlKwAst;

/* Behind an optimizer: `for embed except embed.pos`, `decay 0.1`, `decay 0.1 except norm`, `rate 0.1 for embed`. */
typedef struct {
  enum { ZL_CLAUSE_FOR, ZL_CLAUSE_DECAY, ZL_CLAUSE_RATE } kind;
  ZlName word; /* RATE: as it is written */
  ZlAmountAst amount;
  bool excepts; /* names go on the list after `except` */
  ZlPath *of, *but;
  uint32_t nof, nbut;
  ZlSpan span;
} ZlClause;

/* Behind `precision`: `compute bf16`, `weights int4 group 64 for layer except lora`. */
typedef struct {
  ZlName key, type, word; /* word: before the number; s NULL without */
  ZlNumber num;
  ZlPaths of, but;
  ZlSpan span;
} ZlPrecision;

/* One directive; which fields are used depends on the kind. */
/* clang-format off */
typedef struct {
  ZlDirectiveKind kind;
  ZlSpan span;
  ZlQuantity *q; uint32_t nq;         /* mesh, bind, pad, limit; stages: the counts, unnamed */
  ZlNumber num; bool has_num;         /* micro, chunk, and those that are a number */
  ZlProd *prods; uint32_t nprods;     /* split */
  ZlNames names;                      /* split: dims; shard: levels */
  ZlNames maybe;                      /* split, pad: axes of these that the model may lack */
  ZlNames others;                     /* split: else */
  ZlName word;                        /* optimizer, attention, chunk, choices: name; shard, stages: dim; stages: see by */
  ZlName by;                          /* stages over DIM by WORD; attention: over DIM, or NULL */
  ZlPath *paths; uint32_t npaths;     /* recompute, freeze */
  ZlPrecision *precisions; uint32_t nprecisions;
  ZlPath unit;                        /* shard; n = 0 without */
  ZlPath *but; uint32_t nbut;         /* freeze: except */
  ZlKwAst *kws; uint32_t nkws;        /* optimizer, choices */
  ZlClause *clauses; uint32_t nclauses; /* optimizer */
  bool keep;                          /* shard */
  /* `?` in place of what is to be chosen: of micro, recompute, stages, shard, split; of split: after `else`. */
  bool open, open_else;
  ZlOrder order;                      /* split */
} ZlDirective;
/* clang-format on */

struct ZlRecipeAst {
  ZlName name, model; /* model.s NULL without `for` */
  ZlPath from;        /* n = 0 without */
  const ZlFile *file;
  ZlSpan span; /* the head */
  ZlDirective **at;
  uint32_t n;
};

typedef enum { ZL_C_DEVICE, ZL_C_HOST, ZL_C_LEVEL } ZlClusterKind;
/* clang-format off */
typedef struct {
  ZlClusterKind kind;
  ZlSpan span;
  ZlName name; /* level */
  ZlNumber size;
  ZlQuantity *q; uint32_t nq;
} ZlClusterLine;
/* clang-format on */

struct ZlClusterAst {
  ZlName name;
  ZlSpan span;
  ZlClusterLine *at;
  uint32_t n;
};

/* ---- precision.c ---- */
/* Puts a name on the list that a precision has behind `for`, or behind `except`; a second list is reported. */
void zl_precision_names(ZlDiags *d, ZbArena *a, ZlPrecision *p, bool but, ZlPath name);
/* The same of a name behind a comma, on the last list that there is; reports if there is none. */
void zl_precision_more(ZlDiags *d, ZbArena *a, ZlPrecision *p, ZlPath name);
/* The checked record of `weights ...`; `none` gives one without a format. False with reports. */
bool zl_packing(ZlDiags *d, const ZlPrecision *p, ZlPacking *to);
/* Returns the word that another precision is, one of those that the language has; NULL with a report. */
const char *zl_precision_word(ZlDiags *d, const ZlPrecision *p, int *which);
extern const char *const zl_precision_keys[]; /* compute, params, grads, reduce, states: by *which */
/* ---- amount.c ---- */
/* The value of an expression; false and a report if it has none. */
bool zl_value(const ZlSizes *s, const ZlExpr *x, double *out);
/* The amount that is written; its `of` stays where sizes of axes are in it. False with reports. */
bool zl_amount(ZlDiags *d, ZbArena *a, const ZlAmountAst *x, ZlAmount *out);
/* As it would be written; in parentheses where it is an expression and not the `whole` of a setting. */
void zl_amount_put(ZbText *out, const ZlAmount *x, bool whole);

/* ---- optimizer.c ---- */
/* `name` goes on the list of the directive's last clause; reports if that has none. `except`: it begins the list of
 * what is not meant. */
void zl_clause_more(ZlDiags *d, ZbArena *a, ZlDirective *o, ZlPath name);
void zl_clause_except(ZlDiags *d, ZlDirective *o, ZlPath name, ZbArena *a);
/* The checked record of an optimizer directive, which takes from `all` (NULL: there is none) the settings that it does
 * not give itself; `none` gives one without a name. False with reports. */
bool zl_optimizer(ZlDiags *d, ZbArena *a, const ZlDirective *o, const ZlDirective *all, ZlOptimizer *out);
/* Checks an `optimizer all`, and what a `for` names: "embed, head except head.b". */
bool zl_optimizer_all(ZlDiags *d, const ZlDirective *o);
const char *zl_for_text(ZbArena *a, const ZlDirective *o);
const char *zl_paths_text(ZbArena *a, ZlPaths p); /* "embed, layer.attn" */

/* ---- unit.c: quantities ---- */
bool zl_unit_parse(const char *text, size_t n, double *scale, ZlUnit *unit);
/* Says whether it has this unit and a value that times can be computed from; else reports, `what` as the subject. */
bool zl_quantity_ok(ZlDiags *d, const ZlQuantity *q, ZlUnit unit, const char *what);

/* ---- scan.l, parse.y ---- */
typedef struct ZlParser ZlParser;
/* Parses a source into f, whose id is set; mistakes go to d. */
void zl_parse(ZbArena *a, ZlSources *s, ZlDiags *d, ZlFile *f);

/* ---- form.c: the promises of ast.h that need no other file ---- */
void zl_check_form(ZlDiags *d, ZbArena *a, const ZlFile *f);
void zl_twice(ZlDiags *d, const char *what, ZlName again, ZlSpan first); /* reports Z0101 */
bool zl_too_deep(ZlDiags *d, const ZlExpr *e);                           /* true and a report (Z0003) */

/* ---- weights.c: the same of maps, and printing them ---- */
void zl_check_weights(ZlDiags *d, ZbArena *a, const ZlFile *f);
void zl_put_weights(ZbText *out, const ZlWeights *w);
void zl_put_expr(ZbText *out, const ZlExpr *e); /* ast.c */

/* ---- name.c ---- */
/* Adds "did you mean `x`?" when some of the names is near. */
void zl_help_nearest(ZlDiag *d, const char *name, const char *const *names, size_t n); /* diag.c */
void zl_help_nearest_of(ZlDiag *d, ZbArena *a, const char *name, ZlNames names);
const char *zl_names_text(ZbArena *a, ZlNames names); /* "`a`, `b`" */

/* Reports a loss that is named behind. */
void zl_name_in_front(ZlDiags *d, ZlName name);

#endif
