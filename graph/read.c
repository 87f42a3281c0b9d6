/* A graph from the bytes of a .zsg file (FORMAT.md). The bytes may be anything: a truncated download, a file
 * of another program, or one made to do harm. Sizes are checked against the file's own before memory is
 * taken, every number against its table before it is used, and what comes out has passed zg_verify, which
 * infers all types again. */
#include "graph/graph.h"
#include "graph/file.h"

#include <string.h>
#include <xxhash.h>

#define MAX_FILE (256ull << 20)

typedef struct {
  const uint8_t *bytes;
  uint64_t n;
  ZbErr *err;
  ZbArena *a;
  ZgGraph *g;
  struct {
    const uint8_t *at;
    uint64_t bytes, count;
  } section[ZSG_ALL_KINDS + 1];
  uint64_t used[ZSG_ALL_KINDS + 1]; /* records of the lists that nodes and segments share out */
  const char **strings;
  ZgType *types;
} Reader;

static const struct {
  const char *name;
  uint32_t record;
  uint64_t most;
} kinds[ZSG_ALL_KINDS + 1] = {
#define X(kind, name, record, most) [kind] = {#name, record, most},
    ZG_SECTIONS(X)
#undef X
};

#define REMAKE "make it again with zc"
#define FAIL(r, ...) zb_fail((r)->err, REMAKE, __VA_ARGS__)

static uint64_t u64_at(const uint8_t *p) { return zsg_get(p, 8); }
static uint32_t u32_at(const uint8_t *p) { return (uint32_t)zsg_get(p, 4); }
static uint16_t u16_at(const uint8_t *p) { return (uint16_t)zsg_get(p, 2); }
static double f64_at(const uint8_t *p) {
  uint64_t v = u64_at(p);
  double x;
  memcpy(&x, &v, sizeof x);
  return x;
}

static bool all_zero(const uint8_t *p, uint64_t n) {
  for (uint64_t i = 0; i < n; i++)
    if (p[i]) return false;
  return true;
}

/* ---- header and directory ------------------------------------------------------------------------------ */
static bool read_header(Reader *r) {
  const uint8_t *p = r->bytes;
  if (r->n < 4 || memcmp(p, ZSG_MAGIC, 4))
    return zb_fail(r->err, "give a file made by zc", "this is not a stage graph");
  if (r->n < ZSG_HEADER) return FAIL(r, "the file is cut off within its header");
  if (u16_at(p + 4) != ZSG_MAJOR)
    return zb_fail(r->err, "make it again with this version's zc",
                   "the file has format version %u, this program reads %d", u16_at(p + 4), ZSG_MAJOR);
  if (u64_at(p + 56) != XXH3_64bits(p, 56)) return FAIL(r, "the file's header is damaged");
  if (u64_at(p + 16) != r->n)
    return FAIL(r, "the file has %llu bytes and should have %llu: it is cut off or something was added",
                (unsigned long long)r->n, (unsigned long long)u64_at(p + 16));
  if (u32_at(p + 8))
    return FAIL(r, "the file needs features (0x%x) that this program does not know", u32_at(p + 8));
  if (!all_zero(p + 40, 16)) return FAIL(r, "reserved bytes of the header are not 0");
  XXH128_hash_t h = XXH3_128bits(p + ZSG_HEADER, r->n - ZSG_HEADER);
  if (h.low64 != u64_at(p + 24) || h.high64 != u64_at(p + 32))
    return FAIL(r, "the file is damaged: its contents do not have the hash in its header");
  return true;
}

