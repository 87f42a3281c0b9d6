#!/usr/bin/env python3
"""Writes GGUF files with llama.cpp's own Python package (`pip install gguf`, 0.19), and in blocks.safetensors what that package
says the blocks of blocks.gguf stand for. model.gguf is the model of ../quantized_llama/plain, and gemma3.gguf that of
../hf/small/gemma3, converted as convert_hf_to_gguf.py does it: of the first rows of queries and keys are in pairs. heads/ has files without weights, for their config alone."""
import json, math, os, struct, sys
import numpy as np
import gguf
from gguf import GGMLQuantizationType as T

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'quantized'))
import make as other

# scales that are f16, by where they lie in a block: the other bytes may be anything
HALVES = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q2_K: [80, 82], T.Q3_K: [108], T.Q4_K: [0, 2], T.Q5_K: [0, 2],
          T.Q6_K: [208], T.IQ4_NL: [0], T.IQ4_XS: [0]}


def blocks(rnd):
    w = gguf.GGUFWriter(os.path.join(HERE, 'blocks.gguf'), 'llama')
    w.add_block_count(1)
    values = {}
    for kind in HALVES:
        size, each = gguf.GGML_QUANT_SIZES[kind]
        rows, cols = 3, 512
        raw = rnd.integers(0, 256, (rows * cols // size, each), dtype=np.uint8)
        for at in HALVES[kind]:
            raw[:, at:at + 2] = rnd.normal(0, 0.02, (len(raw), 1)).astype(np.float16).view(np.uint8)
        raw = raw.reshape(rows, -1)
        name = 'some.' + kind.name.lower()
        values[name] = gguf.dequantize(raw, kind)
        w.add_tensor(name, raw, raw_dtype=kind)
    x = rnd.normal(0, 1, (3, 40)).astype(np.float32)
    for kind, data in ((T.F32, x), (T.F16, x.astype(np.float16)), (T.BF16, gguf.quantize(x, T.BF16))):
        values['some.' + kind.name.lower()] = gguf.dequantize(data, kind).astype(np.float32)
        w.add_tensor('some.' + kind.name.lower(), data, raw_dtype=kind)
    close(w)
    other.save(os.path.join(HERE, 'blocks.safetensors'), {k: ('F32', list(v.shape), v.astype('<f4').tobytes()) for k, v in values.items()})


def close(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def numbers(path):
    """Tensors of a safetensors file of BF16, as f32."""
    with open(path, 'rb') as f:
        n = struct.unpack('<Q', f.read(8))[0]
        head = json.loads(f.read(n))
        data = f.read()
    out = {}
    for name, t in head.items():
        if name == '__metadata__':
            continue
        at, end = t['data_offsets']
        out[name] = (np.frombuffer(data[at:end], '<u2').astype(np.uint32) << 16).view(np.float32).reshape(t['shape'])
    return out


def paired(x, heads):
    """As convert_hf_to_gguf.py's permute."""
    return x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


NAMES = {'input_layernorm': 'attn_norm', 'post_attention_layernorm': 'ffn_norm', 'self_attn.q_proj': 'attn_q', 'self_attn.k_proj': 'attn_k', 'self_attn.v_proj': 'attn_v',
         'self_attn.o_proj': 'attn_output', 'mlp.gate_proj': 'ffn_gate', 'mlp.up_proj': 'ffn_up', 'mlp.down_proj': 'ffn_down'}


def sizes(w, layers, width, inner, heads, kv, context, base, eps=1e-5):
    w.add_block_count(layers)
    w.add_context_length(context)
    w.add_embedding_length(width)
    w.add_feed_forward_length(inner)
    w.add_head_count(heads)
    w.add_head_count_kv(kv)
    w.add_layer_norm_rms_eps(eps)
    w.add_rope_freq_base(base)


def byte_chars():
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    n = iter(range(256, 512))
    return [chr(b) if b in keep else chr(next(n)) for b in range(256)]


def model():
    w = gguf.GGUFWriter(os.path.join(HERE, 'model.gguf'), 'llama')
    sizes(w, 2, 32, 64, 2, 1, 256, 10000.0)
    w.add_rope_dimension_count(16)
    w.add_tokenizer_model('gpt2')
    w.add_tokenizer_pre('llama-bpe')
    w.add_token_list(byte_chars() + ['he', '<|end|>'])
    w.add_token_types([1] * 257 + [3])
    w.add_token_merges(['h e'])
    w.add_eos_token_id(257)
    w.add_add_bos_token(False)
    w.add_chat_template('{% for m in messages %}{{ m.content }}{% endfor %}<|end|>')
    for name, x in numbers(os.path.join(HERE, '..', 'quantized_llama', 'plain', 'model.safetensors')).items():
        if name.startswith('model.layers.'):
            layer, part = name[len('model.layers.'):-len('.weight')].split('.', 1)
            x = paired(x, 2) if part == 'self_attn.q_proj' else paired(x, 1) if part == 'self_attn.k_proj' else x
            own = 'blk.%s.%s.weight' % (layer, NAMES[part])
        else:
            own = {'model.embed_tokens.weight': 'token_embd.weight', 'model.norm.weight': 'output_norm.weight'}[name]
        if x.ndim == 1:
            w.add_tensor(own, x)
        else:
            w.add_tensor(own, gguf.quantize(x, T.BF16), raw_dtype=T.BF16)
    close(w)


def heads():
    """Files with what a config is made of, and tables of words."""
    d = os.path.join(HERE, 'heads')
    os.makedirs(d, exist_ok=True)
    table = np.zeros((6, 4), np.float32)

    w = gguf.GGUFWriter(os.path.join(d, 'llama31.gguf'), 'llama')
    sizes(w, 16, 2048, 8192, 32, 8, 131072, 500000.0)
    freqs, size = [], 64
    for i in range(size // 2):
        length = 2 * math.pi * 500000.0 ** (2 * i / size)
        part = (8192 / length - 1) / 3
        freqs.append(1 if length < 8192 / 4 else 32 if length > 8192 else 1 / ((1 - part) / 32 + part))
    w.add_tensor('token_embd.weight', table)
    w.add_tensor('rope_freqs.weight', np.array(freqs, np.float32))
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_eot_token_id(3)
    close(w)

    w = gguf.GGUFWriter(os.path.join(d, 'gemma2.gguf'), 'gemma2')
    sizes(w, 26, 2304, 9216, 8, 4, 8192, 10000.0, 1e-6)
    w.add_key_length(256)
    w.add_value_length(256)
    w.add_attn_logit_softcapping(50.0)
    w.add_final_logit_softcapping(30.0)
    w.add_sliding_window(4096)
    w.add_tensor('token_embd.weight', table)
    close(w)

    w = gguf.GGUFWriter(os.path.join(d, 'qwen3.gguf'), 'qwen3')
    sizes(w, 28, 1024, 3072, 16, 8, 40960, 1000000.0, 1e-6)
    w.add_key_length(128)
    w.add_tensor('token_embd.weight', table)
    w.add_tensor('output.weight', table)
    close(w)

    w = gguf.GGUFWriter(os.path.join(d, 'experts.gguf'), 'qwen3moe')
    sizes(w, 1, 4, 8, 2, 1, 64, 10000.0)
    w.add_expert_count(3)
    w.add_expert_used_count(2)
    w.add_expert_feed_forward_length(2)
    w.add_tensor('token_embd.weight', table)
    w.add_tensor('blk.0.ffn_gate_inp.weight', np.zeros((3, 4), np.float32))
    for i, part in enumerate(('gate', 'up', 'down')):
        shape = (3, 4, 2) if part == 'down' else (3, 2, 4)
        w.add_tensor('blk.0.ffn_%s_exps.weight' % part, (100 * i + np.arange(24, dtype=np.float32)).reshape(shape))
    close(w)

    w = gguf.GGUFWriter(os.path.join(d, 'pieces.gguf'), 'llama')
    sizes(w, 1, 8, 8, 1, 1, 64, 10000.0)
    tokens = ['<unk>', '<s>', '</s>'] + ['<0x%02X>' % b for b in range(256)] + ['\u2581', 'a', 'b', 'c', 'ab', 'bc', '\u2581a', '\u2581ab', 'abc']
    w.add_tokenizer_model('llama')
    w.add_token_list(tokens)
    w.add_token_scores([0.0] * 259 + [-9.0, -7.0, -8.0, -8.5, -2.0, -1.0, -3.0, -4.0, -5.0])
    w.add_token_types([2, 3, 3] + [6] * 256 + [1] * 9)
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_unk_token_id(0)
    w.add_tensor('token_embd.weight', np.zeros((len(tokens), 8), np.float16))
    close(w)


def gemma3():
    """The folder ../hf/small/gemma3, as convert_hf_to_gguf.py does it: 1 is added to the factors of norms. Scores are scaled as
    heads are large, for which a file has no key: in the folder they are not."""
    folder = os.path.join(HERE, '..', 'hf', 'small', 'gemma3')
    c = json.load(open(os.path.join(folder, 'config.json')))
    w = gguf.GGUFWriter(os.path.join(HERE, 'gemma3.gguf'), 'gemma3')
    sizes(w, c['num_hidden_layers'], c['hidden_size'], c['intermediate_size'], c['num_attention_heads'], c['num_key_value_heads'], c['max_position_embeddings'],
          c['rope_parameters']['full_attention']['rope_theta'], c['rms_norm_eps'])
    w.add_key_length(c['head_dim'])
    w.add_value_length(c['head_dim'])
    w.add_sliding_window(c['sliding_window'])
    w.add_tokenizer_model('gpt2')
    w.add_tokenizer_pre('gpt-2')
    w.add_token_list(byte_chars() + ['<%d>' % i for i in range(256, c['vocab_size'])])
    w.add_token_types([1] * 256 + [3] * (c['vocab_size'] - 256))
    names = dict(NAMES, **{'self_attn.q_norm': 'attn_q_norm', 'self_attn.k_norm': 'attn_k_norm', 'post_attention_layernorm': 'post_attention_norm',
                           'pre_feedforward_layernorm': 'ffn_norm', 'post_feedforward_layernorm': 'post_ffw_norm'})
    for name, x in numbers(os.path.join(folder, 'model.safetensors')).items():
        own = {'model.embed_tokens.weight': 'token_embd.weight', 'model.norm.weight': 'output_norm.weight'}.get(name)
        if not own:
            layer, part = name[len('model.layers.'):-len('.weight')].split('.', 1)
            own = 'blk.%s.%s.weight' % (layer, names[part])
        if x.ndim == 1:
            w.add_tensor(own, x + np.float32(1))
        else:
            w.add_tensor(own, gguf.quantize(np.ascontiguousarray(x), T.BF16), raw_dtype=T.BF16)
    close(w)


if __name__ == '__main__':
    blocks(np.random.default_rng(7))
    model()
    gemma3()
    heads()
