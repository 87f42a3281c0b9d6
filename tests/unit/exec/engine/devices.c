/* What an engine needs of a device before the first step, and what it says when that is not had; what it asks
 * of one in a step. Devices are the CPU's, with some of it replaced. */
#include "tests/unit/exec/engine/job.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

TestSuite(devices, .init = scratch_make, .fini = scratch_remove);

#define BASE "bind batch = 8 micro 4 optimizer sgd(lr = 0.01) "
#define TWO "mesh d = 2 split batch over d micro 2"

static void nothing(Player *p) { (void)p; }
static uint64_t untouched;
static void one_step(Player *p) {
  if (!p->rank) untouched = zx_engine_untouched(p->e);
  p->ok = zx_engine_init(p->e, &p->err);
  job_steps(p, 1, 1);
}

/* ---- what is not had ---- */
static ZxDeviceTable device;
static void *no_arena(const ZkEnv *env, size_t bytes, ZbErr *err) {
  (void)env, (void)bytes;
  zb_fail(err, "buy more", "no room");
  return NULL;
}
static void *no_pinned(const ZkEnv *env, size_t bytes, ZbErr *err) {
  (void)env, (void)bytes;
  zb_fail(err, "", "nothing is pinned");
  return NULL;
}
static bool no_events(ZkEnv *env, uint32_t n, ZbErr *err) {
  return (void)env, (void)n, zb_fail(err, "", "no events");
}
static bool no_end(const ZkEnv *env, ZbErr *err) { return (void)env, zb_fail(err, "", "it has failed"); }
static bool nothing_fits(const ZkEnv *env, const ZkCall *c, ZbErr *err) {
  (void)env;
  return c->op != ZG_OP_DOT || zb_fail(err, "use another", "no such products");
}

static void refused(const Model *m, const char *layout, const char *said) {
  Job j = job_of(m, BASE, layout, &device, (ZpOptions){.checkpoints = true});
  job_try(&j, nothing);
  for (int r = 0; r < j.ranks; r++) {
    cr_expect(!j.player[r].ok && !j.player[r].e);
    cr_expect_str_eq(j.player[r].err.text, said);
  }
  job_close(&j);
}

Test(devices, lacks_something) {
  Model m = job_model(NULL, job_line, NULL);
  static const char *const layouts[] = {"", TWO};
  for (int i = 0; i < 2; i++) {
    device = zx_device_cpu;
    device.pinned = no_pinned;
    refused(&m, layouts[i], "nothing is pinned");
    device = zx_device_cpu;
    device.events = no_events;
    refused(&m, layouts[i], "no events");
    device = zx_device_cpu;
    device.finish = no_end;
    refused(&m, layouts[i], "it has failed");
    device = zx_device_cpu;
    device.prepare = nothing_fits;
    refused(&m, layouts[i], "no such products (test.zug:5)");
  }
  model_close(&m);
}

/* One of two ranks has no room for tables of rows. Neither has an engine. */
static void *none_on_second(const ZkEnv *env, size_t bytes, ZbErr *err) {
  if (env->device) return no_pinned(env, bytes, err);
  return zx_device_cpu.pinned(env, bytes, err);
}
static bool mark_second(ZkEnv *env, int node_rank, ZbErr *err) {
  (void)err;
  env->device = node_rank ? env : NULL;
  return true;
}
Test(devices, lacks_room_for_rows) {
  Model m = job_model("tests/data/models/moe.zug", NULL, "-D layers=1 -D words=16 -D width=8");
  device = zx_device_cpu;
  device.open = mark_second;
  device.pinned = none_on_second;
  Job j = job_named(&m, "experts_2", &device, (ZpOptions){0});
  job_try(&j, nothing);
  for (int r = 0; r < 2; r++) cr_expect(!j.player[r].ok && !j.player[r].e);
  cr_expect_str_eq(j.player[1].err.text, "nothing is pinned");
  job_close(&j);
  model_close(&m);
}

/* A step that the device has not done fails, and may be tried again. */
static int finishes; /* once this many have, one does not */
static bool finish_but_once(const ZkEnv *env, ZbErr *err) {
  (void)env;
  return finishes-- != 0 || zb_fail(err, "", "it has failed");
}
static void fail_in_step(Player *p) {
  finishes = -1;
  p->ok = zx_engine_init(p->e, &p->err);
  finishes = p->job->steps;
  p->ok = p->ok && !zx_engine_step(p->e, 1, &p->step[1], &p->err) && p->err.passing && !p->step[1].unfed;
}
Test(devices, fails_in_a_step) {
  Model m = job_model(NULL, job_line, NULL);
  device = zx_device_cpu;
  device.finish = finish_but_once;
  for (int at = 0; at < 2; at++) { /* at the end of a step; when its sums are read */
    Job j = job_of(&m, BASE, "", &device, (ZpOptions){0});
    finishes = -1;
    j.steps = at;
    job_play(&j, fail_in_step);
    cr_expect_str_eq(j.player[0].err.text, "it has failed");
    job_close(&j);
  }
  model_close(&m);
}

