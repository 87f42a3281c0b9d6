/* The syntax tree of a program: the files read, and in them blocks, models, weights, recipes and clusters.
 * Names are as written, with their places; nothing is typed or evaluated here (that is the compiler's, which
 * instantiates a model with concrete sizes). All of it lives in the arena given to zl_load and is never
 * changed after.
 *
 * What holds when zl_load reported no error (so nobody needs to check it again):
 *   - every `use` has its file; there are no import cycles
 *   - names are unique: namespaces and models and blocks of a file, blocks of a model, statics of a model,
 * axes of a model (and no axis is named like a static), inputs and outputs of a model, axis parameters and
 *     formals of a block, named arguments of a call, names on the left of one `=`
 *   - a block's body ends in its one `return`, with as many expressions as the block has result types;
 *     `return` stands nowhere else; the axis lists of types and parameters name no axis twice
 *   - a model has a `loss` or an `aux`; input, output, loss stand only in models and not inside `repeat` or
 *     `if`, but for loss, which may stand in an `if`; axis stands in no `repeat`
 *   - what a map is made from is one before it for the same model
 *   - a map is for a model of its file, of which there is no other map of that name; no key of its config
 *     occurs twice outside of `if`
 *   - positional arguments come before named ones; expressions nest at most
 * ZL_MAX_NESTING deep */
#ifndef ZUG_LANG_AST_H
#define ZUG_LANG_AST_H

#include "lang/lang.h"

#define ZL_MAX_NESTING 256 /* of expressions and of `repeat`: recursion over the tree is safe */

typedef struct ZlStmt ZlStmt;
typedef struct ZlBlock ZlBlock;
typedef struct ZlModel ZlModel;
typedef struct ZlFile ZlFile;

/* ---- types --------------------------------------------------------------------------------------- */
typedef enum { ZL_REAL, ZL_F32, ZL_BF16, ZL_F16, ZL_I32, ZL_BOOL, ZL_INDEX } ZlElem;
const char *zl_elem_text(ZlElem e); /* "real", ..., "index" */

/* real[.., seq, embed]   index(vocab)[batch, seq]   real */
typedef struct {
  ZlElem elem;
  ZlName of;    /* the axis an index selects along; of.s NULL for other element types */
  bool rest;    /* has `..`: the axes not named, one set for all `..` of a signature */
  ZlNames axes; /* the named ones, as written */
  ZlSpan span;
} ZlTypeExpr;

/* ---- expressions ------------------------------------------------------------------------------------ */
typedef enum {
  ZL_E_NUM,  /* 4, 0.5, 1e-5 */
  ZL_E_NAME, /* x, layers, causal */
  ZL_E_NEG,  /* -a */
  ZL_E_NOT,  /* not a */
  ZL_E_BIN,  /* a + b, a < b, a and b */
  ZL_E_CALL, /* nn.Linear[i, o](x, std = 0.1) as fc1; static calls too: sqrt(2 * layers) */
  ZL_E_CAST  /* f32(a) */
} ZlExprKind;

/* The operators that are more than a character. */
typedef enum {
  ZL_LESS = '<',
  ZL_MORE = '>',
  ZL_AT_MOST = 'l',
  ZL_AT_LEAST = 'g',
  ZL_EQUALS = '=',
  ZL_DIFFERS = '!',
  ZL_AND = '&',
  ZL_OR = '|'
} ZlOperator;
const char *zl_operator_text(char op); /* "+", "<=", "and" */

typedef struct {
  ZlName name; /* name.s NULL: positional */
  ZlExpr *value;
} ZlArg;

/* Static expressions (sizes, initial values, defaults, repeat counts) are ZlExpr too: only NUM, NAME, NEG,
 * NOT, BIN, and CALL with a one-part path, positional arguments, no axes and no label. A named argument of a
 * call, such as `eps = 2 * e`, is parsed as a general expression; whether it must be static is the callee's
 * say. */
