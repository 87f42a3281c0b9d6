/* Unit tests of base: arenas, arrays, checked arithmetic, text, names, randomness, files. */
#include "base/base.h"

#include <criterion/criterion.h>
#include <time.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

Test(arena, memory_is_zeroed_aligned_and_apart) {
  ZbArena *a = zb_arena_new();
  char *last = NULL;
  for (size_t n = 1; n < 200000; n = n * 3 + 1) {
    char *p = zb_alloc(a, n);
    cr_assert_eq((uintptr_t)p % 16, 0);
    for (size_t i = 0; i < n; i++) cr_assert_eq(p[i], 0);
    memset(p, 0xa5, n);
    if (last) cr_assert_eq((unsigned char)*last, 0xa5);
    last = p;
  }
  zb_arena_free(a);
  zb_arena_free(NULL);
}

Test(arena, strings) {
  ZbArena *a = zb_arena_new();
  cr_assert_str_eq(zb_strdup(a, "axis"), "axis");
  cr_assert_str_eq(zb_strndup(a, "axis", 2), "ax");
  cr_assert_str_eq(zb_printf(a, "%s.%d", "layer", 3), "layer.3");
  zb_arena_free(a);
}

Test(arena, push_keeps_what_was_there) {
  ZbArena *a = zb_arena_new();
  int *p = NULL, n = 0;
  for (int i = 0; i < 1000; i++) ZB_PUSH(a, p, n, i * 7);
  cr_assert_eq(n, 1000);
  for (int i = 0; i < 1000; i++) cr_assert_eq(p[i], i * 7);
  zb_arena_free(a);
}

Test(arithmetic, overflow_is_seen_and_leaves_the_result_alone) {
  uint64_t r = 42;
  cr_assert_not(zb_mul_u64(1ull << 33, 1ull << 31, &r));
  cr_assert_not(zb_add_u64(UINT64_MAX, 1, &r));
  cr_assert_eq(r, 42);
  cr_assert(zb_mul_u64(1ull << 32, 1ull << 31, &r));
  cr_assert_eq(r, 1ull << 63);
  cr_assert(zb_add_u64(UINT64_MAX - 1, 1, &r));
  cr_assert_eq(r, UINT64_MAX);
  cr_assert_eq(zb_round_up(0, 64), 0);
  cr_assert_eq(zb_round_up(65, 64), 128);
}

Test(text, grows) {
  ZbText t = {0};
  for (int i = 0; i < 5000; i++) zb_text_add(&t, "%d,", i % 10);
  cr_assert_eq(t.len, 10000);
  cr_assert_eq(strlen(t.s), t.len);
  zb_text_put(&t, "end", 3);
  cr_assert_str_eq(t.s + 10000, "end");
  zb_text_free(&t);
  cr_assert_null(t.s);
}

Test(text, bytes_as_a_person_reads_them) {
  char b[24];
  cr_assert_str_eq(zb_bytes(b, 0), "0 B");
  cr_assert_str_eq(zb_bytes(b, 999), "999 B");
  cr_assert_str_eq(zb_bytes(b, 12345678), "12.3 MB");
  cr_assert_str_eq(zb_bytes(b, 999999), "1.0 MB");
  cr_assert_str_eq(zb_bytes(b, UINT64_MAX), "18446.7 PB");
}

Test(text, durations) {
  static const struct {
    const char *text;
    double seconds;
  } good[] = {{"90s", 90}, {"10m", 600}, {"3h50m", 13800}, {"1d12h", 129600}, {"1d2h3m4s", 93784}, {"0s", 0}};
  static const char *const bad[] = {"",    "90",  "s",   "m10",         "10m3h", "1h1h", "1.5h",
                                    "-1s", " 1s", "1s ", "1000000000s", "1w",    "3h50", "1S"};
  double s;
  char b[24];
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    cr_expect(zb_duration(good[i].text, &s) && s == good[i].seconds, "%s: %g", good[i].text, s);
    if (i) cr_expect_str_eq(zb_duration_text(b, s), good[i].text);
  }
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) cr_expect(!zb_duration(bad[i], &s), "%s", bad[i]);
  cr_expect(zb_duration("999999999s", &s) && s == 999999999);
  cr_expect_str_eq(zb_duration_text(b, s), "11574d1h46m39s");
  cr_expect_str_eq(zb_duration_text(b, 0.49), "0s");
  cr_expect_str_eq(zb_duration_text(b, 0.5), "1s");
  cr_expect_str_eq(zb_duration_text(b, 59.5), "1m");
  cr_expect_str_eq(zb_duration_text(b, 89.6), "1m30s");
  cr_expect_str_eq(zb_duration_text(b, -3), "0s");
  cr_expect_str_eq(zb_duration_text(b, 1e300), "11574d1h46m40s");
}

