/* zckpt diff: how far two checkpoints are from each other, tensor by tensor. Both are read in step, piece by
 * piece. */
#include "runtime/exec/ckpt/zckpt.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  uint32_t tensor;    /* of the first */
  double most;        /* |b - a| */
  uint64_t at;        /* of the element that has it */
  double norm;        /* of b - a, by that of a; infinite where a is 0 */
  uint64_t undefined; /* pairs of values of which one is not finite and that are not of the same bits */
} Difference;

/* ---- one tensor ---- */
typedef struct {
  ZsCkpt *other;
  uint32_t tensor; /* there */
  float *y;
  uint64_t digest;
  Difference d;
  double sum, base; /* of squares */
} Pair;

static bool compare_piece(void *ctx, const float *x, uint64_t first, uint64_t n, ZbErr *err) {
  Pair *p = ctx;
  if (!zs_piece(p->other, p->tensor, first, n, p->y, err)) return false;
  p->digest += zx_digest(p->y, first, n);
  for (uint64_t i = 0; i < n; i++) {
    double a = (double)x[i], b = (double)p->y[i], d = fabs(b - a);
    if (!memcmp(&x[i], &p->y[i], sizeof *x)) d = 0; /* NaNs of the same bits, too */
    if (isfinite(a)) p->base += a * a;
    if (!isfinite(d)) {
      if (!p->d.undefined++) p->d.at = first + i;
      continue;
    }
    p->sum += d * d;
    if (d > p->d.most && !p->d.undefined) p->d.at = first + i;
    if (d > p->d.most) p->d.most = d;
  }
  return true;
}

static bool compare_tensor(ZsCkpt *a, uint32_t i, ZsCkpt *b, uint32_t j, float *room, Difference *out,
                           ZbErr *err) {
  Pair p = {.other = b, .tensor = j, .y = room, .d = {.tensor = i}};
  if (!zs_read(a, i, compare_piece, &p, err)) return false;
  if (p.digest != b->m->c.tensors[j].digest) return zx_ckpt_altered(b->m, b->dir, j, p.digest, err);
  p.d.norm = p.sum > 0 ? sqrt(p.sum / p.base) : 0;
  *out = p.d;
  return true;
}

/* ---- all of them ---- */
typedef struct {
  ZsCkpt a, b;
  ZbArena *arena;
  bool states;
  Difference *d;
  uint32_t nd, same, alone; /* with differences; of equal bits; in one of them only, or of other shapes */
} Diff;

/* Tensor `i` of `from` in `to`: its parameter by path, and its state by name. */
static uint32_t counterpart(const ZsCkpt *from, uint32_t i, const ZsCkpt *to) {
  const ZxContents *f = &from->m->c, *t = &to->m->c;
  uint32_t param = zs_find(to, f->tensors[f->tensors[i].param].info.path), state = f->tensors[i].state;
  if (!state || param == ZB_NO_NAME) return param;
  return zx_state_named(t, param, f->state[state - 1]);
}

static bool same_shape(const ZxTensorInfo *a, const ZxTensorInfo *b) {
  return a->nshape == b->nshape && !memcmp(a->shape, b->shape, sizeof *a->shape * (size_t)a->nshape);
}

static uint32_t tensors_of(const Diff *d, const ZsCkpt *k) {
  return d->states ? k->m->c.ntensors : k->m->c.nparams;
}

/* Says which tensors `k` has alone. */
static void tell_alone(Diff *d, const ZsCkpt *k, const ZsCkpt *other) {
  for (uint32_t i = 0; i < tensors_of(d, k); i++) {
    if (counterpart(k, i, other) != ZB_NO_NAME) continue;
    d->alone++;
    printf("only in %s: %s %s\n", zb_show(k->dir), k->m->c.tensors[i].info.path,
           zx_shape_text(d->arena, &k->m->c.tensors[i].info));
  }
}

