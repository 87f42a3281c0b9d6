/* metrics.jsonl: a line of JSON a step, an evaluation and a sample. */
#define _GNU_SOURCE /* renameat2 */
#include "runtime/exec/log/sinks.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct ZxMetricsFile {
  char *name;     /* for messages */
  char *path;     /* the same, links resolved */
  ZbAppend to;    /* begun with the first line */
  int64_t before; /* as ZxLogOptions has it */
  ZbText line;
};

static const char help[] = "give another folder with --log, or make it writable";

/* ---- opening ---- */
/* Not truncated: whether there will be a first line is not known yet. A pipe without a reader is not waited
 * for. */
static int open_lines(const ZxMetricsFile *l, ZbErr *err) {
  int fd = open(l->path, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
  if (fd >= 0 && fcntl(fd, F_SETFL, O_APPEND) == 0) return fd;
  if (errno == ENXIO) zb_fail(err, help, "cannot write %s: nobody reads from it", zb_show(l->name));
  else zb_fail_errno(err, errno, help, "cannot write %s", zb_show(l->name));
  if (fd >= 0) close(fd);
  return -1;
}

ZxMetricsFile *zx_metrics_open(const char *dir, int64_t before, ZbErr *err) {
  ZxMetricsFile *l = calloc(1, sizeof *l);
  if (!l) zb_out_of_memory(0);
  ZbText path = {0};
  zb_text_add(&path, "%s/metrics.jsonl", dir);
  l->before = before;
  l->name = path.s;
  l->path = zb_resolve(l->name, err);
  l->to.fd = -1;
  int fd = l->path ? open_lines(l, err) : -1;
  if (fd >= 0) return close(fd), l;
  zx_metrics_close(l);
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
  if (!kept) zb_fail_errno(err, errno, help, "cannot keep %s as %s", zb_show(path), zb_show(to.s));
  zb_text_free(&to);
  return kept;
}

/* Returns the step of a line of n bytes; INT64_MAX where it was not written to its end, or holds the zeros that
 * file systems leave behind a power cut. */
static int64_t step_of(const char *line, size_t n) {
  long long step;
  bool whole = n && line[n - 1] == '\n' && !memchr(line, 0, n);
  return whole && sscanf(line, "{\"step\":%lld,", &step) == 1 ? step : INT64_MAX;
}

/* Cuts off the lines of steps that a resumed run repeats. */
static bool cut_old(const ZxMetricsFile *l, ZbErr *err) {
  struct stat st;
  if (stat(l->path, &st) < 0 || !S_ISREG(st.st_mode)) return true;
  FILE *f = fopen(l->path, "r+");
  char *line = NULL;
  size_t size = 0;
  off_t keep = 0;
  for (ssize_t n; f && (n = getline(&line, &size, f)) > 0 && step_of(line, (size_t)n) <= l->before;)
    keep += n;
  bool ok = f && ftruncate(fileno(f), keep) == 0;
  if (!ok) zb_fail_errno(err, errno, help, "cannot cut %s after step %" PRId64, zb_show(l->name), l->before);
  if (f) fclose(f);
  free(line);
  return ok;
}

static bool begin_lines(ZxMetricsFile *l, ZbErr *err) {
  if (l->to.fd >= 0) return true;
  if (!(l->before ? cut_old(l, err) : keep_old(l->path, err))) return false;
  return (l->to.fd = open_lines(l, err)) >= 0;
}

void zx_metrics_close(ZxMetricsFile *l) {
  if (!l) return;
  zb_append_close(&l->to);
  zb_text_free(&l->line);
  free(l->name);
  free(l->path);
  free(l);
}

/* ---- lines ---- */
static bool put_text(ZxMetricsFile *l, ZbErr *err) {
  bool begun = begin_lines(l, err);
  return zb_append(&l->to, l->name, l->line.s, l->line.len, err) && begun;
}

/* Puts a loss, say; NaN and infinity are null. */
static void put_number(ZbJson *j, const char *prefix, const char *key, double x) {
  zb_json_key(j, "%s%s", prefix, key);
  zb_json_rounded(j, NULL, 9, x);
}

static void put_known(ZbJson *j, const char *key, double x) {
  if (!(x < 0)) put_number(j, "", key, x);
}

static void put_scalars(ZbJson *j, const char *prefix, const ZxScalar *list, const void *m) {
  double x;
  for (const ZxScalar *s = list; s->key; s++)
    if (s->how == ZX_BYTE_COUNT) {
      zb_json_key(j, "%s%s", prefix, s->key);
      zb_json_count(j, NULL, *(const uint64_t *)((const char *)m + s->at));
    } else if (zx_scalar(s, m, &x)) put_number(j, prefix, s->key, x);
}

static void put_parts(ZbJson *j, const char *prefix, const ZxLossPart *part, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) put_number(j, prefix, part[i].name, part[i].value);
}

