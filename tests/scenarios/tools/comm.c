/* The communicator's contract, on however many ranks this is started with: every operation against what it
 * must give, on the world and on two kinds of subgroups, for sizes from nothing to several rounds; many
 * operations open at once; the same bits on all members; and a wait that leaves the core alone.
 *
 *     mpirun -np 4 tests/scenarios/tools/comm
 */
#include "kernels/kernels.h"
#include "runtime/exec/comm/comm.h"

#include <math.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static ZxComm *c;
static const ZxCommTable *t;
static int rank, size, failures;

#define EXPECT(cond, ...)                                                                                    \
  do {                                                                                                       \
    if (!(cond) && failures++ < 10) zx_say(rank, "line " STR(__LINE__) ": " __VA_ARGS__);                    \
  } while (0)
#define STR(x) STR2(x)
#define STR2(x) #x

typedef struct {
  const char *name;
  ZxGroup g;
  int rank, size;
  int *member; /* world ranks */
} Team;

/* A value of element i of the vector of world rank r: small integers, so that sums are exact. */
static double value(int r, size_t i) { return (double)((i * 7 + (size_t)r * 13) % 101) - 50; }
static unsigned char byte(int r, size_t i) { return (unsigned char)(i * 31 + (size_t)r * 17 + 3); }

static void *fresh(size_t bytes) {
  void *p = malloc(bytes + 1);
  if (!p) ZB_BUG("out of memory");
  return p;
}

static double want(const Team *m, size_t i, ZxReduce op) {
  double s = value(m->member[0], i);
  for (int k = 1; k < m->size; k++)
    s = op == ZX_SUM ? s + value(m->member[k], i) : fmax(s, value(m->member[k], i));
  return s;
}

static void put(void *p, ZkElem e, size_t i, double x) {
  if (e == ZK_F32) ((float *)p)[i] = (float)x;
  else if (e == ZK_BF16) ((uint16_t *)p)[i] = zb_f32_to_bf16((float)x);
  else ((double *)p)[i] = x;
}
static double get(const void *p, ZkElem e, size_t i) {
  if (e == ZK_BF16) return (double)zb_bf16_to_f32(((const uint16_t *)p)[i]);
  return e == ZK_F32 ? (double)((const float *)p)[i] : ((const double *)p)[i];
}
/* What that type makes of a whole number: in bf16 those beyond 256 are rounded. */
static double as(ZkElem e, double x) {
  return e == ZK_BF16 ? (double)zb_bf16_to_f32(zb_f32_to_bf16((float)x)) : x;
}

static void all_reduce(const Team *m, size_t n, ZkElem e, ZxReduce op) {
  void *p = fresh(n * 8);
  for (size_t i = 0; i < n; i++) put(p, e, i, value(rank, i));
  t->wait(c, t->all_reduce(c, m->g, p, n, e, op));
  for (size_t i = 0; i < n; i++)
    if (get(p, e, i) != as(e, want(m, i, op))) {
      EXPECT(false, "%s: all-reduce of %zu: element %zu is %g, not %g", m->name, n, i, get(p, e, i),
             as(e, want(m, i, op)));
      break;
    }
  free(p);
}

static void reduce_scatter(const Team *m, size_t n, ZkElem e, ZxReduce op, bool in_place) {
  size_t bytes = zk_bytes(e, n);
  char *in = fresh(bytes * (size_t)m->size), *own = fresh(bytes);
  char *out = in_place ? in + bytes * (size_t)m->rank : own;
  for (size_t i = 0; i < n * (size_t)m->size; i++) put(in, e, i, value(rank, i));
  t->wait(c, t->reduce_scatter(c, m->g, in, n, e, op, out));
  for (size_t i = 0; i < n; i++)
    if (get(out, e, i) != as(e, want(m, (size_t)m->rank * n + i, op))) {
      EXPECT(false, "%s: reduce-scatter of %zu: element %zu is %g, not %g", m->name, n, i, get(out, e, i),
             as(e, want(m, (size_t)m->rank * n + i, op)));
      break;
    }
  for (size_t i = 0; i < n * (size_t)m->size; i++)
    if (get(in, e, i) != value(rank, i) && !(in_place && i / n == (size_t)m->rank)) {
      EXPECT(false, "%s: reduce-scatter of %zu writes element %zu of what it reads", m->name, n, i);
      break;
    }
  free(in);
  free(own);
}

