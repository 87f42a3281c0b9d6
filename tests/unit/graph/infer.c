/* The type rule and the axis classes, op by op: what fits, what does not and how that is said. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/unit/graph/make.h"

typedef struct {
  ZgOp op;
  const char *ax;
  const char *in[6];
  const char *want; /* results, "; " between, or "! " and a part of the reason */
  ZgNode with;      /* num, opt */
  const char *hint;
} Case;

static void try(const Case *c) {
  Make m = make_axes();
  ZgNode n = c->with;
  ZgType in[6], out[ZG_MAX_OUT], hint;
  ZbErr err = {0};
  ZbText got = {0};
  n.op = c->op;
  char *copy = zb_strdup(m.a, c->ax), *save = NULL;
  for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
    n.ax[n.nax++] = (uint16_t)zg_axis_find(m.g, w);
  for (; n.nin < 6 && c->in[n.nin]; n.nin++) in[n.nin] = make_typed_text(&m, c->in[n.nin]);
  if (c->hint) hint = make_typed_text(&m, c->hint);
  if (zg_infer(m.g, &n, in, c->hint ? &hint : NULL, out, &err))
    for (int i = 0; i < zg_outs(n.op, n.opt); i++) {
      if (i) zb_text_add(&got, "; ");
      zg_type_put(m.g, &got, &out[i]);
    }
  else zb_text_add(&got, "! %s", err.text);
  bool same = c->want[0] == '!' ? got.s && got.s[0] == '!' && strstr(got.s, c->want + 2)
                                : !strcmp(got.s ? got.s : "", c->want);
  cr_expect(same, "%s[%s]: got  %s\n   want %s", zg_op_info[c->op].text, c->ax, got.s, c->want);
  zb_text_free(&got);
  zb_arena_free(m.a);
}

#define TRY(NAME, ...)                                                                                       \
  Test(infer, NAME) {                                                                                        \
    const Case cases[] = {__VA_ARGS__};                                                                      \
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) try(&cases[i]);                                \
  }

/* clang-format off */
TRY(sources,
    {ZG_OP_PARAM, "", {0}, "real[embed, vocab]", {0}, NULL},
    {ZG_OP_PARAM, "", {0}, "! the parameter number is 1", {.opt = {1}}, NULL},
    {ZG_OP_PARAM, "", {0}, "! the parameter number is -1", {.opt = {-1}}, NULL},
    {ZG_OP_PARAM, "embed", {0}, "! param takes 0 axis names, found 1", {0}, NULL},
    {ZG_OP_INPUT, "", {0}, "! the input number", {0}, NULL},
    {ZG_OP_CARRY, "", {0}, "f32[batch]", {0}, "f32 batch"},
    {ZG_OP_CARRY, "", {0}, "! carry needs a result type", {0}, NULL},
    {ZG_OP_DCARRY, "", {0}, "! only real values have cotangents, not index(vocab)[batch]", {0},
     "index(vocab) batch"},
    {ZG_OP_SEED, "", {0}, "f32", {.opt = {1}}, NULL},
    {ZG_OP_SEED, "", {0}, "! the kind of seed is 2", {.opt = {2}}, NULL},
    {ZG_OP_COPY, "", {"real"}, "! made by the planner", {0}, NULL})

TRY(sinks,
    {ZG_OP_LOSS_NUM, "", {"f32"}, "", {0}, NULL},
    {ZG_OP_LOSS_NUM, "", {"f32 batch"}, "! loss_num takes a scalar, found f32[batch]", {0}, NULL},
    {ZG_OP_AUX, "", {"i32"}, "! aux takes a real tensor, but its first operand is i32", {0}, NULL},
    {ZG_OP_PARAM_GRAD, "", {"f32 embed vocab"}, "", {0}, NULL},
    {ZG_OP_PARAM_GRAD, "", {"f32 embed"}, "! must have the axes of real[embed, vocab], found f32[embed]",
     {0}, NULL},
    {ZG_OP_DCARRY_IN, "", {"bool"}, "! takes a real tensor", {0}, NULL},
    {ZG_OP_OUTPUT, "", {"real"}, "! the output number", {0}, NULL},
    {ZG_OP_CARRY_OUT, "", {0}, "! carry_out takes 1 to 1 operands, found 0", {0}, NULL})

