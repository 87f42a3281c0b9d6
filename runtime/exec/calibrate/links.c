/* Collectives over groups of ranks, by size; and what computation loses while one goes on. */
#include "runtime/exec/calibrate/calibrate.h"
#include "runtime/plan/plan.h"

#include <math.h>

/* Bytes of a message; of a whole tensor: the smallest, and at scale 1 the largest of SIZES more, each four
 * times the one before. */
enum { MESSAGE = 64, SMALL = 1024, LARGE = 16 << 20, SIZES = 4, ROUNDS = 9 };
#define LEAST 1e-8 /* seconds of a latency or a start */
#define MOST 0.05  /* seconds of an exchange: on slow links the largest is smaller than LARGE */

typedef struct {
  const ZxMeasure *m;
  ZxComm *c;      /* of the device's memory */
  ZxGroup group;  /* -1: this rank is in none */
  int size, peer; /* members; of the first two members the other one, if this rank is one of them; else -1 */
  bool first;     /* of these two */
  double steps;   /* of each of two ways of a small all-reduce */
  size_t most;    /* bytes of the largest exchange */
  char *part, *whole;
} Link;

typedef enum { GATHER, SUMS, KINDS } Kind;

static ZxRequest start(const Link *l, Kind kind, size_t bytes) {
  if (kind == SUMS) return l->c->t->all_reduce(l->c, l->group, l->whole, bytes / 4, ZK_F32, ZX_SUM);
  return l->c->t->all_gather(l->c, l->group, l->part, bytes / (size_t)l->c->t->group_size(l->c, l->group),
                             l->whole);
}

/* Makes a queue the current one, and waits until all ranks have come. */
static void meet(const ZxMeasure *m, ZpQueue queue) {
  m->d->stream(m->env, queue);
  m->c->t->barrier(m->c);
}

/* The mean of n, from now on. 0 on ranks of no group. */
static double time_exchange(const Link *l, Kind kind, size_t bytes, int n) {
  meet(l->m, ZP_Q_COLL);
  double from = zb_now();
  for (int i = 0; i < n && l->group >= 0; i++) l->c->t->wait(l->c, start(l, kind, bytes));
  zx_await_device(l->m);
  return l->group >= 0 ? (zb_now() - from) / n : 0;
}

/* One way of a message between the first two of a group. */
static double time_message(const Link *l) {
  double round[ROUNDS];
  for (int r = 0; r < ROUNDS; r++) {
    meet(l->m, ZP_Q_P2P);
    double from = zb_now();
    for (int i = 0; i < 50 && l->peer >= 0; i++)
      for (int way = 0; way < 2; way++) {
        bool sends = (way == 0) == l->first;
        l->c->t->wait(l->c, sends ? l->c->t->send(l->c, l->part, MESSAGE, l->peer, 0)
                                  : l->c->t->recv(l->c, l->whole, MESSAGE, l->peer, 0));
      }
    zx_await_device(l->m);
    round[r] = (zb_now() - from) / 100;
  }
  return zx_measured(l->m, l->peer >= 0 ? zx_median(round, ROUNDS) : 0);
}

/* The largest exchange is one of LARGE that takes no longer than MOST, on all ranks the same. */
static void find_most(Link *l, int scale) {
  size_t large = (size_t)LARGE * (size_t)scale, bytes = large / 16;
  time_exchange(l, GATHER, bytes, 1); /* sets up */
  double t = zx_measured(l->m, time_exchange(l, GATHER, bytes, 1)) / (double)bytes;
  for (bytes = large; bytes > large / 64 && t * (double)bytes > MOST;) bytes /= 4;
  l->most = bytes;
}

typedef struct {
  size_t bytes[SIZES + 1];          /* the smallest first */
  double seconds[KINDS][SIZES + 1]; /* medians, of the slowest rank */
} Exchanges;

