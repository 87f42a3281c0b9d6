/* generate: many sequences are written at once, a step at a time: which tokens a step has, where their
 * keys and values lie, and which token comes next. Pure: it knows no engine, no text, no sockets and no
 * clock. All ranks are given the same events and the same tokens, so all come to the same next step by
 * themselves. Of texts it knows only what a sequence's shape lets come.
 *
 *   requests -> scheduler.c -> a step: ids, positions, slots -> the engine -> logits -> sample.c
 *                |      ^                                                                |
 *         pages.c draft.c +-------------------------- tokens ----------------------------+
 *
 *   zx_submit(s, &request, &number, &err);              at any time: cancel, stop and further requests too
 *   while ((step = zx_next_step(s))->ntokens) {
 *     copy pages, play the step;                        logits of step->row[0 .. nrows)
 *     zx_shared_choose(...) -> chosen[row], of each part as far as zx_goes_on
 *     zx_step_done(s, chosen);
 *     while ((q = zx_next_ended(s))) ...                their tokens, and why they ended
 *   }
 *
 * After they are opened, nothing here takes memory for a token; a request takes some when it comes. */
#ifndef ZUG_EXEC_GENERATE_H
#define ZUG_EXEC_GENERATE_H

#include "runtime/exec/shape/shape.h"

/* ---- pages (pages.c) ---------------------------------------------------------------------------------
 * The keys and values of a sequence lie in pages of neighbouring positions, which need not be neighbours
 * of each other. All layers whose attention has one window share a table: entry i of a slot's is the page
 * that has its positions i * page to (i + 1) * page - 1, in each of these layers. Pages that no later
 * token can see are given back. With a page of 4, a window of 6, and position 9 in turn:
 *
 *   position    0 1 2 3  4 5 6 7  8 9          position 9 sees 4 to 9
 *   table       none     5        2            page 7, which had 0 to 3, is free again
 *
 * Several sequences may share pages of what is the same in all of them; a page counts in how many tables
 * it stands, and is written to only while that is one.
 *
 * A full page may be made known as the end of a prefix: the tokens of its positions and of all before. When
 * no table has it any more it is kept, as long as nobody needs its place, and another sequence that begins
 * with the same tokens goes on behind it: the bits are those that it would make (Kwon et al., "Efficient
 * Memory Management for Large Language Model Serving with PagedAttention", 2023, section 4.4; Zheng et al.,
 * "SGLang", 2024, for keeping the latest). Kept pages count as free ones. */
#define ZX_NO_PAGE UINT32_MAX
typedef struct {
  uint32_t pages;  /* there are so many */
  uint32_t window; /* keys that a token sees, its own among them; 0: all */
} ZxPageGroup;
typedef struct {
  const ZxPageGroup *group;
  uint32_t ngroups;
  uint32_t page;   /* positions of a page */
  uint32_t slots;  /* sequences at once */
  uint32_t length; /* positions of a sequence */
  uint32_t tokens; /* the most of a sequence in one step */
  bool keeps;      /* pages are made known */
} ZxPaging;
typedef struct {
  uint32_t group, from, to;
} ZxPageCopy;
typedef struct ZxPages ZxPages;
ZxPages *zx_pages_new(ZbArena *a, const ZxPaging *how);
uint32_t zx_pages_free(const ZxPages *p, uint32_t group); /* in no table: kept ones are among them */
/* Returns how many pages of a group a sequence of `tokens` positions has at most at once. */
uint32_t zx_pages_most(const ZxPages *p, uint32_t group, uint32_t tokens);
/* Gets pages for positions from .. to - 1 of a slot, of which 0 .. from - 1 are there, and gives back
 * those that lie before what position `from` sees. False if too few are free; none is taken then. */
bool zx_pages_take(ZxPages *p, uint32_t slot, uint32_t from, uint32_t to);
/* Gives an empty slot positions 0 .. tokens - 1 of another: full pages are shared, and of one that is not
 * full, to which both will write, a copy is made. Those copies are to be made in their order before the
 * next step writes; they are added to copy[*n], at most one of each group. False if too few pages are
 * free; none is taken then. */
