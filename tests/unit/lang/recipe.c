/* Recipes and clusters as records: inheritance, defaults, units. */
#include "lang/internal.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

typedef struct {
  ZbArena *a;
  ZlDiags *d;
  ZlProgram *p;
  ZbText out;
} Case;

static Case load(const char *text) {
  Case c = {.a = zb_arena_new()};
  ZlSources *s = zl_sources_new(c.a);
  c.d = zl_diags_new(c.a, s);
  c.p = zl_load_text(c.a, s, c.d, "test.zug", text, strlen(text), NULL);
  return c;
}
static const char *messages(Case *c) {
  zb_text_free(&c->out);
  zl_print_text(c->d, &c->out);
  return c->out.s ? c->out.s : "";
}
static void done(Case *c) {
  zb_text_free(&c->out);
  zb_arena_free(c->a);
}
static const ZlRecipe *recipe(Case *c, const char *name) {
  const ZlRecipe *r = zl_recipe(c->p, c->d, name);
  cr_assert(r, "%s: %s", name, messages(c));
  return r;
}

static const char text[] = "recipe base {\n"
                           "  optimizer adamw(lr = 3e-4, b2 = 0.95, warmup = 10, anneal = cosine, until = "
                           "100) decay 0.1 except norm, bias\n"
                           "  precision compute bf16, params f32\n"
                           "  clip 1.0\n"
                           "}\n"
                           "recipe train for Llama3 from base {\n"
                           "  mesh pipe = 4, data = 8, tensor = 2\n"
                           "  bind batch = 1024, seq = 8192\n"
                           "  micro 1\n"
                           "  split batch over data\n"
                           "  split kv*grp, ffn over tensor else seq\n"
                           "  stages over pipe by cost\n"
                           "  schedule 1f1b\n"
                           "  shard states over data\n"
                           "  recompute Layer.attn, Mlp\n"
                           "  limit memory 76 GB\n"
                           "  pad vocab to 128\n"
                           "}\n"
                           "recipe child from train {\n"
                           "  mesh pipe = 2, replica = 2, data = 2, tensor = 2\n"
                           "  bind seq = 4096, other = 3\n"
                           "  split batch over replica, data\n"
                           "  split seq over tensor\n"
                           "  stages over pipe = [3, 5]\n"
                           "  schedule gpipe\n"
                           "  shard params, grads, states over data unit layer keep\n"
                           "  recompute none\n"
                           "  precision compute f32\n"
                           "  clip 0\n"
                           "  limit host 1.5 TiB\n"
                           "  optimizer sgd(lr = 0.1, momentum = 0.9)\n"
                           "}\n"
                           "recipe plain from child { shard none over data }\n";

Test(recipe, own_directives) {
  Case c = load(text);
  const ZlRecipe *r = recipe(&c, "train");
  cr_expect_str_eq(r->model, "Llama3");
  cr_expect(r->nmesh == 3 && r->mesh[0].size == 4 && strcmp(r->mesh[2].name.s, "tensor") == 0);
  cr_expect(r->nbinds == 2 && r->binds[1].size == 8192 && r->micro == 1);
  cr_expect(r->nsplits == 2 && strcmp(r->splits[0].dim.s, "data") == 0);
  cr_expect(r->splits[1].nprods == 2 && r->splits[1].prods[0].n == 2 && r->splits[1].otherwise.n == 1);
  cr_expect_str_eq(r->splits[1].prods[0].axis[1].s, "grp");
  cr_expect(r->stages.by_cost && r->stages.n == 0);
  cr_expect_str_eq(r->schedule.s, "1f1b");
  cr_expect(r->nshards == 1 && r->shards[0].what == ZL_SHARD_STATES && r->shards[0].nunit == 0 &&
            !r->shards[0].keep);
  cr_expect(r->nrecompute == 2 && r->recompute[0].n == 2);
  cr_expect(r->limit.memory == 76000000000u && r->limit.host == 0 && r->limit.host_span.file < 0);
  cr_expect(r->npads == 1 && r->pads[0].size == 128);
  done(&c);
}

