/* A JSON schema becomes rules: one for each schema in it that is come to. */
#include "runtime/exec/shape/grammar.h"

#include <cjson/cJSON.h>
#include <stdlib.h>

/* ---- words ---------------------------------------------------------------------------------------------------- */
enum {
  NULLS = 1,
  BOOLEANS = 2,
  INTEGERS = 4,
  NUMBERS = 8,
  STRINGS = 16,
  LISTS = 32,
  OBJECTS = 64,
  ALL = 127
};
/* clang-format off */
/* Words of a schema: the types whose values they are about. Those of ALL stand alone: beside them is nothing but what
 * describes, or for enum and const a type. */
#define WORDS(X) \
  X(type, "type", 0) \
  X(enums, "enum", ALL) X(constant, "const", ALL) X(any_of, "anyOf", ALL) X(ref, "$ref", ALL) \
  X(properties, "properties", OBJECTS) X(required, "required", OBJECTS) \
  X(additional, "additionalProperties", OBJECTS) \
  X(items, "items", LISTS) X(prefix_items, "prefixItems", LISTS) \
  X(min_items, "minItems", LISTS) X(max_items, "maxItems", LISTS) \
  X(min_length, "minLength", STRINGS) X(max_length, "maxLength", STRINGS)
/* clang-format on */
typedef enum {
#define X(name, word, about) W_##name,
  WORDS(X)
#undef X
      NWORDS
} Word;
static const struct {
  const char *word;
  int about;
} words[] = {
#define X(name, word, about) {word, about},
    WORDS(X)
#undef X
};
/* They change nothing of what fits; schemas in $defs are read when a $ref names them. */
static const char *const describing[] = {"title",    "description", "default",  "examples",
                                         "$defs",    "definitions", "$schema",  "$id",
                                         "$comment", "deprecated",  "readOnly", "writeOnly"};
static const struct {
  const char *name;
  int type;
} types[] = {{"null", NULLS},     {"boolean", BOOLEANS}, {"integer", INTEGERS}, {"number", NUMBERS},
             {"string", STRINGS}, {"array", LISTS},      {"object", OBJECTS}};
enum { TYPES = sizeof types / sizeof *types, DESCRIBING = sizeof describing / sizeof *describing };

/* ---- reading ----------------------------------------------------------------------------------------------------- */
/* Where a schema stands: behind another one, by words and numbers. */
typedef struct Place Place;
struct Place {
  const Place *in;
  const char *step; /* NULL: none, or an index */
  uint32_t index;
};
/* A schema, or a value that must come as it is, whose rule is to be filled. */
typedef struct {
  const cJSON *json;
  const Place *at;
  uint32_t rule;
  bool constant;
} Item;
typedef struct {
  ZxGrammar *g;
  ZxLiterals l;
  const cJSON *root;
  bool strict;
  Item *item;
  uint32_t nitems;
  uint32_t *known, mask; /* items by their JSON, + 1; 0: free */
  ZbErr *err;
} Reader;
/* The words of a schema. */
typedef struct {
  const cJSON *of[NWORDS];
  const Place *at;
} Schema;

static const Place *step_in(const Reader *r, const Place *in, const char *step) {
  Place *p = ZB_NEW(r->g->a, Place);
  *p = (Place){.in = in, .step = step};
  return p;
}
static const Place *index_in(const Reader *r, const Place *in, uint32_t index) {
  Place *p = ZB_NEW(r->g->a, Place);
  *p = (Place){.in = in, .index = index};
  return p;
}

/* Writes a place as a JSON pointer; of a long one the end. */
static const char *shown(const Place *at) {
  static _Thread_local char text[192];
  size_t from = sizeof text - 1;
  text[from] = 0;
  for (char number[16]; at; at = at->in) {
    snprintf(number, sizeof number, "%u", at->index);
    const char *step = at->step ? at->step : number;
    size_t n = strlen(step), slash = at->in != NULL;
    if (n + slash + 4 > from) {
      memcpy(text + (from -= 3), "...", 3);
      break;
    }
    memcpy(text + (from -= n), step, n);
    if (slash) text[--from] = '/';
  }
  zb_show_all(text + from, sizeof text - from);
  return text + from;
}

