/* What `explain` prints is what is done. Its rows are read back as text and added up against the plan's
 * instruction lists and nodes, for many random recipes; and for some of them against what the engine hands to
 * its communicator, which here notes operations and their bytes and carries nothing. */
#include "runtime/exec/engine/internal.h"
#include "runtime/exec/state/state.h"
#include "runtime/plan/text.h"
#include "runtime/plan/time/time.h"
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
  return zb_printf(a, "%s (%lld)", zp_dims_text(&p->layout.mesh, a, dims),
                   (long long)zp_group_size(&p->layout.mesh, dims));
}

/* What explain calls what nodes do. */
static const char *op_text(uint16_t op) {
  return op == ZG_OP_SHIFT                               ? "halo"
         : op == ZG_OP_ATTEND || op == ZG_OP_ATTEND_GRAD ? "ring"
                                                         : zg_op_info[op].text;
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
    uint64_t members = (uint64_t)zp_group_size(&p->layout.mesh, l->nodes[i].dims),
             each = zk_plain_bytes((ZkElem)c->in[0].elem);
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
  return zb_printf(a, "all ranks (%lld)", (long long)p->layout.mesh.nranks);
}

static void add_program(const ZpPlan *p, Sums *s, uint32_t stage) {
  const ZpStage *st = &p->programs.stages[stage];
  for (uint32_t i = 0; i < st->prog.ninstrs; i++) {
    const ZpInstr *in = &st->prog.instrs[i];
    ZpPhase phase = zp_phase(in->op);
    if (phase < ZP_PHASES)
      add_list(p, s, stage, &p->programs.segments[st->insts[in->inst].segment].list[phase]);
    if (in->op == ZP_I_SEND_ACT) add(s, stage, "send", "next stage", in->bytes);
    if (in->op == ZP_I_SEND_GRAD) add(s, stage, "send", "stage before", in->bytes);
    if (in->queue != ZP_Q_COLL) continue;
    if (in->op == ZP_I_REDUCE_TIED)
      add(s, stage, "all_reduce", stages_text(s->a, &p->programs.tied[in->tied]), in->bytes);
    else if (zp_group_size(&p->layout.mesh, in->dims) > 1)
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
  for (uint32_t s = 0; s < p->programs.nstages; s++) add_program(p, &program, s);
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
    for (uint32_t h = 0; h < q.p->programs.stages[k].nheld; h++)
      whole += 4 * q.p->programs.buckets[q.p->programs.stages[k].held[h].bucket].elems;
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
  if (!n->step || n->p->layout.mesh.nranks < 2) return;
  for (uint32_t i = 0; i < n->p->programs.ntied; i++)
    if (n->e->tied[i] == g) {
      add(&n->sums, n->e->stage, op, stages_text(n->sums.a, &n->p->programs.tied[i]), bytes);
      return;
    }
  if (!g) {
    add(&n->sums, n->e->stage, op, world_text(n->p, n->sums.a), bytes);
    return;
  }
  ZpDims dims = group_dims(n, g);
  if (zp_group_size(&n->p->layout.mesh, dims) > 1)
    add(&n->sums, n->e->stage, op, dims_text(n->p, n->sums.a, dims), bytes);
}

static uint64_t members_of(const Noting *n, ZxGroup g) {
  return (uint64_t)zp_group_size(&n->p->layout.mesh, group_dims(n, g));
}

static int the_rank(ZxComm *c) { return (int)noting(c)->rank; }
static int the_size(ZxComm *c) { return (int)noting(c)->p->layout.mesh.nranks; }
static int none(ZxComm *c) { return (void)c, 0; }
static ZxGroup split(ZxComm *c, int color) { return color < 0 ? -1 : ++noting(c)->ngroups; }

/* To the next stage or the one before; or within a stage, by a ring, a halo or what has rows of experts. */
static ZxRequest send(ZxComm *c, const void *p, size_t bytes, int peer, int tag) {
  Noting *n = noting(c);
  int pipe = n->p->layout.mesh.pipe;
  (void)p, (void)tag;
  if (pipe < 0 || zp_coord(&n->p->layout.mesh, peer, pipe) == n->e->stage)
    add(&n->sums, n->e->stage, op_text(n->e->node->call.op), dims_text(n->p, n->sums.a, n->e->node->dims),
        bytes);
  else add(&n->sums, n->e->stage, "send", peer > n->rank ? "next stage" : "stage before", bytes);
  return -1;
}

static ZxRequest recv(ZxComm *c, void *p, size_t bytes, int peer, int tag) {
  (void)c, (void)peer, (void)tag;
  memset(p, 0, bytes);
  return -1;
}

static ZxRequest all_reduce(ZxComm *c, ZxGroup g, void *p, size_t n, ZkElem elem, ZxReduce how) {
  (void)p, (void)how;
  note(noting(c), "all_reduce", g, zk_bytes(elem, n));
  return -1;
}

/* All members have what this rank has: so ids stay ids. */
static ZxRequest all_gather(ZxComm *c, ZxGroup g, const void *part, size_t bytes, void *out) {
  Noting *n = noting(c);
  uint64_t members = members_of(n, g);
  bool round = n->e->node && n->e->node->call.op == ZG_OP_ROUND && n->e->node_group[n->e->node->dims] == g;
  note(n, round ? "round" : "all_gather", g, bytes * members);
  for (uint64_t i = 0; i < members; i++) memmove((char *)out + i * bytes, part, bytes);
  return -1;
}

static ZxRequest reduce_scatter(ZxComm *c, ZxGroup g, void *in, size_t n, ZkElem elem, ZxReduce how,
                                void *out) {
  (void)how;
  n *= zk_plain_bytes(elem);
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

/* What a step says of itself: its trace, and bytes by operation as `--times` has them. */
typedef struct {
  ZbText trace;
  double bytes[ZG_OP_COUNT];
  uint64_t arena;
} Report;

/* One step of rank `rank`, alone: numbers are wrong, operations and bytes are right. */
static void play(const ZgGraph *g, const char *recipe, int64_t rank, Sums *sums, Report *report) {
  Plan q = plan_of(g, recipe); /* its calls are the engine's from then on */
  ZbErr err = {0};
  ZkEnv env = {.pool = zk_pool_new(1)};
  Noting n = {.c = {&notes}, .p = q.p, .rank = rank, .sums = {.a = sums->a}};
  ZxMix *data = stream_of_tokens(q.a);
  cr_assert(zx_device_cpu.open(&env, 0, &err), "%s", err.text);
  ZxEngineOptions o = {.device = &zx_device_cpu, .env = &env, .data = data};
  if (report) o.trace_from = o.trace_to = 1, o.times = true;
  ZxEngine *e = zx_engine_new(q.a, q.p, &n.c, &o, &err);
  cr_assert(e, "%s\n%s", err.text, recipe);
  n.e = e;
  cr_assert(zx_engine_init(e, &err), "%s\n%s", err.text, recipe);
  n.step = true;
  ZxStep step;
  cr_assert(zx_engine_step(e, 1, &step, &err), "%s\n%s", err.text, recipe);
  cr_assert_eq(step.used_bytes, zx_engine_bytes(e));
  if (report) report->arena = step.used_bytes;
  *sums = n.sums;
  uint64_t nspans;
  const ZpSpan *spans = zx_engine_spans(e, &nspans);
  if (report) zp_trace_events(q.p, rank, spans, nspans, 0, 0, false, &report->trace);
  for (int op = 0; report && op < ZG_OP_COUNT; op++) report->bytes[op] = zx_engine_work(e)[op].bytes;
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
  bool small = p->asked.global_batch <= 64 && p->layout.axis_valid[zg_axis_find(g, "seq")] <= 64;
  if (!small || p->layout.mesh.nranks < 2) return false;
  ZbArena *a = zb_arena_new();
  ZbText t = {0};
  Sums printed = {.a = a};
  explain(p, &t);
  read_rows(t.s, &printed);
  for (uint32_t s = 0; s < p->programs.nstages; s++)
    for (int last = 0; last < 2; last++) {
      Sums one = {.a = a}, moved = {.a = a};
      keep_stage(&printed, s, &one);
      play(g, recipe, zp_rank_of_stage(&p->layout.mesh, last ? p->layout.mesh.nranks - 1 : 0, s), &moved,
           NULL);
      expect_equal(&one, &moved, "the engine", zb_printf(a, "%s\n%s", recipe, t.s));
    }
  zb_text_free(&t);
  zb_arena_free(a);
  return true;
}

Test(explain, gpt2_engine) { many(GPT2, 100, 6, check_engine); }
Test(explain, llama3_engine) { many(LLAMA3, 100, 6, check_engine); }

/* ---- what all of them say of one plan ------------------------------------------------------------------ */
/* By operation: how often, and bytes of whole tensors; at least, and at most where tokens say how often. */
typedef struct {
  char op[16];
  uint64_t count[2], bytes[2];
} Said;
typedef struct {
  Said at[16];
  uint32_t n;
} Table;

static Said *said_of(Table *t, const char *op) {
  uint32_t i = 0;
  while (i < t->n && strcmp(t->at[i].op, op)) i++;
  if (i == t->n) snprintf(t->at[t->n++].op, sizeof t->at[i].op, "%s", op);
  return &t->at[i];
}

static void say(Table *t, const char *op, uint64_t count, uint64_t most, uint64_t bytes) {
  bool rows = !strcmp(op, "dispatch") || !strcmp(op, "combine"); /* no more of them, however many rounds */
  Said *s = said_of(t, op);
  s->count[0] += count;
  s->count[1] += most;
  s->bytes[0] += count * bytes;
  s->bytes[1] += (rows ? count : most) * bytes;
}

static uint64_t number(const cJSON *o, const char *key, uint64_t otherwise) {
  const cJSON *x = cJSON_GetObjectItem(o, key);
  return x ? (uint64_t)cJSON_GetNumberValue(x) : otherwise;
}

static const char *text(const cJSON *o, const char *key) {
  const cJSON *x = cJSON_GetObjectItem(o, key);
  return x ? cJSON_GetStringValue(x) : "";
}

static Table of_json(const ZpPlan *p, uint64_t stage) {
  Table said = {0};
  ZbText t = {0};
  zp_explain_json(p, &t);
  cJSON *o = cJSON_Parse(t.s), *row;
  cJSON_ArrayForEach(row, cJSON_GetObjectItem(o, "messages")) {
    uint64_t count = number(row, "count", 0);
    if (stage < number(row, "from_stage", 0) || stage > number(row, "to_stage", 0)) continue;
    say(&said, text(row, "collective"), count, number(row, "most", count), number(row, "bytes", 0));
  }
  cJSON_Delete(o);
  zb_text_free(&t);
  return said;
}

/* Slices of a trace that send: of transfers, of collectives, and of nodes that are any. A ROUND has
 * gathered once for those of its region. */
static Table of_trace(const char *events, size_t n) {
  Table said = {0};
  ZbText t = {0};
  zb_text_add(&t, "%s%.*s%s", zp_trace_head, (int)n, events, zp_trace_tail);
  cJSON *o = cJSON_Parse(t.s), *x;
  cr_assert(o, "no JSON: %s", t.s);
  cJSON_ArrayForEach(x, cJSON_GetObjectItem(o, "traceEvents")) {
    const cJSON *args = cJSON_GetObjectItem(x, "args");
    const char *kind = text(x, "cat"), *name = text(x, "name"), *op = text(args, "collective");
    uint64_t bytes = number(args, "bytes", 0);
    if (strcmp(text(x, "ph"), "X") || !bytes) continue;
    if (!strcmp(kind, "node"))
      op = !strcmp(name, "shift") ? "halo" : !strncmp(name, "attend", 6) ? "ring" : name;
    else if (!strcmp(kind, "transfers")) op = strncmp(name, "SEND", 4) ? "" : "send";
    else if (!strncmp(name, "REDUCE_TIED", 11)) op = "all_reduce";
    if (*op) say(&said, op, 1, 1, bytes);
  }
  cJSON_Delete(o);
  zb_text_free(&t);
  return said;
}

/* Of a step that is predicted: of what is in rounds one slice with the bytes of all. */
static Table of_prediction(Plan *q, int64_t rank, uint32_t stage) {
  ZlLevel node = {
      .name = {.s = "node"}, .size = 16, .bandwidth = 1e9, .latency = 1e-6, .start = 1e-6, .ramp = 1e-6};
  ZlCluster c = {.flops_f32 = 1e12,
                 .products = .5,
                 .attention = .5,
                 .attention_grad = .8,
                 .stream = 1e11,
                 .launch = 1e-6,
                 .steal = .1,
                 .levels = &node,
                 .nlevels = 1};
  ZpTime *time = zp_time(q->a, q->p, &c, true, q->d);
  cr_assert(time, "%s", plan_messages(q));
  ZbText t = {0};
  zp_trace_events(q->p, rank, time->stages[stage].spans, time->stages[stage].nspans, 0, 0, true, &t);
  Table said = of_trace(t.s, t.len);
  zb_text_free(&t);
  return said;
}

static Table of_engine(const Sums *s) {
  Table said = {0};
  for (uint32_t i = 0; i < s->n; i++) {
    Said *x = said_of(&said, s->sum[i].op);
    for (int k = 0; k < 2; k++) x->count[k] += s->sum[i].count, x->bytes[k] += s->sum[i].bytes;
  }
  return said;
}

enum { NUMBERS = 1, BYTES = 2, AT_MOST = 4 }; /* AT_MOST: what goes to its own rank is not sent */
static void expect_within(Table *have, const Said *x, unsigned what, const char *who) {
  const Said *y = said_of(have, x->op);
  bool count = !(what & NUMBERS) || (y->count[0] >= x->count[0] && y->count[0] <= x->count[1]);
  bool bytes = !(what & BYTES) || y->bytes[0] <= x->bytes[1];
  bytes &= !(what & BYTES) || what & AT_MOST || y->bytes[0] >= x->bytes[0];
  cr_expect(count && bytes, "%s: explain %llu to %llu times, %llu to %llu bytes; %s %llu times, %llu bytes",
            x->op, (unsigned long long)x->count[0], (unsigned long long)x->count[1],
            (unsigned long long)x->bytes[0], (unsigned long long)x->bytes[1], who,
            (unsigned long long)y->count[0], (unsigned long long)y->bytes[0]);
}

/* How many slices of a trace are of a queue, with a name that begins so. */
static uint64_t slices(const ZbText *trace, const char *queue, const char *name) {
  ZbArena *a = zb_arena_new();
  const char *kind = zb_printf(a, "\"cat\":\"%s\"", queue), *called = zb_printf(a, "\"name\":\"%s", name);
  uint64_t n = 0;
  for (const char *line = trace->s; line < trace->s + trace->len; line += strcspn(line, "\n") + 1) {
    const char *one = zb_printf(a, "%.*s", (int)strcspn(line, "\n"), line);
    n += strstr(one, "\"ph\":\"X\"") && strstr(one, kind) && strstr(one, called);
  }
  zb_arena_free(a);
  return n;
}

static cJSON *shown(void (*put)(const ZpPlan *, ZbText *), const ZpPlan *p, const cJSON **stage, uint32_t s) {
  ZbText t = {0};
  put(p, &t);
  cJSON *o = cJSON_Parse(t.s);
  *stage = cJSON_GetArrayItem(cJSON_GetObjectItem(o, "stages"), (int)s);
  cr_assert(*stage, "no stage in JSON: %s", t.s);
  zb_text_free(&t);
  return o;
}

/* What a trace says of the arena at each moment: as much is stored as the ledger has of it, nothing takes
 * more than its lines, and at the end of each step there is nothing but what is stored. */
static void arena_is_as_said(const ZbText *trace, const ZpLedger *l) {
  static const struct {
    const char *use;
    ZpLedgerLine lines[4];
    int n;
  } uses[] = {{"stored", {ZP_L_PARAMS, ZP_L_MASTER, ZP_L_GRADS, ZP_L_STATES}, 4},
              {"activations", {ZP_L_ACTIVATIONS}, 1},
              {"gathered", {ZP_L_GATHERED}, 1},
              {"staging", {ZP_L_STAGING, ZP_L_UPDATES}, 2},
              {"scratch", {ZP_L_SCRATCH}, 1}};
  ZbText t = {0};
  zb_text_add(&t, "%s%.*s%s", zp_trace_head, (int)trace->len, trace->s, zp_trace_tail);
  cJSON *o = cJSON_Parse(t.s);
  const cJSON *x, *last = NULL;
  uint64_t most[5] = {0}, arena = 0;
  cr_assert(o, "no JSON: %s", t.s);
  cJSON_ArrayForEach(x, cJSON_GetObjectItem(o, "traceEvents")) {
    if (strcmp(text(x, "ph"), "C")) continue;
    const cJSON *use, *args = last = cJSON_GetObjectItem(x, "args");
    uint64_t sum = 0;
    cJSON_ArrayForEach(use, args) sum += (uint64_t)use->valuedouble;
    arena = sum > arena ? sum : arena;
    for (int u = 0; u < 5; u++) {
      uint64_t now = number(args, uses[u].use, 0);
      most[u] = now > most[u] ? now : most[u];
    }
  }
  cr_expect(arena && arena <= l->total[ZP_DEVICE], "%llu bytes in use", (unsigned long long)arena);
  for (int u = 0; u < 5; u++) {
    uint64_t lines = u ? 0 : l->bytes[ZP_L_OTHER]; /* scalars are stored, too */
    for (int k = 0; k < uses[u].n; k++) lines += l->bytes[uses[u].lines[k]];
    cr_expect(u ? most[u] <= lines && !lines == !most[u] : most[u] == lines, "%s: %llu of %llu bytes",
              uses[u].use, (unsigned long long)most[u], (unsigned long long)lines);
    cr_expect_eq(number(last, uses[u].use, 9), u ? 0 : lines, "%s at the end", uses[u].use);
  }
  cJSON_Delete(o);
  zb_text_free(&t);
}

/* Memory, micro-batches, instructions and idle time: of `show` as text and as JSON, of `programs`, of the
 * engine and its trace. */
static void shows_alike(const ZpPlan *p, uint32_t s, const Report *r) {
  const cJSON *stage, *program, *run, *x;
  cJSON *show = shown(zp_show_json, p, &stage, s), *programs = shown(zp_show_programs_json, p, &program, s);
  uint64_t lines = 0, passes = 0, micro = number(cJSON_GetObjectItem(show, "batch"), "micro_batches", 0);
  cJSON_ArrayForEach(run, cJSON_GetObjectItem(stage, "holds")) passes +=
      number(run, "to", 0) - number(run, "from", 0) + 1;
  const cJSON *memory = cJSON_GetObjectItem(stage, "device_bytes");
  uint64_t arena = number(memory, "arena", 0), queue[ZP_QUEUES] = {0};
  cJSON_ArrayForEach(x, memory) lines += strcmp(x->string, "arena") ? (uint64_t)x->valuedouble : 0;
  cr_expect(arena == r->arena && lines == arena, "an arena of %llu, lines of %llu; %llu are used",
            (unsigned long long)arena, (unsigned long long)lines, (unsigned long long)r->arena);
  cr_expect_eq(slices(&r->trace, "compute", "FWD("), micro * passes);
  cr_expect_eq(slices(&r->trace, "compute", "BWD("), micro * passes);
  cr_expect_eq((uint64_t)cJSON_GetArraySize(cJSON_GetObjectItem(stage, "timeline")), 2 * micro);
  cJSON_ArrayForEach(x, cJSON_GetObjectItem(program, "instructions")) for (int k = 0; k < ZP_QUEUES; k++)
      queue[k] += !strcmp(text(x, "queue"), zp_queue_text[k]);
  cr_expect_eq(queue[0] + queue[1] + queue[2], number(stage, "instructions", 0));
  cr_expect_eq(slices(&r->trace, "compute", ""), queue[ZP_Q_COMPUTE]);
  cr_expect_eq(slices(&r->trace, "transfers", ""), queue[ZP_Q_P2P]);
  cr_expect_eq(slices(&r->trace, "collectives", ""), queue[ZP_Q_COLL]);
  const cJSON *schedule = cJSON_GetObjectItem(show, "schedule");
  double idle = cJSON_GetNumberValue(cJSON_GetObjectItem(schedule, "idle"));
  cr_expect_float_eq(idle, 1 - 3 * (double)micro / (double)number(schedule, "units", 0), 1e-12);
  ZbText t = {0};
  ZbArena *a = zb_arena_new();
  zb_bytes_exactly(true);
  zp_show(p, &t);
  zp_show_schedule(p, &t);
  const char *said[] = {
      zb_printf(a, " %llu B\n", (unsigned long long)arena),
      zb_printf(a, " = %llu micro-batch", (unsigned long long)micro),
      p->programs.nstages > 1 ? zb_printf(a, "%.1f %% idle", 100 * idle) : "",
      zb_printf(a, "micro-batches: %llu units", (unsigned long long)number(schedule, "units", 0))};
  for (size_t i = 0; i < sizeof said / sizeof *said; i++)
    cr_expect(strstr(t.s, said[i]), "no `%s` in:\n%s", said[i], t.s);
  zb_arena_free(a);
  zb_text_free(&t);
  cJSON_Delete(show);
  cJSON_Delete(programs);
}

/* A rank's trace has each with its bytes, as often as it was played; and the communicator hears of as
 * many. Rings, halos and rows are several messages each. */
static void said_alike(const ZgGraph *g, const char *recipe, int64_t rank, const char *must) {
  Plan q = plan_of(g, recipe);
  uint32_t stage =
      q.p->layout.mesh.pipe < 0 ? 0 : (uint32_t)zp_coord(&q.p->layout.mesh, rank, q.p->layout.mesh.pipe);
  Sums sums = {.a = q.a};
  Report report = {0};
  play(g, recipe, rank, &sums, &report);
  Table plan = of_json(q.p, stage), traced = of_trace(report.trace.s, report.trace.len),
        moved = of_engine(&sums), predicted = of_prediction(&q, rank, stage), timed = {0};
  static const uint16_t of_nodes[] = {ZG_OP_ROUND, ZG_OP_DISPATCH,
                                      ZG_OP_COMBINE}; /* alone: no instructions do them */
  for (int k = 0; k < 3; k++)
    said_of(&timed, zg_op_info[of_nodes[k]].text)->bytes[0] = (uint64_t)report.bytes[of_nodes[k]];
  for (uint32_t i = 0; i < plan.n; i++) {
    const Said *x = &plan.at[i];
    bool parts = !strcmp(x->op, "ring") || !strcmp(x->op, "halo");
    bool rows = !strcmp(x->op, "dispatch") || !strcmp(x->op, "combine");
    expect_within(&traced, x, NUMBERS | BYTES, "its trace");
    expect_within(&predicted, x, BYTES, "its prediction");
    if (rows || !strcmp(x->op, "round")) expect_within(&timed, x, BYTES, "times");
    expect_within(&moved, x, rows ? BYTES | AT_MOST : parts ? BYTES : NUMBERS | BYTES, "the engine");
  }
  cr_expect_eq(predicted.n, plan.n, "%s: kinds of messages", recipe);
  cr_expect_eq(traced.n, plan.n, "%s: kinds of messages", recipe);
  cr_expect_eq(moved.n, plan.n, "%s: kinds of messages", recipe);
  for (const char *w = must; *w; w += strcspn(w, " "), w += strspn(w, " ")) {
    const char *op = zb_printf(q.a, "%.*s", (int)strcspn(w, " "), w);
    cr_expect(said_of(&plan, op)->count[0], "%s: no %s", recipe, op);
  }
  shows_alike(q.p, stage, &report);
  arena_is_as_said(&report.trace, &q.p->programs.stages[stage].ledger);
  zb_text_free(&report.trace);
  plan_close(&q);
}

static const struct {
  const char *model, *options, *recipe;
  int64_t rank;
  const char *must;
} alike[] = {
    {"llama3", "-D layers=2 -D heads=4 -D kv_heads=2 -D width=16 -D inner=24 -D words=12",
     "mesh c = 4 split seq over c attention ring bind batch = 4, seq = 16 micro 2", 1, "ring all_reduce"},
    {"llama3", "-D layers=2 -D heads=4 -D kv_heads=2 -D width=16 -D inner=24 -D words=12",
     "mesh t = 2, d = 2 split kv over t split batch over d bind batch = 8, seq = 16 micro 1\n"
     "shard params, grads, states over d unit layer optimizer adamw(lr = 1)\n"
     "optimizer muon(lr = 1) for wq, wk, wv, wo, gate, up, down",
     3, "all_gather reduce_scatter all_reduce"},
    {"gpt2", "-D layers=3 -D heads=4 -D width=16 -D context=32 -D words=12",
     "mesh pipe = 2, d = 2 split batch over d stages over pipe = [2, 1] bind batch = 8, seq = 16 micro 1\n"
     "shard grads, states over d",
     2, "send all_reduce reduce_scatter"},
    {"mamba2", "-D layers=2 -D heads=4 -D width=16 -D head_dim=8 -D state=4 -D words=12",
     "mesh c = 3 split seq over c bind batch = 4, seq = 24 micro 2", 1, "halo all_reduce"},
    {"llama3", "-D layers=2 -D heads=4 -D kv_heads=2 -D width=16 -D inner=24 -D words=12",
     "mesh d = 1, t = 2 split batch over d split kv over t shard params, grads, states over d\n"
     "bind batch = 4, seq = 16 micro 1",
     1, "all_reduce"},
    {"mixtral", "-D layers=2 -D heads=4 -D kv_heads=2 -D width=16 -D inner=24 -D experts=4 -D words=12",
     "mesh t = 2 split embed over t bind batch = 4, seq = 16, slot = 0.4 micro 2", 1, "all_reduce"},
    {"mixtral", "-D layers=2 -D heads=4 -D kv_heads=2 -D width=16 -D inner=24 -D experts=4 -D words=12",
     "mesh ep = 2, t = 2 split batch, expert over ep split embed over t bind batch = 8, seq = 16, slot = 0.5 "
     "micro 4",
     1, "dispatch combine round all_reduce"}};

Test(explain, traces_and_the_engine_say_the_same) {
  for (size_t i = 0; i < sizeof alike / sizeof *alike; i++) {
    Model m = model_open(alike[i].model, NULL, alike[i].options);
    said_alike(m.g, alike[i].recipe, alike[i].rank, alike[i].must);
    model_close(&m);
  }
}

/* A timeline is drawn of 64 micro-batches, and of no more. */
Test(explain, wide_timelines) {
  Model m = model_open("gpt2", NULL, "-D layers=1 -D heads=2 -D width=8 -D context=8 -D words=12");
  for (int n = 64; n < 66; n++) {
    Plan q = plan_bare(m.g, zb_printf(m.c.a, "bind batch = %d, seq = 8 micro 1", n));
    ZbText t = {0};
    zp_show_schedule(q.p, &t);
    if (n == 64)
      cr_expect(strstr(t.s, " 1 stages, 64 micro-batches: 192 units of time (F 1, B 2)\n    0  F0  B0 "));
    else
      expect_text(
          &t, "the timeline of 65 micro-batches is too wide to draw; `programs` lists every instruction\n",
          "timeline");
    if (n == 64) zb_text_free(&t);
    plan_close(&q);
  }
  model_close(&m);
}
