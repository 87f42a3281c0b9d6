#!/bin/sh
# `make bench`: tokens/s, GFLOP/s against the products' peak measured in the same run, and the time by operation. The runs
# are interleaved in rounds and the median of each is printed, since machines are noisy. Not a test: nothing is required.
set -eu
out=$ZUG_BUILD/tests/scratch/bench
rounds=${ROUNDS:-3}
rm -rf "$out" && mkdir -p "$out" && cd "$out"
options="--allow-run-as-root --oversubscribe --bind-to none --mca btl self,vader --mca btl_vader_single_copy_mechanism none"

"$ZUG_BUILD/zc" -q "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg -D layers=6 -D heads=6 -D width=384 -D context=256 -D words=256
"$ZUG_BUILD/zdata" pack "$ZUG_SRC/lang" "$ZUG_SRC/runtime" "$ZUG_SRC/kernels" -o text.bin >/dev/null

run() { # NAME RANKS THREADS RECIPE
  # shellcheck disable=SC2086
  mpirun -np "$2" $options "$ZUG_BUILD/zrun" train gpt2.zsg --recipe "$ZUG_SRC/tests/bench/recipes.zug:$4" --data text.bin \
    --steps 6 --threads "$3" --times >"$1.out"
  grep '^median step' "$1.out" | tr -d ':,%' | awk -v name="$1" '{ print name, $3, $5, $7, $9 }' >>all.txt
}

echo "GPT-2 L=6 d=384 T=256, batch 8, bytes, f32; $rounds rounds of 6 steps; medians"
i=0
while [ $i -lt "$rounds" ]; do
  run one-1thread 1 1 one
  run one-2threads 1 2 one
  run data2 2 1 data2
  run zero3-2 2 1 zero3_2
  run tensor2 2 1 tensor2
  run pipe2 2 1 pipe2
  run all8 8 1 all8
  i=$((i + 1))
done
sort -k1,1 -k3,3n all.txt | awk '
  function flush() { if (n) { m = int((n + 1) / 2); printf "%-14s %9.1f ms  %8.0f tokens/s  %8.1f GFLOP/s  %6.1f %% of peak\n", name, ms[m], tok[m], gf[m], pk[m] } n = 0 }
  $1 != name { flush(); name = $1 }
  { n++; ms[n] = $2; tok[n] = $3; gf[n] = $4; pk[n] = $5 }
  END { flush() }'
echo
echo "one rank, two threads, last round:"
sed -n '/^time by operation/,$p' one-2threads.out
