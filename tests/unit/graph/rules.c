/* The type rule of every operation, by what one change makes of a node that types: rules.txt says for each
 * operation the results and axis classes of such nodes, and then every other outcome with the changes that
 * lead to it:
 *
 *   1:i32        the second operand is an i32         1-seq, 1+odd     it has an axis less, more
 *   1^2          it is as the third is             nin-1, nin+1     an operand less, one more (as the first)
 *   ax0=odd      another first axis argument          nax-1, nax+1     one less, one more (odd)
 *   opt0=-1      another attribute; num0: a number    hint:f32, hint-  another wanted result type, none
 *
 * A change that is not listed leaves the results as they are. `make regenerate-outcomes` writes the list
 * anew: read the difference before you commit it. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/unit/graph/make.h"
#include "tests/unit/graph/outcomes.h"

typedef struct {
  ZgOp op;
  const char *ax;
  const char *in[ZG_MAX_IN];
  const char *hint;
  ZgNode with; /* num, opt */
} Base;

#define SOME                                                                                                 \
  { "real batch embed" }
#define TWO                                                                                                  \
  { "real batch embed", "real embed" }
/* clang-format off */
static const Base bases[] = {
    {ZG_OP_PARAM, "", {0}, NULL, {0}},
    {ZG_OP_INPUT, "", {0}, NULL, {0}},
    {ZG_OP_CARRY, "", {0}, "i32 batch", {.opt = {3}}},
    {ZG_OP_DCARRY, "", {0}, "bf16 batch", {.opt = {3}}},
    {ZG_OP_SEED, "", {0}, NULL, {0}},
    {ZG_OP_FILL, "", {0}, "real", {.num = {1}}},
    {ZG_OP_AXSIZE, "batch", {0}, "real", {0}},
    {ZG_OP_CARRY_OUT, "", {"index(vocab) batch"}, NULL, {0}},
    {ZG_OP_DCARRY_IN, "", SOME, NULL, {0}},
    {ZG_OP_PARAM_GRAD, "", {"f32 embed vocab"}, NULL, {0}},
    {ZG_OP_LOSS_NUM, "", {"f32"}, NULL, {0}},
    {ZG_OP_LOSS_DEN, "", {"real"}, NULL, {0}},
    {ZG_OP_AUX, "", {"f16"}, NULL, {0}},
    {ZG_OP_OUTPUT, "", {"real batch vocab"}, NULL, {0}},
    {ZG_OP_NEG, "", SOME, NULL, {0}}, {ZG_OP_EXP, "", SOME, NULL, {0}}, {ZG_OP_LOG, "", SOME, NULL, {0}},
    {ZG_OP_SQRT, "", SOME, NULL, {0}}, {ZG_OP_RSQRT, "", SOME, NULL, {0}}, {ZG_OP_TANH, "", SOME, NULL, {0}},
    {ZG_OP_ERF, "", SOME, NULL, {0}}, {ZG_OP_SIN, "", SOME, NULL, {0}}, {ZG_OP_COS, "", SOME, NULL, {0}},
    {ZG_OP_ADD, "", TWO, NULL, {0}}, {ZG_OP_ADD, "", {"bf16 embed", "bf16 embed batch"}, NULL, {0}},
    {ZG_OP_SUB, "", TWO, NULL, {0}},
    {ZG_OP_MUL, "", {"i32 embed", "i32 embed"}, NULL, {0}}, {ZG_OP_DIV, "", TWO, NULL, {0}},
    {ZG_OP_MAX, "", TWO, NULL, {0}}, {ZG_OP_MIN, "", TWO, NULL, {0}}, {ZG_OP_LESS, "", TWO, NULL, {0}},
    {ZG_OP_EQUAL, "", {"i32 embed", "i32"}, NULL, {0}},
    {ZG_OP_SELECT, "", {"bool batch", "real batch embed", "real"}, NULL, {0}},
    {ZG_OP_SELECT, "", {"bool batch embed", "i32", "i32 batch"}, NULL, {0}},
    {ZG_OP_SELECT, "", {"bool batch", "index(vocab) batch", "index(vocab)"}, NULL, {0}},
    {ZG_OP_CAST, "", SOME, "bf16 batch embed", {0}},
    {ZG_OP_CAST, "", {"index(vocab) batch"}, "f32 batch", {0}},
    {ZG_OP_CAST, "", {"f32 batch"}, "index(vocab) batch", {0}},
    {ZG_OP_STOP, "", SOME, NULL, {0}},
    {ZG_OP_KNOWN, "", {"index(vocab) batch seq"}, NULL, {0}},
    {ZG_OP_BROADCAST, "", {"real embed"}, "real batch embed", {0}},
    {ZG_OP_BROADCAST, "", {"index(vocab) embed"}, "index(vocab) batch embed", {0}},
    {ZG_OP_EQUAL, "", {"index(vocab) batch embed", "index(vocab) embed"}, NULL, {0}},
    {ZG_OP_SIGN, "", SOME, NULL, {0}},
    {ZG_OP_ABS, "", SOME, NULL, {0}},
    {ZG_OP_FLOOR, "", SOME, NULL, {0}},
    {ZG_OP_SIGMOID, "", SOME, NULL, {0}},
    {ZG_OP_LOG1P, "", SOME, NULL, {0}},
    {ZG_OP_POW, "", TWO, NULL, {0}},
    {ZG_OP_POSITION, "seq vocab", {0}, NULL, {0}},
    {ZG_OP_POSITION, "embed eight", {0}, NULL, {0}},
    {ZG_OP_POSITION, "seq batch", {0}, NULL, {0}},
    {ZG_OP_POSITION, "seq", {0}, NULL, {0}},
    {ZG_OP_RANDOM, "", {0}, "real batch embed", {.num = {0.5}, .opt = {3}}},
    {ZG_OP_RANDOM, "", {0}, "f32 batch embed", {.opt = {3, ZG_NORMAL}}},
    {ZG_OP_RENAME, "embed eight", {"real batch embed"}, NULL, {0}},
    {ZG_OP_RENAME, "batch seq", {"i32 batch embed"}, NULL, {0}},
    {ZG_OP_SLICE, "embed odd", {"i32 batch embed"}, NULL, {.opt = {5, 3}}},
    {ZG_OP_PAD, "odd embed", {"real batch odd"}, NULL, {.opt = {5}}},
    {ZG_OP_SHIFT, "seq", {"real batch seq"}, NULL, {.opt = {-2}}},
    {ZG_OP_SHIFT, "seq", {"index(vocab) batch seq"}, NULL, {.num = {-1}, .opt = {1}}},
    {ZG_OP_CONCAT, "vocab embed odd", {"real batch embed", "real batch odd"}, NULL, {0}},
    {ZG_OP_CONCAT, "embed hd x0 x1", {"bf16 hd", "bf16 x0", "bf16 x1"}, NULL, {0}},
    {ZG_OP_CONCAT, "wide x0 x1 x2 x3 x4 x5 x6 x7",
     {"real x0", "real x1", "real x2", "real x3", "real x4", "real x5", "real x6", "real x7"}, NULL, {0}},
    {ZG_OP_MERGE, "wide eight x0", {"real batch eight x0"}, NULL, {0}},
    {ZG_OP_PART, "x0 eight wide", {"i32 batch wide"}, NULL, {0}},
    {ZG_OP_SUM, "batch hd", {"real batch embed hd"}, NULL, {0}},
    {ZG_OP_SUM, "x0 x1 x2 x3 x4 x5 x6 x7", {"f16 x0 x1 x2 x3 x4 x5 x6 x7"}, NULL, {0}},
    {ZG_OP_CUMSUM, "embed", SOME, NULL, {.opt = {1}}},
    {ZG_OP_SCAN, "embed", {"f32 embed", "real batch embed"}, NULL, {.opt = {1, 1}}},
    {ZG_OP_LINEAR_ATTEND, "seq hd embed",
     {"real batch seq hd", "real seq hd", "real head seq embed", "f32 head", "real seq hd", "real seq hd",
      "real seq embed"},
     NULL, {.opt = {7}}},
    {ZG_OP_LINEAR_ATTEND_GRAD, "seq hd embed",
     {"bf16 head seq embed", "bf16 seq hd", "bf16 seq hd", "bf16 head seq embed", "bf16 seq hd"}, NULL,
     {.opt = {2}}},
    {ZG_OP_PEAK, "vocab", {"f32 batch vocab"}, NULL, {.opt = {0, 11}}},
    {ZG_OP_PEAK, "vocab batch", {"f32 batch vocab"}, NULL, {0}},
    {ZG_OP_DOT, "embed", {"real batch embed", "real embed vocab"}, NULL, {0}},
    {ZG_OP_DOT, "", {"f16 batch", "f32 embed"}, NULL, {0}},
    {ZG_OP_CONV, "seq hd seq", {"real batch seq embed", "real embed hd vocab"}, "real batch seq vocab",
     {.num = {1}, .opt = {1, ZG_CONV_SAME}}},
    {ZG_OP_CONV_TRANSPOSE, "wide odd eight", {"real batch eight vocab", "real embed odd vocab"},
     "real batch wide embed", {.num = {1}, .opt = {2, 1}}},
    {ZG_OP_CONV_GRAD, "wide odd eight", {"real batch wide embed", "bf16 batch eight embed"},
     "real odd embed", {.num = {1}, .opt = {2, 1}}},
    {ZG_OP_SOFTMAX, "seq", {"real batch seq"}, NULL, {0}},
    {ZG_OP_SOFTMAX_GRAD, "seq", {"real batch seq", "real batch seq"}, NULL, {0}},
    {ZG_OP_NORMALIZE, "embed", SOME, NULL, {.num = {1e-5}, .opt = {1}}},
    {ZG_OP_NORMALIZE_GRAD, "embed", {"real batch embed", "real batch embed", "f32 batch"}, NULL,
     {.num = {1e-5}}},
    {ZG_OP_ROPE, "seq hd", {"real seq head hd"}, NULL, {.num = {1e4}, .opt = {1}}},
    {ZG_OP_ROTATE, "hd", {"real batch seq head hd", "f32 batch seq", "f32 hd"}, NULL,
     {.num = {1}, .opt = {3, 2}}},
    {ZG_OP_ATTEND, "seq hd",
     {"real batch seq head hd", "real batch seq hd", "real batch seq hd"}, NULL, {.num = {1}, .opt = {1}}},
    {ZG_OP_ATTEND_GRAD, "seq hd",
     {"real head seq hd", "real head seq hd", "f32 head seq", "real head seq hd", "real seq hd",
     "real seq hd"},
     NULL, {.num = {1}, .opt = {1}}},
    {ZG_OP_ATTEND, "seq hd odd embed",
     {"bf16 batch head seq hd", "bf16 batch odd hd", "bf16 batch odd embed", "real head odd",
     "index(vocab) seq",
      "i32 batch odd", "i32 batch", "f32 head"},
     NULL, {.num = {1, 50}, .opt = {2}}},
    {ZG_OP_ATTEND_BIAS_GRAD, "seq hd seq hd",
     {"real head seq hd", "real head seq hd", "f32 head seq", "real head seq hd", "real seq hd",
     "real seq hd",
      "f32 head seq", "i32 seq"},
     NULL, {.num = {1}, .opt = {1, 7}}},
    {ZG_OP_ATTEND_BIAS_GRAD, "seq hd seq hd",
     {"real seq hd", "real seq hd", "f32 seq", "real seq hd", "real seq hd", "real seq hd", "f32 seq"}, NULL,
     {.num = {1}}},
    {ZG_OP_LOOKUP, "vocab", {"real vocab embed", "index(vocab) batch seq"}, NULL, {0}},
    {ZG_OP_LOOKUP_GRAD, "vocab", {"bf16 batch seq embed", "index(vocab) batch seq"}, "f32 embed vocab", {0}},
    {ZG_OP_MEASURE, "", {"f32 embed"}, NULL, {.opt = {0, 1}}},
    {ZG_OP_TOPK, "embed odd", {"bf16 batch embed"}, NULL, {0}},
    {ZG_OP_TOPK, "embed odd", {"real batch embed", "f32 batch embed"}, NULL, {.opt = {4, 2}}},
    {ZG_OP_ONEHOT, "vocab", {"index(vocab) batch seq"}, NULL, {0}},
    {ZG_OP_ONEHOT, "vocab seq", {"index(vocab) batch seq", "f16 batch seq"}, NULL, {0}},
    {ZG_OP_DISPATCH, "vocab seq odd", {"real batch embed", "index(vocab) batch odd"}, NULL, {0}},
    {ZG_OP_DISPATCH, "vocab seq odd", {"f32 batch odd", "index(vocab) batch odd"}, NULL, {0}},
    {ZG_OP_COMBINE, "vocab seq odd", {"bf16 seq embed vocab", "index(vocab) batch odd"}, NULL, {0}},
    {ZG_OP_COMBINE, "vocab seq odd", {"real seq embed vocab", "index(vocab) batch odd"}, NULL, {.opt = {1}}},
    {ZG_OP_XENT_SUMS, "vocab", {"real batch vocab", "f32 batch", "index(vocab) batch"}, NULL,
     {.opt = {0, 11}}},
    {ZG_OP_XENT_GRAD, "vocab",
     {"real batch vocab", "f32 batch", "index(vocab) batch", "f32 batch", "f32 batch"},
     NULL, {.opt = {0, 11}}},
};
/* clang-format on */

