/* See pack.h. Scales are searched, as for weights that a plan stores in few bits. */
#include "runtime/exec/hub/pack.h"

#include "kernels/packed.h"

#include <inttypes.h>
#include <math.h>

/* ---- which --------------------------------------------------------------------------------------------- */
static bool has_axis(const ZgNode *n, uint16_t axis) {
  for (int i = 0; i < n->nax; i++)
    if (n->ax[i] == axis) return true;
  return false;
}

/* Says whether experts are chosen by an axis. */
static bool is_chosen_by(const ZgGraph *g, uint16_t axis) {
  for (uint32_t k = 0; k < g->nsegments; k++)
    for (uint32_t i = 0; i < g->segments[k].nforward; i++)
      if (g->segments[k].nodes[i].op == ZG_OP_TOPK && has_axis(&g->segments[k].nodes[i], axis)) return true;
  return false;
}

/* Says whether a product sums over the columns of a part, and over nothing else of it. */
static bool sums_columns(const ZgGraph *g, const ZgNode *n, uint32_t param, const ZxPart *part) {
  const ZgParam *q = &g->params[param];
  int64_t cols = part->info.shape[part->info.nshape - 1];
  for (int i = 0; i < q->type.naxes; i++) {
    uint16_t axis = q->type.axis[q->order[i]];
    if (zg_axis_is_looked_up(g, axis)) return false; /* a head, which others keep as it is */
    if (i == part->fixed || g->axes[axis].size == 1) continue;
    if (has_axis(n, axis) != (part->stride[i] < cols) || (!has_axis(n, axis) && is_chosen_by(g, axis)))
      return false;
  }
  return true;
}

bool zx_pack_is_linear(const ZgGraph *g, uint32_t param, const ZxPart *part) {
  if (part->info.nshape != 2 || !zb_ends(part->info.path, ".weight")) return false;
  uint32_t uses = 0;
  for (uint32_t k = 0; k < g->nsegments; k++) {
    const ZgSegment *s = &g->segments[k];
    for (uint32_t i = 0; i < s->nforward; i++) {
      const ZgNode *n = &s->nodes[i];
      for (int j = 0; j < n->nin; j++) {
        const ZgNode *of = &s->nodes[s->values[n->in[j]].node];
        if (of->op != ZG_OP_PARAM || of->opt[0] != param) continue;
        if (n->op != ZG_OP_DOT || !sums_columns(g, n, param, part)) return false;
        uses++;
      }
    }
  }
  return uses;
}

bool zx_pack_fits(const ZxTensorInfo *t, ZkElem packed, ZbErr *err) {
  int64_t in = t->shape[1], group = zk_packed_group(packed), most = 128;
  if (in % group == 0) return true;
  while (most >= 32 && in % most) most /= 2;
  char help[80] = "write them as they are, without --weights";
  if (most >= 32) snprintf(help, sizeof help, "--group %" PRId64, most);
  return zb_fail(err, help,
                 "rows of tensor '%s' have %" PRId64 " elements, which are not whole groups of %" PRId64,
                 t->path, in, group);
}

/* ---- as what ------------------------------------------------------------------------------------------- */
int zx_pack_tensors(ZbArena *a, const ZxTensorInfo *t, ZkElem packed, ZkElem as,
                    ZxFileTensor out[ZX_PACK_TENSORS]) {
  int64_t rows = t->shape[0], in = t->shape[1], each = 32 / zk_elem_info[packed].bits;
  out[0] = (ZxFileTensor){{zb_printf(a, "%s_packed", t->path), 2, {rows, in / each}}, "I32", 4};
  out[1] = (ZxFileTensor){{zb_printf(a, "%s_scale", t->path), 2, {rows, in / zk_packed_group(packed)}},
                          zk_elem_info[as].file,
                          zk_plain_bytes(as)};
  out[2] = (ZxFileTensor){{zb_printf(a, "%s_shape", t->path), 1, {2}}, "I64", 8};
  return ZX_PACK_TENSORS;
}

