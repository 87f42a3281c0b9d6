#include "tests/unit/exec/manifest_file.h"

#include <criterion/criterion.h>
#include <sys/stat.h>

void manifest_file(ZbArena *a, const char *path, int64_t step, int64_t serial) {
  static const ZxTensorInfo w = {"w", 1, {2}};
  ZxManifest m = {
      .step = step, .serial = serial, .version = "1", .model = "M", .command = "c", .recipe = "r"};
  ZbErr err;
  cr_assert(mkdir(path, 0777) == 0);
  cr_assert(zx_contents_make(a, &w, 1, NULL, 0, NULL, NULL, 100, &m.c, &err), "%s", err.text);
  cr_assert(zx_manifest_write(&m, path, &err), "%s", err.text);
}
