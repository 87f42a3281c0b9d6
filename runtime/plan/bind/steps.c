/* The sizes of a step of generation: how many tokens it has, how many sequences run at once, how long they are,
 * and into how many pages that goes.
 *
 * Example: 64 sequences of 8192 positions in pages of 32 have 256 entries each in their tables, and 16,384 pages; of
 * a window of 4096 a sequence has at most (4096 + 512) / 32 + 1 = 145 pages at once where a step has 512 tokens.
 *
 * Ranks that split samples alone are replicas, each an engine of its own with its share of the sequences: no value of
 * a step has that axis, so all of it is whole along such a dim, and nothing is exchanged over it. Beside a plan that
 * trains they are none: parameters may be cut over such a dim, so all ranks make the same steps. */
#include "runtime/plan/bind/bind.h"
#include "runtime/plan/text.h"

enum { ROWS = 32 }; /* of logits, at least, if a step has so many tokens */

static int64_t ceil_of(int64_t n, int64_t by) { return (n + by - 1) / by; }
static int64_t less(int64_t a, int64_t b) { return a < b ? a : b; }

/* Returns what was asked for, or else what the recipe binds the axis to; reports if it is neither. */
static int64_t size_of(ZpBuild *b, int64_t asked, uint16_t axis, const char *what) {
  const ZpPlan *p = b->p;
  int64_t bound = p->layout.axis_size[axis];
  if (asked || bound) return asked ? asked : bound;
  zl_help(zl_report(b->d, ZL_Z0307, p->asked.recipe->span, "recipe %s does not say %s", p->asked.recipe->name,
                    what),
          "add `bind %s = N`", p->graph->axes[axis].name);
  return 1;
}

/* Returns how many positions the model knows: as many as its axis of time has, or a table that it looks them up in;
 * 0: any number. */
static int64_t known_positions(const ZpPlan *p) {
  const ZgGraph *m = p->stream->model;
  int64_t most = m->axes[p->stream->along.time].size;
  for (uint32_t s = 0; s < m->nsegments; s++)
    for (uint32_t i = 0; i < m->segments[s].nforward; i++) {
      const ZgNode *n = &m->segments[s].nodes[i];
      if (n->op != ZG_OP_POSITION || n->nax < 2 || !p->stream->along.names[n->ax[0]]) continue;
      int64_t room = p->stream->along.needed[s][n->out] ? m->axes[n->ax[1]].size : 0;
      if (room && (!most || room < most)) most = room;
    }
  return most;
}

static int64_t longest(ZpBuild *b) {
  const ZpPlan *p = b->p;
  int64_t most = known_positions(p),
          n = size_of(b, p->generating.length, p->stream->along.time, "how long a sequence is");
  if (!most || n <= most) return n;
  zl_help(zl_report(b->d, ZL_Z0805, p->asked.recipe->span,
                    "sequences of %lld tokens, but model %s has %lld positions", (long long)n,
                    p->graph->model, (long long)most),
          "ask for at most %lld", (long long)most);
  return most;
}

/* ---- replicas ---- */
bool zp_in_step(const ZpPlan *p, uint16_t axis) {
  const ZgStream *along = &p->stream->along;
  return axis != along->batch && (axis >= p->stream->model->naxes || !along->names[axis]);
}

/* Counts, among the axes that a list of a recipe names, samples and those that a step has. */
static void count_axes(const ZpPlan *p, const ZlName *name, uint32_t n, uint32_t *samples, uint32_t *others) {
  for (uint32_t i = 0; i < n; i++) {
    uint32_t axis = zg_axis_find(p->graph, name[i].s);
    if (axis == ZG_NONE) continue;
    *samples += axis == p->stream->along.batch;
    *others += zp_in_step(p, (uint16_t)axis);
  }
}

bool zp_replicates(const ZpBuild *b, uint32_t mesh) {
  const ZpPlan *p = b->p;
  const ZlSplit *split = p->stream ? zp_split(p, mesh) : NULL;
  uint32_t samples = 0, others = 0;
  for (uint32_t i = 0; split && i < split->nprods; i++)
    count_axes(p, split->prods[i].axis, split->prods[i].n, &samples, &others);
  if (split) count_axes(p, split->otherwise.at, split->otherwise.n, &samples, &others);
  return samples && !others;
}

static int64_t replicas_of(const ZpBuild *b) {
  int64_t n = 1;
  if (b->p->asked.eval_of) return n;
  for (uint32_t i = 0; i < b->p->asked.recipe->nmesh; i++)
    if (zp_replicates(b, i)) n *= b->p->asked.recipe->mesh[i].size;
  return n;
}

/* ---- sizes ---- */
/* Returns how many tokens a step has at least: one of each sequence that decodes, and of a model with states a part of
 * a prompt beside the others. */
static int64_t least_step(const ZpStream *s, int64_t sequences) {
  for (uint32_t i = 0; i < s->ncaches; i++)
    if (ZP_IS_STATE(s->caches[i].kind)) return ZP_STATE_CHUNK + sequences - 1;
  return sequences;
}

void zp_bind_steps(ZpBuild *b) {
  ZpPlan *p = b->p;
  const ZpStream *s = p->stream;
  ZpGenerating *g = &p->generating;
  int64_t *size = p->layout.axis_size;
  g->replicas = replicas_of(b);
  g->sequences =
      ceil_of(size_of(b, g->sequences, s->along.batch, "how many sequences run at once"), g->replicas);
  g->length = longest(b);
  g->page = less(g->page ? g->page : 32, g->length);
  if (g->step < least_step(s, g->sequences)) g->step = least_step(s, g->sequences);
  size[s->axis.token] = g->step;
  size[s->axis.row] = less(g->step, g->sequences > ROWS ? g->sequences : ROWS);
  size[s->axis.sequence] = g->sequences;
  size[s->axis.position] = g->length;
  size[s->axis.within] = g->page;
  size[s->axis.entry] = ceil_of(g->length, g->page);
  bool given = p->pages != NULL;
  if (!given) p->pages = ZB_NEWN(p->arena, int64_t, s->ngroups + 1);
  for (uint32_t i = 0; i < s->ngroups; i++) {
    if (!given) p->pages[i] = g->sequences * zp_pages_of(g, s->groups[i].window);
    size[s->groups[i].page] = p->pages[i];
  }
  p->asked.batch = ZG_NONE; /* its place is taken by tokens and sequences */
}
