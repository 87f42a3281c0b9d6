/* What a run does about checkpoints. See saves.h. */
#include "runtime/exec/saves.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

/* ---- which one to go on from ---- */
static bool is_readable(const ZxCkptEntry *x) { return x->serial > 0; }

/* Of a folder's checkpoints the latest. One that cannot be read and may be later is not passed over in
 * silence. */
static bool newest(ZbArena *a, const char *dir, const char **path, ZbErr *err) {
  ZxCkptEntry *all;
  ZbErr why = {0};
  uint32_t n = zx_ckpt_list(a, dir, &all, &why);
  if (*why.text) return *err = why, false;
  const ZxCkptEntry *last = n && is_readable(&all[n - 1]) ? &all[n - 1] : NULL;
  for (uint32_t i = 0; i < n; i++) {
    if (is_readable(&all[i]) || (last && all[i].step < last->step)) continue;
    const ZxManifest *m = zx_manifest_read(a, all[i].path, err);
    if (m && m->step != all[i].step) {
      zb_fail(err, NULL, "%s is by its manifest the checkpoint of step %" PRId64 ": a copy, or renamed",
              zb_show(all[i].path), m->step);
    } else if (m) {
      zb_fail(err, NULL, "%s could not be read a moment ago", zb_show(all[i].path));
      err->passing = true;
    }
    if (last) zb_fail_more(err, "; complete is %s", zb_show(last->path));
    snprintf(err->help, sizeof err->help, "%s",
             err->passing ? ""
             : last       ? "go on from that with --resume-from, or remove the other"
                          : "remove it to begin anew");
    return false;
  }
  *path = last ? last->path : NULL;
  return true;
}

static bool choose(ZbArena *a, const ZxOptions *o, char path[PATH_MAX], ZbErr *err) {
  const char *found = o->resume_from;
  *path = 0;
  if (!found && !newest(a, o->ckpt, &found, err)) return false;
  if (found && strlen(found) >= PATH_MAX) return zb_fail(err, NULL, "%s is too long a name", zb_show(found));
  if (found) memcpy(path, found, strlen(found) + 1);
  return true;
}

bool zx_saves_find(ZbArena *a, ZxComm *c, const ZxOptions *o, const char **path, ZxManifest **m, ZbErr *err) {
  char name[PATH_MAX] = "";
  *path = NULL;
  if (!o->resume && !o->resume_from) return true;
  bool ok = c->t->rank(c) || choose(a, o, name, err);
  if (!zx_agree(c, ok)) return false;
  c->t->wait(c, c->t->broadcast(c, 0, name, sizeof name, 0));
  if (!*name) return true;
  *path = zb_strdup(a, name);
  return (*m = zx_manifest_read(a, *path, err)) != NULL;
}

/* ---- whether it fits ---- */
/* Kinds of facts that checkpoints have; of options, those that decide what a sample or a random number is. */
static const char *kind_of(const ZxFact *f) {
  switch (f->kind) {
  case ZX_GRAPH: return "model";
  case ZX_DATA: return "data";
  case ZX_RECIPE: return "recipe";
  case ZX_OPTIONS: return !strcmp(f->name, "--seed") || !strcmp(f->name, "--order") ? "options" : NULL;
  default: return NULL;
  }
}

void zx_saves_facts(ZbArena *a, const ZxFacts *run, ZxManifest *m) {
  static const char *const kinds[] = {"model", "data", "options", "recipe"};
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
    for (uint32_t i = 0; i < run->n; i++) {
      const char *kind = kind_of(&run->fact[i]);
      if (!kind || strcmp(kind, kinds[k])) continue;
      ZxCkptFact f = {kind, run->fact[i].name, run->fact[i].value};
      ZB_PUSH(a, m->facts, m->nfacts, f);
    }
}

static const char *value_in(const ZxFacts *run, const ZxCkptFact *like) {
  for (uint32_t i = 0; i < run->n; i++) {
    const char *kind = kind_of(&run->fact[i]);
    if (kind && !strcmp(kind, like->kind) && !strcmp(run->fact[i].name, like->name))
      return run->fact[i].value;
  }
  return NULL;
}