bool zx_pages_share(ZxPages *p, uint32_t slot, uint32_t of, uint32_t tokens, ZxPageCopy *copy, uint32_t *n);
/* Says whether another slot can: windows may have given back what it needs. */
bool zx_pages_can_share(const ZxPages *p, uint32_t of, uint32_t tokens);
/* Says which text lies in pages: a hash of ids, in whole pages. That a page's own ids are the same is looked
 * at, too, so where all pages of a text are there a hash that is another text's as well gives nothing away. */
typedef struct {
  uint64_t low, high;
} ZxPrefix;
/* Returns the prefix that goes on behind another with these n ids, a page of them. */
ZxPrefix zx_prefix(ZxPrefix before, const uint32_t *id, uint32_t n);
/* Makes entry i of a slot, which is full and written, known as the end of a prefix whose last page has these
 * ids. Nothing, if another page is known as that. */
void zx_pages_keep(ZxPages *p, uint32_t slot, uint32_t i, ZxPrefix of, const uint32_t *id);
/* Returns how many of the first n pages of a text a sequence can go on behind: of[i] is the prefix that page
 * i ends; id has the ids of all. */
uint32_t zx_pages_kept(const ZxPages *p, const ZxPrefix *of, const uint32_t *id, uint32_t n);
/* Gives an empty slot the first n pages of a text, of which zx_pages_kept has said that they are there. */
void zx_pages_resume(ZxPages *p, uint32_t slot, const ZxPrefix *of, const uint32_t *id, uint32_t n);
/* Gives back all pages of a slot. */
void zx_pages_give(ZxPages *p, uint32_t slot);
/* Returns the table of a slot: one entry for each `page` of `length` positions, ZX_NO_PAGE where there is
 * none. */
const uint32_t *zx_pages_table(const ZxPages *p, uint32_t group, uint32_t slot);
/* Checks that each page is free or in as many tables as it counts, tables have what their windows see, and
 * what is written to now is in one table only. False with a message: a mistake of ours, in tests. */
bool zx_pages_check(const ZxPages *p, ZbErr *err);

typedef struct ZxSequence ZxSequence; /* see the scheduler */

/* ---- sampling (sample.c) --------------------------------------------------------------------------- */
#define ZX_NONE UINT32_MAX
enum { ZX_TOP_LOGPROBS = 20, ZX_CHOICES = 16, ZX_PARTS = 64 /* of the words, at most */ };
typedef struct {
  uint32_t id;
  float by;
} ZxBias;
/* Says how a request's tokens are chosen, in the order of transformers: penalties and bias change logits,
 * which are divided by the temperature; then top_k, top_p of what that leaves, and min_p say which tokens
 * may come. */
typedef struct {
  double temperature;         /* 0, or below 1e-9: the most likely token */
  uint32_t top_k;             /* 0: all */
  double top_p, min_p;        /* 1, 0: all */
  double repetition;          /* of what is in prompt or answer; 1: none */
  double presence, frequency; /* of what is in the answer; 0: none */
  const ZxBias *bias;
  uint32_t nbias;
  uint64_t seed;
  /* How many of the most likely tokens are given with each; ZX_NONE: no log-probabilities. */
  uint32_t logprobs;
} ZxSampling;
/* As the model has it, the most likely token. */
#define ZX_GREEDY ((ZxSampling){.top_p = 1, .repetition = 1, .logprobs = ZX_NONE})
/* Checks that all is in range. False with a message that names the field and the range. */
bool zx_sampling_check(const ZxSampling *how, uint32_t vocabulary, ZbErr *err);

/* One row of logits becomes a token, and log-probabilities. The words may lie in parts, neighbouring
 * ranges of ids, one for each rank that shares them: each part gives what it found, and what they found
 * together gives the token to each, the same as if there were one part, to the last bit.
 *
 *   do for each part: zx_sample_part(x, &row, logits, &found[part]);
 *   while (zx_sample_choose(x, &row, found, parts, &choice, &err) == ZX_MORE);
 *
 * A choice is the largest of logit / temperature + noise(seed, choice, position, id), Gumbel's: an exact
 * draw, whatever else is drawn (Gumbel 1954; Maddison, Tarlow, Minka, "A* sampling", 2014). */
