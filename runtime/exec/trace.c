/* Ranks' parts of a trace, one after the other, into one file. */
#include "runtime/exec/trace.h"
#include "runtime/plan/text.h"

#include <stdlib.h>
#include <string.h>

struct ZxTrace {
  ZxComm *c;
  ZbOut *out; /* of rank 0 */
  const char *path;
  double clock, zero; /* what to add to this rank's times to have rank 0's; and rank 0's at the start */
};

/* ---- clocks ---- */
static double rank_0(ZxComm *c, double x) {
  double sum = c->t->rank(c) ? 0 : x;
  c->t->wait(c, c->t->all_reduce(c, 0, &sum, 1, ZK_F64, ZX_SUM));
  return sum;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Ranks leave a barrier at about the same time: the middle one of some differences then. On one node there is
 * one clock. */
static void compare_clocks(ZxTrace *t) {
  enum { TRIES = 9 };
  double off[TRIES];
  const int *node = t->c->t->nodes(t->c);
  for (int i = 0; i < TRIES; i++) {
    t->c->t->barrier(t->c);
    double now = zb_now();
    t->zero = rank_0(t->c, now);
    off[i] = t->zero - now;
  }
  qsort(off, TRIES, sizeof *off, ascending);
  t->clock = node[t->c->t->rank(t->c)] == node[0] ? 0 : off[TRIES / 2];
}

/* ---- the file ---- */

ZxTrace *zx_trace_open(ZxComm *c, const char *path, ZbErr *err) {
  static const ZbKind kind = {"a trace", zp_is_trace};
  ZxTrace *t = calloc(1, sizeof *t);
  if (!t) zb_out_of_memory(0);
  t->c = c;
  t->path = path;
  if (c->t->rank(c) == 0) t->out = zb_out_new(path, &kind, err);
  if (!zx_agree(c, t->out || c->t->rank(c))) {
    zx_trace_close(t);
    return NULL;
  }
  compare_clocks(t);
  return t;
}

void zx_trace_close(ZxTrace *t) {
  if (!t) return;
  zb_out_discard(t->out);
  free(t);
}

static bool put(ZxTrace *t, const char *s, size_t n, ZbErr *err) {
  return zb_write(zb_out_fd(t->out), t->path, s, n, err);
}

enum { SIZE_TAG, TEXT_TAG };

/* Taken in even where it cannot be written any more: the others do not know. */
static bool take_part(ZxTrace *t, int rank, bool ok, ZbErr *err) {
  const ZxCommTable *c = t->c->t;
  uint64_t n;
  c->wait(t->c, c->recv(t->c, &n, sizeof n, rank, SIZE_TAG));
  char *s = malloc(n ? n : 1);
  if (!s) zb_out_of_memory(n);
  if (n) c->wait(t->c, c->recv(t->c, s, n, rank, TEXT_TAG));
  ok = ok && put(t, s, n, err);
  free(s);
  return ok;
}

static void give_part(ZxTrace *t, const ZbText *part) {
  const ZxCommTable *c = t->c->t;
  uint64_t n = part->len;
  c->wait(t->c, c->send(t->c, &n, sizeof n, 0, SIZE_TAG));
  if (n) c->wait(t->c, c->send(t->c, part->s, n, 0, TEXT_TAG));
}

bool zx_trace_write(ZxTrace *t, const ZpPlan *p, const ZxEngine *e, ZbErr *err) {
  ZbText part = {0};
  uint64_t n;
  int rank = t->c->t->rank(t->c), size = t->c->t->size(t->c);
  bool ok = true;
  const ZpSpan *spans = zx_engine_spans(e, &n);
  zp_trace_events(p, rank, spans, n, t->clock, t->zero, false, &part);
  if (rank) give_part(t, &part);
  else {
    ok = put(t, zp_trace_head, strlen(zp_trace_head), err) && put(t, part.s, part.len, err);
    for (int r = 1; r < size; r++) {
      ok = ok && put(t, ",\n", 2, err);
      ok = take_part(t, r, ok, err);
    }
    ok = ok && put(t, zp_trace_tail, strlen(zp_trace_tail), err);
    if (ok) ok = zb_out_commit(t->out, err);
    else zb_out_discard(t->out);
    t->out = NULL;
  }
  zb_text_free(&part);
  return zx_agree(t->c, ok);
}
