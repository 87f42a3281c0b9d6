/* Fuzz target: any bytes as a config.json that sizes of a model are taken from: messages, or a graph. */
#include "compiler/compiler.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char model[] =
    "model M(width = 4, heads = 2, kv_heads = heads, base = 10000, factor = 1, tied = 0, eps = 1e-5) {\n"
    "  axis batch, w = width, k = width / heads\n"
    "  input x: real[batch, w]\n"
    "  param p[w, k] ~ normal(0.02)\n"
    "  loss sum[k](dot[w](x, p)) * (eps + base + factor + tied + kv_heads) per x\n"
    "}\n"
    "weights hf for M {\n"
    "  p = \"p.weight\"[w, k]\n"
    "  config {\n"
    "    architectures = [\"A\"], [\"B\"]\n"
    "    model_type = \"llama\", \"mistral\"\n"
    "    hidden_size = width\n"
    "    num_attention_heads = heads\n"
    "    num_key_value_heads = kv_heads, null else heads\n"
    "    rms_norm_eps = eps else 1e-6\n"
    "    rope_parameters.rope_theta = real(base) else 10000\n"
    "    if factor - 1 { rope_scaling.factor = real(factor) } else { rope_scaling = null }\n"
    "    tie_word_embeddings = bool(tied) else false\n"
    "  }\n"
    "}\n";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  static const char path[] = "fuzz-config.json";
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
  const ZgGraph *g = ok ? zc_compile(a, s, d, p, &(ZcOptions){.config = path}) : NULL;
  if (ok && !g == !zl_errors(d)) ZB_BUG("a graph, or errors");
  zl_print_text(d, &text);
  zb_text_free(&text);
  zb_arena_free(a);
  unlink(path);
  return 0;
}
