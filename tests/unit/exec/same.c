/* What ranks find out together, to the letter. */
#include "runtime/exec/comm/same.h"
#include "tests/unit/exec/threads.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* ---- agreement ---- */
static int bad;
static bool agreed[THREADS_MOST];
static int64_t number[THREADS_MOST], lowest[THREADS_MOST];
static void *agree(void *arg) {
  ThreadRank *r = arg;
  agreed[r->rank] = zx_agree(&r->base, !(bad >> r->rank & 1));
  lowest[r->rank] = zx_lowest(&r->base, number[r->rank]);
  return NULL;
}

Test(together, agreement) {
  static const int64_t numbers[][4] = {
      {-1, -1, -1, -2}, {0, -1, 5, 7}, {9, 8, -1, 1ll << 53}, {-1, -1, 1ll << 53, -1}, {3, 1, 2, 0}};
  static const int64_t least[] = {-1, 0, 8, 1ll << 53, 0};
  for (int i = 0; i < 5; i++) {
    bad = i == 0 ? 0 : i == 4 ? 15 : 1 << i;
    memcpy(number, numbers[i], sizeof numbers[i]);
    together(4, agree);
    for (int k = 0; k < 4; k++) {
      cr_expect_eq(agreed[k], bad == 0, "%d", i);
      cr_expect_eq(lowest[k], least[i], "%d", i);
    }
  }
}

/* ---- facts ---- */
typedef void Facts(ZxFacts *f, int rank);
static Facts *facts;
static bool same[THREADS_MOST];
static ZbText said[THREADS_MOST];

static void *compare(void *arg) {
  ThreadRank *r = arg;
  ZxFacts f = {.a = zb_arena_new()};
  facts(&f, r->rank);
  same[r->rank] = zx_same(&r->base, &f, &said[r->rank]);
  zb_arena_free(f.a);
  return NULL;
}

static void expect(int n, Facts *of, const char *text) {
  facts = of;
  together(n, compare);
  for (int k = 0; k < n; k++) {
    cr_expect_eq(same[k], !*text);
    cr_expect_str_eq(said[k].s ? said[k].s : "", k ? "" : text, "of rank %d: %s", k,
                     said[k].s ? said[k].s : "");
    zb_text_free(&said[k]);
  }
}

static void of_all(ZxFacts *f) {
  zx_fact(f, ZX_OPTIONS, "--seed", "%d", 1);
  zx_fact(f, ZX_RECIPE, "clip", "%g", 0.5);
  zx_fact(f, ZX_RECIPE, "micro", "%d", 4);
}
static void alike(ZxFacts *f, int rank) {
  (void)rank;
  of_all(f);
}
static void nothing(ZxFacts *f, int rank) { (void)f, (void)rank; }

Test(together, the_same) {
  expect(3, alike, "");
  expect(3, nothing, "");
  expect(1, alike, "");
}

static void one_differs(ZxFacts *f, int rank) {
  zx_fact(f, ZX_OPTIONS, "--seed", "%d", rank == 1 ? 2 : 1);
  zx_fact(f, ZX_RECIPE, "--seed", "%d", 1); /* a name of another kind is another name */
}
static void two_kinds(ZxFacts *f, int rank) {
  if (rank % 2 == 0) return of_all(f);
  zx_fact(f, ZX_RECIPE, "micro", "%d", 4);
  zx_fact(f, ZX_RECIPE, "clip", "%g", 1.0);
  zx_fact(f, ZX_OPTIONS, "--seed", "%d", 1);
  zx_fact(f, ZX_PLAN, "digest", "%s", "a\nb");
}
static void something_missing(ZxFacts *f, int rank) {
  if (rank < 3) return of_all(f);
  zx_fact(f, ZX_RECIPE, "micro", "%d", 4);
}
/* The same names, from another one on: each is found, wherever it is. */
static void another_order(ZxFacts *f, int rank) {
  for (int i = 0; i < 5; i++) {
    const char *name = (const char *[]){"a", "b", "c", "d", "e"}[rank % 2 ? (i + rank / 2) % 5 : i];
    zx_fact(f, ZX_OPTIONS, name, "%d", rank && *name == 'c');
  }
}
static void everything(ZxFacts *f, int rank) {
  for (int kind = 0; kind <= ZX_MEANS; kind++) zx_fact(f, (ZxFactKind)kind, "x", "%d", rank > 0);
}

