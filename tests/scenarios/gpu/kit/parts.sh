# What try-gpu.sh runs: a function part_NAME each. A part adds lines to the report, one for each thing that it tried; what programs
# said is in logs.

# ---- one command, one line ----
# Runs a command into logs/NAME.out; false if it failed or there was no time. $result says how it went.
within() { # NAME SECONDS COMMAND...
  log=$1 most=$2 left=$((limit + 30 - $(seconds))) code=0 tried=yes
  shift 2
  if [ "$left" -le 30 ]; then
    result="left out: no time" verdict=bad
    return 1
  fi
  [ "$left" -lt "$most" ] || left=$most
  # In the background, since a shell hears of TERM only while it waits.
  timeout -k 5 "$left" "$@" >"logs/$log.out" 2>&1 </dev/null &
  running=$!
  wait "$running" || code=$?
  running=
  case $code in
  0) result=done && return ;;
  124 | 137) result="ended after $left s: $(tail -n 1 "logs/$log.out" | cut -c 1-120)" ;; # zrun makes the step that it is in
  *) result="code $code: $(cause "logs/$log.out")" ;;
  esac
  verdict=bad
  return 1
}
ours() { env LD_LIBRARY_PATH="$libraries" "$@"; }
run_ours() { # NAME SECONDS COMMAND...: the same for a program of the kit
  log=$1 most=$2
  shift 2
  within "$log" "$most" env LD_LIBRARY_PATH="$libraries" "$@"
}

# Prints the line that says what went wrong.
cause() { # FILE
  {
    grep -a -E '^(zrun|zdata|compare_runs):|^\[rank [0-9]+\] error|^error' "$1" ||
      grep -a -iE 'error|fail|cannot' "$1" | grep -v hwloc || tail -n 1 "$1"
  } | head -n 1 | cut -c 1-300
}

# Adds $result to the report, with the seconds since the last line.
line() { # NAME
  printf '%-30s %5s  %s\n' "$1" "$(($(seconds) - since))" "$result" | tee -a logs/lines.txt >&2
  since=$(seconds)
  [ "$verdict" = good ] || failed="$failed $1"
  verdict=good
  publish
}
skip() { # NAME WHY: what cannot be tried here
  result="left out: $2"
  line "$1"
}
below() { sed 's/^/                                        /' | cut -c 1-200 >>logs/lines.txt; } # under the line

