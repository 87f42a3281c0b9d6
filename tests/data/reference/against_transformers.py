#!/usr/bin/env python3
"""Trains what is stored here in Hugging Face's transformers, and writes the losses and norms that come out.

  against_transformers.py [MODEL...]   needs torch, transformers 5 and this project's programs in PATH

For each model: MODEL.init.safetensors is written as the folder of another program by the map `hf` of examples/MODEL.zug
(`zckpt export`), transformers loads that folder and takes the five steps that make_numbers.py took, and `zrun` takes them on
one rank. What is printed is how far both end from transformers: losses and gradient norms (relative), parameters after the
last step (absolute, compared in transformers' names and shapes). Losses and norms are stored as MODEL.transformers.json.

transformers is asked for f64, but takes norms, softmaxes and rotations in f32 itself.
"""
import json
import os
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
import transformers
from safetensors.torch import load_file

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.join(HERE, "..", "..", "examples")
TYPES = {"i32": torch.int32, "f32": torch.float32}


def picture(x):  # tiles [batch, 9, channel, py, px] to [batch, channel, row, column]
    tiles = x["image"].reshape(-1, 3, 3, 3, 2, 2)
    return dict(pixel_values=tiles.permute(0, 3, 1, 4, 2, 5).reshape(-1, 3, 6, 6))


words = lambda x: dict(input_ids=x["tokens"])
# name: class, what it is called with, the sizes that `bind` gives, statics in place of those stored
MODELS = {
    "bert": ("BertForMaskedLM", lambda x: dict(input_ids=x["tokens"], token_type_ids=x["kinds"]), "seq = 16", {}),
    "t5": ("T5ForConditionalGeneration", lambda x: dict(input_ids=x["source"], decoder_input_ids=x["before"]),
           "src = 12, src2 = 12, tgt = 8, tgt2 = 8", {}),
    "vit": ("ViTForImageClassification", picture, "", {}),
    "mistral": ("MistralForCausalLM", words, "seq = 16", {}),
    "gemma3": ("Gemma3ForCausalLM", words, "seq = 16", {}),
    "mixtral": ("MixtralForCausalLM", words, "seq = 16, slot = 0.8", {}),
    "mamba2": ("Mamba2ForCausalLM", words, "seq = 16", {}),
    # transformers neither trains the module that predicts further ahead nor balances
    "deepseek": ("DeepseekV3ForCausalLM", words, "seq = 16, slot = 0.8", dict(ahead=0, balance=0, rate=0)),
}


def path(name):
    return os.path.join(HERE, name)


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        sys.exit(" ".join(words) + "\n" + done.stdout + done.stderr)
    return done.stdout


def batches(stored):
    """The five batches, {field: tensor [8, n]} each."""
    fields = [(f, kind, int(n)) for f, kind, n in (field.split(":") for field in stored["fields"].split())]
    with open(path(stored["model"] + ".records"), "rb") as f:
        data = torch.frombuffer(bytearray(f.read()), dtype=torch.int32).reshape(5, stored["batch"], -1)
    for step in data:
        out, at = {}, 0
        for f, kind, n in fields:
            x = step[:, at:at + n].contiguous().view(TYPES[kind])
            out[f], at = x.long() if kind == "i32" else x.double(), at + n
        yield out


def train(model, call, stored):
    """make_numbers.py's steps. What is not decayed, norms and biases, are the parameters of one axis."""
    o = stored["optimizer"]["adamw"]
    trained = [p for p in model.parameters() if p.requires_grad]
    of = lambda flat: [p for p in trained if (p.dim() == 1) == flat]
    groups = [dict(params=of(False), weight_decay=stored["optimizer"]["decay"]), dict(params=of(True), weight_decay=0)]
    adamw, steps = torch.optim.AdamW(groups, lr=o["lr"], betas=(o["b1"], o["b2"]), eps=o["eps"]), []
    for i, x in enumerate(batches(stored)):
        z = model(**call(x)).logits
        targets = x["targets"] if "targets" in x else x["label"]
        loss = torch.nn.functional.cross_entropy(z.flatten(0, -2).double(), targets.flatten(), ignore_index=-1)
        adamw.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(trained, stored["optimizer"]["clip"])
        adamw.step()
        steps.append({"step": i + 1, "loss": loss.item(), "grad_norm": norm.item()})
    return steps


