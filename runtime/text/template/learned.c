/* Which tokens of a conversation are learned.
 *
 * A template that marks answers by {% generation %} says it. With another one each answer is found in what it writes of the
 * whole conversation, by what it writes of a part:
 *
 *   <|user|>hi<|end|>\n<|assistant|>hello<|end|>\n<|user|>...
 *   `------ P: up to the answer, ------'                         rendered with the head of an answer
 *   `------ R: with the answer -----------------'                rendered without
 *
 * An answer is what is between the ends of P and R: its words, the token that ends it, and what closes the turn. Where a template
 * writes a turn otherwise once others follow (Qwen3 drops reasoning, Phi-3 ends with another token), R is not there: then it goes
 * up to the first special token behind the message's last word, and on to the next one, which begins another turn. */
#define _GNU_SOURCE /* memmem */
#include "runtime/text/template/inside.h"

#include <cjson/cJSON.h>
#include <stdlib.h>

static const char mark_it[] =
    "give --chat-template FILE, with {% generation %} and {% endgeneration %} around answers";

typedef struct {
  size_t begin, words,
      end;   /* bytes: where it begins, where the assistant's last word of it ends, and it at the latest */
  bool sure; /* that it ends there */
} Answer;
typedef struct {
  const ZtTemplate *t;
  const ZtChat *chat;
  const ZtRendered *whole;
  Answer *answer;
  size_t n, cap;
} Answers;

static bool is_assistant(const cJSON *message) {
  const cJSON *role = cJSON_IsObject(message) ? cJSON_GetObjectItemCaseSensitive(message, "role") : NULL;
  return cJSON_IsString(role) && !strcmp(role->valuestring, "assistant");
}

/* ---- parts of the conversation ----------------------------------------------------------------- */
/* Renders the first n messages, or `messages`. */
static bool render(const Answers *x, const cJSON *messages, int n, bool head, ZtRendered *out, ZbErr *err) {
  ZtChat part = *x->chat;
  const cJSON *m;
  cJSON *list = cJSON_CreateArray();
  int i = 0;
  if (!list) zb_out_of_memory(0);
  cJSON_ArrayForEach(m, messages) if (i++ < n) cJSON_AddItemReferenceToArray(list, (cJSON *)(uintptr_t)m);
  part.messages = list;
  part.add_generation_prompt = head;
  part.continue_final_message = false;
  bool ok = zt_template_apply(x->t, &part, out, err);
  cJSON_Delete(list);
  return ok;
}

static size_t alike(const ZbText *a, const ZbText *b) {
  size_t n = 0;
  while (n < a->len && n < b->len && a->s[n] == b->s[n]) n++;
  return n;
}

/* Finds the head that the template puts before an answer, where it first is: of a conversation that begins with one. */
static bool first_head(const Answers *x, size_t *start, ZbErr *err) {
  ZtRendered with = {0}, without = {0};
  cJSON *ask = zb_json_parse("[{\"role\": \"user\", \"content\": \"x\"}]", 34, ZB_JSON_ANY, err);
  bool ok = ask && render(x, ask, 1, true, &with, err) && render(x, ask, 1, false, &without, err);
  const ZbText *all = &x->whole->text;
  size_t from = alike(&with.text, &without.text), n = with.text.len - from;
  const char *at =
      ok && n && from == without.text.len ? memmem(all->s, all->len, with.text.s + from, n) : NULL;
  if (ok && !at) ok = zb_fail(err, mark_it, "the chat template does not say how an answer begins");
  if (ok) *start = (size_t)(at - all->s) + n;
  zt_rendered_free(&with);
  zt_rendered_free(&without);
  cJSON_Delete(ask);
  return ok;
}

