/* recent: what tokens before had, from this step or from what earlier ones left; then the last of each
 * sequence are left for later ones. */
#include "kernels/cpu/step.h"

typedef struct {
  ZkView x, r, y;
  ZkTokens tokens;
  ZkNest rest;                          /* views: y, x, r */
  ZkLoop run;                           /* its fastest loop */
  int64_t ntokens, reach, sequence, at; /* strides of r: of sequences, of places */
  int64_t token[2], tap, taps, by;      /* strides of tokens: of y, of x; of taps. taps 0: none */
  float edge;
} Recent;

/* Stores x of `ago` tokens before token t. */
static void store_one(const Recent *p, int64_t t, int64_t to, int64_t ago) {
  int64_t sequence = zk_sequence(&p->tokens, t),
          before = sequence < 0 ? -1 : zk_position(&p->tokens, t) - ago, rest = zk_nest_count(&p->rest);
  bool here = t >= ago && zk_sequence(&p->tokens, t - ago) == sequence;
  const ZkView *from = here ? &p->x : &p->r;
  int view = here ? 1 : 2;
  int64_t base = here ? (t - ago) * p->token[1] : sequence * p->sequence + before % p->reach * p->at;
  ZkWalk w;
  zk_walk_seek(&p->rest, &w, 0);
  for (int64_t i = 0; i < rest; i++, zk_walk_next(&p->rest, &w)) {
    if (before < 0) zk_fill_run(&p->y, to + w.off[0], p->run.s[0], sequence < 0 ? 0 : p->edge, p->run.n);
    else zk_copy_run(&p->y, to + w.off[0], p->run.s[0], from, base + w.off[view], p->run.s[view], p->run.n);
  }
}

static void read_tokens(void *arg, int64_t from, int64_t to, int part) {
  const Recent *p = arg;
  (void)part;
  for (int64_t t = from; t < to; t++) {
    if (!p->taps) store_one(p, t, t * p->token[0], p->by);
    for (int64_t k = 0; k < p->taps; k++)
      store_one(p, t, t * p->token[0] + k * p->tap, (p->taps - 1 - k) * p->by);
  }
}

/* Tokens whose place no later token of this step takes. */
static void leave_tokens(void *arg, int64_t from, int64_t to, int part) {
  const Recent *p = arg;
  int64_t rest = zk_nest_count(&p->rest);
  (void)part;
  for (int64_t t = from; t < to; t++) {
    int64_t sequence = zk_sequence(&p->tokens, t), later = t + p->reach;
    if (sequence < 0 || (later < p->ntokens && zk_sequence(&p->tokens, later) == sequence)) continue;
    int64_t at = sequence * p->sequence + zk_position(&p->tokens, t) % p->reach * p->at;
    ZkWalk w;
    zk_walk_seek(&p->rest, &w, 0);
    for (int64_t i = 0; i < rest; i++, zk_walk_next(&p->rest, &w))
      zk_copy_run(&p->r, at + w.off[0], p->run.s[0], &p->x, t * p->token[1] + w.off[1], p->run.s[1],
                  p->run.n);
  }
}

static void over_tokens(const ZkEnv *env, Recent *p, ZkForFn *fn) {
  zk_nest_order(&p->rest, 0);
  p->run = zk_nest_pop(&p->rest);
  int64_t work = zk_max(1, zk_nest_count(&p->rest) * p->run.n * zk_max(1, p->taps));
  zk_for(env, p->ntokens, zk_max(1, 16384 / work), fn, p);
}

void zk_cpu_recent(const ZkEnv *env, const ZkCall *c) {
  uint16_t token = c->ax[0], tap = c->nax > 3 ? c->ax[3] : 0, none[] = {token, tap};
  Recent p = {.x = c->in[0], .r = c->in[1], .tokens = zk_tokens(&c->in[2], &c->in[3], token)};
  int64_t by = c->opt[0], which = c->opt[1];
  p.edge = (float)c->num[0];
  p.ntokens = zk_axis_size(&p.x, token);
  p.reach = zk_axis_size(&p.r, c->ax[2]);
  p.sequence = zk_axis_stride(&p.r, c->ax[1]), p.at = zk_axis_stride(&p.r, c->ax[2]);
  p.token[1] = zk_axis_stride(&p.x, token);
  for (int o = 0, b = 0; o < c->nout; o++, b++) {
    while (which && !(which >> b & 1)) b++;
    p.by = which ? b : by;
    p.y = c->out[o];
    p.taps = c->nax > 3 ? zk_axis_size(&p.y, tap) : 0;
    p.tap = c->nax > 3 ? zk_axis_stride(&p.y, tap) : 0;
    p.token[0] = zk_axis_stride(&p.y, token);
    p.rest = zk_nest((const ZkView *[]){&p.y, &p.x, &p.r}, 3, none, c->nax > 3 ? 2 : 1, false);
    over_tokens(env, &p, read_tokens);
  }
  p.taps = 0;
  p.rest = zk_nest((const ZkView *[]){&p.r, &p.x}, 2, (uint16_t[]){c->ax[1], c->ax[2]}, 2, false);
  over_tokens(env, &p, leave_tokens);
}
