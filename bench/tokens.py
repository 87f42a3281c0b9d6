"""How fast the `tokenizers` library makes tokens of a file's lines: tokens.py TOKENIZER.json FILE THREADS. The best of three passes."""

import os
import sys
import time

os.environ["RAYON_NUM_THREADS"] = sys.argv[3]
os.environ["TOKENIZERS_PARALLELISM"] = "true"
import tokenizers  # noqa: E402, since it reads these

tokenizer = tokenizers.Tokenizer.from_file(sys.argv[1])
with open(sys.argv[2], "rb") as f:
    text = f.read().decode("utf-8", "replace")
lines = [line + "\n" for line in text.split("\n")]
encode = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)
best = float("inf")
for _ in range(3):
    begin = time.monotonic()
    encoded = encode(lines, add_special_tokens=False)
    best = min(best, time.monotonic() - begin)
tokens = sum(len(e.ids) for e in encoded)
print(f"tokenizers {tokenizers.__version__}: {tokens} tokens, {tokens / best / 1e6:.3f} M tokens/s")
