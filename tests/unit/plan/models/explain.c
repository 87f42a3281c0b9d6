/* What `explain` prints is what is done. Its rows are read back as text and added up against the plan's
 * instruction lists and nodes, for many random recipes; and for some of them against what the engine hands to
 * its communicator, which here notes operations and their bytes and carries nothing. */
#include "runtime/exec/engine/internal.h"
#include "runtime/exec/state/state.h"
#include "tests/unit/plan/models/recipes.h"
#include "tests/unit/plan/models/stream.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <string.h>

/* ---- sums by stage, operation and dims ----------------------------------------------------------------- */
typedef struct {
  uint32_t stage;
  char op[16], over[64];
  uint64_t bytes, count; /* bytes: of whole tensors, of all `count` */
} Sum;
typedef struct {
  Sum *sum;
  uint32_t n;
  ZbArena *a;
} Sums;

static Sum *sum_of(Sums *s, uint32_t stage, const char *op, const char *over) {
  for (uint32_t i = 0; i < s->n; i++)
    if (s->sum[i].stage == stage && !strcmp(s->sum[i].op, op) && !strcmp(s->sum[i].over, over))
      return &s->sum[i];
  Sum x = {.stage = stage};
  snprintf(x.op, sizeof x.op, "%s", op);
  snprintf(x.over, sizeof x.over, "%s", over);
  ZB_PUSH(s->a, s->sum, s->n, x);
  return &s->sum[s->n - 1];
}

static void add(Sums *s, uint32_t stage, const char *op, const char *over, uint64_t bytes) {
  Sum *x = sum_of(s, stage, op, over);
  x->bytes += bytes;
  x->count++;
}

static void expect_equal(Sums *have, Sums *want, const char *what, const char *text) {
  for (uint32_t i = 0; i < have->n; i++) {
    const Sum *x = &have->sum[i], *y = sum_of(want, x->stage, x->op, x->over);
    if (x->bytes != y->bytes || x->count != y->count)
      cr_assert_fail("stage %u %s over %s: printed %llu times, %llu bytes; %s %llu times, %llu bytes\n%s",
                     x->stage, x->op, x->over, (unsigned long long)x->count, (unsigned long long)x->bytes,
                     what, (unsigned long long)y->count, (unsigned long long)y->bytes, text);
  }
  cr_assert_eq(have->n, want->n, "%u kinds are printed, %s %u\n%s", have->n, what, want->n, text);
}

/* ---- the printed rows ---------------------------------------------------------------------------------- */
/* "0-1          4    154533888 B    309067776 B  reduce_scatter  data (2)          wte ..." */
static bool read_row(char *line, Sums *s, uint32_t *rows) {
  unsigned from, to;
  unsigned long long count, bytes;
  char op[16], over[64];
  int n = 0, at = 0;
  if (sscanf(line, "%u%n", &from, &n) != 1) return false;
  to = from;
  if (line[n] == '-') cr_assert_eq(sscanf(line + n + 1, "%u", &to), 1, "%s", line);
  n += (int)strcspn(line + n, " ");
  cr_assert_eq(sscanf(line + n, "%llu %llu B %*u B %15s %n", &count, &bytes, op, &at), 3, "%s", line);
  char *word = line + n + at, *end = strstr(word, "  ");
  cr_assert(end && from <= to && count > 0, "%s", line);
  snprintf(over, sizeof over, "%.*s", (int)(end - word), word);
  for (uint32_t k = from; k <= to; k++) {
    Sum *x = sum_of(s, k, op, over);
    x->count += count;
    x->bytes += count * bytes;
  }
  ++*rows;
  return true;
}

static uint32_t read_rows(const char *text, Sums *s) {
  uint32_t rows = 0;
  char *copy = zb_strdup(s->a, text), *next = copy;
  for (char *line; (line = next);) {
    if ((next = strchr(line, '\n'))) *next++ = 0;
    read_row(line, s, &rows);
  }
  return rows;
}

static void explain(const ZpPlan *p, ZbText *out) {
  zb_bytes_exactly(true);
  zp_explain(p, out);
}

