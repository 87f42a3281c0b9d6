/* Whole steps in every kind of layout, in one process: losses, norms and parameters are those of one rank,
 * and a rank uses as many bytes as were planned. Models are those of scenarios (tests/scenarios), which see more of
 * each in more layouts. */
#include "tests/unit/exec/engine/job.h"
#include "tests/unit/exec/engine/queued.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(layouts, .init = scratch_make, .fini = scratch_remove);

/* Each recipe against the first, with parameters where `saves`: what AdamW makes of gradients that are
 * rounding errors is no matter of layouts. */
typedef struct {
  const char *file, *text, *options;
  bool named, saves, exchanges;
  double tolerance; /* f32 sums in another order: tests/scenarios/layouts.sh */
  const char *base; /* of each recipe */
} Alike;

static void alike_on(const ZxDeviceTable *device, const Alike *x, const char *const *recipes) {
  Model m = job_model(x->file, x->text, x->options);
  char path[2][400];
  Job one = {0};
  for (int i = 0; recipes[i]; i++) {
    const ZxDeviceTable *on = i ? device : &zx_device_cpu;
    Job j = x->named ? job_named(&m, recipes[i], on, (ZpOptions){0})
                     : job_of(&m, x->base, recipes[i], on, (ZpOptions){0});
    snprintf(path[i > 0], sizeof *path, "%s", scratch(i ? "other" : "one"));
    j.exchanges |= x->exchanges;
    j.save = x->saves ? path[i > 0] : NULL;
    job_play(&j, job_train);
    for (int r = 0; r < j.ranks; r++)
      cr_assert_eq(j.player[r].step[j.steps].used_bytes, j.player[r].planned,
                   "%s: rank %d uses %llu, planned %llu", recipes[i], r,
                   (unsigned long long)j.player[r].step[j.steps].used_bytes,
                   (unsigned long long)j.player[r].planned);
    if (i) job_compare(&one, &j, x->tolerance, recipes[i]), job_close(&j);
    else one = j;
  }
  job_close(&one);
  model_close(&m);
}

static void alike(const Alike *x, const char *const *recipes) { alike_on(&zx_device_cpu, x, recipes); }

#define NAMES(...)                                                                                           \
  (const char *const[]) { __VA_ARGS__, NULL }
#define SGD                                                                                                  \
  "bind batch = 8, seq = 8 micro 4 optimizer sgd(lr = 0.1, momentum = 0.9, warmup = 2) decay 0.01 clip 1.0 "
#define ZERO3 "shard params, grads, states over data unit layer "
#define GPT2 "-D layers=2 -D heads=2 -D width=8 -D context=8 -D words=11"

Test(layouts, gpt2) {
  alike(&(Alike){"examples/gpt2.zug", NULL, GPT2, .saves = true, .tolerance = 1e-5,
                 .base = SGD "pad vocab to 4 "},
        NAMES("", "micro 1", "recompute Layer", "mesh data = 2 split batch over data micro 2",
              "mesh data = 4 split batch over data micro 1 shard states over data",
              "mesh data = 2 split batch over data micro 2 shard grads, states over data",
              "mesh data = 2 split batch over data micro 2 " ZERO3,
              "mesh data = 4 split batch over data micro 1 " ZERO3 "keep",
              "mesh data = 4 split batch over data micro 1 " ZERO3 "prefetch 0",
              "mesh replica = 2, data = 2 split batch over replica, data micro 1 " ZERO3,
              "mesh replica = 2, data = 2 split batch over replica, data micro 1 shard states over data",
              "mesh tensor = 2 split head, ffn, vocab over tensor",
              "mesh tensor = 2 split head, ffn, vocab over tensor else seq",
              "mesh context = 4 split seq over context attention ring",
              "mesh context = 2 split seq over context attention gather",
              "mesh context = 2 split seq over context contiguous attention ring",
              "mesh context = 2 split seq over context attention heads",
              "mesh pipe = 2 stages over pipe by cost schedule 1f1b micro 2",
              "mesh pipe = 2 stages over pipe by cost schedule gpipe micro 1",
              "mesh pipe = 2, data = 2, tensor = 2 split batch over data split head, ffn, vocab over tensor "
              "else seq stages over pipe by "
              "cost micro 1 " ZERO3));
  /* The table is the first stage's and the last one's. */
  alike(&(Alike){"examples/gpt2.zug", NULL, "-D layers=3 -D heads=2 -D width=8 -D context=8 -D words=11",
                 .saves = true, .tolerance = 1e-5, .base = SGD "pad vocab to 4 "},
        NAMES("", "mesh pipe = 3 stages over pipe = [1, 1, 1] micro 2"));
}