/* ---- a node and its outcome ---------------------------------------------------------------------------- */
typedef struct {
  Make *m;
  ZgNode n;
  ZgType in[10], hint;
  bool hinted;
} Node;

static Node node_of(Make *m, const Base *b) {
  Node x = {.m = m, .n = b->with, .hinted = b->hint != NULL};
  x.n.op = b->op;
  char *copy = zb_strdup(m->a, b->ax), *save = NULL;
  for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
    x.n.ax[x.n.nax++] = (uint16_t)zg_axis_find(m->g, w);
  for (; x.n.nin < 8 && b->in[x.n.nin]; x.n.nin++) x.in[x.n.nin] = make_typed_text(m, b->in[x.n.nin]);
  if (b->hint) x.hint = make_typed_text(m, b->hint);
  return x;
}

static const char *outcome(const Node *x) {
  ZgType out[ZG_MAX_OUT];
  ZbErr err = {0};
  ZbText t = {0};
  if (zg_infer(x->m->g, &x->n, x->in, x->hinted ? &x->hint : NULL, out, &err)) {
    for (int i = 0; i < zg_outs(x->n.op, x->n.opt); i++) {
      zb_text_add(&t, i ? "; " : "");
      zg_type_put(x->m->g, &t, &out[i]);
    }
  } else zb_text_add(&t, "! %s", err.text);
  const char *s = zb_strdup(x->m->a, t.s ? t.s : "");
  zb_text_free(&t);
  return s;
}

