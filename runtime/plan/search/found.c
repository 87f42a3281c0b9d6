/* Results of a search, for people and for programs. */
#include "runtime/plan/search/internal.h"

#include <math.h>
#include <string.h>

/* "pipe 8 (interleaved), data 24, tensor 8", "data 8, context 16 (ring)" */
void add_mesh(const ZlRecipe *r, ZbText *out) {
  for (uint32_t i = 0; i < r->nmesh; i++) {
    zb_text_add(out, "%s%s %lld", i ? ", " : "", r->mesh[i].name.s, (long long)r->mesh[i].size);
    for (uint32_t k = 0; k < r->nattention; k++)
      if (r->attention[k].dim.s && !strcmp(r->attention[k].dim.s, r->mesh[i].name.s))
        zb_text_add(out, " (%s)", zl_attention_ways[r->attention[k].way]);
    if (r->schedule.s && r->stages.dim.s && !strcmp(r->stages.dim.s, r->mesh[i].name.s))
      zb_text_add(out, " (%s)", r->schedule.s);
  }
  if (!r->nmesh) zb_text_add(out, "one rank");
}

static const char *zero_word(const ZlRecipe *r) {
  if (!r->nshards) return "-";
  const ZlShard *s = &r->shards[0];
  return s->what & ZL_SHARD_PARAMS ? (s->keep ? "3 keep" : "3") : s->what & ZL_SHARD_GRADS ? "2" : "1";
}

static void add_recompute(const ZlRecipe *r, ZbText *out) {
  for (uint32_t i = 0; i < r->nrecompute; i++)
    for (uint32_t k = 0; k < r->recompute[i].n; k++)
      zb_text_add(out, "%s%s", k ? "." : i ? ", " : "", r->recompute[i].part[k].s);
  if (!r->nrecompute) zb_text_add(out, "-");
}

/* "data 8, tensor 8, micro 2, ZeRO 3, recompute -" */
static void add_recipe(const ZlRecipe *r, ZbText *out) {
  add_mesh(r, out);
  zb_text_add(out, ", micro %lld, ZeRO %s, recompute ", (long long)r->micro, zero_word(r));
  add_recompute(r, out);
}

void add_ledger(const ZpLedger *l, ZbText *out) {
  const char *between = " ";
  char bytes[24];
  for (int i = 0; i < ZP_LEDGER_LINES; i++) {
    if (!l->bytes[i] || zp_ledger_info[i].memory != ZP_DEVICE) continue;
    zb_text_add(out, "%s%s %s", between, zp_ledger_info[i].text, zb_bytes(bytes, l->bytes[i]));
    between = ", ";
  }
}

static const ZlNames *else_of(const ZlRecipe *r) {
  for (uint32_t i = 0; i < r->nsplits; i++)
    if (r->splits[i].otherwise.n) return &r->splits[i].otherwise;
  return NULL;
}

int add_longer(const double *part, const double *best, double of, ZbText *out) {
  bool said[ZP_T_PARTS] = {false};
  int n = 0;
  for (; n < 3; n++) {
    int most = -1;
    for (int k = 0; k < ZP_T_PARTS; k++)
      if (!said[k] && (most < 0 || part[k] - best[k] > part[most] - best[most])) most = k;
    double more = part[most] - best[most];
    char text[24];
    if (more < .001 * of) break;
    said[most] = true;
    zb_text_add(out, "%s%s +%s", n ? ", " : "", zp_part_word[most], zb_seconds_text(text, more));
  }
  return n;
}

static void add_why(const ZpFound *best, const ZpFound *f, ZbText *out) {
  if (!add_longer(f->part, best->part, best->seconds, out))
    zb_text_add(out, "%s", f->bytes > best->bytes ? "the same time, more memory" : "the same time");
}

static void add_row(const ZpSearch *s, const ZpFound *f, ZbText *out) {
  const ZpFound *best = &s->best[0];
  const ZlRecipe *r = f->recipe;
  char time[24], bytes[24];
  ZbText mesh = {0}, again = {0};
  add_mesh(r, &mesh);
  add_recompute(r, &again);
  zb_text_add(out, "  %-38s %5lld %5lld  %-6s %-4s %-22s %9s %9s %6.1f%% %6.1f%%  ", mesh.s,
              (long long)r->micro, (long long)f->nmicro, zero_word(r), else_of(r) ? else_of(r)->at[0].s : "-",
              again.s, zb_bytes(bytes, f->bytes), zb_seconds_text(time, f->seconds), 100 * f->utilization,
              100 * (f->seconds / best->seconds - 1));
  if (f != best) add_why(best, f, out);
  else zb_text_add(out, "the best");
  zb_text_add(out, "\n");
  zb_text_free(&mesh);
  zb_text_free(&again);
}

