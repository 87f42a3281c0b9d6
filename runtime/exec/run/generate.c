/* Answers to prompts: those of options go to the standard output as they come, those of lines to a file, in order. */
#include "runtime/exec/comm/watch.h"
#include "runtime/exec/exit.h"
#include "runtime/exec/run/lanes.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void zx_run_give_seed(const ZxRun *r, ZxQuery *q, uint64_t number) {
  if (q->seed == ZX_UNSAID) q->seed = (int64_t)(zb_random_u64(r->prompts.seed, 0, number) >> 1);
}

void zx_run_tell(const ZxRun *r, const ZxCounts *c, uint64_t answers, double seconds) {
  if (r->o.quiet || r->rank || !answers) return;
  fprintf(stderr, "%" PRIu64 " tokens of prompts, %" PRIu64 " written in %.3f s: %.1f tokens/s",
          c->prompt_tokens, c->answer_tokens, seconds, seconds > 0 ? (double)c->answer_tokens / seconds : 0);
  if (c->cached_tokens) fprintf(stderr, "; %" PRIu64 " more tokens of prompts were shared", c->cached_tokens);
  if (c->drafts)
    fprintf(stderr, "; %" PRIu64 " of %" PRIu64 " draft tokens were right", c->right_drafts, c->drafts);
  fputc('\n', stderr);
}

/* Says why a query cannot be answered: message, and behind its end what helps. */
static bool refuse(ZxRun *r, const char *text, const char *name, uint64_t line) {
  ZbErr err = {0};
  const char *help = text + strlen(text) + 1;
  if (name) zb_fail(&err, help, "%s:%" PRIu64 ": %s", zb_show(name), line, text);
  else zb_fail(&err, help, "%s", text);
  return zx_run_refuse(r, &err);
}

/* ---- texts as they come ---------------------------------------------------------------------------------------- */
/* Texts are shown one after the other, by prompts and choices. One comes as it is made; others wait. */
typedef struct {
  ZxCopy copy;
  ZbText waits;
  bool done;
} Shown;
typedef struct {
  ZxRun *r;
  Shown *text; /* [prompt][choice] */
  uint32_t n, choices, at;
  uint32_t asked, answered; /* prompts */
  bool begun;               /* `at` has its head */
  char last;                /* what was written last */
} Screen;

static void put(Screen *s, const char *text, size_t n) {
  if (!n) return;
  fwrite(text, 1, n, stdout);
  fflush(stdout);
  s->last = text[n - 1];
}

static void put_head(Screen *s) {
  if (s->n > 1) {
    printf("%s==> prompt %u", s->at ? "\n" : "", s->at / s->choices + 1);
    if (s->choices > 1) printf(", choice %u", s->at % s->choices + 1);
    printf(" <==\n");
  }
  s->begun = true;
  s->last = '\n';
}

static void show_piece(Screen *s, uint32_t i, const char *text, size_t n) {
  if (i != s->at) {
    zb_text_put(&s->text[i].waits, text, n);
    return;
  }
  if (!s->begun) put_head(s);
  put(s, text, n);
}

/* Ends a text, and shows those that waited for it. Its table of log-probabilities goes behind it. */
static void end_text(Screen *s, uint32_t i, const char *table, size_t n) {
  Shown *x = &s->text[i];
  if (s->at == i ? s->last != '\n' : !x->waits.len || x->waits.s[x->waits.len - 1] != '\n')
    zb_text_put(&x->waits, "\n", 1);
  if (n) zb_text_put(&x->waits, table, n);
  x->done = true;
  while (s->at < s->n && s->text[s->at].done) {
    Shown *next = &s->text[s->at];
    if (!s->begun) put_head(s);
    put(s, next->waits.s, next->waits.len);
    zb_text_free(&next->waits);
    s->at++;
    s->begun = false;
    if (s->at < s->n && s->text[s->at].waits.len) {
      put_head(s);
      put(s, s->text[s->at].waits.s, s->text[s->at].waits.len);
      s->text[s->at].waits.len = 0;
    }
  }
}

static bool next_text(void *ctx, ZxNext *next) {
  const Screen *s = ctx;
  *next = (ZxNext){.number = s->asked, .choices = s->choices};
  return s->asked < s->r->prompts.nqueries;
}
static void took_text(void *ctx, uint32_t lane) {
  (void)lane;
  ((Screen *)ctx)->asked++;
}