/* In turn, as kernels are. */
static void time_exchanges(const Link *l, Exchanges *x) {
  enum { N = KINDS * (SIZES + 1) };
  double round[N][ROUNDS];
  for (int i = 0; i <= SIZES; i++)
    x->bytes[i] = (i ? l->most >> 2 * (SIZES - i) : SMALL) / (size_t)(4 * l->size) * (size_t)(4 * l->size);
  for (int r = -1; r < ROUNDS; r++) /* the first sets up */
    for (int i = 0; i < N; i++) {
      double t = time_exchange(l, (Kind)(i % KINDS), x->bytes[i / KINDS], i / KINDS < 2 ? 20 : 2);
      if (r >= 0) round[i][r] = t;
    }
  for (int i = 0; i < N; i++)
    x->seconds[i % KINDS][i / KINDS] = zx_measured(l->m, zx_median(round[i], ROUNDS));
}

/* Fits t = fixed + x + 2 sqrt(ramp x), x = moved / rate; `passes`: bytes that are moved for one of the tensor.
 * Where other work on the machine makes small exchanges as slow as large ones, the rate is the largest one's. */
static void fit(const Exchanges *e, Kind kind, double passes, double fixed, double *rate, double *ramp) {
  ZxFit f = {.x = 0};
  double a, b;
  for (int i = 1; i <= SIZES; i++) {
    double moved = passes * (double)e->bytes[i];
    double t = e->seconds[kind][i]; /* `fixed` is measured, too: it takes no more than nine tenths */
    zx_fit_row(&f, moved, 2 * sqrt(moved), fmax(t / 10, t - fixed));
  }
  zx_fit(&f, &a, &b);
  if (!(a > 0) || e->seconds[kind][SIZES] < 2 * e->seconds[kind][0])
    a = e->seconds[kind][SIZES] / (passes * (double)e->bytes[SIZES]), b = 0;
  *rate = 1 / a;
  *ramp = fmax(1e-9, b * b * *rate);
}

static ZxLinkRates measure(Link *l, int scale) {
  ZxLinkRates r = {.size = l->size};
  if (l->size < 2) return r;
  Exchanges x;
  double message = time_message(l), ring = l->size - 1, moved = ring / l->size, nothing;
  find_most(l, scale);
  time_exchanges(l, &x);
  /* A small sum takes a start and 2 steps latencies, a message takes a start and a latency. Both are
   * measured, so nothing may be left for a start. */
  double sum = x.seconds[SUMS][0];
  r.latency = fmax(LEAST, (sum - message) / (2 * l->steps - 1));
  r.start = message - r.latency;
  if (r.start < LEAST) r.start = LEAST, r.latency = fmax(LEAST, (sum - LEAST) / (2 * l->steps));
  fit(&x, GATHER, moved, r.start + ring * r.latency, &r.link, &r.ramp);
  fit(&x, SUMS, 2 * moved, r.start + 2 * l->steps * r.latency, &r.sums, &nothing);
  return r;
}

/* ---- computation meanwhile ----------------------------------------------------------------------------- */
/* So many calls, and an all-reduce at the same time: the seconds until they are done. As the engine does,
 * looks between calls whether the exchange has got on. */
static double compute(const Link *l, ZxTrials *t, uint32_t product, int calls, bool exchanges) {
  const ZxMeasure *m = l->m;
  double seconds[ROUNDS];
  for (int r = 0; r < ROUNDS; r++) {
    meet(m, ZP_Q_COLL);
    double from = zb_now();
    bool open = exchanges && l->group >= 0;
    ZxRequest sum = open ? start(l, SUMS, l->most) : -1;
    m->d->stream(m->env, ZP_Q_COMPUTE);
    for (int i = 0; i < calls; i++) {
      zx_trial_run(t, product);
      if (open && l->c->t->test(l->c, sum)) open = false;
    }
    if (open && !m->d->host) l->c->t->wait(l->c, sum), open = false; /* the calls are only queued */
    zx_await_device(m);
    seconds[r] = zb_now() - from;
    if (open) l->c->t->wait(l->c, sum);
  }
  return zx_measured(m, zx_median(seconds, ROUNDS));
}

