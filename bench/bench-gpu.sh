#!/bin/sh
# `make bench-gpu`: tokens/s and use of one GPU by Zug and by PyTorch, in turn, in rounds, on the same models and batches in
# bf16; and what every operation of Zug's reaches of its bound. README.md says what the numbers are. Not a test: nothing is
# required. Works by hand as well: bench-gpu.sh, started in the build folder.
#
#   ROUNDS=3       LIMIT=330     no round, and nothing that can be left out, is begun after so many seconds
#   STEPS=11       THREADS=N     of zrun's host; default: all processors
#   DEVICE=cuda    MODELS="gpt2 llama gpt2_512k llama_512k"   gpt2:16 has micro-batches of 16; a step of NAME_512k is of
#                  524,288 tokens: of those a few in the first round
#   PYTHON_TORCH=python3         VARIANTS="compile,half compile,auto", of torch_lm.py; the fastest counts
#
# To try this script: DEVICE=cpu STEPS=3 VARIANTS=eager,half MODELS="tiny_gpt2 tiny_llama"
set -eu
ZUG_BUILD=${ZUG_BUILD:-$(pwd)}
ZUG_SRC=${ZUG_SRC:-$(cd "$(dirname "$0")/.." && pwd)}
out=$ZUG_BUILD/tests/scratch/bench-gpu
rounds=${ROUNDS:-3} limit=${LIMIT:-330} models=${MODELS:-gpt2 llama gpt2_512k llama_512k} most_steps=${STEPS:-11} device=${DEVICE:-cuda}
threads=${THREADS:-$(nproc)} variants=${VARIANTS:-compile,half compile,auto}
began=$(date +%s)
. "$ZUG_SRC/bench/models-gpu.sh"
case ${MPIRUN:=mpirun} in
*' '*) ;; # with options of its own
*) MPIRUN="$MPIRUN --allow-run-as-root --bind-to none --mca pml ob1 --mca btl self,vader --mca btl_vader_single_copy_mechanism none" ;;
esac
mpi="$MPIRUN -np 1"
command -v "${MPIRUN%% *}" >/dev/null || mpi='' # one rank can start without a launcher

say() { echo "bench-gpu: $*" >&2; }
seconds() { echo $(($(date +%s) - began)); }

# within FILE COMMAND...: its output goes to FILE, and is shown in short if it fails. What was begun may take two minutes after
# the limit.
within() {
  file=$1 left=$((limit + 120 - $(seconds)))
  shift
  [ $left -gt 5 ] || left=5
  code=0
  timeout -k 5 $left "$@" >"$file" 2>&1 || code=$?
  [ $code -eq 0 ] && return
  say "exit code $code after $(seconds) s, see $out/$file: $(tail -n 3 "$file")"
  return 1
}

# ---- what there is ----
if [ ! -x "$ZUG_BUILD/zrun" ]; then
  echo "bench-gpu: no zrun here (it needs MPI), so there is nothing to measure"
  exit 0
fi
rm -rf "$out" && mkdir -p "$out" && cd "$out"
: >all.txt
if [ "$device" != cpu ]; then
  # shellcheck disable=SC2086 # words are wanted
  timeout -k 5 60 $mpi "$ZUG_BUILD/zrun" train none.zsg --recipe none --device "$device" >there.out 2>&1 || true
  if why=$(grep -m 1 'no CUDA' there.out); then
    echo "bench-gpu: no GPU here that zrun can use, so there is nothing to measure ($why)"
    exit 0
  fi
  if nvidia-smi >nvidia-smi.out 2>&1; then
    nvidia-smi --query-gpu=timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu,memory.used --format=csv -l 2 >clocks.csv 2>&1 &
    watch=$!
    trap 'kill $watch 2>/dev/null' EXIT
  fi
fi
for python in ${PYTHON_TORCH:-python3 /usr/bin/python3}; do
  torch=$("$python" -c 'import torch; print(torch.__version__)' 2>/dev/null) && break
  python='' torch=''
done
[ -n "$python" ] || say "no PyTorch here (PYTHON_TORCH names a python that has it): Zug alone"

