/* Faults planted in plans: random changes of the nodes and values of local programs (change.c). Proofs reject a
 * change, or the plan is played: what they accept must give the numbers of the plan as it was, and what the proof
 * of meaning alone rejects must not, or it was a false alarm. No change may end the process. */
#include "tests/unit/breadth.h"
#include "tests/unit/plan/models/recipes.h"
#include "tests/unit/plan/random/change.h"
#include "tests/unit/plan/random/play.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

/* ---- plans --------------------------------------------------------------------------------------------- */
enum { MIXTRAL = NMODELS, DEEPSEEK, MAMBA2, DELTANET, MODELS };
static const RandomModel others[] = {
    {.name = "mixtral",
     .options =
         "-D layers=2 -D heads=4 -D kv_heads=2 -D width=16 -D inner=12 -D words=12 -D experts=4 -D active=2"},
    {.name = "deepseek",
     .options = "-D layers=3 -D dense=1 -D heads=2 -D width=16 -D inner=12 -D words=12 -D plain=4 -D "
                "rotary=4 -D value=4 "
                "-D query_rank=8 -D key_rank=8 -D experts=4 -D active=2 -D small=8 -D groups=2 -D take=1"},
    {.name = "mamba2", .options = "-D layers=2 -D width=16 -D heads=4 -D head_dim=8 -D state=4 -D words=12"},
    {.name = "deltanet",
     .options = "-D layers=2 -D width=16 -D heads=2 -D key_dim=4 -D value_dim=8 -D inner=12 -D words=12"}};