/* The same rows as JSON. */
static Sums read_json(const ZpPlan *p, ZbArena *a, uint32_t *rows) {
  Sums s = {.a = a};
  ZbText t = {0};
  zp_explain_json(p, &t);
  cJSON *o = cJSON_Parse(t.s), *row;
  cr_assert(o, "no JSON: %s", t.s);
  cJSON_ArrayForEach(row, cJSON_GetObjectItem(o, "messages")) {
#define NUMBER(key) ((uint64_t)cJSON_GetNumberValue(cJSON_GetObjectItem(row, key)))
#define TEXT(key) cJSON_GetStringValue(cJSON_GetObjectItem(row, key))
    for (uint64_t k = NUMBER("from_stage"); k <= NUMBER("to_stage"); k++) {
      Sum *x = sum_of(&s, (uint32_t)k, TEXT("collective"), TEXT("over"));
      x->count += NUMBER("count");
      x->bytes += NUMBER("count") * NUMBER("bytes");
    }
    ++*rows;
#undef NUMBER
#undef TEXT
  }
  cJSON_Delete(o);
  zb_text_free(&t);
  return s;
}

/* ---- the program --------------------------------------------------------------------------------------- */
static const char *dims_text(const ZpPlan *p, ZbArena *a, ZpDims dims) {
  return zb_printf(a, "%s (%lld)", zp_dims_text(&p->mesh, a, dims), (long long)zp_group_size(&p->mesh, dims));
}

static uint64_t elems(const ZkView *v) {
  uint64_t n = 1;
  for (int i = 0; i < v->rank; i++) n *= (uint64_t)v->size[i];
  return n;
}

/* Elements that a shift sends from a rank that has others on both sides. */
static uint64_t leaving(const ZkCall *c, int64_t members) {
  const ZkView *v = &c->in[0];
  int64_t own = 1, most = 0;
  for (int i = 0; i < v->rank; i++) own = v->axis[i] == c->ax[0] ? v->size[i] : own;
  for (int64_t t = 0; t < own; t++) {
    int64_t to = t + members * own + c->opt[0]; /* as if the rank were member `members` of many */
    most += to >= own && to / own != members && to / own < 2 * members;
  }
  return elems(v) / (uint64_t)own * (uint64_t)most;
}

/* What the nodes of a list move, by the shapes of their calls. */
static void add_list(const ZpPlan *p, Sums *s, uint32_t stage, const ZpList *l) {
  for (uint32_t i = 0; i < l->n; i++) {
    const ZkCall *c = &l->nodes[i].call;
    uint64_t members = (uint64_t)zp_group_size(&p->mesh, l->nodes[i].dims),
             each = zk_elem_bytes((ZkElem)c->in[0].elem);
    if (members < 2 || c->op == ZG_OP_LOCAL_SLICE || c->op == ZG_OP_LOCAL_PAD) continue;
    if (c->op == ZG_OP_SHIFT) {
      add(s, stage, "halo", dims_text(p, s->a, l->nodes[i].dims), each * leaving(c, (int64_t)members));
      continue;
    }
    uint64_t whole = elems(&c->in[0]) * (c->op == ZG_OP_ALL_GATHER ? members : 1);
    add(s, stage, zg_op_info[c->op].text, dims_text(p, s->a, l->nodes[i].dims), whole * each);
  }
}

static const char *stages_text(ZbArena *a, const ZpTied *t) {
  const char *s = "stages";
  for (uint32_t k = 0; k < t->nstages; k++) s = zb_printf(a, "%s%s %u", s, k ? "," : "", t->stages[k]);
  return s;
}

static const char *world_text(const ZpPlan *p, ZbArena *a) {
  return zb_printf(a, "all ranks (%lld)", (long long)p->mesh.nranks);
}

static void add_program(const ZpPlan *p, Sums *s, uint32_t stage) {
  const ZpStage *st = &p->stages[stage];
  for (uint32_t i = 0; i < st->prog.ninstrs; i++) {
    const ZpInstr *in = &st->prog.instrs[i];
    ZpPhase phase = zp_phase(in->op);
    if (phase < ZP_PHASES) add_list(p, s, stage, &p->segments[st->insts[in->inst].segment].list[phase]);
    if (in->op == ZP_I_SEND_ACT) add(s, stage, "send", "next stage", in->bytes);
    if (in->op == ZP_I_SEND_GRAD) add(s, stage, "send", "stage before", in->bytes);
    if (in->queue != ZP_Q_COLL) continue;
    if (in->op == ZP_I_REDUCE_TIED)
      add(s, stage, "all_reduce", stages_text(s->a, &p->tied[in->tied]), in->bytes);
    else if (zp_group_size(&p->mesh, in->dims) > 1)
      add(s, stage, zg_op_info[in->coll].text,
          in->op == ZP_I_REDUCE_STEP ? world_text(p, s->a) : dims_text(p, s->a, in->dims), in->bytes);
  }
}