typedef struct {
  const ZxSampling *how;
  const uint32_t *id; /* of the sequence: prompt and answer, n; penalties count them */
  uint32_t n, nprompt;
  uint32_t choice;
  const uint32_t *hold; /* ids that must not come yet: those that end the text, before min_tokens */
  uint32_t nhold;
  /* An id that is given, whose log-probability is asked for: the next of a prompt. ZX_NONE: the token at
   * position n is chosen. */
  uint32_t given;
  const uint64_t *allow; /* ids that may come, by bits, of the whole vocabulary; NULL: all */
} ZxRow;
/* Returns the row of a sequence's next token, or (`position` < n - 1) of a token of its prompt, or
 * (`position` >= n) of the token behind draft tokens, which are taken to be right. If the
 * sequence has a shape, the row is valid until the next one is made. */
ZxRow zx_row(const ZxSequence *q, uint32_t position);

typedef struct {
  double score; /* logit / temperature, or with noise; the largest is first, of equal ones the lowest id */
  float logit;  /* the model's own */
  uint32_t id;
} ZxCandidate;
typedef struct {
  double most;  /* the largest of some numbers */
  double over;  /* the largest of all parts, as far as it is known */
  uint64_t sum; /* of exp(x - over), in whole numbers of a unit: parts can be added in any order */
} ZxSum;
typedef struct {
  uint32_t first, n;  /* ids of the part */
  uint32_t most, cap; /* how many candidates are asked for, and may be */
  ZxCandidate *candidate;
  uint32_t found;
  bool all;    /* the part has no other candidates */
  ZxSum sum;   /* of candidates' scores, if top_p needs it */
  ZxSum model; /* of the model's logits, if log-probabilities are wanted */
  ZxCandidate best[ZX_TOP_LOGPROBS];
  uint32_t nbest;
  float given;     /* the model's logit of row->given, if the part has it */
  uint32_t broken; /* the first id whose logit is not a number; ZX_NONE */
} ZxFound;
typedef struct ZxTokenSampler ZxTokenSampler; /* scratch of a thread */
/* `words`: ids from there on, up to `vocabulary`, are none of the tokenizer's, and are never drawn. */
ZxTokenSampler *zx_sampler_new(ZbArena *a, uint32_t vocabulary, uint32_t words);
/* Makes the part of n ids from `first` on, with room for candidates of the widest part. */
void zx_found_new(ZbArena *a, ZxFound *found, uint32_t first, uint32_t n, uint32_t widest);
/* Begins a row: few candidates are asked for at first. */
void zx_found_begin(ZxFound *found, const ZxRow *row);
/* Finds found->most candidates among the part's ids, whose logits are given. */
void zx_sample_part(ZxTokenSampler *x, const ZxRow *row, const float *logits, ZxFound *found);
/* Finds more candidates, in less time; the sampler must not have had another row or part since. */
void zx_sample_more(const ZxTokenSampler *x, const ZxRow *row, const float *logits, ZxFound *found);

typedef struct {
  uint32_t id; /* chosen, or given */
  double logprob;
  uint32_t ntop;
  struct {
    uint32_t id;
    double logprob;
  } top[ZX_TOP_LOGPROBS]; /* the most likely ones, by the model's own log-probabilities */
} ZxChoice;
typedef enum { ZX_CHOSEN, ZX_MORE, ZX_WRONG } ZxSampled;
/* Chooses a token from what all parts found. ZX_MORE: it lies beyond that; found[..] says what each is to
 * look for now. ZX_WRONG, with a message: a logit is not a number, or no token may come. */
ZxSampled zx_sample_choose(const ZxTokenSampler *x, const ZxRow *row, ZxFound *found, uint32_t parts,
                           ZxChoice *out, ZbErr *err);
