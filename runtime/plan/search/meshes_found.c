/* Recipes that generate, for people and for programs. */
#include "runtime/plan/search/internal.h"

#include <string.h>

static const char *plural(int64_t n) { return n == 1 ? "" : "s"; }

/* "8 texts at once, prompts of 1024 tokens and answers of 1024" */
static void add_asked(const ZpStepsSearch *s, ZbText *out) {
  char text[24];
  const ZpStepsAsked *o = &s->asked;
  if (o->sequences) zb_text_add(out, "%lld text%s at once, ", (long long)o->sequences, plural(o->sequences));
  zb_text_add(out, "prompts of %lld token%s and answers of %lld; ", (long long)o->prompt, plural(o->prompt),
              (long long)o->answer);
  if (o->latency > 0)
    zb_text_add(out, "the most tokens a second, where no text waits longer than %s for its next token",
                zb_seconds_text(text, o->latency));
  else zb_text_add(out, "the soonest answers");
}

/* "int4 group 64"; of weights that are not packed the type that is computed in. */
static const char *weights_of(const ZpStepsSearch *s, const ZpFoundSteps *f) {
  const char *format = s->asked.weights[f->weights];
  return strcmp(format, "none") ? format : s->asked.bf16 ? "bf16" : "f32";
}

/* "tensor 8, int4 group 64": the mesh, and where several formats were weighed, that. */
static void add_layout(const ZpStepsSearch *s, const ZpFoundSteps *f, ZbText *out) {
  add_mesh(f->recipe, out);
  if (s->asked.nweights > 1) zb_text_add(out, ", %s", weights_of(s, f));
}

/* Returns how wide the first column is. */
static int wide(const ZpStepsSearch *s) { return s->asked.nweights > 1 ? 44 : 32; }

/* "products +1.2 ms, tensor +0.3 ms": parts of a step that take longer than the best's; else what sets it apart. */
static void add_why(const ZpStepsSearch *s, const ZpFoundSteps *f, ZbText *out) {
  const ZpFoundSteps *best = &s->best[0];
  ZbText longer = {0};
  int n = add_longer(f->time.part, best->time.part, best->time.step, &longer);
  if (f == best) zb_text_add(out, "the best");
  else if (s->asked.latency > 0 && f->sequences < best->sequences)
    zb_text_add(out, "%s", f->full ? "no more texts fit" : "more texts would take too long");
  else if (f->sequences > best->sequences && n)
    zb_text_add(out, "more texts, but slower steps: %s", longer.s);
  else if (n) zb_text_add(out, "%s", longer.s);
  else if (f->time.waves > best->time.waves) zb_text_add(out, "a step waits for its turn in the pipeline");
  else if (f->time.first > 1.001 * best->time.first) zb_text_add(out, "reads prompts more slowly");
  else if (f->time.mixed < .999 * best->time.mixed) zb_text_add(out, "writes fewer tokens a second");
  else zb_text_add(out, "%s", f->bytes > best->bytes ? "the same time, more memory" : "the same time");
  if (f->replicas > f->sequences)
    zb_text_add(out, "; %lld of %lld replicas idle", (long long)(f->replicas - f->sequences),
                (long long)f->replicas);
  zb_text_free(&longer);
}

static void add_row(const ZpStepsSearch *s, const ZpFoundSteps *f, ZbText *out) {
  char bytes[24], first[24], between[24], answer[24];
  ZbText mesh = {0};
  add_layout(s, f, &mesh);
  zb_text_add(out, "  %-*s %6lld %9s %9s %9s %9s %9.4g  ", wide(s), mesh.s, (long long)f->sequences,
              zb_bytes(bytes, f->bytes), zb_seconds_text(first, f->time.first),
              zb_seconds_text(between, f->time.between), zb_seconds_text(answer, f->time.answer),
              f->time.mixed);
  add_why(s, f, out);
  zb_text_add(out, "\n");
  zb_text_free(&mesh);
}

void zp_show_steps_search(const ZpStepsSearch *s, ZbText *out) {
  char limit[24], memory[24];
  uint32_t shown = s->nbest < s->asked.keep ? s->nbest : s->asked.keep;
  zb_text_add(out, "model %s on %lld device%s of cluster %s, %s of %s each; in %s", s->graph->model,
              (long long)s->ranks, plural(s->ranks), s->asked.cluster->name, zb_bytes(limit, s->limit),
              zb_bytes(memory, s->asked.cluster->device_memory), s->asked.bf16 ? "bf16" : "f32");
  for (uint32_t i = 0; i < s->asked.nweights; i++) {
    const char *format = weights_of(s, &(ZpFoundSteps){.weights = i});
    if (s->asked.nweights > 1) zb_text_add(out, "%s%s", i ? " or " : ", weights in ", format);
    else if (strcmp(s->asked.weights[i], "none")) zb_text_add(out, ", weights in %s", format);
  }
  zb_text_add(out, "\n");
  add_asked(s, out);
  zb_text_add(out, "\n%u mesh%s", s->meshes, s->meshes == 1 ? "" : "es");
  if (s->asked.nweights > 1) zb_text_add(out, " with weights in %u formats", s->asked.nweights);
  zb_text_add(out, " planned and timed, %u will do\n", s->nbest);
  if (s->none) zb_text_add(out, "%s\n", s->none);
  if (shown)
    zb_text_add(out, "\n  %-*s %6s %9s %9s %9s %9s %9s  %s\n", wide(s), "mesh", "texts", "memory", "first",
                "between", "answer", "tokens/s", "because");
  for (uint32_t i = 0; i < shown; i++) add_row(s, &s->best[i], out);
  if (s->nlost) zb_text_add(out, "\n");
  for (uint32_t i = 0; i < s->nlost && i < s->asked.keep; i++) {
    ZbText mesh = {0};
    add_layout(s, &s->lost[i], &mesh);
    zb_text_add(out, "  %-*s %s\n", wide(s), mesh.s, s->lost[i].refused);
    zb_text_free(&mesh);
  }
  if (s->nlost > s->asked.keep)
    zb_text_add(out, "  and %u more that will not do\n", s->nlost - s->asked.keep);
}

