/* Collectives over groups of ranks, by size; and what computation loses beside one. */
#include "runtime/exec/calibrate/calibrate.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

/* Bytes of a message; of a whole tensor: the smallest, and the largest of SIZES more, each four times the one
 * before. */
enum { MESSAGE = 64, SMALL = 1024, LARGE = 16 << 20, SIZES = 4, ROUNDS = 9 };
#define LEAST 1e-8 /* seconds of a latency or a start */
#define MOST 0.05  /* seconds of an exchange: on slow links the largest is smaller than LARGE */

typedef struct {
  const ZxMeasure *m;
  ZxGroup group; /* -1: this rank is in none */
  bool far;      /* between nodes */
  double steps;  /* of each of two ways of a small all-reduce */
  size_t drain;  /* of a gather after which a token bucket is empty; 0: there is none */
  char *part, *whole;
} Link;

typedef enum { GATHER, SUMS, KINDS } Kind;

static void exchange(const Link *l, Kind kind, size_t bytes) {
  ZxComm *c = l->m->c;
  if (kind == GATHER) {
    size_t part = bytes / (size_t)c->t->group_size(c, l->group);
    c->t->wait(c, c->t->all_gather(c, l->group, l->part, part, l->whole));
  } else c->t->wait(c, c->t->all_reduce(c, l->group, l->whole, bytes / 4, ZX_F32, ZX_SUM));
}

/* Empties a token bucket, if the link has one. */
static void drain(const Link *l) {
  if (l->drain && l->group >= 0) exchange(l, GATHER, l->drain);
}
/* Lets it fill. */
static void pause_links(const Link *l) {
  struct timespec t = {.tv_nsec = (long)(1e9 * MOST)};
  l->m->c->t->barrier(l->m->c);
  nanosleep(&t, NULL);
}

/* The mean of n, from now on. 0 on ranks of no group. */
static double time_at_once(const Link *l, Kind kind, size_t bytes, int n) {
  double from = zb_now();
  for (int i = 0; i < n && l->group >= 0; i++) exchange(l, kind, bytes);
  return l->group >= 0 ? (zb_now() - from) / n : 0;
}
/* The same, when all ranks have come. */
static double time_exchange(const Link *l, Kind kind, size_t bytes, int n) {
  l->m->c->t->barrier(l->m->c);
  return time_at_once(l, kind, bytes, n);
}

/* One way of a message between the first two of a group; peer < 0: this rank is neither. */
static double time_message(const Link *l, int peer, bool first) {
  ZxComm *c = l->m->c;
  double round[ROUNDS];
  for (int r = 0; r < ROUNDS; r++) {
    c->t->barrier(c);
    double from = zb_now();
    for (int i = 0; i < 50 && peer >= 0; i++)
      for (int way = 0; way < 2; way++) {
        bool sends = (way == 0) == first;
        c->t->wait(c, sends ? c->t->send(c, l->part, MESSAGE, peer, 0)
                            : c->t->recv(c, l->whole, MESSAGE, peer, 0));
      }
    round[r] = (zb_now() - from) / 100;
  }
  return zx_measured(l->m, peer >= 0 ? zx_median(round, ROUNDS) : 0);
}

/* Bytes that take no longer than MOST, on all ranks the same. */
static size_t large(const Link *l) {
  size_t bytes = LARGE / 16;
  time_exchange(l, GATHER, bytes, 1); /* sets up */
  double t = zx_measured(l->m, time_exchange(l, GATHER, bytes, 1));
  for (bytes = LARGE; bytes > LARGE / 64 && t * (double)bytes * 16 / LARGE > MOST;) bytes /= 4;
  return bytes;
}

/* A token bucket limits the links of containers and of rented machines (tc-tbf(8)). */
typedef struct {
  double sooner; /* seconds by which an exchange after a pause takes less than the next one */
  double next;   /* seconds that this one takes */
} Burst;
/* An exchange after a pause finds the bucket full; the next one finds it empty. What disturbs the first
 * makes it later, so its time is that of the sooner ones. `sooner` is 0 if it is little, or if the slower
 * first ones and the faster next ones are not apart: other work then decides what an exchange takes. */
