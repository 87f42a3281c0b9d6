#include "tests/unit/plan/models/recipes.h"

#include <string.h>

/* Two repeats, values captured by both, dropout, aux terms, two losses, slices, merged axes, an argument and
 * a parameter used everywhere. */
static const char odd[] =
    "use std.nn as nn\n"
    "model Odd(a = 2, b = 3) {\n"
    "  axis batch, seq\n"
    "  axis embed = 8, kv = 2, grp = 2, hd = 4, ffn = 16, vocab = 12, half = 4, pos = 32, up = 2, low = 4, "
    "few = 3, tap = 3\n"
    "  block Mix(x: real[.., seq, embed], m: real[.., seq, embed], at: f32[.., seq]) -> real[.., seq, embed] "
    "{\n"
    "    param wq[embed, kv, grp, hd], wk[embed, kv, hd], wv[embed, kv, hd], wo[kv, grp, hd, embed] ~ "
    "normal(0.1)\n"
    "    y = nn.RMSNorm[embed](x) as n * gain\n"
    "    q = rope[seq, hd](dot[embed](y, wq), rule = llama3, factor = 4, context = 32, features = 2, at = "
    "at)\n"
    "    param slope[kv, pos], sink[kv, grp] ~ normal(1)\n"
    "    o = attend[seq, hd](q, dot[embed](y, wk), dot[embed](m, wv), mask = none, window = 9, cap = 4,\n"
    "      bias = lookup(slope, position[seq, pos]()), same = tokens, sinks = sink)\n"
    "    return x + nn.dropout(dot[kv, grp, hd](o, wo), p = 0.25)\n"
    "  }\n"
    "  block Forget(x: real[.., seq, embed]) -> real[.., seq, embed] {\n"
    "    param wq[embed, kv, hd], wk[embed, hd], wa[embed, kv, grp, hd], wv[embed, kv, grp, ffn] ~ "
    "normal(0.1)\n"
    "    param wg[embed, hd], wo[kv, grp, ffn, embed] ~ normal(0.1)\n"
    "    v = dot[embed](x, wv)\n"
    "    o = linear_attend[seq, hd, ffn](dot[embed](x, wq), dot[embed](x, wk), v, decay = "
    "-f32(sigmoid(dot[embed](x, wg))),\n"
    "      feed = -0.1 * dot[embed](x, wa), keys = dot[embed](x, wq), values = v)\n"
    "    return x + 0.1 * dot[kv, grp, ffn](o, wo)\n"
    "  }\n"
    "  block Mlp(x: real[.., embed]) -> real[.., embed] {\n"
    "    param w1[embed, ffn], w2[ffn, embed] ~ normal(0.1)\n"
    "    state seen[embed] = 0 tag norm\n"
    "    update seen = 0.9 * seen + 0.1 * mean[..](f32(x))\n"
    "    h = nn.gelu(dot[embed](x - seen, w1))\n"
    "    aux 0.01 * mean[..](mean[ffn](h * h))\n"
    "    return x + dot[ffn](h, w2) * pow(sigmoid(gain), gain)\n"
    "  }\n"
    "  input tokens: index(vocab)[batch, seq]\n"
    "  input targets: index(vocab)[batch, seq]\n"
    "  input weight: real[batch]\n"
    "  param gain[embed] = 1 tag norm\n"
    "  param wte[vocab, embed], wpe[pos, embed] ~ normal(0.1)\n"
    "  x = lookup(wte, tokens) + lookup(wpe, position[seq, pos]())\n"
    "  memory = cumsum[seq](x, order = reverse) * 0.1 + x * (0.5 + 0.25 * sign(weight))\n"
    "  memory = memory + 0.1 * scan[seq](sigmoid(gain), scan[seq](0.5, memory), order = reverse)\n"
    "  s = place[seq]()\n"
    "  at = spread[batch](s) + f32(shift[seq](tokens))\n"
    "  repeat a as first { x = Mix(x, memory, at) as mix  x = Forget(x) as forget  x = Mlp(x) as mlp }\n"
    "  param choice[embed, ffn], again[few, embed], push[ffn] ~ normal(0.1)\n"
    "  state lean[pos, embed], still[embed] = 1\n"
    "  update lean = max(lean, sum[batch, seq](f32(x)))\n"
    "  x = x * still + lookup(lean, position[seq, pos]())\n"
    "  param turn[low], lift[up] ~ normal(0.5)\n"
    "  x = x + merge[embed, up, low](tanh(part[up, low, embed](x) * turn) * lift)\n"
    "  best, which = topk[ffn, few](dot[embed](x, choice), by = dot[embed](x, choice) + push, groups = 4, "
    "take = 2)\n"
    "  aux 0.01 * sum[ffn](mean[batch, seq](sum[few](onehot[ffn](which))) * push)\n"
    "  x = x + dot[few](best, again)\n"
    "  param taps[tap, embed], wide[embed, ffn, tap], thin[ffn, embed] ~ normal(0.2)\n"
    "  x = x + 0.2 * conv[seq, tap](x, taps, pad = causal)\n"
    "  x = x + 0.2 * dot[ffn](conv[embed, seq, tap](x, wide, dilate = 2), thin)\n"
    "  loss early = 0.1 * mean[embed](x * x) per samples()\n"
    "  left = slice[embed, half](cumsum[embed](x))\n"
    "  right = slice[embed, half](x, start = half) * peak[embed](memory)\n"
    "  x = concat[embed, half, half](log1p(abs(right)), softmax[half](left))\n"
    "  repeat b as second { x = Mlp(x) as mlp  x = x + memory * (weight - floor(weight)) }\n"
    "  output logits = dot[embed](x + shift[seq](x, by = -2) * real(normal[seq, embed]()), wte)\n"
    "  loss weight * xent[vocab](logits, targets) + 0.01 * lse[vocab](logits) * cos(s) per weight * "
    "known(targets)\n"
    "}\n";

