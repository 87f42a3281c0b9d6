/* Rank 1 comes two and a half seconds late, to one operation after the other; the others must say so, once,
 * with its name.
 *
 *     mpirun -np 3
 * tests/scenarios/tools/stall [split|free|barrier|reduce|apart|gather|transfer]... */
#include "runtime/exec/comm/comm.h"

#include <string.h>
#include <time.h>

int main(int argc, char **argv) {
  ZbErr err = {0};
  ZxComm *c = zx_comm_mpi(&argc, &argv, &err);
  if (!c) return 1;
  const ZxCommTable *t = c->t;
  int rank = t->rank(c), size = t->size(c);
  double x[8] = {0}, all[64];
  if (argc != 2 || size > 8) return 2;
  const char *what = argv[1];
  if (!strcmp(what, "apart")) zx_comm_mpi_apart(c, true);
  if (rank == 1) nanosleep(&(struct timespec){2, 500000000}, NULL);
  if (!strcmp(what, "split")) t->split(c, 0);
  else if (!strcmp(what, "barrier")) t->barrier(c);
  else if (!strcmp(what, "reduce") || !strcmp(what, "apart"))
    t->wait(c, t->all_reduce(c, 0, x, 8, ZK_F64, ZX_SUM));
  else if (!strcmp(what, "gather")) t->wait(c, t->all_gather(c, 0, x, sizeof x, all));
  else if (!strcmp(what, "transfer") && rank == 1) t->wait(c, t->send(c, x, sizeof x, 0, 7));
  else if (!strcmp(what, "transfer") && rank == 0) t->wait(c, t->recv(c, x, sizeof x, 1, 7));
  else if (strcmp(what, "free") && strcmp(what, "transfer")) return 2;
  t->free(c);
  return 0;
}