static bool differs(const ZxCkptFact *f, const char *path, const char *here, ZbErr *err) {
  const char *help = !strcmp(f->kind, "data") ? "give the same data; other data begin a new run with --init"
                     : !strcmp(f->kind, "options") ? "give the same as before"
                                                   : "compile the same model with the same sizes";
  bool option = !strcmp(f->kind, "options");
  return zb_fail(err, help, "%s is of a run with %s%s%s%s %s; this run has %s", zb_show(path),
                 option ? "" : "other ", option ? "" : f->kind, option ? "" : ": ", f->name,
                 zb_show(f->value), here ? zb_show(here) : "none");
}

static bool is_fact(const ZxCkptFact *f, const char *kind, const char *name) {
  return !strcmp(f->kind, kind) && !strcmp(f->name, name);
}

/* What differs and is told: of the recipe, or of the model. */
typedef struct {
  ZbText text;
  const char *kind, *intro;
} Told;

/* was, is: NULL, there is none. */
static void tell_fact(Told *t, const char *name, const char *was, const char *is) {
  zb_text_add(&t->text, "%s %s", t->text.len ? ";" : t->intro, name);
  if (was) zb_text_add(&t->text, ", was %s", was);
  if (is) zb_text_add(&t->text, ", is %s", is);
}

static void end_told(Told *t, ZbText *note) {
  if (t->text.len) zb_text_add(note, "%s\n", t->text.s);
  zb_text_free(&t->text);
}

/* Facts of a kind that differ, but for those of the layout. Of a checkpoint that has but one, what is new was not
 * written then. */
static void tell_all(Told *t, const ZxManifest *m, const ZxFacts *run) {
  for (uint32_t i = 0; i < m->nfacts; i++) {
    const ZxCkptFact *f = &m->facts[i];
    if (strcmp(f->kind, t->kind) || zl_is_layout(f->name) || is_fact(f, "model", "source")) continue;
    const char *here = value_in(run, f);
    if (!here || strcmp(here, f->value)) tell_fact(t, f->name, f->value, here);
  }
  bool knows = strcmp(t->kind, "model") || zx_manifest_fact(m, "model", "operations");
  for (uint32_t i = 0; i < run->n && knows; i++) {
    const char *kind = kind_of(&run->fact[i]), *name = run->fact[i].name;
    if (!kind || strcmp(kind, t->kind) || zx_manifest_fact(m, kind, name) || zl_is_layout(name)) continue;
    if (strcmp(kind, "model") || strcmp(name, "source")) tell_fact(t, name, NULL, run->fact[i].value);
  }
}

/* Data, their order and the seed are the same, and all of these are in both. */
static bool same_run(const ZxManifest *m, const char *path, const ZxFacts *run, ZbErr *err) {
  for (uint32_t i = 0; i < m->nfacts; i++) {
    const ZxCkptFact *f = &m->facts[i];
    if (!strcmp(f->kind, "recipe") || !strcmp(f->kind, "model")) continue;
    const char *here = value_in(run, f);
    if (!here || strcmp(here, f->value)) return differs(f, path, here, err);
  }
  for (uint32_t i = 0; i < run->n; i++) {
    const char *kind = kind_of(&run->fact[i]);
    if (!kind || !strcmp(kind, "recipe") || !strcmp(kind, "model")) continue;
    if (zx_manifest_fact(m, kind, run->fact[i].name)) continue;
    return differs(&(ZxCkptFact){kind, run->fact[i].name, "none"}, path, run->fact[i].value, err);
  }
  return true;
}

