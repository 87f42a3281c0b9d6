/* graph: the stage graph, the one thing that compiler and runtime both know. A model is a chain of
 * *segments*; a segment is a straight list of operations on whole tensors with named axes, forward then
 * backward, and runs `trip` times (a `repeat` of the model) or once. Everything between two segments, or two
 * iterations of one, is an explicit list of carried values, so that a pipeline cut is legal exactly there.
 * Nothing here knows of recipes, ranks or devices.
 *
 * ops.h    the operations       attend.h, conv.h, linear.h  what attention, convolutions and recurrences say by their
 *                              attributes
 * infer.c, infer_layers.c  result types and axis classes of every op
 * ragged.c    what may be done between dispatch and combine, see ragged.h
 * stream.c    whether a model can be made token by token, see stream.h
 * build.c     make graphs         verify.c  what must hold       foreign.c  and what of weights by other names
 * print.c     the text form       write.c, read.c  the .zsg file; read.c trusts nothing */
#ifndef ZUG_GRAPH_H
#define ZUG_GRAPH_H

#include "base/base.h"
#include "graph/attend.h"
#include "graph/conv.h"
#include "graph/linear.h"
#include "graph/ops.h"

#define ZG_MAX_AXES 8          /* axes of one tensor */
#define ZG_MAX_IN 10           /* operands of one node */
#define ZG_MAX_OUT 7           /* results of one node */
#define ZG_MAX_AXARG 9         /* axis arguments of one node */
#define ZG_MAX_GRAPH_AXES 1024 /* axes of one graph */
#define ZG_MAX_TRIP 4096       /* iterations of a repeat */
#define ZG_MAX_DEPTH 64        /* regions within regions */
#define ZG_MAX_SEGMENTS 4096
#define ZG_MAX_IO 4096               /* inputs and outputs of a graph */
#define ZG_MAX_LOSSES 16             /* of a graph */
#define ZG_MAX_ELEMENTS (1ull << 48) /* of a tensor, and of all parameters */
#define ZG_MAX_FOREIGN (1u << 20)    /* foreign tensors of one map, over all iterations */
#define ZG_MAX_ITEMS (1u << 16)      /* of a list of config that is gone over */
#define ZG_MAX_KEYS 1024             /* of config, of all maps; and as many patterns of what is ignored */
#define ZG_NONE UINT32_MAX           /* no value, no region, ... */

/* Element types. REAL is "the recipe's compute type". INDEX(axis) is an i32 that selects along an axis;
 * BOOL is stored as f32 0 or 1. */
typedef enum { ZG_REAL, ZG_F32, ZG_BF16, ZG_F16, ZG_I32, ZG_BOOL, ZG_INDEX, ZG_ELEMS } ZgElem;
extern const char *const zg_elem_name[ZG_ELEMS];

typedef struct {
  uint8_t elem; /* ZgElem */
  uint8_t naxes;
  uint16_t of;                /* the axis an INDEX selects along; else 0 */
  uint16_t axis[ZG_MAX_AXES]; /* ascending axis numbers: a set */
} ZgType;

/* An axis. size 0: a data axis, bound by the recipe. Numbered in order of declaration, which is also
 * the memory order of activations (parameters lie in their declared order). */
typedef struct {
  const char *name;
  int64_t size;
} ZgAxis;

typedef enum { ZG_INIT_CONST, ZG_INIT_NORMAL, ZG_INIT_UNIFORM, ZG_INIT_TRUNC_NORMAL } ZgInit;
/* ZG_INIT_CONST: num[0]; NORMAL: num[0] = sigma; TRUNC_NORMAL: the same, cut at num[1] sigma, 0: at two; UNIFORM:
 * num[0..1] */
#define ZG_LEAST_CUT 0.1 /* else too few of what is drawn would be within it */

/* How a state changes at the end of a step: elementwise operations on f32 registers. Register 0 is the state,
 * 1 its measure (0 if it has none), and 2.. are the steps' results, of which the last is what it becomes. */
#define ZG_MAX_UPDATE 32
#define ZG_MAX_FORMULA 64 /* steps of an initial value by position */
typedef struct {
  uint16_t op;      /* EW, but for CAST, AXSIZE and KNOWN */
  uint16_t a, b, c; /* registers of its operands; others 0 */
  double num;       /* FILL */
} ZgUpdateStep;
typedef struct {
  uint32_t n;
  ZgUpdateStep *steps;
} ZgUpdate;
/* What the measure of a state is, opt[1] of MEASURE: the mean of what micro-batches have, their sum, or
 * nothing. */
typedef enum { ZG_MEASURE_MEAN, ZG_MEASURE_SUM, ZG_MEASURE_NONE } ZgMeasure;