TRY(elementwise,
    {ZG_OP_ADD, "", {"real batch embed", "real embed"}, "real[batch, embed]", {0}, NULL},
    {ZG_OP_ADD, "", {"real", "real batch"}, "real[batch]", {0}, NULL},
    {ZG_OP_ADD, "", {"real batch", "real embed"},
     "! neither operand contains the axes of the other: real[batch] lacks embed, and real[embed] lacks batch",
      {0}, NULL},
    {ZG_OP_MUL, "", {"real", "f32"}, "f32", {0}, NULL},
    {ZG_OP_MUL, "", {"bf16", "real"}, "real", {0}, NULL},
    {ZG_OP_MUL, "", {"bf16", "f16"}, "f32", {0}, NULL},
    {ZG_OP_MUL, "", {"i32", "i32 batch"}, "i32[batch]", {0}, NULL},
    {ZG_OP_MUL, "", {"i32", "real"}, "! mul does not combine i32 with real", {0}, NULL},
    {ZG_OP_MUL, "", {"bool", "bool"}, "! mul does not combine bool with bool", {0}, NULL},
    {ZG_OP_ADD, "", {"index(vocab)", "index(vocab)"}, "! add does not combine", {0}, NULL},
    {ZG_OP_DIV, "", {"i32", "i32"}, "! cast the i32 operands", {0}, NULL},
    {ZG_OP_LESS, "", {"real batch", "f32"}, "bool[batch]", {0}, NULL},
    {ZG_OP_EQUAL, "", {"i32", "i32"}, "bool", {0}, NULL},
    {ZG_OP_SELECT, "", {"bool batch", "real", "f32 batch embed"}, "f32[batch, embed]", {0}, NULL},
    {ZG_OP_SELECT, "", {"real", "real", "real"}, "! select takes a bool as its first operand", {0}, NULL},
    {ZG_OP_NEG, "", {"i32 batch"}, "i32[batch]", {0}, NULL},
    {ZG_OP_EXP, "", {"i32"}, "! exp takes a real tensor, but its first operand is i32", {0}, NULL},
    {ZG_OP_EXP, "embed", {"real"}, "! exp takes 0 axis names", {0}, NULL},
    {ZG_OP_STOP, "", {"bf16 batch"}, "bf16[batch]", {0}, NULL},
    {ZG_OP_KNOWN, "", {"index(vocab) batch"}, "real[batch]", {0}, NULL},
    {ZG_OP_KNOWN, "", {"i32"}, "! known takes an index, found i32", {0}, NULL},
    {ZG_OP_CAST, "", {"real batch"}, "f32[batch]", {0}, "f32 batch"},
    {ZG_OP_CAST, "", {"bool"}, "real", {0}, "real"},
    {ZG_OP_CAST, "", {"real batch"}, "! cast keeps the axes of real[batch]", {0}, "f32"},
    {ZG_OP_CAST, "", {"index(vocab)"}, "i32", {0}, "i32"},
    {ZG_OP_CAST, "", {"index(vocab)"}, "! index(vocab) cannot become bool", {0}, "bool"},
    {ZG_OP_CAST, "", {"index(vocab)"}, "! index(vocab) cannot become index", {0}, "index(embed)"},
    {ZG_OP_CAST, "", {"f32 batch"}, "index(vocab)[batch]", {0}, "index(vocab) batch"},
    {ZG_OP_CAST, "", {"real"}, "! cast needs a result type", {0}, NULL},
    {ZG_OP_BROADCAST, "", {"real embed"}, "real[batch, embed]", {0}, "real batch embed"},
    {ZG_OP_BROADCAST, "", {"real embed"}, "! real[embed] cannot become real[batch]", {0}, "real batch"},
    {ZG_OP_FILL, "", {0}, "real", {.num = {2}}, NULL},
    {ZG_OP_FILL, "", {0}, "i32", {.num = {2}}, "i32"},
    {ZG_OP_FILL, "", {0}, "! fill cannot make bool", {0}, "bool"},
    {ZG_OP_FILL, "", {0}, "! a number is not finite", {.num = {__builtin_inf()}}, NULL},
    {ZG_OP_AXSIZE, "batch", {0}, "f32", {0}, NULL},
    {ZG_OP_AXSIZE, "", {0}, "! size takes 1 axis name, found 0", {0}, NULL})

