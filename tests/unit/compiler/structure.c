/* What the graphs of models look like: sizes, paths, segments, carried values, regions, places; and how long
 * compiling takes. */
#include "tests/unit/compiler/load.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <time.h>

static ZgGraph *must(Case *c, ZgGraph *g) {
  cr_assert(g, "%s", messages(c));
  return g;
}

static uint64_t parameters(const char *file, const char *options) {
  Case c = load_file(file);
  set_options(&c, options);
  uint64_t n = zg_param_count(must(&c, elaborate(&c)));
  done(&c);
  return n;
}

Test(structure, parameter_counts) {
  cr_expect_eq(parameters(ZUG_SRC "/examples/gpt2.zug", ""), 124439808u);
  cr_expect_eq(parameters(ZUG_SRC "/examples/gpt2.zug", "-D layers=48 -D heads=25 -D width=1600"),
               1557611200u);
  cr_expect_eq(parameters(ZUG_SRC "/examples/llama3.zug", ""), 8030261248u);
  cr_expect_eq(
      parameters(ZUG_SRC "/examples/llama3.zug", "-D layers=80 -D heads=64 -D width=8192 -D inner=28672"),
      70553706496u);
  cr_expect_eq(
      parameters(ZUG_SRC "/examples/llama3.zug", "-D layers=126 -D heads=128 -D width=16384 -D inner=53248"),
      405853388800u);
  cr_expect_eq(parameters(ZUG_SRC "/examples/mlp.zug", ""), 269322u);
}

Test(structure, gpt2) {
  Case c = load_file(ZUG_SRC "/examples/gpt2.zug");
  ZgGraph *g = must(&c, compile(&c));
  cr_expect(g->nsegments == 3 && g->segments[1].repeat && g->segments[1].trip == 12);
  cr_expect_str_eq(g->segments[1].label, "layer");
  cr_expect_eq(g->segments[1].ncarry_in, 1);
  cr_expect_eq(g->segments[2].ncarry_in, 1);
  const ZgParam *wq = find_param(g, "layer.*.attn.wq"), *wo = find_param(g, "layer.*.attn.wo");
  cr_assert(wq && wo && find_param(g, "layer.*.ln1.g") && find_param(g, "ln_f.b") && find_param(g, "wte"));
  cr_expect(wq->segment == 1 && find_param(g, "wte")->segment == ZG_NONE);
  cr_expect(wo->init == ZG_INIT_NORMAL && wo->num[0] > 0.00408 && wo->num[0] < 0.00409);
  /* Declared [head, hd, embed], kept as a set in order of the axes embed, head, hd. */
  cr_expect(wo->order[0] == 1 && wo->order[1] == 2 && wo->order[2] == 0);
  uint32_t bias = zg_tag_add(g, "bias");
  cr_expect(find_param(g, "layer.*.attn.bq")->tags == 1u << bias && !wq->tags);
  /* The head is tied: one parameter, used in the first segment and in the last, gradients from both. */
  for (int i = 0; i < 3; i += 2) {
    bool uses = false, grads = false;
    for (uint32_t k = 0; k < g->segments[i].nnodes; k++) {
      const ZgNode *n = &g->segments[i].nodes[k];
      bool wte = (n->op == ZG_OP_PARAM || n->op == ZG_OP_PARAM_GRAD) &&
                 &g->params[n->opt[0]] == find_param(g, "wte");
      uses |= wte && n->op == ZG_OP_PARAM;
      grads |= wte && n->op == ZG_OP_PARAM_GRAD;
    }
    cr_expect(uses && grads, "segment %d", i);
  }
  done(&c);
}

/* Values by position: of the place along the parameter's own axes, numbers, and the iteration, also by way of statics of
 * blocks; with the operators and functions of statics. */
