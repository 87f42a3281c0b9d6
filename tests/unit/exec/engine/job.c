/* See job.h. */
#include "tests/unit/exec/engine/job.h"
#include "runtime/exec/state/alike.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char job_line[] = "model Line {\n"
                        "  axis batch, a = 8, b = 4\n"
                        "  input x: real[batch, a]\n"
                        "  param w[a, b] ~ normal(0.1)\n"
                        "  y = dot[a](x, w)\n"
                        "  loss dot[b](y, y) per samples()\n"
                        "}\n";

const char job_drops[] = "use std.nn as nn\n"
                         "model Drops {\n"
                         "  axis batch, seq, embed = 8, vocab = 12\n"
                         "  input tokens: index(vocab)[batch, seq]\n"
                         "  input targets: index(vocab)[batch, seq]\n"
                         "  param wte[vocab, embed] ~ normal(0.5)\n"
                         "  x = nn.dropout(lookup(wte, tokens), p = 0.3)\n"
                         "  y = attend[seq, embed](x, x, x, mask = causal)\n"
                         "  loss xent[vocab](dot[embed](y, wte), targets) per known(targets)\n"
                         "}\n";

Model job_model(const char *file, const char *text, const char *options) {
  char path[512];
  if (!file) return model_open("test", text, options);
  Model m = {0};
  snprintf(path, sizeof path, "%s/%s", ZUG_SRC, file);
  m.c = load_file(path);
  if (options) set_options(&m.c, options);
  m.g = compile(&m.c);
  if (!m.g) cr_assert_fail("%s does not compile: %s", file, messages(&m.c));
  return m;
}

/* ---- what is read ---- */
static uint64_t mixed(const char *name, uint64_t s, uint64_t i) {
  return zb_mix64(zb_stream(name) + 1000 * s + i);
}

/* Few targets are known; documents are three, with padding behind them. */
int32_t job_id(const char *name, uint64_t s, uint64_t i, int64_t limit) {
  uint64_t x = mixed(name, s, i) >> 8;
  if (!strcmp(name, "doc")) return i > 6 ? -1 : (int32_t)(i / 3);
  if (!strcmp(name, "targets") && x % 3 == 0) return -1;
  return (int32_t)(x / 3 % (uint64_t)(limit > 0 ? limit : 5));
}

float job_real(const char *name, uint64_t s, uint64_t i) {
  return (float)(mixed(name, s, i) >> 8 & 15) / 8 - 1;
}

static uint64_t values_of(const ZpPlan *p, const ZgType *t) {
  uint64_t n = 1;
  for (int i = 0; i < t->naxes; i++)
    if (t->axis[i] != p->asked.batch) n *= (uint64_t)p->layout.axis_valid[t->axis[i]];
  return n;
}

void job_data(Job *j, int32_t (*id)(const char *, uint64_t, uint64_t, int64_t),
              float (*real)(const char *, uint64_t, uint64_t)) {
  const ZgGraph *g = j->p->graph;
  ZbErr err = {0};
  ZxDataField f[16] = {{.elem = ZX_DATA_F32}};
  cr_assert(g->ninputs && g->ninputs <= 16);
  for (uint32_t i = 0; i < g->ninputs; i++) {
    const ZgType *t = &g->inputs[i].type;
    f[i] = (ZxDataField){.elem = t->elem == ZG_INDEX || t->elem == ZG_I32 ? ZX_DATA_I32 : ZX_DATA_F32,
                         .values = values_of(j->p, t)};
    snprintf(f[i].name, sizeof f[i].name, "%s", g->inputs[i].name);
  }
  ZxDataInfo info = {.count = JOB_RECORDS, .nfield = g->ninputs, .field = f};
  cr_assert(zx_data_layout(&info, &err), "%s", err.text);
  j->nbytes = info.data_at + JOB_RECORDS * info.record_bytes;
  j->bytes = zb_alloc(j->q.a, j->nbytes);
  zx_data_encode(&info, j->bytes);
  for (uint64_t s = 0; s < JOB_RECORDS; s++)
    for (uint32_t i = 0; i < g->ninputs; i++) {
      const ZgType *t = &g->inputs[i].type;
      uint8_t *to = j->bytes + info.data_at + s * info.record_bytes + f[i].at;
      int64_t limit = t->elem == ZG_INDEX ? j->p->layout.axis_valid[t->of] : -1;
      for (uint64_t k = 0; k < f[i].values; k++) {
        int32_t whole = id(f[i].name, s, k, limit);
        float x = real(f[i].name, s, k);
        memcpy(to + 4 * k, f[i].elem == ZX_DATA_I32 ? (const void *)&whole : &x, 4);
      }
    }
}