/* What the arena holds, and the remedies for what is most of it: of four the first three that are a
 * twentieth. */
typedef struct {
  uint64_t bytes[ZP_LEDGER_LINES], all;
  const char *text, *help;
} Room;
static void expect_remedies(const Model *m, const Room *room) {
  device = zx_device_cpu;
  device.alloc = no_arena;
  Job j = job_of(m, BASE, "", &device, (ZpOptions){0});
  ZpLedger *l = &j.q.p->programs.stages[0].ledger;
  memcpy(l->bytes, room->bytes, sizeof l->bytes);
  l->total[ZP_DEVICE] = room->all;
  job_try(&j, nothing);
  cr_expect(!j.player[0].e);
  cr_expect_str_eq(j.player[0].err.text, zb_printf(m->c.a, "no room; stage 0 needs %s", room->text));
  cr_expect_str_eq(j.player[0].err.help, room->help, "'%s', not '%s'", j.player[0].err.help, room->help);
  job_close(&j);
}
Test(devices, no_room) {
#define MORE_RANKS "`shard params, grads, states`, or more pipeline ranks"
#define MICRO "a smaller `micro`"
#define AGAIN "`recompute` a block, or a smaller `micro`"
#define PREFETCH "`prefetch 0`, or more tensor ranks"
  static const Room rooms[] = {
      {{[ZP_L_PARAMS] = 100, [ZP_L_MASTER] = 200, [ZP_L_GRADS] = 300, [ZP_L_STATES] = 150, [ZP_L_OTHER] = 7},
       1000,
       "params 100 B, master 200 B, grads 300 B, states 150 B, other 7 B",
       MORE_RANKS " (for 750 B)"},
      {{[ZP_L_PARAMS] = 100,
        [ZP_L_ACTIVATIONS] = 400,
        [ZP_L_SCRATCH] = 150,
        [ZP_L_COMM] = 100,
        [ZP_L_SNAPSHOT] = 900},
       1000,
       "params 100 B, activations 400 B, comm buffers 100 B, scratch 150 B",
       AGAIN " (for 400 B); " MICRO " (for 250 B); " MORE_RANKS " (for 100 B)"},
      {{[ZP_L_PARAMS] = 100,
        [ZP_L_ACTIVATIONS] = 50,
        [ZP_L_GATHERED] = 450,
        [ZP_L_STAGING] = 200,
        [ZP_L_SCRATCH] = 200},
       1000,
       "params 100 B, activations 50 B, gathered 450 B, staging 200 B, scratch 200 B",
       PREFETCH " (for 650 B); " MICRO " (for 200 B); " MORE_RANKS " (for 100 B)"},
      {{[ZP_L_PARAMS] = 51,
        [ZP_L_ACTIVATIONS] = 50,
        [ZP_L_GATHERED] = 30,
        [ZP_L_STAGING] = 19,
        [ZP_L_SCRATCH] = 25,
        [ZP_L_COMM] = 26},
       1020,
       "params 51 B, activations 50 B, gathered 30 B, staging 19 B, comm buffers 26 B, scratch 25 B",
       ""},
      {{[ZP_L_PARAMS] = 52,
        [ZP_L_ACTIVATIONS] = 53,
        [ZP_L_GATHERED] = 30,
        [ZP_L_STAGING] = 21,
        [ZP_L_SCRATCH] = 26,
        [ZP_L_COMM] = 26},
       1000,
       "params 52 B, activations 53 B, gathered 30 B, staging 21 B, comm buffers 26 B, scratch 26 B",
       AGAIN " (for 53 B); " MORE_RANKS " (for 52 B); " MICRO " (for 52 B)"},
      {{0}, 1000, "nothing", ""}};
  Model m = job_model(NULL, job_line, NULL);
  for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) expect_remedies(&m, &rooms[i]);
  model_close(&m);
}
/* Logits of 4 samples and 32 words are 512 bytes: more than a third of what is kept, or just that. */
Test(devices, no_room_for_logits) {
  Model m = job_model(NULL,
                      "model M { axis batch, a = 16, v = 32\n  input x: real[batch, a]\n"
                      "  input t: index(v)[batch]\n  param w[a, v] ~ normal(1)\n"
                      "  loss xent[v](dot[a](x, w), t) per samples() }\n",
                      NULL);
  expect_remedies(&m, &(Room){{[ZP_L_ACTIVATIONS] = 1535},
                              4000,
                              "activations 1.5 kB",
                              "`chunk v = 8`, or a smaller `micro` (for 1.5 kB)"});
  expect_remedies(&m,
                  &(Room){{[ZP_L_ACTIVATIONS] = 1536}, 4000, "activations 1.5 kB", AGAIN " (for 1.5 kB)"});
  model_close(&m);
}

