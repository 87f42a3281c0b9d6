/* Steps against whole sequences: six sequences in three slots, prompts in chunks of random sizes, pages
 * that run out, sequences that are preempted and made again. Logits must be those of the model's forward
 * of each whole sequence, by reference kernels in f64. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "graph/ragged.h"
#include "kernels/residue.h"
#include "runtime/plan/stream/stream.h"
#include "tests/unit/breadth.h"
#include "tests/unit/compiler/grad/interp.h"
#include "tests/unit/plan/stream/models.h"

enum {
  SEQUENCES = 6,
  SLOTS = 3,
  TOKENS = 9,
  WITHIN = 4,
  LONGEST = 24,
  ENTRIES = LONGEST / WITHIN,
  PAGES = 13,
  OTHER = 8
};

/* Sums in another order, over some hundred terms: the same numbers but for rounding. */
#define TOLERANCE 1e-12

/* What a test plants, to see that it is seen. */
typedef enum { NO_FAULT, POSITION_TOO_FAR, OLD_STATE, PAGE_TOO_EARLY, LOST_TOKEN } Fault;

typedef struct {
  Interp *whole; /* its inputs, and its logits */
  int64_t length, prompt, known, done;
  int slot; /* -1: it waits */
  int64_t logits;
} Sequence;

typedef struct {
  bool used[PAGES];
  int32_t table[SLOTS][ENTRIES];
  bool has[SLOTS][ENTRIES];
} Pool;

typedef struct {
  ZbArena *a;
  ZpStream s;
  Interp *step;
  Sequence of[SEQUENCES];
  int at[SLOTS];                 /* the sequence of a slot, or -1 */
  int order[SEQUENCES], running; /* in the order in which they were admitted */
  Pool *pools;
  Fault fault;
  const InterpNumbers *numbers; /* NULL: doubles */
  uint64_t seed, draws;
  double worst;
  int preempted;
} Server;

static int64_t draw(Server *v, int64_t n) {
  return (int64_t)(zb_random_unit(v->seed, 1, v->draws++) * (double)n);
}

/* ---- numbers --------------------------------------------------------------------------------------------- */
static void write_residue(void *to, double x) { *(ZkResidue *)to = zk_residue_of(x); }
static double read_residue(const void *from) { return (double)((const ZkResidue *)from)->r; }
static const InterpNumbers residues = {zk_residue_run, write_residue, read_residue};

/* ---- elements of named axes ---------------------------------------------------------------------------- */
/* Positions by axis of element e of a type, and the element there. */
static void positions(const Interp *m, const ZgType *t, int64_t e, int64_t *at) {
  for (int i = t->naxes; i-- > 0;) at[t->axis[i]] = e % m->size[t->axis[i]], e /= m->size[t->axis[i]];
}
static int64_t element(const Interp *m, const ZgType *t, const int64_t *at) {
  int64_t e = 0;
  for (int i = 0; i < t->naxes; i++) e = e * m->size[t->axis[i]] + at[t->axis[i]];
  return e;
}

/* ---- sequences ----------------------------------------------------------------------------------------- */
static uint32_t input_of(const ZgGraph *g, const char *name) {
  for (uint32_t i = 0; i < g->ninputs; i++)
    if (!strcmp(g->inputs[i].name, name)) return i;
  cr_assert_fail("no input %s", name);
  return 0;
}

