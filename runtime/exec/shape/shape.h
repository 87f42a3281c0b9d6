/* shape: text that must be JSON, and fit a schema: which tokens may come next, so that whatever is drawn, the whole
 * fits. Pure: it knows tokens and their bytes, but no model, no logits, no sockets.
 *
 *   schema -> schema.c, literals.c -> grammar.c    rules: nodes, and edges for bytes and for calls of rules
 *                                        |
 *                                  automaton.c     states: where a text may be in the rules; made as they are met
 *                                        |
 *   tokenizer -> trie.c ------------> masks.c      tokens that may come in a state; remembered
 *
 *   ZxShape *s = zx_shapes_get(shapes, schema, n, true, &err);      a mistake in the schema: its word and place
 *   ZxShaped at = {0};
 *   do {
 *     zx_shape_follow(s, &at, answer, n);                           the answer's tokens so far
 *     choose a token that zx_shape_mask(s, &at, end, nend) has, and put it behind the answer
 *   } while (!zx_shape_whole(s, &at));
 *
 * A state is a function of the answer's tokens: nothing need be kept when a sequence is preempted. Every state that
 * is come to has a token that goes on, and a way to the end.
 *
 * What of JSON schema there is: `type` (also a list), `properties`, `required`, `additionalProperties`, `items`,
 * `prefixItems`, `minItems`, `maxItems`, `minLength`, `maxLength`, `enum`, `const`, `anyOf`, `$ref` to a place in the
 * schema itself, `$defs`, and words that only describe. All else is a mistake that names the word and its place.
 * Among texts that fit, some only may come: members in the order of the schema; a blank or none behind ',' and ':',
 * and nowhere else; numbers of few digits; a `const` and names of members in one spelling; no U+0000. */
#ifndef ZUG_EXEC_SHAPE_H
#define ZUG_EXEC_SHAPE_H

#include "runtime/text/text.h"

enum {
  ZX_SCHEMA_LIMIT = 256 << 10, /* bytes of a schema */
  ZX_SHAPE_DEPTH = 64,         /* objects and lists in each other */
  ZX_SHAPES_KEPT = 32          /* schemas that are remembered when nobody uses them */
};

/* ---- schemas ------------------------------------------------------------------------------------------------
 * Shapes of one tokenizer. Any thread may get and release them; all else is for one thread at a time. */
typedef struct ZxShapes ZxShapes;
typedef struct ZxShape ZxShape;
/* `vocabulary`: ids of the model, at least the tokenizer's. The tokenizer must live longer. */
ZxShapes *zx_shapes_new(const ZtTokenizer *t, uint32_t vocabulary);
void zx_shapes_free(ZxShapes *x); /* NULL is allowed; all shapes must be released */
/* Returns the shape of a schema, schema[0..n); NULL: any JSON object. An object that names no `properties` has any,
 * unless it says `additionalProperties` or is `strict`; others have those that are named, unless they say more.
 * What was got is to be released. NULL with a message: the schema is wrong or has what is not supported; or the
 * tokenizer cannot write it. */
ZxShape *zx_shapes_get(ZxShapes *x, const char *schema, size_t n, bool strict, ZbErr *err);
ZxShape *zx_shape_keep(ZxShape *s); /* to be released once more */
void zx_shape_release(ZxShape *s);  /* NULL is allowed */

/* ---- answers --------------------------------------------------------------------------------------------------
 * Where an answer is in its shape; zeros: at the beginning. */
typedef struct {
  uint64_t era; /* states of another one are forgotten, and found again */
  uint32_t state, n;
} ZxShaped;
/* Goes to where the answer id[0..n) is: on from where it was, if it has more tokens now, or from the beginning. False: it
 * does not fit. */
bool zx_shape_follow(ZxShape *s, ZxShaped *at, const uint32_t *id, uint32_t n);
/* Says whether the answer is all there is: no token could follow but one that ends it. */
bool zx_shape_whole(const ZxShape *s, const ZxShaped *at);
/* Returns which ids may come next, bit id % 64 of word id / 64: tokens whose bytes go on, and those of `end` if the
 * answer may end here. It is valid until the next call for a shape of the same ZxShapes. */
const uint64_t *zx_shape_mask(ZxShape *s, const ZxShaped *at, const uint32_t *end, uint32_t nend);

#endif
