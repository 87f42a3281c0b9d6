/* zdata check: all of a file is read, and compared with its checksum. */
#include "runtime/zdata/zdata.h"

bool zd_check(const ZdOptions *o, ZbArena *a, ZbErr *err) {
  (void)a;
  ZxData *d = zx_data_open(o->file[0], err);
  bool ok = d && zx_data_verify(d, err);
  if (ok) printf("%s: as it was written\n", zb_show(o->file[0]));
  zx_data_close(d);
  return ok;
}