/* A sequence with all that it needs, and the logits of all of it. */
static void new_sequence(Server *v, const ZgGraph *g, int i, double **params) {
  const ZgStream *st = &v->s.along;
  Sequence *q = &v->of[i];
  Interp *m = q->whole = interp_empty(g, v->a);
  const uint16_t *experts = zg_slot_axes(g, v->a, NULL);
  int64_t length = 3 + draw(v, OTHER - 2); /* along other axes of data */
  q->length = 5 + draw(v, LONGEST - 5);
  if (g->axes[st->time].size) q->length = g->axes[st->time].size;
  for (uint32_t x = 0; x < g->naxes; x++) {
    if (st->names[x]) m->size[x] = q->length;
    else if (experts[x] != ZG_NO_AXIS) m->size[x] = q->length * 8;
    else if (!m->size[x]) m->size[x] = x == st->batch ? 1 : length;
  }
  if (params) m->param = params;
  else interp_draw_params(m, 5, 0, 0.3);
  interp_draw_inputs(m, 100 + (uint64_t)i);
  for (uint32_t k = 0; k < g->ninputs; k++) { /* documents of a few tokens, and tokens of none */
    const ZgType *t = &g->inputs[k].type;
    for (int64_t e = 0; t->elem == ZG_I32 && e < interp_elements(m, t); e++)
      m->input[k][e] = e % 7 == 3 ? -1 : (double)(e / 5);
  }
  m->means = true;
  m->numbers = v->numbers;
  interp_run(m, false);
  q->prompt = q->known = 1 + draw(v, q->length - 1);
  q->done = 0;
  q->slot = -1;
}

/* ---- slots and pages ----------------------------------------------------------------------------------- */
static void poison(Server *v, uint32_t group, int64_t page) {
  for (uint32_t c = 0; c < v->s.ncaches; c++) {
    const ZpCache *of = &v->s.caches[c];
    bool ids = of->type.elem == ZG_I32 || of->type.elem == ZG_INDEX;
    for (uint32_t it = 0; it < v->s.step->segments[of->segment].trip; it++)
      for (int64_t e = 0;
           of->kind == ZP_CACHE_PAGES && of->group == group && e < interp_elements(v->step, &of->type); e++) {
        int64_t at[ZG_MAX_GRAPH_AXES];
        positions(v->step, &of->type, e, at);
        if (at[v->s.groups[group].page] != page) continue;
        if (ids) ((int32_t *)v->step->kept[c][it])[e] = 12345;
        else ((double *)v->step->kept[c][it])[e] = NAN;
      }
  }
}

static void give_back(Server *v, uint32_t group, int slot, int entry) {
  Pool *p = &v->pools[group];
  if (!p->has[slot][entry]) return;
  p->has[slot][entry] = false;
  p->used[p->table[slot][entry]] = false;
  poison(v, group, p->table[slot][entry]);
}

static void leave(Server *v, int i) {
  int slot = v->of[i].slot, n = 0;
  for (uint32_t g = 0; g < v->s.ngroups; g++)
    for (int e = 0; e < ENTRIES; e++) give_back(v, g, slot, e);
  v->at[slot] = v->of[i].slot = -1;
  for (int k = 0; k < v->running; k++)
    if (v->order[k] != i) v->order[n++] = v->order[k];
  v->running = n;
}

static void preempt(Server *v, int i) {
  Sequence *q = &v->of[i];
  leave(v, i);
  q->known = q->done > q->known ? q->done : q->known;
  q->done = 0;
  v->preempted++;
}

/* Finds pages for n more tokens of a sequence; those behind a window are given back. */
static bool find_pages(Server *v, const Sequence *q, int64_t n) {
  for (uint32_t g = 0; g < v->s.ngroups; g++) {
    Pool *p = &v->pools[g];
    int64_t window = v->s.groups[g].window;
    if (window && v->fault == PAGE_TOO_EARLY) window = window > 3 ? window - 3 : 1;
    for (int e = 0; window && e < ENTRIES; e++)
      if ((e + 1) * WITHIN <= q->done - window + 1) give_back(v, g, q->slot, e);
    for (int64_t e = q->done / WITHIN; e <= (q->done + n - 1) / WITHIN; e++) {
      if (p->has[q->slot][e]) continue;
      int page = 0;
      while (page < PAGES && p->used[page]) page++;
      if (page == PAGES) return false;
      p->used[page] = p->has[q->slot][e] = true;
      p->table[q->slot][e] = page;
    }
  }
  return true;
}

