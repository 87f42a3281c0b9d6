/* Numbers, JSON and UTF-8 as text; suffixes; requests for help; processes. */
#define _GNU_SOURCE /* sched_setaffinity */
#include "base/base.h"

#include <criterion/criterion.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void expect_number(double x, const char *want) {
  ZbText t = {0};
  zb_text_number(&t, x);
  cr_expect_str_eq(t.s, want);
  cr_expect(strtod(t.s, NULL) == x);
  zb_text_free(&t);
}

Test(texts, shortest_numbers) {
  expect_number(0.1, "0.1");
  expect_number(1e-6, "1e-06");
  expect_number(1000000, "1000000");
  expect_number(-2.5, "-2.5");
  expect_number(0.1 + 0.2, "0.30000000000000004");
  expect_number(5e-324, "4.94065645841247e-324");
  expect_number(0x1.fffffffffffffp1023, "1.7976931348623157e+308");
  for (uint64_t i = 0; i < 1000; i++) {
    double x = zb_random_normal(1, 2, i), y;
    ZbText t = {0};
    zb_text_number(&t, x);
    y = strtod(t.s, NULL);
    cr_expect(x == y && t.len <= 24);
    zb_text_free(&t);
  }
}

Test(texts, json_strings) {
  ZbText t = {0};
  ZbJson j = {.text = &t};
  zb_json_list(&j, NULL);
  zb_json_string(&j, NULL, "a\"b\\c\n\t\x7f\xc3\xa9</s>");
  zb_json_string(&j, NULL, "");
  j.script = true;
  zb_json_string(&j, NULL, "</s> & more");
  zb_json_end(&j);
  cr_expect_str_eq(t.s, "[\"a\\\"b\\\\c\\n\\u0009\\u007f\xc3\xa9</s>\",\"\",\"\\u003c/s> \\u0026 more\"]");
  zb_text_free(&t);
}

/* One value of each kind, and each within each: as compact text, with lines where they are asked for, and with a line a
 * member. */
static void put_one_of_each(ZbJson *j) {
  zb_json_object(j, NULL);
  zb_json_int(j, "int", INT64_MIN);
  zb_json_count(j, "count", UINT64_MAX);
  zb_json_list(j, "numbers");
  zb_json_number(j, NULL, 0.1);
  zb_json_number(j, NULL, 1 / 3.0);
  zb_json_number(j, NULL, (double)NAN);
  zb_json_rounded(j, NULL, 3, 2 / 3.0);
  zb_json_rounded(j, NULL, 3, (double)-INFINITY);
  zb_json_raw(j, NULL, "%.2f", 2.5);
  zb_json_end(j);
  zb_json_key(j, "%s_%d", "k\"", 7);
  zb_json_object(j, NULL);
  zb_json_end(j);
  zb_json_list(j, "list");
  for (int i = 0; i < 2; i++) {
    zb_json_line(j, 2);
    zb_json_object(j, NULL);
    zb_json_bool(j, "bool", i);
    zb_json_list(j, "none");
    zb_json_end(j);
    zb_json_end(j);
  }
  zb_json_end(j);
  zb_json_null(j, "null");
  zb_json_end(j);
}

Test(texts, json) {
  ZbText t = {0};
  ZbJson j = {.text = &t};
  put_one_of_each(&j);
  cr_expect_str_eq(t.s, "{\"int\":-9223372036854775808,\"count\":18446744073709551615,"
                        "\"numbers\":[0.1,0.3333333333333333,null,0.667,null,2.50],\"k\\\"_7\":{},\"list\":["
                        "\n  {\"bool\":false,\"none\":[]},\n  {\"bool\":true,\"none\":[]}],\"null\":null}");
  zb_text_free(&t);
}

Test(texts, json_a_line_a_member) {
  ZbText t = {0};
  ZbJson j = {.text = &t, .indent = "  "};
  zb_json_object(&j, NULL);
  zb_json_list(&j, "a");
  zb_json_int(&j, NULL, 1);
  zb_json_object(&j, NULL);
  zb_json_int(&j, "b", 2);
  zb_json_int(&j, "c", 3);
  zb_json_end(&j);
  zb_json_end(&j);
  zb_json_object(&j, "d");
  zb_json_end(&j);
  zb_json_end(&j);
  cr_expect_str_eq(t.s, "{\n  \"a\": [1, {\n      \"b\": 2,\n      \"c\": 3\n    }],\n  \"d\": {\n  }\n}");
  zb_text_free(&t);
}

