#!/bin/sh
# `make bench-generate`: how fast `zrun generate` reads prompts and writes, as shares of what memory gives here and of training's
# forward, beside llama.cpp. In rounds, one after the other; medians. README.md says what the numbers are. Not a test: nothing is
# required. Works by hand as well: bench-generate.sh, started in the build folder.
#
#   ROUNDS=3          PRECISION="f32 bf16"          THREADS=N   default: all processors
#   SEQUENCES="1 8 64"   written at once            TOKENS=32   written by each
#   PROMPT=128        tokens of a prompt            MODEL=llama (0.44 B), or tiny
#   LAYOUTS="tensor pipe data"   also on two ranks of half the threads, in these layouts; default: none
#   LLAMA_BENCH=PATH  llama.cpp's llama-bench       LLAMA_MODELS=DIR   the same model, as f32.gguf and bf16.gguf, q8_0.gguf, q4_0.gguf
#
# PRECISION may also name formats of weights (int8 int4 nf4), which are computed with in bf16.
#
# To try this script: MODEL=tiny ROUNDS=1 TOKENS=4
set -eu
ZUG_BUILD=${ZUG_BUILD:-$(pwd)}
ZUG_SRC=${ZUG_SRC:-$(cd "$(dirname "$0")/.." && pwd)}
out=$ZUG_BUILD/tests/scratch/bench-generate
rounds=${ROUNDS:-3} precisions=${PRECISION:-f32 bf16} sequences=${SEQUENCES:-1 8 64} tokens=${TOKENS:-32} prompt=${PROMPT:-128}
threads=${THREADS:-$(nproc)} layouts=${LAYOUTS:-} llama=${LLAMA_BENCH:-} ggufs=${LLAMA_MODELS:-.} prompts=8
PATH=$ZUG_BUILD:$PATH

say() { echo "bench-generate: $*" >&2; }
within() { # FILE COMMAND...: its output goes to FILE, and is shown in short if it fails
  file=$1
  shift
  "$@" >"$file" 2>&1 && return
  say "exit code $?, see $out/$file: $(tail -n 3 "$file")"
  return 1
}
options() { # PRECISION: of zrun generate
  case $1 in f32 | bf16) echo "--precision $1" ;; *) echo "--precision bf16 --weights $1" ;; esac
}
gguf() { # PRECISION: what llama.cpp calls the nearest that it has
  case $1 in int8) echo q8_0 ;; int4) echo q4_0 ;; *) echo "$1" ;; esac
}
note() { # WHAT VALUE; none if a run failed
  [ -z "${2:-}" ] || echo "$precision $1 $2" >>all.txt
}

if [ ! -x "$ZUG_BUILD/zrun" ]; then
  echo "bench-generate: no zrun here (it needs MPI), so there is nothing to measure"
  exit 0
fi
case ${MODEL:=llama} in
llama) width=1024 words=32000 megabytes=1024 sizes="layers=24 heads=16 kv_heads=8 inner=4096" ;;
tiny) width=64 words=512 megabytes=64 sizes="layers=2 heads=4 kv_heads=2 inner=128" ;;
*) say "no model '$MODEL'; there are llama and tiny" && exit 2 ;;
esac
[ -z "$llama" ] || [ -x "$llama" ] || { say "LLAMA_BENCH=$llama is no program" && exit 2; }
rm -rf "$out" && mkdir -p "$out" && cd "$out"
: >all.txt

# ---- the model, prompts, and the same tokens for training's forward ----
# shellcheck disable=SC2046,SC2086 # words are wanted
within zc.out zc -q "$ZUG_SRC/examples/llama3.zug" -o m.zsg $(printf -- '-D %s ' $sizes width=$width words=$words)
cat >recipes.zug <<END
recipe initial { bind batch = 1, seq = $prompt optimizer sgd(lr = 1e-3) }
recipe as_f32  { bind batch = 1, seq = $prompt }
recipe as_bf16 { bind batch = 1, seq = $prompt precision compute bf16 }
END
for p in int8 int4 nf4; do echo "recipe as_$p from as_bf16 { precision weights $p }"; done >>recipes.zug
for p in f32 bf16 int8 int4 nf4; do
  echo "recipe tensor_$p from as_$p { mesh tensor = 2   split kv, ffn, vocab over tensor }"
  echo "recipe pipe_$p from as_$p { mesh pipe = 2   stages over pipe by cost }"
  echo "recipe data_$p from as_$p { mesh data = 2   split batch over data }"
