/* Shared by readers of quantized weights: a config's keys, tensors of files as they are, what was taken. */
#include "runtime/exec/hub/quantized.h"

#include <math.h>

static const cJSON *at(const cJSON *x, const char *key) { return cJSON_GetObjectItemCaseSensitive(x, key); }

/* ---- the config ---------------------------------------------------------------------------------------- */
int64_t zx_config_whole(const cJSON *x, const char *key, int64_t usual) {
  const cJSON *v = at(x, key);
  if (!v || cJSON_IsNull(v)) return usual;
  double n = cJSON_IsNumber(v) ? v->valuedouble : NAN;
  return n >= -0x1p31 && n <= 0x1p31 && n == (double)(int64_t)n ? (int64_t)n : INT64_MIN;
}

bool zx_config_flag(const cJSON *x, const char *key, bool usual) {
  const cJSON *v = at(x, key);
  return cJSON_IsBool(v) ? cJSON_IsTrue(v) : usual;
}

const char *zx_config_text(const cJSON *x, const char *key, const char *usual) {
  const cJSON *v = at(x, key);
  return cJSON_IsString(v) ? v->valuestring : usual;
}

bool zx_cannot(ZxTaking *x, const char *key, const char *value, const char *can) {
  return zb_fail(x->err, "take the model quantized so, or as it was before, in BF16",
                 "%s: quantization_config of %s has %s %s; %s can be read", zb_show(x->file), x->method, key,
                 zb_show(value), can);
}

bool zx_cannot_whole(ZxTaking *x, const char *key, int64_t value, const char *can) {
  return zx_cannot(
      x, key, value == INT64_MIN ? "that is not a whole number" : zb_printf(x->a, "%lld", (long long)value),
      can);
}

bool zx_config_pair(ZxTaking *x, const cJSON *of, const char *key, int64_t *first, int64_t *second) {
  const cJSON *list = at(of, key), *one = cJSON_IsArray(list) ? list->child : NULL,
              *two = one ? one->next : NULL;
  double a = cJSON_IsNumber(one) ? one->valuedouble : 0, b = cJSON_IsNumber(two) ? two->valuedouble : 0;
  if (!(a >= 1 && a <= INT32_MAX && b >= 1 && b <= INT32_MAX))
    return zx_cannot(x, key, "that is not two numbers", "[128, 128]");
  *first = (int64_t)a;
  *second = (int64_t)b;
  return true;
}

void zx_scheme_add(ZxTaking *x, ZxScheme s) { ZB_PUSH(x->a, x->scheme, x->nschemes, s); }

/* Says whether a list of the config names a module, or one that has it, or the last part of its name. */
static bool names_module(const cJSON *list, const char *module) {
  size_t n = strlen(module);
  for (const cJSON *k = cJSON_IsArray(list) ? list->child : NULL; k; k = k->next) {
    const char *s = cJSON_IsString(k) ? k->valuestring : "";
    size_t m = strlen(s);
    if (!m || m > n) continue;
    if (!memcmp(s, module, m) && (m == n || module[m] == '.')) return true;
    if (!strcmp(s, module + n - m) && module[n - m - 1] == '.') return true;
  }
  return false;
}

/* ---- tensors ------------------------------------------------------------------------------------------- */
const char zx_factor_types[] = "F16 BF16 F32";

const char *zx_without(ZxTaking *x, const char *name, const char *end) {
  return zb_ends(name, end) ? zb_strndup(x->a, name, strlen(name) - strlen(end)) : NULL;
}

ZxRaw zx_raw(ZxTaking *x, uint32_t number) {
  if (number == ZB_NO_NAME) return (ZxRaw){.number = number};
  const ZxPlace *s = &x->s->at[number];
  ZxRaw r = {.number = number, .file = x->s->file[s->file], .tensor = s->tensor};
  r.info = zx_weights_info(r.file, r.tensor);
  r.dtype = zx_weights_dtype(r.file, r.tensor);
  return r;
}

ZxRaw zx_raw_find(ZxTaking *x, const char *prefix, const char *end) {
  return zx_raw(x, zb_names_find(&x->s->names, zb_printf(x->a, "%s%s", prefix, end)));
}

bool zx_raw_need(ZxTaking *x, const char *prefix, const char *end, ZxRaw *out) {
  *out = zx_raw_find(x, prefix, end);
  return out->number != ZB_NO_NAME ||
         zb_fail(x->err, "copy the folder again", "%s lacks '%s%s', which a weight of %s has",
                 zb_show(x->s->path), zb_show(prefix), end, x->method);
}

static bool has_type(ZxTaking *x, const ZxRaw *r, const char *types) {
  size_t n = strlen(r->dtype);
  for (const char *t = types; *t; t += strcspn(t, " "), t += strspn(t, " "))
    if (strcspn(t, " ") == n && !memcmp(t, r->dtype, n)) return true;
  return zb_fail(x->err, "is it quantized in another way than its config says?",
                 "%s: tensor '%s' has dtype %s; %s has %s there", zb_show(x->s->path), zb_show(r->info.path),
                 r->dtype, x->method, types);
}

bool zx_raw_is(ZxTaking *x, const ZxRaw *r, const char *types, int naxes, int64_t d0, int64_t d1) {
  ZxTensorInfo want = {.path = r->info.path, .nshape = naxes, .shape = {d0, d1}};
  return has_type(x, r, types) && zx_shape_is(x->s->path, &r->info, &want, "its quantization_config",
                                              "is it of another group size?", x->err);
}

