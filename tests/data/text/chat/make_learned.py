#!/usr/bin/env python3
"""Writes learned.json: which tokens TRL learns of conversations, by the chat templates of real families.

    python3 make_learned.py TEMPLATES >learned.json      (transformers 5.24.0, jinja2 3.1.6; no torch)

TEMPLATES is the folder trl/chat_templates of https://github.com/huggingface/trl at f2cd57710ae345ea6428ae95363267fcf38a3dc8 (Apache-2.0).
It has every family's template twice: NAME.jinja as the family publishes it, and NAME_training.jinja, which marks answers by
{% generation %}, and which TRL puts in the other's place when it learns answers only. Ids and masks are those of
`SFTTrainer._prepare_dataset`, its function tokenize_fn: apply_chat_template(.., return_assistant_tokens_mask=True), and of a prompt with a
completion also those that are behind the ids of the prompt. Some blocks begin within the head of an answer, which the one who asks writes
(`add_generation_prompt`): `published` is the mask without such tokens. Tokenizers are the small ones beside this folder, with the family's markers.
"""
import json, os, sys
from transformers import PreTrainedTokenizerFast
from tokenizers import Tokenizer, AddedToken

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = sys.argv[1]
FAMILIES = {  # family: (tokenizer, markers that are special, others, bos, eos)
    'qwen2_5': ('qwen', [], ['</tool_call>'], None, '<|im_end|>'),
    'qwen3': ('qwen', [], ['</tool_call>', '<tool_response>', '</tool_response>'], None, '<|im_end|>'),
    'llama3': ('llama3', [], [], '<|begin_of_text|>', '<|eot_id|>'),
    'phi3': ('llama2', ['<|system|>', '<|user|>', '<|assistant|>', '<|end|>', '<|endoftext|>'], [], '<s>', '<|endoftext|>'),
    'gemma3': ('llama2', ['<bos>', '<start_of_turn>', '<end_of_turn>'], [], '<bos>', '<end_of_turn>'),
    'deepseekv3': ('gpt2', ['<｜begin▁of▁sentence｜>', '<｜end▁of▁sentence｜>', '<｜User｜>', '<｜Assistant｜>'], [], '<｜begin▁of▁sentence｜>', '<｜end▁of▁sentence｜>'),
    'glm4moe': ('gpt2', ['[gMASK]', '<sop>', '<|system|>', '<|user|>', '<|assistant|>', '<|observation|>'], ['<think>', '</think>', '/nothink'], None, '<|endoftext|>'),
    'gptoss': ('gpt2', ['<|start|>', '<|end|>', '<|message|>', '<|channel|>', '<|return|>', '<|call|>'], [], None, '<|return|>'),
}
TOOLS = [{'type': 'function', 'function': {'name': 'look', 'description': 'Look at the weather', 'parameters': {'type': 'object', 'properties': {'city': {'type': 'string'}}, 'required': ['city']}}}]
u1, a1 = {'role': 'user', 'content': 'Hi there'}, {'role': 'assistant', 'content': 'Grüße, Ada! 2 + 2 = 4.'}
u2, a2 = {'role': 'user', 'content': 'And 3?\nSay it.'}, {'role': 'assistant', 'content': 'It is 3'}
think = {'role': 'assistant', 'content': 'So it is 4.', 'reasoning_content': 'two and two'}
call = {'role': 'assistant', 'content': '', 'tool_calls': [{'type': 'function', 'function': {'name': 'look', 'arguments': {'city': 'Zürich'}}}]}
TALKS = {
    'one turn': [u1, a1],
    'two turns': [u1, a1, u2, a2],
    'a system message': [{'role': 'system', 'content': 'Be brief.'}, u1, a1, u2, a2],
    'no answer at the end': [u1, a1, u2],
    'white space': [{'role': 'user', 'content': ' x \n'}, {'role': 'assistant', 'content': '\n y\n\n'}, u2, {'role': 'assistant', 'content': 'end.'}],
    'reasoning': [u1, think],
    'reasoning that is dropped': [u1, think, u2, a2],
}
TOOL_TALKS = {'a tool': [u1, call, {'role': 'tool', 'name': 'look', 'content': 'rain'}, a2, u2, a1]}
WITH_TOOLS = ('qwen2_5', 'qwen3', 'glm4moe')
NO_REASONING = ('llama3', 'phi3', 'gemma3', 'qwen2_5')


