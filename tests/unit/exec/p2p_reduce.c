/* Reductions by messages, without a transport: all members of a group are in this process, and a message is a
 * copy. What is looked at are the bits of sums, in whatever order members get on. */
#include "runtime/exec/comm/p2p_reduce.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"

enum { MEMBERS = 7, MOST_OPEN = 40, POSTED = 4096 };

/* ---- the transport: what is posted waits here for its counterpart ---- */
typedef struct {
  ZxP2pMessage m;
  int member, slot;
  bool done;
} Posted;
typedef struct {
  int member;
} Member;
static Posted posted[POSTED];
static int nposted;
static struct {
  const char *what;
  size_t bytes;
} looked_at; /* the operation, as the transport was told last */

static bool fits(const Posted *a, const Posted *b) {
  return !b->done && a->m.send != b->m.send && a->m.tag == b->m.tag && a->m.peer == b->member &&
         b->m.peer == a->member;
}

static void post(void *group, int slot, const ZxP2pMessage *m) {
  Posted p = {*m, ((const Member *)group)->member, slot, false};
  for (int i = 0; i < nposted && !p.done; i++) {
    if (!fits(&p, &posted[i])) continue;
    const Posted *from = p.m.send ? &p : &posted[i], *to = p.m.send ? &posted[i] : &p;
    cr_assert_eq(from->m.bytes, to->m.bytes);
    memcpy(to->m.p, from->m.p, from->m.bytes);
    p.done = posted[i].done = true;
  }
  cr_assert(nposted < POSTED);
  posted[nposted++] = p;
}

static bool complete(void *group, int slot, const char *what, size_t bytes) {
  int member = ((const Member *)group)->member, left = 0;
  looked_at.what = what, looked_at.bytes = bytes;
  for (int i = 0; i < nposted; i++)
    if (posted[i].member == member && posted[i].slot == slot && !posted[i].done) return false;
  for (int i = 0; i < nposted; i++) /* its messages are gone */
    if (posted[i].member != member || posted[i].slot != slot) posted[left++] = posted[i];
  nposted = left;
  return true;
}
static const ZxP2pTransport transport = {post, complete};

/* ---- a group ---- */
static ZxP2p *reducer[MEMBERS];
static Member member[MEMBERS];
static int size;

static void group_new(int n) {
  size = n;
  nposted = 0;
  for (int i = 0; i < n; i++) {
    reducer[i] = zx_p2p_new(&transport, i, n);
    member[i].member = i;
  }
}

static void group_free(void) {
  for (int i = 0; i < size; i++) {
    cr_expect(zx_p2p_idle(reducer[i]));
    zx_p2p_free(reducer[i]);
  }
  cr_expect_eq(nposted, 0);
}

/* Members get on in an order that looks like none, until all are idle. */
static void play(uint64_t seed) {
  for (uint64_t i = 0; i < 100000; i++) {
    bool idle = true;
    int k = (int)(zb_random_u64(seed, 0, i) % (uint64_t)size);
    zx_p2p_progress(reducer[k], &member[k]);
    for (int m = 0; m < size; m++) idle &= zx_p2p_idle(reducer[m]);
    if (idle) return;
  }
  cr_assert_fail("%d members wait for each other", size);
}

/* ---- vectors ---- */
static void *vector(int m, size_t n, ZkElem elem, uint64_t seed) {
  char *p = calloc(n, zk_plain_bytes(elem));
  for (size_t i = 0; i < n; i++) {
    double x = zb_random_unit(seed, (uint64_t)m, i) - 0.5;
    if (elem == ZK_F32) ((float *)(void *)p)[i] = (float)x;
    if (elem == ZK_F64) ((double *)(void *)p)[i] = x;
    if (elem == ZK_BF16) ((uint16_t *)(void *)p)[i] = zb_f32_to_bf16((float)x);
  }
  return p;
}

