/* What one rank asks and ends, as bytes for the others that play its steps. They are of one program, on machines of one
 * kind: ranks have compared that. */
#include "runtime/exec/answer/answer.h"

#include <stdlib.h>

typedef enum { ASK, END } Kind;
typedef struct {
  uint64_t kind, number, bytes; /* bytes of a query behind it */
} Head;

/* ---- writing ------------------------------------------------------------------------------------------------ */
static void put(ZbText *to, const void *p, size_t n) {
  if (n) zb_text_put(to, p, n);
}

void zx_event_ask(ZbText *to, const ZxQuery *q, uint64_t number) {
  size_t head = to->len;
  Head h = {.kind = ASK, .number = number};
  ZB_ASSERT(!q->prompt && q->seed >= 0);
  put(to, &h, sizeof h);
  put(to, q, sizeof *q);
  put(to, q->token, q->ntokens * sizeof *q->token);
  put(to, q->end, q->nend * sizeof *q->end);
  put(to, q->bias, q->nbias * sizeof *q->bias);
  put(to, q->schema, q->nschema);
  for (uint32_t i = 0; i < q->stop.n; i++) put(to, q->stop.s[i], strlen(q->stop.s[i]) + 1);
  h.bytes = to->len - head - sizeof h;
  memcpy(to->s + head, &h, sizeof h);
}

void zx_event_end(ZbText *to, uint64_t number) {
  Head h = {.kind = END, .number = number};
  put(to, &h, sizeof h);
}

/* ---- reading ------------------------------------------------------------------------------------------------ */
/* Copies the next n bytes of an event into a block that is aligned for anything. */
static void *take(const char **from, char **to, size_t n) {
  char *p = *to;
  memcpy(p, *from, n);
  *from += n;
  *to += zb_round_up(n, 16);
  return p;
}

/* Makes a query again, in one block that begins with it. */
static ZxQuery *query_of(const char *bytes, size_t n) {
  ZxQuery q;
  memcpy(&q, bytes, sizeof q);
  const char *from = bytes + sizeof q;
  size_t texts = n - sizeof q, room = zb_round_up(sizeof q, 16) + texts + 80 + q.stop.n * sizeof *q.stop.s;
  char *to = malloc(room);
  if (!to) zb_out_of_memory(room);
  ZxQuery *own = (ZxQuery *)to;
  to += zb_round_up(sizeof q, 16);
  q.token = take(&from, &to, q.ntokens * sizeof *q.token);
  q.end = take(&from, &to, q.nend * sizeof *q.end);
  q.bias = take(&from, &to, q.nbias * sizeof *q.bias);
  q.schema = q.schema ? take(&from, &to, q.nschema) : NULL;
  q.stop.s = (const char **)to;
  to += zb_round_up(q.stop.n * sizeof *q.stop.s, 16);
  memcpy(to, from, (size_t)(bytes + n - from));
  for (uint32_t i = 0; i < q.stop.n; i++, to += strlen(to) + 1) q.stop.s[i] = to;
  *own = q;
  return own;
}

bool zx_events_play(ZxAnswers *x, const char *event, size_t n, ZbErr *err) {
  Head h;
  for (const char *end = event + n; event < end; event += h.bytes) {
    memcpy(&h, event, sizeof h);
    event += sizeof h;
    if (h.kind == END ? !zx_answers_end(x, h.number, err)
                      : !zx_answers_ask(x, query_of(event, h.bytes), h.number, err))
      return false;
  }
  return true;
}

void zx_events_forget(const ZxAnswered *q) { free((void *)q->query); }
