/* What a step has come to, and why it is no good: the same said by all ranks, in every layout; and a step
 * that is not finite changes nothing. */
#include "tests/unit/exec/engine/job.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

TestSuite(soundness, .init = scratch_make, .fini = scratch_remove);

#define LINE(more, per)                                                                                      \
  "model Line {\n"                                                                                           \
  "  axis batch, a = 4, b = 4, c = 4\n"                                                                      \
  "  input x: real[batch, a]\n"                                                                              \
  "  input weight: real[batch]\n"                                                                            \
  "  input t: index(a)[batch]\n"                                                                             \
  "  param first[a, b] ~ normal(0.5)\n"                                                                      \
  "  h = dot[a](x, first)\n"                                                                                 \
  "  repeat 2 as layer {\n"                                                                                  \
  "    param turn[b, c] ~ normal(0.5)\n"                                                                     \
  "    h = h + rename[c, b](dot[b](h, turn))\n"                                                              \
  "  }\n" more "  param last[b] = 0.5\n"                                                                     \
  "  loss dot[b](h, last) * dot[b](h, last) per " per "\n"                                                   \
  "}\n"
#define BASE "bind batch = 8 micro 4 optimizer sgd(lr = 0.01, momentum = 0.9) "
static const char *const layouts[] = {
    "", "mesh d = 2 split batch over d micro 2 shard states over d",
    "mesh p = 2, d = 2 split batch over d stages over p = [1, 1] micro 2 shard params, grads, states over d",
    ("mesh p = 2, d = 2 split batch over d stages over p = [1, 1] micro 2 shard params, grads, states over d "
     "precision compute bf16")};
enum { LAYOUTS = sizeof layouts / sizeof *layouts, STEPS = 3 };

typedef struct {
  int steps;
  bool draws; /* no more than that */
  ZxSoundness sound[WORLD_MOST][STEPS + 1];
  ZbErr err[WORLD_MOST][STEPS + 1];
  uint64_t held[WORLD_MOST]; /* a digest of what each rank updates, at the end */
} Sound;

static uint64_t digest_of_held(Player *p) {
  uint64_t x = 0;
  for (uint32_t i = 0; i < p->e->st->nheld; i++) {
    const ZpStageBucket *h = &p->e->st->held[i];
    uint64_t from, to;
    zx_owned_shard(p->e, h, &from, &to);
    int first, end = zp_held_parts(p->e->p, &p->e->p->programs.buckets[h->bucket], &first);
    for (int part = first; part <= ZP_PART_VALUES && part < end; part++) {
      ZkFlat at = zx_part(p->e, h, part);
      x = XXH3_64bits_withSeed(at.at, zk_bytes(at.elem, to - from), x);
    }
    uint64_t states = zp_state_bytes(p->job->p, h->bucket);
    if (states) x = XXH3_64bits_withSeed(zx_stored(p->e, ZP_B_STATE, h), states, x);
  }
  return x;
}

static void look(Player *p) {
  Sound *x = p->job->ctx;
  p->ok = zx_engine_init(p->e, &p->err);
  for (int k = 1; p->ok && k <= x->steps; k++) {
    ZbErr *err = &x->err[p->rank][k];
    job_steps(p, k, k);
    if (!p->ok) return;
    p->step[k].lost = zx_lowest(p->c, p->step[k].lost ? p->rank : -1) >= 0;
    x->sound[p->rank][k] = zx_engine_sound(p->e, &p->step[k], err);
  }
  x->held[p->rank] = digest_of_held(p);
  job_save(p);
}