Test(recipe, inherited_and_overridden) {
  Case c = load(text);
  const ZlRecipe *r = recipe(&c, "train");
  cr_expect_str_eq(r->optimizer.name.s, "adamw");
  cr_expect(r->optimizer.decay.num == 0.1 && r->optimizer.except.n == 2 && r->clip == 1.0);
  cr_expect_str_eq(r->precision.compute, "bf16");
  cr_expect_null(r->precision.reduce);

  r = recipe(&c, "child");
  cr_expect_str_eq(r->model, "Llama3");
  cr_expect_str_eq(r->name, "child");
  cr_expect(r->nmesh == 4 && r->micro == 1);
  cr_expect(r->nbinds == 3 && r->binds[0].size == 1024 && r->binds[1].size == 4096 && r->binds[2].size == 3);
  cr_expect(r->nsplits == 3); /* data, tensor (both replaced), replica */
  cr_expect(strcmp(r->splits[1].dim.s, "tensor") == 0 && r->splits[1].nprods == 1 &&
            r->splits[1].otherwise.n == 0);
  cr_expect_str_eq(r->splits[2].dim.s, "replica");
  cr_expect(!r->stages.by_cost && r->stages.n == 2 && r->stages.counts[1] == 5);
  cr_expect(r->nshards == 1 && r->shards[0].what == 7 && r->shards[0].nunit == 1 && r->shards[0].keep);
  cr_expect(r->nrecompute == 0 && r->clip == 0 && r->clip_span.file < 0);
  cr_expect_str_eq(r->precision.compute, "f32");
  cr_expect_str_eq(r->precision.params, "f32");
  cr_expect(r->limit.memory == 76000000000u && r->limit.host == 1649267441664u);
  cr_expect(r->optimizer.decay.num == 0 && r->optimizer.except.n == 0);

  cr_expect(recipe(&c, "plain")->nshards == 0);
  done(&c);
}

Test(recipe, settings_have_defaults) {
  Case c = load(text);
  const ZlRecipe *r = recipe(&c, "train");
  struct {
    const char *key;
    double num;
  } want[] = {{"lr", 3e-4},   {"b1", 0.9},    {"b2", 0.95}, {"eps", 1e-8},
              {"warmup", 10}, {"until", 100}, {"final", 0}};
  for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
    const ZlKw *kw = zl_kw(r->optimizer.kws, r->optimizer.n, want[i].key);
    cr_assert(kw, "%s", want[i].key);
    cr_expect(kw->num == want[i].num && !kw->word, "%s", want[i].key);
  }
  cr_expect_str_eq(zl_kw(r->optimizer.kws, r->optimizer.n, "anneal")->word, "cosine");
  r = recipe(&c, "child");
  cr_expect(zl_kw(r->optimizer.kws, r->optimizer.n, "momentum")->num == 0.9);
  cr_expect_str_eq(zl_kw(r->optimizer.kws, r->optimizer.n, "anneal")->word, "constant");
  cr_expect_null(zl_kw(r->optimizer.kws, r->optimizer.n, "b1"));
  done(&c);
}

Test(recipe, absent_directives) {
  Case c = load("recipe empty { }");
  const ZlRecipe *r = recipe(&c, NULL);
  cr_expect_null(r->model);
  cr_expect(r->nmesh == 0 && r->micro == 0 && r->micro_span.file < 0 && r->stages.span.file < 0);
  cr_expect(r->optimizer.span.file < 0 && r->optimizer.n == 0 && r->precision.span.file < 0);
  cr_expect_null(r->schedule.s);
  done(&c);
}

Test(recipe, which_one) {
  Case c = load(text);
  cr_expect(zl_recipe_names(c.p).n == 4);
  cr_expect_null(zl_recipe(c.p, c.d, NULL));
  cr_expect(strstr(messages(&c), "[Z0801]: test.zug has 4 recipes: say which"));
  cr_expect_null(zl_recipe(c.p, c.d, "trian"));
  cr_expect(strstr(messages(&c), "did you mean `train`?"));
  cr_expect_null(zl_cluster(c.p, c.d, "pod"));
  cr_expect(strstr(messages(&c), "test.zug has no cluster"));
  done(&c);
}

