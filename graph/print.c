/* The text form of a graph, for people, for `zc -d` and `zc dump`, and for golden tests: stable numbering, no
 * addresses, numbers in the shortest form that reads back the same. */
#include "graph/graph.h"

#include <stdlib.h>

static void put_number(ZbText *b, double x) {
  char s[40];
  for (int digits = 6; digits <= 17; digits++) {
    snprintf(s, sizeof s, "%.*g", digits, x);
    if (strtod(s, NULL) == x) break;
  }
  zb_text_add(b, "%s", s);
}

static void put_loc(const ZgGraph *g, ZbText *b, uint32_t loc) {
  const ZgLoc *l = &g->locs[loc];
  if (l->file[0]) zb_text_add(b, "  # %s:%u:%u", l->file, l->line, l->col);
}

/* "%2 = add %0, %1; ...": of so many registers, and of what was computed before. */
static void put_steps(ZbText *b, const ZgUpdate *u, uint32_t first) {
  for (uint32_t i = 0; i < u->n; i++) {
    const ZgUpdateStep *s = &u->steps[i];
    const uint16_t reg[] = {s->a, s->b, s->c};
    zb_text_add(b, "%s%%%u = %s", i ? "; " : "", first + i, zg_op_info[s->op].text);
    for (int k = 0; k < zg_op_info[s->op].min_in; k++) zb_text_add(b, "%s%%%u", k ? ", " : " ", reg[k]);
    if (s->op != ZG_OP_FILL) continue;
    zb_text_add(b, " ");
    put_number(b, s->num);
  }
}

static void put_init(ZbText *b, const ZgParam *p, const double num[2]) {
  static const char *const init[] = {"", "normal", "uniform", "trunc_normal"};
  zb_text_add(b, p->init == ZG_INIT_CONST ? "" : "%s(", init[p->init]);
  put_number(b, num[0]);
  if (p->init == ZG_INIT_UNIFORM || (p->init == ZG_INIT_TRUNC_NORMAL && num[1] != 0)) {
    zb_text_add(b, ", ");
    put_number(b, num[1]);
  }
  if (p->init != ZG_INIT_CONST) zb_text_add(b, ")");
}

static void put_param(const ZgGraph *g, ZbText *b, const ZgParam *p) {
  zb_text_add(b, "%s %s", p->state ? "state" : "param", p->path);
  for (int i = 0; i < p->type.naxes; i++)
    zb_text_add(b, "%s%s", i ? ", " : "[", g->axes[p->type.axis[p->order[i]]].name);
  zb_text_add(b, "%s%s", p->type.naxes ? "]" : "", p->init == ZG_INIT_CONST ? " = " : " ~ ");
  uint32_t n = p->each ? g->segments[p->segment].trip : 1;
  if (p->formula) put_steps(b, p->formula, p->type.naxes + 1u); /* places along axes, and the iteration */
  for (uint32_t i = 0; i < n && !p->formula; i++) {
    if (i) zb_text_add(b, "; ");
    put_init(b, p, zg_init_numbers(p, i));
  }
  for (uint32_t i = 0, n = 0; i < g->ntags; i++)
    if (p->tags >> i & 1) zb_text_add(b, "%s%s", n++ ? ", " : " tag ", g->tags[i]);
  if (p->segment != ZG_NONE) zb_text_add(b, " in segment %u", p->segment);
  if (p->update) zb_text_add(b, " updates "), put_steps(b, p->update, 2); /* the state, its measure */
  put_loc(g, b, p->loc);
  zb_text_add(b, "\n");
}

static void put_tables(const ZgGraph *g, ZbText *b) {
  static const char *const kind[] = {"model", "block", "repeat"};
  zb_text_add(b, "graph %s\n", g->model);
  for (uint32_t i = 0; i < g->naxes; i++) {
    zb_text_add(b, "axis %s", g->axes[i].name);
    if (g->axes[i].size) zb_text_add(b, " = %lld", (long long)g->axes[i].size);
    zb_text_add(b, "\n");
  }
  for (uint32_t i = 0; i < g->ninputs + g->noutputs; i++) {
    const ZgIo *io = i < g->ninputs ? &g->inputs[i] : &g->outputs[i - g->ninputs];
    zb_text_add(b, "%s %s: ", i < g->ninputs ? "input" : "output", io->name);
    zg_io_put(g, b, io);
    put_loc(g, b, io->loc);
    zb_text_add(b, "\n");
  }
  for (uint32_t i = 0; i < g->nlosses; i++) {
    zb_text_add(b, "loss %s", g->losses[i].name);
    put_loc(g, b, g->losses[i].loc);
    zb_text_add(b, "\n");
  }
  for (uint32_t i = 0; i < g->nparams; i++) put_param(g, b, &g->params[i]);
  for (uint32_t i = 0; i < g->nregions; i++) {
    const ZgRegion *r = &g->regions[i];
    zb_text_add(b, "region %u %s", i, kind[r->kind]);
    if (r->label[0]) zb_text_add(b, " %s", r->label);
    if (r->block[0]) zb_text_add(b, ": %s", r->block);
    if (r->parent != ZG_NONE) zb_text_add(b, " in %u", r->parent);
    zb_text_add(b, "\n");
  }
}