/* ---- jobs ---- */
static Job job(Plan q, const ZxDeviceTable *dev, const char *recipe) {
  if (!q.p) cr_assert_fail("no plan for %s\n%s", recipe, plan_messages(&q));
  Job j = {.q = q,
           .p = q.p,
           .dev = dev,
           .ranks = (int)q.p->layout.mesh.nranks,
           .steps = 3,
           .exchanges = dev->comm};
  j.o = (ZxEngineOptions){.device = dev, .seed = 7, .order = ZX_ORDER_SEQUENTIAL};
  if (q.p->programs.ninputs && !q.p->stream) job_data(&j, job_id, job_real);
  return j;
}

static ZpOptions options(const ZxDeviceTable *dev, ZpOptions o) {
  o.scratch = dev->scratch;
  o.threads = 1;
  o.supports = dev->supports;
  o.pins = !dev->host;
  return o;
}

Job job_named(const Model *m, const char *recipe, const ZxDeviceTable *dev, ZpOptions o) {
  Plan q = {.a = zb_arena_new(), .d = zl_diags_new(m->c.a, m->c.s)};
  o = options(dev, o);
  q.r = zl_recipe(m->c.p, q.d, recipe);
  if (q.r && !zl_errors(q.d)) q.p = zp_plan(q.a, m->g, q.r, q.d, &o);
  return job(q, dev, recipe);
}

Job job_of(const Model *m, const char *base, const char *body, const ZxDeviceTable *dev, ZpOptions o) {
  Plan q = {.a = zb_arena_new()};
  ZlSources *s = zl_sources_new(q.a);
  q.d = zl_diags_new(q.a, s);
  o = options(dev, o);
  const char *text = zb_printf(q.a, "recipe base { %s }\nrecipe r from base { %s }\n", base, body);
  ZlProgram *p = zl_load_text(q.a, s, q.d, "test.zug", text, strlen(text), NULL);
  if (p && !zl_errors(q.d)) q.r = zl_recipe(p, q.d, "r");
  if (q.r && !zl_errors(q.d)) q.p = zp_plan(q.a, m->g, q.r, q.d, &o);
  return job(q, dev, body);
}

void job_close(Job *j) { plan_close(&j->q); }

/* ---- playing ---- */
static void (*act)(Player *);

static void tell(Player *p) {
  ZbText t = {0};
  zx_engine_tell(p->e, p->job->o.cluster, &t);
  snprintf(p->told, sizeof p->told, "%s", t.s ? t.s : "");
  zb_text_free(&t);
  p->planned = zx_engine_bytes(p->e);
}

static void play(void *arg) {
  Player *p = arg;
  const Job *j = p->job;
  p->a = zb_arena_new();
  p->env = (ZkEnv){.pool = zk_pool_new(1), .seed = j->o.seed, .tf32 = j->p->asked.tf32, .debug = j->debug};
  if (j->bytes) {
    ZxData *d = zx_data_of_bytes(j->bytes, j->nbytes, "records", &p->err);
    p->data = d ? zx_mix_one(d) : NULL;
  }
  ZxEngineOptions o = j->o;
  o.env = &p->env;
  o.data = p->data;
  o.also[0] = j->also;
  p->ok = j->dev->open(&p->env, p->rank, &p->err);
  p->ok = p->ok && (p->e = zx_engine_new(p->a, j->p, p->c, &o, &p->err));
  if (p->ok) tell(p);
  if (p->ok) act(p);
  if (p->e) zx_engine_free(p->e);
  cr_expect(!p->env.step_state); /* which was the engine's */
  j->dev->close(&p->env);
  zk_pool_free(p->env.pool);
  zx_mix_close(p->data);
  zb_arena_free(p->a);
}

