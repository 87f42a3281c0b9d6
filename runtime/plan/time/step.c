/* How long steps of generation take. A plan is made for the most tokens that a step has; a step of fewer plays
 * the same calls on fewer rows, as the engine does (engine/tokens.c), and what it reads of caches depends on how
 * far its sequences have come. So a step is timed with what is in it, a ZpStepLoad.
 *
 * Products of a step read each weight once, however few their rows are: that is the cost of a token of one
 * sequence. Tokens of experts read the weights of those experts that some token has chosen: of E experts of which
 * each token takes k, t tokens that choose alike take E (1 - (1 - k/E)^t) different ones in the mean.
 *
 * Example: Llama 3 8B in bf16 has 15 GB of weights without its table, which 2,900 GB/s read in 5.2 ms; 64
 * sequences of 2,000 tokens have 16.8 GB of keys and values, which take 5.8 ms more. */
#include "runtime/plan/time/internal.h"

#include <math.h>

/* ---- what of the plan is in a step --------------------------------------------------------------------- */
static double tokens_of(const ZpStepLoad *l) { return (double)(l->writes.tokens + l->reads.tokens); }
static double sequences_of(const ZpStepLoad *l) { return (double)(l->writes.sequences + l->reads.sequences); }

static double share(const Cost *x, uint16_t axis, double n) {
  double most = (double)x->p->layout.axis_size[axis];
  return fmin(1, n / most);
}

double zp_step_tokens(const Cost *x) { return share(x, x->p->stream->axis.token, tokens_of(x->load)); }

/* Returns which share of an axis a step has, in the mean: of rows of experts as many as its tokens choose. */
static double share_of_axis(const Cost *x, uint16_t axis) {
  const ZpStreamAxes *ax = &x->p->stream->axis;
  if (axis == ax->token) return zp_step_tokens(x);
  if (axis == ax->row) return share(x, axis, sequences_of(x->load));
  if (axis == ax->sequence) return share(x, axis, sequences_of(x->load));
  bool slots = axis < x->p->graph->naxes && x->p->layout.experts[axis] != ZP_NO_AXIS;
  return slots ? zp_step_tokens(x) * x->p->layout.load[axis] : 1;
}

static double share_of_view(const Cost *x, const ZkView *v) {
  double s = 1;
  for (int i = 0; i < v->rank; i++) s *= share_of_axis(x, v->axis[i]);
  return s;
}

double zp_step_share(const Cost *x, const ZpValue *v) {
  double s = 1;
  for (int i = 0; i < v->type.naxes; i++) s *= share_of_axis(x, v->axis[i]);
  return s;
}

static double bytes_of(const Cost *x, const ZkView *v) {
  return zp_view_elems(v) * share_of_view(x, v) * zk_mean_bytes((ZkElem)v->elem);
}

/* Returns the bytes of all operands and results. */
static double all_bytes(const Cost *x, const ZkCall *k) {
  double bytes = 0;
  for (int i = 0; i < k->nin; i++) bytes += bytes_of(x, &k->in[i]);
  for (int i = 0; i < k->nout; i++) bytes += bytes_of(x, &k->out[i]);
  return bytes;
}

static bool has_axis(const ZkView *v, uint16_t axis) {
  for (int i = 0; i < v->rank; i++)
    if (v->axis[i] == axis) return true;
  return false;
}

/* ---- products ------------------------------------------------------------------------------------------ */
/* Returns the seconds in which rows go through weights, by measured rates of some numbers of rows, between which and
 * behind which they grow evenly: few rows take as long as weights are read, many as long as they are multiplied. */
static double as_measured(const double rate[4], double rows, double bytes) {
  static const double at[4] = {1, 8, 16, 128};
  int i = 0;
  while (i < 2 && rows > at[i + 1]) i++;
  double from = bytes / rate[i], to = bytes / rate[i + 1];
  return fmax(bytes / rate[0], from + (to - from) * (rows - at[i]) / (at[i + 1] - at[i]));
}

/* Returns the seconds of reading weights or of multiplying, whichever takes longer: in tiles, of parts of the depth,
 * since a product of few rows has few tiles. */
