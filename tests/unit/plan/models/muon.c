/* Muon: which matrices a model's parameters are, what of them moves, what the proofs see. */
#include "tests/unit/plan/models/plan.h"

#include <criterion/criterion.h>
#include <string.h>

static const char sizes[] = "-D layers=2 -D heads=4 -D kv_heads=2 -D width=16 -D inner=24 -D words=32";
#define BODY "bind batch = 8, seq = 16 micro 1 optimizer adamw(lr = 1) "
#define HIDDEN "for wq, wk, wv, wo, gate, up, down "

static const ZpBucket *muons(const ZpPlan *p) {
  for (uint32_t i = 0; i < p->programs.nbuckets; i++)
    if (zp_updates_whole(p, &p->programs.buckets[i])) return &p->programs.buckets[i];
  cr_assert_fail("nothing is Muon's");
  return NULL;
}

/* "wq 16x16 at 0.5": the matrices of a bucket, whose scale and who has them. */
static void put_matrices(const ZpPlan *p, ZbText *out) {
  const ZpBucket *k = muons(p);
  ZbArena *a = zb_arena_new();
  uint32_t n;
  const ZpMatrix *m = zp_matrices(p, k, a, &n);
  for (uint32_t i = 0; i < n; i++) {
    const ZpSlice *s = &k->slices[m[i].slice];
    zb_text_add(out, "%s%s.%d %dx%d *%.3f on %u", i ? ", " : "",
                strrchr(p->graph->params[s->param].path, '.') + 1, (int)m[i].index, (int)m[i].rows,
                (int)m[i].cols, zp_muon_scale(&p->asked.optimizers[k->optimizer], s), m[i].owner);
  }
  zb_arena_free(a);
}

static const struct {
  const char *recipe, *want;
  uint64_t bytes, scratch;
} cases[] = {
    /* 16 -> 2 kv x 2 grp x 4 hd; 24 is the width of the feed-forward part */
    {BODY "optimizer muon(lr = 1) " HIDDEN,
     "wq.0 16x16 *1.000 on 0, wk.0 8x16 *1.000 on 0, wv.0 8x16 *1.000 on 0, wo.0 16x16 *1.000 on 0, gate.0 "
     "24x16 "
     "*1.225 on 0, up.0 24x16 *1.225 on 0, down.0 16x24 *1.000 on 0",
     4 * 1920, 2 * 24 * 16 * 4 + 2 * 16 * 16 * 4},
    {BODY
     "optimizer muon(lr = 1, scale = rms) for gate, down mesh d = 2 split batch over d shard states over d",
     "gate.0 24x16 *0.980 on 0, down.0 16x24 *0.980 on 1", 4 * 768, 2 * 24 * 16 * 4 + 2 * 16 * 16 * 4},
    {BODY "optimizer muon(lr = 1, each = kv) for wq, wo mesh t = 2 split kv, ffn over t",
     "wq.0 8x16 *1.000 on 0, wo.0 16x8 *1.414 on 0", 4 * 256, 2 * 8 * 16 * 4 + 2 * 8 * 8 * 4},
    {BODY "optimizer muon(lr = 1, each = kv) for wq, down mesh t = 2 split kv, ffn over t",
     "wq.0 8x16 *1.000 on 0, wq.1 8x16 *1.000 on 1, down.0 16x24 *1.000 on 0", 4 * 640,
     2 * 24 * 16 * 4 + 2 * 16 * 16 * 4},
    {BODY "optimizer muon(lr = 1, each = kv, each = grp) for wq mesh d = 4 split batch over d "
          "shard grads, states over d",
     "wq.0 4x16 *1.000 on 0, wq.1 4x16 *1.000 on 1, wq.2 4x16 *1.000 on 2, wq.3 4x16 *1.000 on 3", 4 * 256,
     2 * 4 * 16 * 4 + 2 * 4 * 4 * 4}};

Test(muon, matrices) {
  Model m = model_open("llama3", NULL, sizes);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Plan q = plan_of(m.g, cases[i].recipe);
    ZbText t = {0};
    put_matrices(q.p, &t);
    cr_expect_str_eq(t.s, cases[i].want);
    cr_expect_eq(zp_update_bytes(q.p, muons(q.p)), cases[i].bytes, "%zu: %llu", i,
                 (unsigned long long)zp_update_bytes(q.p, muons(q.p)));
    cr_expect_eq(zp_orthogonal_scratch(q.p, muons(q.p)), cases[i].scratch, "%zu: %llu", i,
                 (unsigned long long)zp_orthogonal_scratch(q.p, muons(q.p)));
    zb_text_free(&t);
    plan_close(&q);
  }
  model_close(&m);
}