/* Takes what is new of a text. */
static void take_news(Screen *s, uint32_t i, const char *news, size_t n) {
  ZxCopy *c = &s->text[i].copy;
  ZbText table = {0};
  const char *text = zx_copy_take(c, news, n, &n);
  if (n) show_piece(s, i, text, n);
  if (!c->is.finish) return;
  zx_result_table(&s->r->prompts.words, &c->is, &table);
  end_text(s, i, table.s, table.len);
  zb_text_free(&table);
  zx_copy_free(c);
}

static bool take_text(void *ctx, ZxToldKind kind, uint64_t number, uint32_t choice, const char *text,
                      size_t n) {
  Screen *s = ctx;
  switch (kind) {
  case ZX_TOLD_NEWS: take_news(s, (uint32_t)number * s->choices + choice, text, n); break;
  case ZX_TOLD_RESULT: s->answered++; break;
  default: return refuse(s->r, text, NULL, 0);
  }
  return true;
}

static bool texts_done(void *ctx) {
  const Screen *s = ctx;
  return s->answered == s->r->prompts.nqueries;
}

static const ZxQuery *text_query(void *ctx, uint64_t number, const char *bytes, size_t n) {
  (void)bytes, (void)n;
  return &((Screen *)ctx)->r->prompts.query[number];
}
static void keep_text(void *ctx, uint64_t number, const ZxQuery *q) { (void)ctx, (void)number, (void)q; }

/* ---- lines ----------------------------------------------------------------------------------------------------- */
/* Results are written in the order of lines, and those that come too early wait: at most as many as `window`. */
typedef struct {
  ZxQuery query;
  ZbArena *a;
  ZbText result;
  bool done;
} Line;
typedef struct {
  ZxRun *r;
  Line *line; /* by number, modulo `window` */
  uint64_t window, asked, written;
  uint32_t choices; /* of the next line; 0: it has not been read */
} Lines;

static Line *line_of(const Lines *l, uint64_t number) { return &l->line[number % l->window]; }

/* Reads a line, which has been found right. */
static void read_line(const ZxRun *r, uint64_t number, ZbArena *a, ZxQuery *q) {
  const ZxPrompts *p = &r->prompts;
  size_t at = p->line_at[number], n;
  const char *text = zx_run_line(p, &at, &n);
  ZbErr err;
  *q = r->o.query;
  if (!zx_query_read(q, a, text, n, &err)) ZB_BUG("line %" PRIu64 ": %s", number + 1, err.text);
  zx_run_give_seed(r, q, number);
}

static bool next_line(void *ctx, ZxNext *next) {
  Lines *l = ctx;
  if (l->asked == l->r->prompts.nlines || l->asked - l->written == l->window) return false;
  if (!l->choices) {
    ZbArena *a = zb_arena_new();
    ZxQuery q;
    read_line(l->r, l->asked, a, &q);
    l->choices = (uint32_t)q.choices;
    zb_arena_free(a);
  }
  *next = (ZxNext){.number = l->asked, .choices = l->choices};
  return true;
}

static void took_line(void *ctx, uint32_t lane) {
  Lines *l = ctx;
  (void)lane;
  l->asked++;
  l->choices = 0;
}

static const ZxQuery *line_query(void *ctx, uint64_t number, const char *bytes, size_t n) {
  const Lines *l = ctx;
  (void)bytes, (void)n;
  Line *line = line_of(l, number);
  ZB_ASSERT(!line->a);
  line->a = zb_arena_new();
  read_line(l->r, number, line->a, &line->query);
  return &line->query;
}

static void forget_line(void *ctx, uint64_t number, const ZxQuery *q) {
  Line *line = line_of(ctx, number);
  (void)q;
  zb_arena_free(line->a);
  line->a = NULL;
}

/* Writes results of which all before are written. */
static bool write_results(Lines *l, ZbErr *err) {
  for (Line *line; l->written < l->asked && (line = line_of(l, l->written))->done; l->written++) {
    bool ok = zx_results_add(&l->r->prompts.results, line->result.s, line->result.len, err);
    zb_text_free(&line->result);
    line->done = false;
    if (!ok) return false;
  }
  return true;
}

static bool take_result(void *ctx, ZxToldKind kind, uint64_t number, uint32_t choice, const char *text,
                        size_t n) {
  Lines *l = ctx;
  ZxRun *r = l->r;
  ZbErr err = {0};
  Line *line = line_of(l, number);
  (void)choice;
  if (kind != ZX_TOLD_RESULT) return refuse(r, text, r->o.prompts, number + 1);
  zb_text_put(&line->result, text, n);
  line->done = true;
  return write_results(l, &err) || (err.passing ? zx_run_fail(r, &err) : zx_run_refuse(r, &err));
}

