/* Generation on an engine: logits are those of whole sequences, the same bits whatever else is in a step and however
 * prompts were cut, and the arena is used as planned. */
#include "tests/unit/breadth.h"
#include "tests/unit/exec/engine/job.h"
#include "tests/unit/plan/stream/models.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/exec/stepper.h"
#include "runtime/plan/stream/stream.h"

TestSuite(generate, .init = scratch_make, .fini = scratch_remove);

enum { SAMPLES = 4, LENGTH = 24 };

/* Logits of all tokens of all samples: [sample][position][word]. */
typedef struct {
  float *x;
  uint32_t words;
  const char *name;      /* of the input that is written */
  uint32_t source;       /* tokens of another text; 0: as many */
  uint32_t seed;         /* of which steps there are */
  bool alike, prefixes;  /* samples begin alike; and go on behind what others have made, rows of it unasked */
  bool repeats, drafts;  /* samples repeat themselves, but in one place; and have draft tokens */
  uint64_t cached;       /* tokens that were there */
  uint64_t right, wrong; /* draft tokens */
  uint64_t preempted;    /* in all */
  uint64_t planned, cache; /* bytes */
} Texts;
static float *row(const Texts *t, int64_t s, int64_t i) { return t->x + (s * LENGTH + i) * t->words; }

/* ---- whole sequences ---- */
static bool take(ZxEngine *e, const ZxOutput *x) {
  Texts *t = e->take_ctx;
  const ZpPlan *p = e->p;
  uint32_t logits = zg_axis_find(p->graph, "vocab");
  if (strcmp(p->graph->outputs[x->output].name, "logits")) return true;
  cr_assert(x->value->type.naxes == 3 && x->value->axis[2] == logits);
  for (int64_t i = 0; i < SAMPLES * LENGTH * t->words; i++)
    t->x[i] = x->value->elem == ZK_F32 ? ((const float *)x->data)[i]
                                       : zb_bf16_to_f32(((const uint16_t *)x->data)[i]);
  return true;
}

static void evaluate(Player *p) {
  p->ok = zx_engine_init(p->e, &p->err);
  p->e->take_output = take;
  p->e->take_ctx = p->job->ctx;
  job_steps(p, 1, 1);
}

/* ---- in steps ---- */
static uint32_t id_at(const Texts *t, int sample, uint32_t i) {
  uint64_t of = t->alike && i < LENGTH / 2 ? 0 : (uint64_t)sample;
  return (uint32_t)job_id(t->name, of, t->repeats && i != 17 ? i % 4 : i, t->words);
}

/* A part of a sample is the prompt; what follows is chosen as the sample has it. */
static void submit(ZxScheduler *s, const Texts *t, int sample) {
  uint32_t id[LENGTH], n = 1 + ((uint32_t)sample * 7 + t->seed * 5) % (LENGTH - 1);
  if (t->alike) n = LENGTH / 2 + 1 + (uint32_t)sample;
  if (t->repeats) n = 7 + (uint32_t)sample;
  uint64_t number;
  uint32_t source[LENGTH];
  ZbErr err = {0};
  for (uint32_t i = 0; i < n; i++) id[i] = id_at(t, sample, i);
  for (uint32_t i = 0; i < LENGTH; i++) source[i] = (uint32_t)job_id("source", (uint64_t)sample, i, t->words);
  ZxGenRequest r = {.prompt = id,
                    .nprompt = n,
                    .max_tokens = LENGTH + 1 - n,
                    .choices = 1,
                    .prompt_logprobs = !t->alike,
                    .source = source,
                    .nsource = t->source ? t->source : LENGTH,
                    .sampling = ZX_GREEDY};
  cr_assert(zx_submit(s, &r, &number, &err), "%s", err.text);
}

/* Which sample a sequence is: by its number. */
static int sample_of(const ZxSequence *q) { return (int)q->request; }

