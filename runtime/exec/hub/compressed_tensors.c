/* compressed-tensors, which the tools of vLLM write: numbers with a sign, of which words (pack-quantized)
 * have those of a row beside each other, the smallest as 0; bytes (int-quantized); f8 (float-quantized).
 * Scales and zero points are of groups of a row, of rows, of blocks, or of a whole weight. The config has
 * schemes, each for some modules: the first that a weight's tensors fit is its. */
#include "runtime/exec/hub/quantized.h"

/* ---- schemes ------------------------------------------------------------------------------------------- */
static bool strategy(ZxTaking *x, const cJSON *w, ZxScheme *s) {
  int64_t group = zx_config_whole(w, "group_size", -1);
  const char *is = zx_config_text(w, "strategy", group > 0 ? "group" : group < 0 ? "channel" : "tensor");
  s->down = 1;
  if (!strcmp(is, "channel")) return true; /* across: all */
  if (!strcmp(is, "tensor")) return s->down = 0, true;
  if (!strcmp(is, "block")) return zx_config_pair(x, w, "block_structure", &s->down, &s->across);
  if (strcmp(is, "group")) return zx_cannot(x, "strategy", is, "tensor, channel, group and block");
  if (group < 1 || group > INT32_MAX) return zx_cannot_whole(x, "group_size", group, "1 and more");
  s->across = group;
  return true;
}

static bool add_scheme(ZxTaking *x, const cJSON *group) {
  const cJSON *w = cJSON_GetObjectItemCaseSensitive(group, "weights");
  if (!cJSON_IsObject(w)) return true; /* of activations alone */
  int64_t bits = zx_config_whole(w, "num_bits", 8);
  const char *type = zx_config_text(w, "type", "int");
  ZxScheme s = {.real = !strcmp(type, "float"), .symmetric = zx_config_flag(w, "symmetric", true)};
  if (!s.real && strcmp(type, "int")) return zx_cannot(x, "type", type, "int and float");
  if (bits != 8 && (bits != 4 || s.real))
    return zx_cannot_whole(x, "num_bits", bits, s.real ? "8" : "4 and 8");
  s.bits = (int)bits;
  if (!strategy(x, w, &s)) return false;
  zx_scheme_add(x, s);
  return true;
}

bool zx_ct_config(ZxTaking *x) {
  static const char *const formats[] = {"pack-quantized",  "int-quantized",   "naive-quantized",
                                        "float-quantized", "mixed-precision", "dense"};
  const char *format = zx_config_text(x->config, "format", "dense");
  bool known = false;
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) known |= !strcmp(formats[i], format);
  if (!known)
    return zx_cannot(x, "format", format,
                     "pack-quantized, int-quantized, naive-quantized and float-quantized");
  const cJSON *groups = cJSON_GetObjectItemCaseSensitive(x->config, "config_groups");
  for (const cJSON *g = groups ? groups->child : NULL; g; g = g->next)
    if (!add_scheme(x, g)) return false;
  return true;
}

/* ---- weights ------------------------------------------------------------------------------------------- */
typedef struct {
  const char *prefix;
  ZxRaw code, scale, zero;
  int64_t out, in;
  bool words;
} Weight;

static bool fits_zeros(ZxTaking *x, const Weight *w, const ZxScheme *s, int64_t down, int64_t across,
                       ZxCoded *c) {
  bool packed = w->words && !strcmp(w->zero.dtype, "I32");
  int each = packed ? 32 / s->bits : 1;
  if (s->symmetric)
    return zb_fail(x->err, "is its scheme symmetric?", "%s has '%s', and its scheme none",
                   zb_show(x->s->path), zb_show(w->zero.info.path));
  if (!zx_raw_is(x, &w->zero, packed ? "I32" : "I8", 2, packed ? zx_groups(down, each) : down, across))
    return false;
  c->zero = zx_packed(&w->zero, across, packed ? s->bits : 8, each, packed);
  c->more = packed ? 0 : c->none;
  c->uneven = true;
  return true;
}