/* Ranks with two virtual stages; one rank hands tuples on to itself, and of two each has both neighbours in the other. */
Test(layouts, interleaved) {
#define INTERLEAVED "stages over pipe by cost schedule interleaved "
  alike(
      &(Alike){"examples/gpt2.zug", NULL, "-D layers=5 -D heads=2 -D width=8 -D context=8 -D words=12",
               .saves = true, .tolerance = 1e-5, .base = SGD},
      NAMES(
          "", "mesh pipe = 1 micro 2 " INTERLEAVED, "mesh pipe = 2 micro 1 " INTERLEAVED,
          "mesh pipe = 2 micro 1 recompute Layer " INTERLEAVED,
          "mesh pipe = 2, data = 2 split batch over data micro 1 shard grads, states over data " INTERLEAVED,
          "mesh pipe = 2, data = 2 split batch over data micro 1 " ZERO3 INTERLEAVED));
}

/* ... with tables that are not tied to the output, and layers of other kinds. */
Test(layouts, llama3) {
  alike(&(Alike){"examples/llama3.zug", NULL,
                 "-D layers=3 -D heads=4 -D kv_heads=2 -D width=16 -D inner=12 -D words=12", .saves = true,
                 .tolerance = 1e-5, .base = SGD},
        NAMES("", "mesh data = 2 split batch over data micro 2 shard states over data",
              "mesh pipe = 3 stages over pipe = [1, 1, 1] micro 2",
              "mesh tensor = 4 split kv*grp, ffn, vocab over tensor",
              "mesh data = 2, tensor = 2 split batch over data split kv, ffn, vocab over tensor else seq "
              "micro 2 " ZERO3));
}

Test(layouts, experts) {
  alike(&(Alike){"tests/data/models/moe.zug", NULL, "-D layers=2 -D words=16 -D width=8", .named = true,
                 .tolerance = 1e-5},
        NAMES("one", "few", "many", "data_2", "zero3_4", "sums_2", "experts_2", "experts_4", "both_4",
              "beside_4", "five_8", "more_8"));
}

/* Experts as gpt-oss has them: biases, bounds and a scale meet rows element by element. A bias's gradient sums
 * over its expert's rows wherever they are, and over no others: rows that fill up a round, of which half
 * are here where slots are four times the average, would add to it. */
static const char biases[] =
    "model X {\n"
    "  axis batch, seq, embed = 8, expert = 4, choice = 2, ffn = 8, slot, vocab = 16\n"
    "  input tokens: index(vocab)[batch, seq]  input targets: index(vocab)[batch, seq]\n"
    "  param wte[vocab, embed] ~ normal(0.5)\n  x = lookup(wte, tokens)\n"
    "  repeat 2 as layer {\n"
    "    param router[embed, expert] ~ normal(0.5)  param router_b[expert] ~ normal(0.5)\n"
    "    param gate[expert, embed, ffn], up[expert, embed, ffn], down[expert, ffn, embed] ~ normal(0.3)\n"
    "    param gate_b[expert, ffn], up_b[expert, ffn], down_b[expert, embed], scale[ffn] ~ normal(0.3)\n"
    "    w, e = topk[expert, choice](f32(dot[embed](x, router) + router_b))\n"
    "    rows = dispatch[expert, slot](x, e)\n"
    "    g = min(dot[embed](rows, gate) + gate_b, 0.5)\n"
    "    u = max(min(dot[embed](rows, up) + up_b, 0.5), 0 - 0.5)\n"
    "    rows = dot[ffn]((u + 1) * (g * sigmoid(1.702 * g)) * scale, down) + down_b\n"
    "    x = x + combine[expert, slot, choice](rows, e, softmax[choice](w))\n"
    "  }\n"
    "  loss xent[vocab](dot[embed](x, wte), targets) per known(targets)\n"
    "}\n";
