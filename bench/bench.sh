#!/bin/sh
# `make bench`: how near a training step comes to nothing but its matrix products (bench-replay), and how it compares with
# PyTorch. Everything runs in turn, in rounds, on the same model and batch, and medians over the rounds are printed, since
# machines are noisy. README.md says what each row means. Not a test: nothing is required.
#
#   ROUNDS=5                    PRECISION="f32 bf16"        LAYOUTS=yes (no: only one rank, and data 2)
#   MODELS="small moe 124m"         THREADS="1 2"               PYTHON_TORCH=python3
#   CHECKPOINTS=yes
set -eu
out=$ZUG_BUILD/tests/scratch/bench
rounds=${ROUNDS:-5}
models=${MODELS:-small moe 124m}
precisions=${PRECISION:-f32 bf16}
threads=${THREADS:-1 2}
layouts=${LAYOUTS:-yes}
checkpoints=${CHECKPOINTS:-yes}
recipes=$ZUG_SRC/bench/recipes.zug
mpi="--allow-run-as-root --oversubscribe --bind-to none --mca pml ob1 --mca btl self,vader \
--mca btl_vader_single_copy_mechanism none"

if [ ! -x "$ZUG_BUILD/zrun" ]; then
  echo "bench: no zrun here (it needs MPI), so there is nothing to compare"
  exit 0
fi
rm -rf "$out" && mkdir -p "$out" && cd "$out"
: >all.txt

# ---- what runs: of a model its graph, recipe, and sizes for PyTorch ----
"$ZUG_BUILD/zc" -q "$ZUG_SRC/examples/gpt2.zug" -o small.zsg -D layers=6 -D heads=6 -D width=384 -D context=256 -D words=256
"$ZUG_BUILD/zc" -q "$ZUG_SRC/examples/mixtral.zug" -o moe.zsg -D layers=4 -D heads=6 -D kv_heads=2 -D width=384 -D inner=768 -D words=256
"$ZUG_BUILD/zc" -q "$ZUG_SRC/examples/gpt2.zug" -o 124m.zsg -D context=256
"$ZUG_BUILD/zdata" pack "$ZUG_SRC/lang" "$ZUG_SRC/runtime" "$ZUG_SRC/kernels" -o text.bin >/dev/null

settle() { # MODEL PRECISION
  case $1 in
  small) recipe=small steps=6 sizes="--layers 6 --heads 6 --width 384 --words 256 --seq 256 --batch 8" ;;
  moe) recipe=small steps=6 sizes= ;;
  124m) recipe=big steps=4 sizes="--layers 12 --heads 12 --width 768 --words 50257 --seq 256 --batch 4" ;;
  *) echo "bench: no model '$1'; there are small, moe and 124m" && exit 2 ;;
  esac
  case $2 in
  f32) ;;
  bf16) recipe=${recipe}_bf16 ;;
  *) echo "bench: no precision '$2'; there are f32 and bf16" && exit 2 ;;
  esac
}

# ---- measuring: what a run prints, and which share of the processors others had meanwhile ----
clocks() { # seconds: now, of all processes, of this one's children
  times >times.txt
  now=$(cut -d ' ' -f 1 /proc/uptime)
  busy=$(awk '$1 == "cpu" { print ($2 + $3 + $4 + $7 + $8 + $9) / 100; exit }' /proc/stat)
  own=$(tr -d s <times.txt | awk '{ for (i = 1; i <= NF; i++) { split($i, t, "m"); sum += 60 * t[1] + t[2] } } END { print sum }')
}

# alone FILE COMMAND...: runs it, output to FILE, shown if it fails; sets $others
alone() {
  file=$1
  shift
  clocks
  from="$now $busy $own"
  "$@" >"$file" 2>&1 || cat "$file"
  clocks
  others=$(echo "$from $now $busy $own" | awk -v cores="$(nproc)" '{ printf "%.3f", (($5 - $2) - ($6 - $3)) / ($4 - $1) / cores }')
}

# note KEY WHO: the number before `tokens/s` on standard input
note() {
  sed -n 's/.* \([0-9.]*\) tokens\/s.*/\1/p' | tail -n 1 | sed "s/.*/$1 $2 & $others/" >>all.txt
}

# A library that made a product faster than the others in the first round makes it in all rounds.
run_replay() { # MODEL PRECISION THREADS
  [ -s "choice-$1-$2-$3" ] ||
    "$ZUG_BUILD/bench-replay" "$1.zsg" --recipe "$recipes:$recipe" --threads "$3" --choice "choice-$1-$2-$3" -v \
      >"replay-$1-$2-$3.out" 2>&1 || cat "replay-$1-$2-$3.out"
  alone replay.out "$ZUG_BUILD/bench-replay" "$1.zsg" --recipe "$recipes:$recipe" --threads "$3" --choice "choice-$1-$2-$3"
  note "$1:$2:$3" replay <replay.out
}

