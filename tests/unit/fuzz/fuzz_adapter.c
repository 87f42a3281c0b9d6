/* Fuzz target: any bytes as the config of adapters: messages, or a graph that has them, and that can be written and
 * read. */
#include "compiler/compiler.h"
#include "graph/adapter.h"

#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char model[] =
    "model M(layers = 2, width = 6, heads = 2) {\n"
    "  axis batch, seq, e = width, head = heads, hd = width / heads, f = 4, vocab = 8\n"
    "  input tokens: index(vocab)[batch, seq]\n"
    "  param table[vocab, e] ~ normal(0.02)\n"
    "  x = lookup(table, tokens)\n"
    "  repeat layers as layer {\n"
    "    param q[e, head, hd], k[e, head, hd], up[e, f], down[f, e] ~ normal(0.02)\n"
    "    param g[e] = 1\n"
    "    a = sum[head, hd](dot[e](x, q) * dot[e](x, k))\n"
    "    x = x * g + a + dot[f](dot[e](x, up), down)\n"
    "  }\n"
    "  loss xent[vocab](dot[e](x, table), tokens) per known(tokens)\n"
    "}\n"
    "weights hf for M {\n"
    "  table = \"embed_tokens.weight\"[vocab, e]\n"
    "  layer.{i}.(q, k) = \"layers.{i}.attn.qk_proj.weight\"[2 (head hd), e]\n"
    "  layer.{i}.up = \"layers.{i}.mlp.up_proj.weight\"[f, e]\n"
    "  layer.{i}.down = \"layers.{i}.mlp.down_proj.weight\"[e, f]\n"
    "  layer.{i}.g = \"layers.{i}.norm.weight\"[e]\n"
    "}\n";

static void use(ZbArena *a, ZgGraph *g) {
  ZbText t = {0};
  ZbErr err;
  double scale = zg_adapter_scale(g, "", "layers.0.attn.qk_proj");
  if (!zg_has_adapters(g) || isnan(scale)) ZB_BUG("a graph without adapters");
  if (!zg_write(g, &t, &err) || !zg_read(a, t.s, t.len, &err)) ZB_BUG("cannot be read again: %s", err.text);
  zb_text_free(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  static const char path[] = "fuzz-adapter.json";
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return 0;
  bool ok = write(fd, data, n) == (ssize_t)n;
  close(fd);
  ZbArena *a = zb_arena_new();
  ZlSources *s = zl_sources_new(a);
  ZlDiags *d = zl_diags_new(a, s);
  ZlProgram *p = zl_load_text(a, s, d, "model.zug", model, sizeof model - 1, NULL);
  if (!p || zl_errors(d)) ZB_BUG("the model of this target");
  ZbText text = {0};
  const char *const files[] = {path, path};
  ZcOptions o = {.adapters = files, .nadapters = n % 2 + 1};
  ZgGraph *g = ok ? zc_compile(a, s, d, p, &o) : NULL;
  if (ok && !g == !zl_errors(d)) ZB_BUG("a graph, or errors");
  if (g) use(a, g);
  zl_print_text(d, &text);
  zb_text_free(&text);
  zb_arena_free(a);
  unlink(path);
  return 0;
}
