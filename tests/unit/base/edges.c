/* What base promises, to the last digit: arenas and arrays, units, edit distances, messages, fixed random
 * bits. */
#define _GNU_SOURCE /* dlinfo */
#include "base/base.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* A large request gets memory of its own, and the small ones go on where they were. */
#ifndef __SANITIZE_ADDRESS__ /* which is given bytes between them */
Test(arena, large_requests_leave_the_rest_open) {
  ZbArena *a = zb_arena_new();
  char *first = zb_alloc(a, 16), *second = zb_alloc(a, 1);
  cr_expect_eq(second - first, 16);
  char *large = zb_alloc(a, (32 << 10) + 16), *rest = zb_alloc(a, 17);
  cr_expect_eq(large - second, 16, "there was room");
  cr_expect_eq(rest - large, (32 << 10) + 16);
  char *own = zb_alloc(a, 40 << 10), *next = zb_alloc(a, 1);
  cr_expect(own < first || own >= first + (64 << 10));
  cr_expect_eq(next - rest, 32);
  char *last = zb_alloc(a, (64 << 10) - (size_t)(next - first) - 16); /* to the last byte */
  cr_expect_eq(last - next, 16);
  char *fresh = zb_alloc(a, 32 << 10), *after = zb_alloc(a, 1);
  cr_expect(fresh < first || fresh >= first + (64 << 10));
  cr_expect_eq(after - fresh, 32 << 10);
  cr_expect_eq((uintptr_t)first % 64, 0);
  zb_arena_free(a);
}
#endif

/* An array moves when it has as many elements as a power of two, and at no other time. */
Test(arena, arrays_double) {
  ZbArena *a = zb_arena_new();
  char *p = NULL;
  for (size_t n = 0; n < 300; n++) {
    char *q = zb_grow(a, p, n, 1);
    cr_expect_eq(q != p, (n & (n - 1)) == 0, "%zu", n);
    for (size_t i = 0; i < n; i++) cr_assert_eq(q[i], (char)i, "%zu of %zu", i, n);
    q[n] = (char)n;
    p = q;
  }
  cr_expect_eq(zb_array_bytes(7, 9), 63u);
  cr_expect_eq(zb_array_bytes(SIZE_MAX / 2 / 8, 8), SIZE_MAX / 2 / 8 * 8);
  cr_expect_eq(zb_array_bytes(SIZE_MAX, 0), 0u);
  zb_arena_free(a);
}

Test(bugs, arrays_of_more_than_half_of_all_memory, .signal = SIGABRT) {
  zb_array_bytes(SIZE_MAX / 2 / 8 + 1, 8);
}
Test(bugs, memory_that_nobody_has, .exit_code = 1) { zb_alloc(zb_arena_new(), SIZE_MAX - 100); }

static void redirect(void) { cr_redirect_stderr(); }
static void say(int sig) {
  (void)sig;
  fflush(stderr);
  _Exit(77);
}
Test(bugs, what_is_said, .init = redirect, .exit_code = 77) {
  signal(SIGABRT, say);
  setvbuf(stderr, NULL, _IONBF, 0);
  zb_bug("graph/read.c", 12, "%d sections", 3);
}

Test(arithmetic, the_last_that_fits) {
  uint64_t r = 42;
  cr_expect(zb_mul_u64(UINT64_MAX, 1, &r) && r == UINT64_MAX);
  cr_expect(zb_mul_u64(0, UINT64_MAX, &r) && r == 0);
  cr_expect(!zb_mul_u64(UINT64_MAX / 3 + 1, 3, &r) && r == 0);
  cr_expect(zb_add_u64(UINT64_MAX, 0, &r) && r == UINT64_MAX);
  cr_expect_eq(zb_round_up(1, 64), 64u);
  cr_expect_eq(zb_round_up(64, 64), 64u);
  cr_expect_eq(zb_round_up(10, 3), 12u);
}

Test(text, put_and_add_in_turn) {
  ZbText t = {0};
  char want[3000] = "";
  size_t len = 0;
  for (int i = 0; i < 300; i++) {
    if (i % 2) zb_text_put(&t, "abcdefghij", (size_t)i % 10);
    else zb_text_add(&t, "%.*s", i % 10, "ABCDEFGHIJ");
    memcpy(want + len, i % 2 ? "abcdefghij" : "ABCDEFGHIJ", (size_t)i % 10);
    len += (size_t)i % 10;
    cr_assert(t.len == len && t.s[len] == 0 && t.cap > len && !memcmp(t.s, want, len), "%d", i);
  }
  zb_text_free(&t);
  cr_expect(!t.s && !t.len && !t.cap);
}