/* ---- as JSON -------------------------------------------------------------------------------------------- */
static void put_found(ZbJson *j, const ZpStepsSearch *s, const ZpFoundSteps *f) {
  ZpWriting w = {f->sequences, s->asked.prompt, s->asked.answer};
  zb_json_object(j, NULL);
  put_mesh(j, f->recipe);
  zb_json_string(j, "weights", weights_of(s, f));
  zb_json_list(j, "stages");
  for (uint32_t i = 0; i < f->recipe->stages.n; i++) zb_json_int(j, NULL, f->recipe->stages.counts[i]);
  zb_json_end(j);
  if (f->bytes) {
    zb_json_count(j, "bytes", f->bytes);
    zb_json_count(j, "stage", f->stage);
  }
  if (f->refused) zb_json_string(j, "refused", f->refused);
  if (f->time.between > 0) zp_json_generation(j, &w, &f->time);
  zb_json_end(j);
}

void zp_show_steps_search_json(const ZpStepsSearch *s, ZbText *out) {
  ZbJson json = {.text = out}, *j = &json;
  uint32_t shown = s->nbest < s->asked.keep ? s->nbest : s->asked.keep;
  zb_json_object(j, NULL);
  zb_json_string(j, "format", "zug plan");
  zb_json_int(j, "version", 1);
  zb_json_string(j, "model", s->graph->model);
  zb_json_string(j, "cluster", s->asked.cluster->name);
  zb_json_int(j, "ranks", s->ranks);
  zb_json_count(j, "limit", s->limit);
  zb_json_count(j, "meshes", s->meshes);
  zb_json_number(j, "latency", s->asked.latency);
  zb_json_list(j, "best");
  for (uint32_t i = 0; i < shown; i++) put_found(j, s, &s->best[i]);
  zb_json_end(j);
  zb_json_list(j, "lost");
  for (uint32_t i = 0; i < s->nlost; i++) put_found(j, s, &s->lost[i]);
  zb_json_end(j);
  if (s->none) zb_json_string(j, "refused", s->none);
  zb_json_end(j);
  zb_text_add(out, "\n");
}

/* ---- as a recipe ---------------------------------------------------------------------------------------- */
static void add_reasons(const ZpStepsSearch *s, const ZpFoundSteps *f, ZbText *out) {
  char a[24], b[24], c[24];
  zb_text_add(
      out,
      "# The best of %u meshes to generate with model %s on %lld devices of cluster %s, by zplan search.\n# ",
      s->meshes, s->graph->model, (long long)s->ranks, s->asked.cluster->name);
  add_asked(s, out);
  zb_text_add(out,
              ".\n#\n# Predicted: %s to the first token, %s between two, %s for an answer; %.4g tokens/s.\n",
              zb_seconds_text(a, f->time.first), zb_seconds_text(b, f->time.between),
              zb_seconds_text(c, f->time.answer), f->time.mixed);
  zb_text_add(out, "# The fullest rank, of stage %u, holds %s of %s:", f->stage, zb_bytes(a, f->bytes),
              zb_bytes(b, s->limit));
  add_ledger(&f->ledger, out);
  zb_text_add(out, ".\n");
  for (uint32_t i = 1; i < s->nbest && i < 4; i++) {
    zb_text_add(out, "# Not ");
    add_layout(s, &s->best[i], out);
    zb_text_add(out, ": ");
    add_why(s, &s->best[i], out);
    zb_text_add(out, ".\n");
  }
  zb_text_add(out, "\n");
}

bool zp_is_searched(const uint8_t *head, size_t n) {
  return n == 16 && (!memcmp(head, "# The fastest of", 16) || !memcmp(head, "# The best of ", 14));
}

void zp_steps_recipes(const ZpStepsSearch *s, uint32_t n, ZbText *out) {
  add_reasons(s, &s->best[0], out);
  for (uint32_t i = 0; i < n && i < s->nbest; i++) {
    ZlRecipe r = *s->best[i].recipe;
    char name[24] = "best";
    if (i) snprintf(name, sizeof name, "best_%u", i + 1), zb_text_add(out, "\n");
    r.name = name;
    r.model = s->graph->model;
    r.limit.memory = s->limit;
    zl_recipe_write(&r, out);
  }
}