# ---- models: graph, recipe, and sizes for PyTorch ----
cp "$ZUG_SRC/bench/recipes-gpu.zug" recipes.zug
# Ids of two bytes below 125 each: random, and below 32000.
head -c 16000000 /dev/urandom | LC_ALL=C tr -d '\175-\377' | head -c 7000000 >tokens.u16
within zdata.out "$ZUG_BUILD/zdata" pack tokens.u16 --tokens u16 -o tokens.bin

settle() { # NAME or NAME:MICRO
  key=$1 recipe=${1%%:*} steps=$most_steps
  model=${recipe%_512k}
  [ "$model" = "$recipe" ] || steps=$((most_steps < 6 ? most_steps : 6))
  measured_model "$model" && measured_recipe recipes.zug "$recipe" ||
    { say "no model '$recipe'; there are gpt2, llama, gpt2_512k, llama_512k, tiny_gpt2 and tiny_llama" && exit 2; }
  case $key in *:*) from=$recipe micro=${key#*:} recipe=${recipe}_$micro ;; esac
}

make_graph() {
  case $key in *:*) echo "recipe $recipe from $from { micro $micro }" >>recipes.zug ;; esac
  # shellcheck disable=SC2046,SC2086 # words are wanted
  within "zc-$model.out" "$ZUG_BUILD/zc" -q "$ZUG_SRC/examples/$file.zug" -o "$model.zsg" $(printf -- '-D %s ' $sizes $more)
}

# ---- runs: into all.txt go model, who, tokens/s of the median step ----
run_zug() { # FILE OPTIONS...
  to=$1
  shift
  # shellcheck disable=SC2086
  within "$to" $mpi "$ZUG_BUILD/zrun" train "$model.zsg" --recipe "recipes.zug:$recipe" --data tokens.bin --device "$device" \
    --threads "$threads" --steps "$steps" "$@"
}

note() { # FILE WHO: the line with the median step
  sed -n 's/^median step.*: \([0-9.]*\) tokens.*/\1/p; s/^torch .*: \([0-9.]*\) tokens\/s.*/\1/p' "$1" |
    sed "s/^/$key $2 /" >>all.txt
}

# A variant by itself chooses the attention; from then on it is told. What was compiled is kept for the next time.
run_torch() { # FILE VARIANT
  to=$1 options="$(torch_options "$model") --device $device --variant $2"
  [ "$device" != cpu ] || options="$options --threads $threads"
  # shellcheck disable=SC2086
  TORCHINDUCTOR_CACHE_DIR="$out-inductor" within "$to" "$python" "$ZUG_SRC/bench/torch_lm.py" $options \
    --steps $((steps - 1)) --skip $((steps > 4 ? 3 : 1))
}

# The fastest variant, in torch-KEY; its run is the first round's.
choose_torch() {
  best=0
  for v in $variants; do try_torch "$v"; done
  [ "$best" -gt 0 ] || for v in eager,half eager,auto; do try_torch $v; done
}

try_torch() { # VARIANT
  if [ "$(seconds)" -ge "$limit" ]; then
    say "$key: no time to try PyTorch's $1"
    return
  fi
  run_torch "torch-$key-$1.out" "$1" || return 0
  line=$(grep '^torch ' "torch-$key-$1.out")
  say "$key: $line"
  rate=$(echo "$line" | sed 's/.*: \([0-9]*\) tokens\/s.*/\1/')
  [ "$rate" -gt "$best" ] || return 0
  best=$rate
  echo "$line" | sed 's/^torch [^ ]* \([^:]*\):.*/\1/' >"torch-$key"
  cp "torch-$key-$1.out" "torch-$key-1.out"
}

one_round() { # NUMBER
  for m in $models; do
    settle "$m"
    [ "$1" -eq 1 ] || [ "$steps" -eq "$most_steps" ] || continue
    if run_zug "zug-$key-$1.out" --log "log-$key"; then note "zug-$key-$1.out" zug
    elif [ "$1" -eq 1 ]; then continue # and nothing to compare with
    fi
    if [ "$1" -eq 1 ]; then run_zug "times-$key.out" --times || true; fi
    [ -n "$python" ] || continue
    if [ "$1" -eq 1 ]; then choose_torch
    elif [ -s "torch-$key" ]; then run_torch "torch-$key-$1.out" "$(cat "torch-$key")" || true
    fi
    [ ! -s "torch-$key-$1.out" ] || note "torch-$key-$1.out" torch
  done
}

