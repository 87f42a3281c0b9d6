/* Pages: what a window sees is there, what is written to is nobody else's, and none is lost. */
#include "runtime/exec/generate/generate.h"
#include "tests/unit/breadth.h"

#include <criterion/criterion.h>

static uint64_t drawn;
static uint32_t draw(uint32_t n) { return (uint32_t)(zb_random_u64(43, 1, drawn++) % n); }
static ZbErr err;

static ZxPages *pages(ZbArena *a, uint32_t npages, uint32_t window) {
  const ZxPageGroup group = {npages, window};
  return zx_pages_new(a, &(ZxPaging){&group, 1, 4, 3, 40, 8});
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

/* ---- random sequences of operations, on a memory that says what lies in it ---- */
enum { SEATS = 5, GROUPS = 3, LENGTH = 60, MOST = 40 };
typedef struct {
  ZxPages *p;
  ZxPageGroup group[GROUPS];
  uint32_t page;
  uint32_t n[SEATS], text[SEATS]; /* positions that are there, and a number of what they hold */
  uint32_t memory[GROUPS][MOST * 16];
} World;

static uint32_t *at(World *w, uint32_t g, uint32_t slot, uint32_t position) {
  uint32_t page = zx_pages_table(w->p, g, slot)[position / w->page];
  cr_assert(page < w->group[g].pages, "group %u, slot %u, position %u has no page", g, slot, position);
  return &w->memory[g][page * 16 + position % w->page];
}

static uint32_t held(const World *w, uint32_t slot, uint32_t position) {
  return (uint32_t)zb_random_u64(w->text[slot], 2, position);
}

static void look(World *w, uint32_t slot, uint32_t from) {
  for (uint32_t g = 0; g < GROUPS; g++) {
    uint32_t window = w->group[g].window, first = window && from + 1 > window ? from + 1 - window : 0;
    for (uint32_t i = first; i < from; i++)
      cr_assert_eq(*at(w, g, slot, i), held(w, slot, i), "group %u, slot %u, position %u is another's", g,
                   slot, i);
  }
}

static void grow(World *w, uint32_t slot) {
  uint32_t from = w->n[slot], to = from + 1 + draw(9);
  if (!from) w->text[slot] = draw(1 << 30);
  if (to > LENGTH || !zx_pages_take(w->p, slot, from, to)) return;
  look(w, slot, from);
  for (uint32_t g = 0; g < GROUPS; g++)
    for (uint32_t i = from; i < to; i++) *at(w, g, slot, i) = held(w, slot, i);
  w->n[slot] = to;
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
  for (uint32_t trial = 0; trial < breadth_many(120); trial++) {
    ZbArena *a = zb_arena_new();
    World *w = ZB_NEW(a, World);
    w->page = 1 + draw(16);
    for (uint32_t g = 0; g < GROUPS; g++) w->group[g] = (ZxPageGroup){1 + draw(MOST), g ? draw(30) : 0};
    w->p = zx_pages_new(a, &(ZxPaging){w->group, GROUPS, w->page, SEATS, LENGTH, 9});
    for (uint32_t k = 0; k < 200; k++) {
      uint32_t slot = draw(SEATS), other = draw(SEATS), what = draw(8);
      if (what == 0) zx_pages_give(w->p, slot), w->n[slot] = 0;
      else if (what == 1 && slot != other) share(w, slot, other);
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
}
