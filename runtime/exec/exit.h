/* With which code zrun ends. zkeep, and scripts that start it again, go by them. mpirun ends with the code of
 * the first rank that failed, and with 1 if a signal ended mpirun itself. */
#ifndef ZUG_EXEC_EXIT_H
#define ZUG_EXEC_EXIT_H

enum {
  ZX_EXIT_DONE = 0,
  ZX_EXIT_FAILED = 1,  /* something broke: it may go better another time */
  ZX_EXIT_MISTAKE = 2, /* what was given is wrong: the same command would end the same way */
  ZX_EXIT_HANGS = 69,  /* no rank got on any more */
  ZX_EXIT_AGAIN = 75   /* stopped before its last step because it was asked to: come again */
};

#endif
