/* Weights that others have quantized: what their config says, and which tensors make one. */
#include "runtime/exec/hub/quantized.h"

#include <sys/stat.h>

enum { MOST_FILE = 16 << 20 };

/* By quant_method of quantization_config. */
static const struct {
  const char *name;
  ZxTakeConfig *config;
  ZxTakeOne *one;
} methods[] = {{"awq", zx_awq_config, zx_awq_take},
               {"gptq", zx_gptq_config, zx_gptq_take},
               {"compressed-tensors", zx_ct_config, zx_ct_take},
               {"fp8", zx_fp8_config, zx_fp8_take},
               {"fbgemm_fp8", zx_fp8_config, zx_fp8_take},
               {"mxfp4", zx_mxfp4_config, zx_mxfp4_take},
               {"bitsandbytes", zx_bnb_config, zx_bnb_take}};
enum { METHODS = sizeof methods / sizeof *methods };

/* ---- all of it ----------------------------------------------------------------------------------------- */
/* Says whether some tensor is none of the types that need no config. */
static bool any_coded(const ZxShards *s) {
  for (uint32_t i = 0; i < s->names.n; i++) {
    const char *dtype = zx_weights_dtype(s->file[s->at[i].file], s->at[i].tensor);
    if (strcmp(dtype, "F32") && strcmp(dtype, "BF16") && strcmp(dtype, "F16")) return true;
  }
  return false;
}

/* Reads config.json beside the files; *root NULL: there is none. */
static bool read_config(ZxTaking *x, cJSON **root) {
  struct stat st;
  bool folder = stat(x->s->path, &st) == 0 && S_ISDIR(st.st_mode);
  const char *slash = folder ? NULL : strrchr(x->s->path, '/');
  size_t n;
  ZbErr why;
  *root = NULL;
  x->file = folder  ? zb_printf(x->a, "%s/config.json", x->s->path)
            : slash ? zb_printf(x->a, "%.*s/config.json", (int)(slash - x->s->path), x->s->path)
                    : "config.json";
  if (stat(x->file, &st) < 0) return true;
  const char *text = zb_read_file(x->a, x->file, MOST_FILE, &n, x->err);
  if (!text) return false;
  *root = zb_json_parse(text, n, ZB_JSON_ANY, &why);
  return *root || zb_fail(x->err, "copy the folder again", "%s: %s", zb_show(x->file), why.text);
}

static bool unknown(ZxTaking *x, const char *method) {
  const char *list = "";
  for (int i = 0; i < METHODS; i++) list = zb_printf(x->a, "%s%s%s", list, i ? ", " : "", methods[i].name);
  return zb_fail(x->err, "take the model quantized in one of these, or as it was before, in BF16",
                 "%s: weights are quantized by `%s`; what can be read is %s", zb_show(x->file),
                 zb_show(method), list);
}

/* Says whether a tensor counts only for who quantizes activations and caches, as is not done here. */
static bool is_beside(const char *name) {
  static const char *const ends[] = {".input_scale",  ".input_zero_point",  ".input_global_scale",
                                     ".output_scale", ".output_zero_point", ".q_scale",
                                     ".k_scale",      ".v_scale",           ".q_zero_point",
                                     ".k_zero_point", ".v_zero_point"};
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
    if (zb_ends(name, ends[i])) return true;
  return false;
}

/* Puts what was taken in place of its parts. */
static void replace(ZxTaking *x) {
  ZxShards *s = x->s;
  ZbNames names = {0};
  ZxPlace *stored = NULL;
  uint32_t n = 0;
  for (uint32_t i = 0; i < s->names.n; i++) {
    if (x->used[i] || is_beside(s->names.name[i])) continue;
    zb_names_add(x->a, &names, s->names.name[i]);
    ZB_PUSH(x->a, stored, n, s->at[i]);
  }
  for (uint32_t i = 0; i < x->names.n; i++) {
    ZxPlace one = {.coded = x->coded[i]};
    zb_names_add(x->a, &names, x->names.name[i]);
    ZB_PUSH(x->a, stored, n, one);
  }
  s->names = names;
  s->at = stored;
}

static bool take_all(ZxTaking *x) {
  int m = 0;
  x->method = zx_config_text(x->config, "quant_method", "");
  while (m < METHODS && strcmp(methods[m].name, x->method)) m++;
  if (m == METHODS) return unknown(x, x->method);
  x->method = methods[m].name;
  if (!methods[m].config(x)) return false;
  x->used = ZB_NEWN(x->a, bool, x->s->names.n);
  for (uint32_t i = 0; i < x->s->names.n; i++) {
    ZxRaw r = zx_raw(x, i);
    if (!methods[m].one(x, &r)) return false;
  }
  replace(x);
  return true;
}

bool zx_quantized_open(ZxShards *s, ZbArena *a, ZbErr *err) {
  ZbErr why = {0};
  ZxTaking x = {.s = s, .a = a, .err = &why};
  cJSON *root = NULL;
  if (!any_coded(s)) return true;
  bool ok = read_config(&x, &root);
  x.config = cJSON_GetObjectItemCaseSensitive(root, "quantization_config");
  if (!cJSON_IsObject(x.config)) x.config = cJSON_GetObjectItemCaseSensitive(root, "compression_config");
  ok = ok && (!cJSON_IsObject(x.config) || take_all(&x));
  cJSON_Delete(root);
  if (!ok && err) *err = why;
  return ok;
}

/* ---- for people ---------------------------------------------------------------------------------------- */
/* Returns what a tensor's numbers are; NULL: they are as they are. */
static const char *kind_of(const ZxShards *s, uint32_t i, ZbArena *a) {
  const char *format;
  if (!s->gguf) return s->at[i].coded ? s->at[i].coded->kind : NULL;
  zx_gguf_info(s->gguf, (uint32_t)s->at[i].tensor, &format);
  return *format == 'F' || *format == 'B' ? NULL : zb_printf(a, "%s of GGUF", format);
}

void zx_shards_tell(const ZxShards *s, ZbText *t) {
  ZbArena *a = zb_arena_new();
  ZbNames kinds = {0};
  uint32_t *count = NULL, n = 0;
  for (uint32_t i = 0; i < s->names.n; i++) {
    const char *kind = kind_of(s, i, a);
    if (!kind) continue;
    uint32_t k = zb_names_find(&kinds, kind);
    if (k == ZB_NO_NAME) {
      k = zb_names_add(a, &kinds, kind);
      ZB_PUSH(a, count, n, 0);
    }
    count[k]++;
  }
  for (uint32_t k = 0; k < n; k++)
    zb_text_add(t, "%s%u of %u tensors %s %s", k ? "; " : "", count[k], s->names.n,
                count[k] == 1 ? "is" : "are", kinds.name[k]);
  zb_arena_free(a);
}
