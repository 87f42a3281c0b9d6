/* What a run is given, and whether all ranks were given the same. */
#include "runtime/exec/comm/watch.h"
#include "runtime/exec/hub/hub.h"
#include "runtime/exec/recipe.h"
#include "runtime/exec/run/run.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

/* ---- whether ranks were started alike ---- */
/* `auto` is another device where a GPU or its driver is missing; those ranks say so. */
bool zx_run_same_options(ZxRun *r) {
  ZxFacts f = {.a = r->a};
  zx_option_facts(&f, &r->o);
  zx_module_facts(&f, r->o.device);
  if (zx_same_or_say(r->c, &f)) return true;
  if (*r->o.device_note.text) zx_say(r->rank, "note: computing on the CPU, %s", r->o.device_note.text);
  return false;
}

/* ---- files and plans ---- */
bool zx_run_read_recipe(ZxRun *r, ZbErr *err) {
  const char *name;
  r->sources = zl_sources_new(r->a);
  r->diags = zl_diags_new(r->a, r->sources);
  ZlOptions lo = {r->o.include.s, r->o.include.n};
  ZlProgram *p = zl_load_named(r->a, r->sources, r->diags, r->o.recipe, &lo, &name);
  if (p) r->recipe = zx_recipe_for(p, r->diags, r->a, name, r->c->t->size(r->c), err);
  /* Collective, whatever became of the recipe here. */
  if (zx_auto_cluster(&r->o)) r->cluster = zx_run_auto_cluster(r);
  else if (r->o.cluster && p && (p = zl_load_named(r->a, r->sources, r->diags, r->o.cluster, &lo, &name)))
    r->cluster = zl_cluster(p, r->diags, name);
  return (r->recipe || *err->text) && (r->cluster || !r->o.cluster) && !zl_errors(r->diags);
}

static bool read_mix(ZxRun *r, const char *text, ZxFactKind kind, ZxMix **data, ZxFacts *f, ZbText *note) {
  ZbErr err = {0};
  if (!text) return true; /* for no steps, or no evaluation */
  *data = zx_mix_open(text, &err);
  bool held_out = kind == ZX_EVAL_DATA || r->o.evaluates;
  bool ok = *data && (!held_out || zx_mix_files(*data) == 1 ||
                      zb_fail(&err, "evaluate on one after the other", "%s: an evaluation is of one file",
                              zb_show(text)));
  return zx_run_accept(r, ok, &err) &&
         zx_run_accept(r, zx_data_facts(f, kind, r->c, *data, note, &err), &err);
}

static bool read_data(ZxRun *r, ZxFacts *f, ZbText *note) {
  return read_mix(r, r->o.data, ZX_DATA, &r->data, f, note) &&
         read_mix(r, r->o.eval, ZX_EVAL_DATA, &r->eval_data, f, note);
}

bool zx_run_read_manifest(ZxRun *r, ZbErr *err) {
  const char **files;
  uint32_t n;
  r->manifest = zx_manifest_read(r->a, r->o.init, err);
  if (!r->manifest && zx_shards_list(r->a, r->o.init, &files, &n, NULL))
    snprintf(err->help, sizeof err->help, "if it holds another program's weights, give their --names, too");
  return r->manifest;
}

/* A safetensors file, a checkpoint's folder, or one of another program's weights. */
static bool read_init(ZxRun *r, ZxFacts *f, ZbText *note) {
  ZbErr err = {0};
  struct stat st;
  bool folder = stat(r->o.init, &st) == 0 && S_ISDIR(st.st_mode);
  if (!r->o.names && !zx_agree(r->c, !folder)) {
    bool ok = zx_run_read_manifest(r, &err);
    if (ok) zx_fact(f, ZX_INIT, "checkpoint's checksum", "%016" PRIx64, r->manifest->checksum);
    return zx_run_accept(r, ok, &err);
  }
  if (!zx_run_accept(r, zx_init_facts(f, r->c, r->o.init, "", note, &err), &err)) return false;
  bool ok = true;
  for (uint32_t i = 0; i < r->o.adapter.n && ok; i++)
    ok = zx_run_accept(r, zx_init_facts(f, r->c, r->adapters.s[i], "adapter's ", note, &err), &err);
  return ok;
}

