/* Conversations that clients send, as ids. */
#include "runtime/exec/answer/answer.h"

#include <cjson/cJSON.h>

static bool take_switch(const cJSON *chat, const char *name, bool *out, ZbErr *err) {
  const cJSON *v = cJSON_GetObjectItemCaseSensitive(chat, name);
  if (v && !cJSON_IsNull(v) && !cJSON_IsBool(v)) return zx_query_wrong(name, v, "true or false", err);
  if (cJSON_IsBool(v)) *out = cJSON_IsTrue(v);
  return true;
}

bool zx_chat_ids(const ZtChats *c, ZtCoder *coder, const cJSON *chat, int64_t now, ZtIds *out, ZbErr *err) {
  ZtChat x = {.messages = cJSON_GetObjectItemCaseSensitive(chat, "messages"),
              .tools = cJSON_GetObjectItemCaseSensitive(chat, "tools"),
              .documents = cJSON_GetObjectItemCaseSensitive(chat, "documents"),
              .more = cJSON_GetObjectItemCaseSensitive(chat, "chat_template_kwargs"),
              .tokens = c->tokens,
              .now = now};
  ZtRendered r;
  if (!c->usual) return *err = c->why, false;
  if (!take_switch(chat, "continue_final_message", &x.continue_final_message, err)) return false;
  x.add_generation_prompt = !x.continue_final_message;
  if (!take_switch(chat, "add_generation_prompt", &x.add_generation_prompt, err)) return false;
  const ZtTemplate *t = zt_chats_template(c, x.tools);
  if (!cJSON_IsArray(x.tools) || !x.tools->child) x.tools = NULL;
  if (!zt_template_apply(t, &x, &r, err)) return false;
  bool ok = r.text.len ? zt_template_encode(t, coder, &r, NULL, out, err)
                       : zb_fail(err, NULL, "the chat template writes nothing for this conversation");
  zt_rendered_free(&r);
  return ok;
}
