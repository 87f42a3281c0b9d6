/* Pages: what a window sees is there, what is written to is nobody else's, and none is lost. */
#include "runtime/exec/generate/generate.h"
#include "tests/unit/breadth.h"

#include <criterion/criterion.h>

static uint64_t drawn;
static uint32_t draw(uint32_t n) { return (uint32_t)(zb_random_u64(43, 1, drawn++) % n); }
static ZbErr err;

static ZxPages *pages(ZbArena *a, uint32_t npages, uint32_t window) {
  const ZxPageGroup group = {npages, window};
  return zx_pages_new(
      a, &(ZxPaging){
             .group = &group, .ngroups = 1, .page = 4, .slots = 3, .length = 40, .tokens = 8, .keeps = true});
}

#define CHECKED(p) cr_assert(zx_pages_check(p, &err), "%s", err.text)

Test(pages, of_a_window_go_back) {
  ZbArena *a = zb_arena_new();
  ZxPages *p = pages(a, 6, 6);
  for (uint32_t at = 0; at < 40; at += 5) {
    cr_expect(zx_pages_take(p, 1, at, at + 5));
    CHECKED(p);
    const uint32_t *table = zx_pages_table(p, 0, 1);
    for (uint32_t i = 0; i < 10; i++) {
      bool seen = 4 * i + 3 + 5 >= at && 4 * i < at + 5; /* position `at` sees 5 before it */
      cr_expect((table[i] != ZX_NO_PAGE) == seen, "position %u, entry %u", at, i);
    }
    cr_expect(6 - zx_pages_free(p, 0) <= zx_pages_most(p, 0, at + 5));
  }
  zx_pages_give(p, 1);
  CHECKED(p);
  cr_expect_eq(zx_pages_free(p, 0), 6);
  cr_expect_eq(zx_pages_most(p, 0, 40), (6 + 8 - 1 + 4 - 2) / 4 + 1);
  cr_expect_eq(zx_pages_most(p, 0, 9), 3);
  zb_arena_free(a);
}

Test(pages, none_is_taken_of_too_few) {
  ZbArena *a = zb_arena_new();
  ZxPages *p = pages(a, 3, 0);
  cr_expect(zx_pages_take(p, 0, 0, 7));
  cr_expect(!zx_pages_take(p, 2, 0, 8));
  CHECKED(p);
  cr_expect_eq(zx_pages_free(p, 0), 1);
  cr_expect(zx_pages_take(p, 0, 7, 8) && zx_pages_free(p, 0) == 1);
  cr_expect(zx_pages_take(p, 2, 0, 4) && !zx_pages_take(p, 2, 4, 5));
  zx_pages_give(p, 0);
  cr_expect(zx_pages_take(p, 2, 4, 5));
  CHECKED(p);
  zb_arena_free(a);
}

/* Two full pages are shared, the third is copied, and each goes on by itself. */
Test(pages, shared) {
  ZbArena *a = zb_arena_new();
  ZxPages *p = pages(a, 8, 0);
  ZxPageCopy copy[2];
  uint32_t n = 0;
  zx_pages_take(p, 0, 0, 8);
  zx_pages_take(p, 0, 8, 12);
  cr_assert(zx_pages_share(p, 1, 0, 10, copy, &n));
  CHECKED(p);
  const uint32_t *one = zx_pages_table(p, 0, 0), *two = zx_pages_table(p, 0, 1);
  cr_expect(n == 1 && copy[0].from == one[2] && copy[0].to == two[2] && one[2] != two[2]);
  cr_expect(one[0] == two[0] && one[1] == two[1] && zx_pages_free(p, 0) == 4);
  cr_expect(zx_pages_take(p, 1, 10, 11) && zx_pages_take(p, 0, 12, 13));
  CHECKED(p);
  zx_pages_give(p, 0);
  CHECKED(p);
  cr_expect_eq(zx_pages_free(p, 0), 5);
  cr_assert(zx_pages_share(p, 2, 1, 8, copy, &n));
  cr_expect(n == 1 && zx_pages_free(p, 0) == 5, "full pages are not copied");
  CHECKED(p);
  zx_pages_give(p, 1);
  zx_pages_give(p, 2);
  CHECKED(p);
  cr_expect_eq(zx_pages_free(p, 0), 8);
  zb_arena_free(a);
}

Test(pages, a_window_that_has_moved_on_is_not_shared) {
  ZbArena *a = zb_arena_new();
  ZxPages *p = pages(a, 8, 5);
  for (uint32_t at = 0; at < 20; at += 4) zx_pages_take(p, 0, at, at + 4);
  cr_expect(zx_pages_can_share(p, 0, 16) && !zx_pages_can_share(p, 0, 8));
  zb_arena_free(a);
}

/* ---- prefixes ---- */
static const uint32_t text[40] = {7, 1, 8, 2, 8, 1, 8, 2, 8, 4, 5, 9, 0, 4, 5, 2},
                      other_text[8] = {7, 1, 8, 2, 8, 1, 8, 3};