/* ---- a step -------------------------------------------------------------------------------------------- */
typedef struct {
  int of[TOKENS]; /* by token: its sequence; -1: nobody's, as those are that fill a step up */
  int64_t position[TOKENS], tokens, rows, row[TOKENS];
} Step;

static void tell(Server *v, const Step *p) {
  Interp *m = v->step;
  const ZgGraph *g = m->g;
  for (uint32_t i = 0; i < g->ninputs; i++) {
    const ZgType *t = &g->inputs[i].type;
    m->input[i] = ZB_NEWN(v->a, double, interp_elements(m, t) + 1);
    for (int64_t e = 0; e < interp_elements(m, t); e++) {
      int64_t at[ZG_MAX_GRAPH_AXES] = {0};
      positions(m, t, e, at);
      int64_t token = at[v->s.axis.token];
      double *x = &m->input[i][e];
      if (zg_type_has(t, v->s.axis.token) && p->of[token] < 0) {
        *x = i == v->s.sequence ? -1 : 0;
        continue;
      }
      if (i == v->s.position) {
        *x = (double)p->position[token];
        if (v->fault == POSITION_TOO_FAR && *x >= 4 && *x < LONGEST - 1) *x += 1;
        if (v->fault == OLD_STATE && *x == 0) *x = 1;
        continue;
      }
      if (i == v->s.sequence) *x = v->of[p->of[token]].slot;
      else if (i == v->s.row) *x = (double)p->row[e];
      else if (!strncmp(g->inputs[i].name, "step.", 5)) {
        int of = v->at[at[v->s.axis.sequence]];
        if (!strncmp(g->inputs[i].name, "step.length.", 12) && of >= 0)
          *x = (double)v->of[of].whole->size[zg_axis_find(v->s.model, g->inputs[i].name + 12)];
        for (uint32_t k = 0; k < v->s.ngroups; k++)
          if (v->s.groups[k].input == i) *x = v->pools[k].table[at[v->s.axis.sequence]][at[v->s.axis.entry]];
      } else {
        const Interp *whole = v->of[p->of[token]].whole;
        uint32_t from = input_of(whole->g, g->inputs[i].name);
        const ZgType *tw = &whole->g->inputs[from].type;
        for (int k = 0; k < tw->naxes; k++)
          if (v->s.along.names[tw->axis[k]]) at[tw->axis[k]] = p->position[token];
        at[v->s.along.batch] = 0;
        *x = whole->input[from][element(whole, tw, at)];
      }
    }
  }
}

static void compare(Server *v, const Step *p) {
  const ZgType *t = &v->s.step->outputs[0].type;
  for (int64_t r = 0; r < p->rows; r++) {
    Sequence *q = &v->of[p->of[p->row[r]]];
    const Interp *whole = q->whole;
    const ZgType *tw = &whole->g->outputs[v->s.along.output].type;
    const double *logits = whole->output[v->s.along.output];
    double largest = 0, off = 0;
    for (int64_t e = 0; e < interp_elements(whole, tw); e++) largest = fmax(largest, fabs(logits[e]));
    for (int64_t e = 0; e < interp_elements(v->step, t); e++) {
      int64_t at[ZG_MAX_GRAPH_AXES];
      positions(v->step, t, e, at);
      if (at[v->s.axis.row] != r) continue;
      at[v->s.along.batch] = 0;
      at[v->s.along.time] = p->position[p->row[r]];
      double d = fabs(v->step->output[0][e] - logits[element(whole, tw, at)]) / largest;
      if (!(d <= off)) off = d;
    }
    if (!(off <= v->worst)) v->worst = off;
    q->logits++;
  }
}