bool zx_raw_matrix(ZxTaking *x, const ZxRaw *r, const char *types) {
  if (!has_type(x, r, types)) return false;
  if (r->info.nshape == 2 && r->info.shape[0] > 0 && r->info.shape[1] > 0 && r->info.shape[0] <= INT32_MAX &&
      r->info.shape[1] <= INT32_MAX)
    return true;
  return zb_fail(x->err, "copy the folder again", "%s: tensor '%s' is not a matrix, as a weight of %s is",
                 zb_show(x->s->path), zb_show(r->info.path), x->method);
}

bool zx_whole_words(ZxTaking *x, const ZxRaw *r, int64_t n, int each) {
  return n % each == 0 || zb_fail(x->err, "copy the folder again",
                                  "%s: tensor '%s' is of %lld columns, which are not whole words of %d",
                                  zb_show(x->s->path), zb_show(r->info.path), (long long)n, each);
}

ZxPacked zx_packed(const ZxRaw *r, int64_t cols, int bits, int each, bool down) {
  ZxPacked p = {.file = r->file, .tensor = r->tensor, .cols = cols, .bits = bits, .each = each, .down = down};
  for (uint8_t i = 0; i < each && i < sizeof p.place; i++) p.place[i] = i;
  return p;
}

ZxFactors zx_factors(const ZxRaw *r, int64_t cols) {
  return (ZxFactors){.file = r->file, .tensor = r->tensor, .cols = cols, .times = 1};
}

bool zx_raw_follows(ZxTaking *x, const ZxRaw *r, ZxRule *rule, const void *ctx, bool *same) {
  enum { PART = 4096 };
  uint32_t part[PART];
  uint64_t n = 1;
  *same = true;
  for (int i = 0; i < r->info.nshape; i++) n *= (uint64_t)r->info.shape[i];
  for (uint64_t i = 0, more; i < n && *same; i += more) {
    more = n - i < PART ? n - i : PART;
    if (!zx_weights_bytes(r->file, r->tensor, 4 * i, 4 * more, part, x->err)) return false;
    for (uint64_t k = 0; k < more; k++) *same &= part[k] == rule(ctx, i + k);
  }
  return true;
}

void zx_uses(ZxTaking *x, const ZxRaw *r) {
  if (r->number != ZB_NO_NAME) x->used[r->number] = true;
}

static bool is_left_out(ZxTaking *x, const char *module) {
  static const char *const lists[] = {"modules_to_not_convert", "ignore", "ignored_layers",
                                      "llm_int8_skip_modules"};
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
    if (names_module(at(x->config, lists[i]), module))
      return zb_fail(
                 x->err, "correct the config, or copy the folder again",
                 "%s: `%s` of quantization_config says that '%s' is not quantized, and in the files it is",
                 zb_show(x->file), lists[i], zb_show(module)),
             true;
  return false;
}

bool zx_take(ZxTaking *x, const char *prefix, const char *end, ZxCoded c) {
  if (is_left_out(x, prefix)) return false;
  c.info.path = zb_printf(x->a, "%s%s", prefix, end);
  uint32_t other = zb_names_find(&x->s->names, c.info.path);
  if (zb_names_find(&x->names, c.info.path) != ZB_NO_NAME || (other != ZB_NO_NAME && !x->used[other]))
    return zb_fail(x->err, "copy the folder again", "%s has '%s' quantized, and once more",
                   zb_show(x->s->path), zb_show(c.info.path));
  uint32_t n = x->names.n;
  x->coded = zb_grow(x->a, x->coded, n, sizeof *x->coded);
  ZxCoded *own = ZB_NEW(x->a, ZxCoded);
  *own = c;
  x->coded[n] = own;
  zb_names_add(x->a, &x->names, c.info.path);
  return true;
}

/* ---- values of codes ----------------------------------------------------------------------------------- */
/* Returns the value of a float of a sign, `exponent` bits and `fraction` bits. The largest exponent is
 * that of numbers like others, but for what the kinds have of their own. */
static float small_float(int code, int exponent, int fraction, int bias) {
  int e = code >> fraction & ((1 << exponent) - 1), m = code & ((1 << fraction) - 1);
  float x =
      e ? ldexpf((float)(m + (1 << fraction)), e - bias - fraction) : ldexpf((float)m, 1 - bias - fraction);
  return code >> (exponent + fraction) & 1 ? -x : x;
}

/* f8 of Micikevicius et al. (2022): E4M3 has NaN alone, E5M2 infinities, too. E2M1 of the OCP (2023) has
 * neither. */
static float value(ZxValues of, int code) {
  switch (of) {
  case ZX_SIGNED8: return (float)(int8_t)code;
  case ZX_ABOVE8: return (float)((code + 128) & 255);
  case ZX_E4M3: return (code & 127) == 127 ? NAN : small_float(code, 4, 3, 7);
  case ZX_E5M2:
    if ((code & 124) == 124) return code & 3 ? NAN : code & 128 ? -INFINITY : INFINITY;
    return small_float(code, 5, 2, 15);
  default: return small_float(code & 15, 2, 1, 1);
  }
}

const float *zx_values(ZxTaking *x, ZxValues of) {
  if (x->values[of]) return x->values[of];
  float *v = ZB_NEWN(x->a, float, 256);
  for (int i = 0; i < 256; i++) v[i] = value(of, i);
  return x->values[of] = v;
}
