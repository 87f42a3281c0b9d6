/* The operations of a step of generation: each as the reference has it, and with bits that depend neither on
 * how prompts are cut, nor on company, threads, orders of axes and sizes of pages. */
#include "tests/unit/kernels/step.h"

Test(steps, put_pages) {
  static const StepCase c = {.dims = "k=2 h=7",
                             .tensor = {{"tkh", STEP_TOKEN},
                                        {"pwkh", STEP_CACHE},
                                        {"se", STEP_PAGES},
                                        {"t", STEP_SEQUENCE},
                                        {"t", STEP_POSITION},
                                        {"t", STEP_DOC},
                                        {"pw", STEP_DOCS}},
                             .call = {{ZG_OP_PUT_PAGES, "tsepw", "abcde", "b", {0}, {0}},
                                      {ZG_OP_PUT_PAGES, "tsepw", "fgcde", "g", {0}, {0}}}};
  step_check("put_pages", &c);
}

Test(steps, rows) {
  static const StepCase c = {.dims = "k=3 h=7 r=6",
                             .tensor = {{"tkh", STEP_TOKEN}, {"r", STEP_IDS}, {"rkh", STEP_ROWS}},
                             .call = {{ZG_OP_ROWS, "t", "ab", "c", {0}, {0}}}};
  step_check("rows", &c);
}

Test(steps, rope_at) {
  for (int inverse = 0; inverse < 2; inverse++) {
    const StepCase c = {.dims = "k=3 h=10",
                        .tensor = {{"tkh", STEP_CONST}, {"t", STEP_POSITION}, {"tkh", STEP_ROWS}},
                        .call = {{ZG_OP_ROPE_AT, "th", "ab", "c", {1e4}, {inverse}}}};
    step_check("rope_at", &c);
  }
}

Test(steps, resume_scan) {
  static const char *const a[] = {"tkh", "t", "", "kh"};
  for (size_t i = 0; i < sizeof a / sizeof *a; i++) {
    const StepCase c = {.dims = "k=3 h=37",
                        .tensor = {{a[i], STEP_TOKEN},
                                   {"tkh", STEP_TOKEN},
                                   {"skh", STEP_STATE},
                                   {"t", STEP_SEQUENCE},
                                   {"t", STEP_POSITION},
                                   {"tkh", STEP_OUT}},
                        .low = -0.9,
                        .call = {{ZG_OP_RESUME_SCAN, "ts", "abcde", "f", {0}, {0}}}};
    step_check("resume_scan", &c);
  }
}

/* All sets of operands; keys and decays that rows share. */
Test(steps, resume_linear) {
  for (int more = 0; more < 8; more++) {
    bool few = more & 1;
    StepCase c = {.dims = more == 3 ? "b=1 h=2 k=20 v=70" : "b=2 h=2 k=5 v=9",
                  .tensor = {{"tbhk", STEP_TOKEN},
                             {few ? "tbk" : "tbhk", STEP_TOKEN},
                             {"tbhv", STEP_TOKEN},
                             {more & 4 ? "tbh" : "tbhk", STEP_TOKEN},
                             {"tbhk", STEP_TOKEN},
                             {"tbhk", STEP_TOKEN},
                             {"tbhv", STEP_TOKEN},
                             {"sbhkv", STEP_STATE},
                             {"t", STEP_SEQUENCE},
                             {"t", STEP_POSITION},
                             {"tbhv", STEP_OUT}},
                  .longest = 14,
                  .low = -6,
                  .low_tensor = 3,
                  .call = {{ZG_OP_RESUME_LINEAR, "tkvs", NULL, "k", {0}, {more}}}};
    char in[16] = "abc";
    if (more & 1) strcat(in, "d");
    if (more & 2) strcat(in, "e");
    if (more & 4) strcat(in, "fg");
    strcat(in, "hij");
    c.call[0].in = in;
    step_check("resume_linear", &c);
  }
}

Test(steps, recent) {
  static const struct {
    const char *dims;
    double edge;
    int64_t by, which;
  } shifts[] = {{"k=2 h=5 r=1", 0, 1, 0}, {"k=2 h=5 r=3", -1.5, 3, 0}, {"k=2 h=5 r=6", 2, 0, 0x4a}};
  for (int i = 0; i < 3; i++) {
    StepCase c = {.dims = shifts[i].dims,
                  .tensor = {{"tkh", STEP_TOKEN},
                             {"srkh", STEP_CACHE},
                             {"t", STEP_SEQUENCE},
                             {"t", STEP_POSITION},
                             {"tkh", STEP_OUT},
                             {"tkh", STEP_OUT},
                             {"tkh", STEP_OUT}},
                  .call = {{ZG_OP_RECENT, "tsr", "abcd", i < 2 ? "e" : "efg", {0}, {0}}}};
    if (i < 2) c.tensor[5] = c.tensor[6] = (StepTensor){0};
    c.call[0].num[0] = shifts[i].edge;
    c.call[0].opt[0] = shifts[i].by, c.call[0].opt[1] = shifts[i].which;
    step_check("recent", &c);
  }
}

