/* text: texts to tokens and back, as a tokenizer.json of the Hugging Face `tokenizers` library says, without
 * the library. Knows base, cJSON for the file and PCRE2 for its regular expressions; no model, no data file.
 *
 * A text goes through the parts of the file in this order, each in a source file of its own:
 *
 *   "Hello<|end|> world"       utf8.c         bytes that are no UTF-8 become U+FFFD
 *   "Hello" <|end|> " world"   added.c        added tokens are cut out of the text as it came
 *   "Hello" <|end|> " world"   normalize.c    each piece by itself: NFC, lower case, replacements ...;
 *                                             then those added tokens are cut out that are matched afterwards
 *   Hello <|end|> _world       pretokenize.c  pieces into words, by regular expressions or kinds of characters
 *   Hel lo <|end|> _world      bpe.c, unigram.c, wordpiece.c      words into tokens: the model
 *   <s> Hel lo <|end|> _world  encode.c       what the post-processor puts before and after
 *
 * decode.c goes back, and detokenize.c sends the text while its tokens come. The ids are those that the library
 * gives; load.c refuses a file with parts that are not built here and says which. `truncation`, `padding` and
 * `dropout` of a file are ignored: a trainer wants all of a text, unchanged. train.c makes a tokenizer.
 *
 * Other ids than the library's are known of: characters younger than PCRE2's Unicode, in grapheme clusters
 * (Precompiled) and in negated properties inside a class; scores of more than 15 digits (Unigram), which the
 * library reads a little wrong. */
#ifndef ZUG_TEXT_H
#define ZUG_TEXT_H

#include "base/base.h"

/* ---- the tokenizer ----------------------------------------------------------------------------
 * It does not change once it is loaded: all threads share it. */
typedef struct ZtTokenizer ZtTokenizer;
enum { ZT_FILE_LIMIT = 64 << 20 }; /* bytes of a tokenizer.json */
/* From a file; NULL with a message that names the file and the part that is broken or not supported. */
ZtTokenizer *zt_load(const char *path, ZbErr *err);
/* From JSON in memory, json[0..n); `name` is for messages. */
ZtTokenizer *zt_read(const char *json, size_t n, const char *name, ZbErr *err);
void zt_free(ZtTokenizer *t); /* NULL is allowed */

/* Every id is below it: the largest id + 1, added tokens included. This is what a model's vocabulary must
 * hold at least. */
uint32_t zt_size(const ZtTokenizer *t);
#define ZT_NONE UINT32_MAX
/* The id of a token as it is written in the file ("<|endoftext|>", "\u0120world"), or ZT_NONE. */
uint32_t zt_id(const ZtTokenizer *t, const char *token);
/* What is written in the file for an id, and its bytes in *n; NULL if no token has this id. */
const char *zt_token(const ZtTokenizer *t, uint32_t id, size_t *n);
/* Whether the id is of a special token: one that stands for no text. */
bool zt_special(const ZtTokenizer *t, uint32_t id);

/* ---- encoding and decoding ----------------------------------------------------------------------
 * A coder holds what encoding writes: one for each thread. It remembers the tokens of frequent words, and its
 * memory grows to a few times the longest text that it saw. */
typedef struct ZtCoder ZtCoder;
ZtCoder *zt_coder_new(const ZtTokenizer *t); /* which must live longer */
void zt_coder_free(ZtCoder *c);              /* NULL is allowed */

/* Ids that were appended; empty when zeroed. */
typedef struct {
  uint32_t *id;
  size_t n, cap;
} ZtIds;
void zt_ids_free(ZtIds *ids);

enum {
  ZT_AROUND = 1, /* add what the file's post-processor adds around a text: <s>, [CLS] ... [SEP] */
  /* Text that spells a special token is text: what users wrote must not end a document. Tokens that are
   * added and not special are still found. */
  ZT_SPECIAL_AS_TEXT = 2,
};
enum {
  ZT_TEXT_LIMIT = 1 << 30, /* bytes of a text */
  /* Normalizers, pre-tokenizers and decoders make at most so many times its bytes of it, and so many more: of
   * NFKC eleven are enough. */
  ZT_GROWTH = 64,
  ZT_GROWTH_MORE = 64 << 10,
  /* Processor time in which a text must be through the file's regular expressions. */
  ZT_SECONDS = 10,
  ZT_SECONDS_A_MB = 10
};
/* Appends the ids of text[0..n) to *out. Bytes that are no UTF-8 count as U+FFFD, one for each maximal part
 * of a character (zt_utf8_valid tells). What was appended before an error stays. Errors: a text above the
 * limit, or that grows beyond its own; a regular expression of the file that gives up on it, or is too
 * slow. All else takes n log n. */
bool zt_encode(ZtCoder *c, const char *text, size_t n, unsigned flags, ZtIds *out, ZbErr *err);
/* A part of a text that somebody else than its author wrote, as a chat has messages in it. */
enum { ZT_SPAN_OTHERS = 1, ZT_SPAN_ASSISTANT = 2 };
typedef struct {
  size_t begin, end;
  uint8_t of; /* ZT_SPAN_OTHERS, ZT_SPAN_ASSISTANT */
} ZtSpan;
/* Places in a text of which one wants to know between which tokens they are. */
typedef struct {
  size_t at;     /* byte of the text; cuts rise */
  size_t before; /* becomes the number of tokens that end there or before, ... */
  size_t begun;  /* ... and of those that begin before: one more, where a token has bytes of both sides */
} ZtCut;
typedef struct {
  ZtCut *cut;
  size_t n;
} ZtCuts;
typedef struct {
  const ZtSpan *span; /* one behind the other */
  size_t nspans;
  const char *written; /* by the author: tokens <like this> or [LIKE THIS] that are in it are its markers */
  size_t nwritten;
  ZtCuts *cuts; /* NULL: none */
} ZtMarked;
/* Appends the ids of a text, encoded as one, so that they are those of zt_encode for all that is not a
 * marker; but no special token has a byte of a span, and none of the author's markers one of others'.
 * Adds nothing around it. Errors: those of zt_encode; bytes that are no UTF-8. */
