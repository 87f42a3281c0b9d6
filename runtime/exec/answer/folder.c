/* config.json and generation_config.json of a folder, as far as they are about texts. */
#include "runtime/exec/answer/answer.h"

#include <cjson/cJSON.h>

enum { MOST_ENDS = 64 };

const char *zx_folder_of(ZbArena *a, const char *path) {
  return zx_is_gguf(path) ? path : zb_folder_of(a, path);
}

bool zx_folder_json(ZbArena *a, const char *folder, const char *name, cJSON **out, ZbErr *err) {
  size_t n;
  ZbErr why = {0};
  if (!zx_is_gguf(folder)) return zb_json_file(a, folder, name, out, err);
  *out = NULL;
  const char *text = zx_gguf_text(a, folder, name, &n, &why);
  if (!text && err) *err = why;
  return text ? zb_json_object_of(text, n, folder, out, err) : !*why.text;
}

/* Reads an id; -1: it is none. */
static int64_t id_of(const cJSON *v) {
  double x = cJSON_IsNumber(v) ? v->valuedouble : -1;
  return x >= 0 && x < ZX_NONE && x == (double)(uint32_t)x ? (int64_t)x : -1;
}

/* Reads a number or a list of numbers. Returns false where neither is there. */
static bool take_ends(ZxFolder *f, ZbArena *a, const cJSON *config) {
  const cJSON *v = cJSON_GetObjectItemCaseSensitive(config, "eos_token_id");
  for (const cJSON *x = cJSON_IsArray(v) ? v->child : v; x; x = x == v ? NULL : x->next) {
    int64_t id = id_of(x);
    if (id < 0 || f->nend == MOST_ENDS) continue;
    ZB_PUSH(a, f->end, f->nend, (uint32_t)id);
  }
  return f->nend;
}

static void take_begin(ZxFolder *f, const cJSON *config) {
  int64_t id = id_of(cJSON_GetObjectItemCaseSensitive(config, "bos_token_id"));
  if (f->begin == ZX_NONE && id >= 0) f->begin = (uint32_t)id;
  id = id_of(cJSON_GetObjectItemCaseSensitive(config, "decoder_start_token_id"));
  if (f->start == ZX_NONE && id >= 0) f->start = (uint32_t)id;
}

static void take_model(ZxFolder *f, ZbArena *a, const cJSON *config) {
  static const char *const positions[] = {"max_position_embeddings", "n_positions", "max_sequence_length",
                                          "seq_length", "n_ctx"};
  const cJSON *type = cJSON_GetObjectItemCaseSensitive(config, "model_type"),
              *real = cJSON_GetObjectItemCaseSensitive(config, "dtype");
  if (!real) real = cJSON_GetObjectItemCaseSensitive(config, "torch_dtype");
  if (cJSON_IsString(type)) f->model_type = zb_strdup(a, type->valuestring);
  f->bf16 = cJSON_IsString(real) && !strcmp(real->valuestring, "bfloat16");
  for (size_t i = 0; i < sizeof positions / sizeof *positions && !f->positions; i++) {
    int64_t n = id_of(cJSON_GetObjectItemCaseSensitive(config, positions[i]));
    if (n > 0 && n <= INT32_MAX) f->positions = n;
  }
}

bool zx_folder_read(ZxFolder *f, ZbArena *a, const char *path, ZbErr *err) {
  cJSON *config, *generation;
  *f = (ZxFolder){.path = path, .begin = ZX_NONE, .start = ZX_NONE};
  if (!zx_folder_json(a, path, "config.json", &config, err)) return false;
  size_t n;
  if (zx_is_gguf(path)) f->config = zx_gguf_text(a, path, "config.json", &n, err);
  bool ok = zx_folder_json(a, path, "generation_config.json", &generation, err);
  if (ok && config) take_model(f, a, config);
  if (ok && !take_ends(f, a, generation)) take_ends(f, a, config);
  take_begin(f, generation);
  take_begin(f, config);
  cJSON_Delete(config);
  cJSON_Delete(generation);
  return ok;
}