#define EP "mesh ep = 2 split batch, expert over ep micro 2 "
Test(layouts, biases_of_experts) {
  alike(
      &(Alike){NULL, biases, NULL, .saves = true, .tolerance = 1e-5, .base = SGD},
      NAMES(
          "", "bind slot = 4", "bind slot = 0.25", "recompute layer",
          "mesh data = 2 split batch over data micro 2 " ZERO3,
          "mesh tensor = 2 split ffn, vocab over tensor",
          "mesh tensor = 2 split embed over tensor bind slot = 0.7", EP, EP "bind slot = 4",
          EP "bind slot = 0.3 recompute layer",
          "mesh ep = 4 split batch, expert over ep micro 1 shard states over ep",
          "mesh ep = 2, tensor = 2 split batch, expert over ep split ffn, vocab over tensor else seq micro 2",
          "mesh data = 2, ep = 2 split batch over data split batch, expert over ep micro 1 " ZERO3,
          "mesh pipe = 2 stages over pipe by cost micro 2"));
  alike(&(Alike){NULL, biases, NULL, .tolerance = 3e-2, .base = SGD "precision compute bf16 "},
        NAMES("", "bind slot = 0.25", EP, "mesh tensor = 2 split ffn, vocab over tensor"));
  alike_on(queued_device(), &(Alike){NULL, biases, NULL, .tolerance = 1e-5, .base = SGD}, NAMES("", EP));
}

/* All tokens go to the last experts: as many rounds as that takes. */
Test(layouts, one_expert) {
  alike(&(Alike){"tests/data/models/moe.zug", NULL,
                 "-D layers=1 -D words=16 -D width=8 -D hot=100 -D active=1 -D shared=1", .named = true,
                 .tolerance = 1e-5},
        NAMES("one", "few", "experts_4", "two_4"));
}

/* A vocabulary of 11 that is padded: softmax and lse make of it what they make of 11, on one rank and on two. */
Test(layouts, padded_softmax) {
  static const char text[] =
      "model X {\n"
      "  axis batch, seq, embed = 8, vocab = 11\n"
      "  input tokens: index(vocab)[batch, seq]  input targets: index(vocab)[batch, seq]\n"
      "  param wte[vocab, embed], out[vocab, embed] ~ normal(0.5)\n  x = lookup(wte, tokens)\n"
      "  repeat 2 as layer {\n"
      "    param w[embed] ~ normal(1)\n"
      "    p = softmax[vocab](dot[embed](x, wte) + 1)\n"
      "    x = x + dot[vocab](p, out) * w\n"
      "  }\n"
      "  z = dot[embed](x, out)\n"
      "  loss xent[vocab](z, targets) + 0.1 * lse[vocab](z) per known(targets)\n"
      "}\n";
  alike(&(Alike){NULL, text, NULL, .saves = true, .tolerance = 1e-5, .base = SGD},
        NAMES("", "pad vocab to 4", "pad vocab to 64",
              "mesh tensor = 2 split vocab over tensor pad vocab to 8",
              "mesh tensor = 2 split vocab over tensor else seq pad vocab to 2"));
}

