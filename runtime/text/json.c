/* Members of a tokenizer.json. */
#include "runtime/text/json.h"

const cJSON *zt_json(const cJSON *o, const char *key) {
  const cJSON *x = cJSON_IsObject(o) ? cJSON_GetObjectItemCaseSensitive(o, key) : NULL;
  return cJSON_IsNull(x) ? NULL : x;
}

static bool missing(const char *part, const char *key, bool must, ZbErr *err) {
  return !must || zb_fail(err, NULL, "%s: `%s` is missing", part, key);
}

bool zt_json_bool(const char *part, const cJSON *o, const char *key, bool must, bool *out, ZbErr *err) {
  const cJSON *x = zt_json(o, key);
  if (!x) return missing(part, key, must, err);
  if (!cJSON_IsBool(x)) return zb_fail(err, NULL, "%s: `%s` is neither true nor false", part, key);
  *out = cJSON_IsTrue(x);
  return true;
}

bool zt_json_text(ZtTokenizer *t, const char *part, const cJSON *o, const char *key, bool must,
                  const char **out, ZbErr *err) {
  const cJSON *x = zt_json(o, key);
  if (!x) return missing(part, key, must, err);
  if (!cJSON_IsString(x)) return zb_fail(err, NULL, "%s: `%s` is not text", part, key);
  size_t n = strlen(x->valuestring);
  if (zt_utf8_valid(x->valuestring, n) < n) return zb_fail(err, NULL, "%s: `%s` is not UTF-8", part, key);
  *out = zb_strdup(t->arena, x->valuestring);
  return true;
}

bool zt_json_count(const char *part, const cJSON *o, const char *key, bool must, uint32_t most, uint32_t *out,
                   ZbErr *err) {
  const cJSON *x = zt_json(o, key);
  if (!x) return missing(part, key, must, err);
  if (!cJSON_IsNumber(x) || !(x->valuedouble >= 0 && x->valuedouble <= most) ||
      x->valuedouble != (double)(uint32_t)x->valuedouble)
    return zb_fail(err, NULL, "%s: `%s` is not a whole number from 0 to %u", part, key, most);
  *out = (uint32_t)x->valuedouble;
  return true;
}

bool zt_json_pattern(ZtTokenizer *t, const char *part, const cJSON *o, const ZtPattern **out, ZbErr *err) {
  const cJSON *x = zt_json(o, "pattern");
  const char *literal = NULL, *regex = NULL;
  if (!zt_json_text(t, part, x, "String", ZT_MAY, &literal, err) ||
      !zt_json_text(t, part, x, "Regex", ZT_MAY, &regex, err))
    return false;
  if (!literal == !regex)
    return zb_fail(err, NULL, "%s: `pattern` is neither {\"String\": ...} nor {\"Regex\": ...}", part);
  *out = zt_pattern(t, literal ? literal : regex, literal != NULL, err);
  if (!*out) zb_fail_more(err, " (in the pattern of %s)", part);
  if (*out && strstr(part, "Replace") &&
      zt_may_be_empty(*out)) /* what the library puts where then is none of its promises */
    return zb_fail(err, NULL, "%s: the regular expression %s may match nothing, which is not supported", part,
                   zb_show(regex));
  return *out;
}

static bool sequence(ZtTokenizer *t, const char *what, const cJSON *o, const char *list, ZtJsonPart *one,
                     int depth, uint32_t *count, ZbErr *err) {
  const char *type = NULL;
  if (!zt_json_text(t, what, o, "type", ZT_MUST, &type, err)) return false;
  if (++*count > ZT_PARTS) return zb_fail(err, NULL, "%s: it has more than %d parts", what, ZT_PARTS);
  if (strcmp(type, "Sequence")) return one(t, o, type, err);
  if (depth == 16) return zb_fail(err, NULL, "%s: Sequences are nested too deeply", what);
  const cJSON *parts = zt_json(o, list), *x;
  if (!cJSON_IsArray(parts)) return zb_fail(err, NULL, "%s Sequence: `%s` is not a list", what, list);
  cJSON_ArrayForEach(x, parts) if (!sequence(t, what, x, list, one, depth + 1, count, err)) return false;
  return true;
}

bool zt_json_sequence(ZtTokenizer *t, const char *what, const cJSON *o, const char *list, ZtJsonPart *one,
                      ZbErr *err) {
  uint32_t count = 0;
  return !o || sequence(t, what, o, list, one, 0, &count, err);
}