TRY(moving,
    {ZG_OP_RENAME, "embed eight", {"real batch embed"}, "real[batch, eight]", {0}, NULL},
    {ZG_OP_RENAME, "embed odd", {"real embed"}, "! embed has 8 elements and odd has 3", {0}, NULL},
    {ZG_OP_RENAME, "embed eight", {"real embed eight"}, "! the first operand has the axis eight already",
     {0}, NULL},
    {ZG_OP_RENAME, "vocab embed", {"real embed"}, "! rename[vocab]: the first operand has no axis vocab",
     {0}, NULL},
    {ZG_OP_RENAME, "embed embed", {"real embed"}, "! the axis embed is named twice", {0}, NULL},
    {ZG_OP_SLICE, "embed odd", {"real embed"}, "real[odd]", {.opt = {5, 3}}, NULL},
    {ZG_OP_SLICE, "embed odd", {"real embed"}, "! 3 elements from 6 of embed (8) do not give odd (3)",
     {.opt = {6, 3}}, NULL},
    {ZG_OP_SLICE, "embed odd", {"real embed"}, "! 2 elements from 0", {.opt = {0, 2}}, NULL},
    {ZG_OP_SLICE, "embed odd", {"real embed"}, "! slice", {.opt = {INT64_MAX, 3}}, NULL},
    {ZG_OP_SLICE, "seq odd", {"real seq"}, "! the size of seq must be a number in the model",
     {.opt = {0, 3}}, NULL},
    {ZG_OP_PAD, "odd embed", {"real odd"}, "real[embed]", {.opt = {5}}, NULL},
    {ZG_OP_PAD, "odd embed", {"real odd"}, "! odd (3) at 6 does not fit into embed (8)", {.opt = {6}}, NULL},
    {ZG_OP_PAD, "odd embed", {"i32 odd"}, "! pad takes a real tensor", {0}, NULL},
    {ZG_OP_CONCAT, "vocab embed odd", {"real batch embed", "real batch odd"}, "real[batch, vocab]", {0},
     NULL},
    {ZG_OP_CONCAT, "vocab embed hd", {"real embed", "real hd"},
     "! elements together, but vocab has 11", {0}, NULL},
    {ZG_OP_CONCAT, "vocab embed odd", {"real batch embed", "real odd"},
     "! besides the joined axis the operands differ", {0}, NULL},
    {ZG_OP_CONCAT, "vocab embed", {"real embed", "real odd"}, "! concat takes 3 axis names, found 2", {0},
     NULL},
    {ZG_OP_MERGE, "wide embed x0", {"real batch embed x0"}, "real[batch, wide]", {0}, NULL},
    {ZG_OP_PART, "embed x0 wide", {"i32 batch wide"}, "i32[batch, embed, x0]", {0}, NULL},
    {ZG_OP_MERGE, "vocab embed odd", {"real embed odd"},
     "! the parts have 24 elements together, but vocab has 11", {0}, NULL},
    {ZG_OP_MERGE, "wide embed x0", {"real embed"}, "! the first operand has no axis x0", {0}, NULL},
    {ZG_OP_MERGE, "wide embed x0", {"real embed x0 wide"}, "! the first operand has the axis wide already",
     {0}, NULL},
    {ZG_OP_PART, "embed x0 wide", {"real embed wide"}, "! the first operand has the axis embed already", {0},
     NULL},
    {ZG_OP_PART, "embed x0 wide", {"real batch"}, "! the first operand has no axis wide", {0}, NULL},
    {ZG_OP_MERGE, "wide embed seq", {"real embed seq"}, "! the size of seq must be a number in the model",
     {0}, NULL},
    {ZG_OP_MERGE, "wide embed", {"real embed"}, "! merge takes 3 to 9 axis names, found 2", {0}, NULL})

