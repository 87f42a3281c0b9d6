#!/bin/sh
# `make bench-optimizers`: a step of the small GPT-2 of `make bench` with AdamW, with its states in 8 bits, with Muon for the
# matrices of its layers and with second moments of their rows, with the other optimizers, with all but the last norm frozen, and with
# adapters of rank 8 beside all matrices (`lora`), which alone are trained: milliseconds of the median step, its share of AdamW's, bytes of
# states and of the arena, and the loss. Each runs in turn, ROUNDS (2) times, STEPS (12) steps; the faster round counts. Not a
# test: nothing is required.
set -eu
out=$ZUG_BUILD/tests/scratch/bench-optimizers
rm -rf "$out" && mkdir -p "$out" && cd "$out"
[ -x "$ZUG_BUILD/zrun" ] || { echo "bench: no zrun here (it needs MPI)"; exit 0; }
"$ZUG_BUILD/zc" -q "$ZUG_SRC/examples/gpt2.zug" -o small.zsg -D layers=6 -D heads=6 -D width=384 -D context=256 -D words=256
"$ZUG_BUILD/zc" -q "$ZUG_SRC/examples/gpt2.zug" -o lora.zsg -D layers=6 -D heads=6 -D width=384 -D context=256 -D words=256 --lora all-linear
graph_of() { case $1 in lora*) echo lora.zsg ;; *) echo small.zsg ;; esac; }
"$ZUG_BUILD/zdata" pack "$ZUG_SRC/lang" "$ZUG_SRC/runtime" "$ZUG_SRC/kernels" -o text.bin >/dev/null
recipes=$ZUG_SRC/bench/recipes.zug
list=${RECIPES:-"small bits8 lion adagrad adafactor schedule_free muon normuon frozen lora frozen_bf16 lora_bf16 small_bf16"}

i=0
while [ $i -lt "${ROUNDS:-2}" ]; do
  for recipe in $list; do
    rm -rf log
    mpirun --allow-run-as-root --oversubscribe --bind-to none -np 1 "$ZUG_BUILD/zrun" train $(graph_of $recipe) --recipe "$recipes:$recipe" \
      --data text.bin --steps "${STEPS:-12}" --threads "$(nproc)" --log log >run.txt 2>&1 || cat run.txt
    sed 's/.*"loss":\([^,}]*\).*"step_ms":\([^,}]*\).*/\2 \1/; s/.*"step_ms":\([^,}]*\).*"loss":\([^,}]*\).*/\1 \2/' log/metrics.jsonl |
      awk -v recipe="$recipe" 'NR > 1 { ms[NR - 1] = $1; loss = $2 }
        END { n = NR - 1; for (i = 1; i <= n; i++) for (k = i; k > 1 && ms[k] < ms[k - 1]; k--) { t = ms[k]; ms[k] = ms[k - 1]; ms[k - 1] = t }
          print recipe, ms[int((n + 1) / 2)], loss }' >>all.txt
  done
  i=$((i + 1))
done
for recipe in $list; do
  "$ZUG_BUILD/zplan" show $(graph_of $recipe) --recipe "$recipes:$recipe" | awk -v recipe="$recipe" '
    /^stage +params/ { row = 1; next }
    row { print recipe, $0; exit }' >>sizes.txt
done
awk 'FNR == NR { line = $0; sub(/^[^ ]+ +[0-9]+ +/, "", line); m = split(line, w, /  +/); states[$1] = w[4]; arena[$1] = w[m]; next }
  !seen[$1]++ { order[++k] = $1 }
  !($1 in ms) || $2 < ms[$1] { ms[$1] = $2; loss[$1] = $3 }
  END { printf "%-12s %10s %8s %14s %12s %12s\n", "recipe", "ms a step", "of AdamW", "states", "arena", "loss"
    for (i = 1; i <= k; i++) { r = order[i]; base = r ~ /bf16/ ? "small_bf16" : "small"
      printf "%-12s %10.1f %8.2f %14s %12s %12.4f\n", r, ms[r], ms[r] / ms[base], states[r], arena[r], loss[r] } }' sizes.txt all.txt
