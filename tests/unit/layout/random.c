/* Thousands of random recipes, sensible and not, on four models: each gives a plan that passes its proofs and brute
 * force, or says why not; never silence, never a crash, and the same twice. */
#include "tests/unit/layout/plan.h"

#include <criterion/criterion.h>
#include <string.h>
#include <time.h>

/* Two repeats, values captured by both, dropout, aux terms, slices, an argument and a parameter used everywhere. */
static const char odd[] =
    "use std.nn as nn\n"
    "model Odd(a = 2, b = 3) {\n"
    "  axis batch, seq\n"
    "  axis embed = 8, kv = 2, grp = 2, hd = 4, ffn = 16, vocab = 12, half = 4, pos = 32\n"
    "  block Mix(x: real[.., seq, embed], m: real[.., seq, embed]) -> real[.., seq, embed] {\n"
    "    param wq[embed, kv, grp, hd], wk[embed, kv, hd], wv[embed, kv, hd], wo[kv, grp, hd, embed] ~ normal(0.1)\n"
    "    y = nn.RMSNorm[embed](x) as n * gain\n"
    "    q = rope[seq, hd](dot[embed](y, wq))\n"
    "    o = attend[seq, hd](q, dot[embed](y, wk), dot[embed](m, wv), mask = none)\n"
    "    return x + nn.dropout(dot[kv, grp, hd](o, wo), p = 0.25)\n"
    "  }\n"
    "  block Mlp(x: real[.., embed]) -> real[.., embed] {\n"
    "    param w1[embed, ffn], w2[ffn, embed] ~ normal(0.1)\n"
    "    h = nn.gelu(dot[embed](x, w1))\n"
    "    aux 0.01 * mean[..](mean[ffn](h * h))\n"
    "    return x + dot[ffn](h, w2) * gain\n"
    "  }\n"
    "  input tokens: index(vocab)[batch, seq]\n"
    "  input targets: index(vocab)[batch, seq]\n"
    "  input weight: real[batch]\n"
    "  param gain[embed] = 1 tag norm\n"
    "  param wte[vocab, embed], wpe[pos, embed] ~ normal(0.1)\n"
    "  x = lookup(wte, tokens) + lookup(wpe, position[seq, pos]())\n"
    "  memory = x * 0.5\n"
    "  repeat a as first { x = Mix(x, memory) as mix  x = Mlp(x) as mlp }\n"
    "  left = slice[embed, half](x)\n"
    "  right = slice[embed, half](x, start = half) * peak[embed](memory)\n"
    "  x = concat[embed, half, half](right, softmax[half](left))\n"
    "  repeat b as second { x = Mlp(x) as mlp  x = x + memory * weight }\n"
    "  output logits = dot[embed](x, wte)\n"
    "  loss weight * xent[vocab](logits, targets) per weight * known(targets)\n"
    "}\n";

static const struct {
  const char *name, *text, *options, *axes, *blocks;
  int repeats; /* iterations of all repeats */
} models[] = {
    {"mlp", NULL, "-D inputs=12 -D hidden=8 -D classes=6", "batch pixel h1 h2 class", "fc1 fc2 Linear", 1},
    {"gpt2", NULL, "-D layers=5 -D heads=4 -D width=16 -D context=32 -D words=12",
     "batch seq embed head hd ffn vocab pos", "Layer Layer.attn Layer.mlp Attention layer ln_f gelu_tanh", 5},
    {"llama3", NULL, "-D layers=3 -D heads=8 -D kv_heads=4 -D width=32 -D inner=24 -D words=12",
     "batch seq embed kv grp hd ffn vocab kv*grp", "Layer Layer.attn Layer.mlp silu norm1 norm", 3},
    {"odd", odd, NULL, "batch seq embed kv grp hd ffn vocab half pos kv*grp grp*kv batch*seq",
     "first second first.mlp mix Mlp gelu dropout", 5},
};
enum { NMODELS = sizeof models / sizeof *models };

typedef struct {
  uint64_t seed, at;
} Dice;
static uint32_t roll(Dice *d, uint32_t n) { return (uint32_t)(zb_random_u64(d->seed, 7, d->at++) % n); }

/* The n-th word of a list, or a random one if n is too large. */
static void word(Dice *d, const char *list, char out[32]) {
  uint32_t n = 1;
  for (const char *s = list; *s; s++) n += *s == ' ';
  for (uint32_t k = roll(d, n); k--;) list = strchr(list, ' ') + 1;
  size_t len = strcspn(list, " ");
  memcpy(out, list, len);
  out[len] = 0;
}

static const char *const dims[] = {"d0", "d1", "d2", "d3"};

static void put_axes(Dice *d, const char *axes, uint32_t most, ZbText *t) {
  char w[32];
  for (uint32_t n = 1 + roll(d, most), i = 0; i < n; i++) {
    word(d, axes, w);
    zb_text_add(t, "%s%s", i ? ", " : "", w);
  }
}