/* The only cluster is meant where none is named; no cluster is meant by the name of another. */
Test(cluster, which_one) {
  static const char one[] = "cluster a { device memory 1 GB }", two[] = "cluster b { device memory 2 GB }";
  Case c = load("");
  cr_expect_null(zl_cluster(c.p, c.d, NULL));
  done(&c);
  c = load(one);
  cr_expect_null(zl_cluster(c.p, c.d, "b"));
  cr_expect(strstr(messages(&c), "no cluster `b`"), "%s", messages(&c));
  done(&c);
  ZbText both = {0};
  zb_text_add(&both, "%s %s", one, two);
  c = load(both.s);
  cr_expect_null(zl_cluster(c.p, c.d, NULL));
  cr_expect(strstr(messages(&c), "test.zug has 2 clusters: say which"), "%s", messages(&c));
  done(&c);
  zb_text_free(&both);
}

/* Whatever is wrong with a cluster, it is reported once and the cluster is not given out. */
Test(cluster, wrong) {
  static const char *const lines[] = {
      "device memory 1 GB, memory 2 GB",
      "device memory 1 GB, memory 2 s",
      "device memory 0 GB",
      "device bf16 1 GB",
      "device f32 1 s",
      "device hbm 1 GB",
      "device link 1 GB/s",
      "host hbm 1 GB/s",
      "host memory 1 GB/s",
      "host link 1 GB",
      "host link 1 GB/s, link 1 GB/s",
      "device speed 1 GB  host memory 1 GB",
      "level a 2, latency 1 us",
      "level a 0, link 1 GB/s",
      "level a 1.5, link 1 GB/s",
      "level a 0, memory 1 GB",
      "level a 2, link 1 GB",
      "level a 2, link 1 GB/s, latency 1 GB/s",
      "level a 2, link 1 GB/s, speed 1 GB/s",
      "level a 2, link 1 GB/s, link 1 GB/s",
      "level a 2, link 1 GB/s  level a 2, link 1 GB/s",
      "level a 2, link 1 GB/s  level b 2, link 1 GB/s  level b 2, latency 1 s",
      "level a 2, latency 1 s  level b 2, link 1 GB/s"};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    ZbText t = {0};
    zb_text_add(&t, "cluster c { %s }", lines[i]);
    Case c = load(t.s);
    cr_expect_null(zl_cluster(c.p, c.d, NULL), "%s", lines[i]);
    cr_expect_eq(zl_errors(c.d), 1, "%s: %s", lines[i], messages(&c));
    done(&c);
    zb_text_free(&t);
  }
}

/* Every recipe and every cluster of a file is checked, asked for or not, though not those of files that it
 * uses. */
Test(recipe, all_of_a_file_are_checked) {
  Case c = load(
      "recipe a { micro 0 } recipe b { clip 1 } recipe c { bind x = 0 }\n"
      "cluster d { device memory 1 s } cluster e { host link 1 GB/s } cluster f { level g 2, latency 1 s }");
  zl_check_recipes(c.p, c.d);
  cr_expect_eq(zl_errors(c.d), 4, "%s", messages(&c));
  done(&c);
  c = load("recipe a { micro 1 } recipe b from a { clip 1 } cluster e { host link 1 GB/s }");
  zl_check_recipes(c.p, c.d);
  cr_expect_eq(zl_errors(c.d), 0, "%s", messages(&c));
  done(&c);
}

/* All recipes of a file have 4194304 words at most, here 4096 in each; it is said once where they are too
 * many. */
Test(recipe, words_of_a_file) {
  for (int n = 1024; n <= 1030; n += 6) {
    ZbText t = {0};
    zb_text_add(&t, "recipe base { bind ");
    for (int i = 0; i < 4095; i++) zb_text_add(&t, "%sa%d = 1", i ? ", " : "", i);
    zb_text_add(&t, " }\n");
    for (int i = 1; i < n; i++) zb_text_add(&t, "recipe r%d from base { }\n", i);
    Case c = load(t.s);
    zl_check_recipes(c.p, c.d);
    cr_expect_eq(zl_errors(c.d), n > 1024, "%d recipes: %s", n, messages(&c));
    if (n > 1024) cr_expect(strstr(messages(&c), "test.zug:1025:1"), "%s", messages(&c));
    done(&c);
    zb_text_free(&t);
  }
}

