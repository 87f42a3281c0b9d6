/* answer: from what somebody asks to what a model writes. Knows texts and files; of models it knows the shipped
 * ones by their `model_type`, and of the engine only a function that plays a step.
 *
 *   DIR -> folder.c -> shipped.c: a graph            in.jsonl, options -> query.c: a query
 *             |                                                             |
 *             +------- words.c: ids of texts, ends; chats.c: of talks ----- +
 *                                                                           |
 *   step -> logits -> sampled tokens -> text as it is sure         answers.c: many at once
 *                                                                           |
 *                                                        results.c: lines of out.jsonl
 *   packed.c: queries for other ranks, and their answers for this one
 *
 * query.h and query.c know fields, their types and ranges; words.c what ids a text has. Nothing of a file is
 * trusted. */
#ifndef ZUG_EXEC_ANSWER_H
#define ZUG_EXEC_ANSWER_H

#include "graph/graph.h"
#include "lang/lang.h"
#include "runtime/exec/answer/query.h"
#include "runtime/exec/gguf/gguf.h"
#include "runtime/text/template/template.h"

/* ---- folder.c: what a Hugging Face folder, or a GGUF file, says beside its weights ---------------------------------------- */
typedef struct {
  const char *path;       /* a folder, or a GGUF file */
  const char *config;     /* text of the config.json that a GGUF file is; of a folder NULL */
  const char *model_type; /* NULL: it has no config.json, or that does not say */
  int64_t positions;      /* 0: it does not say */
  bool bf16;              /* its weights are */
  uint32_t begin;         /* the token that begins texts; ZX_NONE */
  uint32_t start;         /* the token that begins what a decoder writes of another text; ZX_NONE */
  uint32_t *end;          /* tokens that end texts: of generation_config.json, else of config.json */
  uint32_t nend;
} ZxFolder;
/* Reads those files of a folder that are there. False with a message if one is broken. */
bool zx_folder_read(ZxFolder *f, ZbArena *a, const char *path, ZbErr *err);

struct cJSON;
/* Reads one of its files, an object. *out NULL: it is not there. */
bool zx_folder_json(ZbArena *a, const char *folder, const char *name, struct cJSON **out, ZbErr *err);
/* Returns the folder of a file, or the path itself where it is a folder or a GGUF file. */
const char *zx_folder_of(ZbArena *a, const char *path);

/* ---- chats.c: conversations ------------------------------------------------------------------------------- */
/* Appends the ids of a conversation: an object that has `messages`, and perhaps `tools`, `documents`,
 * `chat_template_kwargs`, `continue_final_message` and `add_generation_prompt`, which is true without. `now`: the
 * seconds of the calendar that it is for the template, 0: the clock's. False with a message, also where there is no
 * template. */
bool zx_chat_ids(const ZtChats *c, ZtCoder *coder, const struct cJSON *chat, int64_t now, ZtIds *out,
                 ZbErr *err);

/* ---- shipped.c: the models that the program carries ------------------------------------------------------ */
/* Compiles the shipped model whose weights have the folder's `model_type`, with the sizes of its config.json, and with
 * the adapters of these folders;
 * *names becomes the map of its weights. NULL with a message, or with reports in *d. */
ZgGraph *zx_shipped_model(ZbArena *a, ZlSources *s, ZlDiags **d, const ZxFolder *f, ZbTexts adapters,
                          const char **names, ZbErr *err);

/* ---- words.c: ids of texts ------------------------------------------------------------------------------- */
typedef struct {
  const char *name; /* of the tokenizer's file; NULL: a token is a byte */
  ZtTokenizer *t;
  ZtCoder *coder;
  uint32_t vocabulary; /* ids of the model */
  uint32_t words;      /* ids from there on are none of the tokenizer's */
  uint32_t begin;      /* what an empty text begins with; ZX_NONE: nothing */
  /* The prompt is the source of what is written, which begins with `start`; it has at most so many tokens. 0:
   * the prompt is the beginning of what is written. */
  uint32_t source;
  uint32_t start;
  uint32_t *end;
  uint32_t nend;
  ZxShapes *shapes; /* of the schemas that answers must fit */
  ZtChats chats;
} ZxWords;
/* Opens a tokenizer.json, or a folder with one; NULL: bytes. Its chat template is opened by zt_chats_open. `f` says
 * how texts begin and end; NULL: the files beside the tokenizer's do. False with a message, also where the model has
 * fewer ids. */
