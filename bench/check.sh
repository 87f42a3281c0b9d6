# What bench-gpu.sh does with what it finds: nothing to measure, Zug alone, Zug and a PyTorch that fails, is slow, or is fast. On
# the CPU, with tiny models, and a stand-in for PyTorch that says numbers known beforehand.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi
mkdir -p build && ln -s "$ZUG_BUILD/zc" "$ZUG_BUILD/zdata" "$ZUG_BUILD/zrun" build
bench() { # SETTING...
  rm -f report.txt
  ok env ZUG_BUILD="$PWD/build" DEVICE=cpu STEPS=4 THREADS=1 ROUNDS=2 "$@" sh "$ZUG_SRC/bench/bench-gpu.sh"
  cp build/tests/scratch/bench-gpu/report.txt . || fail "no report"
}
row() { awk -v who="$1" -v col="$2" '/^  / && $1 == who { print $col; exit }' report.txt; } # WHO COLUMN

ok env ZUG_BUILD="$PWD/build" DEVICE=cuda sh "$ZUG_SRC/bench/bench-gpu.sh"
says '^bench-gpu: no GPU here that zrun can use, so there is nothing to measure .*no CUDA'
mkdir empty
ok env ZUG_BUILD="$PWD/empty" sh "$ZUG_SRC/bench/bench-gpu.sh"
says '^bench-gpu: no zrun here'

bench MODELS=tiny_llama PYTHON_TORCH=none
says '^no PyTorch here$'
grep -q '^tiny_llama: .* M parameters, batch 8 x 64 tokens, 512 a step, micro-batches of 4$' report.txt || fail "another model"
[ "$(row PyTorch 2)" = - ] || fail "a number of PyTorch's"
[ "$(row Zug 3)" = 2 ] || fail "not two runs of Zug"
grep -Eq '^  dot .* of its bound' report.txt || fail "no table of bounds"

cat >python <<'END2'
#!/bin/sh
[ "$1" != -c ] || exec echo 9.9
echo "$@" >>"$0.args"
case "$*" in
*broken*) echo "what a compiler says" && exit 3 ;;
*slow,half*) rate=90 ;;
*fast,half,flash*) rate=120 ;; # when it is told what it chose before
*) rate=100 ;;
esac
echo "torch 9.9 fast,half,flash: $rate tokens/s, 1.0 ms a step, loss 1 1, 1.0 M parameters, 0.0 GB"
END2
chmod +x python
bench MODELS="tiny_gpt2 tiny_llama:2" PYTHON_TORCH="$PWD/python" VARIANTS="broken slow,half fast,half"
says 'exit code 3 .* what a compiler says'
says '^PyTorch 9.9; tiny_gpt2: fast,half,flash; tiny_llama:2: fast,half,flash$'
grep -q '^tiny_llama:2: .* micro-batches of 2$' report.txt || fail "not the micro-batches asked for"
grep -q -- '--model llama .* --micro 2 .* --kv-heads 2 ' python.args || fail "PyTorch was told another model"
# 100 in the round of the choice, then 120: a median of 110. FLOP/s by the plan's FLOPs a token, for both the same.
[ "$(row PyTorch 2)" = 110 ] || fail "PyTorch's median is $(row PyTorch 2), not 110"
grep -q '^  PyTorch  *110  2 (100 to 120) ' report.txt || fail "another lowest or highest"
flops=$(sed -n '1s/.*"flops":\([^,]*\),.*/\1/p' build/tests/scratch/bench-gpu/log-tiny_gpt2/metrics.jsonl)
awk -v z="$(row Zug 2)" -v r="$(row Zug/PyTorch 2)" -v t="$(row Zug 8)" -v ms="$(row Zug 7)" -v flops="$flops" 'BEGIN {
  wrong = z <= 0 || r < z / 110 - 0.01 || r > z / 110 + 0.01 || ms < 511e3 / z || ms > 513e3 / z
  want = flops / 512 * z / 1e12
  exit wrong || t < want - 0.006 || t > want + 0.006 }' || { cat report.txt; fail "numbers that do not fit each other"; }

# What bench-bound counts: the model's FLOPs; of AdamW and the norm 32 bytes a parameter; and no rate but the two is in it,
# if attention has none of its own.
bound() { ok "$ZUG_BUILD/bench-bound" build/tests/scratch/bench-gpu/tiny_gpt2.zsg --recipe "$ZUG_SRC/bench/recipes-gpu.zug:tiny_gpt2" "$@"; }
least() { sed -n 's/^at .* takes \([0-9.]*\) ms at least.*/\1/p' out.txt; }
bound --products 1 --copies 10 --attention 0 --attention-grad 0
awk -v flops="$flops" -v params=2.152e6 '
  / TFLOP .* GB / { f += $6; if ($1 == "optimizer") bytes = $8 }
  END { exit f * 1e12 < 0.999 * flops || f * 1e12 > 1.001 * flops || bytes * 1e9 < 0.99 * 32 * params || bytes * 1e9 > 1.01 * 32 * params }' \
  out.txt || { cat out.txt; fail "other work than the plan has: $flops FLOPs"; }
slow=$(least)
bound --products 2 --copies 20 --attention 0 --attention-grad 0
awk -v slow="$slow" -v fast="$(least)" 'BEGIN { exit slow < 1.99 * fast || slow > 2.01 * fast }' || fail "twice the rates, and $slow and $(least) ms"
fast=$(least)
bound --products 2 --copies 20 --attention 0.01 --attention-grad 0.01
awk -v slow="$(least)" -v fast="$fast" 'BEGIN { exit slow <= fast }' || fail "attention at a hundredth of the rate, and $(least) and $fast ms"

# What tiles and gaps add: nothing is faster for them, and a gap counts once a kernel.
whole() { sed -n 's/^in whole tiles .* kernel: \([0-9.]*\) ms.*/\1/p' out.txt; }
bound --gap 0
calls=$(sed -n '1s/.*; \([0-9]*\) calls$/\1/p' out.txt) least=$(least) none=$(whole)
bound --gap 1000
awk -v least="$least" -v none="$none" -v gaps="$(whole)" -v calls="$calls" 'BEGIN {
  exit none < least || gaps < none + 0.9 * calls || gaps > none + 1.1 * calls }' || fail "$calls calls: $least, $none and $(whole) ms"

bench MODELS=tiny_gpt2 PYTHON_TORCH="$PWD/python" VARIANTS=fast,half LIMIT=0
says 'no time to try'
[ "$(row Zug 3)" = 1 ] || fail "more than a round after the limit"
exit 0
