/* Weights by other names: what zg_verify_foreign takes and refuses, against counting element by element, and
 * the optional sections of a .zsg file. */
#include <criterion/criterion.h>
#include <string.h>

#include "graph/file.h"
#include "tests/unit/graph/make.h"

/* Parameters without a graph around them: wq, wk, wv[embed 4, head 2, hd 3], layer.*.e[head 2, embed 4] in a
 * repeat of 3. */
static Make fused(void) {
  Make m = make_graph();
  make_axis(&m, "embed", 4);
  make_axis(&m, "head", 2);
  make_axis(&m, "hd", 3);
  static const char *const names[] = {"wq", "wk", "wv"};
  uint32_t q = 0;
  for (int i = 0; i < 3; i++) q = make_param(&m, names[i], "embed head hd");
  make_next(&m, q, "layer", 3);
  make_param(&m, "layer.*.e", "head embed");
  return m;
}

static void part(ZgGraph *g, uint32_t param, const char *name, int64_t first, ZgForeign rest) {
  rest.map = "hf";
  rest.param = param;
  rest.name = name;
  rest.first = first;
  while (rest.ndims < ZG_MAX_AXES && rest.dims[rest.ndims]) rest.ndims++;
  zg_foreign_add(g, rest);
}

static void experts(ZgGraph *g) {
  for (int64_t e = 0; e < 2; e++)
    part(g, 3, zb_printf(g->arena, "h.*.e.%d", (int)e), 0,
         (ZgForeign){.dims = {4, 1}, .stride = {0, 1}, .fixed = 0, .at = e});
}

/* c_attn of GPT-2, [embed, 3 (head hd)]; or of NeoX, [head 3 hd, embed]. */
static void columns(ZgGraph *g) {
  for (uint32_t i = 0; i < 3; i++)
    part(g, i, "c_attn", 6 * i, (ZgForeign){.dims = {4, 18}, .stride = {18, 3, 1}, .fixed = -1});
}
/* The first lies by itself, the others in turns behind it. */
static void whole_and_turns(ZgGraph *g) {
  part(g, 0, "qkv", 0, (ZgForeign){.dims = {3, 24}, .stride = {6, 3, 1}, .fixed = -1});
  for (uint32_t i = 1; i < 3; i++)
    part(g, i, "qkv", 24 + 3 * (i - 1), (ZgForeign){.dims = {3, 24}, .stride = {12, 6, 1}, .fixed = -1});
}
static void per_head(ZgGraph *g) {
  for (uint32_t i = 0; i < 3; i++)
    part(g, i, "qkv", 12 * i, (ZgForeign){.dims = {18, 4}, .stride = {1, 36, 4}, .fixed = -1});
}

Test(foreign, holds) {
  void (*const maps[])(ZgGraph *) = {columns, per_head, whole_and_turns};
  for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
    Make m = fused();
    ZbErr err;
    maps[i](m.g);
    experts(m.g);
    zg_ignored_add(m.g, "hf", "*.rotary_emb.inv_freq", NULL);
    zg_config_add(m.g, "hf", "rope.theta", "1e-05");
    zg_config_add(m.g, "hf", "kinds", "[\"A\", 1, -0.5, null, true]");
    zg_config_add(m.g, "hf", "none", "[]");
    cr_expect(zg_verify_foreign(m.g, &err), "%zu: %s", i, err.text);
    zb_arena_free(m.a);
  }
}

/* Names are told apart by the numbers that they come to. */
Test(foreign, sums) {
  static const struct {
    const char *name[2];
    bool ok;
  } cases[] = {{{"h.2*+0.w", "h.2*+1.w"}, true}, {{"h.2*+0.w", "h.2*+2.w"}, false},
               {{"h.*.w", "h.1*+3.w"}, true},    {{"h.*.w", "h.1*+2.w"}, false},
               {{"h.1*+0.w", "h.*.w"}, false},   {{"h.2*+4.w", "h.*.w"}, true}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Make m = fused();
    ZbErr err;
    columns(m.g);
    for (int64_t e = 0; e < 2; e++)
      part(m.g, 3, cases[i].name[e], 0, (ZgForeign){.dims = {4, 1}, .stride = {0, 1}, .fixed = 0, .at = e});
    cr_expect_eq(zg_verify_foreign(m.g, &err), cases[i].ok, "%s, %s", cases[i].name[0], cases[i].name[1]);
    zb_arena_free(m.a);
  }
  ZbArena *a = zb_arena_new();
  cr_expect_str_eq(zg_numbered(a, "h.6*+3.w", 2), "h.15.w");
  cr_expect_str_eq(zg_numbered(a, "layer.*.w", 2), "layer.2.w");
  cr_expect_str_eq(zg_numbered(a, "x.*+3", 2), "x.2+3");
  cr_expect_str_eq(zg_numbered(a, "one", 2), "one");
  zb_arena_free(a);
}

