/* bitsandbytes (Dettmers et al. 2022, 2023). LLM.int8: a byte and, of each row, the largest absolute
 * value, which is 127. Four bits: numbers in the order of the weight, two in a byte, the first in the high
 * half, each one of a table's 16; of so many in a row the largest absolute value, which may be a byte
 * itself, by another table, times a factor of 256 of them, plus what all have in common. */
#include "runtime/exec/hub/quantized.h"

bool zx_bnb_config(ZxTaking *x) {
  zx_scheme_add(x, (ZxScheme){.bits = 4});
  return true;
}

/* ---- 8 bits -------------------------------------------------------------------------------------------- */
static bool take_bytes(ZxTaking *x, const char *prefix, const ZxRaw *code) {
  ZxRaw most, format = zx_raw_find(x, prefix, ".weight_format");
  if (!zx_raw_matrix(x, code, "I8") || !zx_raw_need(x, prefix, ".SCB", &most) ||
      !zx_raw_is(x, &most, "F32", 1, code->info.shape[0], 0))
    return false;
  ZxCoded c = {.info = {.nshape = 2, .shape = {code->info.shape[0], code->info.shape[1]}},
               .kind = "int8 of bitsandbytes",
               .rows = code->info.shape[0],
               .cols = code->info.shape[1],
               .down = 1,
               .across = code->info.shape[1],
               .value = zx_values(x, ZX_SIGNED8)};
  c.code = zx_packed(code, c.cols, 8, 1, false);
  c.factor = zx_factors(&most, 1);
  c.factor.times = 1 / 127.0f;
  zx_uses(x, code);
  zx_uses(x, &most);
  zx_uses(x, &format);
  return zx_take(x, prefix, ".weight", c);
}

/* ---- 4 bits -------------------------------------------------------------------------------------------- */
typedef struct {
  ZxTensorInfo info;
  int64_t block, outer; /* numbers of a block, blocks of an outer one */
  float common;
} State;

/* Reads the state, which is JSON in a tensor of bytes. */
static bool read_state(ZxTaking *x, const ZxRaw *r, State *s) {
  enum { MOST = 4096 };
  char text[MOST];
  ZbErr why;
  if (strcmp(r->dtype, "U8") || r->info.nshape != 1 || r->info.shape[0] > MOST)
    return zb_fail(x->err, "copy the folder again", "%s: '%s' is not a short text", zb_show(x->s->path),
                   zb_show(r->info.path));
  if (!zx_weights_bytes(r->file, r->tensor, 0, (uint64_t)r->info.shape[0], text, x->err)) return false;
  cJSON *json = zb_json_parse(text, (size_t)r->info.shape[0], ZB_JSON_ANY, &why);
  if (!json)
    return zb_fail(x->err, "copy the folder again", "%s: '%s': %s", zb_show(x->s->path),
                   zb_show(r->info.path), why.text);
  const cJSON *shape = cJSON_GetObjectItemCaseSensitive(json, "shape"),
              *common = cJSON_GetObjectItemCaseSensitive(json, "nested_offset");
  s->block = zx_config_whole(json, "blocksize", 0);
  s->outer = zx_config_whole(json, "nested_blocksize", 0);
  s->common = cJSON_IsNumber(common) ? (float)common->valuedouble : 0;
  bool good = s->block > 0 && s->outer >= 0 && cJSON_GetArraySize(shape) == 2;
  for (int i = 0; good && i < 2; i++) {
    double n = cJSON_GetArrayItem(shape, i)->valuedouble;
    good = n >= 1 && n <= INT32_MAX;
    if (good) s->info.shape[s->info.nshape++] = (int64_t)n;
  }
  cJSON_Delete(json);
  return good ||
         zb_fail(x->err, "copy the folder again", "%s: '%s' has no shape of two axes, or no blocksize",
                 zb_show(x->s->path), zb_show(r->info.path));
}

