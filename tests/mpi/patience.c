/* A test does not wait for half a minute. */
#include "runtime/exec/exec.h"

const double zx_patience = 1;
