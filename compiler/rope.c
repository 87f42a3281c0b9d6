/* Rotary positions: pair p of the n features that turn goes by speed[p] for each position. Plainly that is
 * base^(-2p/n), which the op `rope` knows. For more positions than a model was trained with it is one of:
 *
 *   linear   all turn `factor` times slower (Chen et al. 2023)
 *   llama3   pairs that turn less than `low` times in `context` positions turn `factor` times slower, those
 *            that turn more than `high` times stay, others lie between (Llama 3.1)
 *   yarn     the same, but between by the number of the pair and not by its speed; scores grow by a factor
 *            (Peng et al. 2023, as its authors' program and Hugging Face's have it)
 *
 * The speeds are a small tensor that elementwise operations make, and `rotate` takes it. */
#include "compiler/compose.h"

#include <math.h>

const char *const rope_rules[3] = {"linear", "llama3", "yarn"};

/* ---- what a call says ---------------------------------------------------------------------------------- */
static bool wrong(Elab *e, ZlSpan at, const char *text) {
  complain(e, ZL_Z0205, at, "`rope`: %s", text);
  return false;
}

static void otherwise(double *x, double value) {
  if (isnan(*x)) *x = value;
}

bool rope_check(Elab *e, ZlSpan at, RopeCall *r, int64_t h) {
  bool bands = r->rule == ROPE_LLAMA3 || r->rule == ROPE_YARN;
  bool table = r->speeds.kind == VAL_TENSOR;
  if (table && (r->rule != ROPE_PLAIN || !isnan(r->factor)))
    return wrong(e, at, "`speeds` are in the place of a `rule`");
  if (r->rule == ROPE_PLAIN && !isnan(r->factor))
    return wrong(e, at, "`factor` needs `rule = linear`, `rule = llama3` or `rule = yarn`");
  if (!bands && !(isnan(r->context) && isnan(r->low) && isnan(r->high)))
    return wrong(e, at, "`context`, `low` and `high` belong to `rule = llama3` and `rule = yarn`");
  if (r->rule != ROPE_PLAIN && isnan(r->factor)) return wrong(e, at, "the rule needs a `factor`");
  if (bands && isnan(r->context))
    return wrong(e, at, "the rule needs `context`, the positions that the model was first trained with");
  otherwise(&r->factor, 1);
  otherwise(&r->low, 1);
  otherwise(&r->high, r->rule == ROPE_YARN ? 32 : 4);
  otherwise(&r->attention, r->rule == ROPE_YARN && r->factor > 1 ? 0.1 * log(r->factor) + 1 : 1);
  if (!r->features) r->features = h;
  if (r->features != h && r->features % 2)
    return wrong(e, at, "pairs turn: `features` must be an even number");
  if (!(r->base > 0) || (r->rule == ROPE_YARN && !(r->base > 1)))
    return wrong(e, at, r->base > 0 ? "`base` must be greater than 1 here" : "`base` must be positive");
  if (!(r->factor > 0)) return wrong(e, at, "`factor` must be positive");
  if (bands && !(r->context > 0)) return wrong(e, at, "`context` must be positive");
  if (bands && !(r->low > 0 && r->low < r->high))
    return wrong(e, at, "`low` must be positive and less than `high`");
  if (!(r->attention > 0)) return wrong(e, at, "`attention` must be positive");
  return true;
}

/* ---- speeds -------------------------------------------------------------------------------------------- */
typedef struct {
  Elab *e;
  ZlSpan at;
} Make;

static Val with(const Make *m, ZgOp op, Val a, Val b) {
  return place_node(m->e, m->at, (ZgNode){.op = (uint16_t)op, .nin = 2}, (Val[]){a, b}, NULL);
}
static Val num(const Make *m, double x) {
  return val_tensor(m->e, m->at, (Val){.kind = VAL_NUM, .num = num_double(x)}, ZG_F32);
}

/* From 0 to 1, as x goes from a to b. */
static Val ramp(const Make *m, Val x, double a, double b) {
  x = with(m, ZG_OP_MUL, with(m, ZG_OP_SUB, x, num(m, a)), num(m, 1 / (b - a)));
  return with(m, ZG_OP_MIN, with(m, ZG_OP_MAX, x, num(m, 0)), num(m, 1));
}

/* speed (keep + (1 - keep) / factor) */
static Val slowed(const Make *m, Val speed, Val keep, double factor) {
  Val slow = with(m, ZG_OP_MUL, with(m, ZG_OP_SUB, num(m, 1), keep), num(m, 1 / factor));
  return with(m, ZG_OP_MUL, speed, with(m, ZG_OP_ADD, keep, slow));
}

/* The pair that turns so many times in `context` positions, perhaps between two. */
static double pair_turning(const RopeCall *r, double times) {
  return (double)r->features * log(r->context / (times * 2 * M_PI)) / (2 * log(r->base));
}

/* Of pair p at p along h; entries beyond the pairs mean nothing. */
static Val speeds(const Make *m, uint16_t h, const RopeCall *r) {
  Val pair = compose_place(m->e, m->at, h), n = num(m, (double)r->features);
  Val power = with(m, ZG_OP_DIV, with(m, ZG_OP_MUL, pair, num(m, 2)), n);
  Val speed = with(m, ZG_OP_DIV, num(m, 1), with(m, ZG_OP_POW, num(m, r->base), power));
  if (r->rule == ROPE_PLAIN) return speed;
  if (r->rule == ROPE_LINEAR) return with(m, ZG_OP_DIV, speed, num(m, r->factor));
  if (r->rule == ROPE_LLAMA3) {
    Val turns = with(m, ZG_OP_MUL, speed, num(m, r->context / (2 * M_PI)));
    return slowed(m, speed, ramp(m, turns, r->low, r->high), r->factor);
  }
  double from = fmax(floor(pair_turning(r, r->high)), 0);
  double to = fmin(ceil(pair_turning(r, r->low)), (double)r->features - 1);
  if (to <= from) to = from + 0.001; /* a step, not a division by 0 */
  return slowed(m, speed, with(m, ZG_OP_SUB, num(m, 1), ramp(m, pair, from, to)), r->factor);
}

Val compose_rope(Elab *e, ZlSpan at, Val x, uint16_t s, uint16_t h, const RopeCall *r) {
  Make m = {e, at};
  Val positions = r->at.kind == VAL_TENSOR ? val_cast(e, at, r->at, ZG_F32) : compose_place(e, at, s);
  ZgNode n = {.op = ZG_OP_ROTATE,
              .nin = 3,
              .nax = 1,
              .ax = {h},
              .num = {r->attention},
              .opt = {r->beside ? ZG_ROTATE_BESIDE : 0, r->features}};
  Val table = r->speeds.kind == VAL_TENSOR ? r->speeds : speeds(&m, h, r);
  return place_node(e, at, n, (Val[]){x, positions, table}, NULL);
}
