/* Draft tokens: what a sequence may go on with is guessed from its own text and checked in one step, since a
 * few tokens more take little longer where a step is bound by reading weights. A token is a function of
 * logits, seed and position, so a draft token is right or not, and none changes what is written. */
#include "runtime/exec/generate/generate.h"

/* ---- the guess ---- */
enum { LEAST = 2, LONG = 4, ENOUGH = 8 }; /* tokens that are alike */

uint32_t zx_draft(uint32_t *id, uint32_t n, uint32_t most, uint32_t *kind) {
  uint32_t like = 0, at = 0;
  for (uint32_t end = n - 1; end >= LEAST && like < ENOUGH; end--) {
    uint32_t same = 0;
    while (same < ENOUGH && same < end && id[end - 1 - same] == id[n - 1 - same]) same++;
    if (same <= like) continue;
    like = same;
    at = end;
  }
  if (like < LEAST) return 0;
  *kind = like >= LONG;
  for (uint32_t i = 0; i < most; i++)
    id[n + i] = id[at + i]; /* a text that repeats itself goes on doing so */
  return most;
}

/* ---- what steps take ---- */
/* Of the last 30 steps or so. A token more is taken to be a tenth of a step until steps of several sizes say
 * otherwise; the variance of their tokens has to be about two for that. */
static const double kept = 0.97, first_more = 0.1, doubt = 2;

ZxStepCost zx_step_cost(void) { return (ZxStepCost){.tokens = 1, .seconds = 1, .more = first_more}; }

void zx_step_cost_add(ZxStepCost *c, uint32_t tokens, double seconds) {
  double t = tokens, y = seconds;
  if (!(y > 0)) return;
  if (c->n <= 0) c->more = first_more * y;
  else if (y > 4 * c->seconds) y = 4 * c->seconds; /* it was interrupted */
  c->n = kept * c->n + 1;
  c->t = kept * c->t + t;
  c->tt = kept * c->tt + t * t;
  c->y = kept * c->y + y;
  c->ty = kept * c->ty + t * y;
  c->tokens = c->t / c->n;
  c->seconds = c->y / c->n;
  double variance = c->tt / c->n - c->tokens * c->tokens, both = c->ty / c->n - c->tokens * c->seconds;
  double more = (both + doubt * c->more) / (variance + doubt), most = c->seconds / c->tokens;
  c->more = more > most ? most : more < most / 200 ? most / 200 : more;
}

/* ---- how many ---- */
/* The probability of each draft token is that of those before times the sequence's rate. One more is worth it
 * if that is more tokens a second than the step makes without. */
uint32_t zx_drafts_worth(const ZxStepCost *c, double rate, uint32_t most, ZxStepGain *step) {
  uint32_t n = 0;
  for (double right = rate; n < most; n++, right *= rate) {
    double seconds = c->seconds + c->more * (step->tokens - c->tokens);
    if (right * seconds <= c->more * step->gain) break;
    step->tokens++;
    step->gain += right;
  }
  return n;
}

void zx_draft_rate(double *rate, uint32_t right, uint32_t wrong, double slowness) {
  for (; right; right--) *rate += (1 - *rate) / slowness;
  for (; wrong; wrong--) *rate -= *rate / slowness;
}