/* ---- what is prepared: each call as it will be made, and what writes gradients also as it adds to them
 * ---- */
typedef struct {
  int op, nin, nout, read, made; /* types of the first operand and result */
  bool adds, aligned;
} Prepared;
static Prepared prepared[400];
static int nprepared; /* of ranks that prepare one after the other, or at once */
static pthread_mutex_t noting = PTHREAD_MUTEX_INITIALIZER;
static bool note(const ZkEnv *env, const ZkCall *c, ZbErr *err) {
  (void)env, (void)err;
  bool aligned = true;
  for (int i = 0; i < c->nin + c->nout; i++) {
    uint64_t at = (uint64_t)(uintptr_t)(i < c->nin ? c->in[i].data : c->out[i - c->nin].data);
    aligned &= at >= 256 && at % 4 == 0;
  }
  pthread_mutex_lock(&noting);
  ZB_ASSERT(nprepared < 400);
  prepared[nprepared++] =
      (Prepared){c->op, c->nin, c->nout, c->in[0].elem, c->out[0].elem, c->accumulate, aligned};
  pthread_mutex_unlock(&noting);
  return true;
}
static int count(int op, bool adds) {
  int n = 0;
  for (int i = 0; i < nprepared; i++)
    n += prepared[i].op == op && prepared[i].adds == adds && prepared[i].aligned;
  return n;
}
/* Of one tensor, whose type they keep. */
static void expect_copies_of_one(void) {
  for (int i = 0; i < nprepared; i++)
    if (prepared[i].op == ZG_OP_COPY)
      cr_expect(prepared[i].nin == 1 && prepared[i].nout == 1 && prepared[i].read == prepared[i].made);
}

Test(devices, prepares) {
  Model m = job_model(NULL, job_line, NULL);
  device = zx_device_cpu;
  device.prepare = note;
  Job j = job_of(&m, BASE, "", &device, (ZpOptions){0});
  job_play(&j, one_step);
  cr_expect(count(ZG_OP_DOT, false) == 3 && count(ZG_OP_DOT, true) == 1, "%d, %d", count(ZG_OP_DOT, false),
            count(ZG_OP_DOT, true));
  cr_expect_eq(count(ZG_OP_LOSS_NUM, false) + count(ZG_OP_LOSS_DEN, false), 0);
  cr_expect_eq(untouched, j.player[0].planned + ZK_CPU_ROOM);
  job_close(&j);
  j = job_of(&m, BASE, "", &device, (ZpOptions){.checkpoints = true});
  uint64_t on_host = j.q.p->programs.stages[0].ledger.total[ZP_HOST];
  job_play(&j, one_step);
  cr_expect(on_host > 0 && untouched == j.player[0].planned + on_host + ZK_CPU_ROOM);
  job_close(&j);
  /* What is packed and unpacked is copied: of one tensor, which may be any. */
  nprepared = 0;
  j = job_of(&m, BASE, "mesh t = 2 split a over t", &device, (ZpOptions){0});
  job_play(&j, one_step);
  cr_expect_eq(count(ZG_OP_ALL_REDUCE, false), 0);
  cr_expect_eq(count(ZG_OP_COPY, false), 2); /* y, on both ranks */
  job_close(&j);
  model_close(&m);
  /* A ring's steps write and add, and what they made in f32 is stored. */
  m = job_model("examples/gpt2.zug", NULL, "-D layers=1 -D heads=2 -D width=8 -D context=8 -D words=12");
  for (int half = 0; half < 2; half++) {
    nprepared = 0;
    j = job_of(
        &m,
        "bind batch = 2, seq = 8 micro 2 optimizer sgd(lr = 1) mesh c = 2 split seq over c attention ring",
        half ? "precision compute bf16" : "", &device, (ZpOptions){0});
    j.ranks = 1; /* of the world: its calls are prepared, and then it cannot go on */
    World *w = world_new(1);
    ZkEnv env = {.pool = zk_pool_new(1)};
    ZbErr err = {0};
    ZxEngineOptions o = {.device = &device, .env = &env};
    ZxEngine *e = zx_engine_of(j.q.a, j.p, world_rank(w, 0), &o);
    cr_assert(zx_prepare_calls(e, &err), "%s", err.text);
    cr_expect(count(ZG_OP_ATTEND, false) == 1 && count(ZG_OP_ATTEND, true) == 1);
    cr_expect(count(ZG_OP_ATTEND_GRAD, false) == 1 && count(ZG_OP_ATTEND_GRAD, true) == 1);
    expect_copies_of_one();
    for (int i = 0; i < nprepared; i++)
      if (prepared[i].op == ZG_OP_ATTEND || prepared[i].op == ZG_OP_ATTEND_GRAD)
        cr_expect_eq(prepared[i].made, ZK_F32);
    zk_pool_free(env.pool);
    world_free(w);
    job_close(&j);
  }
  model_close(&m);
}

