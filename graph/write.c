/* A graph as the bytes of a .zsg file (FORMAT.md). Deterministic: strings, types and records are numbered in
 * the order in which the graph has them. */
#include "graph/graph.h"
#include "graph/file.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* Byte strings that are stored once and known by number: the names and the types. */
typedef struct {
  uint32_t *table; /* number + 1, by hash; 0 is empty */
  uint32_t size, n;
  uint32_t *end; /* by number, in `bytes` */
  ZbText bytes;
} Pool;

typedef struct {
  const ZgGraph *g;
  bool bare;
  ZbArena *tmp;
  Pool strings, types;
  ZbText section[ZSG_ALL_KINDS + 1];
} Writer;

static uint32_t pool_start(const Pool *p, uint32_t i) { return i ? p->end[i - 1] : 0; }

static uint32_t *pool_place(const Pool *p, const void *bytes, size_t n) {
  for (uint64_t h = XXH3_64bits(bytes, n);; h++) {
    uint32_t *at = &p->table[h & (p->size - 1)];
    if (!*at) return at;
    uint32_t i = *at - 1, start = pool_start(p, i);
    if (p->end[i] - start == n && !memcmp(p->bytes.s + start, bytes, n)) return at;
  }
}

static void pool_grow(ZbArena *a, Pool *p) {
  uint32_t *old = p->table, size = p->size;
  p->size = size ? 2 * size : 64;
  p->table = ZB_NEWN(a, uint32_t, p->size);
  for (uint32_t k = 0; k < size; k++) {
    if (!old[k]) continue;
    uint32_t start = pool_start(p, old[k] - 1);
    *pool_place(p, p->bytes.s + start, p->end[old[k] - 1] - start) = old[k];
  }
}

static uint32_t pool_number(ZbArena *a, Pool *p, const void *bytes, size_t n) {
  if (2 * p->n >= p->size) pool_grow(a, p);
  uint32_t *at = pool_place(p, bytes, n);
  if (!*at) {
    zb_text_put(&p->bytes, bytes, n);
    ZB_PUSH(a, p->end, p->n, (uint32_t)p->bytes.len);
    *at = p->n;
  }
  return *at - 1;
}

static uint32_t string(Writer *w, const char *s) { return pool_number(w->tmp, &w->strings, s, strlen(s)); }

static uint32_t type(Writer *w, const ZgType *t) {
  uint8_t r[20] = {t->elem, t->naxes};
  zsg_set(r + 2, 2, t->of);
  for (int i = 0; i < t->naxes; i++) zsg_set(r + 4 + 2 * i, 2, t->axis[i]);
  return pool_number(w->tmp, &w->types, r, sizeof r);
}

static void put_number(Writer *w, int kind, int bytes, uint64_t v) {
  uint8_t b[8];
  zsg_set(b, bytes, v);
  zb_text_put(&w->section[kind], (const char *)b, (size_t)bytes);
}
static void put32(Writer *w, int kind, uint64_t v) { put_number(w, kind, 4, v); }
static uint32_t place(const Writer *w, uint32_t loc) { return w->bare ? 0 : loc; }
static void put_f64(Writer *w, int kind, double x) {
  uint64_t v;
  memcpy(&v, &x, sizeof v);
  put_number(w, kind, 8, v);
}

/* ---- tables -------------------------------------------------------------------------------------------- */
static void put_params(Writer *w) {
  const ZgGraph *g = w->g;
  for (uint32_t i = 0; i < g->nparams; i++) {
    const ZgParam *p = &g->params[i];
    const uint32_t words[] = {string(w, p->path), type(w, &p->type), p->tags,
                              p->segment,         place(w, p->loc),  p->init};
    for (int k = 0; k < 6; k++) put32(w, SEC_PARM, words[k]);
    for (int k = 0; k < ZG_MAX_AXES; k++) put_number(w, SEC_PARM, 1, k < p->type.naxes ? p->order[k] : 0);
    for (int k = 0; k < 2; k++) put_f64(w, SEC_PARM, p->num[k]);
  }
}

/* Of those whose initial values differ from iteration to iteration. */
static void put_each(Writer *w) {
  const ZgGraph *g = w->g;
  for (uint32_t i = 0; i < g->nparams; i++) {
    const ZgParam *p = &g->params[i];
    for (uint32_t k = 0; p->each && k < g->segments[p->segment].trip; k++) {
      put32(w, SEC_EACH, i);
      put32(w, SEC_EACH, k);
      for (int j = 0; j < 2; j++) put_f64(w, SEC_EACH, p->each[k][j]);
    }
  }
}

