"""What a server answers to 36 requests at once: serve_same.py PORT FILE. FILE has a line for each, which is the same
whoever writes the answers and whatever runs beside them: texts, log-probabilities, reasons, counts, and streams event
by event. Names and times that are new each time are left out, and so is how much of prompts was shared.
"""
import http.client, json, re, sys, threading

PORT, FILE = int(sys.argv[1]), sys.argv[2]
TEXT = 'the cat sat on the mat. '
NEW = re.compile(rb'"(id|created|cached_tokens|cache_read_input_tokens)":("[^"]*"|[0-9]+)')
TOOL = {'type': 'function', 'function': {'name': 'f', 'parameters': {'type': 'object', 'properties': {'n': {'enum': [1, 2]}}, 'required': ['n'], 'additionalProperties': False}}}


def requests():
    for i in range(6):
        prompt = TEXT[:4 * i + 1]
        talk = {'messages': [{'role': 'user', 'content': prompt}], 'temperature': 0, 'max_tokens': 8}
        yield '/v1/completions', {'prompt': prompt, 'temperature': 0, 'max_tokens': 20 + i}
        yield '/v1/completions', {'prompt': prompt, 'seed': i, 'n': 2, 'max_tokens': 9, 'logprobs': 2, 'echo': i % 2 == 0, 'stream': True, 'stream_options': {'include_usage': True}}
        yield '/v1/completions', {'prompt': [prompt, TEXT[i:]], 'temperature': 0, 'stop': ['mat', 't o'], 'logprobs': 1, 'return_token_ids': True}
        yield '/v1/chat/completions', dict(talk, stream=i % 2 == 1, logprobs=True, top_logprobs=1)
        yield '/v1/chat/completions', {'messages': talk['messages'], 'tools': [TOOL], 'tool_choice': 'required', 'parallel_tool_calls': False, 'seed': i, 'max_tokens': 40, 'stream': i % 2 == 0}
        yield '/v1/messages', dict(talk, stop_sequences=['at'], stream=i % 2 == 0)


def ask(path, body, i):
    c = http.client.HTTPConnection('127.0.0.1', PORT, timeout=100)
    c.request('POST', path, json.dumps(body).encode())
    r = c.getresponse()
    data = NEW.sub(rb'"\1":0', r.read())
    if body.get('n') == 2 and body.get('stream'):  # events of the two choices may change places
        data = b'\n\n'.join(sorted(data.split(b'\n\n'), key=lambda e: re.search(rb'"index":[0-9]+|$', e)[0]))
    answers[i] = b'%d %s' % (r.status, re.sub(rb'call_[0-9a-f]+', b'call', data).replace(b'\n', b'|'))


all = list(requests())
answers = [b'none'] * len(all)
threads = [threading.Thread(target=ask, args=(path, body, i)) for i, (path, body) in enumerate(all)]
for t in threads:
    t.start()
for t in threads:
    t.join()
if not all or not all[0] or any(not a.startswith(b'200 ') for a in answers):
    sys.exit('serve_same.py: wanted 200 of all, not %s' % [a[:200] for a in answers if not a.startswith(b'200 ')])
with open(FILE, 'wb') as f:
    f.writelines(a + b'\n' for a in answers)
