/* Answers to queries, with a model that is a table: byte c is followed by the next byte of a script. */
#include "runtime/exec/answer/answer.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { WORDS = 257, END = 256, SEATS = 3, TOKENS = 24, LENGTH = 64 };
static ZbErr err;
static ZbArena *a;
static ZxWords words;
static ZxPageGroup group[1] = {{.pages = 12}};
static uint16_t after[WORDS]; /* what is surely next */
static float logits[TOKENS * WORDS];
static bool broken; /* the logits of 'N' are not numbers */

static const float *play(void *player, const ZxScheduler *s, const ZxGenStep *step, ZbErr *e) {
  (void)player, (void)s, (void)e;
  for (uint32_t r = 0; r < step->nrows; r++) {
    uint32_t at = step->id[step->row[r]];
    for (uint32_t i = 0; i < WORDS; i++) logits[r * WORDS + i] = i == after[at] ? 20 : (float)(i % 7);
    if (broken && at == 'N') logits[r * WORDS + 3] = NAN;
  }
  return logits;
}

static void script(const char *text) {
  for (; text[1]; text++) after[(uint8_t)text[0]] = (uint8_t)text[1];
  after[(uint8_t)text[0]] = END;
}

static ZbText pieces[8];
static ZxAnswers *telling; /* who gives news with each piece; NULL */
static ZxCopy copies[2];
/* Takes what is new of a choice, the text of which must be that piece. */
static void take_news(uint64_t number, uint32_t choice, const char *text, size_t n) {
  ZbText news = {0};
  size_t came;
  zx_answers_news(telling, number, choice, &news);
  const char *is = zx_copy_take(&copies[choice], news.s, news.len, &came);
  cr_assert(came == n && !memcmp(is, text, n), "'%.*s' is new, not '%.*s'", (int)came, is, (int)n, text);
  zb_text_free(&news);
}

static void piece(void *ctx, uint64_t number, uint32_t choice, const char *text, size_t n) {
  (void)ctx;
  if (telling) take_news(number, choice, text, n);
  zb_text_put(&pieces[number], text, n);
}

static ZxQuery query(const char *prompt) {
  return (ZxQuery){.prompt = prompt,
                   .length = strlen(prompt),
                   .max_tokens = 30,
                   .choices = 1,
                   .logprobs = ZX_UNSAID,
                   .seed = ZX_UNSAID,
                   .top_p = 1,
                   .repetition = 1};
}

static ZxAnswers *begin(void) {
  if (!a) a = zb_arena_new();
  for (int i = 0; i < 8; i++) pieces[i].len = 0;
  script("AHello world");
  after['o'] = ' ', after[' '] = 'w', after['l'] = 'd',
  after['d'] = END; /* "AHeld": each byte has one next */
  script("Bcdefghijk");
  cr_assert(zx_words_open(&words, a, NULL, NULL, WORDS, &err), "%s", err.text);
  ZxAnswering how = {.words = &words,
                     .sizes = {.tokens = TOKENS,
                               .rows = TOKENS,
                               .slots = SEATS,
                               .length = LENGTH,
                               .page = 8,
                               .group = group,
                               .ngroups = 1},
                     .play = play,
                     .piece = piece};
  ZxAnswers *x = zx_answers_new(&how, &err);
  cr_assert(x, "%s", err.text);
  return x;
}

static const ZxAnswered *only(ZxAnswers *x, const ZxQuery *q) {
  cr_assert(zx_answers_ask(x, q, 1, &err), "%s", err.text);
  while (!zx_answers_idle(x)) cr_assert(zx_answers_step(x, &err), "%s", err.text);
  const ZxAnswered *r = zx_answers_next(x);
  cr_assert(r && r->number == 1);
  return r;
}

static void gives(ZxAnswers *x, const ZxQuery *q, const char *text, const char *finish) {
  const ZxAnswer *r = only(x, q)->answer;
  cr_expect(r->length == strlen(text) && !memcmp(r->text, text, r->length), "'%.*s', not '%s'",
            (int)r->length, r->text, text);
  cr_expect_str_eq(r->finish, finish);
  cr_expect(pieces[1].len == r->length && !memcmp(pieces[1].s ? pieces[1].s : "", r->text, r->length));
  pieces[1].len = 0;
}

