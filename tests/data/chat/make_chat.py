#!/usr/bin/env python3
"""Makes what is beside it: a small chat model as a folder of the Hugging Face hub, conversations, and what transformers loses on them.

    python3 make_chat.py          (torch 2.15.0, transformers 5.24.0, tokenizers 0.23.3; CPU, f32, one thread)

losses.jsonl has the loss of 20 steps of a full fine-tune, the norm of its gradients and how many tokens are learned: steps of 8 conversations in the order of the file, begun again at its
end; AdamW with the numbers of `HOW`, without decay; the loss is the sum over all learned tokens of a step divided by their number, which is what TRL's
SFTTrainer has (assistant_only_loss, num_items_in_batch). Which tokens are learned says the template's {% generation %}. Conversations of a step are
padded to the longest; nothing of a pad is asked for, and attention is causal, so that it changes nothing.
"""
import json, os, random
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, decoders, trainers
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, 'model')
HOW = {'batch': 8, 'steps': 20, 'lr': 1e-3, 'b1': 0.9, 'b2': 0.95, 'eps': 1e-6}
TEMPLATE = """{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\\n' }}
{%- if m.role == 'assistant' %}{% generation %}{{ m.content + '<|im_end|>\\n' }}{% endgeneration %}
{%- else %}{{ m.content + '<|im_end|>\\n' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}
"""


def conversations():
    r = random.Random(1)
    ask = lambda a, b: {'role': 'user', 'content': '%d + %d = ?' % (a, b)}
    say = lambda n: {'role': 'assistant', 'content': 'It is %d.' % n}
    out = [[ask(2, 3), say(5)]]
    while len(out) < 48:
        a, b, c = (r.randrange(10) for _ in range(3))
        talk = [ask(a, b), say(a + b)]
        if r.random() < 0.3:
            talk.insert(0, {'role': 'system', 'content': 'Add numbers. Be brief.'})
        if r.random() < 0.4:
            talk += [{'role': 'user', 'content': 'And %d more?' % c}, say(a + b + c)]
        out.append(talk)
    return out


def make_model(talks):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    marks = ['<|endoftext|>', '<|im_start|>', '<|im_end|>']
    t.train_from_iterator([m['content'] + '\n' + m['role'] for x in talks for m in x], trainers.BpeTrainer(
        vocab_size=300, special_tokens=marks, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    fast = PreTrainedTokenizerFast(tokenizer_object=t, eos_token='<|im_end|>', pad_token='<|endoftext|>', clean_up_tokenization_spaces=False)
    fast.chat_template = TEMPLATE
    fast.save_pretrained(FOLDER)
    torch.manual_seed(1)
    eos = fast.convert_tokens_to_ids('<|im_end|>')
    config = LlamaConfig(vocab_size=len(fast), hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
                         max_position_embeddings=256, rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False, bos_token_id=None, eos_token_id=eos, initializer_range=0.2)
    m = LlamaForCausalLM(config)
    m.generation_config.eos_token_id = eos
    m.save_pretrained(FOLDER)


def train(talks):
    t, m = AutoTokenizer.from_pretrained(FOLDER), LlamaForCausalLM.from_pretrained(FOLDER, dtype=torch.float32)
    data = [t.apply_chat_template(x, tokenize=True, return_dict=True, return_assistant_tokens_mask=True) for x in talks]
    opt = torch.optim.AdamW(m.parameters(), lr=HOW['lr'], betas=(HOW['b1'], HOW['b2']), eps=HOW['eps'], weight_decay=0)
    out = []
    for step in range(HOW['steps']):
        batch = [data[(step * HOW['batch'] + i) % len(data)] for i in range(HOW['batch'])]
        longest = max(len(x['input_ids']) for x in batch)
        ids = torch.tensor([x['input_ids'] + [0] * (longest - len(x['input_ids'])) for x in batch])
        labels = torch.tensor([[i if k else -100 for i, k in zip(x['input_ids'], x['assistant_masks'])] + [-100] * (longest - len(x['input_ids'])) for x in batch])
        logits = m(input_ids=ids).logits[:, :-1].reshape(-1, len(t))
        loss = torch.nn.functional.cross_entropy(logits, labels[:, 1:].reshape(-1), ignore_index=-100)      # the mean over all that are learned
        opt.zero_grad()
        loss.backward()
        norm = torch.sqrt(sum((p.grad ** 2).sum() for p in m.parameters()))
        opt.step()
        out.append({'step': step + 1, 'loss': float(loss.detach()), 'grad_norm': float(norm), 'targets': int((labels[:, 1:] >= 0).sum())})
    return out


if __name__ == '__main__':
    torch.set_num_threads(1)
    talks = conversations()
    with open(os.path.join(HERE, 'chats.jsonl'), 'w') as f:
        for x in talks:
            f.write(json.dumps({'messages': x}) + '\n')
    make_model(talks)
    with open(os.path.join(HERE, 'losses.jsonl'), 'w') as f:
        for x in train(talks):
            f.write(json.dumps(x) + '\n')