def tokenizer(base, special, others, bos, eos):
    t = Tokenizer.from_file(os.path.join(HERE, '..', base, 'tokenizer.json'))
    t.add_special_tokens([AddedToken(x, special=True, normalized=False) for x in special])
    t.add_tokens([AddedToken(x, special=False, normalized=False) for x in others])
    return PreTrainedTokenizerFast(tokenizer_object=t, bos_token=bos, eos_token=eos, clean_up_tokenization_spaces=False)


def alike(a, b):
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n


out = {'families': {}, 'cases': []}
for name, how in FAMILIES.items():
    read = lambda n: open(os.path.join(FOLDER, n + '.jinja'), encoding='utf-8').read()
    public, training = read(name), read(name + '_training')
    t = tokenizer(*how)
    added = [[x, t.convert_tokens_to_ids(x), x in how[1]] for x in how[1] + how[2]]
    out['families'][name] = {'tokenizer': how[0], 'added': added, 'bos': how[3], 'eos': how[4], 'public': public, 'training': training}
    talks = dict(TALKS, **(TOOL_TALKS if name in WITH_TOOLS else {}))
    for what, messages in talks.items():
        if 'reasoning' in what and name in NO_REASONING:
            continue
        tools = TOOLS if what == 'a tool' else None
        try:
            r = t.apply_chat_template(messages, tools=tools, chat_template=training, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
            same = t.apply_chat_template(messages, tools=tools, chat_template=public, tokenize=True, return_dict=True)['input_ids']
        except Exception as e:
            print(name, what, 'refused:', str(e)[:100], file=sys.stderr)
            continue
        case = {'family': name, 'what': what, 'messages': messages, 'ids': r['input_ids'], 'mask': ''.join(map(str, r['assistant_masks']))}
        if tools:
            case['tools'] = tools
        ids, mask = r['input_ids'], list(r['assistant_masks'])
        for i, m in enumerate(messages):
            if m['role'] == 'assistant':
                asked, before = (alike(t.apply_chat_template(messages[:i], tools=tools, chat_template=public, tokenize=True, return_dict=True, add_generation_prompt=x)['input_ids'], ids) for x in (True, False))
                mask[before:asked] = [0] * (asked - before)
        if mask != r['assistant_masks']:
            case['published'] = ''.join(map(str, mask))
        if same != r['input_ids']:
            print(name, what, 'the two templates differ', file=sys.stderr)
            case['only'] = 'training'
        out['cases'].append(case)
        if messages[-1]['role'] == 'assistant' and len(messages) > 2:
            prompt = t.apply_chat_template(messages[:-1], tools=tools, chat_template=training, tokenize=True, return_dict=True, add_generation_prompt=True)['input_ids']
            if r['input_ids'][:len(prompt)] != prompt:
                print(name, what, 'the prompt is no prefix', file=sys.stderr)
                continue
            mask = [int(i >= len(prompt) and m) for i, m in enumerate(r['assistant_masks'])]
            case = dict(case, what=what + ', a completion', mask=''.join(map(str, mask)), **{'from': len(messages) - 1})
            case.pop('published', None)
            out['cases'].append(case)
line = lambda x: json.dumps(x, ensure_ascii=False, separators=(',', ':'))
print('{"families":{\n' + ',\n'.join(line(k) + ':' + line(v) for k, v in out['families'].items()) + '},\n"cases":[\n' + ',\n'.join(map(line, out['cases'])) + ']}')
