/* The command: measures in order, and writes the file. */
#include "runtime/exec/calibrate/calibrate.h"
#include "runtime/exec/comm/watch.h"
#include "runtime/exec/device/memory.h"
#include "runtime/exec/exit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the file ------------------------------------------------------------------------------------------ */
static bool is_ours(const uint8_t *head, size_t n) {
  return n == 16 && !memcmp(head, "# Measured by zr", 16);
}

static double giga(double x) { return x / 1e9; }
static double micro(double x) { return x * 1e6; }

static void add_level(ZbText *t, const char *name, const ZxLinkRates *r) {
  zb_text_add(t,
              "  level %s %d, link %.4g GB/s, sums %.4g GB/s, latency %.4g us, start %.4g us, ramp %.4g us "
              "# all-gather and all-reduce of five sizes, messages of 64 bytes\n",
              name, r->size, giga(r->link), giga(r->sums), micro(r->latency), micro(r->start),
              micro(r->ramp));
}

static void add_levels(ZbText *t, const ZxLinkRates level[2]) {
  if (level[0].size > 1) add_level(t, "node", &level[0]);
  if (level[1].size < 2) return;
  if (level[0].size < 2)
    zb_text_add(t, "  level node 1, link %.4g GB/s # a rank has its node for itself\n", giga(level[1].link));
  add_level(t, "nodes", &level[1]);
}

/* Returns the free bytes of this rank's node; 0: not known. */
static double memory_of_node(void) {
  uint64_t left = 0, swap;
  ZxRoom room;
  if (!zx_room_of_machine(zx_system, &left, &swap)) return 0;
  if (zx_room_of_group(zx_system, &room) && room.left < left) left = room.left;
  return (double)left;
}

typedef struct {
  double device, host; /* bytes: of a rank, of its node */
} Memory;

static Memory memory_of(const ZxMeasure *m) {
  Memory of = {.host = memory_of_node()};
  uint64_t total = 0, unused = 0;
  int ranks = 0, size = m->c->t->size(m->c);
  const int *node = m->c->t->nodes(m->c);
  for (int i = 0; i < size; i++) ranks += node[i] == node[0];
  if (m->d->memory) m->d->memory(m->env, &total, &unused);
  of.device = m->d->host ? of.host / ranks : (double)unused;
  return of;
}

/* Replaces 0, which a busy machine may give, and which in a cluster means a missing constant. */
static double least(double x) { return fmax(x, 1e-3); }

static void add_peaks(ZbText *t, const ZkRates *sheet, const ZxKernelRates *k) {
  if (sheet->bf16 > 0) {
    zb_text_add(t, "  device bf16 %.4g TFLOPS, tf32 %.4g TFLOPS, hbm %.4g GB/s, sms %g # its data sheet\n",
                sheet->bf16 / 1e12, sheet->tf32 / 1e12, giga(sheet->bytes), sheet->multiprocessors);
    zb_text_add(t, "  device f32 %.4g GFLOPS # by its products, with bf16's share of the peak\n",
                giga(k->f32));
    return;
  }
  zb_text_add(t,
              "  device f32 %.4g GFLOPS, bf16 %.4g GFLOPS # the best product; bf16: with f32's share of it\n",
              giga(k->f32), giga(k->bf16));
}

/* Many rows are measured where nothing better is known of them: not in tiles. */
static void add_weights(ZbText *t, const double *w, const char *elem, bool host) {
  zb_text_add(t, "  device weights1%s %.4g GB/s", elem, giga(w[0]));
  if (host)
    zb_text_add(t, ", weights8%s %.4g GB/s, weights16%s %.4g GB/s, weights128%s %.4g GB/s", elem, giga(w[1]),
                elem, giga(w[2]), elem, giga(w[3]));
  zb_text_add(t, " # products of so many rows in steps of generation\n");
}

