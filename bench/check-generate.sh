# What bench-generate.sh does with what it finds: nothing to measure, Zug alone, and beside a stand-in for llama-bench that says
# numbers known beforehand, or fails. With a tiny model.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi
mkdir empty build
ok env ZUG_BUILD="$PWD/empty" sh "$ZUG_SRC/bench/bench-generate.sh"
says '^bench-generate: no zrun here'
for p in zc zdata zrun bench-read; do ln -s "$ZUG_BUILD/$p" build; done
bench() { # SETTING...
  rm -f report.txt
  ok env ZUG_BUILD="$PWD/build" MODEL=tiny THREADS=2 TOKENS=4 "$@" sh "$ZUG_SRC/bench/bench-generate.sh"
  cp build/tests/scratch/bench-generate/report.txt . || fail "no report"
}
# PRECISION ROW COLUMN: the first number behind the row's name is column 1.
cell() { sed -n "s/^$1  *$2  *//p" report.txt | awk -v column="$3" '{ print $column }'; }

bench ROUNDS=1 SEQUENCES="1 3" PRECISION=f32 LAYOUTS=tensor
grep -q '^0.1396 M parameters, 2 threads; ' report.txt || fail "another model"
[ "$(cell f32 'write, 3 at once' 7)" = 1 ] || fail "not one run of three texts at once"
[ "$(cell f32 'write, 1 at once' 5)" = - ] || fail "a number of llama.cpp's"
grep -Eq '^f32  *tensor 2, 3 at once  *[1-9][0-9.]*  *[0-9.]* of one rank$' report.txt || fail "no two ranks"
grep -Eq '^f32  *forward [1-9][0-9.]* tokens/s; memory [1-9][0-9.]* GB/s; first token after [0-9.]* s$' report.txt || fail "no forward"

cat >llama-bench <<'END2'
#!/bin/sh
echo "$@" >>"$0.args"
case "$*" in
*bf16*) echo "no such type" >&2 && exit 1 ;;
esac
[ -s "$0.args2" ] && write=30 || write=10
echo again >>"$0.args2"
echo '{"model_size": 1, "n_prompt": 128, "n_gen": 0, "test_time": "x", "avg_ns": 5, "avg_ts": 512.5, "stddev_ts": 0.0}'
echo '{"model_size": 1, "n_prompt": 0, "n_gen": 4, "test_time": "x", "avg_ns": 5, "avg_ts": '$write'.0, "stddev_ts": 0.0}'
END2
chmod +x llama-bench
echo >f32.gguf
echo >bf16.gguf
bench ROUNDS=2 SEQUENCES="1 2" LLAMA_BENCH="$PWD/llama-bench" LLAMA_MODELS="$PWD"
says 'llama-bench fails: no such type'
grep -q -- '-m .*/f32.gguf -t 2 -p 128 -n 4 ' llama-bench.args || fail "llama-bench was told something else"
[ "$(cell f32 'write, 1 at once' 5)" = 20.0 ] || fail "llama.cpp's median is $(cell f32 'write, 1 at once' 5), not 20"
[ "$(cell f32 'prompt of 128' 5)" = 512.5 ] || fail "another prompt of llama.cpp's"
[ "$(cell bf16 'write, 1 at once' 5)" = - ] || fail "a number of a run that failed"
awk -v z="$(cell f32 'prompt of 128' 1)" -v r="$(cell f32 'prompt of 128' 6)" 'BEGIN { exit !(r > z / 512.5 - 0.01 && r < z / 512.5 + 0.01) }' ||
  fail "a ratio that is none"
awk -v one="$(cell f32 'write, 1 at once' 1)" -v two="$(cell f32 'write, 2 at once' 1)" -v r="$(cell f32 'write, 2 at once' 4)" \
  'BEGIN { exit !(one > 0 && r > two / one - 0.01 && r < two / one + 0.01) }' || fail "not what one text at a time gives"

refuses "no model 'none'" env ZUG_BUILD="$PWD/build" MODEL=none sh "$ZUG_SRC/bench/bench-generate.sh"
refuses 'LLAMA_BENCH=./none is no program' env ZUG_BUILD="$PWD/build" LLAMA_BENCH=./none sh "$ZUG_SRC/bench/bench-generate.sh"