static bool check_program(const ZgGraph *g, const ZpPlan *p, const char *recipe) {
  (void)g;
  ZbArena *a = zb_arena_new();
  ZbText t = {0};
  Sums printed = {.a = a}, program = {.a = a};
  explain(p, &t);
  uint32_t in_json = 0, rows = read_rows(t.s, &printed);
  for (uint32_t s = 0; s < p->nstages; s++) add_program(p, &program, s);
  expect_equal(&printed, &program, "the program", zb_printf(a, "%s\n%s", recipe, t.s));
  Sums json = read_json(p, a, &in_json);
  expect_equal(&printed, &json, "as JSON", zb_printf(a, "%s\n%s", recipe, t.s));
  cr_assert_eq(rows, in_json);
  zb_text_free(&t);
  zb_arena_free(a);
  return true;
}

/* Random recipes for a model. `check` returns whether a plan is one that it looks at; of these there are
 * `least`. */
static void many(int m, uint32_t n, uint32_t least,
                 bool (*check)(const ZgGraph *g, const ZpPlan *p, const char *recipe)) {
  Model x = model_open(random_models[m].name, random_models[m].text, random_models[m].options);
  uint32_t plans = 0;
  for (uint32_t i = 0; i < n; i++) {
    ZbText t = {0};
    put_recipe(m, i, &t);
    Plan q = plan_try(x.g, t.s);
    plans += q.p && check(x.g, q.p, t.s);
    plan_close(&q);
    zb_text_free(&t);
  }
  cr_log_info("%s: %u plans", random_models[m].name, plans);
  cr_assert_geq(plans, least);
  model_close(&x);
}

Test(explain, mlp) { many(MLP, 200, 40, check_program); }
Test(explain, gpt2) { many(GPT2, 200, 40, check_program); }
Test(explain, llama3) { many(LLAMA3, 200, 40, check_program); }
Test(explain, odd) { many(ODD, 200, 40, check_program); }

/* Copies of eight shards each: all-reduces are of shards. Two stages, a table tied between them. */
Test(explain, shards_and_stages) {
  Model x = model_open("gpt2", NULL, "-D layers=3 -D heads=4 -D width=16 -D context=32 -D words=12");
  Plan q = plan_of(
      x.g, "mesh pipe = 2, replica = 2, data = 8 bind batch = 64, seq = 16 micro 1\n"
           "split batch over replica, data stages over pipe = [2, 1] shard params, grads, states over data");
  ZbText t = {0};
  Sums s = {.a = q.a};
  explain(q.p, &t);
  read_rows(t.s, &s);
  for (uint32_t k = 0; k < 2; k++) {
    uint64_t whole = 0;
    for (uint32_t h = 0; h < q.p->stages[k].nheld; h++)
      whole += 4 * q.p->buckets[q.p->stages[k].held[h].bucket].elems;
    cr_assert_eq(sum_of(&s, k, "reduce_scatter", "data (8)")->bytes, 4 * whole);
    cr_assert_eq(sum_of(&s, k, "all_reduce", "replica (2)")->bytes, whole / 8);
    cr_assert_eq(sum_of(&s, k, "all_reduce", "stages 0, 1")->bytes, 4 * bucket_with(q.p, "wte")->elems / 8);
    cr_assert_eq(sum_of(&s, k, "all_reduce", "all ranks (32)")->bytes, 32);
  }
  cr_assert_eq(sum_of(&s, 0, "all_reduce", "replica x data (16)")->count, 0);
  cr_assert_eq(sum_of(&s, 1, "all_reduce", "replica x data (16)")->bytes, 8); /* the loss denominator */
  cr_assert_eq(sum_of(&s, 0, "send", "next stage")->bytes, 4 * 1 * 16 * 16 * 4);
  cr_assert_eq(sum_of(&s, 1, "send", "stage before")->bytes, 4 * 1 * 16 * 16 * 4);
  zb_text_free(&t);
  plan_close(&q);
  model_close(&x);
}

