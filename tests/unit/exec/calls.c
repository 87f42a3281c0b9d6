/* Calls of tools in answers: what is one, and what streams may say before all is there. */
#include "runtime/exec/serve/calls.h"

#include <criterion/criterion.h>
#include <string.h>

/* Shows what was read: "content|name(arguments)|.." */
static void show(const char *text, const ZxCalls *c, char out[512]) {
  int n = snprintf(out, 512, "%.*s", (int)c->content.len, c->content.s ? c->content.s : "");
  for (uint32_t i = 0; i < c->ncalls; i++)
    n += snprintf(out + n, 512 - (size_t)n, "|%.*s(%.*s)", (int)c->call[i].nname, text + c->call[i].name,
                  (int)c->call[i].narguments, text + c->call[i].arguments);
}

static const struct {
  const char *text, *want;
} answers[] = {
    {"plain text", "plain text"},
    {"  blanks stay  ", "  blanks stay  "},
    {"", ""},
    {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>", "|f({\"a\": 1})"},
    {"Let me see.\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n<tool_call>\n{\"name\": "
     "\"g\", "
     "\"arguments\": {\"b\": [1, {\"c\": 2}]}}\n</tool_call>",
     "Let me see.|f({})|g({\"b\": [1, {\"c\": 2}]})"},
    {"<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": \"</tool_call> \\\" {\"}}</tool_call> done ",
     "done|f({\"x\": \"</tool_call> \\\" {\"})"},
    {"<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": \n</tool_call>",
     "<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": \n</tool_call>"},
    {"<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1",
     "<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1"},
    {"<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 01x}}</tool_call>",
     "<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 01x}}</tool_call>"},
    {"I know <tool> and <tool_call", "I know <tool> and <tool_call"},
    {"{\"name\": \"f\", \"parameters\": {\"a\": \"b\"}}; {\"name\": \"g\", \"parameters\": {}}",
     "|f({\"a\": \"b\"})|g({})"},
    {"<|python_tag|>{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}", "|f({})"},
    {"{\"name\": \"no call\"}", "{\"name\": \"no call\"}"},
    {"{\"other\": 1}", "{\"other\": 1}"},
    {"text {\"name\": \"f\", \"parameters\": {}}", "text {\"name\": \"f\", \"parameters\": {}}"},
    {"<tool_call>{\"name\": \"f\", \"arguments\": {}} and more", "and more|f({})"},
};

/* What is said of a part of an answer is the beginning of what is said of the whole, wherever it is cut. */
Test(calls, answers) {
  for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
    const char *text = answers[i].text;
    size_t n = strlen(text);
    ZxCalls whole, part;
    char shown[512];
    zx_calls_read(text, n, true, ZX_CALLS, &whole);
    show(text, &whole, shown);
    cr_expect_str_eq(shown, answers[i].want, "%s: %s", text, shown);
    for (size_t cut = 0; cut <= n; cut++) {
      zx_calls_read(text, cut, false, ZX_CALLS, &part);
      cr_expect(part.content.len <= whole.content.len &&
                    !memcmp(part.content.s ? part.content.s : "", whole.content.s ? whole.content.s : "",
                            part.content.len),
                "%s, cut at %zu: %.*s", text, cut, (int)part.content.len, part.content.s);
      cr_expect(part.ncalls <= whole.ncalls &&
                    !memcmp(part.call, whole.call, part.ncalls * sizeof *part.call),
                "%s, cut at %zu", text, cut);
      zb_text_free(&part.content);
    }
    zb_text_free(&whole.content);
  }
}

/* Where one call is wanted nothing comes behind it. */
Test(calls, one) {
  const char text[] = "so: <tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call> and "
                      "<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>";
  ZxCalls c;
  char shown[512];
  zx_calls_read(text, sizeof text - 1, true, 1, &c);
  show(text, &c, shown);
  cr_expect_str_eq(shown, "so:|f({})", "%s", shown);
  zb_text_free(&c.content);
}
