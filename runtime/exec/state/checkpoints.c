/* One checkpoint after the other, as far as ranks must agree on it. All ranks go through the same phases
 * after the same steps, since they decide by sums and maxima over all of them:
 *
 *   nothing -> writing      zx_checkpoints_begin: a snapshot is taken, threads write
 *   writing -> publishing   no thread works any more: digests are added up, rank 0's thread writes the manifest
 *   publishing -> nothing   that is done: the checkpoint is there
 *
 * and from both to nothing where a thread has failed. */
#include "runtime/exec/state/checkpoints.h"
#include "runtime/exec/comm/watch.h"
#include "runtime/exec/state/snapshot.h"
#include "runtime/exec/state/writer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef enum { NOTHING, WRITING, PUBLISHING } Phase;

struct ZxCheckpoints {
  ZxEngine *e;
  ZxCheckpointsOptions o;
  ZxComm *c;
  int lock;     /* rank 0 */
  char run[17]; /* tells this run's unfinished folders from others' */
  ZxManifest m;
  ZxSnapshot snapshot;
  ZxWriter *writer;
  Phase phase;
  ZxCheckpointReport report; /* of the one that is written */
  double began, *halves;     /* for zx_add_digests */
  uint64_t *digest;
  ZbArena *names; /* of the one that is written */
  const char *tmp, *path;
};

/* ---- opening ---- */
static int64_t last_serial(const char *dir) {
  ZbArena *a = zb_arena_new();
  ZxCkptEntry *all;
  uint32_t n = zx_ckpt_list(a, dir, &all, NULL);
  int64_t serial = n ? all[n - 1].serial : 0;
  zb_arena_free(a);
  return serial;
}

/* Rank 0 locks the folder and names the run. */
static bool lead(ZxCheckpoints *c, ZbErr *err) {
  uint64_t x = 0;
  if ((c->lock = zx_ckpt_lock(c->o.dir, err)) < 0) return false;
  uint32_t n = zx_ckpt_clean(c->o.dir);
  if (n) printf("note: %" PRIu32 " unfinished checkpoint%s of earlier runs removed\n", n, n > 1 ? "s" : "");
  c->m.serial = last_serial(c->o.dir);
  if (getrandom(&x, sizeof x, 0) != sizeof x) x = (uint64_t)(1e9 * zb_now()) ^ (uint64_t)getpid() << 32;
  snprintf(c->run, sizeof c->run, "%016" PRIx64, x);
  return true;
}

/* A mark of rank 0's that all ranks must see, with the name of an unfinished checkpoint: it goes as those do. */
static bool share(ZxCheckpoints *c, ZbErr *err) {
  ZbText mark = {0};
  c->c->t->wait(c->c, c->c->t->broadcast(c->c, 0, c->run, sizeof c->run, 0));
  zb_text_add(&mark, "%s/step-00000000.%s.tmp", c->o.dir, c->run);
  bool ok = c->e->rank || mkdir(mark.s, 0700) == 0 || zb_out_failed(mark.s, errno, err);
  ok = zx_agree(c->c, ok);
  if (ok && access(mark.s, F_OK) < 0)
    ok = zb_fail(err, "--ckpt wants a folder that all nodes share",
                 "%s is another folder here than on rank 0's node", zb_show(c->o.dir));
  else if (ok && access(c->o.dir, W_OK) < 0) ok = zb_out_failed(c->o.dir, errno, err);
  ok = zx_agree(c->c, ok);
  if (c->e->rank == 0) rmdir(mark.s);
  zb_text_free(&mark);
  return ok;
}

static bool prepare(ZxCheckpoints *c, ZbErr *err) {
  if (!zx_contents_of(c->e, c->o.most, &c->m.c, err)) return false;
  zx_snapshot_open(c->e, &c->m.c, &c->snapshot);
  c->halves = ZB_NEWN(c->e->a, double, 2 * c->m.c.ntensors + 1);
  c->digest = ZB_NEWN(c->e->a, uint64_t, c->m.c.ntensors + 1);
  ZxWriterOptions w = {&c->e->p->layout.mesh, c->e->rank, &c->snapshot, &c->m.c, c->e->rank == 0};
  return (c->writer = zx_writer_new(&w, err)) != NULL;
}

ZxCheckpoints *zx_checkpoints_open(ZxEngine *e, const ZxCheckpointsOptions *o, ZbErr *err) {
  ZxCheckpoints *c = calloc(1, sizeof *c);
  if (!c) zb_out_of_memory(0);
  *c = (ZxCheckpoints){.e = e, .o = *o, .c = e->world, .lock = -1, .m = o->base};
  if (zx_agree(c->c, e->rank || lead(c, err)) && share(c, err) && zx_agree(c->c, prepare(c, err))) return c;
  zx_checkpoints_close(c);
  return NULL;
}

