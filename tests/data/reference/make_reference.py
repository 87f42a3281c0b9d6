#!/usr/bin/env python3
"""Trains tiny copies of examples/gpt2.zug and examples/llama3.zug in PyTorch and writes what came out.

Run by hand, from anywhere; needs PyTorch and numpy. The files that it writes beside itself are kept in the
repository, so the tests need neither (see README.md):

  MODEL.init.safetensors  parameters before the first step
  CASE.final.safetensors  parameters after the last
  CASE.json               sizes, recipe, and loss and gradient norm of every step
  CASE.tokens.u16         stream of tokens: sample g is tokens[g*seq .. g*seq + seq], targets one later
  CASE.records.i32        instead, where targets are unknown (-1): per sample seq tokens, then seq targets

All numbers are little-endian. Parameters are named and shaped as the .zug files declare them.
"""
import json
import math
import os
import struct

import numpy as np
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS, BATCH, SEQ = 5, 8, 16
ADAMW = dict(lr=0.01, b1=0.9, b2=0.95, eps=1e-5)
DECAY, CLIP = 0.1, 1.0
KEPT = ("norm", "bias")  # tags without weight decay

GPT2 = dict(layers=2, heads=4, width=24, context=20, words=67)
LLAMA3 = dict(layers=3, heads=4, kv_heads=2, width=16, inner=40, words=96, base=10000)


# ---- safetensors: a u64 header length, a JSON header, the data --------------------------------------------
def write_safetensors(path, tensors):
    header, blobs, at = {}, [], 0
    for name, t in tensors.items():
        data = t.detach().to(torch.float32).contiguous().numpy().astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [at, at + len(data)]}
        blobs.append(data)
        at += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


# ---- models: parameters {path: (shape, mean, deviation, tag)} and the logits -------------------------------
# Deviations are larger than the .zug files' so that every part of a tiny model matters from the first step.
def gpt2_params(m):
    E, A, F = m["width"], m["heads"], 4 * m["width"]
    H = E // A
    w = 1 / math.sqrt(E)
    p = {"wte": ((m["words"], E), 0, 0.3, ""), "wpe": ((m["context"], E), 0, 0.2, "")}
    for i in range(m["layers"]):
        at = f"layer.{i}."
        for ln in "ln1", "ln2":
            p[f"{at}{ln}.g"] = ((E,), 1, 0.1, "norm")
            p[f"{at}{ln}.b"] = ((E,), 0, 0.1, "norm")
        for x in "qkv":
            p[f"{at}attn.w{x}"] = ((E, A, H), 0, w, "")
            p[f"{at}attn.b{x}"] = ((A, H), 0, 0.1, "bias")
        p[f"{at}attn.wo"] = ((A, H, E), 0, w, "")
        p[f"{at}attn.bo"] = ((E,), 0, 0.1, "bias")
        p[f"{at}mlp.w1"] = ((E, F), 0, w, "")
        p[f"{at}mlp.b1"] = ((F,), 0, 0.1, "bias")
        p[f"{at}mlp.w2"] = ((F, E), 0, 1 / math.sqrt(F), "")
        p[f"{at}mlp.b2"] = ((E,), 0, 0.1, "bias")
    p["ln_f.g"] = ((E,), 1, 0.1, "norm")
    p["ln_f.b"] = ((E,), 0, 0.1, "norm")
    return p


def layer_norm(x, g, b):
    return torch.nn.functional.layer_norm(x, x.shape[-1:], g, b, eps=1e-5)


def attend(q, k, v):  # [batch, seq, head, hd], causal
    mask = torch.ones(q.shape[1], q.shape[1], dtype=torch.bool).tril()
    score = torch.einsum("bqah,bkah->baqk", q, k) / math.sqrt(q.shape[-1])
    return torch.einsum("baqk,bkah->bqah", score.masked_fill(~mask, -math.inf).softmax(-1), v)


