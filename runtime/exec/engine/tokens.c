/* Steps of generation. A plan is made for the most tokens that a step has; a step of fewer makes the same calls on
 * fewer rows: tokens and rows of logits are the slowest axes of all that has them, so that strides and places stay
 * (plan/local/values.c). Experts have a share of slots by the tokens: rows of all experts follow each other from the
 * beginning of what has them, so a step's take its first bytes. */
#include "graph/ragged.h"
#include "runtime/exec/engine/internal.h"

#include <string.h>

/* Rows of experts in a call: [expert, slot, ..]. */
typedef struct {
  ZkView *v;
  int slot, expert; /* axes of the view; expert -1: it has none */
  int64_t planned;  /* slots */
} Slots;

struct ZxSizes {
  int64_t **tokens, **rows; /* where calls have the number of tokens of a step, and of its rows */
  uint32_t ntokens, nrows;
  Slots *slots;
  uint32_t nslots;
  bool loose;                     /* rows of experts lie apart somewhere: steps have all slots */
  const ZxTokens *now;            /* the step that is played */
  int64_t token_count, row_count; /* those that are played: a class has more, which are nobody's */
  bool *prepared;                 /* by class: calls of its sizes; NULL: nothing is prepared */
  const ZpValue *output;          /* logits, and where they lie in the arena; NULL: another rank has them */
  const void *logits;
};

/* ---- sizes of calls ------------------------------------------------------------------------------------ */
/* Says whether rows of experts lie one behind the other. */
static bool is_compact(const ZkView *v, const Slots *s) {
  int64_t row = 1;
  for (int a = 0; a < v->rank; a++)
    if (a != s->slot && a != s->expert) row *= v->size[a];
  return v->stride[s->slot] == row && (s->expert < 0 || v->stride[s->expert] == row * v->size[s->slot]);
}

static void find_slots(ZxEngine *e, ZkView *v) {
  Slots s = {.v = v, .slot = -1, .expert = -1};
  for (int a = 0; a < v->rank; a++)
    if (e->p->layout.experts[v->axis[a]] != ZG_NO_AXIS) s.slot = a;
  if (s.slot < 0) return;
  for (int a = 0; a < v->rank; a++)
    if (v->axis[a] == e->p->layout.experts[v->axis[s.slot]]) s.expert = a;
  e->sizes->loose |= !is_compact(v, &s);
  s.planned = v->size[s.slot];
  ZB_PUSH(e->a, e->sizes->slots, e->sizes->nslots, s);
}

/* Gives rows of experts the slots of so many tokens. */
static void share_slots(const Slots *s, int64_t tokens, int64_t planned) {
  int64_t n = (s->planned * tokens + planned - 1) / planned;
  s->v->size[s->slot] = n;
  if (s->expert >= 0) s->v->stride[s->expert] = n * s->v->stride[s->slot];
}

static void find_sizes(ZxEngine *e, ZkView *v) {
  const ZpStreamAxes *x = &e->p->stream->axis;
  ZxSizes *s = e->sizes;
  for (int a = 0; a < v->rank; a++) {
    if (v->axis[a] == x->token) ZB_PUSH(e->a, s->tokens, s->ntokens, &v->size[a]);
    if (v->axis[a] == x->row) ZB_PUSH(e->a, s->rows, s->nrows, &v->size[a]);
  }
  find_slots(e, v);
}

/* ---- classes ---------------------------------------------------------------------------------------------
 * What a device has captured has sizes that do not change, and what it prepares for a call is for its sizes. So
 * there are few: a power of two up to FINE tokens, then a multiple of FINE. Tokens behind those that there are belong
 * to nobody, and so do rows. Large steps take long enough to be queued anew. */
enum { FINE = 64, FINE_CLASSES = 7 };

/* Returns the number of the class of so many tokens, and how many it has. */
static uint32_t class_of(int64_t tokens, int64_t *has) {
  uint32_t c = 0;
  for (*has = 1; *has < tokens && *has < FINE; *has *= 2) c++;
  if (tokens <= FINE) return c;
  *has = (tokens + FINE - 1) / FINE * FINE;
  return FINE_CLASSES - 1 + (uint32_t)(*has / FINE - 1);
}

int zx_captured_tokens(void) { return FINE * (ZX_CLASSES - FINE_CLASSES); }

/* Returns how many of an axis are played: tokens, or rows of logits; 0: it is another axis. */
static int64_t rows_now(const ZxEngine *e, uint16_t axis) {
  const ZpStreamAxes *x = &e->p->stream->axis;
  return axis == x->token ? e->sizes->token_count : axis == x->row ? e->sizes->row_count : 0;
}

static int64_t planned(const ZxEngine *e, uint16_t axis) { return e->p->layout.axis_size[axis]; }

