# What cuda.sh and cuda_more.sh share: models, recipes, runs on GPUs that are threads and comparisons of them.
need_emulated_gpu

compare="$ZUG_BUILD/tests/scenarios/tools/compare_runs"
ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin
model() { # FILE OPTIONS...
  file=$1
  shift
  ok zc "$ZUG_SRC/examples/gpt2.zug" -o "$file" -D heads=4 -D words=127 "$@"
}
model gpt2.zsg -D layers=4 -D width=32 -D context=32
model small.zsg -D layers=2 -D width=16 -D context=16
sed 's/ kv,//' "$ZUG_SRC/tests/data/models/layouts.zug" | sed '/^recipe gqa/,$d' >recipes.zug
cat >>recipes.zug <<'END'
recipe short  from one    { bind seq = 16 }
recipe short2 from zero3_2 { bind seq = 16 }
recipe half   from short  { precision compute bf16 }
recipe tf32   from short  { precision compute tf32 }
recipe tiny   from short  { bind batch = 2   micro 1 }
recipe large  from half   { bind batch = 4, seq = 1024   micro 2 }
END

capture='--debug nccl-capture=on' # which is not the default (device/nccl.c)
run() { # LOG RANKS 'PROGRAM' RECIPE [GRAPH [OPTION...]]
  log=$1 ranks=$2 program=$3 recipe=$4 graph=${5-gpt2.zsg}
  shift $(($# < 5 ? $# : 5))
  rm -rf "$log"
  ok timeout -k 5 200 $(on "$ranks") $program train "$graph" --recipe "recipes.zug:$recipe" --data text.bin --steps 3 --log "$log" $capture "$@"
}
same() { # RECIPE A B TOLERANCE...
  what=$1 a=$2 b=$3
  shift 3
  $compare "$@" "$a/metrics.jsonl" "$b/metrics.jsonl" >diff.txt || { cat diff.txt; fail "$what: $a and $b differ"; }
}