static void prefixes(ZxPrefix *of, const uint32_t *id, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) of[i] = zx_prefix(i ? of[i - 1] : (ZxPrefix){0}, id + 4 * i, 4);
}

static void write_text(ZxPages *p, uint32_t slot, uint32_t tokens) {
  ZxPrefix of[10];
  prefixes(of, text, tokens / 4);
  for (uint32_t at = 0; at < tokens; at += 4) {
    cr_assert(zx_pages_take(p, slot, at, at + 4));
    zx_pages_keep(p, slot, at / 4, of[at / 4], text + at);
    CHECKED(p);
  }
}

Test(pages, are_kept_until_they_are_needed) {
  ZbArena *a = zb_arena_new();
  ZxPages *p = pages(a, 6, 0);
  ZxPrefix of[4], others[2];
  prefixes(of, text, 4);
  prefixes(others, other_text, 2);
  write_text(p, 0, 16);
  uint32_t had[4];
  memcpy(had, zx_pages_table(p, 0, 0), sizeof had);
  zx_pages_give(p, 0);
  CHECKED(p);
  cr_expect_eq(zx_pages_free(p, 0), 6);
  cr_expect_eq(zx_pages_kept(p, of, text, 4), 4);
  cr_expect_eq(zx_pages_kept(p, of, text, 3), 3);
  cr_expect_eq(zx_pages_kept(p, others, other_text, 2), 1);
  cr_expect_eq(zx_pages_kept(p, of, other_text, 2), 1, "a hash alone is not enough");
  zx_pages_resume(p, 1, of, text, 3);
  CHECKED(p);
  cr_expect(!memcmp(had, zx_pages_table(p, 0, 1), 3 * sizeof *had) && zx_pages_free(p, 0) == 3);
  zx_pages_give(p, 1);
  cr_expect(zx_pages_take(p, 2, 0, 8), "two were never known");
  cr_expect_eq(zx_pages_kept(p, of, text, 4), 4);
  cr_expect(zx_pages_take(p, 2, 8, 12), "the end of the text goes first");
  CHECKED(p);
  cr_expect_eq(zx_pages_kept(p, of, text, 4), 3);
  zx_pages_resume(p, 0, of, text, 3);
  cr_expect(!zx_pages_take(p, 2, 12, 16), "none is left");
  CHECKED(p);
  zb_arena_free(a);
}

/* Position 16 sees 12 to 16 with a window of 5: one page is enough to go on behind 16 positions. But position
 * 8 sees 4 to 8, whose page is gone. */
Test(pages, of_a_window_are_enough) {
  ZbArena *a = zb_arena_new();
  ZxPages *p = pages(a, 4, 5);
  ZxPrefix of[5];
  prefixes(of, text, 5);
  write_text(p, 0, 16);
  zx_pages_give(p, 0);
  cr_expect(zx_pages_take(p, 1, 0, 8) && zx_pages_take(p, 1, 8, 12));
  cr_expect_eq(zx_pages_kept(p, of, text, 5), 4);
  cr_expect_eq(zx_pages_kept(p, of, text, 3), 3);
  cr_expect_eq(zx_pages_kept(p, of, text, 2), 0);
  zx_pages_resume(p, 2, of, text, 4);
  CHECKED(p);
  const uint32_t *table = zx_pages_table(p, 0, 2);
  cr_expect(table[2] == ZX_NO_PAGE && table[3] != ZX_NO_PAGE && table[4] == ZX_NO_PAGE);
  zb_arena_free(a);
}

/* ---- random sequences of operations, on a memory that says what lies in it ---- */
enum { SEATS = 5, GROUPS = 3, LENGTH = 60, MOST = 40 };
typedef struct {
  ZxPages *p;
  ZxPageGroup group[GROUPS];
  uint32_t page;
  bool keeps;
  uint32_t n[SEATS], text[SEATS]; /* positions that are there, and a number of what they hold */
  uint32_t memory[GROUPS][MOST * 16];
} World;

static uint32_t *at(World *w, uint32_t g, uint32_t slot, uint32_t position) {
  uint32_t page = zx_pages_table(w->p, g, slot)[position / w->page];
  cr_assert(page < w->group[g].pages, "group %u, slot %u, position %u has no page", g, slot, position);
  return &w->memory[g][page * 16 + position % w->page];
}

/* There are few texts, some of which begin alike. */
static uint32_t held_by(uint32_t text, uint32_t position) {
  return (uint32_t)zb_random_u64(position < 20 ? text / 3 : text, 2, position);
}
static uint32_t held(const World *w, uint32_t slot, uint32_t position) {
  return held_by(w->text[slot], position);
}