/* ---- data: feature 2 of sample 13, and weights ---- */
static float ones(const char *name, uint64_t s, uint64_t i) {
  (void)i;
  return *name == 'w' && s >= 16 ? 0 : 1;
}
static float bad(const char *name, uint64_t s, uint64_t i) {
  return *name == 'x' && s == 13 && i == 2 ? NAN : ones(name, s, i);
}
static float bad_later(const char *name, uint64_t s, uint64_t i) {
  return *name == 'x' && s == 21 && i == 2 ? NAN : ones(name, s, i);
}
static float first(const char *name, uint64_t s, uint64_t i) {
  return *name == 'x' && s % 5 == 0 && i == 2 ? NAN : ones(name, s, i);
}
static float infinite(const char *name, uint64_t s, uint64_t i) {
  return *name == 'x' && s == 13 && i == 2 ? -INFINITY : ones(name, s, i);
}
static float huge(const char *name, uint64_t s, uint64_t i) { /* of which bf16 has one that is as large */
  return *name == 'x' && s == 13 && i == 2 ? 3.3895313e38f : ones(name, s, i);
}
static float one_below(const char *name, uint64_t s, uint64_t i) {
  return *name == 'w' && s == 1 ? -1 : ones(name, s, i);
}
static float no_weight(const char *name, uint64_t s, uint64_t i) {
  return *name == 'w' && s == 21 ? NAN : ones(name, s, i);
}
static int32_t few(const char *name, uint64_t s, uint64_t i, int64_t limit) {
  (void)name, (void)i, (void)limit;
  return s < 16 ? 1 : -1;
}

typedef struct {
  const char *model, *base;
  float (*real)(const char *, uint64_t, uint64_t);
  int step; /* of which is said: */
  ZxSoundness sound;
  const char *text, *help; /* text: a part of it, or two with a * between */
} Bad;

static bool fits(const char *text, const char *want) {
  char part[400];
  const char *star = strchr(want, '*');
  snprintf(part, sizeof part, "%.*s", star ? (int)(star - want) : (int)strlen(want), want);
  return strstr(text, part) && (!star || fits(strstr(text, part), star + 1));
}

static void check_on(const ZxDeviceTable *dev, const Bad *c, const char *layout) {
  Model m = job_model(NULL, c->model, NULL);
  Job j = job_of(&m, c->base, layout, dev, (ZpOptions){0});
  static Sound x;
  x = (Sound){.steps = STEPS};
  job_data(&j, few, c->real);
  j.ctx = &x;
  job_play(&j, look);
  for (int r = 0; r < j.ranks; r++) {
    for (int k = 1; k < c->step; k++)
      cr_expect(x.sound[r][k] == ZX_SOUND && !*x.err[r][k].text, "%s: %s", layout, x.err[r][k].text);
    cr_expect_eq(x.sound[r][c->step], c->sound, "%s: step %d is %d", layout, c->step, x.sound[r][c->step]);
    cr_expect(fits(x.err[r][c->step].text, c->text), "%s: no '%s' in '%s'", layout, c->text,
              x.err[r][c->step].text);
    cr_expect_str_eq(x.err[r][c->step].text, x.err[0][c->step].text);
    if (!strstr(c->text, "the first NaN"))
      cr_expect(!strstr(x.err[r][c->step].text, "the first NaN"), "%s", x.err[r][c->step].text);
    if (c->sound == ZX_BROKEN)
      cr_expect_str_eq(x.err[r][c->step].help, c->help, "%s: '%s'", layout, x.err[r][c->step].help);
  }
  job_close(&j);
  model_close(&m);
}

static void check(const Bad *c, const char *layout) { check_on(&zx_device_cpu, c, layout); }

/* -1 is no NaN. */
#define WHOLE_FIRST                                                                                          \
  "model Line {\n"                                                                                           \
  "  axis batch, a = 4, b = 4\n"                                                                             \
  "  input n: i32[batch]\n"                                                                                  \
  "  input x: real[batch, a]\n"                                                                              \
  "  param first[a, b] ~ normal(0.5)\n"                                                                      \
  "  h = f32(n) * dot[a](x, first)\n"                                                                        \
  "  repeat 2 as layer { param w[b] = 0.5  h = h * w }\n"                                                    \
  "  loss dot[b](h, h) per samples()\n"                                                                      \
  "}\n"