/* Two regions of experts in one segment. Each has rounds of its own. */
Test(layouts, experts_of_experts) {
  static const char text[] =
      "model X {\n"
      "  axis batch, s = 4, a = 4, b = 4, expert = 4, choice = 2, slot\n"
      "  input x: real[batch, s, a]\n"
      "  param r[a, expert], q[a, expert] ~ normal(1)  param u[expert, a, b], v[expert, b, a] ~ normal(1)\n"
      "  w, e = topk[expert, choice](softmax[expert](f32(dot[a](x, r))))\n"
      "  y = combine[expert, slot, choice](dot[a](dispatch[expert, slot](x, e), u), e, w)\n"
      "  g, f = topk[expert, choice](softmax[expert](f32(dot[a](x, q))))\n"
      "  z = combine[expert, slot, choice](dot[b](tanh(dispatch[expert, slot](y, f)), v), f, g)\n"
      "  loss dot[a](z, z) per samples()\n"
      "}\n";
  alike(&(Alike){NULL, text, NULL, .saves = true, .tolerance = 1e-5,
                 .base = "bind batch = 8 micro 4 optimizer sgd(lr = 0.1, momentum = 0.9) "},
        NAMES("bind slot = 4", "bind slot = 1", "bind slot = 0.25",
              "mesh ep = 2 split batch, expert over ep micro 2 bind slot = 0.5"));
}

/* Windows, caps, biases, documents, sinks, a prefix, a second sequence. */
Test(layouts, attend) {
  alike(
      &(Alike){
          "tests/data/models/attend.zug", NULL, "-D groups=1", .saves = true, .tolerance = 1e-5,
          .base =
              "bind batch = 8, seq = 8, past = 5 micro 4 optimizer sgd(lr = 0.1, momentum = 0.9) clip 1.0 "},
      NAMES("", "mesh context = 2 split seq over context",
            "mesh context = 2 split seq over context attention ring",
            "mesh context = 4 split seq over context attention ring recompute Local",
            "mesh context = 4 split seq over context contiguous attention ring",
            "mesh outer = 2, context = 2 split seq over outer, context attention gather over outer attention "
            "heads over context",
            "mesh context = 2 split seq over context zigzag attention heads",
            "mesh data = 2, context = 2, tensor = 2 split batch over data split seq over context zigzag "
            "split kv, ffn, vocab over tensor else seq attention gather over context micro 2"));
}

Test(layouts, scans) {
  alike(&(Alike){"tests/data/models/scans.zug", NULL, "-D layers=1 -D words=16 -D width=8", .named = true,
                 .tolerance = 1e-5},
        NAMES("one", "zero3_4", "seq_2", "seq_4", "heads_seq_2"));
}

Test(layouts, convolutions) {
  alike(&(Alike){"tests/data/models/conv.zug", NULL,
                 "-D layers=1 -D side=4 -D words=16 -D width=4 -D inner=4", .named = true, .tolerance = 1e-5},
        NAMES("one", "inner_2", "outer_2", "rows_2"));
}

Test(layouts, states) {
  alike(&(Alike){"tests/data/models/states.zug", NULL, "-D layers=2 -D words=16", .named = true,
                 .tolerance = 1e-5},
        NAMES("one", "data_2", "zero1_4", "zero3_4", "experts_2", "pipe_2"));
}

/* Moving averages of parameters, of all and of each iteration's, and what is made of them; r is t, as a mean over samples that are
 * alike. */
Test(layouts, averages_of_parameters) {
  static const char text[] =
      "model A {\n  axis batch, a = 4, h = 8\n  input x: real[batch, a]\n"
      "  param w[a, h] ~ normal(1)\n  state t[a, h], r[a, h] = 0.5\n  state n[h] = 1\n"
      "  update t = 0.9 * t + 0.1 * w\n"
      "  update r = 0.9 * r + 0.1 * mean[batch](spread[batch](w))\n"
      "  update n = 0.5 * n + sum[a](w * w) / 4\n"
      "  z = tanh(dot[a](x, w) - dot[a](x, t)) * n\n"
      "  repeat 2 as layer {\n    param u[h] ~ normal(1)\n    state s[h] = 0\n"
      "    update s = 0.9 * s + 0.1 * u\n    z = z * u + s\n  }\n"
      "  loss sum[h](z * z) + 1e6 * sum[a, h](abs(t - r)) * sum[a](x * x) per samples()\n}\n";
  alike(&(Alike){NULL, text, NULL, .saves = true, .tolerance = 1e-5,
                 .base = "bind batch = 8 micro 4 optimizer sgd(lr = 0.01, momentum = 0.9) "},
        NAMES("", "micro 2", "mesh data = 2 split batch over data micro 2",
              "mesh data = 2 split batch over data shard params, grads, states over data micro 2",
              "mesh t = 2 split h over t", "mesh pipe = 2 stages over pipe by cost"));
}

