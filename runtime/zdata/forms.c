/* Conversations in the forms that people keep them in become messages:
 *
 *   {"messages": [{"role": "user", "content": ..}, ..]}            as they are
 *   {"conversations": [{"from": "human", "value": ..}, ..]}        ShareGPT: roles and contents by other names
 *   {"prompt": .., "completion": ..}                               texts, or lists of messages; only the completion is learned
 *   {"chosen": .., "rejected": ..}                                 two of these, perhaps with a `prompt`: a pair, whose common
 *                                                                  beginning is not learned
 *   {"text": ..}                                                   a text, without a template; all of it is learned
 *
 * `system` goes before all, `tools` and `chat_template_kwargs` to the template. --fields says where these are by other
 * names: prompt=instruction+input,completion=output takes Alpaca's, two texts as one with an empty line between. */
#include "runtime/zdata/zdata.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

/* ---- names of fields ---- */
#define NAMES(X)                                                                                             \
  X(messages)                                                                                                \
  X(conversations)                                                                                           \
  X(prompt)                                                                                                  \
  X(completion) X(chosen) X(rejected) X(text) X(system) X(tools) X(documents) X(chat_template_kwargs)
#define X(name) F_##name,
enum { NAMES(X) NFIELDS };
#undef X
#define X(name) #name,
static const char *const known[NFIELDS] = {NAMES(X)};
#undef X

struct ZdNames {
  const char **field[NFIELDS]; /* of the line; several are joined */
  size_t n[NFIELDS];
};

static int name_of(const char *text, size_t n) {
  for (int i = 0; i < NFIELDS; i++)
    if (strlen(known[i]) == n && !memcmp(known[i], text, n)) return i;
  return -1;
}

/* Reads NAME=FIELD+FIELD, s[0..n). */
static bool take_name(ZdNames *x, ZbArena *a, const char *s, size_t n, ZbErr *err) {
  const char *is = memchr(s, '=', n), *end = s + n;
  int name = is ? name_of(s, (size_t)(is - s)) : -1;
  if (name < 0 || is + 1 == end)
    return zb_fail(err,
                   "NAME=FIELD,..: names are messages, conversations, prompt, completion, chosen, rejected, "
                   "text, system, tools",
                   "--fields cannot be '%s'", zb_show_n(s, n));
  x->n[name] = 0;
  for (const char *at = is + 1; at < end;) {
    const char *plus = memchr(at, '+', (size_t)(end - at));
    if (!plus) plus = end;
    ZB_PUSH(a, x->field[name], x->n[name], zb_strndup(a, at, (size_t)(plus - at)));
    at = plus + 1;
  }
  return true;
}

ZdNames *zd_names(ZbArena *a, const char *text, ZbErr *err) {
  ZdNames *x = ZB_NEW(a, ZdNames);
  for (int i = 0; i < NFIELDS; i++) ZB_PUSH(a, x->field[i], x->n[i], known[i]);
  while (text && *text) {
    size_t n = strcspn(text, ",");
    if (!take_name(x, a, text, n, err)) return NULL;
    text += n + (text[n] == ',');
  }
  return x;
}

/* ---- what is there ---- */
/* Returns a field of the line that is not null; NULL: it has none. */
static cJSON *one(const ZdTalk *t, const char *field) {
  cJSON *x = cJSON_GetObjectItemCaseSensitive(t->root, field);
  return cJSON_IsNull(x) ? NULL : x;
}

/* Returns what a name stands for: a field, or the texts of several that are not empty, as one. */
static cJSON *get(const ZdTalk *t, const ZdNames *names, int name) {
  if (names->n[name] == 1) return one(t, names->field[name][0]);
  ZbText all = {0};
  for (size_t i = 0; i < names->n[name]; i++) {
    const cJSON *x = one(t, names->field[name][i]);
    if (!cJSON_IsString(x) || !*x->valuestring) continue;
    zb_text_add(&all, "%s%s", all.len ? "\n\n" : "", x->valuestring);
  }
  cJSON *made = all.len ? cJSON_AddStringToObject(t->root, "", all.s) : NULL;
  zb_text_free(&all);
  return made;
}

