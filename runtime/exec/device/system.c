/* Where the machine's own files are. */
#include "runtime/exec/device/memory.h"

const char zx_system[] = "";
