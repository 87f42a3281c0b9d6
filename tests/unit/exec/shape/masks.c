/* Which tokens may come: as many bytes as they have, over the borders of what a schema names; always one at least, up
 * to an end that fits. */
#include "tests/unit/exec/shape/tokens.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdlib.h>

static const char *const piece[] = {
    "{\"",    "\": ", "\", \"", "00",      "  ",       "\"}",      "\n\n",     "\\\"",   "\":",
    "\",",    "{\"a", "a\":",   "ab",      "true",     "null",     "}}",       "]}",     "}]",
    "[[",     "[{",   "\\u",    "\\ud83d", "\xc3\xa9", "\xe6\x97", "\x97\xa5", "\\\\",   "\"]",
    "\": \"", "1,",   "12",     " {",      ".5",       "e1",       "hello",    " world", "\"\xe6"};
enum { PIECES = sizeof piece / sizeof *piece };
static ZtTokenizer *t;
static ZxShapes *shapes;
static void open_shapes(void) {
  t = tokens_new(piece, PIECES, "");
  shapes = zx_shapes_new(t, zt_size(t) + 100); /* a model may have more ids than its tokenizer */
}
static void close_shapes(void) {
  zx_shapes_free(shapes);
  zt_free(t);
}
TestSuite(masks, .init = open_shapes, .fini = close_shapes);

static ZxShape *shape_of(const char *schema) {
  ZbErr err = {0};
  ZxShape *s = zx_shapes_get(shapes, schema, schema ? strlen(schema) : 0, false, &err);
  cr_assert(s, "%s: %s", schema, err.text);
  return s;
}

static const char *text_of(uint32_t id) {
  static char byte[2];
  byte[0] = (char)id;
  return id < 256 ? byte : piece[id - 256];
}

static bool has(const uint64_t *bits, uint32_t id) { return bits[id / 64] >> id % 64 & 1; }

/* A mask has the tokens by which the answer can go on, as they are found one by one, and no others. */
static void check_mask(ZxShape *s, const uint32_t *id, uint32_t n) {
  uint32_t more[512], end = tokens_end(t);
  uint64_t bits[8];
  ZxShaped at = {0};
  cr_assert(n < 511 && zx_shape_follow(s, &at, id, n));
  memcpy(bits, zx_shape_mask(s, &at, &end, 1), sizeof bits);
  memcpy(more, id, n * sizeof *id);
  for (uint32_t k = 0; k < 256 + PIECES; k++) {
    ZxShaped there = at;
    more[n] = k;
    cr_expect_eq(has(bits, k), zx_shape_follow(s, &there, more, n + 1), "token %u '%s' behind %u", k,
                 text_of(k), n);
  }
  for (uint32_t k = end + 1; k < zt_size(t) + 100; k++) cr_expect(!has(bits, k));
}

/* Draws tokens from masks until there is an end; after some only those that end soonest. */
static uint32_t walk(ZxShape *s, uint32_t *id, uint32_t most, uint64_t seed) {
  uint32_t n = 0, end = tokens_end(t);
  ZxShaped at = {0};
  for (;; n++) {
    cr_assert(zx_shape_follow(s, &at, id, n));
    if (zx_shape_whole(s, &at)) return n;
    const uint64_t *bits = zx_shape_mask(s, &at, &end, 1);
    cr_assert(n < most, "no end after %u tokens", n);
    if (has(bits, end) && zb_random_u64(seed, 1, n) % 4 == 0) return n;
    uint32_t some[512], k = 0;
    for (uint32_t i = 0; i < 256 + PIECES; i++)
      if (has(bits, i)) some[k++] = i;
    cr_assert(k, "no token may come behind %u", n);
    id[n] = some[zb_random_u64(seed, 0, n) % k];
    for (const char *c = "\"]}0"; n > 40 && *c; c++)
      if (has(bits, (uint8_t)*c)) {
        id[n] = (uint8_t)*c;
        break;
      }
  }
}

static cJSON *parsed(const uint32_t *id, uint32_t n) {
  ZbText x = {0};
  ZbErr err = {0};
  for (uint32_t i = 0; i < n; i++) zb_text_put(&x, text_of(id[i]), id[i] < 256 ? 1 : strlen(text_of(id[i])));
  cr_expect(zt_utf8_valid(x.s, x.len) == x.len);
  cJSON *v = zb_json_parse(x.s, x.len, 1, &err);
  cr_expect(v, "%.*s: %s", (int)x.len, x.s, err.text);
  zb_text_free(&x);
  return v;
}

