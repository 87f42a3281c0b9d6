/* Where the machine's own files are. */
#include "runtime/exec/memory.h"

const char zx_system[] = "";