Test(text, units) {
  static const struct {
    uint64_t bytes;
    const char *text;
  } cases[] = {{1, "1 B"},
               {1000, "1.0 kB"},
               {1049, "1.0 kB"},
               {1051, "1.1 kB"},
               {999900, "999.9 kB"},
               {999949, "999.9 kB"},
               {999950, "1.0 MB"},
               {1000000000, "1.0 GB"},
               {2500000000000, "2.5 TB"},
               {999949999999999, "999.9 TB"},
               {999950000000000, "1.0 PB"},
               {1000000000000000000, "1000.0 PB"}};
  char b[24];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    cr_expect_str_eq(zb_bytes(b, cases[i].bytes), cases[i].text);
  zb_bytes_exactly(true);
  cr_expect_str_eq(zb_bytes(b, 999949), "999949 B");
  cr_expect_str_eq(zb_bytes(b, UINT64_MAX), "18446744073709551615 B");
  zb_bytes_exactly(false);
  cr_expect_str_eq(zb_bytes(b, 999949), "999.9 kB");
}

/* Near is at most a third of the length and one more, with a letter the same; the first of those that are
 * equally near. */
Test(names, distances) {
  static const struct {
    const char *name, *other;
    bool near;
  } cases[] = {{"a", "b", false},
               {"a", "bc", false},
               {"ab", "cb", true},
               {"ab", "cd", false},
               {"abc", "axy", true},
               {"abc", "xyz", false},
               {"abcde", "abc", true},
               {"abcde", "ab", false},
               {"abcdef", "abc", true},
               {"abcdef", "ab", false},
               {"abc", "abcde", true},
               {"abc", "abcdef", false},
               {"abcd", "bacd", true},
               {"abcdef", "badcef", true},
               {"abcdef", "badcfe", false},
               {"abcdef", "xbcdef", true},
               {"abcdef", "abcdex", true},
               {"abcdefghi", "defghi", true},
               {"abcdefghi", "efghi", true},
               {"abcdefghi", "fghi", false},
               {"", "a", false},
               {"", "ab", false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    cr_expect_eq(zb_nearest(cases[i].name, &cases[i].other, 1) != NULL, cases[i].near, "%s and %s",
                 cases[i].name, cases[i].other);
  const char *const two[] = {"heads", "heats", "head"};
  cr_expect_str_eq(zb_nearest("heaps", two, 3), "heads");
  cr_expect_str_eq(zb_nearest("hea", two, 3), "head");
  cr_expect_str_eq(zb_nearest("heats", two, 3), "heats");
  char longest[66] = "", longer[66] = "";
  memset(longest, 'a', 64);
  memset(longer, 'a', 65);
  const char *const names[] = {longer, longest};
  cr_expect_eq(zb_nearest(longest, names, 2), longest);
  cr_expect_null(zb_nearest(longer, names, 2));
}

Test(errors, long_messages_are_cut) {
  ZbErr e = {0};
  char text[2000] = "";
  memset(text, 'x', sizeof text - 1);
  zb_fail(&e, text, "%s", text);
  cr_expect_eq(strlen(e.text), sizeof e.text - 1);
  cr_expect_eq(strlen(e.help), sizeof e.help - 1);
}

Test(modules, that_are_not_there) {
  ZbErr e = {0};
  cr_expect_null(zb_module("zug-none.so", true, &e));
  cr_expect(strstr(e.text, "cannot load ") && strstr(e.text, "zug-none.so") && e.help[0], "%s", e.text);
  e = (ZbErr){0};
  cr_expect_null(zb_symbol(NULL, "zug_no_such_function", &e));
  cr_expect(strstr(e.text, "it has no zug_no_such_function"), "%s", e.text);
  e = (ZbErr){0};
  cr_expect_not_null(zb_symbol(NULL, "malloc", &e));
  cr_expect_eq(e.text[0], 0);
}

/* A module beside the program is taken before one that is installed. */
Test(modules, that_lie_beside_the_program) {
  char path[PATH_MAX], self[PATH_MAX];
  cr_expect(!zb_module_path("zug-beside.so", path, sizeof path));
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  cr_assert(n > 0);
  self[n] = 0;
  strcpy(strrchr(self, '/') + 1, "zug-beside.so");
  struct link_map *c = NULL;
  cr_assert(dlinfo(dlopen("libc.so.6", RTLD_LAZY), RTLD_DI_LINKMAP, &c) == 0);
  cr_assert(symlink(c->l_name, self) == 0);
  cr_expect(zb_module_path("zug-beside.so", path, sizeof path));
  cr_expect_str_eq(path, self);
  ZbErr e = {0};
  void *now = zb_module("zug-beside.so", true, &e), *later = zb_module("zug-beside.so", false, &e);
  cr_expect(now && now == later && zb_symbol(now, "malloc", &e), "%s", e.text);
  unlink(self);
}

/* Weights and dropout of every run depend on these. */
Test(random, bits_never_change) {
  cr_expect_eq(zb_stream(""), 0xcbf29ce484222325u);
  cr_expect_eq(zb_stream("a"), 0xaf63dc4c8601ec8cu);
  cr_expect_eq(zb_stream("layer.*.attn.wq"), 0x9bacc7a4958affd7u);
  cr_expect_eq(zb_mix64(1), 0x5692161d100b05e5u);
  cr_expect_eq(zb_random_u64(1, 2, 3), 0x19aa19cc45ee8c13u);
  cr_expect_eq(zb_random_u64(0, 0, 0), 0xb49ab477bb8685e2u);
  cr_expect_eq(zb_random_unit(7, 8, 9), 0x1.d3133e4b1b187p-2);
}
