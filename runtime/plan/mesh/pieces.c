/* Axes of positions that are split zigzag: cut into twice as many chunks as there are ranks, of which rank r
 * of n has chunks r and 2n-1-r. Under a causal mask a query sees as many keys as come before it, so
 * contiguous parts make the last rank work nearly twice the mean; of any such pair of chunks queries see the
 * same number.
 *
 * * It is a layout of the axis, of all values alike: the first half of what a rank has is one chunk, the
 * second half the other. Where ranks' parts are put together along the fastest of the dims that split the
 * axis so, first halves in order and then second halves in the opposite order are a pair of longer chunks, or
 * all of it in the order of positions: zp_pieces says where they go. So what needs the axis whole finds
 * nothing new, and what is computed for each position by itself neither. Others know positions by where a
 * part begins, and are computed a piece at a time (engine/cut.c, engine/ring.c).
 *
 * * Example, 2 ranks, 8 positions: rank 0 has 0 1 6 7, rank 1 has 2 3 4 5. Of causal pairs both have 18. */
#include "runtime/plan/values.h"

int zp_pieces(const ZpMesh *m, ZpDims dims, uint16_t axis, int64_t member, int64_t length, ZpPiece *piece) {
  int64_t n = 1, parts = 1; /* parts of what one of the n pairs of chunks is, by faster dims */
  for (int d = 0; d < m->ndims; d++)
    if (dims >> d & 1) *(zp_dim_zigzags(&m->dim[d], axis) ? &n : &parts) *= m->dim[d].size;
  if (n == 1) {
    piece[0] = (ZpPiece){0, member * length, length};
    return 1;
  }
  int64_t chunk = length * parts / 2, from = member % parts * length, pair = member / parts;
  int64_t first = from >= chunk ? 0 : from + length > chunk ? chunk - from : length;
  int count = 0;
  if (first) piece[count++] = (ZpPiece){0, pair * chunk + from, first};
  if (first < length)
    piece[count++] = (ZpPiece){first, (2 * n - 2 - pair) * chunk + from + first, length - first};
  return count;
}

static ZpDims split_by(const ZpMesh *m, const ZpState *state, uint16_t axis) {
  ZpDims dims = 0;
  for (int d = 0; d < m->ndims; d++)
    if (state[d].kind == 'S' && state[d].axis == axis) dims |= 1u << d;
  return dims;
}

int zp_view_pieces(const ZpMesh *m, const ZpValue *v, int64_t rank, uint16_t axis, int64_t local_size,
                   ZpPiece *piece) {
  ZpDims dims = split_by(m, v->state, axis);
  return zp_pieces(m, dims, axis, zp_group_index(m, rank, dims), local_size, piece);
}

int64_t zp_view_start(const ZpMesh *m, const ZpValue *v, int64_t rank, uint16_t axis, int64_t local_size) {
  ZpPiece piece[ZP_PIECES];
  zp_view_pieces(m, v, rank, axis, local_size, piece);
  return piece[0].to;
}

bool zp_is_zigzag(const ZpMesh *m, ZpDims dims, uint16_t axis) {
  bool is = false;
  for (int d = 0; d < m->ndims; d++) is |= dims >> d & 1 && zp_dim_zigzags(&m->dim[d], axis);
  return is;
}
