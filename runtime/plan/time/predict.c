/* Generation, made of steps.
 *
 * A prompt is read in steps of as many tokens as the plan's, each of which sees what the steps before have left
 * in the caches. Then each step writes a token of every sequence of a wave. A pipeline of P stages has P waves
 * under way: a wave comes to a stage again when it has been through all of them, or when that stage has done the
 * other waves' steps, whichever is later.
 *
 * Example: four stages of 10 ms each, four waves of two sequences: 40 ms between the tokens of a sequence, and
 * 200 tokens a second. One sequence alone would be as slow, and leave three stages idle. */
#include "runtime/plan/time/internal.h"

#include <math.h>
#include <string.h>

typedef struct {
  ZbArena *a;
  const ZpPlan *p;
  const ZlCluster *c;
  ZlDiags *d;
  const ZpWriting *w;
  int64_t tokens, sequences; /* most of a step; of a wave */
  int64_t waves, replicas;
} Predict;

/* ---- one step ------------------------------------------------------------------------------------------ */
/* Returns the place of the ranks that share the words of logits. */
static ZpPlace words_of(const Predict *x) {
  const ZpMesh *m = &x->p->layout.mesh;
  uint16_t words = x->p->stream->model->inputs[x->p->stream->along.tokens].type.of;
  int64_t stride = 1, n = 1, first = 1;
  for (int d = m->ndims; d-- > 0; stride *= m->dim[d].size) {
    if (d == m->pipe || m->dim[d].size < 2 || !zp_dim_splits(&m->dim[d], words)) continue;
    if (n == 1) first = stride;
    n *= m->dim[d].size;
  }
  return zp_place_of_dim(x->c, n, first);
}

/* Returns the seconds of choosing tokens: ranks that share the words bring logits together, as f32, each looks at all
 * of them, the last stage says what was chosen, and the first rank with which decisions a step begins. */
static double choice(const Predict *x, const ZpStepLoad *l) {
  const ZpStream *s = x->p->stream;
  ZpPlace words = words_of(x), all = zp_place_of_dim(x->c, x->p->layout.mesh.nranks / x->replicas, 1);
  double rows = (double)(l->writes.sequences + l->reads.sequences), said = 64;
  double logits = rows * (double)x->p->layout.axis_size[s->model->inputs[s->along.tokens].type.of] * 4;
  double tell = zp_collective_seconds(x->c, ZG_OP_ALL_GATHER, said * (double)all.n, &all);
  return zp_collective_seconds(x->c, ZG_OP_ALL_GATHER, logits, &words) + 2 * logits / x->c->stream +
         (x->p->programs.nstages > 1 ? 2 : 1) * tell;
}

typedef struct {
  double all, slowest;     /* through all stages; of the stage that takes longest */
  double part[ZP_T_PARTS]; /* of `all`, in the mean of the stages */
} Step;

/* Returns false if the cluster lacks something, which is reported. */
static bool step(const Predict *x, const ZpStepLoad *l, Step *to) {
  const ZpTime *t = zp_step_time(x->a, x->p, x->c, l, x->d);
  if (!t) return false;
  double end = choice(x, l);
  *to = (Step){.all = t->seconds + end};
  for (uint32_t s = 0; s < x->p->programs.nstages; s++)
    to->slowest = fmax(to->slowest, t->seconds - t->stages[s].part[ZP_T_IDLE] + end);
  memcpy(to->part, t->mean, sizeof to->part);
  to->part[ZP_T_TENSOR] += end;
  return true;
}

/* ---- a prompt ------------------------------------------------------------------------------------------ */
static bool part_of_prompt(const Predict *x, int64_t from, int64_t tokens, double *seconds) {
  ZpStepLoad l = {.reads = {tokens, 1, (double)from + (double)(tokens + 1) / 2}};
  Step s;
  if (!step(x, &l, &s)) return false;
  *seconds = s.all;
  return true;
}