/* Takes the logits of a part, this rank's words of them, and chooses what the sample has next. */
static void take_rows(const Texts *t, const ZxShare *share, const ZxGenPart *part, const float *logits,
                      uint32_t *chosen) {
  uint32_t first = zx_share_first(share, t->words, share->part);
  uint32_t n = zx_share_first(share, t->words, share->part + 1) - first;
  int sample = sample_of(part->sequence);
  for (uint32_t r = 0; r < part->nrows; r++) {
    uint32_t at = part->from + part->n - part->nrows + r, of = part->row + r;
    if (logits && at < LENGTH) memcpy(row(t, sample, at) + first, logits + of * n, n * sizeof(float));
    if (!part->chooses || r + 1 + part->ndrafts < part->nrows) continue;
    chosen[of] = at + 1 < LENGTH ? id_at(t, sample, at + 1) : 0;
    if (!zx_goes_on(part, of, chosen[of])) return;
  }
}

/* What makes sequences' own values, with the parameters that the steps have; NULL: there are none. */
static ZxAdmission *admission(Player *p) {
  const ZxDeviceTable *dev = p->job->dev;
  ZpOptions po = {.scratch = dev->scratch, .threads = 1, .supports = dev->supports};
  ZxEngineOptions eo = p->e->o;
  if (!p->job->p->admission) return NULL;
  ZxAdmission *x = zx_admission_new(p->a, p->job->p, &po, zl_sources_new(p->a), p->c, &eo, &p->err);
  p->ok = x && zx_engine_init(zx_admission_engine(x), &p->err);
  return x;
}

/* Some samples come at once, the others one by one. */
static void write_all(Player *p) {
  Texts *t = p->job->ctx;
  ZxScheduling how = zx_scheduling(p->job->p, p->a, (ZxWave){0, 1});
  how.queue = SAMPLES;
  how.prefixes &= t->prefixes;
  how.drafts *= t->drafts;
  ZxScheduler *s = zx_scheduler_new(&how, &p->err);
  ZxReplica replica = zx_replica_of(p->c, p->job->p, p->a);
  ZxAdmission *own = admission(p);
  ZxStepper *x =
      s && p->ok ? zx_stepper_new(p->a, p->e, p->job->p, &replica, (ZxWave){0, 1}, own, &p->err) : NULL;
  p->ok = x && zx_engine_init(p->e, &p->err);
  const ZxGenStep *step;
  int next = 0;
  for (; p->ok && next < 1 + (int)t->seed % SAMPLES; next++) submit(s, t, next);
  while (p->ok && (step = zx_next_step(s))->ntokens) {
    uint32_t chosen[LENGTH * SAMPLES] = {0};
    const float *logits = zx_stepper_play(x, s, step, &p->err);
    p->ok = logits != NULL;
    if (!replica.last) logits = NULL;
    ZxShare share = zx_stepper_share(x);
    for (uint32_t i = 0; p->ok && i < step->nparts; i++) take_rows(t, &share, &step->part[i], logits, chosen);
    zx_step_done(s, chosen);
    while (zx_next_ended(s)) {}
    if (next < SAMPLES) submit(s, t, next++);
    cr_expect(zx_scheduler_check(s, &p->err), "%s", p->err.text);
  }
  if (x) cr_expect(zx_stepper_used(x) == p->planned, "%lu bytes used of %lu", zx_stepper_used(x), p->planned);
  if (own && !t->source)
    cr_expect_eq(zx_admission_used(own), zx_engine_bytes(zx_admission_engine(own)), "of the admission");
  zx_admission_free(own);
  ZxCounts c = s && !p->rank ? zx_scheduler_counts(s) : (ZxCounts){0};
  t->preempted += c.preempted, t->cached += c.cached_tokens;
  t->right += c.right_drafts, t->wrong += c.drafts - c.right_drafts;
  zx_scheduler_free(s);
}

/* ---- both ---- */
static Texts texts(ZgGraph *g) {
  Texts t = {.words = (uint32_t)g->axes[zg_axis_find(g, "vocab")].size};
  t.name = zg_axis_find(g, "tgt") == ZG_NONE ? "tokens" : "before"; /* T5 */
  t.x = calloc((size_t)SAMPLES * LENGTH * t.words, sizeof *t.x);
  return t;
}

static double differ(const Texts *a, const Texts *b) {
  double most = 0, off = 0;
  for (int64_t i = 0; i < (int64_t)SAMPLES * LENGTH * a->words; i++) {
    most = fmax(most, fabs((double)b->x[i]));
    double d = fabs((double)a->x[i] - (double)b->x[i]);
    if (!(d <= off)) off = d;
  }
  return off / most;
}

