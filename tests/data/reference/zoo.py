"""Models as their papers have them, for tape.py. Each has

  sizes    what the example takes as -D
  params   {path: (shape, mean, deviation, tag)}: names and shapes as the .zug file declares them. Deviations are larger than
           there, so that every part of a tiny model matters from the first step
  fields   {input: (type, elements of a sample)}
  adamw    settings that differ from make_numbers.py's
  loss     of these sizes and parameters, and of a batch {input: flat list}

Tensors are [batch, seq, ...]; a weight is [in, out], so that one with named heads is reshaped to that first.
"""
import math

from tape import (Tensor, cat, constant, count, cross_entropy, erf, exp, expand, log, mean, part, permute, power, reshape, rows,
                  sigmoid, softmax, take, tanh, total, transpose)

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


def mlp(x, w, f):
    return linear(f(linear(x, w["mlp.w1"], w["mlp.b1"])), w["mlp.w2"], w["mlp.b2"])


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


def text_like(rng, n, words):
    """Tokens with something to learn: each is a noisy function of the one before."""
    t = [rng.randrange(words)]
    while len(t) < n:
        t.append((5 * t[-1] + 7) % words if rng.random() < 0.6 else rng.randrange(words))
    return t


def biased(p, at, shape_in, shape_out, w="w", b="b"):
    p[at + w] = (shape_in + shape_out, 0, 1 / math.sqrt(count(shape_in)), "")
    p[at + b] = (shape_out, 0, 0.1, "bias")


