/* What goes wrong, on all ranks alike or on some. See run.h. */
#include "runtime/exec/exit.h"
#include "runtime/exec/run/run.h"

#include <inttypes.h>
#include <string.h>

static bool end(ZxRun *r, const ZbErr *err, int code) {
  if (r->rank == 0)
    fprintf(stderr, "zrun: error: %s\n%s%s%s", err->text, *err->help ? "  help: " : "", err->help,
            *err->help ? "\n" : "");
  r->failed = code;
  return false;
}

bool zx_run_refuse(ZxRun *r, const ZbErr *err) { return end(r, err, ZX_EXIT_MISTAKE); }
bool zx_run_fail(ZxRun *r, const ZbErr *err) { return end(r, err, ZX_EXIT_FAILED); }

int zx_run_lowest(ZxRun *r, bool mine) { return (int)zx_lowest(r->c, mine ? r->rank : -1); }

void zx_run_tell_all(ZxRun *r, void *p, size_t bytes) {
  if (r->c->t->size(r->c) > 1) r->c->t->wait(r->c, r->c->t->broadcast(r->c, 0, p, bytes, 0));
}

bool zx_run_agree(ZxRun *r, bool ok, const ZbErr *err) {
  bool mine = zx_run_lowest(r, !ok && *err->text) == r->rank;
  if (mine) zx_say(r->rank, "error: %s%s%s", err->text, *err->help ? "; " : "", err->help);
  return zx_agree(r->c, ok);
}

bool zx_run_accept(ZxRun *r, bool ok, const ZbErr *err) {
  if (zx_run_agree(r, ok, err)) return true;
  r->failed = zx_run_lowest(r, !ok && err->passing) < 0 ? ZX_EXIT_MISTAKE : ZX_EXIT_FAILED;
  return false;
}

void zx_run_print_diags(ZxRun *r) {
  ZbText t = {0};
  zl_print_text(r->diags, &t);
  if (t.s && r->rank) fprintf(stderr, "[rank %d] ", r->rank);
  if (t.s) fputs(t.s, stderr);
  zb_text_free(&t);
}

bool zx_run_agree_diags(ZxRun *r, bool ok) {
  int first = zx_run_lowest(r, !ok);
  if (first == r->rank) zx_run_print_diags(r);
  if (first >= 0 && zx_run_lowest(r, !ok && zl_passing(r->diags)) >= 0) r->failed = ZX_EXIT_FAILED;
  return first < 0;
}

void zx_run_say(ZbText *t) {
  if (t->s) fputs(t->s, stdout);
  zb_text_free(t);
}

/* ---- lines ---- */
/* Takes a line out of the text, all times that it is there. */
static void take_out(ZbText *t, const char *line, size_t n) {
  for (size_t at = 0; at < t->len;) {
    const char *end = memchr(t->s + at, '\n', t->len - at);
    size_t len = (size_t)(end - (t->s + at)) + 1;
    if (len == n && !memcmp(t->s + at, line, n)) {
      memmove(t->s + at, t->s + at + len, t->len - at - len + 1);
      t->len -= len;
    } else at += len;
  }
}

void zx_run_say_once(ZxRun *r, ZbText *lines) {
  char line[1024];
  ZxComm *c = r->c;
  for (int from; (from = zx_run_lowest(r, lines->len > 0)) >= 0;) {
    memset(line, 0, sizeof line);
    const char *end = lines->len ? memchr(lines->s, '\n', lines->len) : NULL;
    size_t n = end ? (size_t)(end - lines->s) + 1 : 0;
    ZB_ASSERT(n < sizeof line && (from != r->rank || n));
    if (from == r->rank) memcpy(line, lines->s, n);
    c->t->wait(c, c->t->broadcast(c, 0, line, sizeof line, from));
    take_out(lines, line, strlen(line));
    if (r->rank == 0 && from) printf("[rank %d] ", from);
    if (r->rank == 0) fputs(line, stdout);
  }
  zb_text_free(lines);
}

/* A run can do without its log for a while. */
void zx_run_logged(ZxRun *r, bool ok, int64_t step, const ZbErr *err) {
  if (!ok && !err->passing)
    zx_die_of(r->c, ZX_EXIT_FAILED, "step %" PRId64 ": %s%s%s", step, err->text, *err->help ? "; " : "",
              err->help);
  if (!ok && !r->log_waits)
    printf("note: step %" PRId64 ": %s; the run goes on, and writes what is missing when there is room\n",
           step, err->text);
  if (ok && r->log_waits) printf("note: step %" PRId64 ": the log is complete again\n", step);
  r->log_waits = !ok;
}
