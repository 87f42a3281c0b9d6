/* Limits of graphs and what their names may hold: the last thing that is allowed, and the
 * first that is not. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/unit/graph/make.h"

/* The sample, to change before it is verified. */
static bool holds(Make *m, const char **why) {
  static ZbErr err;
  bool ok = zg_verify(m->g, &err);
  *why = ok ? "" : err.text;
  zb_arena_free(m->a);
  return ok;
}
#define ALLOWED(m)                                                                                           \
  do {                                                                                                       \
    const char *why_;                                                                                        \
    cr_expect(holds(&(m), &why_), "%s", why_);                                                               \
  } while (0)
#define REFUSED(m, want)                                                                                     \
  do {                                                                                                       \
    const char *why_;                                                                                        \
    cr_expect(!holds(&(m), &why_) && strstr(why_, want), "'%s', want '%s'", why_, want);                     \
  } while (0)

Test(limits, characters_of_names) {
  for (int c = 1; c < 256; c++) {
    Make m = make_sample();
    bool word = strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_", c);
    m.g->axes[0].name = zb_printf(m.a, "x%cx", c);
    if (word) ALLOWED(m);
    else REFUSED(m, "axis 0 has a name that is not well-formed");
    m = make_sample();
    m.g->params[0].path = zb_printf(m.a, "x%cx", c);
    if (word || c == '.') ALLOWED(m);
    else if (c == '*') REFUSED(m, "one * in a repeat and none elsewhere");
    else REFUSED(m, "parameter 0 has a name that is not well-formed");
    m = make_sample();
    m.g->regions[1].label = m.g->segments[1].label = zb_printf(m.a, "x%cx", c);
    if (word || c == '.') ALLOWED(m);
    else REFUSED(m, "region 1 has a name that is not well-formed");
    m = make_sample();
    m.g->locs[1].file = zb_printf(m.a, "x%cx", c);
    if (c >= 0x20 && c != 0x7f) ALLOWED(m);
    else REFUSED(m, "place 1 has a file name that is not well-formed");
  }
}

Test(limits, points_in_names) {
  static const char *const wrong[] = {".", "a.", ".a", "a..b", ""}, *const right[] = {"a", "a.b", "a.b.c",
                                                                                      "_"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    Make m = make_sample();
    m.g->params[0].path = wrong[i];
    REFUSED(m, "parameter 0 has a name");
    m = make_sample();
    m.g->model = wrong[i];
    REFUSED(m, "the model has no well-formed name");
  }
  for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
    Make m = make_sample();
    m.g->params[0].path = m.g->model = right[i];
    ALLOWED(m);
  }
}

Test(limits, lengths_of_names) {
  for (int n = 254; n <= 256; n++) {
    Make m = make_sample();
    char *name = zb_alloc(m.a, (size_t)n + 1);
    memset(name, 'a', (size_t)n);
    m.g->inputs[0].name = name;
    if (n <= 255) ALLOWED(m);
    else REFUSED(m, "input 0 has a name that is not well-formed");
    m = make_sample();
    name = zb_alloc(m.a, (size_t)n + 1);
    memset(name, ' ', (size_t)n);
    m.g->locs[1].file = name;
    if (n <= 255) ALLOWED(m);
    else REFUSED(m, "place 1 has a file name");
  }
}

static Make sized(int64_t embed, int64_t vocab) {
  Make m = make_sample();
  m.g->axes[2].size = m.g->axes[3].size = embed; /* and wide */
  m.g->axes[4].size = vocab;
  return m;
}

/* Three iterations with a matrix [embed, wide], and a table [vocab, embed]. */
Test(limits, sizes) {
  Make m = sized(4, INT32_MAX);
  ALLOWED(m);
  m = sized(4, (int64_t)INT32_MAX + 1);
  REFUSED(m, "axis vocab has size 2147483648");
  m = sized(1 << 23, 1 << 23);
  ALLOWED(m);
  m = sized(1 << 23, (1 << 23) + 1);
  REFUSED(m, "the parameters have more than 2^48 elements");
  m = sized(1 << 24, 1);
  REFUSED(m, "the parameters have more than 2^48 elements");
  m = sized((1 << 24) + 1, 1);
  REFUSED(m, "parameter layer.*.w has more than 2^48 elements");
  for (int more = 0; more < 2; more++) {
    m = sized(1 << 16, (1 << 16) + more);
    make_typed(&m, ZG_OP_BROADCAST, make_fill(&m, 1), make_type(&m, ZG_REAL, "embed wide vocab batch"));
    if (more) REFUSED(m, "result 0 has more than 2^48 elements");
    else ALLOWED(m);
  }
}