typedef enum { PLAIN, FUSED, STREAMS, EVAL } Mode;
typedef struct {
  int model;
  Mode mode;
  const char *recipe, *bind; /* bind: of one rank, too */
} Planted;
#define TEXT "bind batch = 4, seq = 8"
#define ROWS TEXT ", slot = 0.5"
#define LONG "bind batch = 2, seq = 16"
static const Planted cases[] = {
    {GPT2, PLAIN, "mesh t = 2 split head, ffn, vocab over t", TEXT},
    {LLAMA3, STREAMS, "mesh d = 2, t = 2 split batch over d split kv, ffn, vocab over t else seq micro 1",
     TEXT},
    {MIXTRAL, PLAIN, "mesh ep = 2 split batch, expert over ep micro 1", ROWS},
    {LLAMA3, PLAIN, "mesh c = 2 split seq over c attention ring", LONG},
    {ODD, FUSED, "mesh d = 2 split batch over d shard params, grads, states over d micro 1", TEXT},
    {MLP, FUSED, "mesh d = 2 split h1, h2, class over d micro 2", "bind batch = 8"},
    {DELTANET, PLAIN, "mesh t = 2 split head, ffn, vocab over t else seq", TEXT},
    {GPT2, STREAMS, "mesh d = 2 split batch over d chunk vocab = 2 micro 1", TEXT},
    {DEEPSEEK, PLAIN, "mesh ep = 2 split batch, expert over ep", ROWS},
    {GPT2, EVAL, "mesh t = 2 split head, ffn, vocab over t", TEXT},
    {LLAMA3, FUSED, "mesh c = 2 split seq over c zigzag attention gather recompute Layer", LONG},
    {MAMBA2, PLAIN, "mesh t = 2 split head, vocab over t", TEXT},
    /* at night */
    {GPT2, PLAIN, "mesh t = 2 split head, ffn, vocab over t else seq recompute Layer micro 2", TEXT},
    {GPT2, FUSED, "mesh t = 2 split head, ffn, vocab over t else seq", TEXT},
    {GPT2, STREAMS,
     "mesh d = 2, t = 2 split batch over d split head, ffn over t else embed limit memory 1 TB micro 1",
     TEXT},
    {GPT2, PLAIN, "mesh d = 3 split batch over d pad vocab to 7 shard grads, states over d",
     "bind batch = 6, seq = 8"},
    {GPT2, PLAIN, "mesh c = 2, p = 2 split seq over c stages over p by cost attention ring micro 1", LONG},
    {GPT2, FUSED, "mesh c = 2, d = 2 split seq over c zigzag split batch over d attention ring", LONG},
    {GPT2, EVAL, "mesh c = 2 split seq over c attention ring", LONG},
    {GPT2, PLAIN, "mesh c = 2 split embed, seq over c zigzag chunk vocab = 4", LONG},
    {LLAMA3, PLAIN, "mesh t = 2 split kv, ffn, vocab over t recompute Layer.attn", TEXT},
    {LLAMA3, FUSED, "mesh t = 2 split grp, ffn, vocab over t", TEXT},
    {LLAMA3, PLAIN, "mesh c = 2 split seq over c attention heads", LONG},
    {LLAMA3, PLAIN, "mesh c = 4 split seq over c zigzag attention ring", LONG},
    {LLAMA3, STREAMS, "mesh c = 2, t = 2 split seq over c attention gather split kv, ffn over t", LONG},
    {LLAMA3, EVAL, "mesh d = 2, t = 2 split batch over d split kv, vocab over t", TEXT},
    {LLAMA3, FUSED, "mesh d = 2 split batch over d shard params, grads, states over d chunk vocab = 4", TEXT},
    {LLAMA3, PLAIN, "", TEXT},
    {MLP, PLAIN, "mesh d = 2, t = 2 split batch over d split h1, h2 over t", "bind batch = 8"},
    {MLP, STREAMS, "mesh t = 2 split pixel, h2 over t limit memory 1 TB", "bind batch = 8"},
    {MLP, EVAL, "mesh t = 2 split h1, class over t", "bind batch = 8"},
    {ODD, PLAIN, "mesh t = 2 split kv, vocab, ffn over t", TEXT},
    {ODD, STREAMS, "mesh c = 2 split seq over c attention gather", LONG},
    {ODD, PLAIN, "mesh t = 2 split embed, half over t recompute first micro 2", TEXT},
    {ODD, EVAL, "mesh d = 2 split batch over d", TEXT},
    {ODD, FUSED, "mesh t = 2 split up, kv over t chunk vocab = 2 limit memory 1 TB", TEXT},
    {MIXTRAL, FUSED, "mesh ep = 2 split batch, expert over ep recompute Moe", ROWS},
    {MIXTRAL, PLAIN, "", ROWS},
    {MIXTRAL, PLAIN, "mesh d = 2, ep = 2 split batch over d split batch, expert over ep", ROWS},
    {MIXTRAL, STREAMS, "mesh t = 2 split ffn, kv over t else seq micro 2", ROWS},
    {MIXTRAL, EVAL, "mesh ep = 2 split batch, expert over ep", ROWS},
    {MIXTRAL, PLAIN, "mesh b = 2, t = 2 split batch over b split embed over t", ROWS},
    {DEEPSEEK, FUSED, "mesh ep = 2 split batch, expert over ep", ROWS},
    {DEEPSEEK, PLAIN, "mesh t = 2 split head, ffn, sffn, vocab over t", ROWS},
    {DEEPSEEK, PLAIN, "mesh d = 2 split batch over d shard params, grads, states over d recompute Sparse",
     ROWS},
    {DEEPSEEK, EVAL, "mesh ep = 2 split batch, expert over ep", ROWS},
    {MAMBA2, FUSED, "mesh d = 2 split batch over d shard grads, states over d", TEXT},
    {MAMBA2, PLAIN, "mesh t = 2 split head, vocab over t else seq recompute Layer", TEXT},
    {MAMBA2, EVAL, "mesh t = 2 split head, vocab over t", TEXT},
    {DELTANET, FUSED, "mesh d = 2 split batch over d", TEXT},
    {DELTANET, PLAIN, "mesh t = 2 split v, ffn over t", TEXT},
    {DELTANET, EVAL, "mesh t = 2 split head, ffn, vocab over t", TEXT},
};
enum { CASES = sizeof cases / sizeof *cases, AT_PUSH = 12, RANDOM = 16, CHANGES = 300 };

/* A device's that does all fused calls but those that move rows. */
static bool supports_calls(const ZkCall *call) {
  return call->op != ZG_OP_DISPATCH && call->op != ZG_OP_COMBINE;
}

static Plan plan_in(const ZgGraph *g, const char *recipe, Mode mode) {
  switch (mode) {
  case PLAIN: return plan_of(g, recipe);
  case FUSED: return plan_fused(g, recipe, supports_calls);
  case EVAL: return plan_forward(g, recipe, NULL);
  default: {
    Plan q = plan_try_streams(g, recipe, supports_calls);
    if (!q.p) cr_assert_fail("no plan for\n%s\n%s", recipe, plan_messages(&q));
    return q;
  }
  }
}

/* ---- what may end the process -------------------------------------------------------------------------- */
static sigjmp_buf out_of_it;
static void leap(int signal) { siglongjmp(out_of_it, signal); }

static void catch (bool on) {
  static const int signals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGALRM};
  struct sigaction a = {.sa_handler = on ? leap : SIG_DFL};
  struct itimerval longest = {.it_value = {.tv_sec = on ? 20 : 0}};
  for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) sigaction(signals[i], &a, NULL);
  setitimer(ITIMER_REAL, &longest, NULL);
}