static bool read_entry(Reader *r, const uint8_t *e, uint32_t *before, uint64_t *end) {
  uint32_t kind = u32_at(e), flags = u32_at(e + 4);
  uint64_t offset = u64_at(e + 8), bytes = u64_at(e + 16), count = u64_at(e + 24), expected;
  bool known = kind >= 1 && kind <= ZSG_ALL_KINDS;
  if (kind <= *before) return FAIL(r, "section %u is not in order", kind);
  if (flags & ~(uint32_t)ZSG_REQUIRED) return FAIL(r, "section %u has unknown flags", kind);
  if (!known && flags) return FAIL(r, "section %u is required and this program does not know it", kind);
  if (offset != zb_round_up(*end, 8) || bytes > r->n - offset || !all_zero(r->bytes + *end, offset - *end))
    return FAIL(r, "section %u is not in its place", kind);
  *before = kind;
  *end = offset + bytes;
  if (!known) return true;
  if (!zb_mul_u64(count, kinds[kind].record, &expected) || expected != bytes)
    return FAIL(r, "section %s has %llu bytes for %llu records of %u", kinds[kind].name,
                (unsigned long long)bytes, (unsigned long long)count, kinds[kind].record);
  if (count > kinds[kind].most)
    return FAIL(r, "section %s has %llu records, at most %llu are possible", kinds[kind].name,
                (unsigned long long)count, (unsigned long long)kinds[kind].most);
  r->section[kind].at = r->bytes + offset;
  r->section[kind].bytes = bytes;
  r->section[kind].count = count;
  return true;
}

static bool read_directory(Reader *r) {
  uint32_t n = u32_at(r->bytes + 12), before = 0;
  uint64_t end = ZSG_HEADER + (uint64_t)n * ZSG_ENTRY;
  if (r->n % 8 || end > r->n) return FAIL(r, "the file's %u sections do not fit into it", n);
  for (uint32_t i = 0; i < n; i++)
    if (!read_entry(r, r->bytes + ZSG_HEADER + (uint64_t)i * ZSG_ENTRY, &before, &end)) return false;
  if (zb_round_up(end, 8) != r->n || !all_zero(r->bytes + end, r->n - end))
    return FAIL(r, "there is something behind the last section");
  for (int k = 1; k <= ZSG_KINDS; k++)
    if (!r->section[k].at) return FAIL(r, "section %s is missing", kinds[k].name);
  return true;
}

static uint32_t count(const Reader *r, int kind) { return (uint32_t)r->section[kind].count; }
static const uint8_t *record(const Reader *r, int kind, uint64_t i) {
  return r->section[kind].at + i * kinds[kind].record;
}

/* The next `n` records of a list, or NULL if it has not as many. */
static const uint8_t *take_records(Reader *r, int kind, uint32_t n) {
  if (n > r->section[kind].count - r->used[kind]) {
    FAIL(r, "section %s is too short", kinds[kind].name);
    return NULL;
  }
  const uint8_t *p = record(r, kind, r->used[kind]);
  r->used[kind] += n;
  return p;
}

/* ---- strings and types --------------------------------------------------------------------------------- */
static bool text_ok(const uint8_t *p, uint32_t n) {
  size_t bytes;
  for (uint32_t i = 0; i < n; i += (uint32_t)bytes)
    if (!(bytes = zb_plain((const char *)p + i, n - i))) return false;
  return true;
}

static bool read_strings(Reader *r) {
  uint32_t n = count(r, SEC_STRE), start = 0, size = count(r, SEC_STRB);
  r->strings = ZB_NEWN(r->a, const char *, n + 1);
  for (uint32_t i = 0; i < n; i++) {
    uint32_t end = u32_at(record(r, SEC_STRE, i));
    if (end < start || end > size || end - start > ZSG_MAX_STRING)
      return FAIL(r, "string %u has no valid extent", i);
    const uint8_t *p = record(r, SEC_STRB, start);
    if (!text_ok(p, end - start)) return FAIL(r, "string %u is not clean UTF-8", i);
    r->strings[i] = zb_strndup(r->a, (const char *)p, end - start);
    start = end;
  }
  return start == size || FAIL(r, "there are bytes behind the last string");
}

static bool string_at(Reader *r, const uint8_t *p, const char **s) {
  uint32_t i = u32_at(p);
  if (i >= count(r, SEC_STRE)) return FAIL(r, "there is no string %u", i);
  *s = r->strings[i];
  return true;
}

static bool type_at(Reader *r, const uint8_t *p, ZgType *t) {
  uint32_t i = u32_at(p);
  if (i >= count(r, SEC_TYPE)) return FAIL(r, "there is no type %u", i);
  *t = r->types[i];
  return true;
}