/* What each directive counts for among the 4096 words of a recipe: itself, and all that it lists. */
Test(recipe, words_of_directives) {
  static const struct {
    const char *text;
    int words;
  } cases[] = {{"micro 1", 1},
               {"mesh a = 1, b = 1", 3},
               {"limit memory 1 GB, host 1 GB", 3},
               {"precision compute f32, params f32", 5},
               {"recompute a.b, c", 6},
               {"split a*b, c over d, e else f", 9},
               {"shard params, grads, states over d unit a.b keep", 7},
               {"freeze a, b.c except d.e, f", 11},
               {"optimizer sgd(lr = 1, momentum = 0) for u, v.w", 9},
               {"optimizer sgd(lr = 1, momentum = 0) decay 0.1 except norm, a.b, rate 2 for c.d.e", 14}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int more = 0; more < 2; more++) {
      ZbText t = {0};
      zb_text_add(&t, "recipe r { bind x = 1");
      for (int k = 2; k < 4096 - cases[i].words + more; k++) zb_text_add(&t, ", x%d = 1", k);
      zb_text_add(&t, " %s }", cases[i].text);
      Case c = load(t.s);
      zl_recipe(c.p, c.d, "r");
      cr_expect_eq(strstr(messages(&c), "more than 4096 words") != NULL, more, "%s: %s", cases[i].text,
                   messages(&c));
      zb_text_free(&t);
      done(&c);
    }
}

/* A wrong recipe stays wrong, though its messages are given once. */
Test(recipe, wrong_twice) {
  Case c = load("recipe a { micro 0 } recipe b from a { clip 1 }");
  cr_expect_null(zl_recipe(c.p, c.d, "a"));
  cr_expect_null(zl_recipe(c.p, c.d, "a"));
  cr_expect_null(zl_recipe(c.p, c.d, "b"));
  cr_expect(zl_errors(c.d) == 1);
  done(&c);
}

/* Whatever is wrong with a setting of an optimizer, the recipe is not given out. */
Test(recipe, wrong_settings) {
  static const char *const settings[] = {
      "lr = 1, 2",      "lr = 1, lrr = 2",     "lr = 1, lr = 1",    "lr = -1",
      "lr = 1, b1 = 1", "lr = 1, anneal = up", "lr = 1, until = 5", ""};
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
    ZbText t = {0};
    zb_text_add(&t, "recipe r { optimizer adamw(%s) }", settings[i]);
    Case c = load(t.s);
    cr_expect_null(zl_recipe(c.p, c.d, "r"), "%s", settings[i]);
    cr_expect_eq(zl_errors(c.d), 1, "%s: %s", settings[i], messages(&c));
    done(&c);
    zb_text_free(&t);
  }
}

/* What is given twice is reported, and nothing is said of the second. */
Test(recipe, second_is_not_looked_at) {
  static const char *const bodies[] = {"mesh a = 1  mesh a = 0, b = 0",
                                       "mesh a = 1, a = 0",
                                       "mesh a = 4096, a = 4097",
                                       "bind a = 1, a = 0",
                                       "pad a to 1  pad a to 0",
                                       "micro 1  micro 0",
                                       "mesh a = 1  shard states over a  shard grads over a",
                                       "mesh a = 1  shard states over a  shard none over a keep",
                                       "mesh a = 1  stages over a = [1]  stages over b by luck",
                                       "mesh a = 1  stages over a by cost  schedule gpipe  schedule 1f2b",
                                       "mesh a = 1  stages over a by cost  schedule gpipe  schedule dualpipe",
                                       "optimizer sgd(lr = 1)  optimizer sgt(lr = 1)",
                                       "optimizer sgd(lr = 1)  optimizer sgd(lr = 1) decay 2",
                                       "optimizer sgd(lr = 1, lr = -1)",
                                       "limit memory 1 B, memory 1 s",
                                       "recompute a  recompute b",
                                       "precision compute bf16  precision compute f32",
                                       "clip 1  clip 2"};
  for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
    ZbText t = {0};
    zb_text_add(&t, "recipe r { %s }", bodies[i]);
    Case c = load(t.s);
    cr_expect_null(zl_recipe(c.p, c.d, "r"), "%s", bodies[i]);
    cr_expect(zl_errors(c.d) == 1 && strstr(messages(&c), "[Z0803]") && strstr(messages(&c), "first here"),
              "%s: %s", bodies[i], messages(&c));
    done(&c);
    zb_text_free(&t);
  }
}

