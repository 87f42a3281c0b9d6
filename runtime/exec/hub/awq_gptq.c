/* AWQ (Lin et al. 2023) and GPTQ (Frantar et al. 2022) as AutoAWQ and AutoGPTQ write them. A weight [out,
 * in] lies as [in, out], and so do scales and zero points, of groups of rows of that. AWQ has eight
 * numbers of a row in a word, in the order 0 2 4 6 1 3 5 7; GPTQ has the numbers of a column in a word, in
 * order, and those of a row of its zero points. */
#include "runtime/exec/hub/quantized.h"

static const char module_end[] = ".weight";

/* Reads bits and the size of groups. */
static bool sizes(ZxTaking *x, const char *can, bool (*has)(int64_t bits), ZxScheme *s) {
  int64_t bits = zx_config_whole(x->config, "bits", 4), group = zx_config_whole(x->config, "group_size", 128);
  if (!has(bits)) return zx_cannot_whole(x, "bits", bits, can);
  if (group != -1 && (group < 1 || group > INT32_MAX))
    return zx_cannot_whole(x, "group_size", group, "1 and more, or -1");
  *s = (ZxScheme){.bits = (int)bits, .down = group < 0 ? 0 : group, .across = 1};
  return true;
}

/* Takes scales, zero points and the rest of a weight of in rows and out columns, whose codes are there. */
static bool take(ZxTaking *x, const char *prefix, const ZxRaw *codes, int64_t in, int64_t out, ZxPacked code,
                 const char *name) {
  const ZxScheme *s = x->scheme;
  ZxRaw scales, zeros;
  int each = 32 / s->bits;
  int64_t down = s->down ? s->down : in, groups = (in + down - 1) / down;
  if (!zx_raw_need(x, prefix, ".scales", &scales) || !zx_raw_need(x, prefix, ".qzeros", &zeros) ||
      !zx_whole_words(x, codes, out, each) || !zx_raw_is(x, &scales, zx_factor_types, 2, groups, out) ||
      !zx_raw_is(x, &zeros, "I32", 2, groups, out / each))
    return false;
  ZxCoded c = {.info = {.nshape = 2, .shape = {out, in}},
               .turned = true,
               .rows = in,
               .cols = out,
               .code = code,
               .down = down,
               .across = 1,
               .factor = zx_factors(&scales, out),
               .zero = zx_packed(&zeros, out, s->bits, each, false),
               .more = s->less,
               .uneven = !s->even};
  memcpy(c.zero.place, code.place, sizeof c.zero.place);
  c.kind = s->down ? zb_printf(x->a, "int%d of %s in groups of %lld", s->bits, name, (long long)s->down)
                   : zb_printf(x->a, "int%d of %s", s->bits, name);
  zx_uses(x, codes);
  zx_uses(x, &scales);
  zx_uses(x, &zeros);
  return zx_take(x, prefix, module_end, c);
}

/* ---- AWQ ----------------------------------------------------------------------------------------------- */
static bool is_four(int64_t bits) { return bits == 4; }

bool zx_awq_config(ZxTaking *x) {
  ZxScheme s;
  const char *version = zx_config_text(x->config, "version", "gemm");
  if (strcasecmp(version, "gemm")) return zx_cannot(x, "version", version, "gemm");
  if (!sizes(x, "4", is_four, &s)) return false;
  zx_scheme_add(x, s);
  return true;
}

bool zx_awq_take(ZxTaking *x, const ZxRaw *codes) {
  static const uint8_t place[8] = {0, 4, 1, 5, 2, 6, 3, 7};
  const char *prefix = zx_without(x, codes->info.path, ".qweight");
  if (!prefix) return true;
  if (!zx_raw_matrix(x, codes, "I32")) return false;
  int64_t in = codes->info.shape[0], out = codes->info.shape[1] * 8;
  ZxPacked code = zx_packed(codes, out, 4, 8, false);
  memcpy(code.place, place, sizeof place);
  return take(x, prefix, codes, in, out, code, "AWQ");
}

/* ---- GPTQ ---------------------------------------------------------------------------------------------- */
static bool is_two_four_eight(int64_t bits) { return bits == 2 || bits == 4 || bits == 8; }

