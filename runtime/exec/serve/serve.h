/* serve: an HTTP server in front of answers (answer/answer.h), for clients of OpenAI's API. Knows no engine and
 * no ranks: whoever writes answers asks for the next query, and tells how they come on.
 *
 *   threads of libmicrohttpd                                    the main thread
 *   http.c      heads, bodies, keys  --+                        loop.c    between two steps
 *   request.c   JSON -> queries, ids   +-- job.c: inbox ------>   hands out queries, ends those whose client left,
 *   endpoints.c what needs no step   --+                          takes what is written
 *   http.c      sends   <------------------ job.c: output <----   reply.c   JSON of texts and answers
 *                                                                 metrics.c counts
 *
 * A request is refused by the thread that read it, before it costs a step. A job's output is shared by both
 * sides and guarded by one lock, the server's; all else belongs to one of them. Slow readers hold up nobody: an
 * output grows to the size of its answer, which is bounded. The library does not watch a connection that waits
 * for a token, so the main thread looks every 20 ms which clients have left. */
#ifndef ZUG_EXEC_SERVE_H
#define ZUG_EXEC_SERVE_H

#include "runtime/exec/answer/answer.h"

typedef struct {
  const char *host;     /* an address, or "localhost" */
  int port;             /* 0: any that is free */
  const char *key_file; /* lines of keys, one of which a client must give; NULL: none is wanted */
  const char *name;     /* of the model */
  /* Names of its adapters, if it has several: they are models, and the first is meant without a name. */
  ZbTexts adapters;
  const ZxWords *words;
  uint32_t length; /* positions of a sequence */
  uint32_t queue;  /* requests that may be under way at once */
  double limit;    /* seconds that a request may take; 0: any */
} ZxServing;

typedef struct ZxServer ZxServer;
/* Listens, and answers that it is not ready yet. `how` must stay. NULL with a message: the address cannot be had, the
 * keys cannot be read, or this build has no HTTP library. */
ZxServer *zx_server_open(const ZxServing *how, ZbErr *err);
/* Ends all connections. NULL is allowed. */
void zx_server_close(ZxServer *s);
/* Returns "http://127.0.0.1:8080". */
const char *zx_server_address(const ZxServer *s);

/* From now on requests are taken; `slots` sequences run at once. */
void zx_server_ready(ZxServer *s, uint32_t slots);
/* From now on requests are refused, and those under way go on. */
void zx_server_drain(ZxServer *s);
/* Any thread: the main one will make no turn any more. All clients are told `why`, which stays, at once. */
void zx_server_fail(ZxServer *s, const char *why);
bool zx_server_busy(ZxServer *s); /* says whether requests are under way */

/* ---- the main thread's, between two steps ---- */
/* Takes requests, and sees whose client has left and what took too long. */
void zx_server_look(ZxServer *s, const ZxCounts *counts);
/* Waits for a request, a fifth of a second at most. */
void zx_server_wait(ZxServer *s);
/* Returns the query that is to be asked next, until zx_server_asked says by whom it is; NULL: there is none. It stays
 * until it is answered or refused. */
const ZxQuery *zx_server_next(const ZxServer *s, uint64_t *number);
void zx_server_asked(ZxServer *s, uint32_t lane);
/* Finds a query that was asked and that nobody waits for any more, each once. False: there is none. */
bool zx_server_leaves(ZxServer *s, uint64_t *number, uint32_t *lane);
/* Take what is new of a choice (zx_pack_news); that a query is answered, or cannot be. */
void zx_server_news(ZxServer *s, uint64_t number, uint32_t choice, const char *news, size_t n);
void zx_server_answered(ZxServer *s, uint64_t number, uint32_t prompt_tokens, uint32_t cached);
void zx_server_refused(ZxServer *s, uint64_t number, int status, const ZbErr *err);
/* Ends all requests: their clients are told `why`. */
void zx_server_abort(ZxServer *s, const char *why);

#endif
