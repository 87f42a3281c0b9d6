/* A conversation as clients send it becomes what a template sees. */
#include "runtime/text/template/inside.h"

#include <cjson/cJSON.h>

static bool fail(ZtRun *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool fail(ZtRun *r, const char *fmt, ...) {
  char text[512];
  va_list ap;
  if (r->failed) return false;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  r->failed = true;
  return zb_fail(r->err, NULL, "%s", text);
}

/* A part is {"type": "text", "text": ..}. */
static bool check_part(ZtRun *r, const cJSON *part, int message, int k) {
  const cJSON *type = zb_json_member(part, "type"), *text = zb_json_member(part, "text");
  if (!cJSON_IsString(type))
    return fail(r, "`messages[%d].content[%d]` is not an object with a `type`", message, k);
  if (strcmp(type->valuestring, "text"))
    return fail(r, "`messages[%d].content[%d]` is of the type `%s`; only `text` is supported", message, k,
                zb_show(type->valuestring));
  return cJSON_IsString(text) || fail(r, "`messages[%d].content[%d]` has no `text`", message, k);
}

static bool check_content(ZtRun *r, const cJSON *content, int message) {
  int k = 0;
  const cJSON *part;
  if (!content || cJSON_IsString(content) || cJSON_IsNull(content)) return true;
  if (!cJSON_IsArray(content))
    return fail(r, "`messages[%d].content` is neither a string nor a list of parts", message);
  cJSON_ArrayForEach(part, content) if (!check_part(r, part, message, k++)) return false;
  return true;
}

/* The texts of parts, one a line. */
static ZtValue parts(ZtRun *r, const cJSON *content, uint8_t mark) {
  ZtMade m = {0};
  for (const cJSON *part = content->child; part && !r->failed; part = part->next) {
    if (part != content->child) zt_put(r, &m, "\n", 1, NULL, mark);
    ZtValue v = zt_from_json(r, zb_json_member(part, "text"), mark);
    if (v.kind == ZT_STRING) zt_put_string(r, &m, v.s);
  }
  return zt_made(r, &m);
}

/* Arguments that are the text of a JSON object are that object; absent and empty ones an empty one. */
static void open_arguments(ZtRun *r, ZtValue function) {
  if (function.kind != ZT_DICT) return;
  const ZtValue *v = zt_dict_named(function.d, "arguments");
  bool is = true;
  ZtValue object = zt_undefined(NULL);
  if (!v || v->kind != ZT_STRING) return;
  if (v->s->n) object = zt_parse_json(r, v->s, &is);
  else {
    ZtDict *d = zt_dict_new(r, 0);
    if (d) object = (ZtValue){.kind = ZT_DICT, .d = d};
  }
  if (is && object.kind == ZT_DICT) function.d->value[v - function.d->value] = object;
}

static bool open_calls(ZtRun *r, const ZtDict *message, int at) {
  const ZtValue *calls = zt_dict_named(message, "tool_calls"), *function;
  if (!calls || calls->kind == ZT_NULL) return true;
  if (calls->kind != ZT_LIST) return fail(r, "`messages[%d].tool_calls` is not a list", at);
  for (size_t i = 0; i < calls->l->n; i++) {
    if (calls->l->item[i].kind != ZT_DICT)
      return fail(r, "`messages[%d].tool_calls[%zu]` is not an object", at, i);
    function = zt_dict_named(calls->l->item[i].d, "function");
    open_arguments(r, function ? *function : calls->l->item[i]);
  }
  return !r->failed;
}

/* A text as the one part of a list. */
static ZtValue one_part(ZtRun *r, ZtValue text) {
  ZtDict *d = zt_dict_new(r, 2);
  ZtValue *item = zt_take(r, 1, sizeof *item);
  if (!d || !item) return zt_undefined(NULL);
  zt_dict_put(r, d, zt_text(r, "type"), zt_text(r, "text"));
  zt_dict_put(r, d, zt_text(r, "text"), text);
  *item = (ZtValue){.kind = ZT_DICT, .d = d};
  return zt_list(r, ZT_LIST, item, 1);
}

/* A content as the template can take it: a text or parts. */
static ZtValue content_of(ZtRun *r, const cJSON *content, uint8_t mark) {
  const ZtTemplate *t = r->t;
  if (cJSON_IsArray(content))
    return t->takes_parts ? zt_from_json(r, content, mark) : parts(r, content, mark);
  ZtValue text = zt_from_json(r, content, mark);
  return t->takes_parts && !t->takes_text && text.kind == ZT_STRING ? one_part(r, text) : text;
}

/* The reasoning of an answer goes by three names; templates know the last, gpt-oss' the first. */
static void name_reasoning(ZtRun *r, ZtDict *message) {
  static const char *const names[] = {"thinking", "reasoning", "reasoning_content"};
  const ZtValue *v = NULL;
  for (int i = 2; i >= 0 && !v; i = i == 2 ? 0 : i == 0 ? 1 : -1) v = zt_dict_named(message, names[i]);
  if (!v) return;
  ZtValue reasoning = *v;
  if (!zt_dict_named(message, "thinking")) zt_dict_put(r, message, zt_text(r, "thinking"), reasoning);
  zt_dict_put(r, message, zt_text(r, "reasoning_content"), reasoning);
}

/* Members that are null are absent, as transformers has it, but for those of which the template asks if
 * they are none. */
static ZtValue message(ZtRun *r, const cJSON *x, int at) {
  const cJSON *role = zb_json_member(x, "role"), *content = zb_json_member(x, "content");
  if (!cJSON_IsObject(x)) fail(r, "`messages[%d]` is not an object", at);
  else if (!cJSON_IsString(role)) fail(r, "`messages[%d].role` is not a string", at);
  else check_content(r, content, at);
  ZtDict *d = zt_dict_new(r, 8);
  if (!d) return zt_undefined(NULL);
  uint8_t mark = !strcmp(role->valuestring, "assistant") ? ZT_OF_ASSISTANT : ZT_OF_OTHERS,
          last = r->chat->continue_final_message && !x->next ? ZT_OF_LAST : 0;
  for (const cJSON *c = x->child; c && zt_step(r, 0); c = c->next) {
    if (cJSON_IsNull(c) && zb_names_find(&r->t->asked_none, c->string) == ZB_NO_NAME) continue;
    ZtValue v = c == content ? content_of(r, c, mark | last) : zt_from_json(r, c, mark);
    zt_dict_put(r, d, zt_text_given(r, c->string, mark), v);
  }
  if (!r->failed) name_reasoning(r, d);
  open_calls(r, d, at);
  return r->failed ? zt_undefined(NULL) : (ZtValue){.kind = ZT_DICT, .d = d};
}

static ZtValue messages(ZtRun *r) {
  const cJSON *list = r->chat->messages;
  if (!cJSON_IsArray(list)) fail(r, "`messages` is not a list");
  else if (!list->child) fail(r, "`messages` is empty");
  if (r->failed) return zt_undefined(NULL);
  size_t n = (size_t)cJSON_GetArraySize(list), i = 0;
  ZtValue *item = zt_take(r, n, sizeof *item);
  for (const cJSON *x = list->child; x && item && !r->failed; x = x->next, i++)
    item[i] = message(r, x, (int)i);
  return zt_list(r, ZT_LIST, item, i);
}

static void variable(ZtRun *r, const char *name, ZtValue v) {
  uint32_t n = zb_names_find(&r->t->names, name);
  if (n != ZB_NO_NAME) zt_assign(r, n, v);
}

/* The members of an object, of which null is none. */
static bool variables(ZtRun *r, const cJSON *o, const char *what, uint8_t mark) {
  if (o && !cJSON_IsObject(o) && !cJSON_IsNull(o)) return fail(r, "`%s` is not an object", what);
  for (const cJSON *x = o ? o->child : NULL; x && !r->failed; x = x->next)
    if (mark || cJSON_IsString(x)) variable(r, x->string, zt_from_json(r, x, mark));
  return !r->failed;
}

static bool list_or_none(ZtRun *r, const cJSON *x, const char *name) {
  if (x && !cJSON_IsNull(x) && !cJSON_IsArray(x)) return fail(r, "`%s` is not a list", name);
  variable(r, name,
           zt_from_json(r, x, ZT_OF_OTHERS)); /* none, where there are none, as transformers passes it */
  return !r->failed;
}

bool zt_chat_variables(ZtRun *r) {
  const ZtChat *c = r->chat;
  if (!variables(r, c->tokens, "tokens", 0) || !variables(r, c->more, "chat_template_kwargs", ZT_OF_OTHERS) ||
      !list_or_none(r, c->tools, "tools") || !list_or_none(r, c->documents, "documents"))
    return false;
  variable(r, "add_generation_prompt", zt_bool(c->add_generation_prompt));
  variable(r, "messages", messages(r));
  return !r->failed;
}