Test(structure, initial_values_by_position) {
  Case c = load_text("block B[a](x: real[.., a], depth = 0) -> real[.., a] {\n"
                     "  param w[a] = log(1 + place[a]()) + depth\n  return x * w\n}\n"
                     "model M(layers = 3) { axis batch, a = 4, b = 6\n  input x: real[batch, a]\n"
                     "  param t[b, a] = sin(place[b]() / pow(100, place[a]() / a)) + 10 * (place[a]() <= 1 "
                     "and not (place[b]() == 2))\n"
                     "  param p[a] = place[a]()\n  param q[a] = ceil(place[a]() / 2) - -max(place[a](), 2)\n"
                     "  x = x * sum[b](t) + p + q\n"
                     "  repeat layers as layer { x = B[a](x, depth = layer * 10) as b }\n"
                     "  loss sum[a](x) per samples() }");
  ZgGraph *g = must(&c, elaborate(&c));
  const ZgParam *t = find_param(g, "t"), *p = find_param(g, "p"), *q = find_param(g, "q"),
                *w = find_param(g, "layer.*.b.w");
  cr_assert(t && p && q && w && t->formula && p->formula && q->formula && w->formula);
  for (int i = 0; i < 6 * 4; i++) {
    double b = i / 4, a = i % 4;
    cr_expect_float_eq(zg_initial(t, (double[]){b, a}, 0), sin(b / pow(100, a / 4)) + 10 * (a <= 1 && b != 2),
                       1e-12);
    cr_expect_float_eq(zg_initial(p, &a, 0), a, 0);
    cr_expect_float_eq(zg_initial(q, &a, 0), ceil(a / 2) + fmax(a, 2), 0);
    if (b < 3) cr_expect_float_eq(zg_initial(w, &a, (uint32_t)b), log(1 + a) + 10 * b, 1e-12);
  }
  done(&c);
  static const char *const wrong[][2] = {
      {"param w[a] = place[b]()", "parameter `w` has no axis `b`"},
      {"param w[a] = place[a]() * x", "`x` is a tensor"},
      {"param w[a] = log(place[a](), 2)", "`log` takes 1 argument, found 2"},
      {"param w[a] = lookup(place[a]())", "`lookup` is not a function of statics"},
      {"param w[a] ~ normal(place[a]())", "unexpected `[`"}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    ZbText text = {0};
    zb_text_add(
        &text,
        "model M { axis batch, a = 4, b = 3  input x: real[batch, a]  %s  loss sum[a](w * x) per samples() }",
        wrong[i][0]);
    c = load_text(text.s);
    cr_expect(!elaborate(&c) && strstr(messages(&c), wrong[i][1]), "%s: %s", wrong[i][0], messages(&c));
    done(&c);
    zb_text_free(&text);
  }
}

/* A repeat's label is the number of the iteration in initial values, also by way of statics of blocks; elsewhere it is
 * none. A parameter without axes is a scalar. */
Test(structure, initial_values_by_iteration) {
  Case c = load_text("block B[a](x: real[.., a], depth = 0, s = 2 * depth) -> real[.., a] {\n"
                     "  param w[a] ~ trunc_normal(s + 1, 3)\n  return x * w\n}\n"
                     "model M(layers = 3) { axis batch, a = 4\n  input x: real[batch, a]\n  param t = 0.5\n"
                     "  repeat layers as layer {\n    param u[a] = 1 / (layer + 1)\n    param v[a] = 7\n"
                     "    x = B[a](x + u + t, depth = layer * 10) as b\n"
                     "    repeat 2 as inner { param k[a] = inner + 10 * layer  x = x * k * v }\n  }\n"
                     "  loss sum[a](x) per samples() }");
  ZgGraph *g = must(&c, elaborate(&c));
  const ZgParam *t = find_param(g, "t"), *u = find_param(g, "layer.*.u"), *v = find_param(g, "layer.*.v"),
                *w = find_param(g, "layer.*.b.w"), *k = find_param(g, "layer.*.inner.1.k");
  cr_assert(t && u && v && w && k);
  cr_expect(t->type.naxes == 0 && t->num[0] == 0.5 && !t->each && !v->each);
  for (uint32_t i = 0; i < 3; i++) {
    cr_expect_float_eq(zg_init_numbers(u, i)[0], 1.0 / (i + 1), 1e-12);
    cr_expect_float_eq(zg_init_numbers(w, i)[0], 20.0 * i + 1, 1e-12);
    cr_expect_float_eq(zg_init_numbers(w, i)[1], 3, 0);
    cr_expect_float_eq(zg_init_numbers(k, i)[0], 1 + 10.0 * i, 1e-12);
    cr_expect_float_eq(zg_init_numbers(v, i)[0], 7, 0);
  }
  done(&c);
  static const char *const wrong[][2] = {
      {"x = x * layer", "`layer` is another number in each iteration"},
      {"if layer { x = 2 * x }", "`layer` is another number in each iteration"},
      {"param w[a] ~ normal(layer - 1)  x = x * w", "cannot be negative: -1"},
      {"param w[a] ~ trunc_normal(1, 0.01)  x = x * w", "at least 0.1, found 0.01"},
      {"param w[a] ~ normal(1, 2)  x = x * w", "`normal` takes 1 number, found 2"}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    ZbText text = {0};
    zb_text_add(&text,
                "model M { axis batch, a = 4  input x: real[batch, a]  repeat 3 as layer { %s }"
                " loss sum[a](x) per samples() }",
                wrong[i][0]);
    c = load_text(text.s);
    cr_expect(!elaborate(&c) && strstr(messages(&c), wrong[i][1]), "%s: %s", wrong[i][0], messages(&c));
    done(&c);
    zb_text_free(&text);
  }
}