/* A table that is both ends of the model on one stage is scattered once a micro-batch. */
Test(explain, tied_table) {
  Model x = model_open("gpt2", NULL, "-D layers=3 -D heads=4 -D width=16 -D context=32 -D words=12");
  for (int level = 2; level <= 3; level++) {
    Plan q = plan_of(x.g, zb_printf(x.c.a,
                                    "mesh data = 2 bind batch = 8, seq = 16 micro 1 split batch over data\n"
                                    "shard %sgrads, states over data",
                                    level == 3 ? "params, " : ""));
    ZbText t = {0};
    explain(q.p, &t);
    const char *row = strstr(t.s, "reduce_scatter  data (2)          wte");
    cr_assert(row, "%s", t.s);
    while (row > t.s && row[-1] != '\n') row--;
    unsigned stage, count;
    cr_assert_eq(sscanf(row, "%u %u", &stage, &count), 2);
    cr_assert_eq(count, 4);
    zb_text_free(&t);
    plan_close(&q);
  }
  model_close(&x);
}

/* ---- the engine: a communicator that notes ------------------------------------------------------------- */
typedef struct {
  ZxComm c; /* first: a ZxComm of its own kind */
  const ZpPlan *p;
  ZxEngine *e; /* NULL while it is made */
  bool step;   /* in one: operations count */
  int64_t rank;
  int ngroups;
  Sums sums;
} Noting;
static Noting *noting(ZxComm *c) { return (Noting *)(void *)c; }

/* The dims of a group; text for one of several stages or the world. */
static ZpDims group_dims(const Noting *n, ZxGroup g) {
  for (ZpDims d = 1; d < 1u << ZP_MAX_DIMS; d++)
    if (n->e->group[d] == g || n->e->node_group[d] == g) return d;
  cr_assert_fail("group %d is for no dims", g);
  return 0;
}

static void note(Noting *n, const char *op, ZxGroup g, uint64_t bytes) {
  if (!n->step || n->p->mesh.nranks < 2) return;
  for (uint32_t i = 0; i < n->p->ntied; i++)
    if (n->e->tied[i] == g) {
      add(&n->sums, n->e->stage, op, stages_text(n->sums.a, &n->p->tied[i]), bytes);
      return;
    }
  if (!g) {
    add(&n->sums, n->e->stage, op, world_text(n->p, n->sums.a), bytes);
    return;
  }
  ZpDims dims = group_dims(n, g);
  if (zp_group_size(&n->p->mesh, dims) > 1)
    add(&n->sums, n->e->stage, op, dims_text(n->p, n->sums.a, dims), bytes);
}

static uint64_t members_of(const Noting *n, ZxGroup g) {
  return (uint64_t)zp_group_size(&n->p->mesh, group_dims(n, g));
}

static int the_rank(ZxComm *c) { return (int)noting(c)->rank; }
static int the_size(ZxComm *c) { return (int)noting(c)->p->mesh.nranks; }
static int none(ZxComm *c) { return (void)c, 0; }
static ZxGroup split(ZxComm *c, int color) { return color < 0 ? -1 : ++noting(c)->ngroups; }

static ZxRequest send(ZxComm *c, const void *p, size_t bytes, int peer, int tag) {
  Noting *n = noting(c);
  (void)p, (void)tag;
  add(&n->sums, n->e->stage, "send", peer > n->rank ? "next stage" : "stage before", bytes);
  return -1;
}

static ZxRequest recv(ZxComm *c, void *p, size_t bytes, int peer, int tag) {
  (void)c, (void)peer, (void)tag;
  memset(p, 0, bytes);
  return -1;
}

static ZxRequest all_reduce(ZxComm *c, ZxGroup g, void *p, size_t n, ZxCommElem elem, ZxReduce how) {
  (void)p, (void)how;
  note(noting(c), "all_reduce", g, n * zx_elem_bytes(elem));
  return -1;
}

/* All members have what this rank has: so ids stay ids. */
static ZxRequest all_gather(ZxComm *c, ZxGroup g, const void *part, size_t bytes, void *out) {
  uint64_t members = members_of(noting(c), g);
  note(noting(c), "all_gather", g, bytes * members);
  for (uint64_t i = 0; i < members; i++) memmove((char *)out + i * bytes, part, bytes);
  return -1;
}

