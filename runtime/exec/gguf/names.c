/* Families, tensors and sizes: how files of llama.cpp call them, and how the hub does. */
#include "runtime/exec/gguf/names.h"

#include <ctype.h>
#include <math.h>

static const ZxExperts mixtral = {"block_sparse_moe.gate", "block_sparse_moe.experts.*.w1",
                                  "block_sparse_moe.experts.*.w3", "block_sparse_moe.experts.*.w2"};
static const ZxExperts qwen = {"mlp.gate", "mlp.experts.*.gate_proj", "mlp.experts.*.up_proj",
                               "mlp.experts.*.down_proj"};
static const ZxFamily families[] = {
    {"llama", "llama", "LlamaForCausalLM", .pairs = true},
    {"llama", "mixtral", "MixtralForCausalLM", .pairs = true, .experts = &mixtral},
    {"qwen2", "qwen2", "Qwen2ForCausalLM", .pairs = false},
    {"qwen3", "qwen3", "Qwen3ForCausalLM", .pairs = false},
    {"qwen3moe", "qwen3_moe", "Qwen3MoeForCausalLM", .experts = &qwen},
    {"gemma2", "gemma2", "Gemma2ForCausalLM", .plus = 1, .around = true},
    {"gemma3", "gemma3_text", "Gemma3ForCausalLM", .plus = 1, .around = true},
};
enum { FAMILIES = sizeof families / sizeof *families };

const ZxFamily *zx_gguf_family(const ZxGgufFile *f, ZbErr *err) {
  ZbErr why = {0};
  const char *name = zx_gguf_string(f, "general.architecture", "", &why), *list = "";
  if (!name) return zb_fail(err, why.help, "%s", why.text), NULL;
  bool experts = zx_gguf_number(f, zb_printf(f->a, "%s.expert_count", name), 0) != 0;
  for (int i = 0; i < FAMILIES; i++) {
    if (!strcmp(families[i].name, name) && experts == (families[i].experts != NULL)) return &families[i];
    list = zb_printf(f->a, "%s%s%s%s", list, i ? ", " : "", families[i].name,
                     families[i].experts ? " with experts" : "");
  }
  zb_fail(err, "take the model's folder of the hub", "%s is of architecture `%s`%s; what can be read is %s",
          zb_show(f->path), zb_show(name), experts ? " with experts" : "", list);
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

/* Returns the part's name at the hub; NULL: it is not known. */
static const char *hub_part(const ZxFamily *of, const char *part, size_t n) {
  const ZxExperts *x = of->experts;
  const char *const expert[][2] = {{"ffn_gate_inp", x ? x->router : NULL},
                                   {"ffn_gate_exps", x ? x->gate : NULL},
                                   {"ffn_up_exps", x ? x->up : NULL},
                                   {"ffn_down_exps", x ? x->down : NULL}};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (strlen(parts[i].name) == n && !memcmp(parts[i].name, part, n))
      return of->around && parts[i].around ? parts[i].around : parts[i].hub;
  for (size_t i = 0; i < sizeof expert / sizeof *expert; i++)
    if (strlen(expert[i][0]) == n && !memcmp(expert[i][0], part, n)) return expert[i][1];
  return NULL;
}

/* Finds number and part of `blk.N.PART.weight`. False: it is not so. */
static bool parts_of(const char *name, const char **number, const char **part, const char **end) {
  if (strncmp(name, "blk.", 4)) return false;
  *number = *part = name + 4;
  while (isdigit((unsigned char)**part)) ++*part;
  if (*part == *number || *(*part)++ != '.') return false;
  return (*end = strchr(*part, '.')) != NULL;
}

static const char *of_layer(const ZxFamily *of, ZbArena *a, const char *name, int64_t expert) {
  const char *number, *part, *end;
  if (!parts_of(name, &number, &part, &end)) return name;
  const char *hub = hub_part(of, part, (size_t)(end - part)), *star = hub ? strchr(hub, '*') : NULL;
  if (!hub) return name;
  const char *own =
      star ? zb_printf(a, "%.*s%lld%s", (int)(star - hub), hub, (long long)expert, star + 1) : hub;
  return zb_printf(a, "model.layers.%.*s.%s%s", (int)(part - 1 - number), number, own, end);
}

bool zx_gguf_has_experts(const ZxFamily *of, const char *name) {
  const char *number, *part, *end;
  const char *hub = parts_of(name, &number, &part, &end) ? hub_part(of, part, (size_t)(end - part)) : NULL;
  return hub && strchr(hub, '*');
}

const char *zx_gguf_hub_name(const ZxFamily *of, ZbArena *a, const char *name, int64_t expert) {
  static const struct {
    const char *name, *hub;
  } whole[] = {{"token_embd.weight", "model.embed_tokens.weight"},
               {"output_norm.weight", "model.norm.weight"},
               {"output.weight", "lm_head.weight"}};
  if (!strncmp(name, "blk.", 4)) return of_layer(of, a, name, expert);
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
