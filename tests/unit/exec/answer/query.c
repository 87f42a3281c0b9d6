/* Queries: what lines of JSON may say, and what is said of those that are wrong. */
#include "runtime/exec/answer/query.h"

#include <criterion/criterion.h>

static ZbArena *a;
static ZbErr err;
static ZxQuery usual(void) {
  return (ZxQuery){.max_tokens = ZX_UNSAID,
                   .choices = 1,
                   .logprobs = ZX_UNSAID,
                   .seed = ZX_UNSAID,
                   .top_p = 1,
                   .repetition = 1};
}
static bool reads(const char *line, ZxQuery *q) {
  if (!a) a = zb_arena_new();
  *q = usual();
  err = (ZbErr){0};
  return zx_query_read(q, a, line, strlen(line), &err);
}

Test(query, what_lines_say) {
  ZxQuery q;
  cr_assert(
      reads(
          "{\"prompt\": \"A b\", \"max_tokens\": 4, \"stop\": \"END\", \"seed\": 9007199254740993, \"n\": 2, "
          "\"temperature\": 0.5, \"echo\": true, \"logit_bias\": {\"65\": -100, \"7\": 1.5}}",
          &q),
      "%s", err.text);
  cr_expect(!strcmp(q.prompt, "A b") && q.length == 3 && q.max_tokens == 4 && q.choices == 2 && q.echo);
  cr_expect(q.seed == 9007199254740993 && q.temperature == 0.5 && q.nbias == 2 && q.bias[1].by == 1.5f);
  cr_expect(q.stop.n == 1 && !strcmp(q.stop.s[0], "END") && !q.ignore_end);
  cr_assert(reads(
      "{\"tokens\": [1, 2, 3.0], \"stop_token_ids\": [5], \"stop\": [\"a\", \"b\"], \"logprobs\": 0}", &q));
  cr_expect(!q.prompt && q.ntokens == 3 && q.token[2] == 3 && q.nend == 1 && q.stop.n == 2 &&
            q.logprobs == 0);
  cr_assert(reads("{\"messages\": [{\"role\": \"user\"}], \"tools\": [], \"seed\": 2}", &q));
  cr_expect(!q.prompt && !q.token && q.seed == 2 && q.nchat && strstr(q.chat, "messages"));
  cr_assert(reads(" {\"prompt\": \"\", \"seed\": null, \"stop\": null} ", &q));
  cr_expect(q.prompt && !q.length && q.seed == ZX_UNSAID && !q.stop.n);
}

Test(query, what_an_answer_must_be) {
  ZxQuery q;
  const char *line =
      "{\"prompt\":\"A\",\"json_schema\":{\"enum\":[12345678901234567890,1.50,\"\\u00fc\\n\",null,{}]}}";
  cr_assert(reads(line, &q), "%s", err.text);
  cr_expect(q.format == ZX_JSON_SCHEMA && !q.strict && q.nschema == strlen(q.schema));
  cr_expect_str_eq(q.schema, "{\"enum\":[12345678901234567890,1.50,\"\u00fc\\n\",null,{}]}");
  cr_assert(
      reads("{\"prompt\":\"A\",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\","
            "\"strict\":true,\"schema\":{\"type\":\"null\"}}}}",
            &q),
      "%s", err.text);
  cr_expect(q.format == ZX_JSON_SCHEMA && q.strict && !strcmp(q.schema, "{\"type\":\"null\"}"));
  cr_assert(reads("{\"prompt\":\"A\",\"response_format\":{\"type\":\"json_object\"}}", &q));
  cr_expect(q.format == ZX_JSON_OBJECT);
  cr_assert(reads("{\"prompt\":\"A\",\"response_format\":{\"type\":\"text\"},\"json_schema\":null}", &q));
  cr_expect(q.format == ZX_ANY_TEXT);
}

