/* Comparing replicas finds whatever one of them holds otherwise, after any step and before a checkpoint, and
 * names it with the rank. While all is well it finds nothing, in no layout. */
#include "runtime/exec/saves.h"
#include "runtime/exec/state/alike.h"
#include "runtime/exec/state/slices.h"
#include "tests/unit/exec/engine/job.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <string.h>
#include <unistd.h>

TestSuite(alike, .init = scratch_make, .fini = scratch_remove);

/* A table on both ends of a pipeline, what tensor ranks split and what they hold whole, a state, dropout. */
static const char held[] = "use std.nn as nn\n"
                           "model Held {\n"
                           "  axis batch, seq = 4, embed = 8, vocab = 16, ffn = 16\n"
                           "  input tokens: index(vocab)[batch, seq]\n"
                           "  input targets: index(vocab)[batch, seq]\n"
                           "  param wte[vocab, embed] ~ normal(0.5)\n"
                           "  param scale[embed] = 1\n"
                           "  state seen[embed] = 0\n"
                           "  update seen = 0.9 * seen + 0.1 * mean[batch, seq](f32(lookup(wte, tokens)))\n"
                           "  x = nn.dropout(lookup(wte, tokens), p = 0.3) * scale + seen\n"
                           "  repeat 2 as layer {\n"
                           "    param norm[embed] = 1\n"
                           "    param up[embed, ffn], down[ffn, embed] ~ normal(0.3)\n"
                           "    x = x + dot[ffn](tanh(dot[embed](x * norm, up)), down)\n"
                           "  }\n"
                           "  loss xent[vocab](dot[embed](x, wte), targets) per known(targets)\n"
                           "}\n";
#define BASE "bind batch = 8 micro 2 "
#define ADAMW BASE "optimizer adamw(lr = 0.01) clip 0.5 "

typedef struct {
  const char *base, *layout;
  int items; /* that some other rank holds, too, in what rank `victim` holds */
} Layout;

/* ---- one bit ---- */
/* The first byte of a part of a parameter in a rank's shard; false: the rank has nothing of it. */
static bool place(const ZpPlan *p, int64_t rank, const ZpAlikeItem *i, uint64_t *at) {
  const ZpBucket *k = &p->programs.buckets[i->held->bucket];
  uint64_t n = k->elems / (uint64_t)zp_group_size(&p->layout.mesh, k->shard);
  uint64_t own = n * (uint64_t)zp_group_index(&p->layout.mesh, rank, k->shard);
  uint64_t from = own > i->slice->at ? own : i->slice->at, end = i->slice->at + i->slice->n;
  *at = from - own;
  return from < (end < own + n ? end : own + n);
}

static void flip(ZxEngine *e, const ZpAlikeItem *i, uint64_t at) {
  *(char *)zk_flat_from(zx_part(e, i->held, i->part), at).at ^= 1;
}

static const char *part_name(const ZpPlan *p, const ZpAlikeItem *i) {
  static const char *const of[] = {"(its bf16 values) ", "", "(its exp_avg) ", "(its exp_avg_sq) "};
  const ZpBucket *k = &p->programs.buckets[i->held->bucket];
  if (i->part > 0 && p->asked.average > 0 && i->part == zp_states(p, k)) return "(its average) ";
  return i->part > 0 && zp_updates_whole(p, k) ? "(its momentum_buffer) " : of[i->part + 1];
}

enum { VICTIM = 1 };

static void check_found(Player *p, const ZpAlike *kind, const ZpAlikeItem *i, const ZbErr *err) {
  bool pair = zp_alike_size(p->job->p, kind) == 2;
  const char *what = zb_printf(p->a, "step 3: replicas do not hold the same any more: %s %sof %s",
                               zx_path(p->e, i->slice->param, i->held->iter), part_name(p->job->p, i),
                               pair ? "ranks " : "rank 1 (on ");
  cr_expect(strstr(err->text, what), "no '%s' in '%s'", what, err->text);
  cr_expect_eq(!strstr(err->text, "cannot be told"), !pair, "%s", err->text);
  if (!pair) return;
  for (int k = 0; k < 2; k++) {
    char rank[24];
    snprintf(rank, sizeof rank, "%d (on ", (int)zp_alike_member(p->job->p, kind, VICTIM, k));
    cr_expect(strstr(err->text, rank), "no '%s' in '%s'", rank, err->text);
  }
}