typedef struct {
  const char *path;           /* "layer.*.attn.wq": `*` is the iteration of its segment's repeat */
  ZgType type;                /* elem ZG_REAL */
  uint8_t order[ZG_MAX_AXES]; /* order[i] = position in type.axis of the i-th declared axis */
  uint8_t init;               /* ZgInit */
  double num[2];
  const double (*each)[2]; /* of a repeat: in place of `num`, by iteration; NULL: all iterations are alike */
  /* An initial value by position, in place of all these, or NULL: registers are an element's place along each declared axis,
   * the number of the iteration, and then the steps' results, in f64. */
  const ZgUpdate *formula;
  uint32_t tags;    /* bit i: carries tag i of the graph */
  uint32_t segment; /* per-iteration parameters: the repeat they belong to; others: ZG_NONE */
  uint32_t loc;     /* where it was declared */
  /* Outside of the gradient: what its param_grad adds up is its measure. Without an update it stays. */
  bool state;
  const ZgUpdate *update;
} ZgParam;

/* Returns the numbers of a parameter's initialiser in an iteration of its repeat. */
static inline const double *zg_init_numbers(const ZgParam *p, uint32_t iteration) {
  return p->each ? p->each[iteration] : p->num;
}

/* Returns an initial value by position, of the element at `place` along its declared axes. */
double zg_initial(const ZgParam *p, const double *place, uint32_t iteration);

/* A labelled part of the model: the model itself, a block call, a repeat. What `recompute Layer.attn` and
 * `unit layer` name. Region 0 is the model; parents come before children. */
typedef enum { ZG_REGION_MODEL, ZG_REGION_BLOCK, ZG_REGION_REPEAT } ZgRegionKind;
typedef struct {
  uint8_t kind;
  uint32_t parent;   /* ZG_NONE for region 0 */
  const char *label; /* "attn", "layer"; "" if unlabelled */
  const char *block; /* "Attention", "Layer"; "" for model and repeat */
} ZgRegion;

typedef struct { /* a place in the source, for messages at plan time and run time */
  const char *file;
  uint32_t line, col;
} ZgLoc;

typedef struct {
  uint16_t op; /* ZgOp */
  uint8_t nin, nout, nax;
  uint16_t ax[ZG_MAX_AXARG];
  uint32_t in[ZG_MAX_IN]; /* values of the same segment, defined earlier */
  uint32_t out;           /* first result; the others follow */
  uint32_t region, loc;
  double num[2];
  int64_t opt[2];
} ZgNode;

typedef struct {
  ZgType type;
  uint32_t node; /* which node makes it */
} ZgValue;

typedef struct {
  const char *label; /* the repeat's label, or "" for straight parts */
  uint32_t region;   /* the repeat's region, or 0 */
  uint32_t trip;     /* iterations; 1 for straight parts */
  bool repeat;
  uint32_t ncarry_in, ncarry_out; /* a repeat carries out what it carries in, type by type */
  ZgType *carry_in, *carry_out;
  ZgNode *nodes; /* forward [0, nforward), then backward */
  uint32_t nnodes, nforward;
  bool backward; /* zg_node_add appends backward nodes (set by zc_differentiate) */
  ZgValue *values;
  uint32_t nvalues;
} ZgSegment;

typedef struct {
  const char *name;
  ZgType type;
  uint32_t loc;
  const uint8_t *order; /* as ZgParam's: of the axes in files; NULL: as in the type */
} ZgIo;
/* The position in type.axis of the i-th axis of an input or output as it is written. */
static inline int zg_io_axis(const ZgIo *io, int i) { return io->order ? io->order[i] : i; }

typedef struct { /* one of several losses, or one that has a name */
  const char *name;
  uint32_t loc;
} ZgLoss;

/* A part of a parameter in a file of another program (`weights hf for M { ... }`): a strided view of a
 * foreign tensor. The parts of one map are together; they cover every parameter once, and every foreign
 * tensor of which they name a part. */
typedef struct {
  const char *map;             /* "hf" */
  uint32_t param;              /* whose values */
  const char *name;            /* of the foreign tensor; `*` is the iteration, `6*+3` 6 times it and 3 */
  uint8_t ndims;               /* at least 1 */
  int64_t dims[ZG_MAX_AXES];   /* its shape */
  int64_t first;               /* the element at which the part begins */
  int64_t stride[ZG_MAX_AXES]; /* of each declared axis of the parameter (ZgParam.order), in elements */
  int8_t fixed; /* the part is one index only of this declared axis: `at`; -1: the whole parameter */
  int64_t at;
} ZgForeign;
/* What the map's config.json, or that of adapters (adapter.h), says: a key ("rope_parameters.rope_theta" is nested) and its value as JSON; `[...]*5`
 * goes over the list until there are 5 items. */