static bool wrong(const Reader *r, const Place *at, const char *help, const char *what, const char *word) {
  return zb_fail(r->err, help, "the schema's `%s` at %s %s", zb_show(word), shown(at), what);
}

/* ---- rules ----------------------------------------------------------------------------------------------------------- */
static uint32_t count_values(const cJSON *x) {
  uint32_t n = 1;
  for (const cJSON *c = x->child; c; c = c->next) n += count_values(c);
  return n;
}

static uint32_t add_item(Reader *r, const cJSON *json, const Place *at, bool constant) {
  Item x = {json, at, r->nitems ? zx_rule(r->g, 0, ZX_ENDLESS) : 0, constant};
  ZB_PUSH(r->g->a, r->item, r->nitems, x);
  return x.rule;
}

/* Returns the rule of a schema, which may be filled later. */
static uint32_t rule_of(Reader *r, const cJSON *json, const Place *at) {
  uint32_t i = (uint32_t)((uintptr_t)json / 16 * 0x9e3779b1u) & r->mask;
  for (; r->known[i]; i = (i + 1) & r->mask)
    if (r->item[r->known[i] - 1].json == json) return r->item[r->known[i] - 1].rule;
  uint32_t rule = add_item(r, json, at, false);
  r->known[i] = r->nitems;
  return rule;
}

/* ---- values as they are --------------------------------------------------------------------------------------------- */
/* Returns a string as JSON writes it, in quotes. */
static const char *quoted(const Reader *r, const char *s) {
  ZbText t = {0};
  ZbJson j = {.text = &t};
  zb_json_string(&j, NULL, s);
  const char *copy = zb_strndup(r->g->a, t.s, t.len);
  zb_text_free(&t);
  return copy;
}

static int type_of(const cJSON *v) {
  if (cJSON_IsNull(v)) return NULLS;
  if (cJSON_IsBool(v)) return BOOLEANS;
  if (cJSON_IsString(v)) return STRINGS;
  if (cJSON_IsArray(v)) return LISTS;
  if (cJSON_IsObject(v)) return OBJECTS;
  double x = v->valuedouble;
  return x >= -0x1p63 && x <= 0x1p63 && x == (double)(int64_t)(x == 0x1p63 ? 0 : x) ? NUMBERS | INTEGERS
                                                                                    : NUMBERS;
}

static uint32_t comma(Reader *r, uint32_t from) {
  uint32_t to = zx_node(r->g, r->g->node[from].rule);
  zx_edge_text_to(r->g, from, ",", to);
  return zx_blank(r->g, to);
}

/* Adds a member's name and its ':'; returns where its value begins. */
static uint32_t name(Reader *r, uint32_t from, const char *quotes) {
  uint32_t named = zx_edge_text(r->g, from, quotes, strlen(quotes)),
           colon = zx_node(r->g, r->g->node[from].rule);
  zx_edge_text_to(r->g, named, ":", colon);
  return zx_blank(r->g, colon);
}

/* Fills the rule of a value that must come as it is. Lists and objects have rules for what is in them. */
static void add_constant(Reader *r, uint32_t rule, const cJSON *v) {
  ZxGrammar *g = r->g;
  uint32_t at = g->rule[rule].start, end = g->rule[rule].end;
  const char *text = cJSON_IsNull(v)     ? "null"
                     : cJSON_IsTrue(v)   ? "true"
                     : cJSON_IsFalse(v)  ? "false"
                     : cJSON_IsNumber(v) ? v->valuestring
                     : cJSON_IsString(v) ? quoted(r, v->valuestring)
                                         : NULL;
  if (text) {
    zx_edge_go(g, zx_edge_text(g, at, text, strlen(text)), end);
    return;
  }
  bool object = cJSON_IsObject(v);
  at = zx_edge_text(g, at, object ? "{" : "[", 1);
  for (const cJSON *c = v->child; c; c = c->next) {
    if (c != v->child) at = comma(r, at);
    if (object) at = name(r, at, quoted(r, c->string));
    uint32_t next = zx_node(g, rule);
    zx_edge_call(g, at, add_item(r, c, NULL, true), next);
    at = next;
  }
  zx_edge_text_to(g, at, object ? "}" : "]", end);
}

