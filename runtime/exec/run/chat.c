/* A conversation: each line of the standard input is a message, and is answered before the next. All ranks have all of
 * it; the first one has the person. */
#include "runtime/exec/comm/watch.h"
#include "runtime/exec/run/lanes.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

typedef struct {
  const char *role, *text;
  size_t n;
} Message;
typedef struct {
  ZxRun *r;
  ZbArena *a;
  ZxAnswers *answers;
  Message *said;
  uint32_t n;
  uint64_t answered;
  double seconds; /* of answers */
  bool terminal;  /* the first rank's input is one */
  ZbText typed;   /* what was read, from `taken` on not taken yet */
  size_t taken;
  bool ended; /* nothing more can be read */
  char last;  /* what was written last */
} Talk;

/* ---- what is typed -------------------------------------------------------------------------------------------- */
/* A line of what was read, or all of it where nothing follows. */
static bool take_line(Talk *t, ZbText *out) {
  char *from = t->typed.s ? t->typed.s + t->taken : "",
       *end = t->typed.s ? memchr(from, '\n', t->typed.len - t->taken) : NULL;
  size_t left = t->typed.len - t->taken, n = end ? (size_t)(end - from) : left;
  if (!end && (!t->ended || !left)) return false;
  zb_text_put(out, from, n);
  t->taken += n + (end != NULL);
  if (t->taken < t->typed.len) return true;
  t->typed.len = t->taken = 0;
  return true;
}

typedef enum { WAITS, SAID, OVER } Heard;

/* Waits a second at most for something to read. */
static Heard hear(Talk *t, ZbText *line) {
  enum { MOST = 1 << 24 /* bytes of a message */ };
  char part[1 << 12];
  struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
  if (take_line(t, line)) return SAID;
  if (t->ended || zx_stop_wanted(&t->r->stop)) return OVER;
  zx_watch_moved();
  if (poll(&in, 1, 1000) <= 0) return zx_stop_wanted(&t->r->stop) ? OVER : WAITS;
  ssize_t n = read(STDIN_FILENO, part, sizeof part);
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return WAITS;
  if (n > 0) zb_text_put(&t->typed, part, (size_t)n);
  t->ended = n <= 0 || t->typed.len - t->taken > MOST;
  return take_line(t, line) ? SAID : t->ended ? OVER : WAITS;
}

/* Ctrl-C while nothing is answered: what was typed is forgotten. */
static bool interrupted(Talk *t) {
  if (!t->terminal || zx_stop_wanted(&t->r->stop) != SIGINT) return false;
  zx_stop_forget_interrupt();
  t->typed.len = t->taken = 0;
  fprintf(stderr, "\n(Ctrl-D ends the conversation)\n> ");
  return true;
}

/* Collective: the next line that is not empty. False: there is none. */
static bool next_line(Talk *t, ZbText *line) {
  ZxRun *r = t->r;
  int32_t heard = WAITS;
  if (!r->rank && t->terminal) fprintf(stderr, "> ");
  while (heard == WAITS ||
         (heard == SAID && !line->len)) { /* ranks that wait hear once a second that all is well */
    line->len = 0;
    if (!r->rank) heard = hear(t, line);
    if (!r->rank && heard == OVER && interrupted(t)) heard = WAITS;
    if (!r->rank && heard == SAID && line->len && line->s[line->len - 1] == '\r') line->len--;
    if (!r->rank && heard == SAID && !line->len && t->terminal) fprintf(stderr, "> ");
    zx_run_tell_all(r, &heard, sizeof heard);
    if (heard == SAID) zx_run_share_text(r, line);
    zx_watch_moved();
  }
  if (!r->rank && t->terminal && heard == OVER) fputc('\n', stderr);
  return heard == SAID;
}

/* ---- what is said ----------------------------------------------------------------------------------------------- */
static void say(Talk *t, const char *role, const char *text, size_t n) {
  Message m = {role, zb_strndup(t->a, text, n), n};
  ZB_PUSH(t->a, t->said, t->n, m);
}

/* The conversation as a query; `a` has its text. */
static ZxQuery query_of(Talk *t, ZbArena *a) {
  ZxQuery q = t->r->o.query;
  ZbText text = {0};
  ZbJson j = {.text = &text};
  zb_json_object(&j, NULL);
  zb_json_list(&j, "messages");
  for (uint32_t i = 0; i < t->n; i++) zx_run_message(&j, t->said[i].role, t->said[i].text, t->said[i].n);
  zb_json_end(&j);
  zb_json_end(&j);
  q.chat = zb_strndup(a, text.s, text.len);
  q.nchat = text.len;
  if (q.max_tokens == ZX_UNSAID) q.max_tokens = ZX_ALL_LEFT;
  zx_run_give_seed(t->r, &q, t->answered);
  zb_text_free(&text);
  return q;
}