def apart(a, b):
    return " ".join(f"{max(abs(x[what] / y[what] - 1) for x, y in zip(a, b)):.1e}" for what in ("loss", "grad_norm"))


def zug(name, stored, bind, statics, out):
    """The folder of the first parameters; what zrun made of them: steps, and the folder of the last."""
    at = lambda s: os.path.join(out, s)
    o = stored["optimizer"]["adamw"]
    run("zc", os.path.join(EXAMPLES, name + ".zug"), "-o", at("m.zsg"),
        *(w for k, v in dict(stored["sizes"], **statics).items() for w in ("-D", f"{k}={v}")))
    run("zdata", "records", path(name + ".records"), "-o", at("d.bin"), *(w for f in stored["fields"].split() for w in ("--field", f)))
    with open(at("r.zug"), "w") as f:
        f.write(f"recipe one {{ bind batch = {stored['batch']}{', ' * bool(bind)}{bind}  micro 4  clip {stored['optimizer']['clip']}\n"
                f"optimizer adamw(lr = {o['lr']}, b1 = {o['b1']}, b2 = {o['b2']}, eps = {o['eps']})"
                f" decay {stored['optimizer']['decay']} except {', '.join(stored['optimizer']['except'])} }}\n")
    for steps, end in ("0", "first"), ("5", "last"):
        run("zrun", "train", at("m.zsg"), "--recipe", at("r.zug") + ":one", "--data", at("d.bin"), "--order", "sequential", "--steps", steps,
            "--init", path(name + ".init.safetensors"), "--init-partial", "--log", at(end + ".log"), "--save", at(end + ".safetensors"))
        run("zckpt", "export", at(end + ".safetensors"), "--graph", at("m.zsg"), "--names", "hf", "-o", at(end))
    with open(at("last.log/metrics.jsonl")) as f:
        lines = [json.loads(line) for line in f]
    return [s for s in lines if "loss" in s]


def against(name):
    kind, call, bind, statics = MODELS[name]
    with open(path(name + ".json")) as f:
        stored = json.load(f)
    with tempfile.TemporaryDirectory() as out:
        ours = zug(name, stored, bind, statics, out)
        at = lambda s: os.path.join(out, s)
        options = {} if name == "vit" else dict(pad_token_id=None)  # or the word of that number would have no gradient
        if name != "mamba2":
            options["attn_implementation"] = "eager"
        model = getattr(transformers, kind).from_pretrained(at("first"), **options).double().eval()
        steps = train(model, call, stored)
        model.float().save_pretrained(at("theirs"))
        theirs, last = load_file(at("theirs/model.safetensors")), load_file(at("last/model.safetensors"))
        lacking = [k for k in theirs if k not in last and not k.endswith(("lm_head.weight", "decoder.weight", "embed_tokens.weight"))]
        assert not lacking, lacking
        worst = max((theirs[k] - last[k]).abs().max().item() for k in theirs if k in last)
    with open(path(name + ".transformers.json"), "w") as f:
        json.dump({"model": name, "statics": " ".join(f"-D {k}={v}" for k, v in statics.items()), "made_with": f"transformers {transformers.__version__}, PyTorch {torch.__version__}",
                   "steps": steps}, f, indent=1)
        f.write("\n")
    stored_too = "" if statics else f"; stored {apart(stored['steps'], steps)}"
    print(f"{name:9} zrun {apart(ours, steps)}, parameters {worst:.1e}{stored_too}", flush=True)


for name in sys.argv[1:] or MODELS:
    against(name)