Test(texts, utf8) {
  static const struct {
    uint32_t c;
    const char *want;
  } t[] = {{0x24, "$"},
           {0x7f, "\x7f"},
           {0x80, "\xc2\x80"},
           {0x7ff, "\xdf\xbf"},
           {0x800, "\xe0\xa0\x80"},
           {0xffff, "\xef\xbf\xbf"},
           {0x10000, "\xf0\x90\x80\x80"},
           {0x10ffff, "\xf4\x8f\xbf\xbf"}};
  for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
    char out[5] = {0};
    cr_expect_eq(zb_utf8(out, t[i].c), strlen(t[i].want));
    cr_expect_str_eq(out, t[i].want);
  }
}

Test(texts, ends) {
  cr_expect(zb_ends("a.bin", ".bin"));
  cr_expect_not(zb_ends(".bin", ".bin"));
  cr_expect_not(zb_ends("bin", ".bin"));
  cr_expect_not(zb_ends("a.bin.", ".bin"));
  cr_expect(zb_ends("x", ""));
  cr_expect_not(zb_ends("", ""));
}

Test(times, measured) {
  static const struct {
    double seconds;
    const char *text;
  } cases[] = {{0, "0 us"},          {8.5e-6, "8.5 us"},     {0.00099996, "1000 us"},
               {1e-3, "1 ms"},       {0.123456, "123.5 ms"}, {1, "1 s"},
               {86400, "8.64e+04 s"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[24];
    cr_expect_str_eq(zb_seconds_text(text, cases[i].seconds), cases[i].text);
  }
}

/* In ticks of 10 ms of a program, and of the system for it. */
Test(processes, time) {
  struct rusage r;
  double user = 0, kernel = 0;
  ZbProcess p;
  while (user < 0.05 || kernel < 0.05) {
    for (int i = 0; i < 10000; i++) getppid();
    cr_assert(getrusage(RUSAGE_SELF, &r) == 0);
    user = (double)r.ru_utime.tv_sec + 1e-6 * (double)r.ru_utime.tv_usec;
    kernel = (double)r.ru_stime.tv_sec + 1e-6 * (double)r.ru_stime.tv_usec;
  }
  cr_assert(zb_process(getpid(), &p));
  cr_expect(fabs(p.cpu - (user + kernel)) < 0.04, "%g s of %g and %g", p.cpu, user, kernel);
}

/* How many there are and which counts, not how many the machine has. */
Test(processes, cpus) {
  cpu_set_t all, one;
  ZbCpus of[2] = {{0}}, before = zb_cpus();
  int n = 0;
  cr_assert(sched_getaffinity(0, sizeof all, &all) == 0);
  cr_expect_eq(before.n, (uint32_t)CPU_COUNT(&all));
  for (int i = 0; i < CPU_SETSIZE && n < 2; i++) {
    if (!CPU_ISSET(i, &all)) continue;
    CPU_ZERO(&one);
    CPU_SET(i, &one);
    cr_assert(sched_setaffinity(0, sizeof one, &one) == 0);
    of[n] = zb_cpus();
    cr_expect(of[n].n == 1 && of[n].which == zb_cpus().which);
    n++;
  }
  if (n == 2) cr_expect(of[0].which != of[1].which && of[0].which != before.which);
}

Test(processes, states) {
  ZbProcess p;
  cr_assert(zb_process(getpid(), &p));
  cr_expect_eq(p.state, 'R');
  cr_expect_eq(p.parent, getppid());
  cr_expect(p.cpu >= 0 && p.cpu < 60);
  pid_t child = fork();
  if (child == 0) _exit(0);
  siginfo_t info;
  cr_assert(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT) == 0);
  cr_expect(zb_process(child, &p) && p.state == 'Z' && p.parent == getpid());
  waitpid(child, NULL, 0);
  cr_expect_not(zb_process(child, &p));
}

Test(texts, round_steps) {
  static const struct {
    double range, step;
    int want;
  } cases[] = {{10, 2, 7}, {7, 1, 7}, {1.169, .2, 7}, {3e-5, 5e-6, 7}, {100, 50, 3}, {1, 1, 1}, {2.0, 2, 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    double step = zb_round_step(cases[i].range, cases[i].want);
    cr_assert(fabs(step - cases[i].step) < 1e-9 * step, "%g of %g and not %g", step, cases[i].range,
              cases[i].step);
  }
}
