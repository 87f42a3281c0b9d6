/* Rows of experts: which row each token and choice has, which of them a round has, and rows there and back.
 *
 * A row is copied by whoever has its token, so threads share tokens. What combine adds up of one token comes
 * in the order of rows: that is the same in one round and in many. */
#include "kernels/cpu/cpu.h"

#define PIECE 512 /* elements of a row at once */

/* ---- slots --------------------------------------------------------------------------------------------- */
void zk_cpu_slots(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *e = &c->in[0], *place = &c->out[0], *views[] = {e, place};
  ZkNest tokens = zk_nest(views, 2, &c->ax[2], 1, false);
  int64_t k = zk_axis_size(e, c->ax[2]), se = zk_axis_stride(e, c->ax[2]),
          sp = zk_axis_stride(place, c->ax[2]);
  int64_t n = zk_nest_count(&tokens), experts = zk_axis_size(&c->out[1], c->ax[0]);
  int32_t *ends = c->out[1].data;
  memset(ends, 0, (size_t)experts * sizeof *ends);
  for (int pass = 0; pass < 2; pass++) { /* counts rows; then gives each the next one of its expert */
    ZkWalk w;
    zk_walk_seek(&tokens, &w, 0);
    for (int64_t t = 0; t < n; t++, zk_walk_next(&tokens, &w))
      for (int64_t i = 0; i < k; i++) {
        int32_t id = ((const int32_t *)e->data)[w.off[0] + i * se];
        bool known = id >= 0 && id < experts;
        if (pass) ((int32_t *)place->data)[w.off[1] + i * sp] = known ? ends[id]++ : -1;
        else if (known) ends[id]++;
      }
    int32_t before = 0;
    for (int64_t i = 0; i < experts && !pass; i++) {
      int32_t mine = ends[i];
      ends[i] = before;
      before += mine;
    }
  }
}

void zk_cpu_round(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const int32_t *ends = c->in[0].data;
  int32_t *now = c->out[0].data;
  int64_t rows = c->opt[1], first = c->opt[0] * rows;
  for (int64_t i = 0; i < zk_view_count(&c->in[0]); i++)
    now[i] = (int32_t)zk_min(rows, zk_max(0, ends[i] - first));
}

/* ---- rows ---------------------------------------------------------------------------------------------- */
typedef struct {
  ZkView tokens, place, rows;
  ZkNest at;         /* of tokens; views: place, tokens */
  ZkNest rest;       /* of a row without its innermost axis; views: rows, tokens */
  ZkLoop side;       /* that */
  int64_t k, sp, st; /* choices, and their strides in place and tokens */
  int64_t first, n, slots, per_expert, per_slot; /* rows of this round, and where they lie */
  int64_t from;                                  /* the first that no token has */
  bool keep, adds;
} Rows;

static Rows rows_of(const ZkCall *c, const ZkView *tokens, const ZkView *rows) {
  Rows r = {
      .tokens = *tokens, .place = c->in[1], .rows = *rows, .keep = c->opt[0] == 1, .adds = c->accumulate};
  const ZkView *of_tokens[] = {&r.place, &r.tokens}, *of_rows[] = {&r.rows, &r.tokens};
  r.at = zk_nest(of_tokens, 2, &c->ax[2], 1, false);
  r.rest = zk_nest(of_rows, 2, c->ax, 2, false);
  r.side = zk_nest_pop(&r.rest);
  r.k = zk_axis_size(&r.place, c->ax[2]);
  r.sp = zk_axis_stride(&r.place, c->ax[2]);
  r.st = zk_axis_stride(&r.tokens, c->ax[2]);
  r.per_expert = zk_axis_stride(rows, c->ax[0]);
  r.per_slot = zk_axis_stride(rows, c->ax[1]);
  r.slots = zk_axis_size(rows, c->ax[1]);
  r.n = r.slots * zk_axis_size(rows, c->ax[0]);
  r.first = c->opt[1];
  const ZkView *now = &c->in[2];
  int64_t last = (zk_axis_size(now, c->ax[0]) - 1) * zk_axis_stride(now, c->ax[0]);
  r.from = ((const int32_t *)now->data)[last];
  return r;
}