static void add_nearest(const ZpSearch *s, ZbText *out) {
  const ZpFound *f = s->nearest;
  char need[24], have[24], more[24];
  if (!s->meshes)
    zb_text_add(out, "no mesh of %lld ranks divides the batch, the layers and the axes of the model\n",
                (long long)s->ranks);
  else if (s->refused) zb_text_add(out, "none can be planned: %s\n", s->refused);
  else zb_text_add(out, "nothing fits into %s a device\n", zb_bytes(have, s->limit));
  if (!s->meshes || s->refused || !f) return;
  zb_text_add(out, "nearest comes ");
  add_recipe(f->recipe, out);
  zb_text_add(out, ": stage %u needs %s, %s too many:", f->stage, zb_bytes(need, f->bytes),
              zb_bytes(more, f->bytes > s->limit ? f->bytes - s->limit : 0));
  add_ledger(&f->ledger, out);
  zb_text_add(out, "\n");
}

void zp_show_search(const ZpSearch *s, ZbText *out) {
  char a[24], b[24];
  zb_text_add(out, "model %s on %lld devices of cluster %s, %s of %s each%s\n", s->graph->model,
              (long long)s->ranks, s->cluster->name, zb_bytes(a, s->limit),
              zb_bytes(b, s->cluster->device_memory),
              s->limit_given ? " as the recipe says" : ": a 16th is left to drivers and libraries");
  zb_text_add(out,
              "%llu meshes, %llu recipes; %llu were weighed, of which %llu fit: the others are slower, or "
              "larger than the memory. %llu were planned and simulated\n\n",
              (unsigned long long)s->meshes, (unsigned long long)s->recipes, (unsigned long long)s->weighed,
              (unsigned long long)s->fit, (unsigned long long)s->simulated);
  if (s->nbest) {
    zb_text_add(out, "  %-38s %5s %5s  %-6s %-4s %-22s %9s %9s %7s %7s  %s\n", "mesh", "micro", "times",
                "ZeRO", "else", "recompute", "memory", "step", "MFU", "slower", "because");
    for (uint32_t i = 0; i < s->nbest; i++) add_row(s, &s->best[i], out);
  } else {
    add_nearest(s, out);
  }
}

/* ---- as JSON -------------------------------------------------------------------------------------------- */
static void put_names(ZbJson *j, const ZlRecipe *r) {
  zb_json_list(j, "else");
  for (uint32_t i = 0; else_of(r) && i < else_of(r)->n; i++) zb_json_string(j, NULL, else_of(r)->at[i].s);
  zb_json_end(j);
  zb_json_list(j, "recompute");
  for (uint32_t i = 0; i < r->nrecompute; i++) {
    ZbText t = {0};
    for (uint32_t k = 0; k < r->recompute[i].n; k++)
      zb_text_add(&t, "%s%s", k ? "." : "", r->recompute[i].part[k].s);
    zb_json_string(j, NULL, t.s);
    zb_text_free(&t);
  }
  zb_json_end(j);
}

void put_mesh(ZbJson *j, const ZlRecipe *r) {
  zb_json_object(j, "mesh");
  for (uint32_t i = 0; i < r->nmesh; i++) zb_json_int(j, r->mesh[i].name.s, r->mesh[i].size);
  zb_json_end(j);
}

static void put_found(ZbJson *j, const ZpFound *f) {
  const ZlRecipe *r = f->recipe;
  unsigned what = r->nshards ? r->shards[0].what : 0;
  put_mesh(j, r);
  zb_json_int(j, "micro", r->micro);
  zb_json_int(j, "micro_batches", f->nmicro);
  zb_json_int(j, "zero", !r->nshards ? 0 : what & ZL_SHARD_PARAMS ? 3 : what & ZL_SHARD_GRADS ? 2 : 1);
  zb_json_bool(j, "keep", r->nshards && r->shards[0].keep);
  put_names(j, r);
  zb_json_string(j, "schedule", zl_schedule(r->schedule));
  zb_json_list(j, "stages");
  for (uint32_t i = 0; i < r->stages.n; i++) zb_json_int(j, NULL, r->stages.counts[i]);
  zb_json_end(j);
  zb_json_count(j, "bytes", f->bytes);
  zb_json_count(j, "least_bytes", f->least);
  zb_json_count(j, "ranked_bytes", f->estimate);
  zb_json_count(j, "stage", f->stage);
  if (!(f->seconds > 0)) return;
  zb_json_number(j, "seconds", f->seconds);
  zb_json_number(j, "ranked_seconds", f->closed);
  zb_json_number(j, "mfu", f->utilization);
  zb_json_object(j, "parts");
  for (int k = 0; k < ZP_T_PARTS; k++) zb_json_number(j, zp_part_word[k], f->part[k]);
  zb_json_end(j);
}