Test(steps, recent_windows) {
  for (int by = 1; by < 3; by++) {
    const StepCase c = {.dims = by == 1 ? "h=9 n=4 r=3" : "h=9 n=4 r=6",
                        .tensor = {{"th", STEP_TOKEN},
                                   {"srh", STEP_CACHE},
                                   {"t", STEP_SEQUENCE},
                                   {"t", STEP_POSITION},
                                   {"tnh", STEP_OUT}},
                        .call = {{ZG_OP_RECENT, "tsrn", "abcd", "e", {0}, {by}}}};
    step_check("recent of windows", &c);
  }
}

/* ---- attention ----------------------------------------------------------------------------------------- */
typedef struct {
  const char *dims, *q, *k, *v; /* v NULL: a part of k */
  const char *bias;             /* with p and w: of keys; with x: of positions */
  const char *sink;
  bool docs, docs_q;
  int64_t window, part, longest;
  double cap;
} Attention;

/* Puts what keys have into pages and attends to it. */
static void check(const char *what, const Attention *k) {
  char in[16] = "ab", kp[16], vp[16], out[16];
  bool own = k->v != NULL, by_key = k->bias && strchr(k->bias, 'p');
  snprintf(kp, sizeof kp, "pw%s", k->k + 1);
  snprintf(vp, sizeof vp, "pw%s", own ? k->v + 1 : "");
  snprintf(out, sizeof out, "%.*sv", (int)strlen(k->q) - 1, k->q);
  /* Weights, and the results of both kernels, are rounded to 8 bits: off by 2^-9 each. */
  StepCase c = {.dims = k->dims, .longest = k->longest, .tol = 3e-6, .half_tol = 0x1p-7};
  int n = 0, puts = 0;
  char letters[4][8];
  /* a q, b k, c v, d pages, e sequence, f position, g out; then what is put, and what else is there */
  c.tensor[n++] = (StepTensor){k->q, STEP_TOKEN};
  c.tensor[n++] = (StepTensor){kp, STEP_CACHE};
  c.tensor[n++] = (StepTensor){own ? vp : "h", own ? STEP_CACHE : STEP_CONST};
  c.tensor[n++] = (StepTensor){"se", STEP_PAGES};
  c.tensor[n++] = (StepTensor){"t", STEP_SEQUENCE};
  c.tensor[n++] = (StepTensor){"t", STEP_POSITION};
  c.tensor[n++] = (StepTensor){out, STEP_OUT};
  strcat(in, own ? "cdef" : "bdef");
  struct {
    const char *of;
    StepKind kind;
    int cache;
  } put[] = {{k->k, STEP_TOKEN, 1},
             {k->v, STEP_TOKEN, 2},
             {by_key ? k->bias : NULL, STEP_TOKEN, 0},
             {k->docs ? "t" : NULL, STEP_DOC, 0}};
  char of_bias[16] = "t", cache_bias[16];
  if (by_key) strcat(of_bias, k->bias + 2), put[2].of = of_bias;
  if (k->bias) {
    snprintf(cache_bias, sizeof cache_bias, "%s", k->bias);
    if (by_key) put[2].cache = n;
    in[strlen(in)] = (char)('a' + n);
    c.tensor[n++] = (StepTensor){cache_bias, by_key                 ? STEP_CACHE
                                             : strchr(k->bias, 't') ? STEP_TOKEN
                                                                    : STEP_CONST};
  }
  if (k->docs_q) {
    in[strlen(in)] = (char)('a' + n);
    c.tensor[n++] = (StepTensor){"t", STEP_DOC};
  }
  if (k->docs) {
    put[3].cache = n;
    in[strlen(in)] = (char)('a' + n);
    c.tensor[n++] = (StepTensor){"pw", STEP_DOCS};
  }
  if (k->sink) {
    in[strlen(in)] = (char)('a' + n);
    c.tensor[n++] = (StepTensor){k->sink, STEP_CONST};
  }
  for (int i = 0; i < 4; i++) {
    if (!put[i].of) continue;
    char *l = letters[puts];
    snprintf(l, sizeof letters[0], "%c%cdef_%c", 'a' + n, 'a' + put[i].cache, 'a' + put[i].cache);
    l[5] = 0;
    c.call[puts] = (StepCall){ZG_OP_PUT_PAGES, "tsepw", l, l + 6, {0}, {0}};
    c.tensor[n++] = (StepTensor){put[i].of, put[i].kind};
    puts++;
  }
  c.call[puts] = (StepCall){ZG_OP_ATTEND_PAGES, "thvsepwx", in, "g", {0.4, k->cap}, {k->part, k->window}};
  step_check(what, &c);
}

