/* What the multiprocessors of a Hopper GPU have to do in a call, by its shapes: so a GPU that is half empty is
 * seen without one.
 *
 * Assumed, and not measured: each has one tile at a time. cuDNN's attention takes 128 queries to a tile and its
 * gradient 64 keys (sm90_flash_bprop_wgmma_64x64 is what it proposes); under a causal mask the longest begin
 * first in each head. Products in bf16 are cut as cuBLASLt can cut them, with sums over k in parts where there
 * are few results: the way that leaves least idle, smaller tiles and parts being worth less. */
#include "kernels/cuda/attend.h"
#include "kernels/cuda/dot.h"

#define QUERIES 128
#define KEYS 64

/* ---- attention ----------------------------------------------------------------------------------------- */
/* Part of the time that n multiprocessors are busy with the tiles of so many heads, each taken by the first
 * that is free. Tile i of a head has `tiles - i` blocks to do under a causal mask, else all have as many. */
static double busy(int64_t heads, int64_t tiles, bool causal, int n) {
  enum { MOST = 1024, ENOUGH = 1 << 16 };
  double end[MOST] = {0}, sum = 0, last = 0;
  if (n > MOST) n = MOST;
  for (int64_t k = 0; k < heads * tiles && k < ENOUGH; k++) {
    double blocks = causal ? (double)(tiles - k % tiles) : (double)tiles;
    int first = 0;
    for (int i = 1; i < n; i++)
      if (end[i] < end[first]) first = i;
    sum += blocks;
    end[first] += blocks;
    if (end[first] > last) last = end[first];
  }
  return last > 0 ? sum / (n * last) : 0;
}

static bool attention(const ZkCall *call, int n, ZkTiling *t) {
  ZkcAttend a;
  ZkcPieces p;
  zkc_attend_of(call, &a);
  if (!zkc_attend_rows(&a) || !zk_attend_dnn_pieces(&a, &p)) return false;
  t->rows = a.grad ? KEYS : QUERIES, t->columns = a.H;
  int64_t of_head = (a.S + t->rows - 1) / t->rows;
  t->tiles = p.heads * of_head, t->launches = p.pieces;
  t->busy = busy(p.heads, of_head, a.causal, n);
  t->bytes = p.bytes;
  return true;
}

/* ---- products ------------------------------------------------------------------------------------------ */
static const struct {
  int64_t rows, columns;
  double worth;
} cuts[] = {{128, 256, 1}, {256, 128, 1}, {128, 128, .95}, {128, 64, .8}, {64, 128, .8}, {64, 64, .6}};

static double in_waves(int64_t tiles, int n) {
  int64_t waves = (tiles + n - 1) / n;
  return (double)tiles / (double)(waves * n);
}

static bool product(const ZkCall *call, int n, ZkTiling *t) {
  double best = 0;
  if (call->in[0].elem != ZK_BF16 || call->in[1].elem != ZK_BF16) return false;
  ZkDot d = zk_dot_of(call);
  t->launches = 1;
  for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++)
    for (int64_t parts = 1; parts <= 8; parts *= 2) {
      int64_t down = (d.m.count + cuts[i].rows - 1) / cuts[i].rows,
              across = (d.n.count + cuts[i].columns - 1) / cuts[i].columns,
              tiles = d.batch.count * down * across * parts;
      double full =
          (double)(d.m.count * d.n.count) / (double)(down * cuts[i].rows * across * cuts[i].columns);
      double fills = in_waves(tiles, n), worth = full * fills * cuts[i].worth;
      for (int64_t p = parts; p > 1; p /= 2) worth *= .97;
      if (worth <= best || d.k.count / parts < 256) continue;
      best = worth;
      t->rows = cuts[i].rows, t->columns = cuts[i].columns, t->tiles = tiles, t->busy = worth;
    }
  return best > 0;
}

bool zk_cuda_tiles(const ZkCall *call, int multiprocessors, ZkTiling *t) {
  bool known = false;
  *t = (ZkTiling){.tiles = 0};
  switch (call->op) {
  case ZG_OP_ATTEND:
  case ZG_OP_ATTEND_GRAD: known = attention(call, multiprocessors, t); break;
  case ZG_OP_DOT:
  case ZG_OP_DOT_BIAS_GRAD: known = product(call, multiprocessors, t); break;
  default: break;
  }
  t->waves = (double)t->tiles / multiprocessors;
  return known;
}