# Runs zrun, whose metrics are then in logs/NAME.
zug() { # NAME SECONDS RANKS DEVICE MODEL FILE:RECIPE DATA STEPS OPTION...
  log=$1 most=$2 device=$4 graph=$d/$5.zsg script=$d/${6%:*}.zug:${6#*:} input=$d/$7.bin n=$8
  launch='' per_rank=$(((threads + $3 - 1) / $3))
  [ "$3" -eq 1 ] || launch="$mpirun -np $3 --oversubscribe --bind-to none"
  shift 8
  # shellcheck disable=SC2086 # words are wanted
  run_ours "$log" "$most" $launch ${program:-zrun} train "$graph" --recipe "$script" --data "$input" \
    --device "$device" --steps "$n" --threads "$per_rank" --log "logs/$log" "$@"
}

# ---- as on CPUs: cases.txt ----
# Runs a function for every row of a part, with the columns as variables and $case for its name.
each_case() { # PART FUNCTION
  awk -v part="$1" -v every="${EVERY:-no}" '$1 == part && (every == "yes" || $NF == "quick")' "$kit/cases.txt" >"logs/$1.cases"
  while read -r part model recipe ranks data steps loss norm when <&3; do
    case=$model-${recipe#*:}
    case $model in small | first) case=${recipe#*:} ;; esac
    [ "$ranks" -eq 1 ] || [ -n "$mpirun" ] || { skip "$case" "no mpirun here" && continue; }
    "$2" </dev/null
  done 3<"logs/$1.cases"
}

# Trains a case here and compares losses and norms with those of CPUs: the kit's, or made here.
try_case() { # OPTION...
  reference
  zug "$case" 120 "$ranks" "$dev" "$model" "$recipe" "$data" "$steps" "$@" && compare "$case" "$against" "$loss" "$norm"
}
reference() { # sets $against
  against=$d/$case.jsonl
  [ -s "$against" ] && return
  against=logs/cpu-$model-${recipe#*:}-$steps/metrics.jsonl
  [ -s "$against" ] && return
  here=$program program=
  zug "cpu-$model-${recipe#*:}-$steps" 300 "$ranks" cpu "$model" "$recipe" "$data" "$steps" --quiet
  program=$here
}
compare() { # NAME OTHER.jsonl LOSS NORM
  if ours compare_runs --loss "$3" --norm "$4" "logs/$1/metrics.jsonl" "$2" >"logs/$1.diff" 2>&1; then
    result="as on CPUs: $(tail -n 1 "logs/$1.diff")"
  else
    result="NOT AS ON CPUS: $(tail -n 1 "logs/$1.diff")" verdict=bad
    return 1
  fi
}
# Complains if a run did not say what it must.
must_say() { # NAME PATTERN
  [ "$dev" = cpu ] || [ "$verdict" = bad ] || grep -Eq "$2" "logs/$1.out" || { result="it does not say '$2'; $result" verdict=bad; }
}

# Does the device open, and does a small model train as on CPUs? Nothing else can be tried where it does not.
part_open() { each_case open open_case; }
open_case() {
  try_case
  line open
  ! grep -qE 'no CUDA device|cannot load zug-cuda' logs/$case.out || hopeless=yes
  sed -n 's/^model .*micro-batches*; //p; /^note: /p; /^ranks exchange/p; /^steps are/p' "logs/$case.out" | below
}

# GPT-2 124M against what CPUs computed when the kit was made. Where it is not the same, kernels are looked at before anything is measured.
part_first() { each_case first plain_case; }
plain_case() {
  try_case
  line "$case"
}

# Layouts on one GPU, which ranks share, with exchange by way of the host; with EVERY=yes each twice, which must give the same bits.
part_layouts() { each_case layouts layout_case; }
layout_case() {
  if try_case --repeatable && [ "${EVERY:-}" = yes ]; then
    [ "$ranks" -eq 1 ] || must_say "$case" "by way of the host's memory"
    alike=$result
    zug "$case-again" 120 "$ranks" "$dev" "$model" "$recipe" "$data" "$steps" --repeatable && compare "$case-again" "logs/$case/metrics.jsonl" 0 0 &&
      result="$alike; twice the same bits"
    result=$(echo "$result" | sed 's/^NOT AS ON CPUS/NOT THE SAME BITS TWICE/')
  fi
  line "$case"
}

# Models of other kinds; with EVERY=yes the arena is as large as zplan says without a GPU.
part_models() { each_case models model_case; }
model_case() {
  if try_case && [ "${EVERY:-}" = yes ]; then
    arena=$(sed -n 's/^planned == used: \(.*\) on rank 0.*/\1/p' "logs/$case.out")
    ours zplan show "$d/$model.zsg" --recipe "$d/${recipe%:*}.zug:${recipe#*:}" --device "$dev" >"logs/$case.plan" 2>&1
    grep -q "^ *0 .* $arena\$" "logs/$case.plan" || { result="zplan does not plan for $arena; $result" verdict=bad; }
  fi
  line "$case"
}

# NCCL with one rank, which has it only if asked, and between two. Where they share a GPU it is told that they are on two machines (it refuses two on one GPU) and goes by
# sockets: calls, not speed.
part_nccl() {
  [ "$dev" != cpu ] || { skip nccl "for GPUs" && return; }
  grep -q 'libnccl\.so' "$kit/lib/zug/zug-cuda.so" || { skip nccl "made without NCCL" && return; }
  program=zrun
  if [ "$gpus" -lt 2 ]; then
    cat >apart.sh <<'END2'
export NCCL_HOSTID=host$OMPI_COMM_WORLD_RANK NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1
export NCCL_ALGO=Ring NCCL_PROTO=Simple NCCL_MAX_CTAS=4 NCCL_NVLS_ENABLE=0
LD_PRELOAD=$APART exec zrun "$@"
END2
    export APART="$kit/lib/apart.so"
    program="sh apart.sh"
  fi
  base=$program
  each_case nccl nccl_case
  # Stages queue in one order of all (device/nccl.c): nothing may hang where a GPU does one thing after another, or hosts wait for each.
  [ "${EVERY:-}" != yes ] || for alone in CUDA_DEVICE_MAX_CONNECTIONS=1 CUDA_LAUNCH_BLOCKING=1 CUDA_MODULE_LOADING=EAGER; do
    case=pipe2-${alone%=*} model=small recipe=layouts:pipe2 ranks=2 data=text steps=3 loss=1e-5 norm=1e-4
    program="env $alone $base"
    plain_case
  done
  program=
}
nccl_case() {
  case=nccl-$case
  try_case --debug nccl-alone=on
  must_say "$case" 'ranks exchange by NCCL'
  line "$case"
  # A driver crashed on this (device/nccl.c), so it is not the default; where this line is good, it may become it.
  [ "$ranks" -gt 1 ] || return 0
  case=$case-captured
  try_case --debug nccl-alone=on --debug nccl-capture=on
  must_say "$case" 'steps are captured'
  line "$case"
}

# ---- what a plan does in slower ways than it might ----
part_ways() {
  for m in gpt2 llama; do
    run_ours "ways-$m" 60 zrun train "$d/$m.zsg" --recipe "$d/recipes.zug:$m" --dry-run --device "$dev" &&
      result="$(grep -c '^note: ' "logs/ways-$m.out") notes"
    line "ways-$m"
    grep '^note: ' "logs/ways-$m.out" 2>/dev/null | below
  done
}

# ---- every kernel against the reference in f64; each test is a process ----
# PyTorch compiles meanwhile, for what is measured later.
part_kernels() {
  [ "$dev" != cpu ] || { skip kernels "for GPUs" && return; }
  [ -x "$kit/bin/test-kernels" ] || { skip kernels "made without Criterion" && return; }
  case " $parts " in *' torch '*) compile_beside ;; esac
  kernel_tests kernels LAZY
  await_compiling 60
  [ "${EVERY:-}" != yes ] || kernel_tests kernels-eager EAGER # each is loaded at once, and by that looked at
}
kernel_tests() { # NAME LOADING
  run_ours "$1" 150 env CUDA_MODULE_LOADING="$2" "$kit/bin/test-kernels" -j"$threads" --timeout 120 --tap="logs/$1.tap"
  result="$(grep -c '^ok' "logs/$1.tap") passed, $(grep -c '^not ok' "logs/$1.tap") failed; $result"
  line "$1"
  grep '^not ok' "logs/$1.tap" | head -n 20 | below
}

# The same under compute-sanitizer, a tool after the other (EVERY=yes: minutes each), else a run of two steps.
part_sanitizer() {
  tool=$(PATH="$PATH:/usr/local/cuda/bin:/opt/cuda/bin" command -v compute-sanitizer) ||
    { skip sanitizer "no compute-sanitizer here; it comes with the CUDA toolkit" && return; }
  if [ "${EVERY:-}" = yes ]; then
    [ -x "$kit/bin/test-kernels" ] || { skip sanitizer "made without Criterion" && return; }
    for t in ${TOOLS:-memcheck racecheck synccheck}; do
      run_ours "sanitizer-$t" 1200 "$tool" --tool "$t" --target-processes all --error-exitcode 9 "$kit/bin/test-kernels" \
        -j"$threads" --timeout 900
      sanitized "sanitizer-$t"
    done
  else
    run_ours sanitizer 90 "$tool" --tool memcheck --error-exitcode 9 zrun train "$d/mid_gpt2.zsg" --recipe "$d/recipes.zug:lm_half" \
      --data "$d/text.bin" --device "$dev" --steps 2 --quiet
    sanitized sanitizer
  fi
}
sanitized() { # NAME
  found=$(grep -m 1 -E '(ERROR|RACECHECK) SUMMARY' "logs/$1.out")
  result="${found:-no summary}; $result"
  line "$1"
}

# ---- speed: of the models that `make bench-gpu` has; without a GPU of small ones ----
if [ "$dev" = cpu ]; then tiny=tiny_; else tiny=; fi
median() { sed -n 's/^median step[^:]*: *//p' "logs/$1.out" | head -n 1; }
# Measures a model; its line and its row of the table are called NAME.
measure() { # NAME MODEL RECIPE STEPS OPTION...
  label=$1 m=$tiny$2 r=recipes:$3 s=$4
  shift 4
  zug "$label" 150 1 "$dev" "$m" "$r" tokens "$s" "$@" && result=$(median "$label")
  line "$label"
}
part_gpt2() { measure zug-gpt2 gpt2 ${tiny}gpt2 "$steps_measured"; }
part_llama() { measure zug-llama llama ${tiny}llama "$steps_measured"; }

# Steps of 524,288 tokens, as others measure.
part_large() {
  if [ -n "$tiny" ]; then long=; else long=_512k; fi
  for each in gpt2 llama; do measure "zug-$each-512k" $each $tiny$each$long 4; done
}

# Attention's gradient: the default against the same bits in every run, for which a table of all scores goes through memory, in pieces as
# large as they come, and in smaller ones.
part_pieces() {
  for each in gpt2 llama; do
    measure "set-$each-repeatable" $each $tiny$each 5 --repeatable
    measure "set-$each-repeatable-256-MiB" $each $tiny$each 5 --repeatable --debug attend-piece=256
    measure "set-$each-repeatable-32-MiB" $each $tiny$each 5 --repeatable --debug attend-piece=32 # what the L2 of an H100 holds
  done
}

# ---- generation, with weights as training begins with ----
# Of each model: greedy ids in f32 against those of CPUs; then in bf16 how fast it writes, as a share of what reading the weights
# takes by the data sheet, and reads prompts, as a share of training's forward, a third of a step. Llama, whose head is a matrix of its own,
# writes also with weights in few bits: greedy ids in f32 by nf4 against those of CPUs, which round what int8 and int4 are multiplied by.
part_generate() {
  for model in gpt2 llama; do
    measured_model "$tiny$model"
    run_ours "weights-$model" 90 zrun train "$d/$tiny$model.zsg" --recipe "$d/recipes.zug:initial" --steps 0 --save "weights-$model.safetensors" \
      --device cpu --threads "$threads" || { line "generate-$model" && continue; }
    if [ -n "$tiny" ]; then written=40 prompts=8 length=32; else written=1000 prompts=64 length=1000; fi
    lines 8 24 20 >ids.jsonl
    lines 1 1 $written >write-1.jsonl
    lines 8 1 $written >write-8.jsonl
    lines $prompts $length 1 >prompts.jsonl
    same_ids "$model"
    for each in write-1 write-8 prompts; do writes "$model-$each" "$model" "$dev" "$each" bf16 || break; done
    [ "$verdict" = bad ] || result=$(generated "$model")
    line "generate-$model"
    [ $model != llama ] || in_few_bits $model
    rm -f "weights-$model.safetensors"
  done
}
lines() { # PROMPTS LENGTH TOKENS: each prompt begins in its own way, so that nothing is shared
  awk -v n="$1" -v size="$2" -v tokens="$3" 'BEGIN { for (i = 0; i < n; i++) {
    printf "{\"tokens\": ["
    for (k = 0; k < size; k++) printf "%s%d", k ? ", " : "", (i * 1009 + k * 617 + 5) % 30000
    print "], \"max_tokens\": " tokens ", \"ignore_eos\": true}" } }'
}
in_few_bits() { # MODEL
  same_ids "$1" -nf4 --weights nf4
  for format in int8 int4 nf4; do
    case $format in int8) bits=8.25 ;; *) bits=4.25 ;; esac
    writes "$1-$format" "$1" "$dev" write-1 bf16 --weights $format && result=$(few_bits_rate "$1" $format $bits)
    line "generate-$1-$format"
  done
}
writes() { # NAME MODEL DEVICE LINES PRECISION OPTION...: logs/generate-NAME.out, and results in NAME.results
  name=$1 graph=$2 on=$3 texts=$4 precision=$5
  shift 5
  rm -f "$name.results"
  run_ours "generate-$name" 120 zrun generate "$d/$tiny$graph.zsg" --init "weights-$graph.safetensors" --prompts "$texts.jsonl" -o "$name.results" \
    --precision "$precision" --device "$on" --threads "$threads" --sequences 8 --draft-tokens 0 "$@"
}
same_ids() { # MODEL [NAME OPTION...]
  of=$1 ids=ids${2:-}
  shift $(($# > 1 ? 2 : 1))
  if writes "$of-$ids" "$of" "$dev" ids f32 "$@" && writes "$of-$ids-cpu" "$of" cpu ids f32 "$@"; then
    for each in $ids $ids-cpu; do sed 's/.*"tokens":\[\([0-9,]*\)\].*/\1/' "$of-$each.results" | tr , '\n' >"$of-$each.txt"; done
    alike=$(paste "$of-$ids.txt" "$of-$ids-cpu.txt" | awk '$1 == $2' | wc -l) all=$(wc -l <"$of-$ids-cpu.txt")
    result="as on CPUs: $alike of $all ids"
    [ "$alike" -eq "$all" ] && [ "$all" -eq 160 ] || { result="NOT AS ON CPUS: $alike of $all ids are the same" verdict=bad; }
  fi
  must_say "generate-$of-$ids" '^planned == used: '
  line "generate-$of-$ids"
}
rate() { # NAME FIELD: tokens of prompts (1) or written (2) per second
  sed -n 's/^\([0-9]*\) tokens of prompts, \([0-9]*\) written in \([0-9.]*\) s:.*/\1 \2 \3/p' "logs/generate-$1.out" |
    awk -v field="$2" '$3 > 0 { print $field / $3 }'
}
read_bytes() { # MODEL: sets $bytes, of weights in bf16, and $table: of a lookup, of words or positions, one row is read
  bytes=$(($(wc -c <"weights-$1.safetensors") / 2))
  case $1 in llama) rows=$words ;; *) rows=1024 ;; esac
  table=$((rows * $(echo "$sizes" | sed 's/.*width=\([0-9]*\).*/\1/') * 2))
}
few_bits_rate() { # MODEL FORMAT BITS
  read_bytes "$1"
  awk -v one="$(rate "$1-$2" 2)" -v bytes="$(((bytes - table) / 16))" -v bits="$3" \
    -v memory="$(memory_sheet "$(cat logs/gpu.txt 2>/dev/null)")" '
    BEGIN { printf "%.0f tokens/s%s", one, (memory > 0 ? sprintf(" (%.2f)", one * bytes * bits / memory / 1e9) : "") }'
}
generated() { # MODEL
  read_bytes "$1"
  awk -v one="$(rate "$1-write-1" 2)" -v eight="$(rate "$1-write-8" 2)" -v prompt="$(rate "$1-prompts" 1)" \
    -v bytes="$bytes" -v table="$table" \
    -v memory="$(memory_sheet "$(cat logs/gpu.txt 2>/dev/null)")" \
    -v train="$(sed -n 's/^median step [0-9.]* ms: \([0-9.]*\) tokens.*/\1/p' "logs/zug-$1.out" 2>/dev/null | head -n 1)" '
    function share(x, of) { return of > 0 ? sprintf(" (%.2f)", x / of) : "" }
    BEGIN { printf "%.0f tokens/s%s, 8 at once %.0f%s, prompts %.0f%s", one, share(one * (bytes - table), memory * 1e9),
      eight, share(eight / 8 * (bytes - table), memory * 1e9), prompt, share(prompt, 3 * train) }'
}

