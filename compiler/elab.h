/* Private to elaboration (num.c static.c place.c expr.c call.c builtin.c elab.c update.c weights.c config.c
 * sep.c): what is known while a model is instantiated. Elaboration walks the tree once per instance, in the
 * order of the text, and appends nodes to the segment it is in; so a value is a place (segment, number) and a
 * type. */
#ifndef ZUG_COMPILER_ELAB_H
#define ZUG_COMPILER_ELAB_H

#include "compiler/compiler.h"
#include "lang/ast.h"

/* ---- num.c: static numbers ----------------------------------------------------------------------------- */
typedef struct {
  bool exact; /* n/d in lowest terms, d > 0; else only v */
  int64_t n, d;
  double v;
  bool assumed; /* depends on a size that is only assumed: what is wrong with it is no news */
  bool varies;  /* is another number in each iteration of the repeat: for initial values alone */
} Num;
#define NUM_MAX_FUNCTIONS 32
Num num_int(int64_t n);
Num num_double(double v);
Num num_neg(Num a);
Num num_add(Num a, Num b);
Num num_sub(Num a, Num b);
Num num_mul(Num a, Num b);
bool num_div(Num a, Num b, Num *out); /* false, and 1: b is 0 */
bool num_less(Num a, Num b);
bool num_equal(Num a, Num b);
bool num_is_int(Num a, int64_t *out);
int num_function_args(const char *name);    /* -1: there is no such function of statics */
uint16_t num_function_op(const char *name); /* ZG_OP_COUNT: it is none of tensors */
uint32_t num_function_names(const char *out[NUM_MAX_FUNCTIONS]);
bool num_call(const char *name, const Num *arg, Num *out); /* false: no value there */
const char *num_text(ZbArena *a, Num v);

/* ---- values and names ---------------------------------------------------------------------------------- */
typedef enum {
  VAL_POISON, /* reported already: whatever uses it says nothing */
  VAL_NUM,    /* a static number: takes the element type of what it meets */
  VAL_SIZE,   /* the size of a data axis: likewise, but known only when the recipe is */
  VAL_TENSOR
} ValKind;
typedef struct {
  ValKind kind;
  Num num;
  uint16_t axis;
  ZgType type;
  uint32_t seg, id;
} Val;

typedef struct Frame Frame;
typedef struct {
  ZlName name; /* with the place that bound it last */
  Val val;
  bool shared;    /* a static, parameter or input of the model: the blocks inside it see it too */
  uint32_t param; /* which parameter it is, or ZG_NONE */
  /* A number that stands for the iteration of a repeat (a label), or depends on one: in initial values alone. */
  bool label;
  const ZlExpr *of; /* what it was made of, in that frame; NULL: of nothing else */
  Frame *in;
} Bind;

typedef struct {
  const char *name; /* as the text calls it here */
  uint16_t axis;
} AxisBind;

/* One instance of a block, or of the model. */
struct Frame {
  Frame *caller;
  Frame *model;         /* of a block inside a model: that model's frame */
  const ZlBlock *block; /* NULL: the model itself */
  ZlScope scope;
  ZlSpan call;   /* who called */
  bool labelled; /* with `as` */
  uint32_t region;
  const char *path; /* prefix of parameter paths: "", "layer.*.attn." */
  Bind *binds;      /* names in scope, an earlier one hidden by none: binding again replaces it */
  uint32_t nbinds, room;
  ZbNames names; /* of binds, by number */
  AxisBind *axes;
  uint32_t naxes;
  ZbNames axis_names; /* of axes, by number */
  bool has_row;       /* what `..` stands for is known */
  uint16_t row[ZG_MAX_AXES];
  int nrow;
  ZlSpan *labels; /* where each was used first */
  uint32_t nlabels;
  ZbNames label_names; /* "REGION LABEL": a repeat's iterations are scopes of their own */
};

/* A value of one segment made available in a later one. Imports are found by where the value came from and
 * where it is wanted, and by what it has become. */
typedef struct {
  uint32_t seg, id, to, local;
  uint32_t next[2]; /* of the same hash, in either table */
} Import;

/* An axis that a block declares in its body. */
typedef struct {
  const ZlBlock *block;
  const char *name;
  int64_t size;
  uint16_t axis;
} LocalAxis;

typedef struct Config Config; /* config.c */