Test(steps, attend_pages) {
  static const Attention kinds[] = {
      {.dims = "k=1 g=2 h=32 v=64", .q = "tkgh", .k = "tkh", .v = "tkv", .longest = 270},
      {.dims = "k=2 g=2 h=32 v=48",
       .q = "tkgh",
       .k = "tkh",
       .v = "tkv",
       .longest = 150,
       .window = 70,
       .cap = 4,
       .sink = "gk"},
      {.dims = "k=1 g=3 h=32 v=80", .q = "tkgh", .k = "tkh", .v = "tkv", .longest = 40, .window = 9},
      {.dims = "k=2 g=1 h=5 v=7",
       .q = "tkgh",
       .k = "tkh",
       .v = "tkv",
       .longest = 260,
       .window = 30,
       .cap = 2},
      {.dims = "g=35 h=64 v=32", .q = "tgh", .k = "th", .longest = 40, .part = 32},
      {.dims = "g=9 h=64 v=32", .q = "tgh", .k = "th", .longest = 20, .part = 8},
      {.dims = "g=2 h=20 v=7", .q = "tgh", .k = "th", .longest = 40, .part = 13},
      {.dims = "k=2 g=2 h=16 v=16",
       .q = "tkgh",
       .k = "tkh",
       .v = "tkv",
       .longest = 40,
       .sink = "gk",
       .bias = "pwk"},
      {.dims = "k=2 g=1 h=16 v=16",
       .q = "tkgh",
       .k = "tkh",
       .v = "tkv",
       .longest = 40,
       .docs = true,
       .docs_q = true},
      {.dims = "k=2 g=2 h=16 v=16",
       .q = "tkgh",
       .k = "tkh",
       .v = "tkv",
       .longest = 40,
       .docs = true,
       .bias = "xg"},
      {.dims = "k=2 g=2 h=16 v=16",
       .q = "tkgh",
       .k = "tkh",
       .v = "tkv",
       .longest = 40,
       .bias = "ktx",
       .cap = 3,
       .docs = true,
       .docs_q = true,
       .sink = "k",
       .window = 17},
  };
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    char what[32];
    if (backend.odd && !breadth_tries(i + 4, 5)) continue; /* the emulator takes its time */
    snprintf(what, sizeof what, "attend_pages %zu", i);
    check(what, &kinds[i]);
  }
}

Test(steps, attend_own) {
  static const struct {
    const char *k, *v, *bias, *docs, *sink;
    bool docs_q, length;
    double cap;
  } kinds[] = {{"sjkh", "sjkv", NULL, NULL, NULL, false, true, 0},
               {"jkh", "jkv", "gj", NULL, NULL, false, false, 0},
               {"sjkh", "sjkv", "tj", "sj", "kg", true, true, 2},
               {"sjkh", "jkv", "sjk", "j", NULL, false, false, 0}};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    char in[16] = "abcd", what[32];
    int n = 5;
    StepCase c = {.dims = i % 2 ? "k=2 g=2 h=16 v=16 j=270" : "k=2 g=2 h=7 v=5 j=19",
                  .tensor = {{"tkgh", STEP_TOKEN},
                             {kinds[i].k, STEP_CONST},
                             {kinds[i].v, STEP_CONST},
                             {"t", STEP_SEQUENCE},
                             {"tkgv", STEP_OUT}},
                  .longest = 7,
                  .tol = 3e-6};
    const struct {
      const char *axes;
      StepKind kind;
    } more[] = {{kinds[i].bias, STEP_CONST},
                {kinds[i].docs_q ? "t" : NULL, STEP_DOC},
                {kinds[i].docs, STEP_DOCS_OWN},
                {kinds[i].sink, STEP_CONST},
                {kinds[i].length ? "s" : NULL, STEP_LENGTH}};
    for (size_t k = 0; k < sizeof more / sizeof *more; k++) {
      if (!more[k].axes) continue;
      in[strlen(in)] = (char)('a' + n);
      bool of_token = strchr(more[k].axes, 't') && more[k].kind == STEP_CONST;
      c.tensor[n++] = (StepTensor){more[k].axes, of_token ? STEP_TOKEN : more[k].kind};
    }
    c.call[0] = (StepCall){ZG_OP_ATTEND_OWN, "thvsj", in, "e", {0.4, kinds[i].cap}, {0}};
    snprintf(what, sizeof what, "attend_own %zu", i);
    step_check(what, &c);
  }
}
