#!/bin/sh
# `make first-gpu`: the first hour on a GPU, by itself and in at most 40 minutes: tests, benchmarks, and the settings that were
# chosen without one, each tried with others. One report has all tables and what they would change in the defaults. Not a test:
# whatever fails is a line of the report, and the rest goes on. Works by hand as well: first.sh, started in the build folder.
#
#   LIMIT=2280          nothing is begun after so many seconds; what was begun is ended at most two minutes later
#   STEPS=8             of each run that is measured; the median counts
#   PIECES="16 32 64 128 256"   MiB of workspace for a piece of attention's gradient
#   ONLY="ways piece"   only these parts: check eager sanitizer ways bench piece repeatable epilogues profile two
set -eu
ZUG_BUILD=${ZUG_BUILD:-$(pwd)}
ZUG_SRC=${ZUG_SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
out=$ZUG_BUILD/tests/scratch/first-gpu
limit=${LIMIT:-2280} steps=${STEPS:-8} pieces=${PIECES:-16 32 64 128 256}
only=${ONLY:-ways check piece repeatable epilogues bench two eager profile sanitizer}
began=$(date +%s)
case ${MPIRUN:=mpirun} in
*' '*) ;; # with options of its own
*) MPIRUN="$MPIRUN --allow-run-as-root --bind-to none" ;;
esac
say() { echo "first-gpu: $*" >&2; }
seconds() { echo $(($(date +%s) - began)); }

# ---- whether there is a GPU ----
if [ ! -x "$ZUG_BUILD/zrun" ]; then
  echo "first-gpu: no zrun here (it needs MPI), so there is nothing to try."
  exit 0
fi
rm -rf "$out" && mkdir -p "$out" && cd "$out"
# shellcheck disable=SC2086 # words are wanted
timeout -k 5 60 $MPIRUN -np 1 "$ZUG_BUILD/zrun" train none.zsg --device cuda >there.out 2>&1 || true
if why=$(grep -m 1 'no CUDA' there.out); then
  echo "first-gpu: no GPU here that zrun can use, so there is nothing to try ($why)."
  exit 0
fi
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU') || gpus=1
{
  echo "The first hour on $(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null | head -n 1 || echo a GPU)"
  echo "$gpus GPU(s); $(date -u '+%Y-%m-%d %H:%M') UTC; what programs said is in $out"
  echo
  echo "part         result                                              seconds"
} >report.txt
: >defaults.txt

# ---- parts ----
# part NAME SECONDS COMMAND...: into NAME.out, and a line of the report. False if it was left out or failed.
part() {
  name=$1 most=$2 from=$(seconds) code=0
  shift 2
  if [ "$from" -ge "$limit" ]; then
    printf '%-12s %-50s %8s\n' "$name" "left out: no time" - >>report.txt
    return 1
  fi
  left=$((limit + 120 - from))
  [ "$left" -lt "$most" ] || left=$most
  timeout -k 5 "$left" "$@" >"$name.out" 2>&1 || code=$?
  result=done
  [ $code -eq 0 ] || result="exit code $code, see $name.out: $(tail -n 1 "$name.out" | cut -c 1-20)"
  [ $code -ne 124 ] || result="ended after $left s, see $name.out"
  [ $code -ne 77 ] || result="skipped: $(tail -n 1 "$name.out" | cut -c 1-40)"
  printf '%-12s %-50s %8d\n' "$name" "$result" $(($(seconds) - from)) >>report.txt
  say "$name: $result, $(seconds) s"
  [ $code -eq 0 ]
}