void job_try(Job *j, void (*what)(Player *)) {
  World *w = (j->exchanges ? world_exchanging : world_new)(j->ranks);
  act = what;
  for (int i = 0; i < j->ranks; i++) j->player[i] = (Player){.job = j, .rank = i, .c = world_rank(w, i)};
  world_play(w, play, j->player, sizeof *j->player);
  world_free(w);
}

void job_play(Job *j, void (*what)(Player *)) {
  job_try(j, what);
  for (int i = 0; i < j->ranks; i++)
    cr_assert(j->player[i].ok, "rank %d of recipe %s: %s", i, j->p->asked.recipe->name,
              j->player[i].err.text);
}

void job_steps(Player *p, int from, int to) {
  for (int k = from; p->ok && k <= to; k++) p->ok = zx_engine_step(p->e, k, &p->step[k], &p->err);
}

void job_save(Player *p) {
  const char *name = p->job->save;
  if (!name || !p->ok) return;
  char path[300];
  snprintf(path, sizeof path, "%s", name);
  p->ok = zx_engine_reserve(p->e, path, &p->err) && zx_engine_save(p->e, &p->err);
}

/* Whatever is trained: replicas hold the same. */
static void compare(Player *p) {
  ZxAlike *x = zx_alike_open(p->e, &p->err);
  p->ok = x && zx_alike(x, p->job->steps, &p->err);
  zx_alike_close(x);
}

void job_train(Player *p) {
  p->ok = zx_engine_init(p->e, &p->err);
  job_steps(p, 1, p->job->steps);
  if (p->ok) compare(p);
  job_save(p);
}

bool job_prepares(const ZkEnv *env, const ZkCall *c, ZbErr *err) {
  return (void)env, (void)c, (void)err, true;
}

/* ---- comparing ---- */
float *job_saved(const char *name, uint64_t *n) {
  size_t all;
  char *text = scratch_read(name, &all);
  uint64_t head;
  memcpy(&head, text, sizeof head);
  *n = (all - 8 - head) / sizeof(float);
  float *x = malloc(*n * sizeof *x + 1);
  memcpy(x, text + 8 + head, *n * sizeof *x);
  free(text);
  return x;
}

static bool near(double a, double b, double tolerance) { return fabs(a - b) <= tolerance * fabs(b); }

void job_compare(const Job *one, const Job *other, double tolerance, const char *what) {
  for (int k = 1; k <= other->steps; k++)
    for (int r = 0; r < other->ranks; r++) {
      const ZxStep *a = &other->player[r].step[k], *b = &one->player[0].step[k];
      cr_assert(near(a->loss, b->loss, tolerance) && near(a->grad_norm, b->grad_norm, tolerance),
                "%s: step %d, rank %d: loss %.9g, norm %.9g; of one rank %.9g, %.9g", what, k, r, a->loss,
                a->grad_norm, b->loss, b->grad_norm);
    }
  if (!one->save || !other->save) return;
  uint64_t n, m;
  float most = 0, *a = job_saved(strrchr(other->save, '/') + 1, &n),
        *b = job_saved(strrchr(one->save, '/') + 1, &m);
  cr_assert_eq(n, m);
  for (uint64_t i = 0; i < n; i++) most = fmaxf(most, fabsf(b[i]));
  for (uint64_t i = 0; i < n; i++)
    cr_assert(fabs(a[i] - b[i]) <= tolerance * most, "%s: value %d is %.9g, of one rank %.9g", what, (int)i,
              (double)a[i], (double)b[i]);
  free(a);
  free(b);
}
