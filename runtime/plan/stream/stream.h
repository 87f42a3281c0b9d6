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

typedef enum {
  ZP_CACHE_PAGES,  /* of the tokens of sequences, by position */
  ZP_CACHE_STATE,  /* of a sequence: what a recurrence goes on from */
  ZP_CACHE_RECENT, /* of a sequence: the last tokens of a value */
  ZP_CACHE_OWN,    /* of a sequence: a value of it alone, made when it is admitted */
} ZpCacheKind;
typedef struct {
  uint8_t kind;     /* ZpCacheKind */
  uint32_t segment; /* of which each iteration has one */
  uint32_t group;   /* of pages: in which table of them; else 0 */
  uint32_t value;   /* OWN: in the model's segment; else ZG_NONE */
  ZgType type;      /* in the step's graph */
  uint32_t loc;     /* of the operation that it is for */
} ZpCache;
/* Pages of all attends with one window, which share a table: those behind a window can be given back. */
typedef struct {
  int64_t window; /* 0: none */
  uint16_t page;  /* the axis of its pages */
  uint32_t input; /* its table: i32[sequence, entry], the page of each `within` positions */
} ZpPageGroup;

/* Axes that the step's graph has beside the model's. Their sizes are 0: whoever plays the step binds them. */
typedef struct {
  uint16_t token;    /* tokens of a step */
  uint16_t row;      /* tokens of which logits are wanted */
  uint16_t sequence; /* sequences at once */
  uint16_t position; /* positions of a sequence, as many as the longest has */
  uint16_t entry;    /* pages of a sequence */
  uint16_t within;   /* positions of a page */
} ZpStreamAxes;
typedef struct {
  /* The model, forward only; or one with latent attention rewritten, whose axes and values are the model's,
   * with others behind them. */
  const ZgGraph *model;
  ZgStream along; /* of it */
  ZgGraph *step;  /* forward only; its one output is [row, words] */
  ZpStreamAxes axis;
  uint32_t position, sequence, row; /* inputs: i32[token], index(sequence)[token], index(token)[row] */
  /* Makes a sequence's own values: of one sample, played when that is admitted; each goes to a sink `keep`
   * with its cache. Axes are the model's, lengths the sequence's. NULL: there are none. */
  ZgGraph *admit;
  ZpCache *caches;
  uint32_t ncaches;
  ZpPageGroup *groups;
  uint32_t ngroups;
} ZpStream;

/* Derives the step of a model. `output` and `tokens` as for zg_stream. False with a reason for a model that
 * cannot be made token by token. */
bool zp_stream(const ZgGraph *model, ZbArena *a, const char *output, const char *tokens, ZpStream *to,
               ZbErr *err);

/* ---- caches.c ------------------------------------------------------------------------------------------ */
/* How many bytes caches of a kind take over all iterations where real numbers are `real`: of pages in
 * `group`, of a token; of others, of a sequence, and of one position of the axes whose lengths its own values
 * have. */
uint64_t zp_cache_bytes(const ZpStream *s, ZpCacheKind kind, uint32_t group, ZkElem real);

#endif