run_zug() { # KEY WHO MODEL RANKS THREADS RECIPE
  # shellcheck disable=SC2086 # words are wanted
  alone "$1-$2.out" mpirun -np "$4" $mpi "$ZUG_BUILD/zrun" train "$3.zsg" --recipe "$recipes:$6" --data text.bin --steps $steps \
    --threads "$5" --times
  grep '^median step' "$1-$2.out" | note "$1" "$2"
}

# ---- PyTorch: memory once had is kept; the variant is chosen in the first round ----
find_torch() {
  for python in ${PYTHON_TORCH:-python3 /usr/bin/python3}; do
    torch=$("$python" -c 'import torch; print(torch.__version__)' 2>/dev/null) && return
  done
  python='' torch=''
}

run_torch() { # MODEL PRECISION THREADS
  [ -n "$python" ] && [ -n "$sizes" ] || return 0
  # shellcheck disable=SC2086 # words are wanted
  set -- "$@" $sizes
  key=$1:$2:$3 options="--precision $2 --threads $3"
  export OMP_NUM_THREADS="$3" TORCHINDUCTOR_CACHE_DIR="$out/inductor"
  shift 3
  # shellcheck disable=SC2086
  if [ ! -s "torch-$key" ]; then
    with_torch $options "$@" --choose --steps 2 --skip 1 >"torch-$key" 2>"torch-$key.err" || cat "torch-$key.err"
  fi
  # shellcheck disable=SC2086
  alone torch.out with_torch $options "$@" --variant "$(cat "torch-$key")" --steps $((steps - 1)) --skip 1
  note "$key" torch <torch.out
  unset OMP_NUM_THREADS
}

with_torch() {
  MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=8589934592 MALLOC_TOP_PAD_=268435456 \
    "$python" "$ZUG_SRC/bench/torch_gpt2.py" "$@"
}

# ---- a round ----
one_round() {
  for model in $models; do
    for precision in $precisions; do
      settle "$model" "$precision"
      for t in $threads; do
        run_replay "$model" "$precision" "$t"
        run_zug "$model:$precision:$t" zug "$model" 1 "$t" "$recipe"
        run_torch "$model" "$precision" "$t"
      done
      case "$model $threads" in small*2*) ;; *) continue ;; esac
      run_zug "small:$precision:2" data2 small 2 1 "data2${recipe#small}"
    done
  done
  [ "$layouts" = yes ] || return 0
  settle small f32
  run_zug small:f32:2 zug small 1 2 small # beside the others
  for layout in data2 zero3_2 tensor2 pipe2 gather2 heads2 ring2; do run_zug layout $layout small 2 1 $layout; done
  run_zug layout all8 small 8 1 all8
}

# ---- checkpoints: what one in 20 steps costs them, and how fast it is written ----
mean_step() { # FOLDER: milliseconds, without the first step
  sed -n 's/.*"step":\([0-9]*\),.*"step_ms":\([0-9.]*\).*/\1 \2/p' "$1/metrics.jsonl" |
    awk '$1 > 1 { sum += $2; n++ } END { printf "%.2f", sum / n }'
}
run_checkpoints() { # one round
  for every in 0 20; do
    rm -rf kept run-$every
    [ $every = 0 ] && with= || with="--ckpt kept --ckpt-every $every"
    # shellcheck disable=SC2086 # words are wanted
    alone ckpt.out mpirun -np 1 $mpi "$ZUG_BUILD/zrun" train small.zsg --recipe "$recipes:small" --data text.bin --steps 61 \
      --threads 2 --log run-$every $with
    echo "$every $(mean_step run-$every)" >>steps.txt
  done
  sed -n 's/^checkpoint .*: \([0-9.]*\) MB.* written in \([0-9.]*\) s, .*/\1 \2/p' ckpt.out >>written.txt
  megabytes=$(awk 'END { print int($1) }' written.txt)
  alone dd.out dd if=/dev/zero of=dd.bin bs=1M count="$megabytes" conv=fsync
  awk -v mb="$megabytes" '/copied/ { for (i = 2; i <= NF; i++) if ($i ~ /^s,?$/) print mb * 1.048576, $(i - 1) }' dd.out >>dd.txt
  rm -f dd.bin
}
print_checkpoints() {
  awk '{ x[$1, ++n[$1]] = $2 }
    function median(k,   i, j, t) { for (i = 2; i <= n[k]; i++) for (j = i; j > 1 && x[k, j] < x[k, j - 1]; j--) { t = x[k, j]; x[k, j] = x[k, j - 1]; x[k, j - 1] = t }
      return x[k, int((n[k] + 1) / 2)] }
    END { printf "mean step %.1f ms, with one checkpoint in 20 steps %.1f ms: %.3f\n", median(0), median(20), median(20) / median(0) }' steps.txt
  awk 'FNR == 1 { f++ } { v = $1 / $2; if (v > best[f]) best[f] = v }
    END { printf "written at %.0f MB/s beside training, by dd with fsync alone at %.0f MB/s: %.2f\n", best[1], best[2], best[1] / best[2] }' \
    written.txt dd.txt
}

