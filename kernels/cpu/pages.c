/* put_pages: rows of a step's tokens to where their sequences' pages lie. Also the copies of runs that the
 * kernels of steps make. */
#include "kernels/cpu/step.h"

#define PIECE 512 /* elements at once, where types differ */

static void copy4(uint32_t *y, int64_t s, const uint32_t *x, int64_t t, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i * s] = x[i * t];
}

static void copy2(uint16_t *y, int64_t s, const uint16_t *x, int64_t t, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i * s] = x[i * t];
}

void zk_copy_run(const ZkView *to, int64_t at, int64_t s, const ZkView *from, int64_t off, int64_t t,
                 int64_t n) {
  size_t bytes = zk_plain_bytes((ZkElem)to->elem);
  if (to->elem == from->elem && (n == 1 || (s == 1 && t == 1))) {
    memcpy(zk_at(to, at), zk_at(from, off), (size_t)n * bytes);
  } else if (to->elem == from->elem && bytes == 4) {
    copy4((uint32_t *)to->data + at, s, (const uint32_t *)from->data + off, t, n);
  } else if (to->elem == from->elem && bytes == 2) {
    copy2((uint16_t *)to->data + at, s, (const uint16_t *)from->data + off, t, n);
  } else {
    float buf[PIECE];
    for (int64_t i = 0; i < n; i += PIECE) {
      int64_t m = zk_min(PIECE, n - i);
      zk_load(buf, from, off + i * t, t, m);
      zk_store(to, at + i * s, s, m, buf, false);
    }
  }
}

void zk_fill_run(const ZkView *to, int64_t at, int64_t s, float x, int64_t n) {
  float buf[PIECE];
  zk_run_fill(buf, x, zk_min(n, PIECE));
  for (int64_t i = 0; i < n; i += PIECE) zk_store(to, at + i * s, s, zk_min(PIECE, n - i), buf, false);
}

typedef struct {
  ZkView x, c;
  ZkTokens tokens;
  ZkNest rest; /* what a token has; views: c, x */
  ZkLoop run;
  const int32_t *table;
  int64_t by_sequence, by_entry; /* strides of the table */
  int64_t token, page, within;   /* strides of x; of c */
  int64_t size;                  /* positions of a page */
} Put;

static void put_tokens(void *arg, int64_t from, int64_t to, int part) {
  const Put *p = arg;
  int64_t rest = zk_nest_count(&p->rest);
  (void)part;
  for (int64_t i = from; i < to; i++) {
    int64_t sequence = zk_sequence(&p->tokens, i), position;
    if (sequence < 0) continue;
    position = zk_position(&p->tokens, i);
    int64_t page = p->table[sequence * p->by_sequence + position / p->size * p->by_entry];
    ZB_ASSERT(page >= 0);
    int64_t at = page * p->page + position % p->size * p->within;
    ZkWalk w;
    zk_walk_seek(&p->rest, &w, 0);
    for (int64_t r = 0; r < rest; r++, zk_walk_next(&p->rest, &w))
      zk_copy_run(&p->c, at + w.off[0], p->run.s[0], &p->x, i * p->token + w.off[1], p->run.s[1], p->run.n);
  }
}

void zk_cpu_put_pages(const ZkEnv *env, const ZkCall *c) {
  uint16_t token = c->ax[0], page = c->ax[3], within = c->ax[4];
  const ZkView *table = &c->in[2];
  Put p = {.x = c->in[0], .c = c->out[0], .tokens = zk_tokens(&c->in[3], &c->in[4], token)};
  ZB_ASSERT(c->out[0].data == c->in[1].data);
  p.table = zk_ids(table);
  p.by_sequence = zk_axis_stride(table, c->ax[1]), p.by_entry = zk_axis_stride(table, c->ax[2]);
  p.token = zk_axis_stride(&p.x, token);
  p.page = zk_axis_stride(&p.c, page), p.within = zk_axis_stride(&p.c, within);
  p.size = zk_axis_size(&p.c, within);
  const ZkView *views[] = {&p.c, &p.x};
  p.rest = zk_nest(views, 2, (uint16_t[]){page, within}, 2, false);
  zk_nest_order(&p.rest, 0);
  p.run = zk_nest_pop(&p.rest);
  int64_t work = zk_max(1, zk_nest_count(&p.rest) * p.run.n);
  zk_for(env, zk_axis_size(&c->in[3], token), zk_max(1, 16384 / work), put_tokens, &p);
}
