/* Recipes and clusters as text: whatever means something else gives another list, and nothing else does. */
#include "lang/lang.h"

#include <criterion/criterion.h>
#include <string.h>

static void add(void *ctx, const char *what, const char *text) { zb_text_add(ctx, "%s: %s\n", what, text); }

/* The list of `name`, a recipe or a cluster of this text; the caller's to free. */
static ZbText list_of(const char *text, const char *name) {
  ZbArena *a = zb_arena_new();
  ZlSources *s = zl_sources_new(a);
  ZlDiags *d = zl_diags_new(a, s);
  ZlProgram *p = zl_load_text(a, s, d, "test.zug", text, strlen(text), NULL);
  ZbText t = {0};
  if (strcmp(name, "c") == 0) {
    const ZlCluster *c = zl_cluster(p, d, name);
    if (c) zl_cluster_list(c, add, &t);
  } else {
    const ZlRecipe *r = zl_recipe(p, d, name);
    if (r) zl_recipe_list(r, add, &t);
  }
  if (zl_errors(d)) zl_print_text(d, &t);
  cr_assert(!zl_errors(d), "%s", t.s);
  zb_arena_free(a);
  return t;
}

static const char text[] =
    "recipe r for M {\n"
    "  mesh pipe = 2, data = 4, tensor = 2\n"
    "  bind batch = 16, seq? = 8, slot = 1.25\n"
    "  micro 1\n"
    "  split batch over data\n"
    "  split kv?*grp, ffn over tensor else seq zigzag\n"
    "  stages over pipe by cost\n"
    "  schedule 1f1b\n"
    "  shard params, grads, states over data unit layer keep\n"
    "  recompute Layer.attn, Mlp\n"
    "  precision compute bf16\n"
    "  optimizer adamw(lr = 3e-4, warmup = 10) decay 0.1 except norm, bias, rate 0.5 "
    "for wte, decay 0.2 for Layer.mlp, wpe\n"
    "  optimizer sgd(lr = 2) for bias decay 0.3 except ln_f rate 4 for attn.b\n"
    "  optimizer lion(lr = 1 / embed, b1 = 0.5 to 0.75 over 9) for all except wte, wpe decay (2 * embed) to "
    "0 over 9, rate (1 / 2) for a\n"
    "  clip 0.5   average 0.75   attention heads over tensor   attention gather\n"
    "  prefetch 3   chunk vocab = 8\n"
    "  limit memory 76 GB, host 1 TB\n"
    "  pad vocab to 128\n"
    "  freeze wte, Layer.mlp except norm, attn.wq\n"
    "}\n"
    "cluster c { device memory 80 GB, bf16 989 TFLOPS, f32 67 TFLOPS, hbm 3 TB/s\n"
    "  host memory 2 TB, link 55 GB/s\n"
    "  level nvlink 8, link 450 GB/s, latency 2 us }\n";

Test(recipe_text, all_that_a_recipe_says) {
  ZbText t = list_of(text, "r");
  cr_expect_str_eq(
      t.s,
      "name: r\n"
      "model: M\n"
      "mesh: pipe = 2, data = 4, tensor = 2\n"
      "bind: batch = 16, seq? = 8, slot = 1.25\n"
      "micro: 1\n"
      "pad: vocab = 128\n"
      "precision compute: bf16\n"
      "precision params: f32\n"
      "precision grads: f32\n"
      "precision reduce: f32\n"
      "precision states: f32\n"
      "split: batch over data; kv?*grp, ffn over tensor else seq zigzag\n"
      "attention: heads over tensor; gather\n"
      "stages: over pipe by cost\n"
      "schedule: 1f1b\n"
      "shard: params grads states over data unit layer keep\n"
      "recompute: Layer.attn, Mlp\n"
      "prefetch: 3\n"
      "chunk: vocab = 8\n"
      "freeze: wte, Layer.mlp except norm, attn.wq\n"
      "optimizer: adamw\n"
      "lr: 0.0003\n"
      "b1: 0.9\n"
      "b2: 0.95\n"
      "eps: 1e-08\n"
      "bits: 32\n"
      "cautious: off\n"
      "every: 1\n"
      "warmup: 10\n"
      "stable: 0\n"
      "anneal: constant\n"
      "until: 0\n"
      "final: 0\n"
      "decay: 0.1\n"
      "except: norm, bias\n"
      "shares: rate 0.5 for wte, decay 0.2 for Layer.mlp, wpe\n"
      "optimizer for bias: sgd(lr = 2, momentum = 0, nesterov = off, rule = sum, bits = 32, cautious = "
      "off, every = 1, warmup = 0, stable = 0, anneal = constant, until = 0, final = 0) decay 0.3 except "
      "ln_f, rate 4 for attn.b\n"
      "optimizer for all except wte, wpe: lion(lr = 1 / embed, b1 = 0.5 to 0.75 over 9, b2 = 0.99, bits = "
      "32, cautious = off, every = 1, warmup = 0, stable = 0, anneal = constant, until = 0, final = 0) decay "
      "(2 * embed) to 0 over 9, rate 0.5 for a\n"
      "clip: 0.5\n"
      "average: 0.75\n"
      "limit memory: 76000000000 B\n"
      "limit host: 1000000000000 B\n");
  zb_text_free(&t);
}