/* One document, as what is written is. */
static int32_t id_of(const char *name, uint64_t s, uint64_t i, int64_t limit) {
  return strcmp(name, "doc") ? job_id(name, s, i, limit) : 0;
}

/* All axes of data but samples have the length of the texts. */
static const char *binds(const Model *m, ZbText *t) {
  zb_text_add(t, "bind batch = %d", SAMPLES);
  for (uint32_t i = 0; i < m->g->naxes; i++)
    if (!m->g->axes[i].size && strcmp(m->g->axes[i].name, "batch"))
      zb_text_add(t, ", %s? = %d", m->g->axes[i].name, LENGTH);
  zb_text_add(t, " optimizer adamw(lr = 1)");
  return t->s;
}

static bool same(const Texts *a, const Texts *b) {
  return !memcmp(a->x, b->x, sizeof(float) * SAMPLES * LENGTH * a->words);
}

static Texts play_on(const ZxDeviceTable *d, const Model *m, const char *body, const ZpGenerating *steps,
                     Texts t) {
  ZpGenerating longer = steps ? *steps : (ZpGenerating){0};
  longer.length = LENGTH + 1; /* with one token of an answer */
  ZpOptions o = {.forward_only = true, .outputs = true, .generates = steps ? &longer : NULL};
  ZbText base = {0};
  Job j = job_of(m, binds(m, &base), body, d, o);
  zb_text_free(&base);
  if (!steps) job_data(&j, id_of, job_real);
  t.planned = j.p->programs.stages[0].ledger.total[ZP_DEVICE];
  t.cache = j.p->programs.stages[0].ledger.bytes[ZP_L_CACHE];
  j.ctx = &t;
  job_play(&j, steps ? write_all : evaluate);
  job_close(&j);
  return t;
}

static Texts play(const Model *m, const char *body, const ZpGenerating *steps, uint32_t seed) {
  Texts t = texts(m->g);
  t.seed = seed;
  return play_on(&zx_device_cpu, m, body, steps, t);
}

/* Steps of few and many tokens, pages of one position and of more than there are. */
static const ZpGenerating sizes[] = {{.step = 4, .page = 4},
                                     {.step = 128, .page = 32},
                                     {.step = 7, .page = 1},
                                     {.step = 33, .page = 8, .sequences = 2}};

/* In f32 sums of some hundred terms are made in another order; in bf16 logits are as far from those of a whole sequence
 * as these are from f32's at most twice. */
static void play_model(const StreamModel *s, bool half) {
  Model m = {0};
  m.g = stream_model(&m.c, s);
  const char *body = half ? "precision compute bf16" : "";
  Texts whole = play(&m, body, NULL, 0), first = {0};
  double tolerance = 1e-5;
  if (half) {
    Texts exact = play(&m, "", NULL, 0);
    tolerance = 2 * differ(&whole, &exact);
    free(exact.x);
  }
  for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    Texts t = play(&m, body, &sizes[i], i);
    double off = differ(&t, &whole);
    cr_expect(off <= tolerance, "%s, sizes %u: off by %g of %g", s->name, i, off, tolerance);
    if (!i) first = t;
    else cr_expect(same(&first, &t), "%s, sizes %u: other bits, off by %g", s->name, i, differ(&t, &first));
    if (i) free(t.x);
  }
  free(first.x), free(whole.x);
  model_close(&m);
}

static bool has_states(const StreamModel *s) {
  return !strcmp(s->name, "mamba2") || !strcmp(s->name, "deltanet");
}

/* Says whether a stepper has all that the model takes. */
static bool generates(const StreamModel *s) {
  Model m = {0};
  ZbArena *a = zb_arena_new();
  ZpStream x;
  ZbErr err = {0};
  m.g = stream_model(&m.c, s);
  bool all = zp_stream(m.g, a, NULL, NULL, &x, &err) && !x.admit;
  for (uint32_t i = 0; all && i < x.step->ninputs; i++) {
    const char *name = x.step->inputs[i].name;
    all = !strncmp(name, "step.", 5) || !strcmp(name, "tokens") || !strcmp(name, "doc");
  }
  zb_arena_free(a);
  model_close(&m);
  return all;
}

