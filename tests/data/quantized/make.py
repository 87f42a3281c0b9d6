#!/usr/bin/env python3
"""Writes the folders beside this file: for each kind of quantized weights one as its program publishes it, and in
values.safetensors the numbers that it stands for, computed here from codes, zero points and scales before they are packed.

The ways of packing are written down anew from the programs' descriptions:

  awq     AutoAWQ, awq/utils/packing_utils.py: eight codes of a row [in] are in a word in the order 0 2 4 6 1 3 5 7
  gptq    AutoGPTQ, auto_gptq/nn_modules/qlinear: codes of a column in a word, in order; checkpoint_format gptq stores
          zero points less one
  ct      compressed-tensors, compressors/quantized_compressors/pack_quantized.py: codes of a row in a word, each plus
          half of all; zero points of a column
  fp8     DeepSeek-V3's inference/kernel.py: a code times weight_scale_inv of its block
  mxfp4   transformers/integrations/mxfp4.py, convert_moe_packed_tensors
  bnb     bitsandbytes/functional.py, quantize_4bit and int8_vectorwise_quant

    python3 make.py          needs nothing but Python"""
import json, math, os, random, struct

HERE = os.path.dirname(os.path.abspath(__file__))
f32 = lambda x: struct.unpack('<f', struct.pack('<f', x))[0]
turn = lambda m: [list(r) for r in zip(*m)]


def tensor(kind, shape, values):
    """A tensor of numbers by the type's name; shape [] is one number."""
    form = {'I32': 'i', 'U8': 'B', 'I8': 'b', 'F16': 'e', 'F32': 'f', 'I64': 'q'}
    flat = [v for r in values for v in (r if isinstance(r, list) else [r])]
    if kind == 'I32':
        flat = [v - (1 << 32) if v >= 1 << 31 else v for v in flat]
    if kind == 'BF16':
        data = b''.join(struct.pack('<f', v)[2:] for v in flat)
    elif kind.startswith('F8'):
        data = bytes(flat)
    else:
        data = struct.pack('<%d%s' % (len(flat), form[kind]), *flat)
    return kind, list(shape), data


def matrix(kind, m):
    return tensor(kind, [len(m), len(m[0])], m)


def save(path, tensors):
    head, at = {}, 0
    for name, (kind, shape, data) in tensors.items():
        head[name] = {'dtype': kind, 'shape': shape, 'data_offsets': [at, at + len(data)]}
        at += len(data)
    text = json.dumps(head, separators=(',', ':')).encode()
    text += b' ' * (-len(text) % 8)
    with open(path, 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text + b''.join(d for _, _, d in tensors.values()))


def folder(name, config, tensors, values):
    """values: name -> (shape, numbers)."""
    d = os.path.join(HERE, name)
    os.makedirs(d, exist_ok=True)
    tensors['plain.weight'] = tensor('BF16', [4], [1, -2, 0.5, 3])
    values['plain.weight'] = ([4], [1, -2, 0.5, 3])
    with open(os.path.join(d, 'config.json'), 'w') as f:
        json.dump({'quantization_config': config}, f, indent=1)
        f.write('\n')
    save(os.path.join(d, 'model.safetensors'), tensors)
    save(os.path.join(d, 'values.safetensors'), {k: tensor('F32', s, v) for k, (s, v) in values.items()})


# ---- integers ----------------------------------------------------------------------------------------------------------