/* Axes of x, w and y by turns: each spatial one in its place, all others in two of them or in three. */
#define ONE {.num = {1}, .opt = {1, ZG_CONV_SAME}}
TRY(convolutions,
    {ZG_OP_CONV, "seq odd seq", {"real batch seq embed", "real embed odd vocab"}, "real[batch, seq, vocab]",
     ONE, "real batch seq vocab"},
    {ZG_OP_CONV, "wide odd eight", {"bf16 batch wide embed", "f32 odd embed"}, "f32[batch, embed, eight]",
     {.num = {1}, .opt = {2, 1}}, "bf16 batch eight embed"},
    {ZG_OP_CONV, "seq odd seq", {"real batch seq embed", "real embed odd"},
     "! only one of x, w and y has the axis batch", ONE, "real seq embed"},
    {ZG_OP_CONV, "seq odd seq", {"real seq embed", "real embed odd"},
     "! only one of x, w and y has the axis vocab", ONE, "real seq vocab"},
    {ZG_OP_CONV, "seq odd seq", {"real seq odd", "real odd"},
     "! the axis odd of w is also in x, real[seq, odd]", ONE, "real seq"},
    {ZG_OP_CONV, "seq odd seq", {"real seq", "real seq odd"}, "! the axis seq of x is also in w", ONE,
     "real seq"},
    {ZG_OP_CONV, "seq odd seq", {"real seq", "real odd"}, "! the axis seq of x is not in y", ONE, "real"},
    {ZG_OP_CONV, "wide odd eight", {"real wide", "real odd"},
     "! stride 2, dilate 2, pad 1 make 7 of wide (16), but eight has 8",
     {.num = {2}, .opt = {2, 1}}, "real eight"},
    {ZG_OP_CONV, "odd wide embed", {"real odd", "real wide"}, "! pad 0 do not fit into odd (3)",
     {.num = {1}, .opt = {1}}, "real embed"},
    {ZG_OP_CONV, "odd seq odd", {"real odd", "real seq"}, "! the size of seq must be a number", ONE,
     "real odd"},
    {ZG_OP_CONV, "seq odd eight", {"real seq", "real odd"}, "! the size of seq must be a number", ONE,
     "real eight"},
    {ZG_OP_CONV, "seq odd seq", {"real seq", "real odd"},
     "! pad causal change the size of seq, which the recipe binds",
     {.num = {1}, .opt = {2, ZG_CONV_CAUSAL}}, "real seq"},
    {ZG_OP_CONV, "seq odd", {"real seq", "real odd"},
     "! takes three axis names for each spatial axis, found 2", ONE, "real seq"},
    {ZG_OP_CONV, "seq odd seq", {"real seq", "real odd"}, "! the dilation is 0.5",
     {.num = {0.5}, .opt = {1, -1}}, "real seq"},
    {ZG_OP_CONV, "seq odd seq", {"real seq", "real odd"}, "! the stride is 0", {.num = {1}, .opt = {0, -1}},
     "real seq"},
    {ZG_OP_CONV, "seq odd seq", {"real seq", "real odd"}, "! the padding is -3",
     {.num = {1}, .opt = {1, -3}}, "real seq"},
    {ZG_OP_CONV, "seq odd seq", {"real seq", "real odd"}, "! conv needs a result type", ONE, NULL},
    {ZG_OP_CONV_TRANSPOSE, "wide odd eight", {"real eight vocab", "real vocab odd"}, "real[wide]",
     {.num = {1}, .opt = {2, 1}}, "real wide"},
    {ZG_OP_CONV_GRAD, "wide odd eight", {"real batch wide", "real batch eight"}, "real[odd]",
     {.num = {1}, .opt = {2, 1}}, "real odd"})
#undef ONE

TRY(reductions,
    {ZG_OP_SUM, "batch hd", {"real batch embed hd"}, "real[embed]", {0}, NULL},
    {ZG_OP_SUM, "batch", {"real embed"},
     "! sum[batch]: the first operand has no axis batch, it is real[embed]", {0}, NULL},
    {ZG_OP_SUM, "", {"real embed"}, "! sum takes 1 to 8 axis names, found 0", {0}, NULL},
    {ZG_OP_PEAK, "vocab", {"f32 batch vocab"}, "f32[batch]", {.opt = {0, 7}}, NULL},
    {ZG_OP_PEAK, "vocab", {"f32 vocab"}, "! valid is 12, must be 1 to 11", {.opt = {0, 12}}, NULL},
    {ZG_OP_DOT, "embed", {"real batch embed", "real embed vocab"}, "real[batch, vocab]", {0}, NULL},
    {ZG_OP_DOT, "embed", {"real batch embed", "f32 batch embed"}, "f32[batch]", {0}, NULL},
    {ZG_OP_DOT, "", {"real batch", "real embed"}, "real[batch, embed]", {0}, NULL},
    {ZG_OP_DOT, "embed", {"real batch", "real embed"}, "! the first operand has no axis embed", {0}, NULL},
    {ZG_OP_DOT, "embed", {"i32 embed", "real embed"}, "! dot takes a real tensor", {0}, NULL},
    {ZG_OP_DOT, "", {"real x0 x1 x2 x3 x4", "real x5 x6 x7 x8"}, "! more than 8 axes", {0}, NULL})

