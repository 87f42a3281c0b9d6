/* Loading, finding models and blocks, printing, limits. */
#include "lang/internal.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
  ZbArena *a;
  ZlSources *s;
  ZlDiags *d;
  ZlProgram *p;
  ZbText out;
} Case;

static Case load_bytes(const char *text, size_t n) {
  Case c = {.a = zb_arena_new()};
  c.s = zl_sources_new(c.a);
  c.d = zl_diags_new(c.a, c.s);
  c.p = zl_load_text(c.a, c.s, c.d, "test.zug", text, n, NULL);
  return c;
}
static Case load(const char *text) { return load_bytes(text, strlen(text)); }
static const char *messages(Case *c) {
  zb_text_free(&c->out);
  zl_print_text(c->d, &c->out);
  return c->out.s ? c->out.s : "";
}
static void done(Case *c) {
  zb_text_free(&c->out);
  zb_arena_free(c->a);
}
static void expect_code(Case *c, ZlCode code, const char *words) {
  const char *text = messages(c);
  cr_expect(strstr(text, zb_printf(c->a, "[%s]", zl_code_name(code))), "no %s in: %s", zl_code_name(code),
            text);
  cr_expect(strstr(text, words), "no '%s' in: %s", words, text);
}

static const char two_models[] =
    "use std.nn\n"
    "block twice(x: real[..]) -> real[..] { return x + x }\n"
    "model Small(width = 8) { axis batch, embed = width\n"
    "  block Layer(x: real[.., embed]) -> real[.., embed] { return nn.relu(x) }\n"
    "  input x: real[batch, embed] repeat 2 as layer { x = Layer(x) }\n"
    "  loss sum[..](twice(x)) per sum[..](x) }\n"
    "model Large { axis batch input x: real[batch] loss sum[..](x) per sum[..](x) }\n";

Test(program, model_by_name) {
  Case c = load(two_models);
  cr_expect(zl_errors(c.d) == 0, "%s", messages(&c));
  cr_expect_str_eq(zl_model(c.p, c.d, "Small")->name.s, "Small");
  cr_expect(zl_model_names(c.p).n == 2);
  cr_expect_null(zl_model(c.p, c.d, NULL));
  expect_code(&c, ZL_Z0106, "test.zug has 2 models: say which");
  cr_expect_null(zl_model(c.p, c.d, "Smal"));
  expect_code(&c, ZL_Z0106, "did you mean `Small`?");
  done(&c);
}

Test(program, only_model_and_none) {
  Case c = load("model M { axis batch input x: real[batch] loss sum[..](x) per sum[..](x) }");
  cr_expect_str_eq(zl_model(c.p, c.d, NULL)->name.s, "M");
  done(&c);
  c = load("# nothing\n");
  cr_expect(zl_errors(c.d) == 0);
  cr_expect_null(zl_model(c.p, c.d, NULL));
  expect_code(&c, ZL_Z0106, "test.zug has no model");
  done(&c);
}

static ZlPath path_of(ZbArena *a, const char *first, const char *second) {
  ZlPath p = {.span = {0, 0, 3}};
  ZB_PUSH(a, p.part, p.n, ((ZlName){first, p.span}));
  if (second) ZB_PUSH(a, p.part, p.n, ((ZlName){second, p.span}));
  return p;
}

Test(program, blocks_by_scope) {
  Case c = load(two_models);
  ZlScope inside = zl_model_scope(zl_model(c.p, c.d, "Small")),
          outside = zl_model_scope(zl_model(c.p, c.d, "Large"));
  ZlPath layer = path_of(c.a, "Layer", NULL), twice = path_of(c.a, "twice", NULL),
         relu = path_of(c.a, "nn", "relu");
  const ZlBlock *b = zl_find_block(c.p, inside, &layer);
  cr_assert(b);
  cr_expect(b->model == inside.model && b->nresults == 1);
  cr_expect_null(zl_find_block(c.p, outside, &layer));
  cr_expect(zl_find_block(c.p, outside, &twice));
  b = zl_find_block(c.p, zl_block_scope(b), &relu);
  cr_assert(b);
  cr_expect_str_eq(b->file->name, "<library>/std/nn.zug");
  cr_expect_null(b->model);
  uint32_t n;
  const char **names = zl_visible_blocks(c.p, inside, c.a, &n);
  bool qualified = false;
  for (uint32_t i = 0; i < n; i++) qualified |= strcmp(names[i], "nn.relu") == 0;
  cr_expect(qualified && n > 4);
  done(&c);
}