const RandomModel random_models[NMODELS] = {
    {"mlp", NULL, "-D inputs=12 -D hidden=8 -D classes=6", "batch pixel h1 h2 class", "fc1 fc2 Linear", 1},
    {"gpt2", NULL, "-D layers=5 -D heads=4 -D width=16 -D context=32 -D words=12",
     "batch seq embed head hd ffn vocab pos", "Layer Layer.attn Layer.mlp Attention layer ln_f gelu_tanh", 5},
    {"llama3", NULL, "-D layers=3 -D heads=8 -D kv_heads=4 -D width=32 -D inner=24 -D words=12",
     "batch seq embed kv grp hd ffn vocab kv*grp", "Layer Layer.attn Layer.mlp silu norm1 norm", 3},
    {"odd", odd, NULL, "batch seq embed kv grp hd ffn vocab half pos up low kv*grp grp*kv batch*seq",
     "first second first.mlp mix Mlp gelu dropout", 5},
};
typedef struct {
  uint64_t seed, at;
} Dice;
static uint32_t roll(Dice *d, uint32_t n) { return (uint32_t)(zb_random_u64(d->seed, 7, d->at++) % n); }

/* The n-th word of a list, or a random one if n is too large. */
static void word(Dice *d, const char *list, char out[32]) {
  uint32_t n = 1;
  for (const char *s = list; *s; s++) n += *s == ' ';
  for (uint32_t k = roll(d, n); k--;) list = strchr(list, ' ') + 1;
  size_t len = strcspn(list, " ");
  memcpy(out, list, len);
  out[len] = 0;
}

static const char *const dims[] = {"d0", "d1", "d2", "d3"};

static void put_axes(Dice *d, const char *axes, uint32_t most, ZbText *t) {
  char w[32];
  for (uint32_t n = 1 + roll(d, most), i = 0; i < n; i++) {
    word(d, axes, w);
    zb_text_add(t, "%s%s", i ? ", " : "", w);
  }
}

