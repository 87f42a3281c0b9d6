/* Ranks on nodes. The dims of a mesh that vary fastest have the most to say to each other, and neighbouring
 * ranks are to be on one node; a launcher may have dealt them out in another order. Example: mesh data = 2,
 * tensor = 2 and ranks 0 to 3 on nodes A B A B. In that order both tensor groups, {0, 1} and {2, 3}, span
 * nodes; in the order
 * 0 2 1 3 none does.
 *
 * Groups of a mesh's inner dims are blocks of neighbouring ranks: of `tensor` alone, of `data x tensor`, ...
 * A block is put on one node if any has room for it; else its parts are, each by the same rule. */
#include "runtime/plan/plan.h"

#include <string.h>

/* ---- nodes, numbered in the order of their first ranks ------------------------------------------------- */
typedef struct {
  int nranks, nnodes;
  int *node;  /* of each rank */
  int *ranks; /* by node, then by number; node k's are ranks[first[k]] .. ranks[first[k + 1] - 1] */
  int *first;
} Nodes;

static Nodes nodes_of(ZbArena *a, const int *node, int n) {
  Nodes o = {n, 0, ZB_NEWN(a, int, n), ZB_NEWN(a, int, n), ZB_NEWN(a, int, n + 1)};
  int *name = ZB_NEWN(a, int, n), *at = ZB_NEWN(a, int, n);
  for (int r = 0; r < n; r++) {
    int k = o.nnodes - 1; /* most often the last one, or the one after that of the rank before */
    while (k >= 0 && name[k] != node[r]) k--;
    if (k < 0) name[k = o.nnodes++] = node[r];
    o.node[r] = k;
    o.first[k + 1]++;
  }
  for (int k = 0; k < o.nnodes; k++) {
    o.first[k + 1] += o.first[k];
    at[k] = o.first[k];
  }
  for (int r = 0; r < n; r++) o.ranks[at[o.node[r]]++] = r;
  return o;
}

static int count_of(const Nodes *o, int k) { return o->first[k + 1] - o->first[k]; }

/* Ranks of a block of the dims from `d` on. */
static int block_of(const ZpMesh *m, int d) {
  return d < m->ndims ? (int)zp_group_size(m, ~0u << d & ((1u << m->ndims) - 1)) : 1;
}

/* ---- the order ----------------------------------------------------------------------------------------- */
typedef struct {
  const ZpMesh *m;
  const Nodes *o;
  int *left;   /* of each node, ranks that have no place yet */
  int *order;  /* filled so far: */
  int n, last; /* and the node that the last one is of */
} Fill;

/* Returns the node for a block of so many ranks within one of `outer`, or -1. The first rank stays where it
 * is; then, a node that has ranks over when its whole outer blocks are gone: that of the last ones, or the
 * one with fewest; then any. */
static int node_for(const Fill *f, int block, int outer) {
  if (f->n == 0) return f->left[0] >= block ? 0 : -1;
  if (f->left[f->last] % outer >= block) return f->last;
  int best = -1;
  bool over = false;
  for (int k = 0; k < f->o->nnodes; k++) {
    if (f->left[k] < block) continue;
    bool here = f->left[k] % outer >= block;
    if (best >= 0 && (over > here || (over == here && f->left[best] <= f->left[k]))) continue;
    best = k;
    over = here;
  }
  return best;
}

static void place(Fill *f, int d, int outer) {
  int block = block_of(f->m, d), k = node_for(f, block, outer);
  if (k >= 0) {
    const int *from = f->o->ranks + f->o->first[k + 1] - f->left[k];
    memcpy(f->order + f->n, from, (size_t)block * sizeof *from);
    f->n += block;
    f->left[k] -= block;
    f->last = k;
    return;
  }
  for (int64_t i = 0; i < f->m->dim[d].size; i++) place(f, d + 1, block);
}

/* Blocks of the dims from `d` on that are not on one node. */
static int spanning(const ZpMesh *m, const Nodes *o, const int *order, int d) {
  int block = block_of(m, d), n = 0;
  for (int at = 0; at < o->nranks; at += block) {
    bool span = false;
    for (int i = 1; i < block; i++) span |= o->node[order[at + i]] != o->node[order[at]];
    n += span;
  }
  return n;
}

static int neighbours_apart(const Nodes *o, const int *order) {
  int n = 0;
  for (int i = 1; i < o->nranks; i++) n += o->node[order[i]] != o->node[order[i - 1]];
  return n;
}

static bool better(const ZpMesh *m, const Nodes *o, const int *x, const int *y) {
  for (int d = m->ndims - 1; d >= 0; d--) {
    int nx = spanning(m, o, x, d), ny = spanning(m, o, y, d);
    if (nx != ny) return nx < ny;
  }
  return neighbours_apart(o, x) < neighbours_apart(o, y);
}