static ZxRequest reduce_scatter(ZxComm *c, ZxGroup g, void *in, size_t n, ZxCommElem elem, ZxReduce how,
                                void *out) {
  (void)how;
  n *= zx_elem_bytes(elem);
  note(noting(c), "reduce_scatter", g, n * members_of(noting(c), g));
  memmove(out, in, n);
  return -1;
}

static ZxRequest all_to_all(ZxComm *c, ZxGroup g, const void *in, size_t bytes, void *out) {
  note(noting(c), "all_to_all", g, bytes * members_of(noting(c), g));
  memmove(out, in, bytes * members_of(noting(c), g));
  return -1;
}

static bool complete(ZxComm *c, ZxRequest r) { return (void)c, (void)r, true; }
static void no_wait(ZxComm *c, ZxRequest r) { (void)c, (void)r; }
static void nothing(ZxComm *c) { (void)c; }

static const ZxCommTable notes = {.name = "notes",
                                  .rank = the_rank,
                                  .size = the_size,
                                  .node_rank = none,
                                  .split = split,
                                  .send = send,
                                  .recv = recv,
                                  .all_reduce = all_reduce,
                                  .all_gather = all_gather,
                                  .reduce_scatter = reduce_scatter,
                                  .all_to_all = all_to_all,
                                  .test = complete,
                                  .wait = no_wait,
                                  .barrier = nothing,
                                  .free = nothing};

/* One step of rank `rank`, alone: numbers are wrong, operations and bytes are right. */
static void play(const ZgGraph *g, const char *recipe, int64_t rank, Sums *sums) {
  Plan q = plan_of(g, recipe); /* its calls are the engine's from then on */
  ZbErr err = {0};
  ZkEnv env = {.pool = zk_pool_new(1)};
  Noting n = {.c = {&notes}, .p = q.p, .rank = rank, .sums = {.a = sums->a}};
  ZxMix *data = stream_of_tokens(q.a);
  cr_assert(zx_device_cpu.open(&env, 0, &err), "%s", err.text);
  ZxEngineOptions o = {.device = &zx_device_cpu, .env = &env, .data = data};
  ZxEngine *e = zx_engine_new(q.a, q.p, &n.c, &o, &err);
  cr_assert(e, "%s\n%s", err.text, recipe);
  n.e = e;
  cr_assert(zx_engine_init(e, &err), "%s\n%s", err.text, recipe);
  n.step = true;
  ZxStep step;
  cr_assert(zx_engine_step(e, 1, &step, &err), "%s\n%s", err.text, recipe);
  cr_assert_eq(step.used_bytes, zx_engine_bytes(e));
  *sums = n.sums;
  zx_engine_free(e);
  zx_device_cpu.close(&env);
  zk_pool_free(env.pool);
  zx_mix_close(data);
  plan_close(&q);
}

static void keep_stage(const Sums *all, uint32_t stage, Sums *out) {
  for (uint32_t i = 0; i < all->n; i++)
    if (all->sum[i].stage == stage) ZB_PUSH(out->a, out->sum, out->n, all->sum[i]);
}

/* The first and the last rank of each stage. */
static bool check_engine(const ZgGraph *g, const ZpPlan *p, const char *recipe) {
  bool small = p->global_batch <= 64 && p->axis_valid[zg_axis_find(g, "seq")] <= 64;
  if (!small || p->mesh.nranks < 2) return false;
  ZbArena *a = zb_arena_new();
  ZbText t = {0};
  Sums printed = {.a = a};
  explain(p, &t);
  read_rows(t.s, &printed);
  for (uint32_t s = 0; s < p->nstages; s++)
    for (int last = 0; last < 2; last++) {
      Sums one = {.a = a}, moved = {.a = a};
      keep_stage(&printed, s, &one);
      play(g, recipe, zp_rank_of_stage(&p->mesh, last ? p->mesh.nranks - 1 : 0, s), &moved);
      expect_equal(&one, &moved, "the engine", zb_printf(a, "%s\n%s", recipe, t.s));
    }
  zb_text_free(&t);
  zb_arena_free(a);
  return true;
}

Test(explain, gpt2_engine) { many(GPT2, 280, 20, check_engine); }
Test(explain, llama3_engine) { many(LLAMA3, 280, 20, check_engine); }