Test(query, what_is_wrong) {
  static const struct {
    const char *line, *text;
  } rows[] = {
      {"", "empty"},
      {"{", "not JSON"},
      {"[]", "not a JSON object"},
      {"{\"max_tokens\": 3}", "neither"},
      {"{\"prompt\": \"a\", \"tokens\": [1]}", "two of `prompt`"},
      {"{\"prompt\": \"a\", \"messages\": []}", "two of `prompt`"},
      {"{\"prompt\": \"a\", \"tools\": []}", "`tools` belongs to `messages`"},
      {"{\"prompt\": \"A\xff\"}", "not UTF-8"},
      {"{\"prompt\": \"A\\u0000\"}", "U+0000"},
      {"{\"prompt\": 3}", "`prompt` is 3"},
      {"{\"prompt\": \"A\", \"json_schema\": 3}", "`json_schema` is 3"},
      {"{\"prompt\": \"A\", \"response_format\": {\"type\": \"xml\"}}", "`response_format` is \"xml\""},
      {"{\"prompt\": \"A\", \"response_format\": {}}", "`response_format` is not there"},
      {"{\"prompt\": \"A\", \"response_format\": {\"type\": \"json_schema\"}}", "no `json_schema`"},
      {"{\"prompt\": \"A\", \"temperture\": 1}", "no field `temperture`"},
      {"{\"prompt\": \"A\", \"n\": 1, \"n\": 2}", "twice"},
      {"{\"prompt\": \"A\", \"top_p\": 3}", "`top_p` is 3; it is a number from 0 to 1"},
      {"{\"prompt\": \"A\", \"max_tokens\": 1000000000000}", "`max_tokens` is 1000000000000"},
      {"{\"prompt\": \"A\", \"max_tokens\": \"4\"}", "`max_tokens` is \"4\""},
      {"{\"prompt\": \"A\", \"max_tokens\": 1.5}", "whole number"},
      {"{\"prompt\": \"A\", \"min_tokens\": 9, \"max_tokens\": 4}", "`min_tokens` is 9"},
      {"{\"prompt\": \"A\", \"logprobs\": 21}", "from 0 to 20"},
      {"{\"prompt\": \"A\", \"n\": 17}", "from 1 to 16"},
      {"{\"prompt\": \"A\", \"echo\": \"yes\"}", "true or false"},
      {"{\"prompt\": \"A\", \"stop\": [1.5]}", "not a text"},
      {"{\"prompt\": \"A\", \"stop\": \"\"}", "empty text"},
      {"{\"prompt\": \"A\", \"stop_token_ids\": [-1]}", "not the id of a token"},
      {"{\"prompt\": \"A\", \"stop_token_ids\": [5279552648203111001]}", "not the id of a token"},
      {"{\"prompt\": \"A\", \"logit_bias\": {\"x\": 1}}", "'x'"},
      {"{\"prompt\": \"A\", \"logit_bias\": {\"65\": 101}}", "from -100 to 100"},
      {"{\"tokens\": [-1]}", "not the id of a token"},
      {"{\"tokens\": [1.5]}", "not the id of a token"},
      {"{\"prompt\": \"A\", \"repetition_penalty\": 0}", "above 0"},
  };
  ZxQuery q;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    cr_expect(!reads(rows[i].line, &q), "%s", rows[i].line);
    cr_expect(strstr(err.text, rows[i].text), "%s: %s", rows[i].line, err.text);
  }
  reads("{\"prompt\": \"A\", \"temperture\": 1}", &q);
  cr_expect_str_eq(err.help, "did you mean `temperature`?");
}

Test(query, options) {
  ZxQuery q = usual();
  if (!a) a = zb_arena_new();
  cr_expect(zx_query_add_end(&q, a, "7") && zx_query_add_end(&q, a, "9") && q.nend == 2 && q.end[1] == 9);
  cr_expect(zx_query_add_bias(&q, a, "7=-5.5") && q.nbias == 1 && q.bias[0].id == 7 && q.bias[0].by == -5.5f);
  cr_expect(!zx_query_add_end(&q, a, "-1") && !zx_query_add_end(&q, a, "x") &&
            !zx_query_add_bias(&q, a, "7") && !zx_query_add_bias(&q, a, "7=") &&
            !zx_query_add_bias(&q, a, "=3") && !zx_query_add_bias(&q, a, "7=nan") &&
            !zx_query_add_bias(&q, a, "7=101"));
}