Test(program, unknown_blocks) {
  Case c = load(two_models);
  ZlScope scope = zl_model_scope(zl_model(c.p, c.d, "Small"));
  static const char *const ops[] = {"dot", "softmax"};
  ZlPath p = path_of(c.a, "softmix", NULL);
  zl_report_no_block(c.p, c.d, scope, &p, ops, 2);
  expect_code(&c, ZL_Z0103, "did you mean `softmax`?");
  p = path_of(c.a, "Linear", NULL);
  zl_report_no_block(c.p, c.d, scope, &p, ops, 2);
  expect_code(&c, ZL_Z0103, "did you mean `nn.Linear`?");
  p = path_of(c.a, "nn", "relo");
  zl_report_no_block(c.p, c.d, scope, &p, ops, 2);
  expect_code(&c, ZL_Z0103, "did you mean `nn.relu`?");
  p = path_of(c.a, "n", "relu");
  zl_report_no_block(c.p, c.d, scope, &p, ops, 2);
  expect_code(&c, ZL_Z0104, "did you mean `nn`?");
  p = path_of(c.a, "layers", "relu");
  zl_report_no_block(c.p, c.d, scope, &p, ops, 2);
  expect_code(&c, ZL_Z0104, "add `use ... as layers`");
  done(&c);
}

/* The printed form parses to a tree that prints the same. */
Test(program, dump_is_stable) {
  ZbText first = {0}, second = {0};
  ZbArena *a = zb_arena_new();
  size_t n;
  const char *text = zb_read_file(a, ZUG_SRC "/tests/data/lang/good.zug", 1 << 20, &n, NULL);
  cr_assert(text);
  for (char *u; (u = strstr(text, "use lib.good"));) memcpy(u, "use std.nn  ", 12);
  for (char *u; (u = strstr(text, "good.twice"));) memcpy(u, "good.relu ", 10);
  Case c = load(zb_printf(a, "use std.nn as good\n%s", strstr(text, "model M")));
  cr_assert(zl_errors(c.d) == 0, "%s", messages(&c));
  zl_dump(c.p, &first);
  done(&c);
  c = load(first.s);
  cr_assert(zl_errors(c.d) == 0, "%s", messages(&c));
  zl_dump(c.p, &second);
  cr_expect_str_eq(first.s, second.s);
  cr_expect(strstr(first.s, "y = (((-dot[mesh](x, w)) * 2) - 1)"), "%s", first.s);
  done(&c);
  zb_text_free(&first);
  zb_text_free(&second);
  zb_arena_free(a);
}

Test(program, embedded_library_parses) {
  for (const char *const *e = zl_stdlib; *e; e += 2) {
    Case c = load(e[1]);
    cr_expect(zl_errors(c.d) == 0, "%s: %s", e[0], messages(&c));
    done(&c);
  }
}

/* The tags that a recipe may name for any model are those of the embedded library, no more and no fewer. */
Test(program, embedded_library_tags) {
  uint32_t used = 0, known = 0;
  while (zl_std_tags[known]) known++;
  for (const char *const *e = zl_stdlib; *e; e += 2)
    for (const char *at = e[1]; (at = strstr(at, " tag ")); at++) {
      uint32_t k = 0;
      size_t n = strcspn(at + 5, " ,\n");
      while (k < known && (strlen(zl_std_tags[k]) != n || memcmp(zl_std_tags[k], at + 5, n) != 0)) k++;
      cr_expect(k < known, "%s: %.20s", e[0], at);
      used |= 1u << k;
    }
  cr_expect_eq(used, (1u << known) - 1);
}

/* The fenced examples of the manual, except the grammar: they parse, and their recipes and
 * clusters resolve. */
Test(program, reference_examples) {
  ZbArena *a = zb_arena_new();
  size_t n;
  int examples = 0;
  char *text = zb_read_file(a, ZUG_SRC "/lang/REFERENCE.md", 1 << 20, &n, NULL);
  cr_assert(text);
  for (char *open = text; (open = strstr(open, "\n```\n"));) {
    char *from = open + 5, *to = strstr(from, "\n```\n");
    cr_assert(to, "a fence is not closed");
    open = to + 4;
    *to = 0;
    if (strncmp(from, "file ", 5) == 0) continue;
    Case c = load(from);
    cr_expect(zl_errors(c.d) == 0, "%s", messages(&c));
    ZlNames recipes = zl_recipe_names(c.p);
    for (uint32_t i = 0; i < recipes.n; i++) zl_recipe(c.p, c.d, recipes.at[i].s);
    if (c.p->files[0]->nclusters) zl_cluster(c.p, c.d, NULL);
    cr_expect(zl_errors(c.d) == 0 && zl_warnings(c.d) == 0, "%s", messages(&c));
    done(&c);
    examples++;
  }
  cr_expect(examples >= 4);
  zb_arena_free(a);
}

