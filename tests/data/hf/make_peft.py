"""Stores what peft and transformers make of a folder with an adapter: peft/CASE, each beside a folder of this one.

python3 make_peft.py [CASE...]        needs torch, transformers 5, peft and safetensors; writes beside this file

CASE/adapter_config.json and adapter_model.safetensors are what peft's save_pretrained wrote, with random numbers in A and in B, rounded to
bf16. CASE/greedy is as make_greedy.py stores it, of the model with the adapter. CASE/merged has a line for each tensor that
merge_and_unload has changed: its name, and the sums of w[i] and of w[i] cos(i) over its elements, in f64.

CASE `steps` is another one: `losses` are those of 20 steps of training adapters alone, by torch's AdamW, in f32, on the records of `llama`; its
adapter is what training began with, B zero.
"""
import json
import os
import shutil
import sys
import tempfile
import warnings

import peft
import torch
import transformers as T
from safetensors.torch import load_file, save_file

import make_greedy as M

here = os.path.dirname(os.path.abspath(__file__))
ATTENTION, GATED = ["q_proj", "k_proj", "v_proj", "o_proj"], ["gate_proj", "up_proj", "down_proj"]
ALL = ATTENTION + GATED
cases = {  # the folder, modules, and what else the config says
    "gpt2": ("gpt2", ["c_attn", "c_proj", "c_fc"], dict(fan_in_fan_out=True)),
    "llama": ("llama", ALL, dict(r=4, lora_alpha=4)),
    "llama_patterns": ("llama_tied", ATTENTION, dict(rank_pattern={"v_proj": 2}, alpha_pattern={"self_attn.q_proj": 16, "v_proj": 3})),
    "llama_stable": ("llama", ["q_proj", "v_proj"], dict(use_rslora=True, lora_dropout=0.1)),
    "qwen2": ("qwen2", ALL, {}),
    "qwen3": ("qwen3", ALL, {}),
    "gemma2": ("gemma2", ALL, {}),
    "gemma3": ("small/gemma3", ALL, {}),
    "mistral": ("small/mistral", ALL, {}),
    "mixtral": ("small/mixtral", ATTENTION, {}),
    "deepseek": ("small/deepseek", ["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"], {}),
    "mamba2": ("small/mamba2", ["in_proj"], {}),
    "phi3": ("small/phi3", ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"], {}),
    "qwen3moe": ("small/qwen3moe", ATTENTION, {}),
    "gptoss": ("small/gptoss", ATTENTION, {}),
    "olmo2": ("small/olmo2", ALL, {}),
    "granite": ("small/granite", ALL, {}),
    "glm4": ("small/glm4", ATTENTION + ["gate_up_proj", "down_proj"], {}),
    "smollm3": ("small/smollm3", ATTENTION, {}),
    "starcoder2": ("small/starcoder2", ATTENTION + ["c_fc", "c_proj"], {}),
    "neox": ("small/neox", ["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"], {}),
    "falcon": ("small/falcon", ["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"], {}),
    "falcon40": ("small/falcon40", ["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"], {}),
    "opt": ("small/opt", ["q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"], {}),
    "phi": ("small/phi", ["q_proj", "k_proj", "v_proj", "dense", "fc1", "fc2"], {}),
    "cohere": ("small/cohere", ALL, {}),
}
RATE, STEPS, SIZE = 1e-2, 20, 0.3


def adapted(folder, modules, more, b=True):
    m = M.load(folder)
    torch.manual_seed(4321)
    p = peft.get_peft_model(m, peft.LoraConfig(**dict(dict(r=3, lora_alpha=6, target_modules=modules, task_type="CAUSAL_LM"), **more)))
    noise = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for n, w in p.named_parameters():
            if "lora_" in n:
                if b:
                    w.copy_(torch.randn(w.shape, generator=noise) * SIZE / (w.shape[1] ** 0.5 if "lora_A" in n else 1))
                w.copy_(w.bfloat16())
    return p.eval()


def save(p, out):
    """The adapter as peft writes it, in bf16, and without what it writes beside."""
    with tempfile.TemporaryDirectory() as t:
        p.save_pretrained(t)
        config = json.load(open(t + "/adapter_config.json"))
        config["base_model_name_or_path"] = None
        with open(out + "/adapter_config.json", "w") as f:
            json.dump(config, f, indent=2, sort_keys=True)
            f.write("\n")
        save_file({n: w.bfloat16() for n, w in load_file(t + "/adapter_model.safetensors").items()}, out + "/adapter_model.safetensors",
                  metadata={"format": "pt"})
        os.chmod(out + "/adapter_model.safetensors", 0o644)


def merged(p, out):
    before = {n: w.clone() for n, w in saved(p.get_base_model(), plain=p)}
    after = dict(saved(p.merge_and_unload()))
    with open(out + "/merged", "w") as f:
        for n in sorted(after):
            if torch.equal(before[n], after[n]):
                continue
            w = after[n].double().flatten()
            f.write("%s %.9g %.9g\n" % (n, w.sum(), (w * torch.arange(len(w)).double().cos()).sum()))


def saved(m, plain=None):
    """Tensors by the names that a folder has; `plain`: those of the model without its adapter."""
    with tempfile.TemporaryDirectory() as t:
        if plain is not None:
            M.load(plain.folder).save_pretrained(t)
        else:
            m.save_pretrained(t)
        return [x for f in sorted(os.listdir(t)) if f.endswith(".safetensors") for x in load_file(t + "/" + f).items()]


def make(name):
    base, modules, more = cases[name]
    folder, out = os.path.join(here, base), os.path.join(here, "peft", name)
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    p = adapted(folder, modules, more)
    p.folder = folder
    save(p, out)
    m, draw, found = p.get_base_model(), torch.Generator().manual_seed(7), []
    for _ in range(M.TRIES):
        prompt = torch.randint(3, M.WORDS, (1, M.PROMPT), generator=draw)
        wrote = M.write(m, prompt)
        if wrote:
            found = sorted(found + [(len(set(wrote[0])), prompt[0].tolist(), *wrote)], key=lambda x: -x[0])[:2]
        if sum(x[0] >= M.MANY for x in found) == 2:
            break
    assert len(found) == 2, "no two prompts without near ties"
    with open(out + "/greedy", "w") as f:
        for _, prompt, answer, logs in found:
            f.write("%s %s %s\n" % (",".join(map(str, prompt)), ",".join(map(str, answer)), ",".join("%.7f" % x for x in logs)))
    with open(out + "/base", "w") as f:
        f.write(base + "\n")
    merged(p, out)
    print(name, "different ids of each answer:", *[x[0] for x in found], flush=True)


def steps():
    out = os.path.join(here, "peft", "steps")
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    p = adapted(os.path.join(here, "llama"), ["q_proj", "v_proj"], dict(r=4, lora_alpha=8), b=False)
    save(p, out)
    records = torch.frombuffer(bytearray(open(here + "/llama/records.i32", "rb").read()), dtype=torch.int32).view(2, 2, -1).long()
    ids, targets = records[:, 0], records[:, 1]
    how = torch.optim.AdamW([w for w in p.parameters() if w.requires_grad], lr=RATE, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)
    p.train()  # without dropout: lora_dropout is 0
    losses = []
    for _ in range(STEPS):
        with torch.enable_grad():
            loss = torch.nn.functional.cross_entropy(p(input_ids=ids).logits.flatten(0, 1), targets.flatten(), ignore_index=-1)
            how.zero_grad()
            loss.backward()
        how.step()
        losses.append(loss.item())
    with open(out + "/losses", "w") as f:
        f.writelines("%.7f\n" % x for x in losses)
    print("steps: from", losses[0], "to", losses[-1], flush=True)


if __name__ == "__main__":
    T.logging.set_verbosity_error()
    T.logging.disable_progress_bar()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    with torch.no_grad():
        for name in sys.argv[1:] or list(cases) + ["steps"]:
            steps() if name == "steps" else make(name)
