/* The parts of all ranks in one file, whose times are rank 0's since it was opened. */
#include "runtime/exec/engine/internal.h"
#include "runtime/exec/trace.h"
#include "runtime/plan/text.h"
#include "tests/unit/exec/scratch.h"
#include "tests/unit/exec/threads.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(trace, .init = scratch_make, .fini = scratch_remove);

enum { RANKS = 3 };
static ZpInstr instrs[] = {{.op = ZP_I_LOAD}, {.op = ZP_I_ZERO_GRADS}};
static ZpStage stage = {.prog = {.instrs = instrs, .ninstrs = 2}};
static ZpPlan plan = {
    .programs.stages = &stage, .programs.nstages = 1, .layout.mesh = {.nranks = RANKS, .pipe = -1}};
static const char *path;
static bool opened[RANKS], written[RANKS];
static ZbErr errs[RANKS];

static double before[RANKS], behind[RANKS], now[RANKS]; /* opening it; when the span is made */

/* Rank 1 has a node and a clock of its own, which is 100 s late; some messages are, too. */
static ZxCommTable skewed;
static ZxRequest (*honest)(ZxComm *, ZxGroup, void *, size_t, ZkElem, ZxReduce);
static ZxRequest late(ZxComm *c, ZxGroup g, void *p, size_t n, ZkElem elem, ZxReduce how) {
  static const double offset[] = {100, 700, 100, 100, 100, 500, 100, 900, 100, 100};
  static int call; /* the first agrees that all have opened it */
  ZxRequest r = honest(c, g, p, n, elem, how);
  if (c->t->rank(c) == 1 && ++call > 1 && call <= 10) *(double *)p += offset[call - 1];
  return r;
}

/* Each rank has a span that began 2 s after it opened the trace, and took 0.5 s. */
static void *traces(void *arg) {
  ThreadRank *r = arg;
  ZbErr *err = &errs[r->rank];
  if (skewed.all_reduce) r->base.t = &skewed;
  before[r->rank] = zb_now();
  ZxTrace *t = zx_trace_open(&r->base, path, err);
  behind[r->rank] = zb_now();
  opened[r->rank] = t != NULL;
  written[r->rank] = false;
  if (!t) return NULL;
  now[r->rank] = zb_now();
  ZpSpan span = {
      .step = 1, .instr = 0, .node = ZP_NONE, .begin = now[r->rank] + 2, .end = now[r->rank] + 2.5};
  ZxEngine e = {.st = &stage, .span = &span, .nspans = 1};
  written[r->rank] = zx_trace_write(t, &plan, &e, err);
  zx_trace_close(t);
  return NULL;
}

static void *takes_table(void *arg) {
  skewed = *((ThreadRank *)arg)->base.t;
  return NULL;
}

Test(trace, all_ranks_in_one_file) {
  path = scratch("t.json");
  threads_node[1] = 1;
  together(1, takes_table);
  honest = skewed.all_reduce;
  skewed.all_reduce = late;
  together(RANKS, traces);
  size_t n;
  char *text = scratch_read("t.json", &n);
  int found = 0;
  cr_assert(!strncmp(text, zp_trace_head, strlen(zp_trace_head)));
  cr_assert(!strcmp(text + n - strlen(zp_trace_tail), zp_trace_tail));
  for (int k = 0; k < RANKS; k++) cr_expect(opened[k] && written[k], "rank %d: %s", k, errs[k].text);
  for (char *at = text; found < RANKS && (at = strstr(at, "\"ts\":")); at++, found++) {
    double s = strtod(at + 5, NULL) * 1e-6, began = now[found] + 2;
    cr_expect(s > began - behind[0] - 1e-3 && s < began - before[0] + 1e-3, "rank %d: %g s", found, s);
  }
  cr_expect_eq(found, RANKS, "%s", text);
  for (int k = 0; k < RANKS; k++) { /* in their order, with a comma between */
    ZbText part = {0};
    zp_trace_events(&plan, k, NULL, 0, 0, 0, false, &part);
    const char *at = strstr(text, part.s);
    cr_expect(at && (k ? !strncmp(at - 2, ",\n", 2) : at == text + strlen(zp_trace_head)), "rank %d: %s", k,
              part.s);
    zb_text_free(&part);
  }
  free(text);
}

Test(trace, cannot_be_opened) {
  path = scratch("none/t.json");
  together(RANKS, traces);
  for (int k = 0; k < RANKS; k++)
    cr_expect(!opened[k] && (k == 0) == (*errs[k].text != 0), "%s", errs[k].text);
}

Test(trace, a_full_disk) {
  path = scratch("t.json");
  scratch_full_at(50);
  together(RANKS, traces);
  for (int k = 0; k < RANKS; k++) cr_expect(opened[k] && !written[k]);
  says(errs[0], "t.json");
  cr_expect_eq(scratch_files(), 0);
}

Test(trace, is_left_behind_by_nobody) {
  path = scratch("t.json");
  together(1, traces);
  cr_expect_eq(scratch_files(), 1);
  ZxComm *c = zx_comm_self();
  ZbErr err;
  ZxTrace *t = zx_trace_open(c, scratch("u.json"), &err);
  cr_assert(t);
  zx_trace_close(t);
  zx_trace_close(NULL);
  cr_expect_eq(scratch_files(), 1);
  c->t->free(c);
}