void zp_show_search_json(const ZpSearch *s, ZbText *out) {
  ZbJson json = {.text = out}, *j = &json;
  zb_json_object(j, NULL);
  zb_json_string(j, "format", "zug plan");
  zb_json_int(j, "version", 1);
  zb_json_string(j, "model", s->graph->model);
  zb_json_string(j, "cluster", s->cluster->name);
  zb_json_int(j, "ranks", s->ranks);
  zb_json_count(j, "limit", s->limit);
  zb_json_count(j, "meshes", s->meshes);
  zb_json_count(j, "recipes", s->recipes);
  zb_json_count(j, "weighed", s->weighed);
  zb_json_count(j, "fit", s->fit);
  zb_json_list(j, "best");
  for (uint32_t i = 0; i < s->nbest; i++) {
    zb_json_object(j, NULL);
    put_found(j, &s->best[i]);
    zb_json_end(j);
  }
  zb_json_end(j);
  if (s->nearest) {
    zb_json_object(j, "nearest");
    put_found(j, s->nearest);
    zb_json_end(j);
  }
  if (!s->nbest && s->refused) zb_json_string(j, "refused", s->refused);
  zb_json_end(j);
  zb_text_add(out, "\n");
}

/* ---- as a recipe ---------------------------------------------------------------------------------------- */
static void add_reasons(const ZpSearch *s, const ZpFound *f, ZbText *out) {
  char a[24], b[24];
  zb_text_add(out,
              "# The fastest of %llu recipes for model %s on %lld devices of cluster %s, by zplan search.\n",
              (unsigned long long)s->recipes, s->graph->model, (long long)s->ranks, s->cluster->name);
  zb_text_add(out, "#\n# A step is predicted to take %s, at %.1f %% MFU:", zb_seconds_text(a, f->seconds),
              100 * f->utilization);
  const char *between = " ";
  for (int k = 0; k < ZP_T_PARTS; k++) {
    if (f->part[k] < .001 * f->seconds) continue;
    zb_text_add(out, "%s%s %s", between, zp_part_word[k], zb_seconds_text(a, f->part[k]));
    between = ", ";
  }
  zb_text_add(out, ".\n# The fullest rank, of stage %u, holds %s of %s:", f->stage, zb_bytes(a, f->bytes),
              zb_bytes(b, s->limit));
  add_ledger(&f->ledger, out);
  zb_text_add(out, ".\n");
  for (uint32_t i = 1; i < s->nbest && i < 4; i++) {
    zb_text_add(out, "# %.1f %% slower: ", 100 * (s->best[i].seconds / f->seconds - 1));
    add_recipe(s->best[i].recipe, out);
    zb_text_add(out, ": ");
    add_why(f, &s->best[i], out);
    zb_text_add(out, ".\n");
  }
  zb_text_add(out, "\n");
}

/* "best", "best_2" */
static void write_as(const ZpSearch *s, uint32_t i, ZbText *out) {
  ZlRecipe r = *s->best[i].recipe;
  char name[24] = "best";
  if (i) snprintf(name, sizeof name, "best_%u", i + 1);
  r.name = name;
  r.model = s->graph->model;
  r.limit.memory = s->limit;
  zl_recipe_write(&r, out);
}

void zp_search_recipes(const ZpSearch *s, uint32_t n, ZbText *out) {
  add_reasons(s, &s->best[0], out);
  write_as(s, 0, out);
  for (uint32_t i = 1; i < n && i < s->nbest; i++) {
    char time[24];
    zb_text_add(out, "\n# %s, %.1f %% slower: ", zb_seconds_text(time, s->best[i].seconds),
                100 * (s->best[i].seconds / s->best[0].seconds - 1));
    add_why(&s->best[0], &s->best[i], out);
    zb_text_add(out, "\n");
    write_as(s, i, out);
  }
}
