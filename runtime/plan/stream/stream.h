/* stream: the graph of a step of generation, derived from a model's. A step makes some tokens of several
 * sequences at once: one of each that decodes, parts of the prompts of others. Running sequences are
 * numbered, and each has its caches and its rows of the page tables under its number.
 *
 * Time and samples together become one axis of tokens. Every value is made in the form in which it is wanted,
 * from the output back, so that nothing else is there:
 *
 *   constant    as it is: made of parameters alone
 *   own         a sequence's own, without time (an encoder's text, a class): made at admission, and kept
 *   tokens      [token, ..] in place of batch and time
 *   rows        [row, ..]: of those tokens of which logits are wanted, from where nothing mixes tokens
 *   table       [position, ..]: of all positions of a sequence
 *   pairs       [token, position, ..]: tokens by positions of keys
 *
 * What carries something over along time becomes an operation with a cache (graph/OPS.md): attend_pages,
 * resume_scan, resume_linear, recent.
 *
 * Files, each on those before it; derive.h is what they share:
 * forms.c    axes and types of the forms, nodes of a step
 * absorb.c   latent attention, rewritten
 * cached.c   operations with caches
 * admit.c    the graph of a sequence's own values
 * derive.c   which forms are wanted, and their nodes
 * caches.c   what caches take */
#ifndef ZUG_PLAN_STREAM_H
#define ZUG_PLAN_STREAM_H

#include "graph/stream.h"
#include "runtime/plan/plan.h"

/* Derives the step of a model. `output` and `tokens` as for zg_stream. False with a reason for a model that
 * cannot be made token by token. */
bool zp_stream(const ZgGraph *model, ZbArena *a, const char *output, const char *tokens, ZpStream *to,
               ZbErr *err);

/* Returns the graph of a sequence's own values as a model's: output k is what the k-th of these caches holds,
 * of one sample; one of a repeat comes from each of its iterations. */
const ZgGraph *zp_admission_graph(const ZpStream *s, ZbArena *a);

#endif