/* Any two directives of one recipe that disagree on what is sharded are reported. */
Test(recipe, shards_agree) {
  static const char *const bodies[] = {
      "shard states over a  shard grads, states over b",
      "shard states over a  shard states over b  shard grads, states over c",
      "shard params, grads, states over a keep  shard params, grads, states over b"};
  for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
    ZbText t = {0};
    zb_text_add(&t, "recipe r { mesh a = 2, b = 2, c = 2  %s }", bodies[i]);
    Case c = load(t.s);
    cr_expect_null(zl_recipe(c.p, c.d, "r"), "%s", bodies[i]);
    cr_expect(zl_errors(c.d) == 1 && strstr(messages(&c), "[Z0806]"), "%s: %s", bodies[i], messages(&c));
    done(&c);
    zb_text_free(&t);
  }
}

/* The first and the last number that each setting of an optimizer may have, and the next. */
Test(recipe, settings_have_edges) {
  static const struct {
    const char *settings;
    bool ok;
  } cases[] = {{"sgd(lr = 0)", true},
               {"sgd(lr = 1e30)", true},
               {"sgd(lr = -1e-9)", false},
               {"sgd(lr = cosine)", false},
               {"sgd(lr = 1, momentum = 0)", true},
               {"sgd(lr = 1, momentum = 0.999999)", true},
               {"sgd(lr = 1, momentum = 1)", false},
               {"sgd(lr = 1, momentum = -0.1)", false},
               {"sgd(lr = 1, b1 = 0.5)", false},
               {"adamw(lr = 1, b1 = 0, b2 = 0, eps = 1e-30)", true},
               {"adamw(lr = 1, b2 = 1)", false},
               {"adamw(lr = 1, eps = -1)", false},
               {"adamw(lr = 1, momentum = 0.5)", false},
               {"sgd(lr = 1, warmup = 0)", true},
               {"sgd(lr = 1, warmup = -1)", false},
               {"sgd(lr = 1, warmup = 1.5)", false},
               {"sgd(lr = 1, anneal = constant)", true},
               {"sgd(lr = 1, anneal = constant, final = 1)", false},
               {"sgd(lr = 1, anneal = linear)", false},
               {"sgd(lr = 1, anneal = linear, until = 1)", true},
               {"sgd(lr = 1, anneal = cosine, until = 2147483647, final = 0)", true},
               {"sgd(lr = 1, anneal = cosine, until = 2147483648)", false},
               {"sgd(lr = 1, anneal = cosine, until = 9, final = -0.1)", false},
               {"sgd(lr = 1, anneal = cosine, until = 9, final = 1.1)", false},
               {"sgd(lr = 1, anneal = linear, warmup = 8, until = 8)", false},
               {"sgd(lr = 1, anneal = linear, warmup = 8, until = 9)", true},
               {"sgd(lr = 1) decay 0", true},
               {"sgd(lr = 1) decay -1", false},
               {"sgd(lr = 1) decay 1", true}, /* at a rate of 0.02, say */
               {"sgd(lr = 2 * (3 - 1) / 4)", true},
               {"sgd(lr = 1 / 0)", false},
               {"sgd(lr = sqrt(embed / 768))", true},
               {"sgd(lr = tan(1))", false},
               {"sgd(lr = embed)", false},
               {"sgd(lr = 1, momentum = 0.5 to 0.9 over 10 to 0 over 5)", true},
               {"sgd(lr = 1, momentum = 0.5 to 1 over 10)", false},
               {"sgd(lr = 1, momentum = 0.5 to 0.9 over 0.5)", false},
               {"sgd(lr = 1 to 0 over 10)", false},
               {"sgd(lr = 1, nesterov = on, rule = mean, cautious = off, every = 2)", true},
               {"sgd(lr = 1, every = 0)", false},
               {"muon(lr = 1, coefficients = polar) for matrices except head decay 0.1 to 0 over 9, rate (1 "
                "/ 2) for w",
                true}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ZbText t = {0};
    zb_text_add(&t, "recipe r { optimizer %s }", cases[i].settings);
    Case c = load(t.s);
    cr_expect_eq(zl_recipe(c.p, c.d, "r") != NULL, cases[i].ok, "%s: %s", cases[i].settings, messages(&c));
    cr_expect_eq(zl_errors(c.d), !cases[i].ok, "%s: %s", cases[i].settings, messages(&c));
    done(&c);
    zb_text_free(&t);
  }
}