static const char person[] =
    "{\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":12},\"tags\":{\"type\":\"array\",\"items\":"
    "{\"enum\":[\"a\",\"ab\",\"\xc3\xa9\"]},\"minItems\":1,\"maxItems\":3},"
    "\"n\":{\"type\":\"integer\"},\"in\":{\"properties\":{\"a\":{\"type\":[\"number\",\"null\"]}},"
    "\"required\":[\"a\"]}},\"required\":[\"name\",\"tags\",\"in\"]}";

static void check_person(const cJSON *v) {
  const cJSON *name = cJSON_GetObjectItem(v, "name"), *tags = cJSON_GetObjectItem(v, "tags"),
              *n = cJSON_GetObjectItem(v, "n"), *a = cJSON_GetObjectItem(cJSON_GetObjectItem(v, "in"), "a");
  size_t points = 0;
  for (const char *c = name ? name->valuestring : ""; *c; c++) points += ((uint8_t)*c & 0xc0) != 0x80;
  cr_expect(cJSON_IsString(name) && points <= 12 && (cJSON_IsNumber(a) || cJSON_IsNull(a)));
  cr_expect(cJSON_IsArray(tags) && cJSON_GetArraySize(tags) >= 1 && cJSON_GetArraySize(tags) <= 3);
  for (const cJSON *x = tags ? tags->child : NULL; x; x = x->next)
    cr_expect(!strcmp(x->valuestring, "a") || !strcmp(x->valuestring, "ab") ||
              !strcmp(x->valuestring, "\xc3\xa9"));
  cr_expect(!n || cJSON_IsNumber(n));
  cr_expect_eq(cJSON_GetArraySize(v), 3 + (n != NULL));
}

Test(masks, whatever_is_drawn_fits) {
  ZxShape *s = shape_of(person), *any = shape_of(NULL);
  uint32_t id[400];
  for (uint64_t seed = 0; seed < 300; seed++) {
    cJSON *v = parsed(id, walk(s, id, 400, seed));
    check_person(v);
    cJSON_Delete(v);
    v = parsed(id, walk(any, id, 400, seed));
    cr_expect(cJSON_IsObject(v));
    cJSON_Delete(v);
  }
  zx_shape_release(s);
  zx_shape_release(any);
}

Test(masks, tokens_are_those_that_go_on) {
  static const char *const schema[] = {
      person,
      NULL,
      "{\"maxLength\":5}",
      "{\"minLength\":300,\"maxLength\":310}",
      "{\"type\":\"number\"}",
      "{\"additionalProperties\":{\"type\":\"null\"},\"properties\":{\"ab\":true,\"\xc3\xa9\":true}}"};
  uint32_t id[1200];
  for (size_t i = 0; i < sizeof schema / sizeof *schema; i++)
    for (uint64_t seed = 0; seed < 4; seed++) {
      ZxShape *s = shape_of(schema[i]);
      uint32_t n = walk(s, id, 1200, seed);
      for (uint32_t k = 0; k < n && k < 60; k++) check_mask(s, id, k);
      zx_shape_release(s);
    }
}

static bool may_come(ZxShape *s, const char *before, const char *token) {
  uint32_t id[256], n = 0, k = 256;
  ZxShaped at = {0};
  for (; before[n]; n++) id[n] = (uint8_t)before[n];
  while (strcmp(piece[k - 256], token)) k++;
  return zx_shape_follow(s, &at, id, n) && has(zx_shape_mask(s, &at, NULL, 0), k);
}

Test(masks, tokens_go_over_borders) {
  ZxShape *s = shape_of("{\"properties\":{\"a\":{\"type\":\"string\"},\"b\":{\"type\":\"array\",\"items\":{"
                        "\"type\":\"integer\"}}},\"required\":[\"a\"]}");
  cr_expect(may_come(s, "", "{\"a"));
  cr_expect(!may_come(s, "", " {"));
  cr_expect(may_come(s, "{\"", "a\":"));
  cr_expect(may_come(s, "{\"a", "\": \""));
  cr_expect(may_come(s, "{\"a\":\"x", "\"}"));
  cr_expect(may_come(s, "{\"a\":\"x", "\", \""));
  cr_expect(!may_come(s, "{\"a\":\"x", "\"]"));
  cr_expect(may_come(s, "{\"a\":\"\",\"b\":[", "1,"));
  cr_expect(may_come(s, "{\"a\":\"\",\"b\":[1", "]}"));
  cr_expect(!may_come(s, "{\"a\":\"\",\"b\":[", "00"));
  cr_expect(may_come(s, "{\"a\":\"\",\"b\":[1", "00"));
  cr_expect(!may_come(s, "{\"a\":\"x", "\n\n"));
  cr_expect(may_come(s, "{\"a\":\"", "\xe6\x97") && may_come(s, "{\"a\":\"\xe6", "\x97\xa5"));
  cr_expect(!may_come(s, "{\"a\":\"\xe6", "hello"));
  zx_shape_release(s);
}