# What else was chosen without a GPU, beside the default.
part_settings() {
  measure set-gpt2-no-epilogues gpt2 ${tiny}gpt2 5 --debug epilogues=off
  measure set-gpt2-uncaptured gpt2 ${tiny}gpt2 5 --debug graph-nodes=0
}

# What every operation reaches of its bound.
part_times_gpt2() { by_operation gpt2; }
part_times_llama() { by_operation llama; }
by_operation() { # MODEL
  zug "times-$1" 120 1 "$dev" "$tiny$1" "recipes:$tiny$1" tokens 4 --times && result=$(grep -m 1 '^at the ' "logs/times-$1.out")
  line "times-$1"
  sed -n '/^time by operation/,$p' "logs/times-$1.out" 2>/dev/null | head -n 40 | below
}

# Two GPUs: ZeRO-3, and with steps that are not captured for want of NCCL's order.
part_two() {
  [ "$gpus" -ge 2 ] || { skip two "for two GPUs" && return; }
  for order in 1 0; do
    program="env NCCL_LAUNCH_ORDER_IMPLICIT=$order zrun" label=zug-gpt2-on-two-order-$order
    zug $label 150 2 "$dev" gpt2 recipes:gpt2_two tokens "$steps_measured" && result=$(median $label)
    line $label
  done
  program=
}

