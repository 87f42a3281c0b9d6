"""The packages that others wrote against `zrun serve`: serve_clients.py PORT LINES. Those that are not installed are left out.

LINES: results of `zrun generate` with log-probabilities of these texts, which is what evaluations must come to.
"""
import asyncio, glob, importlib.util, json, os, subprocess, sys

base = 'http://127.0.0.1:%s' % sys.argv[1]
talk = [{'role': 'user', 'content': 'the cat'}]


def wanted(ok, what):
    if not ok:
        sys.exit('serve_clients.py: wanted: %s' % (what,))


def by_openai():
    import openai
    c = openai.OpenAI(base_url=base + '/v1', api_key='none')
    wanted(c.models.list().data[0].id == 'cat', 'the model')
    ask = dict(model='cat', prompt='the cat', max_tokens=4, temperature=0)
    o = c.completions.create(logprobs=1, **ask)
    wanted(o.choices[0].text == ' sat' and o.choices[0].logprobs.tokens == list(' sat') and o.usage.completion_tokens == 4, o)
    wanted(''.join(e.choices[0].text for e in c.completions.create(stream=True, **ask)) == ' sat', 'a stream')
    chat = dict(model='cat', messages=talk, max_completion_tokens=4, temperature=0)
    o = c.chat.completions.create(logprobs=True, top_logprobs=2, **chat)
    wanted(o.choices[0].message.content == ' sat' and len(o.choices[0].logprobs.content) == 4, o)
    events = list(c.chat.completions.create(stream=True, stream_options={'include_usage': True}, **chat))
    wanted(''.join(e.choices[0].delta.content or '' for e in events if e.choices) == ' sat' and events[-1].usage.prompt_tokens == 7, events)
    schema = {'type': 'object', 'properties': {'a': {'enum': ['x', 'y']}}, 'required': ['a'], 'additionalProperties': False}
    o = c.chat.completions.create(model='cat', messages=talk, response_format={'type': 'json_schema', 'json_schema': {'name': 's', 'schema': schema, 'strict': True}})
    wanted(o.choices[0].message.content.replace(' ', '') in ('{"a":"x"}', '{"a":"y"}'), o)
    try:
        c.completions.create(model='dog', prompt='a')
        wanted(False, 'an error of another model')
    except openai.NotFoundError:
        pass

    async def many():
        a = openai.AsyncOpenAI(base_url=base + '/v1', api_key='none')
        got = await asyncio.gather(*[a.chat.completions.create(**chat) for _ in range(16)])
        wanted({x.choices[0].message.content for x in got} == {' sat'}, got)
    asyncio.run(many())


def by_anthropic():
    import anthropic
    c = anthropic.Anthropic(base_url=base, api_key='none')
    o = c.messages.create(model='cat', max_tokens=4, messages=talk, extra_body={'temperature': 0})
    wanted(o.content[0].text == ' sat' and o.stop_reason == 'max_tokens' and o.usage.output_tokens == 4, o)
    with c.messages.stream(model='cat', max_tokens=4, messages=talk, extra_body={'temperature': 0}) as s:
        wanted(s.get_final_message().content[0].text == ' sat', 'a stream')
    wanted(c.messages.count_tokens(model='cat', messages=talk).input_tokens == 7, 'counted tokens')


TASK = """task: cat
dataset_path: json
dataset_kwargs:
  data_files:
    test: %s/cat.jsonl
test_split: test
output_type: multiple_choice
doc_to_text: "{{text}}"
doc_to_choice: "{{choices}}"
doc_to_target: "{{label}}"
target_delimiter: ""
metric_list:
  - metric: acc
"""
QUESTIONS = (('the cat sat', [' on the mat', ' in the hat'], 0), ('mat. the', [' dog', ' cat'], 1))


def by_lm_eval():
    with open('cat.yaml', 'w') as f:
        f.write(TASK % os.getcwd())
    with open('cat.jsonl', 'w') as f:
        for text, choices, label in QUESTIONS:
            f.write(json.dumps({'text': text, 'choices': choices, 'label': label}) + '\n')
    r = subprocess.run([sys.executable, '-m', 'lm_eval', '--model', 'local-completions', '--model_args', 'model=cat,base_url=%s/v1/completions,tokenizer_backend=remote,num_concurrent=4' % base,
                        '--tasks', 'cat', '--include_path', '.', '--output_path', 'scores', '--log_samples'], env=dict(os.environ, HF_HUB_OFFLINE='1'), capture_output=True, text=True)
    wanted(r.returncode == 0, r.stdout[-500:] + r.stderr[-500:])
    known = {x['text']: [t['logprob'] for t in x['logprobs']] for x in map(json.loads, open(sys.argv[2]))}
    samples = [json.loads(x) for x in open(glob.glob('scores/**/samples*.jsonl', recursive=True)[0])]
    wanted(len(samples) == len(QUESTIONS), samples)
    for s in samples:
        wanted(s['acc'] == 1, s)
        for choice, r in zip(s['doc']['choices'], s['resps']):
            at = len(s['doc']['text'])
            want = sum(known[s['doc']['text'] + choice][at:])
            wanted(abs(float(r[0][0]) - want) < 1e-9 * abs(want), (s['doc'], choice, r, want))


tried = []
for name, try_it in (('openai', by_openai), ('anthropic', by_anthropic), ('lm_eval', by_lm_eval)):
    if importlib.util.find_spec(name):
        try_it()
        tried.append(name)
print('clients:', ' '.join(tried) or 'none is installed')