typedef struct {
  const char *map, *key, *value;
} ZgConfig;
/* Foreign tensors without interest; `*` in the pattern is any text. */
typedef struct {
  const char *map, *pattern;
  const char *of; /* the foreign tensor that it is a copy of, or NULL */
} ZgIgnored;

/* clang-format off */
typedef struct ZgGraph {
  ZbArena *arena; /* everything below lives here */
  const char *model;
  ZgAxis *axes;        uint32_t naxes;
  ZgParam *params;     uint32_t nparams;
  ZgRegion *regions;   uint32_t nregions;
  ZgSegment *segments; uint32_t nsegments;
  ZgIo *inputs;        uint32_t ninputs;
  ZgIo *outputs;       uint32_t noutputs;
  ZgLoss *losses;      uint32_t nlosses; /* none: the one that there is has no name, see zg_losses */
  const char **tags;   uint32_t ntags; /* at most 32 */
  ZgLoc *locs;         uint32_t nlocs; /* loc 0 is "nowhere" */
  ZgForeign *foreign;  uint32_t nforeign;
  ZgConfig *config;    uint32_t nconfig;
  ZgIgnored *ignored;  uint32_t nignored;
  uint64_t hash[2];    /* of the file's contents: the same graph on all ranks */
} ZgGraph;
/* clang-format on */

/* ---- build.c: all of it lives in g->arena -------------------------------------------------------------- */
ZgGraph *zg_graph_new(ZbArena *arena, const char *model);
uint32_t zg_axis_add(ZgGraph *g, const char *name, int64_t size);
uint32_t zg_axis_find(const ZgGraph *g, const char *name); /* ZG_NONE if there is none */
/* Whether it is a vocabulary's: a table is looked up by it, or it is the classes of a cross entropy. */
bool zg_axis_is_looked_up(const ZgGraph *g, uint32_t axis);
uint32_t zg_param_add(ZgGraph *g, ZgParam p);
uint32_t zg_region_add(ZgGraph *g, ZgRegionKind kind, uint32_t parent, const char *label, const char *block);
uint32_t zg_tag_add(ZgGraph *g, const char *tag); /* finds or adds; ZG_NONE when there would be 33 */
void zg_loss_add(ZgGraph *g, const char *name, uint32_t loc); /* copies the name */
/* How many losses there are. Loss k has one loss_num and one loss_den with opt[0] = k. */
static inline uint32_t zg_losses(const ZgGraph *g) { return g->nlosses ? g->nlosses : 1; }
#define ZG_LOSS_WITHOUT_NAME "main" /* what reports call it */
/* Says whether `aux` adds terms to the losses. */
bool zg_has_aux(const ZgGraph *g);
/* Says whether the first loss is one: it is the constant 0 in a model of `aux` terms alone. */
bool zg_has_loss(const ZgGraph *g);
uint32_t zg_loc_add(ZgGraph *g, const char *file, uint32_t line, uint32_t col); /* finds or adds */
void zg_foreign_add(ZgGraph *g, ZgForeign f); /* these three copy the texts */
void zg_config_add(ZgGraph *g, const char *map, const char *key, const char *value);
void zg_ignored_add(ZgGraph *g, const char *map, const char *pattern,
                    const char *of); /* of: NULL, as above */
/* The pointer holds until the next segment is added. */
ZgSegment *zg_segment_add(ZgGraph *g, const char *label, uint32_t region, bool repeat, uint32_t trip);
/* Appends a node (forward, while s->backward is not set) whose op, operands, axis arguments and attributes
 * are set in `n`; infers the result types, makes the result values and returns the first one. Types that
 * cannot be inferred (sources, cast, broadcast, random, slice to a fresh axis, lookup_grad: see zg_infer) are
 * given by `hint`, else NULL. A type error here is a bug of the caller, who checks with zg_infer first. */
uint32_t zg_node_add(ZgGraph *g, ZgSegment *s, ZgNode n, const ZgType *hint);

/* ---- types: sets of axes ------------------------------------------------------------------------------- */
ZgType zg_type(ZgElem elem, const uint16_t *axes, int n); /* sorts */
bool zg_type_has(const ZgType *t, uint16_t axis);
bool zg_type_eq(const ZgType *a, const ZgType *b);
bool zg_type_contains(const ZgType *a, const ZgType *b); /* axes(b) is a subset of axes(a) */
ZgType zg_type_union(const ZgType *a, const ZgType *b);  /* elem of a; naxes > ZG_MAX_AXES marks overflow */
/* How many elements, along the axes whose size the model gives; false beyond ZG_MAX_ELEMENTS. */
bool zg_elements(const ZgGraph *g, const ZgType *t, uint64_t *out);
ZgType zg_type_minus(const ZgType *a, const uint16_t *axes, int n);
/* "real[batch, seq, embed]" into arena memory. */
const char *zg_type_text(const ZgGraph *g, ZbArena *a, const ZgType *t);
void zg_type_put(const ZgGraph *g, ZbText *out, const ZgType *t); /* the same, appended to `out` */
void zg_io_put(const ZgGraph *g, ZbText *out, const ZgIo *io);    /* its type, axes as they are written */