/* Each operation that carries something over, in a model of its own. */
Test(generate, small_models, .timeout = 300) {
  int played = 0;
  for (int i = 0; i < stream_model_count; i++) {
    const StreamModel *s = &stream_models[i];
    if (s->refused || s->options || !generates(s)) continue;
    if (!breadth_tries((size_t)played++, 3)) continue;
    play_model(s, false);
  }
  cr_expect(played > 15);
}

static void play_all(bool states, bool half) {
  for (int i = 0; i < stream_model_count; i++)
    if (!stream_models[i].refused && stream_models[i].options && has_states(&stream_models[i]) == states)
      play_model(&stream_models[i], half);
}

Test(generate, logits_are_those_of_whole_sequences) { play_all(false, false); }
Test(generate, also_in_bf16) { play_all(false, true); }
Test(generate, logits_of_models_with_states) { play_all(true, false); }
Test(generate, of_models_with_states_in_bf16) { play_all(true, true); }

/* Samples that begin alike, one after the other and two at once: each goes on behind what those before have
 * made, also where windows have left it. Models with states make all. */
Test(generate, shared_prefixes_have_the_same_bits, .timeout = 300) {
  static const ZpGenerating sizes[] = {{.step = 5, .page = 4, .sequences = 1},
                                       {.step = 40, .page = 2, .sequences = 2}};
  for (int i = 0; i < stream_model_count; i++) {
    const StreamModel *s = &stream_models[i];
    if (s->refused || !s->options || !strcmp(s->name, "t5")) continue;
    Model m = {0};
    m.g = stream_model(&m.c, s);
    for (int k = 0; k < 2; k++) {
      Texts made = texts(m.g), shared = texts(m.g);
      made.alike = shared.alike = shared.prefixes = true;
      made.seed = shared.seed = (uint32_t)k;
      made = play_on(&zx_device_cpu, &m, "", &sizes[k], made);
      shared = play_on(&zx_device_cpu, &m, "", &sizes[k], shared);
      cr_expect(!made.cached && (shared.cached >= 3 * 10) == !has_states(s), "%s: %lu tokens were there",
                s->name, shared.cached);
      cr_expect(same(&made, &shared), "%s: other bits, off by %g", s->name, differ(&shared, &made));
      free(made.x), free(shared.x);
    }
    model_close(&m);
  }
}

/* Samples that repeat themselves, and one time do not: right draft tokens and wrong ones leave the same
 * logits, also where they reach into pages and behind windows. Models with states have none. */
Test(generate, draft_tokens_leave_the_same_bits, .timeout = 300) {
  static const ZpGenerating how = {.step = 40, .page = 3, .sequences = 2};
  for (int i = 0; i < stream_model_count; i++) {
    const StreamModel *s = &stream_models[i];
    if (s->refused || !s->options) continue;
    Model m = {0};
    m.g = stream_model(&m.c, s);
    Texts without = texts(m.g), with = texts(m.g);
    without.repeats = with.repeats = with.drafts = true;
    without = play_on(&zx_device_cpu, &m, "", &how, without);
    with = play_on(&zx_device_cpu, &m, "", &how, with);
    cr_expect((with.right >= 8 && with.wrong >= 2) == !has_states(s), "%s: %lu right draft tokens, %lu wrong",
              s->name, with.right, with.wrong);
    cr_expect(!without.right && same(&without, &with), "%s: other bits, off by %g", s->name,
              differ(&with, &without));
    free(without.x), free(with.x);
    model_close(&m);
  }
}

/* A device that captures steps has them of some sizes, with tokens that are nobody's: the same kernels give the same bits,
 * however many of these there are, and the arena is used as planned. */
Test(generate, on_a_device_that_captures_steps) {
  int played = 0;
  for (int i = 0; i < stream_model_count; i++) {
    const StreamModel *s = &stream_models[i];
    if (s->refused || !s->options || !strcmp(s->name, "t5")) continue;
    if (!breadth_tries((size_t)played++, 3)) continue;
    Model m = {0};
    m.g = stream_model(&m.c, s);
    for (uint32_t k = 0; k < 2; k++) {
      Texts here = play(&m, "", &sizes[k], k), there = texts(m.g);
      there.seed = k;
      there = play_on(zx_devices[0], &m, "", &sizes[k], there);
      cr_expect(same(&here, &there), "%s, sizes %u: other bits, off by %g", s->name, k,
                differ(&there, &here));
      free(here.x), free(there.x);
    }
    model_close(&m);
  }
  cr_expect(played > 5);
}

