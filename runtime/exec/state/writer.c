/* The thread that writes a rank's part of a checkpoint. See writer.h.
 *
 * Every rank writes its own stretches of each tensor's bytes by pwrite, in the order in which they lie in the
 * files; what nobody has written yet is a hole. The first to need a file makes it. */
#define _GNU_SOURCE /* sync_file_range */
#include "runtime/exec/state/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 1 << 18 /* elements */, MOST_OPEN = 128 };
typedef enum { WAIT, WRITE, PUBLISH, STOP } Job;

struct ZxWriter {
  ZxWriterOptions o;
  pthread_t thread;
  bool started;
  pthread_mutex_t lock;
  pthread_cond_t called;
  Job job; /* under the lock */
  const ZxManifest *manifest;
  char *tmp, *path, *dir;
  uint32_t keep;
  _Atomic int state; /* ZxWriterState */
  atomic_bool stop;
  uint64_t *digest, bytes;
  double seconds;
  ZbErr err;
  int *fd;              /* per file; -1: it is not open */
  uint32_t nopen, file; /* file: what is written goes there */
  char *name;           /* of that file */
};

/* ---- files ---- */
static bool failed(ZxWriter *w, int code) { return zb_out_failed(w->name, code, &w->err); }

static void name_file(ZxWriter *w, uint32_t file) {
  ZbText t = {0};
  zb_text_add(&t, "%s/%s", w->tmp, w->o.contents->files[file].name);
  free(w->name);
  w->name = t.s;
}

/* All that are open. Only then is a disk waited for, which has begun with the first of them long ago. */
static bool close_files(ZxWriter *w, bool sync) {
  bool ok = true;
  for (uint32_t i = 0; w->nopen && i < w->o.contents->nfiles; i++) {
    if (w->fd[i] < 0) continue;
    name_file(w, i);
    if (ok && sync && fsync(w->fd[i]) < 0) ok = failed(w, errno);
    if (close(w->fd[i]) < 0 && ok && sync) ok = failed(w, errno);
    w->fd[i] = -1;
    w->nopen--;
  }
  return ok;
}

/* In pieces, so that a run that ends need not wait for all of it. */
static bool write_at(ZxWriter *w, const void *p, uint64_t n, uint64_t at) {
  for (const char *q = p; n;) {
    uint64_t piece = n < (8u << 20) ? n : (8u << 20);
    if (!zb_write_at(w->fd[w->file], w->name, q, piece, at, &w->err)) return false;
    q += piece;
    at += piece;
    n -= piece;
    w->bytes += piece;
    if (atomic_load_explicit(&w->stop, memory_order_relaxed)) return zb_fail(&w->err, NULL, "the run ends");
  }
  return true;
}