static void all_gather(const Team *m, size_t n, bool in_place) {
  unsigned char *own = fresh(n), *out = fresh(n * (size_t)m->size);
  unsigned char *part = in_place ? out + n * (size_t)m->rank : own;
  for (size_t i = 0; i < n; i++) part[i] = byte(rank, i);
  t->wait(c, t->all_gather(c, m->g, part, n, out));
  for (size_t i = 0; i < n * (size_t)m->size; i++)
    if (out[i] != byte(m->member[i / n], i % n)) {
      EXPECT(false, "%s: all-gather of %zu: byte %zu", m->name, n, i);
      break;
    }
  free(own);
  free(out);
}

static void all_to_all(const Team *m, size_t n) {
  unsigned char *in = fresh(n * (size_t)m->size), *out = fresh(n * (size_t)m->size);
  for (size_t i = 0; i < n * (size_t)m->size; i++) in[i] = byte(rank, i);
  t->wait(c, t->all_to_all(c, m->g, in, n, out));
  for (size_t i = 0; i < n * (size_t)m->size; i++)
    if (out[i] != byte(m->member[i / n], (size_t)m->rank * n + i % n)) {
      EXPECT(false, "%s: all-to-all of %zu: byte %zu", m->name, n, i);
      break;
    }
  free(in);
  free(out);
}

static void broadcast(const Team *m, size_t n) {
  unsigned char *p = fresh(n);
  for (int root = 0; root < m->size; root++) {
    for (size_t i = 0; i < n; i++) p[i] = m->rank == root ? byte(root, i) : 0;
    t->wait(c, t->broadcast(c, m->g, p, n, root));
    for (size_t i = 0; i < n; i++)
      if (p[i] != byte(root, i)) {
        EXPECT(false, "%s: broadcast of %zu from %d: byte %zu", m->name, n, root, i);
        break;
      }
  }
  free(p);
}

/* Everybody sends to everybody, itself included, two messages under different tags, received in the other
 * order. */
static void transfers(size_t n) {
  int k = 2 * size;
  unsigned char *in = fresh(n * (size_t)k), *out = fresh(n * (size_t)k);
  ZxRequest *r = fresh(sizeof *r * 2 * (size_t)k);
  int nr = 0;
  for (size_t i = 0; i < n * (size_t)k; i++) out[i] = byte(rank, i);
  for (int tag = 1; tag >= 0; tag--)
    for (int peer = 0; peer < size; peer++) {
      size_t at = (size_t)(peer * 2 + tag) * n;
      r[nr++] = t->recv(c, in + at, n, peer, tag);
    }
  for (int tag = 0; tag < 2; tag++)
    for (int peer = 0; peer < size; peer++)
      r[nr++] = t->send(c, out + (size_t)(peer * 2 + tag) * n, n, peer, tag);
  while (nr) t->wait(c, r[--nr]);
  for (size_t i = 0; i < n * (size_t)k; i++) {
    size_t peer = i / (2 * n), tag = i / n % 2;
    if (in[i] != byte((int)peer, ((size_t)rank * 2 + tag) * n + i % n)) {
      EXPECT(false, "transfer of %zu from %zu: byte %zu", n, peer, i);
      break;
    }
  }
  free(in);
  free(out);
  free(r);
}

static double spread(int r, size_t i) {
  return zb_random_normal(1, (uint64_t)r, i) * exp(3 * zb_random_normal(2, (uint64_t)r, i));
}

/* The order of additions shows in the last bits: all members must have got the same, and the reduce-scatter
 * the same as the all-reduce. bf16 must be rounded once: the bits of a sum in f32 of all parts in the order
 * of ranks. */