static Burst time_burst(const Link *l, size_t bytes) {
  enum { SLOW = 2 * ROUNDS / 3, FAST = ROUNDS - 1 - SLOW };
  double first[ROUNDS], next[ROUNDS];
  for (int r = 0; r < ROUNDS; r++) {
    pause_links(l);
    double one = time_exchange(l, GATHER, bytes, 1), other = time_at_once(l, GATHER, bytes, 1);
    first[r] = zx_measured(l->m, one);
    next[r] = zx_measured(l->m, other);
  }
  double after = zx_median(next, ROUNDS);
  zx_median(first, ROUNDS); /* both are sorted from now on */
  double sooner = after - first[FAST];
  bool apart = first[SLOW] < next[FAST];
  return (Burst){apart && sooner > .03 * after ? sooner : 0, after};
}

/* A small bucket shows more in a quarter of the largest exchange. A bucket that is not empty after two
 * quarters does not show in them. */
static double sooner_by_burst(const Link *l, size_t most) {
  Burst quarter = time_burst(l, most / 4), all = time_burst(l, most);
  return quarter.next > all.next / 8 ? fmax(quarter.sooner, all.sooner) : all.sooner;
}

typedef struct {
  size_t bytes[SIZES + 1];          /* the smallest first */
  double seconds[KINDS][SIZES + 1]; /* medians, of the slowest rank */
} Exchanges;

/* How often size k is exchanged in a round. Small ones are more often where a bucket was emptied before: it
 * fills a little while ranks meet at the barrier. */
static int repeats(const Link *l, int k) {
  if (k < 2) return 20;
  return l->drain ? 2 << (SIZES - k) : 2;
}

/* In turn, as kernels are. */
static void time_exchanges(const Link *l, int size, size_t most, Exchanges *x) {
  enum { N = KINDS * (SIZES + 1) };
  double round[N][ROUNDS];
  for (int i = 0; i <= SIZES; i++)
    x->bytes[i] = (i ? most >> 2 * (SIZES - i) : SMALL) / (size_t)(4 * size) * (size_t)(4 * size);
  for (int r = -1; r < ROUNDS; r++) /* the first sets up */
    for (int i = 0; i < N; i++) {
      if (l->drain) (i < KINDS ? pause_links : drain)(l);
      double t = time_exchange(l, (Kind)(i % KINDS), x->bytes[i / KINDS], repeats(l, i / KINDS));
      if (r >= 0) round[i][r] = t;
    }
  for (int i = 0; i < N; i++)
    x->seconds[i % KINDS][i / KINDS] = zx_measured(l->m, zx_median(round[i], ROUNDS));
}

/* Of t = fixed + x + 2 sqrt(ramp x), x = moved / rate; `passes`: bytes that are moved for one of the
 * tensor. False where larger exchanges take no longer, since other work on the machine delays all of them
 * by more: the rate is the largest one's then. */
static bool fit(const Exchanges *e, Kind kind, double passes, double fixed, double *rate, double *ramp) {
  ZxFit f = {.x = 0};
  double a, b;
  for (int i = 1; i <= SIZES; i++) {
    double moved = passes * (double)e->bytes[i];
    double t = e->seconds[kind][i]; /* `fixed` is measured, too: it takes no more than nine tenths */
    zx_fit_row(&f, moved, 2 * sqrt(moved), fmax(t / 10, t - fixed));
  }
  zx_fit(&f, &a, &b);
  bool by_size = a > 0 && e->seconds[kind][SIZES] > 2 * e->seconds[kind][0];
  if (!by_size) a = e->seconds[kind][SIZES] / (passes * (double)e->bytes[SIZES]), b = 0;
  *rate = 1 / a;
  *ramp = fmax(1e-9, b * b * *rate);
  return by_size;
}

/* So many calls, and an exchange beside them: until the calls were done, and until the exchange was. As the
 * engine does, between calls it looks whether that has got on. */
typedef struct {
  double computed, sent;
} Both;
static Both beside(const Link *l, ZxTrials *t, uint32_t product, int calls, size_t bytes) {
  ZxComm *c = l->m->c;
  double computed[ROUNDS], sent[ROUNDS];
  for (int k = 0; k < ROUNDS; k++) {
    drain(l);
    c->t->barrier(c);
    double from = zb_now();
    bool open = bytes && l->group >= 0;
    ZxRequest r = open ? c->t->all_reduce(c, l->group, l->whole, bytes / 4, ZX_F32, ZX_SUM) : -1;
    sent[k] = 0;
    for (int i = 0; i < calls; i++) {
      zx_trial_run(t, product);
      if (open && c->t->test(c, r)) open = false, sent[k] = zb_now() - from;
    }
    computed[k] = zb_now() - from;
    if (open) c->t->wait(c, r), sent[k] = zb_now() - from;
  }
  return (Both){zx_measured(l->m, zx_median(computed, ROUNDS)), zx_measured(l->m, zx_median(sent, ROUNDS))};
}