struct ZlExpr {
  ZlExprKind kind;
  uint16_t depth; /* of the tree below, 1 for a leaf; at most ZL_MAX_NESTING */
  ZlSpan span;    /* all of it, parentheses around it not counted */
  union {
    struct {
      double value;
      bool integer; /* written without point and exponent: `i` is exact */
      int64_t i;
    } num;
    ZlName name;
    struct {
      char op; /* + - * /, or a ZlOperator; NEG and NOT have only `a` */
      ZlExpr *a, *b;
    } bin;
    struct {
      ZlElem elem; /* not ZL_INDEX */
      ZlExpr *a;
    } cast;
    struct {
      ZlPath path;    /* one part: `dot`, `Attention`; two: `nn.Linear` */
      bool all_axes;  /* [..], [.., hd] */
      ZlNames axes;   /* [seq, hd], [.., hd]; n = 0 without brackets or with [..] */
      ZlSpan ax_span; /* the brackets, or file < 0 */
      ZlArg *args;
      uint32_t nargs;
      ZlName label; /* after `as`; s NULL without */
    } call;
  };
};

/* ---- statements --------------------------------------------------------------------------------------- */
typedef enum {
  ZL_S_PARAM,  /* param wq[embed, head], wk[embed, head] ~ normal(0.02) tag norm */
  ZL_S_LET,    /* w, e = expr */
  ZL_S_REPEAT, /* repeat layers as layer { ... } */
  ZL_S_IF,     /* if tied { ... } else { ... } */
  ZL_S_AUX,    /* aux expr */
  ZL_S_RETURN, /* return expr, expr: last statement of a block */
  ZL_S_UPDATE, /* update mean = 0.9 * mean + 0.1 * now */
  /* in models only: */
  ZL_S_AXIS,   /* axis batch, embed = width */
  ZL_S_INPUT,  /* input tokens: index(vocab)[batch, seq] */
  ZL_S_OUTPUT, /* output logits = expr, output logits: real[batch, seq, vocab] = expr; binds the name too */
  ZL_S_LOSS    /* loss expr per expr, loss name = expr per expr */
} ZlStmtKind;

typedef struct {
  ZlName name;
  ZlNames axes; /* in declared order, which is the memory order; at least one */
  ZlSpan span;
} ZlParamDef;

/* What stands in `if cond { ... }`, or in its `else`; within what stands in `outer`. */
typedef struct ZlCond ZlCond;
struct ZlCond {
  const ZlCond *outer;
  ZlExpr *expr;
  bool otherwise;
  uint32_t depth; /* at most ZL_MAX_NESTING */
};

typedef struct {
  ZlName name;
  ZlExpr *size;       /* static; NULL: a data axis, bound by the recipe */
  const ZlCond *cond; /* of the model's list; NULL: always */
} ZlAxisDef;

struct ZlStmt {
  ZlStmtKind kind;
  ZlSpan span;
  union {
    struct {
      ZlParamDef *defs;
      uint32_t ndefs;
      ZlExpr *value; /* `= static`: a constant; NULL with `~` */
      ZlName init;   /* `~ init(args)`: normal, uniform, ...; s NULL with `=` */
      ZlExpr **args; /* static */
      uint32_t nargs;
      ZlNames tags;
      bool state; /* `state`: outside of the gradient */
    } param;
    struct {
      ZlNames names;
      ZlExpr *value;
    } let;
    struct {
      ZlExpr *count; /* static */
      ZlName label;  /* s NULL without `as` */
      ZlStmt **body;
      uint32_t nbody;
      uint32_t depth; /* 1 + that of the repeats inside; at most ZL_MAX_NESTING */
    } repeat;
    struct {
      ZlExpr *cond; /* static; true if it is not 0 */
      ZlStmt **body, **otherwise;
      uint32_t nbody, nother;
      uint32_t depth; /* as of a repeat */
    } choice;
    ZlExpr *aux;
    struct {
      ZlExpr **values;
      uint32_t n;
    } ret;
    struct {
      ZlAxisDef *defs;
      uint32_t ndefs;
    } axis;
    struct {
      ZlName name;
      ZlExpr *value;
    } update;
    struct {
      ZlName name;
      ZlTypeExpr type;
    } input;
    struct {
      ZlName name;
      bool typed;
      ZlTypeExpr type; /* where it is typed */
      ZlExpr *value;
    } output;
    struct {
      ZlName name; /* s NULL without one */
      ZlExpr *num, *den;
    } loss;
  };
};

/* ---- blocks and
 * models ------------------------------------------------------------------------------------ */
