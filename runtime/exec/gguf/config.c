/* config.json of a GGUF file: what the hub's would say of the same model, and numbers depend on. */
#include "runtime/exec/gguf/names.h"
#include "runtime/exec/gguf/texts.h"

#include <math.h>
#include <stdlib.h>

typedef struct {
  const ZxGgufFile *f;
  const ZxFamily *of;
  ZbJson j;
  ZbErr *err;
} Config;

/* Puts a number of f32 that people wrote: the shortest text that is read as the same f32. */
static void number(Config *c, const char *key, double x) {
  char text[32];
  int digits = 1;
  do snprintf(text, sizeof text, "%.*g", digits, x);
  while ((float)strtod(text, NULL) != (float)x && digits++ < 9);
  zb_json_raw(&c->j, key, "%s", text);
}

/* Puts numbers that are taken as they are, where they are there. */
static bool plain_numbers(Config *c) {
  static const struct {
    const char *key, *hub;
    bool whole;
  } all[] = {{"block_count", "num_hidden_layers", true},
             {"embedding_length", "hidden_size", true},
             {"feed_forward_length", "intermediate_size", true},
             {"attention.head_count", "num_attention_heads", true},
             {"context_length", "max_position_embeddings", true},
             {"attention.sliding_window", "sliding_window", true},
             {"attention.layer_norm_rms_epsilon", "rms_norm_eps", false},
             {"attn_logit_softcapping", "attn_logit_softcapping", false},
             {"final_logit_softcapping", "final_logit_softcapping", false}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    double x = zx_gguf_size(c->f, c->of, all[i].key, -1);
    if (x == -1) continue;
    if (!isfinite(x) || (all[i].whole && !zx_gguf_count_of(c->f, c->of, all[i].key, 0, c->err)))
      return *c->err->text
                 ? false
                 : zb_fail(c->err, "take the model's folder of the hub", "%s: %s.%s is not one number",
                           zb_show(c->f->path), c->of->name, all[i].key);
    if (all[i].whole) zb_json_int(&c->j, all[i].hub, (int64_t)x);
    else number(c, all[i].hub, x);
  }
  return true;
}

/* Puts how many experts there are and are chosen; the shares of those that are chosen add up to 1. */
static bool experts(Config *c) {
  if (!c->of->experts) return true;
  int64_t all = zx_gguf_count_of(c->f, c->of, "expert_count", 0, c->err),
          some = all ? zx_gguf_count_of(c->f, c->of, "expert_used_count", 0, c->err) : 0;
  if (!some) return false;
  if (zx_gguf_size(c->f, c->of, "expert_shared_count", 0) != 0)
    return zb_fail(c->err, "take the model's folder of the hub",
                   "%s has experts for all tokens, which are not known of `%s`", zb_show(c->f->path),
                   c->of->name);
  zb_json_int(&c->j, "num_local_experts", all);
  zb_json_int(&c->j, "num_experts_per_tok", some);
  if (zx_gguf_size(c->f, c->of, "expert_feed_forward_length", -1) == -1) return true;
  int64_t inner = zx_gguf_count_of(c->f, c->of, "expert_feed_forward_length", 0, c->err);
  zb_json_int(&c->j, "num_experts", all);
  zb_json_int(&c->j, "moe_intermediate_size", inner);
  zb_json_bool(&c->j, "norm_topk_prob", true);
  return inner != 0;
}

static bool heads(Config *c, int64_t *size) {
  int64_t width = zx_gguf_count_of(c->f, c->of, "embedding_length", 0, c->err),
          n = width ? zx_gguf_count_of(c->f, c->of, "attention.head_count", 0, c->err) : 0;
  if (!n) return false;
  int64_t kv = zx_gguf_count_of(c->f, c->of, "attention.head_count_kv", n, c->err);
  *size = kv ? zx_gguf_count_of(c->f, c->of, "attention.key_length", width / n ? width / n : 1, c->err) : 0;
  if (!*size) return false;
  int64_t rotated = zx_gguf_count_of(c->f, c->of, "rope.dimension_count", *size, c->err);
  if (!rotated) return false;
  if (rotated != *size)
    return zb_fail(c->err, "take the model's folder of the hub",
                   "%s: %lld of %lld numbers of a head are rotated; all of them can be read",
                   zb_show(c->f->path), (long long)rotated, (long long)*size);
  zb_json_int(&c->j, "num_key_value_heads", kv);
  zb_json_int(&c->j, "head_dim", *size);
  return true;
}

/* ---- positions ---- */
/* Returns a factor by Llama 3.1's rule (Grattafiori et al. 2024), as a file has them: of base^(2i /
 * size). */
static double slower(double base, int64_t size, int64_t i, double factor, double low, double high,
                     double context) {
  double length = 2 * M_PI * pow(base, 2.0 * (double)i / (double)size);
  if (length < context / high) return 1;
  if (length > context / low) return factor;
  double part = (context / length - low) / (high - low);
  return 1 / ((1 - part) / factor + part);
}

/* Returns the context of the rule: it follows from a factor between 1 and the largest; where there is
 * none, every one will do of which the first larger factor is the largest. */
