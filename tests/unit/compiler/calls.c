/* Every operation of the language, and blocks, called as it should be and with one thing changed: an axis name that is
 * not there, another, one less or once more; an operand of another kind, that is not there, one less or once
 * more. calls.txt says of each what its type is, or what is reported: all of it, so that what depends on a
 * mistake is seen to say nothing. REGENERATE=1 writes it anew: read the difference before you commit it. */
#include "tests/unit/compiler/load.h"
#include "tests/unit/golden.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define PATH ZUG_SRC "/tests/unit/compiler/calls.txt"

typedef struct {
  const char *name, *axes, *args; /* separated by blanks; a keyword is `key=value` */
} Call;
static const Call calls[] = {{"exp", "", "x"},
                             {"abs", "", "t"},
                             {"pow", "", "x q"},
                             {"max", "", "t t"},
                             {"select", "", "k x q"},
                             {"known", "", "i"},
                             {"position", "seq a", ""},
                             {"place", "seq", ""},
                             {"index", "a", "x"},
                             {"spread", "b c", "x"},
                             {"random", "seq a", "0.5"},
                             {"uniform", "seq a", ""},
                             {"samples", "", ""},
                             {"size", "seq", ""},
                             {"rename", "a d", "x"},
                             {"slice", "a b", "x start=1"},
                             {"shift", "seq", "x by=2"},
                             {"concat", "ab a b", "x y"},
                             {"merge", "ac a c", "z"},
                             {"part", "a c ac", "w"},
                             {"sum", "a seq", "x"},
                             {"mean", "a seq", "x"},
                             {"peak", "a", "x"},
                             {"dot", "a", "x p"},
                             {"conv", "b seq k3", "y f stride=1 pad=same"},
                             {"conv_transpose", "b seq k3", "y f dilate=2"},
                             {"cumsum", "seq", "x order=reverse"},
                             {"scan", "seq", "0.5 x"},
                             {"linear_attend", "seq a b", "x x y decay=g"},
                             {"linear_attend", "seq a b", "x x y feed=x keys=x values=y"},
                             {"softmax", "a", "x"},
                             {"softmax", "a seq", "x"},
                             {"lse", "a", "x"},
                             {"normalize", "a", "x mode=rms eps=1e-6"},
                             {"rope", "seq a", "x base=100 at=s"},
                             {"rope", "seq a", "x factor=2 rule=linear"},
                             {"rope", "seq a", "x factor=8 rule=llama3 low=1 high=4 context=64"},
                             {"rope", "seq a", "x factor=4 rule=yarn low=1 high=32 context=64 attention=1.5"},
                             {"rope", "seq a", "x speeds=g2 pairs=neighbours"},
                             {"rope", "seq a", "x features=2"},
                             {"attend", "seq a", "x x x mask=causal window=5 bias=m sinks=n1"},
                             {"attend", "seq d a", "u x x mask=none scale=0.5 same=t same_keys=t2"},
                             {"attend", "seq a", "x x x mask=prefix prefix=n2 cap=3"},
                             {"lookup", "", "e i"},
                             {"xent", "a", "x i"},
                             {"onehot", "a", "i"},
                             {"topk", "a c", "x by=x groups=2 take=1"},
                             {"dispatch", "a slot", "y o"},
                             {"combine", "a slot c", "r o o2"},
                             {"One", "a", "x n=3"},
                             {"Two", "a b", "x p"},
                             {"One", "a", "y x"}}; /* one operand too many is all that is said */

/* What they are called with. Rows are dispatched before. */
static const char head[] =
    "block One[e](x: real[.., e], n = 2) -> real[..] { return sum[e](x) * n }\n"
    "block Two[e, f](x: real[.., e], p: real[e, f]) -> real[.., f] { return dot[e](x, p) }\n"
    "model M { axis batch, seq, a = 4, b = 3, c = 2, d = 4, ab = 7, ac = 8, k3 = 3, slot\n"
    "input x: real[batch, seq, a]  input y: real[batch, seq, b]  input z: real[batch, a, c]\n"
    "input w: real[batch, ac]  input u: real[batch, d, a]  input m: real[batch, seq]\n"
    "input i: index(a)[batch, seq]  input t: i32[batch, seq]  input t2: i32[batch, d]\n"
    "input k: bool[batch, seq]  input s: f32[batch, seq]  input o: index(a)[batch, seq, c]\n"
    "input o2: real[batch, seq, c]  input n1: real[batch]  input n2: i32[batch]\n"
    "param q[a], p[a, b], f[b, k3], e[a, b], g[a] ~ normal(1)\n"
    "r = dispatch[a, slot](y, o)  g2 = f32(g)\n";

