/* Convolutions along an axis that is split: each rank's rows, with those of its neighbours that windows reach
 * into, are convolved as if they were all, and of what that gives the neighbours' rows are left out. Where
 * there is no neighbour the border is zeros, as the convolution has them outside.
 *
 * * Example: windows of 3, stride 2, 16 rows over 2 ranks. Rank 1 has 8 rows and makes 4; its first window
 * begins one row before them. It takes 2 rows of rank 0, which are one of the result, makes 5 of the 10 and
 * leaves the first out. So a border is a multiple of the stride.
 *
 * * The gradient of a weight takes rows of x with borders, and of y its own, with zeros beside them. */
#include "runtime/plan/local/cut.h"

typedef struct {
  int at; /* in ax: the axis of x, its window's, that of y */
  int64_t stride;
  uint16_t in_y; /* rows of y of a chunk; those of x are x->in */
  int64_t own_y;
  int64_t before, after;     /* rows of x that windows reach into beside a chunk's */
  int64_t y_before, y_after; /* rows of y that are made of a chunk's rows of x, beside its own */
} Conv;

static int64_t multiple(int64_t n, int64_t of) { return n > 0 ? (n + of - 1) / of * of : 0; }

static Conv borders(const ZpPlan *p, const ZgNode *n, int at, int64_t ranks) {
  int64_t stride = n->opt[0], more = (p->layout.axis_size[n->ax[at + 1]] - 1) * (int64_t)n->num[0];
  int64_t before = zg_conv_before(n->opt[1], p->layout.axis_size[n->ax[at + 1]], (int64_t)n->num[0]);
  return (Conv){.at = at,
                .stride = stride,
                .own_y = p->layout.axis_size[n->ax[at + 2]] / ranks,
                .before = multiple(before, stride),
                .after = multiple(more - before - (stride - 1), stride),
                .y_before = multiple(more - before, stride) / stride,
                .y_after = multiple(before, stride) / stride};
}

bool zp_conv_in_chunks(const ZpPlan *p, const ZgNode *n, int at, ZpDims dims) {
  uint16_t x = n->ax[at], y = n->ax[at + 2];
  int64_t ranks = zp_group_size(&p->layout.mesh, dims), own = p->layout.axis_size[x] / ranks;
  int64_t window = p->layout.axis_size[n->ax[at + 1]], dilate = (int64_t)n->num[0];
  Conv c = borders(p, n, at, ranks);
  bool fits = p->layout.axis_size[x] == c.stride * p->layout.axis_size[y] && own % c.stride == 0 &&
              c.own_y * ranks == p->layout.axis_size[y];
  for (int d = 0; d < p->layout.mesh.ndims; d++)
    fits &= !(dims >> d & 1) || zp_dim_splits(&p->layout.mesh.dim[d], y);
  for (int k = 0; k < 2; k++) { /* with borders, for y and for x */
    int64_t rows = k ? c.stride * (c.y_before + c.own_y + c.y_after) : c.before + own + c.after;
    fits &= zg_conv_size(rows, window, c.stride, dilate, n->opt[1]) * c.stride == rows;
  }
  return fits && c.before <= own && c.after <= own && c.y_before <= c.own_y && c.y_after <= c.own_y;
}

/* Returns an axis of a chunk's rows and those beside them; without any, `in`. */
static uint16_t wider_axis(ZpCut *x, uint16_t in, int64_t before, int64_t own, int64_t after) {
  const char *name =
      zb_printf(x->p->arena, "%s.%lld.%lld", x->g->axes[in].name, (long long)before, (long long)after);
  return before || after ? zp_cut_axis(x, name, before + own + after, in) : in;
}

/* Returns what the chunk before (by 1) or behind (-1) has at its border. */
static uint32_t border(ZpCut *x, uint32_t v, uint16_t in, int64_t own, int64_t count, int64_t by) {
  const char *name = zb_printf(x->p->arena, "%s.%lld", x->g->axes[in].name, (long long)count);
  uint16_t axis = zp_cut_axis(x, name, count, in);
  v = zp_cut_slice(x, v, in, axis, by > 0 ? own - count : 0, count);
  return zp_cut_before(x, v, by);
}