#define LOWER "lower lr, raise warmup, or add `clip 1.0`"
Test(soundness, why) {
  static const Bad cases[] = {
      {LINE("", "known(t)"), BASE, ones, 3, ZX_UNKNOWN,
       "step 3: the loss is divided by 0, the sum of what is after `per` (test.zug:13) over the 8 samples of "
       "the step, so nothing is updated",
       NULL},
      {LINE("", "weight"), BASE, ones, 3, ZX_UNKNOWN, "step 3: the loss is divided by 0, ", NULL},
      {LINE("", "weight"), BASE, no_weight, 3, ZX_SKIPPED, "step 3: the loss is divided by nan, ", NULL},
      {LINE("", "-weight"), BASE, ones, 1, ZX_SKIPPED, "step 1: the loss is divided by -8, ", NULL},
      {LINE("  aux mean[a, b](first * first)\n", "weight"), BASE, ones, 3, ZX_UNKNOWN,
       "step 3: the loss is divided by 0, ", NULL},
      {LINE("", "samples()"), BASE, bad, 2, ZX_SKIPPED,
       "step 2: the loss is nan and the gradient norm nan, so nothing is updated; gradients that are not "
       "finite: all 4 parameters; "
       "input `x` of sample 13 of the run is not finite: record 13 of records",
       NULL},
      {WHOLE_FIRST, BASE, bad_later, 3, ZX_SKIPPED, "; input `x` of sample 21 of the run is not finite",
       NULL},
      {LINE("", "samples()"), BASE, first, 1, ZX_SKIPPED,
       "; input `x` of sample 0 of the run is not finite: record 0 of records", NULL},
      {LINE("", "samples()"), BASE, infinite, 2, ZX_SKIPPED,
       "; input `x` of sample 13 of the run is not finite: record 13 of records", NULL},
      {LINE("  h = log(weight - 1 - h * h)\n", "samples()"), BASE, ones, 1, ZX_SKIPPED,
       "step 1: the loss is nan *; the first NaN is made by `*` at test.zug:12 in FWD(*mb 0", NULL},
      {LINE("  param sq[b, c] = 1  u = tanh(h)\n  v = log(u - 2)\n"
            "  h = rename[c, b](dot[b](u, sq) * dot[b](v, sq))\n",
            "samples()"),
       BASE, ones, 1, ZX_SKIPPED,
       "step 1: the loss is nan *; the first NaN is made by `pointwise` at test.zug:12 in FWD(*mb 0", NULL},
      {LINE("  h = h * sqrt(weight)\n", "samples()"), BASE, one_below, 1, ZX_SKIPPED,
       "step 1: the loss is nan *; the first NaN is made by `pointwise` at test.zug:12 in FWD(*mb 0", NULL},
      {LINE("", "samples()"), BASE, huge, 2, ZX_SKIPPED,
       "step 2: the loss is nan *; gradients that are not finite: all 4 parameters; the first NaN is made "
       "by ",
       NULL},
      {LINE("", "samples()"), "bind batch = 8 micro 4 optimizer sgd(lr = 1e300) ", ones, 1, ZX_BROKEN,
       "step 1: the update leaves values of all 4 parameters not finite (loss *, gradient norm *, lr "
       "1e+300); the run cannot go on",
       LOWER}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int k = 0; k < LAYOUTS; k++) {
      check(&cases[i], layouts[k]);
      if (k == 0 || (k == 3 && i == 8))
        check_on(zx_devices[0], &cases[i], layouts[k]); /* by way of the host */
    }
}

/* Of two NaNs the first is named: by micro-batch, then stage, then place in the program. One comes from the
 * beginning of forward, one from its end. The gradient of a root of 0 makes some in backward. */
