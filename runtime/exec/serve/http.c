/* HTTP by libmicrohttpd: addresses, keys, heads and bodies of requests, what is sent. Callbacks run on the library's
 * threads. */
#include "runtime/exec/serve/room.h"

#ifdef HAVE_MICROHTTPD
#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* ---- paths --------------------------------------------------------------------------------------------------- */
typedef struct {
  const char *method, *path;
  ZxEndpoint *answer; /* NULL: a job */
  ZxForm form;
  const char *type; /* of what it answers; NULL: JSON */
  bool open;        /* without a key, and while nothing is ready yet */
} Route;
static ZxEndpoint tell_health;
static const Route routes[] = {
    {"POST", "/v1/completions", NULL, ZX_COMPLETION, NULL, false},
    {"POST", "/v1/chat/completions", NULL, ZX_CHAT, NULL, false},
    {"POST", "/v1/messages", NULL, ZX_MESSAGE, NULL, false},
    {"POST", "/v1/messages/count_tokens", zx_count_tokens, ZX_MESSAGE, NULL, false},
    {"GET", "/v1/models", zx_list_models, 0, NULL, false},
    {"POST", "/tokenize", zx_tokenize, 0, NULL, false},
    {"POST", "/detokenize", zx_detokenize, 0, NULL, false},
    {"GET", "/tokenizer_info", zx_tokenizer_info, 0, NULL, false},
    {"GET", "/health", tell_health, 0, NULL, true},
    {"GET", "/metrics", zx_tell_metrics, 0, "text/plain; version=0.0.4; charset=utf-8", true},
    {"GET", "/state", zx_tell_state, 0, NULL, false},
    {"GET", "/", zx_tell_page, 0, "text/html; charset=utf-8", true},
};
enum { ROUTES = sizeof routes / sizeof *routes };

static void tell_health(ZxServer *s, const char *body, size_t n, ZbText *out, ZxRefusal *r) {
  (void)body, (void)n;
  pthread_mutex_lock(&s->lock);
  int state = s->state;
  pthread_mutex_unlock(&s->lock);
  if (state == ZX_SERVES) zb_text_add(out, "{\"status\":\"ok\"}");
  else
    zx_refuse(r, 503, NULL, "try again later",
              state == ZX_LOADING ? "the model is being loaded" : "the server is ending");
}

/* Finds what answers a request. NULL with a refusal. */
static const Route *route_of(const char *method, const char *path, ZxRefusal *r) {
  ZbText there = {0};
  const Route *of = NULL;
  if (!strcmp(method, "HEAD")) method = "GET";
  for (int i = 0; i < ROUTES; i++) {
    if (!strcmp(routes[i].path, path)) of = &routes[i];
    if (of && !strcmp(of->method, method)) return of;
    zb_text_add(&there, "%s%s %s", i ? ", " : "", routes[i].method, routes[i].path);
  }
  if (of) zx_refuse(r, 405, NULL, "", "%s takes %s, not %s", of->path, of->method, zb_show(method));
  else zx_refuse(r, 404, NULL, "", "there is no %s; there are %s", zb_show(path), there.s);
  zb_text_free(&there);
  return NULL;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */
/* A request on its way. */
typedef struct {
  const Route *route;
  ZbText body;
  ZxJob *job;
  bool refused; /* its answer is queued */
} Coming;

static enum MHD_Result queue(struct MHD_Connection *c, int status, const char *type, ZbText *t) {
  struct MHD_Response *response =
      MHD_create_response_from_buffer(t->len, t->s ? t->s : "", MHD_RESPMEM_MUST_COPY);
  zb_text_free(t);
  if (!response) return MHD_NO;
  MHD_add_response_header(response, "Content-Type", type ? type : "application/json");
  if (status == 429 || status == 503) MHD_add_response_header(response, "Retry-After", "1");
  if (status == 401) MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
  enum MHD_Result result = MHD_queue_response(c, (unsigned)status, response);
  MHD_destroy_response(response);
  return result;
}

static enum MHD_Result refuse(struct MHD_Connection *c, Coming *x, const ZxRefusal *r) {
  ZbText t = {0};
  x->refused = true;
  zx_reply_error(&t, x->route ? x->route->form : ZX_COMPLETION, r);
  return queue(c, r->status, NULL, &t);
}

/* Compares in a time that does not tell where they differ. */
static bool same_key(const char *a, const char *b) {
  size_t na = strlen(a), nb = strlen(b);
  unsigned differ = na != nb;
  for (size_t i = 0; i < nb; i++) differ |= (unsigned)((uint8_t)b[i] ^ (uint8_t)(i < na ? a[i] : 0));
  return !differ;
}

static bool may(const ZxServer *s, struct MHD_Connection *c, ZxRefusal *r) {
  const char *given = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Authorization");
  bool ok = !s->nkeys;
  if (given) given = strncmp(given, "Bearer ", 7) ? NULL : given + 7;
  else given = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "x-api-key");
  for (uint32_t i = 0; i < s->nkeys; i++) ok |= given && same_key(given, s->key[i]);
  return ok || zx_refuse(r, 401, NULL, "send Authorization: Bearer KEY", "the API key is %s",
                         given ? "not one of this server's" : "missing");
}