Test(together, who_differs_in_what) {
  expect(3, one_differs, "rank 1 was given other options: --seed 2 where rank 0 has 1\n");
  expect(4, two_kinds,
         "ranks 1, 3 were given another recipe: clip 1 where rank 0 has 0.5\n"
         "ranks 1, 3 made another plan: digest a\\nb where rank 0 has none\n");
  expect(4, something_missing,
         "rank 3 was given other options: --seed none where rank 0 has 1\n"
         "rank 3 was given another recipe: clip none where rank 0 has 0.5\n");
  expect(2, another_order, "rank 1 was given other options: c 1 where rank 0 has 0\n");
  expect(10, another_order, "ranks 1 to 9 were given other options: c 1 where rank 0 has 0\n");
  expect(2, everything,
         "rank 1 runs another build: x 1 where rank 0 has 0\n"
         "rank 1 was given other options: x 1 where rank 0 has 0\n"
         "rank 1 was given another stage graph: x 1 where rank 0 has 0\n"
         "rank 1 was given another recipe: x 1 where rank 0 has 0\n"
         "rank 1 was given another cluster: x 1 where rank 0 has 0\n"
         "rank 1 was given other data: x 1 where rank 0 has 0\n"
         "rank 1 was given other held-out data: x 1 where rank 0 has 0\n"
         "rank 1 was given other initial weights: x 1 where rank 0 has 0\n"
         "rank 1 made another plan: x 1 where rank 0 has 0\n"
         "rank 1 computes by other means: x 1 where rank 0 has 0\n");
  expect(3, everything,
         "ranks 1, 2 run another build: x 1 where rank 0 has 0\n"
         "ranks 1, 2 were given other options: x 1 where rank 0 has 0\n"
         "ranks 1, 2 were given another stage graph: x 1 where rank 0 has 0\n"
         "ranks 1, 2 were given another recipe: x 1 where rank 0 has 0\n"
         "ranks 1, 2 were given another cluster: x 1 where rank 0 has 0\n"
         "ranks 1, 2 were given other data: x 1 where rank 0 has 0\n"
         "ranks 1, 2 were given other held-out data: x 1 where rank 0 has 0\n"
         "ranks 1, 2 were given other initial weights: x 1 where rank 0 has 0\n"
         "ranks 1, 2 made another plan: x 1 where rank 0 has 0\n"
         "ranks 1, 2 compute by other means: x 1 where rank 0 has 0\n");
}

/* Many facts, many groups and long values are told in few words. */
static void many_facts(ZxFacts *f, int rank) {
  for (int i = 0; i < 5 + rank / 2; i++)
    zx_fact(f, ZX_RECIPE, (const char *[]){"a", "b", "c", "d", "e", "f"}[i], "%d", rank);
  zx_fact(f, ZX_INIT, "sum", "%d", rank);
}
static void own_facts(ZxFacts *f, int rank) { zx_fact(f, ZX_DATA, "file", "%d", rank < 7 ? rank : 7); }
static void long_values(ZxFacts *f, int rank) {
  char text[3000];
  memset(text, 'x', sizeof text - 1);
  text[sizeof text - 1] = 0;
  if (rank == 1) text[0] = 'y';
  if (rank == 2) text[40] = 'y';
  if (rank == 3) text[2500] = 'y';
  if (rank == 4) text[60] = 0;
  zx_fact(f, ZX_PLAN, "all", "%s", text);
}
/* As long as the text that one is made in, and one less. */
static void ends(ZxFacts *f, int rank) {
  char text[1025];
  memset(text, 'x', sizeof text - 1);
  text[sizeof text - 1] = 0;
  zx_fact(f, ZX_PLAN, "long", "%s%c", text + 1, rank ? 'y' : 'x');
  zx_fact(f, ZX_PLAN, "less", "%s%c", text + 2, rank ? 'y' : 'x');
}

#define X15 "xxxxxxxxxxxxxxx"
#define X44 X15 X15 "xxxxxxxxxxxxxx"
#define X60 X15 X15 X15 X15
Test(together, in_few_words) {
  expect(2, many_facts,
         "rank 1 was given another recipe: a 1 where rank 0 has 0; b 1 where rank 0 has 0; c 1 where rank 0 "
         "has 0; "
         "d 1 where rank 0 has 0; and 1 more\n"
         "rank 1 was given other initial weights: sum 1 where rank 0 has 0\n");
  expect(6, own_facts,
         "rank 1 was given other data: file 1 where rank 0 has 0\n"
         "rank 2 was given other data: file 2 where rank 0 has 0\n"
         "rank 3 was given other data: file 3 where rank 0 has 0\n"
         "rank 4 was given other data: file 4 where rank 0 has 0\n"
         "1 more rank differs from rank 0 in other ways\n");
  expect(12, own_facts,
         "rank 1 was given other data: file 1 where rank 0 has 0\n"
         "rank 2 was given other data: file 2 where rank 0 has 0\n"
         "rank 3 was given other data: file 3 where rank 0 has 0\n"
         "rank 4 was given other data: file 4 where rank 0 has 0\n"
         "7 more ranks differ from rank 0 in other ways\n");
  expect(2, ends,
         "rank 1 made another plan: long ..." X15 "y where rank 0 has ..." X15 "x; less ..." X15
         "y where rank 0 has ..." X15 "x\n");
  expect(5, long_values, /* 60 bytes of each, 15 of them before the first that differs */
         "rank 1 made another plan: all y" X44 X15 "... where rank 0 has " X60 "...\n"
         "rank 2 made another plan: all ..." X15 "y" X44 "... where rank 0 has ..." X60 "...\n"
         "rank 3 made another plan: all ..." X15 "y" X44 "... where rank 0 has ..." X60 "...\n"
         "rank 4 made another plan: all " X60 " where rank 0 has ..." X60 "...\n");
}