typedef struct {
  bool seen;      /* by any model */
  uint32_t calls; /* by this one */
} BlockUse;

/* What one model may come to, once its blocks and inner repeats are written out. A model of thousands of
 * layers, all of them written out, stays below; what reaches a limit is stopped there and then. */
typedef enum {
  ELAB_NODES, /* operations */
  ELAB_CALLS, /* calls of blocks and iterations of inner repeats */
  ELAB_WORK,  /* statements and expressions looked at */
  ELAB_BUDGETS
} ElabBudget;
enum {
  ELAB_MAX_NODES = 200000,
  ELAB_MAX_CALLS = 200000,
  ELAB_MAX_WORK = 4000000,
  ELAB_MAX_CARRIED = 1024 /* values that one repeat takes in */
};

typedef struct {
  ZbArena *arena;
  ZlSources *src;
  ZlDiags *diags;
  const ZlProgram *prog;
  const ZcOptions *opt;
  const ZlModel *model; /* NULL: a block by itself (zc --check) */
  ZgGraph *g;
  Frame *frame;
  /* Axes from here on have a size that is only assumed: they are those of a block that nobody calls. */
  uint32_t assumed;
  uint16_t experts[ZG_MAX_GRAPH_AXES]; /* by axis: whose slots it counts (graph/ragged.h) */
  uint32_t seg;                        /* where nodes go */
  bool in_repeat;                      /* the current segment is a repeat: deeper repeats are unrolled */
  uint32_t iteration;                  /* of the current segment, for which initial values are evaluated, */
  bool initial;                        /* as they are now */
  Import *imports;
  uint32_t nimports;
  uint32_t *import_head[2], import_size; /* hash tables: by (seg, id, to), by (to, local) */
  ZlSpan *loc_span;                      /* the spans behind g->locs */
  uint32_t nloc_span;
  ZlSpan *param_span; /* by parameter number: its name where it is declared, */
  ZlSpan *param_call; /* and the call that would need a label to make its path another */
  bool *param_used;
  ZbNames param_paths;
  uint32_t nrandom;
  LocalAxis *local; /* those of all blocks, in the order of their axes */
  uint32_t nlocal;
  Config *config;         /* NULL without */
  BlockUse *uses;         /* by number of a block */
  const ZlBlock **called; /* those with calls, each once */
  uint32_t ncalled;
  const char **file; /* by number of a source file: what places in the graph call it */
  uint32_t spent[ELAB_BUDGETS];
  double times;  /* the inner repeats here: how often they run their bodies altogether */
  bool stopped;  /* a budget is spent, which was reported: nothing more is instantiated */
  size_t errors; /* reported before this began */
  bool aux;      /* there are aux terms */
  struct {
    bool on,
        used; /* the model is made to keep documents apart; it has something that can, or does so itself */
    uint16_t along; /* the axis of its tokens */
    Val doc, place; /* inputs; `place` once it was asked for */
  } apart;
  uint32_t nlosses;
  ZlSpan *updated; /* by parameter number: where it is updated, or nowhere */
  struct {
    ZlSpan num, den;
    ZlName name; /* s NULL without one */
  } loss[ZG_MAX_LOSSES];
} Elab;

