/* Times for people and for programs. */
#include "runtime/plan/time/internal.h"

const char *const zp_part_word[ZP_T_PARTS] = {
#define P(NAME, word, text) word,
#include "runtime/plan/time/parts.def"
};
static const char *const part_text[ZP_T_PARTS] = {
#define P(NAME, word, text) text,
#include "runtime/plan/time/parts.def"
};

static void show_stages(const ZpPlan *p, const ZpTime *t, ZbText *out) {
  zb_text_add(out, "\nmilliseconds of one rank\nstage");
  for (int k = 0; k < ZP_T_PARTS; k++) zb_text_add(out, " %11s", zp_part_word[k]);
  zb_text_add(out, "  recomputed\n");
  for (uint32_t s = 0; s < p->programs.nstages; s++) {
    zb_text_add(out, "%5u", s);
    for (int k = 0; k < ZP_T_PARTS; k++) zb_text_add(out, " %11.3f", 1e3 * t->stages[s].part[k]);
    zb_text_add(out, " %11.3f\n", 1e3 * t->stages[s].recomputed);
  }
}

void zp_show_time(const ZpPlan *p, const ZlCluster *c, const ZpTime *t, ZbText *out) {
  char text[24];
  double peak = zp_peak(p, c);
  zb_text_add(out, "recipe %s for model %s on cluster %s: %lld rank%s\n", p->asked.recipe->name,
              p->graph->model, c->name, (long long)p->layout.mesh.nranks,
              p->layout.mesh.nranks == 1 ? "" : "s");
  zb_text_add(out, "%-12s %s predicted\n", p->asked.forward_only ? "batch" : "step",
              zb_seconds_text(text, t->seconds));
  zb_text_add(out, "%-12s %.4g samples a second\n", "", t->samples);
  if (t->tokens > 0)
    zb_text_add(out, "%-12s %.4g tokens a second, %.4g a device\n", "", t->tokens,
                t->tokens / (double)p->layout.mesh.nranks);
  if (peak > 0)
    zb_text_add(out, "%-12s %.4g TFLOPS a device of %.4g: MFU %.1f %%\n", "", t->flops / 1e12, peak / 1e12,
                100 * t->utilization);
  zb_text_add(out, "\nwhere it goes, in the mean of the stages\n");
  for (int k = 0; k < ZP_T_PARTS; k++)
    if (t->mean[k] > 0)
      zb_text_add(out, "  %-10s %12s %5.1f %%  %s\n", zp_part_word[k], zb_seconds_text(text, t->mean[k]),
                  100 * t->mean[k] / t->seconds, part_text[k]);
  show_stages(p, t, out);
}

static void put_parts(ZbJson *j, const double *part) {
  for (int k = 0; k < ZP_T_PARTS; k++) zb_json_number(j, zp_part_word[k], part[k]);
}

void zp_json_time(ZbJson *j, const ZpPlan *p, const ZlCluster *c, const ZpTime *t) {
  const char *const key[] = {"seconds", "samples_per_second", "tokens_per_second", "flops_per_device", "mfu"};
  const double is[] = {t->seconds, t->samples, t->tokens, t->flops, t->utilization};
  zb_json_string(j, "format", "zug plan");
  zb_json_int(j, "version", 1);
  zb_json_string(j, "recipe", p->asked.recipe->name);
  zb_json_string(j, "model", p->graph->model);
  zb_json_string(j, "cluster", c->name);
  zb_json_int(j, "ranks", p->layout.mesh.nranks);
  for (int i = 0; i < 5; i++) zb_json_number(j, key[i], is[i]);
  zb_json_object(j, "parts");
  put_parts(j, t->mean);
  zb_json_end(j);
  zb_json_list(j, "stages");
  for (uint32_t s = 0; s < p->programs.nstages; s++) {
    zb_json_object(j, NULL);
    put_parts(j, t->stages[s].part);
    zb_json_number(j, "recomputed", t->stages[s].recomputed);
    zb_json_end(j);
  }
  zb_json_end(j);
}