static void same_bits(const Team *m, size_t n, ZkElem e) {
  size_t all = n * (size_t)m->size, size = zk_plain_bytes(e), own = n * (size_t)m->rank;
  char *a = fresh(all * size), *b = fresh(all * size), *other = fresh(all * size);
  for (size_t i = 0; i < all; i++) put(a, e, i, spread(rank, i));
  memcpy(b, a, all * size);
  char *mine = b + own * size;
  ZxRequest r1 = t->all_reduce(c, m->g, a, all, e, ZX_SUM);
  ZxRequest r2 = t->reduce_scatter(c, m->g, b, n, e, ZX_SUM, mine);
  t->wait(c, r2);
  t->wait(c, r1);
  EXPECT(!memcmp(mine, a + own * size, n * size), "%s: reduce-scatter of %zu has other bits", m->name, n);
  memcpy(other, a, all * size);
  t->wait(c, t->broadcast(c, m->g, other, all * size, 0));
  EXPECT(!memcmp(other, a, all * size), "%s: all-reduce of %zu has other bits than on its rank 0", m->name,
         all);
  for (size_t i = 0; e == ZK_BF16 && i < all && i < 5000; i++) {
    float sum = 0;
    for (int k = 0; k < m->size; k++) sum += zb_bf16_to_f32(zb_f32_to_bf16((float)spread(m->member[k], i)));
    EXPECT(((uint16_t *)(void *)a)[i] == zb_f32_to_bf16(sum), "%s: element %zu of bf16 is not rounded once",
           m->name, i);
  }
  free(a);
  free(b);
  free(other);
}

/* Sums through shared memory have the bits of those by messages. Leaves the communicator as it was. */
static void agreement(const Team *team, int nteam) {
  static const size_t sizes[] = {1, 5, 1023, 4100, 20011, 200003};
  static const ZkElem elems[] = {ZK_F32, ZK_BF16};
  for (size_t k = 0; k < 2 * (sizeof sizes / sizeof *sizes); k++)
    for (int i = 0; i < nteam; i++) {
      ZkElem e = elems[k % 2];
      size_t n = sizes[k / 2], bytes = zk_bytes(e, n);
      void *a[2];
      for (int apart = 0; apart < 2; apart++) {
        a[apart] = fresh(bytes);
        for (size_t j = 0; j < n; j++) put(a[apart], e, j, zb_random_normal(3, (uint64_t)rank, j));
        zx_comm_mpi_apart(c, apart);
        t->wait(c, t->all_reduce(c, team[i].g, a[apart], n, e, ZX_SUM));
      }
      EXPECT(!memcmp(a[0], a[1], bytes), "%s: all-reduce of %zu has other bits by messages", team[i].name, n);
      free(a[0]);
      free(a[1]);
    }
  zx_comm_mpi_apart(c, false);
}

static const ZkElem summed[] = {ZK_F32, ZK_F64, ZK_BF16}; /* what is reduced */
enum { SUMMED = sizeof summed / sizeof *summed };

/* ---- what goes over the wire ---- */
static size_t wire; /* bytes of this rank's messages that reductions sent */
int MPI_Isend(const void *p, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *r) {
  if (type == MPI_BYTE) wire += (size_t)n;
  return PMPI_Isend(p, n, type, to, tag, comm, r);
}

/* By messages, a rank sends all but its own block of a vector to be summed, and its sums to all others: of
 * every type its own bytes and no more. */
static void on_the_wire(const Team *m) {
  size_t n = 16 * 1024 * (size_t)m->size, others = (size_t)m->size - 1, block = n / (size_t)m->size;
  char *p = calloc(n, 8), *out = fresh(n * 8);
  for (const ZkElem *e = summed; e < summed + SUMMED; e++) {
    size_t size = zk_plain_bytes(*e);
    wire = 0;
    t->wait(c, t->reduce_scatter(c, m->g, p, block, *e, ZX_SUM, out));
    EXPECT(wire == others * block * size, "%s: a reduce-scatter sends %zu bytes, not %zu", m->name, wire,
           others * block * size);
    wire = 0;
    t->wait(c, t->all_reduce(c, m->g, p, n, *e, ZX_SUM));
    EXPECT(wire == 2 * others * block * size, "%s: an all-reduce sends %zu bytes, not %zu", m->name, wire,
           2 * others * block * size);
  }
  free(p);
  free(out);
}

/* A NaN or an infinity of one rank is everybody's. */
static void not_finite(const Team *m) {
  for (const ZkElem *e = summed; e < summed + SUMMED; e++) {
    double buf[4];
    for (int op = ZX_SUM; op <= ZX_MAX; op++)
      for (int who = 0; who < m->size; who++) {
        put(buf, *e, 0, m->rank == who ? NAN : 1);
        put(buf, *e, 1, m->rank == who ? INFINITY : -1);
        t->wait(c, t->all_reduce(c, m->g, buf, 2, *e, (ZxReduce)op));
        EXPECT(isnan(get(buf, *e, 0)), "%s: a NaN of rank %d is lost", m->name, who);
        EXPECT(isinf(get(buf, *e, 1)), "%s: an infinity of rank %d is lost", m->name, who);
      }
  }
}

