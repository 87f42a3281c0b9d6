/* The command: what is measured, in order, and the file that says it. */
#include "runtime/exec/calibrate/calibrate.h"
#include "runtime/exec/comm/same.h"
#include "runtime/exec/comm/watch.h"
#include "runtime/exec/device/memory.h"
#include "runtime/exec/exit.h"

#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  const char *out;
  int threads;
} Options;

static bool threads(const char *text, int *out) {
  char *end;
  long n = strtol(text, &end, 10);
  *out = (int)n;
  return end != text && !*end && n >= 1 && n <= 1024;
}

static bool parse(int argc, char **argv, Options *o, ZbErr *err) {
  static const struct option list[] = {
      {"threads", 1, NULL, 't'}, {"hang-after", 1, NULL, 'h'}, {NULL, 0, NULL, 0}};
  double limit; /* zx_hang_after has taken it */
  *o = (Options){.threads = 1};
  optind = 2;
  opterr = 0;
  for (int k; (k = getopt_long(argc, argv, ":o:", list, NULL)) != -1;) {
    if (k == 'o') o->out = optarg;
    else if (k == 'h' && !zb_duration(optarg, &limit))
      return zb_fail(err, "10m, 90s; 0s: never", "wrong value `%s` for --hang-after", zb_show(optarg));
    else if (k == 'h') continue;
    else if (k != 't') return zb_option_failed(k, argv, list, err), false;
    else if (!threads(optarg, &o->threads)) return zb_fail(err, "", "--threads takes 1 to 1024");
  }
  return (o->out && optind == argc) ||
         zb_fail(err, "zrun calibrate -o here.zug", "calibrate wants -o FILE, and nothing else");
}

/* Collective: all ranks were given the same, and nothing that is wrong. */
static bool take_options(ZxComm *c, int argc, char **argv, ZbArena *a, Options *o) {
  ZbErr err = {0};
  ZxFacts f = {.a = a};
  int me = c->t->rank(c);
  int64_t first = zx_lowest(c, parse(argc, argv, o, &err) ? -1 : me);
  if (first == me) zx_say(me, "error: %s%s%s", err.text, *err.help ? "; " : "", err.help);
  if (first >= 0) return false;
  zx_fact(&f, ZX_OPTIONS, "-o", "%s", o->out);
  zx_fact(&f, ZX_OPTIONS, "--threads", "%d", o->threads);
  return zx_same_or_say(c, &f);
}

/* ---- the file ------------------------------------------------------------------------------------------ */
static bool is_ours(const uint8_t *head, size_t n) {
  return n == 16 && !memcmp(head, "# Measured by zr", 16);
}

static double giga(double x) { return x / 1e9; }
static double micro(double x) { return x * 1e6; }

static void add_level(ZbText *t, const char *name, const ZxLinkRates *r) {
  zb_text_add(
      t, "  level %s %d, link %.4g GB/s, sums %.4g GB/s, latency %.4g us, start %.4g us, ramp %.4g us, ",
      name, r->size, giga(r->link), giga(r->sums), micro(r->latency), micro(r->start), micro(r->ramp));
  if (r->burst > 0) zb_text_add(t, "burst %.4g KB, ", r->burst / 1e3);
  zb_text_add(t, "steal %.3g, beside %.3g # all-gather and all-reduce of five sizes, messages of 64 bytes; ",
              r->steal, r->beside);
  zb_text_add(t, "the last two: products and an all-reduce%s\n",
              r->hidden ? "; larger ones took no longer: what else runs on this machine hides their times, "
                          "calibrate again without it"
                        : "");
}

/* What a rank may have of its node's memory. */
static double memory_of_rank(const ZxMeasure *m) {
  uint64_t left = 0, swap;
  ZxRoom room;
  int ranks = 0, size = m->c->t->size(m->c);
  const int *node = m->c->t->nodes(m->c);
  for (int i = 0; i < size; i++) ranks += node[i] == node[0];
  if (!zx_room_of_machine(zx_system, &left, &swap)) return 0;
  if (zx_room_of_group(zx_system, &room) && room.left < left) left = room.left;
  return (double)left / ranks;
}

/* On a busy machine no beginning and end may show. A cluster takes no 0, which would be a constant that it
 * lacks. */
static double fill(double x) { return fmax(x, 1e-3); }

