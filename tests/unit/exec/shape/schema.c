/* Which texts fit a schema, and which schemas are refused. */
#include "tests/unit/exec/shape/tokens.h"

#include <criterion/criterion.h>

static ZtTokenizer *bytes;
static ZxShapes *shapes;
static void open_shapes(void) {
  bytes = tokens_new(NULL, 0, "");
  shapes = zx_shapes_new(bytes, zt_size(bytes));
}
static void close_shapes(void) {
  zx_shapes_free(shapes);
  zt_free(bytes);
}
TestSuite(schema, .init = open_shapes, .fini = close_shapes);

static ZxShape *shape_of(const char *schema, bool strict) {
  ZbErr err = {0};
  ZxShape *s = zx_shapes_get(shapes, schema, schema ? strlen(schema) : 0, strict, &err);
  cr_assert(s, "%s: %s", schema, err.text);
  return s;
}

/* Says whether a text is all of an answer that may end there. */
static bool fits(ZxShape *s, const char *text) {
  uint32_t id[1024], n = 0, end = tokens_end(bytes);
  ZxShaped at = {0};
  for (; text[n]; n++) id[n] = (uint8_t)text[n];
  return zx_shape_follow(s, &at, id, n) && zx_shape_mask(s, &at, &end, 1)[end / 64] >> end % 64 & 1;
}

/* Each text of `good` fits, none of `bad` does; a line each. */
static void check_lines(const char *schema, bool strict, const char *lines, bool good) {
  ZxShape *s = shape_of(schema, strict);
  char text[1024];
  for (const char *at = lines; *at; at += strcspn(at, "\n"), at += *at != 0) {
    snprintf(text, sizeof text, "%.*s", (int)strcspn(at, "\n"), at);
    cr_expect(fits(s, text) == good, "%s %s %s", text, good ? "does not fit" : "fits", schema);
  }
  zx_shape_release(s);
}
static void check(const char *schema, const char *good, const char *bad) {
  check_lines(schema, false, good, true);
  check_lines(schema, false, bad, false);
}

Test(schema, values_of_each_type) {
  check("{\"type\":\"null\"}", "null", "true\nnul\nnulls\n null");
  check("{\"type\":\"boolean\"}", "true\nfalse", "null\n1\n\"true\"");
  check("{\"type\":\"integer\"}",
        "0\n-0\n7\n-12\n9223372036854775807\n999999999999999999\n1000000000000000000",
        "00\n01\n-\n--1\n1.0\n1e3\n+1\n9223372036854775808\n9300000000000000000\n10000000000000000000");
  check("{\"type\":\"number\"}", "0\n-1\n1.5\n0.12345678901234567\n1e5\n1E+05\n2.5e-99\n-0.0",
        "1.\n.5\n00.1\n1e\n1e+\n1e100\n0.123456789012345678\nNaN\nInfinity\n1.5.5");
  check("{\"type\":[\"integer\",\"null\"]}", "5\nnull", "5.5\n\"a\"\ntrue");
  check("{\"type\":[\"integer\",\"number\"]}", "5\n5.5", "null");
  check("{}", "1\n\"a\"\nnull\n[1, [], {\"a\":{}}]\n{\"a\": [true,{\"b\":1e5}]}",
        "[1 ,2]\n{a:1}\n[1,]\n{\"a\":1,}");
  check("true", "1\n{}\n[]", "");
}

