"""choose.py PORT BASE ALL STABLE: does a server with adapters `all` and `llama_stable` write, for each `model`, what these files of greedy
answers have? All are asked at once, so that steps have tokens of all three; then once more, when what prompts begin with is kept."""
import json
import sys
import threading
import urllib.error
import urllib.request

port = sys.argv[1]


def ask(model, prompt, n, shares=False):
    body = {"prompt": prompt, "max_tokens": n, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    if not shares:
        body.update(echo=True, logprobs=1)
    if model:
        body["model"] = model
    r = urllib.request.Request("http://127.0.0.1:%s/v1/completions" % port, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(r, timeout=50))


rows = [(model, line.split()) for model, file in (("llama", sys.argv[2]), ("all", sys.argv[3]), ("llama_stable", sys.argv[4]), (None, sys.argv[3]))
        for line in open(file)]
most = 0.0


def check(model, row):
    global most
    prompt, answer, logs = ([f(x) for x in part.split(",")] for part, f in zip(row, (int, int, float)))
    o = ask(model, prompt, len(answer))
    assert o["model"] == (model or "all"), o["model"]
    got = o["choices"][0]["logprobs"]["token_logprobs"][1:]
    assert len(got) == len(logs), (model, got, logs)
    most = max([most] + [abs(a - b) for a, b in zip(got, logs)])


for turn in range(2):
    failed = []
    threading.excepthook = lambda x: failed.append(x.exc_value)
    threads = [threading.Thread(target=check, args=row) for row in rows]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failed:
        sys.exit(repr(failed[0]))
# What is asked without log-probabilities goes on behind pages that are kept: those of another adapter are none of its own.
prompt = [5 + i % 200 for i in range(40)]
for model in ("llama", "all", "llama_stable", "llama"):
    kept, made = (ask(model, prompt, 8, shares)["choices"][0]["token_ids"][-8:] for shares in (True, False))
    assert kept == made, (model, kept, made)
try:
    ask("other", [5], 1)
    sys.exit("a model that is not there answers")
except urllib.error.HTTPError as e:
    assert e.code == 404, e.code
names = [m["id"] for m in json.load(urllib.request.urlopen("http://127.0.0.1:%s/v1/models" % port))["data"]]
assert names == ["llama", "all", "llama_stable"], names
print("three models at once: log-probabilities at most %.1e apart" % most)
sys.exit(most > 1e-5)
