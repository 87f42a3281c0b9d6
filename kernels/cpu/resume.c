/* resume_scan: h = a h' + b along each sequence of a step, where h' is what its token before left. It goes
 * token by token and rounds each h to what the state has, so that it does not matter where a prompt is
 * cut. */
#include "kernels/cpu/step.h"

#define PIECE 512 /* rows that lie side by side go on together */

enum { B, Y, A, H };
typedef struct {
  ZkView v[4];
  ZkNest rest;
  ZkLoop side; /* rows that lie side by side */
  ZkTokens tokens;
  int64_t n, s[4]; /* tokens; strides of tokens, of h of sequences */
  int64_t pieces;
} Scan;

/* The product is exact in f64: the same bits with fused instructions and without. */
ZK_SIMD static void go_on(float *h, const float *a, const float *b, int64_t m) {
#pragma omp simd
  for (int64_t k = 0; k < m; k++) h[k] = (float)((double)a[k] * h[k] + b[k]);
}

static void scan_piece(const Scan *p, const int64_t *off, int64_t m) {
  float abuf[PIECE], bbuf[PIECE], h[PIECE];
  int64_t now = -1;
  for (int64_t t = 0; t < p->n; t++) {
    int64_t sequence = zk_sequence(&p->tokens, t), y = off[Y] + t * p->s[Y];
    if (now >= 0 && sequence != now) zk_store(&p->v[H], off[H] + now * p->s[H], p->side.s[H], m, h, false);
    if (sequence < 0) zk_fill_run(&p->v[Y], y, p->side.s[Y], 0, m);
    else if (zk_position(&p->tokens, t) == 0) zk_run_fill(h, 0, m);
    else if (sequence != now) zk_load(h, &p->v[H], off[H] + sequence * p->s[H], p->side.s[H], m);
    now = sequence;
    if (sequence < 0) continue;
    const float *a = zk_row_in(&p->v[A], off[A] + t * p->s[A], p->side.s[A], m, abuf);
    const float *b = zk_row_in(&p->v[B], off[B] + t * p->s[B], p->side.s[B], m, bbuf);
    go_on(h, a, b, m);
    zk_store(&p->v[Y], y, p->side.s[Y], m, h, false);
  }
  if (now >= 0) zk_store(&p->v[H], off[H] + now * p->s[H], p->side.s[H], m, h, false);
}

static void run_pieces(void *arg, int64_t from, int64_t to, int part) {
  const Scan *p = arg;
  (void)part;
  for (int64_t t = from; t < to; t++) {
    ZkWalk w;
    zk_walk_seek(&p->rest, &w, t / p->pieces);
    int64_t first = t % p->pieces * PIECE;
    for (int i = 0; i < 4; i++) w.off[i] += first * p->side.s[i];
    scan_piece(p, w.off, zk_min(PIECE, p->side.n - first));
  }
}

void zk_cpu_resume_scan(const ZkEnv *env, const ZkCall *c) {
  Scan p = {.v = {c->in[1], c->out[0], c->in[0], c->in[2]}};
  const ZkView *views[] = {&p.v[B], &p.v[Y], &p.v[A], &p.v[H]};
  ZB_ASSERT(p.v[H].elem == ZK_F32);
  p.tokens = zk_tokens(&c->in[3], &c->in[4], c->ax[0]);
  p.n = zk_axis_size(&p.v[B], c->ax[0]);
  for (int i = 0; i < 4; i++) p.s[i] = zk_axis_stride(&p.v[i], c->ax[i == H]);
  p.rest = zk_nest(views, 4, c->ax, 1, false);
  zk_nest_order(&p.rest, B);
  p.side = zk_nest_pop(&p.rest);
  p.pieces = zk_ceil_div(p.side.n, PIECE);
  int64_t work = zk_max(1, p.n * zk_min(p.side.n, PIECE));
  zk_for(env, zk_nest_count(&p.rest) * p.pieces, zk_max(1, 16384 / work), run_pieces, &p);
}