static bool nothing(const char *json, size_t n, ZbErr *err) {
  ZbText list = {0}, text = {0};
  bool object = zd_json_names(json, n, &list, &text);
  zb_fail(err, "--fields prompt=FIELD,completion=FIELD says which are meant",
          "no conversation: neither `messages`, `conversations`, `prompt` with `completion`, nor `text`%s%s",
          object && list.len ? "; it has " : "", object && list.len ? list.s : "");
  zb_text_free(&list);
  zb_text_free(&text);
  return false;
}

/* ---- messages ---- */
static void add(ZdTalk *t, const char *role, const char *content) {
  cJSON *m = cJSON_CreateObject();
  if (!m || !cJSON_AddStringToObject(m, "role", role) || !cJSON_AddStringToObject(m, "content", content) ||
      !cJSON_AddItemToArray(t->messages, m))
    zb_out_of_memory(0);
}

/* Turns ShareGPT's {"from", "value"} into a message; what is one already stays. */
static bool share(ZdTalk *t, const cJSON *m, int at, ZbErr *err) {
  static const char *const roles[][2] = {
      {"human", "user"},     {"user", "user"},      {"gpt", "assistant"},    {"chatgpt", "assistant"},
      {"bing", "assistant"}, {"bard", "assistant"}, {"model", "assistant"},  {"assistant", "assistant"},
      {"system", "system"},  {"tool", "tool"},      {"observation", "tool"}, {"function_response", "tool"}};
  const cJSON *from = cJSON_GetObjectItemCaseSensitive(m, "from"),
              *value = cJSON_GetObjectItemCaseSensitive(m, "value");
  if (!cJSON_IsString(from) || !cJSON_IsString(value))
    return zb_fail(err, NULL, "`conversations[%d]` has neither `role` nor the texts `from` and `value`", at);
  for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
    if (!strcmp(from->valuestring, roles[i][0])) return add(t, roles[i][1], value->valuestring), true;
  return zb_fail(err, "human, gpt, system and tool are known",
                 "`conversations[%d]` is from '%s', whose role is not known", at, zb_show(from->valuestring));
}

static bool add_list(ZdTalk *t, const cJSON *list, const char *name, ZbErr *err) {
  cJSON *m;
  int i = 0;
  if (!cJSON_IsArray(list) || !list->child) return zb_fail(err, NULL, "`%s` is not a list of messages", name);
  cJSON_ArrayForEach(m, list) {
    bool other = cJSON_IsObject(m) && !cJSON_HasObjectItem(m, "role") && cJSON_HasObjectItem(m, "from");
    if (other && !share(t, m, i, err)) return false;
    if (!other) cJSON_AddItemReferenceToArray(t->messages, m);
    i++;
  }
  return true;
}

/* Adds a text as a message, or a list of messages. */
static bool add_side(ZdTalk *t, const cJSON *x, const char *name, const char *role, ZbErr *err) {
  if (cJSON_IsString(x)) return add(t, role, x->valuestring), true;
  return add_list(t, x, name, err);
}

static bool has_system(const cJSON *list) {
  const cJSON *first = cJSON_IsArray(list) ? list->child : NULL,
              *role = cJSON_GetObjectItemCaseSensitive(first, "role");
  if (!role) role = cJSON_GetObjectItemCaseSensitive(first, "from");
  return cJSON_IsString(role) && !strcmp(role->valuestring, "system");
}

/* Tools may be the text of a list, as tables of data have them. */
static bool take_tools(ZdTalk *t, const cJSON *tools, ZbErr *err) {
  ZbErr why;
  if (cJSON_IsString(tools) && *tools->valuestring) {
    cJSON *list = zb_json_parse(tools->valuestring, strlen(tools->valuestring), ZB_JSON_ANY, &why);
    if (!cJSON_IsArray(list)) {
      cJSON_Delete(list);
      return zb_fail(err, NULL, "`tools` is a text, but not that of a list");
    }
    cJSON_AddItemToObject(t->root, "", list);
    tools = list;
  }
  if (tools && !cJSON_IsString(tools) && !cJSON_IsArray(tools))
    return zb_fail(err, NULL, "`tools` is not a list");
  t->tools = cJSON_IsArray(tools) && tools->child ? tools : NULL;
  return true;
}