/* Fills a rule with those values of a list, or the one of `const`, that are of some types. */
static bool add_values(Reader *r, uint32_t rule, const Schema *s, int allowed) {
  ZxGrammar *g = r->g;
  const cJSON *list = s->of[W_enums];
  bool any = false;
  if (list && !cJSON_IsArray(list)) return wrong(r, s->at, NULL, "is not a list of values", "enum");
  for (const cJSON *v = list ? list->child : s->of[W_constant]; v; v = list ? v->next : NULL) {
    bool composite = cJSON_IsArray(v) || cJSON_IsObject(v);
    if (!(type_of(v) & allowed)) continue;
    any = true;
    if (!composite) add_constant(r, rule, v);
    else zx_edge_call(g, g->rule[rule].start, add_item(r, v, NULL, true), g->rule[rule].end);
  }
  return any || zb_fail(r->err, "give values of its type",
                        "the schema at %s allows no value: none is of its `type`", shown(s->at));
}

/* ---- strings, lists, objects ---------------------------------------------------------------------------------------- */
static bool take_count(Reader *r, const Schema *s, Word w, uint32_t *out) {
  const cJSON *v = s->of[w];
  if (!v) return true;
  if (!cJSON_IsNumber(v) || !(v->valuedouble >= 0 && v->valuedouble <= INT32_MAX) ||
      v->valuedouble != (double)(int32_t)v->valuedouble)
    return wrong(r, s->at, NULL, "is not a whole number from 0 to 2147483647", words[w].word);
  *out = (uint32_t)v->valuedouble;
  return true;
}

static bool take_counts(Reader *r, const Schema *s, Word low, Word high, uint32_t *min, uint32_t *max) {
  *min = 0;
  *max = ZX_ENDLESS;
  return take_count(r, s, low, min) && take_count(r, s, high, max) &&
         (*min <= *max ||
          wrong(r, s->at, "lower it", "is above the largest number that may be", words[low].word));
}

static bool add_string(Reader *r, uint32_t rule, const Schema *s) {
  uint32_t min, max;
  ZxGrammar *g = r->g;
  if (!take_counts(r, s, W_min_length, W_max_length, &min, &max)) return false;
  zx_edge_call(g, g->rule[rule].start, zx_string_rule(&r->l, min, max), g->rule[rule].end);
  return true;
}

/* Items behind those of prefixItems are counted by the rule's counter; the first of them stands by itself, so that
 * whether there must be one is seen in the rule. */
static void add_items(Reader *r, uint32_t rule, uint32_t at, uint32_t item, bool first) {
  ZxGrammar *g = r->g;
  uint32_t next = zx_node(g, rule), more = zx_node(g, rule);
  zx_edge_call(g, first ? at : comma(r, at), item, next)->counts = true;
  zx_edge_bytes(g, next, ']', ']', g->rule[rule].end)->guard = ZX_FROM_MIN;
  zx_edge_bytes(g, next, ',', ',', more)->guard = ZX_BELOW_MAX;
  zx_edge_call(g, zx_blank(g, more), item, next)->counts = true;
}

static bool add_list(Reader *r, uint32_t rule, const Schema *s) {
  ZxGrammar *g = r->g;
  const cJSON *prefix = s->of[W_prefix_items], *items = s->of[W_items];
  uint32_t min, max, n = 0;
  if (!take_counts(r, s, W_min_items, W_max_items, &min, &max)) return false;
  if (prefix && !cJSON_IsArray(prefix))
    return wrong(r, s->at, NULL, "is not a list of schemas", "prefixItems");
  uint32_t end = g->rule[rule].end, at = zx_edge_text(g, g->rule[rule].start, "[", 1);
  for (const cJSON *v = prefix ? prefix->child : NULL; v && n < max; v = v->next, n++) {
    if (n >= min) zx_edge_text_to(g, at, "]", end);
    uint32_t next = zx_node(g, rule), from = n ? comma(r, at) : at;
    zx_edge_call(g, from, rule_of(r, v, index_in(r, step_in(r, s->at, "prefixItems"), n)), next);
    at = next;
  }
  if (n >= min) zx_edge_text_to(g, at, "]", end);
  bool more = cJSON_IsFalse(items) || (!items && prefix && n >= min) ? false : n < max;
  if (!more && n < min) return wrong(r, s->at, "lower it", "is more than there can be", "minItems");
  if (!more) return true;
  g->rule[rule].min = min > n ? min - n : 0;
  g->rule[rule].max = max == ZX_ENDLESS ? max : max - n;
  add_items(r, rule, at, items ? rule_of(r, items, step_in(r, s->at, "items")) : zx_any_rule(&r->l), !n);
  return true;
}

