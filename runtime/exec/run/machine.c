/* The machines that the launcher gave: as a cluster, whether ranks are kept on a part of theirs, and whether their
 * threads have a CPU each. */
#include "runtime/machine/machine.h"
#include "runtime/exec/run/run.h"

#include <string.h>

enum { CLUSTER_TEXT = 4096 };

/* Ranks of the machine that has most. */
static int64_t most_on_one(const int *node, int n) {
  int64_t most = 0;
  for (int i = 0; i < n; i++) {
    int64_t here = 0;
    for (int k = 0; k < n; k++) here += node[k] == node[i];
    if (here > most) most = here;
  }
  return most;
}

/* By what rank 0 sees: machines are taken to be alike, and all ranks plan for the same. */
const ZlCluster *zx_run_auto_cluster(ZxRun *r) {
  const int *node = r->c->t->nodes(r->c);
  int n = r->c->t->size(r->c);
  int64_t machines = 0, size = CLUSTER_TEXT;
  char *text = ZB_NEWN(r->a, char, size);
  for (int i = 0; i < n; i++) machines += node[i] == i;
  if (r->rank == 0) {
    ZbText t = {0};
    const ZmMachine *m = zm_look(r->a);
    zm_cluster(m, machines, most_on_one(node, n), &t);
    ZB_ASSERT(t.len < CLUSTER_TEXT);
    memcpy(text, t.s, t.len);
    zb_text_free(&t);
    if (!r->o.quiet) {
      zm_show(m, &t);
      fputs(t.s, r->o.command == ZX_GENERATE ? stderr : stdout); /* whose output are texts */
      zb_text_free(&t);
    }
  }
  r->c->t->wait(r->c, r->c->t->broadcast(r->c, 0, text, CLUSTER_TEXT, 0));
  ZlProgram *p = zl_load_text(r->a, r->sources, r->diags, "auto", text, strlen(text), NULL);
  return p && !zl_errors(r->diags) ? zl_cluster(p, r->diags, NULL) : NULL;
}

/* All ranks give what theirs are, so that rank 0 can say it once. */
void zx_run_note_threads(ZxComm *c, int threads) {
  typedef struct {
    ZbCpus cpus;
    uint64_t node;
  } Place;
  int size = c->t->size(c), me = c->t->rank(c);
  if (threads < 2) return;
  ZbText t = {0};
  ZbArena *a = zb_arena_new();
  Place *all = ZB_NEWN(a, Place, size), mine = {zb_cpus(), (uint64_t)c->t->nodes(c)[me]};
  c->t->wait(c, c->t->all_gather(c, 0, &mine, sizeof mine, all));
  for (int i = 0; i < size && me == 0 && !t.len; i++) {
    int64_t share = 0;
    for (int k = 0; k < size; k++)
      share += all[k].node == all[i].node && all[k].cpus.which == all[i].cpus.which;
    zm_show_turns(threads, share, all[i].cpus, size > 1 || zx_launch().rank >= 0, &t);
  }
  zb_arena_free(a);
  zx_run_say(&t);
}

void zx_run_bind(ZxRun *r) {
  const int *node = r->c->t->nodes(r->c);
  int64_t here = 0;
  for (int i = 0; i < r->c->t->size(r->c); i++) here += node[i] == node[r->rank];
  uint32_t cores = zm_bind(here, r->c->t->node_rank(r->c));
  if (r->rank == 0 && cores && !r->o.quiet)
    printf("note: ranks are kept on a NUMA node each, of %u core%s here: the launcher bound them to none\n",
           cores, cores == 1 ? "" : "s");
}