Test(names, nearest) {
  const char *const axes[] = {"batch", "seq", "embed", "vocab"};
  cr_assert_str_eq(zb_nearest("vocb", axes, 4), "vocab");
  cr_assert_str_eq(zb_nearest("sek", axes, 4), "seq");
  cr_assert_null(zb_nearest("kv_heads", axes, 4));
  cr_assert_null(zb_nearest("x", axes, 0));
  static const char *const letters[] = {"b", "cd", "aa"};
  cr_assert_str_eq(zb_nearest("a", letters, 3), "aa");
  cr_assert_null(zb_nearest("a", letters, 2));
}

Test(errors, fail_writes_the_message_and_the_help) {
  ZbErr e = {0};
  cr_assert_not(zb_fail(&e, "do this", "%d is not %d", 3, 4));
  cr_assert_str_eq(e.text, "3 is not 4");
  cr_assert_str_eq(e.help, "do this");
  cr_assert_not(zb_fail(&e, NULL, "again"));
  cr_assert_str_eq(e.help, "");
  cr_assert_not(zb_fail(NULL, NULL, "nobody listens"));
}

Test(files, read) {
  char path[] = "/tmp/zug-base-XXXXXX";
  int fd = mkstemp(path);
  cr_assert_geq(fd, 0);
  cr_assert_eq(write(fd, "abc\0d", 5), 5);
  close(fd);
  ZbArena *a = zb_arena_new();
  ZbErr e = {0};
  size_t n = 0;
  char *s = zb_read_file(a, path, 5, &n, &e);
  cr_assert_not_null(s);
  cr_assert_eq(n, 5);
  cr_assert_arr_eq(s, "abc\0d", 6);
  cr_assert_null(zb_read_file(a, path, 4, &n, &e), "larger than the limit");
  unlink(path);
  cr_assert_null(zb_read_file(a, path, 5, &n, &e));
  cr_assert_not_null(strstr(e.text, path));
  cr_assert_null(zb_read_file(a, "/tmp", 1 << 20, &n, &e), "a folder is not a file");
  zb_arena_free(a);
}

/* Of sixteen digits none may depend on the compiler or the CPU. */
#define GOLDEN_NORMALS 0xc22c34c899263179ull

Test(random, is_a_pure_function_with_the_right_moments) {
  cr_assert_eq(zb_random_u64(1, 2, 3), zb_random_u64(1, 2, 3));
  cr_assert_neq(zb_random_u64(1, 2, 3), zb_random_u64(1, 2, 4));
  cr_assert_neq(zb_random_u64(1, 2, 3), zb_random_u64(1, 3, 3));
  cr_assert_neq(zb_random_u64(1, 2, 3), zb_random_u64(2, 2, 3));
  enum { N = 20000 };
  double sum = 0, sq = 0, usum = 0;
  uint64_t stream = zb_stream("layer.3.attn.wq");
  for (int i = 0; i < N; i++) {
    double z = zb_random_normal(7, stream, (uint64_t)i), u = zb_random_unit(7, stream, (uint64_t)i);
    cr_assert(u > 0 && u < 1);
    sum += z;
    sq += z * z;
    usum += u;
  }
  /* four standard deviations of each mean */
  cr_assert_lt(fabs(sum / N), 4 / sqrt(N));
  cr_assert_lt(fabs(sq / N - 1), 4 * sqrt(2.0 / N));
  cr_assert_lt(fabs(usum / N - 0.5), 4 * sqrt(1.0 / 12 / N));
}

/* As the mathematical library has it, up to its and our last digits; the cosine passes zero, so absolutely.
 * Lengths that fill no vector. */
Test(random, many_normals_at_a_time) {
  enum { N = 10007 };
  static double x[N], more[N];
  uint64_t bits = 0;
  zb_random_normals(9, 5, 0, N, x);
  for (uint64_t i = 0; i < N; i++) {
    double u = zb_random_unit(9, 5, 2 * i), v = zb_random_unit(9, 5, 2 * i + 1);
    double want = sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
    cr_assert(fabs(x[i] - want) <= 1e-14, "%.17g, not %.17g", x[i], want);
    uint64_t b;
    memcpy(&b, &x[i], sizeof b);
    bits = zb_mix64(bits ^ b);
  }
  cr_assert_eq(bits, GOLDEN_NORMALS, "other bits than on other machines: %#llx", (unsigned long long)bits);
  for (size_t n = 0; n < 20; n++) {
    more[n] = 77;
    zb_random_normals(9, 5, 3, n, more);
    cr_assert(!memcmp(more, x + 3, n * sizeof *x) && more[n] == 77);
  }
  cr_assert_eq(zb_random_normal(9, 5, 4), x[4]);
  for (uint64_t stream = 0; stream < 9; stream++) { /* even ones, too */
    double u = zb_random_unit(9, stream, 6), v = zb_random_unit(9, stream, 7);
    double want = sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
    cr_assert(fabs(zb_random_normal(9, stream, 3) - want) <= 1e-14);
  }
}