TRY(kernels,
    {ZG_OP_SOFTMAX, "seq", {"real batch seq"}, "real[batch, seq]", {0}, NULL},
    {ZG_OP_SOFTMAX_GRAD, "seq", {"real seq", "f32 seq"},
     "! the second operand must be real[seq], found f32[seq]", {0}, NULL},
    {ZG_OP_NORMALIZE, "embed", {"real batch embed"}, "real[batch, embed]; f32[batch]", {.num = {1e-5}}, NULL},
    {ZG_OP_NORMALIZE, "embed", {"real embed"}, "! eps is -1", {.num = {-1}}, NULL},
    {ZG_OP_NORMALIZE, "embed", {"real embed"}, "! the kind is 2", {.opt = {2}}, NULL},
    {ZG_OP_NORMALIZE_GRAD, "embed", {"real batch embed", "real batch embed", "f32 batch"},
     "real[batch, embed]", {0}, NULL},
    {ZG_OP_NORMALIZE_GRAD, "embed", {"real batch embed", "real batch embed", "f32"},
     "! third operand must be f32[batch]", {0}, NULL},
    {ZG_OP_ROPE, "seq hd", {"real seq head hd"}, "real[seq, head, hd]", {.num = {1e4}}, NULL},
    {ZG_OP_ROPE, "seq odd", {"real seq odd"}, "! must be an even number in the model, found 3",
     {.num = {1e4}}, NULL},
    {ZG_OP_ROPE, "hd seq", {"real seq hd"}, "! must be an even number", {.num = {1e4}}, NULL},
    {ZG_OP_ROPE, "seq hd", {"real seq hd"}, "! base is 0", {0}, NULL},
    {ZG_OP_ATTEND, "seq hd", {"real batch seq head hd", "real batch seq hd", "real batch seq hd"},
     "real[batch, seq, head, hd]; f32[batch, seq, head]", {.num = {1}, .opt = {1}}, NULL},
    {ZG_OP_ATTEND, "seq hd", {"real seq hd", "real seq head hd", "real seq head hd"},
     "! the axes of the keys, real[seq, head, hd], must be among those of the queries, real[seq, hd]",
     {.num = {1}}, NULL},
    {ZG_OP_ATTEND, "seq hd", {"real seq hd", "real seq hd", "real seq"},
     "! third operand must be real[seq, hd]", {.num = {1}}, NULL},
    {ZG_OP_ATTEND_GRAD, "seq hd",
     {"real head seq hd", "real head seq hd", "f32 head seq", "real head seq hd", "real seq hd",
     "real seq hd"},
     "real[seq, head, hd]; real[seq, hd]; real[seq, hd]", {.num = {1}}, NULL},
    {ZG_OP_LOOKUP, "vocab", {"real vocab embed", "index(vocab) batch seq"}, "real[batch, seq, embed]", {0},
     NULL},
    {ZG_OP_LOOKUP, "vocab", {"real vocab embed", "index(embed) batch"},
     "! needs index(vocab) as its second operand, found index(embed)[batch]", {0}, NULL},
    {ZG_OP_LOOKUP, "vocab", {"real vocab embed", "index(vocab) embed"}, "! share the axis embed", {0}, NULL},
    {ZG_OP_LOOKUP_GRAD, "vocab", {"real batch embed", "index(vocab) batch"}, "f32[embed, vocab]", {0},
     "f32 vocab embed"},
    {ZG_OP_LOOKUP_GRAD, "vocab", {"real embed", "index(vocab) batch"}, "! is not a cotangent of rows", {0},
     NULL},
    {ZG_OP_TOPK, "embed odd", {"bf16 batch embed"}, "bf16[batch, odd]; index(embed)[batch, odd]", {0}, NULL},
    {ZG_OP_TOPK, "embed odd", {"real embed", "f32 embed"}, "real[odd]; index(embed)[odd]", {.opt = {4, 2}},
     NULL},
    {ZG_OP_TOPK, "embed odd", {"real embed", "f32"},
     "! the second operand must have the axes of real[embed]", {0}, NULL},
    {ZG_OP_TOPK, "embed odd", {"real embed odd"}, "! the first operand has the axis odd already", {0}, NULL},
    {ZG_OP_TOPK, "embed odd", {"real odd"}, "! the first operand has no axis embed", {0}, NULL},
    {ZG_OP_TOPK, "embed seq", {"real embed"}, "! the size of seq must be a number in the model", {0}, NULL},
    {ZG_OP_TOPK, "embed wide", {"real embed"}, "! fewer entries to choose from (8) than places in wide (16)",
     {0}, NULL},
    {ZG_OP_TOPK, "embed odd", {"real embed"}, "! fewer entries to choose from (2) than places in odd (3)",
     {.opt = {4, 1}}, NULL},
    {ZG_OP_TOPK, "embed odd", {"real embed"}, "! embed has 8 entries, which are no 3 groups of equal size",
     {.opt = {3, 2}}, NULL},
    {ZG_OP_TOPK, "embed odd", {"real embed"}, "! the number of groups is 65", {.opt = {65, 2}}, NULL},
    {ZG_OP_TOPK, "embed odd", {"real embed"}, "! take is 3, must be 1 to 2", {.opt = {2, 3}}, NULL},
    {ZG_OP_TOPK, "embed odd", {"real embed"}, "! take without groups is 3", {.opt = {0, 3}}, NULL},
    {ZG_OP_ONEHOT, "vocab", {"index(vocab) batch seq"}, "f32[batch, seq, vocab]", {0}, NULL},
    {ZG_OP_ONEHOT, "vocab seq", {"index(vocab) batch seq", "bf16 batch seq"}, "bf16[batch, vocab]", {0},
     NULL},
    {ZG_OP_ONEHOT, "embed", {"index(vocab) batch"}, "! needs index(embed) as its first operand", {0}, NULL},
    {ZG_OP_ONEHOT, "vocab", {"index(vocab) vocab"}, "! the first operand has the axis vocab already", {0},
     NULL},
    {ZG_OP_ONEHOT, "vocab seq", {"index(vocab) batch"}, "! the first operand has no axis seq", {0}, NULL},
    {ZG_OP_ONEHOT, "vocab", {"index(vocab) batch", "real seq"}, "! the second operand must have the axes of",
     {0}, NULL},
    {ZG_OP_XENT_SUMS, "vocab", {"real batch vocab", "f32 batch", "index(vocab) batch"},
     "f32[batch]; f32[batch]", {0}, NULL},
    {ZG_OP_XENT_SUMS, "vocab", {"real batch vocab", "f32 batch", "index(vocab)"},
     "! third operand must be index(vocab)[batch]", {0}, NULL},
    {ZG_OP_XENT_SUMS, "vocab", {"real batch vocab", "f32", "index(vocab) batch"},
     "! must have the axes of real[batch], found f32", {0}, NULL},
    {ZG_OP_XENT_GRAD, "vocab", {"real batch vocab", "f32 batch", "index(vocab) batch", "f32 batch",
     "f32 batch"}, "real[batch, vocab]", {0}, NULL},
    {ZG_OP_ROTATE, "hd", {"real batch seq head hd", "f32 batch seq", "f32 hd"}, "real[batch, seq, head, hd]",
     {.num = {1}, .opt = {1, 2}}, NULL},
    {ZG_OP_ROTATE, "hd", {"real seq hd", "f32 batch seq", "f32 hd"},
     "! the positions must be f32, with axes among those of real[seq]; found f32[batch, seq]", {.num = {1},
     .opt = {0, 2}}, NULL},
    {ZG_OP_ROTATE, "hd", {"real seq hd", "real seq", "f32 hd"}, "! the positions must be f32",
     {.num = {1}, .opt = {0, 2}}, NULL},
    {ZG_OP_ROTATE, "hd", {"real seq hd", "f32 seq", "f32 seq"},
     "! third operand must be f32[hd], found f32[seq]", {.num = {1}, .opt = {0, 2}}, NULL},
    {ZG_OP_ROTATE, "embed", {"real seq embed", "f32 seq", "f32 embed"}, "! 5 features of embed are no pairs",
     {.num = {1}, .opt = {0, 5}}, NULL},
    {ZG_OP_LINEAR_ATTEND, "seq hd embed", {"real seq hd x0 x1 x2", "real seq hd x3 x4", "real seq embed x5"},
     "real[seq, embed, x0, x1, x2, x3, x4, x5]", {0}, NULL},
    {ZG_OP_LINEAR_ATTEND, "seq hd embed", {"real seq hd x0 x1 x2", "real seq hd x3 x4", "real seq embed x5 x6"},
     "! linear_attend: the result would have more than 8 axes", {0}, NULL},
    {ZG_OP_LINEAR_ATTEND, "seq hd embed",
     {"real batch seq hd x0 x1 x2", "real seq hd x3 x4 x6", "real seq embed x5"},
     "! linear_attend: the result would have more than 8 axes", {0}, NULL},
    {ZG_OP_POSITION, "seq", {0}, "i32[seq]", {0}, NULL},
    {ZG_OP_POSITION, "seq vocab", {0}, "index(vocab)[seq]", {0}, NULL},
    {ZG_OP_POSITION, "vocab embed", {0}, "! vocab has 11 elements, more than the 8 of embed", {0}, NULL},
    {ZG_OP_RANDOM, "", {0}, "real[batch]", {.num = {0.5}, .opt = {3}}, "real batch"},
    {ZG_OP_RANDOM, "", {0}, "f32[batch]", {.opt = {3, 1}}, "f32 batch"},
    {ZG_OP_RANDOM, "", {0}, "! random makes f32 tensors, not real[batch]", {.opt = {3, 2}}, "real batch"},
    {ZG_OP_RANDOM, "", {0}, "! the probability is 2", {.num = {2}}, "real batch"})