done >>recipes.zug
case " $layouts " in *[!a-z\ ]*) say "LAYOUTS are names: tensor pipe data" && exit 2 ;; esac
within weights.out zrun train m.zsg --recipe recipes.zug:initial --steps 0 --save w.safetensors --threads "$threads"
params=$(($(wc -c <w.safetensors) / 4)) read=$((params - words * width)) # of a lookup one row is read
awk -v n=$prompts -v size="$prompt" -v words="$words" 'BEGIN {
  srand(1)
  for (i = 0; i < n; i++) {
    printf "{\"tokens\": ["
    for (k = 0; k < size; k++) printf "%s%d", k ? ", " : "", int(rand() * words)
    print "], \"max_tokens\": 1, \"ignore_eos\": true}"
  }
}' >prompts.jsonl
sed -n 1p prompts.jsonl >first.jsonl
for n in $sequences; do
  awk -v n="$n" -v tokens="$tokens" 'BEGIN {
    for (i = 0; i < n; i++) printf "{\"tokens\": [%d], \"max_tokens\": %d, \"ignore_eos\": true}\n", i + 5, tokens
  }' >"write-$n.jsonl"
done
# Training's forward has as many tokens: bytes; the last of a sample is only wanted, and the file has one more sample.
head -c $(((prompts + 1) * (prompt + 1))) /dev/urandom >ids.bytes
within zdata.out zdata pack ids.bytes -o ids.bin

# ---- runs ----
generate() { # NAME LINES OPTIONS...
  name=$1 lines=$2
  shift 2
  rm -f out.jsonl
  # shellcheck disable=SC2046 # words are wanted
  within "$name-$precision.out" zrun generate m.zsg --init w.safetensors $(options "$precision") --prompts "$lines" -o out.jsonl \
    --threads "$threads" --draft-tokens 0 "$@"
}
generate_on_two() { # NAME LAYOUT LINES OPTIONS...
  name=$1 layout=$2 lines=$3
  shift 3
  rm -f out.jsonl
  within "$name-$precision.out" mpirun -np 2 --bind-to none zrun generate m.zsg --init w.safetensors \
    --recipe "recipes.zug:${layout}_$precision" --prompts "$lines" -o out.jsonl --threads $(((threads + 1) / 2)) --draft-tokens 0 "$@"
}
rate() { # NAME FIELD: tokens of prompts (1) or written (2) per second
  sed -n 's/^\([0-9]*\) tokens of prompts, \([0-9]*\) written in \([0-9.]*\) s:.*/\1 \2 \3/p' "$1-$precision.out" |
    awk -v field="$2" '$3 > 0 { print $field / $3 }'
}

run_zug() {
  for n in $sequences; do
    if generate "write-$n" "write-$n.jsonl" --sequences "$n"; then note "write-$n" "$(rate "write-$n" 2)"; fi
    for layout in $layouts; do
      if generate_on_two "$layout-$n" "$layout" "write-$n.jsonl" --sequences "$n"; then note "$layout-$n" "$(rate "$layout-$n" 2)"; fi
    done
  done
  if generate prompt prompts.jsonl --sequences 1; then note prompt "$(rate prompt 1)"; fi
  begin=$(date +%s%N)
  if generate first first.jsonl; then note first $(($(date +%s%N) - begin)); fi
  if within "eval-$precision.out" zrun eval m.zsg --recipe "recipes.zug:as_$precision" --data ids.bin --init w.safetensors \
    --eval-batches $prompts --threads "$threads"; then
    note forward "$(sed -n 's/^eval .* \([0-9]*\) targets *\([0-9.]*\) ms.*/\1 \2/p' "eval-$precision.out" |
      awk '$2 > 0 { print $1 / $2 * 1e3 }')"
  fi
}

