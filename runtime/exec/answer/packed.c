/* Queries, and answers as they come, as bytes for other ranks. These are of one program, on machines of one kind: ranks
 * have compared that. */
#include "runtime/exec/answer/answer.h"

#include <stdlib.h>

static void put(ZbText *to, const void *p, size_t n) {
  if (n) zb_text_put(to, p, n);
}

/* ---- queries ------------------------------------------------------------------------------------------------ */
void zx_pack_query(const ZxQuery *q, ZbText *to) {
  ZB_ASSERT(!q->prompt && !q->chat && q->seed >= 0);
  put(to, q, sizeof *q);
  put(to, q->token, q->ntokens * sizeof *q->token);
  put(to, q->end, q->nend * sizeof *q->end);
  put(to, q->bias, q->nbias * sizeof *q->bias);
  put(to, q->schema, q->nschema);
  for (uint32_t i = 0; i < q->stop.n; i++) put(to, q->stop.s[i], strlen(q->stop.s[i]) + 1);
}

/* Copies the next n bytes into a block that is aligned for anything. */
static void *take(const char **from, char **to, size_t n) {
  char *p = *to;
  memcpy(p, *from, n);
  *from += n;
  *to += zb_round_up(n, 16);
  return p;
}

ZxQuery *zx_unpack_query(const char *bytes, size_t n) {
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

/* ---- answers ------------------------------------------------------------------------------------------------ */
/* Behind it come ids, text, and log-probabilities, each without the places of `top` that it does not have. */
typedef struct {
  uint64_t ids, text, logprobs;
  uint32_t choice, nprompt;
  int32_t stop;
  char finish[ZX_FINISH];
} News;

static size_t size_of(const ZxChoice *c) { return offsetof(ZxChoice, top) + c->ntop * sizeof *c->top; }

void zx_pack_news(const ZxAnswer *x, ZxPacked *told, ZbText *to) {
  uint32_t known = x->n - x->first;
  News h = {.ids = x->n - told->ids,
            .text = x->length - told->text,
            .logprobs = x->logprob ? known - told->logprobs : 0,
            .choice = x->choice,
            .nprompt = x->nprompt,
            .stop = x->stop};
  snprintf(h.finish, sizeof h.finish, "%s", x->finish ? x->finish : "");
  put(to, &h, sizeof h);
  if (h.ids) put(to, x->id + told->ids, h.ids * sizeof *x->id);
  if (h.text) put(to, x->text + told->text, h.text);
  for (uint32_t i = 0; i < h.logprobs; i++) {
    const ZxChoice *c = &x->logprob[told->logprobs + i];
    put(to, c, size_of(c));
  }
  *told = (ZxPacked){x->n, told->logprobs + (uint32_t)h.logprobs, x->length};
}

/* Returns a block of `size` each that has room for so many more: it doubles. */
static void *room(void *p, size_t n, size_t more, size_t *cap, size_t size) {
  if (n + more <= *cap) return p;
  while (*cap < n + more) *cap = *cap ? 2 * *cap : 64;
  p = realloc(p, *cap * size);
  if (!p) zb_out_of_memory(*cap * size);
  return p;
}

const char *zx_copy_take(ZxCopy *c, const char *bytes, size_t n, size_t *text) {
  News h;
  const char *at = bytes + sizeof h;
  ZB_ASSERT(n >= sizeof h);
  memcpy(&h, bytes, sizeof h);
  c->id = room(c->id, c->n, h.ids, &c->idcap, sizeof *c->id);
  if (h.ids) memcpy(c->id + c->n, at, h.ids * sizeof *c->id);
  c->n += h.ids, at += h.ids * sizeof *c->id;
  put(&c->text, at, h.text);
  at += h.text;
  c->logprob = room(c->logprob, c->nlogprobs, h.logprobs, &c->logprobcap, sizeof *c->logprob);
  for (uint64_t i = 0; i < h.logprobs; i++) {
    ZxChoice *to = &c->logprob[c->nlogprobs++];
    memcpy(to, at, offsetof(ZxChoice, top));
    memcpy(to, at, size_of(to));
    at += size_of(to);
  }
  ZB_ASSERT(at == bytes + n);
  memcpy(c->finish, h.finish, sizeof c->finish);
  c->is = (ZxAnswer){.choice = h.choice,
                     .id = c->id,
                     .n = (uint32_t)c->n,
                     .nprompt = h.nprompt,
                     .logprob = c->logprob,
                     .first = (uint32_t)(c->n - c->nlogprobs),
                     .text = c->text.s ? c->text.s : "",
                     .length = c->text.len,
                     .finish = *c->finish ? c->finish : NULL,
                     .stop = h.stop};
  *text = h.text;
  return c->is.text + c->is.length - h.text;
}

void zx_copy_free(ZxCopy *c) {
  free(c->id);
  free(c->logprob);
  zb_text_free(&c->text);
  *c = (ZxCopy){0};
}
