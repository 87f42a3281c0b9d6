/* Steps of generation: what their graph, which stream/ derives from a model's, has beside that; and how large they
 * are. */
#ifndef ZUG_PLAN_STEPS_H
#define ZUG_PLAN_STEPS_H

#include "graph/stream.h"

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
/* How a prompt was cut is part of the bits of a state: prompts are cut at multiples of so many tokens. */
enum { ZP_STATE_CHUNK = 128 };
/* Says whether a sequence of this kind has more than pages: states of recurrences, recent tokens. */
#define ZP_IS_STATE(kind) ((kind) == ZP_CACHE_STATE || (kind) == ZP_CACHE_RECENT)
/* Pages of all attends with one window, which share a table: those behind a window can be given back. */
typedef struct {
  int64_t window; /* 0: none */
  uint16_t page;  /* the axis of its pages */
  uint32_t input; /* its table: i32[sequence, entry], the page of each `within` positions */
} ZpPageGroup;

/* How long sequences' own values are along an axis. */
typedef struct {
  uint16_t axis;
  uint32_t input; /* i32[sequence], from 1 to the axis's size */
} ZpOwnLength;

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
  /* The one text that they are made of, an input of the model along `length`; ZG_NONE: they are not of one. */
  uint32_t source;
  uint16_t length;
  ZpOwnLength *lengths; /* of axes that have no size in the model */
  uint32_t nlengths;
  ZpCache *caches;
  uint32_t ncaches;
  ZpPageGroup *groups;
  uint32_t ngroups;
} ZpStream;

/* Sizes of a step of generation. */
typedef struct {
  const char *output, *tokens; /* of the model: what is sampled from, what is written; NULL: the only one */
  int64_t step;                /* tokens of a step, at most */
  int64_t sequences; /* that run at once, asked of all replicas; 0: what the recipe binds `batch` to */
  int64_t length;    /* positions of a sequence; 0: what the recipe binds the axis of time to */
  int64_t page;      /* positions of a page */
  int64_t replicas; /* engines that play steps of their own; what is above is of each. The plan fills it in */
} ZpGenerating;
/* Returns how many pages of a window (0: none) a sequence has at most at once: those that its last token sees, and those
 * of a step. */
static inline int64_t zp_pages_of(const ZpGenerating *g, int64_t window) {
  int64_t all = (g->length + g->page - 1) / g->page;
  int64_t step = g->step < g->length ? g->step : g->length,
          seen = (window + step + g->page - 1) / g->page + 1;
  return window && seen < all ? seen : all;
}

#endif