/* Reads a table of so many values. */
static bool read_table(ZxTaking *x, const char *prefix, const char *end, int n, const float **out) {
  ZxRaw r;
  float *v = ZB_NEWN(x->a, float, 256);
  if (!zx_raw_need(x, prefix, end, &r) || !zx_raw_is(x, &r, "F32", 1, n, 0) ||
      !zx_weights_read(r.file, r.tensor, 0, (uint64_t)n, v, x->err))
    return false;
  zx_uses(x, &r);
  *out = v;
  return true;
}

/* Finds factors of n blocks, as they are or quantized again. */
static bool factors(ZxTaking *x, const char *prefix, const State *s, int64_t n, ZxFactors *f) {
  ZxRaw most, outer = zx_raw_find(x, prefix, ".weight.nested_absmax");
  if (!zx_raw_need(x, prefix, ".weight.absmax", &most)) return false;
  zx_uses(x, &most);
  *f = zx_factors(&most, n);
  if (outer.number == ZB_NO_NAME) return zx_raw_is(x, &most, "F32", 1, n, 0);
  ZxCoded *c = ZB_NEW(x->a, ZxCoded);
  if (!s->outer)
    return zb_fail(x->err, "copy the folder again", "%s: the state of '%s' has no nested_blocksize",
                   zb_show(x->s->path), zb_show(prefix));
  if (!zx_raw_is(x, &most, "U8", 1, n, 0) ||
      !zx_raw_is(x, &outer, "F32", 1, (n + s->outer - 1) / s->outer, 0) ||
      !read_table(x, prefix, ".weight.nested_quant_map", 256, &c->value))
    return false;
  c->rows = c->down = 1;
  c->cols = n;
  c->across = s->outer;
  c->code = zx_packed(&most, n, 8, 1, false);
  c->factor = zx_factors(&outer, (n + s->outer - 1) / s->outer);
  f->coded = c;
  f->plus = s->common;
  zx_uses(x, &outer);
  return true;
}

static bool take_halves(ZxTaking *x, const char *prefix, const ZxRaw *code, const ZxRaw *state,
                        const char *kind) {
  State s = {0};
  if (!read_state(x, state, &s)) return false;
  int64_t n = s.info.shape[0] * s.info.shape[1];
  ZxCoded c = {.info = s.info, .rows = 1, .cols = n, .down = 1, .across = s.block};
  if (!zx_raw_is(x, code, "U8", 2, (n + 1) / 2, 1) ||
      !factors(x, prefix, &s, (n + s.block - 1) / s.block, &c.factor) ||
      !read_table(x, prefix, ".weight.quant_map", 16, &c.value))
    return false;
  c.code = zx_packed(code, n, 4, 2, false);
  c.code.place[0] = 1;
  c.code.place[1] = 0;
  c.kind = zb_printf(x->a, "%s of bitsandbytes in blocks of %lld", kind, (long long)s.block);
  zx_uses(x, code);
  zx_uses(x, state);
  return zx_take(x, prefix, ".weight", c);
}

bool zx_bnb_take(ZxTaking *x, const ZxRaw *code) {
  static const char *const kinds[] = {"nf4", "fp4"};
  const char *prefix = zx_without(x, code->info.path, ".weight");
  if (!prefix) return true;
  if (!strcmp(code->dtype, "I8")) return take_bytes(x, prefix, code);
  if (strcmp(code->dtype, "U8")) return true;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    ZxRaw state = zx_raw_find(x, prefix, zb_printf(x->a, ".weight.quant_state.bitsandbytes__%s", kinds[i]));
    if (state.number != ZB_NO_NAME) return take_halves(x, prefix, code, &state, kinds[i]);
  }
  return zb_fail(x->err, "save it again with a newer bitsandbytes",
                 "%s: '%s' has bytes, and no state of nf4 or fp4", zb_show(x->s->path),
                 zb_show(code->info.path));
}
