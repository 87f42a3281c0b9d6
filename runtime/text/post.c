/* Post-processors: what is put before and after the tokens of a text. */
#include "runtime/text/json.h"

typedef struct {
  uint32_t *id, n;
} List;

/* The ids that `special_tokens` has for a name. */
static bool add_special(ZtTokenizer *t, const cJSON *o, const char *name, List *to, ZbErr *err) {
  static const char part[] = "post_processor TemplateProcessing";
  const cJSON *ids = zt_json(zt_json(zt_json(o, "special_tokens"), name), "ids"), *x;
  if (!cJSON_IsArray(ids))
    return zb_fail(err, NULL, "%s: no ids for %s in `special_tokens`", part, zb_show(name));
  cJSON_ArrayForEach(x, ids) {
    if (!cJSON_IsNumber(x) || !(x->valuedouble >= 0 && x->valuedouble < t->size))
      return zb_fail(err, NULL, "%s: an id of %s is none of the tokenizer's %u", part, zb_show(name),
                     t->size);
    if (to->n == ZT_PARTS)
      return zb_fail(err, NULL, "%s: more than %d tokens go around a text", part, ZT_PARTS);
    ZB_PUSH(t->arena, to->id, to->n, (uint32_t)x->valuedouble);
  }
  return true;
}

/* Puts a processor's tokens around those of the ones before it. */
static bool surround(ZtTokenizer *t, const char *part, List before, List after, ZbErr *err) {
  if (t->nbefore + t->nafter + before.n + after.n > ZT_PARTS)
    return zb_fail(err, NULL, "%s: more than %d tokens go around a text", part, ZT_PARTS);
  for (uint32_t i = 0; i < t->nbefore; i++) ZB_PUSH(t->arena, before.id, before.n, t->before[i]);
  for (uint32_t i = 0; i < after.n; i++) ZB_PUSH(t->arena, t->after, t->nafter, after.id[i]);
  t->before = before.id;
  t->nbefore = before.n;
  return true;
}

static bool read_template(ZtTokenizer *t, const cJSON *o, ZbErr *err) {
  static const char part[] = "post_processor TemplateProcessing";
  const cJSON *single = zt_json(o, "single"), *x;
  List around[2] = {0};
  int texts = 0;
  if (!cJSON_IsArray(single)) return zb_fail(err, NULL, "%s: `single` is not a list", part);
  if (cJSON_GetArraySize(single) > ZT_PARTS)
    return zb_fail(err, NULL, "%s: `single` has more than %d parts", part, ZT_PARTS);
  cJSON_ArrayForEach(x, single) {
    const cJSON *special = zt_json(x, "SpecialToken"), *text = zt_json(x, "Sequence");
    const char *id = NULL;
    if (!special == !text) return zb_fail(err, NULL, "%s: `single` has neither token nor text", part);
    if (!zt_json_text(t, part, special ? special : text, "id", ZT_MUST, &id, err)) return false;
    if (special && !add_special(t, o, id, &around[texts > 0], err)) return false;
    if (text && (texts++ || strcmp(id, "A")))
      return zb_fail(err, NULL, "%s: `single` has not the text A, once", part);
  }
  if (!texts) return zb_fail(err, NULL, "%s: `single` has not the text A, once", part);
  return surround(t, part, around[0], around[1], err);
}

/* RobertaProcessing and BertProcessing: {"cls": ["<s>", 0], "sep": ["</s>", 2]} */
static bool read_pair(ZtTokenizer *t, const cJSON *o, const char *type, ZbErr *err) {
  static const char *const keys[] = {"cls", "sep"};
  List around[2] = {0};
  for (int i = 0; i < 2; i++) {
    const cJSON *pair = zt_json(o, keys[i]),
                *id = cJSON_IsArray(pair) && pair->child ? pair->child->next : NULL;
    if (!cJSON_IsNumber(id) || !(id->valuedouble >= 0 && id->valuedouble < t->size))
      return zb_fail(err, NULL, "post_processor %s: `%s` is not a token and its id", type, keys[i]);
    ZB_PUSH(t->arena, around[i].id, around[i].n, (uint32_t)id->valuedouble);
  }
  return surround(t, type, around[0], around[1], err);
}

static bool read_one(ZtTokenizer *t, const cJSON *o, const char *type, ZbErr *err) {
  if (!strcmp(type, "ByteLevel")) return true; /* it changes offsets only */
  if (!strcmp(type, "TemplateProcessing")) return read_template(t, o, err);
  if (!strcmp(type, "RobertaProcessing") || !strcmp(type, "BertProcessing"))
    return read_pair(t, o, type, err);
  return zb_fail(err, NULL, "the post_processor %s is not supported", zb_show(type));
}

bool zt_post_read(ZtTokenizer *t, const cJSON *root, ZbErr *err) {
  return zt_json_sequence(t, "post_processor", zt_json(root, "post_processor"), "processors", read_one, err);
}