# The longest kernels, where nsys is.
part_profile() {
  command -v nsys >/dev/null || { skip profile "no nsys here" && return; }
  run_ours profile 150 nsys profile -f true -o logs/profile --stats=true zrun train "$d/${tiny}gpt2.zsg" \
    --recipe "$d/recipes.zug:${tiny}gpt2" --data "$d/tokens.bin" --device "$dev" --steps 6
  line profile
  sed -n '/cuda_gpu_kern_sum/,$p' logs/profile.out 2>/dev/null | head -n 24 | below
}

# ---- PyTorch, on the same models and batches ----
has_torch() { [ -n "$python" ] && "$python" -c "import torch; assert '$dev' == 'cpu' or torch.cuda.is_available()" >/dev/null 2>&1; }
# Sets $command to one run. What was compiled is kept in TORCHINDUCTOR_CACHE_DIR.
torch_command() { # MODEL VARIANT STEPS
  measured_model "$tiny$1" && measured_recipe "$d/recipes.zug" "$tiny$1"
  command="env PYTHONUNBUFFERED=1 $python $d/torch_lm.py $(torch_options "$tiny$1") --variant $2 --device $dev --steps $3 --skip 3"
}
compile_beside() {
  has_torch || return 0
  for m in gpt2 llama; do
    torch_command $m compile,half,flash 1
    echo "$command"
  done >compile.sh
  timeout -k 5 200 sh compile.sh >logs/compiling.out 2>&1 </dev/null & # which ends its whole group when it is told to end itself
  hidden=$!
}
# Waits so many seconds for it, then ends it: nothing is measured beside it.
await_compiling() {
  [ -n "$hidden" ] || return 0
  while kill -0 "$hidden" 2>/dev/null && [ $(($(seconds) - since)) -lt "$1" ]; do sleep 1; done
  kill "$hidden" 2>/dev/null
  wait "$hidden" 2>/dev/null
  hidden=
  result="PyTorch compiled $(grep -c '^torch ' logs/compiling.out) of 2 models beside it, and was waited for"
  line compiling
}
part_torch() { torch_variants gpt2:compile,half,flash llama:compile,half,flash; }
part_torch_more() { torch_variants ${TORCH:-gpt2:compile,half,cudnn llama:compile,half,cudnn gpt2:eager,half,flash}; }
torch_variants() { # MODEL:VARIANT...
  has_torch || { skip torch "no PyTorch here that sees a GPU" && return; }
  for each in "$@"; do
    label=torch-${each%%:*}-$(echo "${each#*:}" | tr , -)
    torch_command "${each%%:*}" "${each#*:}" $((steps_measured > 4 ? steps_measured - 2 : 2))
    # shellcheck disable=SC2086
    within "$label" 110 $command && result=$(grep -m 1 '^torch ' "logs/$label.out")
    line "$label"
  done
}