void zp_show_time_json(const ZpPlan *p, const ZlCluster *c, const ZpTime *t, ZbText *out) {
  ZbJson j = {.text = out};
  zb_json_object(&j, NULL);
  zp_json_time(&j, p, c, t);
  zb_json_end(&j);
  zb_text_add(out, "\n");
}

/* ---- generation ---------------------------------------------------------------------------------------- */
static void line(ZbText *out, const char *what, double seconds) {
  char text[24];
  zb_text_add(out, "%-12s %9s  ", what, zb_seconds_text(text, seconds));
}

static const char *plural(int64_t n) { return n == 1 ? "" : "s"; }

void zp_show_generation(const ZpPlan *p, const ZlCluster *c, const ZpWriting *w, const ZpGenerationTime *t,
                        ZbText *out) {
  char text[24];
  zb_text_add(out, "recipe %s for model %s on cluster %s: %lld rank%s\n", p->asked.recipe->name,
              p->graph->model, c->name, (long long)p->layout.mesh.nranks, plural(p->layout.mesh.nranks));
  line(out, "first token", t->first);
  zb_text_add(out, "predicted: a prompt of %lld tokens alone, in %lld step%s of at most %lld\n",
              (long long)w->prompt, (long long)t->steps, plural(t->steps), (long long)p->generating.step);
  line(out, "between", t->between);
  zb_text_add(out, "from one token of a text to its next, %lld text%s at once%s\n", (long long)w->sequences,
              plural(w->sequences),
              t->waves > 1 ? zb_printf(p->arena, ", in %lld waves", (long long)t->waves) : "");
  line(out, "", t->beside);
  zb_text_add(out, "while a prompt is read beside\n");
  line(out, "answer", t->answer);
  zb_text_add(out, "of %lld token%s, prompt and all\n", (long long)w->answer, plural(w->answer));
  zb_text_add(out, "%-12s %9.4g  tokens a second; %.4g where texts that end make place for others\n",
              "written", t->written, t->mixed);
  zb_text_add(out, "\nwhere a step%s goes%s\n", t->waves > 1 ? " of a wave" : "",
              p->programs.nstages > 1 ? ", in the mean of the stages" : "");
  for (int k = 0; k < ZP_T_PARTS; k++)
    if (t->part[k] > 0)
      zb_text_add(out, "  %-10s %12s %5.1f %%  %s\n", zp_part_word[k], zb_seconds_text(text, t->part[k]),
                  100 * t->part[k] / t->step, part_text[k]);
}

void zp_json_generation(ZbJson *j, const ZpWriting *w, const ZpGenerationTime *t) {
  zb_json_int(j, "sequences", w->sequences);
  zb_json_int(j, "prompt", w->prompt);
  zb_json_int(j, "answer", w->answer);
  zb_json_int(j, "waves", t->waves);
  zb_json_int(j, "prompt_steps", t->steps);
  const char *const key[] = {"first_seconds",      "between_seconds",  "beside_seconds", "answer_seconds",
                             "written_per_second", "mixed_per_second", "step_seconds"};
  const double is[] = {t->first, t->between, t->beside, t->answer, t->written, t->mixed, t->step};
  for (int i = 0; i < 7; i++) zb_json_number(j, key[i], is[i]);
  zb_json_object(j, "parts");
  put_parts(j, t->part);
  zb_json_end(j);
}

void zp_show_generation_json(const ZpPlan *p, const ZlCluster *c, const ZpWriting *w,
                             const ZpGenerationTime *t, ZbText *out) {
  ZbJson json = {.text = out}, *j = &json;
  zb_json_object(j, NULL);
  zb_json_string(j, "format", "zug plan");
  zb_json_int(j, "version", 1);
  zb_json_string(j, "recipe", p->asked.recipe->name);
  zb_json_string(j, "model", p->graph->model);
  zb_json_string(j, "cluster", c->name);
  zb_json_int(j, "ranks", p->layout.mesh.nranks);
  zp_json_generation(j, w, t);
  zb_json_end(j);
  zb_text_add(out, "\n");
}