/* ---- changes, gathered by their outcome ---------------------------------------------------------------- */
typedef struct {
  ZbArena *a;
  const char *base;
  Outcomes others;
} Table;

/* Where a message names the number that was set it says #, so that the like are gathered. */
static const char *without(Table *t, const char *o, const char *number) {
  const char *at = number ? strstr(o, number) : NULL;
  return at && *o == '!' ? zb_printf(t->a, "%.*s #%s", (int)(at - o), o, at + strlen(number)) : o;
}

static void note_number(Table *t, const Node *x, const char *change, const char *number) {
  const char *o = without(t, outcome(x), number);
  if (strcmp(o, t->base)) outcomes_note(&t->others, o, change);
}
static void note(Table *t, const Node *x, const char *change) { note_number(t, x, change, NULL); }

static void change_type(Table *t, const Node *base, ZgType *(*which)(Node *, int), int i, const char *name) {
  for (int e = 0; e < ZG_ELEMS; e++) {
    Node x = *base;
    ZgType *type = which(&x, i);
    type->elem = (uint8_t)e;
    type->of = e == ZG_INDEX ? (uint16_t)zg_axis_find(x.m->g, "vocab") : 0;
    note(t, &x, zb_printf(t->a, "%s:%s", name, zg_elem_name[e]));
    type->of = (uint16_t)zg_axis_find(x.m->g, "embed");
    if (e == ZG_INDEX) note(t, &x, zb_printf(t->a, "%s:index(embed)", name));
  }
  Node whole = *base;
  ZgType all = *which(&whole, i);
  for (int k = 0; k < all.naxes; k++) {
    Node x = *base;
    *which(&x, i) = zg_type_minus(&all, &all.axis[k], 1);
    which(&x, i)->of = all.of;
    note(t, &x, zb_printf(t->a, "%s-%s", name, x.m->g->axes[all.axis[k]].name));
  }
  static const char *const more[] = {"odd", "embed", "vocab", "batch"};
  for (int k = 0; k < 4; k++) {
    Node x = *base;
    ZgType one = make_type(x.m, ZG_REAL, more[k]);
    *which(&x, i) = zg_type_union(&all, &one);
    which(&x, i)->of = all.of;
    note(t, &x, zb_printf(t->a, "%s+%s", name, more[k]));
  }
}
static ZgType *operand(Node *x, int i) { return &x->in[i]; }
static ZgType *hint(Node *x, int i) { return (void)i, &x->hint; }

