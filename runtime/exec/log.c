/* What a run says: a line a step for people, and metrics.jsonl for programs. */
#define _GNU_SOURCE /* renameat2 */
#include "runtime/exec/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct ZxLog {
  char *name;     /* of metrics.jsonl, for messages; NULL: no files */
  char *path;     /* the same, links resolved */
  FILE *f;        /* NULL before the first line */
  int64_t before; /* of a run that goes on: the step that it does so from; 0: one that begins */
  ZbText line;
};

static const char help[] = "give another folder with --log, or make it writable";

/* ---- opening ---- */
/* Makes `dir` and what is missing above it. */
static bool make_folder(const char *dir, ZbErr *err) {
  char *path = strdup(dir);
  if (!path) zb_out_of_memory(0);
  bool ok = true;
  for (char *p = path + 1; ok; p++) {
    if (*p != '/' && *p) continue;
    char c = *p;
    *p = 0;
    if (mkdir(path, 0777) < 0 && errno != EEXIST)
      ok = zb_fail(err, help, "cannot make the log folder %s: %s", zb_show(path), strerror(errno));
    *p = c;
    if (!c) break;
  }
  free(path);
  return ok;
}

/* Not truncated: whether there will be a first line is not known yet. A pipe without a reader is not waited
 * for. */
