/* Whether this program was made to be installed: false for all that run in the build folder. */
#ifndef ZUG_BASE_INSTALLED_H
#define ZUG_BASE_INSTALLED_H

#include "base/base.h"

bool zb_installed(void);

#endif
