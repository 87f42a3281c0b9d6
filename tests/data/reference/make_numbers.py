#!/usr/bin/env python3
"""Trains tiny models of zoo.py for five steps, in f64 and plain Python, and writes what came out.

  make_numbers.py --prove     trains from what is stored for gpt2 and llama3 (made with PyTorch): says how far apart it ends
  make_numbers.py MODEL...    writes MODEL.init.safetensors, MODEL.final.safetensors, MODEL.json, and MODEL.records, the data:
                              per sample the fields in the order that MODEL.json says

The files are as make_reference.py writes them; it needs PyTorch, and this needs nothing.
"""
import json
import math
import os
import random
import struct
import sys
from array import array

from tape import Tensor, count
from zoo import MODELS

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS, BATCH = 5, 8
ADAMW = dict(lr=0.01, b1=0.9, b2=0.95, eps=1e-5)
DECAY, CLIP = 0.1, 1.0
KEPT = ("norm", "bias")  # tags without weight decay
CODES = {"i32": "i", "f32": "f"}


def path(name):
    return os.path.join(HERE, name)


# ---- files -------------------------------------------------------------------------------------------
def write_safetensors(name, tensors):
    header, blobs, at = {}, [], 0
    for key, t in tensors.items():
        blobs.append(array("f", t.data).tobytes())
        header[key] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [at, at + len(blobs[-1])]}
        at += len(blobs[-1])
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path(name), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def read_safetensors(name):
    with open(path(name), "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    at = lambda t: data[t["data_offsets"][0]:t["data_offsets"][1]]
    return {k: Tensor(t["shape"], list(array("f", at(t)))) for k, t in header.items() if k != "__metadata__"}


# ---- training ------------------------------------------------------------------------------------------
def adamw_of(model):
    return dict(ADAMW, **getattr(model, "adamw", {}))


def train(model, sizes, params, samples):
    """samples(i) is the batch of step i. Losses and gradient norms before clipping; `params` ends as trained."""
    tags = {k: spec[3] for k, spec in model.params(sizes).items()}
    first, second = ({k: [0.0] * len(t.data) for k, t in params.items()} for _ in range(2))
    adamw, steps = adamw_of(model), []
    b1, b2 = adamw["b1"], adamw["b2"]
    for step in range(1, STEPS + 1):
        loss = model.loss(sizes, params, samples(step - 1), BATCH)
        loss.backward()
        trained = {k: t for k, t in params.items() if tags[k] != "state"}
        norm = math.sqrt(math.fsum(g * g for t in trained.values() for g in t.grad))
        scale = min(1.0, CLIP / norm)
        for k, t in trained.items():
            decay = 0 if tags[k] in KEPT else DECAY
            for i, g in enumerate(t.grad):
                g *= scale
                first[k][i] = m = b1 * first[k][i] + (1 - b1) * g
                second[k][i] = v = b2 * second[k][i] + (1 - b2) * g * g
                move = m / (1 - b1 ** step) / (math.sqrt(v / (1 - b2 ** step)) + adamw["eps"])
                t.data[i] -= adamw["lr"] * (move + decay * t.data[i])
            t.grad = None
        if hasattr(model, "after"):
            model.after(sizes, params)
        steps.append({"step": step, "loss": loss.data[0], "grad_norm": norm})
    return steps


def batches(fields, samples):
    """From a list of samples, {field: values} each, what `train` takes."""
    return lambda i: {f: [v for s in samples[i * BATCH:(i + 1) * BATCH] for v in s[f]] for f in fields}


# ---- against PyTorch -------------------------------------------------------------------------------------
def prove(case):
    with open(path(case + ".json")) as f:
        stored = json.load(f)
    name, seq = case.split("-")[0], stored["seq"]
    model, params = MODELS[name], read_safetensors(name + ".init.safetensors")
    if os.path.exists(path(case + ".records.i32")):
        with open(path(case + ".records.i32"), "rb") as f:
            data = array("i", f.read())
        samples = [{"tokens": data[i:i + seq], "targets": data[i + seq:i + 2 * seq]} for i in range(0, len(data), 2 * seq)]
    else:
        with open(path(case + ".tokens.u16"), "rb") as f:
            data = array("H", f.read())
        samples = [{"tokens": data[i:i + seq], "targets": data[i + 1:i + 1 + seq]} for i in range(0, len(data) - 1, seq)]
    steps = train(model, stored["sizes"], params, batches(model.fields, samples))
    final = read_safetensors(case + ".final.safetensors")
    assert final.keys() == params.keys()
    worst = lambda what: max(abs(a[what] / b[what] - 1) for a, b in zip(steps, stored["steps"]))
    apart = max(abs(a - b) for k in final for a, b in zip(params[k].data, final[k].data))
    print(f"{case}: loss {worst('loss'):.1e}, norm {worst('grad_norm'):.1e} (relative), parameters {apart:.1e} (absolute)")
    return worst("loss") < 1e-6 and worst("grad_norm") < 1e-5 and apart < 5e-5


# ---- new numbers -----------------------------------------------------------------------------------------
def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def make(name):
    model, rng = MODELS[name], random.Random(name)
    draw = lambda shape, mean, dev: Tensor(shape, [f32(mean + dev * rng.gauss(0, 1)) for _ in range(count(shape))])
    params = {k: draw(*spec[:3]) for k, spec in model.params(model.sizes).items()}
    write_safetensors(name + ".init.safetensors", params)
    samples = [model.sample(model.sizes, rng) for _ in range(STEPS * BATCH)]
    samples = [{f: [f32(v) if kind == "f32" else v for v in s[f]] for f, (kind, _) in model.fields.items()} for s in samples]
    with open(path(name + ".records"), "wb") as f:
        for s in samples:
            for field, (kind, n) in model.fields.items():
                assert len(s[field]) == n, (field, n, len(s[field]))
                f.write(array(CODES[kind], s[field]).tobytes())
    steps = train(model, model.sizes, params, batches(model.fields, samples))
    write_safetensors(name + ".final.safetensors", params)
    with open(path(name + ".json"), "w") as f:
        json.dump({"model": name, "sizes": model.sizes, "batch": BATCH,
                   "fields": " ".join(f"{f}:{kind}:{n}" for f, (kind, n) in model.fields.items()),
                   "optimizer": {"adamw": adamw_of(model), "decay": DECAY, "except": KEPT, "clip": CLIP},
                   "made_with": "tape.py, f64", "steps": steps}, f, indent=1)
        f.write("\n")
    print(f"{name}: {sum(len(t.data) for t in params.values())} parameters, losses",
          " ".join(f"{s['loss']:.6f}" for s in steps), "norms", " ".join(f"{s['grad_norm']:.4f}" for s in steps))


if __name__ == "__main__":
    if sys.argv[1:] == ["--prove"]:
        sys.exit(not all([prove(case) for case in ("gpt2", "llama3", "llama3-unknown")]))
    for name in sys.argv[1:] or sys.exit(__doc__):
        make(name)