static void put_class(ZbJson *j, const ZxClassMetrics *c) {
  zb_json_object(j, NULL);
  zb_json_int(j, "stage", c->stage);
  zb_json_count(j, "planned_bytes", c->planned_bytes);
  zb_json_count(j, "used_bytes", c->used_bytes);
  put_known(j, "compute_ms", c->compute_ms);
  put_known(j, "wait_ms", c->wait_ms);
  put_known(j, "wait_max_ms", c->wait_max_ms);
  zb_json_end(j);
}

static ZbJson begin_line(ZxMetricsFile *l) {
  ZbJson j = {.text = &l->line};
  l->line.len = 0;
  zb_json_object(&j, NULL);
  return j;
}

static bool end_line(ZxMetricsFile *l, ZbJson *j, ZbErr *err) {
  zb_json_end(j);
  zb_text_add(&l->line, "\n");
  return put_text(l, err);
}

bool zx_metrics_step(ZxMetricsFile *l, const ZxMetrics *m, const ZxClassMetrics *c, int nclass, ZbErr *err) {
  ZbJson j = begin_line(l);
  zb_json_int(&j, "step", m->step);
  zb_json_int(&j, "steps", m->steps);
  put_scalars(&j, "", zx_step_scalars, m);
  put_parts(&j, "loss_", m->part, m->nparts);
  if (m->nepochs) {
    zb_json_list(&j, "epochs");
    for (uint32_t i = 0; i < m->nepochs; i++) zb_json_rounded(&j, NULL, 6, m->epochs[i]);
    zb_json_end(&j);
  }
  if (nclass) {
    zb_json_list(&j, "classes");
    for (int i = 0; i < nclass; i++) put_class(&j, &c[i]);
    zb_json_end(&j);
  }
  return end_line(l, &j, err);
}

bool zx_metrics_eval(ZxMetricsFile *l, const ZxEvalMetrics *m, ZbErr *err) {
  ZbJson j = begin_line(l);
  if (m->steps) {
    zb_json_int(&j, "step", m->step);
    zb_json_int(&j, "steps", m->steps);
  }
  zb_json_int(&j, "eval_batches", m->batches);
  put_scalars(&j, "eval_", zx_eval_scalars, m);
  put_parts(&j, "eval_loss_", m->part, m->nparts);
  if (m->steps && m->best_step >= 0) {
    put_number(&j, "", "eval_best_loss", m->best);
    zb_json_int(&j, "eval_best_step", m->best_step);
  }
  return end_line(l, &j, err);
}

bool zx_metrics_sample(ZxMetricsFile *l, const ZxSampleMetrics *m, ZbErr *err) {
  ZbJson j = begin_line(l);
  zb_json_int(&j, "step", m->step);
  zb_json_int(&j, "steps", m->steps);
  zb_json_int(&j, "sample", m->prompt);
  zb_json_string(&j, "prompt", m->asked);
  if (m->broken) zb_json_string(&j, "error", m->broken);
  else {
    zb_json_string_n(&j, "text", m->text, m->ntext);
    zb_json_int(&j, "tokens", m->tokens);
    zb_json_string(&j, "finish_reason", m->finish);
  }
  return end_line(l, &j, err);
}