Test(limits, numbers_of_things) {
  for (int n = 1023; n <= 1025; n++) {
    Make m = make_sample();
    ZgAxis *axes = ZB_NEWN(m.a, ZgAxis, n);
    for (int i = 0; i < n; i++)
      axes[i] = i < (int)m.g->naxes ? m.g->axes[i] : (ZgAxis){zb_printf(m.a, "a%d", i), i % 3};
    m.g->axes = axes;
    m.g->naxes = (uint32_t)n;
    if (n <= 1024) ALLOWED(m);
    else REFUSED(m, "1025 axes, at most 1024 are possible");
  }
  Make m = make_sample();
  for (int i = 1; i < 32; i++) zg_tag_add(m.g, zb_printf(m.a, "t%d", i));
  m.g->params[0].tags = 1u << 31;
  ALLOWED(m);
  m = make_sample();
  for (int i = 1; i < 32; i++) cr_expect_eq(zg_tag_add(m.g, zb_printf(m.a, "t%d", i)), (uint32_t)i);
  cr_expect_eq(zg_tag_add(m.g, "one more"), ZG_NONE);
  cr_expect_eq(zg_tag_add(m.g, "t7"), 7u);
  m.g->tags = ZB_NEWN(m.a, const char *, 33);
  for (int i = 0; i < 33; i++) m.g->tags[i] = zb_printf(m.a, "u%d", i);
  m.g->ntags = 33;
  REFUSED(m, "33 tags, at most 32 are possible");
  for (int depth = 62; depth <= 65; depth++) {
    m = make_sample();
    uint32_t r = 0;
    for (int i = 0; i < depth; i++) r = zg_region_add(m.g, ZG_REGION_BLOCK, r, "deep", "Block");
    if (depth <= 64) ALLOWED(m);
    else REFUSED(m, "more than 64 deep");
  }
  m = make_sample();
  m.g->segments[1].trip = ZG_MAX_TRIP;
  ALLOWED(m);
  m = make_sample();
  m.g->nlocs = 0;
  REFUSED(m, "no place number 0");
  m = make_sample();
  m.g->nregions = 0;
  REFUSED(m, "no region for the model");
}

/* Names of one kind differ, also among many, wherever the two are. */
Test(limits, names_among_many) {
  for (int twice = -1; twice < 1000; twice += 111) {
    char why[64];
    snprintf(why, sizeof why, "the axis name a%d occurs twice", twice);
    Make m = make_sample();
    for (int i = 0; i < 1000; i++) zg_axis_add(m.g, zb_printf(m.a, "a%d", i), 2);
    if (twice >= 0) m.g->axes[m.g->naxes - 1].name = zb_printf(m.a, "a%d", twice);
    if (twice < 0 || twice == 999) ALLOWED(m);
    else REFUSED(m, why);
  }
}

/* Strings of files are UTF-8: whole, in the shortest form, no surrogates, nothing beyond the last
 * character. */
Test(limits, text) {
  static const struct {
    const char *text;
    bool ok;
  } cases[] = {{"a b", true},
               {"~", true},
               {"\x7f", false},
               {"\x1f", false},
               {"\xc2\x80", false},
               {"\xc2\xa0", true},
               {"\xdf\xbf", true},
               {"\xc1\xbf", false},
               {"\xc0\x80", false},
               {"\x80", false},
               {"\xbf", false},
               {"\xc2", false},
               {"\xc2x", false},
               {"\xc2\xc0", false},
               {"\xe0\xa0\x80", true},
               {"\xe0\x9f\xbf", false},
               {"\xe1\x80", false},
               {"\xed\x9f\xbf", true},
               {"\xed\xa0\x80", false},
               {"\xed\xbf\xbf", false},
               {"\xee\x80\x80", true},
               {"\xef\xbf\xbf", true},
               {"\xf0\x90\x80\x80", true},
               {"\xf0\x8f\xbf\xbf", false},
               {"\xf1\x80\x80", false},
               {"\xf4\x8f\xbf\xbf", true},
               {"\xf4\x90\x80\x80", false},
               {"\xf5\x80\x80\x80", false},
               {"x\xe2\x82\xac\xc3\xa4y", true},
               {"\xe2\x82\xac\x80", false},
               {"\xe2\xac", false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Make m = make_sample();
    ZbText t = {0};
    ZbErr err = {0};
    m.g->locs[1].file = cases[i].text;
    ZB_ASSERT(zg_write(m.g, &t, NULL));
    const ZgGraph *g = zg_read(m.a, t.s, t.len, &err);
    cr_expect((g != NULL) == cases[i].ok, "case %zu: %s", i, err.text);
    if (g) cr_expect_str_eq(g->locs[1].file, cases[i].text);
    else cr_expect(strstr(err.text, "is not clean UTF-8"), "case %zu: %s", i, err.text);
    zb_text_free(&t);
    zb_arena_free(m.a);
  }
}
