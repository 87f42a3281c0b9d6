/* The time of the compiler grows with the source: eight times the source, about eight times the work.
 * Programs are made of n pieces of one kind and compiled, written and read again; what is quadratic anywhere
 * on the way takes 64 times as long. And what a few lines would write out without end is stopped at once. */
#include "lang/ast.h"
#include "tests/unit/compiler/load.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define HEAD                                                                                                 \
  "model M { axis batch, d = 8, c = 4 input x: real[batch, d] input t: index(c)[batch] param w[d, c] = 1 h " \
  "= x\n"
#define TAIL "loss xent[c](dot[d](h, w), t) per known(t) }\n"

/* `before` n times, then `head`, `piece` n times and `tail`; %u is the number of the piece. */
typedef struct {
  const char *name, *before, *head, *piece, *tail;
  uint32_t n; /* small enough for all limits at 8 n */
} Scale;

static const Scale scales[] = {
    {"statements", "", HEAD, "h = h + %u\n", TAIL, 1000},
    {"names", "", HEAD, "h%u = h * 2 h = h%u + 1\n", TAIL, 1000},
    {"params", "", HEAD, "param b%u[d] = 0 h = h + b%u\n", TAIL, 1000},
    {"unused params", "", HEAD, "param b%u[d] = 0\n", TAIL, 1000},
    {"states", "", HEAD, "state s%u[d] = 0 update s%u = 0.9 * s%u + mean[batch](x)\n", TAIL, 500},
    {"updates by one value", "", HEAD "m = mean[batch](x)\n",
     "m = m * 2 state s%u[d] = 0 update s%u = s%u + m\n", TAIL, 500},
    {"inputs", "", HEAD, "input x%u: real[batch, d] h = h + x%u\n", TAIL, 500},
    {"outputs", "", HEAD, "output o%u = h + %u\n", TAIL, 500},
    {"axes", "", HEAD, "axis a%u = %u + 1\n", TAIL, 120},
    {"blocks", "block B%u(x: real[..]) -> real[..] { return x + 1 }\n", HEAD, "h = B%u(h) as l%u\n", TAIL,
     1000},
    {"blocks of a model", "", HEAD, "block B%u(x: real[..]) -> real[..] { return x + 1 } h = B%u(h)\n", TAIL,
     1000},
    {"blocks that nobody calls",
     "block B%u[a, b%u](x: real[.., a]) -> real[.., b%u] { param w[a, b%u] = 0 return dot[a](x, w) }\n", HEAD,
     "", TAIL, 1000},
    {"calls", "", "block B[d](x: real[.., d]) -> real[.., d] { param b[d] = 0 return x + b }\n" HEAD,
     "h = B[d](h) as l%u\n", TAIL, 1000},
    {"labels", "", "block B(x: real[..]) -> real[..] { return x + 1 }\n" HEAD, "h = B(h) as l%u\n", TAIL,
     1000},
    {"repeats", "", HEAD, "repeat 2 as l%u { param b[d] = 1 h = h * b }\n", TAIL, 250},
    {"iterations", "", HEAD "repeat 2 {\n", "repeat 4 as r%u { h = h * 2 }\n", "}" TAIL, 250},
    {"carried", "", HEAD "a0 = x repeat 2 {\n", "b%u = h * %u h = h + b%u\n", "}" TAIL, 500},
    {"the denominator", "", HEAD "k = known(t)\n", "k = k + %u\n", "loss xent[c](dot[d](h, w), t) per k }",
     1000},
    {"statics", "", "model M(s = 1", ", s%u = s + %u",
     ") { axis batch, d = 8 input x: real[batch, d] loss x per x }", 1000},
    {"models", "model M%u { axis batch, d = 8 input x: real[batch, d] loss x per x }\n", "", "", "", 500},
    {"recipes", "recipe r%u from base { clip %u }\n", "recipe base { bind batch = 2 micro 1 }", "", "", 1000},
    {"bindings", "", "recipe r { bind batch = 1", ", a%u = 2", " }", 500},
    {"unknown names", "", HEAD, "k%u = h h = h + nope%u\n", TAIL, 1000},
    {"unknown blocks", "block B%u(x: real[..]) -> real[..] { return x }\n", HEAD, "h = C%u(h)\n", TAIL, 1000},
    {"syntax errors", "", HEAD, "h = = %u\n", TAIL, 1000},
};

