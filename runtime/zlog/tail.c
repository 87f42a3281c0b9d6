/* zlog tail: follows a run. metrics.jsonl grows; is cut when the run goes on from a checkpoint, which makes
 * steps again; and is another file when a run begins in the same folder. */
#include "runtime/zlog/zlog.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PAUSE_MS = 200 };

typedef struct {
  const ZvOptions *o;
  ZvLines l;
  off_t size;    /* as far as it has been read */
  int64_t shown; /* the latest step that was printed; -1: none */
  ZbText last;   /* the line before `size`: it is there still unless the file was cut */
} Tail;

/* ---- lines for people ---- */
static void put(ZbText *t, const char *format, double x) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  if (!isnan(x)) zb_text_add(t, format, x);
#pragma GCC diagnostic pop
}

/* " (main 3.1234, aux 0.0182)": what the loss is made of, where a run says it. */
static bool put_parts(const ZvLines *l, const cJSON *o, const char *loss, ZbText *t, ZbErr *err) {
  const char *name;
  double value;
  bool any = false;
  for (const cJSON *x = o->child; x; x = x->next) {
    if (!(name = zv_part(x->string, loss))) continue;
    if (!zv_number(l, o, x->string, &value, err)) return false;
    zb_text_add(t, "%s%s ", any ? ", " : " (", zb_show(name));
    if (isnan(value)) zb_text_add(t, "-");
    else zb_text_add(t, "%.4f", value);
    any = true;
  }
  if (any) zb_text_add(t, ")");
  return true;
}

/* "sample 12/100  prompt 1  the cat sat\n": prompt and text in one line. */
static bool sample_text(const ZvLines *l, const cJSON *o, ZbText *t, ZbErr *err) {
  double steps, prompt;
  if (!zv_number(l, o, "steps", &steps, err) || !zv_number(l, o, "sample", &prompt, err)) return false;
  zb_text_add(t, "sample %*" PRId64, isnan(steps) ? 0 : snprintf(NULL, 0, "%.0f", steps), l->step);
  put(t, "/%.0f", steps);
  put(t, "  prompt %.0f  ", prompt);
  const char *const key[] = {"prompt", "text", "error"};
  for (int i = 0; i < 3; i++) {
    const char *s = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, key[i]));
    if (s) zb_text_show(t, s, strlen(s));
  }
  return true;
}

static bool line_text(const ZvLines *l, const cJSON *o, ZbText *t, ZbErr *err) {
  if (cJSON_HasObjectItem(o, "sample")) return sample_text(l, o, t, err);
  bool eval = cJSON_HasObjectItem(o, "eval_batches");
  const char *const key[] = {"steps",        eval ? "eval_loss" : "loss",  "grad_norm",      "lr",
                             "tokens_per_s", eval ? "eval_ms" : "step_ms", "eval_perplexity"};
  double x[7];
  for (int i = 0; i < 7; i++)
    if (!zv_number(l, o, key[i], &x[i], err)) return false;
  zb_text_add(t, "%s %*" PRId64, eval ? "eval" : "step", isnan(x[0]) ? 0 : snprintf(NULL, 0, "%.0f", x[0]),
              l->step);
  put(t, "/%.0f", x[0]);
  zb_text_add(t, "  loss %.4f", x[1]);
  if (!put_parts(l, o, key[1], t, err)) return false;
  put(t, "  perplexity %.5g", x[6]);
  put(t, "  grad %.3g", x[2]);
  put(t, "  lr %.2e", x[3]);
  put(t, "  %.0f tok/s", x[4]);
  put(t, "  %.4g ms", x[5]);
  return true;
}

