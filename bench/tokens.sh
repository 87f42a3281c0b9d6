#!/bin/sh
# `make bench-tokens`: how fast texts become tokens, with one thread and with two, and by the `tokenizers` library where Python
# has it. The tokenizers are those of tests/data/text, or TOKENIZERS="FILE ..."; the text is this project's own and that of
# tests/data/text, four times, or TEXT=FILE. Each runs in turn, ROUNDS (3) times, and its best run counts. Not a test.
set -eu
out=$ZUG_BUILD/tests/scratch/bench-tokens
texts=$ZUG_SRC/tests/data/text
tokenizers=${TOKENIZERS:-$(for t in gpt2 llama3 qwen llama2 t5 bert; do echo "$texts/$t/tokenizer.json"; done)}
rm -rf "$out" && mkdir -p "$out" && cd "$out"
if [ -z "${TEXT:-}" ]; then
  TEXT=$out/text.txt
  for _ in 1 2 3 4; do
    find "$ZUG_SRC/lang" "$ZUG_SRC/runtime" "$ZUG_SRC/kernels" -name '*.[ch]' -exec cat {} + && cat "$texts/text.txt"
  done >text.txt
fi
python=
for p in ${PYTHON:-python3 /usr/bin/python3}; do
  "$p" -c 'import tokenizers' 2>/dev/null && python=$p && break
done
[ -n "$python" ] || echo "no tokenizers library here (PYTHON names a python that has it)"

i=0
while [ $i -lt "${ROUNDS:-3}" ]; do
  for tokenizer in $tokenizers; do
    for threads in 1 2; do
      "$ZUG_BUILD/bench-text" "$tokenizer" "$TEXT" $threads | sed "s|^|$tokenizer $threads zug |"
      [ -z "$python" ] || "$python" "$ZUG_SRC/bench/tokens.py" "$tokenizer" "$TEXT" $threads | sed "s|^|$tokenizer $threads library |"
    done
  done >>all.txt
  i=$((i + 1))
done
awk '
  { match($0, /[0-9.]+ M tokens/); rate = substr($0, RSTART) + 0
    if (!seen[$1]++) order[++n] = $1
    if (rate > best[$1, $2, $3]) best[$1, $2, $3] = rate }
  function ratio(x, y) { return x && y ? sprintf("%8.2f", x / y) : "       -" }
  END {
    printf "M tokens/s; ratio: against the library\n%-12s %10s %10s %8s %10s %10s %8s\n", "tokenizer", "1 thread", "library", "ratio", \
      "2 threads", "library", "ratio"
    for (i = 1; i <= n; i++) {
      k = order[i]; name = k; sub(/\/tokenizer.json$/, "", name); sub(/.*\//, "", name)
      printf "%-12s", name
      for (t = 1; t <= 2; t++) printf " %10.2f %10.2f %s", best[k, t, "zug"], best[k, t, "library"], ratio(best[k, t, "zug"], best[k, t, "library"])
      print ""
    }
  }' all.txt