def codes(rnd, out, cols, bits, group, even=False):
    """Codes [out][in], zero points and scales [out][groups]; scales are exact in 16 bits."""
    groups = -(-cols // group)
    q = [[rnd.randrange(1 << bits) for _ in range(cols)] for _ in range(out)]
    z = [[1 << (bits - 1) if even else rnd.randrange(1, 1 << bits) for _ in range(groups)] for _ in range(out)]
    s = [[rnd.randrange(1, 200) / 4096 for _ in range(groups)] for _ in range(out)]
    return q, z, s


def numbers(q, z, s, group):
    return [[f32((q[r][c] - z[r][c // group]) * s[r][c // group]) for c in range(len(q[0]))] for r in range(len(q))]


def words(m, bits, order=None):
    """Numbers of each row in words; order: which number is in which part of a word."""
    n = 32 // bits
    order = order or range(n)
    return [[sum((r[k + order[i]] if k + order[i] < len(r) else 0) << (bits * i) for i in range(n)) for k in range(0, len(r), n)] for r in m]


def awq(rnd):
    q, z, s = codes(rnd, 24, 96, 4, 32)
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    t = {'w.qweight': matrix('I32', words(turn(q), 4, order)), 'w.qzeros': matrix('I32', words(turn(z), 4, order)),
         'w.scales': matrix('F16', turn(s))}
    folder('awq', {'quant_method': 'awq', 'bits': 4, 'group_size': 32, 'zero_point': True, 'version': 'gemm', 'modules_to_not_convert': ['plain']},
           t, {'w.weight': ([24, 96], numbers(q, z, s, 32))})


def gptq(rnd, name, bits, group, form, even):
    out, cols = 32, 64
    each = group if group > 0 else cols
    q, z, s = codes(rnd, out, cols, bits, each, even)
    less = 1 if form == 'gptq' else 0
    kept = [[(v - less) % (1 << bits) for v in r] for r in turn(z)]
    t = {'w.qweight': matrix('I32', turn(words(q, bits))), 'w.qzeros': matrix('I32', words(kept, bits)), 'w.scales': matrix('F16', turn(s)),
         'w.g_idx': tensor('I32', [cols], [c // each for c in range(cols)]), 'w.bias': tensor('F16', [out], [0.5] * out)}
    folder(name, {'quant_method': 'gptq', 'bits': bits, 'group_size': group, 'desc_act': False, 'sym': even, 'checkpoint_format': form},
           t, {'w.weight': ([out, cols], numbers(q, z, s, each)), 'w.bias': ([out], [0.5] * out)})


def ct_config(form, **weights):
    return {'quant_method': 'compressed-tensors', 'format': form, 'ignore': ['plain'],
            'config_groups': {'group_0': {'targets': ['Linear'], 'weights': weights}}}


def ct(rnd, name, bits, group, even):
    """group 0: a scale of each row."""
    out, cols = 20, 72                       # neither is whole words of zero points, or of groups
    each = group or cols
    q, z, s = codes(rnd, out, cols, bits, each, even)
    t = {'w.weight_packed': matrix('I32', words(q, bits)), 'w.weight_scale': matrix('BF16' if even else 'F16', s), 'w.weight_shape': tensor('I64', [2], [out, cols])}
    if even:                                 # scales of 16 bits with 8 bits of fraction
        s = [[f32(int(v * 4096) % 128 / 1024 + 1 / 1024) for v in r] for r in s]
        t['w.weight_scale'] = matrix('BF16', s)
    else:
        t['w.weight_zero_point'] = matrix('I32', turn(words(turn(z), bits)))
    folder(name, ct_config('pack-quantized', num_bits=bits, type='int', symmetric=even, strategy='group' if group else 'channel', group_size=group or None),
           t, {'w.weight': ([out, cols], numbers(q, z, s, each))})


def ct_bytes(rnd):
    """W8A8: bytes with a sign, a scale of each row."""
    out, cols = 12, 20
    q = [[rnd.randrange(-128, 128) for _ in range(cols)] for _ in range(out)]
    s = [[rnd.randrange(1, 99) / 8192] for _ in range(out)]
    folder('ct-bytes', ct_config('int-quantized', num_bits=8, type='int', symmetric=True, strategy='channel'),
           {'w.weight': matrix('I8', q), 'w.weight_scale': matrix('F32', s), 'w.input_scale': tensor('F32', [1], [0.5])},
           {'w.weight': ([out, cols], [[f32(v * s[r][0]) for v in q[r]] for r in range(out)])})


# ---- floats ------------------------------------------------------------------------------------------------------------

def e4m3(c):
    e, m = c >> 3 & 15, c & 7
    return (-1 if c & 128 else 1) * (m * 2.0 ** -9 if e == 0 else (8 + m) * 2.0 ** (e - 10))


def e5m2(c):
    e, m = c >> 2 & 31, c & 3
    return (-1 if c & 128 else 1) * (m * 2.0 ** -16 if e == 0 else (4 + m) * 2.0 ** (e - 17))


def f8(rnd, out, cols, two=False):
    """Codes of finite numbers."""
    return [[rnd.choice([c for c in range(256) if (c & 124 != 124 if two else c & 127 != 127)]) for _ in range(cols)] for _ in range(out)]


def fp8_blocks(rnd):
    out, cols, down, across = 40, 50, 16, 32
    q = f8(rnd, out, cols)
    s = [[f32(rnd.random() / 100) for _ in range(-(-cols // across))] for _ in range(-(-out // down))]
    folder('fp8-blocks', {'quant_method': 'fp8', 'fmt': 'e4m3', 'activation_scheme': 'dynamic', 'weight_block_size': [down, across], 'modules_to_not_convert': ['plain']},
           {'w.weight': matrix('F8_E4M3', q), 'w.weight_scale_inv': matrix('F32', s)},
           {'w.weight': ([out, cols], [[f32(e4m3(q[r][c]) * s[r // down][c // across]) for c in range(cols)] for r in range(out)])})


def fp8_tensor(rnd):
    q, s = f8(rnd, 6, 10, True), f32(0.013)
    folder('fp8-tensor', {'quant_method': 'fp8', 'activation_scheme': 'static'},
           {'w.weight': matrix('F8_E5M2', q), 'w.weight_scale': tensor('F32', [], [s]), 'w.input_scale': tensor('F32', [], [1])},
           {'w.weight': ([6, 10], [[f32(e5m2(c) * s) for c in r] for r in q])})


def ct_f8(rnd):
    q = f8(rnd, 9, 14)
    s = [[f32(rnd.random() / 64)] for _ in q]
    folder('ct-f8', ct_config('float-quantized', num_bits=8, type='float', symmetric=True, strategy='channel'),
           {'w.weight': matrix('F8_E4M3', q), 'w.weight_scale': matrix('F32', s), 'kv.k_scale': tensor('F32', [1], [1])},
           {'w.weight': ([9, 14], [[f32(e4m3(c) * s[r][0]) for c in q[r]] for r in range(9)])})


def mxfp4(rnd):
    """Experts' rows lie one after the other; a model has [expert, in, rows]."""
    value = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    experts, rows, cols = 2, 6, 96
    q = [[[rnd.randrange(16) for _ in range(cols)] for _ in range(rows)] for _ in range(experts)]
    p = [[[rnd.randrange(110, 135) for _ in range(cols // 32)] for _ in range(rows)] for _ in range(experts)]
    n = [[[(-1 if c & 8 else 1) * value[c & 7] * 2.0 ** (p[e][r][i // 32] - 127) for i, c in enumerate(q[e][r])] for r in range(rows)] for e in range(experts)]
    data = [a | b << 4 for x in q for r in x for a, b in zip(r[::2], r[1::2])]
    folder('mxfp4', {'quant_method': 'mxfp4', 'modules_to_not_convert': ['plain']},
           {'x.down_proj_blocks': tensor('U8', [experts, rows, cols // 32, 16], data), 'x.down_proj_scales': tensor('U8', [experts, rows, cols // 32], [v for x in p for r in x for v in r])},
           {'x.down_proj': ([experts, cols, rows], [v for x in n for r in turn(x) for v in r])})


# ---- bitsandbytes ------------------------------------------------------------------------------------------------------

def bnb_bytes(rnd):
    q = [[rnd.randrange(-127, 128) for _ in range(18)] for _ in range(7)]
    most = [f32(rnd.random()) for _ in q]
    folder('bnb-bytes', {'quant_method': 'bitsandbytes', 'load_in_8bit': True},
           {'w.weight': matrix('I8', q), 'w.SCB': tensor('F32', [7], most), 'w.weight_format': tensor('U8', [], [0])},
           {'w.weight': ([7, 18], [[f32(v * most[r] / 127) for v in q[r]] for r in range(7)])})


NF4 = [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
       0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0]


def bnb_nf4(rnd, name, nested):
    out, cols, block, outer = 30, 44, 64, 8
    n = out * cols
    q = [rnd.randrange(16) for _ in range(n)]
    blocks = -(-n // block)
    state = {'quant_type': 'nf4', 'blocksize': block, 'dtype': 'bfloat16', 'shape': [out, cols]}
    t = {'w.weight': tensor('U8', [n // 2, 1], [a << 4 | b for a, b in zip(q[::2], q[1::2])]), 'w.weight.quant_map': tensor('F32', [16], NF4)}
    if nested:
        table = [f32((i - 127) / 128) for i in range(256)]
        c, o, plus = [rnd.randrange(256) for _ in range(blocks)], [f32(rnd.random() / 50) for _ in range(-(-blocks // outer))], f32(0.03125)
        most = [f32(f32(table[c[i]] * o[i // outer]) + plus) for i in range(blocks)]
        state.update(nested_blocksize=outer, nested_dtype='float32', nested_offset=plus)
        t.update({'w.weight.absmax': tensor('U8', [blocks], c), 'w.weight.nested_absmax': tensor('F32', [len(o)], o), 'w.weight.nested_quant_map': tensor('F32', [256], table)})
    else:
        most = [f32(rnd.random()) for _ in range(blocks)]
        t['w.weight.absmax'] = tensor('F32', [blocks], most)
    text = json.dumps(state).encode()
    t['w.weight.quant_state.bitsandbytes__nf4'] = tensor('U8', [len(text)], list(text))
    folder(name, {'quant_method': 'bitsandbytes', 'load_in_4bit': True, 'bnb_4bit_quant_type': 'nf4', 'bnb_4bit_use_double_quant': nested},
           t, {'w.weight': ([out, cols], [f32(f32(NF4[q[i]]) * most[i // block]) for i in range(n)])})


# ---- a model -----------------------------------------------------------------------------------------------------------

WIDTH, INNER, HEADS, HD, WORDS, LAYERS, GROUP = 32, 64, 2, 16, 258, 2, 32
PRODUCTS = {'self_attn.q_proj': (HEADS * HD, WIDTH), 'self_attn.k_proj': (HD, WIDTH), 'self_attn.v_proj': (HD, WIDTH), 'self_attn.o_proj': (WIDTH, HEADS * HD),
            'mlp.gate_proj': (INNER, WIDTH), 'mlp.up_proj': (INNER, WIDTH), 'mlp.down_proj': (WIDTH, INNER)}
CONFIG = {'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'vocab_size': WORDS, 'hidden_size': WIDTH, 'intermediate_size': INNER, 'num_hidden_layers': LAYERS,
          'num_attention_heads': HEADS, 'num_key_value_heads': 1, 'head_dim': HD, 'hidden_act': 'silu', 'attention_bias': False, 'mlp_bias': False, 'rms_norm_eps': 1e-05,
          'rope_theta': 10000.0, 'rope_scaling': None, 'tie_word_embeddings': True, 'torch_dtype': 'float32', 'max_position_embeddings': 256}


def llama_tensors(rnd):
    """Tensors that are not quantized, and codes with zero points and scales of the others: powers of two, so that all values are
    numbers of bf16."""
    some = lambda n, scale, plus=0: [rnd.randrange(-64, 64) * scale + plus for _ in range(n)]
    plain = {'model.embed_tokens.weight': ([WORDS, WIDTH], some(WORDS * WIDTH, 2 ** -6)), 'model.norm.weight': ([WIDTH], some(WIDTH, 2 ** -7, 1))}
    coded = {}
    for i in range(LAYERS):
        for norm in ('input_layernorm', 'post_attention_layernorm'):
            plain['model.layers.%d.%s.weight' % (i, norm)] = ([WIDTH], some(WIDTH, 2 ** -7, 1))
        for name, (out, cols) in PRODUCTS.items():
            q, z, s = codes(rnd, out, cols, 4, GROUP, True)
            coded['model.layers.%d.%s' % (i, name)] = q, z, [[2.0 ** -rnd.randrange(4, 7) for _ in r] for r in s]
    return plain, coded


def model(name, more, tensors):
    """A folder of its own, which has config.json and weights."""
    d = os.path.join(HERE, name)
    os.makedirs(d, exist_ok=True)
    with open(os.path.join(d, 'config.json'), 'w') as f:
        json.dump(dict(CONFIG, **more), f, indent=1)
        f.write('\n')
    save(os.path.join(d, 'model.safetensors'), tensors)


def llama(rnd):
    plain, coded = llama_tensors(rnd)
    rest = {k: tensor('BF16', s, v) for k, (s, v) in plain.items()}
    model('../quantized_llama/plain', {}, dict(rest, **{k + '.weight': matrix_of(numbers(q, z, s, GROUP)) for k, (q, z, s) in coded.items()}))
    order, t = (0, 2, 4, 6, 1, 3, 5, 7), dict(rest)
    for k, (q, z, s) in coded.items():
        t.update({k + '.qweight': matrix('I32', words(turn(q), 4, order)), k + '.qzeros': matrix('I32', words(turn(z), 4, order)), k + '.scales': matrix('F16', turn(s))})
    model('../quantized_llama/awq', {'quantization_config': {'quant_method': 'awq', 'bits': 4, 'group_size': GROUP, 'zero_point': True, 'version': 'gemm'}}, t)
    t = dict(rest)
    for k, (q, z, s) in coded.items():
        t.update({k + '.weight_packed': matrix('I32', words(q, 4)), k + '.weight_scale': matrix('F16', s), k + '.weight_shape': tensor('I64', [2], [len(q), len(q[0])])})
    config = ct_config('pack-quantized', num_bits=4, type='int', symmetric=True, strategy='group', group_size=GROUP)
    model('../quantized_llama/ct', {'quantization_config': config}, t)


def matrix_of(m):
    return tensor('BF16', [len(m), len(m[0])], m)


if __name__ == '__main__':
    rnd = random.Random(5)
    awq(rnd)
    gptq(rnd, 'gptq', 4, 32, 'gptq', False)
    gptq(rnd, 'gptq-even', 4, 16, 'gptq', True)
    gptq(rnd, 'gptq-v2', 4, -1, 'gptq_v2', False)
    gptq(rnd, 'gptq-8', 8, 32, 'gptq', False)
    gptq(rnd, 'gptq-2', 2, 16, 'gptq_v2', False)
    ct(rnd, 'ct', 4, 32, True)
    ct(rnd, 'ct-zeros', 4, 16, False)
    ct(rnd, 'ct-8', 8, 0, True)
    ct_bytes(rnd)
    ct_f8(rnd)
    fp8_blocks(rnd)
    fp8_tensor(rnd)
    mxfp4(rnd)
    bnb_bytes(rnd)
    bnb_nf4(rnd, 'bnb-nf4', False)
    bnb_nf4(rnd, 'bnb-nf4-nested', True)
    llama(random.Random(6))
