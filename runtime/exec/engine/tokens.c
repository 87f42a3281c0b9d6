/* Steps of generation. A plan is made for the most tokens that a step has; a step of fewer makes the same calls on
 * fewer rows: tokens and rows of logits are the slowest axes of all that has them, so that strides and places stay
 * (plan/local/values.c). */
#include "runtime/exec/engine/internal.h"

#include <string.h>

struct ZxSizes {
  int64_t **tokens, **rows; /* where calls have the number of tokens of a step, and of its rows */
  uint32_t ntokens, nrows;
  const ZxTokens *now; /* the step that is played */
  ZxLogits logits;
};

/* ---- sizes of calls ------------------------------------------------------------------------------------ */
static void find_sizes(ZxEngine *e, ZkView *v) {
  const ZpStreamAxes *x = &e->p->stream->axis;
  ZxSizes *s = e->sizes;
  for (int a = 0; a < v->rank; a++) {
    if (v->axis[a] == x->token) ZB_PUSH(e->a, s->tokens, s->ntokens, &v->size[a]);
    if (v->axis[a] == x->row) ZB_PUSH(e->a, s->rows, s->nrows, &v->size[a]);
  }
}

void zx_begin_tokens(ZxEngine *e, const ZxTokens *now) {
  ZxSizes *s = e->sizes;
  s->now = now;
  s->logits = (ZxLogits){0};
  for (uint32_t i = 0; i < s->ntokens; i++) *s->tokens[i] = now->tokens;
  for (uint32_t i = 0; i < s->nrows; i++) *s->rows[i] = now->rows;
}

/* Returns how many of an axis the step has: tokens, or rows of logits; 0: it is another axis. */
static int64_t rows_now(const ZxEngine *e, uint16_t axis) {
  const ZpStreamAxes *x = &e->p->stream->axis;
  return axis == x->token ? e->sizes->now->tokens : axis == x->row ? e->sizes->now->rows : 0;
}

ZxLogits zx_logits(const ZxEngine *e) { return e->sizes->logits; }

static bool take_logits(ZxEngine *e, const ZxOutput *x) {
  e->sizes->logits = (ZxLogits){x->data, (ZkElem)x->value->elem};
  return true;
}

void zx_open_sizes(ZxEngine *e) {
  if (!e->p->stream) return;
  e->sizes = ZB_NEW(e->a, ZxSizes);
  e->take_output = take_logits;
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
  const ZxTokens *now = e->sizes->now;
  for (uint32_t i = 0; i < e->p->programs.ninputs; i++) {
    const ZpInputUse *u = &e->p->programs.inputs[i];
    const ZpValue *v = &e->p->programs.segments[u->value_segment].values[u->value];
    uint16_t first = v->type.naxes ? v->axis[0] : ZP_NO_AXIS;
    int64_t n = rows_now(e, first), whole = n ? v->size[0] : 1;
    if (!n) n = 1;
    memcpy(inputs + u->at, now->input[u->input], v->bytes / (uint64_t)whole * (uint64_t)n);
  }
  return true;
}