/* Counts bytes of bodies. False: there would be too many at once. */
static bool room_for(ZxServer *s, size_t n) {
  pthread_mutex_lock(&s->lock);
  bool ok = s->bodies + n <= ZX_BODIES_LIMIT;
  if (ok) s->bodies += n;
  pthread_mutex_unlock(&s->lock);
  return ok;
}

static void no_body(ZxServer *s, Coming *x) {
  pthread_mutex_lock(&s->lock);
  s->bodies -= x->body.len;
  pthread_mutex_unlock(&s->lock);
  zb_text_free(&x->body);
}

static bool too_large(ZxRefusal *r) {
  return zx_refuse(r, 413, NULL, "send less at once", "the body has more than %d bytes", ZX_BODY_LIMIT);
}

/* Looks at a head: who asks, for what, and how much comes. */
static bool take_head(ZxServer *s, struct MHD_Connection *c, const char *path, const char *method, Coming *x,
                      ZxRefusal *r) {
  const char *length = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Content-Length");
  x->route = route_of(method, path, r);
  if (!x->route) return false;
  if (length && strtoull(length, NULL, 10) > ZX_BODY_LIMIT) return too_large(r);
  return x->route->open || may(s, c, r);
}

static bool take_body(ZxServer *s, Coming *x, const char *data, size_t n, ZxRefusal *r) {
  if (x->body.len + n > ZX_BODY_LIMIT) return too_large(r);
  if (!room_for(s, n))
    return zx_refuse(r, 503, NULL, "try again later",
                     "other requests' bodies take all memory that there is for them");
  zb_text_put(&x->body, data, n);
  return true;
}

/* ---- answers of jobs ----------------------------------------------------------------------------------------------- */
/* Under the lock: writes why the server has failed as a job's answer. */
static void tell_failure(ZxServer *s, ZxJob *j) {
  ZxRefusal r = {0};
  zx_refuse(&r, 503, NULL, "try again later", "%s", s->failed);
  j->status = r.status;
  zx_reply_ended(&j->out, j, &r);
  j->done = true;
}