/* A copy of what is kept of last tokens. */
static void forget(Server *v, double **copy, bool back) {
  for (uint32_t c = 0; c < v->s.ncaches; c++) {
    const ZpCache *of = &v->s.caches[c];
    if (of->kind != ZP_CACHE_RECENT) continue;
    size_t n = (size_t)interp_elements(v->step, &of->type) * sizeof(double);
    if (back) memcpy(v->step->kept[c][0], copy[c], n);
    else memcpy(copy[c] = zb_alloc(v->a, n), v->step->kept[c][0], n);
  }
}

static void play(Server *v, Step *p) {
  Interp *m = v->step;
  const uint16_t *experts = zg_slot_axes(m->g, v->a, NULL);
  double **copy = ZB_NEWN(v->a, double *, v->s.ncaches + 1);
  m->size[v->s.axis.token] = p->tokens;
  m->size[v->s.axis.row] = p->rows;
  for (uint32_t x = 0; x < m->g->naxes; x++)
    if (experts[x] != ZG_NO_AXIS) m->size[x] = p->tokens * 8;
  tell(v, p);
  m->output[0] = ZB_NEWN(v->a, double, interp_elements(m, &m->g->outputs[0].type) + 1);
  if (v->fault == LOST_TOKEN) forget(v, copy, false);
  interp_run(m, false);
  if (v->fault == LOST_TOKEN) forget(v, copy, true);
  compare(v, p);
}

/* ---- the loop ------------------------------------------------------------------------------------------ */
/* Makes what is the sequence's own, and keeps it at its slot. */
static void make_own(Server *v, const Sequence *q) {
  if (!v->s.admit) return;
  Interp *m = interp_empty(v->s.admit, v->a);
  m->param = q->whole->param, m->input = q->whole->input, m->numbers = v->numbers;
  memcpy(m->size, q->whole->size, q->whole->g->naxes * sizeof *m->size);
  m->kept = ZB_NEWN(v->a, void **, v->s.ncaches);
  for (uint32_t c = 0; c < v->s.ncaches; c++)
    m->kept[c] = ZB_NEWN(v->a, void *, v->s.step->segments[v->s.caches[c].segment].trip);
  interp_run(m, false);
  for (uint32_t c = 0; c < v->s.ncaches; c++) {
    const ZpCache *of = &v->s.caches[c];
    if (of->kind != ZP_CACHE_OWN) continue;
    const ZgType *t = &v->s.model->segments[of->segment].values[of->value].type;
    bool ids = t->elem == ZG_I32 || t->elem == ZG_INDEX;
    for (uint32_t it = 0; it < v->s.step->segments[of->segment].trip; it++)
      for (int64_t e = 0; e < interp_elements(m, t); e++) {
        int64_t at[ZG_MAX_GRAPH_AXES];
        positions(m, t, e, at);
        at[v->s.axis.sequence] = q->slot;
        int64_t to = element(v->step, &of->type, at);
        if (ids) ((int32_t *)v->step->kept[c][it])[to] = ((int32_t *)m->kept[c][it])[e];
        else ((double *)v->step->kept[c][it])[to] = ((double *)m->kept[c][it])[e];
      }
  }
}

static bool admit(Server *v) {
  int slot = 0, i = 0;
  while (slot < SLOTS && v->at[slot] >= 0) slot++;
  while (i < SEQUENCES && (v->of[i].slot >= 0 || v->of[i].done == v->of[i].length)) i++;
  if (slot == SLOTS || i == SEQUENCES) return false;
  v->at[slot] = i;
  v->of[i].slot = slot;
  v->order[v->running++] = i;
  make_own(v, &v->of[i]);
  return true;
}

/* A token of each sequence that decodes, a part of what is known of the others. The youngest gives way
 * when pages run out. */
static void fill_step(Server *v, Step *p) {
  for (int k = 0; k < v->running && p->tokens < TOKENS; k++) {
    int i = v->order[k];
    Sequence *q = &v->of[i];
    int64_t left = TOKENS - p->tokens, n = q->done < q->known ? 1 + draw(v, q->known - q->done) : 1;
    n = n < left ? n : left;
    while (q->slot >= 0 && !find_pages(v, q, n)) preempt(v, v->order[v->running - 1]);
    for (int64_t t = 0; q->slot >= 0 && t < n; t++) {
      p->of[p->tokens] = i;
      p->position[p->tokens] = q->done + t;
      if (q->done + t >= q->prompt - 1) p->row[p->rows++] = p->tokens;
      p->tokens++;
    }
  }
}

