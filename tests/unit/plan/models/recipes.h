/* Random recipes, sensible and not, for four models: mlp, gpt2, llama3 and one with all that these lack (two
 * repeats, captured values, dropout, aux terms, slices). */
#ifndef ZUG_TESTS_LAYOUT_RECIPES_H
#define ZUG_TESTS_LAYOUT_RECIPES_H

#include "tests/unit/plan/models/plan.h"

typedef struct {
  const char *name, *text, *options; /* for model_open */
  const char *axes, *blocks;         /* words to draw from */
  int repeats;                       /* iterations of all repeats */
} RandomModel;
enum { MLP, GPT2, LLAMA3, ODD, NMODELS };
extern const RandomModel random_models[NMODELS];

/* Recipe `number` of a model; about a third of them fit it. */
void put_recipe(int model, uint64_t number, ZbText *out);

#endif
