/* The rule against what models do: with other tokens from some position on, what it lets through makes the
 * same bits before that, and what it refuses does not, but for models of which it is known to be too strict. */
#include <criterion/criterion.h>
#include <string.h>

#include "graph/ragged.h"
#include "tests/unit/compiler/grad/interp.h"
#include "tests/unit/plan/stream/models.h"

enum { LENGTH = 10, FROM = 6 };

static Interp *whole(const ZgGraph *g, ZbArena *a) {
  Interp *m = interp_empty(g, a);
  const uint16_t *experts = zg_slot_axes(g, a, NULL);
  for (uint32_t x = 0; x < g->naxes; x++) {
    bool batch = !strcmp(g->axes[x].name, "batch");
    if (experts[x] != ZG_NO_AXIS) m->size[x] = LENGTH * 8;
    else if (!m->size[x]) m->size[x] = batch ? 1 : LENGTH;
  }
  interp_draw_params(m, 5, 0, 0.3);
  interp_draw_inputs(m, 6);
  for (uint32_t i = 0; i < g->ninputs; i++) /* documents, or the length of a prefix */
    for (int64_t e = 0; g->inputs[i].type.elem == ZG_I32 && e < interp_elements(m, &g->inputs[i].type); e++)
      m->input[i][e] = LENGTH;
  m->means = true;
  return m;
}

/* Says whether logits before FROM are other ones, if tokens from there on are. Both have batch and time
 * first. */
static bool changes(const ZgGraph *g, ZbArena *a, const char *tokens) {
  Interp *m = whole(g, a);
  uint32_t in = 0, out = 0;
  while (strcmp(g->inputs[in].name, tokens)) in++;
  while (strcmp(g->outputs[out].name, "logits")) out++;
  int64_t n = FROM * (interp_elements(m, &g->outputs[out].type) / LENGTH);
  interp_run(m, false);
  double *before =
      memcpy(zb_alloc(a, (size_t)n * sizeof(double)), m->output[out], (size_t)n * sizeof(double));
  for (int i = FROM; i < LENGTH; i++) m->input[in][i] = m->input[in][i] > 0 ? m->input[in][i] - 1 : 3;
  interp_run(m, false);
  return memcmp(before, m->output[out], (size_t)n * sizeof(double)) != 0;
}

Test(later, tokens, .timeout = 60) {
  for (int i = 0; i < stream_model_count; i++) {
    const StreamModel *m = &stream_models[i];
    Case c;
    ZgGraph *g = stream_model(&c, m);
    ZgStream s;
    if (zg_stream(g, c.a, NULL, NULL, &s, NULL))
      cr_expect(!changes(g, c.a, g->inputs[s.tokens].name), "%s depends on later tokens", m->name);
    else if (!m->options)
      cr_expect(changes(g, c.a, "tokens") != m->causal, "%s %s depend on later tokens", m->name,
                m->causal ? "does" : "does not");
    done(&c);
  }
}
