"""Says what each key of the families' config.json does: changes, deletes and nulls one at a time, and stores the loss that transformers computes.

python3 make_keys.py [FAMILY...]        needs torch, transformers 5 and safetensors; writes FAMILY/keys beside this file

A line of FAMILY/keys is KEY, TAB, the JSON that it is given instead (`-`: the key is deleted), TAB, the loss. The first line, of the key `.`, is
the folder as it is. What transformers does not load, or lacks weights for, is left out. Weights are the folder's, or random ones.
"""
import glob
import json
import logging
import os
import shutil
import sys
import tempfile
import warnings

import torch
import transformers as T

here = os.path.dirname(os.path.abspath(__file__))
classes = {"bert": T.BertForMaskedLM, "t5": T.T5ForConditionalGeneration}
linear = {"rope_type": "linear", "factor": 4.0}
# What another folder of the family may have, beside the keys of this one.
more = {
    "rope": [("rope_scaling", linear), ("rope_scaling", {"type": "linear", "factor": 4.0}), ("rope_theta", 500.0), ("partial_rotary_factor", 0.5),
             ("rope_scaling", {"rope_type": "dynamic", "factor": 4.0}), ("sliding_window", 4), ("layer_types", ["sliding_attention"] * 2),
             ("attention_bias", True), ("mlp_bias", True)],
    "gemma3": [("sliding_window_pattern", 2), ("rope_local_base_freq", 50.0), ("final_logit_softcapping", 2.0), ("attn_logit_softcapping", 2.0)],
    "gpt2": [("n_ctx", 16)],
    "bert": [("position_embedding_type", "relative_key")],
    "deepseek": [("scoring_func", "softmax"), ("topk_method", "greedy"), ("n_group", 2)],
}
families = {"llama": "rope", "llama_tied": "rope", "qwen2": "rope", "qwen3": "rope", "mistral": "rope", "mixtral": "rope", "gemma2": "rope",
            "gemma3": "rope", "deepseek": "rope", "gpt2": "", "bert": "", "t5": "", "mamba2": "",
            **{"small/" + x: "rope" for x in ("phi3", "qwen3moe", "gptoss", "olmo2", "granite", "glm4", "smollm3", "starcoder2", "neox",
                                              "falcon", "falcon40", "opt", "phi", "cohere")}}
other_words = {"silu": "gelu", "gelu": "relu", "gelu_new": "relu", "gelu_pytorch_tanh": "relu", "gated-gelu": "relu", "float32": "bfloat16"}
for_null = {"sliding_window": 4, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 2.0, "head_dim": 32, "n_inner": 100, "pad_token_id": 1,
            "use_bidirectional_attention": True, "summary_activation": "tanh", "classifier_dropout": 0.5}


def others(key, value):
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return sorted({value + 1, value * 2}) if value else [1]
    if isinstance(value, float):
        return [value * 2 if value else 0.5]
    if isinstance(value, str):
        return [other_words.get(value, "x")]
    if isinstance(value, list):
        flip = {"full_attention": "sliding_attention", "sliding_attention": "full_attention"}
        if key == "time_step_limit":
            return [[0.01, 0.02]]
        return [[flip.get(x, "x") if isinstance(x, str) else 7 for x in value]]
    return [for_null[key]] if key in for_null else []


def changes(name, config):
    """Pairs of a top-level key and what it becomes; None stands for null, `deleted` for none."""
    out = []
    for key, value in sorted(config.items()):
        if isinstance(value, dict):
            for inner, v in sorted(value.items()):
                if isinstance(v, dict):
                    for k, x in sorted(v.items()):
                        out += [(key, dict(value, **{inner: dict(v, **{k: y})})) for y in others(k, x)]
                        out.append((key, dict(value, **{inner: {a: b for a, b in v.items() if a != k}})))
                out += [(key, dict(value, **{inner: y})) for y in others(inner, v)]
                # A map cannot say that one of several keys must be there: without its type, scaling counts as the family's.
                if not (name in ("llama_tied", "small/gptoss") and inner == "rope_type"):
                    out.append((key, {a: b for a, b in value.items() if a != inner}))
            if "full_attention" in value:
                out.append((key, dict(value, full_attention=dict(value["full_attention"], **linear))))
            elif "rope_type" in value:
                out.append((key, dict(value, **linear)))
                out.append((key, dict(value, rope_type="yarn", factor=4.0, original_max_position_embeddings=8)))
        else:
            out += [(key, y) for y in others(key, value)]
        if value is not None:
            out.append((key, None))
        out.append((key, deleted))
    out += [x for x in more.get(families[name], []) if x[0] not in config]
    out += [x for x in more.get(name, []) if x[0] not in config]
    return out


deleted = object()
ids = torch.randint(3, 300, (2, 16), generator=torch.Generator().manual_seed(5))


def loss_of(cls, folder):
    try:
        m, info = cls.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
        if info["missing_keys"] or info["mismatched_keys"]:
            return "refused"
        with torch.no_grad():
            decoder = {"decoder_input_ids": ids} if cls is classes["t5"] else {}
            loss = m.eval()(input_ids=ids, labels=ids, **decoder).loss
        return "%.9g" % loss if torch.isfinite(loss) else "refused"
    except Exception:  # whatever it is that transformers says of such a folder
        return "refused"


def make(name):
    source, work = os.path.join(here, name), tempfile.mkdtemp()
    text = open(source + "/config.json").read()
    config = json.loads(text)
    cls = classes.get(name, T.AutoModelForCausalLM)
    if not glob.glob(source + "/model*.safetensors"):
        shutil.copy(source + "/config.json", work)
        torch.manual_seed(1234)
        cfg = T.AutoConfig.from_pretrained(work)
        m = (cls(cfg) if name in classes else cls.from_config(cfg)).float()
        noise = torch.Generator().manual_seed(99)
        with torch.no_grad():
            for p in m.parameters():
                p.add_(torch.randn(p.shape, generator=noise) * (0.05 if p.dim() > 1 else 0.1))
        m.save_pretrained(work)
    else:
        for f in glob.glob(source + "/model*"):
            shutil.copy(f, work)

    def put(c):
        with open(work + "/config.json", "w") as f:
            json.dump(c, f)
        return loss_of(cls, work)

    with open(source + "/keys", "w") as f:
        f.write(".\t.\t%s\n" % put(config))
        for key, value in changes(name, config):
            changed = {k: v for k, v in config.items() if k != key}
            if value is not deleted:
                changed[key] = value
            loss = put(changed)
            if loss != "refused":
                f.write("%s\t%s\t%s\n" % (key, "-" if value is deleted else json.dumps(value), loss))
    shutil.rmtree(work)


if __name__ == "__main__":
    T.logging.set_verbosity_error()
    logging.disable(logging.CRITICAL)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    for family in sys.argv[1:] or families:
        make(family)
        print(family)