void put_recipe(int m, uint64_t number, ZbText *t) {
  Dice dice = {.seed = 1 + (uint64_t)m, .at = number << 12}, *d = &dice;
  char w[32];
  uint32_t n = roll(d, 5), pipe = roll(d, 3) ? UINT32_MAX : roll(d, 4), batch = roll(d, 4);
  bool sane = roll(d, 4) != 0;
  if (n) zb_text_add(t, "mesh ");
  uint32_t size[4] = {1, 1, 1, 1}, free_dims = 0;
  for (uint32_t i = 0; i < n; i++) {
    size[i] = sane ? 1u << roll(d, 3) : 1 + roll(d, 4);
    zb_text_add(t, "%s%s = %u", i ? ", " : "", dims[i], size[i]);
  }
  bool huge = roll(d, 50) == 0; /* more than any machine holds */
  zb_text_add(t, "\nbind batch = %u",
              huge   ? 1u << (4 + roll(d, 26))
              : sane ? 16u << roll(d, 2)
                     : 1 + roll(d, 40));
  if (m) zb_text_add(t, ", seq = %u", huge ? 1u << (4 + roll(d, 26)) : sane ? 16 : 1 + roll(d, 40));
  if (!huge && roll(d, 2)) zb_text_add(t, "\nmicro %u", 1 + roll(d, 3));
  for (uint32_t i = 0; i < n; i++) {
    if (i == pipe) continue;
    free_dims |= 1u << i;
    if (!roll(d, 12)) continue;
    zb_text_add(t, "\nsplit ");
    if (i == batch || roll(d, 3) == 0) zb_text_add(t, "batch");
    else put_axes(d, random_models[m].axes, 4, t);
    zb_text_add(t, " over %s", dims[i]);
    if (roll(d, 2)) {
      word(d, random_models[m].axes, w);
      if (!strchr(w, '*')) zb_text_add(t, " else %s", m && roll(d, 2) ? "seq" : w);
    }
  }
  if (pipe < n) {
    zb_text_add(t, "\nstages over %s ", dims[pipe]);
    if (roll(d, 3)) {
      zb_text_add(t, "by cost");
    } else {
      int left = random_models[m].repeats;
      for (uint32_t i = 0; i < size[pipe]; i++) {
        int k = i + 1 == size[pipe] ? left : roll(d, 6) ? (left + 1) / 2 : (int)roll(d, 4);
        zb_text_add(t, "%s%d", i ? ", " : "= [", k);
        left -= k;
      }
      zb_text_add(t, "]");
    }
    if (roll(d, 2)) zb_text_add(t, "\nschedule %s", roll(d, 2) ? "gpipe" : "1f1b");
  }
  static const char *const levels[] = {"states", "grads, states", "params, grads, states"};
  uint32_t level = roll(d, 3), sharded = roll(d, 16) & free_dims;
  bool keep = level == 2 && roll(d, 3) == 0;
  for (uint32_t i = 0; i < n; i++)
    if (sharded >> i & 1) zb_text_add(t, "\nshard %s over %s%s", levels[level], dims[i], keep ? " keep" : "");
  if (roll(d, 3) == 0) {
    word(d, random_models[m].blocks, w);
    zb_text_add(t, "\nrecompute %s", w);
  }
  if (roll(d, 4) == 0) {
    word(d, random_models[m].axes, w);
    if (!strchr(w, '*'))
      zb_text_add(t, "\npad %s to %u", roll(d, 3) ? m ? "vocab" : "class" : w, 1 + roll(d, 20));
  }
  if (roll(d, 3) == 0) zb_text_add(t, "\nprecision compute bf16");
  if (roll(d, 3) == 0) zb_text_add(t, "\noptimizer sgd(lr = 0.1%s)", roll(d, 2) ? ", momentum = 0.9" : "");
  if (roll(d, 30) == 0) zb_text_add(t, "\nlimit memory %u kB", 1 + roll(d, 500));
  if (level == 2 && sharded && roll(d, 3) == 0) zb_text_add(t, "\nprefetch %u", roll(d, 4));
  if (roll(d, 4) == 0) zb_text_add(t, "\nprecision reduce bf16");
  if (roll(d, 6) == 0) {
    word(d, random_models[m].axes, w);
    if (roll(d, 6)) strcpy(w, m ? "vocab" : "class");
    if (!strchr(w, '*'))
      zb_text_add(t, "\nchunk %s = %u", w, roll(d, 4) ? 2u << roll(d, 3) : 1 + roll(d, 16));
  }
}