/* `text` with the first `from` in it replaced. */
static bool edit_differs(const char *name, const char *from, const char *to) {
  const char *at = strstr(text, from);
  cr_assert(at, "no `%s`", from);
  ZbText edited = {0};
  zb_text_put(&edited, text, (size_t)(at - text));
  zb_text_add(&edited, "%s%s", to, at + strlen(from));
  ZbText a = list_of(text, name), b = list_of(edited.s, name);
  bool differs = strcmp(a.s, b.s) != 0;
  zb_text_free(&a);
  zb_text_free(&b);
  zb_text_free(&edited);
  return differs;
}

Test(recipe_text, other_stages_and_shards) {
  ZbText t = list_of("recipe r { mesh p = 2, d = 2  stages over p = [3, 5]  shard states over d }", "r");
  cr_expect(strstr(t.s, "\nstages: over p as 3 5\n"), "%s", t.s);
  cr_expect(strstr(t.s, "\nshard: states over d\n"), "%s", t.s);
  zb_text_free(&t);
}

/* Lists are compared by the names in them. */
Test(recipe_text, an_item_a_name) {
  ZbText t = list_of("recipe r { optimizer muon(lr = 1, each = head, steps = 3, each = hd) }", "r");
  const char *each = strstr(t.s, "\neach: head, hd\n");
  cr_expect(each && !strstr(each + 1, "\neach:"), "%s", t.s);
  cr_expect(strstr(t.s, "\nsteps: 3\n"), "%s", t.s);
  zb_text_free(&t);
}