/* Gives the next bytes of a stream. */
static ssize_t read_stream(void *ctx, uint64_t at, char *to, size_t most) {
  Coming *x = ctx;
  ZxJob *j = x->job;
  ZxServer *s = j->server;
  ssize_t n = 0;
  (void)at;
  pthread_mutex_lock(&s->lock);
  if (s->failed && !j->done) tell_failure(s, j);
  size_t left = j->out.len - j->taken;
  if (j->gone) n = MHD_CONTENT_READER_END_WITH_ERROR;
  else if (left) {
    n = (ssize_t)(left < most ? left : most);
    memcpy(to, j->out.s + j->taken, (size_t)n);
    j->taken += (size_t)n;
    if (j->taken == j->out.len) j->taken = j->out.len = 0;
  } else if (j->done) n = MHD_CONTENT_READER_END_OF_STREAM;
  else zx_connection_wait(j);
  pthread_mutex_unlock(&s->lock);
  return n;
}

static enum MHD_Result begin_stream(struct MHD_Connection *c, Coming *x) {
  struct MHD_Response *response =
      MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16 << 10, read_stream, x, NULL);
  if (!response) return MHD_NO;
  MHD_add_response_header(response, "Content-Type", "text/event-stream; charset=utf-8");
  MHD_add_response_header(response, "Cache-Control", "no-cache");
  MHD_add_response_header(response, "X-Accel-Buffering", "no");
  enum MHD_Result result = MHD_queue_response(c, 200, response);
  MHD_destroy_response(response);
  return result;
}

static int socket_of(struct MHD_Connection *c) {
  const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
  return info ? info->connect_fd : -1;
}

/* Sends what a job without a stream has become. */
static enum MHD_Result end_job(ZxServer *s, struct MHD_Connection *c, ZxJob *j) {
  ZbText t = {0};
  pthread_mutex_lock(&s->lock);
  if (s->failed && !j->done) tell_failure(s, j);
  bool done = j->done && !j->gone;
  int status = j->status;
  t = j->out;
  j->out = (ZbText){0};
  pthread_mutex_unlock(&s->lock);
  if (done) return queue(c, status, NULL, &t);
  zb_text_free(&t);
  return MHD_NO;
}

static enum MHD_Result begin_job(ZxServer *s, struct MHD_Connection *c, Coming *x) {
  ZxRefusal r = {0};
  ZxJob *j = zx_request_read(s, x->route->form, x->body.s ? x->body.s : "", x->body.len, &r);
  no_body(s, x);
  if (!j) return refuse(c, x, &r);
  j->server = s;
  j->connection = c;
  j->socket = socket_of(c);
  if (!zx_job_submit(s, j, &r)) {
    zx_job_release(s, j);
    return refuse(c, x, &r);
  }
  x->job = j;
  if (j->stream) return begin_stream(c, x);
  pthread_mutex_lock(&s->lock);
  if (!j->done) zx_connection_wait(j);
  bool done = j->done;
  pthread_mutex_unlock(&s->lock);
  return done ? end_job(s, c, j) : MHD_YES;
}

static enum MHD_Result answer_now(ZxServer *s, struct MHD_Connection *c, Coming *x) {
  ZbText t = {0};
  ZxRefusal r = {0};
  x->route->answer(s, x->body.s ? x->body.s : "", x->body.len, &t, &r);
  no_body(s, x);
  if (!r.status) return queue(c, 200, x->route->type, &t);
  zb_text_free(&t);
  return refuse(c, x, &r);
}

/* ---- callbacks ------------------------------------------------------------------------------------------------------- */
static enum MHD_Result take(void *ctx, struct MHD_Connection *c, const char *path, const char *method,
                            const char *version, const char *data, size_t *n, void **coming) {
  ZxServer *s = ctx;
  Coming *x = *coming;
  ZxRefusal r = {0};
  (void)version;
  if (!x) {
    x = *coming = calloc(1, sizeof *x);
    if (!x) return MHD_NO;
    return take_head(s, c, path, method, x, &r) ? MHD_YES : refuse(c, x, &r);
  }
  if (*n) {
    size_t most = *n;
    *n = 0;
    return x->refused || take_body(s, x, data, most, &r) ? MHD_YES : refuse(c, x, &r);
  }
  if (x->refused) return MHD_YES;
  if (x->job) return end_job(s, c, x->job);
  return x->route->answer ? answer_now(s, c, x) : begin_job(s, c, x);
}