/* The axes are checked here already, since types are printed in messages. */
static bool read_types(Reader *r) {
  uint32_t n = count(r, SEC_TYPE);
  r->types = ZB_NEWN(r->a, ZgType, n + 1);
  for (uint32_t i = 0; i < n; i++) {
    const uint8_t *p = record(r, SEC_TYPE, i);
    ZgType *t = &r->types[i];
    *t = (ZgType){.elem = p[0], .naxes = p[1], .of = u16_at(p + 2)};
    if (t->elem >= ZG_ELEMS || t->naxes > ZG_MAX_AXES) return FAIL(r, "type %u is not a type", i);
    if (t->elem == ZG_INDEX ? t->of >= r->g->naxes : t->of != 0)
      return FAIL(r, "type %u selects along no axis", i);
    for (int k = 0; k < ZG_MAX_AXES; k++) {
      t->axis[k] = u16_at(p + 4 + 2 * k);
      bool ok = k >= t->naxes ? t->axis[k] == 0
                              : t->axis[k] < r->g->naxes && (k == 0 || t->axis[k] > t->axis[k - 1]);
      if (!ok) return FAIL(r, "type %u has axes that do not exist or are not in order", i);
    }
  }
  return true;
}

/* ---- tables -------------------------------------------------------------------------------------------- */
static bool read_small_tables(Reader *r) {
  ZgGraph *g = r->g;
  const uint8_t *meta = record(r, SEC_META, 0);
  if (count(r, SEC_META) != 1 || u32_at(meta + 4)) return FAIL(r, "section META is not one record");
  if (!string_at(r, meta, &g->model)) return false;
  g->nlocs = count(r, SEC_LOCS);
  g->locs = ZB_NEWN(r->a, ZgLoc, g->nlocs);
  for (uint32_t i = 0; i < g->nlocs; i++) {
    const uint8_t *p = record(r, SEC_LOCS, i);
    if (!string_at(r, p, &g->locs[i].file)) return false;
    g->locs[i].line = u32_at(p + 4);
    g->locs[i].col = u32_at(p + 8);
  }
  g->naxes = count(r, SEC_AXIS);
  g->axes = ZB_NEWN(r->a, ZgAxis, g->naxes);
  for (uint32_t i = 0; i < g->naxes; i++) {
    const uint8_t *p = record(r, SEC_AXIS, i);
    if (!string_at(r, p, &g->axes[i].name)) return false;
    if (u32_at(p + 4)) return FAIL(r, "axis %u: reserved bytes are not 0", i);
    g->axes[i].size = (int64_t)u64_at(p + 8);
  }
  g->ntags = count(r, SEC_TAGS);
  g->tags = ZB_NEWN(r->a, const char *, g->ntags);
  for (uint32_t i = 0; i < g->ntags; i++)
    if (!string_at(r, record(r, SEC_TAGS, i), &g->tags[i])) return false;
  return true;
}

static bool read_params(Reader *r) {
  ZgGraph *g = r->g;
  g->nparams = count(r, SEC_PARM);
  g->params = ZB_NEWN(r->a, ZgParam, g->nparams);
  for (uint32_t i = 0; i < g->nparams; i++) {
    const uint8_t *p = record(r, SEC_PARM, i);
    ZgParam *q = &g->params[i];
    if (!string_at(r, p, &q->path) || !type_at(r, p + 4, &q->type)) return false;
    q->tags = u32_at(p + 8);
    q->segment = u32_at(p + 12);
    q->loc = u32_at(p + 16);
    if (u32_at(p + 20) > ZG_INIT_TRUNC_NORMAL) return FAIL(r, "parameter %u has an unknown initialiser", i);
    q->init = (uint8_t)u32_at(p + 20);
    memcpy(q->order, p + 24, ZG_MAX_AXES);
    if (!all_zero(p + 24 + q->type.naxes, ZG_MAX_AXES - q->type.naxes))
      return FAIL(r, "parameter %u: the order of its axes is not an order", i);
    for (int k = 0; k < 2; k++) q->num[k] = f64_at(p + 32 + 8 * k);
  }
  return true;
}

