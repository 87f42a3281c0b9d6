"""A client of `zrun serve`, with nothing but Python's standard library: serve.py PORT PID SECONDS.

Asks what clients ask, and what they should not; leaves in the middle; and for SECONDS sends random requests from many
threads at once. Ends with a message and code 1 at the first thing that is not as a user expects it.
"""
import http.client, json, random, socket, struct, sys, threading, time

PORT, PID, SECONDS = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
TEXT = 'the cat sat on the mat. '
COMPLETIONS = '/v1/completions'


def wanted(ok, what):
    if not ok:
        print('serve.py: wanted:', what)
        sys.stdout.flush()
        import os
        os._exit(1)


def ask(method, path, body=None, limit=60):
    c = http.client.HTTPConnection('127.0.0.1', PORT, timeout=limit)
    try:
        c.request(method, path, body if body is None or isinstance(body, bytes) else json.dumps(body).encode())
        r = c.getresponse()
        return r.status, r.getheader('content-type'), r.read()
    finally:
        c.close()


def post(path, **body):
    status, _, data = ask('POST', path, body)
    return status, json.loads(data)


def complete(**body):
    status, o = post(COMPLETIONS, **dict({'temperature': 0, 'max_tokens': 10}, **body))
    wanted(status == 200, 'an answer to %s, not %d %s' % (body, status, o))
    return o


def stream(**body):
    """Returns the text of the first choice, and all events."""
    status, kind, data = ask('POST', COMPLETIONS, dict({'temperature': 0, 'max_tokens': 10, 'stream': True}, **body))
    wanted(status == 200 and kind.startswith('text/event-stream'), 'a stream, not %d %s' % (status, data[:200]))
    blocks = data.decode().split('\n\n')
    wanted(blocks[-2:] == ['data: [DONE]', ''] and all(b.startswith('data: ') for b in blocks[:-1]), 'events, not %r' % data[-100:])
    events = [json.loads(b[6:]) for b in blocks[:-2]]
    return ''.join(c['text'] for e in events for c in e['choices'] if c['index'] == 0), events


def memory():
    """Kilobytes that the server takes."""
    for line in open('/proc/%d/status' % PID):
        if line.startswith('VmRSS'):
            return int(line.split()[1])


def metric(name):
    for line in ask('GET', '/metrics')[2].decode().splitlines():
        if line.startswith(name + ' '):
            return float(line.split()[1])
    wanted(False, 'a metric %s' % name)


def quiet():
    """Waits until nothing runs."""
    for _ in range(100):
        if metric('zug_requests_under_way') == 0:
            break
        time.sleep(0.05)
    wanted(metric('zug_sequences_running') == 0 and metric('zug_sequences_waiting') == 0, 'that nothing runs any more')


# ---- answers ----
def answers():
    o = complete(prompt='the cat sat on', max_tokens=9)
    wanted(o['choices'][0]['text'] == ' the mat.' and o['choices'][0]['finish_reason'] == 'length', 'the text by heart: %s' % o)
    wanted([o['usage'][k] for k in ('prompt_tokens', 'completion_tokens', 'total_tokens')] == [14, 9, 23], 'usage: %s' % o)
    wanted(complete(prompt='the cat sat on', stop='at.')['choices'][0] ['text'] == ' the m', 'the text before a stop string')
    wanted(complete(prompt=list(b'the cat'), max_tokens=4)['choices'][0]['text'] == ' sat', 'an answer to ids')
    many = complete(prompt=['the cat', 'the mat'], n=2, max_tokens=3)['choices']
    wanted([c['index'] for c in many] == [0, 1, 2, 3] and many[0]['text'] == many[1]['text'], 'choices in their order: %s' % many)
    for body in ({}, {'stop': ['mat']}, {'temperature': 1, 'seed': 3}, {'n': 3, 'temperature': 1, 'seed': 3}, {'echo': True, 'logprobs': 2}):
        a = complete(prompt='the cat', max_tokens=20, **body)
        t, events = stream(prompt='the cat', max_tokens=20, stream_options={'include_usage': True}, **body)
        counts = [[u[k] for k in ('prompt_tokens', 'completion_tokens')] for u in (a['usage'], events[-1]['usage'])]
        wanted(t == a['choices'][0]['text'] and counts[0] == counts[1], 'a stream like the answer: %r, %s' % (t, a))
    a = complete(prompt='the cat', max_tokens=3, echo=True, logprobs=1)['choices'][0]
    l = a['logprobs']
    wanted(l['tokens'] == list(a['text']) and l['text_offset'] == list(range(10)) and l['token_logprobs'][0] is None, 'log-probabilities of the prompt: %s' % l)
    wanted(all(x == max(t.values()) for x, t in zip(l['token_logprobs'][7:], l['top_logprobs'][7:])), 'the most likely tokens, to the last digit')


