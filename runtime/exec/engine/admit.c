/* Admission of a sequence: a plan of one sample makes what is the sequence's alone, and the caches of an
 * engine of steps keep it at the sequence's slot. */
#include "runtime/exec/engine/internal.h"

typedef struct {
  ZxEngine *steps;
  uint32_t slot;
} Admission;

/* Returns the number of the k-th cache of sequences' own values. */
static uint32_t own_cache(const ZpStream *s, uint32_t k) {
  uint32_t c = 0;
  for (;; c++)
    if (s->caches[c].kind == ZP_CACHE_OWN && !k--) return c;
}

/* Returns a value as it lies in memory, dense, without axis `except`. */
static ZkView view_of(const ZpValue *v, const void *data, uint16_t except) {
  ZkView w = {.data = (void *)(uintptr_t)data, .elem = v->elem};
  int64_t stride = 1;
  for (int i = v->type.naxes; i-- > 0; stride *= v->size[i]) {
    if (v->axis[i] == except) continue;
    w.axis[w.rank] = v->axis[i];
    w.size[w.rank] = v->size[i];
    w.stride[w.rank++] = stride;
  }
  return w;
}

static int64_t stride_of(const ZpValue *v, uint16_t axis) {
  int64_t stride = 1;
  for (int i = v->type.naxes; i-- > 0 && v->axis[i] != axis;) stride *= v->size[i];
  return stride;
}

/* Puts own values, of one sample and with the source's length, into a cache, whose lengths are the longest's. */
static void put(Admission *x, const ZpValue *cache, char *at, const ZxOutput *out, uint16_t batch) {
  uint16_t sequence = x->steps->p->stream->axis.sequence;
  ZkView from = view_of(out->value, out->data, batch), to = view_of(cache, at, sequence), all = to;
  to.data = zk_at(&to, x->slot * stride_of(cache, sequence));
  ZB_ASSERT(from.rank == to.rank && from.elem == to.elem);
  for (int i = 0; i < to.rank; i++) { /* in the order of `from` */
    int k = zx_axis_of(&all, from.axis[i]);
    ZB_ASSERT(from.size[i] <= all.size[k]);
    to.axis[i] = from.axis[i], to.size[i] = from.size[i], to.stride[i] = all.stride[k];
  }
  zx_copy_view(x->steps, from, to);
}

static bool keep(ZxEngine *e, const ZxOutput *out) {
  Admission *x = e->take_ctx;
  ZxEngine *s = x->steps;
  uint32_t c = own_cache(s->p->stream, out->output), segment = s->p->stream->caches[c].segment;
  const ZpValue *cache = zx_cache_of(&s->p->programs.segments[segment], c);
  for (uint32_t i = 0; cache && i < s->st->ninsts; i++)
    if (s->st->insts[i].segment == segment && s->st->insts[i].iter == out->iter)
      put(x, cache, zx_caches(s, i) + cache->at.offset, out, e->p->asked.batch);
  return true;
}

bool zx_engine_admit(ZxEngine *e, ZxEngine *steps, uint32_t slot, const int32_t *source, uint64_t *used,
                     ZbErr *err) {
  Admission x = {steps, slot};
  ZxStep done;
  e->take_output = keep;
  e->take_ctx = &x;
  e->source = source;
  bool ok = zx_engine_step(e, e->step + 1, &done, err);
  e->source = NULL;
  if (ok) *used = done.used_bytes;
  return ok;
}