bool zp_order_ranks(const ZpMesh *m, ZbArena *a, const int *node, int *order) {
  int n = (int)m->nranks;
  Nodes o = nodes_of(a, node, n);
  Fill f = {.m = m, .o = &o, .left = ZB_NEWN(a, int, o.nnodes), .order = ZB_NEWN(a, int, n)};
  for (int k = 0; k < o.nnodes; k++) f.left[k] = count_of(&o, k);
  place(&f, 0, n);
  for (int i = 0; i < n; i++) order[i] = i;
  if (!better(m, &o, f.order, order)) return false;
  memcpy(order, f.order, (size_t)n * sizeof *order);
  return true;
}

/* ---- for people ---------------------------------------------------------------------------------------- */
/* "2 nodes of 4 ranks", "3 nodes of 1 to 4 ranks" */
static void count_text(const Nodes *o, ZbText *out) {
  int least = count_of(o, 0), most = least;
  for (int k = 1; k < o->nnodes; k++) {
    int n = count_of(o, k);
    least = n < least ? n : least;
    most = n > most ? n : most;
  }
  zb_text_add(out, "%d node%s of %d", o->nnodes, o->nnodes > 1 ? "s" : "", least);
  if (most != least) zb_text_add(out, " to %d", most);
  zb_text_add(out, " rank%s", most > 1 ? "s" : "");
}

static ZpDims from_dim(const ZpMesh *m, int d) {
  ZpDims dims = 0;
  for (; d < m->ndims; d++)
    if (m->dim[d].size > 1) dims |= 1u << d;
  return dims;
}

/* Why the blocks of the dims from `d` on are not all on one node, if they might be, or if
 * nothing at all is. */
static void explain(const ZpMesh *m, ZbArena *a, const Nodes *o, const int *order, int d, ZbText *out) {
  int block = block_of(m, d), n = spanning(m, o, order, d), most = 0;
  for (int k = 0; k < o->nnodes; k++) most = count_of(o, k) > most ? count_of(o, k) : most;
  const char *name = zp_dims_text(m, a, from_dim(m, d));
  bool innermost = !from_dim(m, d + 1);
  if (block > most) {
    if (innermost && most > 1)
      zb_text_add(out, "note: %s (%d ranks) spans nodes: none has so many ranks\n", name, block);
    return;
  }
  zb_text_add(out,
              "note: %d of %d groups of %s (%d ranks) span%s nodes and wait%s for the network: nodes of ", n,
              o->nranks / block, name, block, n == 1 ? "s" : "", n == 1 ? "s" : "");
  bool first = true;
  for (int k = 0, told = 0; k < o->nnodes && told < 4; k++) {
    bool before = false;
    for (int i = 0; i < k; i++) before |= count_of(o, i) == count_of(o, k);
    if (before || count_of(o, k) % block == 0) continue;
    zb_text_add(out, "%s%d", first ? "" : " or ", count_of(o, k));
    first = false;
    told++;
  }
  zb_text_add(out, " ranks hold no whole number of them; give nodes a multiple of %d ranks\n", block);
}

enum { NODES_TOLD = 8 };

/* "ranks are in order of nodes: 0, 1 (mpirun's 0, 2); 2, 3 (mpirun's 1, 3)" */
static void tell_order(ZbArena *a, const Nodes *o, const int *order, ZbText *out) {
  int *now = ZB_NEWN(a, int, o->nranks), *was = ZB_NEWN(a, int, o->nranks);
  zb_text_add(out, "ranks are in order of nodes: ");
  for (int k = 0; k < o->nnodes && k < NODES_TOLD; k++) {
    int n = 0;
    for (int i = 0; i < o->nranks; i++)
      if (o->node[order[i]] == k) now[n] = i, was[n++] = order[i];
    if (k) zb_text_add(out, "; ");
    zb_text_ranges(out, now, n);
    zb_text_add(out, " (mpirun's ");
    zb_text_ranges(out, was, n);
    zb_text_add(out, ")");
  }
  if (o->nnodes > NODES_TOLD) zb_text_add(out, "; and so on");
  zb_text_add(out, "\n");
}

void zp_show_nodes(const ZpMesh *m, ZbArena *a, const int *node, const int *order, ZbText *out) {
  Nodes o = nodes_of(a, node, (int)m->nranks);
  if (o.nnodes < 2) return;
  bool moved = false;
  for (int i = 0; i < o.nranks; i++) moved |= order[i] != i;
  int d = m->ndims - 1;                   /* the innermost whose blocks are not all on one node */
  while (!spanning(m, &o, order, d)) d--; /* ends at 0: the whole is not */
  ZpDims inside = from_dim(m, d + 1), between = from_dim(m, 0) & ~inside;
  count_text(&o, out);
  if (inside) zb_text_add(out, "; inside nodes: %s", zp_dims_text(m, a, inside));
  zb_text_add(out, "; between nodes: %s\n", zp_dims_text(m, a, between));
  if (moved) tell_order(a, &o, order, out);
  explain(m, a, &o, order, d, out);
}