def chats():
    talk = {'messages': [{'role': 'user', 'content': 'the cat'}], 'temperature': 0, 'max_tokens': 4}
    status, o = post('/v1/chat/completions', **talk)
    wanted(status == 200 and o['choices'][0]['message'] == {'role': 'assistant', 'content': ' sat'}, 'an answer of a chat: %s' % o)
    status, kind, data = ask('POST', '/v1/chat/completions', dict(talk, stream=True))
    events = [json.loads(b[6:]) for b in data.decode().split('\n\n')[:-2]]
    wanted(''.join(e['choices'][0]['delta'].get('content', '') for e in events) == ' sat' and events[-1]['choices'][0]['finish_reason'] == 'length', 'a stream of a chat: %s' % events)
    status, o = post('/v1/messages', **dict(talk, stop_sequences=['at']))
    wanted(status == 200 and o['content'] == [{'type': 'text', 'text': ' s'}] and o['stop_sequence'] == 'at', 'an answer of /v1/messages: %s' % o)
    status, kind, data = ask('POST', '/v1/messages', dict(talk, stream=True))
    events = [json.loads(b.split('\n')[1][6:]) for b in data.decode().split('\n\n')[:-1]]
    wanted(''.join(e['delta']['text'] for e in events if e['type'] == 'content_block_delta') == ' sat' and events[0]['type'] == 'message_start' and events[-1]['type'] == 'message_stop', 'a stream of /v1/messages: %s' % events)
    for path, body in (('/v1/chat/completions', dict(talk, messages=[])), ('/v1/messages', dict(talk, messages=[{'role': 'user', 'content': [{'type': 'image'}]}])), ('/v1/chat/completions', dict(talk, echo=True))):
        wanted(post(path, **body)[0] == 400, '400 of %s %s' % (path, body))


def calls():
    tools = [{'type': 'function', 'function': {'name': n, 'parameters': {'$ref': '#/$defs/a', '$defs': {'a': {'type': 'object', 'properties': {'n': {'enum': [1, 2]}}, 'required': ['n']}}}}} for n in 'fg']
    talk = {'messages': [{'role': 'user', 'content': 'the'}], 'tools': tools, 'max_tokens': 60}
    for choice, names in (('required', 'fg'), ({'type': 'function', 'function': {'name': 'g'}}, 'g')):
        status, o = post('/v1/chat/completions', **dict(talk, tool_choice=choice))
        wanted(status == 200 and o['choices'][0]['finish_reason'] == 'tool_calls', 'a call that is forced: %s' % o)
        one, = o['choices'][0]['message']['tool_calls']
        wanted(one['function']['name'] in names and json.loads(one['function']['arguments'])['n'] in (1, 2), 'a call that fits: %s' % one)
    status, o = post('/v1/messages', messages=talk['messages'], max_tokens=60, tools=[{'name': 'f', 'input_schema': tools[0]['function']['parameters']}], tool_choice={'type': 'any'})
    wanted(status == 200 and o['stop_reason'] == 'tool_use' and o['content'][0]['input']['n'] in (1, 2), 'a call of /v1/messages: %s' % o)
    for wrong in ('often', {'type': 'function', 'function': {'name': 'h'}}):
        wanted(post('/v1/chat/completions', **dict(talk, tool_choice=wrong))[0] == 400, '400 of tool_choice %s' % wrong)


def others():
    o = json.loads(ask('GET', '/v1/models')[2])
    wanted(o['data'][0]['id'] == 'cat', '/v1/models: %s' % o)
    wanted(post('/tokenize', prompt='cat')[1]['tokens'] == list(b'cat'), '/tokenize')
    wanted(post('/detokenize', tokens=list(b'cat'))[1]['prompt'] == 'cat', '/detokenize')
    wanted(ask('GET', '/health')[0] == 200, '/health')
    wanted(b'<!doctype html>' in ask('GET', '/')[2] and json.loads(ask('GET', '/state')[2])['model'] == 'cat', 'the page')