static void look(World *w, uint32_t slot, uint32_t from) {
  for (uint32_t g = 0; g < GROUPS; g++) {
    uint32_t window = w->group[g].window, first = window && from + 1 > window ? from + 1 - window : 0;
    for (uint32_t i = first; i < from; i++)
      cr_assert_eq(*at(w, g, slot, i), held(w, slot, i), "group %u, slot %u, position %u is another's", g,
                   slot, i);
  }
}

/* Writes the ids of a text's first n pages, and their prefixes. */
static void known(const World *w, uint32_t text, uint32_t n, uint32_t *id, ZxPrefix *of) {
  for (uint32_t i = 0; i < n * w->page; i++) id[i] = held_by(text, i);
  for (uint32_t i = 0; i < n; i++)
    of[i] = zx_prefix(i ? of[i - 1] : (ZxPrefix){0}, id + i * w->page, w->page);
}

/* A slot goes on behind what is kept of a text. */
static void resume(World *w, uint32_t slot, uint64_t *resumed) {
  uint32_t id[LENGTH], n = draw(LENGTH / w->page + 1);
  ZxPrefix of[LENGTH];
  if (w->n[slot] || !w->keeps) return;
  w->text[slot] = draw(12);
  known(w, w->text[slot], n, id, of);
  n = zx_pages_kept(w->p, of, id, n);
  if (!n) return;
  zx_pages_resume(w->p, slot, of, id, n);
  w->n[slot] = n * w->page;
  look(w, slot, w->n[slot]);
  *resumed += n;
}

/* Makes full pages known, all or none. */
static void keep(World *w, uint32_t slot, uint32_t from) {
  uint32_t id[LENGTH], n = w->n[slot] / w->page;
  ZxPrefix of[LENGTH];
  if (!w->keeps || !draw(4)) return;
  known(w, w->text[slot], n, id, of);
  for (uint32_t i = from / w->page; i < n; i++) zx_pages_keep(w->p, slot, i, of[i], id + i * w->page);
}

static void grow(World *w, uint32_t slot) {
  uint32_t from = w->n[slot], to = from + 1 + draw(9);
  if (!from) w->text[slot] = draw(12);
  if (to > LENGTH || !zx_pages_take(w->p, slot, from, to)) return;
  look(w, slot, from);
  for (uint32_t g = 0; g < GROUPS; g++)
    for (uint32_t i = from; i < to; i++) *at(w, g, slot, i) = held(w, slot, i);
  w->n[slot] = to;
  keep(w, slot, from);
}

static void share(World *w, uint32_t slot, uint32_t of) {
  ZxPageCopy copy[GROUPS];
  uint32_t n = 0, tokens = w->n[of] ? draw(w->n[of] + 1) : 0;
  if (!tokens || w->n[slot] || !zx_pages_can_share(w->p, of, tokens) ||
      !zx_pages_share(w->p, slot, of, tokens, copy, &n))
    return;
  for (uint32_t i = 0; i < n; i++)
    memcpy(&w->memory[copy[i].group][copy[i].to * 16], &w->memory[copy[i].group][copy[i].from * 16], 64);
  w->n[slot] = tokens;
  w->text[slot] = w->text[of];
}

Test(pages, random_operations) {
  uint64_t resumed = 0;
  for (uint32_t trial = 0; trial < breadth_many(120); trial++) {
    ZbArena *a = zb_arena_new();
    World *w = ZB_NEW(a, World);
    w->page = 1 + draw(16);
    w->keeps = draw(3);
    for (uint32_t g = 0; g < GROUPS; g++) w->group[g] = (ZxPageGroup){1 + draw(MOST), g ? draw(30) : 0};
    w->p = zx_pages_new(a, &(ZxPaging){w->group, GROUPS, w->page, SEATS, LENGTH, 9, w->keeps});
    for (uint32_t k = 0; k < 200; k++) {
      uint32_t slot = draw(SEATS), other = draw(SEATS), what = draw(10);
      if (what == 0) zx_pages_give(w->p, slot), w->n[slot] = 0;
      else if (what == 1 && slot != other) share(w, slot, other);
      else if (what == 2) resume(w, slot, &resumed);
      else grow(w, slot);
      CHECKED(w->p);
      for (uint32_t g = 0; g < GROUPS; g++) {
        uint32_t pages = 0;
        for (uint32_t i = 0; i < (LENGTH - 1) / w->page + 1; i++)
          pages += zx_pages_table(w->p, g, slot)[i] != ZX_NO_PAGE;
        cr_assert(pages <= zx_pages_most(w->p, g, w->n[slot]), "%u pages for %u positions", pages,
                  w->n[slot]);
      }
    }
    for (uint32_t slot = 0; slot < SEATS; slot++) zx_pages_give(w->p, slot);
    CHECKED(w->p);
    for (uint32_t g = 0; g < GROUPS; g++) cr_assert_eq(zx_pages_free(w->p, g), w->group[g].pages);
    zb_arena_free(a);
  }
  cr_expect(resumed > 20, "%llu pages were kept for somebody", (unsigned long long)resumed);
}
