/* A step, and steps that are queued once.
 *
 * What a device is given in a step is the same in all steps: the same calls on the same memory. So the second
 * step is captured while it is queued, and it and all that follow are played from there as one thing (a CUDA
 * graph): launching thousands of kernels costs the host nothing any more, and leaves no gaps between them.
 * The first is done as it is queued, and libraries set up then what they set up at first use.
 *
 * What does differ from step to step is read from memory: the inputs of all micro-batches and ZkStepState,
 * which copies from pinned memory bring. The copies are captured; the host fills the memory before. Where the
 * host takes part in a step itself (ranks that exchange through it, calls that are timed one by one) there is
 * nothing to capture.
 *
 * Steps of generation differ in their sizes, too: each class of sizes (tokens.c) is captured for itself, at its second
 * use. */
#include "runtime/exec/engine/internal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- what differs from step to step ---- */
uint64_t zx_step_state_bytes(const ZxEngine *e) { return zk_step_state_bytes(e->p->asked.ngroups); }

static void put_now(ZxEngine *e) {
  const ZpAsked *p = &e->p->asked;
  e->step_state->step = (uint64_t)e->step;
  for (uint32_t i = 0; i < p->ngroups && !p->forward_only; i++)
    if (!p->groups[i].update)
      zp_group_scalars(&p->optimizers[p->groups[i].optimizer], &p->groups[i], e->step,
                       zk_scalars_of(e->step_state, i));
}

/* ---- playing ---- */
static void queue(ZxEngine *e) {
  e->dev->upload(e->env, e->count.step_state, e->step_state, zx_step_state_bytes(e));
  zx_play(e);
}

static void replay(ZxEngine *e) {
  if (!zx_feed_all(e)) {
    e->failed = e->out.unfed = true;
    return;
  }
  e->dev->replay(e->env);
}

/* Collective: NCCL wants that an operation is captured by all of its ranks or by none, and may wait for the
 * others' hosts while it captures one. What cannot be captured is queued anew in this step and in all others;
 * the lowest rank that knows why says it. */
static void capture(ZxEngine *e) {
  ZbErr why = {0};
  bool ok = e->dev->capture(e->env, &why), all = zx_agree(e->world, ok);
  e->capturing = true;
  if (all) queue(e);
  e->capturing = false;
  if (ok) ok = e->dev->end_capture(e->env, &why);
  int64_t first = zx_lowest(e->world, ok ? -1 : e->rank); /* that could not */
  e->capture[e->class] = first < 0 ? ZX_CAPTURED : ZX_CAPTURE_NEVER;
  if (first < 0 || e->failed) return;
  if (ok) e->dev->drop_graph(e->env);
  if (first == e->rank) {
    ZbText cost = {0};
    zx_say_queued(e, &cost);
    zx_say((int)e->rank, "note: each step is queued anew: %s%s", why.text, cost.s);
    zb_text_free(&cost);
  }
  if (e->c->t->rebuild) e->c->t->rebuild(e->c);
}

/* Says where a call is no longer done as was said at start. */
static void say_late(const ZxEngine *e) {
  const char *late = e->dev->late ? e->dev->late(e->env) : NULL;
  if (late) zx_say((int)e->rank, "note: %s", late);
}

void zx_step(ZxEngine *e) {
  ZxCapture *now = &e->capture[e->class];
  put_now(e);
  if (e->dev->graph) e->dev->graph(e->env, e->class);
  if (*now == ZX_CAPTURE_NEXT) capture(e);
  if (e->failed) return;
  if (*now == ZX_CAPTURED) replay(e);
  else queue(e);
  if (*now == ZX_CAPTURE_LATER) *now = ZX_CAPTURE_NEXT;
  zx_bring_logits(e);
  zx_end_step(e);
  say_late(e);
}

void zx_step_again(ZxEngine *e) {
  ZxStep was = e->out;
  ZbErr none, *err = e->err;
  ZB_ASSERT(e->look);
  e->tracing = false;
  e->err = &none;
  put_now(e);
  queue(e);
  zx_end_step(e);
  e->out = was;
  e->err = err;
}

/* ---- whether ---- */
/* A graph is made, uploaded and started as a whole, which grows with its nodes; drivers before 550 keep 64 KB
 * of the device for each. Calls are a lower bound of them, by which a step is not captured in vain: how many
 * kernels libraries launch for one is known when it has been. */
static int64_t most_nodes(const ZxEngine *e) { return zk_debug(&e->env->debug, ZK_DEBUG_GRAPH_NODES); }

void zx_open_capture(ZxEngine *e) {
  const ZxCommTable *t = e->c->t;
  for (uint32_t i = 0; i < ZX_CLASSES; i++) e->capture[i] = ZX_CAPTURE_NEVER;
  e->no_capture_reason = NULL;
  if (!e->dev->capture) e->no_capture_reason = "this device cannot do otherwise";
  else if (e->o.times) e->no_capture_reason = "every call is timed";
  else if (e->rows) e->no_capture_reason = "hosts must know how many rows experts have";
  else if (e->sizes && !e->dev->graph) e->no_capture_reason = "this device keeps one captured step";
  else if (e->p->asked.outputs && !e->sizes) e->no_capture_reason = "outputs are taken out of it";
  else if (!e->in_order) e->no_capture_reason = "ranks exchange by way of the host";
  else if (t->capture_blocker) e->no_capture_reason = t->capture_blocker(e->c);
  if (!e->no_capture_reason && zp_input_bytes(e->p, e->st) && e->st->prog.npinned < e->p->asked.nmicro)
    e->no_capture_reason = "its inputs are too large to be pinned at once";
  if (!e->no_capture_reason && zx_step_calls(e) > (double)most_nodes(e))
    e->no_capture_reason = zb_printf(
        e->a, "its graph would have more than %" PRId64 " nodes (--debug graph-nodes)", most_nodes(e));
  bool all = zx_agree(e->world, !e->no_capture_reason);
  if (!all && !e->no_capture_reason) e->no_capture_reason = "another rank must";
  for (uint32_t i = 0; all && i < (e->sizes ? ZX_CLASSES - 1 : 1); i++) e->capture[i] = ZX_CAPTURE_LATER;
}

void zx_close_capture(ZxEngine *e) {
  for (uint32_t i = 0; i < ZX_CLASSES; i++) {
    if (e->capture[i] != ZX_CAPTURED) continue;
    if (e->dev->graph) e->dev->graph(e->env, i);
    e->dev->drop_graph(e->env);
  }
}