Test(program, unreadable_file) {
  Case c = load("");
  cr_expect_null(zl_load(c.a, c.s, c.d, "no/such/file.zug", NULL));
  expect_code(&c, ZL_Z0004, "cannot open no/such/file.zug");
  expect_code(&c, ZL_Z0004, "= help: check the path and its permissions");
  cr_expect_null(zl_load_text(c.a, c.s, c.d, "big.zug", "", ZL_MAX_FILE + 1, NULL));
  expect_code(&c, ZL_Z0004, "big.zug has 16777217 bytes");
  done(&c);
}

Test(program, include_folders) {
  Case c = load("");
  const char *const folders[] = {"/nowhere", ZUG_SRC "/tests/data/lang"};
  static const char text[] = "use lib.good\n";
  c.p = zl_load_text(c.a, c.s, c.d, "no-such-folder/x.zug", text, strlen(text), &(ZlOptions){folders, 2});
  cr_expect(zl_errors(c.d) == 0, "%s", messages(&c));
  cr_expect(c.p->nfiles == 3); /* with std.nn, which lib/good.zug uses */
  c.p = zl_load_text(c.a, c.s, c.d, "no-such-folder/x.zug", text, strlen(text), &(ZlOptions){folders, 1});
  expect_code(&c, ZL_Z0005, "looked in /nowhere");
  done(&c);
}

Test(program, unreadable_use) {
  char folder[] = "/tmp/zug-use-XXXXXX";
  cr_assert(mkdtemp(folder));
  Case c = load("");
  const char *file = zb_printf(c.a, "%s/null.zug", folder), *const folders[] = {folder};
  cr_assert(symlink("/dev/null", file) == 0);
  c.p = zl_load_text(c.a, c.s, c.d, "no-such-folder/x.zug", "use null", 8, &(ZlOptions){folders, 1});
  cr_expect_str_eq(messages(&c), zb_printf(c.a,
                                           "error[Z0004]: %s is not a regular file but a device\n"
                                           " --> no-such-folder/x.zug:1:5\n"
                                           "  |\n"
                                           "1 | use null\n"
                                           "  |     ^^^^\n"
                                           "  = help: give a regular file\n\n",
                                           file));
  cr_expect(c.p && zl_errors(c.d) == 1 && c.p->nfiles == 1 && !c.p->files[0]->uses[0].file);
  unlink(file), rmdir(folder);
  done(&c);
}

/* ---- limits: a clean error, no deep recursion ---- */
static void repeat_text(ZbText *t, const char *s, int times) {
  while (times--) zb_text_put(t, s, strlen(s));
}
static void nested(const char *before, const char *open, const char *middle, const char *close,
                   const char *after, int depth, bool ok) {
  ZbText t = {0};
  zb_text_add(&t, "%s", before);
  repeat_text(&t, open, depth);
  zb_text_add(&t, "%s", middle);
  repeat_text(&t, close, depth);
  zb_text_add(&t, "%s", after);
  Case c = load(t.s);
  if (ok) cr_expect(zl_errors(c.d) == 0, "%s", messages(&c));
  else expect_code(&c, ZL_Z0003, "nested");
  done(&c);
  zb_text_free(&t);
}

Test(limits, nesting) {
  const char *head = "block f(x: real[..]) -> real[..] { ", *tail = " }";
  for (int depth = 100; depth <= 100000; depth *= 10) {
    nested(head, "(", "return x", ")", tail, 0, true);
    nested("block f(x: real[..]) -> real[..] { return ", "(", "x", ")", tail, depth,
           depth == 100 || depth == 1000);
    nested("block f(x: real[..]) -> real[..] { return ", "-", "x", "", tail, depth, depth == 100);
    nested("block f(x: real[..]) -> real[..] { return x", " + x", "", "", tail, depth, depth == 100);
    nested("block f(x: real[..]) -> real[..] { return ", "exp(", "x", ")", tail, depth, depth == 100);
    nested(head, "repeat 2 { ", "x = x", " }", " return x }", depth, depth == 100);
  }
}