typedef struct {
  const char **name;
  const cJSON **schema; /* NULL: any value */
  bool *required;
  uint32_t n;
} Members;

static bool take_required(Reader *r, const Schema *s, Members *m, uint32_t room) {
  const cJSON *required = s->of[W_required], *additional = s->of[W_additional];
  ZbNames names = {0};
  for (uint32_t i = 0; i < m->n; i++) zb_names_add(r->g->a, &names, m->name[i]);
  if (required && !cJSON_IsArray(required))
    return wrong(r, s->at, NULL, "is not a list of names", "required");
  for (const cJSON *v = required ? required->child : NULL; v; v = v->next) {
    if (!cJSON_IsString(v)) return wrong(r, s->at, NULL, "has what is not a name", "required");
    uint32_t i = zb_names_find(&names, v->valuestring);
    if (i == ZB_NO_NAME) {
      if (cJSON_IsFalse(additional) || (!additional && (r->strict || s->of[W_properties])))
        return zb_fail(r->err, "write it into `properties`",
                       "the schema's `required` at %s has '%s', which is not among its properties",
                       shown(s->at), zb_show(v->valuestring));
      ZB_ASSERT(m->n < room);
      i = m->n++;
      zb_names_add(r->g->a, &names, v->valuestring);
      m->name[i] = v->valuestring;
      m->schema[i] = cJSON_IsObject(additional) ? additional : NULL;
    }
    m->required[i] = true;
  }
  return true;
}

static bool take_members(Reader *r, const Schema *s, Members *m) {
  const cJSON *properties = s->of[W_properties], *required = s->of[W_required];
  if (properties && !cJSON_IsObject(properties))
    return wrong(r, s->at, NULL, "is not an object of schemas", "properties");
  uint32_t room = 1;
  for (const cJSON *v = properties ? properties->child : NULL; v; v = v->next) room++;
  for (const cJSON *v = required ? required->child : NULL; v; v = v->next) room++;
  m->name = ZB_NEWN(r->g->a, const char *, room);
  m->schema = ZB_NEWN(r->g->a, const cJSON *, room);
  m->required = ZB_NEWN(r->g->a, bool, room);
  ZbNames names = {0};
  for (const cJSON *v = properties ? properties->child : NULL; v; v = v->next, m->n++) {
    if (zb_names_find(&names, v->string) != ZB_NO_NAME)
      return zb_fail(r->err, NULL, "the schema's `properties` at %s have '%s' twice", shown(s->at),
                     zb_show(v->string));
    zb_names_add(r->g->a, &names, v->string);
    m->name[m->n] = v->string;
    m->schema[m->n] = v;
  }
  return take_required(r, s, m, room);
}

/* Adds members of other names, behind the first that are there (`more`), or as the first. */
static void add_others(Reader *r, uint32_t rule, const Members *m, uint32_t value, uint32_t none,
                       uint32_t more) {
  ZxGrammar *g = r->g;
  const char **taken = ZB_NEWN(g->a, const char *, m->n + 1);
  for (uint32_t i = 0; i < m->n; i++) taken[i] = quoted(r, m->name[i]);
  uint32_t other = zx_node(g, rule), named = zx_node(g, rule), colon = zx_node(g, rule);
  zx_edge_go(g, none, other);
  zx_edge_go(g, comma(r, more), other);
  zx_edge_call(g, other, zx_other_name_rule(&r->l, taken, m->n), named);
  zx_edge_text_to(g, named, ":", colon);
  zx_edge_call(g, zx_blank(g, colon), value, more);
}