Test(answers, texts_and_ends) {
  ZxAnswers *x = begin();
  ZxQuery q = query("B");
  gives(x, &q, "cdefghijk", "stop");
  q.max_tokens = 3;
  gives(x, &q, "cde", "length");
  q.max_tokens = 9;
  gives(x, &q, "cdefghijk", "length");
  q.max_tokens = 10;
  gives(x, &q, "cdefghijk", "stop");
  q.stop = (ZbTexts){(const char *[]){"gh", "fgX"}, 2};
  gives(x, &q, "cdef", "stop");
  q.max_tokens = 6; /* the last token ends the stop string */
  gives(x, &q, "cdef", "stop");
  q.max_tokens = 5; /* what was held comes after all */
  gives(x, &q, "cdefg", "length");
  q.echo = true;
  q.stop.n = 0;
  gives(x, &q, "Bcdefg", "length");
  q.max_tokens = 0;
  gives(x, &q, "B", "length");
  zx_answers_free(x);
  zx_words_close(&words);
}

Test(answers, ends_that_are_held_off_or_ignored) {
  ZxAnswers *x = begin();
  ZxQuery q = query("k");
  q.max_tokens = 4;
  gives(x, &q, "", "stop");
  q.min_tokens = 2;
  const ZxAnswer *r = only(x, &q)->answer;
  cr_expect(r->n - r->nprompt >= 2 && r->id[1] != END && r->id[2] != END);
  pieces[1].len = 0;
  q.min_tokens = 0;
  q.ignore_end = true;
  r = only(x, &q)->answer;
  cr_expect(r->n - r->nprompt == 4 && r->id[1] == END && !strcmp(r->finish, "length"));
  q.end = (const uint32_t[]){END};
  q.nend = 1;
  r = only(x, &q)->answer;
  cr_expect(r->n - r->nprompt == 1 && !strcmp(r->finish, "stop"));
  zx_answers_free(x);
  zx_words_close(&words);
}

Test(answers, many_at_once_as_alone) {
  ZxAnswers *x = begin();
  static const char *const prompt[] = {"Bcd", "f", "AH", "B", "i", "hij", "Bc"};
  static const char *const text[] = {"efghijk", "ghijk", NULL, "cdefghijk", "jk", "k", "defghijk"};
  ZxQuery q[7];
  uint32_t asked = 0, answered = 0;
  while (answered < 7) {
    while (asked < 7) {
      q[asked] = query(prompt[asked]);
      if (!zx_answers_ask(x, &q[asked], asked, &err)) {
        cr_assert(err.passing, "%s", err.text);
        break;
      }
      asked++;
    }
    cr_assert(zx_answers_step(x, &err), "%s", err.text);
    for (const ZxAnswered *r; (r = zx_answers_next(x)); answered++)
      if (text[r->number])
        cr_expect(r->answer->length == strlen(text[r->number]) &&
                      !memcmp(r->answer->text, text[r->number], r->answer->length),
                  "%llu: %.*s", (unsigned long long)r->number, (int)r->answer->length, r->answer->text);
  }
  zx_answers_free(x);
  zx_words_close(&words);
}

/* The model wants to go on as its script says; what does not fit never comes. */
Test(answers, json_that_fits_a_schema) {
  ZxAnswers *x = begin();
  ZxQuery q = query("B");
  q.format = ZX_JSON_SCHEMA;
  q.schema = "{\"enum\": [\"cdx\", \"cdefg\"]}";
  q.nschema = strlen(q.schema);
  gives(x, &q, "\"cdefg\"", "stop");
  q.min_tokens = 20; /* there is nothing more to say */
  gives(x, &q, "\"cdefg\"", "stop");
  q.min_tokens = 0;
  q.max_tokens = 7; /* whole with its last token */
  gives(x, &q, "\"cdefg\"", "stop");
  q.max_tokens = 6;
  gives(x, &q, "\"cdefg", "length");
  q.logprobs = 1; /* the model's own: it would have said something else */
  const ZxAnswer *r = only(x, &q)->answer;
  cr_expect(r->logprob[0].id == '"' && r->logprob[0].logprob < -5 && r->logprob[0].top[0].id != '"');
  pieces[1].len = 0;
  q.logprobs = ZX_UNSAID;
  q.max_tokens = 30;
  q.schema = "{\"type\": \"integer\"}"; /* digits, up to as many as there may be, or an end token */
  q.nschema = strlen(q.schema);
  q.choices = 3;
  q.temperature = 1;
  const ZxAnswered *many = only(x, &q);
  for (int i = 0; i < 3; i++) {
    r = &many->answer[i];
    cr_expect(!strcmp(r->finish, "stop") && r->length && r->length <= 20, "%.*s", (int)r->length, r->text);
    cr_expect(strspn(r->text, "-0123456789") == r->length, "%.*s", (int)r->length, r->text);
  }
  q = query("B");
  q.format = ZX_JSON_OBJECT;
  r = only(x, &q)->answer;
  cr_expect(r->text[0] == '{');
  q.format = ZX_JSON_SCHEMA;
  q.schema = "{\"minimum\": 1}";
  q.nschema = strlen(q.schema);
  cr_expect(!zx_answers_ask(x, &q, 1, &err) && strstr(err.text, "`minimum`"), "%s", err.text);
  zx_answers_free(x);
  zx_words_close(&words);
}

