#!/usr/bin/env python3
"""Makes pairs.jsonl, dpo.safetensors and dpo.jsonl beside it: preferences, adapters to begin with, and what torch loses on them.

    python3 make_dpo.py          (torch 2.15.0, transformers 5.24.0; CPU, f32, one thread; after make_chat.py)

The loss is that of TRL's DPOTrainer (loss_type sigmoid): -logsigmoid(beta * ((log p(chosen) - log r(chosen)) - (log p(rejected) - log r(rejected)))), the
mean over pairs, where p is the model with adapters beside q_proj and v_proj, r without, and log p(answer) the sum over the answer's tokens, the one
that ends it among them. 12 steps of 4 pairs in the order of the file, AdamW of the adapters alone. dpo.safetensors has all parameters under the names of
examples/dpo.zug.
"""
import json, os, random
import torch
from safetensors.torch import save_file
from transformers import AutoTokenizer, LlamaForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
RANK, ALPHA, BETA, BATCH, STEPS = 4, 8, 0.5, 4, 12
torch.set_num_threads(1)
r = random.Random(2)
pairs = []
for _ in range(24):
    a, b = r.randrange(10), r.randrange(10)
    pairs.append({'prompt': '%d + %d = ?' % (a, b), 'chosen': 'It is %d.' % (a + b), 'rejected': r.choice(['No.', 'It is %d!' % (a + b + 1), '%d' % (a * b)])})
with open(os.path.join(HERE, 'pairs.jsonl'), 'w') as f:
    for x in pairs:
        f.write(json.dumps(x) + '\n')

t = AutoTokenizer.from_pretrained(os.path.join(HERE, 'model'))
m = LlamaForCausalLM.from_pretrained(os.path.join(HERE, 'model'), dtype=torch.float32)
m.requires_grad_(False)
torch.manual_seed(3)
adapters, on = [], [True]


def adapt(linear):
    a, b = (torch.nn.Parameter(torch.randn(*s) * 0.1) for s in ((linear.in_features, RANK), (RANK, linear.out_features)))
    adapters.append((a, b))
    forward = linear.forward
    linear.forward = lambda x: forward(x) + (x @ a * (ALPHA / RANK) @ b if on[0] else 0)


for layer in m.model.layers:
    adapt(layer.self_attn.q_proj)
    adapt(layer.self_attn.v_proj)
c = m.config
kv, grp, hd = c.num_key_value_heads, c.num_attention_heads // c.num_key_value_heads, c.head_dim
own = {'embed_in': m.model.embed_tokens.weight, 'embed_out': m.lm_head.weight, 'norm.g': m.model.norm.weight}
for i, l in enumerate(m.model.layers):
    p = 'layer.%d.' % i
    (qa, qb), (va, vb) = adapters[2 * i:2 * i + 2]
    own.update({p + 'norm1.g': l.input_layernorm.weight, p + 'norm2.g': l.post_attention_layernorm.weight,
                p + 'attn.wq': l.self_attn.q_proj.weight.T.reshape(-1, kv, grp, hd), p + 'attn.wk': l.self_attn.k_proj.weight.T.reshape(-1, kv, hd),
                p + 'attn.wv': l.self_attn.v_proj.weight.T.reshape(-1, kv, hd), p + 'attn.wo': l.self_attn.o_proj.weight.T.reshape(kv, grp, hd, -1),
                p + 'attn.q.lora_a': qa, p + 'attn.q.lora_b': qb.reshape(RANK, kv, grp, hd), p + 'attn.v.lora_a': va, p + 'attn.v.lora_b': vb.reshape(RANK, kv, hd),
                p + 'mlp.gate': l.mlp.gate_proj.weight.T, p + 'mlp.up': l.mlp.up_proj.weight.T, p + 'mlp.down': l.mlp.down_proj.weight.T})
save_file({k: v.detach().clone().contiguous() for k, v in own.items()}, os.path.join(HERE, 'dpo.safetensors'))


def logp(x, answer):
    r = t.apply_chat_template([{'role': 'user', 'content': x['prompt']}, {'role': 'assistant', 'content': x[answer]}], tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
    ids, mask = torch.tensor([r['input_ids']]), torch.tensor(r['assistant_masks'][1:])
    return (torch.log_softmax(m(input_ids=ids).logits[0, :-1], -1).gather(1, ids[0, 1:, None])[:, 0] * mask).sum()


opt = torch.optim.AdamW([p for x in adapters for p in x], lr=1e-2, betas=(0.9, 0.95), eps=1e-6, weight_decay=0)
with open(os.path.join(HERE, 'dpo.jsonl'), 'w') as f:
    for step in range(STEPS):
        loss = 0
        for k in range(BATCH):
            x = pairs[(step * BATCH + k) % len(pairs)]
            on[0] = True
            policy = logp(x, 'chosen') - logp(x, 'rejected')
            on[0] = False
            with torch.no_grad():
                reference = logp(x, 'chosen') - logp(x, 'rejected')
            loss = loss - torch.nn.functional.logsigmoid(BETA * (policy - reference)) / BATCH
        opt.zero_grad()
        loss.backward()
        norm = torch.sqrt(sum((p.grad ** 2).sum() for x in adapters for p in x))
        opt.step()
        f.write(json.dumps({'step': step + 1, 'loss': float(loss.detach()), 'grad_norm': float(norm)}) + '\n')