def gpt2(m, p, tokens):
    x = p["wte"][tokens] + p["wpe"][: tokens.shape[1]]
    for i in range(m["layers"]):
        w = {k[len(f"layer.{i}."):]: t for k, t in p.items() if k.startswith(f"layer.{i}.")}
        y = layer_norm(x, w["ln1.g"], w["ln1.b"])
        q, k, v = (torch.einsum("bse,eah->bsah", y, w[f"attn.w{n}"]) + w[f"attn.b{n}"] for n in "qkv")
        x = x + torch.einsum("bsah,ahe->bse", attend(q, k, v), w["attn.wo"]) + w["attn.bo"]
        y = layer_norm(x, w["ln2.g"], w["ln2.b"])
        y = torch.nn.functional.gelu(y @ w["mlp.w1"] + w["mlp.b1"], approximate="tanh")
        x = x + y @ w["mlp.w2"] + w["mlp.b2"]
    return layer_norm(x, p["ln_f.g"], p["ln_f.b"]) @ p["wte"].T


def llama3_params(m):
    E, A, K, F = m["width"], m["heads"], m["kv_heads"], m["inner"]
    H, G = E // A, A // K
    w = 1 / math.sqrt(E)
    p = {"embed_in": ((m["words"], E), 0, 0.5, ""), "embed_out": ((m["words"], E), 0, 0.3, "")}
    for i in range(m["layers"]):
        at = f"layer.{i}."
        for norm in "norm1", "norm2":
            p[f"{at}{norm}.g"] = ((E,), 1, 0.1, "norm")
        p[f"{at}attn.wq"] = ((E, K, G, H), 0, w, "")
        p[f"{at}attn.wk"] = ((E, K, H), 0, w, "")
        p[f"{at}attn.wv"] = ((E, K, H), 0, w, "")
        p[f"{at}attn.wo"] = ((K, G, H, E), 0, w, "")
        p[f"{at}mlp.gate"] = ((E, F), 0, w, "")
        p[f"{at}mlp.up"] = ((E, F), 0, w, "")
        p[f"{at}mlp.down"] = ((F, E), 0, 1 / math.sqrt(F), "")
    p["norm.g"] = ((E,), 1, 0.1, "norm")
    return p


def rms_norm(x, g):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * g


def rope(x, base):  # [batch, seq, ..., hd]: pairs (i, i + H/2) turn by s base^(-2i/H)
    half = x.shape[-1] // 2
    s = torch.arange(x.shape[1], dtype=torch.float64)
    angle = s[:, None] * base ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = angle.view(1, x.shape[1], *[1] * (x.dim() - 3), half)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def llama3(m, p, tokens):
    x = p["embed_in"][tokens]
    for i in range(m["layers"]):
        w = {k[len(f"layer.{i}."):]: t for k, t in p.items() if k.startswith(f"layer.{i}.")}
        y = rms_norm(x, w["norm1.g"])
        q = rope(torch.einsum("bse,ekgh->bskgh", y, w["attn.wq"]), m["base"])
        k = rope(torch.einsum("bse,ekh->bskh", y, w["attn.wk"]), m["base"])
        v = torch.einsum("bse,ekh->bskh", y, w["attn.wv"])
        # query head (kv, grp) uses key and value head kv
        q, k, v = (t.expand_as(q).flatten(2, 3) for t in (q, k[:, :, :, None], v[:, :, :, None]))
        o = attend(q, k, v).unflatten(2, (m["kv_heads"], -1))
        x = x + torch.einsum("bskgh,kghe->bse", o, w["attn.wo"])
        y = rms_norm(x, w["norm2.g"])
        x = x + (torch.nn.functional.silu(y @ w["mlp.gate"]) * (y @ w["mlp.up"])) @ w["mlp.down"]
    return rms_norm(x, p["norm.g"]) @ p["embed_out"].T


