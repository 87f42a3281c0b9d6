/* The scheduler's steps as inputs of the step's graph: tokens, their positions and sequences, the rows of logits, and
 * where pages lie. */
#include "runtime/exec/stepper.h"

#include <string.h>

_Static_assert((int)ZX_STATE_CHUNK == (int)ZP_STATE_CHUNK, "the plan has room for a part of a prompt");

struct ZxStepper {
  ZxEngine *e;
  const ZpPlan *p;
  const ZxReplica *r;
  ZxWave wave;
  const void **input; /* by input of the step's graph */
  int32_t *ids, *positions, *sequences, *rows, *documents, *adapters, **tables;
  ZxAdmission *admission; /* NULL: nothing belongs to a sequence alone */
  int32_t *lengths;       /* of sources, by slot */
  ZxShare share;
  float *logits; /* [row][word], of the rank's words, own_words of them without padding */
  uint64_t used;
  uint32_t own_words;
};

static int64_t size_of(const ZpPlan *p, uint16_t axis) { return p->layout.axis_size[axis]; }

/* Says whether a sequence has more than pages: then how a prompt was cut is part of its bits. */
static bool has_states(const ZpStream *s) {
  bool any = false;
  for (uint32_t i = 0; i < s->ncaches; i++) any |= ZP_IS_STATE(s->caches[i].kind);
  return any;
}

/* Says whether something belongs to a sequence alone. Then pages depend on more than their tokens. */
static bool has_own(const ZpStream *s) {
  bool any = false;
  for (uint32_t i = 0; i < s->ncaches; i++) any |= s->caches[i].kind == ZP_CACHE_OWN;
  return any;
}

/* Returns how many ids the model knows, without padding. */
static uint32_t words_of(const ZpPlan *p) {
  const ZgStream *along = &p->stream->along;
  return (uint32_t)p->layout.axis_valid[p->stream->model->inputs[along->tokens].type.of];
}

/* ---- waves ---- */
/* Returns the first slot of a wave; of the wave behind the last, the end of all. */
static uint32_t first_slot(const ZpPlan *p, ZxWave w) {
  return (uint32_t)(p->generating.sequences * w.wave / w.waves);
}
/* The same of pages of a group, of which each slot has as many. */
static uint32_t first_page(const ZpPlan *p, uint32_t group, ZxWave w) {
  return (uint32_t)(p->pages[group] * first_slot(p, w) / p->generating.sequences);
}
static ZxWave behind(ZxWave w) { return (ZxWave){w.wave + 1, w.waves}; }

/* Says whether each of so many waves has pages for a sequence of full length. */
static bool has_pages(const ZpPlan *p, uint32_t waves) {
  for (uint32_t i = 0; i < waves; i++)
    for (uint32_t g = 0; g < p->stream->ngroups; g++) {
      ZxWave w = {i, waves};
      int64_t whole = zp_pages_of(&p->generating, p->stream->groups[g].window);
      if (first_page(p, g, behind(w)) - first_page(p, g, w) < whole) return false;
    }
  return true;
}

uint32_t zx_waves(const ZpPlan *p) {
  uint32_t n = p->programs.nstages;
  if (n > p->generating.sequences) n = (uint32_t)p->generating.sequences;
  while (n > 1 && !has_pages(p, n)) n--;
  return n;
}

ZxScheduling zx_scheduling(const ZpPlan *p, ZbArena *a, ZxWave w) {
  const ZpStream *s = p->stream;
  ZxPageGroup *group = ZB_NEWN(a, ZxPageGroup, s->ngroups + 1);
  for (uint32_t i = 0; i < s->ngroups; i++)
    group[i] =
        (ZxPageGroup){first_page(p, i, behind(w)) - first_page(p, i, w), (uint32_t)s->groups[i].window};
  return (ZxScheduling){.tokens = (uint32_t)size_of(p, s->axis.token),
                        .rows = (uint32_t)size_of(p, s->axis.row),
                        .slots = first_slot(p, behind(w)) - first_slot(p, w),
                        .length = (uint32_t)p->generating.length,
                        .page = (uint32_t)p->generating.page,
                        .group = group,
                        .ngroups = s->ngroups,
                        .vocabulary = words_of(p),
                        .states = has_states(s),
                        .drafts = has_states(s) ? 0 : ZX_DRAFTS,
                        .prefixes = !has_states(s) && !has_own(s)};
}