#define ROOTS(begin, end)                                                                                    \
  "model Roots {\n"                                                                                          \
  "  axis batch, a = 4, b = 4, c = 4\n"                                                                      \
  "  input x: real[batch, a]\n"                                                                              \
  "  input weight: real[batch, b]\n"                                                                         \
  "  param first[a, b] ~ normal(0.5)  param u[b], v[b] = 1\n"                                                \
  "  h = dot[a](x, first) * sqrt(" begin ")\n"                                                               \
  "  repeat 6 as layer {\n"                                                                                  \
  "    param turn[b, c] ~ normal(0.5)\n"                                                                     \
  "    h = h + rename[c, b](dot[b](h, turn))\n"                                                              \
  "  }\n"                                                                                                    \
  "  param last[b] = 0.5\n"                                                                                  \
  "  h = h * sqrt(" end ")\n"                                                                                \
  "  loss dot[b](h, last) * dot[b](h, last) per samples()\n"                                                 \
  "}\n"
static float weights(const char *name, uint64_t s, float of_first, uint64_t other, float of_other) {
  return *name != 'w' ? 1 : s == 0 ? of_first : s == other ? of_other : 1;
}
static float in_second(const char *n, uint64_t s, uint64_t i) { return (void)i, weights(n, s, 4, 4, -1); }
static float in_first(const char *n, uint64_t s, uint64_t i) { return (void)i, weights(n, s, 4, 2, -1); }
static float zero(const char *n, uint64_t s, uint64_t i) { return (void)i, weights(n, s, 0, 0, 0); }
#define FIRST(line, pass) "the first NaN is made by *test.zug:" line " in " pass "(*mb 0"
Test(soundness, the_first_of_two) {
  static const char *const rows[] = {"", "mesh p = 2 stages over p = [1, 5]",
                                     "mesh d = 2 split batch over d micro 2"};
  static const Bad cases[] = {
      {ROOTS("weight", "3 - weight"), BASE, in_second, 1, ZX_SKIPPED, FIRST("12", "FWD"), NULL},
      {ROOTS("weight", "3 - weight"), BASE, in_first, 1, ZX_SKIPPED, FIRST("6", "FWD"), NULL},
      {ROOTS("u * weight", "v * weight"), BASE, zero, 1, ZX_SKIPPED, FIRST("12", "BWD"), NULL}};
  for (int i = 0; i < 3; i++)
    for (int k = 0; k < 3; k++)
      if (i != 0 || k != 2) check(&cases[i], rows[k]); /* there each rank has one, in micro-batch 0 */
}

/* Which of the parameters, where it is not all of them; and of several losses which. */
#define TWO_LOSSES(one, first_per, two, three)                                                               \
  "model Two { axis batch, a = 4, b = 2, e = 3\n  input x: real[batch, a]\n  input weight: real[batch]\n"    \
  "  param one[a], two[a], three[a] = 0.5\n  param more[a], many[a], others[a], last[a], end[a] = 0.5\n"     \
  "  y = dot[a](x, one)\n  z = dot[a](x, two)\n  l = y * y " one "\n"                                        \
  "  loss l = l per " first_per "\n"                                                                         \
  "  r = z * z + dot[a](x, three) * dot[a](x, more + many) + dot[a](x, others * last * end)\n"               \
  "  loss rest = r " three " per " two "\n}\n"