Test(structure, regions_name_blocks_and_labels) {
  Case c = load_file(ZUG_SRC "/examples/gpt2.zug");
  ZgGraph *g = must(&c, elaborate(&c));
  int found = 0;
  for (uint32_t i = 0; i < g->nregions; i++) {
    const ZgRegion *r = &g->regions[i], *up = r->parent == ZG_NONE ? NULL : &g->regions[r->parent];
    if (strcmp(r->label, "attn")) continue;
    found++;
    cr_expect_str_eq(r->block, "Attention");
    cr_expect_str_eq(up->block, "Layer");
    cr_expect_str_eq(up->label, "");
    cr_expect(g->regions[up->parent].kind == ZG_REGION_REPEAT &&
              !strcmp(g->regions[up->parent].label, "layer"));
  }
  cr_expect_eq(found, 1);
  done(&c);
}

/* The planner names causes by line: a library's operations are said of the line that calls the library. */
Test(structure, places_are_the_users) {
  Case c = load_file(ZUG_SRC "/examples/llama3.zug");
  ZgGraph *g = must(&c, compile(&c));
  for (uint32_t s = 0; s < g->nsegments; s++)
    for (uint32_t i = 0; i < g->segments[s].nnodes; i++) {
      const ZgLoc *l = &g->locs[g->segments[s].nodes[i].loc];
      bool seed = g->segments[s].nodes[i].op == ZG_OP_DCARRY || g->segments[s].nodes[i].op == ZG_OP_DCARRY_IN;
      cr_expect(seed || (!strcmp(l->file, "llama3.zug") && l->line > 0), "%s: %s:%u",
                zg_op_info[g->segments[s].nodes[i].op].text, l->file, l->line);
    }
  done(&c);
}

#define X_MODEL(body) "model M { axis batch, a = 2  input x: real[batch, a]  param w[a] = 1\n" body "}"

/* m is made before the repeat and used in it and after it: carried through unchanged; so is what is only used
 * after. Parameters, inputs and constants are made again instead. */
Test(structure, carried_values) {
  Case c = load_text(X_MODEL("  m = exp(x)  late = sin(x)  y = x\n"
                             "  repeat 3 as r { y = y * m * w + x + 2 }\n"
                             "  loss y * m * late * w * x per x"));
  ZgGraph *g = must(&c, elaborate(&c));
  cr_assert_eq(g->nsegments, 3);
  const ZgSegment *r = &g->segments[1];
  cr_expect_eq(r->ncarry_in, 3);
  cr_expect(count_op(r, ZG_OP_CARRY) == 3 && count_op(r, ZG_OP_CARRY_OUT) == 3);
  cr_expect(count_op(r, ZG_OP_PARAM) == 1 && count_op(r, ZG_OP_INPUT) == 1 && count_op(r, ZG_OP_FILL) == 1);
  /* In order, carries first and carry_outs last; all but the first leave as they came. */
  for (uint32_t k = 0; k < 3; k++) {
    const ZgNode *in = &r->nodes[k], *out = &r->nodes[r->nnodes - 3 + k];
    cr_expect(in->op == ZG_OP_CARRY && in->opt[0] == k && out->op == ZG_OP_CARRY_OUT && out->opt[0] == k);
    cr_expect((out->in[0] == in->out) == (k > 0));
  }
  done(&c);
}

/* y and x0 are one value before the repeat; inside, y changes and x0 does not. */
Test(structure, a_carried_value_and_its_alias) {
  Case c = load_text(X_MODEL("  x0 = exp(x)  y = x0\n"
                             "  repeat 3 as r { y = y * x0 * w }\n"
                             "  loss y per x"));
  const ZgGraph *g = must(&c, elaborate(&c));
  cr_expect_eq(g->segments[1].ncarry_in, 2);
  done(&c);
}

