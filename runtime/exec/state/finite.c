/* Whether a step can be gone on from. In a step only three numbers are looked at; why one of them is no good
 * is found out afterwards, when time does not matter: gradients are still there, data can be read again. All
 * ranks see the same sums, find out together, and say the same. */
#include "runtime/exec/state/slices.h"
#include "runtime/exec/state/state.h"
#include "runtime/plan/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- which parameters ---- */
typedef struct {
  uint32_t *first; /* of each parameter of the graph: the number of its first iteration */
  uint32_t n;
  double *lost; /* of each iteration: 1 if something in it is not finite */
} Lost;

static bool look(void *walk, uint64_t global, uint64_t n, float *at) {
  const ZxWalk *w = walk;
  Lost *l = w->ctx;
  (void)global;
  if (zb_not_finite(at, n) >= 0) l->lost[l->first[w->s->param] + w->iter] = 1;
  return true;
}

/* Collective: "3 of 52 parameters (wte, layer.0.w1, layer.1.w1)"; their number. */
static uint32_t find_lost(ZxEngine *e, bool grads, ZbText *out) {
  ZbArena *a = zb_arena_new(); /* may happen often */
  Lost l = {.first = ZB_NEWN(a, uint32_t, e->p->graph->nparams + 1)};
  uint32_t found = 0, named = 0;
  for (uint32_t i = 0; i < e->p->graph->nparams; i++) {
    l.first[i] = l.n;
    l.n += zx_iterations(e, i);
  }
  l.lost = ZB_NEWN(a, double, l.n + 1);
  zx_walk(e, &(ZxWalk){.each = look, .fetch = true, .grads = grads, .ctx = &l});
  e->world->t->wait(e->world, e->world->t->all_reduce(e->world, 0, l.lost, l.n, ZK_F64, ZX_MAX));
  for (uint32_t i = 0; i < l.n; i++) found += l.lost[i] > 0;
  if (found == l.n) zb_text_add(out, "all %u parameters", l.n);
  else zb_text_add(out, "%u of %u parameters (", found, l.n);
  for (uint32_t i = 0; found < l.n && i < e->p->graph->nparams; i++)
    for (uint32_t k = 0; k < zx_iterations(e, i); k++) {
      if (!(l.lost[l.first[i] + k] > 0) || ++named > 6) continue;
      zb_text_add(out, "%s%s", named > 1 ? ", " : "", named == 6 && found > 6 ? "..." : zx_path(e, i, k));
    }
  if (found < l.n) zb_text_add(out, ")");
  zb_arena_free(a);
  return found;
}

/* ---- what is said ---- */
static const char *loc_of_denominator(const ZxEngine *e, uint32_t loss) {
  for (uint32_t i = 0; i < e->p->graph->nsegments; i++) {
    const ZpList *l = &e->p->programs.segments[i].list[ZP_COUNT];
    for (uint32_t k = 0; k < l->n; k++)
      if (l->nodes[k].call.op == ZG_OP_LOSS_DEN && l->nodes[k].sink == loss)
        return zp_loc_text(e->p, l->nodes[k].loc);
  }
  return "the loss";
}

/* The first loss that is divided by what is negative or not finite; nlosses: none. */
static uint32_t bad_divisor(const ZxEngine *e, const ZxStep *s) {
  uint32_t k = 0;
  while (k < e->nlosses && s->weight[k] >= 0 && isfinite(s->weight[k])) k++;
  return k;
}

/* loss: which of them; nlosses: all, and by 0. */
static void say_divisor(const ZxEngine *e, const ZxStep *s, uint32_t loss, ZbErr *err) {
  const ZgGraph *g = e->p->graph;
  bool zero = loss == e->nlosses;
  const char *name = zero || !g->nlosses ? NULL : g->losses[loss].name;
  zb_fail(err,
          zero ? "look at the targets, or `bind` a larger batch"
               : "look at the data and at what is after `per`: it must add up to more than 0",
          "step %" PRId64 ": %s%s%s divided by %g, the sum of what is after `per` (%s) over the %" PRId64
          " samples of the step, so nothing is updated",
          e->step,
          zero && loss > 1 ? "all losses are"
          : name           ? "the loss "
                           : "the loss is",
          name ? name : "", name ? " is" : "", zero ? 0 : zb_plain_nan(s->weight[loss]),
          loc_of_denominator(e, zero ? 0 : loss), e->p->asked.global_batch);
}

/* Collective: "; the first NaN is made by `exp` at model.zug:31 in FWD(mb 3)", by playing the step again. */
static void add_first(ZxEngine *e, ZbErr *err) {
  ZbText t = {0};
  bool began = zx_look_begin(e);
  if (began) zx_step_again(e);
  if (zx_look_end(e, &t)) zb_fail_more(err, "; the first NaN is made by %s", t.s);
  zb_text_free(&t);
}

static void not_finite(ZxEngine *e, const ZxStep *s, ZbErr *err) {
  ZbText t = {0};
  ZxBadInput bad;
  bool input = zx_bad_input(e, &bad);
  find_lost(e, true, &t);
  zb_fail(
      err,
      input ? "mend the data"
            : "lower lr, raise warmup, or add `clip 1.0`; with bf16 try `precision compute f32`",
      "step %" PRId64
      ": the loss is %g and the gradient norm %g, so nothing is updated; gradients that are not finite: %s",
      e->step, zb_plain_nan(s->loss), zb_plain_nan(s->grad_norm), t.s);
  if (input)
    zb_fail_more(err, "; input `%s` of sample %" PRIu64 " of the run is not finite: record %" PRIu64 " of %s",
                 bad.input, bad.sample, bad.record, bad.file);
  else add_first(e, err);
  zb_text_free(&t);
}

static void lost(ZxEngine *e, const ZxStep *s, ZbErr *err) {
  ZbText t = {0};
  uint32_t n = find_lost(e, false, &t);
  zb_fail(err, "lower lr, raise warmup, or add `clip 1.0`",
          "step %" PRId64
          ": the update leaves %s of %s not finite (loss %g, gradient norm %g, lr %g); the run cannot go on",
          e->step, n ? "values" : "optimizer states", n ? t.s : "its parameters", s->loss, s->grad_norm,
          zp_rate(&e->p->asked.optimizers[0].rate, e->step));
  zb_text_free(&t);
}

ZxSoundness zx_engine_sound(ZxEngine *e, const ZxStep *s, ZbErr *err) {
  uint32_t bad = bad_divisor(e, s);
  if (bad < e->nlosses) return say_divisor(e, s, bad, err), ZX_SKIPPED;
  if (zx_unknown(e->nlosses, s->weight)) return say_divisor(e, s, e->nlosses, err), ZX_UNKNOWN;
  if (!isfinite(s->loss) || !isfinite(s->grad_norm)) return not_finite(e, s, err), ZX_SKIPPED;
  return s->lost ? lost(e, s, err), ZX_BROKEN : ZX_SOUND;
}