static void all_reduce(int members, size_t n, ZkElem elem, ZxReduce how) {
  void *x[MEMBERS], *want = vector(0, n, elem, n);
  const void *part[MEMBERS];
  size_t bytes = zk_bytes(elem, n);
  uint64_t op[MEMBERS];
  group_new(members);
  for (int m = 0; m < members; m++) part[m] = x[m] = vector(m, n, elem, n);
  zx_combine(want, part, members, n, elem, how);
  for (int m = 0; m < members; m++) op[m] = zx_p2p_all_reduce(reducer[m], &member[m], x[m], n, elem, how);
  play(n);
  for (int m = 0; m < members; m++) {
    cr_expect(zx_p2p_done(reducer[m], op[m]));
    cr_expect(!memcmp(x[m], want, bytes), "%d members, %zu elements of type %d: member %d", members, n,
              (int)elem, m);
    free(x[m]);
  }
  free(want);
  group_free();
}

Test(p2p_reduce, all_reduce) {
  /* One message whole; at the limit of that and above; blocks of a round; several rounds, the last one
   * short. */
  static const size_t n[] = {1, 17, 1024, 1025, 5000, 131072, 700001};
  for (size_t i = 0; i < sizeof n / sizeof *n; i++)
    for (int members = 2; members <= 5; members++) all_reduce(members, n[i], ZK_F32, ZX_SUM);
  all_reduce(3, 5000, ZK_F64, ZX_SUM);
  all_reduce(3, 5000, ZK_BF16, ZX_SUM);
  all_reduce(4, 5000, ZK_F32, ZX_MAX);
}

Test(p2p_reduce, reduce_scatter) {
  enum { N = 150000, M = 3 };
  float *x[M], *out[M], *want = calloc(N, sizeof *want);
  group_new(M);
  for (int m = 0; m < M; m++) {
    x[m] = vector(m, (size_t)M * N, ZK_F32, 7);
    out[m] = m ? calloc(N, sizeof **out) : x[m]; /* member 0: in place */
  }
  float *before = malloc(sizeof *before * M * N); /* of member 1: stays as it is */
  memcpy(before, x[1], sizeof *before * M * N);
  float *own = malloc(sizeof *own * N);
  memcpy(own, x[0], sizeof *own * N);
  for (int m = 0; m < M; m++) zx_p2p_reduce_scatter(reducer[m], &member[m], x[m], N, ZK_F32, ZX_SUM, out[m]);
  play(1);
  for (int m = 0; m < M; m++) {
    const void *part[M];
    for (int k = 0; k < M; k++) part[k] = k == 0 && m == 0 ? own : x[k] + (size_t)m * N;
    zx_combine(want, part, M, N, ZK_F32, ZX_SUM);
    cr_expect(!memcmp(out[m], want, N * sizeof *want), "member %d", m);
  }
  cr_expect(!memcmp(before, x[1], sizeof *before * M * N));
  for (int m = 0; m < M; m++) {
    if (m) free(out[m]);
    free(x[m]);
  }
  free(before);
  free(own);
  free(want);
  group_free();
}

/* More operations at once than there is room for at first, of many lengths: numbers stay true, and each has
 * its sum. */
static void many_open(uint64_t before) {
  enum { M = 3 };
  float *x[M][MOST_OPEN];
  uint64_t op[M][MOST_OPEN];
  for (int m = 0; m < M; m++)
    for (int i = 0; i < MOST_OPEN; i++) {
      size_t n = (size_t)(i % 7 ? 10 * i + 1 : 40000);
      x[m][i] = vector(m, n, ZK_F32, (uint64_t)i);
      op[m][i] = zx_p2p_all_reduce(reducer[m], &member[m], x[m][i], n, ZK_F32, ZX_SUM);
      cr_expect_eq(op[m][i], before + (uint64_t)i);
    }
  uint64_t moves = zx_p2p_moves(reducer[0]);
  play(3);
  cr_expect(zx_p2p_moves(reducer[0]) > moves);
  for (int i = 0; i < MOST_OPEN; i++) {
    size_t n = (size_t)(i % 7 ? 10 * i + 1 : 40000);
    float *part[M], *want = malloc(n * sizeof *want);
    for (int m = 0; m < M; m++) part[m] = vector(m, n, ZK_F32, (uint64_t)i);
    zx_combine(want, (const void *const *)part, M, n, ZK_F32, ZX_SUM);
    for (int m = 0; m < M; m++) {
      cr_expect(zx_p2p_done(reducer[m], op[m][i]));
      cr_expect(!memcmp(want, x[m][i], n * sizeof *want), "operation %d at member %d", i, m);
      free(part[m]);
      free(x[m][i]);
    }
    free(want);
  }
}