Test(structure, repeats_in_a_row_and_nested) {
  Case c = load_text(X_MODEL("  y = 0 * x\n"
                             "  repeat 2 as r { y = y + w  repeat 3 as s { param v[a] = 1  y = y * v } }\n"
                             "  repeat 4 as t { y = y * w }\n"
                             "  loss y per x"));
  const ZgGraph *g = must(&c, compile(&c));
  cr_expect_eq(g->nsegments, 5);
  cr_expect(g->segments[1].trip == 2 && g->segments[3].trip == 4);
  cr_expect(find_param(g, "r.*.s.0.v") && find_param(g, "r.*.s.2.v") && !find_param(g, "r.*.s.3.v"));
  cr_expect_eq(zg_param_count(g), 2u + 2u * 3u * 2u);
  done(&c);
}

/* A repeat in a block is a segment like any other, where it is called outside of repeats. */
Test(structure, repeat_in_a_block) {
  Case c = load_text("block deep[a](x: real[.., a]) -> real[.., a] {\n"
                     "  repeat 5 as layer { param w[a] = 1  x = x * w }  return x }\n" X_MODEL(
                         "  loss x * w + deep[a](deep[a](x) as one) as two per x"));
  const ZgGraph *g = must(&c, compile(&c));
  cr_expect_eq(g->nsegments, 5);
  cr_expect(find_param(g, "one.layer.*.w") && find_param(g, "two.layer.*.w"));
  done(&c);
}

/* A number that is rebound becomes a tensor; the name of a repeat that is not labelled is `repeat`. */
Test(structure, number_carried) {
  Case c = load_text(
      X_MODEL("  s = 1\n  repeat 3 { param v[a] = 1  s = s + 0.5 * sum[a](v) }\n  loss s * x * w per x"));
  const ZgGraph *g = must(&c, compile(&c));
  cr_expect(find_param(g, "repeat.*.v"));
  cr_expect_eq(g->segments[1].ncarry_in, 1);
  cr_expect_eq(g->segments[1].carry_in[0].naxes, 0);
  done(&c);
}

/* The denominator is made of inputs again in the last segment, however long the way. */
Test(structure, denominator_is_remade) {
  Case c = load_text(X_MODEL("  n = exp(x)  n = n * n  y = x\n"
                             "  repeat 2 as r { y = y * w * n }\n"
                             "  loss y per n"));
  const ZgGraph *g = must(&c, compile(&c));
  const ZgSegment *last = &g->segments[2];
  cr_expect_eq(last->ncarry_in, 1 + 1); /* y, and n for the repeat's sake */
  ZbErr err;
  cr_expect(zg_verify(g, &err), "%s", err.text);
  done(&c);
}

Test(structure, precision) {
  Case c = load_text("block twice(x: real[..]) -> real[..] { return x * 2 }\n" X_MODEL(
      "  y = twice(f32(x)) + w  output z = y  output k = f32(3) + 0 * f32(w)\n"
      "  loss real(y) per less(x, 1 / 3) "));
  cr_expect_null(elaborate(&c)); /* per a bool */
  done(&c);
  c = load_text("block twice(x: real[..]) -> real[..] { return x * 2 }\n" X_MODEL(
      "  y = twice(f32(x)) + w  output z = y\n  loss real(y) per x"));
  const ZgGraph *g = must(&c, elaborate(&c));
  cr_expect_eq(g->outputs[0].type.elem, ZG_F32);
  done(&c);
}

Test(structure, random_streams_differ) {
  Case c = load_text("use std.nn as nn\n" X_MODEL("  y = nn.dropout(nn.dropout(x * w))\n  loss y per x"));
  const ZgGraph *g = must(&c, elaborate(&c));
  int64_t stream[2];
  int n = 0;
  const ZgSegment *s = &g->segments[0];
  for (uint32_t i = 0; i < s->nnodes; i++)
    if (s->nodes[i].op == ZG_OP_RANDOM && n < 2) {
      cr_expect_float_eq(s->nodes[i].num[0], 0.9, 1e-12);
      stream[n++] = s->nodes[i].opt[0];
    }
  cr_assert_eq(n, 2);
  cr_expect_neq(stream[0], stream[1]);
  done(&c);
}