# ---- training ----------------------------------------------------------------------------------------------
def train(model, sizes, spec, init, tokens, targets, dtype):
    """Losses, gradient norms before clipping, final parameters."""
    p = {k: t.to(dtype, copy=True).requires_grad_() for k, t in init.items()}
    kept = [t for k, t in p.items() if spec[k][3] in KEPT]
    rest = [t for k, t in p.items() if spec[k][3] not in KEPT]
    groups = [{"params": rest, "weight_decay": DECAY}, {"params": kept, "weight_decay": 0.0}]
    opt = torch.optim.AdamW(groups, lr=ADAMW["lr"], betas=(ADAMW["b1"], ADAMW["b2"]), eps=ADAMW["eps"])
    losses, norms = [], []
    for step in range(STEPS):
        part = slice(step * BATCH, (step + 1) * BATCH)
        z = model(sizes, p, tokens[part]).flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(z, targets[part].flatten(), ignore_index=-1)
        opt.zero_grad()
        loss.backward()
        norm = torch.sqrt(sum((t.grad.double() ** 2).sum() for t in p.values()))
        for t in p.values():
            t.grad *= min(1.0, CLIP / norm.item())
        opt.step()
        losses.append(loss.item())
        norms.append(norm.item())
    return losses, norms, p


def text_like(rng, n, words):
    """Tokens with something to learn: each is a noisy function of the one before."""
    t = [0]
    for _ in range(n - 1):
        t.append(int((5 * t[-1] + 7) % words if rng.random() < 0.6 else rng.integers(words)))
    return np.array(t)


def make(case, name, model, sizes, spec, seed, unknown):
    rng = np.random.default_rng(seed)
    init = {k: torch.tensor(mean + dev * rng.standard_normal(shape), dtype=torch.float32)
            for k, (shape, mean, dev, _) in spec.items()}
    samples = STEPS * BATCH
    stream = text_like(rng, samples * SEQ + 1, sizes["words"])
    tokens = torch.tensor(stream[:-1].reshape(samples, SEQ))
    targets = torch.tensor(stream[1:].reshape(samples, SEQ))
    out = os.path.join(HERE, case)
    if unknown:  # a third of the targets, and all of some samples: their micro-batch has no token at all
        targets[torch.tensor(rng.random((samples, SEQ)) < 0.33)] = -1
        targets[2::7] = -1
        targets[8:12] = -1
        torch.stack([tokens, targets], 1).numpy().astype("<i4").tofile(out + ".records.i32")
    else:
        stream.astype("<u2").tofile(out + ".tokens.u16")
    losses, norms, final = train(model, sizes, spec, init, tokens, targets, torch.float32)
    losses64, norms64, final64 = train(model, sizes, spec, init, tokens, targets, torch.float64)
    write_safetensors(os.path.join(HERE, case.split("-")[0] + ".init.safetensors"), init)
    write_safetensors(out + ".final.safetensors", final)
    with open(out + ".json", "w") as f:
        json.dump({"model": name, "sizes": sizes, "batch": BATCH, "seq": SEQ,
                   "optimizer": {"adamw": ADAMW, "decay": DECAY, "except": KEPT, "clip": CLIP},
                   "made_with": f"PyTorch {torch.__version__}, numpy {np.__version__}, f32 on CPU",
                   "steps": [{"step": i + 1, "loss": a, "grad_norm": b}
                             for i, (a, b) in enumerate(zip(losses, norms))]}, f, indent=1)
        f.write("\n")
    worst = lambda a, b: max(abs(x / y - 1) for x, y in zip(a, b))
    drift = max((final[k].double() - final64[k]).abs().max().item() for k in final)
    print(f"{case}: {sum(t.numel() for t in init.values())} parameters, losses {losses}, norms {norms}\n"
          f"  f32 against f64: loss {worst(losses, losses64):.1e}, norm {worst(norms, norms64):.1e} (relative), "
          f"parameters {drift:.1e} (absolute)")


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    make("gpt2", "GPT2", gpt2, GPT2, gpt2_params(GPT2), 1, False)
    make("llama3", "Llama3", llama3, LLAMA3, llama3_params(LLAMA3), 2, False)
    make("llama3-unknown", "Llama3", llama3, LLAMA3, llama3_params(LLAMA3), 2, True)
