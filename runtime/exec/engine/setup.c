/* What the engine needs of a device before the first step: the arena, events, prepared calls, a communicator
 * of its memory; and what to say if the memory is too small. Calls are prepared before the arena is there:
 * what that takes only for a while has room, and an op that the device lacks is known at once. */
#include "runtime/exec/engine/internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- the arena ---- */
typedef struct {
  uint64_t bytes;
  const char *what;
} Remedy;

static void by_size(Remedy *r, int n) {
  for (int i = 1; i < n; i++)
    for (int k = i; k > 0 && r[k].bytes > r[k - 1].bytes; k--) {
      Remedy x = r[k];
      r[k] = r[k - 1];
      r[k - 1] = x;
    }
}

/* Adds what the arena holds to an error's text; its help becomes the remedies for what is most, three at the
 * most. */
static void explain_size(const ZxEngine *e, ZbErr *err) {
  const uint64_t *b = e->st->ledger.bytes;
  ZbText t = {0};
  char x[24];
  for (int i = 0; i < ZP_LEDGER_LINES; i++)
    if (b[i] && zp_ledger_info[i].memory == ZP_DEVICE)
      zb_text_add(&t, "%s%s %s", t.len ? ", " : "", zp_ledger_info[i].text, zb_bytes(x, b[i]));
  zb_fail_more(err, "; stage %u needs %s", e->stage, t.s ? t.s : "nothing");
  t.len = 0;
  uint64_t logits;
  const char *classes = zp_chunk_proposal(e->p, e->st, &logits);
  const char *fewer = classes ? zb_printf(e->a, "`chunk %s = 8`, or a smaller `micro`", classes)
                              : "`recompute` a block, or a smaller `micro`";
  Remedy r[] = {{b[ZP_L_PARAMS] + b[ZP_L_MASTER] + b[ZP_L_GRADS] + b[ZP_L_STATES],
                 "`shard params, grads, states`, or more pipeline ranks"},
                {b[ZP_L_ACTIVATIONS], fewer},
                {b[ZP_L_SCRATCH] + b[ZP_L_COMM], "a smaller `micro`"},
                {b[ZP_L_CACHE], "fewer `--sequences`, or a smaller `--length`"},
                {b[ZP_L_GATHERED] + b[ZP_L_STAGING], "`prefetch 0`, or more tensor ranks"}};
  by_size(r, (int)(sizeof r / sizeof *r));
  for (int i = 0; i < 3 && r[i].bytes > e->st->ledger.total[ZP_DEVICE] / 20; i++)
    zb_text_add(&t, "%s%s (for %s)", i ? "; " : "", r[i].what, zb_bytes(x, r[i].bytes));
  snprintf(err->help, sizeof err->help, "%s", t.len ? t.s : "");
  zb_text_free(&t);
}

static void note_memory(ZxEngine *e, int when) {
  if (e->dev->memory) e->dev->memory(e->env, &e->device_memory_use.total, &e->device_memory_use.at[when]);
}

bool zx_open_outputs(ZxEngine *e, ZbErr *err) {
  uint64_t most = 1;
  if (!e->p->asked.outputs || e->dev->host) return true;
  for (uint32_t i = 0; i < e->st->ninsts; i++) {
    const ZpSegment *s = &e->p->programs.segments[e->st->insts[i].segment];
    const ZpList *l = &s->list[ZP_FWD];
    for (uint32_t k = 0; k < l->n; k++)
      if (l->nodes[k].call.op == ZG_OP_OUTPUT && s->values[l->nodes[k].in[0]].bytes > most)
        most = s->values[l->nodes[k].in[0]].bytes;
  }
  return (e->output_room = e->dev->pinned(e->env, most, err)) != NULL;
}

/* Returns what the plan needs of a memory, and those beside it. */
static uint64_t most_bytes(const ZxEngine *e, ZpMemory m) {
  uint64_t most = e->st->ledger.total[m];
  for (size_t i = 0; i < sizeof e->o.also / sizeof *e->o.also; i++) {
    uint64_t also = e->o.also[i] ? e->o.also[i]->programs.stages[e->stage].ledger.total[m] : 0;
    if (also > most) most = also;
  }
  return most;
}

bool zx_open_memory(ZxEngine *e, ZbErr *err) {
  ZB_ASSERT(e->p->asked.pins == !e->dev->host);
  e->arena_bytes = most_bytes(e, ZP_DEVICE);
  if (!(e->arena = e->dev->alloc(e->env, e->arena_bytes, err))) {
    explain_size(e, err);
    return false;
  }
  note_memory(e, 2);
  uint64_t host = most_bytes(e, ZP_HOST);
  if (host && !(e->host = e->dev->pinned(e->env, host, err))) return false;
  return zx_open_outputs(e, err);
}