/* Does all of that for one part, which zx_found_new made of all ids. */
bool zx_sample(ZxTokenSampler *x, const ZxRow *row, const float *logits, ZxFound *found, ZxChoice *out,
               ZbErr *err);

/* ---- words that ranks share (shared.c) -------------------------------------------------------------------- */
/* Gives all parts what each has, as many bytes, in their order. Collective. */
typedef void ZxGather(void *ctx, const void *own, size_t bytes, void *all);
typedef struct {
  uint32_t part, parts; /* this rank's; 0 parts: it has all words */
  uint32_t each;        /* ids of a part; of the last ones fewer, or none */
  ZxGather *gather;
  void *ctx;
} ZxShare;
/* Returns the first id of a part; of the one behind the last, the end of all. */
uint32_t zx_share_first(const ZxShare *s, uint32_t vocabulary, uint32_t part);

typedef struct {
  const ZxSequence *sequence;
  uint32_t position, row; /* see zx_row; the row of the step */
} ZxWanted;
typedef struct {
  ZxChoice choice;
  bool ok; /* else there is none, and `why` */
} ZxChosen;
typedef struct ZxShared ZxShared;
ZxShared *zx_shared_new(ZbArena *a, const ZxShare *how, uint32_t vocabulary, uint32_t words);
/* Chooses n rows: logits[row] are those of this rank's words, without padding; chosen[row]. Collective over parts,
 * where all are given the same rows and come to the same. */
void zx_shared_choose(ZxShared *s, const ZxWanted *wanted, uint32_t n, const float *logits, ZxChosen *chosen,
                      ZbErr *why);

/* ---- draft tokens (draft.c) --------------------------------------------------------------------------
 * A sequence that decodes may have more tokens in a step: what it seems to go on with, by its own text. The
 * logits of each say what comes next; as long as that is the draft token behind it, the sequence has several
 * tokens of one step. Which tokens it has is not changed by that (Leviathan, Kalman, Matias, "Fast Inference
 * from Transformers via Speculative Decoding", 2023; n-grams of the text as drafts: Yang et al., "Inference
 * with Reference", 2023, and Saxena, "Prompt Lookup Decoding", 2023). */
enum { ZX_DRAFTS = 16 /* of a sequence in a step, at most */, ZX_DRAFT_KINDS = 2 };
/* Writes what followed when the last tokens of id[0 .. n) came before, the longest such and then the latest,
 * behind them: `most` draft tokens, for which there must be room. Returns how many; 0: the last two never
 * came before. *kind: 0, or 1 if as many as four were alike. */
uint32_t zx_draft(uint32_t *id, uint32_t n, uint32_t most, uint32_t *kind);

/* What a step takes by its tokens: a line through the latest ones, by least squares. */
typedef struct {
  double n, t, tt, y, ty; /* sums over steps: 1, tokens, their squares, seconds, tokens * seconds */
  double tokens, seconds; /* of the mean step */
  double more;            /* seconds of a token more */
} ZxStepCost;
ZxStepCost zx_step_cost(void);
void zx_step_cost_add(ZxStepCost *c, uint32_t tokens, double seconds);
typedef struct {
  double tokens, gain; /* that the step has so far, and how many of them are tokens of answers, expected */
} ZxStepGain;
/* Returns how many draft tokens, up to `most`, of a sequence whose drafts are right at this rate make the
 * step give more tokens a second, and adds them to it. */
uint32_t zx_drafts_worth(const ZxStepCost *c, double rate, uint32_t most, ZxStepGain *step);
/* Moves a rate by what was right and wrong, by 1 / slowness each. */
void zx_draft_rate(double *rate, uint32_t right, uint32_t wrong, double slowness);