/* What is said of a bug goes nowhere. */
static void hush(bool on) {
  static int err = -1;
  if (on && err < 0) {
    int nowhere = open("/dev/null", O_WRONLY);
    fflush(stderr);
    err = dup(2);
    dup2(nowhere, 2);
    close(nowhere);
  } else if (!on && err >= 0) {
    dup2(err, 2);
    close(err);
    err = -1;
  }
}

/* ---- judgement ----------------------------------------------------------------------------------------- */
typedef enum { PASSED, BY_SIZES, BY_MEANING, BY_ABORT } Judged;
static Judged judge(const ZpPlan *p, ZbErr *err) {
  volatile Judged how = PASSED;
  *err = (ZbErr){0};
  catch (true);
  if (sigsetjmp(out_of_it, 1)) how = BY_ABORT;
  else if (!zp_check(p, err) || !zp_check_segments(p, err)) how = BY_SIZES;
  else if (!zp_check_meaning(p, err)) how = BY_MEANING;
  catch (false);
  return how;
}

/* Returns how far the changed plan is from what it was (play_changed). */
static double played(const Play *was, const ZpPlan *p, Where what) {
  volatile double far = INFINITY;
  snprintf(what, sizeof(Where), "a kernel refuses it");
  hush(true);
  catch (true);
  if (!sigsetjmp(out_of_it, 1)) {
    Play y;
    play_with(&y, p, false, was->data);
    far = play_changed(was, &y, what);
    play_end(&y);
  }
  catch (false);
  hush(false);
  return far;
}

/* ---- the score ----------------------------------------------------------------------------------------- */
/* Harmless is what changes numbers by 1e-6 of the largest at most, half a percent of what play_changed counts as
 * one: sums in another order do more, but those are accepted. */
#define HARMLESS 0.005
typedef struct {
  uint32_t made, sizes, harmful, unclear, alarms, passed, missed, aborts;
} Score;
typedef struct {
  Score *score;
  Score all;
} Board;

static void add(Score *to, const Score *x) {
  to->made += x->made, to->sizes += x->sizes, to->harmful += x->harmful, to->unclear += x->unclear;
  to->alarms += x->alarms, to->passed += x->passed, to->missed += x->missed, to->aborts += x->aborts;
}

static void line(const char *name, const Score *s) {
  cr_log_info("%-32s %5u %6u %8u %8u %7u %9u %7u %7u", name, s->made, s->sizes, s->harmful, s->unclear,
              s->alarms, s->passed, s->missed, s->aborts);
}

static void show(Board *b) {
  cr_log_info("%-32s %5s %6s %8s %8s %7s %9s %7s %7s", "change", "made", "sizes", "meaning:", "..little",
              "..false", "harmless", "missed", "aborts");
  for (int k = 0; k < change_nkinds; k++) {
    line(change_kinds[k].name, &b->score[k]);
    add(&b->all, &b->score[k]);
  }
  line("all", &b->all);
  cr_log_info("harmful and accepted: %u by sizes alone, %u with the proof of meaning",
              b->all.missed + b->all.harmful, b->all.missed);
}

/* ---- changes ------------------------------------------------------------------------------------------- */
/* Returns whether a change that the proof of meaning rejects is one that means the same. was: with two sets of
 * parameters and inputs, which may hide it. That something cancels in a softmax the proof does not know, since its exp
 * is no exp; no pass makes use of that. */
static bool is_alarm(const Change *c, const Kind *k, const Play *was) {
  Where what;
  return !k->function && !c->cancels && played(&was[1], c->p, what) <= HARMLESS;
}

static void score(Score *s, const Kind *k, const Change *c, const Play *was, const char *recipe) {
  ZbErr err;
  Where what = "";
  Judged how = judge(c->p, &err);
  s->made++;
  if (how == BY_ABORT) {
    cr_log_warn("ABORT %s: %s\n%s", recipe, c->what, err.text);
    s->aborts++;
  } else if (how == BY_SIZES) {
    s->sizes++;
  } else {
    double far = played(was, c->p, what);
    bool harmful = far > 1, alarm = how == BY_MEANING && far <= HARMLESS && is_alarm(c, k, was);
    if (how == PASSED) *(harmful ? &s->missed : &s->passed) += 1;
    else *(harmful ? &s->harmful : alarm ? &s->alarms : &s->unclear) += 1;
    if (how == PASSED && harmful) cr_log_warn("MISSED %s: %s\n%s", recipe, c->what, what);
    if (alarm) cr_log_warn("FALSE ALARM %s: %s\n%s", recipe, c->what, err.text);
  }
}