static void ended(void *ctx, struct MHD_Connection *c, void **coming, enum MHD_RequestTerminationCode why) {
  ZxServer *s = ctx;
  Coming *x = *coming;
  (void)c, (void)why;
  if (!x) return;
  *coming = NULL;
  no_body(s, x);
  if (x->job) {
    pthread_mutex_lock(&s->lock);
    if (!x->job->done) x->job->gone = true;
    x->job->waits = false;
    x->job->socket = -1;
    *x->job->open_at = x->job->open_next;
    if (x->job->open_next) x->job->open_next->open_at = x->job->open_at;
    pthread_cond_signal(&s->came);
    pthread_mutex_unlock(&s->lock);
    zx_job_release(s, x->job);
  }
  free(x);
}

/* ---- opening ------------------------------------------------------------------------------------------------------------ */
/* Reads the keys, a line each. */
static bool read_keys(ZxServer *s, const char *path, ZbErr *err) {
  FILE *f = zb_open_stream(path, err);
  char line[1024];
  if (!f) return false;
  while (fgets(line, sizeof line, f)) {
    line[strcspn(line, "\r\n")] = 0;
    const char *key = zb_strdup(s->a, line);
    if (*key) ZB_PUSH(s->a, s->key, s->nkeys, key);
  }
  fclose(f);
  return s->nkeys || zb_fail(err, "write a key into it, a line each", "%s has no key", zb_show(path));
}

typedef union {
  struct sockaddr any;
  struct sockaddr_in v4;
  struct sockaddr_in6 v6;
} Address;

static bool address_of(const ZxServing *how, Address *a, ZbErr *err) {
  const char *host = strcmp(how->host, "localhost") ? how->host : "127.0.0.1";
  *a = (Address){0};
  if (inet_pton(AF_INET, host, &a->v4.sin_addr) == 1) {
    a->v4.sin_family = AF_INET;
    a->v4.sin_port = htons((uint16_t)how->port);
    return true;
  }
  if (inet_pton(AF_INET6, host, &a->v6.sin6_addr) == 1) {
    a->v6.sin6_family = AF_INET6;
    a->v6.sin6_port = htons((uint16_t)how->port);
    return true;
  }
  return zb_fail(err, "give an address: 127.0.0.1, 0.0.0.0, ::1", "--host cannot be '%s'",
                 zb_show(how->host));
}

/* Opens a socket that listens. -1 with a message. */
static int listen_at(const ZxServing *how, Address *a, ZbErr *err) {
  int on = 1, fd;
  socklen_t n = a->any.sa_family == AF_INET6 ? sizeof a->v6 : sizeof a->v4;
  if (!address_of(how, a, err)) return -1;
  n = a->any.sa_family == AF_INET6 ? sizeof a->v6 : sizeof a->v4;
  fd = socket(a->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 && bind(fd, &a->any, n) == 0 &&
      listen(fd, 1024) == 0 && getsockname(fd, &a->any, &n) == 0)
    return fd;
  zb_fail_errno(err, errno, "give another --port; 0: any that is free", "cannot listen on %s, port %d",
                zb_show(how->host), how->port);
  if (err) err->passing = true;
  if (fd >= 0) close(fd);
  return -1;
}

static void name_address(ZxServer *s, const Address *a) {
  char host[64] = "";
  bool six = a->any.sa_family == AF_INET6;
  inet_ntop(a->any.sa_family, six ? (const void *)&a->v6.sin6_addr : &a->v4.sin_addr, host, sizeof host);
  snprintf(s->address, sizeof s->address, six ? "http://[%s]:%u" : "http://%s:%u", host,
           ntohs(six ? a->v6.sin6_port : a->v4.sin_port));
}