/* Files without recipes, and files that are not there, have none to inherit from, nor one to propose. */
Test(recipe, nothing_to_inherit_from) {
  static const char *const texts[] = {"use std.nn recipe r from nn.base { }",
                                      "use no.file recipe r from file.base { }"};
  for (size_t i = 0; i < 2; i++) {
    Case c = load(texts[i]);
    cr_expect_null(zl_recipe(c.p, c.d, "r"));
    cr_expect(strstr(messages(&c), "[Z0801]: no recipe `") && !strstr(messages(&c), "did you mean"), "%s",
              messages(&c));
    done(&c);
  }
}

/* Whatever a directive lists counts as words of the recipe. */
Test(recipe, words_of_every_list) {
  static const struct {
    const char *before, *piece, *between, *after;
    uint32_t words; /* of a piece */
  } lists[] = {{"bind ", "a%u = 1", ", ", "", 1},
               {"split ", "a%u", ", ", " over t", 2}, /* the product and its factor */
               {"split z, ", "a%u", "*", " over t", 1},
               {"split z, ", "a%u", "*", ", y over t", 1},
               {"split z over t else ", "a%u", ", ", "", 1},
               {"recompute ", "a%u", ", ", "", 2},
               {"recompute z, ", "a%u", ".", "", 1},
               {"recompute z, ", "a%u", ".", ", y", 1},
               {"stages over p = [", "%u", ", ", "]", 1},
               {"optimizer sgd(", "k%u = 1", ", ", ")", 1},
               {"optimizer sgd(lr = 1) decay 0.1 except ", "a%u", ", ", "", 2},
               {"optimizer sgd(lr = 1) for ", "a%u", ", ", "", 2},
               {"freeze ", "a%u", ", ", "", 2},
               {"freeze all except ", "a%u", ", ", "", 2}};
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
    for (uint32_t words = 4000; words <= 4100; words += 100) {
      uint32_t n = words / lists[i].words;
      ZbText t = {0};
      zb_text_add(&t, "recipe r { %s", lists[i].before);
      for (uint32_t k = 1; k <= n; k++) {
        const char *piece = lists[i].piece, *number = strstr(piece, "%u");
        zb_text_add(&t, "%s%.*s%u%s", k > 1 ? lists[i].between : "", (int)(number - piece), piece, k,
                    number + 2);
      }
      zb_text_add(&t, "%s }", lists[i].after);
      Case c = load(t.s);
      zl_recipe(c.p, c.d, "r");
      bool large = strstr(messages(&c), "[Z0812]: recipe `r` has more than 4096 words");
      cr_expect_eq(large, words > 4096, "%s%s%s..., %u of them", lists[i].before, lists[i].piece,
                   lists[i].between, n);
      done(&c);
      zb_text_free(&t);
    }
}