static double as_bound(const ZlCluster *c, const ZpStepProduct *p, double bandwidth) {
  double rate = c->products * zp_peaks(c, p->elem).flops, flops = INFINITY, fill;
  for (double parts = 1; parts <= 16; parts *= 2) {
    double all = zp_product_flops(c->sms, p->rows, p->columns, p->depth / parts, p->batch * parts, &fill);
    flops = fmin(flops, all + c->tile_fill * fill);
    if (!(c->sms > 0)) break;
  }
  return fmax(p->weights / bandwidth, flops / rate);
}

double zp_step_product_seconds(const ZlCluster *c, const ZpStepProduct *p) {
  const double f32[4] = {c->weights1, c->weights8, c->weights16, c->weights128},
               bf16[4] = {c->weights1_bf16, c->weights8_bf16, c->weights16_bf16, c->weights128_bf16};
  const double *rate = p->elem == ZK_BF16 ? bf16 : f32;
  bool measured = rate[0] > 0 && rate[1] > 0 && rate[2] > 0 && rate[3] > 0;
  double weights =
      measured ? as_measured(rate, p->rows, p->weights) : as_bound(c, p, rate[0] > 0 ? rate[0] : c->stream);
  return weights + p->others / c->stream + c->launch;
}

static double dot(const Cost *x, const ZpNode *n) {
  const ZkCall *k = &n->call;
  ZpProduct all = zp_product_of(k);
  double of[2] = {share_of_view(x, &k->in[0]), share_of_view(x, &k->in[1])};
  int w = of[1] < of[0] ? 0 : 1; /* which operand the weights are: the one that no step makes smaller */
  ZpStepProduct p = {.rows = (w ? all.m : all.n) * of[!w],
                     .columns = w ? all.n : all.m,
                     .depth = all.depth,
                     .batch = all.batch,
                     .weights = bytes_of(x, &k->in[w]),
                     .elem = zp_product_elem(k, w)};
  p.others = all_bytes(x, k) - p.weights;
  return zp_step_product_seconds(x->c, &p);
}

/* Rows of experts: a product for each expert that has some, of as many rows as they have in the mean. */
static double grouped(const Cost *x, const ZpNode *n) {
  const ZkCall *k = &n->call;
  const ZkView *rows = &k->in[0], *w = &k->in[1];
  double experts = 1, depth = 1, columns = 1, each = share_of_view(x, rows);
  for (int i = 0; i < rows->rank; i++)
    if (rows->axis[i] == k->ax[1]) each *= (double)rows->size[i];
  for (int i = 0; i < w->rank; i++) {
    double size = (double)w->size[i];
    bool summed = false;
    for (int a = 2; a < k->nax; a++) summed |= k->ax[a] == w->axis[i];
    *(w->axis[i] == k->ax[0] ? &experts : summed ? &depth : &columns) *= size;
  }
  double tokens = tokens_of(x->load), left = pow(1 - fmin(1, each / tokens), tokens);
  ZpStepProduct p = {.rows = fmax(1, each * experts / fmax(1, experts * (1 - left))),
                     .columns = columns,
                     .depth = depth,
                     .batch = fmax(1, experts * (1 - left)),
                     .weights = bytes_of(x, w) * (1 - left),
                     .elem = zp_product_elem(k, 1)};
  p.others = bytes_of(x, rows) + bytes_of(x, &k->out[0]);
  return zp_step_product_seconds(x->c, &p);
}

/* ---- attention over pages ------------------------------------------------------------------------------ */
/* Returns how many positions a token of these sees, in the mean, through a window (0: none). */
static double seen_by(const ZpStepTokens *t, double window) {
  return window > 0 ? fmin(t->seen, window) : t->seen;
}

/* Returns how many positions of these tokens' sequences are seen by some of them, in all. */
static double positions_of(const ZpStepTokens *t, double window) {
  if (!t->sequences) return 0;
  double each = (double)t->tokens / (double)t->sequences;
  return (double)t->sequences * (seen_by(t, window) + (each - 1) / 2);
}

/* Returns the bytes of one position of a rank's keys or values. */
static double position_bytes(const ZkView *v, uint16_t page, uint16_t within) {
  double bytes = zk_mean_bytes((ZkElem)v->elem);
  for (int i = 0; i < v->rank; i++)
    if (v->axis[i] != page && v->axis[i] != within) bytes *= (double)v->size[i];
  return bytes;
}

/* Returns the FLOPs of attention of as many pairs of tokens and positions: products of queries and keys, and of
 * weights and values. */
