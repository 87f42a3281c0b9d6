/* A source is made as long as it is: one that is filled up would need masks in all that looks along it. So
 * each length has a plan, in the arena of the longest's; those of the lengths that came last are kept. */
#include "runtime/exec/admission.h"

#include <string.h>

enum { PLANS = 32 };

typedef struct {
  ZbArena *a; /* has its plan and its engine; NULL: none */
  ZxEngine *e;
  uint32_t length;
  uint64_t used; /* when it was used last */
} Plan;

struct ZxAdmission {
  const ZpPlan *steps;
  ZpOptions po;
  ZlSources *sources;
  ZxEngineOptions eo;
  ZxEngine *longest;
  uint32_t length; /* of the longest */
  Plan plan[PLANS];
  uint64_t uses, touched;
  int32_t *source;
};

ZxAdmission *zx_admission_new(ZbArena *a, const ZpPlan *steps, const ZpOptions *po, ZlSources *s, ZxComm *c,
                              const ZxEngineOptions *eo, ZbErr *err) {
  if (!eo->device->host) {
    zb_fail(err, "leave --device out", "model %s makes text of another text, which is for CPUs yet",
            steps->given->model);
    return NULL;
  }
  if (c->t->size(c) > 1) {
    zb_fail(err, "start it without mpirun, or with a recipe of one rank",
            "model %s makes text of another text, which is for one rank yet", steps->given->model);
    return NULL;
  }
  ZxAdmission *x = ZB_NEW(a, ZxAdmission);
  *x = (ZxAdmission){.steps = steps, .po = *po, .sources = s, .eo = *eo};
  x->length = (uint32_t)steps->layout.axis_size[steps->stream->length];
  x->source = ZB_NEWN(a, int32_t, x->length + 1);
  x->longest = zx_engine_new(a, steps->admission, c, eo, err);
  return x->longest ? x : NULL;
}

ZxEngine *zx_admission_engine(const ZxAdmission *x) { return x->longest; }
uint64_t zx_admission_used(const ZxAdmission *x) { return x->touched; }

static void drop(Plan *p) {
  zx_engine_free(p->e);
  zb_arena_free(p->a);
  *p = (Plan){0};
}

void zx_admission_free(ZxAdmission *x) {
  if (!x) return;
  for (int i = 0; i < PLANS; i++) drop(&x->plan[i]);
  zx_engine_free(x->longest);
}

/* Makes the plan of a length, and its engine. A length that is shorter than the longest fits where that does. */
static bool open_plan(ZxAdmission *x, Plan *p, uint32_t length, ZbErr *err) {
  ZbArena *a = p->a = zb_arena_new();
  ZlDiags *d = zl_diags_new(a, x->sources);
  const ZpPlan *plan = zp_plan_admission(a, x->steps, length, d, &x->po, x->steps->admission);
  p->length = length;
  if (plan) p->e = zx_engine_beside(x->longest, plan, a, &x->eo, err);
  else zb_fail(err, "", "there is no plan for a source of %u tokens", length);
  if (!p->e) drop(p);
  return p->a;
}

/* Finds the engine of a length, or makes it in place of the one that was longest unused. NULL with a message. */
static ZxEngine *engine_of(ZxAdmission *x, uint32_t length, ZbErr *err) {
  Plan *oldest = &x->plan[0];
  if (length == x->length) return x->longest;
  for (int i = 0; i < PLANS; i++) {
    Plan *p = &x->plan[i];
    if (p->length == length && p->a) oldest = p;
    if (oldest->length == length && oldest->a) break;
    if (!p->a || (oldest->a && p->used < oldest->used)) oldest = p;
  }
  if (oldest->length != length || !oldest->a) {
    drop(oldest);
    if (!open_plan(x, oldest, length, err)) return NULL;
  }
  oldest->used = ++x->uses;
  return oldest->e;
}

bool zx_admit(ZxAdmission *x, ZxEngine *steps, uint32_t slot, const uint32_t *source, uint32_t n,
              ZbErr *err) {
  uint64_t used;
  ZB_ASSERT(n && n <= x->length);
  ZxEngine *e = engine_of(x, n, err);
  for (uint32_t i = 0; i < n; i++) x->source[i] = (int32_t)source[i];
  if (!e || !zx_engine_admit(e, steps, slot, x->source, &used, err)) return false;
  if (used > x->touched) x->touched = used;
  return true;
}