Test(layouts, losses) {
  alike(&(Alike){"tests/data/models/losses.zug", NULL,
                 "-m Losses -D layers=2 -D words=16 -D width=8 -D inner=8", .named = true, .tolerance = 1e-5},
        NAMES("one", "big_1", "data_2", "zero3_4", "seq_2", "context_2", "pipe_2", "all_8"));
}

/* Layers one after another, without a repeat, of which parts are made again. */
Test(layouts, unrolled) {
  static const char text[] =
      "use std.nn as nn\nmodel U {\n  axis batch, seq, e = 8, f = 16, kv = 2, grp = 1, hd = 4, vocab = 16\n"
      "  input tokens: index(vocab)[batch, seq]\n  input targets: index(vocab)[batch, seq]\n"
      "  block Layer(x: real[.., seq, e]) -> real[.., seq, e] {\n"
      "    x = x + nn.GroupedAttention[seq, e, kv, grp, hd](nn.RMSNorm[e](x) as norm1) as attn\n"
      "    return x + nn.SwiGLU[e, f](nn.RMSNorm[e](x) as norm2, std = 0.5, out = 0.5) as mlp\n  }\n"
      "  param table[vocab, e] ~ normal(1)\n  x = lookup(table, tokens)\n"
      "  a = Layer(x) as l1\n  b = Layer(a) as l2\n  c = Layer(b + x) as l3\n  x = Layer(c + a) as l4\n"
      "  loss xent[vocab](dot[e](x, table), targets) per known(targets)\n}\n";
  alike(&(Alike){NULL, text, NULL, .saves = true, .tolerance = 1e-5,
                 .base = "bind batch = 8, seq = 8 micro 4 optimizer sgd(lr = 0.1, momentum = 0.9) "},
        NAMES("", "recompute Layer", "recompute attn, mlp", "recompute mlp, norm1",
              "recompute Layer mesh data = 2, t = 2 split batch over data split f, kv, vocab over t else seq "
              "micro 2"));
}

Test(layouts, resplit) {
  alike(&(Alike){"tests/data/models/resplit.zug", NULL, "", .named = true, .tolerance = 1e-5},
        NAMES("one", "vocab_2", "hd_2", "both_4", "zero_4"));
}

/* A sum that stays partial along one dimension of the mesh has its other operand padded along another. The
 * operand is a whole value or a part; it is padded in place, or is needed as it was. */
static const char sums[] = "model Sums {\n"
                           "  axis batch, a = 8, k = 4, j = 4\n"
                           "  input x: real[batch, a]\n"
                           "  param wk[a, k], uk[k, a], wj[a, j], uj[j, a], vj[j, a] ~ normal(0.5)\n"
                           "  p = dot[k](tanh(dot[a](x, wk)), uk)\n"
                           "  h = tanh(dot[a](x, wj))\n"
                           "  q = dot[j](h, uj)\n"
                           "  s = (p + q) * tanh(q + dot[j](h, vj))\n"
                           "  loss dot[a](s, s) per samples()\n"
                           "}\n";
Test(layouts, sums) {
  alike(&(Alike){NULL, sums, NULL, .saves = true, .tolerance = 1e-5,
                 .base = "bind batch = 8 micro 4 optimizer sgd(lr = 0.1) "},
        NAMES("", "mesh t = 2, u = 2 split k, j over t split k over u",
              "mesh u = 2, t = 2 split k, j over t split k over u",
              "mesh t = 2, u = 2 split k, j over t split k, a over u",
              "mesh t = 2, u = 2 split k over t split j over u"));
}

/* Of one input a rank reads a part of each sample, of others a part of the samples: whole lines of memory, so
 * that nothing lies between them. */