Test(muon, refused) {
  Model m = model_open("llama3", NULL, sizes), tied = model_open("llama3", NULL, "-D tied=1 -D layers=1");
  static const struct {
    const char *recipe, *said;
    bool tied;
  } wrong[] = {
      {BODY "optimizer muon(lr = 1) for layer", "`layer.*.norm1.g` is not one", false},
      {BODY "optimizer muon(lr = 1) for embed_in", "it is in no product, but used at llama3.zug", false},
      {BODY "optimizer muon(lr = 1) for embed_in", "it is in a product, and used otherwise at", true},
      {BODY "optimizer muon(lr = 1, each = ffn) for wq", "that this optimizer updates has an axis `ffn`",
       false}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    Plan q = plan_try(wrong[i].tied ? tied.g : m.g, wrong[i].recipe);
    cr_expect(!q.p && strstr(plan_messages(&q), wrong[i].said), "%s", plan_messages(&q));
    plan_close(&q);
  }
  model_close(&m);
  model_close(&tied);
}

static ZpInstr *instr(const ZpPlan *p, ZpInstrOp op) {
  for (uint32_t i = 0; i < p->programs.stages[0].prog.ninstrs; i++)
    if (p->programs.stages[0].prog.instrs[i].op == op) return &p->programs.stages[0].prog.instrs[i];
  cr_assert_fail("no %s", zp_instr_info[op].text);
  return NULL;
}

static void expect_rejected(const ZpPlan *p, const char *want) {
  ZbErr err = {0};
  bool fits = zp_check(p, &err) && zp_check_segments(p, &err);
  cr_expect(!fits && strstr(err.text, want), "%s\ninstead of %s", err.text, want);
}

#define WITH(place, value, want)                                                                             \
  do {                                                                                                       \
    __typeof__(place) was_ = (place);                                                                        \
    (place) = (value);                                                                                       \
    expect_rejected(q.p, want);                                                                              \
    (place) = was_;                                                                                          \
  } while (0)

Test(muon, proofs) {
  Model m = model_open("llama3", NULL, sizes);
  Plan q = plan_of(m.g, BODY
                   "optimizer muon(lr = 1) " HIDDEN
                   "mesh d = 2, t = 2 split batch over d split kv, ffn over t shard grads, states over d");
  ZpBucket *k = (ZpBucket *)muons(q.p);
  ZpInstr *gather = instr(q.p, ZP_I_GATHER_UPDATES), *scatter = instr(q.p, ZP_I_SCATTER_UPDATES);
  ZpInstr *momentum = instr(q.p, ZP_I_MOMENTUM), *products = instr(q.p, ZP_I_ORTHOGONALIZE);
  cr_assert_eq(k->matrices, 3);
  cr_assert_eq(gather->bytes, 4 * 1920);
  WITH(k->matrices, 1, "is stored otherwise than the recipe says");
  WITH(k->slices[0].role[0], ZP_EACH, "slice 0 is other matrices than the plan says");
  WITH(gather->bytes, 4 * 960, "is all_gather of 3840 bytes, but has to be all_gather of 7680");
  WITH(scatter->dims, 1, "goes over d, but has to go over d x t");
  WITH(scatter->coll, ZG_OP_ALL_REDUCE, "has to be reduce_scatter of 7680");
  WITH(gather->nwait, 0, "before stage 0 MOMENTUM");
  WITH(products->nwait, 0, "before stage 0 GATHER_UPDATES");
  WITH(scatter->nwait, 0, "before stage 0 ORTHOGONALIZE");
  WITH(momentum->access[3].tag, gather->access[1].tag,
       "should write this rank's part of the update of layer.0");
  WITH(products->access[1].tag, gather->access[1].tag,
       "should write the orthogonal matrices of this rank of layer.0");
  WITH(products->held, momentum->held + 1, "orthogonalizing the update of layer.0 (2) happens 0 times");
  WITH(products->naccess, 2, "should write temporaries");
  ZpStage *st = &q.p->programs.stages[0];
  for (uint32_t i = 0; i < st->prog.nbufs; i++) {
    if (st->prog.bufs[i].kind == ZP_B_UPDATE) WITH(st->prog.bufs[i].bytes, 4 * 1904, "but needs 7680");
    if (st->prog.bufs[i].kind == ZP_B_SCRATCH) WITH(st->prog.bufs[i].bytes, 4 * 1024, "but needs");
  }
  plan_close(&q);
  model_close(&m);
}