Test(random, streams_of_different_names_differ) {
  cr_assert_neq(zb_stream("wq"), zb_stream("wk"));
  cr_assert_neq(zb_stream(""), zb_stream("a"));
}

Test(numbers, that_are_none) {
  const float x[] = {0, -1, 3e38f, INFINITY, NAN, -INFINITY};
  cr_expect_eq(zb_not_finite(x, 0), -1);
  cr_expect_eq(zb_not_finite(x, 3), -1);
  cr_expect_eq(zb_not_finite(x, 6), 3);
  cr_expect_eq(zb_not_finite(x + 4, 1), 0);
  cr_expect_eq(zb_not_finite(x + 5, 1), 0);
  cr_expect(!signbit(zb_plain_nan(-NAN)) && isnan(zb_plain_nan(NAN)) && zb_plain_nan(-1) == -1);
}

Test(numbers, bytes_with_a_unit) {
  static const struct {
    const char *text;
    int64_t bytes; /* 0: it is none */
  } t[] = {{"1", 1},
           {"1000000", 1000000},
           {"500K", 500000},
           {"500k", 500000},
           {"4T", 4000000000000},
           {"4G", 4000000000},
           {"1.5M", 1500000},
           {"0", 0},
           {"0.5", 0},
           {"-1", 0},
           {"", 0},
           {"K", 0},
           {"4GB", 0},
           {"k", 0},
           {"4 K", 0},
           {"nan", 0},
           {"inf", 0},
           {"9007199254740992", 0},
           {"9007199G", 9007199000000000},
           {"9007200G", 0}};
  for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
    int64_t bytes = 77;
    cr_expect_eq(zb_size(t[i].text, &bytes), t[i].bytes > 0, "%s", t[i].text);
    cr_expect_eq(bytes, t[i].bytes ? t[i].bytes : 77, "%s: %lld", t[i].text, (long long)bytes);
  }
}

static float bits(uint32_t u) {
  float f;
  memcpy(&f, &u, 4);
  return f;
}

/* Halfway between neighbours the one with an even last bit. */
Test(numbers, bf16_is_the_nearest) {
  static const struct {
    uint32_t f32;
    uint16_t bf16;
  } t[] = {{0x3f800000, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f808001, 0x3f81}, {0x3f818000, 0x3f82},
           {0x3f817fff, 0x3f81}, {0x80000000, 0x8000}, {0x00008001, 0x0001}, {0x7f7fffff, 0x7f80},
           {0xff800000, 0xff80}, {0x7f800001, 0x7fc0}, {0xffc12345, 0xffc1}};
  for (size_t i = 0; i < sizeof t / sizeof *t; i++)
    cr_expect_eq(zb_f32_to_bf16(bits(t[i].f32)), t[i].bf16, "%08x", t[i].f32);
  for (uint32_t h = 0; h < 0x10000; h++) {
    float f = zb_bf16_to_f32((uint16_t)h);
    cr_assert(isnan(f) || zb_f32_to_bf16(f) == h, "%04x", h);
  }
}

/* All numbers of 16 bits, there and back; and what lies between two of them. */
Test(numbers, f16_is_the_nearest) {
  for (uint32_t h = 0; h < 0x10000; h++) {
    float x = zb_f16_to_f32((uint16_t)h);
    bool nan = (h & 0x7c00) == 0x7c00 && h & 0x3ff;
    cr_assert(nan ? isnan(x) : zb_f32_to_f16(x) == h, "%x", h);
    if ((h & 0x7fff) >= 0x7bff) continue;
    float next = zb_f16_to_f32((uint16_t)(h + 1)), middle = (x + next) / 2;
    cr_assert(zb_f32_to_f16(middle) == h + (h & 1), "ties to even at %x", h);
    cr_assert(zb_f32_to_f16(nextafterf(middle, next)) == h + 1, "%x", h);
  }
  cr_expect_eq(zb_f32_to_f16(65520), 0x7c00);
  cr_expect_eq(zb_f32_to_f16(-1e-9f), 0x8000);
}

Test(random, f32_of_bits) {
  cr_expect(zb_random_unit_f32(0) == 0x1p-24f && zb_random_unit_f32(UINT64_MAX) == 1 - 0x1p-24f);
  cr_expect(zb_random_unit_f32(1ull << 63) == 0.5f + 0x1p-24f);
}