# run NAME SETTING... [-- OPTION...]: gpt2 with these in the environment; prints tokens/s of the median step, 0 if it failed.
run() {
  run=$1 settings='' ranks=1 recipe=gpt2
  shift
  while [ $# -gt 0 ] && [ "$1" != -- ]; do
    case $1 in
    RANKS=*) ranks=${1#*=} ;;
    RECIPE=*) recipe=${1#*=} ;;
    *) settings="$settings $1" ;;
    esac
    shift
  done
  [ $# -eq 0 ] || shift
  # shellcheck disable=SC2086
  part "$run" 150 env $settings $MPIRUN -np $ranks "$ZUG_BUILD/zrun" train gpt2.zsg --recipe "recipes.zug:$recipe" \
    --data tokens.bin --device cuda --steps "$steps" "$@" || { echo 0; return; }
  rate=$(sed -n 's/^median step.*: \([0-9]*\)[0-9.]* tokens.*/\1/p' "$run.out" | head -n 1)
  echo "${rate:-0}"
}

# gain A B: how much more A is than B, in percent.
gain() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.1f", (b > 0 ? 100 * (a / b - 1) : 0) }'; }
clear_gain() { awk -v x="$1" 'BEGIN { exit !(x > 1.5) }'; } # beyond what two runs differ by

prepare() {
  sed '/^recipe llama/,$d' "$ZUG_SRC/tests/bench/recipes-gpu.zug" >recipes.zug
  echo 'recipe gpt2_2 from gpt2 { mesh data = 2   split batch over data   shard params, grads, states over data }' >>recipes.zug
  head -c 16000000 /dev/urandom | LC_ALL=C tr -d '\175-\377' | head -c 7000000 >tokens.u16
  "$ZUG_BUILD/zdata" pack tokens.u16 --tokens u16 -o tokens.bin &&
    "$ZUG_BUILD/zc" -q "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg -D layers=12 -D heads=12 -D width=768 -D context=1024
}

gpu_tests="make -C $ZUG_BUILD check-TESTS"

# What is slower than it might be, as a run says it.
part_ways() {
  # shellcheck disable=SC2086
  part ways 120 $MPIRUN -np 1 "$ZUG_BUILD/zrun" train gpt2.zsg --recipe recipes.zug:gpt2 --dry-run --device cuda || return 0
  grep '^note: ' ways.out >ways.txt || echo "nothing is done in a slower way than it might be" >ways.txt
}

part_piece() {
  base=$(run piece-default) best=$base best_piece=
  printf '%8s %12s %8s\n' MiB tokens/s gain >piece.txt
  printf '%8s %12s\n' default "$base" >>piece.txt
  for mib in $pieces; do
    rate=$(run "piece-$mib" -- --debug "attend-piece=$mib")
    printf '%8s %12s %7s%%\n' "$mib" "$rate" "$(gain "$rate" "$base")" >>piece.txt
    [ "$rate" -le "$best" ] || { best=$rate best_piece=$mib; }
  done
  [ "$base" -gt 0 ] && [ -n "$best_piece" ] && clear_gain "$(gain "$best" "$base")" || return 0
  echo "pieces of attention's gradient of $best_piece MiB (piece_of in kernels/cuda/attend_cudnn.c): $(gain "$best" "$base") % more" >>defaults.txt
}

# against NAME SETTING... [-- OPTION...]: the default beside another setting, in turn; `base` and `other`.
against() {
  what=$1
  shift
  base=$(run "$what-default") other=$(run "$what" "$@")
  printf '%12s %12s %8s\n%12s %12s %7s%%\n' default "$what" gain "$base" "$other" "$(gain "$other" "$base")" >"$what.txt"
}

part_repeatable() {
  against repeatable -- --repeatable
  [ "$base" -gt 0 ] && [ "$other" -gt 0 ] || return 0
  clear_gain "$(gain "$base" "$other")" ||
    echo "--repeatable always: choosing freely among algorithms gains $(gain "$base" "$other") % only" >>defaults.txt
}

part_epilogues() {
  against apart -- --debug epilogues=off
  [ "$base" -gt 0 ] && clear_gain "$(gain "$other" "$base")" || return 0
  echo "no epilogues of cuBLASLt (worth_it in kernels/cuda/dot_lt.c): $(gain "$other" "$base") % more" >>defaults.txt
}

part_bench() {
  part bench 600 env LIMIT=330 ROUNDS=1 sh "$ZUG_SRC/tests/bench/bench-gpu.sh" || true
  cp "$ZUG_BUILD/tests/scratch/bench-gpu/report.txt" bench.txt 2>/dev/null || true
}

part_two() {
  [ "$gpus" -ge 2 ] || { printf '%-12s %-50s %8s\n' two "left out: there is one GPU" - >>report.txt; return; }
  part nccl 300 $gpu_tests TESTS=tests/gpu/nccl.sh || true
  one=$(run two-one) both=$(run two-both RANKS=2 RECIPE=gpt2_2)
  unordered=$(run two-unordered RANKS=2 RECIPE=gpt2_2 NCCL_LAUNCH_ORDER_IMPLICIT=0)
  {
    printf '%12s %12s %12s %24s\n' "1 GPU" "2, ZeRO-3" "of twice" "uncaptured, no order"
    printf '%12s %12s %11s%% %24s\n' "$one" "$both" "$(awk -v a="$both" -v b="$one" 'BEGIN { printf "%.1f", (b > 0 ? 50 * a / b : 0) }')" "$unordered"
  } >two.txt
  [ "$both" -gt 0 ] && clear_gain "$(gain "$unordered" "$both")" || return 0
  echo "no implicit order of NCCL with this driver, and steps uncaptured: $(gain "$unordered" "$both") % more" >>defaults.txt
}

part_profile() {
  command -v nsys >/dev/null || { printf '%-12s %-50s %8s\n' profile "left out: no nsys here" - >>report.txt; return; }
  # shellcheck disable=SC2086
  part profile 150 nsys profile -f true -o profile --stats=true $MPIRUN -np 1 "$ZUG_BUILD/zrun" train gpt2.zsg \
    --recipe recipes.zug:gpt2 --data tokens.bin --device cuda --steps 6 || true
  sed -n '/cuda_gpu_kern_sum/,$p' profile.out | head -n 24 >profile.txt
}

report() {
  for table in ways bench piece repeatable apart two profile; do
    [ -s "$table.txt" ] || continue
    printf '\n---- %s\n' "$table"
    cat "$table.txt"
  done
  printf '\n---- what this would change in the defaults\n'
  if [ -s defaults.txt ]; then cat defaults.txt; else echo "nothing"; fi
}

trap 'report >>report.txt; cat report.txt; exit 1' INT TERM
prepare >prepare.out 2>&1 || { cat prepare.out; exit 1; }
for p in $only; do
  case $p in
  check) part check 900 $gpu_tests TESTS="tests/gpu/kernels.sh tests/gpu/layouts.sh tests/gpu/models.sh" || true ;;
  eager) part eager 300 env CUDA_MODULE_LOADING=EAGER make -C "$ZUG_BUILD" check-TESTS TESTS=tests/gpu/kernels.sh || true ;;
  sanitizer) part sanitizer 400 env TOOLS=memcheck make -C "$ZUG_BUILD" check-TESTS TESTS=tests/gpu/sanitizer.sh || true ;;
  *) "part_$p" ;;
  esac
done
report >>report.txt
cat report.txt