/* Members come in the order of the schema. Before each there are two nodes: none was written yet, or some, and then
 * a comma is due. */
static bool add_object(Reader *r, uint32_t rule, const Schema *s) {
  ZxGrammar *g = r->g;
  const cJSON *additional = s->of[W_additional];
  Members m = {0};
  if (!take_members(r, s, &m)) return false;
  uint32_t end = g->rule[rule].end, none = zx_edge_text(g, g->rule[rule].start, "{", 1),
           some = zx_node(g, rule);
  const Place *at = step_in(r, s->at, "properties");
  for (uint32_t i = 0; i < m.n; i++) {
    uint32_t begin = zx_node(g, rule), no_more = zx_node(g, rule), more = zx_node(g, rule);
    uint32_t value = m.schema[i] ? rule_of(r, m.schema[i], step_in(r, at, m.name[i])) : zx_any_rule(&r->l);
    zx_edge_go(g, none, begin);
    zx_edge_go(g, comma(r, some), begin);
    if (!m.required[i]) zx_edge_go(g, none, no_more);
    if (!m.required[i]) zx_edge_go(g, some, more);
    zx_edge_call(g, name(r, begin, quoted(r, m.name[i])), value, more);
    none = no_more;
    some = more;
  }
  zx_edge_text_to(g, none, "}", end);
  zx_edge_text_to(g, some, "}", end);
  bool any = cJSON_IsTrue(additional) || (!additional && !r->strict && !s->of[W_properties]);
  if (additional && !cJSON_IsBool(additional) && !cJSON_IsObject(additional))
    return wrong(r, s->at, NULL, "is not true, false or a schema", "additionalProperties");
  if (any || cJSON_IsObject(additional))
    add_others(r, rule, &m,
               any ? zx_any_rule(&r->l) : rule_of(r, additional, step_in(r, s->at, "additionalProperties")),
               none, some);
  return true;
}

/* ---- a schema ------------------------------------------------------------------------------------------------------------ */
static bool describes(const char *word) {
  for (size_t i = 0; i < DESCRIBING; i++)
    if (!strcmp(describing[i], word)) return true;
  return false;
}

static bool unknown(const Reader *r, const Place *at, const char *word) {
  return wrong(r, at,
               "leave it out; there are type, properties, required, additionalProperties, items, "
               "prefixItems, minItems, "
               "maxItems, minLength, maxLength, enum, const, anyOf, $ref, $defs",
               "is not supported", word);
}

static bool take_words(Reader *r, const cJSON *json, Schema *s) {
  for (const cJSON *v = json->child; v; v = v->next) {
    int w = 0;
    while (w < NWORDS && strcmp(words[w].word, v->string)) w++;
    if (w == NWORDS && describes(v->string)) continue;
    if (w == NWORDS) return unknown(r, s->at, v->string);
    if (s->of[w]) return wrong(r, s->at, NULL, "is there twice", v->string);
    s->of[w] = v;
  }
  for (int w = 0; w < NWORDS; w++)
    for (int k = 0; k < NWORDS && s->of[w] && words[w].about == ALL; k++) {
      bool may = k == w || (k == W_type && (w == W_enums || w == W_constant));
      if (s->of[k] && !may)
        return zb_fail(r->err, "say in one of them what both mean",
                       "the schema at %s has `%s` beside `%s`, which is not supported", shown(s->at),
                       words[k].word, words[w].word);
    }
  return true;
}

static bool take_type(const Reader *r, const Schema *s, const cJSON *v, int *out) {
  for (int i = 0; cJSON_IsString(v) && i < TYPES; i++)
    if (!strcmp(types[i].name, v->valuestring)) {
      *out |= types[i].type;
      return true;
    }
  return zb_fail(r->err, "there are string, number, integer, boolean, null, array and object",
                 "the schema's `type` at %s has %s%s, which is not a type", shown(s->at),
                 cJSON_IsString(v) ? "'" : "what is not a name",
                 cJSON_IsString(v) ? zb_printf(r->g->a, "%s'", zb_show(v->valuestring)) : "");
}