def refusals():
    for path, body, status, says in ((COMPLETIONS, b'{', 400, ''), (COMPLETIONS, b'\xff', 400, 'UTF-8'), (COMPLETIONS, b'[]', 400, ''), (COMPLETIONS, {}, 400, 'prompt'),
                                     (COMPLETIONS, {'prompt': 'a', 'temperture': 1}, 400, 'temperature'), (COMPLETIONS, {'prompt': 'a', 'top_p': 2}, 400, 'top_p'),
                                     (COMPLETIONS, {'prompt': [256]}, 400, '256'), (COMPLETIONS, {'prompt': 'a' * 100}, 400, '100'), (COMPLETIONS, {'prompt': 'a', 'model': 'dog'}, 404, 'cat'),
                                     (COMPLETIONS, b'{"prompt":"' + b'a' * (8 << 20) + b'"}', 413, ''), ('/v1/responses', {}, 404, COMPLETIONS), ('/v1/embeddings', {}, 404, COMPLETIONS)):
        try:
            got, kind, data = ask('POST', path, body)
        except OSError:
            got = status if status == 413 else 0  # it need not read all of it before it answers
            data = b'{"error": {"message": "413"}}'
        message = json.loads(data).get('error', {}).get('message', '')
        wanted(got == status and says in message and message, '%d of %r, not %d %r' % (status, body if len(str(body)) < 99 else '...', got, data[:200]))
    wanted(ask('GET', COMPLETIONS)[0] == 405, '405 of GET')


# ---- clients that leave, and many ----
def leave(after, reset):
    c = socket.create_connection(('127.0.0.1', PORT), timeout=20)
    body = json.dumps({'prompt': 'a', 'max_tokens': 60, 'stream': after > 0}).encode()
    c.sendall(b'POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n' % len(body) + body)
    got = 0
    while got < after:
        got += len(c.recv(after - got)) or after
    if reset:
        c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    c.close()


def together(n, call):
    failed = []

    def one(i):
        try:
            call(i)
        except Exception as e:
            failed.append(repr(e))
    threads = [threading.Thread(target=one, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    wanted(not failed, 'no errors of %d clients: %d, %s' % (n, len(failed), failed[:1]))


def many():
    want = complete(prompt='the cat', max_tokens=30)['choices'][0]['text']

    def one(i):
        got = stream(prompt='the cat', max_tokens=30)[0]
        if got != want:
            raise ValueError('%r in company, %r alone' % (got, want))
    together(300 if SECONDS > 5 else 60, one)


def load(until):
    """Random requests, good and bad, some of which nobody waits for."""
    def one(i):
        draw = random.Random(i)
        while time.time() < until:
            what = draw.random()
            if what < 0.15:
                leave(draw.choice((0, 0, 100, 500)), draw.random() < 0.5)
            elif what < 0.25:
                ask('POST', draw.choice((COMPLETIONS, '/tokenize', '/v1/chat/completions')), bytes(draw.randrange(256) for _ in range(draw.randrange(200))))
            else:
                a = complete(prompt=TEXT[:draw.randrange(1, 20)], max_tokens=draw.randrange(0, 40), n=draw.choice((1, 1, 1, 3)), temperature=draw.choice((0, 1)),
                             seed=7, logprobs=draw.choice((None, 1)))
                if not a['choices'] or any(c['finish_reason'] not in ('stop', 'length') for c in a['choices']):
                    raise ValueError('an answer that is cut: %s' % a)
    together(16, one)


def health(until):
    """/health answers at once whatever else goes on."""
    while time.time() < until:
        before = time.time()
        wanted(ask('GET', '/health', limit=10)[0] == 200 and time.time() - before < 5, '/health within five seconds')
        time.sleep(0.1)


answers()
chats()
calls()
others()
refusals()
for k in range(6):
    leave((0, 200, 400)[k % 3], k % 2)
quiet()
many()
load(time.time() + min(1, SECONDS / 2))
before, until = memory(), time.time() + SECONDS
watcher = threading.Thread(target=health, args=(until,))
watcher.start()
load(until)
watcher.join()
quiet()
wanted(memory() < before + (20 << 10), 'memory that does not grow: %d kB, then %d' % (before, memory()))
print('served: %d tokens, %d steps' % (metric('zug_answer_tokens_total'), metric('zug_steps_total')))