static void change_counts(Table *t, const Node *base) {
  for (int by = -1; by <= 1; by += 2) {
    Node x = *base;
    if (by < 0 && !x.n.nin) continue;
    x.n.nin = (uint8_t)(x.n.nin + by);
    if (by > 0) x.in[x.n.nin - 1] = x.in[0];
    note(t, &x, zb_printf(t->a, "nin%+d", by));
  }
  for (int by = -1; by <= 1; by += 2) {
    Node x = *base;
    if (by < 0 && !x.n.nax) continue;
    x.n.nax = (uint8_t)(x.n.nax + by);
    if (by > 0 && x.n.nax <= ZG_MAX_AXARG) x.n.ax[x.n.nax - 1] = (uint16_t)zg_axis_find(x.m->g, "odd");
    note(t, &x, zb_printf(t->a, "nax%+d", by));
  }
}

static void change_axes(Table *t, const Node *base) {
  static const char *const other[] = {"odd", "embed", "seq", "eight", "hd"};
  for (int i = 0; i < base->n.nax; i++) {
    for (int k = 0; k < 5; k++) {
      Node x = *base;
      x.n.ax[i] = (uint16_t)zg_axis_find(x.m->g, other[k]);
      note(t, &x, zb_printf(t->a, "ax%d=%s", i, other[k]));
    }
    for (int k = 0; k < base->n.nax; k++) {
      Node x = *base;
      x.n.ax[i] = x.n.ax[k];
      note(t, &x, zb_printf(t->a, "ax%d=ax%d", i, k));
    }
    Node x = *base;
    x.n.ax[i] = (uint16_t)x.m->g->naxes;
    note(t, &x, zb_printf(t->a, "ax%d=none", i));
  }
}