run_llama() {
  [ -n "$llama" ] || return 0
  model=$ggufs/$(gguf "$precision").gguf
  if [ ! -s "$model" ]; then
    say "there is no $model"
    return
  fi
  "$llama" -m "$model" -t "$threads" -p "$prompt" -n "$tokens" -r 1 -o jsonl >"llama-$precision.out" 2>llama.err || {
    say "llama-bench fails: $(tail -n 1 llama.err)"
    return
  }
  sed -n 's/.*"n_prompt": \([0-9]*\),.*"avg_ts": \([0-9.]*\).*/\1 \2/p' "llama-$precision.out" | while read -r of speed; do
    if [ "$of" -gt 0 ]; then note llama-prompt "$speed"; else note llama-write "$speed"; fi
  done
}

# ---- the table ----
report() {
  echo "$(sed -n 's/^model [^,]*, \([^;]*\);.*/\1/p' "prompt-${precisions%% *}.out" 2>/dev/null | head -n 1), $threads threads; $(
    sed -n 's/^model .* micro-batches; //p' eval-*.out | head -n 1)"
  awk -v precisions="$precisions" -v sequences="$sequences" -v read="$read" -v prompt="$prompt" -v layouts="$layouts" '
    function median(p, what,   i, j, t, n, x) {
      n = count[p, what]
      for (i = 1; i <= n; i++) x[i] = value[p, what, i]
      for (i = 2; i <= n; i++) for (j = i; j > 1 && x[j] < x[j - 1]; j--) { t = x[j]; x[j] = x[j - 1]; x[j - 1] = t }
      return !n ? 0 : n % 2 ? x[(n + 1) / 2] : (x[n / 2] + x[n / 2 + 1]) / 2
    }
    function number(x) { return x > 0 ? sprintf("%10.1f", x) : sprintf("%10s", "-") }
    function share(x, of) { return x > 0 && of > 0 ? sprintf("%10.2f", x / of) : sprintf("%10s", "-") }
    { value[$1, $2, ++count[$1, $2]] = $3 }
    END {
      bytes["f32"] = 4; bytes["bf16"] = 2; bytes["int8"] = 8.25 / 8; bytes["int4"] = bytes["nf4"] = 4.25 / 8
      np = split(precisions, ps, " ")
      ns = split(sequences, at, " ")
      printf "%-6s%-22s%10s%10s%10s%10s%10s%10s%8s\n", "", "", "tokens/s", "of read", "of forw.", "of one", "llama.cpp", "ratio", "rounds"
      for (k = 1; k <= np; k++) {
        p = ps[k]
        gb = median(p, "read")
        forward = median(p, "forward")
        for (i = 1; i <= ns; i++) {
          x = median(p, "write-" at[i])
          l = at[i] == 1 ? median(p, "llama-write") : 0
          printf "%-6s%-22s%s%s%10s%s%s%s%8d\n", p, "write, " at[i] " at once", number(x), share(x / at[i] * read * bytes[p] / 1e9, gb), "-",
            share(x, median(p, "write-1")), number(l), share(x, l), count[p, "write-" at[i]]
        }
        nl = split(layouts, layout, " ")
        for (i = 1; i <= ns; i++) for (j = 1; j <= nl; j++) {
          y = median(p, layout[j] "-" at[i])
          printf "%-6s%-22s%s%s of one rank\n", p, layout[j] " 2, " at[i] " at once", number(y), share(y, median(p, "write-" at[i]))
        }
        x = median(p, "prompt")
        l = median(p, "llama-prompt")
        printf "%-6s%-22s%s%10s%s%10s%s%s%8d\n", p, "prompt of " prompt, number(x), "-", share(x, forward), "-", number(l), share(x, l), count[p, "prompt"]
        printf "%-6sforward %.1f tokens/s; memory %.1f GB/s; first token after %.2f s\n", p, forward, gb, median(p, "first") / 1e9
      }
    }' all.txt
}

i=1
while [ $i -le "$rounds" ]; do
  for precision in $precisions; do
    within read.out bench-read "$threads" "$megabytes"
    note read "$(sed -n 's/.* read \([0-9.]*\) GB.*/\1/p' read.out)"
    run_zug
    run_llama
  done
  report >report.txt
  say "round $i of $rounds"
  i=$((i + 1))
done
cat report.txt
