/* bench-attend [ROUNDS]: what attention and its gradient cost with what a mask leaves, against full causal
 * attention over the same 8192 positions, on one thread. In rounds, one after the other, the fastest of each.
 * Beside the time, how many pairs of a query and a key the mask leaves. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "graph/attend.h"
#include "kernels/kernels.h"

enum { SEQ = 8192, HEADS = 2, HD = 64, ELEMS = SEQ * HEADS * HD, DOCUMENT = 1024 };

typedef struct {
  const char *name;
  bool causal, docs, bias;
  int64_t window;
  double cap;
} Kind;
static const Kind kinds[] = {
    {"causal", true, false, false, 0, 0},
    {"window of 4096", true, false, false, 4096, 0},
    {"window of 512", true, false, false, 512, 0},
    {"window of 512, cap", true, false, false, 512, 50},
    {"window of 256, both sides", false, false, false, 256, 0},
    {"documents of 1024", true, true, false, 0, 0},
    {"causal, cap", true, false, false, 0, 50},
    {"causal, bias of keys", true, false, true, 0, 0},
};
enum { KINDS = sizeof kinds / sizeof *kinds, Q = 0, K, V, O, G, DQ, DK, DV, TENSORS };

typedef struct {
  void *tensor[TENSORS];
  float *l, *bias;
  int32_t *docs;
  void *scratch;
} Memory;

static double now(void) { /* of this thread: others may have the processor meanwhile */
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static ZkView view(const char *axes, ZkElem elem, void *data) {
  static const int64_t size[128] = {['s'] = SEQ, ['h'] = HEADS, ['d'] = HD};
  ZkView v = {.data = data, .elem = (uint8_t)elem, .rank = (uint8_t)strlen(axes)};
  int64_t n = 1;
  for (int i = v.rank - 1; i >= 0; i--) {
    v.axis[i] = (uint16_t)axes[i];
    v.size[i] = v.whole[i] = size[(int)axes[i]];
    v.stride[i] = n;
    n *= v.size[i];
  }
  return v;
}

static ZkCall call_of(const Memory *m, const Kind *k, bool grad, ZkElem elem) {
  static const int forward[] = {Q, K, V, O}, backward[] = {G, O, -1, Q, K, V, DQ, DK, DV};
  ZkCall c = {
      .op = grad ? ZG_OP_ATTEND_GRAD : ZG_OP_ATTEND, .nax = 2, .ax = {'s', 'd'}, .scratch = m->scratch};
  c.num[0] = 0.125, c.num[1] = k->cap, c.opt[0] = k->causal, c.opt[1] = k->window;
  for (int i = 0; i < (grad ? 6 : 3); i++) {
    int t = grad ? backward[i] : forward[i];
    c.in[c.nin++] = t < 0 ? view("hs", ZK_F32, m->l) : view("hsd", elem, m->tensor[t]);
  }
  for (int i = 0; i < (grad ? 3 : 1); i++)
    c.out[c.nout++] = view("hsd", elem, m->tensor[grad ? backward[6 + i] : O]);
  if (!grad) c.out[c.nout++] = view("hs", ZK_F32, m->l);
  if (k->bias) c.in[c.nin++] = view("hs", ZK_F32, m->bias);
  if (k->docs) c.in[c.nin++] = view("s", ZK_I32, m->docs);
  return c;
}

static Memory make_memory(ZkElem elem) {
  Memory m = {.l = malloc(SEQ * HEADS * 4), .bias = malloc(SEQ * HEADS * 4), .docs = malloc(SEQ * 4)};
  for (int t = 0; t < TENSORS; t++) {
    m.tensor[t] = aligned_alloc(64, ELEMS * 4);
    for (int i = 0; i < ELEMS; i++) {
      float x = (float)zb_random_normal(1, (uint64_t)t, (uint64_t)i);
      if (elem == ZK_F32) ((float *)m.tensor[t])[i] = x;
      else ((uint16_t *)m.tensor[t])[i] = zb_f32_to_bf16(x);
    }
  }
  for (int i = 0; i < SEQ * HEADS; i++) m.bias[i] = -0.001f * (float)(SEQ - i % SEQ);
  for (int i = 0; i < SEQ; i++) m.docs[i] = i / DOCUMENT;
  size_t most = 0;
  for (int i = 0; i < 2 * KINDS; i++) {
    ZkCall c = call_of(&m, &kinds[i / 2], i % 2, elem);
    size_t bytes = zk_cpu_scratch(&c, 1);
    most = bytes > most ? bytes : most;
  }
  m.scratch = aligned_alloc(64, zb_round_up(most, 64));
  return m;
}

static double pairs(const Kind *k) {
  double n = zg_attend_pairs(k->causal, k->window, SEQ, SEQ);
  return k->docs ? n * DOCUMENT / SEQ : n;
}

int main(int argc, char **argv) {
  int rounds = argc > 1 ? atoi(argv[1]) : 5;
  printf("attention over %d positions, %d heads of %d, one thread; the fastest of %d rounds\n", SEQ, HEADS,
         HD, rounds);
  printf("%-28s %-5s %8s %12s %8s %12s %8s\n", "", "", "pairs", "forward", "", "gradient", "");
  for (int half = 0; half < 2; half++) {
    double best[KINDS][2];
    ZkElem elem = half ? ZK_BF16 : ZK_F32;
    Memory m = make_memory(elem);
    for (int r = 0; r < rounds * KINDS * 2; r++) {
      int k = r / 2 % KINDS, grad = r % 2;
      ZkEnv env = {0};
      ZkCall c = call_of(&m, &kinds[k], grad, elem);
      double t = now();
      zk_cpu_kernel(c.op)(&env, &c);
      t = now() - t;
      if (r < KINDS * 2 || t < best[k][grad]) best[k][grad] = t;
    }
    for (int k = 0; k < KINDS; k++)
      printf("%-28s %-5s %8.3f %9.1f ms %8.3f %9.1f ms %8.3f\n", kinds[k].name, half ? "bf16" : "f32",
             pairs(&kinds[k]) / pairs(&kinds[0]), best[k][0] * 1e3, best[k][0] / best[0][0], best[k][1] * 1e3,
             best[k][1] / best[0][1]);
  }
  return 0;
}
