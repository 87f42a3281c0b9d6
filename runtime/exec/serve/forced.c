/* Calls that must come: the answer fits a schema, an object with the name of a tool and its arguments. */
#include "runtime/exec/serve/room.h"

#include <string.h>

static const char *name_of(const cJSON *tool) {
  return zb_json_member(zb_json_member(tool, "function"), "name")->valuestring;
}

/* Lets references to a schema's own places be found where the schema stands now. */
static void move_references(cJSON *schema, const char *to) {
  for (cJSON *v = schema->child, *next; v; v = next) {
    next = v->next;
    move_references(v, to);
    if (!v->string || strcmp(v->string, "$ref") || !cJSON_IsString(v) || v->valuestring[0] != '#') continue;
    ZbText t = {0};
    zb_text_add(&t, "%s%s", to, v->valuestring + 1);
    cJSON_ReplaceItemInObjectCaseSensitive(schema, "$ref", cJSON_CreateString(t.s));
    zb_text_free(&t);
  }
}

/* Returns the schema of a call, which stands at a place of the whole. */
static cJSON *call_schema(const cJSON *tool, const char *arguments, const char *place) {
  const cJSON *given = zb_json_member(zb_json_member(tool, "function"), "parameters");
  cJSON *schema = cJSON_CreateObject(), *all = cJSON_AddObjectToObject(schema, "properties"),
        *name = cJSON_AddObjectToObject(all, "name"),
        *own = cJSON_IsObject(given) ? cJSON_Duplicate(given, true) : cJSON_CreateObject(),
        *needed = cJSON_CreateArray();
  ZbText at = {0};
  zb_text_add(&at, "%s/properties/%s", place, arguments);
  move_references(own, at.s);
  zb_text_free(&at);
  if (!zb_json_member(own, "type") && !zb_json_member(own, "$ref"))
    cJSON_AddStringToObject(own, "type", "object");
  cJSON_AddStringToObject(schema, "type", "object");
  cJSON_AddStringToObject(name, "const", name_of(tool));
  cJSON_AddItemToObject(all, arguments, own);
  cJSON_AddItemToArray(needed, cJSON_CreateString("name"));
  cJSON_AddItemToArray(needed, cJSON_CreateString(arguments));
  cJSON_AddItemToObject(schema, "required", needed);
  cJSON_AddFalseToObject(schema, "additionalProperties");
  return schema;
}

/* Returns the schema of a call of any of these tools, or of the one that is named; NULL: there is none. */
static cJSON *calls_schema(const ZxReading *x, const cJSON *tools) {
  /* Llama 3 was trained to write `parameters`, others `arguments`. */
  bool llama = zt_id(x->s->how->words->t, "<|python_tag|>") != ZT_NONE;
  const char *arguments = llama ? "parameters" : "arguments";
  cJSON *any = x->forced_name ? NULL : cJSON_CreateObject(),
        *list = any ? cJSON_AddArrayToObject(any, "anyOf") : NULL;
  const cJSON *tool;
  int i = 0;
  cJSON_ArrayForEach(tool, tools) {
    char place[32];
    snprintf(place, sizeof place, "#/anyOf/%d", i++);
    if (list) cJSON_AddItemToArray(list, call_schema(tool, arguments, place));
    else if (!strcmp(name_of(tool), x->forced_name)) return call_schema(tool, arguments, "#");
  }
  return any;
}

bool zx_request_forced(ZxReading *x, const cJSON *tools) {
  if (!tools)
    return zx_refuse(x->r, 400, "tool_choice", "give `tools`", "a tool must be called, and there is none");
  if (x->q.format != ZX_ANY_TEXT)
    return zx_refuse(x->r, 400, "tool_choice", "leave one of them out",
                     "an answer cannot be a call and fit `response_format`, too");
  cJSON *schema = calls_schema(x, tools);
  if (!schema)
    return zx_refuse(x->r, 400, "tool_choice", NULL, "no tool has the name '%s'", zb_show(x->forced_name));
  char *text = cJSON_PrintUnformatted(schema);
  cJSON_Delete(schema);
  x->q.format = ZX_JSON_SCHEMA;
  x->q.nschema = strlen(text);
  x->q.schema = zb_strndup(x->j->a, text, x->q.nschema);
  x->j->one_call = true;
  cJSON_free(text);
  ZxShape *s = zx_words_shape(x->s->how->words, &x->q, &x->r->err);
  zx_shape_release(s);
  return s || zx_refuse_field(x->r, "tools");
}