static void put_steps(Writer *w, const ZgUpdate *u) {
  for (uint32_t k = 0; k < u->n; k++) {
    const uint16_t words[] = {u->steps[k].op, u->steps[k].a, u->steps[k].b, u->steps[k].c};
    for (int j = 0; j < 4; j++) put_number(w, SEC_STEP, 2, words[j]);
    put_f64(w, SEC_STEP, u->steps[k].num);
  }
}

static void put_states(Writer *w) {
  const ZgGraph *g = w->g;
  for (uint32_t i = 0; i < g->nparams; i++) {
    const ZgUpdate *u = g->params[i].update;
    if (!g->params[i].state) continue;
    put32(w, SEC_STAT, i);
    put32(w, SEC_STAT, u ? u->n : 0);
    if (u) put_steps(w, u);
  }
}

static void put_formulas(Writer *w) {
  const ZgGraph *g = w->g;
  for (uint32_t i = 0; i < g->nparams; i++) {
    if (!g->params[i].formula) continue;
    put32(w, SEC_FORM, i);
    put32(w, SEC_FORM, g->params[i].formula->n);
    put_steps(w, g->params[i].formula);
  }
}

static void put_io(Writer *w, uint32_t kind, const ZgIo *io, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    const uint32_t words[] = {kind, string(w, io[i].name), type(w, &io[i].type), place(w, io[i].loc)};
    for (int k = 0; k < 4; k++) put32(w, SEC_INOU, words[k]);
  }
}

/* Of those whose axes are not written in the order of their types. */
static void put_orders(Writer *w) {
  const ZgGraph *g = w->g;
  for (uint32_t i = 0; i < g->ninputs + g->noutputs; i++) {
    const ZgIo *io = i < g->ninputs ? &g->inputs[i] : &g->outputs[i - g->ninputs];
    if (!io->order) continue;
    put32(w, SEC_ORDR, i);
    for (int k = 0; k < ZG_MAX_AXES; k++) put_number(w, SEC_ORDR, 1, k < io->type.naxes ? io->order[k] : 0);
  }
}

static void put_foreign(Writer *w) {
  const ZgGraph *g = w->g;
  for (uint32_t i = 0; i < g->nforeign; i++) {
    const ZgForeign *f = &g->foreign[i];
    const uint32_t words[] = {string(w, f->map), f->param, string(w, f->name)};
    for (int k = 0; k < 3; k++) put32(w, SEC_FORN, words[k]);
    put_number(w, SEC_FORN, 1, f->ndims);
    put_number(w, SEC_FORN, 1, (uint8_t)f->fixed);
    put_number(w, SEC_FORN, 2, 0);
    put_number(w, SEC_FORN, 8, (uint64_t)f->at);
    put_number(w, SEC_FORN, 8, (uint64_t)f->first);
    for (int k = 0; k < ZG_MAX_AXES; k++) put_number(w, SEC_FORN, 8, (uint64_t)f->dims[k]);
    for (int k = 0; k < ZG_MAX_AXES; k++) put_number(w, SEC_FORN, 8, (uint64_t)f->stride[k]);
  }
  for (uint32_t i = 0; i < g->nconfig; i++) {
    const uint32_t words[] = {string(w, g->config[i].map), string(w, g->config[i].key),
                              string(w, g->config[i].value)};
    for (int k = 0; k < 3; k++) put32(w, SEC_CONF, words[k]);
  }
  for (uint32_t i = 0; i < g->nignored; i++) {
    put32(w, SEC_IGNO, string(w, g->ignored[i].map));
    put32(w, SEC_IGNO, string(w, g->ignored[i].pattern));
    if (!g->ignored[i].of) continue;
    put32(w, SEC_COPY, i);
    put32(w, SEC_COPY, string(w, g->ignored[i].of));
  }
}