Test(recipe_text, every_edit_shows) {
  static const char *const edits[][2] = {
      {"for M", ""},
      {"pipe = 2, data = 4, tensor = 2", "pipe = 2, tensor = 2, data = 4"},
      {"data = 4", "data = 8"},
      {"seq? = 8", "seq = 8"},
      {"seq? = 8", "seq? = 4"},
      {"slot = 1.25", "slot = 1.2500000000000002"},
      {"micro 1", "micro 2"},
      {"rate 0.5", "rate 0.25"},
      {"rate 0.5 for wte", "decay 0.5 for wte"},
      {"decay 0.2 for", "decay 0.4 for"},
      {"Layer.mlp, wpe", "Layer.mlp"},
      {"sgd(lr = 2)", "sgd(lr = 3)"},
      {"for bias", "for norm"},
      {"0.3 except ln_f", "0.3"},
      {"rate 4 for attn.b", "rate 5 for attn.b"},
      {"rate 4 for attn.b", "rate 4 for attn"},
      {"freeze wte,", "freeze"},
      {"freeze wte, Layer.mlp", "freeze all"},
      {"freeze wte, Layer.mlp except norm, attn.wq", ""},
      {" except norm, attn.wq", ""},
      {"attn.wq", "wq"},
      {"Layer.mlp except", "Layer except"},
      {"average 0.75", "average 0.5"},
      {"average 0.75", "average 0"},
      {"prefetch 3", "prefetch 2"},
      {"prefetch 3", ""},
      {"chunk vocab = 8", "chunk vocab = 4"},
      {"chunk vocab = 8", "chunk seq = 8"},
      {"chunk vocab = 8", "chunk none"},
      {"attention heads", "attention auto"},
      {"heads over tensor", "heads over data"},
      {"attention gather", "attention ring"},
      {"attention gather", ""},
      {"kv?*grp", "kv*grp"},
      {"else seq", "else seq?"},
      {"vocab to", "vocab? to"},
      {"kv?*grp, ffn", "kv?*grp"},
      {"kv?*grp, ffn", "ffn, kv?*grp"},
      {"kv?*grp, ffn", "grp*kv?, ffn"},
      {" else seq", ""},
      {" zigzag", ""},
      {"zigzag", "contiguous"},
      {"by cost", "= [3, 5]"},
      {"1f1b", "gpipe"},
      {"params, grads, states over data unit layer keep", "grads, states over data unit layer"},
      {"unit layer", "unit head"},
      {" keep", ""},
      {"Layer.attn, Mlp", "Layer.attn"},
      {"Layer.attn, Mlp", "none"},
      {"compute bf16", "compute f32"},
      {"adamw(lr = 3e-4, warmup = 10)", "sgd(lr = 3e-4, warmup = 10)"},
      {"3e-4", "3.000000000000001e-4"},
      {"warmup = 10", "warmup = 11"},
      {"warmup = 10", "warmup = 10, anneal = linear, until = 100"},
      {"warmup = 10", "warmup = 10, eps = 1e-7"},
      {"decay 0.1", "decay 0.2"},
      {"norm, bias", "norm"},
      {"clip 0.5", ""},
      {"clip 0.5", "clip 1"},
      {"76 GB", "75 GB"},
      {", host 1 TB", ""},
      {"to 128", "to 256"}};
  for (size_t i = 0; i < sizeof edits / sizeof *edits; i++)
    cr_expect(edit_differs("r", edits[i][0], edits[i][1]), "`%s` for `%s` does not show", edits[i][1],
              edits[i][0]);
  static const char *const clusters[][2] = {{"memory 80 GB", "memory 40 GB"},
                                            {"989", "990"},
                                            {"3 TB/s", "4 TB/s"},
                                            {"67", "66"},
                                            {"memory 2 TB", "memory 3 TB"},
                                            {"55", "56"},
                                            {"nvlink 8", "nvlink 4"},
                                            {"450", "900"},
                                            {"2 us", "3 us"}};
  for (size_t i = 0; i < sizeof clusters / sizeof *clusters; i++)
    cr_expect(edit_differs("c", clusters[i][0], clusters[i][1]), "`%s` for `%s` does not show",
              clusters[i][1], clusters[i][0]);
}

Test(recipe_text, what_means_nothing_does_not_show) {
  static const char *const edits[][2] = {{"  micro 1\n", "\n\n  micro  1 # one\n"},
                                         {"3e-4", "0.0003"},
                                         {"warmup = 10", "b1 = 0.9, warmup = 10"},
                                         {"76 GB", "76000 MB"},
                                         {"compute bf16", "compute bf16, params f32"}};
  for (size_t i = 0; i < sizeof edits / sizeof *edits; i++)
    cr_expect(!edit_differs("r", edits[i][0], edits[i][1]), "`%s` for `%s` shows", edits[i][1], edits[i][0]);
}