/* A run may --save into the file that it begins with, and goes on where it ended; not into a folder of
 * weights, which would be a broken one. What a model predicts is no weights. */
static bool spares_inputs(const ZxRun *r, ZbErr *err) {
  struct stat st;
  const char *in = r->from ? r->from : r->o.init;
  if (r->rank || !in || stat(in, &st) < 0) return true;
  return (!r->o.predict || zb_spares("--predict", r->o.predict, in, err)) &&
         (!r->o.save || !S_ISDIR(st.st_mode) || zb_spares("--save", r->o.save, in, err));
}

/* Returns the last part of a path, without slashes behind it. */
static const char *last_part(ZbArena *a, const char *path) {
  size_t n = strlen(path);
  while (n > 1 && path[n - 1] == '/') n--;
  const char *whole = zb_strndup(a, path, n), *slash = strrchr(whole, '/');
  return slash && slash[1] ? slash + 1 : whole;
}

bool zx_run_take_adapters(ZxRun *r) {
  ZbErr err;
  ZbTexts given = r->o.adapter, *names = &r->adapter_names;
  for (uint32_t i = 0; i < given.n; i++) {
    const char *s = given.s[i], *is = strchr(s, '='), *slash = strchr(s, '/');
    bool named = is && is > s && (!slash || slash > is);
    const char *path = named ? is + 1 : s,
               *name = named ? zb_strndup(r->a, s, (size_t)(is - s)) : last_part(r->a, s);
    bool again = false;
    for (uint32_t k = 0; k < names->n; k++) again |= !strcmp(names->s[k], name);
    if (again)
      return zb_fail(&err, "give it as NAME=DIR", "--adapter %s: there are two of that name", zb_show(s)),
             zx_run_refuse(r, &err);
    ZB_PUSH(r->a, r->adapters.s, r->adapters.n, path);
    ZB_PUSH(r->a, names->s, names->n, name);
  }
  if (given.n < 2 || r->o.command == ZX_SERVE) return true;
  return zb_fail(&err, "give one", "several --adapter are for serve, whose clients choose one"),
         zx_run_refuse(r, &err);
}

bool zx_run_read(ZxRun *r) {
  ZbErr err = {0};
  ZbText note = {0};
  ZxFacts f = {.a = r->a};
  zx_watch_phase("opening files");
  if (!zx_run_take_adapters(r)) return false;
  r->graph = zg_read_file(r->a, r->o.graph, &err);
  if (!zx_run_accept(r, r->graph, &err) || !zx_run_agree_diags(r, zx_run_read_recipe(r, &err)) ||
      !zx_run_accept(r, r->recipe, &err))
    return false;
  ZxMap names;
  if (!zx_run_accept(r, zx_map_open(&names, r->a, r->graph, r->o.names, &err), &err)) return false;
  zx_graph_facts(&f, r->graph);
  zx_recipe_facts(&f, r->recipe);
  if (r->cluster) zx_cluster_facts(&f, r->cluster);
  bool ok = r->o.dry_run || read_data(r, &f, &note);
  if (ok) ok = zx_run_accept(r, zx_saves_find(r->a, r->c, &r->o, &r->from, &r->manifest, &err), &err);
  if (ok && r->from) zx_fact(&f, ZX_INIT, "checkpoint's checksum", "%016" PRIx64, r->manifest->checksum);
  if (ok && r->o.init && !r->from && !r->o.dry_run) ok = read_init(r, &f, &note);
  if (ok) ok = zx_run_accept(r, spares_inputs(r, &err), &err);
  if (ok && note.s) fputs(note.s, stdout);
  zb_text_free(&note);
  zx_fact(&f, ZX_OPTIONS, "--seed", "%" PRIu64, r->o.seed);
  zx_fact(&f, ZX_OPTIONS, "--order", "%s", r->o.order == ZX_ORDER_SEQUENTIAL ? "sequential" : "shuffled");
  r->facts = f;
  return ok && zx_same_or_say(r->c, &f);
}

