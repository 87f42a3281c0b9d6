/* All of one run: its steps and its evaluations, with the tokens and the time that they took. */
#include "runtime/zlog/zlog.h"

#include <math.h>
#include <string.h>

typedef struct {
  ZbArena *a;
  const char *const *keys;
  int nkeys;
  double tokens, ms; /* so far */
} Reading;

static bool take_keys(Reading *r, const ZvLines *l, const cJSON *o, const char *prefix, ZvPoint *p,
                      ZbErr *err) {
  *p = (ZvPoint){.step = l->step, .tokens = r->tokens, .hours = r->ms / 3.6e6};
  for (int k = 0; k < r->nkeys; k++)
    if (!zv_number(l, o, zb_printf(r->a, "%s%s", prefix, r->keys[k]), &p->y[k], err)) return false;
  return true;
}

/* What a line says it took; nothing is as if it took nothing. */
static bool take_time(Reading *r, const ZvLines *l, const cJSON *o, const char *key, ZbErr *err) {
  double ms;
  if (!zv_number(l, o, key, &ms, err)) return false;
  if (ms > 0 && ms < 1e15) r->ms += ms;
  return true;
}

static void take_parts(Reading *r, ZvRun *run, const cJSON *o) {
  size_t n = 0;
  bool same = true;
  for (const cJSON *x = o->child; x; x = x->next)
    if (zv_part(x->string, "loss")) same &= n < run->nparts && !strcmp(run->part[n], x->string), n++;
  if (same && n == run->nparts) return;
  run->part = NULL, run->nparts = 0;
  for (const cJSON *x = o->child; x; x = x->next)
    if (zv_part(x->string, "loss")) ZB_PUSH(r->a, run->part, run->nparts, zb_strdup(r->a, x->string));
}

static bool take_line(Reading *r, ZvRun *run, const ZvLines *l, const cJSON *o, ZbErr *err) {
  ZvPoint p;
  double tokens, steps;
  bool eval = cJSON_HasObjectItem(o, "eval_batches");
  bool wrote = cJSON_HasObjectItem(o, "sample");             /* a text, of which there is nothing to draw */
  if (wrote || !cJSON_HasObjectItem(o, "step")) return true; /* or an evaluation without training */
  if (!zv_number(l, o, "steps", &steps, err) || !take_time(r, l, o, eval ? "eval_ms" : "step_ms", err))
    return false;
  if (steps > 0 && steps < 0x1p53) run->steps = (int64_t)steps;
  if (eval) {
    if (!take_keys(r, l, o, "eval_", &p, err)) return false;
    if (!isnan(p.y[0])) ZB_PUSH(r->a, run->eval, run->neval, p);
    return true;
  }
  if (!zv_number(l, o, "tokens", &tokens, err)) return false;
  r->tokens += tokens; /* NaN stays */
  if (!take_keys(r, l, o, "", &p, err)) return false;
  ZB_PUSH(r->a, run->step, run->nstep, p);
  take_parts(r, run, o);
  return true;
}

bool zv_run_read(ZbArena *a, const char *dir, const char *const *keys, int nkeys, ZvRun *run, ZbErr *err) {
  ZvLines l;
  Reading r = {.a = a, .keys = keys, .nkeys = nkeys};
  *run = (ZvRun){.name = dir};
  *err = (ZbErr){0};
  if (!zv_lines_open(a, dir, &l, err)) return false;
  cJSON *o;
  for (bool good = true; good && (o = zv_next(&l, err)); cJSON_Delete(o))
    good = take_line(&r, run, &l, o, err);
  if (!*err->text && !run->nstep)
    zb_fail(err, "give the folder of a run that has made a step", "%s has no steps", zb_show(l.path));
  zv_lines_close(&l);
  return !*err->text;
}
