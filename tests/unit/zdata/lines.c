/* Lines of JSON, numbers of options, and the line that says how far it is. */
#include "runtime/zdata/zdata.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- lines ---- */
/* A line, and the text of its field `t`, or with a ! why it is bad. */
static const char *const lines[][2] = {
    {"{\"t\":\"a\"}", "a"},
    {" \t{ \"t\" \r:\n\"a\" }\t ", "a"},
    {"{\"t\":\"\"}", ""},
    {"{\"t\":\"a\",\"t\":\"b\"}", "b"},
    {"{\"tt\":\"a\",\"\":\"b\",\"t\":\"c\",\"u\":\"d\"}", "c"},
    {"{\"n\":0,\"t\":\"a\"}", "a"},
    {"{\"n\":-0.50e+10,\"m\":[10,-9.9,1E-2,0e0,{}],\"t\":\"a\"}", "a"},
    {"{\"l\":[],\"o\":{\"t\":\"b\",\"u\":[true,false,null]},\"t\":\"a\"}", "a"},
    {"{\"t\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"}", "\"\\/\b\f\n\r\t"},
    {"{\"t\":\"\\u0041\\u00e9\\u20AC\\uFFFF\"}", "A\u00e9\u20ac\uffff"},
    {"{\"t\":\"\\ud800\\udc00\\udbff\\udfff\"}", "\U00010000\U0010ffff"},
    {"{\"t\":\"\\ud7ff\\ue000\"}", "\ud7ff\ue000"},
    {"{\"t\":\"\\ud800\\ue000|\\udfff|\\ud800\\ud800\\udc00|\\ud800\"}",
     "\ufffd\ue000|\ufffd|\ufffd\U00010000|\ufffd"},
    {"{\"t\":\"\\udc00\\udc00|\\ud7ff\\udc00|\\udbff\\udbff\"}", "\ufffd\ufffd|\ud7ff\ufffd|\ufffd\ufffd"},
    {"{\"\\u0074\":\"a\"}", "a"},
    {"", "!it is not a JSON object"},
    {"{", "!an object's name is missing"},
    {"{\"t\"", "!an object's name is missing"},
    {"{\"t\":", "!it ends too early"},
    {"{\"t\":\"a\",", "!an object's name is missing"},
    {"{\"t\":\"a\\u00", "!\\u is not followed by four hexadecimal digits"},
    {"{\"t\":\"\\u00g0\"}", "!\\u is not followed by four hexadecimal digits"},
    {"{\"t\":\"\\u00@0\"}", "!\\u is not followed by four hexadecimal digits"},
    {"{\"t\":\"\\ud800\\x\"}", "!an unknown escape in a string"},
    {"{\"t\":\"\x1f\"}", "!a control character in a string"},
    {"{\"t\":1}", "!the field is not text"},
    {"{\"t\":tru}", "!a value is neither text, number, list nor object"},
    {"{\"n\":00,\"t\":\"a\"}", "!a value is neither text, number, list nor object"},
    {"{\"n\":-,\"t\":\"a\"}", "!a value is neither text, number, list nor object"},
    {"{\"n\":+1,\"t\":\"a\"}", "!a value is neither text, number, list nor object"},
    {"{\"n\":1.e1,\"t\":\"a\"}", "!a number ends too early"},
    {"{\"n\":1e-}", "!a number ends too early"},
    {"{\"n\":1e", "!a number ends too early"},
    {"{\"l\":[1", "!a comma or an end is missing"},
    {"{\"l\":[", "!it ends too early"},
    {"{\"l\":{\"a\":1]}", "!a comma or an end is missing"},
    {"{\"l\":{\"a\":1,}}", "!an object's name is missing"},
    {"{\"u\":\"a\"}", "!it has no such field"},
    {"{\"t\":\"a\"}}", "!something follows the object"},
};

Test(lines, field) {
  ZbText text = {0};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    const char *line = lines[i][0], *want = lines[i][1], *why = NULL;
    bool bad = *want == '!';
    uint64_t replaced = 0, marks = 0;
    char room[128];
    size_t n = strlen(line);
    memcpy(room, line, n); /* not ended by a NUL, as in a file */
    room[n] = '"';
    bool ok = zd_json_field(room, n, "t", &text, &replaced, &why);
    cr_expect_eq(ok, !bad, "%s: %s", line, why ? why : "taken");
    if (bad) cr_expect(why && !strcmp(why, want + 1), "%s: %s", line, why ? why : "no reason");
    else
      cr_expect(text.len == strlen(want) && !memcmp(text.s ? text.s : "", want, text.len), "%s: %.*s", line,
                (int)text.len, text.s);
    for (const char *at = bad ? "" : want; (at = strstr(at, "\ufffd")); at++) marks++;
    cr_expect_eq(replaced, marks, "%s: %d replaced", line, (int)replaced);
  }
  zb_text_free(&text);
}