/* More operations open at once than the table first holds, on several groups, completed in another order than
 * started, with groups started in different orders on different ranks. */
static void many(const Team *team, int nteam) {
  enum { N = 150, LEN = 300 };
  int per = nteam * N;
  double *p = fresh(sizeof *p * LEN * (size_t)per);
  ZxRequest *r = fresh(sizeof *r * (size_t)per);
  for (int k = 0; k < nteam; k++) {
    const Team *m = &team[rank % 2 ? nteam - 1 - k : k];
    int which = (int)(m - team);
    for (int j = 0; j < N; j++) {
      double *q = p + (size_t)(which * N + j) * LEN;
      for (size_t i = 0; i < LEN; i++) q[i] = value(rank, i + (size_t)j);
      r[which * N + j] = t->all_reduce(c, m->g, q, LEN, ZK_F64, ZX_SUM);
    }
  }
  for (int j = per - 1; j >= 0; j--) {
    int i = (j * 7) % per; /* per is not a multiple of 7 */
    t->wait(c, r[i]);
    double *q = p + (size_t)i * LEN;
    bool right = true;
    for (size_t x = 0; x < LEN; x++) right &= q[x] == want(&team[i / N], x + (size_t)(i % N), ZX_SUM);
    EXPECT(right, "operation %d of %d open ones is wrong", i, per);
  }
  free(p);
  free(r);
}