/* Makes steps, after each of which all is well; then flips a bit of each thing that VICTIM shares with
 * others. */
static void plant(Player *p) {
  const ZpPlan *plan = p->job->p;
  int found = 0;
  uint32_t n, stage = plan->layout.mesh.pipe < 0
                          ? 0
                          : (uint32_t)zp_coord(&plan->layout.mesh, VICTIM, plan->layout.mesh.pipe);
  ZpAlike *kind = zp_alike(plan, p->a, &n);
  ZxAlike *x = zx_alike_open(p->e, &p->err);
  p->ok = x && zx_engine_init(p->e, &p->err);
  for (int k = 1; p->ok && k <= 3; k++) {
    job_steps(p, k, k);
    p->ok = p->ok && zx_alike(x, k, &p->err);
  }
  for (uint32_t k = 0; p->ok && k < n; k++) {
    uint32_t items = zp_alike_items(plan, stage, kind, n, k, NULL);
    ZpAlikeItem *item = ZB_NEWN(p->a, ZpAlikeItem, items + 1);
    zp_alike_items(plan, stage, kind, n, k, item);
    for (uint32_t i = 0; i < items; i++) {
      uint64_t at;
      ZbErr err = {0};
      if (!place(plan, VICTIM, &item[i], &at)) continue;
      if (p->rank == VICTIM) flip(p->e, &item[i], at);
      cr_expect_not(zx_alike(x, 3, &err), "%s", zx_path(p->e, item[i].slice->param, item[i].held->iter));
      check_found(p, &kind[k], &item[i], &err);
      if (p->rank == VICTIM) flip(p->e, &item[i], at);
      found++;
    }
  }
  p->ok = p->ok && zx_alike(x, 3, &p->err);
  cr_expect_eq(found, ((const Layout *)p->job->ctx)->items, "%d things of %s, %s", found,
               ((const Layout *)p->job->ctx)->base, ((const Layout *)p->job->ctx)->layout);
  cr_expect_eq(zx_alike_any(x), found > 0);
  zx_alike_close(x);
}

/* Of 9 parameters, one of which is a state, AdamW keeps two numbers more of each but that. */
static const Layout cases[] = {
    {ADAMW, "", 0},
    {ADAMW, "mesh d = 2 split batch over d", 25},
    {ADAMW "average 0.9 ", "mesh d = 4 split batch over d", 34},
    {ADAMW "precision compute bf16 ", "mesh d = 4 split batch over d", 34},
    {BASE "optimizer adamw(lr = 0.01, bits = 8) ", "mesh d = 4 split batch over d", 25},
    {ADAMW "freeze scale, up precision compute bf16 ", "mesh d = 4 split batch over d", 25},
    {BASE "optimizer adamw(lr = 0.01) optimizer muon(lr = 0.01) for up, down ",
     "mesh d = 4 split batch over d", 21},
    {ADAMW, "mesh t = 2 split ffn over t", 13},
    {ADAMW, "mesh d = 2, t = 2 split batch over d split ffn over t", 25},
    {ADAMW, "mesh d = 2, t = 2 split batch over d split ffn over t shard states over d", 13},
    {ADAMW, "mesh d = 2, t = 2 split batch over d split ffn over t shard grads, states over d", 13},
    {ADAMW, "mesh d = 2, t = 2 split batch over d split ffn over t shard params, grads, states over d", 13},
    {ADAMW, "mesh d = 2 split batch over d shard params, grads, states over d", 0},
    {ADAMW, "mesh r = 4, d = 2 split batch over r, d micro 1 shard params, grads, states over d", 9},
    {ADAMW, "mesh p = 2 stages over p = [1, 1]", 3},
    {ADAMW, "mesh p = 2, d = 2 split batch over d stages over p = [1, 1] micro 1", 16},
    {ADAMW,
     "mesh p = 2, d = 2, t = 2 split batch over d split ffn over t stages over p = [1, 1] shard states over "
     "d",
     10}};

static void check(const Model *m, const Layout *c, const ZxDeviceTable *dev) {
  Job j = job_of(m, c->base, c->layout, dev, (ZpOptions){0});
  j.ctx = (void *)(uintptr_t)c;
  job_play(&j, plant);
  job_close(&j);
}

