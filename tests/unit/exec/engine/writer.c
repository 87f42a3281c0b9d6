/* The thread that writes a checkpoint, by itself: of more files than are open at a time each is whole, and
 * waited for. */
#include "runtime/exec/state/writer.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/unit/exec/scratch.h"

SCRATCH_SUITE(writer);

/* One of n parameters a file. */
static ZxContents contents_of(uint32_t n) {
  ZxTensorInfo *info = ZB_NEWN(a, ZxTensorInfo, n);
  for (uint32_t i = 0; i < n; i++)
    info[i] = (ZxTensorInfo){.path = zb_printf(a, "w%d", (int)i), .nshape = 1, .shape = {2}};
  ZxContents c;
  ZbErr err = {0};
  cr_assert(zx_contents_make(a, info, n, NULL, 0, NULL, NULL, 4, &c, &err), "%s", err.text);
  cr_assert_eq(c.nfiles, n);
  return c;
}

static ZxWriterState write_heads(const ZxContents *c, const char *tmp, ZbErr *why) {
  ZxSnapshot none = {0};
  ZxWriter *w = zx_writer_new(&(ZxWriterOptions){.snapshot = &none, .contents = c, .heads = true}, why);
  cr_assert(w, "%s", why->text);
  cr_expect_eq(zx_writer_state(w), ZX_WRITER_IDLE);
  int open = open_files();
  scratch_synced();
  zx_writer_write(w, tmp);
  while (zx_writer_state(w) == ZX_WRITER_WORKS) nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
  ZxWriterState s = zx_writer_state(w);
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < c->nfiles; i++) bytes += c->files[i].head_bytes;
  if (s == ZX_WRITER_DONE) cr_expect_eq(zx_writer_bytes(w), bytes);
  cr_expect_eq(open_files(), open);
  *why = *zx_writer_error(w);
  zx_writer_free(w);
  return s;
}

Test(writer, many_files) {
  static const uint32_t sizes[] = {1, 127, 128, 129, 300}; /* 128 are open at a time */
  for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
    ZxContents c = contents_of(sizes[k]);
    const char *dir = zb_printf(a, "many-%d", (int)k);
    ZbErr why = {0};
    cr_expect_eq(write_heads(&c, scratch(dir), &why), ZX_WRITER_DONE, "%s", why.text);
    cr_expect_eq(scratch_synced(), (int)c.nfiles);
    for (uint32_t i = 0; i < c.nfiles; i++) {
      size_t n;
      char *text = scratch_read(zb_printf(a, "%s/%s", dir, c.files[i].name), &n);
      cr_expect(n == c.files[i].head_bytes && !memcmp(text, c.files[i].head, n));
      free(text);
    }
  }
}

/* A disk that fails says so at the latest when it is waited for; then no other is. */
Test(writer, disk_fails) {
  ZxContents c = contents_of(3);
  ZbErr why = {0};
  scratch_sync_fails(EIO, 1);
  cr_expect_eq(write_heads(&c, scratch("c"), &why), ZX_WRITER_FAILED);
  cr_expect_eq(scratch_synced(), 2);
  says(why, "Input/output error");
  says(why, c.files[1].name);
  scratch_sync_fails(0, 0);
  cr_expect_eq(write_heads(&c, scratch("c"), &why), ZX_WRITER_DONE, "%s", why.text);
}