/* Without the places in the text. */
static void drop_places(char *s) {
  char *to = s;
  for (bool place = false; *s; s++) {
    place = (place && *s != '\n') || !strncmp(s, "  # ", 4);
    if (!place) *to++ = *s;
  }
  *to = 0;
}

/* The graph of a model in which `call` convolves x, to y. */
static ZbText convolved(const char *block, const char *call) {
  ZbText t = {0}, out = {0};
  zb_text_add(&t,
              "use std.nn as nn\nmodel M {\n  axis batch, i = 3, o = 4, r = 11, q = 9, r2 = 5, q2 = 4\n"
              "  input x: real[batch, i, r, q]\n%s  y = %s as conv\n  loss y * y per samples()\n}\n",
              block, call);
  Case c = load_text(t.s);
  zg_print(must(&c, elaborate(&c)), ZG_NONE, &out);
  drop_places(out.s);
  zb_text_free(&t);
  done(&c);
  return out;
}

/* Six names, a stride and zeros say the same as the operation with all names, and a parameter for it. */
Test(structure, convolutions_by_few_names) {
  ZbText many = convolved("  block ConvDown(x: real[.., i, r, q]) -> real[.., o, r2, q2] {\n"
                          "    axis kr = 3, kq = 3\n    param w[o, i, kr, kq] ~ normal(sqrt(2 / 27))\n"
                          "    y = conv[i, r, kr, r2, q, kq, q2](x, w, stride = 2, pad = 1, dilate = 2)\n"
                          "    param b[o] = 0 tag bias\n    return y + b\n"
                          "  }\n",
                          "ConvDown(x)"),
         few = convolved("", "nn.ConvDown[i, o, r, q, r2, q2](x, stride = 2, pad = 1, dilate = 2)");
  cr_expect(strstr(few.s, "conv"));
  cr_expect_str_eq(few.s, many.s);
  zb_text_free(&many), zb_text_free(&few);
}

Test(structure, overrides) {
  Case c = load_file(ZUG_SRC "/examples/gpt2.zug");
  set_options(&c, "-D width=64 -D layers=2 -D layers=3 -D heads=4 -D words=256 -D context=16");
  const ZgGraph *g = must(&c, compile(&c));
  cr_expect_eq(g->segments[1].trip, 3);
  cr_expect_eq(g->axes[zg_axis_find(g, "hd")].size, 16);
  cr_expect_eq(g->axes[zg_axis_find(g, "seq")].size, 0);
  done(&c);
}

/* An integer is exact beyond 2^53, whatever was read before it. */
Test(structure, large_overrides) {
  Case c = load_text("model M(a = 1, n = 1) { axis batch, k = n - 9007199254740990\n"
                     "  input x: real[batch, k]  loss x per x }");
  set_options(&c, "-D a=99999999999999999999 -D n=9007199254740993");
  const ZgGraph *g = must(&c, elaborate(&c));
  cr_expect_eq(g->axes[zg_axis_find(g, "k")].size, 3);
  done(&c);
}

/* The same source gives the same bytes, wherever it lies and whenever it is compiled. */
Test(structure, deterministic) {
  ZbText bytes[2] = {{0}};
  for (int i = 0; i < 2; i++) {
    Case c = load_file(i ? ZUG_SRC "/examples/llama3.zug" : ZUG_SRC "/examples/../examples/llama3.zug");
    ZB_ASSERT(zg_write(must(&c, compile(&c)), &bytes[i], NULL));
    done(&c);
  }
  cr_expect(bytes[0].len == bytes[1].len && !memcmp(bytes[0].s, bytes[1].s, bytes[0].len));
  for (int i = 0; i < 2; i++) zb_text_free(&bytes[i]);
}

static double compile_ms(const char *options) {
  double best = 1e9;
  for (int i = 0; i < 3; i++) {
    struct timespec t0, t1;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t0);
    Case c = load_file(ZUG_SRC "/examples/llama3.zug");
    set_options(&c, options);
    must(&c, compile(&c));
    done(&c);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t1);
    double ms = (double)(t1.tv_sec - t0.tv_sec) * 1e3 + (double)(t1.tv_nsec - t0.tv_nsec) / 1e6;
    if (ms < best) best = ms;
  }
  return best;
}

Test(structure, time_is_independent_of_depth) {
  double shallow = compile_ms("-D layers=1"), deep = compile_ms("-D layers=4000");
  cr_expect(shallow < 500 && deep < 3 * shallow + 20, "%.1f and %.1f ms", shallow,
            deep); /* sanitizers included */
}
