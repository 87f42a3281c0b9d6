/* lang: from text to a syntax tree with names resolved, recipes and clusters to plain records, and every
 * message about a source text. Knows nothing of graphs, plans or ranks.
 *
 * scan.l parse.y recover.c  tokens, grammar, going on after a mistake    ast.h ast.c  the syntax tree
 * form.c                    what the grammar does not say of a file      name.c       files, imports, scopes
 * format.c align.c          the same text laid out: lines and blanks; columns (format.h)
 * weights.c                 maps to foreign weights: their nodes, that, and printing
 * directives.def            what a recipe may say                        cluster.def  what a cluster may say
 * recipe.c optimizer.c words.c  recipes: inheritance, checked records    cluster.c unit.c  clusters, quantities
 * recipe_text.c             what recipes and clusters say, as facts; a recipe as a text of the language
 * span.c diag.c             sources, collecting and printing messages    errors.def ERRORS.md  all codes */
#ifndef ZUG_LANG_H
#define ZUG_LANG_H

#include "base/base.h"

/* ---- sources and places -------------------------------------------------------------------------------- */
/* A range of bytes of one source file; file < 0: nowhere (the command line, say). */
typedef struct {
  int32_t file;
  uint32_t start, end;
} ZlSpan;
#define ZL_NOWHERE ((ZlSpan){-1, 0, 0})

typedef struct ZlSources ZlSources; /* the files read so far, by number; keeps their text */
ZlSources *zl_sources_new(ZbArena *a);
const char *zl_source_name(const ZlSources *s, int32_t file);
const char *zl_source_text(const ZlSources *s, int32_t file, size_t *n); /* ends with a NUL */
/* 1-based line and column (in bytes) of a span's start. */
void zl_source_place(const ZlSources *s, ZlSpan span, uint32_t *line, uint32_t *col);

/* ---- diagnostics
 * -------------------------------------------------------------------------------------------- */
typedef enum {
#define E(code, severity, title) ZL_##code,
#include "lang/errors.def"
  ZL_CODE_COUNT
} ZlCode; /* ZL_Z0201 ... */

typedef struct ZlDiag ZlDiag;
typedef struct ZlDiags ZlDiags;
ZlDiags *zl_diags_new(ZbArena *a, ZlSources *s);
/* Reports one mistake. Severity is the code's. Returns the report, to which more can be added. The same code
 * at the same span with the same text is reported once. */