bool zx_words_open(ZxWords *w, ZbArena *a, const char *path, const ZxFolder *f, uint32_t vocabulary,
                   ZbErr *err);
void zx_words_close(ZxWords *w);
/* Appends a prompt's ids. False with a message: it is not UTF-8, or has no tokens, or some that the model has
 * not. */
bool zx_words_of(ZxWords *w, const ZxQuery *q, ZtIds *out, ZbErr *err);
/* Returns a seed that nobody has had. */
uint64_t zx_new_seed(void);
/* Returns the shape of what a query wants, to be released; with any text NULL. NULL with a message: its schema is
 * wrong, or not supported, or the tokenizer cannot write it. Any thread. */
ZxShape *zx_words_shape(const ZxWords *w, const ZxQuery *q, ZbErr *err);
/* Makes the scheduler's request of a query whose ids are given, for sequences of so many positions. The seed is
 * new where none is said; out->shape is the caller's to release, NULL if false. False with a message. Any thread. */
bool zx_words_request(const ZxWords *w, const ZxQuery *q, const ZtIds *id, uint32_t positions,
                      ZxGenRequest *out, ZbErr *err);

/* ---- answers.c: many queries at once ---------------------------------------------------------------------- */
typedef struct {
  uint32_t choice;
  const uint32_t *id; /* prompt and answer, n; the token that ended it is among them */
  uint32_t n, nprompt;
  /* log-probabilities, if they are wanted: of id[first ..]; the first of a prompt has none */
  const ZxChoice *logprob;
  uint32_t first;
  const char *text; /* without the prompt, or with `echo` with it */
  size_t length;
  const char *finish; /* "stop", "length", "cancelled"; NULL: it goes on */
  int stop;           /* which stop string ended it; -1: none */
} ZxAnswer;
typedef struct {
  uint64_t number; /* the caller's */
  const ZxQuery *query;
  uint64_t seed;
  const ZxAnswer *answer; /* query->choices of them */
  uint32_t prompt_tokens; /* of the prompt, as it was given */
  uint32_t cached;        /* tokens of the prompt that other sequences had made before */
  const ZbErr *broken;    /* its logits are not numbers; NULL: they are */
} ZxAnswered;

/* Plays a step and returns its rows of logits, those of this rank's words. */
typedef const float *ZxPlay(void *player, const ZxScheduler *s, const ZxGenStep *step, ZbErr *err);
/* Takes text that has become sure. */
typedef void ZxPiece(void *ctx, uint64_t number, uint32_t choice, const char *text, size_t n);
typedef struct {
  ZxWords *words;
  ZxScheduling sizes; /* ends and queue are filled in */
  ZxPlay *play;
  void *player;
  ZxShare share;  /* of the words that logits are of */
  ZxPiece *piece; /* NULL: nobody takes it */
  void *ctx;
} ZxAnswering;
typedef struct ZxAnswers ZxAnswers;
ZxAnswers *zx_answers_new(const ZxAnswering *how, ZbErr *err);
void zx_answers_free(ZxAnswers *x); /* NULL is allowed */
/* Puts a query, which stays the caller's and must stay, at the end of the line. False with a message; if
 * err->passing, because the line is full. */