typedef struct {
  const char *word[12];
  int n;
} Words;

static Words words_of(ZbArena *a, const char *text) {
  Words w = {.n = 0};
  char *copy = zb_strdup(a, text), *save = NULL;
  for (char *s = strtok_r(copy, " ", &save); s; s = strtok_r(NULL, " ", &save)) w.word[w.n++] = s;
  return w;
}

static void put_words(ZbText *t, const char *open, const Words *w, const char *close) {
  zb_text_add(t, "%s", open);
  for (int i = 0; i < w->n; i++) zb_text_add(t, "%s%s", i ? ", " : "", w->word[i]);
  zb_text_add(t, "%s", close);
}

/* The reports in one line, without what is seen of the source. */
static void put_reports(Case *c, ZbText *out) {
  char *text = zb_strdup(c->a, messages(c)), *save = NULL;
  for (char *s = strtok_r(text, "\n", &save); s; s = strtok_r(NULL, "\n", &save)) {
    const char *mark = strstr(s, "| "), *label = mark ? mark + 2 + strspn(mark + 2, " ^-|") : "";
    if (!strncmp(s, "error", 5)) zb_text_add(out, "! %s", s + 5);
    else if (strstr(s, "  = ")) zb_text_add(out, "; %s", strstr(s, "  = ") + 4);
    else if (mark && (size_t)(mark - s) == strspn(s, " ") && *label) zb_text_add(out, " (%s)", label);
  }
}

static void put_outcome(ZbText *out, const Call *call, const Words *axes, const Words *args) {
  ZbText text = {0}, said = {0};
  zb_text_add(&said, "%s", call->name);
  if (axes->n) put_words(&said, "[", axes, "]");
  put_words(&said, "(", args, ")");
  zb_text_add(&text, "%s%s = %s\noutput out = v\nloss sum[a](x * q) * sum[a, b](p * e) per samples() }", head,
              strcmp(call->name, "topk") ? "v" : "v, v2", said.s);
  Case c = load_text(text.s);
  const ZgGraph *g = elaborate(&c);
  zb_text_add(out, "%s  ", said.s);
  if (g) zb_text_add(out, "%s", zg_type_text(g, c.a, &g->outputs[0].type));
  else put_reports(&c, out);
  zb_text_add(out, "\n");
  zb_text_free(&text);
  zb_text_free(&said);
  done(&c);
}

/* `list` is one of both. */
static void change_word(ZbText *out, const Call *call, const Words *axes, const Words *args, Words *list,
                        int i, const char *to) {
  const char *before = list->word[i], *eq = strchr(before, '=');
  ZbArena *a = zb_arena_new();
  if (strcmp(before, to) == 0) return zb_arena_free(a);
  list->word[i] = eq ? zb_printf(a, "%.*s%s", (int)(eq + 1 - before), before, to) : to;
  put_outcome(out, call, axes, args);
  list->word[i] = before;
  zb_arena_free(a);
}

static void change_list(ZbText *out, const Call *call, const Words *axes, const Words *args, Words *list,
                        const char *const *to) {
  static const char *const values[] = {"nope", "y", "t", "0", "-1", "0.5", "70000", NULL}; /* of keywords */
  for (int i = 0; i < list->n; i++) {
    const char *const *other = strchr(list->word[i], '=') ? values : to;
    for (int k = 0; other[k]; k++) change_word(out, call, axes, args, list, i, other[k]);
    Words before = *list; /* one less */
    memmove(&list->word[i], &list->word[i + 1], (size_t)(list->n - 1 - i) * sizeof *list->word);
    list->n--;
    put_outcome(out, call, axes, args);
    *list = before;
  }
  if (!list->n) list->word[0] = to[1];
  list->word[list->n] = list->word[0]; /* once more */
  list->n++;
  put_outcome(out, call, axes, args);
  list->n--;
}

Test(calls, every_operation_changed_in_every_way) {
  static const char *const other_axes[] = {"nope", "b", "seq", "batch", NULL}, *const other_args[] = {
                                                                                   "nope", "y", "i", "t",
                                                                                   "2",    "r", NULL};
  ZbArena *a = zb_arena_new();
  ZbText got = {0};
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    Words axes = words_of(a, calls[i].axes), args = words_of(a, calls[i].args);
    put_outcome(&got, &calls[i], &axes, &args);
    change_list(&got, &calls[i], &axes, &args, &axes, other_axes);
    change_list(&got, &calls[i], &axes, &args, &args, other_args);
  }
  golden_file(PATH, got.s);
  zb_text_free(&got);
  zb_arena_free(a);
}
