/* How long a wait may last before a rank says what it waits for. In a file of its own, so that a test program can have less. */
#include "runtime/exec/exec.h"

double zx_patience(void) { return 30; }