static double context_of(const float *x, int64_t n, double base, double factor, double low, double high) {
  double any = 0;
  for (int64_t i = 0; i < n; i++) {
    double part = (1 / (double)x[i] - 1 / factor) / (1 - 1 / factor),
           length = 2 * M_PI * pow(base, (double)i / (double)n);
    if (part > 0.01 && part < 0.99) return nearbyint(length * (low + part * (high - low)));
    if (x[i] > 1 && !any) any = floor(length * low);
  }
  return any;
}

static bool llama3_positions(Config *c, const ZxGgufTensor *t, double base, int64_t size) {
  enum { MOST = 512 };
  float x[MOST], factor = 1;
  static const double low = 1, high = 4; /* as all models have them */
  int64_t n = (int64_t)t->elements;
  if (n != size / 2 || n > MOST || strcmp(t->format->name, "F32"))
    return zb_fail(c->err, "copy or make it again",
                   "%s: rope_freqs.weight has %lld numbers, of %lld that a head has", zb_show(c->f->path),
                   (long long)n, (long long)size);
  if (!zb_read_at(c->f->fd, c->f->path, x, (uint64_t)n * sizeof *x, t->at, c->err)) return false;
  for (int64_t i = 0; i < n; i++) factor = x[i] > factor ? x[i] : factor;
  double context = context_of(x, n, base, (double)factor, low, high);
  for (int64_t i = 0; i < n; i++) {
    double want = slower(base, size, i, (double)factor, low, high, context);
    if (!(fabs((double)x[i] - want) <= 1e-4 * want)) /* f32, and pow of another program */
      return zb_fail(c->err, "take the model's folder of the hub",
                     "%s: rope_freqs.weight[%lld] is %g, and %g by the rule of Llama 3.1; no other is known",
                     zb_show(c->f->path), (long long)i, (double)x[i], want);
  }
  zb_json_object(&c->j, "rope_scaling");
  zb_json_string(&c->j, "rope_type", "llama3");
  number(c, "factor", (double)factor);
  number(c, "low_freq_factor", low);
  number(c, "high_freq_factor", high);
  zb_json_int(&c->j, "original_max_position_embeddings", (int64_t)context);
  zb_json_end(&c->j);
  return true;
}

static bool positions(Config *c, int64_t size) {
  double base = zx_gguf_size(c->f, c->of, "rope.freq_base", 10000);
  uint32_t rule = zb_names_find(&c->f->names, "rope_freqs.weight");
  const char *type =
      zx_gguf_string(c->f, zb_printf(c->f->a, "%s.rope.scaling.type", c->of->name), "none", c->err);
  if (!type) return false;
  if (!(base > 0))
    return zb_fail(c->err, "copy or make it again", "%s: %s.rope.freq_base is not a number",
                   zb_show(c->f->path), c->of->name);
  number(c, "rope_theta", base);
  if (rule != ZB_NO_NAME) return llama3_positions(c, &c->f->tensor[rule], base, size);
  if (!strcmp(type, "none")) return true;
  zb_json_object(&c->j, "rope_scaling");
  zb_json_string(&c->j, "rope_type", type);
  number(c, "factor", zx_gguf_size(c->f, c->of, "rope.scaling.factor", 1));
  zb_json_end(&c->j);
  return true;
}

/* Puts Gemma's scale of scores, which is that of a head, but for the 27B models, which a file does not
 * say. */
static bool gemma_scores(Config *c, int64_t size) {
  int64_t layers = zx_gguf_count_of(c->f, c->of, "block_count", 0, c->err);
  if (!layers) return false;
  bool largest = layers == (strcmp(c->of->name, "gemma2") ? 62 : 46);
  int64_t n = (int64_t)zx_gguf_size(c->f, c->of, "embedding_length", 0) /
              (int64_t)zx_gguf_size(c->f, c->of, "attention.head_count", 1);
  zb_json_int(&c->j, "query_pre_attn_scalar", largest ? n : size);
  return true;
}

static bool vocabulary(Config *c) {
  uint32_t table = zb_names_find(&c->f->names, "token_embd.weight");
  if (table == ZB_NO_NAME || c->f->tensor[table].naxes != 2)
    return zb_fail(c->err, "copy or make it again", "%s has no table token_embd.weight", zb_show(c->f->path));
  const ZxGgufTensor *t = &c->f->tensor[table];
  zb_json_count(&c->j, "vocab_size", t->axis[1]);
  zb_json_bool(&c->j, "tie_word_embeddings", zb_names_find(&c->f->names, "output.weight") == ZB_NO_NAME);
  zb_json_string(&c->j, "torch_dtype", !strcmp(t->format->name, "BF16") ? "bfloat16" : "float32");
  return true;
}

bool zx_gguf_config(const ZxGgufFile *f, ZbText *out, ZbErr *err) {
  ZbErr why = {0};
  Config c = {.f = f, .of = zx_gguf_family(f, err), .j = {.text = out, .indent = "  "}, .err = &why};
  int64_t size;
  if (!c.of) return false;
  zb_json_object(&c.j, NULL);
  zb_json_list(&c.j, "architectures");
  zb_json_string(&c.j, NULL, c.of->class);
  zb_json_end(&c.j);
  zb_json_string(&c.j, "model_type", c.of->model_type);
  bool ok = experts(&c) && plain_numbers(&c) && heads(&c, &size) && positions(&c, size) &&
            (!c.of->around || gemma_scores(&c, size)) && vocabulary(&c);
  zx_gguf_ids(f, &c.j);
  zb_json_end(&c.j);
  if (!ok && err) *err = why;
  return ok;
}