static bool lines_done(void *ctx) {
  const Lines *l = ctx;
  return l->written == l->r->prompts.nlines;
}

/* Begins behind the results that are there. */
static void skip_lines(Lines *l) {
  const ZxPrompts *p = &l->r->prompts;
  l->asked = l->written = p->results.done;
  if (l->asked && !l->r->o.quiet && !l->r->rank)
    fprintf(stderr, "note: %s has %" PRIu64 " of %" PRIu64 " results: going on behind them\n",
            zb_show(p->results.path), l->asked, p->nlines);
}

/* ---- all of it -------------------------------------------------------------------------------------------------- */
static bool generate_texts(ZxRun *r) {
  uint32_t choices = (uint32_t)r->o.query.choices, n = r->prompts.nqueries * choices;
  Screen s = {.r = r, .text = ZB_NEWN(r->a, Shown, n), .n = n, .choices = choices, .last = '\n'};
  ZxDesk desk = {.ctx = &s,
                 .wants_news = true,
                 .next = next_text,
                 .took = took_text,
                 .take = take_text,
                 .done = texts_done,
                 .query = text_query,
                 .forget = keep_text};
  ZxCounts counts;
  for (uint32_t i = 0; i < r->prompts.nqueries; i++) zx_run_give_seed(r, &r->prompts.query[i], i);
  double from = zb_now();
  bool ok = zx_run_lanes(r, &desk, &counts);
  if (s.last != '\n') put(&s, "\n", 1); /* of a text that was not ended */
  if (ok && !r->stopping) zx_run_tell(r, &counts, n, zb_now() - from);
  for (uint32_t i = 0; i < n; i++) {
    zb_text_free(&s.text[i].waits);
    zx_copy_free(&s.text[i].copy);
  }
  return ok;
}

static bool generate_lines(ZxRun *r) {
  ZbErr err = {0};
  const ZpGenerating *g = &r->plan->generating;
  Lines l = {.r = r, .window = 4 * (uint64_t)(g->sequences * g->replicas) + 64};
  l.line = ZB_NEWN(r->a, Line, l.window);
  ZxDesk desk = {.ctx = &l,
                 .next = next_line,
                 .took = took_line,
                 .take = take_result,
                 .done = lines_done,
                 .query = line_query,
                 .forget = forget_line};
  ZxCounts counts;
  skip_lines(&l);
  double from = zb_now();
  uint64_t before = l.written;
  bool ok = zx_run_lanes(r, &desk, &counts);
  if (ok && l.written > before) zx_run_tell(r, &counts, l.written - before, zb_now() - from);
  for (uint64_t i = 0; i < l.window; i++) {
    zb_text_free(&l.line[i].result);
    zb_arena_free(l.line[i].a);
  }
  bool closed = zx_results_close(&r->prompts.results, &err);
  return ok && (closed || zx_run_fail(r, &err));
}

/* Ranks may have been dealt out anew since the file of results was opened: it is rank 0's. */
static bool take_results_over(ZxRun *r) {
  ZbErr err = {0};
  ZxResults *x = &r->prompts.results;
  bool ok = !r->prompts.lines || !r->rank || zx_results_close(x, &err);
  r->c->t->barrier(r->c);
  if (r->prompts.lines && !r->rank && x->fd < 0) ok = zx_results_open(x, r->a, x->path, &err);
  return zx_run_accept(r, ok, &err);
}

bool zx_run_generate(ZxRun *r) {
  ZbErr err = {0};
  ZxPrompts *p = &r->prompts;
  if (zx_run_all_there(p)) {
    if (!r->o.quiet && !r->rank)
      fprintf(stderr, "note: %s has the results of all %" PRIu64 " lines: there is nothing to do\n",
              zb_show(p->results.path), p->nlines);
    return zx_results_close(&p->results, &err) || zx_run_fail(r, &err);
  }
  if (!take_results_over(r)) return false;
  zx_watch_phase(NULL);
  bool ok = p->query ? generate_texts(r) : generate_lines(r);
  if (ok && r->stopping && !r->rank)
    fprintf(stderr, "stopped by %s; code %d: the same command may be given again\n", zx_stop_why(r->stopping),
            ZX_EXIT_AGAIN);
  return ok;
}