/* What zc does: compiles, writes and reads what has one model, checks all. */
static void run(const Scale *s, uint32_t n) {
  ZbText t = {0}, bytes = {0};
  put_pieces(&t, s->before, n);
  zb_text_add(&t, "%s", s->head);
  put_pieces(&t, s->piece, n);
  zb_text_add(&t, "%s", s->tail);
  Case c = load_text(t.s);
  if (c.p && !zl_errors(c.d)) zc_check(c.a, c.s, c.d, c.p, &c.opt);
  ZgGraph *g = c.p && c.p->files[0]->nmodels == 1 ? compile(&c) : NULL;
  if (g) {
    ZbErr err;
    cr_assert(zg_write(g, &bytes, &err), "%s: %s", s->name, err.text);
    cr_assert(zg_read(c.a, bytes.s, bytes.len, &err), "%s: %s", s->name, err.text);
  }
  bool wrong = strstr(s->name, "unknown") || strstr(s->name, "errors");
  cr_assert(wrong == (zl_errors(c.d) > 0), "%s: %s", s->name, messages(&c));
  messages(&c);
  done(&c);
  zb_text_free(&t);
  zb_text_free(&bytes);
}

static double seconds(const Scale *s, uint32_t n) {
  struct timespec t[2];
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t[0]);
  run(s, n);
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t[1]);
  return (double)(t[1].tv_sec - t[0].tv_sec) + (double)(t[1].tv_nsec - t[0].tv_nsec) * 1e-9;
}

/* The best of a few, since others use the machine too: a third of what would be quadratic, and any time below
 * 5 ms. */
Test(scale, time_grows_with_the_source) {
  for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
    const Scale *s = &scales[i];
    double few = 1e9, many = 1e9;
    for (int k = 0; k < 6 && (k == 0 || many > 20 * few + 0.005); k++) {
      double a = seconds(s, s->n), b = seconds(s, 8 * s->n);
      if (a < few) few = a;
      if (b < many) many = b;
    }
    cr_expect(many <= 20 * few + 0.005, "%s: %u take %.1f ms, %u take %.1f ms", s->name, s->n, few * 1e3,
              8 * s->n, many * 1e3);
  }
}

static long resident_kb(void) {
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return u.ru_maxrss;
}

/* Each block is checked as if alone, with all that it calls, 64 deep: the memory of that is given back before
 * the next. Kept, it would be 100 kB each. The blocks of a model also see its axes and parameters, which stay. */
Test(scale, memory_does_not_grow_with_blocks) {
  static const char *const heads[] = {"", HEAD};
  for (int k = 0; k < 2; k++) {
    ZbText t = {0};
    zb_text_add(&t, "%sblock b0(x: real[..]) -> real[..] { return x + 1 }\n", heads[k]);
    for (int i = 1; i < 1500; i++) {
      zb_text_add(&t, "block b%d(x: real[..]) -> real[..] { ", i);
      if (k)
        zb_text_add(&t, "axis d%d = d + %d param g[d%d] = 1 y = sum[d%d](g) * sum[d, c](w) ", i, i % 99, i,
                    i);
      zb_text_add(&t, "return b%d(x)%s }\n", i - 1, k ? " as l + y" : "");
    }
    zb_text_add(&t, "%s", k ? TAIL : "");
    Case c = load_text(t.s);
    cr_assert(c.p && !zl_errors(c.d), "%s", messages(&c));
    long before = resident_kb();
    zc_check(c.a, c.s, c.d, c.p, &c.opt);
    cr_expect(zl_errors(c.d) && strstr(messages(&c), "Z0111"), "%s",
              messages(&c)); /* the deepest are too deep */
#ifdef __SANITIZE_ADDRESS__
    (void)before; /* it keeps what is freed for a while */
#else
    cr_expect(resident_kb() - before < 30000, "%d: %ld kB", k, resident_kb() - before);
#endif
    done(&c);
    zb_text_free(&t);
  }
}

/* However long the way from a state to its update is, the stack that it takes is bounded. */
Test(scale, long_ways_to_an_update) {
  static const struct {
    const char *piece;
    bool many; /* operations: refused */
  } cases[] = {{"v = stop(v)\n", false}, {"v = bf16(f32(v))\n", false}, {"v = v * 3 + 1\n", true}};
  cr_assert_eq(setrlimit(RLIMIT_STACK, &(struct rlimit){1 << 20, RLIM_INFINITY}), 0);
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    ZbText t = {0};
    zb_text_add(&t, HEAD "state s[d] = 0 v = s\n");
    put_pieces(&t, cases[k].piece, 20000);
    zb_text_add(&t, "update s = v + mean[batch](x)\n" TAIL);
    Case c = load_text(t.s);
    cr_expect_eq(!compile(&c), cases[k].many, "%s: %s", cases[k].piece, messages(&c));
    bool said = strstr(messages(&c), "an update of more operations than 32\n");
    cr_expect_eq(said, cases[k].many, "%s: %s", cases[k].piece, messages(&c));
    done(&c);
    zb_text_free(&t);
  }
}

