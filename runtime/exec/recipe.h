/* Which recipe a run takes of those that it is given for several numbers of ranks. */
#ifndef ZUG_EXEC_RECIPE_H
#define ZUG_EXEC_RECIPE_H

#include "lang/lang.h"

/* Of `names`, one or several between commas, the first whose mesh has as many ranks as there are; one name,
 * or NULL (the file's only recipe), is taken in any case. All are checked: NULL if one is wrong or not there,
 * which `d` says, or if there is none for so many ranks, which `err` says. */
const ZlRecipe *zx_recipe_for(ZlProgram *p, ZlDiags *d, ZbArena *a, const char *names, int ranks, ZbErr *err);
/* "mpirun started 3 ranks"; of one, which needs no mpirun: "zrun was started alone". */
const char *zx_started(ZbArena *a, int ranks);
/* Of its mesh. */
int64_t zx_recipe_ranks(const ZlRecipe *r);

#endif
