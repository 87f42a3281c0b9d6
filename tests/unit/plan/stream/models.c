/* See models.h. */
#include "tests/unit/plan/stream/models.h"

#include <criterion/criterion.h>
#include <string.h>

#define LLAMA "-D layers=2 -D heads=4 -D kv_heads=2 -D width=32 -D head_dim=8 -D inner=48 -D words=97"
#define SHARE(MORE) LLAMA " " MORE
/* Attention of the small model; `call` is what stands for attend[..](..). */
#define ATTEND_OF(seen, before, call)                                                                        \
  "param wq[embed, head, hd], wk[embed, head, hd], wv[embed, head, hd], wo[head, hd, embed] ~ normal(0.3)\n" \
  "q = dot[embed](x, wq)  k = dot[embed](" seen ", wk)  v = dot[embed](" seen ", wv)\n" before               \
  "\nx = x + dot[head, hd](" call ", wo)"
#define ATTEND(call) ATTEND_OF("x", "", call)

/* clang-format off */
const StreamModel stream_models[] = {
    {"gpt2", "-D layers=2 -D heads=4 -D width=32 -D context=64 -D words=97", 0, 0, NULL, 0},
    {"llama3", LLAMA, 0, 0, NULL, 0},
    {"qwen2", LLAMA, 0, 0, NULL, 0},
    {"qwen3", LLAMA, 0, 0, NULL, 0},
    {"lora", "-D layers=2 -D heads=4 -D width=32 -D context=64 -D words=97 -D rank=4", 0, 0, NULL, 0},
    {"mistral", SHARE("-D window=5"), 0, 0, NULL, 0},
    {"gemma2", SHARE("-D window=5"), 0, 0, NULL, 0},
    {"gemma3", "-D layers=7 -D heads=4 -D kv_heads=2 -D width=32 -D head_dim=8 -D inner=48 -D words=97 -D window=5", 0, 0,
     NULL, 0},
    {"mixtral", SHARE("-D experts=4"), 0, 0, NULL, 0},
    {"deepseek", "-D layers=3 -D dense=1 -D heads=4 -D width=32 -D inner=48 -D words=97 -D plain=8 -D rotary=4 -D value=8 "
     "-D query_rank=24 -D key_rank=16 -D experts=8 -D active=3 -D small=24 -D groups=4 -D take=2", 0, 0, NULL, 0},
    {"mamba2", "-D layers=2 -D width=32 -D heads=4 -D head_dim=16 -D state=8 -D words=97", 0, 0, NULL, 0},
    {"deltanet", "-D layers=2 -D width=32 -D heads=4 -D key_dim=8 -D value_dim=16 -D inner=48 -D words=97", 0, 0, NULL, 0},
    {"t5", "-D layers=2 -D heads=4 -D width=32 -D head_dim=8 -D inner=48 -D words=97 -D buckets=8 -D far=16", 0, 0, NULL, 0},
    {"bert", "-D layers=2 -D heads=4 -D width=32 -D inner=48 -D context=64 -D words=97", 0, 0,
     "attend with mask = none sees later tokens (bert.zug:16:", 0},
    {"vit", "-D layers=2 -D heads=4 -D width=32 -D inner=48 -D grid=3 -D patch=2", 0, 0, "logits real[batch, class]", 0},
    {"mlp", "", 0, 0, "logits real[batch, class]", 0},
    {"resnet", "-D width=32 -D side=32", 0, 0, "logits real[batch, class]", 0},
    {"clip", "-D layers=2 -D heads=4 -D width=32 -D grid=3 -D patch=2 -D text_heads=4 -D text_width=32 -D context=8 "
     "-D words=97 -D shared=16", 0, 0, "no output has `batch`, a time axis", 0},
    {"dit", "-D layers=2 -D heads=4 -D width=32 -D grid=4 -D patch=2 -D channels=2", 0, 0, "no output has `batch`, a time axis",
     0},
    {"unet", "-D width=32 -D groups=8", 0, 0, "no output has `batch`, a time axis", 0},

    {"scan", NULL, "", "x = x + rename[other, embed](rec.RgLru[seq, other](rename[embed, other](x)) as lru)", NULL, 0},
    {"running mean", NULL, "", "x = x + real(cumsum[seq](f32(x)) / (place[seq]() + 1))", NULL, 0},
    {"causal conv", NULL, "", "param w[embed, tap] ~ normal(0.5)  x = x + conv[seq, tap](x, w, pad = causal, dilate = 2)", NULL,
     0},
    {"causal conv that mixes features", NULL, "",
     "param w[other, embed, tap] ~ normal(0.5)  x = x + conv[other, seq, tap](rename[embed, other](x), w, pad = causal)", NULL, 0},
    {"shift of tokens", NULL, "param pair[vocab, embed] ~ normal(0.3)", "x = x + lookup(pair, shift[seq](tokens, by = 2))",
     NULL, 0},
    {"two shifts of one value", NULL, "", "x = x + shift[seq](x, by = 1) - shift[seq](x, by = 3)", NULL, 0},
    {"gated linear attention", NULL, "", "x = x + rec.GatedLinear[seq, embed, head, kk, vv](x, std = 0.3, out = 0.3) as mix",
     NULL, 0},
    {"retention", NULL, "", "x = x + rec.Retention[seq, embed, head, kk, vv](x, std = 0.3, out = 0.3) as mix", NULL, 0},
    {"delta rule", NULL, "", "x = x + rec.GatedDelta[seq, embed, head, kk, vv](x, std = 0.3, out = 0.3) as mix", NULL, 0},
    {"RWKV-7", NULL, "", "x = x + rec.Rwkv7[seq, embed, head, kk, vv, cond](x, std = 0.3, out = 0.3) as mix", NULL, 0},
    {"window, cap, sinks", NULL, "", "param sink[head] ~ normal(1)  "
     ATTEND("attend[seq, hd](q, k, v, mask = causal, window = 6, cap = 3, sinks = sink)"), NULL, 0},
    {"ALiBi", NULL, "", ATTEND("attend[seq, hd](q, k, v, mask = causal, "
     "bias = real(spread[head](place[seq]()) * exp(-(1 + place[head]()))))"), NULL, 0},
    {"attention that forgets", NULL, "", "param wf[embed, head] ~ normal(0.3)  "
     ATTEND("attend[seq, hd](q, k, v, mask = causal, bias = real(-cumsum[seq](rec.log_sigmoid(dot[embed](x, wf)))))"), NULL,
     0},
    {"documents", NULL, "input doc: i32[batch, seq]", ATTEND("attend[seq, hd](q, k, v, mask = causal, same = doc)"), NULL, 0},
    {"relative bias", NULL, "", ATTEND_OF("x", "b = nn.RelativeBias[seq, key, head, bucket](causal = 1, far = 9) as near",
     "attend[seq, key, hd](q, rename[seq, key](k), rename[seq, key](v), mask = causal, window = 9, bias = b)"), NULL, 0},
    {"given positions", NULL, "input at: f32[batch, seq]",
     ATTEND("attend[seq, hd](rope[seq, hd](q, at = at), rope[seq, hd](k, at = at), v, mask = causal)"), NULL, 0},
    {"a class and a vector", NULL, "input class: index(kind)[batch]  input hint: real[batch, cond]",
     "param a[kind, embed], b[cond, embed] ~ normal(0.3)\n"
     "x = x + nn.SwiGLU[embed, ffn](x * (1 + lookup(a, class)) + dot[cond](hint, b), std = 0.3, out = 0.3) as mlp", NULL, 0},
    {"cross attention", NULL, "input seen: real[batch, src, embed]",
     ATTEND_OF("seen", "", "attend[seq, src, hd](q, k, v, mask = none)"), NULL, 0},
    {"attention of heads", NULL, "", ATTEND("attend[head, hd](q, k, v, mask = none)"), NULL, 0},
    {"dropout", NULL, "", "x = x + nn.dropout(nn.SwiGLU[embed, ffn](x, std = 0.3, out = 0.3) as mlp, p = 0.2)", NULL, 0},
    {"shift far back, and by nothing", NULL, "", "x = x + shift[seq](x, by = 15) + shift[seq](x, by = 0)", NULL, 0},
    {"conv of time and features", NULL, "",
     "param w[tap, span] ~ normal(0.5)  x = x + conv[seq, tap, embed, span](x, w, pad = causal)", NULL, 0},
    {"conv of single tokens", NULL, "",
     "param w[other, embed, one] ~ normal(0.5)  x = x + conv[other, seq, one](rename[embed, other](x), w)", NULL, 0},
    {"bias of a running sum of positions", NULL, "", ATTEND("attend[seq, hd](q, k, v, mask = causal, "
     "bias = real(spread[head](cumsum[seq](place[seq]() * 0.01))))"), NULL, 0},
    {"running sum of a sequence's own", NULL, "input slope: real[batch, embed]",
     "x = x + 0.1 * real(cumsum[seq](spread[seq](f32(slope))))", NULL, 0},
    {"keys that all sequences share", NULL, "", "param memory[lat, head, hd] ~ normal(1)\n"
     ATTEND("attend[seq, lat, hd](q, spread[batch](memory), spread[batch](memory), mask = none)"), NULL, 0},
    {"keys of a sequence with a bias that all share", NULL, "input seen: real[batch, src, embed]", "param sink[head] ~ normal(1)\n"
     ATTEND_OF("seen", "", "attend[seq, src, hd](q, k, v, mask = none, sinks = sink, bias = real(spread[head](place[src]() * 0.1)))"),
     NULL, 0},
    {"keys of two attends", NULL, "input doc: i32[batch, seq]", ATTEND("attend[seq, hd](q, k, v, mask = causal, same = doc) "
     "- 0.5 * attend[seq, hd](2 * q, k, v, mask = causal, same = doc)"), NULL, 0},
    {"values that are keys", NULL, "", ATTEND("attend[seq, hd](q, k, k, mask = causal) + v * 0"), NULL, 0},
    {"noise that the output does not need", NULL, "", "aux mean[batch, seq, embed](f32(x) * normal[batch, seq, embed]())",
     NULL, 0},

    {"a text of another length", NULL, "input seen: real[batch, src, embed]",
     "x = x + 0.1 * spread[seq](sum[src](seen) / real(size[src]()))", NULL, 0},
    {"both ways", NULL, "", ATTEND("attend[seq, hd](q, k, v, mask = none)"), "attend with mask = none sees later tokens", 0},
    {"window on both sides", NULL, "", ATTEND("attend[seq, hd](q, k, v, mask = none, window = 3)"),
     "attend with a window on both sides sees later tokens", 0},
    {"prefix", NULL, "input first: i32[batch]", ATTEND("attend[seq, hd](q, k, v, mask = prefix, prefix = first)"),
     "attend with mask = prefix sees later tokens of the prefix", 0},
    {"next token", NULL, "", "x = x + shift[seq](x, by = -1)", "shift by -1 looks at later tokens", 0},
    {"mean of all", NULL, "", "x = x + mean[seq](x)", "sum over `seq` takes in later tokens", 0},
    {"softmax along time", NULL, "", "x = x * softmax[seq](x)", "softmax along `seq` needs all tokens at once", 0},
    {"norm along time", NULL, "", "x = normalize[seq](x, mode = std)", "normalize along `seq` needs all tokens at once", 0},
    {"conv of both sides", NULL, "", "param w[embed, tap] ~ normal(0.5)  x = x + conv[seq, tap](x, w)",
     "conv along `seq` is not causal", 0},
    {"reverse scan", NULL, "", "x = x + scan[seq](0.5, x, order = reverse)", "scan in reverse begins with the last token", 0},
    {"the length", NULL, "", "x = x + real(place[seq]() / size[seq]())", "size needs the length of `seq`", 1},
    {"noise", NULL, "", "x = x + real(normal[batch, seq, embed]())", "random draws noise", 1},
    {"attention by hand", NULL, "", ATTEND("dot[key](softmax[key](select(place[seq]() < spread[seq](place[key]()), -1e9, "
     "dot[hd](q, rename[seq, key](k)))), rename[seq, key](v))"), "compares each token with all others", 1},
    {"a summary", NULL, "param latent[lat, head, hd] ~ normal(1)",
     ATTEND_OF("x", "l = attend[lat, seq, hd](spread[batch](latent), k, v, mask = none)",
               "attend[seq, lat, hd](q, l, l, mask = none)"), "attend of `lat` looks at all of `seq`", 0},
};
/* clang-format on */
const int stream_model_count = sizeof stream_models / sizeof *stream_models;