/* What has the same checksum in both manifests is not read. */
static bool compare_all(Diff *d, ZbErr *err) {
  float *room = malloc(ZS_PIECE * sizeof *room);
  if (!room) zb_out_of_memory(ZS_PIECE * sizeof *room);
  bool ok = true;
  for (uint32_t i = 0; ok && i < tensors_of(d, &d->a); i++) {
    uint32_t j = counterpart(&d->a, i, &d->b);
    if (j == ZB_NO_NAME) continue;
    const ZxCkptTensor *x = &d->a.m->c.tensors[i], *y = &d->b.m->c.tensors[j];
    Difference one;
    if (!same_shape(&x->info, &y->info)) {
      d->alone++;
      printf("%s has other shapes: %s and %s\n", x->info.path, zx_shape_text(d->arena, &x->info),
             zx_shape_text(d->arena, &y->info));
    } else if (x->digest == y->digest) d->same++;
    else if ((ok = compare_tensor(&d->a, i, &d->b, j, room, &one, err))) ZB_PUSH(d->arena, d->d, d->nd, one);
  }
  free(room);
  return ok;
}

/* ---- what is said ---- */
static int larger_first(const void *a, const void *b) {
  const Difference *x = a, *y = b;
  if (!x->undefined != !y->undefined) return x->undefined ? -1 : 1;
  if (x->norm != y->norm) return x->norm > y->norm ? -1 : 1;
  return x->tensor < y->tensor ? -1 : x->tensor > y->tensor;
}

/* "wte[3, 17]" */
static const char *element(ZbArena *a, const ZxTensorInfo *t, uint64_t at) {
  const char *s = "]";
  for (int i = t->nshape; i-- > 0; at /= (uint64_t)t->shape[i])
    s = zb_printf(a, "%s%" PRIu64 "%s", i ? ", " : "[", at % (uint64_t)t->shape[i], s);
  return zb_printf(a, "%s%s", t->path, t->nshape ? s : "");
}

static void tell_largest(const Diff *d, int64_t top) {
  if (d->nd) printf("%12s %12s  %s\n", "rel. norm", "max |b-a|", "at");
  for (uint32_t i = 0; i < d->nd && i < (uint64_t)top; i++) {
    const Difference *x = &d->d[i];
    printf("%12.4g %12.4g  %s", x->norm, x->most,
           element(d->arena, &d->a.m->c.tensors[x->tensor].info, x->at));
    if (x->undefined) printf("  not finite in one of them: %" PRIu64 " values", x->undefined);
    printf("\n");
  }
  if (d->nd > (uint64_t)top) printf("... and %" PRIu64 " more: --top\n", d->nd - (uint64_t)top);
}

/* What else the manifests say differently. */
static void tell_facts(const ZxManifest *a, const ZxManifest *b) {
  if (a->step != b->step || a->samples != b->samples)
    printf("step %" PRId64 " and %" PRId64 ", samples %" PRId64 " and %" PRId64 "\n", a->step, b->step,
           a->samples, b->samples);
  if (strcmp(a->model, b->model)) printf("model %s and %s\n", zb_show(a->model), zb_show(b->model));
  for (uint32_t i = 0; i < a->nfacts; i++) {
    const ZxCkptFact *f = &a->facts[i];
    const char *other = zx_manifest_fact(b, f->kind, f->name);
    if (!other || strcmp(f->value, other))
      printf("%s: %s %s and %s\n", zb_show(f->kind), zb_show(f->name), zb_show(f->value),
             other ? zb_show(other) : "none");
  }
  for (uint32_t i = 0; i < b->nfacts; i++) {
    const ZxCkptFact *f = &b->facts[i];
    if (!zx_manifest_fact(a, f->kind, f->name))
      printf("%s: %s none and %s\n", zb_show(f->kind), zb_show(f->name), zb_show(f->value));
  }
}

ZsEnd zs_diff(const ZsOptions *o, ZbArena *a, ZbErr *err) {
  Diff d = {.arena = a, .states = o->states};
  if (!zs_open(&d.a, a, o->path[0], err) || !zs_open(&d.b, a, o->path[1], err) ||
      !zx_ckpt_look(d.a.m, d.a.dir, err) || !zx_ckpt_look(d.b.m, d.b.dir, err))
    return ZS_FAILED;
  tell_facts(d.a.m, d.b.m);
  tell_alone(&d, &d.a, &d.b);
  tell_alone(&d, &d.b, &d.a);
  bool ok = compare_all(&d, err);
  zs_close(&d.a);
  zs_close(&d.b);
  if (!ok) return ZS_FAILED;
  if (d.nd) qsort(d.d, d.nd, sizeof *d.d, larger_first);
  tell_largest(&d, o->top);
  printf("%" PRIu32 " of %" PRIu32 " tensors are the same\n", d.same, d.same + d.nd + d.alone);
  return d.nd + d.alone ? ZS_DIFFERENT : ZS_OK;
}
