/* Parameters from a weights file: every rank reads what it owns. Which of them the file has is a matter of
 * names, which all ranks know of all parameters: what is wrong with the file they find alike, before anything
 * is read. */
#include "runtime/exec/state/slices.h"
#include "runtime/exec/state/state.h"

#include <inttypes.h>
#include <string.h>

/* ---- what the file has of the model ---- */
typedef struct {
  ZxEngine *e;
  const ZxWeights *file;
  const char *path; /* of the file */
  bool *used;       /* its tensors that are parameters of the model */
  ZbErr *err;
} Look;

/* What the file has in place of it is probably none of the other parameters. */
static bool lacks(const Look *l, const ZxLoaded *x, const char *first) {
  const char **names = NULL, *near, *list = "";
  uint32_t n = 0, told = 0;
  for (uint64_t i = 0; i < zx_weights_count(l->file); i++)
    if (!l->used[i]) ZB_PUSH(l->e->a, names, n, zx_weights_path(l->file, (int64_t)i));
  while (told < 3 && (near = zb_nearest(first, names, n))) {
    list = zb_printf(l->e->a, "%s%s'%.48s'", list, told++ ? ", " : "", near);
    for (uint32_t i = 0; i < n; i++)
      if (names[i] == near) names[i] = names[--n];
  }
  zb_fail(l->err,
          zb_printf(l->e->a, "%s%s%s--init-partial draws from the seed what is not there",
                    told ? "the nearest names in it are " : "", list, told ? "; " : ""),
          "%s lacks '%s'", zb_show(l->path), first);
  if (x->drawn > 1) zb_fail_more(l->err, " and %" PRIu64 " more", x->drawn - 1);
  zb_fail_more(l->err, " of the %" PRIu64 " parameters of model %s", x->read + x->drawn,
               l->e->p->graph->model);
  return false;
}

static bool judge(const Look *l, const ZxLoaded *x, bool partial, const char *first) {
  const char *model = l->e->p->graph->model;
  if (!x->read) {
    zb_fail(l->err, "is it the file of another model?",
            "%s has none of the %" PRIu64 " parameters of model %s", zb_show(l->path), x->drawn, model);
    if (x->extra) zb_fail_more(l->err, "; its first tensor is '%s'", zb_show(x->first_extra));
    return false;
  }
  if (partial) return true;
  if (x->drawn) return lacks(l, x, first);
  return !x->extra ||
         zb_fail(l->err, "--init-partial leaves them out",
                 "%s holds %" PRIu64 " tensor%s that model %s has not; the first is '%s'", zb_show(l->path),
                 x->extra, x->extra == 1 ? "" : "s", model, zb_show(x->first_extra));
}

/* Names, shapes and types of all parameters, also of those that other ranks read. */
static bool look(Look *l, bool partial, ZxLoaded *x) {
  enum { NAMED = 6 };
  ZbArena *a = l->e->a;
  const char *first = NULL;
  ZbErr misfit = {0};
  x->names = "";
  for (uint32_t i = 0; i < l->e->p->graph->nparams; i++)
    for (uint32_t k = 0; k < zx_iterations(l->e, i); k++) {
      ZxTensorInfo t = zx_tensor_info(l->e, i, k);
      int64_t at = zx_weights_at(l->file, t.path);
      if (at >= 0) {
        if (!*misfit.text) zx_weights_find(l->file, &t, &misfit);
        l->used[at] = true;
        x->read++;
        continue;
      }
      if (!first) first = t.path;
      if (x->drawn < NAMED) x->names = zb_printf(a, "%s%s%s", x->names, x->drawn ? ", " : "", t.path);
      if (x->drawn++ == NAMED) x->names = zb_printf(a, "%s, ...", x->names);
    }
  for (uint64_t i = 0; i < zx_weights_count(l->file); i++)
    if (!l->used[i] && !x->extra++) x->first_extra = zb_strdup(a, zx_weights_path(l->file, (int64_t)i));
  if (!judge(l, x, partial, first)) return false;
  return !*misfit.text || zb_fail(l->err, misfit.help, "%s", misfit.text);
}

/* ---- reading ---- */
/* A parameter that the file lacks is drawn, by all threads. */
static bool open_tensor(ZxWalk *w) {
  w->tensor = zx_weights_at(w->file, w->path);
  w->draws = w->tensor < 0;
  return true;
}

/* Training goes on from finite values only: what else there is came out of a run that had failed, or out of
 * another program. */
static bool read_run(void *ctx, uint64_t global, uint64_t n, float *at) {
  ZxWalk *w = ctx;
  if (w->tensor < 0) return zx_draw_run(w, global, n, at);
  if (!zx_weights_read(w->file, w->tensor, global, n, at, w->err)) return false;
  int64_t i = zb_not_finite(at, n);
  return i < 0 || zb_fail(w->err, "take a file of an earlier state", "%s: %s is %g", w->name,
                          zx_element(w, global + (uint64_t)i), zb_plain_nan((double)at[i]));
}

static bool load_own(ZxEngine *e, const char *path, bool partial, ZxLoaded *x, ZbErr *err) {
  ZxWeights *file = zx_weights_open(path, false, err);
  if (!file) return false;
  Look l = {e, file, path, ZB_NEWN(e->a, bool, zx_weights_count(file)), err};
  ZxWalk read = {.open = open_tensor, .each = read_run, .file = file, .name = path, .err = err},
         check = {.each = zx_check_run, .fetch = true, .err = err};
  bool ok = look(&l, partial, x) && zx_walk(e, &read) && (!x->drawn || zx_walk(e, &check));
  zx_weights_close(file, NULL);
  return ok;
}

bool zx_engine_load(ZxEngine *e, const char *path, bool partial, ZxLoaded *out, ZbErr *err) {
  *out = (ZxLoaded){0};
  return zx_agree(e->world, load_own(e, path, partial, out, err)) && zx_publish_initial(e, err);
}