/* Times grow evenly from one whole step to the next, as what is seen does. */
static bool read_prompt(const Predict *x, ZpGenerationTime *t) {
  int64_t whole = x->w->prompt / x->tokens, rest = x->w->prompt % x->tokens;
  double first = 0, last = 0, end = 0;
  if (whole && !(part_of_prompt(x, 0, x->tokens, &first) &&
                 part_of_prompt(x, (whole - 1) * x->tokens, x->tokens, &last)))
    return false;
  if (rest && !part_of_prompt(x, whole * x->tokens, rest, &end)) return false;
  t->steps = whole + (rest > 0);
  t->first = (double)whole * (first + last) / 2 + end;
  return true;
}

/* ---- sequences that write ------------------------------------------------------------------------------ */
/* Returns the tokens of a step that writes one of each of n sequences, in the middle of their answers. */
static ZpStepTokens writing(const Predict *x, int64_t n) {
  return (ZpStepTokens){n, n, (double)x->w->prompt + (double)(x->w->answer + 1) / 2};
}

/* Returns a part of a prompt beside, in the middle of it. */
static ZpStepTokens reading(const Predict *x, int64_t n) {
  return (ZpStepTokens){n, n > 0, n > 0 ? (double)(x->w->prompt + 1) / 2 : 0};
}

/* Returns the time until a wave's next step. */
static double turn(const Predict *x, const Step *s) { return fmax(s->all, (double)x->waves * s->slowest); }

/* Returns how many replicas have sequences. */
static double busy(const Predict *x) {
  return (double)(x->replicas < x->w->sequences ? x->replicas : x->w->sequences);
}

static bool write_tokens(const Predict *x, ZpGenerationTime *t) {
  ZpStepLoad l = {.writes = writing(x, x->sequences)};
  Step s;
  if (!step(x, &l, &s)) return false;
  t->step = s.all;
  t->between = turn(x, &s);
  t->written = (double)x->sequences * (double)x->waves * busy(x) / t->between;
  memcpy(t->part, s.part, sizeof t->part);
  int64_t room = x->tokens - x->sequences;
  t->beside = t->between;
  if (room > x->w->prompt) room = x->w->prompt;
  l.reads = reading(x, room);
  if (room < 1) return true;
  if (!step(x, &l, &s)) return false;
  t->beside = turn(x, &s);
  return true;
}

/* Finds the tokens that are written a second where each sequence that ends makes place for another one: to each
 * token that is written belong prompt / answer tokens that are read. */
static bool mix(const Predict *x, ZpGenerationTime *t) {
  double reads = (double)x->w->prompt / (double)x->w->answer;
  double writes = fmin((double)x->sequences, (double)x->tokens / (1 + reads));
  int64_t n = writes < 1 ? 1 : (int64_t)writes;
  int64_t read = (int64_t)ceil((double)n * reads);
  double steps = 1; /* for a token of each of n sequences, where even one is more than a step has room for */
  if (n + read > x->tokens) {
    steps = (double)read / (double)(x->tokens - n > 0 ? x->tokens - n : 1);
    read = x->tokens - n;
  }
  ZpStepLoad l = {.writes = writing(x, n), .reads = reading(x, read)};
  Step s;
  if (!step(x, &l, &s)) return false;
  t->mixed = (double)(n * x->waves) * busy(x) / (fmax(1, steps) * turn(x, &s));
  if (t->mixed > t->written) t->mixed = t->written;
  return true;
}

ZpGenerationTime *zp_predict(ZbArena *a, const ZpPlan *p, const ZlCluster *c, const ZpWriting *w,
                             ZlDiags *d) {
  ZbArena *scratch = zb_arena_new();
  Predict x = {.a = scratch, .p = p, .c = c, .d = d, .w = w};
  ZpGenerationTime t = {.waves = 1};
  x.replicas = p->generating.replicas;
  int64_t each = (w->sequences + x.replicas - 1) / x.replicas;
  x.waves = p->programs.nstages < each ? p->programs.nstages : each;
  x.sequences = (each + x.waves - 1) / x.waves;
  x.tokens = p->layout.axis_size[p->stream->axis.token];
  t.waves = x.waves;
  bool ok = read_prompt(&x, &t) && write_tokens(&x, &t) && mix(&x, &t);
  t.answer = t.first + (double)(w->answer - 1) * t.between;
  zb_arena_free(scratch);
  if (!ok) return NULL;
  ZpGenerationTime *to = ZB_NEW(a, ZpGenerationTime);
  *to = t;
  return to;
}