static void serve(Server *v) {
  for (;;) {
    Step p = {0};
    while (admit(v)) {}
    if (!v->running) return;
    fill_step(v, &p);
    for (int64_t n = draw(v, 3); n > 0 && p.tokens < TOKENS; n--) p.of[p.tokens++] = -1;
    play(v, &p);
    for (int64_t t = 0; t < p.tokens; t++)
      if (p.of[t] >= 0) v->of[p.of[t]].done++;
    for (int i = 0; i < SEQUENCES; i++)
      if (v->of[i].slot >= 0 && v->of[i].done == v->of[i].length) leave(v, i);
    if (v->running > 1 && draw(v, 20) == 0) preempt(v, v->order[v->running - 1]);
  }
}

static void new_caches(Server *v) {
  Interp *m = v->step;
  m->kept = ZB_NEWN(v->a, void **, v->s.ncaches + 1);
  for (uint32_t c = 0; c < v->s.ncaches; c++) {
    const ZpCache *of = &v->s.caches[c];
    uint32_t trip = v->s.step->segments[of->segment].trip;
    m->kept[c] = ZB_NEWN(v->a, void *, trip);
    for (uint32_t it = 0; it < trip; it++)
      m->kept[c][it] = ZB_NEWN(v->a, double, interp_elements(m, &of->type));
  }
  for (uint32_t g = 0; g < v->s.ngroups; g++)
    for (int page = 0; page < PAGES; page++) poison(v, g, page);
}

/* Serves sequences of a model; how much logits differ, or -1 with a reason where it does not generate. */
static double play_model(const ZgGraph *g, ZbArena *a, const InterpNumbers *numbers, uint64_t seed,
                         Fault fault, Server *v, ZbErr *err) {
  *v = (Server){.a = a, .numbers = numbers, .seed = seed, .fault = fault};
  if (!zp_stream(g, a, NULL, NULL, &v->s, err)) return -1;
  Interp *m = v->step = interp_empty(v->s.step, a);
  m->size[v->s.axis.sequence] = SLOTS;
  m->size[v->s.axis.position] = LONGEST;
  m->size[v->s.axis.entry] = ENTRIES;
  m->size[v->s.axis.within] = WITHIN;
  for (uint32_t i = 0; i < v->s.ngroups; i++) m->size[v->s.groups[i].page] = PAGES;
  for (uint32_t i = 0; i < m->g->naxes; i++)
    if (!m->size[i] && i != v->s.axis.token && i != v->s.axis.row) m->size[i] = OTHER;
  v->pools = ZB_NEWN(a, Pool, v->s.ngroups + 1);
  for (int i = 0; i < SLOTS; i++) v->at[i] = -1;
  for (int i = 0; i < SEQUENCES; i++) new_sequence(v, g, i, i ? v->of[0].whole->param : NULL);
  m->param = v->of[0].whole->param;
  m->numbers = numbers;
  new_caches(v);
  serve(v);
  for (int i = 0; i < SEQUENCES; i++) /* and again of those that were preempted */
    cr_expect(v->of[i].logits >= v->of[i].length - v->of[i].prompt + 1);
  return v->worst;
}