/* Finds the types that a schema allows: without `type` those that its words are about, or else all. */
static bool take_types(const Reader *r, const Schema *s, int *out) {
  const cJSON *type = s->of[W_type];
  *out = 0;
  if (cJSON_IsArray(type) && !type->child) return wrong(r, s->at, NULL, "is an empty list", "type");
  for (const cJSON *v = cJSON_IsArray(type) ? type->child : type; v; v = cJSON_IsArray(type) ? v->next : NULL)
    if (!take_type(r, s, v, out)) return false;
  for (int w = 0; w < NWORDS && !type; w++)
    if (s->of[w]) *out |= words[w].about;
  if (!*out) *out = ALL;
  return true;
}

/* Adds one alternative for each type. */
static bool add_types(Reader *r, uint32_t rule, const Schema *s, int allowed) {
  ZxGrammar *g = r->g;
  uint32_t start = g->rule[rule].start, end = g->rule[rule].end;
  if (allowed & NULLS) zx_edge_text_to(g, start, "null", end);
  if (allowed & BOOLEANS) zx_edge_text_to(g, start, "true", end);
  if (allowed & BOOLEANS) zx_edge_text_to(g, start, "false", end);
  if (allowed & NUMBERS) zx_edge_call(g, start, zx_number_rule(&r->l), end);
  else if (allowed & INTEGERS) zx_edge_call(g, start, zx_integer_rule(&r->l), end);
  return (!(allowed & STRINGS) || add_string(r, rule, s)) && (!(allowed & LISTS) || add_list(r, rule, s)) &&
         (!(allowed & OBJECTS) || add_object(r, rule, s));
}

static bool add_any_of(Reader *r, uint32_t rule, const Schema *s) {
  const cJSON *list = s->of[W_any_of];
  uint32_t n = 0;
  ZxGrammar *g = r->g;
  if (!cJSON_IsArray(list) || !list->child) return wrong(r, s->at, NULL, "is not a list of schemas", "anyOf");
  const Place *at = step_in(r, s->at, "anyOf");
  for (const cJSON *v = list->child; v; v = v->next)
    zx_edge_call(g, g->rule[rule].start, rule_of(r, v, index_in(r, at, n++)), g->rule[rule].end);
  return true;
}

/* Reads one step of a JSON pointer (RFC 6901), as it stands in a fragment, up to its '/' or end. */
static const char *read_step(const char *s, ZbText *out) {
  for (out->len = 0; *s && *s != '/'; s++) {
    char c = *s, hex[3] = {0};
    if (c == '%' && s[1] && s[2]) {
      char *end;
      memcpy(hex, s + 1, 2);
      unsigned long v = strtoul(hex, &end, 16);
      if (!*end) {
        c = (char)v;
        s += 2;
      }
    }
    if (c == '~' && (s[1] == '0' || s[1] == '1')) c = *++s == '0' ? '~' : '/';
    zb_text_put(out, &c, 1);
  }
  zb_text_put(out, "", 0);
  return s;
}

static const cJSON *pointed(const cJSON *x, const char *pointer) {
  ZbText step = {0};
  while (x && *pointer == '/') {
    pointer = read_step(pointer + 1, &step);
    char *end;
    unsigned long i = strtoul(step.s, &end, 10);
    bool index = step.len && strspn(step.s, "0123456789") == step.len && i < INT32_MAX;
    x = cJSON_IsArray(x)    ? index ? cJSON_GetArrayItem(x, (int)i) : NULL
        : cJSON_IsObject(x) ? cJSON_GetObjectItemCaseSensitive(x, step.s)
                            : NULL;
  }
  zb_text_free(&step);
  return *pointer ? NULL : x;
}