/* ---- what is run ---- */
/* Operands that the CPU does not count; other devices may, and may prepare for so many. */
static _Atomic int copies, copies_of_one;
static void run_and_count(const ZkEnv *env, const ZkCall *c) {
  copies += c->op == ZG_OP_COPY;
  copies_of_one += c->op == ZG_OP_COPY && c->nin == 1 && c->nout == 1;
  zx_device_cpu.run(env, c);
}

static void expect_one_tensor(Job j) {
  copies = copies_of_one = nprepared = 0;
  job_play(&j, one_step);
  cr_expect(copies > 0 && copies == copies_of_one, "%d, %d", copies, copies_of_one);
  cr_expect(count(ZG_OP_COPY, false) > 0);
  expect_copies_of_one();
  job_close(&j);
}
Test(devices, packs_one_tensor) {
  device = zx_device_cpu;
  device.run = run_and_count;
  device.prepare = note;
  Model m =
      job_model("examples/gpt2.zug", NULL, "-D layers=1 -D heads=2 -D width=8 -D context=8 -D words=12");
  expect_one_tensor(job_of(&m,
                           "bind batch = 2, seq = 8 micro 2 optimizer sgd(lr = 1) mesh t = 2 split head, "
                           "ffn, vocab over t else seq",
                           "", &device, (ZpOptions){0}));
  model_close(&m);
  /* What sends rows to their experts has other operands beside them. */
  m = job_model("tests/data/models/moe.zug", NULL, "-D layers=1 -D words=16 -D width=8");
  expect_one_tensor(job_named(&m, "experts_2", &device, (ZpOptions){0}));
  model_close(&m);
}

/* ---- gradients: what is written first is not cleared ---- */
static const char *grads;
static uint64_t grad_bytes, cleared;
static void count_cleared(const ZkEnv *env, void *p, size_t bytes) {
  const char *at = p;
  if (grads && at >= grads && at < grads + grad_bytes) cleared += bytes;
  zx_device_cpu.zero(env, p, bytes);
}
static void step_and_count(Player *p) {
  const ZxEngine *e = p->e;
  p->ok = zx_engine_init(p->e, &p->err);
  cr_expect_eq(e->st->nheld, 1);
  grads = zx_stored(e, ZP_B_GRAD, &e->st->held[0]);
  grad_bytes = zp_grad_bytes(e->p, e->st->held[0].bucket);
  job_steps(p, 1, 1);
}
static void expect_cleared(const char *model, uint64_t bytes) {
  Model m = job_model(NULL, model, NULL);
  device = zx_device_cpu;
  device.zero = count_cleared;
  grads = NULL, cleared = 0;
  Job j = job_of(&m, BASE, "", &device, (ZpOptions){0});
  job_play(&j, step_and_count);
  cr_expect_eq(cleared, bytes, "%d bytes, not %d", (int)cleared, (int)bytes);
  job_close(&j);
  model_close(&m);
}
#define TABLE(e)                                                                                             \
  "model M { axis batch, a = 16, v = 32\n  input t: index(v)[batch]\n  param e[v, a], w[a] ~ normal(1)\n"    \
  "  loss dot[a](" e ", w) per samples() }\n"
Test(devices, clears_what_is_added_to) {
  expect_cleared(job_line, 0);
  expect_cleared(TABLE("lookup(e, t)"), 4 * 32 * 16); /* rows, and not w */
}