static void describe(const ZxMeasure *m, int threads, const Memory *memory, const ZxKernelRates *k,
                     double upload, const ZxLinks *links, ZbText *t) {
  int ranks = m->c->t->size(m->c);
  zb_text_add(t, "# Measured by zrun calibrate with %d rank%s of %d thread%s at once: %s.\n", ranks,
              ranks > 1 ? "s" : "", threads, threads > 1 ? "s" : "", m->d->describe(m->env));
  zb_text_add(t, "cluster here {\n");
  if (memory->device > 0)
    zb_text_add(t, "  device memory %.4g GB # what was free%s\n", giga(memory->device),
                m->d->host ? ", by the ranks of a node" : "");
  add_peaks(t, &m->sheet, k);
  zb_text_add(t, "  device products %.3g, tile_fill %.3g # fifteen products, forward and backward\n",
              k->products, least(k->tile_fill));
  zb_text_add(t, "  device attention %.3g, attention_grad %.3g # causal, of two lengths\n", k->attention,
              k->attention_grad);
  zb_text_add(t, "  device stream %.4g GB/s # sums of two tensors that no cache holds\n", giga(k->stream));
  for (int e = 0; e < 2; e++) add_weights(t, k->weights[e], e ? "_bf16" : "", m->d->host);
  zb_text_add(t, "  device launch %.4g us # a sum of two tensors of 64 elements\n", micro(k->launch));
  if (ranks > 1) zb_text_add(t, "  device steal %.3g # products during an all-reduce\n", links->steal);
  if (!m->d->host && memory->host > 0)
    zb_text_add(t, "  host memory %.4g GB, link %.4g GB/s # what was free; uploads of all ranks at once\n",
                giga(memory->host), giga(upload));
  add_levels(t, links->level);
  zb_text_add(t, "}\n");
}

static const ZbKind kind = {"a cluster of zrun calibrate", is_ours};

static bool write_file(const ZxMeasure *m, const char *path, const ZbText *raw, ZbErr *err) {
  ZlSources *s = zl_sources_new(m->a);
  ZlDiags *d = zl_diags_new(m->a, s);
  ZbText text = {0};
  if (!zl_format(m->a, s, d, path, raw->s, raw->len, &text))
    ZB_BUG("calibrate wrote no cluster:\n%s", raw->s);
  bool ok = zb_write_file(path, &kind, text.s, text.len, err);
  if (ok) fputs(text.s, stdout);
  zb_text_free(&text);
  return ok;
}

/* ---- measuring ----------------------------------------------------------------------------------------- */
static bool measure(const ZxMeasure *m, int threads, const char *out) {
  ZxKernelRates k;
  ZxTrials trials;
  ZxLinks links;
  Memory memory = memory_of(m);
  bool ok = zx_measure_kernels(m, &trials, &k) && zx_measure_links(&trials, k.product, &links);
  double upload = trials.upload;
  zx_trials_close(&trials);
  if (!zx_agree(m->c, ok && !*m->err->text)) return false;
  if (m->c->t->rank(m->c) == 0) {
    ZbText t = {0};
    describe(m, threads, &memory, &k, upload, &links, &t);
    ok = write_file(m, out, &t, m->err);
    zb_text_free(&t);
  }
  return zx_agree(m->c, ok);
}

static bool open_device(ZxMeasure *m, int threads) {
  m->env->pool = zk_pool_new(threads);
  if (!m->env->pool)
    return zb_fail(m->err, "raise the limit (ulimit -u)", "%d threads cannot be started", threads);
  if (!m->d->open(m->env, m->c->t->node_rank(m->c), m->err)) return false;
  if (m->d->rates) m->d->rates(m->env, &m->sheet);
  return true;
}

int zx_calibrate(ZxComm *c, const ZxDeviceTable *d, int threads, const char *out,
                 void (*look_at_threads)(ZxComm *, int)) {
  ZbErr err = {0};
  zx_watch_phase("measuring");
  ZkEnv env = {.pool = NULL};
  ZxMeasure m = {.a = zb_arena_new(), .c = c, .d = d, .env = &env, .err = &err};
  bool opened = false, ok = false, writable = zx_agree(c, c->t->rank(c) || zb_may_write(out, &kind, &err));
  if (writable) {
    if (look_at_threads) look_at_threads(c, threads);
    opened = open_device(&m, threads);
    ok = zx_agree(c, opened) && measure(&m, threads, out);
  }
  if (!ok && *err.text) zx_say(c->t->rank(c), "error: %s%s%s", err.text, *err.help ? "; " : "", err.help);
  if (opened) m.d->close(&env);
  zk_pool_free(env.pool);
  zb_arena_free(m.a);
  bool passing = zx_lowest(c, err.passing ? c->t->rank(c) : -1) >= 0;
  return !writable && !passing ? ZX_EXIT_MISTAKE : ok ? ZX_EXIT_DONE : ZX_EXIT_FAILED;
}