static double seconds(clockid_t clock) {
  struct timespec ts;
  clock_gettime(clock, &ts);
  return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* Everybody waits for rank 0, which sleeps. The share of the core that this takes. */
static double waiting_share(void) {
  char x = 1;
  t->barrier(c);
  double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
  if (rank == 0) nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
  t->wait(c, t->broadcast(c, 0, &x, 1, 0));
  float y = 1;
  t->wait(c, t->all_reduce(c, 0, &y, 1, ZK_F32, ZX_SUM));
  t->barrier(c);
  return (seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu) / (seconds(CLOCK_MONOTONIC) - wall);
}

/* The least of several, until every rank has had a quiet one: on a busy machine a nap costs more, a wait that
 * spins costs the whole core each time. */
static void quiet_wait(void) {
  double least = 1, most = 1;
  for (int i = 0; i < 20 && most >= 0.35; i++) {
    most = least = fmin(least, waiting_share());
    t->wait(c, t->all_reduce(c, 0, &most, 1, ZK_F64, ZX_MAX));
  }
  EXPECT(least < 0.35, "a wait took %.0f %% of the core", 100 * least);
}

static Team team_of(const char *name, int color, int (*color_of)(int)) {
  Team m = {.name = name, .g = color_of ? t->split(c, color) : 0};
  m.member = fresh(sizeof(int) * (size_t)size);
  for (int i = 0; i < size; i++)
    if (!color_of || color_of(i) == color) m.member[m.size++] = i;
  for (int i = 0; i < m.size; i++)
    if (m.member[i] == rank) m.rank = i;
  if (m.g >= 0) {
    EXPECT(t->group_size(c, m.g) == m.size, "%s: %d members, not %d", name, t->group_size(c, m.g), m.size);
    EXPECT(t->group_rank(c, m.g) == m.rank, "%s: member %d, not %d", name, t->group_rank(c, m.g), m.rank);
  }
  return m;
}
static int by_two(int r) { return r / 2; }
static int by_parity(int r) { return r % 2; }
static int but_first(int r) { return r ? 0 : -1; }

/* Until it is killed; pid-RANK says what to kill. */
static _Noreturn void hang(void) {
  char name[32], x;
  snprintf(name, sizeof name, "pid-%d", rank);
  FILE *f = fopen(name, "w");
  if (f) {
    fprintf(f, "%d\n", (int)getpid());
    fclose(f);
  }
  t->wait(c, t->recv(c, &x, 1, rank, 9)); /* which nobody sends */
  t->abort(c, 1);
}

/* Every operation on every team, for sizes from nothing to several rounds. */
static void contract(Team *team, int nteam) {
  /* 70001 elements on 8 ranks are one round, 400003 several */
  static const size_t sizes[] = {0, 1, 2, 7, 33, 1000, 4097, 70001, 400003};
  for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
    for (int i = 0; i < nteam; i++) {
      size_t n = sizes[k];
      Team *m = &team[i];
      for (const ZkElem *e = summed; e < summed + SUMMED; e++)
        for (int op = ZX_SUM; op <= ZX_MAX; op++) {
          if (n > 100000 && *e != ZK_F32 && op == ZX_MAX) continue; /* brevity */
          all_reduce(m, n, *e, (ZxReduce)op);
          if (n > 100000) continue;
          reduce_scatter(m, n, *e, (ZxReduce)op, false);
          reduce_scatter(m, n, *e, (ZxReduce)op, true);
        }
      all_gather(m, n, false);
      all_gather(m, n, true);
      all_to_all(m, n);
      broadcast(m, n);
      for (const ZkElem *e = summed; n && e < summed + SUMMED; e++)
        if (*e != ZK_F64) same_bits(m, n > 100000 ? 30011 : n, *e);
    }
  for (int i = 0; i < nteam; i++) not_finite(&team[i]);
  many(team, nteam);
}

/* Twice in another order: as many ranks before as after, each with the place and the node that it
 * was given. */
static void reorder(void) {
  int *order = fresh((size_t)size * sizeof *order), was = rank;
  for (int turn = 0; turn < 2; turn++) {
    for (int i = 0; i < size; i++) order[i] = i ? size - i : 0;
    t->reorder(c, order);
    int now = t->rank(c);
    EXPECT(order[now] == rank && t->size(c) == size, "rank %d became %d of %d", rank, now, t->size(c));
    rank = now;
  }
  EXPECT(rank == was, "there and back");
  for (int i = 0; i < size; i++) order[i] = (i + 1) % size; /* the contract is then to hold for these */
  t->reorder(c, order);
  rank = t->rank(c);
  free(order);
}

static bool nodes; /* ranks are on two, by turns */
int zx_comm_mpi_part(int rank) { return nodes ? rank % 2 : 0; }

int main(int argc, char **argv) {
  ZbErr err;
  nodes = argc > 2 && !strcmp(argv[2], "nodes");
  c = argc > 1 && !strcmp(argv[1], "self") ? zx_comm_self() : zx_comm_mpi(&argc, &argv, &err);
  if (!c) {
    fprintf(stderr, "%s\n", err.text);
    return 1;
  }
  t = c->t;
  rank = t->rank(c);
  size = t->size(c);
  if (nodes)
    for (int i = 0; i < size; i++)
      EXPECT(t->nodes(c)[i] == i % 2, "rank %d is on node %d", i, t->nodes(c)[i]);
  if (argc > 2 && !strcmp(argv[1], "abort")) { /* one rank ends the job; the others wait for it forever */
    if (rank == size - 1) t->abort(c, atoi(argv[2]));
    t->barrier(c);
  }
  if (argc > 1 && !strcmp(argv[1], "hang")) hang();
  if (argc > 1 && !strcmp(argv[1], "reordered")) reorder();

  Team team[4];
  team[0] = team_of("world", 0, NULL);
  team[1] = team_of("pairs", by_two(rank), by_two);
  team[2] = team_of("parity", by_parity(rank), by_parity);
  team[3] = team_of("all but the first", but_first(rank), but_first);
  EXPECT(team[3].g == -1 || rank || size == 1, "rank 0 is in a group it has no color for");
  int nteam = team[3].g >= 0 && rank ? 4 : 3;

  contract(team, nteam);
  if (!strcmp(t->name, "mpi")) {
    quiet_wait();
    agreement(team, nteam);
    zx_comm_mpi_apart(c, true);
    contract(team, nteam);
    for (int i = 0; i < nteam; i++) on_the_wire(&team[i]);
    quiet_wait();
    for (size_t n = 0; n < 200000; n = n * 13 + 1) transfers(n);
    zx_comm_mpi_limit(c, 1000); /* as if everything below were larger than an int can count */
    transfers(12345);
    for (int i = 0; i < nteam; i++) {
      all_gather(&team[i], 12345, false);
      all_gather(&team[i], 12345, true);
      all_to_all(&team[i], 12000);
      broadcast(&team[i], 12345);
    }
  }
  double total = failures;
  t->wait(c, t->all_reduce(c, 0, &total, 1, ZK_F64, ZX_SUM));
  for (int i = 0; i < 4; i++) free(team[i].member);
  t->free(c);
  return total != 0;
}