/* At first, and after some others, which were three at a time. */
Test(p2p_reduce, many_open) {
  for (int threes = 0; threes < 7; threes++) {
    float x[3][3] = {0};
    group_new(3);
    for (int k = 0; k < threes; k++) {
      for (int m = 0; m < 3; m++)
        for (int i = 0; i < 3; i++) zx_p2p_all_reduce(reducer[m], &member[m], &x[m][i], 1, ZK_F32, ZX_SUM);
      play((uint64_t)k);
    }
    many_open(3 * (uint64_t)threes);
    group_free();
  }
}

/* ---- how much is sent ---- */
/* What member 0 sends first: messages, bytes of one. */
static void sends(int members, size_t n, ZkElem elem, bool scatter, int messages, size_t bytes) {
  int found = 0;
  group_new(members);
  char *x = calloc(n * (size_t)members, zk_plain_bytes(elem));
  uint64_t op = scatter ? zx_p2p_reduce_scatter(reducer[0], &member[0], x, n, elem, ZX_SUM, x)
                        : zx_p2p_all_reduce(reducer[0], &member[0], x, n, elem, ZX_SUM);
  cr_expect(!zx_p2p_done(reducer[0], op) && !zx_p2p_idle(reducer[0]));
  for (int i = 0; i < nposted; i++) {
    if (!posted[i].m.send) continue;
    cr_expect_eq(posted[i].m.bytes, bytes, "%d members, %zu elements: %zu bytes", members, n,
                 posted[i].m.bytes);
    cr_expect_str_eq(posted[i].m.what, scatter ? "reduce-scatter" : "all-reduce");
    found++;
  }
  cr_expect_eq(found, messages, "%d members, %zu elements: %d messages", members, n, found);
  zx_p2p_progress(reducer[0], &member[0]);
  cr_expect_str_eq(looked_at.what, scatter ? "reduce-scatter" : "all-reduce");
  cr_expect_eq(looked_at.bytes, zk_bytes(elem, n), "of its n elements: %zu", looked_at.bytes);
  for (int i = 0; i < members; i++) zx_p2p_free(reducer[i]);
  free(x);
}

/* A vector of 4 kB is sent whole, if all copies are 16 kB at most; else a block of it to each, of a multiple
 * of 16 elements. */
Test(p2p_reduce, what_is_sent_whole) {
  sends(2, 1024, ZK_F32, false, 1, 4096);
  sends(2, 1025, ZK_F32, false, 1, (1025 - 528) * 4);
  sends(5, 1024, ZK_F32, false, 4, 4096);
  sends(6, 819, ZK_F32, false, 5, 3276);
  sends(6, 864, ZK_F32, false, 5, 144 * 4);
  sends(7, 340, ZK_F64, false, 6, 2720);
  sends(3, 2, ZK_BF16, false, 2, 4);
  sends(3, 2, ZK_F32, true, 2, 8);
  sends(3, 1024, ZK_F32, true, 2, 4096);
  sends(3, 700001, ZK_F32, false, 3 * 2, 256 << 10); /* rounds, of which each block is half of the staging */
  sends(3, 700001, ZK_F32, true, 3 * 2, 256 << 10);
  zx_p2p_free(NULL);
}

/* Rounds have numbers, which begin anew where a tag could be too large; every one that is complete is a
 * move. */
Test(p2p_reduce, rounds_are_numbered) {
  enum { MOST = 16384 };
  float x[2] = {1, 2};
  group_new(2);
  for (int i = 0; i <= MOST; i++) {
    uint64_t op = 0;
    for (int m = 0; m < 2; m++) op = zx_p2p_all_reduce(reducer[m], &member[m], &x[m], 1, ZK_F32, ZX_MAX);
    cr_assert_eq(posted[nposted - 1].m.tag, i % MOST);
    cr_assert(!zx_p2p_done(reducer[0], op) && (!op || zx_p2p_done(reducer[0], op - 1)));
    cr_assert(op < 16 || zx_p2p_done(reducer[0], op - 16), "where it is now another was before");
    for (int m = 0; m < 2; m++) zx_p2p_progress(reducer[m], &member[m]);
    cr_assert(zx_p2p_done(reducer[0], op));
    cr_assert_eq(zx_p2p_moves(reducer[1]), (uint64_t)i + 1);
  }
  cr_expect(x[0] == 2 && x[1] == 2);
  group_free();
}