static void change_attributes(Table *t, const Node *base) {
  static const int64_t opts[] = {-1, 0, 1, 2, 5, 6, 11, 12, UINT32_MAX - 1, UINT32_MAX, INT64_MAX};
  static const double nums[] = {-1, 0, 1, 1.5, __builtin_inf(), __builtin_nan("")};
  for (int k = 0; k < 2; k++) {
    for (size_t i = 0; i < sizeof opts / sizeof *opts; i++) {
      Node x = *base;
      x.n.opt[k] = opts[i];
      const char *number = zb_printf(t->a, "%lld", (long long)opts[i]);
      note_number(t, &x, zb_printf(t->a, "opt%d=%s", k, number), zb_printf(t->a, " %s", number));
    }
    for (size_t i = 0; i < sizeof nums / sizeof *nums; i++) {
      Node x = *base;
      x.n.num[k] = nums[i];
      note(t, &x,
           zb_printf(t->a, "num%d=%s", k,
                     i < 4   ? zb_printf(t->a, "%g", nums[i])
                     : i < 5 ? "inf"
                             : "nan"));
    }
  }
}

static void change_all(Table *t, const Node *base) {
  for (int i = 0; i < base->n.nin; i++) {
    const char *name = zb_printf(t->a, "%d", i);
    change_type(t, base, operand, i, name);
    for (int k = 0; k < base->n.nin; k++) {
      Node x = *base;
      x.in[i] = x.in[k];
      note(t, &x, zb_printf(t->a, "%d^%d", i, k));
    }
  }
  change_counts(t, base);
  change_axes(t, base);
  change_attributes(t, base);
  Node x = *base;
  x.hinted = false;
  note(t, &x, "hint-");
  x = *base;
  x.hinted = true;
  if (!base->hinted) x.hint = base->n.nin ? base->in[0] : zg_type(ZG_REAL, NULL, 0);
  change_type(t, &x, hint, 0, "hint");
}