Test(answers, log_probabilities_and_results) {
  ZxAnswers *x = begin();
  ZxQuery q = query("ij");
  q.logprobs = 1;
  q.echo = true;
  q.max_tokens = 1;
  const ZxAnswered *r = only(x, &q);
  const ZxAnswer *c = r->answer;
  cr_assert(c->n == 3 && c->nprompt == 2 && c->first == 1 && c->logprob);
  cr_expect(c->logprob[0].id == 'j' && c->logprob[1].id == 'k' && c->logprob[0].logprob > -1e-3);
  cr_expect(c->logprob[1].ntop == 1 && c->logprob[1].top[0].logprob == c->logprob[1].logprob);
  ZbText t = {0};
  zx_result(&words, r, &t);
  cr_expect(
      strstr(t.s,
             "{\"text\":\"ijk\",\"tokens\":[105,106,107],\"finish_reason\":\"length\",\"logprobs\":[{\"id\":"
             "105,\"token\":\"i\",\"logprob\":null,\"top_logprobs\":[]}") == t.s,
      "%s", t.s);
  cr_expect(t.s[t.len - 1] == '\n' && strstr(t.s, "\"prompt_tokens\":2}"));
  t.len = 0;
  q = query("i");
  q.choices = 2;
  q.temperature = 1;
  q.seed = 7;
  zx_result(&words, only(x, &q), &t);
  cr_expect(strstr(t.s, "{\"choices\":[{\"text\":\"") == t.s && strstr(t.s, "\"seed\":7}"), "%s", t.s);
  zb_text_free(&t);
  zx_answers_free(x);
  zx_words_close(&words);
}

static void same_answer(const ZxAnswer *is, const ZxAnswer *x) {
  cr_assert(is->choice == x->choice && is->n == x->n && is->nprompt == x->nprompt && is->first == x->first);
  cr_assert(is->length == x->length && is->stop == x->stop);
  cr_assert_str_eq(is->finish, x->finish);
  cr_assert(!memcmp(is->text, x->text, x->length) && !memcmp(is->id, x->id, x->n * sizeof *x->id));
  for (uint32_t i = 0; i < x->n - x->first; i++) {
    const ZxChoice *c = &is->logprob[i], *o = &x->logprob[i];
    cr_assert(c->id == o->id && c->logprob == o->logprob && c->ntop == o->ntop);
    for (uint32_t k = 0; k < o->ntop; k++)
      cr_assert(c->top[k].id == o->top[k].id && c->top[k].logprob == o->top[k].logprob);
  }
}

Test(answers, are_copied_by_their_news) {
  static const char *const stop[] = {"wor"};
  ZxAnswers *x = begin();
  ZxQuery q = query("AHe");
  q.stop = (ZbTexts){(const char **)stop, 1};
  q.choices = 2;
  q.logprobs = 2;
  q.echo = true;
  q.temperature = 1;
  q.seed = 3;
  telling = x;
  const ZxAnswered *r = only(x, &q);
  for (uint32_t c = 0; c < 2; c++) {
    cr_expect(!copies[c].is.finish && copies[c].is.length == r->answer[c].length, "a copy ends by itself");
    take_news(1, c, "", 0);
    same_answer(&copies[c].is, &r->answer[c]);
    zx_copy_free(&copies[c]);
  }
  telling = NULL;
  zx_answers_free(x);
  zx_words_close(&words);
}