bool zx_answers_ask(ZxAnswers *x, const ZxQuery *q, uint64_t number, ZbErr *err);
bool zx_answers_idle(const ZxAnswers *x); /* nothing is asked, or all is answered */
/* Makes a step. False with a message: the engine failed. */
bool zx_answers_step(ZxAnswers *x, ZbErr *err);
/* The same in parts, where several ranks play it: play, sample on ranks that have the logits, which say to the others
 * what they chose; take on all; and all are given the seconds of one of them. zx_answers_play returns whether
 * there was a step to play; if not, nothing is to be sampled or taken. */
bool zx_answers_play(ZxAnswers *x, bool *played, ZbErr *err);
void zx_answers_sample(ZxAnswers *x);
void *zx_answers_chosen(ZxAnswers *x, size_t *bytes); /* what sampling says, to be sent as it is */
bool zx_answers_take(ZxAnswers *x, ZbErr *err);
void zx_answers_took(ZxAnswers *x, double seconds);
double zx_answers_seconds(const ZxAnswers *x); /* of this rank's last step */
/* Ends all that is under way: what is written so far is their answer, "cancelled". */
void zx_answers_cancel(ZxAnswers *x);
/* Ends one query, if it is under way, in the same way. False with a message: its text cannot be ended. */
bool zx_answers_end(ZxAnswers *x, uint64_t number, ZbErr *err);
/* Appends what is new of a query's choice since it was last called, for zx_copy_take: of one that is under way, or that
 * zx_answers_next has returned. */
void zx_answers_news(ZxAnswers *x, uint64_t number, uint32_t choice, ZbText *to);
/* Returns an answered query, each once, valid until the next call; NULL: there is none. */
const ZxAnswered *zx_answers_next(ZxAnswers *x);
ZxCounts zx_answers_counts(const ZxAnswers *x);
uint64_t zx_answers_digest(const ZxAnswers *x); /* see zx_scheduler_digest */

/* ---- packed.c: queries for other ranks, and their answers, as bytes ------------------------------------------- */
/* Appends a query that has ids and a seed. */
void zx_pack_query(const ZxQuery *q, ZbText *to);
/* Makes it again, in one block to be freed. */
ZxQuery *zx_unpack_query(const char *bytes, size_t n);

/* What of an answer was packed: so many of its ids and log-probabilities, and bytes of its text. */
typedef struct {
  uint32_t ids, logprobs;
  size_t text;
} ZxPacked;
/* Appends what is new of an answer; it is told then. */
void zx_pack_news(const ZxAnswer *x, ZxPacked *told, ZbText *to);

/* An answer that is written by other ranks, as far as their news have come. Zeroed: nothing has. */
enum { ZX_FINISH = 12 };
typedef struct {
  ZxAnswer is;
  uint32_t *id;
  ZxChoice *logprob;
  size_t n, idcap, nlogprobs, logprobcap;
  ZbText text;
  char finish[ZX_FINISH];
} ZxCopy;
/* Adds news. Returns what they have of text, *text bytes. */
const char *zx_copy_take(ZxCopy *c, const char *bytes, size_t n, size_t *text);
void zx_copy_free(ZxCopy *c);

/* ---- results.c: files of queries and results --------------------------------------------------------------- */
/* Writes a result as a line of JSON, with its end. */
void zx_result(const ZxWords *w, const ZxAnswered *q, ZbText *out);
/* Writes the log-probabilities of an answer as lines for people. */
void zx_result_table(const ZxWords *w, const ZxAnswer *x, ZbText *out);

/* The file that results are added to, line by line: a regular one, which another run began perhaps, or
 * anything that can be written to. */
typedef struct {
  const char *path;
  int fd;
  bool regular;
  uint64_t done; /* results that it has */
  uint64_t good; /* bytes of them */
} ZxResults;
/* Opens or makes the file; a piece of a line at its end is cut off. False with a message: it is no file of
 * results, or another run writes it. */
bool zx_results_open(ZxResults *r, ZbArena *a, const char *path, ZbErr *err);
/* Adds a line, all of it or nothing. */
bool zx_results_add(ZxResults *r, const char *line, size_t n, ZbErr *err);
bool zx_results_close(ZxResults *r, ZbErr *err);

#endif