ZlDiag *zl_report(ZlDiags *d, ZlCode code, ZlSpan span, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Reports that a file cannot be read, as `err` says. */
ZlDiag *zl_report_unread(ZlDiags *d, ZlCode code, ZlSpan span, const ZbErr *err);
/* Says whether a later attempt may succeed: a file system failed, the path is not wrong. */
bool zl_passing(const ZlDiags *d);
/* Where something with this code was reported there already: a report that is not shown, for the caller's additions. Else NULL. */
ZlDiag *zl_report_again(ZlDiags *d, ZlCode code, ZlSpan span);
/* Under the primary caret. */
void zl_label(ZlDiag *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Second place. */
void zl_also(ZlDiag *d, ZlSpan span, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void zl_note(ZlDiag *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void zl_help(ZlDiag *d, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* one concrete edit */
size_t zl_errors(const ZlDiags *d); /* reported so far, warnings not counted */
size_t zl_warnings(const ZlDiags *d);
const char *zl_first_error(const ZlDiags *d); /* what it says, without its place; NULL: there is none */
/* Further reports are counted and not kept: no need to look for what would help. */
bool zl_full(const ZlDiags *d);
void zl_print_text(const ZlDiags *d, ZbText *out); /* with source lines and carets; no colour codes */
void zl_print_json(const ZlDiags *d, ZbText *out); /* one JSON object a line */
/* The explanation of "Z0301" (from ERRORS.md, embedded), or NULL. */
const char *zl_explain(const char *code);
const char *zl_code_name(ZlCode code);

/* ---- recipes
 * -------------------------------------------------------------------------------------------------- */
typedef struct {
  const char *s;
  ZlSpan span;
} ZlName;
typedef struct {
  ZlName *at;
  uint32_t n;
} ZlNames;
/* A number of a recipe that may change from step to step: `num` in the first, then linearly to the next in so many
 * steps (`0.85 to 0.95 over 300`), one after the other, and what is last from there on. */
typedef struct ZlExpr ZlExpr; /* ast.h */
typedef struct {
  double to, over;
} ZlPhase;
typedef struct {
  double num;
  ZlPhase *then;
  uint32_t nthen;
  /* What `num` is, where that is said by sizes of axes: it is 0 until zl_optimizer_sizes. Or NULL. */
  const ZlExpr *of;
} ZlAmount;
double zl_amount_at(const ZlAmount *x, int64_t step); /* in step 1, 2, ... */
double zl_amount_most(const ZlAmount *x), zl_amount_least(const ZlAmount *x);
bool zl_amount_same(const ZlAmount *x, const ZlAmount *y);

typedef struct {    /* lr = 3e-4, anneal = cosine */
  ZlName key;       /* key.s NULL for a bare value */
  const char *word; /* a value that is a name, else NULL */
  union {
    double num; /* that of `amount` */
    ZlAmount amount;
  };
  ZlSpan span;
} ZlKw;

typedef struct {
  ZlName *part;
  uint32_t n;
  ZlSpan span;
} ZlPath;
typedef struct {
  ZlPath *at;
  uint32_t n;
} ZlPaths;

/* clang-format off */
typedef struct { ZlName name; int64_t size; } ZlMeshDim;                /* size 0: `?` */
/* number: the size; of slots of experts their factor over the average, and size may be 0. Also: pad AXIS to
 * SIZE */
typedef struct { ZlName axis; int64_t size; double number; ZlSpan span; bool maybe; } ZlBind;
typedef struct { ZlName *axis; uint32_t n; } ZlProd;                    /* kv*grp */
/* maybe: axes among these that the model may lack, `head?`; then they are as if they were not named */
/* The part of an axis that a rank has. CONTIGUOUS: one chunk per rank, in order. ZIGZAG: of twice as many chunks the one of
 * the rank's number and its counterpart from the end. AUTO: zigzag where causal attention is split. */
typedef enum { ZL_ORDER_AUTO, ZL_ORDER_CONTIGUOUS, ZL_ORDER_ZIGZAG } ZlOrder;
extern const char *const zl_orders[]; /* "", "contiguous", "zigzag" */
/* open, open_else: `?` in place of the axes, of those after `else` */
typedef struct { ZlProd *prods; uint32_t nprods; ZlName dim; ZlNames otherwise, maybe; bool open, open_else; ZlOrder order; ZlSpan span; } ZlSplit;
/* clang-format on */
enum { ZL_SHARD_STATES = 1, ZL_SHARD_GRADS = 2, ZL_SHARD_PARAMS = 4 };
/* clang-format off */
typedef struct {
  unsigned what;  /* ZL_SHARD_* */
  ZlName dim;
  ZlName *unit; uint32_t nunit; /* path components; none: a repeat iteration */
  bool keep;      /* `keep`: gathered once a step, not again for backward */
  bool open;      /* `?` in place of what: it is 0 */
  ZlSpan span;
} ZlShard;
/* clang-format on */
/* How a sequence that is split is attended to: the rank that has queries gets keys and values, or ranks
 * exchange their positions for a part of the heads each, or keys and values travel round. */
typedef enum { ZL_ATTENTION_AUTO, ZL_ATTENTION_GATHER, ZL_ATTENTION_HEADS, ZL_ATTENTION_RING } ZlAttentionWay;
extern const char *const zl_attention_ways[]; /* "auto", ...; NULL ends the list */
typedef struct {
  ZlAttentionWay way;
  ZlName dim; /* s NULL: of all dims that have no other */
  bool open;  /* `?` in place of the way */
  ZlSpan span;
} ZlAttention;
/* `rate 0.1 for embed`, `decay 0 for norm, bias`: of these parameters, in place of what others have. */
typedef struct {
  bool decay; /* else a rate */
  ZlAmount amount;
  ZlPaths of;
  ZlSpan span;
} ZlShare;
/* clang-format off */
typedef struct {
  ZlName name; ZlKw *kws; uint32_t n; /* all its settings */
  ZlPaths of, but;                    /* `for ... except ...`: its parameters; of.n = 0: all that no other has */
  ZlAmount decay; ZlPaths except;     /* decay NUMBER except ... */
  ZlShare *shares; uint32_t nshares;
  ZlSpan span;
} ZlOptimizer;
/* clang-format on */

/* Parameters that are stored in 8 or 4 bits, in groups of elements that share a scale. */
typedef struct {
  const char *format; /* one of zl_packed_formats */
  int64_t group;
  ZlPaths of, but; /* of.n = 0: all that can be, but those */
  ZlSpan span;
} ZlPacking;
#define ZL_PACKED(FIRST, OTHER) FIRST(int8) OTHER(int4) OTHER(int4z) OTHER(nf4)
#define ZL_PACKED_WORD(w) #w
#define ZL_PACKED_OR(w) "|" #w
#define ZL_PACKED_NEXT(w) , #w
#define ZL_PACKED_FORMATS ZL_PACKED(ZL_PACKED_WORD, ZL_PACKED_OR) /* "int8|int4|..." */
#define ZL_PACKED_LIST ZL_PACKED(ZL_PACKED_WORD, ZL_PACKED_NEXT)  /* "int8", "int4", ... */
extern const char *const zl_packed_formats[];                     /* these; ends with NULL */

/* Says whether a name of that text is among them. */
bool zl_is_named(ZlNames names, const char *s);

/* A recipe with everything it inherits, its words checked, its numbers positive where they must be. What
 * needs the model (axis names, divisibility) is the planner's to check. A directive that is absent has n = 0,
 * size 0 or span.file < 0. */
/* clang-format off */
typedef struct {
  const char *name, *model; /* model NULL: for any */
  ZlSpan span;
  ZlMeshDim *mesh; uint32_t nmesh;      /* slowest-varying first */
  ZlBind *binds;   uint32_t nbinds;
  int64_t micro;   ZlSpan micro_span;   /* samples per rank and micro-batch */
  ZlSplit *splits; uint32_t nsplits;
  ZlShard *shards; uint32_t nshards;
  ZlAttention *attention; uint32_t nattention;
  struct { ZlName dim; bool by_cost; int64_t *counts; uint32_t n; ZlSpan span; } stages;
  ZlPath *recompute; uint32_t nrecompute;
  /* "f32", "bf16"; compute: also "tf32"; NULL: default f32. */
  struct { const char *compute, *params, *grads, *reduce, *states; ZlSpan span; } precision;
  ZlPacking *packed; uint32_t npacked;              /* precision weights ... */
  ZlOptimizer optimizer;                            /* name.s NULL: none */
  ZlOptimizer *others; uint32_t nothers;            /* those with `for` */
  /* prefetch: iterations gathered ahead of their use; average: of the parameters over the steps, its decay, or 0;
   * clip: 0 without. The span is nowhere where no recipe says another number. schedule: s NULL without. */
#define NUMBER(NAME, word, layout, type, none, ...) type word; ZlSpan word##_span;
#define CHOICE(NAME, word, ...) ZlName word;
#include "lang/directives.def"
  /* Tensors with this axis are computed in n chunks; axis.s NULL: in one. */
  struct { ZlName axis; int64_t n; ZlSpan span; } chunk;
  ZlBind *pads;    uint32_t npads;
  struct { uint64_t memory, host; ZlSpan memory_span, host_span; } limit; /* bytes; 0: none */
  /* Parameters that are not trained: `of`, or `all`, but those of `but`. None: of.n = 0 and not all. */
  struct { bool all; ZlPaths of, but; ZlSpan span; } freeze;
  /* `?` in place of these; else file < 0. More of the kind is in mesh, splits and shards. */
  struct { ZlSpan micro, stages, recompute; } open;
} ZlRecipe;
/* The pipeline schedules there are, the default first; ends with NULL (schedules.def). */
extern const char *const zl_schedules[];
static inline const char *zl_schedule(ZlName word) { return word.s ? word.s : zl_schedules[0]; }
/* The ranks of a pipeline own a model's virtual stages in turn; once the last one has one, it goes on with the
 * first (LOOP) or with the last again (VEE). */
typedef enum { ZL_LOOP, ZL_VEE } ZlPlacement;
typedef struct {
  ZlPlacement placement;
  uint32_t vstages; /* of a rank */
  bool halves;      /* backward is two items: gradients of inputs, gradients of weights */
} ZlSchedule;
const ZlSchedule *zl_schedule_info(const char *name); /* NULL: there is no such schedule */
/* clang-format on */

/* Tags that parameters of the standard library carry; NULL ends the list. A recipe for several models may
 * name them all. */
extern const char *const zl_std_tags[];

/* cluster.def lists what they may say and what it is used for: bytes/s, 1/s, seconds; or 0. */
typedef struct {
  ZlName name;
  int64_t size;
#define LEVEL(field, word, unit, meaning) double field;
#include "lang/cluster.def"
} ZlLevel;
/* clang-format off */
typedef struct {
  const char *name;
  ZlSpan span;
  uint64_t device_memory, host_memory;        /* bytes; 0: not said */
#define DEVICE(field, word, unit, meaning) double field;
#define HOST DEVICE
#include "lang/cluster.def"
  ZlLevel *levels; uint32_t nlevels;          /* innermost first */
} ZlCluster;
/* clang-format on */

/* ---- entry points
 * ------------------------------------------------------------------------------------------------ */
typedef struct ZlProgram ZlProgram; /* ast.h */
typedef struct {
  const char *const *include; /* -I folders, searched after the file's own and before the embedded library */
  uint32_t ninclude;
} ZlOptions;
/* Reads, parses and resolves `path` and all it uses. NULL if it could not be read at all; otherwise the tree,
 * with mistakes in `d` (look at zl_errors before using it). */
ZlProgram *zl_load(ZbArena *a, ZlSources *s, ZlDiags *d, const char *path, const ZlOptions *opt);
/* As zl_load, from memory; for tests, fuzzing and tools. */
ZlProgram *zl_load_text(ZbArena *a, ZlSources *s, ZlDiags *d, const char *name, const char *text, size_t n,
                        const ZlOptions *opt);
/* The text of a file as the formatter lays it out: the same tokens and comments, other blanks. False and
 * reports if it has syntax errors; what it uses is not looked for. */
bool zl_format(ZbArena *a, ZlSources *s, ZlDiags *d, const char *name, const char *text, size_t n,
               ZbText *out);
/* The program of "FILE:NAME" or "FILE", as tools are told which recipe or cluster to take; *name: NULL for
 * the latter. NULL also if there were mistakes. */
ZlProgram *zl_load_named(ZbArena *a, ZlSources *s, ZlDiags *d, const char *spec, const ZlOptions *opt,
                         const char **name);
/* The recipe or cluster `name` with everything it inherits; NULL and a report (with the nearest name) if
 * there is none or it is wrong. `name` NULL: the file's only one, or an error that lists them. */
const ZlRecipe *zl_recipe(ZlProgram *p, ZlDiags *d, const char *name);
/* The same of a recipe that may leave things open by `?`, which zl_recipe refuses: for who chooses them. */
const ZlRecipe *zl_recipe_open(ZlProgram *p, ZlDiags *d, const char *name);
const ZlCluster *zl_cluster(ZlProgram *p, ZlDiags *d, const char *name);
/* Reports what is wrong with any recipe or cluster of the main file. */
void zl_check_recipes(ZlProgram *p, ZlDiags *d);
/* Who knows the sizes that an amount is said by: puts that of an axis into *out, or reports. */
typedef struct ZlSizes ZlSizes;
struct ZlSizes {
  ZlDiags *d;
  bool (*size)(const ZlSizes *s, ZlName axis, double *out);
  void *ctx;
};
/* A copy of a checked recipe's optimizer in which every number is known; false with reports. */
bool zl_optimizer_sizes(const ZlSizes *s, ZbArena *a, const ZlOptimizer *o, ZlOptimizer *out);
/* The setting `key` of an optimizer, or NULL. A checked recipe's optimizer has all of its
 * settings, those not given with their defaults, so that its user has none of its own. */
const ZlKw *zl_kw(const ZlKw *kws, uint32_t n, const char *key);
/* All that a checked recipe or cluster says, a directive at a time: "clip" and "0.5", "mesh" and "data = 2,
 * tensor = 4". Two that mean the same give the same; what is absent and has no default is left out; nothing is
 * open. `text` is the callee's during the call. */
typedef void ZlEach(void *ctx, const char *what, const char *text);
void zl_recipe_list(const ZlRecipe *r, ZlEach *each, void *ctx);
/* Says whether what is listed as `what` says how a model is spread over ranks, not what is computed. */
bool zl_is_layout(const char *what);
/* As a recipe of the language, which inherits from none; nothing of it is open. */
void zl_recipe_write(const ZlRecipe *r, ZbText *out);
void zl_cluster_list(const ZlCluster *c, ZlEach *each, void *ctx);
/* All recipe names of the file, in order; all cluster names. */
ZlNames zl_recipe_names(const ZlProgram *p);
ZlNames zl_cluster_names(const ZlProgram *p);

/* ---- torch.c ------------------------------------------------------------------------------------------- */
/* How one says here what a function or method of PyTorch does; NULL: nobody is expected to try that word. */
const char *zl_torch_word(const char *word);
/* The same of a keyword; a format, whose `%s` is the function's name. */
const char *zl_torch_keyword(const char *word);

/* ---- elsewhere.c --------------------------------------------------------------------------------------- */
/* Returns the directives in which a recipe says what other frameworks call `word` (`learning_rate`,
 * `weight-decay`); NULL: nothing is known of it. */
const char *zl_said_elsewhere(const char *word);
/* Says whether `word` is `row` of such a list, which is in lower case with underscores, or would be with
 * hyphens or in upper case. */
bool zl_same_word(const char *row, const char *word);

#endif