static const char *classes(const Node *x) {
  static const char *const name[] = {[ZG_AXIS_ABSENT] = NULL,
                                     [ZG_AXIS_PAR] = "par",
                                     [ZG_AXIS_SUM] = "sum",
                                     [ZG_AXIS_MAX] = "max",
                                     [ZG_AXIS_PIN] = "pin"};
  ZgType out[ZG_MAX_OUT];
  const char *s = "";
  zg_infer(x->m->g, &x->n, x->in, x->hinted ? &x->hint : NULL, out, NULL);
  for (uint16_t a = 0; a < x->m->g->naxes; a++) {
    const char *c = name[zg_axis_class(&x->n, x->in, out, a)];
    if (c) s = zb_printf(x->m->a, "%s  %s %s", s, x->m->g->axes[a].name, c);
  }
  return s;
}

static void print_base(Make *m, const Base *b, ZbText *out) {
  Node x = node_of(m, b);
  Table t = {.a = m->a, .base = outcome(&x), .others = {.a = m->a}};
  cr_expect(t.base[0] != '!', "%s: %s", zg_op_info[b->op].text, t.base);
  zb_text_add(out, "%s[%s]", zg_op_info[b->op].text, b->ax);
  for (int i = 0; i < x.n.nin; i++)
    zb_text_add(out, "%s %s", i ? "," : "", zg_type_text(m->g, m->a, &x.in[i]));
  zb_text_add(out, " -> %s%s%s\n", *t.base ? t.base : "nothing", x.hinted ? " as wanted" : "", classes(&x));
  change_all(&t, &x);
  outcomes_put(&t.others, out);
}

static ZbText rules(void) {
  ZbText out = {0};
  for (size_t i = 0; i < sizeof bases / sizeof *bases; i++) {
    Make m = make_axes();
    make_input(&m, "x", make_type(&m, ZG_REAL, "batch embed"));
    ZgIo io = {.name = "y", .type = make_type(&m, ZG_REAL, "batch vocab")};
    ZB_PUSH(m.a, m.g->outputs, m.g->noutputs, io);
    print_base(&m, &bases[i], &out);
    zb_arena_free(m.a);
  }
  return out;
}

Test(rules, every_operation_changed_in_every_way) {
  ZbText got = rules();
  outcomes_compare(got.s, "rules.txt");
  zb_text_free(&got);
}

/* No operation is left out: all but the planner's. */
Test(rules, there_is_a_node_of_every_operation) {
  for (int op = 0; op < ZG_OP_COUNT; op++) {
    bool found = zg_op_info[op].kind == ZG_PLANNED;
    for (size_t i = 0; i < sizeof bases / sizeof *bases; i++) found |= (int)bases[i].op == op;
    cr_expect(found, "%s", zg_op_info[op].text);
  }
}