static void show_piece(void *ctx, uint64_t number, uint32_t choice, const char *text, size_t n) {
  Talk *t = ctx;
  (void)number, (void)choice;
  if (!n || t->r->rank) return;
  fwrite(text, 1, n, stdout);
  fflush(stdout);
  t->last = text[n - 1];
}

/* Takes an answer into the conversation. One of which nothing was said takes its question along. */
static bool take_answer(Talk *t) {
  const ZxAnswered *q = zx_answers_next(t->answers);
  if (q && q->broken) return zx_run_refuse(t->r, q->broken);
  if (!q || !q->answer->length) t->n--;
  else say(t, "assistant", q->answer->text, q->answer->length);
  t->answered++;
  if (t->last != '\n') show_piece(t, 0, 0, "\n", 1);
  return true;
}

/* Ctrl-C on a terminal ends the answer, and nothing else. */
static void take_interrupt(Talk *t) {
  int32_t terminal = t->terminal;
  zx_run_tell_all(t->r, &terminal, sizeof terminal);
  if (!terminal || t->r->stopping != SIGINT) return;
  zx_stop_forget_interrupt();
  t->r->stopping = 0;
}

/* What cannot be answered is an error; a person on a terminal may say something else. */
static bool refuse(Talk *t, const ZbErr *err) {
  int32_t terminal = t->terminal;
  zx_run_tell_all(t->r, &terminal, sizeof terminal);
  if (!terminal) return zx_run_refuse(t->r, err);
  t->n--;
  if (!t->r->rank) fprintf(stderr, "error: %s%s%s\n", err->text, *err->help ? "; " : "", err->help);
  return true;
}

/* Plays a step. If it fails on one rank, others wait for it. */
static bool step(ZxRun *r, ZxAnswers *x) {
  ZbErr err = {0};
  if (zx_run_step(r, x, &err)) return true;
  if (r->replica.size > 1) zx_die(r->c, "%s", err.text);
  return zx_run_fail(r, &err);
}

static bool answer(Talk *t) {
  ZxRun *r = t->r;
  ZbErr err = {0};
  ZbArena *a = zb_arena_new();
  r->o.query.now = (int64_t)time(NULL);
  zx_run_tell_all(r, &r->o.query.now, sizeof r->o.query.now);
  ZxQuery q = query_of(t, a);
  double from = zb_now();
  t->last = '\n';
  bool ok = zx_answers_ask(t->answers, &q, t->answered, &err);
  if (!ok) {
    zb_arena_free(a);
    return refuse(t, &err);
  }
  while (ok && !zx_answers_idle(t->answers)) {
    ok = zx_run_goes_on(r, t->answers, true);
    if (ok && r->stopping) break;
    ok = ok && step(r, t->answers);
  }
  t->seconds += zb_now() - from;
  ok = ok && take_answer(t);
  zb_arena_free(a);
  if (ok && r->stopping) take_interrupt(t);
  return ok;
}

/* ---- all of it ---------------------------------------------------------------------------------------------------- */
static bool talk(Talk *t) {
  ZbText line = {0};
  bool ok = true;
  if (t->r->o.system) say(t, "system", t->r->o.system, strlen(t->r->o.system));
  while (ok && !t->r->stopping && next_line(t, &line)) {
    say(t, "user", line.s, line.len);
    ok = answer(t);
  }
  zb_text_free(&line);
  return ok;
}

bool zx_run_chat(ZxRun *r) {
  ZbErr err = {0};
  ZxAnswering how;
  Talk t = {.r = r, .terminal = !r->rank && isatty(STDIN_FILENO), .last = '\n'};
  if (!zx_run_answering_together(r, &how)) return false;
  how.piece = show_piece;
  how.ctx = &t;
  t.answers = zx_answers_new(&how, &err);
  if (!t.answers) return zx_run_refuse(r, &err);
  t.a = zb_arena_new();
  zx_watch_phase(NULL);
  bool ok = talk(&t);
  ZxCounts c = zx_answers_counts(t.answers);
  if (ok) zx_run_tell(r, &c, t.answered, t.seconds);
  if (ok) zx_run_tell_used(r, &how, 1);
  zx_answers_free(t.answers);
  zb_arena_free(t.a);
  zb_text_free(&t.typed);
  return ok;
}
