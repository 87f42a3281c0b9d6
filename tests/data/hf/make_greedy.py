"""Stores what transformers writes greedily: two prompts of 8 ids each and the ids that follow, FOLDER/greedy. Of models that write no
text, and of those that write of another text, it stores what they make of records: FOLDER/records.i32, and outputs.safetensors.

python3 make_greedy.py [FOLDER...]        needs torch, transformers 5 and safetensors; writes beside this file

Folders of `small` that are not there are made first: random weights, rounded to bf16. All is computed in f32, from the folder. A line of
FOLDER/greedy is the prompt, what follows, and the log-probabilities of all these ids but the first, with commas between.

Random prompts are tried until two answers have many different ids; else those two are taken that have the most. In each the best logit is
ahead of the next one by more than 1e-3 at every step, logits of all steps are those of the whole text at once, and a model with a window
writes something else without it.
"""
import glob
import os
import sys
import warnings

import torch
import transformers as T
from safetensors.torch import load_file, save_file

here = os.path.dirname(os.path.abspath(__file__))
WORDS, PROMPT, ANSWER, TRIES, MANY, PENALTY = 300, 8, 32, 40, 16, 2.0
base = dict(vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48,
            max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)
t5 = dict(vocab_size=WORDS, initializer_factor=0.2, d_model=32, d_kv=8, d_ff=24, num_layers=2, num_heads=4, pad_token_id=0,
          relative_attention_num_buckets=8, relative_attention_max_distance=12, eos_token_id=1, decoder_start_token_id=0)
small = {
    "mistral": (T.MistralConfig, T.MistralForCausalLM, dict(base, head_dim=8, sliding_window=6, tie_word_embeddings=False)),
    "mixtral": (T.MixtralConfig, T.MixtralForCausalLM, dict(base, num_local_experts=4, num_experts_per_tok=2, intermediate_size=32)),
    "gemma3": (T.Gemma3TextConfig, T.Gemma3ForCausalLM,  # five layers with a window, one without, and one more
               dict(base, num_hidden_layers=7, num_attention_heads=2, num_key_value_heads=1, intermediate_size=32, head_dim=16,
                    query_pre_attn_scalar=12, sliding_window=6)),
    "deepseek": (T.DeepseekV3Config, T.DeepseekV3ForCausalLM,
                 dict(base, num_key_value_heads=4, moe_intermediate_size=16, q_lora_rank=12, kv_lora_rank=8, qk_nope_head_dim=8,
                      qk_rope_head_dim=4, v_head_dim=6, n_routed_experts=8, n_shared_experts=1, num_experts_per_tok=2, n_group=4,
                      topk_group=2, first_k_dense_replace=1, num_nextn_predict_layers=0)),
    "mamba2": (T.Mamba2Config, T.Mamba2ForCausalLM,
               dict(vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, num_heads=4, head_dim=16, state_size=16, n_groups=1,
                    chunk_size=8, tie_word_embeddings=True, pad_token_id=0, bos_token_id=1, eos_token_id=2)),
    "phi3": (T.Phi3Config, T.Phi3ForCausalLM,
             dict(base, sliding_window=6, tie_word_embeddings=False,
                  rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.75))),
    "qwen3moe": (T.Qwen3MoeConfig, T.Qwen3MoeForCausalLM,
                 dict(base, head_dim=16, moe_intermediate_size=16, num_experts=8, num_experts_per_tok=3, norm_topk_prob=True)),
    "gptoss": (T.GptOssConfig, T.GptOssForCausalLM,  # two pairs of layers; numbers that are clamped
               dict(base, num_hidden_layers=4, head_dim=8, intermediate_size=16, num_local_experts=4, num_experts_per_tok=2,
                    sliding_window=6, swiglu_limit=1.0,
                    rope_parameters=dict(rope_type="yarn", rope_theta=1000.0, factor=4.0, beta_fast=32.0, beta_slow=1.0,
                                         truncate=False, original_max_position_embeddings=16))),
    "olmo2": (T.Olmo2Config, T.Olmo2ForCausalLM, dict(base, rms_norm_eps=1e-6)),
    "granite": (T.GraniteConfig, T.GraniteForCausalLM,
                dict(base, embedding_multiplier=3.0, attention_multiplier=0.25, residual_multiplier=0.75, logits_scaling=2.0,
                     tie_word_embeddings=True)),
    "glm4": (T.Glm4Config, T.Glm4ForCausalLM, dict(base, head_dim=16, attention_bias=True)),
    "smollm3": (T.SmolLM3Config, T.SmolLM3ForCausalLM,  # twice three layers that turn and one that does not
                dict(base, num_hidden_layers=8, intermediate_size=24)),
    "starcoder2": (T.Starcoder2Config, T.Starcoder2ForCausalLM, dict(base, sliding_window=6)),
    "neox": (T.GPTNeoXConfig, T.GPTNeoXForCausalLM,
             dict(vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48,
                  max_position_embeddings=64, bos_token_id=1, eos_token_id=2)),
    "falcon": (T.FalconConfig, T.FalconForCausalLM,
               dict(vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, bos_token_id=1, eos_token_id=2)),
    "falcon40": (T.FalconConfig, T.FalconForCausalLM,
                 dict(vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_kv_heads=2,
                      new_decoder_architecture=True, bos_token_id=1, eos_token_id=2)),
    "opt": (T.OPTConfig, T.OPTForCausalLM,
            dict(vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=48, word_embed_proj_dim=32,
                 max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)),
    "phi": (T.PhiConfig, T.PhiForCausalLM, {k: v for k, v in base.items() if k != "num_key_value_heads"}),
    "cohere": (T.CohereConfig, T.CohereForCausalLM, dict(base, use_qk_norm=True, logit_scale=0.5)),
    "llamalora": (T.LlamaConfig, T.LlamaForCausalLM, dict(base, rms_norm_eps=1e-5)),
    "minilm": (T.BertConfig, T.BertModel,
               dict(vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
                    max_position_embeddings=64, pad_token_id=0)),
    "t5": (T.T5Config, T.T5ForConditionalGeneration, dict(t5, feed_forward_proj="gated-gelu", tie_word_embeddings=False)),
    "t5v10": (T.T5Config, T.T5ForConditionalGeneration, dict(t5, feed_forward_proj="relu")),
}
RANK, ALPHA = 4, 8  # of llamalora


