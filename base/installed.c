/* Linked into programs that are installed, and into no others. */
#include "base/installed.h"

bool zb_installed(void) { return true; }