/* clang-format on */

/* ---- axis classes -------------------------------------------------------------------------------------- */
static void class_is(Make *m, uint32_t first, const char *axis, ZgAxisClass want) {
  const ZgNode *n = &m->s->nodes[m->s->values[first].node];
  ZgType in[ZG_MAX_IN], out[ZG_MAX_OUT];
  for (int i = 0; i < n->nin; i++) in[i] = m->s->values[n->in[i]].type;
  for (int i = 0; i < n->nout; i++) out[i] = m->s->values[first + (uint32_t)i].type;
  ZgAxisClass got = zg_axis_class(n, in, out, (uint16_t)zg_axis_find(m->g, axis));
  cr_expect_eq(got, want, "%s: axis %s is %d, should be %d", zg_op_info[n->op].text, axis, got, want);
}

Test(classes, products_and_reductions) {
  Make t = make_axes(), *m = &t;
  uint32_t x = make_input(m, "x", make_type(m, ZG_REAL, "batch seq embed")),
           w = make_param(m, "w2", "embed vocab");
  uint32_t y = make_with(m, (ZgNode){.op = ZG_OP_DOT}, "embed", 2, (uint32_t[]){x, w});
  class_is(m, y, "batch", ZG_AXIS_PAR);
  class_is(m, y, "vocab", ZG_AXIS_PAR);
  class_is(m, y, "embed", ZG_AXIS_SUM);
  class_is(m, y, "hd", ZG_AXIS_ABSENT);
  uint32_t p = make_with(m, (ZgNode){.op = ZG_OP_PEAK}, "vocab", 1, &y);
  class_is(m, p, "vocab", ZG_AXIS_MAX);
  class_is(m, p, "seq", ZG_AXIS_PAR);
  class_is(m, make_sum(m, y, "seq"), "seq", ZG_AXIS_SUM);
  class_is(m, make_typed(m, ZG_OP_BROADCAST, p, make_type(m, ZG_REAL, "batch seq hd")), "hd", ZG_AXIS_PAR);
  zb_arena_free(t.a);
}