/* What an heir says again is as if only the heir had said it: nothing of what it replaces is left. */
Test(recipe_text, heirs_replace) {
  static const char *const again[][2] = {
      {"mesh a = 2, p = 4, c = 8", "mesh p = 1"},
      {"mesh p = 1", "mesh a = 2, p = 4, c = 8"},
      {"bind x = 2, y = 3", "bind x = 5, y = 4"},
      {"bind x = 2", "bind x = 5, y = 4"},
      {"pad x to 2  pad y to 3", "pad x to 5  pad y to 4"},
      {"micro 2", "micro 1"},
      {"mesh a = 2, b = 2  split x*y, z over a else v  split w over b",
       "mesh a = 2, b = 2  split u over a  split t over b"},
      {"mesh a = 2, b = 2  split x over b, a", "mesh a = 2, b = 2  split u over b  split t over a else x"},
      {"mesh a = 2  shard params, grads, states over a unit b.c keep", "mesh a = 2  shard states over a"},
      {"mesh a = 2  shard states over a", "mesh a = 2  shard params, grads, states over a unit b.c keep"},
      {"mesh a = 2, b = 2  shard states over a  shard states over b",
       "mesh a = 2, b = 2  shard grads, states over a unit x  shard grads, states over b"},
      {"mesh p = 3  stages over p = [1, 2, 3]", "mesh p = 3  stages over p by cost"},
      {"mesh p = 3  stages over p by cost", "mesh p = 3  stages over p = [1, 2, 3]"},
      {"mesh p = 3, q = 2  stages over p = [1, 2, 3]", "mesh p = 3, q = 2  stages over q = [4, 5]"},
      {"mesh p = 1  stages over p by cost  schedule gpipe",
       "mesh p = 1  stages over p by cost  schedule 1f1b"},
      {"recompute a.b, c", "recompute d"},
      {"recompute a", "recompute b, c.d, e"},
      {"recompute a.b, c", "recompute none"},
      {"recompute none", "recompute a"},
      {"precision compute bf16, params f32", "precision compute f32, params f32"},
      {"precision compute f32", "precision compute bf16"},
      {"optimizer adamw(lr = 1, warmup = 3, anneal = linear, until = 9) decay 0.1 except norm, bias",
       "optimizer sgd(lr = 2)"},
      {"optimizer adamw(lr = 1, b1 = 0.5) decay 0.1", "optimizer adamw(lr = 1) decay 0.2 except norm"},
      {"clip 2", "clip 1"},
      {"clip 2", "clip 0"},
      {"limit memory 1 GB, host 2 GB", "limit host 3 GB, memory 4 GB"}};
  for (size_t i = 0; i < sizeof again / sizeof *again; i++) {
    ZbText both = {0}, one = {0};
    zb_text_add(&both, "recipe base for A { %s } recipe r for B from base { %s }", again[i][0], again[i][1]);
    zb_text_add(&one, "recipe r for B { %s }", again[i][1]);
    ZbText heir = list_of(both.s, "r"), alone = list_of(one.s, "r");
    cr_expect(strcmp(heir.s, alone.s) == 0, "{ %s } after { %s } is\n%sfor\n%s", again[i][1], again[i][0],
              heir.s, alone.s);
    zb_text_free(&heir);
    zb_text_free(&alone);
    zb_text_free(&both);
    zb_text_free(&one);
  }
}

/* What an heir does not say again stays: as if all had been said in one body. */
Test(recipe_text, heirs_add) {
  static const char *const more[][3] = {
      {"bind x = 2, y = 3", "bind z = 4, y = 5", "bind x = 2, y = 5, z = 4"},
      {"pad x to 2  pad y to 3", "pad y to 4  pad z to 5", "pad x to 2  pad y to 4  pad z to 5"},
      {"mesh a = 2, b = 2, c = 2  split x over a  split y over b", "split z over b  split w over c",
       "mesh a = 2, b = 2, c = 2  split x over a  split z over b  split w over c"},
      {"mesh a = 2, b = 2  shard states over a", "shard states over b",
       "mesh a = 2, b = 2  shard states over a  shard states over b"},
      {"mesh a = 2, b = 2, c = 2  shard states over a  shard states over b  shard states over c",
       "shard none over a", "mesh a = 2, b = 2, c = 2  shard states over c  shard states over b"},
      {"mesh a = 2, b = 2  shard states over a  shard states over b", "shard none over b",
       "mesh a = 2, b = 2  shard states over a"},
      {"mesh a = 2, b = 2  shard states over a", "shard none over b",
       "mesh a = 2, b = 2  shard states over a"},
      {"precision compute bf16", "precision params f32", "precision compute bf16, params f32"},
      {"limit memory 1 GB, host 2 GB", "limit host 3 GB", "limit memory 1 GB, host 3 GB"},
      {"limit host 2 GB", "limit memory 1 GB", "limit memory 1 GB, host 2 GB"},
      {"optimizer sgd(lr = 1)  optimizer all(warmup = 3, cautious = on)",
       "optimizer lion(lr = 2, cautious = off) for a except b",
       "optimizer sgd(lr = 1, warmup = 3, cautious = on)  optimizer lion(lr = 2, warmup = 3) for a except b"},
      {"micro 2  clip 3", "recompute a", "micro 2  clip 3  recompute a"}};
  for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
    ZbText both = {0}, one = {0};
    zb_text_add(&both, "recipe base for A { %s } recipe r from base { %s }", more[i][0], more[i][1]);
    zb_text_add(&one, "recipe r for A { %s }", more[i][2]);
    ZbText heir = list_of(both.s, "r"), alone = list_of(one.s, "r");
    cr_expect(strcmp(heir.s, alone.s) == 0, "{ %s } after { %s } is\n%sfor\n%s", more[i][1], more[i][0],
              heir.s, alone.s);
    zb_text_free(&heir);
    zb_text_free(&alone);
    zb_text_free(&both);
    zb_text_free(&one);
  }
}