/* One recipe; about a third of them fit their model. */
static void put_recipe(Dice *d, int m, ZbText *t) {
  char w[32];
  uint32_t n = roll(d, 5), pipe = roll(d, 3) ? UINT32_MAX : roll(d, 4), batch = roll(d, 4);
  bool sane = roll(d, 4) != 0;
  if (n) zb_text_add(t, "mesh ");
  uint32_t size[4] = {1, 1, 1, 1}, free_dims = 0;
  for (uint32_t i = 0; i < n; i++) {
    size[i] = sane ? 1u << roll(d, 3) : 1 + roll(d, 4);
    zb_text_add(t, "%s%s = %u", i ? ", " : "", dims[i], size[i]);
  }
  bool huge = roll(d, 50) == 0; /* more than any machine holds */
  zb_text_add(t, "\nbind batch = %u", huge ? 1u << (4 + roll(d, 26)) : sane ? 16u << roll(d, 2) : 1 + roll(d, 40));
  if (m) zb_text_add(t, ", seq = %u", huge ? 1u << (4 + roll(d, 26)) : sane ? 16 : 1 + roll(d, 40));
  if (!huge && roll(d, 2)) zb_text_add(t, "\nmicro %u", 1 + roll(d, 3));
  for (uint32_t i = 0; i < n; i++) {
    if (i == pipe) continue;
    free_dims |= 1u << i;
    if (!roll(d, 12)) continue;
    zb_text_add(t, "\nsplit ");
    if (i == batch || roll(d, 3) == 0) zb_text_add(t, "batch");
    else put_axes(d, models[m].axes, 4, t);
    zb_text_add(t, " over %s", dims[i]);
    if (roll(d, 2)) {
      word(d, models[m].axes, w);
      if (!strchr(w, '*')) zb_text_add(t, " else %s", m && roll(d, 2) ? "seq" : w);
    }
  }
  if (pipe < n) {
    zb_text_add(t, "\nstages over %s ", dims[pipe]);
    if (roll(d, 3)) {
      zb_text_add(t, "by cost");
    } else {
      int left = models[m].repeats;
      for (uint32_t i = 0; i < size[pipe]; i++) {
        int k = i + 1 == size[pipe] ? left : roll(d, 6) ? (left + 1) / 2 : (int)roll(d, 4);
        zb_text_add(t, "%s%d", i ? ", " : "= [", k);
        left -= k;
      }
      zb_text_add(t, "]");
    }
    if (roll(d, 2)) zb_text_add(t, "\nschedule %s", roll(d, 2) ? "gpipe" : "1f1b");
  }
  static const char *const levels[] = {"states", "grads, states", "params, grads, states"};
  uint32_t level = roll(d, 3), sharded = roll(d, 16) & free_dims;
  bool keep = level == 2 && roll(d, 3) == 0;
  for (uint32_t i = 0; i < n; i++)
    if (sharded >> i & 1) zb_text_add(t, "\nshard %s over %s%s", levels[level], dims[i], keep ? " keep" : "");
  if (roll(d, 3) == 0) {
    word(d, models[m].blocks, w);
    zb_text_add(t, "\nrecompute %s", w);
  }
  if (roll(d, 4) == 0) {
    word(d, models[m].axes, w);
    if (!strchr(w, '*')) zb_text_add(t, "\npad %s to %u", roll(d, 3) ? m ? "vocab" : "class" : w, 1 + roll(d, 20));
  }
  if (roll(d, 3) == 0) zb_text_add(t, "\nprecision compute bf16");
  if (roll(d, 3) == 0) zb_text_add(t, "\noptimizer sgd(lr = 0.1%s)", roll(d, 2) ? ", momentum = 0.9" : "");
  if (roll(d, 30) == 0) zb_text_add(t, "\nlimit memory %u kB", 1 + roll(d, 500));
}

static bool same_ledgers(const ZpPlan *p, const ZpPlan *q) {
  bool same = p->nstages == q->nstages;
  for (uint32_t s = 0; same && s < p->nstages; s++)
    same = !memcmp(&p->stages[s].ledger, &q->stages[s].ledger, sizeof p->stages[s].ledger) &&
           p->stages[s].prog.ninstrs == q->stages[s].prog.ninstrs;
  return same;
}

/* True if there is a plan. */
static bool try_one(const ZgGraph *g, const char *recipe, bool twice) {
  Plan q = plan_try(g, recipe);
  bool made = q.p != NULL;
  if (!q.p && !zl_errors(q.d)) cr_assert_fail("no plan and no reason for\n%s", recipe);
  if (!q.p && strstr(plan_messages(&q), "Z0999")) cr_assert_fail("a bad plan for\n%s\n%s", recipe, plan_messages(&q));
  if (q.p) {
    const char *wrong = plan_wrong(q.p, q.a);
    if (*wrong) cr_assert_fail("%s\n%s", recipe, wrong);
    ZbText t = {0};
    zp_show(q.p, &t);
    zp_show_schedule(q.p, &t);
    zp_explain(q.p, &t);
    cr_assert(t.len > 100);
    zb_text_free(&t);
  }
  if (q.p && twice) {
    Plan r = plan_of(g, recipe);
    cr_assert(same_ledgers(q.p, r.p), "two plans differ for\n%s", recipe);
    plan_close(&r);
  }
  plan_close(&q);
  return made;
}

static void many(int m, uint32_t n) {
  Model x = model_open(models[m].name, models[m].text, models[m].options);
  uint32_t plans = 0;
  for (uint32_t i = 0; i < n; i++) {
    Dice d = {.seed = 1 + (uint64_t)m, .at = (uint64_t)i << 12};
    ZbText t = {0};
    put_recipe(&d, m, &t);
    plans += try_one(x.g, t.s, i % 4 == 0);
    zb_text_free(&t);
  }
  cr_log_info("%s: %u plans of %u recipes", models[m].name, plans, n);
  cr_assert(plans * 8 > n, "only %u plans of %u recipes", plans, n);
  model_close(&x);
}

Test(random, mlp) { many(0, 1000); }
Test(random, gpt2) { many(1, 1000); }
Test(random, llama3) { many(2, 1000); }
Test(random, odd) { many(3, 1000); }