static bool read_steps(Reader *r, uint32_t n, const ZgUpdate **out) {
  const uint8_t *step = take_records(r, SEC_STEP, n);
  if (!step) return false;
  if (!n) return true;
  ZgUpdate *u = ZB_NEW(r->a, ZgUpdate);
  u->n = n;
  u->steps = ZB_NEWN(r->a, ZgUpdateStep, n);
  for (uint32_t k = 0; k < n; k++, step += 16)
    u->steps[k] =
        (ZgUpdateStep){u16_at(step), u16_at(step + 2), u16_at(step + 4), u16_at(step + 6), f64_at(step + 8)};
  *out = u;
  return true;
}

static bool read_states(Reader *r) {
  ZgGraph *g = r->g;
  for (uint32_t i = 0; i < count(r, SEC_STAT); i++) {
    const uint8_t *p = record(r, SEC_STAT, i);
    uint32_t param = u32_at(p), n = u32_at(p + 4);
    if (param >= g->nparams || g->params[param].state) return FAIL(r, "state %u is not a parameter", i);
    g->params[param].state = true;
    if (!read_steps(r, n, &g->params[param].update)) return false;
  }
  return true;
}

static bool read_formulas(Reader *r) {
  ZgGraph *g = r->g;
  for (uint32_t i = 0; i < count(r, SEC_FORM); i++) {
    const uint8_t *p = record(r, SEC_FORM, i);
    uint32_t param = u32_at(p), n = u32_at(p + 4);
    if (param >= g->nparams || g->params[param].formula || !n)
      return FAIL(r, "initial value by position %u is not a parameter's", i);
    if (!read_steps(r, n, &g->params[param].formula)) return false;
  }
  return r->used[SEC_STEP] == count(r, SEC_STEP) || FAIL(r, "section STEP has records that nothing uses");
}

/* The numbers of one parameter, which are those of all iterations of its repeat, in order. */
static bool read_each_of(Reader *r, uint32_t param) {
  ZgParam *q = &r->g->params[param];
  uint32_t trip = q->segment < r->g->nsegments ? r->g->segments[q->segment].trip : 0, had = r->used[SEC_EACH];
  const uint8_t *p = take_records(r, SEC_EACH, trip);
  if (!p) return false;
  if (!trip || q->each)
    return FAIL(r, "initial values by iteration, record %u: not of a repeat's parameter", had);
  double(*each)[2] = (void *)ZB_NEWN(r->a, double, 2 * (size_t)trip);
  for (uint32_t k = 0; k < trip; k++, p += 24) {
    if (u32_at(p) != param || u32_at(p + 4) != k)
      return FAIL(r, "initial values by iteration, record %u: not the next one", had + k);
    for (int j = 0; j < 2; j++) each[k][j] = f64_at(p + 8 + 8 * j);
  }
  q->each = (const double(*)[2])each;
  return true;
}

static bool read_each(Reader *r) {
  while (r->used[SEC_EACH] < count(r, SEC_EACH)) {
    uint32_t param = u32_at(record(r, SEC_EACH, r->used[SEC_EACH]));
    if (param >= r->g->nparams) return FAIL(r, "initial values by iteration are of no parameter");
    if (!read_each_of(r, param)) return false;
  }
  return true;
}

static bool read_regions(Reader *r) {
  ZgGraph *g = r->g;
  g->nregions = count(r, SEC_REGN);
  g->regions = ZB_NEWN(r->a, ZgRegion, g->nregions);
  for (uint32_t i = 0; i < g->nregions; i++) {
    const uint8_t *p = record(r, SEC_REGN, i);
    ZgRegion *q = &g->regions[i];
    if (u32_at(p) > ZG_REGION_REPEAT) return FAIL(r, "region %u has an unknown kind", i);
    q->kind = (uint8_t)u32_at(p);
    q->parent = u32_at(p + 4);
    if (!string_at(r, p + 8, &q->label) || !string_at(r, p + 12, &q->block)) return false;
  }
  return true;
}