/* An encoder's text is made as long as it is, whatever the longest is: the same bits. */
Test(generate, sources_of_any_length, .timeout = 300) {
  static const ZpGenerating how = {.step = 40, .page = 8, .sequences = 2};
  static const char *const longest[] = {"", "bind src = 31", "bind src = 7"};
  for (int i = 0; i < stream_model_count; i++) {
    const StreamModel *s = &stream_models[i];
    if (strcmp(s->name, "t5")) continue;
    Model m = {0};
    m.g = stream_model(&m.c, s);
    for (uint32_t n = 1; n <= 7; n += 3) {
      Texts first = texts(m.g);
      for (int k = 0; k < 3; k++) {
        Texts t = k ? texts(m.g) : first;
        t.source = n;
        t = play_on(&zx_device_cpu, &m, longest[k], &how, t);
        cr_expect(!k || same(&first, &t), "%u tokens, %s: other bits, off by %g", n, longest[k],
                  differ(&t, &first));
        if (k) free(t.x);
      }
      free(first.x);
    }
    model_close(&m);
  }
}

/* Half of the pages that all could have: sequences are preempted, and made again with the same bits. */
Test(generate, preempted_sequences_have_the_same_bits) {
  const ZpGenerating few = {.step = 6, .page = 4};
  for (int i = 0; i < 2; i++) { /* GPT-2, Llama 3 */
    Model m = {0};
    m.g = stream_model(&m.c, &stream_models[i]);
    Texts all = play(&m, "", &few, 3);
    char limit[60];
    snprintf(limit, sizeof limit, "limit memory %llu B", (unsigned long long)(all.planned - all.cache / 2));
    Texts half = play(&m, limit, &few, 3);
    cr_expect(half.preempted > 0 && !all.preempted);
    cr_expect(half.cache < all.cache);
    cr_expect(same(&all, &half), "%s: other bits, off by %g", stream_models[i].name, differ(&half, &all));
    free(all.x), free(half.x);
    model_close(&m);
  }
}

/* ---- on several ranks ---- */
/* Layouts: half of the heads, features and words; also the stages; stages alone; experts. */
static const char *const layouts[] = {
    "mesh tensor = 2 split head?, kv?, ffn?, sffn?, vocab over tensor pad vocab to 8",
    "mesh pipe = 2, tensor = 2 split head?, kv?, ffn?, vocab over tensor pad vocab to 8 stages over pipe by "
    "cost",
    "mesh pipe = 2 stages over pipe by cost",
    "mesh tensor = 4 split expert?, head?, vocab over tensor pad vocab to 8",
    "mesh tensor = 2, ep = 2 split kv?, ffn?, vocab over tensor split batch, expert? over ep pad vocab to 8",
};

/* Says whether the model can be cut into two stages: between iterations of its repeats. */
static bool has_stages(const ZgGraph *g) {
  uint32_t iterations = 0;
  for (uint32_t i = 0; i < g->nsegments; i++) iterations += g->segments[i].repeat ? g->segments[i].trip : 0;
  return iterations > 1;
}

static void play_layout(const StreamModel *s, bool half, const char *layout) {
  static const ZpGenerating steps = {.step = 33, .page = 8};
  Model m = {0};
  char body[300];
  m.g = stream_model(&m.c, s);
  const char *precision = half ? " precision compute bf16" : "";
  snprintf(body, sizeof body, "%s%s", layout, precision);
  if (has_stages(m.g) || !strstr(layout, "stages")) {
    Texts one = play(&m, precision, &steps, 1), t = play(&m, body, &steps, 1);
    cr_expect(same(&one, &t), "%s, `%s`: other bits than one rank's, off by %g", s->name, body,
              differ(&t, &one));
    free(one.x), free(t.x);
  }
  model_close(&m);
}

Test(generate, ranks_have_the_bits_of_one) {
  for (int i = 0; i < stream_model_count; i++) {
    const StreamModel *s = &stream_models[i];
    if (s->refused || !s->options || !strcmp(s->name, "t5")) continue;
    for (size_t k = 0; k < sizeof layouts / sizeof *layouts; k++)
      for (int half = 0; half < 2; half++)
        if (breadth_tries((size_t)i + 3 * k + (size_t)half, 5)) play_layout(s, half, layouts[k]);
  }
}
