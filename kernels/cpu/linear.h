/* What the files of linear_attend share: one chunk of tokens of one row, by products. Private to kernels/cpu.
 *
 * Within a chunk, with G the running sum of the log decays, in f64 since resets may be sums of large numbers,
 *
 *     A_xy[t, j] = sum_k x_t y_j exp(G_t - G_j), j <= t        of a side x and a key y: `scores`
 *     u = (I - A_ak)^-1 (v + (a e^G) S + A_ak2 v2)             by blocked substitution; without a feedback u = v
 *     o = (q e^G) S + A_qk u + A_qk2 v2
 *     S' = e^G_last S + (k e^(G_last - G))^T u + (k2 ..)^T v2
 *
 * in f32. No exponent is positive: nothing overflows, whatever the decays.
 *
 * linear_attend.c        a call: rows, threads, forward and backward along chunks
 * linear_chunk.c         a chunk forward and backward        linear_scores.c  scores, their gradients, the solution */
#ifndef ZUG_KERNELS_CPU_LINEAR_H
#define ZUG_KERNELS_CPU_LINEAR_H

#include "graph/linear.h"
#include "kernels/cpu/cpu.h"

#define ZK_LINEAR_TILE 16 /* of scores with a decay for each feature, and of the solution */

/* Sides x: queries, feedback. Keys y and what is written with them, w: first and second pair. */
enum { ZK_LQ, ZK_LA };
typedef struct {
  int64_t C, K, V;              /* most tokens of a chunk, features */
  int64_t m;                    /* tokens of this one */
  int64_t D;                    /* decays of a token: 0, 1 or K */
  int sides, keys;              /* 1 or 2 */
  float *x[2], *y[2], *w[2];    /* [m][K], [m][K], [m][V] */
  float *dx[2], *dy[2], *dw[2]; /* likewise; of dx and dy the sums so far */
  float *o;                     /* [m][V]: the result, or its cotangent */
  float *S, *dS;                /* [K][V]: at the start, then at the end; backward the other way round */
  float *A[2][2];               /* [m][m], of a side and a key */
  double *G, *dG;               /* [m][D] */
  float *up, *down;             /* [m][D]: e^G, e^(G_last - G) */
  float *mask;                  /* [m][m]: e^(G_t - G_j) of one decay, 0 above the diagonal; NULL: 1 or 0 */
  float *dA, *t1, *t2, *tile[3];
} ZkLinear;

/* Bytes of a chunk's memory, a multiple of 64, and what it holds, in that memory. Sizes and counts are set. */
size_t zk_linear_bytes(const ZkLinear *l, bool grad);
void zk_linear_place(ZkLinear *l, bool grad, void *memory);

/* Of x, y, w, G's decays (each token's own in G) and S: w[0] becomes u, S the state at the end, o the result
 * unless `state_only`. */
void zk_linear_decays(ZkLinear *l); /* first: sums them up */
void zk_linear_forward(ZkLinear *l, bool state_only);
/* Of the state at the start S, its end's cotangent dS and o's: gradients, in dG those of the decays, and dS
 * of the start. `ends` [K][V] is the state at the end, NULL where dS is 0. */
void zk_linear_backward(ZkLinear *l, const float *ends);

/* ---- linear_scores.c ----------------------------------------------------------------------------------- */
void zk_linear_scores(ZkLinear *l, const float *x, const float *y, bool strict, float *A);
/* dx and dy grow by the gradients that dA, which is overwritten, gives. */
void zk_linear_scores_grad(ZkLinear *l, const float *x, const float *y, bool strict, float *dA, float *dx,
                           float *dy);
/* U becomes (I - L)^-1 U; back: (I - L^T)^-1 U. L is 0 on the diagonal and above. */
void zk_linear_solve(const ZkLinear *l, const float *L, float *U, bool back);

#endif