Test(schema, strings) {
  check(
      "{\"type\":\"string\"}",
      "\"\"\n\"a "
      "b\"\n\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"\n\"\\u0041\\u00e9\\uFFFF\"\n\"\\ud83d\\ude00\"\n\"\xc3\xbc\"\n"
      "\"\xe6\x97\xa5\"\n\"\xf0\x9f\x98\x80\"\n\"\\u0001\\u0010\\u0100\\u1000\"",
      "\"\n\"a\nx\"\n\"\t\"\n\"\\x\"\n\"\\u12\"\n\"\\u0000\"\n\"\\ud83d\"\n\"\\ude00\"\n\"\\ud83d\\u0041\"\n"
      "\"\xc3\"\n\"\xc0\x80\"\n\"\xed\xa0\x80\"\n\"\xf4\x90\x80\x80\"\n\"\xff\"\n\"a\"b\"");
  check("{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
        "\"ab\"\n\"abc\"\n\"\xc3\xbc\xc3\xbc\"\n\"\\u0041\\n\"\n\"\\ud83d\\ude00\xf0\x9f\x98\x80x\"",
        "\"\"\n\"a\"\n\"abcd\"\n\"\\ud83d\\ude00\"");
  check("{\"maxLength\":0}", "\"\"", "\"a\"\n1");
}

Test(schema, values_that_are_named) {
  check("{\"enum\":[1, 10, \"one\", null, 1.50, true, \"\\u00fc\\\"x\\\\\\n\"]}",
        "1\n10\n\"one\"\nnull\n1.50\ntrue\n\"\xc3\xbc\\\"x\\\\\\n\"",
        "100\n\"on\"\n1.5\nfalse\n\"\\u00fc\\\"x\\\\\\n\"");
  check("{\"const\":{\"a\":[1,{\"b\":[]}],\"c\":\"d\"}}",
        "{\"a\":[1,{\"b\":[]}],\"c\":\"d\"}\n{\"a\": [1, {\"b\": []}], \"c\": \"d\"}",
        "{\"a\":[1,{\"b\":[]}]}\n{\"c\":\"d\",\"a\":[1,{\"b\":[]}]}");
  check("{\"type\":\"integer\",\"enum\":[1,\"a\",2.0,2.5]}", "1\n2.0", "\"a\"\n2.5\n2");
  check("{\"const\":12345678901234567890}", "12345678901234567890", "12345678901234567000");
}

Test(schema, lists) {
  check("{\"type\":\"array\"}", "[]\n[1]\n[1, \"a\",[null]]", "[\n[1,]\n[,1]\n[1  ,2]\n[ 1]\n[1 ]\n[1,  2]");
  check("{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"minItems\":1,\"maxItems\":3}",
        "[true]\n[true,false]\n[true, true,true]", "[]\n[1]\n[true,true,true,true]");
  check("{\"items\":false}", "[]", "[1]");
  check("{\"maxItems\":0}", "[]", "[1]");
  check("{\"items\":{\"type\":\"integer\"},\"minItems\":2,\"maxItems\":2}", "[1,2]", "[]\n[1]\n[1,2,3]");
  const char *pair = "{\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}],\"items\":{\"type\":"
                     "\"null\"},\"minItems\":3,\"maxItems\":4}";
  check(pair, "[1,\"a\",null]\n[1,\"a\",null,null]",
        "[1,\"a\"]\n[1,\"a\",1]\n[1,\"a\",null,null,null]\n[\"a\",1,null]");
  check("{\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}]}", "[]\n[1]\n[1,\"a\"]",
        "[1,\"a\",2]\n[\"a\"]");
  check("{\"prefixItems\":[{\"type\":\"integer\"},true],\"maxItems\":1,\"minItems\":1}", "[1]", "[]\n[1,2]");
}