static void put_tables(Writer *w) {
  const ZgGraph *g = w->g;
  put32(w, SEC_META, string(w, g->model));
  put32(w, SEC_META, 0);
  for (uint32_t i = 0; i < g->nlocs && !w->bare; i++) {
    put32(w, SEC_LOCS, string(w, g->locs[i].file));
    put32(w, SEC_LOCS, g->locs[i].line);
    put32(w, SEC_LOCS, g->locs[i].col);
  }
  for (uint32_t i = 0; i < g->naxes; i++) {
    put32(w, SEC_AXIS, string(w, g->axes[i].name));
    put32(w, SEC_AXIS, 0);
    put_number(w, SEC_AXIS, 8, (uint64_t)g->axes[i].size);
  }
  for (uint32_t i = 0; i < g->ntags; i++) put32(w, SEC_TAGS, string(w, g->tags[i]));
  put_params(w);
  put_each(w);
  put_states(w);
  put_formulas(w);
  for (uint32_t i = 0; i < g->nregions; i++) {
    const ZgRegion *r = &g->regions[i];
    const uint32_t words[] = {r->kind, r->parent, string(w, r->label), string(w, r->block)};
    for (int k = 0; k < 4; k++) put32(w, SEC_REGN, words[k]);
  }
  put_io(w, 0, g->inputs, g->ninputs);
  put_io(w, 1, g->outputs, g->noutputs);
  put_orders(w);
  for (uint32_t i = 0; i < g->nlosses; i++) {
    put32(w, SEC_LOSS, string(w, g->losses[i].name));
    put32(w, SEC_LOSS, place(w, g->losses[i].loc));
  }
  if (!w->bare) put_foreign(w);
}

/* ---- segments ------------------------------------------------------------------------------------------ */
static void put_node(Writer *w, const ZgSegment *s, const ZgNode *n) {
  const ZgOpInfo *a = &zg_op_info[n->op];
  unsigned mask = a->num ? ZSG_HAS_NUM : 0;
  for (int k = 0; k < 2; k++)
    if (a->opt[k] && (n->opt[k] || !(a->late >> k & 1))) mask |= ZSG_HAS_OPT0 << k;
  if (a->num1 && n->num[1] != 0) mask |= ZSG_HAS_NUM1;
  put_number(w, SEC_NODE, 2, n->op);
  put_number(w, SEC_NODE, 2, ZSG_OP_VERSION);
  const unsigned bytes[] = {n->nin, n->nout, n->nax, mask};
  for (int k = 0; k < 4; k++) put_number(w, SEC_NODE, 1, bytes[k]);
  put32(w, SEC_NODE, n->region);
  put32(w, SEC_NODE, place(w, n->loc));
  for (int k = 0; k < n->nin; k++) put32(w, SEC_OPND, n->in[k]);
  for (int k = 0; k < n->nax; k++) put_number(w, SEC_AXAR, 2, n->ax[k]);
  if (a->num) put_f64(w, SEC_ATTR, n->num[0]);
  for (int k = 0; k < 2; k++)
    if (mask & ZSG_HAS_OPT0 << k) put_number(w, SEC_ATTR, 8, (uint64_t)n->opt[k]);
  if (mask & ZSG_HAS_NUM1) put_f64(w, SEC_ATTR, n->num[1]);
  for (int k = 0; k < n->nout; k++) put32(w, SEC_RSLT, type(w, &s->values[n->out + (uint32_t)k].type));
}

static void put_segment(Writer *w, const ZgSegment *s) {
  uint32_t flags = (s->repeat ? ZSG_REPEAT : 0) | (s->backward ? ZSG_BACKWARD : 0);
  const uint32_t words[] = {string(w, s->label), s->region,     s->trip,   flags,
                            s->ncarry_in,        s->ncarry_out, s->nnodes, s->nforward};
  for (int k = 0; k < 8; k++) put32(w, SEC_SEGM, words[k]);
  for (uint32_t k = 0; k < s->ncarry_in; k++) put32(w, SEC_CARR, type(w, &s->carry_in[k]));
  for (uint32_t k = 0; k < s->ncarry_out; k++) put32(w, SEC_CARR, type(w, &s->carry_out[k]));
  for (uint32_t k = 0; k < s->nnodes; k++) put_node(w, s, &s->nodes[k]);
}

/* ---- the file ------------------------------------------------------------------------------------------ */
static void put_pools(Writer *w) {
  for (uint32_t i = 0; i < w->strings.n; i++) put32(w, SEC_STRE, w->strings.end[i]);
  if (w->strings.bytes.len) zb_text_put(&w->section[SEC_STRB], w->strings.bytes.s, w->strings.bytes.len);
  if (w->types.bytes.len) zb_text_put(&w->section[SEC_TYPE], w->types.bytes.s, w->types.bytes.len);
}

static void align(ZbText *out, size_t start) {
  while ((out->len - start) % 8) zb_text_put(out, "", 1);
}

static const struct {
  const char *name;
  uint64_t record, most;
} kinds[ZSG_ALL_KINDS + 1] = {
#define X(kind, name, record, most) [kind] = {#name, record, most},
    ZG_SECTIONS(X)
#undef X
};

