/* Recipes and clusters as text, every field of them with its place: for goldens. */
#ifndef ZUG_TESTS_RECORDS_H
#define ZUG_TESTS_RECORDS_H

#include "lang/lang.h"

void put_recipe(const ZlSources *s, const ZlRecipe *r, ZbText *out);
void put_cluster(const ZlSources *s, const ZlCluster *c, ZbText *out);

#endif