Test(schema, objects) {
  const char *two = "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":"
                    "\"null\"},\"c\":true},\"required\":[\"b\"]}";
  check(two, "{\"b\":null}\n{\"a\": 1,\"b\": null}\n{\"b\":null, \"c\":[]}\n{\"a\":1,\"b\":null,\"c\":{}}",
        "{}\n{\"a\":1}\n{\"b\":null,\"a\":1}\n{\"b\":null,\"d\":1}\n{,\"b\":null}\n{\"b\":null,}\n{\"b\":"
        "null,\"b\":null}\n{ \"b\":null}");
  check("{\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"integer\"}}}",
        "{}\n{\"a\":1}\n{\"b\":1}\n{\"a\":1,\"b\":2}", "{\"b\":1,\"a\":1}\n{\"c\":1}");
  check("{\"type\":\"object\",\"properties\":{}}", "{}", "{\"a\":1}");
  check("{\"type\":\"object\"}", "{}\n{\"a\":1}\n{\"a\":1, \"b\":{\"c\":[]}}", "{a:1}");
  check_lines("{\"type\":\"object\"}", true, "{\"a\":1}", false);
  check_lines("{\"type\":\"object\"}", true, "{}", true);
  check("{\"type\":\"object\",\"additionalProperties\":false}", "{}", "{\"a\":1}");
  check("{\"properties\":{\"k\\\"ey\\n\":{\"const\":1}},\"required\":[\"k\\\"ey\\n\"]}", "{\"k\\\"ey\\n\":1}",
        "{\"k\\\"ey\\u000a\":1}");
  check("{\"type\":\"object\",\"required\":[\"x\"]}", "{\"x\":1}\n{\"x\":[], \"y\":2}", "{}\n{\"y\":2}");
}

Test(schema, members_of_other_names) {
  const char *more = "{\"properties\":{\"ab\":{\"const\":1},\"\xc3\xbc\":{\"const\":2},\"x\\\"y\":{\"const\":"
                     "3}},\"required\":[\"ab\"],\"additionalProperties\":{\"type\":\"null\"}}";
  check(more,
        "{\"ab\":1}\n{\"ab\":1,\"a\":null}\n{\"ab\":1,\"abc\":null, "
        "\"\":null}\n{\"ab\":1,\"\xc3\xbc\":2,\"\xc3\xbd\":null}\n"
        "{\"ab\":1,\"\xc3\xbc\xc3\xbc\":null}\n{\"ab\":1,\"\xe6\x97\xa5\":null,\"\xf0\x9f\x98\x80\":null}\n{"
        "\"ab\":1,\"x\\\"y\":3}",
        "{\"a\":null}\n{\"ab\":null}\n{\"ab\":1,\"ab\":null}\n{\"ab\":1,\"\xc3\xbc\":null}\n{\"ab\":1,\"a\":"
        "1}\n{\"ab\":1,\"\\u0061b\":null}\n"
        "{\"ab\":1,\"x\\\"y\":null}\n{\"ab\":1,\"\xc3\":null}\n{\"ab\":1,\"\xed\xa0\x80\":null}");
  check("{\"additionalProperties\":true}", "{}\n{\"a\":1}", "1");
}

Test(schema, alternatives_and_references) {
  check("{\"anyOf\":[{\"type\":\"integer\"},{\"properties\":{\"a\":{\"const\":1}},\"required\":[\"a\"]},{"
        "\"properties\":{\"a\":{\"const\":2},\"b\":{\"const\":3}},\"required\":[\"a\",\"b\"]}]}",
        "1\n{\"a\":1}\n{\"a\":2,\"b\":3}", "{\"a\":2}\n{\"a\":1,\"b\":3}\n{}");
  check("{\"$ref\":\"#/$defs/x~1y%20z\",\"$defs\":{\"x/y z\":{\"const\":1}}}", "1", "2");
  const char *tree =
      "{\"$defs\":{\"node\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},\"next\":{"
      "\"anyOf\":[{\"$ref\":\"#/$defs/"
      "node\"},{\"type\":\"null\"}]}},\"required\":[\"v\",\"next\"]}},\"$ref\":\"#/$defs/node\"}";
  check(tree, "{\"v\":1,\"next\":null}\n{\"v\":1, \"next\": {\"v\":2,\"next\":{\"v\":3,\"next\":null}}}",
        "{\"v\":1}\n{\"v\":1,\"next\":{\"v\":2}}");
  check("{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}", "[]\n[[],[[]]]", "[1]\n[[]");
  check("{\"title\":\"t\",\"description\":\"d\",\"default\":5,\"examples\":[1],\"type\":\"null\"}", "null",
        "5");
}

