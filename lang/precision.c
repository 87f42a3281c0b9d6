/* What stands behind `precision`: element types of what is computed, summed and kept, and formats of 8 and 4
 * bits in which weights are stored. */
#include "lang/words.h"

#include <string.h>

const char *const zl_packed_formats[] = {ZL_PACKED_LIST, NULL};
const char *const zl_precision_keys[] = {"compute", "params", "grads", "reduce", "states", "weights"};

/* ---- lists of names ---- */
void zl_precision_names(ZlDiags *d, ZbArena *a, ZlPrecision *p, bool but, ZlPath name) {
  ZlPaths *to = but ? &p->but : &p->of;
  if (to->n || (!but && p->but.n)) {
    zl_help(zl_report(d, ZL_Z0803, name.span, "`%s` of a precision is given twice", but ? "except" : "for"),
            "write one list, with commas: `for a, b except c, d`");
    return;
  }
  if (strcmp(p->key.s, "weights") != 0) {
    zl_help(zl_report(d, ZL_Z0804, name.span, "`%s` has one precision, and no list of parameters", p->key.s),
            "leave the list out, or write `weights int8 for ...`");
    return;
  }
  ZB_PUSH(a, to->at, to->n, name);
}

void zl_precision_more(ZlDiags *d, ZbArena *a, ZlPrecision *p, ZlPath name) {
  ZlPaths *to = p->but.n ? &p->but : &p->of;
  if (to->n) {
    ZB_PUSH(a, to->at, to->n, name);
    return;
  }
  zl_help(zl_report(d, ZL_Z0804, name.span, "`%s` follows no list of parameters", zl_path_text(a, &name)),
          "write, say, `weights int8 for %s`", zl_path_text(a, &name));
}

/* ---- weights ---- */
bool zl_packing(ZlDiags *d, const ZlPrecision *p, ZlPacking *to) {
  *to = (ZlPacking){.group = 64, .of = p->of, .but = p->but, .span = p->span};
  if (!strcmp(p->type.s, "none") && !p->word.s && !p->but.n) return true;
  int n = 0, k;
  while (zl_packed_formats[n]) n++;
  k = zl_word_index(p->type.s, zl_packed_formats, n);
  if (k < 0) {
    ZlDiag *g = zl_report(d, ZL_Z0804, p->type.span, "weights have no format `%s`", p->type.s);
    zl_note(g, "it is one of %s, or `none`", ZL_PACKED_FORMATS);
    zl_help_nearest(g, p->type.s, zl_packed_formats, (uint32_t)n);
    return false;
  }
  to->format = zl_packed_formats[k];
  if (!p->word.s) return true;
  if (strcmp(p->word.s, "group") != 0) {
    zl_help(zl_report(d, ZL_Z0804, p->word.span, "weights have no setting `%s`", p->word.s),
            "write `weights %s group 64`", to->format);
    return false;
  }
  to->group = p->num.i;
  if (p->num.integer && (p->num.i == 32 || p->num.i == 64 || p->num.i == 128)) return true;
  zl_help(zl_report(d, ZL_Z0805, p->num.span, "a group must be 32, 64 or 128 elements"),
          "write `group 64`; small groups are more exact, large ones take less memory");
  return false;
}

/* ---- all else ---- */
const char *zl_precision_word(ZlDiags *d, const ZlPrecision *p, int *which) {
  static const char *const types[] = {"f32", "bf16", "tf32", "f16", "f8e4m3", "f8e5m2"};
  static const char there_are[] =
      "there are `f32`, for `compute`, `grads` and `reduce` `bf16`, and for `compute` `tf32`";
  int k = zl_word_index(p->key.s, zl_precision_keys, 6), t = zl_word_index(p->type.s, types, 6);
  *which = k;
  if (k < 0) {
    ZlDiag *g = zl_report(d, ZL_Z0804, p->key.span, "no precision is called `%s`", p->key.s);
    zl_note(g, "there are `compute`, `params`, `grads`, `reduce`, `states` and `weights`");
    zl_help_nearest(g, p->key.s, zl_precision_keys, 6);
  } else if (t < 0) {
    ZlDiag *g = zl_report(d, ZL_Z0804, p->type.span, "`%s` is not a precision", p->type.s);
    zl_note(g, "%s", there_are);
    zl_help_nearest(g, p->type.s, types, 3);
  } else if (p->word.s) {
    zl_help(zl_report(d, ZL_Z0804, p->word.span, "`%s` takes no settings", p->key.s), "write `%s %s`",
            p->key.s, types[t]);
  } else if (t > 2 || (t == 1 && k != 0 && k != 2 && k != 3) || (t == 2 && k != 0)) {
    ZlDiag *g = zl_report(d, ZL_Z0808, p->type.span, "%s in %s is not in this version", p->key.s, p->type.s);
    zl_note(g, "%s", there_are);
    zl_help(g, "write `%s %s`", p->key.s, k == 0 ? "bf16" : "f32");
  } else {
    return types[t];
  }
  return NULL;
}
