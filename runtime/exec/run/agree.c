/* What goes wrong, on all ranks alike or on some. See run.h. */
#include "runtime/exec/run/run.h"

bool zx_run_refuse(ZxRun *r, const ZbErr *err) {
  if (r->rank == 0)
    fprintf(stderr, "zrun: error: %s\n%s%s%s", err->text, *err->help ? "  help: " : "", err->help,
            *err->help ? "\n" : "");
  return false;
}

int zx_run_lowest(ZxRun *r, bool mine) { return (int)zx_lowest(r->c, mine ? r->rank : -1); }

bool zx_run_agree(ZxRun *r, bool ok, const ZbErr *err) {
  bool mine = zx_run_lowest(r, !ok && *err->text) == r->rank;
  if (mine) zx_say(r->rank, "error: %s%s%s", err->text, *err->help ? "; " : "", err->help);
  return zx_agree(r->c, ok);
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
  return first < 0;
}

void zx_run_say(ZbText *t) {
  if (t->s) fputs(t->s, stdout);
  zb_text_free(t);
}