static double pair_flops(const ZkCall *k) {
  const ZkView *q = &k->in[0], *o = &k->out[0];
  double heads = 1, h = 1, w = 1;
  for (int i = 0; i < q->rank; i++)
    if (q->axis[i] != k->ax[0]) *(q->axis[i] == k->ax[1] ? &h : &heads) *= (double)q->size[i];
  for (int i = 0; i < o->rank; i++)
    if (o->axis[i] == k->ax[2]) w *= (double)o->size[i];
  return 2 * heads * (h + w);
}

/* Returns which share of a step's tokens a rank attends for: its own samples'. */
static double mine(const Cost *x, const ZkView *q) {
  uint16_t token = x->p->stream->axis.token;
  for (int i = 0; i < q->rank; i++)
    if (q->axis[i] == token) return (double)q->size[i] / (double)x->p->layout.axis_size[token];
  return 1;
}

static double attend_pages(const Cost *x, const ZpNode *n) {
  const ZkCall *k = &n->call;
  const ZpStepTokens *of[2] = {&x->load->writes, &x->load->reads};
  double window = (double)k->opt[1], position = position_bytes(&k->in[1], k->ax[5], k->ax[6]), pairs = 0,
         positions = 0, own = mine(x, &k->in[0]);
  if (n->in[2] != n->in[1]) position += position_bytes(&k->in[2], k->ax[5], k->ax[6]);
  for (int i = 0; i < 2; i++) {
    pairs += own * (double)of[i]->tokens * seen_by(of[i], window);
    positions += own * positions_of(of[i], window);
  }
  double read = (positions * position + bytes_of(x, &k->in[0]) + bytes_of(x, &k->out[0])) / x->c->stream;
  double rate = zp_attention_rate(x->c, (ZkElem)k->in[0].elem);
  return fmax(read, pairs * pair_flops(k) / rate) + x->c->launch;
}

/* Keys of a sequence's own: all of them are seen. */
static double attend_own(const Cost *x, const ZpNode *n) {
  const ZkCall *k = &n->call;
  double keys = 1;
  for (int i = 0; i < k->in[1].rank; i++)
    if (k->in[1].axis[i] == k->ax[4]) keys *= (double)k->in[1].size[i];
  double pairs = tokens_of(x->load) * mine(x, &k->in[0]) * keys;
  double rate = zp_attention_rate(x->c, (ZkElem)k->in[0].elem);
  return fmax(all_bytes(x, k) / x->c->stream, pairs * pair_flops(k) / rate) + x->c->launch;
}

/* ---- the rest ------------------------------------------------------------------------------------------ */
/* Returns the bytes that another call moves. Caches are changed in place: of pages only what is put there, of
 * the state of a sequence all. */
static double moved(const Cost *x, const ZkCall *k) {
  const ZpStreamAxes *ax = &x->p->stream->axis;
  double bytes = 0;
  if (k->op == ZG_OP_PUT_PAGES) return 2 * bytes_of(x, &k->in[0]);
  if (k->op == ZG_OP_ROWS) return 2 * bytes_of(x, &k->out[0]);
  if (k->op == ZG_OP_LOOKUP) return bytes_of(x, &k->in[1]) + 2 * bytes_of(x, &k->out[0]);
  for (int i = 0; i < k->nin; i++) {
    bool state = zg_op_info[k->op].steps && has_axis(&k->in[i], ax->sequence);
    bytes += (state ? 2 : 1) * bytes_of(x, &k->in[i]);
  }
  for (int i = 0; i < k->nout; i++) bytes += bytes_of(x, &k->out[i]);
  return bytes;
}

/* Logits leave the device. */
static double output(const Cost *x, const ZkCall *k) { return 2 * bytes_of(x, &k->in[0]) / x->c->stream; }

double zp_step_call_seconds(const Cost *x, const ZpNode *n) {
  const ZkCall *k = &n->call;
  switch (k->op) {
  case ZG_OP_DOT: return dot(x, n);
  case ZG_OP_GROUPED_DOT: return grouped(x, n);
  case ZG_OP_ATTEND_PAGES: return attend_pages(x, n);
  case ZG_OP_ATTEND_OWN: return attend_own(x, n);
  case ZG_OP_OUTPUT: return output(x, k);
  default: return zp_stream_seconds(x->c, moved(x, k));
  }
}