/* ---- what would not end -------------------------------------------------------------------------------- */
static void stops(const char *what, const ZbText *text, const char *says) {
  struct timespec t[2];
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t[0]);
  Case c = load_text(text->s);
  cr_expect_null(compile(&c));
  bool one = zl_errors(c.d) == 1 && strstr(messages(&c), says) && strstr(messages(&c), "= help: ");
  cr_expect(one, "%s: %s", what, messages(&c));
  done(&c);
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t[1]);
  /* It takes 0.3. */
  cr_expect(t[1].tv_sec - t[0].tv_sec < 10, "%s took %ld s", what, (long)(t[1].tv_sec - t[0].tv_sec));
}

/* 41 lines that double, with operations in them and without. */
Test(scale, blocks_that_call_twice_are_stopped) {
  static const char *const bodies[][2] = {{"return B%u(x) + B%u(x)", "more than 200000 operations"},
                                          {"y = B%u(x) return B%u(x)", "more than 200000 calls of blocks"}};
  for (int k = 0; k < 2; k++) {
    ZbText t = {0};
    zb_text_add(&t, "block B0(x: real[..]) -> real[..] { return x%s }\n", k ? "" : " + 1");
    for (uint32_t i = 1; i < 41; i++) {
      zb_text_add(&t, "block B%u(x: real[..]) -> real[..] { ", i);
      for (const char *p = bodies[k][0]; *p; p++)
        if (*p == '%') zb_text_add(&t, "%u", i - 1), p++;
        else zb_text_put(&t, p, 1);
      zb_text_add(&t, " }\n");
    }
    zb_text_add(&t, HEAD "h = B40(x)" TAIL);
    stops("doubling", &t, bodies[k][1]);
    zb_text_free(&t);
  }
}

Test(scale, nested_repeats_are_stopped) {
  static const struct {
    const char *head, *body, *says;
    int depth;
  } cases[] = {{"repeat 4096 {", "h = h + 1", "more than 200000 operations", 6},
               {"repeat 4096 {", "", "more than 200000 calls of blocks and iterations", 6},
               {"repeat 4096 {", "z = 1 + 2", "more than 200000 calls of blocks and iterations", 6},
               {"repeat 4096 {",
                "z = max(max(max(1, 2), max(3, 4)), max(max(5, 6), max(max(7, 8), 9))) z = z + 1 z = z + 1",
                "more than 4000000 evaluations", 6},
               {"repeat 1 {", "h = h + 1", "nested more than 64 deep", 100}};
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    ZbText t = {0};
    zb_text_add(&t, HEAD);
    for (int i = 0; i < cases[k].depth; i++) zb_text_add(&t, "%s ", cases[k].head);
    zb_text_add(&t, "%s", cases[k].body);
    for (int i = 0; i < cases[k].depth; i++) zb_text_add(&t, "}");
    zb_text_add(&t, TAIL);
    stops(cases[k].body, &t, cases[k].says);
    zb_text_free(&t);
  }
}

/* What is neither in calls nor in repeats is told another remedy than what is. */
Test(scale, long_models_are_stopped) {
  static const struct {
    const char *open, *close, *says;
  } cases[] = {{"", "", "= help: put what is alike into a `repeat`, which is stored once\n"},
               {"repeat 3 { repeat 2 { ", " } }",
                "= note: the inner repeats here run 2 times altogether: each iteration is written out\n"
                "    = help: repeat less often, or make it the outermost `repeat`, which is stored once\n"}};
  for (int k = 0; k < 2; k++) {
    ZbText t = {0}, line = {0};
    for (int i = 0; i < 250; i++) zb_text_add(&line, " + x");
    zb_text_add(&t, HEAD "%s", cases[k].open);
    for (int i = 0; i <= 800; i++) zb_text_add(&t, "h = h%s\n", line.s);
    zb_text_add(&t, "%s" TAIL, cases[k].close);
    stops("a long model", &t, cases[k].says);
    zb_text_free(&line);
    zb_text_free(&t);
  }
}