/* Finds where answer `message` begins in the whole. */
static bool find_start(const Answers *x, int message, size_t *start, ZbErr *err) {
  ZtRendered head = {0}, before = {0};
  const ZbText *all = &x->whole->text;
  if (!message) return first_head(x, start, err);
  if (!render(x, x->chat->messages, message, true, &head, err)) return false;
  *start = alike(&head.text, all);
  bool ok = *start == head.text.len;
  if (!ok) { /* some heads open a thought, which is dropped later: what is there of it */
    ok = render(x, x->chat->messages, message, false, &before, err);
    if (ok && alike(&before.text, all) < before.text.len)
      ok = zb_fail(err, mark_it,
                   "the chat template writes what is before messages[%d] otherwise once others follow, so "
                   "that it cannot "
                   "be told where that answer begins",
                   message);
  }
  zt_rendered_free(&head);
  zt_rendered_free(&before);
  return ok;
}

/* ---- in the whole ------------------------------------------------------------------------------ */
/* Returns where the first byte of somebody else's words is from `from` on, or the end. */
static size_t others_from(const ZtRendered *r, size_t from) {
  for (size_t i = 0; i < r->ngiven; i++)
    if (r->given[i].of & ZT_SPAN_OTHERS && r->given[i].end > from)
      return r->given[i].begin > from ? r->given[i].begin : from;
  return r->text.len;
}

/* Returns the end of the assistant's last word in [from, to); `from` if there is none. */
static size_t words_end(const ZtRendered *r, size_t from, size_t to) {
  size_t end = from;
  for (size_t i = 0; i < r->ngiven; i++) {
    const ZtSpan *s = &r->given[i];
    if (s->of & ZT_SPAN_ASSISTANT && s->end > from && s->begin < to) end = s->end < to ? s->end : to;
  }
  return end;
}

static void add(Answers *x, size_t begin, size_t end, bool sure) {
  if (x->n && begin < x->answer[x->n - 1].end) begin = x->answer[x->n - 1].end;
  if (end < begin) end = begin;
  x->answer = zt_room(x->answer, x->n, 1, sizeof *x->answer, &x->cap);
  x->answer[x->n++] = (Answer){begin, words_end(x->whole, begin, end), end, sure};
}

/* Adds an answer by the parts that the template writes. */
static bool add_turn(Answers *x, int message, ZbErr *err) {
  ZtRendered upto = {0};
  ZbErr none;
  size_t begin;
  if (!find_start(x, message, &begin, err)) return false;
  bool sure = render(x, x->chat->messages, message + 1, false, &upto, &none) && upto.text.len >= begin &&
              alike(&upto.text, &x->whole->text) == upto.text.len;
  add(x, begin, sure ? upto.text.len : others_from(x->whole, begin), sure);
  zt_rendered_free(&upto);
  return true;
}

static bool add_turns(Answers *x, const ZtLearning *how, int last, ZbErr *err) {
  int i = 0;
  const cJSON *m;
  cJSON_ArrayForEach(m, x->chat->messages) {
    int at = i++;
    if (!is_assistant(m) || at < how->from || (how->what == ZT_LEARN_LAST && at != last)) continue;
    if (!add_turn(x, at, err)) return false;
  }
  return true;
}

/* Adds what stands in {% generation %} blocks, from the first answer on that is learned. */
static bool add_blocks(Answers *x, const ZtLearning *how, int last, ZbErr *err) {
  size_t from = 0;
  int first = how->what == ZT_LEARN_LAST ? last : how->from;
  if (first && !find_start(x, first, &from, err)) return false;
  for (size_t i = 0; i < x->whole->ngenerated; i++) {
    const ZtSpan *s = &x->whole->generated[i];
    if (s->end > from) add(x, s->begin > from ? s->begin : from, s->end, true);
  }
  return x->n ||
         zb_fail(err, mark_it, "no answer is written in a {%% generation %%} block of the chat template");
}

/* ---- tokens ------------------------------------------------------------------------------------ */
/* Returns the first special token of [from, to); `to`: none is. */
static size_t special_from(const ZtTokenizer *t, const ZtIds *ids, size_t from, size_t to) {
  while (from < to && !zt_special(t, ids->id[from])) from++;
  return from;
}