Test(classes, pinned) {
  Make t = make_axes(), *m = &t;
  uint32_t x = make_input(m, "x", make_type(m, ZG_REAL, "batch seq hd"));
  class_is(m, make_with(m, (ZgNode){.op = ZG_OP_SOFTMAX}, "seq", 1, &x), "seq", ZG_AXIS_PIN);
  uint32_t n = make_with(m, (ZgNode){.op = ZG_OP_NORMALIZE}, "hd", 1, &x);
  class_is(m, n, "hd", ZG_AXIS_PIN);
  class_is(m, n, "seq", ZG_AXIS_PAR);
  uint32_t r = make_with(m, (ZgNode){.op = ZG_OP_ROPE, .num = {10}}, "seq hd", 1, &x);
  class_is(m, r, "hd", ZG_AXIS_PIN);
  class_is(m, r, "seq", ZG_AXIS_PAR);
  uint32_t s = make_with(m, (ZgNode){.op = ZG_OP_SLICE, .opt = {1, 2}}, "hd head", 1, &x);
  class_is(m, s, "hd", ZG_AXIS_PIN);
  class_is(m, s, "head", ZG_AXIS_PIN);
  class_is(m, s, "batch", ZG_AXIS_PAR);
  zb_arena_free(t.a);
}

Test(classes, attention) {
  Make t = make_axes(), *m = &t;
  uint32_t q = make_input(m, "q", make_type(m, ZG_REAL, "batch seq head hd"));
  uint32_t k = make_input(m, "k", make_type(m, ZG_REAL, "batch seq hd"));
  uint32_t o = make_with(m, (ZgNode){.op = ZG_OP_ATTEND, .num = {1}}, "seq hd", 3, (uint32_t[]){q, k, k});
  class_is(m, o, "seq", ZG_AXIS_PIN);
  class_is(m, o, "hd", ZG_AXIS_PIN);
  class_is(m, o, "head", ZG_AXIS_PAR);
  uint32_t d = make_with(m, (ZgNode){.op = ZG_OP_ATTEND_GRAD, .num = {1}}, "seq hd", 6,
                         (uint32_t[]){o, o, o + 1, q, k, k});
  class_is(m, d, "head", ZG_AXIS_PAR); /* dk and dv, which lack it, are partial sums */
  class_is(m, d, "batch", ZG_AXIS_PAR);
  zb_arena_free(t.a);
}

