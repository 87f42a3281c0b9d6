/* Conversations: messages and tools become a prompt, by the chat template of the model. */
#include "runtime/exec/serve/room.h"

#include <string.h>

/* Checks that tools are functions with names. */
static bool check_tools(const cJSON *tools, ZxRefusal *r) {
  const cJSON *t;
  cJSON_ArrayForEach(t, tools) {
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(t, "type"),
                *function = cJSON_GetObjectItemCaseSensitive(t, "function"),
                *name = cJSON_GetObjectItemCaseSensitive(function, "name");
    if (!cJSON_IsString(type) || strcmp(type->valuestring, "function") || !cJSON_IsString(name))
      return zx_refuse(r, 400, "tools", "write {\"type\": \"function\", \"function\": {\"name\": ..}}",
                       "`tools` has one that is not a function with a name");
  }
  return true;
}

/* Renders a conversation into ids, and makes the part of it. */
static bool render(ZxReading *x, const cJSON *chat) {
  ZtIds id = {0};
  ZxQuery q = x->q;
  ZtCoder *c = zx_coder(x->s);
  bool ok =
      zx_chat_ids(&x->s->how->words->chats, c, chat, 0, &id, &x->r->err) || zx_refuse_field(x->r, "messages");
  zx_coder_back(x->s, c);
  q.token = id.id;
  q.ntokens = (uint32_t)id.n;
  ok = ok && zx_request_part(x, &q);
  zt_ids_free(&id);
  return ok;
}

/* Makes the conversation of a request to /v1/messages. NULL: it is refused. */
static cJSON *translate(ZxReading *x) {
  cJSON *messages = zx_messages_open(x->messages, x->system, x->r), *chat = cJSON_CreateObject(),
        *tools = messages && x->j->tools ? zx_messages_tools(x->tools, x->r) : NULL;
  if (messages) cJSON_AddItemToObject(chat, "messages", messages);
  if (tools) cJSON_AddItemToObject(chat, "tools", tools);
  if (messages && (tools || !x->j->tools)) return chat;
  cJSON_Delete(chat);
  return NULL;
}

/* Says whether the marks of calls are special tokens, which give no text unless they are kept. */
static bool marks_are_special(const ZtTokenizer *t) {
  static const char *const marks[] = {"<tool_call>", "</tool_call>", "<|python_tag|>"};
  bool any = false;
  for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
    uint32_t id = zt_id(t, marks[i]);
    any |= id != ZT_NONE && zt_special(t, id);
  }
  return any;
}

bool zx_request_chat(ZxReading *x) {
  bool talks = x->j->form == ZX_MESSAGE;
  if (!x->messages) return zx_refuse(x->r, 400, "messages", NULL, "`messages` is missing");
  x->j->part = ZB_NEW(x->j->a, ZxPart);
  x->j->tools = x->tools && !x->no_tools;
  x->q.keep_special |= x->j->tools && marks_are_special(x->s->how->words->t);
  if (!talks && x->tools && !check_tools(x->tools, x->r)) return false;
  if (!talks && !x->j->tools) cJSON_DeleteItemFromObjectCaseSensitive(x->body, "tools");
  cJSON *own = talks ? translate(x) : NULL;
  const cJSON *chat = own ? own : x->body, *tools = cJSON_GetObjectItemCaseSensitive(chat, "tools");
  bool ok =
      (own || !talks) && (!x->forced || zx_request_forced(x, x->j->tools ? tools : NULL)) && render(x, chat);
  cJSON_Delete(own);
  return ok;
}
