/* The chat template of a tokenizer's folder. */
#include "runtime/text/template/template.h"

#include <cjson/cJSON.h>
#include <string.h>
#include <unistd.h>

static const char again[] = "take the file again from where it came";

/* ---- which template ---------------------------------------------------------------------------------------- */
static bool compile(ZtChats *c, ZtTemplate **out, const char *text, size_t n, const char *name, ZbErr *err) {
  c->name = name;
  *out = zt_template_new(text, n, name, err);
  return *out || (snprintf(err->help, sizeof err->help, "give another one with --chat-template FILE"), false);
}

static bool open_file(ZtChats *c, ZbArena *a, const char *path, ZbErr *err) {
  size_t n;
  const char *text = zb_read_file(a, path, ZT_TEMPLATE_LIMIT, &n, err);
  return text && compile(c, &c->usual, text, n, path, err);
}

/* Takes one of several templates, which have names: `default`, and `tool_use` for conversations with tools. */
static bool take_named(ZtChats *c, const cJSON *x, const char *path, ZbErr *err) {
  const cJSON *name = cJSON_GetObjectItemCaseSensitive(x, "name"),
              *text = cJSON_GetObjectItemCaseSensitive(x, "template");
  if (!cJSON_IsString(name) || !cJSON_IsString(text))
    return zb_fail(err, again, "%s: a chat template of a list has no `name` or no `template`", zb_show(path));
  ZtTemplate **to = !strcmp(name->valuestring, "default")    ? &c->usual
                    : !strcmp(name->valuestring, "tool_use") ? &c->tools
                                                             : NULL;
  return !to || *to || compile(c, to, text->valuestring, strlen(text->valuestring), path, err);
}

static bool take_config(ZtChats *c, const cJSON *config, const char *path, ZbErr *err) {
  const cJSON *v = cJSON_GetObjectItemCaseSensitive(config, "chat_template"), *x;
  if (!v || cJSON_IsNull(v)) return true;
  if (cJSON_IsString(v)) return compile(c, &c->usual, v->valuestring, strlen(v->valuestring), path, err);
  if (!cJSON_IsArray(v))
    return zb_fail(err, again, "%s: `chat_template` is neither a text nor a list of templates",
                   zb_show(path));
  cJSON_ArrayForEach(x, v) if (!take_named(c, x, path, err)) return false;
  return c->usual || !v->child ||
         zb_fail(err, "give one with --chat-template FILE",
                 "%s: `chat_template` is a list, and none of it is named `default`", zb_show(path));
}

/* ---- special tokens by name --------------------------------------------------------------------------------- */
/* Adds `bos_token` and all others that a file says, as a text or an object with `content`. What it says to be null, no
 * other file names. */
static void take_tokens(ZtChats *c, const cJSON *file) {
  for (const cJSON *x = file ? file->child : NULL; x; x = x->next) {
    const cJSON *text = cJSON_IsObject(x) ? cJSON_GetObjectItemCaseSensitive(x, "content") : x;
    if (!zb_ends(x->string, "_token") || cJSON_HasObjectItem(c->tokens, x->string)) continue;
    if (cJSON_IsString(text)) cJSON_AddStringToObject(c->tokens, x->string, text->valuestring);
    else if (cJSON_IsNull(text)) cJSON_AddNullToObject(c->tokens, x->string);
  }
}

/* ---- opening -------------------------------------------------------------------------------------------------- */
static bool open_folder(ZtChats *c, ZbArena *a, const char *folder, const char *file, ZtFolderJson *read,
                        ZbErr *err) {
  cJSON *config = NULL, *map = NULL;
  const char *own = folder ? zb_printf(a, "%s/chat_template.jinja", folder) : NULL;
  bool ok = !folder || (read(a, folder, "tokenizer_config.json", &config, err) &&
                        read(a, folder, "special_tokens_map.json", &map, err));
  take_tokens(c, config);
  take_tokens(c, map);
  if (!file && own && access(own, F_OK) == 0) file = own;
  if (ok && file) ok = open_file(c, a, file, err);
  else if (ok && folder) ok = take_config(c, config, zb_printf(a, "%s/tokenizer_config.json", folder), err);
  cJSON_Delete(config);
  cJSON_Delete(map);
  return ok;
}

bool zt_chats_open(ZtChats *c, ZbArena *a, const char *folder, const char *file, ZtFolderJson *read,
                   ZbErr *err) {
  static const char help[] = "give one with --chat-template FILE";
  *c = (ZtChats){.tokens = cJSON_CreateObject()};
  if (folder)
    zb_fail(&c->why, help,
            "%s has no chat template: neither chat_template.jinja, nor one in tokenizer_config.json",
            zb_show(folder));
  else zb_fail(&c->why, help, "there is no tokenizer's folder, and so no chat template");
  if (open_folder(c, a, folder, file, read, err)) return true;
  zt_chats_close(c);
  c->why = *err;
  return false;
}

void zt_chats_close(ZtChats *c) {
  zt_template_free(c->usual);
  zt_template_free(c->tools);
  cJSON_Delete(c->tokens);
  *c = (ZtChats){.why = c->why};
}

const ZtTemplate *zt_chats_template(const ZtChats *c, const cJSON *tools) {
  return cJSON_IsArray(tools) && tools->child && c->tools ? c->tools : c->usual;
}