static const char small[] =
    "use std.nn as nn\n"
    "use std.recurrent as rec\n"
    "model Small(words = 31, width = 16, heads = 2) {\n"
    "  axis batch, seq, embed = width, head = heads, hd = width / heads, other = width, vocab = words\n"
    "  axis tap = 3, span = 2, one = 1, cond = 4, kind = 5, kk = 4, vv = 6, ffn = 24, bucket = 8, lat = 3, "
    "key, src\n"
    "  input tokens: index(vocab)[batch, seq]\n"
    "  input targets: index(vocab)[batch, seq]\n"
    "  %s\n"
    "  %s\n"
    "  param table[vocab, embed] ~ normal(0.3)\n"
    "  x = lookup(table, tokens)\n"
    "  repeat 2 as layer {\n%s\n}\n"
    "  x = nn.RMSNorm[embed](x) as middle\n"
    "  repeat 3 as tail {\n%s\n}\n"
    "  output logits = dot[embed](nn.RMSNorm[embed](x) as norm, table)\n"
    "  loss xent[vocab](logits, targets) per known(targets)\n"
    "}\n";

ZgGraph *stream_model(Case *c, const StreamModel *m) {
  ZbArena *a = zb_arena_new();
  *c = m->options ? load_file(zb_printf(a, ZUG_SRC "/examples/%s.zug", m->name))
                  : load_text(zb_printf(a, small, m->input, "", m->body, "x = 0.5 * x"));
  if (m->options) set_options(c, m->options);
  ZgGraph *g = compile(c);
  cr_assert(g, "%s does not compile:\n%s", m->name, messages(c));
  zb_arena_free(a);
  return g;
}

ZgGraph *stream_pair(Case *c, const StreamModel *first, const StreamModel *second) {
  ZbArena *a = zb_arena_new();
  const char *again = strcmp(first->input, second->input) ? second->input : "";
  *c = load_text(zb_printf(a, small, first->input, again, first->body, second->body));
  ZgGraph *g = compile(c);
  cr_assert(g, "%s, then %s: does not compile:\n%s", first->name, second->name, messages(c));
  zb_arena_free(a);
  return g;
}