static bool read_io(Reader *r) {
  ZgGraph *g = r->g;
  uint32_t n = count(r, SEC_INOU), nin = 0;
  ZgIo *all = ZB_NEWN(r->a, ZgIo, n);
  for (uint32_t i = 0; i < n; i++) {
    const uint8_t *p = record(r, SEC_INOU, i);
    if (u32_at(p) > 1 || (u32_at(p) == 0 && nin < i)) return FAIL(r, "inputs and outputs are not in order");
    nin += u32_at(p) == 0;
    if (!string_at(r, p + 4, &all[i].name) || !type_at(r, p + 8, &all[i].type)) return false;
    all[i].loc = u32_at(p + 12);
  }
  g->inputs = all;
  g->ninputs = nin;
  g->outputs = all + nin;
  g->noutputs = n - nin;
  return true;
}

static bool read_orders(Reader *r) {
  ZgGraph *g = r->g;
  for (uint32_t i = 0, least = 0; i < count(r, SEC_ORDR); i++) {
    const uint8_t *p = record(r, SEC_ORDR, i);
    uint32_t k = u32_at(p);
    if (k < least || k >= g->ninputs + g->noutputs) return FAIL(r, "order %u is of no input or output", i);
    least = k + 1;
    ZgIo *io = k < g->ninputs ? &g->inputs[k] : &g->outputs[k - g->ninputs];
    if (!all_zero(p + 4 + io->type.naxes, ZG_MAX_AXES - io->type.naxes))
      return FAIL(r, "%s: the order of its axes is not an order", io->name);
    uint8_t *order = ZB_NEWN(r->a, uint8_t, ZG_MAX_AXES);
    memcpy(order, p + 4, ZG_MAX_AXES);
    io->order = order;
  }
  return true;
}

static bool read_losses(Reader *r) {
  ZgGraph *g = r->g;
  g->nlosses = count(r, SEC_LOSS);
  g->losses = ZB_NEWN(r->a, ZgLoss, g->nlosses);
  for (uint32_t i = 0; i < g->nlosses; i++) {
    const uint8_t *p = record(r, SEC_LOSS, i);
    if (!string_at(r, p, &g->losses[i].name)) return false;
    g->losses[i].loc = u32_at(p + 4);
  }
  return true;
}

static bool read_foreign(Reader *r) {
  ZgGraph *g = r->g;
  g->nforeign = count(r, SEC_FORN);
  g->foreign = ZB_NEWN(r->a, ZgForeign, g->nforeign);
  for (uint32_t i = 0; i < g->nforeign; i++) {
    const uint8_t *p = record(r, SEC_FORN, i);
    ZgForeign *f = &g->foreign[i];
    if (!string_at(r, p, &f->map) || !string_at(r, p + 8, &f->name)) return false;
    f->param = u32_at(p + 4);
    f->ndims = p[12];
    f->fixed = (int8_t)p[13];
    if (u16_at(p + 14)) return FAIL(r, "foreign part %u: reserved bytes are not 0", i);
    f->at = (int64_t)u64_at(p + 16);
    f->first = (int64_t)u64_at(p + 24);
    for (int k = 0; k < ZG_MAX_AXES; k++) {
      f->dims[k] = (int64_t)u64_at(p + 32 + 8 * k);
      f->stride[k] = (int64_t)u64_at(p + 96 + 8 * k);
    }
  }
  return true;
}

static bool read_config(Reader *r) {
  ZgGraph *g = r->g;
  g->nconfig = count(r, SEC_CONF);
  g->config = ZB_NEWN(r->a, ZgConfig, g->nconfig);
  for (uint32_t i = 0; i < g->nconfig; i++) {
    const uint8_t *p = record(r, SEC_CONF, i);
    ZgConfig *c = &g->config[i];
    if (!string_at(r, p, &c->map) || !string_at(r, p + 4, &c->key) || !string_at(r, p + 8, &c->value))
      return false;
  }
  g->nignored = count(r, SEC_IGNO);
  g->ignored = ZB_NEWN(r->a, ZgIgnored, g->nignored);
  for (uint32_t i = 0; i < g->nignored; i++) {
    const uint8_t *p = record(r, SEC_IGNO, i);
    if (!string_at(r, p, &g->ignored[i].map) || !string_at(r, p + 4, &g->ignored[i].pattern)) return false;
  }
  for (uint32_t i = 0; i < count(r, SEC_COPY); i++) {
    const uint8_t *p = record(r, SEC_COPY, i);
    uint32_t ignored = u32_at(p);
    if (ignored >= g->nignored || g->ignored[ignored].of)
      return FAIL(r, "copy %u is of no ignored tensor, or of one twice", i);
    if (!string_at(r, p + 4, &g->ignored[ignored].of)) return false;
  }
  return true;
}