static const char uneven[] = "model Uneven {\n"
                             "  axis batch, seq = 32, a = 16\n"
                             "  input y: real[batch, a]\n"
                             "  input x: real[batch, seq]\n"
                             "  input z: real[batch, a]\n"
                             "  param w[seq], v[a] ~ normal(0.5)\n"
                             "  e = dot[seq](x, w) * dot[a](y, v) - dot[a](z, v)\n"
                             "  loss e * e per samples()\n"
                             "}\n";
Test(layouts, uneven) {
  alike(&(Alike){NULL, uneven, NULL, .saves = true, .tolerance = 1e-5,
                 .base = "bind batch = 16 micro 8 optimizer sgd(lr = 0.01) "},
        NAMES("", "mesh t = 2 split seq, batch over t micro 4", "mesh t = 4 split seq, batch over t micro 2",
              "mesh t = 2, d = 2 split batch over d split seq, batch over t micro 2"));
}

/* The largest of logits that are elementwise, also where chunks of them are made again. */
static const char capped[] = "model Capped {\n"
                             "  axis batch, seq, embed = 8, vocab = 12\n"
                             "  input tokens: index(vocab)[batch, seq]\n"
                             "  input targets: index(vocab)[batch, seq]\n"
                             "  param wte[vocab, embed], b[vocab] ~ normal(0.5)\n"
                             "  z = 3 * tanh((dot[embed](lookup(wte, tokens), wte) + b) / 3)\n"
                             "  top = peak[vocab](z)\n"
                             "  loss xent[vocab](z, targets) + 0.1 * top * top per known(targets)\n"
                             "}\n";
Test(layouts, capped) {
#define PLAIN "bind batch = 8, seq = 8 micro 4 optimizer sgd(lr = 0.1) "
  for (int half = 0; half < 2; half++)
    alike(&(Alike){NULL, capped, NULL, .saves = true, .tolerance = half ? 5e-3 : 1e-5,
                   .base = half ? PLAIN "precision compute bf16 " : PLAIN},
          NAMES("", "chunk vocab = 4", "mesh t = 2 split vocab over t",
                "mesh t = 2 split vocab over t chunk vocab = 4", "mesh t = 2 split embed over t",
                "mesh c = 2 split seq over c chunk vocab = 2"));
}

/* Dropout, shifts, positions and statistics under aux; few targets are known. */
static const char many[] =
    "use std.nn as nn\n"
    "model Many {\n"
    "  axis batch, seq, embed = 8, ffn = 16, vocab = 11, pos = 8\n"
    "  input tokens: index(vocab)[batch, seq]\n"
    "  input targets: index(vocab)[batch, seq]\n"
    "  input weight: real[batch, seq]\n"
    "  param wte[vocab, embed], wpe[pos, embed] ~ normal(0.5)\n"
    "  param route[embed, ffn] ~ uniform(-0.5, 0.5)\n"
    "  param odd[embed] ~ trunc_normal(0.5)\n"
    "  x = nn.dropout(lookup(wte, tokens) + lookup(wpe, position[seq, pos]()), p = 0.2)\n"
    "  repeat 2 as layer {\n"
    "    param up[embed, ffn], down[ffn, embed] ~ normal(0.3)\n"
    "    share = mean[batch, seq](softmax[ffn](dot[embed](x, route)))\n"
    "    aux 0.1 * sum[ffn](share * share)\n"
    "    h = nn.dropout(nn.relu(dot[embed](nn.RMSNorm[embed](x) as norm, up)), p = 0.3)\n"
    "    x = x + dot[ffn](h, down) + 0.1 * shift[seq](x, by = 2) + 0.1 * shift[seq](x, by = -1) * odd * "
    "weight\n"
    "  }\n"
    "  aux 0.01 * peak[batch, seq, embed](x * x)\n"
    "  loss xent[vocab](dot[embed](x, wte), targets) per known(targets)\n"
    "}\n";