bool zx_gptq_config(ZxTaking *x) {
  ZxScheme s;
  const char *format =
      zx_config_text(x->config, "checkpoint_format", zx_config_text(x->config, "format", "gptq"));
  bool second = !strcmp(format, "gptq_v2");
  const cJSON *dynamic = cJSON_GetObjectItemCaseSensitive(x->config, "dynamic");
  if (!second && strcmp(format, "gptq")) return zx_cannot(x, "checkpoint_format", format, "gptq and gptq_v2");
  if (dynamic && dynamic->child)
    return zx_cannot(x, "dynamic", "that is not empty", "one kind for all modules");
  if (!sizes(x, "2, 4 and 8", is_two_four_eight, &s)) return false;
  s.less = second ? 0 : 1;
  s.even = zx_config_flag(x->config, "sym", false);
  s.ordered = zx_config_flag(x->config, "desc_act", false);
  zx_scheme_add(x, s);
  return true;
}

static uint32_t group_of(const void *ctx, uint64_t i) {
  const ZxScheme *s = ctx;
  return s->down ? (uint32_t)(i / (uint64_t)s->down) : 0;
}

/* Refuses rows that are not in groups one after the other: in the order of activations a group's rows lie
 * anywhere. */
static bool in_order(ZxTaking *x, const char *prefix, int64_t in) {
  const ZxScheme *s = x->scheme;
  ZxRaw groups = zx_raw_find(x, prefix, ".g_idx");
  bool same = !s->ordered;
  if (groups.number != ZB_NO_NAME &&
      (!zx_raw_is(x, &groups, "I32", 1, in, 0) || !zx_raw_follows(x, &groups, group_of, s, &same)))
    return false;
  zx_uses(x, &groups);
  return same || zb_fail(x->err, "take one that was made without: desc_act false",
                         "%s: '%s.g_idx' has rows in the order of their activations (desc_act, act-order), "
                         "which cannot be read: a group's rows do not follow each other",
                         zb_show(x->s->path), zb_show(prefix));
}

/* Returns a word of zero points that are all in the middle. */
static uint32_t middle(const void *ctx, uint64_t i) {
  const ZxScheme *s = ctx;
  uint32_t w = 0, one = (1u << (s->bits - 1)) - (uint32_t)s->less;
  (void)i;
  for (int b = 0; b < 32; b += s->bits) w |= one << b;
  return w;
}

/* Checks that symmetric weights have 8 of 16 for 0, of which the first format stores 7: files are about
 * that have the one format's name and the other's zero points, and would be read wrong by a step each. */
static bool zeros_as_said(ZxTaking *x, const char *prefix) {
  const ZxScheme *s = x->scheme;
  ZxRaw zeros;
  bool same;
  if (!s->even) return true;
  if (!zx_raw_need(x, prefix, ".qzeros", &zeros) || !zx_raw_matrix(x, &zeros, "I32") ||
      !zx_raw_follows(x, &zeros, middle, s, &same))
    return false;
  uint32_t want = (1u << (s->bits - 1)) - (uint32_t)s->less;
  return same ||
         zb_fail(x->err,
                 "if it was written with zero points as they are, its checkpoint_format is gptq_v2; with "
                 "one less, gptq; if it has other ones, sym is false",
                 "%s: '%s.qzeros' are not all %u, which sym with checkpoint_format %s stores",
                 zb_show(x->s->path), zb_show(prefix), want, s->less ? "gptq" : "gptq_v2");
}

bool zx_gptq_take(ZxTaking *x, const ZxRaw *codes) {
  const char *prefix = zx_without(x, codes->info.path, ".qweight");
  if (!prefix) return true;
  if (!zx_raw_matrix(x, codes, "I32")) return false;
  int bits = x->scheme->bits, each = 32 / bits;
  int64_t in = codes->info.shape[0] * each, out = codes->info.shape[1];
  return in_order(x, prefix, in) && zeros_as_said(x, prefix) &&
         take(x, prefix, codes, in, out, zx_packed(codes, out, bits, each, true), "GPTQ");
}