def make(name, out):
    config, model, sizes = small[name]
    torch.manual_seed(1234)
    m = model(config(**sizes)).float()
    noise = torch.Generator().manual_seed(99)
    with torch.no_grad():
        for p in m.parameters():
            p.add_(torch.randn(p.shape, generator=noise) * (0.2 if p.dim() > 1 else 0.1))
        for n, b in m.named_buffers():
            if "e_score_correction_bias" in n:
                b.add_(torch.randn(b.shape, generator=noise) * 0.05)
    m.to(torch.bfloat16).save_pretrained(out)
    if name == "llamalora":  # beside the weights adapters by the names that PEFT gives them
        file = out + "/model.safetensors"
        tensors = load_file(file)
        for n in [n for n in tensors if "q_proj" in n or "v_proj" in n]:
            path, (rows, columns) = "base_model.model." + n[:-len("weight")], tensors[n].shape
            tensors[path + "lora_A.weight"] = (torch.randn(RANK, columns, generator=noise) * 0.2).bfloat16()
            tensors[path + "lora_B.weight"] = (torch.randn(rows, RANK, generator=noise) * 0.2).bfloat16()
        save_file(tensors, file, metadata={"format": "pt"})


def adapted(folder):
    """A folder's tensors, to each what its adapter adds; None if there are no adapters."""
    tensors = {n: t.float() for f in glob.glob(folder + "/model*.safetensors") for n, t in load_file(f).items()}
    adapters = sorted(n[:-len("A.weight")] for n in tensors if n.endswith("lora_A.weight"))
    for n in adapters:
        a, b = tensors.pop(n + "A.weight"), tensors.pop(n + "B.weight")
        tensors[n[len("base_model.model."):-len("lora_")] + "weight"] += ALPHA / RANK * b @ a
    return tensors if adapters else None


def load(folder, **changes):
    config = T.AutoConfig.from_pretrained(folder)
    for k, v in changes.items():
        setattr(config, k, v)
    kind = small[os.path.basename(folder)][1] if os.path.basename(folder) in records else T.AutoModelForCausalLM
    tensors = adapted(folder)
    if tensors:
        config._attn_implementation = "eager"
        m = T.AutoModelForCausalLM.from_config(config).float()
        m.load_state_dict(tensors)
    else:
        m, info = kind.from_pretrained(folder, config=config, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
        assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info
    if m.can_generate():
        m.generation_config.eos_token_id = None
    return m.eval()


def write(m, prompt):
    """The ids that follow and log-probabilities, or None if the choice is close at a step. Of a model with an encoder, whose source the
    prompt is, log-probabilities are those of what follows alone; and as these small ones would say one word for ever, what was said is
    penalized."""
    apart_from = m.config.is_encoder_decoder
    places = getattr(m.config, "n_positions", None) or getattr(m.config, "max_position_embeddings", None) or 64
    out = m.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False,
                     max_new_tokens=ANSWER if apart_from else min(ANSWER, places - PROMPT), output_logits=True, output_scores=True,
                     return_dict_in_generate=True, repetition_penalty=PENALTY if apart_from else 1.0)
    ids, steps = out.sequences, torch.stack(out.logits, 1)
    begin = 1 if apart_from else PROMPT
    whole = (m(input_ids=prompt, decoder_input_ids=ids) if apart_from else m(input_ids=ids, use_cache=False)).logits[:, :-1]
    apart = (steps - whole[:, begin - 1:]).abs().max()
    assert apart < 1e-4, "steps differ from the whole text by %g" % apart
    best = torch.stack(out.scores, 1)[0].topk(2).values
    logs = whole.double().log_softmax(-1).gather(-1, ids[:, 1:, None])
    return (ids[0, begin:].tolist(), logs.flatten().tolist()) if (best[:, 0] - best[:, 1]).min() > 1e-3 else None