Test(layouts, many) {
  alike(&(Alike){NULL, many, NULL, .saves = true, .tolerance = 1e-5, .base = SGD "pad vocab to 12 "},
        NAMES("", "recompute layer", "mesh data = 2 split batch over data micro 2",
              "mesh data = 4 split batch over data micro 1 " ZERO3,
              "mesh tensor = 2 split ffn, vocab over tensor else seq",
              "mesh context = 4 split seq over context",
              "mesh pipe = 2, context = 2 split seq over context contiguous stages over pipe by cost",
              "mesh pipe = 2 stages over pipe = [1, 1]"));
}

/* Dropout along an axis that is split zigzag: a rank has two pieces of it, each with its own positions. */
Test(layouts, pieces) {
  alike(&(Alike){NULL, job_drops, NULL, .saves = true, .tolerance = 1e-5, .base = SGD},
        NAMES("", "mesh context = 2 split seq over context zigzag",
              "mesh context = 4 split seq over context contiguous"));
}

/* In bf16: what is rounded is the same but for partial sums (tests/scenarios/precision.sh). */
Test(layouts, bf16) {
  alike(&(Alike){"examples/gpt2.zug", NULL, GPT2, .saves = true, .tolerance = 5e-3,
                 .base = SGD "precision compute bf16 pad vocab to 2 "},
        NAMES("", "recompute Layer", "mesh data = 2 split batch over data micro 2",
              "mesh data = 2 split batch over data micro 2 shard states over data",
              "mesh data = 2 split batch over data micro 2 shard grads, states over data",
              "mesh data = 2 split batch over data micro 2 " ZERO3,
              "mesh tensor = 2 split head, ffn, vocab over tensor else seq",
              "mesh context = 4 split seq over context attention ring",
              "mesh pipe = 2 stages over pipe by cost micro 2",
              "mesh pipe = 2, data = 2 split batch over data stages over pipe by cost micro 1 " ZERO3));
}

/* Gradients that travel in bf16 are rounded once each. */
static void narrow_on(const ZxDeviceTable *device) {
  alike_on(
      device, &(Alike){"examples/gpt2.zug", NULL, GPT2, .saves = true, .tolerance = 5e-3, .base = SGD},
      NAMES("", "precision reduce bf16 mesh data = 2 split batch over data micro 2",
            "precision reduce bf16 mesh data = 2 split batch over data micro 2 shard states over data",
            "precision reduce bf16 mesh data = 2 split batch over data micro 2 shard grads, states over data",
            "precision reduce bf16 mesh data = 2 split batch over data micro 2 " ZERO3,
            "precision reduce bf16 mesh replica = 2, data = 2 split batch over replica, data micro 1 " ZERO3,
            "precision reduce bf16 mesh pipe = 2, data = 2 split batch over data stages over pipe by cost "
            "micro 1 " ZERO3));
}
/* A device may convert the elements of one call in any order: this one in the worst. */
static void to_bf16_from_last(const ZkEnv *env, int64_t n, const float *x, uint16_t *y) {
  cr_expect_gt(n, 0);
  while (n--) zx_device_cpu.to_bf16(env, 1, x + n, y + n);
}
static void from_bf16_from_first(const ZkEnv *env, int64_t n, const uint16_t *x, float *y) {
  cr_expect_gt(n, 0);
  for (int64_t i = 0; i < n; i++) zx_device_cpu.from_bf16(env, 1, x + i, y + i);
}
static ZxDeviceTable converts_in_the_worst_order(void) {
  ZxDeviceTable d = zx_device_cpu;
  d.to_bf16 = to_bf16_from_last;
  d.from_bf16 = from_bf16_from_first;
  return d;
}
Test(layouts, narrow_and_wide_in_place) {
  ZxDeviceTable worst = converts_in_the_worst_order();
  ZkEnv env = {.pool = zk_pool_new(1)};
  ZxEngine e = {.dev = &worst, .env = &env};
  for (uint64_t n = 0; n <= 9; n++) {
    float x[9];
    for (uint64_t i = 0; i < n; i++) x[i] = 1 + (float)i / 512;
    zx_narrow(&e, x, n);
    zx_widen(&e, (const uint16_t *)(const void *)x, x, n);
    for (uint64_t i = 0; i < n; i++)
      cr_expect_eq(x[i], zb_bf16_to_f32(zb_f32_to_bf16(1 + (float)i / 512)), "%d of %d", (int)i, (int)n);
  }
  zk_pool_free(env.pool);
}
Test(layouts, narrow) {
  ZxDeviceTable worst = converts_in_the_worst_order();
  narrow_on(&zx_device_cpu);
  narrow_on(&worst);
}

