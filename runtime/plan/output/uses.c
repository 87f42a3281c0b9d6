/* Bytes of a rank's arena that are in use over a step: a buffer counts from the instruction that writes it anew to the
 * last one that reads it, and parameters, gradients and states count all the time. */
#include "runtime/plan/output/tables.h"

#include <stdlib.h>

enum { STORED, ACTIVATIONS, BOUNDARIES, GATHERED, STAGING, SCRATCH };
const char *const zp_use_text[ZP_USES] = {"stored",   "activations", "boundaries",
                                          "gathered", "staging",     "scratch"};

static int use_of(const ZpBuf *b) {
  switch ((ZpBufKind)b->kind) {
  case ZP_B_SLOT: return ACTIVATIONS;
  case ZP_B_GATHER: return GATHERED;
  case ZP_B_STAGING:
  case ZP_B_UPDATE: return STAGING;
  case ZP_B_SCRATCH: return SCRATCH;
  case ZP_B_PARAM:
  case ZP_B_GRAD:
  case ZP_B_STATE:
  case ZP_B_CACHE:
  case ZP_B_SCALARS: return STORED;
  default: return BOUNDARIES;
  }
}

typedef struct {
  double at;
  int use;
  int64_t bytes; /* more in use from here on */
} Change;
/* The contents of a buffer that are in use. */
typedef struct {
  bool alive;
  uint64_t tag;
  double begin, end;
} Life;
typedef struct {
  ZbArena *a;
  const ZpStage *st;
  Life *lives; /* by buffer */
  Change *list;
  size_t n;
} Changes;

static void end_life(Changes *c, const ZpBuf *b, Life *l) {
  if (!l->alive) return;
  int64_t bytes = (int64_t)b->bytes;
  Change begin = {l->begin, use_of(b), bytes}, end = {l->end, use_of(b), -bytes};
  ZB_PUSH(c->a, c->list, c->n, begin);
  ZB_PUSH(c->a, c->list, c->n, end);
  l->alive = false;
}

static bool reads(const ZpInstr *in, uint32_t buf) {
  for (uint32_t i = 0; i < in->naccess; i++)
    if (in->access[i].buf == buf && in->access[i].mode & ZP_READ) return true;
  return false;
}

/* Begins anew what is written by an instruction that does not read it, unless it is more of the same. */
static void access(Changes *c, const ZpInstr *in, const ZpSpan *s) {
  for (uint32_t i = 0; i < in->naccess; i++) {
    const ZpAccess *x = &in->access[i];
    const ZpBuf *b = &c->st->prog.bufs[x->buf];
    Life *l = &c->lives[x->buf];
    if (b->memory != ZP_DEVICE || use_of(b) == STORED) continue;
    if (x->tag != l->tag && !reads(in, x->buf)) end_life(c, b, l);
    if (b->kind == ZP_B_SCRATCH) end_life(c, b, l);
    if (!l->alive) *l = (Life){true, x->tag, s->begin, s->end};
    l->tag = x->tag; /* who only reads finds the tag that it has */
    if (s->end > l->end) l->end = s->end;
  }
}

static int earlier_first(const void *a, const void *b) {
  const Change *x = a, *y = b;
  return (x->at > y->at) - (x->at < y->at);
}

ZpUse *zp_uses(ZbArena *a, const ZpStage *st, const ZpSpan *const *spans, size_t *n) {
  const ZpProgram *g = &st->prog;
  Changes c = {.a = a, .st = st, .lives = ZB_NEWN(a, Life, g->nbufs)};
  ZpUse now = {0}, *uses = NULL;
  *n = 0;
  for (uint32_t i = 0; i < g->nbufs; i++)
    if (g->bufs[i].memory == ZP_DEVICE && use_of(&g->bufs[i]) == STORED)
      now.bytes[STORED] += (int64_t)g->bufs[i].bytes;
  for (uint32_t i = 0; i < g->ninstrs; i++)
    if (spans[i]) access(&c, &g->instrs[i], spans[i]);
  for (uint32_t i = 0; i < g->nbufs; i++) end_life(&c, &g->bufs[i], &c.lives[i]);
  if (c.n) qsort(c.list, c.n, sizeof *c.list, earlier_first);
  for (size_t i = 0; i < c.n;) {
    now.at = c.list[i].at;
    for (; i < c.n && c.list[i].at == now.at; i++) now.bytes[c.list[i].use] += c.list[i].bytes;
    ZB_PUSH(a, uses, *n, now);
  }
  return uses;
}