/* Chooses the sizes of a step. */
static uint32_t choose(const ZxEngine *e, const ZxTokens *now) {
  ZxSizes *s = e->sizes;
  const ZpStreamAxes *x = &e->p->stream->axis;
  s->token_count = now->tokens, s->row_count = now->rows;
  if (!s->prepared) return 0;
  uint32_t class = class_of(now->tokens, &s->token_count);
  if (s->token_count > planned(e, x->token)) s->token_count = planned(e, x->token);
  s->row_count = s->token_count < planned(e, x->row) ? s->token_count : planned(e, x->row);
  if (s->row_count < now->rows) s->row_count = now->rows;
  return class;
}

bool zx_begin_tokens(ZxEngine *e, const ZxTokens *now) {
  ZxSizes *s = e->sizes;
  uint32_t class = choose(e, now);
  s->now = now;
  e->class = class < ZX_CLASSES ? class : ZX_CLASSES - 1;
  for (uint32_t i = 0; i < s->ntokens; i++) *s->tokens[i] = s->token_count;
  for (uint32_t i = 0; i < s->nrows; i++) *s->rows[i] = s->row_count;
  for (uint32_t i = 0; i < s->nslots && !s->loose; i++)
    share_slots(&s->slots[i], s->token_count, planned(e, e->p->stream->axis.token));
  if (!s->prepared || s->prepared[class]) return false;
  return s->prepared[class] = true;
}

/* ---- logits -------------------------------------------------------------------------------------------- */
static bool take_logits(ZxEngine *e, const ZxOutput *x) {
  e->sizes->output = x->value;
  e->sizes->logits = x->data;
  return true;
}

void zx_bring_logits(ZxEngine *e) {
  const ZxSizes *s = e->sizes;
  if (!s || !s->output || e->dev->host || e->failed) return;
  uint64_t row = s->output->bytes / (uint64_t)s->output->size[0];
  e->dev->download(e->env, e->output_room, s->logits, row * (uint64_t)s->now->rows);
}

ZxLogits zx_logits(const ZxEngine *e) {
  const ZxSizes *s = e->sizes;
  if (!s->output) return (ZxLogits){0};
  return (ZxLogits){e->dev->host ? s->logits : e->output_room, (ZkElem)s->output->elem};
}

void zx_open_sizes(ZxEngine *e) {
  if (!e->p->stream) return;
  e->sizes = ZB_NEW(e->a, ZxSizes);
  e->take_output = take_logits;
  if (!e->dev->host) {
    int64_t has;
    e->sizes->prepared = ZB_NEWN(e->a, bool, class_of(planned(e, e->p->stream->axis.token), &has) + 1);
  }
  for (uint32_t i = 0; i < e->p->graph->nsegments; i++) {
    ZkCall *call = e->calls[i].of[ZP_FWD];
    for (uint32_t k = 0; call && k < e->p->programs.segments[i].list[ZP_FWD].n; k++) {
      for (int j = 0; j < call[k].nin; j++) find_sizes(e, &call[k].in[j]);
      for (int j = 0; j < call[k].nout; j++) find_sizes(e, &call[k].out[j]);
    }
  }
}

uint64_t zx_carried_bytes(const ZxEngine *e, const ZpInstr *in) {
  const ZpValue *last = NULL;
  if (!e->sizes || (in->op != ZP_I_SEND_ACT && in->op != ZP_I_RECV_ACT)) return in->bytes;
  const ZpVirtualStage *to = &e->p->programs.vstages[in->vstage];
  const ZpSegment *s = &e->p->programs.segments[e->p->programs.stages[to->stage].insts[to->first].segment];
  for (uint32_t v = 0; v < s->nvalues; v++) {
    const ZpValue *x = &s->values[v];
    if (x->at.space == ZP_AT_CARRY_IN && (!last || x->at.offset > last->at.offset)) last = x;
  }
  int64_t rows = last && last->type.naxes ? rows_now(e, last->axis[0]) : 0;
  bool ends = last && zb_round_up(last->at.offset + last->bytes, 64) == in->bytes;
  return ends && rows ? last->at.offset + last->bytes / (uint64_t)last->size[0] * (uint64_t)rows : in->bytes;
}

/* ---- a step -------------------------------------------------------------------------------------------- */
bool zx_feed_tokens(ZxEngine *e, char *inputs) {
  const ZpStreamAxes *x = &e->p->stream->axis;
  const ZxTokens *now = e->sizes->now;
  for (uint32_t i = 0; i < e->p->programs.ninputs; i++) {
    const ZpInputUse *u = &e->p->programs.inputs[i];
    const ZpValue *v = &e->p->programs.segments[u->value_segment].values[u->value];
    uint16_t first = v->type.naxes ? v->axis[0] : ZP_NO_AXIS;
    bool nobody = u->input == e->p->stream->sequence || first == x->row; /* ids below 0 */
    int64_t played = rows_now(e, first), n = first == x->token ? now->tokens : now->rows;
    uint64_t each = played ? v->bytes / (uint64_t)v->size[0] : v->bytes;
    if (!played) n = played = 1;
    memcpy(inputs + u->at, now->input[u->input], each * (uint64_t)n);
    memset(inputs + u->at + each * (uint64_t)n, nobody ? 0xff : 0, each * (uint64_t)(played - n));
  }
  return true;
}