/* x: real[.., seq, embed]   or   eps = 1e-5 */
typedef struct {
  ZlName name;
  bool is_static;  /* a size or number with a default, not a tensor */
  ZlTypeExpr type; /* of a tensor */
  ZlExpr *value;   /* default of a static */
  ZlSpan span;
} ZlFormal;

struct ZlBlock {
  ZlName name;
  uint32_t number;    /* among all blocks of the program */
  ZlSpan span;        /* the head, up to the last result type */
  const ZlFile *file; /* whose namespace its body sees */
  /* The model it is declared in: it sees the model's axes, statics and blocks; or NULL. */
  const ZlModel *model;
  ZlNames axes; /* axis parameters */
  bool row;     /* `[..` before them: the caller says what `..` stands for */
  ZlFormal *formals;
  uint32_t nformals;
  ZbNames formal_names;
  ZlTypeExpr *results;
  uint32_t nresults;
  ZlStmt **body;
  uint32_t nbody;
};

typedef struct {
  ZlName name;
  ZlExpr *value; /* default; may refer to statics before it */
} ZlStatic;

struct ZlModel {
  ZlName name;
  ZlSpan span; /* the head */
  const ZlFile *file;
  ZlStatic *statics;
  uint32_t nstatics;
  ZlBlock **blocks; /* visible to each other and to the body, whatever the order */
  uint32_t nblocks;
  ZbNames block_names;
  ZlAxisDef *axes; /* of all `axis` statements, in order; visible in all of the model and its blocks */
  uint32_t naxes;
  ZlStmt **body; /* everything but blocks, in order; `axis` statements too */
  uint32_t nbody;
};

/* ---- weights by other names ------------------------------------------------------------------------- */
/* A name as it lies in a foreign tensor: an axis; `a b` merged, a outermost; `3 (a b)`: as many of ours side
 * by side; `a + b`: ours one after another, the first along a, the second along b. */
typedef enum { ZL_DIM_AXIS, ZL_DIM_NUMBER, ZL_DIM_MERGE, ZL_DIM_JOIN } ZlDimKind;
typedef struct ZlDim ZlDim;
struct ZlDim {
  ZlDimKind kind;
  uint16_t depth; /* of the tree below, 1 for a leaf; at most ZL_MAX_NESTING */
  ZlSpan span;
  ZlName axis;
  int64_t number;
  ZlDim **at; /* MERGE, JOIN: at least two */
  uint32_t n;
};

/* layer.{i}.attn.(wq, wk)[axis = {e}] = "h.{i}.attn.{e}.weight"[embed, 2 (head hd)]
 * Places such as `{i}` are names with their braces. */
typedef struct {
  ZlPath *ours; /* of the parameters, the group written out; at least one */
  uint32_t nours;
  ZlName axis, index; /* `[axis = {e}]`; axis.s NULL without */
  ZlName tensor;      /* the foreign name without its quotes */
  ZlDim **dims;
  uint32_t ndims;
  const ZlCond *cond; /* NULL: always, as of the others */
  ZlSpan span;
} ZlMapRule;
/* `ignore`: foreign tensors that are not read, or keys of config.json on which no number depends. */
typedef struct {
  ZlName pattern;
  ZlName of; /* `as "name"`: the tensor that it is a copy of; s NULL without */
  const ZlCond *cond;
} ZlIgnore;

typedef enum { ZL_V_NUMBER, ZL_V_REAL, ZL_V_BOOL, ZL_V_TEXT, ZL_V_NULL, ZL_V_LIST } ZlValueKind;
/* What a key of config.json has: a static expression; `real(static)`, written with a point; `bool(static)`, as
 * true or false; `null as static`; or JSON as it is (texts, true, false, null), also a list of such and of
 * numbers, `for static` over and over until it has so many items. */
typedef struct ZlConfigValue ZlConfigValue;
struct ZlConfigValue {
  ZlValueKind kind;
  ZlExpr *expr;      /* NUMBER, REAL, BOOL, NULL; LIST: how many items, or NULL */
  const char *json;  /* TEXT */
  ZlConfigValue *at; /* LIST: of NUMBER and TEXT */
  uint32_t n;
  ZlSpan span;
};
typedef struct {
  ZlName key;            /* "rope_parameters.rope_theta" */
  ZlConfigValue *values; /* the first that fits is what is written, the others may be read too */
  uint32_t nvalues;
  ZlConfigValue *otherwise; /* what an absent key means; NULL: it must be there */
  const ZlCond *cond;
} ZlConfigEntry;