Test(answers, queries_are_packed) {
  static const char *const stop[] = {"a", "end of it"};
  static const uint32_t id[] = {1, 2, 3}, end[] = {9};
  static const ZxBias bias[] = {{.id = 4, .by = -2}};
  ZxQuery q = query("");
  q.prompt = NULL;
  q.token = id, q.ntokens = 3, q.end = end, q.nend = 1, q.bias = bias, q.nbias = 1;
  q.stop = (ZbTexts){(const char **)stop, 2};
  q.schema = "{}", q.nschema = 2, q.seed = 5;
  ZbText t = {0};
  zb_text_put(&t, "x", 1); /* they need not be aligned */
  zx_pack_query(&q, &t);
  ZxQuery *o = zx_unpack_query(t.s + 1, t.len - 1);
  cr_expect(o->ntokens == 3 && !memcmp(o->token, id, sizeof id) && o->token != id && o->end[0] == 9);
  cr_expect(o->bias[0].id == 4 && o->bias[0].by == -2 && !memcmp(o->schema, "{}", 2) && o->seed == 5);
  cr_expect(o->stop.n == 2 && !strcmp(o->stop.s[0], "a") && !strcmp(o->stop.s[1], "end of it"));
  free(o);
  zb_text_free(&t);
}

Test(answers, cancelled_and_broken) {
  ZxAnswers *x = begin();
  ZxQuery q = query("B"), n = query("N");
  cr_assert(zx_answers_ask(x, &q, 1, &err));
  for (int i = 0; i < 3; i++) cr_assert(zx_answers_step(x, &err));
  zx_answers_cancel(x);
  const ZxAnswered *r = zx_answers_next(x);
  cr_assert(r && zx_answers_idle(x));
  cr_expect(!strcmp(r->answer->finish, "cancelled") && r->answer->length == 3 &&
            !memcmp(r->answer->text, "cde", 3));
  broken = true;
  r = only(x, &n);
  cr_assert(r->broken);
  cr_expect(strstr(r->broken->text, "not a number"), "%s", r->broken->text);
  broken = false;
  zx_answers_free(x);
  zx_words_close(&words);
}

static void refused(ZxAnswers *x, ZxQuery q, const char *text) {
  cr_expect(!zx_answers_ask(x, &q, 1, &err));
  cr_expect(strstr(err.text, text) && !err.passing, "%s, not %s", err.text, text);
  cr_expect(zx_answers_idle(x));
}

Test(answers, what_is_refused) {
  ZxAnswers *x = begin();
  char longer[LENGTH + 2];
  memset(longer, 'c', sizeof longer - 1);
  longer[LENGTH + 1] = 0;
  ZxQuery q = query(longer);
  refused(x, q, "at most 64");
  q.max_tokens = ZX_UNSAID;
  refused(x, q, "65 tokens");
  q = query("c");
  q.max_tokens = 64;
  refused(x, q, "at most 64");
  refused(x, query(""), "empty");
  q = query("c");
  q.prompt = NULL;
  refused(x, q, "`tokens` is empty");
  q.token = (const uint32_t[]){WORDS};
  q.ntokens = 1;
  refused(x, q, "257");
  q = query("c");
  q.end = (const uint32_t[]){WORDS};
  q.nend = 1;
  refused(x, q, "stop_token_ids");
  q.nend = 0;
  q.bias = (const ZxBias[]){{WORDS, 1}};
  q.nbias = 1;
  refused(x, q, "logit_bias");
  zx_answers_free(x);
  zx_words_close(&words);
}

Test(answers, a_file_of_results) {
  char path[] = "/tmp/zug-results-XXXXXX";
  int fd = mkstemp(path);
  ZxResults r;
  if (!a) a = zb_arena_new();
  const char *have = "{\"text\":\"a\",\"finish_reason\":\"stop\"}\n{\"text\":\"half";
  cr_assert(write(fd, have, strlen(have)) == (ssize_t)strlen(have));
  cr_assert(zx_results_open(&r, a, path, &err), "%s", err.text);
  cr_expect(r.done == 1 && r.good == strlen("{\"text\":\"a\",\"finish_reason\":\"stop\"}\n"));
  ZxResults other;
  cr_expect(!zx_results_open(&other, a, path, &err) && strstr(err.text, "another run"));
  cr_assert(zx_results_add(&r, "{\"choices\":[]}\n", 15, &err) && zx_results_close(&r, &err));
  close(other.fd);
  cr_assert(zx_results_open(&r, a, path, &err) && r.done == 2 && zx_results_close(&r, &err), "%s", err.text);
  cr_assert(ftruncate(fd, 0) == 0 && pwrite(fd, "my notes\n", 9, 0) == 9);
  cr_expect(!zx_results_open(&r, a, path, &err) && strstr(err.text, ":1: "), "%s", err.text);
  close(r.fd);
  cr_assert(zx_results_open(&r, a, "/dev/full", &err), "%s", err.text);
  cr_expect(!zx_results_add(&r, "x", 1, &err) && err.passing, "%s", err.text);
  zx_results_close(&r, &err);
  close(fd);
  unlink(path);
}