/* Of the time of an exchange computation loses a part. */
static double measure_steal(const Link *l, ZxTrials *t, uint32_t product) {
  double round[ROUNDS];
  for (int r = 0; r < ROUNDS; r++) round[r] = time_exchange(l, SUMS, l->most, 1);
  double sum = zx_measured(l->m, zx_median(round, ROUNDS));
  int calls = (int)fmin(1e6, 1 + 2 * sum / t->trial[product].seconds); /* twice as long as the exchange */
  double alone = compute(l, t, product, calls, false), both = compute(l, t, product, calls, true);
  double lost = fmin(.95, fmax(.01, (both - alone) / sum));
  return lost / (1 - lost);
}

/* ---- groups -------------------------------------------------------------------------------------------- */
/* Finds the members of this rank's node; `far`: the first ranks of all nodes. */
static void find_members(Link *l, bool far) {
  ZxComm *c = l->m->c;
  int rank = c->t->rank(c), size = c->t->size(c), at = -1, other = -1;
  const int *node = c->t->nodes(c);
  l->size = 0;
  for (int i = 0; i < size; i++) {
    if (node[i] != (far ? i : node[rank])) continue;
    if (i == rank) at = l->size;
    else if (l->size < 2) other = i;
    l->size++;
  }
  l->first = at == 0;
  l->peer = at == 0 || at == 1 ? other : -1;
}

static bool open_comm(ZxTrials *t, Link *l) {
  const ZxMeasure *m = t->m;
  const char *why;
  bool ok = true;
  ZxComm *c = m->d->comm ? m->d->comm(m->c, m->env, &why) : NULL;
  if (!c) ok = m->d->events(m->env, ZX_STAGED_EVENTS, m->err);
  *l = (Link){.m = m, .part = t->area[ZX_BF16_AREA], .whole = t->area[ZX_RESULTS]};
  l->c = c ? c : zx_comm_staged(m->c, m->d, m->env, 0);
  return zx_agree(m->c, ok);
}

static void measure_levels(ZxTrials *t, uint32_t product, Link level[2], ZxLinks *out) {
  const ZxMeasure *m = t->m;
  int rank = m->c->t->rank(m->c), peers[2], n = 0;
  const int *node = m->c->t->nodes(m->c);
  for (int i = 0; i < 2; i++) {
    find_members(&level[i], i > 0);
    if (level[i].peer >= 0) peers[n++] = level[i].peer;
  }
  level[0].size = (int)zx_measured(m, level[0].size);
  level[0].steps = level[0].size - 1; /* a ring; between nodes a tree */
  level[1].steps = log2(level[1].size);
  level[0].group = level[0].c->t->split(level[0].c, node[rank]);
  level[1].group = level[1].c->t->split(level[1].c, node[rank] == rank ? 0 : -1);
  if (level[0].c->t->connect) level[0].c->t->connect(level[0].c, peers, n);
  for (int i = 0; i < 2; i++) out->level[i] = measure(&level[i], t->scale);
  out->steal = measure_steal(&level[level[0].size < 2], t, product);
}

bool zx_measure_links(ZxTrials *t, uint32_t product, ZxLinks *out) {
  const ZxMeasure *m = t->m;
  Link level[2];
  *out = (ZxLinks){.level = {{.size = 1}, {.size = 1}}};
  if (m->c->t->size(m->c) < 2) return true;
  bool ok = open_comm(t, &level[0]);
  level[1] = level[0];
  if (ok) measure_levels(t, product, level, out);
  if (level[0].c != m->c) level[0].c->t->free(level[0].c);
  m->d->stream(m->env, ZP_Q_COMPUTE);
  return ok;
}
