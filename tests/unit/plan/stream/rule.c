/* Which models can be made token by token, and what is said of the others. */
#include <criterion/criterion.h>
#include <string.h>

#include "runtime/plan/stream/stream.h"
#include "tests/unit/graph/make.h"
#include "tests/unit/plan/stream/models.h"

/* A model is let through, or refused with the operation and its place in the source. */
Test(rule, models) {
  for (int i = 0; i < stream_model_count; i++) {
    const StreamModel *m = &stream_models[i];
    Case c;
    ZgGraph *g = stream_model(&c, m);
    ZgStream s;
    ZbErr err = {0};
    bool ok = zg_stream(g, c.a, NULL, NULL, &s, &err);
    if (m->refused)
      cr_expect(!ok && strstr(err.text, m->refused), "%s: %s", m->name, ok ? "not refused" : err.text);
    else cr_expect(ok, "%s: %s", m->name, err.text);
    done(&c);
  }
}

static const char two[] = "model Two(words = 7) {\n"
                          "  axis batch, seq, embed = 4, vocab = words\n"
                          "  input tokens: index(vocab)[batch, seq]\n"
                          "  input other: index(vocab)[batch, seq]\n"
                          "  input targets: index(vocab)[batch, seq]\n"
                          "  param table[vocab, embed] ~ normal(0.3)\n"
                          "  x = lookup(table, tokens) + %s\n"
                          "  z = dot[embed](x, table)\n"
                          "  output logits = z\n"
                          "  output centred = z - mean[batch](z)\n"
                          "  output rows = lookup(table, targets)\n"
                          "  loss xent[vocab](z, targets) per known(targets)\n"
                          "}\n";

typedef struct {
  const char *more, *output, *tokens, *says;
} Choice;

/* Of several outputs or inputs one must be named; what the output does not depend on is no choice. */
Test(rule, several) {
  static const Choice choices[] = {
      {"0", NULL, NULL, "can write more than one text: logits from tokens, centred from tokens"},
      {"0", "logits", NULL, NULL},
      {"0", "logits", "tokens", NULL},
      {"0", "logits", "other", "does not write text"},
      {"0", "centred", NULL, "sum mixes samples"},
      {"0", "rows", NULL, "does not write text: no output has `batch`, a time axis"},
      {"0", "none", NULL, "has no output none; its outputs: logits"},
      {"0", "logits", "none", "has no input none"},
      {"lookup(table, other)", "logits", NULL, "logits from tokens, logits from other"},
      {"lookup(table, other)", "logits", "other", NULL},
  };
  for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
    ZbArena *a = zb_arena_new();
    Case c = load_text(zb_printf(a, two, choices[i].more));
    ZgGraph *g = compile(&c);
    cr_assert(g, "%s", messages(&c));
    ZgStream s;
    ZbErr err = {0};
    bool ok = zg_stream(g, a, choices[i].output, choices[i].tokens, &s, &err);
    if (choices[i].says)
      cr_expect(!ok && strstr(err.text, choices[i].says), "%zu: %s", i, ok ? "ok" : err.text);
    else cr_expect(ok, "%zu: %s", i, err.text);
    if (ok) cr_expect_str_eq(g->inputs[s.tokens].name, choices[i].tokens ? choices[i].tokens : "tokens");
    done(&c);
    zb_arena_free(a);
  }
}

/* What a step cannot have although the rule lets it through. */
Test(rule, lengths) {
  static const StreamModel models[] = {
      {"the length of a source", NULL, "input seen: real[batch, src, embed]", "x = x + x / real(size[src]())",
       "takes a length that differs from sequence to sequence", 0},
      {"a source by hand", NULL, "input seen: real[batch, src, embed]",
       "x = x + dot[src](softmax[src](dot[embed](x, seen)), seen)", "has all of `src` beside tokens", 0},
  };
  for (int i = 0; i < 2; i++) {
    Case c;
    ZgGraph *g = stream_model(&c, &models[i]);
    ZpStream s;
    ZbErr err = {0};
    bool ok = zp_stream(g, c.a, NULL, NULL, &s, &err);
    cr_expect(!ok && strstr(err.text, models[i].refused), "%s: %s", models[i].name,
              ok ? "derived" : err.text);
    done(&c);
  }
}

static uint32_t made(Make *m, ZgOp op, const char *axes, uint32_t a, uint32_t b) {
  return make_with(m, (ZgNode){.op = op}, axes, 2, (uint32_t[]){a, b});
}

/* No compiler makes an input of all samples at once; a file may have one. */
Test(rule, input_without_samples) {
  Make m = make_axes();
  uint32_t tokens = make_ids(&m, "tokens", "vocab", "batch seq"),
           table = make_param(&m, "table", "vocab embed");
  uint32_t x = made(&m, ZG_OP_LOOKUP, "vocab", table, tokens);
  x = make2(&m, ZG_OP_ADD, x, make_input(&m, "hint", make_type(&m, ZG_REAL, "embed")));
  x = made(&m, ZG_OP_DOT, "embed", x, table);
  ZgIo logits = {.name = "logits", .type = m.s->values[x].type};
  ZB_PUSH(m.a, m.g->outputs, m.g->noutputs, logits);
  make_sink(&m, ZG_OP_OUTPUT, x);
  ZgStream s;
  ZbErr err = {0};
  cr_expect(!zg_stream(m.g, m.a, NULL, NULL, &s, &err));
  cr_expect(strstr(err.text, "input hint is of all samples at once"), "%s", err.text);
  zb_arena_free(m.a);
}