# ---- tables ----
first() { sed -n "$1" "$2" 2>/dev/null | head -n 1; } # SED-SCRIPT FILE
most() { cat "$2"*.out 2>/dev/null | sed -n "$1" | sort -n | tail -n 1; } # SED-SCRIPT FILES

print_model() {
  flops=$(first 's/.*"flops":\([^,]*\),.*/\1/p' "log-$key/metrics.jsonl")
  params=$(first 's/^model [^,]*, \([^;]*\) parameters;.*/\1/p' "zug-$key-1.out")
  printf '\n%s: %s parameters, batch %d x %d tokens, %d a step, micro-batches of %d\n' "$key" "${params:-?}" "$batch" "$seq" \
    $((batch * seq)) "$micro"
  awk -v key="$key" -v tokens=$((batch * seq)) -v flops="${flops:-0}" -v sheet="$sheet" -v peak="$peak" '
    function share(x, most) { return most > 0 && x > 0 ? sprintf("%13.1f %%", 100 * x / most) : sprintf("%15s", "-") }
    function put(who, name,   i, j, t, n, x, mid) {
      n = count[who]
      for (i = 1; i <= n; i++) x[i] = rate[who, i]
      for (i = 2; i <= n; i++) for (j = i; j > 1 && x[j] < x[j - 1]; j--) { t = x[j]; x[j] = x[j - 1]; x[j - 1] = t }
      if (!n) {
        printf "  %-8s %12s\n", name, "-"
        return 0
      }
      mid = n % 2 ? x[(n + 1) / 2] : (x[n / 2] + x[n / 2 + 1]) / 2
      t = flops / tokens * mid
      printf "  %-8s %12.0f  %-22s %10.1f %10.2f %s %s\n", name, mid, n " (" x[1] " to " x[n] ")", tokens / mid * 1e3, t / 1e12,
        share(t / 1e9, peak), share(t / 1e12, sheet)
      return mid
    }
    $1 == key { rate[$2, ++count[$2]] = $3 }
    END {
      printf "  %-8s %12s  %-22s %10s %10s %15s %15s\n", "", "tokens/s", "runs (from, to)", "ms a step", "TFLOP/s",
        "of measured", "of data sheet"
      z = put("zug", "Zug")
      t = put("torch", "PyTorch")
      if (z && t) printf "  Zug/PyTorch %9.3f\n", z / t
    }' all.txt
}

print_torch() {
  [ -n "$python" ] || { echo "no PyTorch here"; return; }
  printf 'PyTorch %s' "$torch"
  for m in $models; do printf '; %s: %s' "$m" "$(cat "torch-$m" 2>/dev/null || echo -)"; done
  echo
}

report() {
  text=$(cat zug-*-1.out 2>/dev/null | sed -n 's/^model .* micro-batches; //p' | head -n 1)
  peak=$(most 's/^median step.* of the \([0-9.]*\) GFLOP.*/\1/p' zug-)
  copies=$(most 's/^at the .* and the \([0-9.]*\) GB\/s of large copies.*/\1/p' times-)
  peak=${peak:-0} sheet=$(data_sheet "$text")
  echo "Zug on ${text:-nothing: no run}"
  print_torch
  printf 'measured: products %s GFLOP/s, copies %s GB/s (read and written); ' "$peak" "${copies:--}"
  if [ "$sheet" -gt 0 ]; then echo "data sheet: $sheet TFLOP/s"; else echo "no data sheet"; fi
  for m in $models; do
    settle "$m"
    print_model
    [ -f "times-$key.out" ] || continue
    echo
    sed -n '/^time by operation/,$p' "times-$key.out"
  done
}

for m in $models; do
  settle "$m"
  make_graph
done
trap 'report | tee report.txt; exit 1' INT TERM
i=1
while [ $i -le "$rounds" ]; do
  [ $i -eq 1 ] || [ "$(seconds)" -lt "$limit" ] || { say "no more rounds after $(seconds) s"; break; }
  one_round $i
  report >report.txt || say "the report is not complete"
  say "round $i of $rounds, $(seconds) s"
  i=$((i + 1))
done
cat report.txt
[ -s all.txt ] # else nothing ran