/* Plays all models of the table that generate. */
static void play_all(const InterpNumbers *numbers, double tolerance) {
  int preempted = 0;
  for (int i = 0; i < stream_model_count; i++) {
    const StreamModel *m = &stream_models[i];
    if (m->refused) continue;
    Case c;
    Server v;
    ZbErr err = {0};
    ZgGraph *g = stream_model(&c, m);
    for (uint32_t seed = 0; seed < breadth_many(1); seed++) {
      double off = play_model(g, c.a, numbers, 3 + seed, NO_FAULT, &v, &err);
      cr_expect(off >= 0, "%s: %s", m->name, err.text);
      cr_expect(off <= tolerance, "%s: off by %g, seed %u", m->name, off, seed);
      preempted += v.preempted;
    }
    done(&c);
  }
  cr_expect(preempted > 20);
}

Test(steps, are_the_whole, .timeout = 600) { play_all(NULL, TOLERANCE); }

/* On residues, where sums are equal in whatever order they are made, and latent attention is an identity, they
 * are the same numbers. */
Test(steps, are_the_whole_exactly, .timeout = 600) { play_all(&residues, 0); }

static const char fixed[] =
    "use std.nn as nn\n"
    "model Fixed(words = 31, length = 24) {\n"
    "  axis batch, seq = length, key = length, embed = 16, head = 2, hd = 8, vocab = words\n"
    "  input tokens: index(vocab)[batch, seq]\n"
    "  input targets: index(vocab)[batch, seq]\n"
    "  param table[vocab, embed], where[seq, embed] ~ normal(0.3)\n"
    "  param far[head, seq], near[head, seq, key] ~ normal(0.3)\n"
    "  param w[embed, head, hd], wo[head, hd, embed] ~ normal(0.3)\n"
    "  x = lookup(table, tokens) + where\n"
    "  q = dot[embed](x, w)\n"
    "  x = x + dot[head, hd](attend[seq, hd](q, q, q, mask = causal, bias = far), wo)\n"
    "  output logits = dot[embed](x * where, table)\n"
    "  loss xent[vocab](logits, targets) per known(targets)\n"
    "}\n";

/* A length that the model gives, and parameters along it. */
Test(steps, fixed_length) {
  Case c = load_text(fixed);
  Server v;
  ZbErr err = {0};
  ZgGraph *g = compile(&c);
  cr_assert(g, "%s", messages(&c));
  double off = play_model(g, c.a, NULL, 3, NO_FAULT, &v, &err);
  cr_expect(off >= 0 && off < TOLERANCE, "off by %g %s", off, err.text);
  done(&c);
}

/* The same of every operation before and behind another one. */
Test(steps, pairs, .timeout = 300) {
  size_t at = 0;
  for (int i = 0; i < stream_model_count; i++)
    for (int j = 0; j < stream_model_count; j++) {
      const StreamModel *first = &stream_models[i], *second = &stream_models[j];
      if (first->options || second->options || first->refused || second->refused) continue;
      if (!breadth_tries(at++, 29)) continue;
      Case c;
      Server v;
      ZbErr err = {0};
      ZgGraph *g = stream_pair(&c, first, second);
      double off = play_model(g, c.a, NULL, 3, NO_FAULT, &v, &err);
      cr_expect(off >= 0 && off < TOLERANCE, "%s, then %s: off by %g %s", first->name, second->name, off,
                err.text);
      done(&c);
    }
}

/* What is planted is seen. */
Test(steps, faults, .timeout = 60) {
  static const struct {
    const char *model;
    Fault fault;
  } planted[] = {{"llama3", POSITION_TOO_FAR},
                 {"mamba2", OLD_STATE},
                 {"mistral", PAGE_TOO_EARLY},
                 {"deltanet", LOST_TOKEN}};
  for (size_t k = 0; k < sizeof planted / sizeof *planted; k++)
    for (int i = 0; i < stream_model_count; i++) {
      if (strcmp(stream_models[i].name, planted[k].model)) continue;
      Case c;
      Server v;
      ZbErr err = {0};
      const ZgGraph *g = stream_model(&c, &stream_models[i]);
      double off = play_model(g, c.a, NULL, 3, planted[k].fault, &v, &err);
      cr_expect(!(off < 1e-6), "%s: off by %g", planted[k].model, off);
      done(&c);
    }
}