/* Axes and conditions of maps; a name beside an open parenthesis is one level more. */
Test(limits, nesting_in_maps) {
  static const struct {
    const char *head, *open, *middle, *close, *tail;
    int levels, most;
  } cases[] = {{"w = \"w\"[", "(", "a", ")", "]", 1, ZL_MAX_NESTING - 1},
               {"w = \"w\"[", "(b ", "a", ")", "]", 2, ZL_MAX_NESTING - 1},
               {"w = \"w\"[", "(b + ", "a", ")", "]", 2, ZL_MAX_NESTING - 1},
               {"", "if 1 { ", "w = \"w\"[a]", " }", "", 1, ZL_MAX_NESTING},
               {"", "if 1 { ", "ignore \"w\"", " }", "", 1, ZL_MAX_NESTING},
               {"", "if 1 { } else { ", "ignore \"w\"", " }", "", 1, ZL_MAX_NESTING},
               {"config { ", "if 1 { ", "a = 1", " }", " }", 1, ZL_MAX_NESTING},
               {"if 1", " + 1", " { w = \"w\"[a] }", "", "", 1, ZL_MAX_NESTING - 1},
               {"config { a = 1", " + 1", "", "", " }", 1, ZL_MAX_NESTING - 1},
               {"config { a = 1 else 1", " + 1", "", "", " }", 1, ZL_MAX_NESTING - 1},
               {"config { a = bool(1", " + 1", "", "", ") }", 1, ZL_MAX_NESTING - 1},
               {"config { a = [2, 1", " + 1", "", "", "] }", 1, ZL_MAX_NESTING - 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int n = (ZL_MAX_NESTING - 2) / cases[i].levels; n <= ZL_MAX_NESTING / cases[i].levels + 2; n++) {
      ZbText head = {0}, tail = {0};
      zb_text_add(&head, "model M { axis batch input x: real[batch] loss x per x } weights hf for M { %s",
                  cases[i].head);
      zb_text_add(&tail, "%s }", cases[i].tail);
      nested(head.s, cases[i].open, cases[i].middle, cases[i].close, tail.s, n,
             n * cases[i].levels <= cases[i].most);
      zb_text_free(&head);
      zb_text_free(&tail);
    }
}

/* Wherever an expression may stand. */
Test(limits, nesting_everywhere) {
  static const char *const places[][2] = {{"param w[d] = ", ""},
                                          {"param w[d] ~ normal(", ")"},
                                          {"param w[d] ~ uniform(0, ", ")"},
                                          {"y = ", ""},
                                          {"y = exp(", ")"},
                                          {"repeat ", " { y = x }"},
                                          {"repeat 2 { y = ", " }"},
                                          {"aux ", ""},
                                          {"axis e = ", ""},
                                          {"axis e = 2, f = ", ""},
                                          {"output o = ", ""},
                                          {"block b(x: real[..]) -> real[..] { return ", " }"},
                                          {"block b(x: real[..]) -> real[..], real[..] { return x, ", " }"},
                                          {"block b(x: real[..], s = ", ") -> real[..] { return x }"},
                                          {"if ", " { y = x }"},
                                          {"if 1 { y = x } else if ", " { y = x }"},
                                          {"if 0 { aux ", " }"},
                                          {"update m = ", ""},
                                          {"loss ", " per x"},
                                          {"loss x per ", ""}};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++)
    for (int depth = 100; depth <= 1000; depth *= 10) {
      ZbText head = {0}, tail = {0};
      bool loss = strstr(places[i][0], "loss ");
      zb_text_add(&head, "model M { axis batch, d = 2 input x: real[batch, d] %s1", places[i][0]);
      zb_text_add(&tail, "%s %s }", places[i][1], loss ? "" : "loss x per x");
      nested(head.s, " + 1", "", "", tail.s, depth, depth == 100);
      zb_text_free(&head);
      zb_text_free(&tail);
    }
}

Test(limits, any_bytes) {
  char bytes[256];
  for (int i = 0; i < 256; i++) bytes[i] = (char)i;
  Case c = load_bytes(bytes, sizeof bytes);
  expect_code(&c, ZL_Z0002, "unexpected byte 0x00");
  for (const char *p = messages(&c); *p; p++) cr_assert(*p == '\n' || (unsigned char)*p >= 0x20);
  done(&c);
}

Test(limits, many_errors_are_cut) {
  ZbText t = {0};
  zb_text_add(&t, "model M {\n");
  repeat_text(&t, "  x = )\n", 500);
  zb_text_add(&t, "}\n");
  Case c = load(t.s);
  cr_expect(zl_errors(c.d) == 500, "%zu", zl_errors(c.d));
  cr_expect(strstr(messages(&c), "... and 400 more"));
  done(&c);
  zb_text_free(&t);
}

