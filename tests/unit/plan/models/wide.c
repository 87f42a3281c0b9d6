/* What is said of f32 that spreads where a recipe computes in bf16, and of what nothing is said. */
#include "tests/unit/plan/models/plan.h"

#include <criterion/criterion.h>
#include <string.h>

#define ATTENTION "x = x + nn.GroupedAttention[seq, embed, kv, grp, hd](nn.RMSNorm[embed](x) as n1) as attn "
#define MLP "x = x + nn.SwiGLU[embed, ffn](nn.RMSNorm[embed](x) as n2) as mlp "
#define LAYERS "repeat 3 as layer { " ATTENTION MLP "}\n"

/* `line` 7 is after the embedding, the rest behind it. Said: all words of `said`, one a line; NULL: nothing. */
static void expect(const char *line, const char *rest, const char *said) {
  ZbArena *a = zb_arena_new();
  Model m = model_open(NULL,
                       zb_printf(a,
                                 "use std.nn as nn\nmodel M {\n"
                                 "  axis batch, seq, vocab = 16, embed = 16, kv = 2, grp = 1, hd = 8, ffn = "
                                 "32, expert = 4, choice = 2\n"
                                 "  input tokens: index(vocab)[batch, seq]  input w: f32[batch, seq]\n"
                                 "  param table[vocab, embed], router[embed, expert] ~ normal(0.02)\n"
                                 "  x = lookup(table, tokens)\n  %s\n  %s\n"
                                 "  loss xent[vocab](dot[embed](x, table), tokens) per known(tokens)\n}\n",
                                 line, rest),
                       NULL);
  Plan half = plan_of(m.g, "bind batch = 4, seq = 8 precision compute bf16"),
       full = plan_of(m.g, "bind batch = 4, seq = 8");
  const char *text = plan_messages(&half);
  cr_expect(!strstr(plan_messages(&full), "Z0210"), "%s %s: %s", line, rest, plan_messages(&full));
  if (!said) cr_expect(!strstr(text, "Z0210"), "%s %s: %s", line, rest, text);
  for (; said && *said; said += strcspn(said, "\n") + 1) {
    const char *words = zb_strndup(a, said, strcspn(said, "\n"));
    cr_expect(strstr(text, words), "%s %s: no '%s' in\n%s", line, rest, words, text);
  }
  if (said) cr_expect(!strstr(strstr(text, "Z0210") + 1, "Z0210"), "%s", text); /* once */
  plan_close(&half);
  plan_close(&full);
  model_close(&m);
  zb_arena_free(a);
}

#define MET(line)                                                                                            \
  "f32 spreads from test.zug:" line                                                                          \
  ", where an f32 operand\nreal(...)` around the f32 operand at test.zug:" line "\n"
#define CARRIED "the repeat `layer` carries it\n"

Test(wide, spreads) {
  expect("x = x + nn.Sines[embed](place[seq]())", LAYERS,
         MET("7") CARRIED "9 products of it run in f32, the first at test.zug:8\n");
  expect("x = x * w", LAYERS, MET("7") CARRIED);
  expect("x = x - mean[seq](f32(x))", LAYERS, MET("7") CARRIED);
  expect("", LAYERS "  x = x * w", MET("9") "1 product of it runs in f32, the first at test.zug:10\n");
  expect("repeat 2 as layer { x = x + nn.SwiGLU[embed, ffn](x * w) as mlp  x = real(x) }", "",
         MET("7") "3 products\n");
  expect("x = f32(x)", LAYERS, "f32 spreads from test.zug:7, where `f32(...)`\n9 products\n");
  expect("loss d = dot[seq](w, spread[seq](mean[seq](w))) per samples()", "",
         "f32 spreads from test.zug:4, where an input\n1 product\n");
}

Test(wide, asked_for) {
  expect("", LAYERS, NULL);
  expect("x = f32(x)",
         "repeat 3 as layer { x = x + f32(nn.SwiGLU[embed, ffn](nn.RMSNorm[embed](real(x)) as n) as mlp) }  "
         "x = real(x)",
         NULL); /* a residual in f32 */
  expect("x = real(x + nn.Sines[embed](place[seq]()))", LAYERS, NULL);
  expect("p = softmax[expert](dot[embed](f32(x), router))",
         "v, e = topk[expert, choice](p)  x = x * real(sum[choice](v))", NULL);
  expect("p = softmax[expert](f32(dot[embed](x, router)))", "x = x * real(sum[expert](p * p))", NULL);
  expect("a = 0 * f32(sum[embed](x))",
         "repeat 3 as layer { " MLP "a = a + sum[embed](f32(x) * f32(x)) }  loss a2 = a per samples()", NULL);
  expect("x = nn.dropout(x)", "z = lse[embed](x)  loss z2 = sum[embed](f32(x) * z) per samples()", NULL);
  expect("loss weighted = w * sum[embed](f32(x)) per samples()", LAYERS, NULL);
  expect("state m[embed] = 0  update m = 0.9 * m + 0.1 * mean[batch, seq](f32(x))  x = x - m", LAYERS, NULL);
}