/* The row of this round that a choice has; -1: none. */
static int64_t row_at(const Rows *r, int64_t place, int64_t choice) {
  int64_t row = ((const int32_t *)r->place.data)[place + choice * r->sp], at = row - r->first;
  return row >= 0 && at >= 0 && at < r->n ? at : -1;
}

enum { NOBODY = -1 }; /* a row, or a token, of zeros */

/* A row and what a token, or one of its choices, has of it: to the row; or back, added or as it is. */
static void copy_row(const Rows *r, int64_t row, int64_t token, bool to_rows, bool adds) {
  float piece[PIECE];
  ZkWalk w;
  zk_walk_seek(&r->rest, &w, 0);
  for (int64_t i = zk_nest_count(&r->rest); i > 0; i--, zk_walk_next(&r->rest, &w)) {
    int64_t x = w.off[0] + row / r->slots * r->per_expert + row % r->slots * r->per_slot,
            y = w.off[1] + token;
    for (int64_t f = 0, m; f < r->side.n; f += m) {
      m = zk_min(PIECE, r->side.n - f);
      int64_t sx = x + f * r->side.s[0], sy = y + f * r->side.s[1];
      if (to_rows) {
        if (token == NOBODY) zk_run_fill(piece, 0, m);
        else zk_load(piece, &r->tokens, sy, r->side.s[1], m);
        zk_store(&r->rows, sx, r->side.s[0], m, piece, false);
      } else {
        if (row == NOBODY) zk_run_fill(piece, 0, m);
        else zk_load(piece, &r->rows, sx, r->side.s[0], m);
        zk_store(&r->tokens, sy, r->side.s[1], m, piece, adds);
      }
    }
  }
}

static void run_dispatch(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  const Rows *r = arg;
  ZkWalk w;
  zk_walk_seek(&r->at, &w, from);
  for (int64_t t = from; t < to; t++, zk_walk_next(&r->at, &w))
    for (int64_t i = 0; i < r->k; i++) {
      int64_t row = row_at(r, w.off[0], i);
      if (row >= 0) copy_row(r, row, w.off[1] + i * r->st, true, false);
    }
}

static void run_combine(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  const Rows *r = arg;
  ZkWalk w;
  zk_walk_seek(&r->at, &w, from);
  for (int64_t t = from; t < to; t++, zk_walk_next(&r->at, &w)) {
    bool any = r->adds;
    for (int64_t i = 0; r->keep && i < r->k; i++) {
      int64_t row = row_at(r, w.off[0], i);
      if (row >= 0 || !r->adds) copy_row(r, row, w.off[1] + i * r->st, false, false);
    }
    for (int64_t last = -1; !r->keep;) {
      int64_t next = r->n;
      for (int64_t i = 0; i < r->k; i++) {
        int64_t row = row_at(r, w.off[0], i);
        if (row > last && row < next) next = row;
      }
      if (next == r->n) {
        if (!any) copy_row(r, NOBODY, w.off[1], false, false);
        break;
      }
      copy_row(r, next, w.off[1], false, any);
      any = true;
      last = next;
    }
  }
}

static void run_clear(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  const Rows *r = arg;
  for (int64_t row = from; row < to; row++) copy_row(r, r->from + row, NOBODY, true, false);
}

static int64_t grain(const Rows *r) {
  return zk_max(1, 16384 / zk_max(1, r->k * zk_nest_count(&r->rest) * r->side.n));
}

void zk_cpu_dispatch(const ZkEnv *env, const ZkCall *c) {
  Rows r = rows_of(c, &c->in[0], &c->out[0]);
  zk_for(env, zk_nest_count(&r.at), grain(&r), run_dispatch, &r);
  zk_for(env, r.n - r.from, grain(&r), run_clear, &r);
}

void zk_cpu_combine(const ZkEnv *env, const ZkCall *c) {
  Rows r = rows_of(c, &c->out[0], &c->in[0]);
  zk_for(env, zk_nest_count(&r.at), grain(&r), run_combine, &r);
}