/* ---- the scheduler (scheduler.c) ---------------------------------------------------------------------
 * A step has, in this order: one token of each sequence that decodes; parts of prompts, the oldest request
 * first, as far as there is room; new sequences, while there are slots and pages. If a page is needed and
 * none is free, the youngest sequence is preempted: its pages go back, its tokens are known, and it is the
 * next to be started again. The oldest is never preempted, so every request ends. `line` is the whole
 * state of that:
 *
 *   line    3 5 8 | 9 12         by age; the first `running` have slots, the others wait
 *
 * A request for n choices is n sequences. The prompt is made once where that can be: the others wait for
 * the first one, and share its pages.
 *
 * With `prefixes` full pages are known by their text, also after their sequence has ended: a sequence starts
 * behind the longest beginning of its text that is there, and waits for one that is being made as the prompt
 * of another. Rows that are wanted are made, so log-probabilities of a prompt share nothing. Models with
 * states do not: a state is not kept for each page.
 *
 * Where all that run decode, sequences have draft tokens, up to `drafts` each, as far as they are worth what
 * they take and rows, tokens and pages are left: nobody is preempted for them. Not with states, which
 * cannot go back.
 *
 * Where a model has recurrent states the way a state was made is part of its bits: parts of prompts end at
 * multiples of 128 only, and when a preempted sequence is made again its answer goes token by token as it
 * did the first time. No state need be put aside. */
enum { ZX_STATE_CHUNK = 128 };
typedef struct {
  uint32_t tokens, rows, slots; /* of a step: tokens, rows of logits, sequences */
  uint32_t length;              /* positions of a sequence: prompt and answer */
  uint32_t page;                /* positions of a page */
  const ZxPageGroup *group;
  uint32_t ngroups;
  uint32_t vocabulary; /* ids of the model */
  uint32_t queue;      /* sequences that may wait */
  const uint32_t *end; /* ids that end a text, of the model */
  uint32_t nend;
  uint32_t drafts; /* draft tokens of a sequence in a step, at most; 0 with states */
  bool states;     /* a slot has more than pages: recurrent states, recent tokens */
  bool prefixes;   /* sequences share pages of what they begin with; not with states, nor sources */
  bool reserve; /* a sequence is started when all pages that it may need are free: nobody is ever preempted */
} ZxScheduling;

typedef struct {
  const uint32_t *prompt;
  uint32_t nprompt, max_tokens, min_tokens;
  const uint32_t *source; /* an encoder's text, nsource ids: the sequence's own, beside the one it writes */
  uint32_t nsource;
  uint32_t choices;     /* 1 to ZX_CHOICES */
  const uint32_t *stop; /* ids that end the text, too */
  uint32_t nstop;
  bool ignore_end;      /* the model's end tokens are tokens as others, but not those of `stop` */
  uint32_t adapter;     /* the number of that with which it is written; no prefix is another's */
  bool prompt_logprobs; /* rows of logits are wanted for the prompt, too */
  /* What the answer must fit; NULL: nothing. It ends the answer, also before min_tokens. It stays the caller's. */
  ZxShape *shape;
  ZxSampling sampling;
} ZxGenRequest;

typedef enum {
  ZX_NOT_ENDED,
  ZX_BY_END,    /* the last token ends the text, and is not part of it */
  ZX_BY_LENGTH, /* max_tokens */
  ZX_BY_STOP,   /* a stop string was found */
  ZX_BY_SHAPE,  /* the answer is all that its shape lets be, and the last token part of it */
  ZX_BY_CANCEL,
  ZX_BY_NAN /* its logits are not numbers */
} ZxEnding;

struct ZxSequence {
  uint64_t request; /* zx_submit's number */
  uint32_t choice;
  const uint32_t *id; /* prompt and answer, n of them */
  uint32_t n, nprompt;
  const uint32_t *source; /* of an encoder, nsource of them */
  uint32_t nsource;
  uint32_t adapter;
  uint32_t most; /* prompt and max_tokens */
  uint32_t min_tokens;
  const uint32_t *end; /* all ids that end it */
  uint32_t nend;
  uint32_t done;      /* positions that keys, values and states have */
  uint32_t row_from;  /* rows before this position were made, or are not wanted */
  uint32_t slot;      /* ZX_NONE: it waits */
  uint32_t preempted; /* so often */
  uint32_t cached;    /* tokens of the prompt that were there when it was first started */
  ZxEnding ending;
  ZxSampling sampling;
  ZxShape *shape;  /* NULL: none */
  ZxShaped shaped; /* where in it the answer is, as far as that is known */
};