static FILE *open_lines(const ZxLog *l, ZbErr *err) {
  int fd = open(l->path, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
  FILE *f = fd < 0 || fcntl(fd, F_SETFL, O_APPEND) < 0 ? NULL : fdopen(fd, "a");
  if (!f)
    zb_fail(err, help, "cannot write %s: %s", zb_show(l->name),
            errno == ENXIO ? "nobody reads from it" : strerror(errno));
  if (!f && fd >= 0) close(fd);
  return f;
}

ZxLog *zx_log_open(const char *dir, int64_t before, ZbErr *err) {
  ZxLog *l = calloc(1, sizeof *l);
  if (!l) zb_out_of_memory(0);
  l->before = before;
  if (!dir) return l;
  if (!*dir) zb_fail(err, NULL, "the log folder has no name");
  else if (make_folder(dir, err)) {
    ZbText path = {0};
    zb_text_add(&path, "%s/metrics.jsonl", dir);
    l->name = path.s;
    l->path = zb_resolve(l->name, err);
    FILE *f = l->path ? open_lines(l, err) : NULL;
    if (f) return fclose(f), l;
  }
  zx_log_close(l);
  return NULL;
}

/* A file of an earlier run gets the first free number behind its name. */
static bool keep_old(const char *path, ZbErr *err) {
  struct stat st;
  if (stat(path, &st) < 0 || !S_ISREG(st.st_mode) || !st.st_size) return true;
  ZbText to = {0};
  bool kept = false, more = true;
  for (int i = 1; !kept && more; i++) {
    to.len = 0;
    zb_text_add(&to, "%s.%d", path, i);
    kept = renameat2(AT_FDCWD, path, AT_FDCWD, to.s, RENAME_NOREPLACE) == 0;
    more = !kept && errno == EEXIST;
    if (kept || more || (errno != EINVAL && errno != ENOSYS)) continue;
    more = lstat(to.s, &st) == 0; /* a file system that cannot do both at once */
    kept = !more && rename(path, to.s) == 0;
  }
  if (!kept) zb_fail(err, help, "cannot keep %s as %s: %s", zb_show(path), zb_show(to.s), strerror(errno));
  zb_text_free(&to);
  return kept;
}

/* The step of a line; INT64_MAX: it is none, as one that was not written to its end. */
static int64_t step_of(const char *line) {
  long long step;
  return line[strlen(line) - 1] == '\n' && sscanf(line, "{\"step\":%lld,", &step) == 1 ? step : INT64_MAX;
}

/* Of a run that goes on: cuts off the lines of steps that are made again. */
static bool cut_old(const ZxLog *l, ZbErr *err) {
  struct stat st;
  if (stat(l->path, &st) < 0 || !S_ISREG(st.st_mode)) return true;
  FILE *f = fopen(l->path, "r+");
  char *line = NULL;
  size_t size = 0;
  off_t keep = 0;
  for (ssize_t n; f && (n = getline(&line, &size, f)) > 0 && step_of(line) <= l->before;) keep += n;
  bool ok = f && ftruncate(fileno(f), keep) == 0;
  if (!ok)
    zb_fail(err, help, "cannot cut %s after step %" PRId64 ": %s", zb_show(l->name), l->before,
            strerror(errno));
  if (f) fclose(f);
  free(line);
  return ok;
}

static bool begin_lines(ZxLog *l, ZbErr *err) {
  return l->f || ((l->before ? cut_old(l, err) : keep_old(l->path, err)) && (l->f = open_lines(l, err)));
}

void zx_log_close(ZxLog *l) {
  if (!l) return;
  if (l->f) fclose(l->f); /* every line was flushed, and its failure told */
  zb_text_free(&l->line);
  free(l->name);
  free(l->path);
  free(l);
}

/* ---- lines ---- */
/* JSON has no NaN or infinity: a loss that went that way is null. */
static void put_always(ZbText *t, const char *key, double x) {
  if (isfinite(x)) zb_text_add(t, ",\"%s\":%.9g", key, x);
  else zb_text_add(t, ",\"%s\":null", key);
}

static void put_known(ZbText *t, const char *key, double x) {
  if (!(x < 0)) put_always(t, key, x);
}

/* The line, to the file; to people. */
static bool put_text(ZxLog *l, ZbErr *err) {
  if (fwrite(l->line.s, 1, l->line.len, l->f) == l->line.len && fflush(l->f) == 0) return true;
  return zb_out_failed(l->name, errno, err);
}

static bool say_text(ZxLog *l, ZbErr *err) {
  if (fwrite(l->line.s, 1, l->line.len, stdout) == l->line.len && fflush(stdout) == 0) return true;
  return zb_fail(err, NULL, "cannot write to the standard output: %s", strerror(errno));
}

static bool put_json(ZxLog *l, const ZxMetrics *m, const ZxClassMetrics *c, int nclass, ZbErr *err) {
  ZbText *t = &l->line;
  t->len = 0;
  zb_text_add(t, "{\"step\":%" PRId64 ",\"steps\":%" PRId64, m->step, m->steps);
  put_always(t, "loss", m->loss);
  put_known(t, "grad_norm", m->grad_norm);
  put_known(t, "lr", m->lr);
  put_known(t, "tokens", m->tokens);
  put_known(t, "step_ms", m->step_ms);
  put_known(t, "tokens_per_s", m->tokens_per_s);
  put_known(t, "flops", m->flops);
  put_known(t, "peak_share", m->peak_share);
  put_known(t, "bubble", m->bubble);
  put_known(t, "wait_ms", m->wait_ms);
  put_known(t, "wait_max_ms", m->wait_max_ms);
  zb_text_add(t, ",\"planned_bytes\":%" PRIu64 ",\"used_bytes\":%" PRIu64, m->planned_bytes, m->used_bytes);
  for (uint32_t i = 0; i < m->nepochs; i++) zb_text_add(t, "%s%.6g", i ? "," : ",\"epochs\":[", m->epochs[i]);
  if (m->nepochs) zb_text_add(t, "]");
  for (int i = 0; i < nclass; i++) {
    zb_text_add(t, "%s{\"stage\":%d,\"planned_bytes\":%" PRIu64 ",\"used_bytes\":%" PRIu64,
                i ? "," : ",\"classes\":[", c[i].stage, c[i].planned_bytes, c[i].used_bytes);
    put_known(t, "compute_ms", c[i].compute_ms);
    put_known(t, "wait_ms", c[i].wait_ms);
    put_known(t, "wait_max_ms", c[i].wait_max_ms);
    zb_text_add(t, "}");
  }
  zb_text_add(t, "%s}\n", nclass ? "]" : "");
  return put_text(l, err);
}

/* "step  12/100  loss 3.1416  grad 0.52  lr 3.0e-04  41.2k tok/s  83 ms  41% peak  12.3 of 12.3 MB" */
static bool put_line(ZxLog *l, const ZxMetrics *m, ZbErr *err) {
  ZbText *t = &l->line;
  int width = snprintf(NULL, 0, "%" PRId64, m->steps);
  char used[24], planned[24];
  t->len = 0;
  zb_text_add(t, "step %*" PRId64 "/%" PRId64 "  loss %.4f", width, m->step, m->steps, zb_plain_nan(m->loss));
  if (!(m->grad_norm < 0)) zb_text_add(t, "  grad %.3g", zb_plain_nan(m->grad_norm));
  if (!(m->lr < 0)) zb_text_add(t, "  lr %.2e", m->lr);
  if (m->tokens_per_s >= 0) zb_text_add(t, "  %.0f tok/s", m->tokens_per_s);
  if (m->step_ms >= 0)
    zb_text_add(t, "  %.*f ms", m->step_ms < 10 ? 2 : m->step_ms < 100 ? 1 : 0, m->step_ms);
  if (m->peak_share >= 0) zb_text_add(t, "  %.0f%% of peak", 100 * m->peak_share);
  if (m->bubble >= 0) zb_text_add(t, "  %.0f%% idle", 100 * m->bubble);
  if (m->planned_bytes)
    zb_text_add(t, "  %s of %s", zb_bytes(used, m->used_bytes), zb_bytes(planned, m->planned_bytes));
  zb_text_add(t, "\n");
  return say_text(l, err);
}

bool zx_log_step(ZxLog *l, const ZxMetrics *m, const ZxClassMetrics *c, int nclass, ZbErr *err) {
  return put_line(l, m, err) && (!l->name || (begin_lines(l, err) && put_json(l, m, c, nclass, err)));
}

/* ---- evaluations ---- */
static bool put_eval_json(ZxLog *l, const ZxEvalMetrics *m, ZbErr *err) {
  ZbText *t = &l->line;
  t->len = 0;
  zb_text_add(t, "{");
  if (m->steps) zb_text_add(t, "\"step\":%" PRId64 ",\"steps\":%" PRId64 ",", m->step, m->steps);
  zb_text_add(t, "\"eval_batches\":%" PRId64, m->batches);
  put_always(t, "eval_loss", m->loss);
  put_known(t, "eval_perplexity", m->perplexity);
  put_always(t, "eval_tokens", m->tokens);
  put_known(t, "eval_ms", m->ms);
  if (m->steps && m->best_step >= 0) {
    put_always(t, "eval_best_loss", m->best);
    zb_text_add(t, ",\"eval_best_step\":%" PRId64, m->best_step);
  }
  zb_text_add(t, "}\n");
  return put_text(l, err);
}

/* "eval  12/100  loss 3.1416  perplexity 23.14  4096 targets  83 ms  best 3.1416 after step 12" */
static bool put_eval_line(ZxLog *l, const ZxEvalMetrics *m, ZbErr *err) {
  ZbText *t = &l->line;
  int width = snprintf(NULL, 0, "%" PRId64, m->steps);
  t->len = 0;
  zb_text_add(t, "eval");
  if (m->steps) zb_text_add(t, " %*" PRId64 "/%" PRId64, width, m->step, m->steps);
  zb_text_add(t, "  loss %.4f", zb_plain_nan(m->loss));
  if (!(m->perplexity < 0)) zb_text_add(t, "  perplexity %.5g", zb_plain_nan(m->perplexity));
  if (!(m->perplexity < 0)) zb_text_add(t, "  %.10g targets", m->tokens);
  zb_text_add(t, "  %.*f ms", m->ms < 10 ? 2 : m->ms < 100 ? 1 : 0, m->ms);
  if (m->steps && m->best_step >= 0) zb_text_add(t, "  best %.4f after step %" PRId64, m->best, m->best_step);
  zb_text_add(t, "\n");
  return say_text(l, err);
}

bool zx_log_eval(ZxLog *l, const ZxEvalMetrics *m, ZbErr *err) {
  return put_eval_line(l, m, err) && (!l->name || (begin_lines(l, err) && put_eval_json(l, m, err)));
}