/* Counts the messages that both begin with. */
static int alike(const cJSON *a, const cJSON *b) {
  int n = 0;
  for (a = a->child, b = b->child; a && b && cJSON_Compare(a, b, true); a = a->next, b = b->next) n++;
  return n;
}

/* Reads two conversations that begin alike. */
static bool take_pair(ZdTalk *t, const ZdNames *names, const cJSON *chosen, const cJSON *rejected,
                      ZbErr *err) {
  const cJSON *ask = get(t, names, F_prompt), *before = get(t, names, F_system);
  for (int i = 0; i < 2; i++) {
    if (!(t->messages = cJSON_CreateArray())) zb_out_of_memory(0);
    if (cJSON_IsString(before) && *before->valuestring && !has_system(ask ? ask : chosen))
      add(t, "system", before->valuestring);
    if ((ask && !add_side(t, ask, "prompt", "user", err)) ||
        !add_side(t, i ? chosen : rejected, i ? "chosen" : "rejected", "assistant", err))
      return false;
    if (!i) t->rejected = t->messages;
  }
  t->from = alike(t->messages, t->rejected);
  return true;
}

static bool take_messages(ZdTalk *t, const ZdNames *names, const char *json, size_t n, ZbErr *err) {
  const cJSON *list = get(t, names, F_messages), *before = get(t, names, F_system),
              *ask = get(t, names, F_prompt), *answer = get(t, names, F_completion),
              *chosen = get(t, names, F_chosen), *rejected = get(t, names, F_rejected);
  const char *name = list ? "messages" : "conversations";
  if (chosen && rejected) return take_pair(t, names, chosen, rejected, err);
  if (!list) list = get(t, names, F_conversations);
  if (!list && !(ask && answer)) return nothing(json, n, err);
  if (!(t->messages = cJSON_CreateArray())) zb_out_of_memory(0);
  if (cJSON_IsString(before) && *before->valuestring && !has_system(list ? list : ask))
    add(t, "system", before->valuestring);
  if (list) return add_list(t, list, name, err);
  if (!add_side(t, ask, "prompt", "user", err)) return false;
  t->from = cJSON_GetArraySize(t->messages);
  return add_side(t, answer, "completion", "assistant", err);
}

bool zd_talk_read(ZdTalk *t, const ZdNames *names, const char *json, size_t n, ZbErr *err) {
  *t = (ZdTalk){0};
  char *copy = malloc(n + 1);
  if (!copy) zb_out_of_memory(n);
  memcpy(copy, json, n);
  copy[n] = 0;
  t->root = zb_json_parse(copy, n, ZB_JSON_ANY, err);
  if (t->root) zb_json_digits(t->root, copy);
  free(copy);
  if (!t->root) return false;
  if (zb_json_has_nul(json, n)) return zb_fail(err, NULL, "a text of it has a NUL");
  if (!cJSON_IsObject(t->root)) return zb_fail(err, NULL, "it is not a JSON object");
  const cJSON *whole = get(t, names, F_text);
  bool talks = get(t, names, F_messages) || get(t, names, F_conversations) || get(t, names, F_prompt) ||
               get(t, names, F_chosen);
  if (whole && !talks) {
    t->text = cJSON_IsString(whole) ? whole->valuestring : NULL;
    return t->text || zb_fail(err, NULL, "`text` is not a text");
  }
  t->documents = get(t, names, F_documents);
  t->more = get(t, names, F_chat_template_kwargs);
  return take_tools(t, get(t, names, F_tools), err) && take_messages(t, names, json, n, err);
}

void zd_talk_free(ZdTalk *t) {
  if (t->rejected != t->messages) cJSON_Delete(t->rejected);
  cJSON_Delete(t->messages);
  cJSON_Delete(t->root);
  *t = (ZdTalk){0};
}