/* Says whether a weight is of a scheme, and if so how it is read. */
static bool fits(ZxTaking *x, const Weight *w, const ZxScheme *s, ZxCoded *c) {
  int each = w->words ? 32 / s->bits : 1;
  int64_t down = zx_groups(w->out, s->down), across = zx_groups(w->in, s->across);
  const char *types = w->words ? "I32" : s->real ? "F8_E4M3 F8_E5M2" : "I8";
  bool one = down * across == 1 && w->scale.info.nshape < 2; /* [] or [1] */
  *c = (ZxCoded){.info = {.nshape = 2, .shape = {w->out, w->in}},
                 .rows = w->out,
                 .cols = w->in,
                 .down = s->down ? s->down : w->out,
                 .across = s->across ? s->across : w->in,
                 .factor = zx_factors(&w->scale, across),
                 .none = s->real ? 0 : 1 << (s->bits - 1)};
  if (!zx_raw_is(x, &w->code, types, 2, w->out, zx_groups(w->in, each)) ||
      !zx_raw_is(x, &w->scale, zx_factor_types, one ? w->scale.info.nshape : 2, one ? 1 : down, across))
    return false;
  c->code = zx_packed(&w->code, w->in, w->words ? s->bits : 8, each, false);
  if (!w->words) c->value = zx_values(x, s->real ? zx_f8_of(w->code.dtype) : ZX_ABOVE8);
  if (w->zero.number != ZB_NO_NAME) return fits_zeros(x, w, s, down, across, c);
  return s->symmetric || s->real || zx_raw_need(x, w->prefix, ".weight_zero_point", &(ZxRaw){0});
}

static const char *kind_of(ZxTaking *x, const ZxScheme *s) {
  const char *type = zb_printf(x->a, "%s%d of compressed-tensors", s->real ? "f" : "int", s->bits);
  if (s->down > 1)
    return zb_printf(x->a, "%s in blocks of %lld x %lld", type, (long long)s->down, (long long)s->across);
  return s->across ? zb_printf(x->a, "%s in groups of %lld", type, (long long)s->across) : type;
}

/* Takes a weight by the first scheme that it is of; what is said is of the last. */
static bool take(ZxTaking *x, Weight *w) {
  ZxCoded c;
  if (!zx_raw_need(x, w->prefix, ".weight_scale", &w->scale)) return false;
  w->zero = zx_raw_find(x, w->prefix, ".weight_zero_point");
  for (uint32_t i = 0; i < x->nschemes; i++) {
    if (!fits(x, w, &x->scheme[i], &c)) continue;
    *x->err = (ZbErr){0};
    c.kind = kind_of(x, &x->scheme[i]);
    zx_uses(x, &w->code);
    zx_uses(x, &w->scale);
    zx_uses(x, &w->zero);
    return zx_take(x, w->prefix, ".weight", c);
  }
  if (!x->nschemes)
    zb_fail(x->err, "copy the folder again",
            "%s: quantization_config has no scheme of weights, and '%s' is quantized", zb_show(x->file),
            zb_show(w->prefix));
  return false;
}

/* Reads the shape of what was packed. */
static bool shape_of(ZxTaking *x, Weight *w) {
  ZxRaw shape;
  int64_t n[2];
  if (!zx_raw_need(x, w->prefix, ".weight_shape", &shape) || !zx_raw_is(x, &shape, "I64 I32", 1, 2, 0))
    return false;
  if (!strcmp(shape.dtype, "I32")) {
    int32_t half[2];
    if (!zx_weights_bytes(shape.file, shape.tensor, 0, sizeof half, half, x->err)) return false;
    n[0] = half[0], n[1] = half[1];
  } else if (!zx_weights_bytes(shape.file, shape.tensor, 0, sizeof n, n, x->err)) return false;
  if (n[0] < 1 || n[1] < 1 || n[0] > INT32_MAX || n[1] > INT32_MAX)
    return zb_fail(x->err, "copy the folder again", "%s: '%s' says [%lld, %lld]", zb_show(x->s->path),
                   zb_show(shape.info.path), (long long)n[0], (long long)n[1]);
  w->out = n[0];
  w->in = n[1];
  zx_uses(x, &shape);
  return true;
}

static bool in_order(ZxTaking *x, const char *prefix) {
  ZxRaw groups = zx_raw_find(x, prefix, ".weight_g_idx");
  return groups.number == ZB_NO_NAME ||
         zb_fail(
             x->err, "take one whose actorder is null, static or weight",
             "%s: '%s' has columns in the order of their activations (actorder group), which cannot be read",
             zb_show(x->s->path), zb_show(groups.info.path));
}

bool zx_ct_take(ZxTaking *x, const ZxRaw *code) {
  Weight w = {.prefix = zx_without(x, code->info.path, ".weight_packed"), .code = *code};
  if (w.prefix) {
    w.words = true;
    return zx_raw_matrix(x, code, "I32") && in_order(x, w.prefix) && shape_of(x, &w) && take(x, &w);
  }
  w.prefix = zx_without(x, code->info.path, ".weight");
  if (!w.prefix || (strcmp(code->dtype, "I8") && strncmp(code->dtype, "F8", 2))) return true;
  if (!zx_raw_matrix(x, code, "I8 F8_E4M3 F8_E5M2")) return false;
  w.out = code->info.shape[0];
  w.in = code->info.shape[1];
  return take(x, &w);
}