/* A mask does not depend on what else was asked, nor on states that were forgotten between. */
Test(masks, states_that_are_forgotten_are_found_again) {
  ZxShape *s = shape_of("{\"type\":\"array\",\"items\":{\"minLength\":3000,\"maxLength\":900000}}");
  enum { LONG = 150000 };
  uint32_t *id = malloc((LONG + 8) * sizeof *id), n = 0, forgotten = 0;
  ZxShaped at = {0}, other = {0};
  id[n++] = '[';
  id[n++] = '"';
  cr_assert(zx_shape_follow(s, &other, id, 2));
  for (; n < LONG; n++) {
    uint64_t era = at.era;
    id[n] = (uint32_t)('a' + n % 26);
    cr_assert(zx_shape_follow(s, &at, id, n + 1));
    forgotten += era && era != at.era;
    if (n % 50) continue;
    cr_expect_eq(has(zx_shape_mask(s, &at, NULL, 0), '"'), n + 1 - 2 >= 3000, "%u", n);
  }
  cr_expect(forgotten);
  cr_expect(zx_shape_follow(s, &other, id, 2) && other.era == at.era);
  cr_expect(!has(zx_shape_mask(s, &other, NULL, 0), '"') && has(zx_shape_mask(s, &other, NULL, 0), 'x'));
  free(id);
  zx_shape_release(s);
}

Test(masks, a_text_may_be_taken_back) {
  ZxShape *s = shape_of("{\"enum\":[\"abc\",\"abd\"]}");
  const uint32_t one[] = {'"', 'a', 'b', 'c', '"'}, two[] = {'"', 'a', 'b', 'd', '"'};
  ZxShaped at = {0};
  cr_assert(zx_shape_follow(s, &at, one, 5) && zx_shape_whole(s, &at));
  at.n = 0; /* another answer */
  at.era = 0;
  cr_assert(zx_shape_follow(s, &at, two, 4) && !zx_shape_whole(s, &at));
  cr_assert(zx_shape_follow(s, &at, two, 2) && !zx_shape_whole(s, &at));
  cr_assert(zx_shape_follow(s, &at, two, 5) && zx_shape_whole(s, &at));
  const uint32_t wrong[] = {'"', 'b'};
  at = (ZxShaped){0};
  cr_assert(zx_shape_follow(s, &at, one, 1) && !zx_shape_follow(s, &at, wrong, 2) &&
            zx_shape_follow(s, &at, one, 2));
  zx_shape_release(s);
}

Test(masks, a_vocabulary_must_have_what_a_schema_needs) {
  static const char *const chars[] = {"\xc3\xa9"};
  ZbErr err = {0};
  ZtTokenizer *poor = tokens_new(chars, 1, "{\xc3\xe6");
  ZxShapes *x = zx_shapes_new(poor, zt_size(poor));
  cr_expect(!zx_shapes_get(x, NULL, 0, true, &err) && strstr(err.text, "character {"), "%s", err.text);
  ZxShape *s = zx_shapes_get(x, "{\"enum\":[\"\xc3\xa9\"]}", strlen("{\"enum\":[\"\xc3\xa9\"]}"), true,
                             &err); /* by a token of its own */
  cr_expect(s, "%s", err.text);
  cr_expect(!zx_shapes_get(x, "{\"enum\":[\"\xc3\xbc\"]}", strlen("{\"enum\":[\"\xc3\xbc\"]}"), true, &err) &&
                strstr(err.text, "\xc3\xbc"),
            "%s", err.text);
  zx_shape_release(s);
  zx_shapes_free(x);
  zt_free(poor);
}

Test(masks, a_schema_is_compiled_once) {
  ZxShape *a = shape_of(person), *b = shape_of(person), *c = shape_of("{}");
  cr_expect(a == b && a != c);
  zx_shape_release(a);
  for (int i = 0; i < 2 * ZX_SHAPES_KEPT; i++) {
    char schema[32];
    snprintf(schema, sizeof schema, "{\"const\":%d}", i);
    zx_shape_release(shape_of(schema));
  }
  uint32_t id[400];
  cJSON *v = parsed(id, walk(b, id, 400, 1)); /* still there, for who has it */
  check_person(v);
  cJSON_Delete(v);
  zx_shape_release(b);
  zx_shape_release(c);
}
