"""Makes the folders here: tiny random models of five families, with the logits and the loss that transformers computes.

python3 make_folders.py OUT        needs torch, transformers 5 and safetensors
"""
import os
import struct
import sys

import torch
import transformers as T
from safetensors.torch import save_file

WORDS, WIDTH, LAYERS = 300, 64, 2
base = dict(vocab_size=WORDS, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=4, num_key_value_heads=2,
            intermediate_size=96, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2,
            attn_implementation="eager")
scaled = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)
families = {
    "llama": (T.LlamaConfig, T.LlamaForCausalLM,
              dict(base, tie_word_embeddings=False, rms_norm_eps=1e-5, rope_theta=10000.0)),
    "llama_tied": (T.LlamaConfig, T.LlamaForCausalLM,
                   dict(base, tie_word_embeddings=True, rms_norm_eps=1e-5, rope_parameters=scaled)),
    "qwen2": (T.Qwen2Config, T.Qwen2ForCausalLM,
              dict(base, tie_word_embeddings=True, rms_norm_eps=1e-6, rope_theta=1000000.0)),
    "qwen3": (T.Qwen3Config, T.Qwen3ForCausalLM,
              dict(base, tie_word_embeddings=True, head_dim=32, rms_norm_eps=1e-6, rope_theta=1000000.0)),
    "gpt2": (T.GPT2Config, T.GPT2LMHeadModel,
             dict(vocab_size=WORDS, n_embd=WIDTH, n_layer=LAYERS, n_head=4, n_positions=32, resid_pdrop=0.0,
                  embd_pdrop=0.0, attn_pdrop=0.0, attn_implementation="eager", bos_token_id=0, eos_token_id=0)),
}


def make(name, out):
    config, model, sizes = families[name]
    torch.manual_seed(1234)
    m = model(config(**sizes)).float().eval()
    noise = torch.Generator().manual_seed(99)
    ids = torch.randint(3, WORDS, (2, 16), generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        for p in m.parameters():
            p.add_(torch.randn(p.shape, generator=noise) * (0.05 if p.dim() > 1 else 0.1))
        o = m(input_ids=ids, labels=ids)
    m.save_pretrained(out, max_shard_size="250KB" if name == "llama" else "50GB")
    save_file({"logits": o.logits.float().contiguous()}, out + "/logits.safetensors", metadata={"format": "pt"})
    with open(out + "/loss", "w") as f:
        f.write("%.9g\n" % o.loss)
    with open(out + "/records.i32", "wb") as f:
        for row in ids.tolist():
            f.write(struct.pack("<32i", *row, *row[1:], -1))


for name in families:
    os.makedirs(os.path.join(sys.argv[1], name))
    make(name, os.path.join(sys.argv[1], name))
    print(name)
