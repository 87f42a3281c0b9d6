/* mail: messages between two ranks that nobody waits for at once. What is sent is copied and kept until it is gone; what
 * is to come is looked for. Of two ranks, messages of one tag arrive in the order in which they were sent. */
#ifndef ZUG_EXEC_MAIL_H
#define ZUG_EXEC_MAIL_H

#include "runtime/exec/comm/comm.h"

/* Tags apart from those of transfers within steps, which count from 0, and of rows of experts; a tag more for each
 * wave of a pipeline. */
enum {
  ZX_MAIL_TURN = 1 << 22,   /* what the ranks of a replica do in their next turn */
  ZX_MAIL_CHOSEN = 5 << 20, /* what the last stage chose */
  ZX_MAIL_ASK = 6 << 20,    /* what a replica is to answer */
  ZX_MAIL_TOLD = 7 << 20    /* what it has written */
};

/* ---- sent ---- */
typedef struct ZxMail ZxMail;
ZxMail *zx_mail_new(ZxComm *c);
void zx_mail_send(ZxMail *m, int to, int tag, const void *p, size_t bytes);
/* Waits until all is gone. */
void zx_mail_flush(ZxMail *m);
void zx_mail_free(ZxMail *m); /* NULL is allowed; all must be gone */

/* ---- to come ---- */
/* A place for messages of a rank and a tag, `bytes` each. */
typedef struct {
  ZxComm *c;
  void *p;
  size_t bytes;
  int from, tag;
  ZxRequest request;
  bool open; /* one is looked for */
} ZxInbox;
void zx_inbox_open(ZxInbox *b); /* looks for the next one */
bool zx_inbox_has(ZxInbox *b);  /* it has come */
void zx_inbox_wait(ZxInbox *b);

#endif