static void put_foreign(const ZgGraph *g, ZbText *b) {
  for (uint32_t i = 0; i < g->nforeign; i++) {
    const ZgForeign *f = &g->foreign[i];
    const ZgParam *p = &g->params[f->param];
    zb_text_add(b, "weights %s %s[", f->map, p->path);
    for (int k = 0; k < p->type.naxes; k++) {
      const char *axis = g->axes[p->type.axis[p->order[k]]].name;
      if (k == f->fixed) zb_text_add(b, "%s%s = %lld", k ? ", " : "", axis, (long long)f->at);
      else zb_text_add(b, "%s%s: %lld", k ? ", " : "", axis, (long long)f->stride[k]);
    }
    zb_text_add(b, "] = \"%s\"[", f->name);
    for (int k = 0; k < f->ndims; k++) zb_text_add(b, "%s%lld", k ? ", " : "", (long long)f->dims[k]);
    zb_text_add(b, "]");
    if (f->first) zb_text_add(b, " from %lld", (long long)f->first);
    zb_text_add(b, "\n");
  }
  for (uint32_t i = 0; i < g->nignored; i++)
    zb_text_add(b, g->ignored[i].of ? "weights %s ignore \"%s\" as \"%s\"\n" : "weights %s ignore \"%s\"\n",
                g->ignored[i].map, g->ignored[i].pattern, g->ignored[i].of);
  for (uint32_t i = 0; i < g->nconfig; i++)
    zb_text_add(b, "weights %s config %s = %s\n", g->config[i].map, g->config[i].key, g->config[i].value);
}

/* The attributes of a node, parameters and the like by name. */
static void put_attrs(const ZgGraph *g, ZbText *b, const ZgNode *n) {
  const ZgOpInfo *a = &zg_op_info[n->op];
  int64_t k = n->opt[0];
  switch (n->op) {
  case ZG_OP_PARAM:
  case ZG_OP_PARAM_GRAD:
  case ZG_OP_MEASURE: zb_text_add(b, " %s", g->params[k].path); return;
  case ZG_OP_INPUT: zb_text_add(b, " %s", g->inputs[k].name); return;
  case ZG_OP_OUTPUT: zb_text_add(b, " %s", g->outputs[k].name); return;
  case ZG_OP_SEED:
    zb_text_add(b, k ? " aux" : " loss");
    if (g->nlosses && !k) zb_text_add(b, " %s", g->losses[n->opt[1]].name);
    return;
  case ZG_OP_LOSS_NUM:
  case ZG_OP_LOSS_DEN:
    if (g->nlosses) zb_text_add(b, " %s", g->losses[k].name);
    return;
  case ZG_OP_FILL:
    zb_text_add(b, " ");
    put_number(b, n->num[0]);
    return;
  }
  if (a->num) {
    zb_text_add(b, " %s=", a->num);
    put_number(b, n->num[0]);
  }
  for (int i = 0; i < 2; i++)
    if (a->opt[i] && (n->opt[i] || !(a->late >> i & 1)))
      zb_text_add(b, " %s=%lld", a->opt[i], (long long)n->opt[i]);
  if (a->num1 && n->num[1] != 0) {
    zb_text_add(b, " %s=", a->num1);
    put_number(b, n->num[1]);
  }
}

static void put_node(const ZgGraph *g, const ZgSegment *s, const ZgNode *n, ZbText *b) {
  zb_text_add(b, "    ");
  for (int i = 0; i < n->nout; i++) zb_text_add(b, "%s%%%u", i ? ", " : "", n->out + (uint32_t)i);
  zb_text_add(b, "%s%s", n->nout ? " = " : "", zg_op_info[n->op].text);
  for (int i = 0; i < n->nax; i++) zb_text_add(b, "%s%s", i ? ", " : "[", g->axes[n->ax[i]].name);
  if (n->nax) zb_text_add(b, "]");
  for (int i = 0; i < n->nin; i++) zb_text_add(b, "%s%%%u", i ? ", " : " ", n->in[i]);
  put_attrs(g, b, n);
  for (int i = 0; i < n->nout; i++) {
    zb_text_add(b, i ? ", " : " : ");
    zg_type_put(g, b, &s->values[n->out + (uint32_t)i].type);
  }
  put_loc(g, b, n->loc);
  if (n->region) zb_text_add(b, "%s region %u", g->locs[n->loc].file[0] ? "" : "  #", n->region);
  zb_text_add(b, "\n");
}

static void put_carried(const ZgGraph *g, ZbText *b, const char *what, const ZgType *t, uint32_t n) {
  if (n == 0) return;
  zb_text_add(b, "  %s", what);
  for (uint32_t k = 0; k < n; k++) {
    zb_text_add(b, "%s", k ? "; " : " ");
    zg_type_put(g, b, &t[k]);
  }
  zb_text_add(b, "\n");
}

static void put_segment(const ZgGraph *g, uint32_t i, ZbText *b) {
  const ZgSegment *s = &g->segments[i];
  zb_text_add(b, "segment %u", i);
  if (s->repeat) zb_text_add(b, " repeat %u", s->trip);
  if (s->label[0]) zb_text_add(b, " as %s", s->label);
  if (s->region) zb_text_add(b, " region %u", s->region);
  zb_text_add(b, "\n");
  put_carried(g, b, "carries in", s->carry_in, s->ncarry_in);
  put_carried(g, b, "carries out", s->carry_out, s->ncarry_out);
  zb_text_add(b, "  forward\n");
  for (uint32_t k = 0; k < s->nnodes; k++) {
    if (k == s->nforward) zb_text_add(b, "  backward\n");
    put_node(g, s, &s->nodes[k], b);
  }
}

void zg_print(const ZgGraph *g, uint32_t segment, ZbText *out) {
  if (segment == ZG_NONE) put_tables(g, out);
  if (segment == ZG_NONE) put_foreign(g, out);
  for (uint32_t i = 0; i < g->nsegments; i++)
    if (segment == ZG_NONE || segment == i) put_segment(g, i, out);
}