Test(units, prefixes) {
  static const struct {
    const char *text;
    double scale;
    ZlUnit unit;
  } units[] = {{"B", 1, ZL_U_BYTES},
               {"kB", 1e3, ZL_U_BYTES},
               {"KB", 1e3, ZL_U_BYTES},
               {"MB", 1e6, ZL_U_BYTES},
               {"GB", 1e9, ZL_U_BYTES},
               {"TB", 1e12, ZL_U_BYTES},
               {"PB", 1e15, ZL_U_BYTES},
               {"kiB", 1024, ZL_U_BYTES},
               {"KiB", 1024, ZL_U_BYTES},
               {"MiB", 1024.0 * 1024, ZL_U_BYTES},
               {"GiB", 1024.0 * 1024 * 1024, ZL_U_BYTES},
               {"TiB", 1024.0 * 1024 * 1024 * 1024, ZL_U_BYTES},
               {"PiB", 1024.0 * 1024 * 1024 * 1024 * 1024, ZL_U_BYTES},
               {"B/s", 1, ZL_U_BYTES_S},
               {"GiB/s", 1024.0 * 1024 * 1024, ZL_U_BYTES_S},
               {"TFLOPS", 1e12, ZL_U_FLOPS},
               {"s", 1, ZL_U_SECONDS},
               {"ms", 1e-3, ZL_U_SECONDS},
               {"us", 1e-6, ZL_U_SECONDS},
               {"ns", 1e-9, ZL_U_SECONDS}};
  double scale;
  ZlUnit unit;
  for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
    cr_assert(zl_unit_parse(units[i].text, strlen(units[i].text), &scale, &unit), "%s", units[i].text);
    cr_expect(scale == units[i].scale && unit == units[i].unit, "%s is %.17g", units[i].text, scale);
  }
  static const char *const none[] = {"",    "k",   "i",     "Ki", "b",   "ks",
                                     "Gms", "KKB", "KiKiB", "EB", "GBs", "GB/"};
  for (size_t i = 0; i < sizeof none / sizeof *none; i++)
    cr_expect(!zl_unit_parse(none[i], strlen(none[i]), &scale, &unit), "%s", none[i]);
}

Test(cluster, units) {
  Case c = load("cluster pod { device memory 80 GB, bf16 989 TFLOPS, f32 67 TFLOPS, hbm 3350 GB/s\n"
                "  host memory 2 TiB, link 55 GB/s\n"
                "  level node 8, link 450 GB/s, latency 3 us\n"
                "  level pod 32, link 50 GB/s, latency 8us }");
  const ZlCluster *k = zl_cluster(c.p, c.d, NULL);
  cr_assert(k, "%s", messages(&c));
  cr_expect(k->device_memory == 80000000000u && k->host_memory == 2199023255552u);
  cr_expect(k->flops_bf16 == 989e12 && k->flops_f32 == 67e12 && k->hbm == 3350e9 && k->host_link == 55e9);
  cr_expect(k->nlevels == 2 && k->levels[0].size == 8 && k->levels[1].bandwidth == 50e9);
  cr_expect(fabs(k->levels[1].latency - 8e-6) < 1e-15);
  cr_expect_str_eq(k->levels[0].name.s, "node");
  done(&c);
}

/* A recipe takes what people are told to write instead of a word of another framework. */
static const char *const elsewhere[][2] = {
#define SAID(word, written) {word, written},
#include "lang/elsewhere.def"
};
Test(recipe, said_elsewhere) {
  for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) {
    char room[256];
    snprintf(room, sizeof room, "recipe r { %s }", elsewhere[i][1]);
    Case c = load(room);
    recipe(&c, "r");
    cr_expect_str_eq(messages(&c), "", "%s: %s", elsewhere[i][0], c.out.s);
    for (size_t k = 0; k < i; k++)
      cr_expect(strcmp(elsewhere[i][0], elsewhere[k][0]), "%s is there twice", elsewhere[i][0]);
    done(&c);
  }
  cr_expect_str_eq(zl_said_elsewhere("Weight-Decay"), zl_said_elsewhere("weight_decay"));
  cr_expect(!zl_said_elsewhere("weight_deca") && !zl_said_elsewhere("weight_decay2") &&
            !zl_said_elsewhere(""));
}
