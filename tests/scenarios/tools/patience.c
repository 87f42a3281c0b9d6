/* A test does not wait for half a minute, and has a machine of its own: files below its folder. */
#include "runtime/exec/device/memory.h"

double zx_patience(void) { return 1; }
const char zx_system[] = "machine";
