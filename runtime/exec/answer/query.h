/* query: what somebody asks a model to write, and how, before it is known what ids its words have. Options and
 * lines of JSON say the same. */
#ifndef ZUG_EXEC_QUERY_H
#define ZUG_EXEC_QUERY_H

#include "base/options.h"
#include "runtime/exec/generate/generate.h"

typedef enum { ZX_ANY_TEXT, ZX_JSON_OBJECT, ZX_JSON_SCHEMA } ZxFormat;
enum { ZX_UNSAID = -1, ZX_ALL_LEFT = -2, ZX_ANSWER_TOKENS = 256 /* without max_tokens */ };
typedef struct {
  const char *prompt; /* UTF-8, `length` bytes of it; NULL: tokens, or a chat */
  size_t length;
  const char *chat; /* NULL, or a JSON object of `nchat` bytes that has `messages`: see zx_chat_ids */
  size_t nchat;
  int64_t now; /* for its template: seconds of the calendar; 0: the clock's */
  const uint32_t *token;
  uint32_t ntokens;
  /* ZX_UNSAID: ZX_ANSWER_TOKENS, or what is left of the positions; ZX_ALL_LEFT: all of that */
  int64_t max_tokens;
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
  bool plain;        /* nothing is added around the prompt: no token that begins texts */
  bool keep_special; /* special tokens give text, too */
  uint32_t adapter;  /* where the model has several: which one; ZX_NONE: without any */
  ZxFormat format;   /* what the answer must be */
  /* The schema of ZX_JSON_SCHEMA, `nschema` bytes, which nobody has looked into: see zx_words_shape. */
  const char *schema;
  size_t nschema;
  bool strict; /* nothing but what the schema names */
} ZxQuery;

/* Reads a line, text[0..n), into *q, which has what is not said there. False with a message. */
bool zx_query_read(ZxQuery *q, ZbArena *a, const char *text, size_t n, ZbErr *err);
/* Takes a field of a JSON object, of whose numbers zb_json_digits has kept the digits, if queries have one of its name
 * but for `prompt` and `tokens`. */
struct cJSON;
typedef enum { ZX_FIELD_TAKEN, ZX_FIELD_WRONG /* with a message */, ZX_FIELD_UNKNOWN } ZxFieldTaken;
ZxFieldTaken zx_query_take(ZxQuery *q, ZbArena *a, const struct cJSON *field, ZbErr *err);
/* Take a whole number, a list of ids, a value that is not what the field wants. */
bool zx_query_whole(const struct cJSON *v, double least, double most, int64_t *out, ZbErr *err);
bool zx_query_ids(const char *field, const struct cJSON *v, ZbArena *a, const uint32_t **out, uint32_t *n,
                  ZbErr *err);
bool zx_query_wrong(const char *field, const struct cJSON *v, const char *wanted, ZbErr *err);
/* Says that there is no such field, and which of the queries' and of these n it may have been meant to be. Returns
 * false. */
bool zx_query_no_field(const char *name, const char *const *others, uint32_t n, ZbErr *err);
/* Parses text[0..n), UTF-8, and keeps the digits of its numbers. `help` says what was wanted. NULL with a message that
 * begins with "it", or "byte 7 of it". */
struct cJSON *zx_query_parse(const char *text, size_t n, const char *help, ZbErr *err);
/* Read "12" into ids, and "12=-5.5" into bias, as options say them. */
bool zx_query_add_end(ZxQuery *q, ZbArena *a, const char *text);
bool zx_query_add_bias(ZxQuery *q, ZbArena *a, const char *text);
/* Checks that all is in range. False with a message that names the field. */
bool zx_query_check(const ZxQuery *q, ZbErr *err);

#endif