static uint32_t table_of(const ZpStream *s, uint32_t input) {
  uint32_t g = 0;
  while (g < s->ngroups && s->groups[g].input != input) g++;
  return g;
}

/* Returns what an input holds that the model takes besides tokens: documents and places, as data files have
 * them, and which adapter each has. */
static const void *known(const ZxStepper *x, const ZgIo *in, ZbErr *err) {
  if (!strcmp(in->name, "doc")) return x->documents;
  if (!strcmp(in->name, "place")) return x->positions;
  if (!strcmp(in->name, "adapter")) return x->adapters;
  zb_fail(err, "",
          "model %s takes `%s` besides the tokens, which generation has no values for in this version",
          x->p->given->model, in->name);
  return NULL;
}

/* Says whether an input of the step has the lengths of sources. */
static bool is_length(const ZpStream *s, uint32_t input) {
  bool is = false;
  for (uint32_t i = 0; i < s->nlengths; i++)
    is |= s->lengths[i].input == input && s->lengths[i].axis == s->length;
  return is;
}

static bool find_inputs(ZxStepper *x, ZbErr *err) {
  const ZpStream *s = x->p->stream;
  const char *tokens = s->model->inputs[s->along.tokens].name;
  for (uint32_t i = 0; i < s->step->ninputs; i++) {
    const ZgIo *in = &s->step->inputs[i];
    uint32_t table = table_of(s, i);
    x->input[i] = i == s->position            ? x->positions
                  : i == s->sequence          ? x->sequences
                  : i == s->row               ? x->rows
                  : is_length(s, i)           ? x->lengths
                  : table < s->ngroups        ? x->tables[table]
                  : !strcmp(in->name, tokens) ? (const void *)x->ids
                                              : known(x, in, err);
    if (!x->input[i]) return false;
  }
  return true;
}

ZxStepper *zx_stepper_new(ZbArena *a, ZxEngine *e, const ZpPlan *p, const ZxReplica *r, ZxWave w,
                          ZxAdmission *admission, ZbErr *err) {
  const ZpStream *s = p->stream;
  int64_t tokens = size_of(p, s->axis.token), rows = size_of(p, s->axis.row);
  ZxStepper *x = ZB_NEW(a, ZxStepper);
  if (has_own(s) && !admission) {
    zb_fail(err, "models with one text beside the one that is written can",
            "model %s has something beside its tokens that belongs to a sequence, and is not a text",
            p->given->model);
    return NULL;
  }
  *x = (ZxStepper){.e = e, .p = p, .r = r, .wave = w, .admission = admission};
  uint16_t axis = s->model->inputs[s->along.tokens].type.of;
  x->share = (ZxShare){(uint32_t)r->part, (uint32_t)r->parts, (uint32_t)(size_of(p, axis) / r->parts),
                       zx_replica_gather, (void *)r};
  x->own_words = zx_share_first(&x->share, words_of(p), x->share.part + 1) -
                 zx_share_first(&x->share, words_of(p), x->share.part);
  x->lengths = ZB_NEWN(a, int32_t, p->generating.sequences);
  x->input = ZB_NEWN(a, const void *, s->step->ninputs + 1);
  x->ids = ZB_NEWN(a, int32_t, tokens), x->positions = ZB_NEWN(a, int32_t, tokens);
  x->sequences = ZB_NEWN(a, int32_t, tokens), x->documents = ZB_NEWN(a, int32_t, tokens);
  x->adapters = ZB_NEWN(a, int32_t, tokens);
  x->rows = ZB_NEWN(a, int32_t, rows);
  x->tables = ZB_NEWN(a, int32_t *, s->ngroups + 1);
  for (uint32_t g = 0; g < s->ngroups; g++)
    x->tables[g] = ZB_NEWN(a, int32_t, p->generating.sequences * size_of(p, s->axis.entry));
  x->logits = ZB_NEWN(a, float, rows * x->own_words + 1);
  return find_inputs(x, err) ? x : NULL;
}