/* ---- reading ---- */
/* Whole lines from here on; the first `drop` of the file are not printed. */
static bool print_new(Tail *t, uint64_t drop, ZbErr *err) {
  ZbText text = {0};
  cJSON *o;
  off_t whole = t->size;
  bool ok = true;
  for (; ok && (o = zv_next(&t->l, err)); cJSON_Delete(o)) {
    whole = ftello(t->l.f);
    text.len = t->last.len = 0;
    zb_text_put(&t->last, t->l.line.s, t->l.line.len);
    t->shown = t->l.step;
    if (t->l.number <= drop) continue;
    ok = line_text(&t->l, o, &text, err);
    if (ok) printf("%s\n", text.s);
  }
  ok = ok && !*err->text;
  t->size = whole;
  clearerr(t->l.f);
  if (ok && fseeko(t->l.f, whole, SEEK_SET) < 0 && errno != ESPIPE)
    ok = zb_fail(err, NULL, "cannot read %s: %s", zb_show(t->l.path), strerror(errno));
  zb_text_free(&text);
  if (fflush(stdout) != 0)
    return zb_fail(err, NULL, "cannot write to the standard output: %s", strerror(errno));
  return ok;
}

static bool open_anew(Tail *t, ZbArena *a, ZbErr *err) {
  zv_lines_close(&t->l);
  t->size = 0;
  t->last.len = 0;
  return zv_lines_open(a, t->o->dir[0], &t->l, err);
}

static bool count_lines(ZvLines *l, uint64_t *n, ZbErr *err) {
  cJSON *o;
  for (; (o = zv_next(l, err)); cJSON_Delete(o)) *n = l->number;
  return !*err->text;
}

/* Whether it has been cut: it is shorter than it was, or grown again since, by other lines. */
static bool was_cut(const Tail *t, off_t size) {
  char now[512];
  const off_t n = (off_t)t->last.len, from = t->size - n - 1;
  if (size < t->size) return true;
  for (off_t i = 0; i < n;) {
    size_t part = n - i < (off_t)sizeof now ? (size_t)(n - i) : sizeof now;
    if (pread(fileno(t->l.f), now, part, from + i) != (ssize_t)part || memcmp(now, t->last.s + i, part))
      return true;
    i += (off_t)part;
  }
  return false;
}

/* Steps are made again. Of a file that has grown since nobody can tell from which one on: its last lines,
 * then. */
static bool goes_on(Tail *t, ZbArena *a, bool shorter, ZbErr *err) {
  uint64_t n = 0, want = (uint64_t)t->o->lines;
  int64_t seen = t->shown;
  if (!open_anew(t, a, err) || !count_lines(&t->l, &n, err)) return false;
  if (shorter) printf("-- cut after step %" PRId64, t->l.step < 0 ? 0 : t->l.step);
  else printf("-- cut");
  printf(": it goes on from there, and had come to %" PRId64 " --\n", seen);
  return open_anew(t, a, err) && print_new(t, shorter ? n : n > want ? n - want : 0, err);
}

/* The file that is there now: another one, of which this one may still have lines, or this one. While one
 * run's is renamed and the next one's is not there yet, there is none. */
static bool look(Tail *t, ZbArena *a, ZbErr *err) {
  struct stat now, ours;
  bool there = stat(t->l.path, &now) == 0;
  if (fstat(fileno(t->l.f), &ours) < 0)
    return zb_fail(err, NULL, "cannot look at %s: %s", zb_show(t->l.path), strerror(errno));
  if (was_cut(t, ours.st_size)) return goes_on(t, a, ours.st_size < t->size, err);
  if (!print_new(t, 0, err)) return false;
  if (!there || (now.st_ino == ours.st_ino && now.st_dev == ours.st_dev)) return true;
  printf("-- another run begins --\n");
  t->shown = -1;
  return open_anew(t, a, err) && print_new(t, 0, err);
}

ZvEnd zv_tail(const ZvOptions *o, ZbArena *a, ZbErr *err) {
  Tail t = {.o = o, .shown = -1};
  uint64_t n = 0;
  const uint64_t want = (uint64_t)o->lines;
  *err = (ZbErr){0};
  bool ok = open_anew(&t, a, err) && count_lines(&t.l, &n, err) && open_anew(&t, a, err) &&
            print_new(&t, n > want ? n - want : 0, err);
  while (ok && !o->once) {
    nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000L}, NULL);
    ok = look(&t, a, err);
  }
  zv_lines_close(&t.l);
  zb_text_free(&t.last);
  return ok ? ZV_DONE : ZV_FAILED;
}