/* ---- choices by time: those of the lowest rank that has some are taken by all, until nobody has any ---- */
static struct {
  uint32_t left; /* choices of this rank, of 3 bytes each, told one list after the other */
  char taken[64];
} choosing[2];
static int chooser; /* the rank that has some */
static bool open_rank(ZkEnv *env, int node_rank, ZbErr *err) {
  env->device = &choosing[node_rank];
  choosing[node_rank].left = node_rank == chooser ? 2 : 0;
  *choosing[node_rank].taken = 0;
  (void)err;
  return true;
}
static uint32_t choices(const ZkEnv *env, void *out, uint32_t most, size_t *bytes) {
  uint32_t left = env->device == &choosing[chooser] ? choosing[chooser].left : 0;
  *bytes = 3;
  if (out) cr_assert_eq(most, left);
  for (uint32_t i = 0; out && i < left; i++) memcpy((char *)out + 3 * i, i ? "ij," : "xy,", 3);
  return left;
}
static void choose(const ZkEnv *env, const void *list, uint32_t n) {
  int rank = env->device == &choosing[1];
  snprintf(choosing[rank].taken, sizeof choosing[rank].taken, "%.*s", (int)(3 * n), (const char *)list);
  choosing[rank].left = 0;
}

Test(devices, agree_on_choices) {
  Model m = job_model(NULL, job_line, NULL);
  device = zx_device_cpu;
  device.open = open_rank;
  device.choices = choices;
  device.choose = choose;
  device.prepare = job_prepares;
  for (chooser = 0; chooser < 2; chooser++) {
    Job j = job_of(&m, BASE, TWO, &device, (ZpOptions){0});
    job_play(&j, nothing);
    for (int r = 0; r < 2; r++) cr_expect_str_eq(choosing[r].taken, "xy,ij,");
    job_close(&j);
  }
  model_close(&m);
}

/* Calls along a zigzag axis are prepared as they are made, one for each piece. */
static const ZkCall *asked[16];
static int nasked;
static bool note_random(const ZkEnv *env, const ZkCall *c, ZbErr *err) {
  (void)env, (void)err;
  static ZkCall kept[16];
  if (c->op != ZG_OP_RANDOM) return true;
  ZB_ASSERT(nasked < 16);
  kept[nasked] = *c;
  asked[nasked] = &kept[nasked], nasked++;
  return true;
}
Test(devices, prepares_pieces) {
  Model m = job_model(NULL, job_drops, NULL);
  device = zx_device_cpu;
  device.prepare = note_random;
  Job j = job_of(&m, "bind batch = 2, seq = 8 micro 2 optimizer sgd(lr = 1)",
                 "mesh c = 2 split seq over c zigzag", &device, (ZpOptions){0});
  World *w = world_new(1);
  ZkEnv env = {.pool = zk_pool_new(1)};
  ZbErr err = {0};
  ZxEngineOptions o = {.device = &device, .env = &env};
  ZxEngine *e = zx_engine_of(j.q.a, j.p, world_rank(w, 0), &o);
  cr_assert(zx_prepare_calls(e, &err), "%s", err.text);
  cr_assert(nasked > 0 && nasked % 2 == 0, "%d", nasked);
  for (int i = 0; i < nasked; i++) {
    const ZkView *v = &asked[i]->out[0];
    int seq = v->rank == 3 ? 1 : -1;
    cr_expect(seq == 1 && v->size[seq] == 2 && v->start[seq] == (i % 2 ? 6 : 0), "%d: %d elements from %d", i,
              (int)v->size[1], (int)v->start[1]);
  }
  zk_pool_free(env.pool);
  world_free(w);
  job_close(&j);
  model_close(&m);
}

/* ---- events: no two are one ---- */
static void look_at_events(Player *p) {
  const ZxEngine *e = p->e;
  uint32_t at[] = {e->st->prog.ninstrs, e->pinned_event, e->call_event,  e->rows_event,
                   e->ring_event,       e->node_event,   e->staged_event};
  static const uint32_t n[] = {0, 1, 1, 3, 2, 2 + ZP_MOST_ASYNC, ZX_STAGED_EVENTS};
  for (int i = 1; i < 7; i++) cr_expect_geq(at[i], at[i - 1] + n[i - 1], "%d", i);
}
Test(devices, events) {
  Model m = job_model(NULL, job_line, NULL);
  Job j = job_of(&m, BASE, TWO, &zx_device_cpu, (ZpOptions){0});
  job_play(&j, look_at_events);
  job_close(&j);
  model_close(&m);
}