Test(alike, each_bit_is_found_and_named) {
  Model m = job_model(NULL, held, NULL);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check(&m, &cases[i], &zx_device_cpu);
  for (size_t i = 1; i < 4; i += 2)
    check(&m, &cases[i], zx_devices[0]); /* which queues what it is asked for */
  model_close(&m);
}

/* ---- more than one ---- */
static void plant_many(Player *p) {
  uint32_t n;
  ZpAlike *kind = zp_alike(p->job->p, p->a, &n);
  ZxAlike *x = zx_alike_open(p->e, &p->err);
  p->ok = x && zx_engine_init(p->e, &p->err);
  job_steps(p, 1, 1);
  uint32_t items = zp_alike_items(p->job->p, 0, kind, n, 0, NULL);
  ZpAlikeItem *item = ZB_NEWN(p->a, ZpAlikeItem, items);
  zp_alike_items(p->job->p, 0, kind, n, 0, item);
  for (uint32_t i = 0; i < items; i++)
    if (p->rank == 2 || (p->rank == 3 && i < 1)) flip(p->e, &item[i], item[i].slice->at + 1);
  p->ok = p->ok && !zx_alike(x, 7, &p->err);
  zx_alike_close(x);
}

/* Two ranks of four that differ in the same way leave no majority; where they do not, they are named. */
Test(alike, several_ranks) {
  Model m = job_model(NULL, held, NULL);
  Job j = job_of(&m, ADAMW, "mesh d = 4 split batch over d", &zx_device_cpu, (ZpOptions){0});
  job_play(&j, plant_many);
  for (int r = 0; r < j.ranks; r++) {
    const char *text = j.player[r].err.text;
    cr_expect_str_eq(text, j.player[0].err.text);
    cr_expect(strstr(text, "and 21 more of rank 2 (on ") && strstr(text, "that of ranks 0 (on ") &&
                  strstr(text, "3 (on ") && !strstr(text, "ranks 2"),
              "%s", text);
  }
  job_close(&j);
  model_close(&m);
}

/* ---- checkpoints ---- */
typedef struct {
  ZxAlike *x;
  ZbErr err;
} Before;
static bool before(void *run, int64_t step) {
  Before *b = run;
  return zx_alike(b->x, step, &b->err);
}

/* After steps 2, 4 and at the end; a bit flips after step 3. */
static void save_some(Player *p) {
  ZxOptions o = {.ckpt_steps = 2, .quiet = true};
  Before b = {.x = zx_alike_open(p->e, &p->err)};
  ZxCheckpointsOptions c = {.dir = scratch("kept"), .most = 1000};
  c.base = (ZxManifest){.version = "1", .model = "Held", .command = "zrun", .recipe = "r"};
  p->ok = b.x && zx_engine_init(p->e, &p->err);
  ZxSaves s = {.o = &o, .rank = p->rank, .a = p->a, .before = before, .run = &b};
  s.c = zx_checkpoints_open(p->e, &c, &p->err);
  p->ok = p->ok && s.c;
  for (int k = 1; p->ok && k <= 4; k++) {
    job_steps(p, k, k);
    bool went_on = zx_saves_step(&s, k, (double[ZX_SAVES_FLAGS]){0});
    zx_saves_settle(&s);
    cr_expect_eq(went_on, k < 4, "step %d", k);
    if (k == 3 && p->rank == 1) *(uint8_t *)zx_master(p->e, &p->e->st->held[0]).f32 ^= 1;
  }
  cr_expect(strstr(b.err.text, "step 4: replicas do not hold the same"), "%s", b.err.text);
  cr_expect_not(zx_saves_end(&s, 5));
  cr_expect(s.good && strstr(s.good, "step-00000002"));
  zx_checkpoints_close(s.c);
  zx_alike_close(b.x);
}

Test(alike, no_checkpoint_of_what_differs) {
  Model m = job_model(NULL, held, NULL);
  Job j =
      job_of(&m, ADAMW, "mesh d = 2 split batch over d", &zx_device_cpu, (ZpOptions){.checkpoints = true});
  job_play(&j, save_some);
  cr_expect(access(scratch("kept/step-00000002/manifest.json"), F_OK) == 0);
  cr_expect(access(scratch("kept/step-00000004"), F_OK) != 0 &&
            access(scratch("kept/step-00000005"), F_OK) != 0);
  job_close(&j);
  model_close(&m);
}