/* What is written says the same as what was read. */
Test(recipe_text, written) {
  ZbText before = list_of(text, "r"), written = {0};
  ZbArena *a = zb_arena_new();
  ZlSources *s = zl_sources_new(a);
  ZlDiags *d = zl_diags_new(a, s);
  ZlProgram *p = zl_load_text(a, s, d, "r.zug", text, strlen(text), NULL);
  zl_recipe_write(zl_recipe(p, d, "r"), &written);
  ZbText after = list_of(written.s, "r");
  cr_expect_str_eq(after.s, before.s, "%s", written.s);
  cr_expect(strstr(written.s, "stages over pipe by cost\n"));
  zb_text_free(&before);
  zb_text_free(&after);
  zb_text_free(&written);
  zb_arena_free(a);
}

Test(recipe_text, splits_alike_are_one) {
  static const char source[] =
      "recipe r { mesh a = 2, b = 2, c = 2, pipe = 3   bind batch = 8   split batch over a, b\n"
      "  split batch over c contiguous\n"
      "  stages over pipe = [1, 2, 3]   schedule gpipe   optimizer sgd(lr = 1)   micro 1 }";
  ZbArena *a = zb_arena_new();
  ZlSources *s = zl_sources_new(a);
  ZlDiags *d = zl_diags_new(a, s);
  ZbText written = {0};
  ZlProgram *p = zl_load_text(a, s, d, "r.zug", source, strlen(source), NULL);
  zl_recipe_write(zl_recipe(p, d, "r"), &written);
  cr_expect_str_eq(written.s,
                   "recipe r {\n  mesh a = 2, b = 2, c = 2, pipe = 3\n  bind batch = 8\n  micro 1\n"
                   "  split batch over a, b\n  split batch over c contiguous\n  stages over pipe = [1, 2, "
                   "3]\n  schedule gpipe\n"
                   "  optimizer sgd(lr = 1)\n}\n");
  zb_text_free(&written);
  zb_arena_free(a);
}

/* Each `?` is seen, by who does not choose. */
Test(recipe_text, open) {
  static const char *const body[] = {"mesh tensor = ? split ffn over tensor",
                                     "micro ?",
                                     "mesh t = 2 split ? over t",
                                     "mesh t = 2 split ffn over t else ?",
                                     "mesh d = 2 split batch over d shard ? over d unit layer",
                                     "mesh p = 2 stages over p = ?",
                                     "mesh p = ? stages over p = [1, 2]",
                                     "recompute ?"};
  for (size_t i = 0; i < sizeof body / sizeof *body; i++) {
    ZbArena *a = zb_arena_new();
    ZlSources *s = zl_sources_new(a);
    ZlDiags *d = zl_diags_new(a, s);
    const char *source = zb_printf(a, "recipe r { %s optimizer sgd(lr = 1) }\nrecipe s from r { }", body[i]);
    ZlProgram *p = zl_load_text(a, s, d, "r.zug", source, strlen(source), NULL);
    ZbText t = {0};
    cr_assert(p && !zl_errors(d), "%s", body[i]);
    cr_expect(zl_recipe_open(p, d, "s"), "%s", body[i]);
    cr_expect_eq(zl_errors(d), 0, "%s", body[i]);
    cr_expect_null(zl_recipe(p, d, "s"), "%s", body[i]);
    zl_print_text(d, &t);
    cr_expect(strstr(t.s, zl_code_name(ZL_Z0814)), "%s: %s", body[i], t.s);
    zb_text_free(&t);
    zb_arena_free(a);
  }
}