/* A call costs what is written for it alone, such as the path of its labels: 40 of 100 bytes. */
Test(scale, calls_with_long_paths_are_stopped) {
  ZbText t = {0}, label = {0};
  for (int i = 0; i < 100; i++) zb_text_add(&label, "l");
  zb_text_add(&t, "block B(x: real[..]) -> real[..] { return x }\nblock B0(x: real[..]) -> real[..] { ");
  put_pieces(&t, "x = B(x) ", 1000);
  zb_text_add(&t, "return x }\n");
  for (int i = 1; i <= 40; i++)
    zb_text_add(&t, "block B%d(x: real[..]) -> real[..] { return B%d(x) as %s }\n", i, i - 1, label.s);
  zb_text_add(&t, HEAD "repeat 2 { repeat 60 { h = B40(h) } }" TAIL);
  stops("long paths", &t, "more than 4000000 evaluations");
  zb_text_free(&label);
  zb_text_free(&t);
}

/* The calls of a model that is too large are counted, and not those of the model before it. */
Test(scale, calls_are_counted_by_model) {
  int calls[2];
  for (int before = 0; before < 2; before++) {
    ZbText t = {0};
    zb_text_add(&t,
                "block B(x: real[..]) -> real[..] { return x + 1 }\n"
                "model L { axis batch input x: real[batch] loss %s per x }\n",
                before ? "B(x)" : "x");
    zb_text_add(&t, HEAD "repeat 2 { repeat 4096 {");
    put_pieces(&t, " h = B(h)", 60);
    zb_text_add(&t, "} }" TAIL);
    Case c = load_text(t.s);
    zc_check(c.a, c.s, c.d, c.p, &c.opt);
    const char *note = strstr(messages(&c), " of the calls so far are of `B`");
    cr_assert(note && zl_errors(c.d) == 1, "%s", messages(&c));
    while (note[-1] != ' ') note--;
    calls[before] = atoi(note);
    done(&c);
    zb_text_free(&t);
  }
  cr_expect(calls[0] > 1000 && calls[1] == calls[0], "%d and %d", calls[0], calls[1]);
}

/* What a graph's file can hold, zc makes; what not, it does not. */
Test(scale, graphs_that_could_not_be_read_are_not_made) {
  static const struct {
    const char *piece, *says;
    uint32_t n;
  } cases[] = {{"output o%u = x * %u\n", "more than 4096 inputs and outputs", 4095},
               {"input x%u: real[batch]\n", "more than 4096 inputs and outputs", 4095},
               {"repeat 2 { h = h + %u }\n", "more than 2047 repeats", 2048},
               {"axis a%u = 2\n", "at most 1024 axes", 1022},
               {"block B%u(x: real[..]) -> real[..] { axis a = %u + 2 return x * size[a]() } h = B%u(h)\n",
                "at most 1024 axes", 1022}};
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
    for (uint32_t more = 0; more < 2; more++) {
      Scale s = {"at a limit", "", HEAD, cases[k].piece, TAIL, 0};
      if (!more) {
        run(&s, cases[k].n - 1);
        continue;
      }
      ZbText t = {0};
      zb_text_add(&t, HEAD);
      put_pieces(&t, s.piece, cases[k].n);
      zb_text_add(&t, TAIL);
      stops(s.piece, &t, cases[k].says);
      zb_text_free(&t);
    }
}

/* Maps, too; and what is too much of these is refused before it is made. */
Test(scale, maps_that_could_not_be_read_are_not_made) {
  static const struct {
    const char *open, *piece, *close, *says;
  } cases[] = {{"config {\n", "k%u = 1\n", "} }\n", "have 1025 config keys, at most 1024 are possible"},
               {"", "ignore \"x%u\"\n", "}\n", "have 1025 patterns to ignore, at most 1024 are possible"}};
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    ZbText t = {0};
    zb_text_add(&t, HEAD TAIL "weights hf for M { w = \"w\"[d, c]\n%s", cases[k].open);
    char *head = strdup(t.s);
    run(&(Scale){"at a limit", "", head, cases[k].piece, cases[k].close, 0}, 1024);
    put_pieces(&t, cases[k].piece, 1025);
    zb_text_add(&t, "%s", cases[k].close);
    stops(cases[k].piece, &t, cases[k].says);
    zb_text_free(&t);
    free(head);
  }
  ZbText t = {0};
  zb_text_add(&t, "model M { axis batch, d = 2, e = 10000000 input x: real[batch, d] param w[d, e] = 1\n"
                  "loss x * sum[e](w) per x } weights hf for M { w[e = {i}] = \"x{i}\"[d] }\n");
  stops("an index", &t, "have 10000000 foreign tensors, at most 1048576 are possible");
  zb_text_free(&t);
}
