/* query: what somebody asks a model to write, and how, before it is known what ids its words have. Options and
 * lines of JSON say the same. */
#ifndef ZUG_EXEC_QUERY_H
#define ZUG_EXEC_QUERY_H

#include "base/options.h"
#include "runtime/exec/generate/generate.h"

enum { ZX_UNSAID = -1, ZX_ANSWER_TOKENS = 256 /* without max_tokens */ };
typedef struct {
  const char *prompt; /* UTF-8, `length` bytes of it; NULL: tokens */
  size_t length;
  const uint32_t *token;
  uint32_t ntokens;
  int64_t max_tokens; /* ZX_UNSAID: ZX_ANSWER_TOKENS, or what is left of the positions */
  int64_t min_tokens, choices, top_k;
  int64_t logprobs; /* so many of the most likely tokens with each; ZX_UNSAID: no log-probabilities */
  int64_t seed;     /* ZX_UNSAID: a new one */
  double temperature, top_p, min_p, repetition, presence, frequency;
  const ZxBias *bias;
  uint32_t nbias;
  ZbTexts stop;
  const uint32_t *end; /* ids that end the text beside the model's */
  uint32_t nend;
  bool echo, ignore_end;
} ZxQuery;

/* Reads a line, text[0..n), into *q, which has what is not said there. False with a message. */
bool zx_query_read(ZxQuery *q, ZbArena *a, const char *text, size_t n, ZbErr *err);
/* Read "12" into ids, and "12=-5.5" into bias, as options say them. */
bool zx_query_add_end(ZxQuery *q, ZbArena *a, const char *text);
bool zx_query_add_bias(ZxQuery *q, ZbArena *a, const char *text);
/* Checks that all is in range. False with a message that names the field. */
bool zx_query_check(const ZxQuery *q, ZbErr *err);

#endif
