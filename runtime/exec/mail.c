/* Messages that are kept until they are gone. */
#include "runtime/exec/mail.h"

#include <stdlib.h>
#include <string.h>

typedef struct Letter Letter;
struct Letter {
  Letter *next;
  ZxRequest request;
  char bytes[];
};

struct ZxMail {
  ZxComm *c;
  Letter *first; /* under way */
};

ZxMail *zx_mail_new(ZxComm *c) {
  ZxMail *m = zx_need(calloc(1, sizeof *m));
  m->c = c;
  return m;
}

/* Gives back what is gone. */
static void reap(ZxMail *m) {
  for (Letter **at = &m->first; *at;) {
    Letter *l = *at;
    if (!m->c->t->test(m->c, l->request)) {
      at = &l->next;
      continue;
    }
    *at = l->next;
    free(l);
  }
}

void zx_mail_send(ZxMail *m, int to, int tag, const void *p, size_t bytes) {
  reap(m);
  Letter *l = zx_need(malloc(sizeof *l + bytes));
  memcpy(l->bytes, p, bytes);
  l->request = m->c->t->send(m->c, l->bytes, bytes, to, tag);
  l->next = m->first;
  m->first = l;
}

void zx_mail_flush(ZxMail *m) {
  for (Letter *l; (l = m->first); free(l)) {
    m->c->t->wait(m->c, l->request);
    m->first = l->next;
  }
}

void zx_mail_free(ZxMail *m) {
  ZB_ASSERT(!m || !m->first);
  free(m);
}

void zx_inbox_open(ZxInbox *b) {
  ZB_ASSERT(!b->open);
  b->request = b->c->t->recv(b->c, b->p, b->bytes, b->from, b->tag);
  b->open = true;
}

bool zx_inbox_has(ZxInbox *b) {
  if (b->open && b->c->t->test(b->c, b->request)) b->open = false;
  return !b->open;
}

void zx_inbox_wait(ZxInbox *b) {
  if (b->open) b->c->t->wait(b->c, b->request);
  b->open = false;
}