/* Raises the limit of open files as far as it goes; returns how many connections there may be. */
static unsigned connections(void) {
  struct rlimit r;
  if (getrlimit(RLIMIT_NOFILE, &r) < 0) return 64;
  r.rlim_cur = r.rlim_max < ZX_CONNECTIONS + 256 ? r.rlim_max : ZX_CONNECTIONS + 256;
  setrlimit(RLIMIT_NOFILE, &r);
  return r.rlim_cur >= ZX_CONNECTIONS + 256 ? ZX_CONNECTIONS
         : r.rlim_cur > 192                 ? (unsigned)r.rlim_cur - 128
                                            : 64;
}

static bool start(ZxServer *s, int fd, ZbErr *err) {
  s->daemon = MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, take,
                               s, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_NOTIFY_COMPLETED, ended, s,
                               MHD_OPTION_THREAD_POOL_SIZE, 2u, MHD_OPTION_CONNECTION_LIMIT, connections(),
                               MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)ZX_SILENCE,
                               MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)ZX_HEAD_LIMIT,
                               MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
  return s->daemon || zb_fail(err, "raise the limits of processes and files (ulimit -u, -n)",
                              "the HTTP library cannot start its threads");
}

ZxServer *zx_server_open(const ZxServing *how, ZbErr *err) {
  Address address;
  ZbArena *a = zb_arena_new();
  ZxServer *s = ZB_NEW(a, ZxServer);
  *s = (ZxServer){.how = how, .a = a, .began = zb_now(), .opened = time(NULL)};
  s->inbox_end = &s->inbox;
  s->last = &s->first;
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->came, NULL);
  int fd = how->key_file && !read_keys(s, how->key_file, err) ? -1 : listen_at(how, &address, err);
  if (fd >= 0) name_address(s, &address);
  if (fd >= 0 && start(s, fd, err)) return s;
  if (fd >= 0) close(fd);
  zx_server_close(s);
  return NULL;
}

/* Waits until all answers are sent; readers that are slow now have two seconds. */
static void let_send(ZxServer *s) {
  double until = zb_now() + 2;
  struct timespec nap = {0, 5000000};
  for (bool some = true; some && zb_now() < until;) {
    pthread_mutex_lock(&s->lock);
    some = s->open;
    pthread_mutex_unlock(&s->lock);
    if (some) nanosleep(&nap, NULL);
  }
}

void zx_server_close(ZxServer *s) {
  if (!s) return;
  zx_server_abort(s, "the server has ended");
  let_send(s);
  if (s->daemon) MHD_stop_daemon(s->daemon); /* closes the socket, too */
  for (ZxJob *next, *j = s->first; j; j = next) {
    next = j->next;
    zx_job_release(s, j);
  }
  while (s->nspare) zt_coder_free(s->spare[--s->nspare]);
  pthread_cond_destroy(&s->came);
  pthread_mutex_destroy(&s->lock);
  zb_arena_free(s->a);
}
#else
ZxServer *zx_server_open(const ZxServing *how, ZbErr *err) {
  (void)how;
  zb_fail(err, "install libmicrohttpd (Debian: libmicrohttpd-dev) and build again",
          "this build has no HTTP server");
  return NULL;
}

void zx_server_close(ZxServer *s) { (void)s; }
#endif

const char *zx_server_address(const ZxServer *s) { return s->address; }

static void set_state(ZxServer *s, int state) {
  pthread_mutex_lock(&s->lock);
  s->state = state;
  pthread_mutex_unlock(&s->lock);
}

void zx_server_ready(ZxServer *s, uint32_t slots) {
  s->served.slots = slots;
  set_state(s, ZX_SERVES);
}

void zx_server_drain(ZxServer *s) { set_state(s, ZX_DRAINS); }

bool zx_server_busy(ZxServer *s) {
  pthread_mutex_lock(&s->lock);
  bool busy = s->njobs;
  pthread_mutex_unlock(&s->lock);
  return busy;
}