/* A part of a step: n tokens of one sequence, neighbours and in order, and the rows among them. */
typedef struct {
  const ZxSequence *sequence;
  uint32_t from;       /* position of its first token */
  uint32_t token, n;   /* in the step */
  uint32_t row, nrows; /* the last nrows of its tokens have these rows */
  uint32_t ndrafts;    /* so many of its last tokens are draft tokens, which are not the sequence's yet */
  bool chooses;        /* the next token is chosen from the last row, or from that before the draft tokens' */
} ZxGenPart;
/* Says whether the row behind `row` (of the step), of which `id` was chosen, is wanted: its token was a right
 * draft, and does not end the text. */
bool zx_goes_on(const ZxGenPart *p, uint32_t row, uint32_t id);
typedef struct {
  uint64_t number;
  uint32_t ntokens; /* 0: there is nothing to do */
  const uint32_t *id, *position, *slot;
  uint32_t nrows;
  const uint32_t *row; /* the token that each is of */
  uint32_t nparts;
  const ZxGenPart *part;
  uint32_t ncopies;
  const ZxPageCopy *copy; /* to be made in this order before the step writes */
  uint32_t nstarts;
  const ZxSequence *const *start; /* that got their slots now: what is theirs alone is to be made there */
} ZxGenStep;

typedef struct ZxScheduler ZxScheduler;
/* NULL with a message: a step or the pages are too small for any sequence. */
ZxScheduler *zx_scheduler_new(const ZxScheduling *how, ZbErr *err);
void zx_scheduler_free(ZxScheduler *s); /* NULL is allowed */
/* Puts a request at the end of the line. False with a message: it is out of range, it can never fit, or
 * (err->passing) the queue is full. */
bool zx_submit(ZxScheduler *s, const ZxGenRequest *r, uint64_t *number, ZbErr *err);
/* Ends a choice of a request, or all (ZX_NONE), at once. Nothing, if it has ended. */
void zx_end_request(ZxScheduler *s, uint64_t request, uint32_t choice, ZxEnding why);
/* Returns what is to be played next; valid until the next call of it. The step before must be done. */
const ZxGenStep *zx_next_step(ZxScheduler *s);
/* Takes the results of the step: chosen[row] is the next token where the part chooses, and of the rows behind
 * it as far as zx_goes_on; other rows are not looked at. */
void zx_step_done(ZxScheduler *s, const uint32_t *chosen);
/* Says how long the step took that was done last, so that draft tokens are worth it. Ranks must say the same. */
void zx_step_took(ZxScheduler *s, double seconds);
/* Returns a sequence that has ended, each once, or NULL; it is valid until the next call. */
const ZxSequence *zx_next_ended(ZxScheduler *s);
const uint32_t *zx_table(const ZxScheduler *s, uint32_t group, uint32_t slot); /* see zx_pages_table */
typedef struct {
  uint32_t running, waiting;
  uint64_t steps, prompt_tokens, answer_tokens; /* made */
  uint64_t cached_tokens;                       /* of prompts, that were there */
  uint64_t drafts, right_drafts;                /* draft tokens that were looked at */
  uint64_t preempted, lost;                     /* sequences, and their positions */
  uint64_t pages, free_pages;                   /* of all groups; free: no sequence has them */
} ZxCounts;
ZxCounts zx_scheduler_counts(const ZxScheduler *s);
void zx_counts_add(ZxCounts *to, const ZxCounts *c);
uint32_t zx_scheduler_free_pages(const ZxScheduler *s, uint32_t group);
/* Returns a number of all steps and choices so far: ranks that play the same have the same. */
uint64_t zx_scheduler_digest(const ZxScheduler *s);
/* Checks pages, slots and the line. False with a message: a mistake of ours, in tests. */
bool zx_scheduler_check(const ZxScheduler *s, ZbErr *err);

#endif