/* A line has other fields than was asked for: their names as they may be shown, and the first text. */
Test(lines, names) {
  static const struct {
    const char *line, *list, *text;
  } cases[] = {
      {"{\"content\":\"abc\",\"id\":1}", "'content' (text), 'id'", "content"},
      {" { \"id\" : [\"a\", {}] , \"\\u0062\" : \"x\" } ", "'id', 'b' (text)", "b"},
      {"{\"\\u001b[1m\":\"x\"}", "'\\x1b[1m' (text)", "\033[1m"},
      {"{\"\":\"x\",\"n\":null}", "'' (text), 'n'", ""},
      {"{}", "", ""},
      {"{\"0123456789012345678901234567890123456789x\":1}", "'0123456789012345678901234567890123456789'", ""},
      {"{\"a\":1,\"b\":1,\"c\":1,\"d\":1,\"e\":1,\"f\":1,\"g\":1,\"h\":1,\"i\":1,\"j\":\"x\"}",
       "'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', ...", "j"},
      {"{\"a\":\"x\"", NULL, NULL},
      {"{\"a\":\"x\"} x", NULL, NULL},
      {"{\"a\":\"x\",}", NULL, NULL},
      {"{\"a\"}", NULL, NULL},
      {"[1]", NULL, NULL},
      {"", NULL, NULL},
  };
  ZbText list = {0}, text = {0};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *line = cases[i].line;
    bool ok = zd_json_names(line, strlen(line), &list, &text);
    cr_expect_eq(ok, cases[i].list != NULL, "%s", line);
    if (ok && cases[i].list)
      cr_expect(!strcmp(list.s, cases[i].list) && !strcmp(text.s, cases[i].text), "%s: %s; %s", line, list.s,
                text.s);
  }
  zb_text_free(&list);
  zb_text_free(&text);
}

/* Lists within lists, as deep as may be. */
Test(lines, deep) {
  for (int n = 999; n <= 1001; n++) {
    char line[4096], *to = line + sprintf(line, "{\"l\":");
    for (int i = 0; i < n; i++) *to++ = '[';
    for (int i = 0; i < n; i++) *to++ = ']';
    to += sprintf(to, ",\"t\":\"a\"}");
    ZbText text = {0};
    uint64_t replaced = 0;
    const char *why = NULL;
    cr_expect_eq(zd_json_field(line, (size_t)(to - line), "t", &text, &replaced, &why), n <= 1000, "%d: %s",
                 n, why);
    zb_text_free(&text);
  }
}

/* ---- options ---- */
Test(lines, whole_numbers) {
  static const struct {
    const char *text;
    uint64_t least, is;
    bool good;
  } cases[] = {{"0", 0, 0, true},
               {"0", 1, 0, false},
               {"1", 1, 1, true},
               {"017", 0, 17, true},
               {"", 0, 0, false},
               {"x", 0, 0, false},
               {"1x", 0, 0, false},
               {"-1", 0, 0, false},
               {" -1", 0, 0, false},
               {" 1", 0, 0, false},
               {"+1", 0, 0, false},
               {"1 ", 0, 0, false},
               {"18446744073709551615", 0, UINT64_MAX, true},
               {"18446744073709551616", 0, 0, false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    uint64_t out = 99;
    cr_expect_eq(zd_whole(cases[i].text, cases[i].least, &out), cases[i].good, "'%s'", cases[i].text);
    cr_expect_eq(out, cases[i].good ? cases[i].is : 99, "'%s'", cases[i].text);
  }
}

/* ---- progress ---- */
/* What a call prints on the standard error. */
static void prints(ZdProgress *p, uint64_t done, uint64_t tokens, const char *want) {
  char got[256];
  FILE *f = tmpfile();
  fflush(stderr);
  int before = dup(2);
  cr_assert(f && before >= 0 && dup2(fileno(f), 2) == 2);
  if (done == UINT64_MAX) zd_progress_end(p);
  else zd_progress(p, done, tokens);
  fflush(stderr);
  dup2(before, 2);
  close(before);
  rewind(f);
  got[fread(got, 1, sizeof got - 1, f)] = 0;
  fclose(f);
  cr_expect_str_eq(got, want, "%s", got);
}

Test(lines, progress) {
  ZdProgress p = zd_progress_new(1000);
  cr_expect(p.total == 1000 && !p.shown && p.next > p.begun && p.next < p.begun + 1);
  p.on = false;
  p.next = 0;
  prints(&p, 500, 0, ""); /* no terminal */
  p.on = true;
  p.begun = zb_now() - 10; /* 25.5 B/s, and 29 seconds to go */
  prints(&p, 255, 3000000, "\r255 B of 1.0 kB, 3 million tokens, 25 B/s, 29s left\033[K");
  prints(&p, 255, 3000000, ""); /* it is soon */
  cr_expect(p.shown && p.next > zb_now() && p.next < zb_now() + 1);
  p.next = 0;
  prints(&p, 0, 0, "\r0 B of 1.0 kB, 0 million tokens, 0 B/s\033[K");
  p.next = 0;
  prints(&p, 1000, 1500, "\r1.0 kB of 1.0 kB, 0.0015 million tokens, 99 B/s\033[K");
  prints(&p, UINT64_MAX, 0, "\r\033[K");
  prints(&p, UINT64_MAX, 0, ""); /* it is gone */
}
