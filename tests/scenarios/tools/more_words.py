"""more_words.py BASE MORE NEW AS: has MORE the words of BASE, NEW as AS, and others as their mean? And the size in its config.json?"""
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import adapters

base, more, new, same = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
before, after = adapters.read(base), adapters.read(more)
words = json.load(open(more + "/config.json"))["vocab_size"]
tables = [n for n in after if before[n][1] != after[n][1]]
assert len(tables) == 2, tables
for n in tables:
    (had, width), now = before[n][1], adapters.numbers(after[n])
    was = adapters.numbers(before[n])
    assert after[n][1] == [words, width] and now[:had * width] == was, n
    mean = [sum(was[c::width]) / had for c in range(width)]
    for r in range(had, words):
        row = now[r * width:(r + 1) * width]
        wanted = was[same * width:(same + 1) * width] if r == new else mean
        assert max(abs(a - b) for a, b in zip(row, wanted)) < 1e-7, (n, r)