# ---- tables ----
# Medians by key and who: of the runs that others took at most 5 % of the processors from, if there are any, ...
# shellcheck disable=SC2016 # awk's
summary='
  function value(key, who,   n, m, i, j, t, x) {
    n = count[key, who]
    for (i = 1; i <= n; i++) if (others[key, who, i] <= 0.05) x[++m] = all[key, who, i]
    rough = !m
    if (!m) for (i = 1; i <= n; i++) x[++m] = all[key, who, i]
    for (i = 2; i <= m; i++) for (j = i; j > 1 && x[j] < x[j - 1]; j--) { t = x[j]; x[j] = x[j - 1]; x[j - 1] = t }
    return m ? x[int((m + 1) / 2)] : 0
  }
  function rate(key, who,   x) { # ... else marked
    x = value(key, who)
    return x ? sprintf("%9.0f%s", x, rough ? "~" : " ") : sprintf("%9s ", "-")
  }
  function ratio(x, y) { return x && y ? sprintf("%12.3f", x / y) : sprintf("%12s", "-") }
  { all[$1, $2, ++count[$1, $2]] = $3; others[$1, $2, count[$1, $2]] = $4; if (!seen[$1]++) order[++keys] = $1 }'

print_rates() {
  awk "$summary"'
    END {
      printf "%-6s %-5s %8s %9s  %9s  %9s %12s %12s %12s\n", "model", "", "threads", "replay", "Zug", "PyTorch", "Zug/replay", \
        "Zug/PyTorch", "data2/Zug"
      for (i = 1; i <= keys; i++) {
        if (split(order[i], k, ":") != 3) continue
        z = value(order[i], "zug")
        printf "%-6s %-5s %8d %s %s %s%s %s %s\n", k[1], k[2], k[3], rate(order[i], "replay"), rate(order[i], "zug"), \
          rate(order[i], "torch"), ratio(z, value(order[i], "replay")), ratio(z, value(order[i], "torch")), \
          ratio(value(order[i], "data2"), z)
      }
    }' all.txt
}

print_layouts() {
  awk "$summary"'
    END {
      one = value("small:f32:2", "zug")
      n = split("data2 zero3_2 tensor2 pipe2 gather2 heads2 ring2 all8", name, " ")
      for (i = 1; i <= n; i++) printf "%-8s %s%s\n", name[i], rate("layout", name[i]), ratio(value("layout", name[i]), one)
    }' all.txt
}

# Shares of the step by operation, a column a configuration.
print_shares() {
  for f in *-zug.out *-data2.out; do
    case $f in layout* | '*'*) continue ;; esac
    sed -n '/^time by operation/,$s/^  \([^ ].*[^ ]\)  *[0-9.]* s  *\([0-9.]*\) %.*/\1 \2/p' "$f" | sed "s/^/${f%.out} /"
  done | awk '
    { if (!had[$1]++) col[++ncol] = $1
      if (!op[$2]++) row[++nrow] = $2
      share[$1, $2] = $3; if ($3 > most[$2]) most[$2] = $3 }
    END {
      printf "%-15s", "%"
      for (c = 1; c <= ncol; c++) { sub(/-zug$/, "", col[c]); printf " %18s", col[c] }
      print ""
      for (r = 1; r <= nrow; r++) {
        if (most[row[r]] < 0.5) continue
        printf "%-15s", row[r]
        for (c = 1; c <= ncol; c++) { k = col[c]; if (k !~ /-data2$/) k = k "-zug"; printf " %18.1f", share[k, row[r]] }
        print ""
      }
    }'
}

find_torch
: >steps.txt
: >written.txt
: >dd.txt
i=0
while [ $i -lt "$rounds" ]; do
  one_round
  [ "$checkpoints" = yes ] && run_checkpoints
  i=$((i + 1))
  echo "bench: round $i of $rounds" >&2
done

path=$(sed -n 's/^model .*; //p' ./*-zug.out | tail -n 1)
echo "GPT-2, AdamW, T=256; small: L=6 d=384 batch 8 bytes; 124m: L=12 d=768 batch 4, 50257 words"
echo "$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1), $(nproc) cores; Zug by $path"
if [ -n "$python" ]; then
  echo "PyTorch $torch: $(for f in torch-*:*; do case $f in *.err) ;; *) echo "${f#torch-} $(cat "$f")" ;; esac; done | paste -sd ';' | sed 's/;/; /g')"
else
  echo "no PyTorch here (PYTHON_TORCH names a python that has it)"
fi
printf '\ntokens/s, medians of %d rounds; data2/Zug: two ranks of one thread against one rank of two\n' "$rounds"
echo "a run counts if others took at most 5 % of the processors from it; ~: none did, and all count"
print_rates
if [ "$layouts" = yes ]; then
  printf '\nsmall f32 in other layouts, one thread a rank: tokens/s, and against one rank of two threads\n'
  print_layouts
fi
if [ "$checkpoints" = yes ]; then
  printf '\ncheckpoints: small f32, one rank of two threads; the fastest of all rounds\n'
  print_checkpoints
fi
printf '\nwhere the time of a step goes, last round\n'
print_shares