/* ---- elab.c -------------------------------------------------------------------------------------------- */
/* Reports a mistake; inside a library block also says who called it. */
ZlDiag *complain(Elab *e, ZlCode code, ZlSpan span, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* `uses` has an entry for each block of the program; the graph is made in `a` (NULL: it is gone with
 * elab_end). */
void elab_init(Elab *e, ZbArena *a, ZlSources *s, ZlDiags *d, const ZlProgram *p, const ZcOptions *opt,
               BlockUse *uses, const char *name);
void elab_end(Elab *e);
/* Takes `n` from a budget. False, and a report the first time, when it is spent: then e->stopped is set. */
bool elab_depth(Elab *e, ZlSpan span); /* may blocks and repeats nest one deeper here? Else a report */
bool elab_spend(Elab *e, ElabBudget what, uint32_t n, ZlSpan span);
/* Runs all of a model: statics, axes, statements. What it found wrong is in e->diags. */
void elab_model(Elab *e, const ZlModel *m);
/* The statements of a body in the current frame; a return's values go to out[0..nout). */
void elab_body(Elab *e, ZlStmt *const *body, uint32_t n, Val *out);

/* ---- static.c ------------------------------------------------------------------------------------------ */
bool static_eval(Elab *e, const ZlExpr *x, Num *out);
/* The same of what initial values are made of, which may differ from iteration to iteration (Num.varies). */
bool static_initial(Elab *e, const ZlExpr *x, Num *out);
/* ---- formula.c: initial values by position ---- */
bool formula_is(const ZlExpr *x); /* does it have the place along an axis? */
/* Returns the steps of the initial value of a parameter whose type is known; NULL, and a report. */
const ZgUpdate *formula_make(Elab *e, const ZlParamDef *def, const ZlExpr *x);

/* Reports a number that does where it may not. */
void static_varies(Elab *e, ZlSpan span, const char *name);
/* a op b, both static; false and a report when there is no value. */
bool static_binary(Elab *e, const ZlExpr *x, Num a, Num b, Num *out);
/* A static that must be a whole number in a range: what it is for goes into the message. */
bool static_int(Elab *e, const ZlExpr *x, int64_t least, int64_t most, const char *what, int64_t *out);
/* The size of an axis of the model. */
Num static_size(const Elab *e, uint16_t axis);
/* Not v; of an assumption another one. */
void static_not(Num *v);
/* What was made of an assumption has no value: no news, and any will do. Else false. */
bool static_assumed(Num *v);
/* Can a tensor hold the number? Else a report. */
bool static_fits(Elab *e, ZlSpan span, Num v);
/* Statics, with what a config.json and the command line make of them, then axes; and both against the
 * config. */
void static_bind_model(Elab *e, const ZlModel *m);
/* Is a condition true? Without a value it is not, which was reported. */
bool static_true(Elab *e, const ZlExpr *x);
bool cond_holds(Elab *e, const ZlCond *c);               /* NULL: always */
bool static_overridden(const Elab *e, const char *name); /* by -D */

/* ---- apart.c ------------------------------------------------------------------------------------------- */
/* Begins to keep documents apart if this is the input of tokens, of type t, and the options want it. */
void apart_begin(Elab *e, ZlSpan span, const char *input, const ZgType *t);
void apart_end(Elab *e); /* reports if nothing could */

/* ---- place.c ------------------------------------------------------------------------------------------- */
/* Appends a node to the current segment, operands brought there first. What does not type is reported and
 * gives poison, as does a poisoned operand. Result i > 0: val_result. */
Val place_node(Elab *e, ZlSpan span, ZgNode n, const Val *in, const ZgType *hint);
Val val_result(Elab *e, Val first, int i);
/* The value as a tensor: numbers become fills of element type `elem`. */
Val val_tensor(Elab *e, ZlSpan span, Val v, ZgElem elem);
Val val_cast(Elab *e, ZlSpan span, Val v, ZgElem elem);
/* A stand-in of a type for a value whose making failed, so that checking can go on. */
Val val_stand_in(Elab *e, ZgType t);
void place_begin_repeat(Elab *e, const char *label, uint32_t region, uint32_t trip);
void place_end_repeat(Elab *e); /* begins the straight segment after it */
/* Carries `v` into the current repeat: what it is in there. Then back out: what it is after. */
Val place_carry_in(Elab *e, ZlSpan span, Val v, uint32_t *slot);
void place_carry_back(Elab *e, Val v, uint32_t slot);
Val place_carried(Elab *e, ZlSpan span, uint32_t slot);
/* The same value made again in the current segment out of inputs and constants; false if it depends on
 * anything else, which *culprit says. */
bool place_remake(Elab *e, Val v, Val *out, ZlSpan *culprit);
/* Carries first, carry_outs last, in order of position. */
void place_settle(Elab *e);
ZlSpan place_span(const Elab *e, uint32_t loc);
uint32_t place_at(Elab *e, ZlSpan span); /* the place in the graph that stands for it */

/* ---- expr.c -------------------------------------------------------------------------------------------- */
Val expr_eval(Elab *e, const ZlExpr *x);
/* As expr_eval for an expression that must give `want` values (a block call for more than one). */
bool expr_eval_many(Elab *e, const ZlExpr *x, Val *out, uint32_t want);
Bind *name_find(Elab *e, const char *name);
void name_bind(Elab *e, ZlName name, Val v);
/* Adds a name that the frame has not, and an axis. name_cut: back to the first n names. */
void name_add(Elab *e, Frame *f, Bind b);
void name_cut(Frame *f, uint32_t n);
void axis_bind(Elab *e, Frame *f, const char *name, uint16_t axis);
bool axis_find(Elab *e, const char *name, uint16_t *out);
bool axis_resolve(Elab *e, ZlName name, uint16_t *out);       /* reports an unknown one */
bool type_resolve(Elab *e, const ZlTypeExpr *t, ZgType *out); /* `..` is the frame's row */
/* "[batch, seq]", "a scalar" */
const char *axes_text(Elab *e, const ZgType *t);
const char *type_text(Elab *e, const ZgType *t);
bool is_float(const ZgType *t);

/* ---- call.c, builtin.c --------------------------------------------------------------------------------- */
void call_block(Elab *e, const ZlExpr *x, const ZlBlock *b, Val *out);
bool elem_fits(const ZgType *want,
               const ZgType *have); /* does a value's element type do for a declared one? */
/* `axis` in the block that is instantiated: for this call alone. */
void call_axes(Elab *e, const ZlStmt *s);
/* Instantiates a block that nobody calls, with axes of its own. */
void call_block_alone(Elab *e, const ZlBlock *b);
bool is_builtin(const char *name);
uint32_t builtin_results(const char *name); /* how many values it gives; of no operation: 1 */
uint32_t builtin_names(const char **out, uint32_t max);
Val builtin_call(Elab *e, const ZlExpr *x, const char *name); /* of that operation */
Val builtin_binary(Elab *e, const ZlExpr *x, ZgOp op, Val a, Val b, ZlSpan sa, ZlSpan sb);
Val builtin_sum(Elab *e, ZlSpan span, Val v, const uint16_t *ax, int nax);

/* ---- experts.c ----------------------------------------------------------------------------------------- */
/* Where an elementwise node has an operand that is of rows of experts: what lacks their slots, but for plain
 * numbers, becomes of rows too, each with the part of its expert. `in` are in the current segment. */
void weights_in_rows(Elab *e, ZlSpan at, const ZgNode *n, Val *in);

/* ---- weights.c, config.c, config_file.c: maps to foreign weights ------------------------------------------------------ */
/* After all of the model: its maps, into the graph. */
void weights_map(Elab *e);
/* Reports it if the maps have more than ZG_MAX_KEYS of something; `beyond`: the first that is one too many. */
void weights_most(Elab *e, uint32_t n, const char *what, ZlSpan beyond, const char *help);
/* The config.json that the options name, if any. False and a report if it cannot be read. */
bool config_open(Elab *e);
/* Whether it is of the model's family; if not, nothing else of it is worth a message. */
bool config_family(Elab *e);
void config_close(Elab *e);
/* What it says of a static of the model: nothing; a number; something wrong, which was reported. */
typedef enum { CONFIG_SILENT, CONFIG_SET, CONFIG_FAILED } ConfigSays;
ConfigSays config_static(Elab *e, const char *name, Num *out);
/* The file, if some key of it gives the static; else NULL. */
const char *config_gives(Elab *e, const char *name);
/* When statics and axes are bound: does it contradict the model?  What the model says, into the graph. */
void config_check(Elab *e);
void config_values(Elab *e);

/* ---- sep.c --------------------------------------------------------------------------------------------- */
/* Reports what makes the loss inseparable over `batch`. */
void sep_check(Elab *e, uint16_t batch);

/* ---- unused.c ------------------------------------------------------------------------------------------ */
/* Warns of what a file declares and does not mention (Z0115). */
void unused_names(ZlDiags *d, ZbArena *a, const ZlFile *f);

/* ---- update.c ------------------------------------------------------------------------------------------ */
/* `update state = expr`: notes it as a sink. */
void update_place(Elab *e, const ZlStmt *s);
/* What sep.c found of a value: is it a mean over `batch`, used linearly, a sum, the same for all samples, or
 * else? */
typedef enum { UPDATE_CONST, UPDATE_MEAN, UPDATE_SUM, UPDATE_OTHER } UpdateKind;
/* Turns what each sink of segment `seg` takes into its state's measure, and what follows it into its update. */
void update_split(Elab *e, uint32_t seg, UpdateKind (*kind)(void *arg, uint32_t value), void *arg);

#endif