/* What zg_read would say. */
static bool fits(const Writer *w, ZbErr *err) {
  for (int k = 1; k <= ZSG_ALL_KINDS; k++) {
    uint64_t count = w->section[k].len / kinds[k].record;
    if (count > kinds[k].most)
      return zb_fail(err,
                     "make the model smaller: what is alike belongs into a `repeat`, which is stored once",
                     "the stage graph is too large: %llu records in section %s, at most %llu are possible",
                     (unsigned long long)count, kinds[k].name, (unsigned long long)kinds[k].most);
  }
  return true;
}

static bool is_there(const Writer *w, int kind) { return kind <= ZSG_KINDS || w->section[kind].len; }

static void assemble(Writer *w, ZbText *out) {
  uint32_t n = 0;
  for (int k = 1; k <= ZSG_ALL_KINDS; k++) n += is_there(w, k);
  size_t start = out->len, offset = ZSG_HEADER + n * ZSG_ENTRY;
  uint8_t header[ZSG_HEADER + ZSG_ALL_KINDS * ZSG_ENTRY] = ZSG_MAGIC, *e = header + ZSG_HEADER;
  zsg_set(header + 4, 2, ZSG_MAJOR);
  int minor = w->section[SEC_FORM].len   ? ZSG_MINOR
              : w->section[SEC_EACH].len ? 5
              : w->section[SEC_ORDR].len ? 4
              : w->section[SEC_STAT].len ? 3
              : w->section[SEC_LOSS].len ? 2
                                         : n > ZSG_KINDS;
  zsg_set(header + 6, 2, (uint64_t)minor);
  zsg_set(header + 12, 4, n);
  for (int k = 1; k <= ZSG_ALL_KINDS; k++) {
    if (!is_there(w, k)) continue;
    size_t bytes = w->section[k].len;
    zsg_set(e, 4, (uint64_t)k);
    zsg_set(e + 4, 4, k <= ZSG_KINDS || k >= SEC_STAT ? ZSG_REQUIRED : 0);
    zsg_set(e + 8, 8, offset);
    zsg_set(e + 16, 8, bytes);
    zsg_set(e + 24, 8, bytes / kinds[k].record);
    offset = zb_round_up(offset + bytes, 8);
    e += ZSG_ENTRY;
  }
  zsg_set(header + 16, 8, offset);
  zb_text_put(out, (const char *)header, (size_t)(e - header));
  for (int k = 1; k <= ZSG_ALL_KINDS; k++) {
    if (w->section[k].len) zb_text_put(out, w->section[k].s, w->section[k].len);
    align(out, start);
  }
  zg_seal(out->s + start, out->len - start);
}

void zg_seal(void *bytes, size_t n) {
  uint8_t *p = bytes;
  if (n < ZSG_HEADER) return;
  XXH128_hash_t h = XXH3_128bits(p + ZSG_HEADER, n - ZSG_HEADER);
  zsg_set(p + 24, 8, h.low64);
  zsg_set(p + 32, 8, h.high64);
  zsg_set(p + 56, 8, XXH3_64bits(p, 56));
}

/* Adds the file's bytes to `out`; bare: without places in the source and without what only exchanges weights with
 * other programs. */
static bool write_all(const ZgGraph *g, bool bare, ZbText *out, ZbErr *err) {
  Writer w = {.g = g, .bare = bare, .tmp = zb_arena_new()};
  put_tables(&w);
  for (uint32_t i = 0; i < g->nsegments; i++) put_segment(&w, &g->segments[i]);
  put_pools(&w);
  bool ok = fits(&w, err);
  if (ok) assemble(&w, out);
  for (int k = 0; k <= ZSG_ALL_KINDS; k++) zb_text_free(&w.section[k]);
  zb_text_free(&w.strings.bytes);
  zb_text_free(&w.types.bytes);
  zb_arena_free(w.tmp);
  return ok;
}

bool zg_write(ZgGraph *g, ZbText *out, ZbErr *err) {
  size_t start = out->len;
  bool ok = write_all(g, false, out, err);
  for (int k = 0; k < 2 && ok; k++) g->hash[k] = zsg_get((uint8_t *)out->s + start + 24 + 8 * k, 8);
  return ok;
}

const char *zg_hash_computed(ZbArena *a, const ZgGraph *g) {
  ZbText t = {0};
  if (!write_all(g, true, &t, NULL)) ZB_BUG("a graph that was read does not fit its own format");
  XXH128_hash_t h = XXH3_128bits(t.s, t.len);
  zb_text_free(&t);
  return zb_printf(a, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
}