static bool add_ref(Reader *r, uint32_t rule, const Schema *s) {
  const cJSON *v = s->of[W_ref];
  ZxGrammar *g = r->g;
  if (!cJSON_IsString(v)) return wrong(r, s->at, NULL, "is not a text", "$ref");
  const cJSON *to = *v->valuestring == '#' ? pointed(r->root, v->valuestring + 1) : NULL;
  if (!to)
    return zb_fail(r->err, "name a place in the same schema, such as #/$defs/NAME",
                   "the schema's `$ref` at %s names '%s', and there is nothing", shown(s->at),
                   zb_show(v->valuestring));
  zx_edge_call(g, g->rule[rule].start, rule_of(r, to, step_in(r, NULL, v->valuestring)), g->rule[rule].end);
  return true;
}

static bool fill(Reader *r, Item x) {
  Schema s = {.at = x.at};
  ZxGrammar *g = r->g;
  int allowed;
  if (cJSON_IsTrue(x.json)) {
    zx_edge_call(g, g->rule[x.rule].start, zx_any_rule(&r->l), g->rule[x.rule].end);
    return true;
  }
  if (cJSON_IsFalse(x.json))
    return zb_fail(r->err, "leave it out", "the schema at %s is false: nothing fits it", shown(x.at));
  if (!cJSON_IsObject(x.json))
    return zb_fail(r->err, "write {\"type\": ...}", "the schema at %s is not an object", shown(x.at));
  if (!take_words(r, x.json, &s) || !take_types(r, &s, &allowed)) return false;
  if (s.of[W_enums] || s.of[W_constant]) return add_values(r, x.rule, &s, allowed);
  if (s.of[W_any_of]) return add_any_of(r, x.rule, &s);
  if (s.of[W_ref]) return add_ref(r, x.rule, &s);
  return add_types(r, x.rule, &s, allowed);
}

/* ---- all of it --------------------------------------------------------------------------------------------------------------- */
static cJSON *parse(const char *schema, size_t n, ZbErr *err) {
  ZbErr why;
  cJSON *root = NULL;
  if (n > ZX_SCHEMA_LIMIT)
    zb_fail(err, NULL, "the schema has %zu bytes; %d are the limit", n, ZX_SCHEMA_LIMIT);
  else if (zt_utf8_valid(schema, n) < n)
    zb_fail(err, "write it in UTF-8", "byte %zu of the schema is not UTF-8", zt_utf8_valid(schema, n) + 1);
  else if (zb_json_has_nul(schema, n)) zb_fail(err, NULL, "the schema has the character U+0000");
  else if (!(root = zb_json_parse(schema, n, ZB_JSON_ANY, &why)))
    zb_fail(err, "write {\"type\": \"object\", \"properties\": {...}}", "the schema: %s", why.text);
  return root;
}

static bool read_all(Reader *r) {
  uint32_t size = 64;
  while (size < 2 * count_values(r->root)) size *= 2;
  r->known = ZB_NEWN(r->g->a, uint32_t, size);
  r->mask = size - 1;
  rule_of(r, r->root, step_in(r, NULL, "#"));
  for (uint32_t i = 0; i < r->nitems; i++) {
    Item x = r->item[i];
    if (x.constant) add_constant(r, x.rule, x.json);
    else if (!fill(r, x)) return false;
  }
  return zx_grammar_done(r->g) || zb_fail(r->err, "let a recursion end, and nest less",
                                          "nothing fits the schema: every value has an endless recursion, or "
                                          "more than %d objects and lists in each "
                                          "other",
                                          ZX_SHAPE_DEPTH);
}

bool zx_schema_read(ZxGrammar *g, const char *schema, size_t n, bool strict, ZbErr *err) {
  Reader r = {.g = g, .l = {.g = g}, .strict = strict, .err = err};
  zx_rule(g, 0, ZX_ENDLESS);
  if (!schema) {
    zx_edge_call(g, g->rule[0].start, zx_any_object_rule(&r.l), g->rule[0].end);
    ZB_ASSERT(zx_grammar_done(g));
    return true;
  }
  cJSON *root = parse(schema, n, err);
  if (!root) return false;
  char *text = zb_strndup(g->a, schema, n);
  zb_json_digits(root, text);
  r.root = root;
  bool ok = read_all(&r);
  cJSON_Delete(root);
  return ok;
}
