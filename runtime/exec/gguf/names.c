/* What files of llama.cpp call families, tensors and sizes, and what the hub calls them. */
#include "runtime/exec/gguf/names.h"

#include <ctype.h>
#include <math.h>

static const ZxFamily families[] = {
    {"llama", "llama", "LlamaForCausalLM", .pairs = true},
    {"qwen2", "qwen2", "Qwen2ForCausalLM", .pairs = false},
    {"qwen3", "qwen3", "Qwen3ForCausalLM", .pairs = false},
    {"gemma2", "gemma2", "Gemma2ForCausalLM", .plus = 1, .around = true},
    {"gemma3", "gemma3_text", "Gemma3ForCausalLM", .plus = 1, .around = true},
};
enum { FAMILIES = sizeof families / sizeof *families };

const ZxFamily *zx_gguf_family(const ZxGgufFile *f, ZbErr *err) {
  ZbErr why = {0};
  const char *name = zx_gguf_string(f, "general.architecture", "", &why), *list = "";
  for (int i = 0; i < FAMILIES && name; i++)
    if (!strcmp(families[i].name, name)) return &families[i];
  for (int i = 0; i < FAMILIES; i++) list = zb_printf(f->a, "%s%s%s", list, i ? ", " : "", families[i].name);
  if (!name) zb_fail(err, why.help, "%s", why.text);
  else
    zb_fail(err, "take the model's folder of the hub", "%s is of architecture `%s`; what can be read is %s",
            zb_show(f->path), zb_show(name), list);
  return NULL;
}

/* ---- tensors ---- */
/* Behind `blk.N.`, and before `weight` or `bias`. */
static const struct {
  const char *name, *hub;
  const char *around; /* NULL: the same in families with norms around parts */
} parts[] = {
    {"attn_norm", "input_layernorm", NULL},
    {"attn_q", "self_attn.q_proj", NULL},
    {"attn_k", "self_attn.k_proj", NULL},
    {"attn_v", "self_attn.v_proj", NULL},
    {"attn_output", "self_attn.o_proj", NULL},
    {"attn_q_norm", "self_attn.q_norm", NULL},
    {"attn_k_norm", "self_attn.k_norm", NULL},
    {"post_attention_norm", "post_attention_layernorm", NULL},
    {"ffn_norm", "post_attention_layernorm", "pre_feedforward_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm", NULL},
    {"ffn_gate", "mlp.gate_proj", NULL},
    {"ffn_up", "mlp.up_proj", NULL},
    {"ffn_down", "mlp.down_proj", NULL},
};

static const char *of_layer(const ZxFamily *of, ZbArena *a, const char *name) {
  const char *number = name + strlen("blk."), *part = number;
  while (isdigit((unsigned char)*part)) part++;
  if (part == number || *part++ != '.') return name;
  const char *end = strchr(part, '.');
  size_t n = end ? (size_t)(end - part) : 0;
  for (size_t i = 0; i < sizeof parts / sizeof *parts && n; i++)
    if (strlen(parts[i].name) == n && !memcmp(parts[i].name, part, n))
      return zb_printf(a, "model.layers.%.*s.%s%s", (int)(part - 1 - number), number,
                       of->around && parts[i].around ? parts[i].around : parts[i].hub, end);
  return name;
}

const char *zx_gguf_hub_name(const ZxFamily *of, ZbArena *a, const char *name) {
  static const struct {
    const char *name, *hub;
  } whole[] = {{"token_embd.weight", "model.embed_tokens.weight"},
               {"output_norm.weight", "model.norm.weight"},
               {"output.weight", "lm_head.weight"}};
  if (!strncmp(name, "blk.", 4)) return of_layer(of, a, name);
  for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
    if (!strcmp(whole[i].name, name)) return whole[i].hub;
  return name;
}

/* ---- sizes ---- */
double zx_gguf_size(const ZxGgufFile *f, const ZxFamily *of, const char *key, double usual) {
  return zx_gguf_number(f, zb_printf(f->a, "%s.%s", of->name, key), usual);
}

int64_t zx_gguf_count_of(const ZxGgufFile *f, const ZxFamily *of, const char *key, int64_t usual,
                         ZbErr *err) {
  double n = zx_gguf_size(f, of, key, (double)usual);
  if (n >= 1 && n <= INT32_MAX && n == (double)(int64_t)n) return (int64_t)n;
  return zb_fail(err, "take the model's folder of the hub", "%s: %s.%s is %s", zb_show(f->path), of->name,
                 key,
                 n == 0     ? "not there"
                 : isnan(n) ? "not one number"
                            : zb_printf(f->a, "%g", n));
}