/* Makes a plan in the arena of the one that trains: of evaluations, or of steps that generate. Its warnings have been
 * heard. */
static bool plan_beside(ZxRun *r, ZpOptions po, const ZpGenerating *generates, ZpPlan **out) {
  ZxFacts f = {.a = r->a};
  po.forward_only = true;
  po.beside = r->plan;
  po.generates = generates;
  po.checkpoints = false;
  r->diags = zl_diags_new(r->a, r->sources);
  *out = zp_plan(r->a, r->graph, r->recipe, r->diags, &po);
  if (!*out && !r->rank) zx_say(0, "note: what follows is of %s", generates ? "--sample-every" : "--eval");
  if (!zx_run_agree_diags(r, *out)) return false;
  zx_plan_facts(&f, *out);
  return zx_same_or_say(r->c, &f);
}

bool zx_run_plan(ZxRun *r) {
  ZxFacts f = {.a = r->a};
  zx_watch_phase("planning");
  bool writes = r->o.command == ZX_GENERATE || r->o.command == ZX_SERVE;
  const ZxDeviceTable *d = r->o.device;
  ZpOptions po = {.scratch = d->scratch,
                  .threads = r->o.threads,
                  .cluster = r->cluster,
                  .supports = d->supports,
                  .pins = !d->host,
                  .checkpoints = r->o.ckpt != NULL,
                  .repeatable = r->o.repeatable,
                  .forward_only = r->o.evaluates || writes,
                  .generates = writes ? &r->generating : NULL,
                  .outputs = r->o.predict != NULL};
  r->plan_options = po;
  r->plan = zp_plan(r->a, r->graph, r->recipe, r->diags, &po);
  if (!zx_run_agree_diags(r, r->plan)) return false;
  if (r->rank == 0) zx_run_print_diags(r); /* warnings */
  zx_plan_facts(&f, r->plan);
  return zx_same_or_say(r->c, &f) && (!r->o.eval || plan_beside(r, po, NULL, &r->eval_plan)) &&
         (!r->o.sample_every || plan_beside(r, po, &r->generating, &r->sample_plan));
}

bool zx_run_fits(ZxRun *r) {
  int n = r->c->t->size(r->c);
  if (n == r->plan->layout.mesh.nranks) return true;
  ZbErr err = {0};
  const char *dims = "";
  for (uint32_t i = 0; i < r->recipe->nmesh; i++)
    dims = zb_printf(r->a, "%s%s%s = %" PRId64, dims, i ? ", " : "", r->recipe->mesh[i].name.s,
                     r->recipe->mesh[i].size);
  zb_fail(&err, "", "recipe %s is for %" PRId64 " rank%s (%s); %s [Z0310]", r->recipe->name,
          r->plan->layout.mesh.nranks, r->plan->layout.mesh.nranks == 1 ? "" : "s", *dims ? dims : "no mesh",
          zx_started(r->a, n));
  if (r->plan->layout.mesh.nranks > 1)
    snprintf(err.help, sizeof err.help, "mpirun -np %" PRId64 " zrun ...", r->plan->layout.mesh.nranks);
  else snprintf(err.help, sizeof err.help, "zrun ..., without mpirun");
  return zx_run_refuse(r, &err);
}

void zx_run_place(ZxRun *r) {
  ZbText t = {0};
  int *order = ZB_NEWN(r->a, int, r->plan->layout.mesh.nranks);
  const int *node = r->c->t->nodes(r->c);
  bool other = zp_order_ranks(&r->plan->layout.mesh, r->a, node, order);
  zp_show_nodes(&r->plan->layout.mesh, r->a, node, order, &t);
  if (t.s && r->rank == 0 && !r->o.quiet) fputs(t.s, stdout);
  zb_text_free(&t);
  if (!other) return;
  r->c->t->reorder(r->c, order);
  zx_watch_meet(r->c);
  r->rank = r->c->t->rank(r->c);
  zb_bug_rank(r->rank);
}
