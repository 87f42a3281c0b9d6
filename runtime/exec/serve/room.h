/* What the files of serve/ share. */
#ifndef ZUG_EXEC_SERVE_ROOM_H
#define ZUG_EXEC_SERVE_ROOM_H

#include "runtime/exec/serve/calls.h"
#include "runtime/exec/serve/serve.h"

#include <cjson/cJSON.h>
#include <pthread.h>

enum {
  ZX_BODY_LIMIT = 8 << 20,     /* bytes of a request's body */
  ZX_BODIES_LIMIT = 256 << 20, /* of all bodies at once */
  ZX_PROMPTS = 2048,           /* of a request */
  ZX_HEAD_LIMIT = 64 << 10,    /* bytes of a request's head */
  ZX_CONNECTIONS = 1024,
  ZX_SILENCE = 60 /* seconds in which a client neither sends nor takes anything */
};

/* Why a request is not done. */
typedef struct {
  int status;     /* of HTTP; 0: nothing is wrong */
  char param[48]; /* the field at fault; empty: none */
  ZbErr err;
} ZxRefusal;
/* Sets it, with a message. Returns false. */
bool zx_refuse(ZxRefusal *r, int status, const char *param, const char *help, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* Writes its message and remedy as one text, to be freed. */
ZbText zx_refusal_text(const ZxRefusal *r);
/* Takes the message that is in r->err. Returns false. */
bool zx_refuse_field(ZxRefusal *r, const char *param);

/* ---- jobs ----------------------------------------------------------------------------------------------- */
typedef enum { ZX_COMPLETION, ZX_CHAT, ZX_MESSAGE } ZxForm;
typedef struct ZxJob ZxJob;
/* What was sent of a choice. */
typedef struct {
  bool begun;
  uint32_t tokens; /* with their log-probabilities */
  uint64_t offset; /* characters of these */
  size_t content;  /* with tools: bytes of what is not of a call, */
  uint32_t calls;  /* and calls */
  uint32_t blocks; /* of /v1/messages: those that were begun */
  bool open;       /* the last of them is text, and not ended */
} ZxSent;
/* A prompt of a request. */
typedef struct {
  ZxJob *job;
  uint32_t index;
  ZxQuery query;
  ZbText choices; /* JSON, once it is answered */
  bool answered;
  uint32_t lane; /* who writes it */
  ZxCopy *copy;  /* by choice, while it is written */
  ZxSent sent[ZX_CHOICES];
} ZxPart;
struct ZxJob {
  ZxServer *server;
  ZbArena *a;
  ZxForm form;
  bool stream, usage, ids;
  bool tools;    /* calls are looked for */
  bool one_call; /* the first ends the answer; */
  bool called;   /* it is there, which the main thread knows */
  char id[40];
  int64_t created; /* seconds of the calendar */
  ZxPart *part;
  uint32_t nparts;
  /* The main thread's: */
  ZxJob *next;
  uint32_t asked, answered; /* parts */
  bool ends;                /* nobody waits for it any more: */
  uint32_t ended;           /* so many parts were looked at for that */
  uint64_t prompt_tokens, answer_tokens, cached_tokens;
  double came, first, last; /* by zb_now: the request, the first piece, the latest; 0: none yet */
  /* Shared, under the server's lock: */
  ZbText out; /* what is to be sent */
  size_t taken;
  int status; /* of HTTP */
  bool done;  /* nothing more comes */
  bool gone;  /* the client has left */
  bool waits; /* its connection is suspended */
  struct MHD_Connection *connection;
  int socket;
  int holders;                 /* threads that know it: freed by the last */
  ZxJob *open_next, **open_at; /* among those whose connection has not ended */
};

/* ---- metrics -------------------------------------------------------------------------------------------- */
enum { ZX_BUCKETS = 14 };
typedef struct {
  uint64_t bucket[ZX_BUCKETS + 1], n;
  double sum;
} ZxHistogram;
typedef struct {
  ZxHistogram first, between, whole; /* seconds: to the first piece, between pieces, of a request */
  uint64_t requests[3];              /* done, refused, left */
} ZxMetrics;
void zx_histogram_add(ZxHistogram *h, double seconds);

typedef struct {
  uint32_t slots; /* sequences that run at once */
  ZxCounts of;
} ZxServed;

struct ZxServer {
  const ZxServing *how;
  char address[96];
  struct MHD_Daemon *daemon;
  const char **key;
  uint32_t nkeys;
  ZbArena *a;
  double began;
  int64_t opened; /* seconds of the calendar */

  pthread_mutex_t lock;
  pthread_cond_t came; /* a job, or a client that left */
  /* Under the lock: */
  enum { ZX_LOADING, ZX_SERVES, ZX_DRAINS } state;
  ZxJob *inbox, **inbox_end;
  uint32_t njobs;     /* under way, those of the inbox among them */
  ZxJob *open;        /* jobs whose connection has not ended */
  const char *failed; /* why nothing is answered any more; NULL */
  size_t bodies;
  ZxMetrics metrics;
  ZxServed served;
  ZtCoder *spare[8]; /* coders that no thread has now */
  uint32_t nspare;

  /* The main thread's: jobs under way, oldest first; when it looked for clients that left. */
  ZxJob *first, **last;
  double looked;
};

/* job.c */
ZxJob *zx_job_new(ZxForm form);
void zx_job_release(ZxServer *s, ZxJob *j); /* by one holder */
/* Returns the name of the model that a request is for. */
const char *zx_model_name(const ZxServer *s, const ZxJob *job);
/* Puts it into the inbox. False: there are too many. */
bool zx_job_submit(ZxServer *s, ZxJob *j, ZxRefusal *r);
/* The main thread: adds to what is sent, and wakes the connection. `done`: nothing more comes. */
void zx_job_send(ZxServer *s, ZxJob *j, const char *text, size_t n, bool done);
/* Under the lock: its client has left. */
void zx_job_forget(ZxJob *j);
void zx_job_answer(ZxServer *s, ZxJob *j, int status, const ZbText *body);
/* Borrow and give back a coder for one text. */
ZtCoder *zx_coder(ZxServer *s);
void zx_coder_back(ZxServer *s, ZtCoder *c);

/* connection.c, under the lock: has the connection wait, until it is woken. */
void zx_connection_wait(ZxJob *j);
void zx_connection_wake(ZxJob *j); /* nothing, if it does not wait */

/* What a body says, while it is read. */
typedef struct {
  ZxServer *s;
  ZxJob *j;
  ZxQuery q;
  ZxRefusal *r;
  cJSON *body;
  const cJSON *prompt, *messages, *system, *tools;
  bool no_tools, forced;   /* a tool must be called: */
  const char *forced_name; /* this one; NULL: any */
  bool logprobs;           /* of a chat */
  int64_t top;             /* of a chat; ZX_UNSAID */
} ZxReading;
/* part.c: makes a part of the ids that a query has, or of its text. False: it is refused. */
bool zx_request_part(ZxReading *x, const ZxQuery *q);
/* chat.c: makes the part of a conversation. False: it is refused. */
bool zx_request_chat(ZxReading *x);
/* forced.c: has the answer be a call of one of these tools, as chats have them. False: it is refused. */
bool zx_request_forced(ZxReading *x, const cJSON *tools);
/* request.c: makes a job of a body. NULL: it is refused. */
ZxJob *zx_request_read(ZxServer *s, ZxForm form, const char *body, size_t n, ZxRefusal *r);
/* messages.c: the messages and tools of a request as those of a chat, to be deleted. NULL: they are refused. */
cJSON *zx_messages_open(const cJSON *messages, const cJSON *system, ZxRefusal *r);
cJSON *zx_messages_tools(const cJSON *tools, ZxRefusal *r);
cJSON *zx_request_parse(const char *body, size_t n, ZxRefusal *r);

/* reply.c */
void zx_reply_error(ZbText *out, ZxForm form, const ZxRefusal *r);
/* Takes text of a choice that has become sure; its copy has it. */
void zx_reply_piece(ZxServer *s, ZxPart *p, uint32_t choice, const char *text, size_t n);
void zx_reply_answered(ZxServer *s, ZxPart *p); /* what its copies have */
/* Writes what ends a job that cannot be answered; ends it with that. */
void zx_reply_ended(ZbText *out, const ZxJob *job, const ZxRefusal *r);
void zx_reply_broken(ZxServer *s, ZxJob *j, const ZxRefusal *r);

/* ---- APIs ------------------------------------------------------------------------------------------------ */
/* What is new of a choice. */
typedef struct {
  const ZxAnswer *answer; /* all of it so far */
  const char *text;       /* content, n bytes */
  size_t n;
  const ZxCall *call;
  uint32_t ncalls, first_call; /* the number of the first */
  const char *all;             /* the text in which calls are */
  const char *finish;          /* why it ended; NULL: it goes on */
} ZxNew;
/* How an API writes replies. All but `choice` append to `out`. */
typedef struct {
  void (*event)(ZxServer *s, ZbText *out, ZxPart *p, const ZxNew *new);
  void (*last)(ZxServer *s, ZbText *out, ZxJob *j); /* events behind all choices */
  void (*broken)(ZbText *out, const ZxRefusal *r);  /* events that end a stream too early */
  void (*choice)(ZxServer *s, ZbJson *j, ZxPart *p, const ZxNew *new);
  void (*whole)(ZxServer *s, ZbText *out, ZxJob *j); /* an answer, of the choices that its parts have */
  void (*error)(ZbText *out, const ZxRefusal *r);
} ZxApi;
extern const ZxApi zx_api_completions, zx_api_chat; /* openai.c */
extern const ZxApi zx_api_messages;                 /* messages.c */

/* logprobs.c */
/* Write the log-probabilities of an answer's tokens from there on: as /v1/completions has them, `offset` being the
 * characters before them, and returning those before what comes next; and as chats have them. */
uint64_t zx_put_logprobs(const ZxWords *w, ZbJson *j, const ZxAnswer *x, uint32_t from, uint64_t offset);
void zx_put_chat_logprobs(const ZxWords *w, ZbJson *j, const ZxAnswer *x, uint32_t from);
/* job.c: writes the id of a call that is new. */
const char *zx_call_id(const ZxPart *p, const ZxNew *new, uint32_t nth, char out[64]);

/* endpoints.c: what is answered without a step. */
typedef void ZxEndpoint(ZxServer *s, const char *body, size_t n, ZbText *out, ZxRefusal *r);
ZxEndpoint zx_list_models, zx_tokenize, zx_detokenize, zx_tokenizer_info, zx_count_tokens;
ZxEndpoint zx_tell_page;
/* metrics.c */
ZxEndpoint zx_tell_metrics, zx_tell_state;

#endif
