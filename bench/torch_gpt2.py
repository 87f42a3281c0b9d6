#!/usr/bin/env python3
"""One training run of examples/gpt2.zug's model in PyTorch, as fast as it can be made to go without changing what is
computed: what `make bench` compares Zug with. The same widths, tanh GELU, LayerNorm with bias, causal attention, tied
head, AdamW with decay for matrices alone, gradient norm clipped to 1. q, k and v are one product here, which is faster
and the same mathematics.

The variant is FORM,PRECISION:
  eager     operations one by one              f32   everything
  compile   torch.compile (from 2.0)           auto  f32 weights, products in bf16 by autocast
                                               half  bf16 weights and activations, f32 master weights in the optimizer

Prints one line: version, variant, tokens/s of the median step without the first ones, loss of the first and last."""
import argparse
import math
import os
import statistics
import sys
import time

try:
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
except ImportError as e:
    print(f"no PyTorch: {e}")
    sys.exit(77)

MAJOR = int(torch.__version__.split(".")[0])


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads = c.heads
        self.qkv = nn.Linear(c.width, 3 * c.width)
        self.out = nn.Linear(c.width, c.width)
        if not hasattr(F, "scaled_dot_product_attention"):
            mask = torch.full((c.seq, c.seq), -math.inf).triu(1)
            self.register_buffer("mask", mask, persistent=False)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(x).split(d, 2))
        if hasattr(F, "scaled_dot_product_attention"):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            s = q @ k.transpose(2, 3) * (1 / math.sqrt(q.shape[3])) + self.mask
            y = torch.softmax(s, 3).to(v.dtype) @ v
        return self.out(y.transpose(1, 2).reshape(b, t, d))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(c.width), nn.LayerNorm(c.width)
        self.attn = Attention(c)
        self.up = nn.Linear(c.width, 4 * c.width)
        self.down = nn.Linear(4 * c.width, c.width)

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(c.words, c.width), nn.Embedding(c.seq, c.width)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.layers))
        self.ln_f = nn.LayerNorm(c.width)
        for name, p in self.named_parameters():
            if p.dim() < 2:
                continue  # LayerNorm's and biases: as they are, but biases are 0
            last = name.endswith(("out.weight", "down.weight"))
            nn.init.normal_(p, std=0.01 if "wpe" in name else 0.02 / math.sqrt(2 * c.layers) if last else 0.02)
        for m in self.modules():
            if isinstance(m, nn.Linear):
                nn.init.zeros_(m.bias)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight
        for layer in self.layers:
            x = layer(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def adamw(params):
    """Decay for matrices; the fastest form that this version has."""
    groups = [{"params": [p for p in params if p.dim() >= 2], "weight_decay": 0.1},
              {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0}]
    for form in ({"fused": True}, {"foreach": True}, {}):
        try:
            return torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), eps=1e-8, **form)
        except (TypeError, RuntimeError, AssertionError):
            continue
    raise RuntimeError("no AdamW")


def clip(params):
    try:
        nn.utils.clip_grad_norm_(params, 1.0, foreach=True)
    except TypeError:
        nn.utils.clip_grad_norm_(params, 1.0)


class Run:
    """A model, its optimizer and one way to make a step."""

    def __init__(self, c, variant):
        self.form, self.precision = variant.split(",")
        self.model = GPT2(c)
        self.params = list(self.model.parameters())
        self.masters = self.params
        if self.precision == "half":
            self.masters = [p.detach().clone().requires_grad_() for p in self.params]
            self.model.to(torch.bfloat16)
            self.params = list(self.model.parameters())
            for m, p in zip(self.masters, self.params):
                m.grad = torch.zeros_like(m)
        self.optimizer = adamw(self.masters)
        self.call = torch.compile(self.model) if self.form == "compile" else self.model

    def loss(self, x, y):
        if self.precision == "auto":
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return self.call(x, y)
        return self.call(x, y)

    def step(self, x, y):
        for p in self.params:
            p.grad = None
        loss = self.loss(x, y)
        loss.backward()
        if self.precision == "half":
            torch._foreach_copy_([m.grad for m in self.masters], [p.grad for p in self.params])
        clip(self.masters)
        self.optimizer.step()
        if self.precision == "half":
            with torch.no_grad():
                torch._foreach_copy_(self.params, self.masters)
        return loss.item()


def variants(precision):
    forms = ["eager"] + (["compile"] if MAJOR >= 2 else [])
    if precision == "f32":
        return [f + ",f32" for f in forms]
    kinds = ["auto"] + (["half"] if hasattr(torch, "_foreach_copy_") else [])
    return [f"{f},{k}" for f in forms for k in kinds]


def measure(c, variant, steps, skip):
    """Seconds of each step after the first ones, and the losses."""
    torch.manual_seed(1)
    run = Run(c, variant)
    ids = torch.randint(0, c.words, (8, c.batch, c.seq + 1))
    seconds, losses = [], []
    for i in range(skip + steps):
        x, y = ids[i % 8, :, :-1].contiguous(), ids[i % 8, :, 1:].contiguous()
        start = time.perf_counter()
        losses.append(run.step(x, y))
        if i >= skip:
            seconds.append(time.perf_counter() - start)
    return seconds, losses


def choose(c, precision):
    """The fastest variant; those that this version or machine cannot do are named on stderr and left out."""
    best = None
    for v in variants(precision):
        try:
            s = min(measure(c, v, c.steps, c.skip)[0])
        except Exception as e:  # whatever a compiler of that version trips over
            print(f"{v}: {type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}", file=sys.stderr)
            continue
        print(f"{v}: {c.batch * c.seq / s:.0f} tokens/s", file=sys.stderr)
        if best is None or s < best[0]:
            best = (s, v)
    return best[1]


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("layers", 6), ("heads", 6), ("width", 384), ("words", 256), ("seq", 256), ("batch", 8),
                          ("threads", 1), ("steps", 5), ("skip", 2)):
        a.add_argument("--" + name, type=int, default=default)
    a.add_argument("--precision", choices=["f32", "bf16"], default="f32")
    a.add_argument("--variant", help="FORM,PRECISION; without it all are tried and the fastest is measured")
    a.add_argument("--choose", action="store_true", help="print only the name of the fastest variant")
    c = a.parse_args()
    torch.set_num_threads(c.threads)
    if c.choose:
        print(choose(c, c.precision))
        return
    variant = c.variant or choose(c, c.precision)
    seconds, losses = measure(c, variant, c.steps, c.skip)
    s = statistics.median(seconds)
    print(f"torch {torch.__version__} {variant}: {c.batch * c.seq / s:.0f} tokens/s, {1e3 * s:.1f} ms a step, "
          f"loss {losses[0]:.4f} {losses[-1]:.4f}")


if __name__ == "__main__":
    main()