/* Chooses the scales of at most ZK_COLUMNS groups, as the format of packed weights does. */
static void choose_scales(ZkElem packed, const float *x, uint64_t groups, float *scale) {
  enum { ROOM = ZK_COLUMNS * (ZX_PACK_GROUP + 2) };
  static _Thread_local _Alignas(64) uint8_t room[ROOM];
  ZkPacked as_panel = {packed, ZK_COLUMNS, zk_packed_group(packed), room};
  float turned[ZX_PACK_GROUP * ZK_COLUMNS] = {0};
  ZB_ASSERT(as_panel.k <= ZX_PACK_GROUP && zk_elem_info[packed].zero == ZK_ZERO_NONE);
  for (uint64_t g = 0; g < groups; g++)
    for (int64_t i = 0; i < as_panel.k; i++) turned[i * ZK_COLUMNS + (int64_t)g] = *x++;
  zk_packed_encode(&as_panel, 0, 0, turned);
  for (uint64_t g = 0; g < groups; g++) scale[g] = zb_f16_to_f32(zk_packed_scales(&as_panel, 0)[g]);
}

ZB_WIDE static void round_group(const float *restrict x, int n, float inverse, float half,
                                int32_t *restrict code) {
  for (int i = 0; i < n; i++) {
    float c = rintf(x[i] * inverse);
    c = c < -half ? -half : c > half - 1 ? half - 1 : c;
    code[i] = (int32_t)(c + half);
  }
}

bool zx_pack_round(ZkElem packed, ZkElem as, const float *x, uint64_t n, uint32_t *words, void *scales) {
  int group = (int)zk_packed_group(packed), bits = zk_elem_info[packed].bits, each = 32 / bits;
  uint64_t bytes = zk_plain_bytes(as);
  float scale[ZK_COLUMNS];
  int32_t code[ZX_PACK_GROUP];
  for (uint64_t g = 0, groups = n / (uint64_t)group; g < groups; g++, x += group) {
    uint64_t left = groups - g;
    if (g % ZK_COLUMNS == 0) choose_scales(packed, x, left < ZK_COLUMNS ? left : ZK_COLUMNS, scale);
    float s = scale[g % ZK_COLUMNS];
    void *to = (char *)scales + g * bytes;
    if (!isfinite(s) || zx_as(as, &s, 1, to) >= 0) return false;
    if (as == ZK_BF16) s = zb_bf16_to_f32(*(uint16_t *)to);
    round_group(x, group, s != 0 ? 1 / s : 0, (float)zk_packed_zero(packed), code);
    for (int i = 0; i < group; i += each, words++) {
      *words = 0;
      for (int j = 0; j < each; j++) *words |= (uint32_t)code[i + j] << j * bits;
    }
  }
  return true;
}

/* ---- said how ------------------------------------------------------------------------------------------ */
const char *zx_pack_config(ZbArena *a, ZkElem packed, const char *const *ignore, uint32_t n) {
  ZbText t = {0};
  ZbJson j = {.text = &t};
  zb_json_object(&j, NULL);
  zb_json_string(&j, "quant_method", "compressed-tensors");
  zb_json_string(&j, "format", "pack-quantized");
  zb_json_string(&j, "quantization_status", "compressed");
  zb_json_null(&j, "kv_cache_scheme");
  zb_json_list(&j, "ignore");
  for (uint32_t i = 0; i < n; i++) zb_json_string(&j, NULL, ignore[i]);
  zb_json_end(&j);
  zb_json_object(&j, "config_groups");
  zb_json_object(&j, "group_0");
  zb_json_list(&j, "targets");
  zb_json_string(&j, NULL, "Linear");
  zb_json_end(&j);
  zb_json_null(&j, "input_activations");
  zb_json_null(&j, "output_activations");
  zb_json_object(&j, "weights");
  zb_json_int(&j, "num_bits", zk_elem_info[packed].bits);
  zb_json_string(&j, "type", "int");
  zb_json_bool(&j, "symmetric", true);
  zb_json_string(&j, "strategy", "group");
  zb_json_int(&j, "group_size", zk_packed_group(packed));
  zb_json_bool(&j, "dynamic", false);
  zb_json_null(&j, "actorder");
  zb_json_null(&j, "block_structure");
  zb_json_end(&j);
  zb_json_end(&j);
  zb_json_end(&j);
  zb_json_end(&j);
  const char *text = zb_strdup(a, t.s);
  zb_text_free(&t);
  return text;
}