def encoder_layer(p, at, E, A, F):
    for x in "qkv":
        biased(p, f"{at}attn.", (E,), (A, E // A), f"w{x}", f"b{x}")
    biased(p, f"{at}attn.", (A, E // A), (E,), "wo", "bo")
    biased(p, f"{at}mlp.", (E,), (F,), "w1", "b1")
    biased(p, f"{at}mlp.", (F,), (E,), "w2", "b2")


def attend_all(x, w, n, seen=lambda i, j: True):
    """Multi-head attention with biases."""
    q, k, v = (heads(linear(x, w[f"attn.w{t}"], w[f"attn.b{t}"]), n) for t in "qkv")
    return linear(attention(q, k, v, seen), w["attn.wo"], w["attn.bo"])


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
            h = h + mlp(y, w, gelu_tanh)
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

    def feed(m, x, w):
        return gated(x, w, silu)

    def loss(m, p, x, batch, seen=causal, feed=feed):
        A, K = m["heads"], m["kv_heads"]
        h = embed(p["embed_in"], x["tokens"], batch)
        for i in range(m["layers"]):
            w = inside(p, f"layer.{i}.")
            y = rms_norm(h, w["norm1.g"])
            q = rope(heads(linear(y, w["attn.wq"]), A), m["base"])
            k = rope(heads(linear(y, w["attn.wk"]), K), m["base"])
            k, v = (repeat_heads(t, A // K) for t in (k, heads(linear(y, w["attn.wv"]), K)))
            h = h + linear(attention(q, k, v, seen), w["attn.wo"])
            h = h + feed(m, rms_norm(h, w["norm2.g"]), w)
        return language_loss(rms_norm(h, p["norm.g"]) @ transpose(p["embed_out"]), x["targets"])


# ---- BERT (Devlin et al. 2019) -------------------------------------------------------------------------
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
            encoder_layer(p, at, E, A, F)
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
            h = norm(h + attend_all(h, w, m["heads"]), w, "ln1")
            h = norm(h + mlp(h, w, gelu), w, "ln2")
        h = norm(gelu(linear(h, p["transform.w"], p["transform.b"])), p, "ln_out")
        return language_loss(h @ transpose(p["word_table"]) + p["out"], x["targets"])


# ---- T5 1.1 (Raffel et al. 2020) -------------------------------------------------------------------------
def plain_attention(p, at, E, A, H):
    for x in "qkv":
        p[f"{at}w{x}"] = ((E, A, H), 0, 0.6 / math.sqrt(E), "")
    p[f"{at}wo"] = ((A, H, E), 0, 1 / math.sqrt(A * H), "")


def t5_bucket(after, buckets, far, both):
    """As in the code of the paper: what a key that is so far after its query has."""
    first = 0
    if both:
        buckets //= 2
        first = buckets if after > 0 else 0
        n = abs(after)
    else:
        n = max(-after, 0)
    exact = buckets // 2
    if n < exact:
        return first + n
    return first + min(exact + int(math.log(n / exact) / math.log(far / exact) * (buckets - exact)), buckets - 1)


@model
class t5:
    sizes = dict(layers=2, heads=4, width=16, head_dim=6, inner=24, words=66, buckets=8, far=10)
    fields = dict(source=("i32", 12), before=("i32", 8), targets=("i32", 8))

    def params(m):
        E, A, H, F = m["width"], m["heads"], m["head_dim"], m["inner"]
        p = {"table": ((m["words"], E), 0, 0.7, ""), "out": ((m["words"], E), 0, 0.3, "")}
        for name in "enc_bias", "dec_bias":
            p[f"{name}.table"] = ((m["buckets"], A), 0, 0.5, "")
        for stack, parts in ("enc", ["attn"]), ("dec", ["attn", "cross"]):
            for i in range(m["layers"]):
                at = f"{stack}.{i}."
                norms(p, at, [f"norm{n + 1}" for n in range(len(parts) + 1)], E)
                for name in parts:
                    plain_attention(p, f"{at}{name}.", E, A, H)
                for name in "gate", "up":
                    p[f"{at}mlp.{name}"] = ((E, F), 0, 1 / math.sqrt(E), "")
                p[f"{at}mlp.down"] = ((F, E), 0, 1 / math.sqrt(F), "")
        norms(p, "", ["enc_norm", "dec_norm"], E)
        return p

    def sample(m, rng):
        source = text_like(rng, 12, m["words"])
        targets = [(t + 1) % m["words"] for t in source[:6]] + [1] + [-1]  # a tail is unknown
        return dict(source=source, before=[0] + targets[:6] + [1], targets=targets)

    def loss(m, p, x, batch):
        norm = lambda x, g: rms_norm(x, g, 1e-6)

        def attend(w, x, y, seen=lambda i, j: True, bias=None):
            q, k, v = (heads(linear(t, w["w" + n]), m["heads"]) for n, t in zip("qkv", (x, y, y)))
            return linear(attention(q, k, v, seen, scale=1, bias=bias), w["wo"])

        def relative(table, n, both):  # [head, n, n]
            table = rows(table, [t5_bucket(j - i, m["buckets"], m["far"], both) for i in range(n) for j in range(n)])
            return permute(reshape(table, n, n, m["heads"]), 2, 0, 1)

        y = embed(p["table"], x["source"], batch)
        bias = relative(p["enc_bias.table"], y.shape[1], True)
        for i in range(m["layers"]):
            w = inside(p, f"enc.{i}.")
            h = norm(y, w["norm1.g"])
            y = y + attend(inside(w, "attn."), h, h, bias=bias)
            y = y + gated(norm(y, w["norm2.g"]), w, gelu_tanh)
        y = norm(y, p["enc_norm.g"])
        z = embed(p["table"], x["before"], batch)
        bias = relative(p["dec_bias.table"], z.shape[1], False)
        for i in range(m["layers"]):
            w = inside(p, f"dec.{i}.")
            h = norm(z, w["norm1.g"])
            z = z + attend(inside(w, "attn."), h, h, causal, bias)
            z = z + attend(inside(w, "cross."), norm(z, w["norm2.g"]), y)
            z = z + gated(norm(z, w["norm3.g"]), w, gelu_tanh)
        return language_loss(norm(z, p["dec_norm.g"]) @ transpose(p["out"]), x["targets"])


# ---- ViT (Dosovitskiy et al. 2021) -------------------------------------------------------------------------
@model
class vit:
    sizes = dict(layers=2, heads=4, width=16, inner=24, grid=3, patch=2, channels=3, classes=6)
    fields = dict(image=("f32", 9 * 12), label=("i32", 1))

    def params(m):
        E, C, P = m["width"], m["channels"], m["patch"]
        p = {"cls": ((1, E), 0, 0.5, ""), "pos_table": ((m["grid"] ** 2 + 1, E), 0, 0.3, ""),
             "patches.w": ((E, C, P, P), 0, 1 / math.sqrt(C * P * P), ""), "patches.b": ((E,), 0, 0.1, "bias")}
        for i in range(m["layers"]):
            norms(p, f"layer.{i}.", ["ln1", "ln2"], E, True)
            encoder_layer(p, f"layer.{i}.", E, m["heads"], m["inner"])
        norms(p, "", ["ln"], E, True)
        biased(p, "out.", (E,), (m["classes"],))
        return p

    def sample(m, rng):
        label = rng.randrange(m["classes"])  # a class is a brightness of its own
        return dict(image=[rng.gauss(0.3 * label - 0.8, 1) for _ in range(9 * 12)], label=[label])

    def loss(m, p, x, batch):
        E, n = m["width"], m["grid"] ** 2
        tiles = Tensor((batch, n, len(x["image"]) // (batch * n)), list(x["image"]))
        tiles = tiles @ transpose(reshape(p["patches.w"], E, tiles.shape[-1])) + p["patches.b"]
        h = cat([expand(reshape(p["cls"], 1, 1, E), (batch, 1, E)), tiles], 1) + p["pos_table"]
        for i in range(m["layers"]):
            w = inside(p, f"layer.{i}.")
            h = h + attend_all(layer_norm(h, w["ln1.g"], w["ln1.b"], 1e-12), w, m["heads"])
            h = h + mlp(layer_norm(h, w["ln2.g"], w["ln2.b"], 1e-12), w, gelu)
        h = reshape(part(layer_norm(h, p["ln.g"], p["ln.b"], 1e-12), 1, 0, 1), batch, E)
        return cross_entropy(linear(h, p["out.w"], p["out.b"]), x["label"])


# ---- convolutions ------------------------------------------------------------------------------------------
def conv2d(x, w, b=None, stride=1):
    """x [batch, in, rows, columns], w [out, in, k, k]; (k - 1) / 2 zeros around, so that a stride of 1 keeps the size."""
    (n, c, h, v), o, k = x.shape, w.shape[0], w.shape[-1] if len(w.shape) == 4 else 1
    before, high, wide = (k - 1) // 2, (h - 1) // stride + 1, (v - 1) // stride + 1
    inside = lambda i, j: 0 <= i < h and 0 <= j < v
    at = [((s * c + e) * h + i * stride + a - before) * v + j * stride + d - before
          if inside(i * stride + a - before, j * stride + d - before) else None
          for s in range(n) for i in range(high) for j in range(wide) for e in range(c) for a in range(k) for d in range(k)]
    windows = take(x, (n, high * wide, c * k * k), at)
    y = windows @ transpose(reshape(w, o, c * k * k))
    y = y if b is None else y + b
    return permute(reshape(y, n, high, wide, o), 0, 3, 1, 2)


def max_pool(x):
    """Of 3 x 3 places, at every second row and column."""
    n, c, h, v = x.shape
    near = lambda i, size: range(max(2 * i - 1, 0), min(2 * i + 2, size))
    place = lambda s, i, j: max(((s * h + a) * v + d for a in near(i, h) for d in near(j, v)), key=lambda at: x.data[at])
    return take(x, (n, c, h // 2, v // 2), [place(s, i, j) for s in range(n * c) for i in range(h // 2) for j in range(v // 2)])


def group_norm(x, p, at, m):
    (n, c, h, v), groups = x.shape, m["groups"]
    y = reshape(layer_norm(reshape(x, n, groups, c // groups * h * v), eps=m["eps"]), n, c, h, v)
    return y * reshape(p[at + ".w"], c, 1, 1) + reshape(p[at + ".b"], c, 1, 1)


def flat(x):
    """[batch, channel, row, column] to [batch, row * column, channel]."""
    n, c, h, v = x.shape
    return permute(reshape(x, n, c, h * v), 0, 2, 1)


def kernel(p, at, i, o, k, bias=True):
    p[at + ".w"] = ((o, i, k, k) if k > 1 else (o, i), 0, 1.2 / math.sqrt(i * k * k), "")
    if bias:
        p[at + ".b"] = ((o,), 0, 0.1, "bias")


def scale_and_shift(p, at, n, scale=1):
    p[at + ".w"], p[at + ".b"] = ((n,), scale, 0.2 * scale, "norm"), ((n,), 0, 0.2, "norm")


# ---- ResNet (He et al. 2016), with group norms (Wu and He 2018) ---------------------------------------------
@model
class resnet:
    sizes = dict(depth1=2, depth2=3, depth3=2, depth4=2, width=2, groups=2, side=32, channels=1, classes=6, smooth=1, eps=0.1)
    adamw = dict(eps=1e-2)
    fields = dict(image=("f32", 32 * 32), label=("i32", 1))

    def blocks(m):
        """(path, channels in, between, out, stride of the first) of each block."""
        before = m["width"]
        for s in range(1, 5):
            between = m["width"] << (s - 1)
            yield f"widen{s}.", before, between, 4 * between, 1 if s == 1 else 2
            before = 4 * between
            for i in range(m[f"depth{s}"] - 1):
                yield f"stage{s}.{i}.", before, between, before, 0

    def params(m):
        p = {}
        kernel(p, "first", m["channels"], m["width"], 7, False)
        scale_and_shift(p, "first_norm", m["width"])
        for at, i, n, o, stride in resnet.blocks(m):
            for k, (a, b, window) in enumerate([(i, n, 1), (n, n, 3), (n, o, 1)], 1):
                kernel(p, f"{at}conv{k}", a, b, window, False)
                scale_and_shift(p, f"{at}norm{k}", b, 1 if k < 3 else 0.3)
            if stride:
                p[at + "shortcut.w"] = ((o, i, 1, 1), 0, 1.2 / math.sqrt(i), "")
                scale_and_shift(p, at + "norm", o)
        biased(p, "head.", (32 * m["width"],), (m["classes"],))
        return p

    def sample(m, rng):
        label = rng.randrange(m["classes"])  # a class is stripes of its own
        stripe = lambda i, j: math.cos(0.5 * (label + 1) * (i + (label % 2) * j))
        return dict(image=[stripe(i, j) + rng.gauss(0, 0.5) for i in range(32) for j in range(32)], label=[label])

    def loss(m, p, x, batch):
        norm = lambda y, at: group_norm(y, p, at, m)
        y = Tensor((batch, m["channels"], m["side"], m["side"]), list(x["image"]))
        y = max_pool(silu(norm(conv2d(y, p["first.w"], stride=2), "first_norm")))
        for at, i, n, o, stride in resnet.blocks(m):
            z = silu(norm(conv2d(y, p[at + "conv1.w"]), at + "norm1"))
            z = silu(norm(conv2d(z, p[at + "conv2.w"], stride=stride or 1), at + "norm2"))
            z = norm(conv2d(z, p[at + "conv3.w"]), at + "norm3")
            y = silu(z + (norm(conv2d(y, p[at + "shortcut.w"], stride=stride), at + "norm") if stride else y))
        return cross_entropy(linear(mean(transpose(flat(y))), p["head.w"], p["head.b"]), x["label"])


# ---- U-Net (Ho et al. 2020) -----------------------------------------------------------------------------------
@model
class unet:
    sizes = dict(width=4, groups=2, side=16, channels=2, middle=2, waves=8, eps=0.01)
    fields = dict(image=("f32", 2 * 256), noise=("f32", 2 * 256), time=("f32", 1))
    # What goes on, in order: K(eep) and T(urn) have a name, channels in and out in widths, and whether all is seen after.
    down = [("down1", 1, 1, 0), ("down2", 1, 1, 0), "halve1", ("down3", 1, 2, 1), ("down4", 2, 2, 1), "halve2",
            ("down5", 2, 2, 0), ("down6", 2, 2, 0), "halve3", ("down7", 2, 2, 0), ("down8", 2, 2, 0)]
    up = [("up1", 4, 2, 0), ("up2", 4, 2, 0), ("up3", 4, 2, 0), "grow1", ("up4", 4, 2, 0), ("up5", 4, 2, 0), ("up6", 4, 2, 0),
          "grow2", ("up7", 4, 2, 1), ("up8", 4, 2, 1), ("up9", 3, 2, 1), "grow3", ("up10", 3, 1, 0), ("up11", 2, 1, 0),
          ("up12", 2, 1, 0)]

    def block(p, m, at, i, o):
        W = m["width"]
        scale_and_shift(p, at + ".norm1", i * W)
        kernel(p, at + ".conv1", i * W, o * W, 3)
        biased(p, at + ".time.", (4 * W,), (o * W,))
        scale_and_shift(p, at + ".norm2", o * W)
        kernel(p, at + ".conv2", o * W, o * W, 3)
        if i != o:
            kernel(p, at + ".short", i * W, o * W, 1)

    def eye(p, m, at):
        E = 2 * m["width"]
        scale_and_shift(p, at + ".norm", E)
        for x in "qkv":
            biased(p, at + ".attn.", (E,), (1, E), "w" + x, "b" + x)
        biased(p, at + ".attn.", (1, E), (E,), "wo", "bo")

    def params(m):
        W, p = m["width"], {}
        biased(p, "time1.", (m["waves"],), (4 * W,))
        biased(p, "time2.", (4 * W,), (4 * W,))
        kernel(p, "first", m["channels"], W, 3)
        for step in unet.down + unet.up:
            if isinstance(step, str):
                width = {"halve1": W}.get(step, 2 * W)
                kernel(p, step + (".conv" if step[0] == "g" else ""), width, width, 3)
                continue
            name, i, o, sees = step
            unet.block(p, m, name, i, o)
            if sees:
                unet.eye(p, m, "see" + name.strip("downup"))
        for i in range(m["middle"]):
            unet.block(p, m, f"middle.{i}.keep1", 2, 2)
            unet.eye(p, m, f"middle.{i}.see")
            unet.block(p, m, f"middle.{i}.keep2", 2, 2)
        scale_and_shift(p, "last_norm", W)
        kernel(p, "last", W, m["channels"], 3)
        return p

    def sample(m, rng):
        wave, turn = rng.gauss(0.5, 0.2), rng.gauss(0, 1)
        return dict(image=[math.sin(wave * (i + c * j) + turn) for c in range(2) for i in range(16) for j in range(16)],
                    noise=[rng.gauss(0, 1) for _ in range(2 * 256)],
                    time=[rng.randrange(32) / 32])  # as dit's

    def loss(m, p, x, batch):
        shape = (batch, m["channels"], m["side"], m["side"])
        image, noise = (Tensor(shape, list(x[f])) for f in ("image", "noise"))
        at = lambda f: constant(shape, lambda b, *_: f(math.pi / 2 * x["time"][b]))
        half = m["waves"] // 2
        wave = lambda b, i: 1000 * x["time"][b] * 10000 ** (-(i % half) / half)
        t = constant((batch, m["waves"]), lambda b, i: (math.sin if i < half else math.cos)(wave(b, i)))
        t = silu(linear(silu(linear(t, p["time1.w"], p["time1.b"])), p["time2.w"], p["time2.b"]))

        def block(y, at):
            conv = lambda y, name, **how: conv2d(y, p[f"{at}.{name}.w"], p[f"{at}.{name}.b"], **how)
            norm = lambda y, name: silu(group_norm(y, p, f"{at}.{name}", m))
            z = conv(norm(y, "norm1"), "conv1")
            z = z + reshape(linear(t, p[at + ".time.w"], p[at + ".time.b"]), batch, z.shape[1], 1, 1)
            return (conv(y, "short") if at + ".short.w" in p else y) + conv(norm(z, "norm2"), "conv2")

        def see(y, at):
            n, c, h, v = y.shape
            o = attend_all(flat(group_norm(y, p, at + ".norm", m)), inside(p, at + "."), 1)
            return y + reshape(transpose(o), n, c, h, v)

        def go(y, step):
            if isinstance(step, str) and step[0] == "h":
                return conv2d(y, p[step + ".w"], p[step + ".b"], stride=2)
            if isinstance(step, str):
                n, c, h, v = y.shape
                y = reshape(expand(reshape(y, n, c, h, 1, v, 1), (n, c, h, 2, v, 2)), n, c, 2 * h, 2 * v)
                return conv2d(y, p[step + ".conv.w"], p[step + ".conv.b"])
            y = block(y, step[0])
            return see(y, "see" + step[0].strip("downup")) if step[3] else y

        y = conv2d(at(math.cos) * image + at(math.sin) * noise, p["first.w"], p["first.b"])
        kept = [y]
        for step in unet.down:
            y = go(y, step)
            kept.append(y)
        for i in range(m["middle"]):
            y = see(block(y, f"middle.{i}.keep1"), f"middle.{i}.see")
            y = block(y, f"middle.{i}.keep2")
        for step in unet.up:
            y = go(y if isinstance(step, str) else cat([y, kept.pop()], 1), step)
        y = silu(group_norm(y, p, "last_norm", m))
        error = conv2d(y, p["last.w"], p["last.b"]) - noise
        return mean(reshape(error * error, count(shape)))


# ---- DiT (Peebles and Xie 2023), by flow matching (Ma et al. 2024) -------------------------------------------
@model
class dit:
    sizes = dict(layers=2, heads=2, width=16, grid=4, patch=2, channels=2, classes=5, waves=8)
    fields = dict(image=("f32", 16 * 8), noise=("f32", 16 * 8), time=("f32", 1), kind=("i32", 1))

    def params(m):
        E, X = m["width"], m["patch"] ** 2 * m["channels"]
        p = {"labels": ((m["classes"] + 1, E), 0, 0.5, "")}
        biased(p, "time1.", (m["waves"],), (E,))
        biased(p, "time2.", (E,), (E,))
        biased(p, "patches.", (X,), (E,))
        for i in range(m["layers"]):
            at = f"layer.{i}."
            biased(p, f"{at}gate1.", (E,), (E,))
            biased(p, f"{at}gate2.", (E,), (E,))
            for ln in f"{at}ln1.", f"{at}ln2.":
                dit.ada(p, ln, E)
            encoder_layer(p, at, E, m["heads"], 4 * E)
        dit.ada(p, "ln.", E)
        biased(p, "out.", (E,), (X,))
        return p

    def ada(p, at, E):
        for x in "scale", "shift":
            biased(p, at, (E,), (E,), x, x + "_b")

    def sample(m, rng):
        kind = rng.randrange(m["classes"] + 1)
        return dict(image=[rng.gauss(0.5 * kind - 1, 0.3) for _ in range(16 * 8)],
                    noise=[rng.gauss(0, 1) for _ in range(16 * 8)],
                    time=[rng.randrange(32) / 32], kind=[kind])  # so that f32 has 1000 t exactly: it is an angle

    def loss(m, p, x, batch):
        E, X, G = m["width"], m["patch"] ** 2 * m["channels"], m["grid"]
        shape = (batch, G * G, X)
        image, noise = (Tensor(shape, list(x[f])) for f in ("image", "noise"))
        at = constant(shape, lambda b, i, j: x["time"][b])

        half = m["waves"] // 2  # the table of time: sines, then cosines
        wave = lambda b, i: 1000 * x["time"][b] * 10000 ** (-(i % half) / half)
        c = constant((batch, m["waves"]), lambda b, i: (math.sin if i < half else math.cos)(wave(b, i)))
        c = linear(silu(linear(c, p["time1.w"], p["time1.b"])), p["time2.w"], p["time2.b"]) + rows(p["labels"], x["kind"])
        each = lambda y: reshape(y, batch, 1, E)  # alike at all patches

        def ada(y, at):
            scale, shift = (each(linear(silu(c), p[at + n], p[at + n + "_b"])) for n in ("scale", "shift"))
            return layer_norm(y, eps=1e-6) * (1 + scale) + shift

        def place(i, e):  # the column's sines, its cosines, and the row's: a quarter of the width each
            quarter = E // 4
            n = i % G if e < 2 * quarter else i // G
            return (math.sin, math.cos)[e // quarter % 2](n * 10000 ** (-(e % quarter) / quarter))

        h = linear((1 - at) * image + at * noise, p["patches.w"], p["patches.b"]) + constant((G * G, E), place)
        for i in range(m["layers"]):
            l = f"layer.{i}."
            w = inside(p, l)
            gate1, gate2 = (each(linear(silu(c), w[g + ".w"], w[g + ".b"])) for g in ("gate1", "gate2"))
            h = h + gate1 * attend_all(ada(h, l + "ln1."), w, m["heads"])
            h = h + gate2 * mlp(ada(h, l + "ln2."), w, gelu_tanh)
        error = linear(ada(h, "ln."), p["out.w"], p["out.b"]) - (noise - image)
        return mean(reshape(error * error, count(shape)))


# ---- Mistral (Jiang et al. 2023), and Gemma 3 (2025) -----------------------------------------------------------
def lm_sample(m, rng):
    text = text_like(rng, 17, m["words"])
    return dict(tokens=text[:-1], targets=text[1:])


def near(window):
    return lambda i, j: i - window < j <= i


@model
class mistral(llama3):
    sizes = dict(layers=2, heads=4, kv_heads=2, width=16, inner=24, words=66, window=5)
    sample = lm_sample

    def params(m):
        return llama3.params(m)

    def loss(m, p, x, batch):
        return llama3.loss(dict(m, base=10000), p, x, batch, near(m["window"]))


# Mixtral (Jiang et al. 2024): all experts see all tokens, and what was not chosen counts as nothing.
@model
class mixtral(llama3):
    sizes = dict(layers=2, heads=4, kv_heads=2, width=16, inner=12, words=66, base=10000, experts=6, active=2, balance=0)
    adamw = dict(eps=1e-3)  # an expert that few tokens chose has gradients that are nearly zero
    sample = lm_sample

    def params(m):
        E, F, N = m["width"], m["inner"], m["experts"]
        p = llama3.params(m)
        for i in range(m["layers"]):
            at = f"layer.{i}."
            for name in "gate", "up", "down":
                del p[f"{at}mlp.{name}"]
            p[f"{at}moe.router"] = ((E, N), 0, 1, "")
            p[f"{at}moe.gate"] = ((N, E, F), 0, 1 / math.sqrt(E), "")
            p[f"{at}moe.up"] = ((N, E, F), 0, 1 / math.sqrt(E), "")
            p[f"{at}moe.down"] = ((N, F, E), 0, 1 / math.sqrt(F), "")
        return p

    def moe(m, x, w):
        n = m["experts"]
        logits = linear(x, w["moe.router"])
        table = [logits.data[i:i + n] for i in range(0, len(logits.data), n)]
        best = [sorted(range(n), key=lambda j: (-z[j], j))[:m["active"]] for z in table]
        out = [[0.0 if j in chosen else -math.inf for j in range(n)] for chosen in best]
        weight = softmax(logits + Tensor(logits.shape, [v for z in out for v in z]))  # over those that were chosen
        y = 0.0
        for j in range(n):
            own = {f"mlp.{k}": reshape(part(w[f"moe.{k}"], 0, j, j + 1), *w[f"moe.{k}"].shape[1:])
                   for k in ("gate", "up", "down")}
            y = y + gated(x, own, silu) * part(weight, -1, j, j + 1)
        return y

    def loss(m, p, x, batch):
        return llama3.loss(m, p, x, batch, feed=mixtral.moe)


# ---- recurrences, token by token -------------------------------------------------------------------------
def softplus(x):
    return log(1 + exp(x))


def short_conv(x, w, b=None):
    """[batch, seq, channels], of each channel by itself: the last tap is the position's own."""
    width = w.shape[-1]
    w = reshape(w, x.shape[-1], width)
    y = 0
    for j in range(width):
        by = width - 1 - j
        before = constant((x.shape[0], by, x.shape[2]), lambda *at: 0)
        moved = cat([before, part(x, 1, 0, x.shape[1] - by)], 1) if by else x
        y = moved * reshape(part(w, -1, j, j + 1), x.shape[-1]) + y
    return y if b is None else y + reshape(b, x.shape[-1])


def conv(x, w, name):
    return silu(short_conv(x, w[name + ".w"], w.get(name + ".b")))


def unit(x):
    return x * power(total(x * x, keep=True) + 1e-6, -0.5)


def recurrence(q, k, v, g, beta=None):
    """[batch, head, seq, ...]: S decays by exp(g); what k stood for is replaced by v as far as beta says, or v is added."""
    S, out = constant(q.shape[:2] + (q.shape[3], v.shape[3]), lambda *at: 0), []
    for t in range(q.shape[2]):
        at = lambda x: part(x, 2, t, t + 1)
        S = S * exp(at(g))
        new = at(v) if beta is None else (at(v) - at(k) @ S) * at(beta)
        S = S + transpose(at(k)) @ new
        out.append(at(q) @ S)
    return cat(out, 2)


def together(x):
    """[batch, head, seq, hd] to [batch, seq, head * hd]."""
    o = permute(x, 0, 2, 1, 3)
    return reshape(o, *o.shape[:2], o.shape[2] * o.shape[3])


def time_steps(p, at, E, A):
    p[at + "wdt"] = ((E, A), 0, 1 / math.sqrt(E), "")
    p[at + "dt_bias"] = ((A,), -1, 0.5, "bias")
    p[at + "a_log"] = ((A,), 0, 0.5, "bias")


def steps_and_decays(x, w):
    """dt and dt * -exp(a_log), [batch, head, seq, 1] each."""
    n = w["dt_bias"].shape[0]
    dt = softplus(linear(x, w["wdt"], w["dt_bias"]))
    return heads(dt, n), heads(dt * -exp(w["a_log"]), n)


@model
class mamba2:
    sizes = dict(layers=2, width=16, heads=4, head_dim=8, state=5, words=66)
    fields = dict(tokens=("i32", 16), targets=("i32", 16))
    sample = lm_sample

    def params(m):
        E, A, H, N = m["width"], m["heads"], m["head_dim"], m["state"]
        p = {"table": ((m["words"], E), 0, 0.3, "")}
        for i in range(m["layers"]):
            norms(p, f"layer.{i}.", ["norm"], E)
            at = f"layer.{i}.mix."
            for name, out in (("z", (A, H)), ("x", (A, H)), ("b", (N,)), ("c", (N,))):
                p[f"{at}w{name}"] = ((E,) + out, 0, 1 / math.sqrt(E), "")
                if name != "z":
                    p[f"{at}conv{name}.w"] = (out + (4,), 0, 0.5, "")
                    p[f"{at}conv{name}.b"] = (out, 0, 0.1, "bias")
            time_steps(p, at, E, A)
            p[at + "d"] = ((A,), 1, 0.1, "bias")
            p[at + "g"] = ((A, H), 1, 0.1, "norm")
            p[at + "wo"] = ((A, H, E), 0, 1 / math.sqrt(A * H), "")
        norms(p, "", ["norm"], E)
        return p

    def loss(m, p, x, batch):
        A, H = m["heads"], m["head_dim"]
        h = embed(p["table"], x["tokens"], batch)
        for i in range(m["layers"]):
            w = inside(p, f"layer.{i}.mix.")
            y = rms_norm(h, p[f"layer.{i}.norm.g"])
            z, v = linear(y, w["wz"]), heads(conv(linear(y, w["wx"]), w, "convx"), A)
            q, k = (repeat_heads(heads(conv(linear(y, w["w" + n]), w, "conv" + n), 1), A) for n in "cb")
            dt, g = steps_and_decays(y, w)
            o = together(recurrence(q, k, v * dt, g) + v * reshape(w["d"], A, 1, 1))
            h = h + linear(rms_norm(o * silu(z), reshape(w["g"], A * H)), w["wo"])
        return language_loss(rms_norm(h, p["norm.g"]) @ transpose(p["table"]), x["targets"])


@model
class deltanet:
    sizes = dict(layers=2, width=16, heads=2, key_dim=4, value_dim=6, inner=24, words=66,
                 eps=0.01)  # the first states are nearly zero: see gemma3
    adamw = dict(eps=1e-3)
    fields = dict(tokens=("i32", 16), targets=("i32", 16))
    sample = lm_sample

    def params(m):
        E, A, K, V, F = m["width"], m["heads"], m["key_dim"], m["value_dim"], m["inner"]
        p = {"table": ((m["words"], E), 0, 0.3, "")}
        for i in range(m["layers"]):
            norms(p, f"layer.{i}.", ["norm1", "norm2"], E)
            at = f"layer.{i}.mix."
            for name, size in (("q", K), ("k", K), ("v", V), ("z", V)):
                p[f"{at}w{name}"] = ((E, A, size), 0, 1 / math.sqrt(E), "")
                if name != "z":
                    p[f"{at}conv{name}.w"] = ((A, size, 4), 0, 0.5, "")
            p[at + "wb"] = ((E, A), 0, 1 / math.sqrt(E), "")
            time_steps(p, at, E, A)
            norms(p, at, ["onorm"], V)
            p[at + "wo"] = ((A, V, E), 0, 1 / math.sqrt(A * V), "")
            for name, shape in (("gate", (E, F)), ("up", (E, F)), ("down", (F, E))):
                p[f"layer.{i}.mlp.{name}"] = (shape, 0, 1 / math.sqrt(shape[0]), "")
        norms(p, "", ["norm"], E)
        return p

    def loss(m, p, x, batch):
        A, K, eps = m["heads"], m["key_dim"], m["eps"]
        h = embed(p["table"], x["tokens"], batch)
        for i in range(m["layers"]):
            w = inside(p, f"layer.{i}.mix.")
            y = rms_norm(h, p[f"layer.{i}.norm1.g"], eps)
            q, k, v = (heads(conv(linear(y, w["w" + n]), w, "conv" + n), A) for n in "qkv")
            beta, (_, g) = heads(sigmoid(linear(y, w["wb"])), A), steps_and_decays(y, w)
            o = rms_norm(recurrence(unit(q) / math.sqrt(K), unit(k), v, g, beta), w["onorm.g"], eps)
            h = h + linear(together(o) * silu(linear(y, w["wz"])), w["wo"])
            w, y = inside(p, f"layer.{i}.mlp."), rms_norm(h, p[f"layer.{i}.norm2.g"], eps)
            h = h + linear(silu(linear(y, w["gate"])) * linear(y, w["up"]), w["down"])
        return language_loss(rms_norm(h, p["norm.g"], eps) @ transpose(p["table"]), x["targets"])


# DeepSeek-V3 (DeepSeek-AI 2024): latent attention, groups of experts chosen by biased sigmoids, a shared expert, and a module
# that predicts one token further ahead. `after` is what a step does to the biases.
@model
class deepseek:
    sizes = dict(layers=3, dense=1, heads=2, width=16, inner=20, words=66, plain=6, rotary=4, value=5, query_rank=12, key_rank=8,
                 experts=6, active=2, small=10, groups=3, take=2, scale=2.5, rate=0.02, balance=0.05, ahead=0.3, base=100)
    fields = dict(tokens=("i32", 16), targets=("i32", 16))
    adamw = dict(eps=1e-3)
    sample = lm_sample
    eps = 1e-6

    def params(m):
        E, A, H, R, W, N, F = (m[k] for k in ("width", "heads", "plain", "rotary", "value", "experts", "small"))
        Q, K = m["query_rank"], m["key_rank"]
        p = {}

        def matrix(path, into, *out):
            p[path] = ((into,) + out, 0, 1 / math.sqrt(into), "")

        def layer(at):
            norms(p, at, ["norm1", "norm2"], E)
            norms(p, f"{at}attn.", ["q_norm"], Q)
            norms(p, f"{at}attn.", ["kv_norm"], K)
            for name, *shape in (("q_down", E, Q), ("q_up", Q, A, H), ("q_rope", Q, A, R), ("kv_down", E, K), ("k_rope", E, R),
                                 ("k_up", K, A, H), ("v_up", K, A, W)):
                matrix(f"{at}attn.{name}", *shape)
            p[f"{at}attn.wo"] = ((A, W, E), 0, 1 / math.sqrt(A * W), "")

        def swiglu(at, F):
            matrix(f"{at}gate", E, F), matrix(f"{at}up", E, F), matrix(f"{at}down", F, E)

        def sparse(at):
            layer(at)
            for name, a, b in (("gate", E, F), ("up", E, F), ("down", F, E)):
                p[f"{at}moe.{name}"] = ((N, a, b), 0, 1 / math.sqrt(a), "")
            matrix(f"{at}moe.route.router", E, N)
            p[f"{at}moe.route.bias"] = ((N,), 0, 0.05, "state")
            swiglu(f"{at}moe.shared.", F)

        p["embed_in"] = ((m["words"], E), 0, 0.5, "")
        p["embed_out"] = ((m["words"], E), 0, 0.3, "")
        for i in range(m["dense"]):
            layer(f"first.{i}.")
            swiglu(f"first.{i}.mlp.", m["inner"])
        for i in range(m["layers"] - m["dense"]):
            sparse(f"layer.{i}.")
        norms(p, "", ["norm", "mtp.x_norm", "mtp.next_norm", "mtp_norm"], E)
        matrix("mtp.of_x", E, E), matrix("mtp.of_next", E, E)
        sparse("mtp_layer.")
        return p

    def turn(x, base):
        """[batch, head, seq, r]: pairs (2i, 2i + 1) turn by s base^(-2i/r)."""
        n, out = x.shape[-1], []
        for i in range(0, n, 2):
            angle = lambda f: constant((x.shape[2], 1), lambda s, j: f(s * base ** (-i / n)))
            a, b, cos, sin = part(x, -1, i, i + 1), part(x, -1, i + 1, i + 2), angle(math.cos), angle(math.sin)
            out += [a * cos - b * sin, b * cos + a * sin]
        return cat(out, -1)

    def attend(m, x, w):
        A, norm = m["heads"], lambda x, g: rms_norm(x, g, deepseek.eps)
        turn = lambda x: deepseek.turn(x, m["base"])
        c = norm(linear(x, w["attn.q_down"]), w["attn.q_norm.g"])
        q = cat([heads(linear(c, w["attn.q_up"]), A), turn(heads(linear(c, w["attn.q_rope"]), A))], -1)
        c = norm(linear(x, w["attn.kv_down"]), w["attn.kv_norm.g"])
        at = repeat_heads(turn(heads(linear(x, w["attn.k_rope"]), 1)), A)
        k = cat([heads(linear(c, w["attn.k_up"]), A), at], -1)
        return linear(attention(q, k, heads(linear(c, w["attn.v_up"]), A), causal), w["attn.wo"])

    def choose(m, score):
        """The entries of a row that are chosen: of the groups in which the two largest add up to most."""
        order = lambda xs: sorted(range(len(xs)), key=lambda j: (-xs[j], j))
        each = len(score) // m["groups"]
        best = [sum(sorted(score[g * each:(g + 1) * each])[-2:]) for g in range(m["groups"])]
        inside = [g in order(best)[:m["take"]] for g in range(m["groups"])]
        return order([s if inside[j // each] else -math.inf for j, s in enumerate(score)])[:m["active"]]

    def moe(m, x, w, sent, aux):
        n, (b, s, _) = m["experts"], x.shape
        p, bias = sigmoid(linear(x, w["moe.route.router"])), w["moe.route.bias"].data
        chosen = [deepseek.choose(m, [p.data[i + j] + bias[j] for j in range(n)]) for i in range(0, len(p.data), n)]
        mask = Tensor(p.shape, [float(j in c) for c in chosen for j in range(n)])
        sent.append([sum(mask.data[j::n]) / (b * s) for j in range(n)])
        share = permute(p / total(p, keep=True), 0, 2, 1)  # [batch, expert, seq]
        own = Tensor((b, n), [sum(mask.data[(i * s + t) * n + j] for t in range(s)) / s for i in range(b) for j in range(n)])
        aux.append(total(total(own * mean(share))) * (m["balance"] * n / m["active"] / b))
        weight = p * mask
        weight = weight / total(weight, keep=True) * m["scale"]
        y = gated(x, {f"mlp.{k}": w[f"moe.shared.{k}"] for k in ("gate", "up", "down")}, silu)
        for j in range(n):
            expert = {f"mlp.{k}": reshape(part(w[f"moe.{k}"], 0, j, j + 1), *w[f"moe.{k}"].shape[1:]) for k in ("gate", "up", "down")}
            y = y + gated(x, expert, silu) * part(weight, -1, j, j + 1)
        return y

    def loss(m, p, x, batch):
        norm, aux = lambda x, g: rms_norm(x, g, deepseek.eps), []
        deepseek.sent = {}

        def layer(h, at, sparse):
            w = inside(p, at)
            h = h + deepseek.attend(m, norm(h, w["norm1.g"]), w)
            y = norm(h, w["norm2.g"])
            return h + (deepseek.moe(m, y, w, deepseek.sent.setdefault(at, []), aux) if sparse else gated(y, w, silu))

        h = embed(p["embed_in"], x["tokens"], batch)
        for i in range(m["dense"]):
            h = layer(h, f"first.{i}.", False)
        for i in range(m["layers"] - m["dense"]):
            h = layer(h, f"layer.{i}.", True)
        out = lambda h, g: norm(h, p[g]) @ transpose(p["embed_out"])
        loss = language_loss(out(h, "norm.g"), x["targets"])
        h = linear(norm(h, p["mtp.x_norm.g"]), p["mtp.of_x"]) + \
            linear(norm(embed(p["embed_in"], x["targets"], batch), p["mtp.next_norm.g"]), p["mtp.of_next"])
        seq = len(x["targets"]) // batch
        further = [x["targets"][i + 1] if (i + 1) % seq else -1 for i in range(len(x["targets"]))]
        loss = loss + language_loss(out(layer(h, "mtp_layer.", True), "mtp_norm.g"), further) * m["ahead"]
        for a in aux:
            loss = loss + a
        return loss

    def after(m, p):
        for at, (sent,) in deepseek.sent.items():
            bias = p[f"{at}moe.route.bias"].data
            for j, n in enumerate(sent):
                less = m["active"] / m["experts"] - n
                bias[j] += m["rate"] * ((less > 1e-12) - (less < -1e-12))


@model
class gemma3:
    sizes = dict(layers=7, heads=4, kv_heads=2, width=16, head_dim=8, inner=40, words=66, window=5, query=6,
                 near_base=100, base=10000, eps=0.01)  # a norm of what is nearly zero has a gradient that f32 cannot tell
    fields = dict(tokens=("i32", 16), targets=("i32", 16))
    adamw = dict(eps=1e-3)  # what is a tenth of that moves in proportion, and not by its sign alone
    sample = lm_sample

    def at(i):  # where layer i of seven is: the first six are a pattern
        return "rest.0." if i == 6 else "six.0.far." if i == 5 else f"six.0.near.{i}."

    def params(m):
        E, A, K, H = m["width"], m["heads"], m["kv_heads"], m["head_dim"]
        p = {"table": ((m["words"], E), 0, 0.3, "")}
        more = {}
        for i in range(m["layers"]):
            norms(more, gemma3.at(i), ["norm1", "norm2", "norm3", "norm4"], E)
            norms(more, gemma3.at(i) + "attn.", ["qnorm", "knorm"], H)
            llama_layer(p, gemma3.at(i), E, K, A // K, H, m["inner"])
        norms(more, "", ["norm"], E)
        return dict(p, **{k: (shape, 0, dev, tag) for k, (shape, _, dev, tag) in more.items()})  # times 1 + g

    def loss(m, p, x, batch):
        A, K = m["heads"], m["kv_heads"]
        norm = lambda x, g: rms_norm(x, g + 1, m["eps"])
        h = embed(p["table"], x["tokens"], batch) * math.sqrt(m["width"])
        for i in range(m["layers"]):
            w = inside(p, gemma3.at(i))
            base, seen = (m["base"], causal) if i == 5 else (m["near_base"], near(m["window"]))
            y = norm(h, w["norm1.g"])
            q = rope(norm(heads(linear(y, w["attn.wq"]), A), w["attn.qnorm.g"]), base)
            k = rope(norm(heads(linear(y, w["attn.wk"]), K), w["attn.knorm.g"]), base)
            k, v = (repeat_heads(t, A // K) for t in (k, heads(linear(y, w["attn.wv"]), K)))
            y = linear(attention(q, k, v, seen, scale=1 / math.sqrt(m["query"])), w["attn.wo"])
            h = h + norm(y, w["norm2.g"])
            h = h + norm(gated(norm(h, w["norm3.g"]), w, gelu_tanh), w["norm4.g"])
        return language_loss(norm(h, p["norm.g"]) @ transpose(p["table"]), x["targets"])


# ---- CLIP (Radford et al. 2021) ----------------------------------------------------------------------------------
@model
class clip:
    sizes = dict(layers=2, heads=2, width=12, grid=2, patch=2, channels=3, text_heads=2, text_width=8, context=6, words=30,
                 shared=10)
    fields = dict(image=("f32", 4 * 12), tokens=("i32", 6), last=("i32", 1))

    def params(m):
        E, T, C, P, J = m["width"], m["text_width"], m["channels"], m["patch"], m["shared"]
        p = {"cls": ((1, E), 0, 0.5, ""), "pos_image": ((m["grid"] ** 2 + 1, E), 0, 0.3, ""),
             "patches": ((E, C, P, P), 0, 1 / math.sqrt(C * P * P), ""), "to_joint": ((E, J), 0, 1 / math.sqrt(E), ""),
             "words": ((m["words"], T), 0, 0.5, ""), "pos_text": ((m["context"], T), 0, 0.3, ""),
             "text_to_joint": ((T, J), 0, 1 / math.sqrt(T), ""), "heat": ((1,), 1, 0.1, "bias")}
        for stack, width, n in ("image", E, m["heads"]), ("text", T, m["text_heads"]):
            norms(p, "", [f"ln_{stack}"], width, True)
            for i in range(m["layers"]):
                norms(p, f"{stack}.{i}.", ["ln1", "ln2"], width, True)
                encoder_layer(p, f"{stack}.{i}.", width, n, 4 * width)
        norms(p, "", ["ln_in"], E, True)
        return p

    def sample(m, rng):
        kind = rng.randrange(m["words"])  # a picture's brightness is what its caption begins with
        text = [kind] + [rng.randrange(m["words"]) for _ in range(5)]
        return dict(image=[rng.gauss(kind / 10 - 1.5, 1) for _ in range(4 * 12)], tokens=text, last=[rng.randrange(2, 6)])

    def loss(m, p, x, batch):
        E, n = m["width"], m["grid"] ** 2
        norm = lambda y, at: layer_norm(y, p[at + ".g"], p[at + ".b"])
        quick = lambda y: y * sigmoid(y * 1.702)

        def stack(y, name, n, seen):
            for i in range(m["layers"]):
                w = inside(p, f"{name}.{i}.")
                y = y + attend_all(layer_norm(y, w["ln1.g"], w["ln1.b"]), w, n, seen)
                y = y + mlp(layer_norm(y, w["ln2.g"], w["ln2.b"]), w, quick)
            return y

        def unit(y):
            return y * power(total(y * y, keep=True), -0.5)

        tiles = Tensor((batch, n, len(x["image"]) // (batch * n)), list(x["image"]))
        tiles = tiles @ transpose(reshape(p["patches"], E, tiles.shape[-1]))
        a = cat([expand(reshape(p["cls"], 1, 1, E), (batch, 1, E)), tiles], 1) + p["pos_image"]
        a = stack(norm(a, "ln_in"), "image", m["heads"], lambda i, j: True)
        a = unit(norm(reshape(part(a, 1, 0, 1), batch, E), "ln_image") @ p["to_joint"])

        b = embed(p["words"], x["tokens"], batch) + p["pos_text"]
        seq = b.shape[1]
        b = norm(stack(b, "text", m["text_heads"], causal), "ln_text")
        b = rows(reshape(b, batch * seq, b.shape[-1]), [i * seq + at for i, at in enumerate(x["last"])])
        b = unit(b @ p["text_to_joint"])

        z = (a @ transpose(b)) * exp(p["heat"])
        own = list(range(batch))
        return 0.5 * cross_entropy(z, own) + 0.5 * cross_entropy(transpose(z), own)