static void describe(const ZxMeasure *m, const Options *o, double memory, const ZxKernelRates *k,
                     const ZxLinkRates level[2], ZbText *t) {
  zb_text_add(t, "# Measured by zrun calibrate with %d rank%s of %d thread%s at once: %s.\n",
              m->c->t->size(m->c), m->c->t->size(m->c) > 1 ? "s" : "", o->threads, o->threads > 1 ? "s" : "",
              m->d->describe(m->env));
  zb_text_add(t, "cluster here {\n");
  if (memory > 0)
    zb_text_add(t, "  device memory %.4g GB # what was free, by the ranks of a node\n", giga(memory));
  zb_text_add(
      t,
      "  device f32 %.4g GFLOPS, bf16 %.4g GFLOPS # the best product; as fast beside it as all of bf16 are\n",
      giga(k->f32), giga(k->bf16));
  zb_text_add(t, "  device products %.3g, tile_fill %.3g # fifteen products, forward and backward\n",
              k->products, fill(k->tile_fill));
  zb_text_add(t, "  device attention %.3g, attention_f32 %.3g, attention_grad %.3g, attention_fill %.3g",
              k->attention, k->attention_f32, k->attention_grad, fill(k->attention_fill));
  zb_text_add(t, " # causal, 128 and 512 positions, 4 heads of 64\n");
  zb_text_add(t, "  device stream %.4g GB/s, cached %.4g GB/s, cache %.4g MB", giga(k->stream),
              giga(k->cached), k->cache / 1e6);
  zb_text_add(
      t, " # sums of two tensors of 16 MB; of rows and a bias, in 0.5 MB; in how much they become slower\n");
  zb_text_add(t, "  device simple %.4g GFLOPS, special %.4g GFLOPS", giga(k->simple), giga(k->special));
  zb_text_add(t, " # chains of products and sums; of exponentials and tanh\n");
  zb_text_add(t, "  device update %.4g GB/s # AdamW of 4 M parameters\n", giga(k->update));
  zb_text_add(t, "  device launch %.4g us # a sum of two tensors of 64 elements\n", micro(k->launch));
  if (level[0].size > 1) add_level(t, "node", &level[0]);
  if (level[1].size > 1) {
    if (level[0].size < 2)
      zb_text_add(t, "  level node 1, link %.4g GB/s # a rank has its node for itself\n",
                  giga(level[1].link));
    add_level(t, "nodes", &level[1]);
  }
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

/* ---- all of it ----------------------------------------------------------------------------------------- */
static bool measure(const ZxMeasure *m, const Options *o, ZbErr *err) {
  ZxKernelRates k;
  ZxTrials trials;
  ZxLinkRates level[2];
  double memory = memory_of_rank(m);
  bool ok = zx_trials_open(&trials, m, err);
  if (!zx_agree(m->c, ok)) return zx_trials_close(&trials), false;
  ok = zx_measure_kernels(&trials, &k, err);
  if (ok) zx_measure_links(&trials, k.beside, level);
  zx_trials_close(&trials);
  if (!ok || m->c->t->rank(m->c)) return zx_agree(m->c, ok);
  ZbText t = {0};
  describe(m, o, memory, &k, level, &t);
  ok = write_file(m, o->out, &t, err);
  zb_text_free(&t);
  return zx_agree(m->c, ok);
}

int zx_calibrate(ZxComm *c, int argc, char **argv, void (*look_at_threads)(ZxComm *, int)) {
  ZbErr err = {0};
  Options o;
  zx_watch_phase("measuring");
  ZkEnv env = {.pool = NULL};
  ZxMeasure m = {.a = zb_arena_new(), .c = c, .d = &zx_device_cpu, .env = &env};
  bool given = take_options(c, argc, argv, m.a, &o), opened = false, ok = false;
  if (given) given = zx_agree(c, c->t->rank(c) || zb_may_write(o.out, &kind, &err));
  if (given) {
    if (look_at_threads) look_at_threads(c, o.threads);
    env.pool = zk_pool_new(o.threads);
    opened = env.pool
                 ? m.d->open(&env, c->t->node_rank(c), &err)
                 : zb_fail(&err, "raise the limit (ulimit -u)", "%d threads cannot be started", o.threads);
    ok = zx_agree(c, opened) && measure(&m, &o, &err);
  }
  if (!ok && *err.text) zx_say(c->t->rank(c), "error: %s%s%s", err.text, *err.help ? "; " : "", err.help);
  if (opened) m.d->close(&env);
  zk_pool_free(env.pool);
  zb_arena_free(m.a);
  bool passing = zx_lowest(c, err.passing ? c->t->rank(c) : -1) >= 0;
  return !given && !passing ? ZX_EXIT_MISTAKE : ok ? ZX_EXIT_DONE : ZX_EXIT_FAILED;
}