Test(soundness, which) {
  static const char *const wide[] = {
      "", "mesh d = 2 split batch over d micro 2 shard params, grads, states over d"};
  static const Bad cases[] = {
      {TWO_LOSSES("", "samples()", "-weight", ""), BASE, ones, 1, ZX_SKIPPED,
       "step 1: the loss rest is divided by -8, the sum of what is after `per` (test.zug:11)", NULL},
      {TWO_LOSSES("", "2 * weight", "weight", ""), BASE, ones, 3, ZX_UNKNOWN,
       "step 3: all losses are divided by 0, the sum of what is after `per` (test.zug:9)", NULL},
      {TWO_LOSSES("", "samples()", "weight", ""), BASE, ones, 3, ZX_SOUND, "", NULL},
      {TWO_LOSSES("* log(weight - 2)", "samples()", "weight", ""), BASE, ones, 1, ZX_SKIPPED,
       "gradients that are not finite: 1 of 8 parameters (one); the first NaN is made by", NULL},
      {TWO_LOSSES("", "samples()", "weight * log(weight - 2)", ""), BASE, ones, 1, ZX_SKIPPED,
       "the loss rest is divided by nan", NULL},
      {TWO_LOSSES("", "samples()", "weight * 1e-30", ""), BASE, ones, 1, ZX_SOUND, "", NULL},
      {TWO_LOSSES("", "samples()", "weight", "* log(weight - 2)"), BASE, ones, 1, ZX_SKIPPED,
       "gradients that are not finite: 7 of 8 parameters (two, three, more, many, others, ...); the first "
       "NaN",
       NULL}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int k = 0; k < 2; k++) check(&cases[i], wide[k]);
}

/* Infinite without a NaN: then none is named. */
Test(soundness, infinite) {
  static const Bad c = {"model Inf { axis batch, a = 4\n  input x: real[batch, a]\n  param w[a], u[a] = 1\n"
                        "  loss exp(100 * dot[a](x, w * u)) per samples() }\n",
                        BASE,
                        ones,
                        1,
                        ZX_SKIPPED,
                        "step 1: the loss is inf and the gradient norm inf, so nothing is updated; gradients "
                        "that are not finite: all 2 parameters",
                        NULL};
  check(&c, "");
  check(&c, "mesh d = 2 split batch over d micro 2");
}

/* ---- a step without an update ---- */
/* In the second of two steps something is wrong, or nothing known; else all is well. */
static float second_of_no_weight(const char *name, uint64_t s, uint64_t i) {
  (void)i;
  return *name == 'w' && s >= 8 && s < 16 ? 0 : 1;
}
static float second_negative(const char *name, uint64_t s, uint64_t i) {
  (void)i;
  return *name == 'w' && s >= 8 && s < 16 ? -1 : 1;
}
static int32_t second_unknown(const char *name, uint64_t s, uint64_t i, int64_t limit) {
  (void)name, (void)i, (void)limit;
  return s >= 8 && s < 16 ? -1 : 1;
}

/* Every kind of optimizer, and an average. The last has no layout 3. */
static const char *const updates[] = {
    "optimizer sgd(lr = 0.01, momentum = 0.9)", "optimizer adamw(lr = 0.01) average 0.5 clip 0.1",
    "optimizer lion(lr = 0.01)", "optimizer sgd(lr = 0.01) optimizer muon(lr = 0.01) for first, turn"};
enum { UPDATES = sizeof updates / sizeof *updates };

/* Nothing is changed by it, nor by looking for why: not states either. */
static void check_unchanged(const Model *m, int32_t (*id)(const char *, uint64_t, uint64_t, int64_t),
                            float (*real)(const char *, uint64_t, uint64_t), ZxSoundness want, int update,
                            const char *layout) {
  float *p[2];
  uint64_t n[2], held[2][WORLD_MOST];
  for (int with = 0; with < 2; with++) { /* two steps, or one */
    static Sound x;
    Job j = job_of(m, zb_printf(m->c.a, "bind batch = 8 micro 4 %s", updates[update]), layout, &zx_device_cpu,
                   (ZpOptions){0});
    x = (Sound){.steps = 1 + with};
    job_data(&j, id, real);
    j.ctx = &x;
    j.save = zb_strdup(j.q.a, scratch("p"));
    job_play(&j, look);
    for (int r = 0; r < j.ranks; r++) cr_expect_eq(x.sound[r][1 + with], with ? want : ZX_SOUND);
    if (with && want == ZX_UNKNOWN) cr_expect(isnan(j.player[0].step[2].loss));
    memcpy(held[with], x.held, sizeof x.held);
    p[with] = job_saved("p", &n[with]);
    job_close(&j);
  }
  cr_expect(n[0] == n[1] && !memcmp(p[0], p[1], n[0] * sizeof **p), "%s, %s", updates[update], layout);
  cr_expect_arr_eq(held[0], held[1], sizeof held[0], "%s, %s", updates[update], layout);
  free(p[0]);
  free(p[1]);
}

