"""Models as their papers have them, for tape.py. Each has

  sizes    what the example takes as -D
  params   {path: (shape, mean, deviation, tag)}: names and shapes as the .zug file declares them. Deviations are larger than
           there, so that every part of a tiny model matters from the first step
  fields   {input: (type, elements of a sample)}
  loss     of these sizes and parameters, and of a batch {input: flat list}

Tensors are [batch, seq, ...]; a weight is [in, out], so that one with named heads is reshaped to that first.
"""
import math

from tape import (cat, constant, count, cross_entropy, erf, exp, expand, log_sum_exp, matmul, mean, part, permute, power,
                  relu, reshape, rows, sigmoid, softmax, take, tanh, Tensor, total, transpose)

MODELS = {}  # name: object with the above


def model(cls):
    MODELS[cls.__name__] = cls
    return cls


# ---- pieces ----------------------------------------------------------------------------------------
def inside(p, at):
    """The parameters whose paths begin with `at`, without that."""
    return {k[len(at):]: t for k, t in p.items() if k.startswith(at)}


def linear(x, w, b=None):
    """w [in.., out..] with as many leading axes as make up x's last one; b [out..]."""
    n = x.shape[-1]
    y = x @ reshape(w, n, count(w.shape) // n)
    return y if b is None else y + reshape(b, count(b.shape))


def layer_norm(x, g=None, b=None, eps=1e-5):
    x = x - mean(x, keep=True)
    x = x * power(mean(x * x, keep=True) + eps, -0.5)
    return x if g is None else x * g + b


def rms_norm(x, g, eps=1e-5):
    return x * power(mean(x * x, keep=True) + eps, -0.5) * g


def silu(x):
    return x * sigmoid(x)


def gelu(x):
    return 0.5 * x * (1 + erf(x * math.sqrt(0.5)))


def gelu_tanh(x):
    return 0.5 * x * (1 + tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def heads(x, n):
    """[batch, seq, n * hd] to [batch, n, seq, hd]."""
    b, s, e = x.shape
    return permute(reshape(x, b, s, n, e // n), 0, 2, 1, 3)


def repeat_heads(x, times):
    """[batch, kv, seq, hd] to [batch, kv * times, seq, hd]: query head i has key head i // times."""
    b, n, s, h = x.shape
    return reshape(expand(reshape(x, b, n, 1, s, h), (b, n, times, s, h)), b, n * times, s, h)


def attention(q, k, v, seen=lambda i, j: True, scale=None, cap=None, bias=None):
    """[batch, head, seq, hd] each; query i sees the keys j of which seen(i, j). The result is [batch, seq, head * hd]."""
    score = (q @ transpose(k)) * (scale or 1 / math.sqrt(q.shape[-1]))
    if cap:
        score = tanh(score / cap) * cap
    if bias is not None:
        score = score + bias
    score = score + constant(score.shape[-2:], lambda i, j: 0 if seen(i, j) else -math.inf)
    o = permute(softmax(score) @ v, 0, 2, 1, 3)
    return reshape(o, *o.shape[:2], o.shape[2] * o.shape[3])


def causal(i, j):
    return j <= i


def rope(x, base):
    """[batch, head, seq, hd]: pairs (i, i + hd/2) turn by s base^(-2i/hd)."""
    half = x.shape[-1] // 2
    angle = lambda f: constant((x.shape[2], half), lambda s, i: f(s * base ** (-i / half)))
    a, b = part(x, -1, 0, half), part(x, -1, half, 2 * half)
    cos, sin = angle(math.cos), angle(math.sin)
    return cat([a * cos - b * sin, b * cos + a * sin], -1)


def embed(table, ids, batch):
    """[batch, seq, width] of batch * seq ids."""
    return reshape(rows(table, ids), batch, len(ids) // batch, table.shape[-1])


def language_loss(z, targets):
    return cross_entropy(reshape(z, len(targets), z.shape[-1]), targets)


def norms(p, at, names, width, also_b=False):
    for name in names:
        p[f"{at}{name}.g"] = ((width,), 1, 0.1, "norm")
        if also_b:
            p[f"{at}{name}.b"] = ((width,), 0, 0.1, "norm")


# ---- GPT-2 (Radford et al. 2019) -------------------------------------------------------------------
@model
class gpt2:
    sizes = dict(layers=2, heads=4, width=24, context=20, words=67)
    fields = dict(tokens=("i32", 16), targets=("i32", 16))

    def params(m):
        E, A, F = m["width"], m["heads"], 4 * m["width"]
        H, w = E // A, 1 / math.sqrt(E)
        p = {"wte": ((m["words"], E), 0, 0.3, ""), "wpe": ((m["context"], E), 0, 0.2, "")}
        for i in range(m["layers"]):
            at = f"layer.{i}."
            norms(p, at, ["ln1", "ln2"], E, True)
            for x in "qkv":
                p[f"{at}attn.w{x}"] = ((E, A, H), 0, w, "")
                p[f"{at}attn.b{x}"] = ((A, H), 0, 0.1, "bias")
            p[f"{at}attn.wo"] = ((A, H, E), 0, w, "")
            p[f"{at}attn.bo"] = ((E,), 0, 0.1, "bias")
            p[f"{at}mlp.w1"] = ((E, F), 0, w, "")
            p[f"{at}mlp.b1"] = ((F,), 0, 0.1, "bias")
            p[f"{at}mlp.w2"] = ((F, E), 0, 1 / math.sqrt(F), "")
            p[f"{at}mlp.b2"] = ((E,), 0, 0.1, "bias")
        norms(p, "", ["ln_f"], E, True)
        return p

    def loss(m, p, x, batch):
        tokens = x["tokens"]
        h = embed(p["wte"], tokens, batch) + part(p["wpe"], 0, 0, len(tokens) // batch)
        for i in range(m["layers"]):
            w = inside(p, f"layer.{i}.")
            y = layer_norm(h, w["ln1.g"], w["ln1.b"])
            q, k, v = (heads(linear(y, w[f"attn.w{n}"], w[f"attn.b{n}"]), m["heads"]) for n in "qkv")
            h = h + linear(attention(q, k, v, causal), w["attn.wo"], w["attn.bo"])
            y = layer_norm(h, w["ln2.g"], w["ln2.b"])
            h = h + linear(gelu_tanh(linear(y, w["mlp.w1"], w["mlp.b1"])), w["mlp.w2"], w["mlp.b2"])
        return language_loss(layer_norm(h, p["ln_f.g"], p["ln_f.b"]) @ transpose(p["wte"]), x["targets"])


# ---- Llama 3 (Grattafiori et al. 2024) ---------------------------------------------------------------
def llama_layer(p, at, E, K, G, H, F):
    w = 1 / math.sqrt(E)
    p[f"{at}attn.wq"] = ((E, K, G, H), 0, w, "")
    p[f"{at}attn.wk"] = ((E, K, H), 0, w, "")
    p[f"{at}attn.wv"] = ((E, K, H), 0, w, "")
    p[f"{at}attn.wo"] = ((K, G, H, E), 0, w, "")
    p[f"{at}mlp.gate"] = ((E, F), 0, w, "")
    p[f"{at}mlp.up"] = ((E, F), 0, w, "")
    p[f"{at}mlp.down"] = ((F, E), 0, 1 / math.sqrt(F), "")


def gated(x, w, f):
    return linear(f(linear(x, w["mlp.gate"])) * linear(x, w["mlp.up"]), w["mlp.down"])


@model
class llama3:
    sizes = dict(layers=3, heads=4, kv_heads=2, width=16, inner=40, words=96, base=10000)
    fields = dict(tokens=("i32", 16), targets=("i32", 16))

    def params(m):
        E, A, K = m["width"], m["heads"], m["kv_heads"]
        p = {"embed_in": ((m["words"], E), 0, 0.5, ""), "embed_out": ((m["words"], E), 0, 0.3, "")}
        for i in range(m["layers"]):
            norms(p, f"layer.{i}.", ["norm1", "norm2"], E)
            llama_layer(p, f"layer.{i}.", E, K, A // K, E // A, m["inner"])
        norms(p, "", ["norm"], E)
        return p

    def loss(m, p, x, batch):
        A, K = m["heads"], m["kv_heads"]
        h = embed(p["embed_in"], x["tokens"], batch)
        for i in range(m["layers"]):
            w = inside(p, f"layer.{i}.")
            y = rms_norm(h, w["norm1.g"])
            q = rope(heads(linear(y, w["attn.wq"]), A), m["base"])
            k = rope(heads(linear(y, w["attn.wk"]), K), m["base"])
            k, v = (repeat_heads(t, A // K) for t in (k, heads(linear(y, w["attn.wv"]), K)))
            h = h + linear(attention(q, k, v, causal), w["attn.wo"])
            h = h + gated(rms_norm(h, w["norm2.g"]), w, silu)
        return language_loss(rms_norm(h, p["norm.g"]) @ transpose(p["embed_out"]), x["targets"])


# ---- BERT (Devlin et al. 2019) -------------------------------------------------------------------------
def text_like(rng, n, words):
    """Tokens with something to learn: each is a noisy function of the one before."""
    t = [rng.randrange(words)]
    while len(t) < n:
        t.append((5 * t[-1] + 7) % words if rng.random() < 0.6 else rng.randrange(words))
    return t


def biased(p, at, shape_in, shape_out, w="w", b="b"):
    p[at + w] = (shape_in + shape_out, 0, 1 / math.sqrt(count(shape_in)), "")
    p[at + b] = (shape_out, 0, 0.1, "bias")


@model
class bert:
    sizes = dict(layers=2, heads=4, width=24, inner=40, context=20, words=67, sentences=2)
    fields = dict(tokens=("i32", 16), kinds=("i32", 16), targets=("i32", 16))

    def params(m):
        E, A, F = m["width"], m["heads"], m["inner"]
        p = {"word_table": ((m["words"], E), 0, 0.3, ""), "pos_table": ((m["context"], E), 0, 0.2, ""),
             "kind_table": ((m["sentences"], E), 0, 0.2, "")}
        norms(p, "", ["ln_in"], E, True)
        for i in range(m["layers"]):
            at = f"layer.{i}."
            for x in "qkv":
                biased(p, f"{at}attn.", (E,), (A, E // A), f"w{x}", f"b{x}")
            biased(p, f"{at}attn.", (A, E // A), (E,), "wo", "bo")
            biased(p, f"{at}up.", (E,), (F,))
            biased(p, f"{at}down.", (F,), (E,))
            norms(p, at, ["ln1", "ln2"], E, True)
        biased(p, "transform.", (E,), (E,))
        norms(p, "", ["ln_out"], E, True)
        p["out"] = ((m["words"],), 0, 0.1, "bias")
        return p

    def sample(m, rng):
        text = text_like(rng, 16, m["words"])
        hidden = set(rng.sample(range(16), 3))  # masked with word 0
        return dict(tokens=[0 if i in hidden else t for i, t in enumerate(text)], kinds=[i // 9 for i in range(16)],
                    targets=[t if i in hidden else -1 for i, t in enumerate(text)])

    def loss(m, p, x, batch):
        norm = lambda x, w, at: layer_norm(x, w[at + ".g"], w[at + ".b"], 1e-12)
        h = embed(p["word_table"], x["tokens"], batch) + embed(p["kind_table"], x["kinds"], batch)
        h = norm(h + part(p["pos_table"], 0, 0, h.shape[1]), p, "ln_in")
        for i in range(m["layers"]):
            w = inside(p, f"layer.{i}.")
            q, k, v = (heads(linear(h, w[f"attn.w{n}"], w[f"attn.b{n}"]), m["heads"]) for n in "qkv")
            h = norm(h + linear(attention(q, k, v), w["attn.wo"], w["attn.bo"]), w, "ln1")
            y = linear(gelu(linear(h, w["up.w"], w["up.b"])), w["down.w"], w["down.b"])
            h = norm(h + y, w, "ln2")
        h = norm(gelu(linear(h, p["transform.w"], p["transform.b"])), p, "ln_out")
        return language_loss(h @ transpose(p["word_table"]) + p["out"], x["targets"])
