#!/usr/bin/env python3
"""One training run in PyTorch of what `make bench-gpu` trains with Zug: examples/gpt2.zug or examples/llama3.zug, in bf16, as
fast as it can be made to go without changing what is computed. Products that read the same are one product (q, k and v;
gate and up). A step is a few micro-batches: gradients add up in f32, their norm is clipped to 1, AdamW works on f32
parameters, and decays matrices alone.

The variant is FORM,PRECISION,ATTENTION:
  compile   torch.compile            half   bf16 weights and activations; f32 masters, gradient sums and states
  tuned     its mode max-autotune    auto   f32 weights, products in bf16 by autocast
  eager     operations one by one    flash, cudnn   which scaled_dot_product_attention; not said: the faster
Tokens are random and lie on the device already. Prints one line: version, variant, tokens/s of the median step without
the first ones, loss of the first and last step, parameters, most memory taken. Where a micro-batch does not fit it is halved,
and the line says so."""
import argparse
import contextlib
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

from torch_gpt2 import GPT2, adamw, clip


# ---- Llama 3 -------------------------------------------------------------------------------------------------------
class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        f = x.float()
        return (f * torch.rsqrt(f.square().mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * self.weight


class Attention(nn.Module):
    """Grouped queries, rotary positions of pairs (i, i + hd/2)."""

    def __init__(self, c):
        super().__init__()
        self.heads, self.kv, self.hd = c.heads, c.kv_heads, c.width // c.heads
        self.qkv = nn.Linear(c.width, (c.heads + 2 * c.kv_heads) * self.hd, bias=False)
        self.out = nn.Linear(c.width, c.width, bias=False)

    def forward(self, x, cos, sin):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, -1, self.hd).split([self.heads, self.kv, self.kv], 2)

        def turn(y):
            u, w = y.float().chunk(2, -1)
            return torch.cat([u * cos - w * sin, w * cos + u * sin], -1).to(v.dtype).transpose(1, 2)

        y = F.scaled_dot_product_attention(turn(q), turn(k), v.transpose(1, 2), is_causal=True,
                                           enable_gqa=self.kv < self.heads)
        return self.out(y.transpose(1, 2).reshape(b, t, d))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm1, self.norm2 = RMSNorm(c.width), RMSNorm(c.width)
        self.attn = Attention(c)
        self.up = nn.Linear(c.width, 2 * c.inner, bias=False)  # gate, then up
        self.down = nn.Linear(c.inner, c.width, bias=False)

    def forward(self, x, cos, sin):
        x = x + self.attn(self.norm1(x), cos, sin)
        gate, up = self.up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Llama(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.table = nn.Embedding(c.words, c.width)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.layers))
        self.norm = RMSNorm(c.width)
        self.head = nn.Linear(c.width, c.words, bias=False)
        hd = c.width // c.heads
        angle = torch.outer(torch.arange(c.seq).float(), c.base ** (-torch.arange(0, hd, 2).float() / hd))
        self.register_buffer("cos", angle.cos()[:, None, :], persistent=False)
        self.register_buffer("sin", angle.sin()[:, None, :], persistent=False)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02 / (2 * c.layers) ** 0.5 if name.endswith(("out.weight", "down.weight")) else 0.02)

    def forward(self, tokens, targets):
        x = self.table(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


# ---- a step --------------------------------------------------------------------------------------------------------
KINDS = {"flash": "FLASH_ATTENTION", "cudnn": "CUDNN_ATTENTION"}


def attention_by(c, kind):
    """A context in which scaled_dot_product_attention is of that kind, where there is such a choice."""
    if c.device == "cpu" or not kind:
        return contextlib.nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel
    return sdpa_kernel(getattr(SDPBackend, KINDS[kind]))


def fastest_attention(c, micro):
    """By forward and backward alone, of the model's sizes; "" where none of them works."""
    heads, kv = c.heads, c.kv_heads or c.heads
    best = (float("inf"), "")
    for kind in KINDS if c.device != "cpu" else ():
        try:
            q, k, v = (torch.randn(micro, h, c.seq, c.width // c.heads, device=c.device, dtype=torch.bfloat16, requires_grad=True)
                       for h in (heads, kv, kv))
            with attention_by(c, kind):
                for i in range(13):
                    if i == 3:
                        torch.cuda.synchronize()
                        start = time.perf_counter()
                    o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=kv < heads)
                    torch.autograd.grad(o, (q, k, v), o)
                torch.cuda.synchronize()
        except (RuntimeError, AttributeError) as e:
            print(f"{kind}: {e}", file=sys.stderr)
            continue
        best = min(best, (time.perf_counter() - start, kind))
        print(f"{kind}: {100 * (time.perf_counter() - start):.2f} ms a layer", file=sys.stderr)
    return best[1]


MODES = {"compile": None, "tuned": "max-autotune-no-cudagraphs"}


class Run:
    """A model, its optimizer and one way to make a step."""

    def __init__(self, c, form, precision, attention):
        self.c, self.form, self.precision, self.attention = c, form, precision, attention
        with torch.device(c.device):
            self.model = (GPT2 if c.model == "gpt2" else Llama)(c)
        self.params = list(self.model.parameters())
        self.masters = self.params
        if self.precision == "half":
            self.masters = [p.detach().clone().requires_grad_() for p in self.params]
            tables = [(m, n, b) for m in self.model.modules() for n, b in m.named_buffers(recurse=False)]
            self.model.to(torch.bfloat16)
            for m, n, b in tables:  # of angles: they stay f32
                setattr(m, n, b)
            self.params = list(self.model.parameters())
            for m in self.masters:
                m.grad = torch.zeros_like(m)
        self.optimizer = adamw(self.masters)
        self.call = self.model
        if self.form in MODES:
            keep = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
            if keep:  # which attention was preferred is not a part of a cache's key
                os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(keep, self.attention or "any")
            self.call = torch.compile(self.model, mode=MODES[self.form])

    def loss(self, x, y):
        if self.precision == "auto":
            with torch.autocast(self.c.device, dtype=torch.bfloat16):
                return self.call(x, y)
        return self.call(x, y)

    def add_up(self, first):
        """bf16 gradients of one micro-batch into f32 sums."""
        sums, grads = [m.grad for m in self.masters], [p.grad for p in self.params]
        (torch._foreach_copy_ if first else torch._foreach_add_)(sums, grads)

    def step(self, x, y):
        """x, y: [micro-batches, samples, seq]."""
        total = 0
        for p in self.params:
            p.grad = None
        with attention_by(self.c, self.attention):
            for i in range(len(x)):
                loss = self.loss(x[i], y[i]) / len(x)
                loss.backward()
                total = total + loss.detach()
                if self.precision == "half":
                    self.add_up(i == 0)
                    for p in self.params:
                        p.grad = None
        clip(self.masters)
        self.optimizer.step()
        if self.precision == "half":
            with torch.no_grad():
                torch._foreach_copy_(self.params, self.masters)
        return total.item()  # waits for all of it


def measure(c, micro):
    """What ran, seconds of each step after the first ones, the losses."""
    torch.manual_seed(1)
    form, precision, attention = (c.variant.split(",") + [""])[:3]
    run = Run(c, form, precision, attention or fastest_attention(c, micro))
    shape = (4, c.batch // micro, micro, c.seq + 1)
    ids = torch.randint(0, c.ids or c.words, shape, device=c.device)
    seconds, losses = [], []
    for i in range(c.skip + c.steps):
        x, y = ids[i % 4, :, :, :-1].contiguous(), ids[i % 4, :, :, 1:].contiguous()
        if c.device != "cpu":
            torch.cuda.synchronize()
        start = time.perf_counter()
        losses.append(run.step(x, y))
        if i >= c.skip:
            seconds.append(time.perf_counter() - start)
    return run, seconds, losses


def out_of_memory(e):
    return isinstance(e, getattr(torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError)) or "out of memory" in str(e)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--model", choices=["gpt2", "llama"], default="gpt2")
    a.add_argument("--device", default="cuda")
    a.add_argument("--variant", default="compile,half,flash", help="FORM,PRECISION,ATTENTION")
    for name, default in (("layers", 12), ("heads", 12), ("kv_heads", 0), ("width", 768), ("inner", 0), ("words", 50304),
                          ("ids", 0), ("seq", 1024), ("batch", 128), ("micro", 32), ("steps", 8), ("skip", 3), ("threads", 0)):
        a.add_argument("--" + name.replace("_", "-"), type=int, default=default)
    a.add_argument("--base", type=float, default=500000)
    c = a.parse_args()
    if c.threads:
        torch.set_num_threads(c.threads)
    if c.device != "cpu" and not torch.cuda.is_available():
        print(f"torch {torch.__version__} sees no GPU")
        sys.exit(77)
    micro, result = c.micro, None
    while result is None:
        try:
            result = measure(c, micro)
        except RuntimeError as e:
            if not out_of_memory(e) or micro == 1:
                raise
        if result is None:  # out of the handler, which holds what it caught
            micro //= 2
            torch.cuda.empty_cache()
    run, seconds, losses = result
    s = statistics.median(seconds)
    taken = torch.cuda.max_memory_allocated() if c.device != "cpu" else 0
    variant = ",".join(filter(None, (run.form, run.precision, run.attention)))
    print(f"torch {torch.__version__} {variant}: {c.batch * c.seq / s:.0f} tokens/s, {1e3 * s:.1f} ms a step, "
          f"loss {losses[0]:.4f} {losses[-1]:.4f}, {sum(p.numel() for p in run.params) / 1e6:.1f} M parameters, "
          f"{taken / 1e9:.1f} GB"
          + (f", micro-batches of {micro}: {c.micro} did not fit" if micro != c.micro else ""))
    sys.stdout.flush()
    os._exit(0)  # compilers' helpers take seconds to leave


if __name__ == "__main__":
    main()