/* ---- segments ------------------------------------------------------------------------------------------ */
static bool read_attrs(Reader *r, ZgNode *n, unsigned mask) {
  const ZgOpInfo *a = &zg_op_info[n->op];
  unsigned has = (a->num ? ZSG_HAS_NUM : 0) | (a->opt[0] ? ZSG_HAS_OPT0 : 0) |
                 (a->opt[1] ? ZSG_HAS_OPT1 : 0) | (a->num1 ? ZSG_HAS_NUM1 : 0);
  unsigned late = (unsigned)a->late * ZSG_HAS_OPT0 | ZSG_HAS_NUM1; /* these may be left out, and then are 0 */
  if ((mask | late) != (has | late) || mask & ~has)
    return FAIL(r, "a node of %s has other attributes than the op", zg_op_info[n->op].text);
  const uint8_t *p = take_records(r, SEC_ATTR, (uint32_t)__builtin_popcount(mask));
  if (!p) return false;
  if (a->num) {
    n->num[0] = f64_at(p);
    p += 8;
  }
  for (int k = 0; k < 2; k++) {
    if (!(mask & ZSG_HAS_OPT0 << k)) continue;
    n->opt[k] = (int64_t)u64_at(p);
    if (!n->opt[k] && a->late >> k & 1)
      return FAIL(r, "a node of %s has a %s of 0, which is left out", zg_op_info[n->op].text, a->opt[k]);
    p += 8;
  }
  if (mask & ZSG_HAS_NUM1) n->num[1] = f64_at(p);
  if (mask & ZSG_HAS_NUM1 && n->num[1] == 0)
    return FAIL(r, "a node of %s has a %s of 0, which is left out", zg_op_info[n->op].text, a->num1);
  return true;
}

static bool read_node(Reader *r, ZgSegment *s, uint32_t i) {
  const uint8_t *p = take_records(r, SEC_NODE, 1);
  ZgNode *n = &s->nodes[i];
  if (!p) return false;
  *n = (ZgNode){.op = u16_at(p),
                .nin = p[4],
                .nout = p[5],
                .nax = p[6],
                .out = s->nvalues,
                .region = u32_at(p + 8),
                .loc = u32_at(p + 12)};
  if (n->op >= ZG_OP_COUNT || u16_at(p + 2) != ZSG_OP_VERSION)
    return FAIL(r, "op %u in version %u is not known to this program", n->op, u16_at(p + 2));
  uint8_t most = zg_op_info[n->op].nout;
  if (n->nin > ZG_MAX_IN || n->nax > ZG_MAX_AXARG || n->nout > most ||
      (n->nout < most && !zg_outs_vary(n->op)))
    return FAIL(r, "a node of %s has %u operands, %u axes, %u results", zg_op_info[n->op].text, n->nin,
                n->nax, n->nout);
  const uint8_t *in = take_records(r, SEC_OPND, n->nin), *ax = in ? take_records(r, SEC_AXAR, n->nax) : NULL;
  const uint8_t *out = ax ? take_records(r, SEC_RSLT, n->nout) : NULL;
  if (!out || !read_attrs(r, n, p[7])) return false;
  if (n->nout != zg_outs(n->op, n->opt))
    return FAIL(r, "a node of %s has %u results", zg_op_info[n->op].text, n->nout);
  for (int k = 0; k < n->nin; k++) n->in[k] = u32_at(in + 4 * k);
  for (int k = 0; k < n->nax; k++) n->ax[k] = u16_at(ax + 2 * k);
  for (int k = 0; k < n->nout; k++) {
    ZgValue v = {.node = i};
    if (!type_at(r, out + 4 * k, &v.type)) return false;
    ZB_PUSH(r->a, s->values, s->nvalues, v);
  }
  return true;
}