/* ---- diagnostics ---- */
Test(diag, one_line_with_several_labels) {
  Case c = load("    q = dot[embed](x, wq) + bo\n\ty = 1\n");
  c.d = zl_diags_new(c.a, c.s);
  ZlDiag *d = zl_report(c.d, ZL_Z0201, (ZlSpan){0, 8, 25}, "operands of `+` have unrelated axes");
  zl_label(d, "[batch, seq, head, hd]");
  zl_also(d, (ZlSpan){0, 28, 30}, "[embed]");
  zl_also(d, (ZlSpan){0, 32, 33}, "after a tab");
  zl_note(d, "one operand's axes must contain the other's");
  zl_help(d, "did you mean `bq` [head, hd]?");
  cr_expect_str_eq(messages(&c), "error[Z0201]: operands of `+` have unrelated axes\n"
                                 " --> test.zug:1:9\n"
                                 "  |\n"
                                 "1 |     q = dot[embed](x, wq) + bo\n"
                                 "  |         ^^^^^^^^^^^^^^^^^   -- [embed]\n"
                                 "  |         [batch, seq, head, hd]\n"
                                 "2 |  y = 1\n"
                                 "  |  - after a tab\n"
                                 "  = note: one operand's axes must contain the other's\n"
                                 "  = help: did you mean `bq` [head, hd]?\n\n");
  done(&c);
}

Test(diag, same_report_once) {
  Case c = load("x\n");
  c.d = zl_diags_new(c.a, c.s);
  for (int i = 0; i < 3; i++) zl_note(zl_report(c.d, ZL_Z0112, ZL_NOWHERE, "unused %d", i / 2), "note %d", i);
  cr_expect(zl_warnings(c.d) == 2 && zl_errors(c.d) == 0);
  cr_expect_str_eq(
      messages(&c),
      "warning[Z0112]: unused 0\n  = note: note 0\n\nwarning[Z0112]: unused 1\n  = note: note 2\n\n");
  done(&c);
}

/* What the first error says: warnings are none. */
Test(diag, first_error) {
  Case c = load("x\n");
  c.d = zl_diags_new(c.a, c.s);
  cr_expect_null(zl_first_error(c.d));
  zl_report(c.d, ZL_Z0112, ZL_NOWHERE, "a warning");
  cr_expect_null(zl_first_error(c.d));
  zl_report(c.d, ZL_Z0201, ZL_NOWHERE, "one");
  zl_report(c.d, ZL_Z0202, ZL_NOWHERE, "two");
  cr_expect_str_eq(zl_first_error(c.d), "one");
  done(&c);
}

Test(diag, span_of_several_lines_and_long_lines) {
  ZbText t = {0};
  zb_text_add(&t, "a b\nc\n");
  repeat_text(&t, "0123456789", 60);
  Case c = load(t.s);
  c.d = zl_diags_new(c.a, c.s);
  zl_report(c.d, ZL_Z0001, (ZlSpan){0, 2, 5}, "two lines");
  ZlDiag *d = zl_report(c.d, ZL_Z0001, (ZlSpan){0, 6 + 500, 6 + 503}, "far right");
  zl_label(d, "here");
  const char *text = messages(&c);
  cr_expect(strstr(text, "1 | a b\n  |   ^\n"), "%s", text);
  cr_expect(strstr(text, "^^^ here"), "%s", text);
  for (const char *line = text; *line; line += strcspn(line, "\n") + 1) cr_expect(strcspn(line, "\n") < 180);
  done(&c);
  zb_text_free(&t);
}

Test(diag, json) {
  Case c = load("model M {\n  x = )\n}\n");
  ZbText out = {0};
  zl_print_json(c.d, &out);
  char *line = strtok(out.s, "\n");
  cJSON *o = cJSON_Parse(line);
  cr_assert(o, "%s", line);
  cr_expect_str_eq(cJSON_GetObjectItem(o, "severity")->valuestring, "error");
  cr_expect_str_eq(cJSON_GetObjectItem(o, "code")->valuestring, "Z0001");
  cr_expect_str_eq(cJSON_GetObjectItem(o, "file")->valuestring, "test.zug");
  cr_expect(cJSON_GetObjectItem(o, "line")->valueint == 2);
  cr_expect(cJSON_GetObjectItem(o, "column")->valueint == 7);
  cr_expect(cJSON_GetObjectItem(o, "end_column")->valueint == 8);
  cr_expect_str_eq(cJSON_GetObjectItem(o, "label")->valuestring, "expected an expression");
  cr_expect(cJSON_IsArray(cJSON_GetObjectItem(o, "also")) && cJSON_IsArray(cJSON_GetObjectItem(o, "help")));
  cJSON_Delete(o);
  zb_text_free(&out);
  done(&c);
}