/* weights hf for M { ... } */
typedef struct ZlWeights ZlWeights;
struct ZlWeights {
  ZlName name, model;
  const ZlFile *file;
  ZlSpan span; /* the head */
  ZlMapRule *rules;
  uint32_t nrules;
  ZlIgnore *ignored;
  uint32_t nignored;
  ZlConfigEntry *config;
  uint32_t nconfig;
  ZlIgnore *harmless; /* keys that `config` ignores */
  uint32_t nharmless;
  ZlName from, without;  /* `from hf without "text"`; s NULL without */
  const ZlWeights *base; /* the map that `from` names; it has none itself */
};

/* ---- recipes and clusters as written: only recipe.c looks inside (zl_recipe gives checked records)
 * ---------- */
typedef struct ZlRecipeAst ZlRecipeAst;
typedef struct ZlClusterAst ZlClusterAst;

/* ---- files: each is a namespace
 * ----------------------------------------------------------------------------- */
typedef struct {
  ZlPath path;        /* std.nn */
  ZlName alias;       /* what calls write before the dot: after `as`, else the last part of the path */
  const ZlFile *file; /* the file it stands for */
  ZlSpan span;
} ZlUse;

struct ZlFile {
  int32_t id;       /* its number in ZlSources, as in the spans */
  const char *name; /* as printed in messages */
  ZlUse *uses;
  uint32_t nuses;
  ZlBlock **blocks; /* of the file itself, not those of its models */
  uint32_t nblocks;
  ZlModel **models;
  uint32_t nmodels;
  ZlWeights **weights;
  uint32_t nweights;
  ZlRecipeAst **recipes;
  uint32_t nrecipes;
  ZlClusterAst **clusters;
  uint32_t nclusters;
  ZbNames use_names, block_names, model_names, recipe_names, cluster_names; /* by number in those arrays */
};

struct ZlProgram {
  ZbArena *arena;
  ZlSources *sources;
  ZlFile **files; /* files[0] is the one asked for; then those it uses, each once */
  uint32_t nfiles;
  uint32_t nblocks; /* of all files, and of their models */
};

/* ---- finding things
 * ------------------------------------------------------------------------------------------- */
/* The model `name` of the main file; NULL: its only one. Reports (Z0106) and returns NULL if there is no
 * such. */
const ZlModel *zl_model(const ZlProgram *p, ZlDiags *d, const char *name);
/* All model names of the main file, in order. */
ZlNames zl_model_names(const ZlProgram *p);

/* Where a call stands: a file, and the model around it if any. */
typedef struct {
  const ZlFile *file;
  const ZlModel *model;
} ZlScope;
ZlScope zl_block_scope(const ZlBlock *b); /* of a block's body */
ZlScope zl_model_scope(const ZlModel *m); /* of a model's body */

/* `use` of a file by its alias; NULL if there is none. */
const ZlUse *zl_find_use(const ZlFile *f, const char *alias);
/* The block a call's path names: `Name` among the blocks of the model, then of the file; `ns.Name` in the
 * file that `use` calls ns. NULL if there is none (a primitive op, perhaps); says nothing. */
const ZlBlock *zl_find_block(const ZlProgram *p, ZlScope scope, const ZlPath *path);
/* Reports that `path` names no block (Z0103, Z0104 for an unknown namespace), with the nearest of the visible
 * blocks and of the `nmore` names `more` (the primitive ops, say) as help. */
ZlDiag *zl_report_no_block(const ZlProgram *p, ZlDiags *d, ZlScope scope, const ZlPath *path,
                           const char *const *more, uint32_t nmore);
/* Names of all blocks visible in `scope` as one would write them ("Attention", "nn.relu"), into the arena. */
const char **zl_visible_blocks(const ZlProgram *p, ZlScope scope, ZbArena *a, uint32_t *n);
/* "nn.Linear" */
const char *zl_path_text(ZbArena *a, const ZlPath *path);

/* ---- printing: `zc -d parse`
 * ------------------------------------------------------------------------------------ */
/* The main file's uses, blocks and models as canonical source text, fully parenthesised. */
void zl_dump(const ZlProgram *p, ZbText *out);

#endif