Test(classes, tables) {
  Make t = make_axes(), *m = &t;
  uint32_t w = make_param(m, "w2", "vocab embed"), ids = make_ids(m, "ids", "vocab", "batch");
  uint32_t y = make_with(m, (ZgNode){.op = ZG_OP_LOOKUP}, "vocab", 2, (uint32_t[]){w, ids});
  class_is(m, y, "vocab", ZG_AXIS_SUM);
  class_is(m, y, "batch", ZG_AXIS_PAR);
  uint32_t d = make_with(m, (ZgNode){.op = ZG_OP_LOOKUP_GRAD}, "vocab", 2, (uint32_t[]){y, ids});
  class_is(m, d, "vocab", ZG_AXIS_PAR);
  class_is(m, d, "batch", ZG_AXIS_SUM);
  uint32_t z = make_input(m, "z", make_type(m, ZG_REAL, "batch vocab"));
  uint32_t p = make_with(m, (ZgNode){.op = ZG_OP_PEAK}, "vocab", 1, &z);
  uint32_t s = make_with(m, (ZgNode){.op = ZG_OP_XENT_SUMS}, "vocab", 3, (uint32_t[]){z, p, ids});
  class_is(m, s, "vocab", ZG_AXIS_SUM);
  uint32_t g = make_with(m, (ZgNode){.op = ZG_OP_XENT_GRAD}, "vocab", 5, (uint32_t[]){z, p, ids, s, s + 1});
  class_is(m, g, "vocab", ZG_AXIS_PAR);
  class_is(m, make_with(m, (ZgNode){.op = ZG_OP_POSITION}, "seq vocab", 0, NULL), "seq", ZG_AXIS_PAR);
  zb_arena_free(t.a);
}

/* ---- types --------------------------------------------------------------------------------------------- */
Test(types, sets) {
  const uint16_t ax[] = {5, 1, 3, 1};
  ZgType t = zg_type(ZG_F32, ax, 4), u = zg_type(ZG_REAL, ax, 2);
  cr_expect_eq(t.naxes, 3);
  cr_expect(t.axis[0] == 1 && t.axis[1] == 3 && t.axis[2] == 5);
  cr_expect(zg_type_contains(&t, &u) && !zg_type_contains(&u, &t) && !zg_type_eq(&t, &u));
  ZgType m = zg_type_minus(&t, ax, 1);
  cr_expect(m.naxes == 2 && m.elem == ZG_F32 && !zg_type_has(&m, 5));
  const uint16_t many[] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  ZgType a = zg_type(ZG_REAL, many, 5), b = zg_type(ZG_REAL, many + 4, 5), over = zg_type_union(&a, &b);
  cr_expect_gt(over.naxes, ZG_MAX_AXES);
  cr_expect_eq(zg_type(ZG_REAL, many, 9).naxes, ZG_MAX_AXES + 1);
}