Test(array, room_for_one_more) {
  ZbArena *a = zb_arena_new();
  uint32_t cap = 0, *x = NULL, *was = NULL;
  for (uint32_t n = 0; n < 1000; n++) {
    x = zb_room(a, x, n, sizeof *x, &cap);
    x[n] = n;
    cr_assert(cap > n && x[n / 2] == n / 2);
    if (n && cap > n + 1) cr_assert(x == was || n == cap / 2, "moved though there was room, at %u", n);
    was = x;
  }
  cr_expect_eq(zb_room(a, x, 3, sizeof *x, &cap), x, "what shrank has room");
  zb_arena_free(a);
}

Test(now, goes_on_as_clocks_do) {
  double from = zb_now();
  nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
  double passed = zb_now() - from;
  cr_expect(passed >= 0.003 && passed < 60, "%g s", passed);
}

Test(bugs, assertion_aborts, .signal = SIGABRT) { ZB_ASSERT(1 + 1 == 3); }

/* What a bug of that rank says. */
static void bug_of(int rank, const char *begins) {
  int end[2], status;
  cr_assert(pipe(end) == 0);
  pid_t child = fork();
  if (child == 0) {
    dup2(end[1], 2);
    zb_bug_rank(12);
    zb_bug_rank(rank);
    ZB_BUG("so it is");
  }
  char text[256] = "";
  close(end[1]);
  cr_assert(child > 0 && waitpid(child, &status, 0) == child && read(end[0], text, sizeof text - 1) > 0);
  cr_expect(WIFSIGNALED(status) && strstr(text, begins) == text && strstr(text, "so it is (please report)\n"),
            "%s", text);
  close(end[0]);
}

/* Which rank it was, before and after MPI is there. */
Test(bugs, ranks_are_named) {
  bug_of(12, "[rank 12] bug in zug: ");
  bug_of(0, "[rank 0] bug in zug: ");
  bug_of(-1, "bug in zug: ");
}

Test(bugs, impossible_arrays_abort, .signal = SIGABRT) { zb_array_bytes(SIZE_MAX / 2, 3); }

Test(fail, more_is_added) {
  ZbErr err;
  cr_expect(!zb_fail(&err, "help", "%s is wrong", "this"));
  zb_fail_more(&err, " (at line %d)", 3);
  cr_expect_str_eq(err.text, "this is wrong (at line 3)");
  cr_expect_str_eq(err.help, "help");
  char long_text[2 * sizeof err.text];
  memset(long_text, 'x', sizeof long_text - 1);
  long_text[sizeof long_text - 1] = 0;
  zb_fail_more(&err, "%s", long_text); /* as much of it as there is room for */
  cr_expect(strlen(err.text) < sizeof err.text);
  cr_expect(!strncmp(err.text, "this is wrong (at line 3)xxx", 28));
  zb_fail_more(NULL, "nobody asked");
}

Test(text, ranges) {
  static const struct {
    int x[8], n;
    const char *want;
  } t[] = {{{3}, 1, "3"},
           {{0, 1}, 2, "0, 1"},
           {{0, 1, 2}, 3, "0 to 2"},
           {{1, 5, 6, 7}, 4, "1, 5 to 7"},
           {{0, 2, 4}, 3, "0, 2, 4"},
           {{0, 2, 4, 6, 7}, 5, "0 to 6 by 2, 7"}};
  for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
    ZbText text = {0};
    zb_text_ranges(&text, t[i].x, t[i].n);
    cr_expect_str_eq(text.s, t[i].want);
    zb_text_free(&text);
  }
}

/* ---- stacks ---- */
static void *uses_stack(void *ok) {
  volatile char room[768 << 10];
  for (size_t i = 0; i < sizeof room; i += 512) room[i] = 1;
  *(bool *)ok = room[512] == 1;
  return NULL;
}

/* Returns the code of a process that begins with limits of 256 KiB: the soft one, or both. */
static int with_small_stack(bool both) {
  pid_t child = fork();
  if (!child) {
    struct rlimit small;
    bool here = false, there = false;
    pthread_t t;
    if (getrlimit(RLIMIT_STACK, &small)) _exit(9);
    small.rlim_cur = 256 << 10;
    if (both) small.rlim_max = small.rlim_cur;
    if (setrlimit(RLIMIT_STACK, &small) || !freopen("/dev/null", "w", stderr)) _exit(9);
    zb_raise_stack();
    uses_stack(&here);
    if (!pthread_create(&t, NULL, uses_stack, &there)) pthread_join(t, NULL);
    _exit(here && there ? 0 : 8);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

Test(base, a_small_stack_is_raised_or_refused) {
#if defined __SANITIZE_ADDRESS__
  cr_skip_test("a sanitizer takes the stack's place as it is at the start");
#endif
  cr_expect_eq(with_small_stack(false), 0);
  int code = with_small_stack(true);
  cr_expect(code == 1 || code == 0, "code %d", code); /* 0: whoever may raise hard limits */
}
