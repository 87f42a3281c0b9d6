/* A file that only grows, as a log does. See base.h. */
#include "base/base.h"

#include <errno.h>
#include <unistd.h>

enum { MOST_WAITING = 16 << 20 /* bytes; a record that comes after so many is left out */ };

bool zb_append(ZbAppend *f, const char *name, const char *record, size_t n, ZbErr *err) {
  ZbText *t = &f->waiting;
  if (t->len < MOST_WAITING) zb_text_put(t, record, n);
  if (f->fd < 0) return false;
  size_t done = 0;
  for (ssize_t put; done < t->len; done += (size_t)put) {
    put = write(f->fd, t->s + done, t->len - done);
    if (put < 0 && errno == EINTR) put = 0;
    else if (put <= 0) break;
  }
  bool ok = done == t->len || zb_out_failed(name, errno, err);
  t->len -= done;
  if (done && t->len) memmove(t->s, t->s + done, t->len);
  return ok;
}

void zb_append_close(ZbAppend *f) {
  if (f->fd >= 0 && f->waiting.len) zb_append(f, "", "", 0, NULL);
  if (f->fd >= 0) close(f->fd);
  zb_text_free(&f->waiting);
}
