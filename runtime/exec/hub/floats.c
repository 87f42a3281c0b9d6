/* Weights of small floats. F8 as DeepSeek-V3 has them (2024, section 3.3): a factor, weight_scale_inv, for
 * each block of 128 x 128; others have one, weight_scale, of a row or of all. MXFP4 as gpt-oss has it: 32
 * numbers of 4 bits in 16 bytes, the first in the low half of the first byte, and a power of two for them. */
#include "runtime/exec/hub/quantized.h"

/* ---- F8 ------------------------------------------------------------------------------------------------ */
bool zx_fp8_config(ZxTaking *x) {
  ZxScheme s = {.bits = 8, .real = true};
  if (cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(x->config, "weight_block_size")) &&
      !zx_config_pair(x, x->config, "weight_block_size", &s.down, &s.across))
    return false;
  zx_scheme_add(x, s);
  return true;
}

/* Finds factors of blocks, or of rows [out, 1] or [out], or of all, [1] or []. */
static bool factors(ZxTaking *x, const ZxRaw *f, ZxCoded *c) {
  const ZxScheme *s = x->scheme;
  const ZxTensorInfo *t = &f->info;
  int64_t out = c->rows, in = c->cols;
  bool all = t->nshape == 0 || (t->nshape == 1 && t->shape[0] == 1),
       rows = (t->nshape == 1 || (t->nshape == 2 && t->shape[1] == 1)) && t->shape[0] == out;
  c->down = s->down ? s->down : all ? out : 1;
  c->across = s->across ? s->across : in;
  c->factor = zx_factors(f, zx_groups(in, c->across));
  if (!s->down && (all || rows)) return zx_raw_is(x, f, zx_factor_types, t->nshape, t->shape[0], 1);
  return zx_raw_is(x, f, zx_factor_types, 2, zx_groups(out, c->down), zx_groups(in, c->across));
}

bool zx_fp8_take(ZxTaking *x, const ZxRaw *code) {
  const char *prefix = zx_without(x, code->info.path, ".weight");
  if (!prefix || strncmp(code->dtype, "F8", 2)) return true;
  if (!zx_raw_matrix(x, code, "F8_E4M3 F8_E5M2")) return false;
  const ZxScheme *s = x->scheme;
  ZxRaw factor = zx_raw_find(x, prefix, ".weight_scale_inv");
  if (factor.number == ZB_NO_NAME &&
      !zx_raw_need(x, prefix, s->down ? ".weight_scale_inv" : ".weight_scale", &factor))
    return false;
  ZxCoded c = {.info = {.nshape = 2, .shape = {code->info.shape[0], code->info.shape[1]}},
               .rows = code->info.shape[0],
               .cols = code->info.shape[1],
               .value = zx_values(x, zx_f8_of(code->dtype))};
  c.code = zx_packed(code, c.cols, 8, 1, false);
  if (!factors(x, &factor, &c)) return false;
  c.kind = s->down ? zb_printf(x->a, "f8 in blocks of %lld x %lld", (long long)s->down, (long long)s->across)
           : c.down == 1 ? "f8 with a scale of each row"
                         : "f8 with a scale of each tensor";
  zx_uses(x, code);
  zx_uses(x, &factor);
  return zx_take(x, prefix, ".weight", c);
}

/* ---- MXFP4 --------------------------------------------------------------------------------------------- */
enum { GROUP = 32, GROUP_BYTES = GROUP / 2 };

bool zx_mxfp4_config(ZxTaking *x) {
  zx_scheme_add(x, (ZxScheme){.bits = 4, .real = true, .down = 1, .across = GROUP});
  return true;
}

/* Takes blocks [.., rows, groups, 16] of experts, which make a tensor [.., 32 groups, rows]: a model has
 * them in the other order. */
bool zx_mxfp4_take(ZxTaking *x, const ZxRaw *code) {
  const char *prefix = zx_without(x, code->info.path, "_blocks");
  const ZxTensorInfo *b = &code->info;
  ZxRaw scales;
  if (!prefix) return true;
  if (!zx_raw_need(x, prefix, "_scales", &scales)) return false;
  ZxTensorInfo want = {.path = scales.info.path, .nshape = b->nshape - 1};
  int axes = b->nshape;
  if (axes < 3 || b->shape[axes - 1] != GROUP_BYTES || strcmp(code->dtype, "U8") ||
      strcmp(scales.dtype, "U8"))
    return zb_fail(x->err, "copy the folder again", "%s: '%s' and '%s_scales' are not bytes of groups of %d",
                   zb_show(x->s->path), zb_show(b->path), zb_show(prefix), GROUP);
  ZxCoded c = {.info = {.nshape = axes - 1}, .turned = true, .rows = 1, .down = 1, .across = GROUP};
  for (int i = 0; i < axes - 1; i++) {
    want.shape[i] = b->shape[i];
    if (i < axes - 2) c.info.shape[i] = b->shape[i], c.rows *= b->shape[i];
  }
  if (!zx_shape_is(x->s->path, &scales.info, &want, "MXFP4", "copy the folder again", x->err)) return false;
  c.cols = b->shape[axes - 2] * GROUP;
  c.info.shape[axes - 2] = c.info.shape[axes - 3];
  c.info.shape[axes - 3] = c.cols;
  c.code = zx_packed(code, c.cols, 4, 2, false);
  c.value = zx_values(x, ZX_E2M1);
  c.factor = zx_factors(&scales, c.cols / GROUP);
  c.factor.powers = true;
  c.kind = "MXFP4";
  zx_uses(x, code);
  zx_uses(x, &scales);
  return zx_take(x, prefix, "", c);
}