static uint32_t with_borders(ZpCut *x, uint32_t v, uint16_t in, uint16_t wide, int64_t before, int64_t own,
                             int64_t after) {
  ZgNode n = {.op = ZG_OP_CONCAT, .nax = 1, .ax = {wide}};
  uint32_t part[3], nparts = 0, own_rows = v;
  for (int k = 0; k < 3; k++) {
    if (k == 1) part[nparts] = own_rows;
    else if (k ? after : before) part[nparts] = border(x, v, in, own, k ? after : before, k ? -1 : 1);
    else continue;
    const ZgType *t = zp_cut_type(x, part[nparts++]);
    for (int i = 0; i < t->naxes; i++)
      if (x->p->layout.lies[t->axis[i]] == x->p->layout.lies[in] && t->axis[i] != x->chunk)
        n.ax[n.nax] = t->axis[i];
    n.nax++;
  }
  return nparts > 1 ? zp_cut_node(x, n, (int)nparts, part, NULL) : v;
}

/* Its own rows, with zeros beside them. */
static uint32_t with_zeros(ZpCut *x, uint32_t v, uint16_t in, uint16_t wide, int64_t before) {
  ZgNode n = {.op = ZG_OP_PAD, .nax = 2, .ax = {in, wide}, .opt = {before}};
  return in == wide ? v : zp_cut_node(x, n, 1, &v, NULL);
}

static uint32_t own_rows(ZpCut *x, uint32_t v, uint16_t wide, uint16_t in, int64_t before, int64_t own) {
  return in == wide ? v : zp_cut_slice(x, v, wide, in, before, own);
}

/* Returns the old result's type with chunks and rows for the axis, where it has that. */
static ZgType result_type(const ZpCut *x, uint16_t axis, uint16_t wide) {
  const ZgType *t = &x->from->values[x->node->out].type;
  ZgType rest = zg_type_minus(t, &axis, 1), both = zg_type((ZgElem)t->elem, (uint16_t[]){x->chunk, wide}, 2);
  return zg_type_has(t, axis) ? zg_type_union(&rest, &both) : *t;
}

void zp_cut_conv(ZpCut *x, int at) {
  const ZgNode *n = x->node;
  ZpPlan *p = x->p;
  uint16_t sx = n->ax[at], sy = n->ax[at + 2];
  Conv c = borders(p, n, at, x->ranks);
  bool back = n->op == ZG_OP_CONV_TRANSPOSE;
  const char *name = zb_printf(p->arena, "%s.of.%s", p->graph->axes[sy].name, x->g->axes[x->in].name);
  c.in_y = sx == sy ? x->in : zp_cut_axis(x, name, c.own_y, sy);
  int64_t y_before = back ? c.y_before : c.before / c.stride, y_after = back ? c.y_after : c.after / c.stride;
  int64_t before = y_before * c.stride, after = y_after * c.stride;
  uint16_t wide = wider_axis(x, x->in, before, x->own, after);
  uint16_t wide_y = sx == sy ? wide : wider_axis(x, c.in_y, y_before, c.own_y, y_after);
  uint32_t in[2];
  for (int i = 0; i < 2; i++) {
    ZgConvTensor t = zg_conv_tensor(n->op, i);
    in[i] = x->now[n->in[i]];
    if (t == ZG_CONV_X)
      in[i] = with_borders(x, zp_cut_whole(x, in[i], sx, x->in), x->in, wide, before, x->own, after);
    if (t == ZG_CONV_Y && back)
      in[i] = with_borders(x, zp_cut_whole(x, in[i], sy, c.in_y), c.in_y, wide_y, y_before, c.own_y, y_after);
    else if (t == ZG_CONV_Y)
      in[i] = with_zeros(x, zp_cut_whole(x, in[i], sy, c.in_y), c.in_y, wide_y, y_before);
  }
  ZgNode m = *n;
  m.ax[at] = wide, m.ax[at + 2] = wide_y;
  ZgType hint = back                  ? result_type(x, sx, wide)
                : n->op == ZG_OP_CONV ? result_type(x, sy, wide_y)
                                      : x->from->values[n->out].type;
  uint32_t made = zp_cut_node(x, m, 2, in, &hint);
  if (back) made = zp_cut_merged(x, own_rows(x, made, wide, x->in, before, x->own), sx, x->in);
  else if (n->op == ZG_OP_CONV)
    made = zp_cut_merged(x, own_rows(x, made, wide_y, c.in_y, y_before, c.own_y), sy, c.in_y);
  x->now[n->out] = made;
}