Test(soundness, nothing_is_changed) {
  static const struct {
    const char *model;
    int32_t (*id)(const char *, uint64_t, uint64_t, int64_t);
    float (*real)(const char *, uint64_t, uint64_t);
    ZxSoundness sound;
  } cases[] = {
      {LINE("", "samples()"), few, bad, ZX_SKIPPED},
      {LINE("", "known(t)"), second_unknown, ones, ZX_UNKNOWN},
      {LINE("  state seen[b] = 1  update seen = 0.5 * seen + mean[batch](h)  param more[b] = 1\n"
            "  aux mean[b](more * more)  h = h + seen * more\n  loss early = dot[b](h, h) per 2 * known(t)\n",
            "weight * known(t)"),
       second_unknown, second_of_no_weight, ZX_UNKNOWN},
      {LINE("", "weight"), few, second_negative, ZX_SKIPPED}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Model m = job_model(NULL, cases[i].model, NULL);
    for (int u = 0; u < UPDATES; u++)
      for (int k = 0; k < LAYOUTS - (u == 3); k++)
        check_unchanged(&m, cases[i].id, cases[i].real, cases[i].sound, u, layouts[k]);
    model_close(&m);
  }
}

/* ---- data that a step cannot have ---- */
static int32_t nine(const char *name, uint64_t s, uint64_t i, int64_t limit) {
  (void)name, (void)i, (void)limit;
  return s == 9 ? 9 : 1;
}
static void feed(Player *p) {
  p->ok = zx_engine_try_data(p->e, 1, &p->err) && !zx_engine_try_data(p->e, 2, &p->err);
  ZbErr tried = p->err;
  p->err = (ZbErr){0};
  p->ok = p->ok && zx_engine_init(p->e, &p->err);
  job_steps(p, 1, 1);
  if (!p->ok) return;
  p->ok = !zx_engine_step(p->e, 2, &p->step[2], &p->err) && p->step[2].unfed == (*p->err.text != 0);
  p->ok = p->ok && !strcmp(tried.text, p->err.text);
}
Test(soundness, ids_out_of_range) {
  Model m = job_model(NULL, LINE("", "known(t)"), NULL);
  for (int streams = 0; streams < 2; streams++) {
    Job j = job_of(&m, BASE, "", streams ? zx_devices[0] : &zx_device_cpu, (ZpOptions){0});
    j.o.times = true; /* so that nothing is captured */
    job_data(&j, nine, ones);
    job_play(&j, feed);
    says(j.player[0].err, "9");
    says(j.player[0].err, "records");
    job_close(&j);
  }
  model_close(&m);
}

/* The third step is played from what was captured in the second; its data are another's. */
static int32_t late(const char *name, uint64_t s, uint64_t i, int64_t limit) {
  (void)name, (void)i, (void)limit;
  return s == 17 ? 9 : 1;
}
static void feed_late(Player *p) {
  p->ok = zx_engine_init(p->e, &p->err);
  job_steps(p, 1, 2);
  p->ok = p->ok && !zx_engine_step(p->e, 3, &p->step[3], &p->err) && p->step[3].unfed;
}
Test(soundness, ids_out_of_range_on_streams) {
  Model m = job_model(NULL, LINE("", "known(t)"), NULL);
  Job j = job_of(&m, BASE, "", zx_devices[0], (ZpOptions){0});
  job_data(&j, late, ones);
  job_play(&j, feed_late);
  says(j.player[0].err, "records");
  job_close(&j);
  model_close(&m);
}