# ---- the table ----
# Prints a row for each measured run: of Zug's FLOPs a token, which are the plan's, PyTorch has as many.
table() {
  sheet=$(data_sheet "$(cat logs/gpu.txt 2>/dev/null)")
  echo "model   who                        tokens/s   ms a step   TFLOP/s   of the data sheet   of torch.compile"
  for m in gpt2 llama; do
    per_token=$(sed -n 's/.*"tokens":\([0-9]*\).*"flops":\([^,]*\),.*/\2 \1/p' logs/zug-$m/metrics.jsonl logs/*-$m-*/metrics.jsonl 2>/dev/null |
      awk 'NR == 1 { print $1 / $2 }')
    for file in logs/zug-$m.out logs/zug-$m-*.out logs/set-$m-*.out logs/torch-$m-*.out; do
      who=Zug${file#"logs/zug-$m"}
      case $file in logs/set-*) who=Zug${file#"logs/set-$m"} ;; logs/torch-*) who=torch-${file#"logs/torch-$m-"} ;; esac
      sed -n "s|^median step \([0-9.]*\) ms: \([0-9.]*\) tokens.*|${who%.out} \2 \1|p
        s|^torch .*: \([0-9.]*\) tokens/s, \([0-9.]*\) ms.*|${who%.out} \1 \2|p" "$file" 2>/dev/null
    done | awk -v m="$m" -v per="${per_token:-0}" -v sheet="$sheet" '
      { who[NR] = $1; rate[NR] = $2; ms[NR] = $3; if ($1 ~ /^torch-compile/ && $2 > best) best = $2 }
      END { for (i = 1; i <= NR; i++) { t = per * rate[i] / 1e12
        printf "%-7s %-24s %10.0f %11.1f %9.1f   %17s %18s\n", m, who[i], rate[i], ms[i], t,
          (sheet > 0 ? sprintf("%.1f %%", 100 * t / sheet) : "-"), (best > 0 ? sprintf("%.3f", rate[i] / best) : "-") } }'
  done
}