/* Returns the token that ends texts, as the tokenizer's folder names it, or ZT_NONE. */
static uint32_t end_token(const Answers *x, const ZtTokenizer *t) {
  const cJSON *eos = x->chat->tokens ? cJSON_GetObjectItemCaseSensitive(x->chat->tokens, "eos_token") : NULL;
  return cJSON_IsString(eos) ? zt_id(t, eos->valuestring) : ZT_NONE;
}

/* Marks an answer's tokens, cut at its three places. If none of them ends it, that is the special token which begins the next
 * turn (GLM-4); and of the last one it is put behind it. */
static bool learn(const Answers *x, const Answer *of, const ZtTokenizer *t, const ZtCut *cut, ZtIds *ids,
                  ZbText *learned, size_t from, ZbErr *err) {
  size_t begin = cut[0].before, end = cut[2].begun, special = special_from(t, ids, cut[1].begun, end);
  if (!of->sure && special == end)
    return zb_fail(err, mark_it, "it cannot be told with which token an answer ends");
  if (!of->sure) end = special_from(t, ids, special + 1, end);
  else if (special == end && end < ids->n) end += zt_special(t, ids->id[end]);
  else if (special == end && end_token(x, t) != ZT_NONE) {
    zt_push(ids, end_token(x, t));
    zb_text_put(learned, "", 1);
    end++;
  }
  if (end > begin) memset(learned->s + from + begin, 1, end - begin);
  return true;
}

static int last_answer(const cJSON *messages, int from) {
  int i = 0, last = -1;
  const cJSON *m;
  cJSON_ArrayForEach(m, messages) {
    if (i >= from && is_assistant(m)) last = i;
    i++;
  }
  return last;
}

static bool find_answers(Answers *x, const ZtLearning *how, ZbErr *err) {
  int last = last_answer(x->chat->messages, how->from);
  if (how->what == ZT_LEARN_ALL) return true;
  if (last < 0) return zb_fail(err, "--loss all learns every token", "no message is the assistant's");
  return (x->t->generates ? add_blocks : add_turns)(x, how, last, err);
}

/* Encodes the whole, and cuts it at each answer's places. */
static bool encode(const Answers *x, ZtCoder *c, ZtCut **cut, ZtIds *ids, ZbErr *err) {
  ZtCuts cuts = {.n = 3 * x->n};
  size_t cap = 0;
  cuts.cut = *cut = zt_room(NULL, 0, cuts.n + 1, sizeof **cut, &cap);
  for (size_t i = 0; i < x->n; i++) {
    const Answer *of = &x->answer[i];
    for (size_t k = 0; k < 3; k++)
      cuts.cut[3 * i + k] = (ZtCut){.at = k == 0 ? of->begin : k == 1 ? of->words : of->end};
  }
  return zt_template_encode(x->t, c, x->whole, &cuts, ids, err);
}

bool zt_template_learn(const ZtTemplate *t, ZtCoder *c, const ZtChat *chat, const ZtLearning *how, ZtIds *out,
                       ZbText *learned, ZbErr *err) {
  ZtRendered r = {0};
  Answers x = {.t = t, .chat = chat, .whole = &r};
  ZtIds ids = {0};
  ZtCut *cut = NULL;
  size_t before = learned->len;
  bool ok = zt_template_apply(t, chat, &r, err) && find_answers(&x, how, err) &&
            (r.text.len || zb_fail(err, NULL, "the chat template writes nothing for this conversation")) &&
            encode(&x, c, &cut, &ids, err);
  for (size_t i = 0; ok && i < ids.n; i++) zb_text_put(learned, how->what == ZT_LEARN_ALL ? "\1" : "\0", 1);
  for (size_t i = 0; ok && i < x.n; i++)
    ok = learn(&x, &x.answer[i], c->t, cut + 3 * i, &ids, learned, before, err);
  for (size_t i = 0; ok && i < ids.n; i++) zt_push(out, ids.id[i]);
  zt_ids_free(&ids);
  zt_rendered_free(&r);
  free(cut);
  free(x.answer);
  return ok;
}