#define BROKEN(WHY, ...)                                                                                     \
  do {                                                                                                       \
    Make m = fused();                                                                                        \
    ZgGraph *g = m.g;                                                                                        \
    columns(g);                                                                                              \
    experts(g);                                                                                              \
    ZbErr err = {0};                                                                                         \
    __VA_ARGS__;                                                                                             \
    cr_expect(!zg_verify_foreign(g, &err), "%s", #__VA_ARGS__);                                              \
    cr_expect(strstr(err.text, WHY), "%s: got '%s'", #__VA_ARGS__, err.text);                                \
    zb_arena_free(m.a);                                                                                      \
  } while (0)

Test(foreign, every_rule) {
  BROKEN("foreign part 1 is of no parameter", g->foreign[1].param = 4);
  BROKEN("its map has no well-formed name", g->foreign[0].map = "a/b");
  BROKEN("foreign part 0 has a name that is not well-formed", g->foreign[0].name = "a\"b");
  BROKEN("foreign part 0 has a name that is not well-formed", g->foreign[0].name = "a b");
  BROKEN("foreign part 0 has a name that is not well-formed", g->foreign[0].name = "");
  BROKEN("foreign part 3 has a name", g->foreign[3].name = zb_printf(m.a, "%0256d", 0));
  BROKEN("a name has one *", g->foreign[0].name = "h.*");
  BROKEN("a name has one *", g->foreign[3].name = "h.0");
  BROKEN("a name has one *", g->foreign[3].name = "h.*.*");
  BROKEN("beside a digit", g->foreign[3].name = "h*0");
  BROKEN("beside a digit", g->foreign[3].name = "2*.a");
  BROKEN("beside a digit", g->foreign[3].name = "2*+.a");
  BROKEN("beside a digit", g->foreign[3].name = "1234567890*+1");
  BROKEN("has one *", g->foreign[3].name = "2*+1*");
  BROKEN("each iteration has the same", g->foreign[3].name = "0*+1");
  BROKEN("does not lie in it", g->foreign[0].ndims = 0);
  BROKEN("does not lie in it", g->foreign[0].ndims = 9);
  BROKEN("does not lie in it", g->foreign[0].dims[2] = 1);
  BROKEN("does not lie in it", g->foreign[0].dims[0] = -4);
  BROKEN("does not lie in it", g->foreign[0].dims[0] = 1ll << 48);
  BROKEN("does not lie in it", g->foreign[0].stride[3] = 1);
  BROKEN("does not lie in it", g->foreign[0].stride[0] = 0);
  BROKEN("does not lie in it", g->foreign[0].stride[0] = -18);
  BROKEN("does not lie in it", g->foreign[0].stride[0] = INT64_MAX);
  BROKEN("does not lie in it", g->foreign[0].stride[1] = 2);
  BROKEN("does not lie in it", g->foreign[0].first = -1);
  BROKEN("does not lie in it", g->foreign[2].first = 13);
  BROKEN("does not lie in it", g->foreign[0].fixed = 3);
  BROKEN("does not lie in it", g->foreign[0].fixed = -2);
  BROKEN("does not lie in it", g->foreign[0].at = 1);
  BROKEN("does not lie in it", g->foreign[4].at = 2);
  BROKEN("does not lie in it", g->foreign[4].stride[0] = 1);
  BROKEN("nothing for parameter layer.*.e", g->nforeign = 3);
  BROKEN("nothing for parameter wq", g->foreign[0].param = 1);
  BROKEN("a part of parameter layer.*.e twice", g->foreign[4].at = 0);
  BROKEN("has not all parts of parameter layer.*.e", g->nforeign = 4);
  BROKEN("a part of parameter wk twice", part(g, 1, "x", 0, g->foreign[1]));
  BROKEN("foreign tensor c_attn has two shapes", g->foreign[2].dims[0] = 18; g->foreign[2].dims[1] = 4);
  BROKEN("its parts do not cover it once", g->foreign[0].first = 6);
  BROKEN("its parts do not cover it once", for (int i = 0; i < 3; i++) g->foreign[i].dims[0] = 5);
  BROKEN("its parts do not cover it once", g->foreign[3].dims[0] = 5);
  BROKEN("h.1.e.1 under two names", part(g, zg_param_add(g, g->params[0]), "h.1.e.1", 0,
                                         (ZgForeign){.dims = {4, 6}, .stride = {6, 3, 1}, .fixed = -1}));
  BROKEN("different repeats", g->segments[0].repeat = true; g->params[2].segment = 0;
         for (int i = 0; i < 3; i++) g->foreign[i].name = "c.*";
         for (int i = 0; i < 2; i++) g->params[i].segment = 1);
  BROKEN("the parts of map hf are not together",
         for (uint32_t i = 0; i < 5; i++) zg_foreign_add(g, g->foreign[i]), g->foreign[5 + i].map = "x";
         zg_foreign_add(g, g->foreign[0]));
  BROKEN("config key 0 is of no map", zg_config_add(g, "x", "a", "1"));
  BROKEN("config key 0 is not well-formed", zg_config_add(g, "hf", "a..b", "1"));
  BROKEN("config key a has no well-formed value", zg_config_add(g, "hf", "a", "{}"));
  BROKEN("config key a has no well-formed value", zg_config_add(g, "hf", "a", ""));
  BROKEN("config key a has no well-formed value", zg_config_add(g, "hf", "a", "01"));
  BROKEN("config key a has no well-formed value", zg_config_add(g, "hf", "a", "1."));
  BROKEN("config key a has no well-formed value", zg_config_add(g, "hf", "a", "\"a"));
  BROKEN("config key a has no well-formed value", zg_config_add(g, "hf", "a", "[1,]"));
  BROKEN("config key a has no well-formed value", zg_config_add(g, "hf", "a", "[[1]]"));
  BROKEN("config key a has no well-formed value", zg_config_add(g, "hf", "a", "true1"));
  BROKEN("config key a has no well-formed value", zg_config_add(g, "hf", "a", "[1]*"));
  BROKEN("config key a has no well-formed value", zg_config_add(g, "hf", "a", "[1]*2x"));
  BROKEN("config key a has no well-formed value", zg_config_add(g, "hf", "a", "[1]*65537"));
  BROKEN("config key a has no well-formed value", zg_config_add(g, "hf", "a", "[]*2"));
  BROKEN("config key a occurs twice", zg_config_add(g, "hf", "a", "1"); zg_config_add(g, "hf", "a", "1"));
  BROKEN("config key a has a value and keys inside", zg_config_add(g, "hf", "a.b.c", "1");
         zg_config_add(g, "hf", "a", "1"));
  BROKEN("ignored pattern 0 is of no map", zg_ignored_add(g, "x", "a", NULL));
  BROKEN("ignored pattern 0 is not well-formed", zg_ignored_add(g, "hf", "a\\b", NULL));
  BROKEN("ignored pattern 0 is the copy of one tensor", zg_ignored_add(g, "hf", "a.*", "wte"));
  BROKEN("lm_head is a copy of what is not mapped", zg_ignored_add(g, "hf", "lm_head", "wpe"));
}

/* Tensors are counted over all iterations. */
Test(foreign, at_most_2_20) {
  for (int many = 256; many <= 257; many++) {
    Make m = make_graph();
    ZbErr err = {0};
    make_axis(&m, "many", many);
    make_axis(&m, "embed", 1);
    make_next(&m, make_fill(&m, 1), "layer", ZG_MAX_TRIP);
    make_param(&m, "layer.*.e", "many embed");
    for (int64_t e = 0; e < many; e++)
      part(m.g, 0, zb_printf(m.a, "h.*.e.x%d", (int)e), 0,
           (ZgForeign){.dims = {1}, .stride = {0, 1}, .fixed = 0, .at = e});
    bool ok = zg_verify_foreign(m.g, &err);
    cr_expect_eq(ok, many == 256, "%d: %s", many, err.text);
    if (!ok) cr_expect_str_eq(err.text, "map hf has more than 1048576 foreign tensors");
    zb_arena_free(m.a);
  }
}

/* Two parts of random strides: what is taken covers its tensor once. Not all that does is taken: the elements
 * 0 and 3 with 1 and 2 do, but no merging, splitting and joining of axes makes that. */
Test(foreign, against_counting) {
  uint64_t seed = 7;
  int taken = 0, good = 0;
  for (int round = 0; round < 200000; round++) {
    Make m = make_graph();
    int64_t size[4], total = 0;
    for (int i = 0; i < 4; i++) {
      size[i] = 1 + (int64_t)((seed = zb_mix64(seed)) % 3);
      make_axis(&m, (const char *[]){"a", "b", "c", "d"}[i], size[i]);
    }
    make_param(&m, "p", "a b");
    make_param(&m, "q", "c d");
    total = size[0] * size[1] + size[2] * size[3];
    ZgForeign f[2] = {{.dims = {total}, .fixed = -1}, {.dims = {total}, .fixed = -1}};
    int count[32] = {0};
    bool once = true;
    for (uint32_t i = 0; i < 2; i++) {
      int64_t first = (int64_t)((seed = zb_mix64(seed)) % 3) * (int64_t)i;
      for (int k = 0; k < 2; k++) f[i].stride[k] = 1 + (int64_t)((seed = zb_mix64(seed)) % 6);
      part(m.g, i, "t", first, f[i]);
      for (int64_t x = 0; x < size[2 * i]; x++)
        for (int64_t y = 0; y < size[2 * i + 1]; y++) {
          int64_t at = first + x * f[i].stride[0] + y * f[i].stride[1];
          if (at < 32) count[at]++;
          else once = false;
        }
    }
    for (int i = 0; i < 32; i++) once &= count[i] == (i < total);
    bool ok = zg_verify_foreign(m.g, NULL);
    cr_assert(!ok || once, "round %d", round);
    taken += ok;
    good += once;
    zb_arena_free(m.a);
  }
  cr_expect(taken > 500 && good > taken, "%d of %d", taken, good);
}

Test(foreign, file) {
  Make m = make_sample();
  ZbText plain = {0}, t = {0}, again = {0}, before = {0}, after = {0};
  ZbErr err;
  ZB_ASSERT(zg_write(m.g, &plain, NULL));
  cr_expect(plain.s[6] == 0 && plain.s[12] == ZSG_KINDS);
  part(m.g, 0, "wte", 0, (ZgForeign){.dims = {9, 4}, .stride = {4, 1}, .fixed = -1});
  for (int64_t e = 0; e < 4; e++)
    part(m.g, 1, zb_printf(m.a, "h.*.%d", (int)e), 0,
         (ZgForeign){.dims = {4}, .stride = {1, 0}, .fixed = 1, .at = e});
  zg_config_add(m.g, "hf", "hidden_size", "4");
  zg_config_add(m.g, "hf", "kinds", "[\"near\",\"far\"]*3");
  zg_ignored_add(m.g, "hf", "*.bias", NULL);
  zg_ignored_add(m.g, "hf", "lm_head", "wte");
  ZB_ASSERT(zg_write(m.g, &t, NULL));
  cr_expect(t.s[6] == 1 && t.s[12] == SEC_IGNO + 1 &&
            zsg_get((uint8_t *)t.s + ZSG_HEADER + SEC_IGNO * ZSG_ENTRY, 4) == SEC_COPY);
  ZgGraph *g = zg_read(m.a, t.s, t.len, &err);
  cr_assert(g, "%s", err.text);
  ZB_ASSERT(zg_write(g, &again, NULL));
  cr_expect(t.len == again.len && !memcmp(t.s, again.s, t.len));
  zg_print(g, ZG_NONE, &before);
  cr_expect(strstr(before.s, "weights hf table[vocab: 4, embed: 1] = \"wte\"[9, 4]\n"
                             "weights hf layer.*.w[embed: 1, wide = 0] = \"h.*.0\"[4]\n"),
            "%s", before.s);
  cr_expect(strstr(before.s,
                   "weights hf ignore \"*.bias\"\nweights hf ignore \"lm_head\" as \"wte\"\n"
                   "weights hf config hidden_size = 4\nweights hf config kinds = [\"near\",\"far\"]*3\n"));
  /* No bit of the new sections is without meaning. */
  uint64_t from = zsg_get((uint8_t *)t.s + ZSG_HEADER + (SEC_FORN - 1) * ZSG_ENTRY + 8, 8);
  for (size_t i = from; i < t.len; i++) {
    ZbArena *a = zb_arena_new();
    t.s[i] = (char)(t.s[i] + 1);
    zg_seal(t.s, t.len);
    if ((g = zg_read(a, t.s, t.len, &err))) zg_print(g, ZG_NONE, &after);
    cr_expect(!g || strcmp(before.s, after.s), "byte %zu", i);
    t.s[i] = (char)(t.s[i] - 1);
    zb_text_free(&after);
    zb_arena_free(a);
  }
  ZbText *all[] = {&plain, &t, &again, &before};
  for (int i = 0; i < 4; i++) zb_text_free(all[i]);
  zb_arena_free(m.a);
}
