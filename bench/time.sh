#!/bin/sh
# `make bench-time`: how near predicted steps come to measured ones on this machine. Trains small models in every layout of one
# and two ranks, a rank a core, between two calibrations each whose mean predicts, and prints predicted and measured medians,
# and which part was off. Nothing is required: machines are noisy. README.md says how to read it.
#
#   ROUNDS=1          of several, medians are printed
#   STEPS=30          of a run; the first three do not count
#   MODELS="gpt2 tiny llama3 mlp"
#   LAYOUTS="..."     of time.zug (default: all that a model has)
#   RUN, RANK, NODES  as in ranks.sh; on nodes layouts of two ranks alone
set -u
out=$ZUG_BUILD/tests/scratch/bench-time
recipes=$ZUG_SRC/bench/time.zug
steps=${STEPS:-30}
models=${MODELS:-gpt2 tiny llama3 mlp}
PATH=$ZUG_BUILD:$PATH
fail() { echo "$*" && exit 1; }
[ -x "$ZUG_BUILD/zrun" ] || fail "bench-time: no zrun here (it needs MPI)"
rm -rf "$out" && mkdir -p "$out" && cd "$out" || exit 1
: >all.txt

. "$ZUG_SRC/bench/ranks.sh"

layouts_of() { # MODEL
  [ "${LAYOUTS:-}" ] && echo "$LAYOUTS" && return
  case $1 in
  mlp) echo mlp mlp_half mlp_data mlp_zero1 mlp_zero2 mlp_zero3 mlp_tensor ;;
  *) echo one remat half data zero1 zero2 zero3 zero3_keep data_half pipe pipe_remat tensor tensor_seq tensor_half ;;
  esac
}

# predicted MODEL RECIPE FILE: milliseconds of the step, of those computing, and waiting for others
predicted() {
  zplan sim "$1.zsg" --recipe "$recipes:$2" --cluster "$3:here" --json | tr '{},' '\n\n\n' | awk -F : '
    $1 == "\"seconds\"" { all = $2 } /"stages"/ { exit } $1 ~ /"(tensor|data|idle)"/ { wait += $2 }
    END { print 1e3 * all, 1e3 * (all - wait), 1e3 * wait }'
}

one_run() { # MODEL RECIPE
  ranks=$(zplan show "$1.zsg" --recipe "$recipes:$2" 2>err.txt | sed -n 's/^recipe .* parameters, \([0-9]*\) rank.*/\1/p')
  [ "$ranks" ] || { echo "$1 $2: $(head -n 1 err.txt)" && return; }
  [ "${NODES:-}" ] && [ "$ranks" = 1 ] && return
  rm -rf log
  [ "$ranks" = "$last" ] || calibrate "$ranks"
  last=$ranks
  start "$ranks" zrun train "$1.zsg" --recipe "$recipes:$2" --data "$(data_of "$1")" --steps "$steps" --log log >"$1-$2.out" 2>&1 ||
    { echo "$1 $2 failed:" && tail -n 3 "$1-$2.out" && return; }
  calibrate "$ranks"
  echo "$(predicted "$1" "$2" "before$ranks.zug") $(predicted "$1" "$2" "here$ranks.zug")" >predicted.txt
  sed -n 's/.*"step":\([0-9]*\),.*"step_ms":\([0-9.]*\).*"wait_ms":\([0-9.]*\),.*/\1 \2 \3/p' log/metrics.jsonl |
    awk -v of="$1 $2 $ranks" '
      function sorted(x,   i, j, t) { for (i = 2; i <= n; i++) for (j = i; j > 1 && x[j] < x[j - 1]; j--) { t = x[j]; x[j] = x[j - 1]; x[j - 1] = t } }
      FNR == NR { p = ($1 + $4) / 2; pc = ($2 + $5) / 2; pw = ($3 + $6) / 2; apart = 100 * ($1 / $4 - 1); next }
      $1 > 3 { step[++n] = $2; wait[n] = $3; comp[n] = $2 - $3 }
      END { sorted(step); sorted(wait); sorted(comp); m = int((n + 1) / 2)
        print of, p, step[m], step[int(1 + n / 10)], step[int(n - n / 10)], pc, comp[m], pw, wait[m], apart < 0 ? -apart : apart }' predicted.txt - |
    tee -a all.txt
}

last=
round=0
while [ $round -lt "${ROUNDS:-1}" ]; do
  for model in $models; do
    for recipe in $(layouts_of "$model"); do one_run "$model" "$recipe"; done
  done
  round=$((round + 1))
done

machine
cat here2.zug
echo
awk '
  function median(v, n,   i, j, t) { for (i = 2; i <= n; i++) for (j = i; j > 1 && v[j] < v[j - 1]; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
    return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2 }
  function of(k, f,   i, v) { for (i = 1; i <= count[k]; i++) v[i] = cell[k, i, f]; return median(v, count[k]) }
  { k = $1 " " $2; if (!count[k]++) order[++keys] = k; n = count[k]
    for (f = 3; f <= NF; f++) cell[k, n, f] = $f; cell[k, n, "e"] = 100 * ($4 / $5 - 1) }
  END {
    printf "%-8s %-11s %5s %10s %10s %7s %15s  %19s  %19s %6s\n", "model", "layout", "ranks", "predicted", "measured", "error", "10 % .. 90 %", "computing, ms of", "waiting, ms of", "apart"
    for (i = 1; i <= keys; i++) {
      k = order[i]; split(k, w, " "); e = of(k, "e"); a = e < 0 ? -e : e; all[i] = a; if (a > worst) worst = a
      printf "%-8s %-11s %5d %7.1f ms %7.1f ms %+5.1f %% %6.1f .. %6.1f  %8.1f of %8.1f  %8.1f of %8.1f %4.0f %%\n", w[1], w[2], of(k, 3), of(k, 4), of(k, 5), e,
        of(k, 6), of(k, 7), of(k, 9), of(k, 8), of(k, 11), of(k, 10), of(k, 12)
    }
    if (keys) printf "%d layouts: median error %.1f %%, worst %.1f %%\n", keys, median(all, keys), worst
  }' all.txt
