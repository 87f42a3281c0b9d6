/* Takes from folders: ends, positions, shipped models. */
#include "runtime/exec/answer/answer.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static ZbErr err;
static ZbArena *a;
static char dir[] = "/tmp/zug-folder-XXXXXX";

static void put(const char *name, const char *text) {
  if (!a) {
    a = zb_arena_new();
    cr_assert(mkdtemp(dir));
  }
  FILE *f = fopen(zb_printf(a, "%s/%s", dir, name), "w");
  cr_assert(f);
  fputs(text, f);
  fclose(f);
}
static void done(void) {
  static const char *const names[] = {"config.json", "generation_config.json"};
  for (int i = 0; i < 2; i++) unlink(zb_printf(a, "%s/%s", dir, names[i]));
  rmdir(dir);
}

#define LLAMA                                                                                                \
  "\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"vocab_size\": 300, "              \
  "\"hidden_size\": 8, \"intermediate_size\": 16, \"num_hidden_layers\": 1, \"num_attention_heads\": 2, "    \
  "\"num_key_value_heads\": 1, \"head_dim\": 4, \"rms_norm_eps\": 1e-05, \"rope_theta\": 10000.0, "          \
  "\"hidden_act\": \"silu\", \"max_position_embeddings\": 4096"

Test(folder, ends_and_positions, .fini = done) {
  ZxFolder f;
  put("config.json", "{" LLAMA ", \"eos_token_id\": 2, \"bos_token_id\": 1, \"torch_dtype\": \"bfloat16\"}");
  cr_assert(zx_folder_read(&f, a, dir, &err), "%s", err.text);
  cr_expect(!strcmp(f.model_type, "llama") && f.positions == 4096 && f.bf16 && f.begin == 1 && f.nend == 1 &&
            f.end[0] == 2);
  put("generation_config.json", "{\"eos_token_id\": [5, 6], \"bos_token_id\": null}");
  cr_assert(zx_folder_read(&f, a, dir, &err));
  cr_expect(f.nend == 2 && f.end[1] == 6 && f.begin == 1);
  put("generation_config.json", "{\"eos_token_id\": null}");
  cr_assert(zx_folder_read(&f, a, dir, &err));
  cr_expect(f.nend == 1 && f.end[0] == 2);
  put("generation_config.json", "[");
  cr_expect(!zx_folder_read(&f, a, dir, &err) && strstr(err.text, "generation_config.json"));
}

Test(folder, shipped_models, .fini = done) {
  ZxFolder f;
  put("config.json", "{" LLAMA "}");
  ZlSources *s = zl_sources_new(a);
  ZlDiags *d = zl_diags_new(a, s);
  const char *names = NULL;
  cr_assert(zx_folder_read(&f, a, dir, &err));
  ZgGraph *g = zx_shipped_model(a, s, &d, &f, (ZbTexts){0}, &names, &err);
  cr_assert(g, "%s %s", err.text, zl_first_error(d));
  cr_expect(!strcmp(g->model, "Llama3") && !strcmp(names, "hf") && (g->hash[0] || g->hash[1]));
  f.model_type = "mistral"; /* two maps have it: the one that is for it comes first */
  put("config.json",
      "{\"architectures\": [\"MistralForCausalLM\"], \"model_type\": \"mistral\", \"vocab_size\": 300, "
      "\"hidden_size\": 8, \"intermediate_size\": 16, \"num_hidden_layers\": 1, \"num_attention_heads\": 2, "
      "\"num_key_value_heads\": 1, \"head_dim\": 4, \"rms_norm_eps\": 1e-05, \"rope_theta\": 10000.0, "
      "\"hidden_act\": \"silu\", \"sliding_window\": 32}");
  g = zx_shipped_model(a, s, &d, &f, (ZbTexts){0}, &names, &err);
  cr_assert(g, "%s %s", err.text, zl_first_error(d));
  cr_expect(!strcmp(g->model, "Mistral"), "%s", g->model);
  f.model_type = "rwkv";
  cr_expect(!zx_shipped_model(a, s, &d, &f, (ZbTexts){0}, &names, &err));
  cr_expect(strstr(err.text, "model_type rwkv") && strstr(err.text, "gpt2") && strstr(err.text, "qwen3"),
            "%s", err.text);
}