void zx_checkpoints_close(ZxCheckpoints *c) {
  if (!c) return;
  zx_writer_free(c->writer);
  if (c->phase != NOTHING && c->e->rank == 0) zx_ckpt_remove(c->tmp, NULL);
  if (c->lock >= 0) close(c->lock);
  zb_arena_free(c->names);
  free(c);
}

/* ---- one of them ---- */
bool zx_checkpoints_busy(const ZxCheckpoints *c) { return c->phase != NOTHING; }

void zx_checkpoints_begin(ZxCheckpoints *c, int64_t step) {
  ZbErr err;
  ZB_ASSERT(c->phase == NOTHING);
  c->began = zb_now();
  if (!zx_snapshot_take(c->e, &c->snapshot, &err)) zx_die(c->c, "step %" PRId64 ": %s", step, err.text);
  zb_arena_free(c->names);
  c->names = zb_arena_new();
  c->tmp = zx_ckpt_tmp(c->names, c->o.dir, step, c->run);
  c->path = zx_ckpt_path(c->names, c->o.dir, step);
  c->m.step = step;
  c->m.samples = zx_engine_samples(c->e, step);
  c->m.best = c->o.base.best;
  c->report = (ZxCheckpointReport){.step = step, .path = c->path};
  c->phase = WRITING;
  zx_writer_write(c->writer, c->tmp);
}

/* That of a step comes after its checkpoint was begun, and before it can be complete. */
void zx_checkpoints_best(ZxCheckpoints *c, const ZxBest *best) {
  c->o.base.best = *best;
  if (c->phase == WRITING && c->m.step == best->step) c->m.best = *best;
}

ZxCheckpointState zx_checkpoints_state(const ZxCheckpoints *c) {
  ZxWriterState s = zx_writer_state(c->writer);
  return (ZxCheckpointState){s == ZX_WRITER_WORKS, s == ZX_WRITER_FAILED};
}

static void add_up(ZxCheckpoints *c) {
  uint32_t n = c->m.c.ntensors;
  memcpy(c->digest, zx_writer_digests(c->writer), n * sizeof *c->digest);
  zx_add_digests(c->c, c->digest, n, c->halves);
  for (uint32_t i = 0; i < n; i++) c->m.c.tensors[i].digest = c->digest[i];
  zx_add_bytes(c->c, zx_writer_bytes(c->writer), zx_writer_seconds(c->writer), &c->report.bytes,
               &c->report.most, &c->report.write);
}

/* The lowest rank that knows why says it. */
static ZxCheckpointReport give_up(ZxCheckpoints *c) {
  bool mine = zx_writer_state(c->writer) == ZX_WRITER_FAILED;
  const ZbErr *err = zx_writer_error(c->writer);
  if (zx_lowest(c->c, mine ? c->e->rank : -1) == c->e->rank)
    zx_say((int)c->e->rank, "error: checkpoint of step %" PRId64 ": %s%s%s", c->report.step, err->text,
           *err->help ? "; " : "", err->help);
  if (c->e->rank == 0) zx_ckpt_remove(c->tmp, NULL);
  c->phase = NOTHING;
  c->report.news = ZX_CKPT_FAILED;
  return c->report;
}

ZxCheckpointReport zx_checkpoints_go_on(ZxCheckpoints *c, const ZxCheckpointState *of_all) {
  ZxCheckpointReport nothing = {0};
  if (c->phase == NOTHING || of_all->working > 0) return nothing;
  if (of_all->failed > 0) return give_up(c);
  if (c->phase == WRITING) {
    add_up(c);
    c->m.serial++;
    c->phase = PUBLISHING;
    if (c->e->rank == 0) zx_writer_publish(c->writer, &c->m, c->tmp, c->path, c->o.dir, c->o.keep);
    return nothing;
  }
  c->phase = NOTHING;
  c->report.news = ZX_CKPT_SAVED;
  c->report.seconds = zb_now() - c->began;
  return c->report;
}

ZxCheckpointReport zx_checkpoints_wait(ZxCheckpoints *c) {
  ZxCheckpointReport r = {0};
  while (c->phase != NOTHING) {
    ZxCheckpointState s = zx_checkpoints_state(c);
    double most[2] = {s.working, s.failed};
    c->c->t->wait(c->c, c->c->t->all_reduce(c->c, 0, most, 2, ZK_F64, ZX_MAX));
    if (most[0] > 0) nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    r = zx_checkpoints_go_on(c, &(ZxCheckpointState){most[0], most[1]});
    zx_watch_moved(); /* a slow disk is no hang */
  }
  return r;
}
