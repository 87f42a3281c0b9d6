/* zdata records: raw values become fixed-size records. */
#include "runtime/zdata/zdata.h"

#include <string.h>

/* NAME:TYPE:VALUES */
static bool parse_field(ZxDataField *f, const char *text, ZbArena *a, ZbErr *err) {
  static const char how[] = "--field NAME:TYPE:VALUES, as in --field targets:i32:128";
  char *s = zb_strdup(a, text), *type = strchr(s, ':'), *values = type ? strchr(type + 1, ':') : NULL;
  if (!values) return zb_fail(err, how, "--field cannot be '%s'", zb_show(text));
  *type++ = *values++ = 0;
  f->elem = zx_data_elem_of(type);
  if (f->elem == ZX_DATA_ELEMS)
    return zb_fail(err, "types are u8, u16, u32, i32, f32", "--field %s: there is no type '%s'",
                   zb_show(text), zb_show(type));
  if (!zd_whole(values, 1, &f->values))
    return zb_fail(err, how, "--field %s: '%s' is not a count", zb_show(text), zb_show(values));
  if (f->values * zx_data_elem_bytes(f->elem) % 4)
    return zb_fail(err, "add values to it, or use a wider type",
                   "--field %s: a field's bytes must be a multiple of 4", zb_show(text));
  if (strlen(s) >= sizeof f->name)
    return zb_fail(err, "at most 39 letters", "--field %s: the name is too long", zb_show(text));
  strcpy(f->name, s);
  return true;
}

bool zd_records(const ZdOptions *o, ZbArena *a, ZbErr *err) {
  ZxDataInfo info = {.nfield = o->fields.n, .field = ZB_NEWN(a, ZxDataField, o->fields.n)};
  ZdFiles fs = {.a = a};
  for (uint32_t i = 0; i < o->fields.n; i++)
    if (!parse_field(&info.field[i], o->fields.s[i], a, err)) return false;
  return zx_data_layout(&info, err) && zd_files(&fs, o, false, err) && zd_copy(o, &fs, &info, 0, err);
}