/* How much longer computation takes beside a collective, and how fast that is meanwhile: of the time when
 * both went on computation lost a part, and what was left of the collective went on alone. */
static void share(const Link *l, ZxTrials *t, uint32_t product, size_t bytes, ZxLinkRates *r) {
  double sent = beside(l, t, product, 0, bytes).sent, one = beside(l, t, product, 4, 0).computed / 4;
  int calls = (int)fmin(1e6, 1 + 2 * sent / one); /* twice as long as the collective */
  double alone = beside(l, t, product, calls, 0).computed;
  Both x = beside(l, t, product, calls, bytes);
  double together = fmin(x.computed, x.sent), after = x.sent - together;
  double lost = fmin(.95, fmax(.01, (x.computed - alone) / together));
  r->steal = lost / (1 - lost);
  r->beside = fmin(1, fmax(.05, (sent - after) / together));
}

static ZxLinkRates measure(Link *l, ZxTrials *t, uint32_t product, int size, int peer, bool first) {
  ZxLinkRates r = {.size = size};
  if (size < 2) return r;
  Exchanges x;
  double message = time_message(l, peer, first), ring = size - 1, moved = ring / size, nothing;
  size_t most = large(l);
  double sooner = l->far ? sooner_by_burst(l, most) : 0;
  if (sooner > 0) l->drain = most;
  time_exchanges(l, size, most, &x);
  /* A small sum takes a start and 2 steps latencies, a message takes a start and a latency. Both are
   * measured, so nothing may be left for a start. */
  double sum = x.seconds[SUMS][0];
  r.latency = fmax(LEAST, (sum - message) / (2 * l->steps - 1));
  r.start = message - r.latency;
  if (r.start < LEAST) r.start = LEAST, r.latency = fmax(LEAST, (sum - LEAST) / (2 * l->steps));
  /* While nothing moves a bucket fills: of exchanges one behind another that is what they are sooner by. */
  double gather = r.start + ring * r.latency, sums = r.start + 2 * l->steps * r.latency;
  bool by_size = fit(&x, GATHER, moved, l->drain ? 0 : gather, &r.link, &r.ramp);
  r.hidden = !fit(&x, SUMS, 2 * moved, l->drain ? 0 : sums, &r.sums, &nothing) || !by_size;
  r.burst = l->drain && !r.hidden ? (sooner + gather) * r.link : 0;
  share(l, t, product, most, &r);
  l->drain = 0;
  return r;
}

/* How many ranks this one's node has; with `far`, how many nodes there are, each by its first rank. peer: of
 * the first two of them the other one, if this is one of them; else -1. */
static int count(const ZxMeasure *m, bool far, int *peer, bool *first) {
  ZxComm *c = m->c;
  int rank = c->t->rank(c), size = c->t->size(c), n = 0, at = -1, other = -1;
  const int *node = c->t->nodes(c);
  for (int i = 0; i < size; i++) {
    if (node[i] != (far ? i : node[rank])) continue;
    if (i == rank) at = n;
    else if (n < 2) other = i;
    n++;
  }
  *first = at == 0;
  *peer = at == 0 || at == 1 ? other : -1;
  return n;
}

void zx_measure_links(ZxTrials *t, uint32_t product, ZxLinkRates level[2]) {
  const ZxMeasure *m = t->m;
  ZxComm *c = m->c;
  int rank = c->t->rank(c), peer;
  const int *node = c->t->nodes(c);
  bool first;
  Link l = {.m = m, .part = calloc(1, LARGE), .whole = calloc(1, LARGE)};
  if (!l.part || !l.whole) zb_out_of_memory(LARGE);
  int size = (int)zx_measured(m, count(m, false, &peer, &first));
  l.group = c->t->split(c, node[rank]);
  l.steps = size - 1; /* a ring; between nodes a tree */
  level[0] = measure(&l, t, product, size, peer, first);
  size = count(m, true, &peer, &first);
  l.group = c->t->split(c, node[rank] == rank ? 0 : -1);
  l.far = true;
  l.steps = log2(size);
  level[1] = measure(&l, t, product, size, peer, first);
  free(l.part);
  free(l.whole);
}