/* What is written from now on goes there. The one before is handed to the disk. */
static bool open_file(ZxWriter *w, uint32_t file) {
  int *fd = w->fd;
  if (w->nopen && w->file == file && fd[file] >= 0) return true;
  if (w->nopen && fd[w->file] >= 0) sync_file_range(fd[w->file], 0, 0, SYNC_FILE_RANGE_WRITE);
  if (w->nopen == MOST_OPEN && !close_files(w, true)) return false;
  w->file = file;
  name_file(w, file);
  if (fd[file] >= 0) return true;
  fd[file] = open(w->name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
  w->nopen += fd[file] >= 0;
  return fd[file] >= 0 || failed(w, errno);
}

/* ---- a rank's part ---- */
typedef struct {
  ZxWriter *w;
  const ZxPiece *piece;
} Stretch;

static bool write_stretch(void *ctx, uint64_t global, uint64_t local, uint64_t n) {
  const Stretch *s = ctx;
  const ZxCkptTensor *t = &s->w->o.contents->tensors[s->piece->tensor];
  const float *x = s->piece->at + (local - s->piece->from);
  for (uint64_t at = 0, m; at < n; at += m) { /* what was digested is in the cache when it is copied */
    m = n - at < PIECE ? n - at : PIECE;
    s->w->digest[s->piece->tensor] += zx_digest(x + at, global + at, m);
    if (!write_at(s->w, x + at, zk_bytes(ZK_F32, m), t->at + zk_bytes(ZK_F32, global + at))) return false;
  }
  return true;
}

static bool write_heads(ZxWriter *w) {
  for (uint32_t i = 0; i < w->o.contents->nfiles; i++) {
    const ZxCkptFile *f = &w->o.contents->files[i];
    if (!open_file(w, i) || !write_at(w, f->head, f->head_bytes, 0)) return false;
  }
  return true;
}

static bool write_part(ZxWriter *w) {
  if (mkdir(w->tmp, 0777) < 0 && errno != EEXIST) {
    free(w->name);
    if (!(w->name = strdup(w->tmp))) zb_out_of_memory(0);
    return failed(w, errno);
  }
  if (w->o.heads && !write_heads(w)) return false;
  for (uint32_t i = 0; i < w->o.snapshot->npieces; i++) {
    const ZxPiece *p = &w->o.snapshot->piece[i];
    Stretch s = {w, p};
    if (!open_file(w, w->o.contents->tensors[p->tensor].file) ||
        !zx_stretches(w->o.mesh, w->o.rank, p->slice, p->from, p->to, write_stretch, &s))
      return false;
  }
  return close_files(w, true);
}

static bool write_all(ZxWriter *w) {
  double from = zb_now();
  bool ok = write_part(w);
  w->seconds = zb_now() - from;
  return ok;
}

/* ---- the whole ---- */
/* Of files that others wrote on other nodes it should be seen here that they are whole. They are opened,
 * since a network's file system may remember an older size until then. */
static bool check_sizes(ZxWriter *w) {
  bool ok = true;
  for (uint32_t i = 0; ok && i < w->o.contents->nfiles; i++) {
    const ZxCkptFile *f = &w->o.contents->files[i];
    ZbText t = {0};
    uint64_t size = 0;
    zb_text_add(&t, "%s/%s", w->tmp, f->name);
    int fd = zb_open_file(t.s, false, &size, &w->err);
    ok = fd >= 0;
    if (ok && size != f->bytes)
      ok = zb_fail(&w->err, "--ckpt wants a folder that all nodes share",
                   "%s has %" PRIu64 " bytes of %" PRIu64 " that ranks wrote", zb_show(t.s), size, f->bytes);
    if (fd >= 0) close(fd);
    zb_text_free(&t);
  }
  return ok;
}

/* The oldest go, whatever their names; what cannot be removed is no failure of the one that was written. */
static void prune(const ZxWriter *w) {
  ZbArena *a = zb_arena_new();
  ZxCkptEntry *all;
  uint32_t n = zx_ckpt_list(a, w->dir, &all, NULL);
  for (uint32_t i = 0; w->keep && i + w->keep < n; i++)
    if (strcmp(all[i].path, w->path)) zx_ckpt_remove(all[i].path, NULL);
  zb_arena_free(a);
}

static bool publish(ZxWriter *w) {
  if (!check_sizes(w) || !zx_manifest_write(w->manifest, w->tmp, &w->err) ||
      !zx_ckpt_publish(w->tmp, w->path, &w->err))
    return false;
  prune(w);
  return true;
}

/* ---- the thread ---- */
static void *run(void *arg) {
  ZxWriter *w = arg;
  for (Job job; (pthread_mutex_lock(&w->lock), true);) {
    while (w->job == WAIT) pthread_cond_wait(&w->called, &w->lock);
    job = w->job;
    if (job != STOP) w->job = WAIT;
    pthread_mutex_unlock(&w->lock);
    if (job == STOP) return NULL;
    bool ok = job == WRITE ? write_all(w) : publish(w);
    if (!ok) close_files(w, false);
    atomic_store_explicit(&w->state, ok ? ZX_WRITER_DONE : ZX_WRITER_FAILED, memory_order_release);
  }
  return NULL;
}

/* Signals are the main thread's. */
static bool start(ZxWriter *w) {
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  w->started = pthread_create(&w->thread, NULL, run, w) == 0;
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  return w->started;
}

ZxWriter *zx_writer_new(const ZxWriterOptions *o, ZbErr *err) {
  ZxWriter *w = calloc(1, sizeof *w);
  if (!w || !(w->digest = calloc(o->contents->ntensors + 1, sizeof *w->digest)) ||
      !(w->fd = calloc(o->contents->nfiles + 1, sizeof *w->fd)))
    zb_out_of_memory(0);
  w->o = *o;
  for (uint32_t i = 0; i < o->contents->nfiles; i++) w->fd[i] = -1;
  pthread_mutex_init(&w->lock, NULL);
  pthread_cond_init(&w->called, NULL);
  if (start(w)) return w;
  zb_fail(err, "raise the limit (ulimit -u, ulimit -v)", "no thread for checkpoints can be started");
  err->passing = true;
  zx_writer_free(w);
  return NULL;
}

static void call(ZxWriter *w, Job job) {
  if (job != STOP) atomic_store_explicit(&w->state, ZX_WRITER_WORKS, memory_order_relaxed);
  pthread_mutex_lock(&w->lock);
  w->job = job;
  pthread_cond_signal(&w->called);
  pthread_mutex_unlock(&w->lock);
}

void zx_writer_free(ZxWriter *w) {
  if (!w) return;
  atomic_store(&w->stop, true);
  if (w->started) {
    call(w, STOP);
    pthread_join(w->thread, NULL);
  }
  pthread_cond_destroy(&w->called);
  pthread_mutex_destroy(&w->lock);
  free(w->tmp);
  free(w->path);
  free(w->dir);
  free(w->name);
  free(w->digest);
  free(w->fd);
  free(w);
}

static void set(char **to, const char *text) {
  free(*to);
  if (!(*to = strdup(text))) zb_out_of_memory(0);
}

void zx_writer_write(ZxWriter *w, const char *tmp) {
  set(&w->tmp, tmp);
  w->err = (ZbErr){0};
  w->bytes = 0;
  memset(w->digest, 0, w->o.contents->ntensors * sizeof *w->digest);
  call(w, WRITE);
}

void zx_writer_publish(ZxWriter *w, const ZxManifest *m, const char *tmp, const char *path, const char *dir,
                       uint32_t keep) {
  set(&w->tmp, tmp);
  set(&w->path, path);
  set(&w->dir, dir);
  w->manifest = m;
  w->keep = keep;
  w->err = (ZbErr){0};
  call(w, PUBLISH);
}

ZxWriterState zx_writer_state(const ZxWriter *w) {
  return (ZxWriterState)atomic_load_explicit(&w->state, memory_order_acquire);
}
const uint64_t *zx_writer_digests(const ZxWriter *w) { return w->digest; }
uint64_t zx_writer_bytes(const ZxWriter *w) { return w->bytes; }
double zx_writer_seconds(const ZxWriter *w) { return w->seconds; }
const ZbErr *zx_writer_error(const ZxWriter *w) { return &w->err; }
