/* The checker's nouns: instructions, buckets, contents and buffers in words. */
#include "runtime/plan/check/check.h"
#include "runtime/plan/text.h"

const char *zp_say(const Check *c, uint32_t stage, uint32_t instr) {
  ZbText t = {0};
  zp_instr_text(c->p, stage, &c->p->programs.stages[stage].prog.instrs[instr], &t);
  const char *s = zb_printf(c->a, "stage %u %s", stage, t.s);
  zb_text_free(&t);
  return s;
}

const char *zp_say_held(const Check *c, uint32_t bucket, uint32_t iter) {
  ZbText t = {0};
  zp_held_text(c->p, bucket, iter, &t);
  const char *s = zb_strdup(c->a, t.s ? t.s : "");
  zb_text_free(&t);
  return s;
}

const char *zp_say_inst(const Check *c, uint32_t segment, uint32_t iter) {
  ZbText t = {0};
  zp_inst_text(c->p, segment, iter, &t);
  const char *s = zb_strdup(c->a, t.s);
  zb_text_free(&t);
  return s;
}

bool zp_fail_at(const Check *c, uint32_t stage, uint32_t instr, const char *fmt, ...) {
  char text[768];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  return zb_fail(c->err, NULL, "%s %s", zp_say(c, stage, instr), text);
}

const char *zp_say_tag(const Check *c, uint64_t tag) {
  uint32_t a = tag >> 40 & 0xffff, b = tag >> 24 & 0xffff, n = tag & 0xffffff;
  bool inst = a < c->p->graph->nsegments, bucket = a < c->p->programs.nbuckets;
  ZbArena *t = c->a;
  switch ((ZpTag)(tag >> 56)) {
  case ZP_TAG_NOTHING: return "nothing of use";
  case ZP_TAG_SLOT: return zb_printf(t, "values of micro-batch %u", n);
  case ZP_TAG_CARRY:
    return inst ? zb_printf(t, "the tuple into %s, micro-batch %u", zp_say_inst(c, a, b), n) : "?";
  case ZP_TAG_DCARRY:
    return inst ? zb_printf(t, "the cotangents of %s, micro-batch %u", zp_say_inst(c, a, b), n) : "?";
  case ZP_TAG_PARAM: {
    const char *which = n == 0 ? "" : "stepped ";
    return bucket ? zb_printf(t, "%sparameters of %s", which, zp_say_held(c, a, b)) : "?";
  }
  case ZP_TAG_STAGED:
    return bucket ? zb_printf(t, "the gradient of %s, micro-batch %u", zp_say_held(c, a, b), n) : "?";
  case ZP_TAG_GRAD:
    return bucket
               ? zb_printf(t, "the accumulated gradient of %s after %u reductions", zp_say_held(c, a, b), n)
               : "?";
  case ZP_TAG_STATE: return bucket ? zb_printf(t, "the optimizer state of %s", zp_say_held(c, a, b)) : "?";
  case ZP_TAG_UPDATE: {
    static const char *const which[] = {"this rank's part of the update", "the whole update",
                                        "the orthogonal matrices of this rank",
                                        "this rank's part of what is orthogonal"};
    return bucket && n < 4 ? zb_printf(t, "%s of %s", which[n], zp_say_held(c, a, b)) : "?";
  }
  case ZP_TAG_TEMP: return "temporaries";
  case ZP_TAG_COUNT: return n ? "the whole loss denominators" : "this rank's loss denominators";
  case ZP_TAG_SUMS:
    return n == 2 ? "the world's sums" : n ? "this rank's sums with the norm" : "this rank's loss sums";
  }
  return "?";
}

const char *const zp_buf_text[ZP_B_KINDS] = {
    [ZP_B_SLOT] = "slot",
    [ZP_B_RECV_ACT] = "activation receive buffer",
    [ZP_B_SEND_ACT] = "activation send buffer",
    [ZP_B_RECV_GRAD] = "gradient receive buffer",
    [ZP_B_SEND_GRAD] = "gradient send buffer",
    [ZP_B_GATHER] = "gather buffer",
    [ZP_B_STAGING] = "staging buffer",
    [ZP_B_UPDATE] = "update buffer",
    [ZP_B_PARAM] = "parameter store",
    [ZP_B_GRAD] = "gradient accumulator",
    [ZP_B_STATE] = "optimizer state",
    [ZP_B_BOUNDARY] = "boundary buffer",
    [ZP_B_SCRATCH] = "scratch",
    [ZP_B_SCALARS] = "scalars",
    [ZP_B_PINNED_INPUTS] = "pinned inputs",
    [ZP_B_PINNED_SCALARS] = "pinned scalars",
    [ZP_B_SNAPSHOT] = "the snapshot",
    [ZP_B_CACHE] = "the caches",
};

const char *zp_say_buf(const Check *c, uint32_t stage, uint32_t buf) {
  const ZpStage *st = &c->p->programs.stages[stage];
  const ZpBuf *b = &st->prog.bufs[buf];
  ZbArena *t = c->a;
  switch ((ZpBufKind)b->kind) {
  case ZP_B_GATHER:
  case ZP_B_STAGING:
    return zb_printf(t, "%s %u of %s", zp_buf_text[b->kind], b->index, c->p->programs.buckets[b->pool].name);
  case ZP_B_PARAM:
  case ZP_B_GRAD:
  case ZP_B_STATE:
    return zb_printf(t, "%s of %s", zp_buf_text[b->kind],
                     zp_say_held(c, st->held[b->pool].bucket, st->held[b->pool].iter));
  default: return zb_printf(t, "%s %u", zp_buf_text[b->kind], b->index);
  }
}