/* ---- events: one for each instruction, and those of the engine and of a staged communicator ---- */
bool zx_open_events(ZxEngine *e, ZbErr *err) {
  uint32_t n = e->st->prog.ninstrs;
  e->pinned_event = n;
  e->call_event = n + 1;
  e->rows_event = n + 2;
  e->ring_event = n + 5;
  e->node_event = n + 7;
  e->staged_event = n + 9 + ZP_MOST_ASYNC;
  return e->dev->events(e->env, e->staged_event + ZX_STAGED_EVENTS, err);
}

/* ---- prepared calls ---- */
bool zx_prepare(ZxEngine *e, ZbErr *err) {
  note_memory(e, 0);
  bool ok = zx_prepare_calls(e, err);
  note_memory(e, 1);
  return ok;
}

/* Collective: what ranks chose by time becomes the choice of the lowest rank that has such a call, until
 * nothing is left to be settled. What a rank does in another way for that it prepares, too. */
void zx_settle(ZxEngine *e) {
  const ZxDeviceTable *d = e->dev;
  ZbErr none;
  for (;;) {
    size_t bytes = 1;
    uint32_t n = d->choices ? d->choices(e->env, NULL, 0, &bytes) : 0;
    int64_t from = zx_lowest(e->world, n ? (int64_t)e->rank : -1);
    if (from < 0) return;
    uint64_t size[2] = {n, bytes};
    e->world->t->wait(e->world, e->world->t->broadcast(e->world, 0, size, sizeof size, (int)from));
    void *list = zx_need(calloc(size[0], size[1]));
    if (from == e->rank) d->choices(e->env, list, n, &bytes);
    e->world->t->wait(e->world, e->world->t->broadcast(e->world, 0, list, size[0] * size[1], (int)from));
    if (d->choose && bytes == size[1]) d->choose(e->env, list, (uint32_t)size[0]);
    free(list);
    (void)zx_prepare_calls(e, &none);
  }
}

/* ---- communicators ---- */
void zx_open_comm(ZxEngine *e) {
  e->comm_reason = "there is no communicator for this device";
  e->c = e->dev->comm ? e->dev->comm(e->world, e->env, &e->comm_reason) : NULL;
  if (!e->c) e->c = zx_comm_staged(e->world, e->dev, e->env, e->staged_event);
  e->in_order = e->c->t->stream_ordered && e->c->t->stream_ordered(e->c);
}

/* The ranks that this one sends to and receives from. */
void zx_connect(ZxEngine *e) {
  const ZpProgram *g = &e->st->prog;
  int *peer = ZB_NEWN(e->a, int, e->p->programs.nstages), n = 0;
  for (uint32_t i = 0; i < g->ninstrs; i++) {
    if (g->instrs[i].queue != ZP_Q_P2P) continue;
    int p = (int)zp_rank_of_stage(&e->p->layout.mesh, e->rank, g->instrs[i].peer);
    bool known = false;
    for (int k = 0; k < n; k++) known |= peer[k] == p;
    if (!known) peer[n++] = p;
  }
  if (e->c->t->connect && e->p->programs.nstages > 1) e->c->t->connect(e->c, peer, n);
  note_memory(e, 3);
}

/* ---- for people ---- */
void zx_engine_tell(const ZxEngine *e, const ZlCluster *c, ZbText *out) {
  if (e->c == e->world) return;
  if (e->c->t->describe) zb_text_add(out, "ranks exchange by %s\n", e->c->t->describe(e->c));
  else if (e->world->t->size(e->world) > 1) {
    zb_text_add(out, "ranks exchange by way of the host's memory: %s", e->comm_reason);
    zx_say_staged(e, c, out);
    zb_text_put(out, "\n", 1);
  }
  if (e->no_capture_reason) {
    zb_text_add(out, "each step is queued anew: %s", e->no_capture_reason);
    zx_say_queued(e, out);
    zb_text_put(out, "\n", 1);
  } else if (e->sizes) {
    zb_text_add(out, "steps of up to %d tokens are captured, each size at its second use\n",
                zx_captured_tokens());
  } else zb_text_add(out, "steps are captured: the third and all that follow are played from the second\n");
  if (!e->dev->memory) return;
  const uint64_t *at = e->device_memory_use.at;
  char x[5][24];
  uint64_t calls = at[0] > at[1] ? at[0] - at[1] : 0, comms = at[2] > at[3] ? at[2] - at[3] : 0;
  bool shared = !e->c->t->describe && e->world->t->size(e->world) > 1; /* others' comes and goes meanwhile */
  zb_text_add(out, "device memory beside the arena%s: ", shared ? ", with that of other ranks there" : "");
  zb_text_add(out, "%s taken at first, %s for prepared calls, %s for communicators; %s of %s left\n",
              zb_bytes(x[0], e->device_memory_use.total - at[0]), zb_bytes(x[1], calls),
              zb_bytes(x[2], comms), zb_bytes(x[3], at[3]), zb_bytes(x[4], e->device_memory_use.total));
}
