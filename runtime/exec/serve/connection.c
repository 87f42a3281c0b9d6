/* Connections that wait for an answer: the library neither reads nor watches them meanwhile. */
#include "runtime/exec/serve/room.h"

#ifdef HAVE_MICROHTTPD
#include <microhttpd.h>

void zx_connection_wait(ZxJob *j) {
  j->waits = true;
  MHD_suspend_connection(j->connection);
}

void zx_connection_wake(ZxJob *j) {
  if (!j->waits) return;
  j->waits = false;
  MHD_resume_connection(j->connection);
}
#else
void zx_connection_wait(ZxJob *j) { (void)j; }
void zx_connection_wake(ZxJob *j) { (void)j; }
#endif