bool zt_encode_marked(ZtCoder *c, const char *text, size_t n, const ZtMarked *marked, ZtIds *out, ZbErr *err);
/* How many bytes of text[0..n) come before the first that is no UTF-8; n: it is valid. */
size_t zt_utf8_valid(const char *text, size_t n);

enum { ZT_SKIP_SPECIAL = 1 }; /* special tokens give no text */
/* Appends the text of ids to *out; it is valid UTF-8. Ids that no token has are left out, as the library
 * does. Errors: a regular expression of the file that gives up; a text that grows beyond the limit. */
bool zt_decode(ZtCoder *c, const uint32_t *id, size_t n, unsigned flags, ZbText *out, ZbErr *err);

/* Appends the bytes that a token adds to a text in whose middle it stands: parts of characters, too, and none if it is
 * special or no token has this id. Errors: the file's decoders make texts that are not their tokens', one after the
 * other. */
bool zt_bytes(ZtCoder *c, uint32_t id, ZbText *out, ZbErr *err);

/* ---- text as tokens come ---------------------------------------------------------------------------
 * A detokenizer has the text of one sequence that a model writes: prompt and answer decoded together,
 * without the prompt, so that " world" behind "Hello" keeps its blank. Nothing that it gives is taken
 * back: parts of characters, what later tokens could change, and what could begin a stop string are held
 * until it is known what they are. All pieces together are the text.
 *
 *   zt_detokenize_begin(d, c, &(ZtWriting){.stop = (const char *[]){"\n\n"}, .nstop = 1}, prompt, n, &err);
 *   for each token, until it has stopped:
 *     zt_detokenize(d, c, id, &err);
 *     send(zt_detokenized(d, &n), n);
 *   zt_detokenize_end(d, c, &err);
 *   send(zt_detokenized(d, &n), n);
 *
 * Its memory doubles as the text grows, and is used again for the next sequence. */
typedef struct ZtDetokenizer ZtDetokenizer;
enum {
  ZT_STOPS = 16,           /* stop strings of a sequence */
  ZT_STOP_LIMIT = 1 << 12, /* bytes of one */
  ZT_ECHO = 2              /* beside ZT_SKIP_SPECIAL: the text has the prompt, too */
};
typedef struct {
  unsigned flags;
  const char *const *stop; /* UTF-8; they are copied */
  uint32_t nstop;
  /* No stop string ends in what comes with the first so many tokens of the answer. */
  uint32_t min_tokens;
} ZtWriting;
ZtDetokenizer *zt_detokenizer_new(const ZtTokenizer *t); /* which must live longer */
void zt_detokenizer_free(ZtDetokenizer *d);              /* NULL is allowed */
/* Begins a sequence with its prompt, in which no stop string is looked for. `c` is any coder of the same
 * tokenizer, and need not be the same for the next call. Errors: stop strings that are empty, too long,
 * too many or not UTF-8; those of zt_decode. */
bool zt_detokenize_begin(ZtDetokenizer *d, ZtCoder *c, const ZtWriting *w, const uint32_t *prompt, size_t n,
                         ZbErr *err);
/* Takes the next token of the answer; nothing once a stop string was found. */
bool zt_detokenize(ZtDetokenizer *d, ZtCoder *c, uint32_t id, ZbErr *err);
/* No more tokens come: what was held is text, and may have a stop string, too. */
bool zt_detokenize_end(ZtDetokenizer *d, ZtCoder *c, ZbErr *err);
/* The text that has become sure since the last call, whole characters, until the next call of any of
 * these. */
const char *zt_detokenized(ZtDetokenizer *d, size_t *n);
/* All the text that is sure. It ends before the stop string. */
const char *zt_detokenized_text(const ZtDetokenizer *d, size_t *n);
/* The index of the stop string that was found, of all the one that ended first, and the longest of those;
 * -1: none. */
int zt_detokenizer_stopped(const ZtDetokenizer *d);

/* ---- training ------------------------------------------------------------------------------------
 * Byte-level BPE as GPT-2 has it, from texts; the same texts in any order of calls give the same words and
 * counts, and in the same order the same file, byte for byte. Memory grows with the different words, not with
 * the text. */
typedef struct ZtTrainer ZtTrainer;
ZtTrainer *zt_trainer_new(void);
void zt_trainer_free(ZtTrainer *x); /* NULL is allowed */
/* Counts the words of text[0..n); a word does not go from one text into the next. Errors: a text above
 * ZT_TEXT_LIMIT, too many different words. */
bool zt_trainer_add(ZtTrainer *x, const char *text, size_t n, ZbErr *err);
/* Once, at the end: appends a tokenizer.json of `vocab` ids to *json: 256 bytes, merges, and last the special
 * tokens. Errors: fewer than 256 ids and the special tokens, more than a million; a text that has not enough
 * pairs that are there twice. */
bool zt_trainer_finish(ZtTrainer *x, uint32_t vocab, const char *const *special, uint32_t nspecial,
                       ZbText *json, ZbErr *err);

#endif