/* Muon on matrices that several ranks have, or own. */
#define MUON                                                                                                 \
  "optimizer muon(lr = 0.02, momentum = 0.9, each = head) for wq, wk optimizer muon(lr = 0.02, scale = "     \
  "rms) for w1, w2 "
Test(layouts, muon) {
  alike(&(Alike){"examples/gpt2.zug", NULL, GPT2, .saves = true, .tolerance = 1e-4,
                 .base = "bind batch = 8, seq = 8 micro 4 average 0.75 optimizer sgd(lr = 0.1) " MUON},
        NAMES("", "mesh data = 2 split batch over data micro 2 shard states over data",
              "mesh data = 4 split batch over data micro 1 " ZERO3,
              "mesh tensor = 2 split head, ffn over tensor",
              "mesh data = 2, tensor = 2 split batch over data split head, ffn over tensor micro 1 shard "
              "grads, states over data",
              "mesh data = 2, tensor = 2 split batch over data split head, ffn over tensor micro 1 " ZERO3));
}

/* Rings, and rows of experts, by a communicator that exchanges messages of a group at once. */
Test(layouts, exchanges) {
  alike(&(Alike){"examples/gpt2.zug", NULL, GPT2, .saves = true, .exchanges = true, .tolerance = 1e-5,
                 .base = SGD "pad vocab to 4 "},
        NAMES("", "mesh context = 4 split seq over context attention ring",
              "mesh context = 2 split seq over context contiguous attention ring",
              "mesh context = 4 split seq over context contiguous attention ring recompute Layer"));
  alike(&(Alike){"tests/data/models/moe.zug", NULL, "-D layers=2 -D words=16 -D width=8", .named = true,
                 .exchanges = true, .tolerance = 1e-5},
        NAMES("one", "experts_2", "experts_4", "both_4", "five_8"));
}

/* ... and where streams do what ranks do together, as NCCL does it: in one order of all, without a host that
 * waits. */
Test(layouts, streams) {
  alike_on(queued_device(),
           &(Alike){"examples/gpt2.zug", NULL, GPT2, .saves = true, .tolerance = 1e-5,
                    .base = SGD "pad vocab to 4 "},
           NAMES("", "mesh data = 4 split batch over data micro 1 " ZERO3 "keep",
                 "mesh replica = 2, data = 2 split batch over replica, data micro 1 shard states over data",
                 "mesh context = 2 split seq over context attention heads",
                 "mesh pipe = 2 stages over pipe by cost schedule gpipe micro 1",
                 "mesh pipe = 2, data = 2, tensor = 2 split batch over data split head, ffn, vocab over "
                 "tensor else seq stages over pipe by cost micro 1 " ZERO3));
  alike_on(queued_device(),
           &(Alike){"tests/data/models/moe.zug", NULL, "-D layers=2 -D words=16 -D width=8", .named = true,
                    .tolerance = 1e-5},
           NAMES("one", "experts_4", "beside_4", "five_8"));
  alike_on(queued_device(),
           &(Alike){"tests/data/models/losses.zug", NULL,
                    "-m Losses -D layers=2 -D words=16 -D width=8 -D inner=8", .named = true,
                    .tolerance = 1e-5},
           NAMES("one", "all_8"));
  alike_on(queued_device(),
           &(Alike){"tests/data/models/states.zug", NULL, "-D layers=2 -D words=16", .named = true,
                    .tolerance = 1e-5},
           NAMES("one", "experts_2", "pipe_2"));
}