/* ---- infer.c ------------------------------------------------------------------------------------------- */
/* Result types of node `n` whose operands have types in[0..n->nin); `hint` as for zg_node_add. False with a
 * reason in *err (in axis names) when they do not fit. The one type rule of compiler and loader. */
bool zg_infer(const ZgGraph *g, const ZgNode *n, const ZgType *in, const ZgType *hint, ZgType *out,
              ZbErr *err);
/* How an op treats an axis of its iteration space (the axes of its operands and results):
 *   ABSENT  not in it      PIN  must be whole on each rank
 *   PAR     some result has it. Results that have it are split with it; results that lack it (dk, dv of
 *           attend_grad over a group axis) are partial sums
 *   SUM     no result has it: a split leaves every result a partial sum;  MAX  the same, a partial maximum
 * Sinks have no results: all axes of their operand are PAR. */
typedef enum { ZG_AXIS_ABSENT, ZG_AXIS_PAR, ZG_AXIS_SUM, ZG_AXIS_MAX, ZG_AXIS_PIN } ZgAxisClass;
ZgAxisClass zg_axis_class(const ZgNode *n, const ZgType *in, const ZgType *out, uint16_t axis);

/* ---- verify.c, print.c --------------------------------------------------------------------------------- */
/* Everything a graph must satisfy; false with the first violation. Indices in range, names well-formed and
 * unique, operands defined before use, types as inferred. Then, of the chain:
 *   - the first segment carries nothing in, the last one carries nothing out and is no repeat; between two
 *     neighbours, and around a repeat, the carried types are the same, position by position;
 *   - every carried position has one carry_out and at most one carry;
 *   - each loss has one numerator and one denominator, in one segment that is no repeat; the denominator
 *     depends on inputs only;
 *   - every output once, and not in a repeat; parameters of a repeat are used in it only;
 *   - backward nodes (all segments have them or none has a cotangent): at most one param_grad a parameter,
 *     and for every boundary one set of positions with cotangents: dcarry k of a segment <=> dcarry_in k of
 *     the next one; in a repeat also dcarry k <=> dcarry_in k. */
bool zg_verify(const ZgGraph *g, ZbErr *err);
/* The part of it that is about `foreign`, `config` and `ignored`; the rest of the graph must have been found
 * good before. Of every map:
 *   - each parameter has one part that is all of it, or a part for each index of one of its axes;
 *   - parts of one name have one shape, belong to parameters of one repeat, and cover the tensor once;
 *   - names are well-formed, and no two of all iterations are the same; config keys are there once, and none
 *     is inside another; values are JSON, without objects. */
bool zg_verify_foreign(const ZgGraph *g, ZbErr *err);
/* A parameter's path, or a foreign name, in an iteration: "layer.3.wq" of "layer.*.wq", "h.21.w" of
 * "h.6*+3.w". */
const char *zg_numbered(ZbArena *a, const char *name, uint32_t iter);
/* The canonical text form, stable numbering, no addresses; segment ZG_NONE prints all of the graph. */
void zg_print(const ZgGraph *g, uint32_t segment, ZbText *out);
/* Parameters, over all iterations and without padding. */
uint64_t zg_param_count(const ZgGraph *g);

/* ---- write.c, read.c: the .zsg file (GRAPH-FORMAT in graph/FORMAT.md) ---------------------------------- */
/* The bytes of a .zsg file into *out; deterministic. Sets g->hash. False, and nothing in *out, for a graph
 * too large to be read again. */
bool zg_write(ZgGraph *g, ZbText *out, ZbErr *err);
/* Returns the hash, in hexadecimal digits, of what the graph computes and of the names in it: another comment,
 * file name or map of weights changes nothing. */
const char *zg_hash_computed(ZbArena *a, const ZgGraph *g);
/* Puts the checksums of the bytes of a .zsg file into its header: for tests and fuzzing, which change bytes
 * and want to get past them. */
void zg_seal(void *bytes, size_t n);
/* Reads and validates untrusted bytes; NULL with a reason on any doubt. Allocates nothing from sizes in the
 * file before they are checked against the file's own size. */
ZgGraph *zg_read(ZbArena *a, const void *bytes, size_t n, ZbErr *err);
ZgGraph *zg_read_file(ZbArena *a, const char *path, ZbErr *err);
bool zg_is_one(const uint8_t *head, size_t n); /* whether a file that begins so is a .zsg file */

#endif