static bool read_carried(Reader *r, uint32_t n, ZgType **types) {
  const uint8_t *p = take_records(r, SEC_CARR, n);
  if (!p) return false;
  *types = ZB_NEWN(r->a, ZgType, n);
  for (uint32_t k = 0; k < n; k++)
    if (!type_at(r, p + 4 * (uint64_t)k, &(*types)[k])) return false;
  return true;
}

static bool read_segment(Reader *r, ZgSegment *s, const uint8_t *p) {
  uint32_t flags = u32_at(p + 12);
  if (!string_at(r, p, &s->label)) return false;
  if (flags & ~(uint32_t)(ZSG_REPEAT | ZSG_BACKWARD)) return FAIL(r, "a segment has unknown flags");
  s->region = u32_at(p + 4);
  s->trip = u32_at(p + 8);
  s->repeat = flags & ZSG_REPEAT;
  s->backward = flags & ZSG_BACKWARD;
  s->ncarry_in = u32_at(p + 16);
  s->ncarry_out = u32_at(p + 20);
  s->nnodes = u32_at(p + 24);
  s->nforward = u32_at(p + 28);
  if (s->nnodes > r->section[SEC_NODE].count - r->used[SEC_NODE]) return FAIL(r, "section NODE is too short");
  if (!read_carried(r, s->ncarry_in, &s->carry_in) || !read_carried(r, s->ncarry_out, &s->carry_out))
    return false;
  s->nodes = ZB_NEWN(r->a, ZgNode, s->nnodes);
  for (uint32_t i = 0; i < s->nnodes; i++)
    if (!read_node(r, s, i)) return false;
  return true;
}

static bool read_segments(Reader *r) {
  ZgGraph *g = r->g;
  g->nsegments = count(r, SEC_SEGM);
  g->segments = ZB_NEWN(r->a, ZgSegment, g->nsegments);
  for (uint32_t i = 0; i < g->nsegments; i++)
    if (!read_segment(r, &g->segments[i], record(r, SEC_SEGM, i))) return false;
  static const int lists[] = {SEC_CARR, SEC_NODE, SEC_OPND, SEC_AXAR, SEC_ATTR, SEC_RSLT};
  for (size_t k = 0; k < sizeof lists / sizeof *lists; k++)
    if (r->used[lists[k]] != r->section[lists[k]].count)
      return FAIL(r, "section %s has records that nothing uses", kinds[lists[k]].name);
  return true;
}

/* ---- entry points -------------------------------------------------------------------------------------- */
ZgGraph *zg_read(ZbArena *a, const void *bytes, size_t n, ZbErr *err) {
  Reader r = {.bytes = bytes, .n = n, .err = err, .a = a};
  if (!read_header(&r) || !read_directory(&r)) return NULL;
  r.g = ZB_NEW(a, ZgGraph);
  r.g->arena = a;
  if (!read_strings(&r) || !read_small_tables(&r) || !read_types(&r) || !read_params(&r) ||
      !read_states(&r) || !read_formulas(&r) || !read_regions(&r) || !read_io(&r) || !read_orders(&r) ||
      !read_losses(&r) || !read_segments(&r) || !read_each(&r) || !read_foreign(&r) || !read_config(&r))
    return NULL;
  ZbErr why;
  if (!zg_verify(r.g, &why)) {
    FAIL(&r, "the file is well-formed, but not its graph: %s", why.text);
    return NULL;
  }
  for (int k = 0; k < 2; k++) r.g->hash[k] = u64_at(r.bytes + 24 + 8 * k);
  return r.g;
}

bool zg_is_one(const uint8_t *head, size_t n) { return n >= 4 && !memcmp(head, ZSG_MAGIC, 4); }

ZgGraph *zg_read_file(ZbArena *a, const char *path, ZbErr *err) {
  ZbArena *tmp = zb_arena_new();
  ZgGraph *g = NULL;
  size_t n;
  ZbErr why;
  const char *bytes = zb_read_file(tmp, path, MAX_FILE, &n, err);
  if (bytes) {
    g = zg_read(a, bytes, n, &why);
    if (!g) zb_fail(err, why.help, "%s: %s", zb_show(path), why.text);
  }
  zb_arena_free(tmp);
  return g;
}