/* Brings the tables of the wave's slots: pages are numbered from its first on. */
static void take_tables(ZxStepper *x, const ZxScheduler *s) {
  const ZpStream *st = x->p->stream;
  int64_t entries = size_of(x->p, st->axis.entry);
  uint32_t slot = first_slot(x->p, x->wave), slots = first_slot(x->p, behind(x->wave)) - slot;
  for (uint32_t g = 0; g < st->ngroups; g++)
    for (uint32_t q = 0; q < slots; q++) {
      int32_t *to = x->tables[g] + (slot + q) * entries;
      const uint32_t *from = zx_table(s, g, q);
      uint32_t first = first_page(x->p, g, x->wave);
      for (int64_t i = 0; i < entries; i++)
        to[i] = from[i] == ZX_NO_PAGE ? (int32_t)ZX_NO_PAGE : (int32_t)(from[i] + first);
    }
}

/* Takes rows of logits as f32, without the padding of words. */
static void take_logits(ZxStepper *x, const ZxLogits *from, uint32_t rows) {
  uint32_t n = x->own_words;
  for (uint32_t r = 0; r < rows; r++) {
    float *to = x->logits + (size_t)r * n;
    size_t at = (size_t)r * x->share.each;
    if (from->elem == ZK_F32) memcpy(to, (const float *)from->data + at, n * sizeof *to);
    else
      for (uint32_t i = 0; i < n; i++) to[i] = zb_bf16_to_f32(((const uint16_t *)from->data)[at + i]);
  }
}

ZxShare zx_stepper_share(const ZxStepper *x) { return x->share; }

const float *zx_stepper_play(ZxStepper *x, const ZxScheduler *s, const ZxGenStep *step, ZbErr *err) {
  ZxStep done;
  ZxLogits logits;
  uint32_t slot = first_slot(x->p, x->wave);
  for (uint32_t i = 0; x->admission && i < step->nstarts; i++) {
    const ZxSequence *q = step->start[i];
    if (!zx_admit(x->admission, x->e, slot + q->slot, q->source, q->nsource, err)) return NULL;
    x->lengths[slot + q->slot] = (int32_t)q->nsource;
  }
  for (uint32_t i = 0; i < step->ncopies; i++) {
    const ZxPageCopy *c = &step->copy[i];
    uint32_t first = first_page(x->p, c->group, x->wave);
    zx_engine_copy_page(x->e, c->group, first + c->from, first + c->to);
  }
  for (uint32_t i = 0; i < step->ntokens; i++) {
    x->ids[i] = (int32_t)step->id[i];
    x->positions[i] = (int32_t)step->position[i];
    x->sequences[i] = (int32_t)(slot + step->slot[i]);
  }
  for (uint32_t i = 0; i < step->nparts; i++)
    for (uint32_t k = 0; k < step->part[i].n; k++)
      x->adapters[step->part[i].token + k] = (int32_t)step->part[i].sequence->adapter;
  for (uint32_t i = 0; i < step->nrows; i++) x->rows[i] = (int32_t)step->row[i];
  take_tables(x, s);
  /* A part of a prompt of which no logits are wanted has a row all the same: a call has at least one. */
  ZxTokens now = {step->ntokens, step->nrows ? step->nrows : 1, x->input};
  if (!step->nrows) x->rows[0] = 0;
  if (!zx_engine_tokens(x->e, &now, &logits, &done, err)) return NULL;
  x->used = done.used_bytes;
  if (x->r->last) take_logits(x, &logits, step->nrows);
  return x->logits;
}

uint64_t zx_stepper_used(const ZxStepper *x) { return x->used; }