/* Nests a recursion as deep as may be, and no deeper: a value must always be able to end. */
Test(schema, recursion_is_bounded) {
  ZxShape *s = shape_of("{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}", true);
  for (int deep = ZX_SHAPE_DEPTH; deep < ZX_SHAPE_DEPTH + 3; deep++) {
    char text[4 * ZX_SHAPE_DEPTH] = {0};
    memset(text, '[', (size_t)deep);
    memset(text + deep, ']', (size_t)deep);
    cr_expect_eq(fits(s, text), deep <= ZX_SHAPE_DEPTH + 1, "%d", deep);
  }
  zx_shape_release(s);
}

static void refused(const char *schema, const char *word, const char *place) {
  ZbErr err = {0};
  ZxShape *s = zx_shapes_get(shapes, schema, strlen(schema), true, &err);
  cr_expect(!s && strstr(err.text, word) && strstr(err.text, place), "%s: %s", schema,
            s ? "taken" : err.text);
  zx_shape_release(s);
}

Test(schema, what_is_not_supported_is_named_with_its_place) {
  refused("{\"type\":\"string\",\"pattern\":\"a+\"}", "`pattern`", " # ");
  refused("{\"properties\":{\"a\":{\"items\":{\"minimum\":3}}}}", "`minimum`", "#/properties/a/items ");
  refused("{\"anyOf\":[{},{\"oneOf\":[]}]}", "`oneOf`", "#/anyOf/1 ");
  refused("{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"format\":\"date\"}}}", "`format`", "#/$defs/a ");
  refused("{\"$ref\":\"#/x\"}", "`$ref`", "#/x");
  refused("{\"$ref\":\"http://x/y\"}", "`$ref`", "http://x/y");
  refused("{\"type\":\"strng\"}", "strng", " # ");
  refused("{\"type\":5}", "`type`", " # ");
  refused("{\"type\":[]}", "`type`", " # ");
  refused("{\"enum\":[1],\"minLength\":2}", "`enum`", "`minLength`");
  refused("{\"anyOf\":[{}],\"properties\":{}}", "`anyOf`", "`properties`");
  refused("{\"type\":\"string\",\"enum\":[1]}", "allows no value", " # ");
  refused("{\"minItems\":3,\"maxItems\":2}", "`minItems`", " # ");
  refused("{\"items\":false,\"minItems\":1}", "`minItems`", " # ");
  refused("{\"minLength\":-1}", "`minLength`", " # ");
  refused("{\"minLength\":1.5}", "`minLength`", " # ");
  refused("{\"properties\":{\"a\":false}}", "is false", "#/properties/a");
  refused("{\"properties\":{\"a\":{}},\"required\":[\"b\"]}", "'b'", " # ");
  refused("{\"properties\":{\"a\":{},\"a\":{}}}", "twice", " # ");
  refused("{\"type\":\"null\",\"type\":\"null\"}", "twice", " # ");
  refused("{\"$ref\":\"#\"}", "nothing fits", "recursion");
  refused("{\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}", "nothing fits", "recursion");
  refused("\"x\"", "not an object", " # ");
  refused("[1]", "not an object", " # ");
  refused("{\"type\":", "not JSON", "");
  refused("{\"const\":\"a\\u0000b\"}", "U+0000", "");
  refused("{\"const\":\"\xff\"}", "UTF-8", "");
}

Test(schema, a_recursion_that_need_not_be_is_left_out) {
  check("{\"anyOf\":[{\"$ref\":\"#\"},{\"const\":1}]}", "1", "2");
  check("{\"properties\":{\"a\":{\"$ref\":\"#/$defs/x\"},\"b\":{\"const\":1}},\"$defs\":{\"x\":{\"$ref\":\"#/"
        "$defs/x\"}}}",
        "{}\n{\"b\":1}", "{\"a\":1}");
  check("{\"items\":{\"$ref\":\"#/$defs/x\"},\"$defs\":{\"x\":{\"$ref\":\"#/$defs/x\"}}}", "[]", "[1]\n[[]]");
}