def greedy(folder):
    m = load(folder)
    far = load(folder, sliding_window=64) if getattr(m.config, "sliding_window", None) else None
    draw, found = torch.Generator().manual_seed(7), []
    for _ in range(TRIES):
        n = PROMPT + len(found) if m.config.is_encoder_decoder else PROMPT  # sources of several lengths
        prompt = torch.randint(3, WORDS, (1, n), generator=draw)
        wrote = write(m, prompt)
        if not wrote:
            continue
        there = far and write(far, prompt)
        if there and there[0] == wrote[0]:
            continue
        found = sorted(found + [(len(set(wrote[0])), prompt[0].tolist(), *wrote)], key=lambda x: -x[0])[:2]
        if sum(x[0] >= MANY for x in found) == 2:
            break
    assert len(found) == 2, "no two prompts without near ties"
    with open(folder + "/greedy", "w") as f:
        for _, prompt, answer, logs in found:
            f.write("%s %s %s\n" % (",".join(map(str, prompt)), ",".join(map(str, answer)), ",".join("%.7f" % x for x in logs)))
    print(os.path.relpath(folder, here), "different ids of each answer:", *[x[0] for x in found], flush=True)


def texts(m):
    """Two records of 16 ids, of 8 before, and of 8 targets, the last one unknown; logits and the loss."""
    draw = torch.Generator().manual_seed(5)
    source, targets = torch.randint(3, WORDS, (2, 16), generator=draw), torch.randint(3, WORDS, (2, 8), generator=draw)
    before = torch.cat([torch.zeros(2, 1, dtype=torch.long), targets[:, :-1]], 1)
    targets[:, -1] = -1
    logits = m(input_ids=source, decoder_input_ids=before).logits
    return torch.cat([source, before, targets], 1), dict(logits=logits), torch.nn.functional.cross_entropy(
        logits.flatten(0, 1).double(), targets.flatten(), ignore_index=-1)


def sentences(m):
    """Two records of pairs of 16 ids, their masks (0, or -1 where nothing is), and 0; the vectors, and the mean square of their products."""
    ids = torch.randint(3, WORDS, (2, 2, 16), generator=torch.Generator().manual_seed(5))
    mask = torch.zeros(2, 2, 16, dtype=torch.long)
    mask[0, 1, 9:] = mask[1, 0, 4:] = -1
    there = (mask + 1).flatten(0, 1)
    states = m(input_ids=ids.flatten(0, 1), attention_mask=there).last_hidden_state
    vec = torch.nn.functional.normalize((states * there[..., None]).sum(1) / there.sum(1, keepdim=True), dim=-1).view(2, 2, -1)
    return torch.cat([ids.flatten(1), mask.flatten(1), torch.zeros(2, 1, dtype=torch.long)], 1), dict(vec=vec), (
        vec[:, 0].double() * vec[:, 1]).sum(-1).square().mean()


records = {"minilm": sentences, "t5": texts, "t5v10": texts}


def outputs(folder):
    ids, out, loss = records[os.path.basename(folder)](load(folder))
    ids.to(torch.int32).numpy().tofile(folder + "/records.i32")
    save_file({n: t.contiguous() for n, t in out.items()}, folder + "/outputs.safetensors", metadata={"format": "pt"})
    with open(folder + "/loss", "w") as f:
        f.write("%.9g\n" % loss)
    print(os.path.relpath(folder, here), "loss", loss.item(), flush=True)


if __name__ == "__main__":
    T.logging.set_verbosity_error()
    T.logging.disable_progress_bar()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    for name in small:
        if not os.path.exists(os.path.join(here, "small", name)):
            make(name, os.path.join(here, "small", name))
    with torch.no_grad():
        for path in sys.argv[1:] or sorted(os.path.dirname(f) for f in glob.glob(here + "/**/config.json", recursive=True)
                                           if glob.glob(os.path.dirname(f) + "/model*.safetensors")):
            text = os.path.basename(path) not in records or "/small/" not in path
            if not text:
                outputs(path)
            if text or small[os.path.basename(path)][0]().is_encoder_decoder:
                greedy(path)
