#!/bin/sh
# `make bench-search`: is what `zplan search` calls best the best? On two ranks, a core each, of this machine as it was just
# calibrated: runs all recipes that it lists, in turn, and prints what was predicted of each, the median of its steps, and by
# how much its first choice is slower than the best that was measured. Nothing is required: machines are noisy.
#
#   ROUNDS=3          of all recipes; a recipe's step is the least median of them
#   STEPS=20          of a run; the first three do not count
#   KEEP=8            recipes of a model
#   MODELS="gpt2 llama3 mlp"
#   RUN, RANK, NODES  as in ranks.sh
set -u
out=$ZUG_BUILD/tests/scratch/bench-search
steps=${STEPS:-20} keep=${KEEP:-8}
PATH=$ZUG_BUILD:$PATH
fail() { echo "$*" && exit 1; }
[ -x "$ZUG_BUILD/zrun" ] || fail "bench-search: no zrun here (it needs MPI)"
rm -rf "$out" && mkdir -p "$out" && cd "$out" || exit 1
. "$ZUG_SRC/bench/ranks.sh"

search() { # MODEL
  case $1 in mlp) sizes="--batch 1024" ;; *) sizes="--batch 8 --seq 128" ;; esac
  # shellcheck disable=SC2086 # words are wanted
  zplan search "$1.zsg" --cluster here2.zug:here --ranks 2 $sizes --keep "$keep" --all -o "$1.zug" >"$1.out" || fail "$(cat "$1.out")"
  zplan search "$1.zsg" --cluster here2.zug:here --ranks 2 $sizes --keep "$keep" --json |
    sed 's/,"known".*//; s/{"mesh"/\n{"mesh"/g' | sed -n 's/^{"mesh".*"seconds":\([0-9.e+-]*\),.*/\1/p' >"$1.seconds"
}
# once MODEL NUMBER: the median step in milliseconds
once() {
  name=best
  [ "$2" = 1 ] || name=best_$2
  rm -rf log
  start 2 zrun train "$1.zsg" --recipe "$1.zug:$name" --data "$(data_of "$1")" --steps "$steps" --log log >run.out 2>&1 || fail "$(cat run.out)"
  sed -n 's/.*"step":\([0-9]*\),.*"step_ms":\([0-9.]*\).*/\1 \2/p' log/metrics.jsonl | awk '$1 > 3 { print $2 }' | sort -n |
    awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}

for model in ${MODELS:-gpt2 llama3 mlp}; do
  calibrate 2
  search "$model"
  n=$(wc -l <"$model.seconds")
  round=0
  : >measured
  while [ $round -lt "${ROUNDS:-3}" ]; do
    for i in $(seq "$n"); do echo "$i $(once "$model" "$i")" >>measured; done
    round=$((round + 1))
  done
  echo "$model: $(machine)"
  grep -E '^  (mesh|one rank|[a-z]+ [0-9])' "$model.out" | head -n $((n + 1)) | cut -c 1-84 >rows
  awk 'FILENAME == "measured" { if (!($1 in least) || $2 < least[$1]) least[$1] = $2; next }
    FILENAME ~ /seconds$/ { predicted[FNR] = 1e3 * $1; next }
    FNR == 1 { printf "%s %12s %12s %8s\n", $0, "predicted", "measured", "error"; next }
    { i = FNR - 1; printf "%s %9.1f ms %9.1f ms %+6.1f %%\n", $0, predicted[i], least[i], 100 * (predicted[i] / least[i] - 1) }
    END { for (i in least) if (!best || least[i] < least[best]) best = i
      printf "the first choice is %.1f %% slower than the best measured, number %d\n\n", 100 * (least[1] / least[best] - 1), best }' \
    measured "$model.seconds" rows
done
