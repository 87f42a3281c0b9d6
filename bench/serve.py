"""A load for `make bench-serve`: serve.py PORT STREAMS REQUESTS PROMPT TOKENS WORDS.

STREAMS clients at once send REQUESTS in all, each a prompt of PROMPT random ids below WORDS, and read TOKENS tokens as they come.
Prints: requests/s, tokens/s, and in milliseconds the median and 95th percentile of the time to the first token and of the time
from one event to the next.
"""
import http.client, json, random, sys, threading, time

port, streams, requests, prompt, tokens, words = map(int, sys.argv[1:7])
first, between, failed, lock = [], [], [], threading.Lock()
left = iter(range(requests))


def one(number):
    draw = random.Random(number)
    body = {'prompt': [draw.randrange(words) for _ in range(prompt)], 'max_tokens': tokens, 'temperature': 0, 'stream': True, 'ignore_eos': True}
    c = http.client.HTTPConnection('127.0.0.1', port, timeout=600)
    begin = time.perf_counter()
    c.request('POST', '/v1/completions', json.dumps(body), {'Content-Type': 'application/json'})
    r = c.getresponse()
    if r.status != 200:
        raise ValueError('%d %s' % (r.status, r.read()[:200]))
    at, mine, gaps = begin, None, []
    for line in r:
        if not line.startswith(b'data: {') or b'"text":""' in line.replace(b' ', b''):
            continue
        now = time.perf_counter()
        if mine is None:
            mine = now - begin
        else:
            gaps.append(now - at)
        at = now
    c.close()
    with lock:
        if mine is not None:
            first.append(mine)
        between.extend(gaps)


def client():
    while True:
        with lock:
            number = next(left, None)
        if number is None:
            return
        try:
            one(number)
        except Exception as e:
            failed.append(repr(e))
            return


def at(x, share):
    return sorted(x)[min(int(share * len(x)), len(x) - 1)] * 1e3 if x else float('nan')


begin = time.perf_counter()
threads = [threading.Thread(target=client) for _ in range(streams)]
for t in threads:
    t.start()
for t in threads:
    t.join()
seconds = time.perf_counter() - begin
if failed:
    sys.exit('serve.py: ' + failed[0])
print('%.3f %.1f %.1f %.1f %.1f %.1f' % (requests / seconds, requests * tokens / seconds, at(first, .5), at(first, .95), at(between, .5), at(between, .95)))