static void change_plan(Board *b, Plan *q, const Play *was, const char *recipe, uint64_t seed,
                        uint32_t changes) {
  static uint64_t kind = 0;
  for (uint32_t made = 0, tries = 0; made < changes && tries < 20 * changes; tries++, kind++) {
    Change c;
    int k = (int)(kind % (uint64_t)change_nkinds);
    if (!change_make(&c, q->p, k, seed * 100003 + tries)) continue;
    score(&b->score[k], &change_kinds[k], &c, was, recipe);
    change_end(&c);
    made++;
  }
}

/* Changes a plan that gives the numbers of one rank. bind: of that. */
static void try_plan(Board *b, const ZgGraph *g, Plan *q, const char *bind, const char *recipe, uint64_t seed,
                     uint32_t changes) {
  const ZpPlan *p = q->p;
  Play one, was[2];
  Where what;
  const char *whole = zb_printf(q->a, "%s micro %lld", bind, (long long)p->layout.axis_size[p->asked.batch]);
  Plan ref = p->asked.forward_only ? plan_forward(g, whole, NULL) : plan_of(g, whole);
  for (uint64_t data = 0; data < 2; data++) {
    play_with(&one, ref.p, false, data);
    play_with(&was[data], p, false, data);
    cr_assert(play_differs(&one, &was[data], what) <= 1, "%s\n%s", what, recipe);
    play_end(&one);
  }
  char *line = zb_strdup(q->a, recipe);
  for (char *nl; (nl = strchr(line, '\n'));) *nl = ' ';
  change_plan(b, q, was, line, seed, changes);
  play_end(&was[0]);
  play_end(&was[1]);
  plan_close(&ref);
}

static void try_case(Board *b, const ZgGraph *g, uint32_t number, uint32_t changes) {
  const Planted *x = &cases[number];
  ZbText t = {0};
  zb_text_add(&t, "%s %s", x->recipe, x->bind);
  Plan q = plan_in(g, t.s, x->mode);
  try_plan(b, g, &q, x->bind, t.s, number, changes);
  plan_close(&q);
  zb_text_free(&t);
}

/* Lets f32 see the numbers that are there against a division by zero. */
static void widen(ZgGraph *g) {
  for (uint32_t i = 0; i < g->nsegments; i++)
    for (uint32_t k = 0; k < g->segments[i].nnodes; k++) {
      ZgNode *n = &g->segments[i].nodes[k];
      bool small = n->num[0] > 0 && n->num[0] < 1e-3;
      bool guards = n->op == ZG_OP_FILL || n->op == ZG_OP_NORMALIZE || n->op == ZG_OP_NORMALIZE_GRAD;
      if (small && guards) n->num[0] = 0.125;
    }
}

/* Random recipes of a model that have few ranks and f32. */
static void try_random(Board *b, const ZgGraph *g, int m, uint32_t changes) {
  for (uint32_t i = 0, n = 0; n < RANDOM / NMODELS; i++) {
    ZbText t = {0};
    put_recipe(m, 1000 + i, &t);
    Plan q = plan_try(g, t.s);
    const ZpPlan *p = q.p;
    if (p && zp_precision_elem(p->asked.recipe->precision.compute) == ZK_F32 && p->layout.mesh.nranks > 1 &&
        p->layout.mesh.nranks <= 8 && p->asked.global_batch <= 32) {
      const char *seq = "";
      if (m != MLP)
        seq = zb_printf(q.a, ", seq = %lld", (long long)p->layout.axis_valid[zg_axis_find(g, "seq")]);
      try_plan(b, g, &q, zb_printf(q.a, "bind batch = %lld%s", (long long)p->asked.global_batch, seq), t.s,
               1000 + i, changes);
      n++;
    }
    plan_close(&q);
    zb_text_free(&t);
  }
}

Test(nodes, faults) {
  Board b = {.score = calloc((size_t)change_nkinds, sizeof(Score))};
  uint32_t ncases = at_night() ? CASES : AT_PUSH, plans = at_night() ? CASES + RANDOM : AT_PUSH;
  uint32_t changes = breadth_many(CHANGES) / plans + 1;
  for (int m = 0; m < MODELS; m++) {
    const RandomModel *x = m < NMODELS ? &random_models[m] : &others[m - NMODELS];
    Model model = model_open(x->name, x->text, x->options);
    widen(model.g);
    for (uint32_t i = 0; i < ncases; i++)
      if (cases[i].model == m) try_case(&b, model.g, i, changes);
    if (m < NMODELS && at_night()) try_random(&b, model.g, m, changes);
    model_close(&model);
  }
  show(&b);
  cr_assert_eq(b.all.aborts, 0);
  cr_assert_eq(b.all.missed, 0);
  cr_assert_eq(b.all.alarms, 0);
  free(b.score);
}