bool zx_saves_fit(const ZxManifest *m, const char *path, const ZxFacts *run, bool same_model, ZbText *note,
                  ZbErr *err) {
  const ZxCkptFact *hash = NULL, *source = NULL;
  Told recipe = {.kind = "recipe", .intro = "note: the recipe is another than the checkpoint's:"};
  Told model = {.kind = "model",
                .intro =
                    "note: the model computes something else than the checkpoint's, of the same parameters:"};
  for (uint32_t i = 0; i < m->nfacts; i++) {
    if (is_fact(&m->facts[i], "model", "hash")) hash = &m->facts[i];
    if (is_fact(&m->facts[i], "model", "source")) source = &m->facts[i];
  }
  const char *here = hash ? value_in(run, hash) : NULL, *there = source ? value_in(run, source) : NULL;
  bool other = hash && (!here || strcmp(here, hash->value));
  if (other && same_model) return differs(hash, path, here, err);
  if (!same_run(m, path, run, err)) return false;
  if (other) tell_all(&model, m, run);
  else if (source && (!there || strcmp(there, source->value)))
    zb_text_add(note,
                "note: the model's source differs from the checkpoint's; what it computes is the same\n");
  tell_all(&recipe, m, run);
  end_told(&model, note);
  end_told(&recipe, note);
  return true;
}

/* ---- when one is written ---- */
static void tell(const ZxSaves *s, const ZxCheckpointReport *r) {
  char all[24], most[24];
  if (s->rank || r->news == ZX_CKPT_NOTHING || (r->news == ZX_CKPT_SAVED && s->o->quiet)) return;
  if (r->news == ZX_CKPT_SAVED)
    printf("checkpoint %s: %s, at most %s by one rank, written in %.2f s, complete after %.2f s\n",
           zb_show(r->path), zb_bytes(all, r->bytes), zb_bytes(most, r->most), r->write, r->seconds);
  else if (!s->good)
    printf("note: the checkpoint of step %" PRId64 " failed, and there is no other\n", r->step);
  else printf("note: the checkpoint of step %" PRId64 " failed; complete is %s\n", r->step, zb_show(s->good));
  fflush(stdout);
}

static bool take(ZxSaves *s, const ZxCheckpointReport *r) {
  tell(s, r);
  if (r->news == ZX_CKPT_SAVED) {
    s->good = zb_strdup(s->a, r->path);
    s->seconds = r->seconds;
  }
  return r->news != ZX_CKPT_FAILED;
}

static bool begin(ZxSaves *s, int64_t step) {
  if (s->before && !s->before(s->run, step)) return false;
  s->begun = step;
  s->since = zb_now();
  zx_checkpoints_begin(s->c, step);
  return true;
}

/* By rank 0's clock, where that counts. */
void zx_saves_flags(const ZxSaves *s, double flags[ZX_SAVES_FLAGS]) {
  flags[0] = flags[1] = flags[2] = 0;
  if (!s->c) return;
  ZxCheckpointState x = zx_checkpoints_state(s->c);
  flags[0] = x.working;
  flags[1] = x.failed;
  flags[2] = s->rank == 0 && s->o->ckpt_seconds > 0 && zb_now() - s->since >= s->o->ckpt_seconds;
}

bool zx_saves_step(ZxSaves *s, int64_t step, const double flags[ZX_SAVES_FLAGS]) {
  if (!s->c) return true;
  ZxCheckpointReport r = zx_checkpoints_go_on(s->c, &(ZxCheckpointState){flags[0], flags[1]});
  if (!take(s, &r) && s->o->ckpt_fail == ZX_CKPT_FAIL_END) return false;
  /* One that could not be begun in time, because another was still written, is begun as soon as that is done. */
  int64_t every = s->o->ckpt_steps;
  bool due = flags[2] > 0 || (every && step / every > s->begun / every);
  return !due || zx_checkpoints_busy(s->c) || begin(s, step);
}

static ZxCheckpointReport settle(ZxSaves *s) {
  ZxCheckpointReport r = zx_checkpoints_wait(s->c);
  take(s, &r);
  return r;
}

void zx_saves_settle(ZxSaves *s) {
  if (s->c) settle(s);
}

bool zx_saves_end(ZxSaves *s, int64_t step) {
  if (!s->c) return true;
  ZxCheckpointReport r = settle(s);
  if (s->begun == step && r.news != ZX_CKPT_FAILED) return true;
  if (!begin(s, step)) return false;
  r = zx_checkpoints_wait(s->c);
  return take(s, &r);
}
