# What is not finite, and steps of which nothing is known: the step, the place and the cause are said, once, on any layout;
# and no good file is replaced.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi

cat >line.zug <<'END'
use std.nn as nn
model Line {
  axis batch, a = 4, b = 4, c = 4
  input x: real[batch, a]
  input weight: real[batch]
  input t: index(a)[batch]
  param first[a, b] ~ normal(0.5)
  h = dot[a](x, first)
  repeat 2 as layer {
    param turn[b, c] ~ normal(0.5)
    h = h + rename[c, b](dot[b](h, turn))
  }
  param last[b] = 0.5
  loss dot[b](h, last) * dot[b](h, last) per PER
}
END
cat >recipes.zug <<'END'
recipe one { bind batch = 8   micro 4   optimizer sgd(lr = 0.01, momentum = 0.9) }
recipe wild from one { optimizer sgd(lr = 1e300) }
recipe pipe_4 from one { mesh pipe = 2, data = 2   split batch over data   stages over pipe = [1, 1]   micro 2   shard params, grads, states over data }
recipe wild_4 from pipe_4 { optimizer sgd(lr = 1e300) }
recipe half_4 from pipe_4 { precision compute bf16   optimizer adamw(lr = 1e300) }
recipe adam_4 from pipe_4 { precision compute bf16   optimizer adamw(lr = 0.01) }
recipe steep from one { optimizer sgd(lr = 1e18) }
recipe steep_4 from pipe_4 { optimizer sgd(lr = 1e18) }
END
for per in "known(t)" "weight"; do
  name=$(echo "$per" | tr - n | tr -dc 'a-z0-9')
  sed "s/PER/$per/" line.zug >"$name.zug"
  ok zc "$name.zug" -o "$name.zsg"
done

# records FILE BAD WEIGHT: 32 samples of four features of 1, a weight and a target; feature 2 of sample BAD is a NaN
records() {
  awk -v bad="$2" -v weight="$3" 'BEGIN {
    for (s = 0; s < 32; s++) {
      for (i = 0; i < 4; i++) printf "%s", s == bad && i == 2 ? "\\000\\000\\300\\177" : "\\000\\000\\200\\077"
      printf "%s%s", s < 16 ? "\\000\\000\\200\\077" : weight, s < 16 ? "\\001\\000\\000\\000" : "\\377\\377\\377\\377"
    }
  }' >escapes.txt
  printf "$(cat escapes.txt)" >records.raw
  ok zdata records records.raw --field x:f32:4 --field weight:f32:1 --field t:i32:1 -o "$1"
}
records good.bin 99 '\\000\\000\\000\\000'
records bad.bin 13 '\\000\\000\\000\\000'

# train NP GRAPH RECIPE DATA STEPS OPTION...; stops PATTERN and the same: it must end with such a message
train() {
  np=$1 graph=$2 recipe=$3 data=$4 steps=$5
  shift 5
  $how $(on "$np") zrun train "$graph.zsg" --recipe recipes.zug:"$recipe" --data "$data" --order sequential --steps "$steps" "$@"
}
trains() {
  how="ok timeout -k 5 60"
  train "$@"
}
stops() {
  wanted=$1
  shift
  how=refused
  train "$@"
}
refused() { refuses "$wanted" "$@"; }
once() {
  [ "$(grep -Ec -- "$1" out.txt)" -eq 1 ] || { cat out.txt; fail "not once: $1"; }
  grep -Eq -- '(^|[^n])-nan' out.txt && { cat out.txt; fail "a NaN with a sign"; }
}

# ---- the last step's update ----
trains 1 weight one good.bin 1 --save good.safetensors
cp good.safetensors w.safetensors
for recipe in wild:1 half_4:4 $(at_night && echo wild_4:4); do
  set -- "${recipe%:*}" "${recipe#*:}"
  stops 'step 1: the update leaves values of .* parameters.* not finite .*lr 1e\+300' "$2" weight "$1" good.bin 1 --save w.safetensors
  once 'the update leaves'
  cmp w.safetensors good.safetensors || fail "$1: a good file was replaced"
done

# ---- a later step; all parameters are known ----
stops 'step 2: the (loss is (inf|nan)|update leaves)' 1 weight steep good.bin 2 --log steep --on-nan end
once 'gradients that are not finite: |the update leaves'
stops 'step 2: the (loss is (inf|nan)|update leaves)' 4 weight steep_4 good.bin 2 --on-nan end
once 'gradients that are not finite: |the update leaves'

# ---- data: such a step updates nothing ----
for recipe in $(at_night && echo one:1 pipe_4:4) adam_4:4; do
  set -- "${recipe%:*}" "${recipe#*:}"
  stops 'step 2: the loss is nan .*input `x` of sample 13 of the run is not finite: record 13 of bad.bin.*; the run ends' \
    "$2" weight "$1" bad.bin 3 --on-nan end
  stops 'step 4: .*input `x` of sample 27 of the run is not finite: record 13 of bad.bin.*; the run ends' \
    "$2" weight "$1" good.bin:1,bad.bin:1 5 --on-nan end
  once 'all 4 parameters'
  code=$($(on "$2") zrun train weight.zsg --recipe recipes.zug:"$1" --data bad.bin --order sequential --steps 3 --on-nan end \
    >out.txt 2>&1 || echo $?)
  [ "$code" = 2 ] || fail "another code than 2, that it need not be tried again: $code"
  for how_on in "" "--on-nan skip"; do
    trains "$2" weight "$1" bad.bin 2 $how_on --save skipped.safetensors
    says '^note: step 2: the loss is nan and the gradient norm nan, so nothing is updated; .*input `x` of sample 13 of the run'
    once '^note: step 2'
    trains "$2" weight "$1" good.bin 1 --save one.safetensors
    cmp one.safetensors skipped.safetensors || fail "$1: a step that is not finite changes parameters"
  done
done
# Nor do states change: goes on after a bad step as if there had been none. (AdamW's step counts, so its numbers differ.)
records gap.bin 13 '\\000\\000\\200\\077' # all of weight 1
head -c $((8 * 24)) records.raw >short.raw
tail -c $((16 * 24)) records.raw >>short.raw # without samples 8 to 15, those of step 2
ok zdata records short.raw --field x:f32:4 --field weight:f32:1 --field t:i32:1 -o short.bin
for recipe in $(at_night && echo one:1) pipe_4:4; do
  set -- "${recipe%:*}" "${recipe#*:}"
  trains "$2" weight "$1" gap.bin 3 --save skipped.safetensors
  trains "$2" weight "$1" short.bin 2 --save without.safetensors
  cmp skipped.safetensors without.safetensors || fail "$1: a step that is not finite leaves something in the momentum"
done
# What is not a number is made in the model: by which operation, where, and in which micro-batch, on one rank as on four.
sed 's/  loss dot.*/  h = log(0 - 1 - h * h)\n&/; s/PER/weight/' line.zug >log.zug
ok zc log.zug -o log.zsg
at=$(grep -n 'h = log' log.zug | cut -d: -f1)
for recipe in $(at_night && echo one:1 pipe_4:4) adam_4:4; do
  set -- "${recipe%:*}" "${recipe#*:}"
  stops "step 1: the loss is nan .*; the first NaN is made by \`[a-z]*\` at log.zug:$at in FWD\(.*mb 0.*; the run ends" "$2" log "$1" good.bin 1 --on-nan end
  once 'the first NaN'
  trains "$2" log "$1" good.bin 2 --save skipped.safetensors # which is looked for without an update
  trains "$2" log "$1" good.bin 0 --save start.safetensors
  cmp start.safetensors skipped.safetensors || fail "$1: looking for the first NaN changes parameters"
done
# Step 2 of every four is bad: never three in a row. Without the other samples all are.
trains 1 weight one gap.bin 10
[ "$(grep -c '^note: step [26]\|^note: step 10' out.txt)" -eq 3 ] || { cat out.txt; fail "not all bad steps are said"; }
tail -c +$((8 * 24 + 1)) records.raw | head -c $((8 * 24)) >bad.raw
ok zdata records bad.raw --field x:f32:4 --field weight:f32:1 --field t:i32:1 -o all_bad.bin
for recipe in $(at_night && echo one:1) pipe_4:4; do
  set -- "${recipe%:*}" "${recipe#*:}"
  stops 'step 3: the loss is nan .*; the run ends, since these are 3 steps in a row' "$2" weight "$1" all_bad.bin 9 --save w.safetensors
  once '^note: step 1:'
  once '^note: step 2:'
  trains "$2" weight "$1" all_bad.bin 5 --on-nan skip --save skipped.safetensors
  trains "$2" weight "$1" good.bin 0 --save start.safetensors
  cmp start.safetensors skipped.safetensors || fail "$1: steps that are not finite change parameters"
done
refuses '--on-nan cannot be .go.; give end or skip' zrun train weight.zsg --recipe recipes.zug:one --data good.bin --steps 1 --on-nan go

# An id that is out of range is found before the first step: one rank says it, and all end.
sed 's/\\001\\000\\000\\000/\\011\\000\\000\\000/g; s/\\377\\377\\377\\377/\\011\\000\\000\\000/g' escapes.txt >nine.txt
printf "$(cat nine.txt)" >records.raw
ok zdata records records.raw --field x:f32:4 --field weight:f32:1 --field t:i32:1 -o nine.bin
for try in 1 $(at_night && echo 2 3); do
  stops "error: nine.bin: its largest id in 't' is 9; the model knows 0 to 3" 4 knownt pipe_4 nine.bin 2
  once 'error: nine.bin'
done

# ---- a step of which nothing is known updates nothing, and the run goes on; so it does from a checkpoint ----
for recipe in $(at_night && echo one:1) pipe_4:4; do
  set -- "${recipe%:*}" "${recipe#*:}"
  trains "$2" knownt "$1" good.bin 4 --log unknown-"$1" --ckpt kept-"$1" --ckpt-every 2
  says '^note: step 3: the loss is divided by 0, .*knownt.zug:[0-9]+.* 8 samples of the step, so nothing is updated'
  once '^note: step 3'
  once '^note: step 4'
  [ "$(tail -n 2 unknown-"$1"/metrics.jsonl | grep -c '"loss":null')" = 2 ] || fail "$1: metrics of what is not known"
  zckpt diff kept-"$1"/step-00000002 kept-"$1"/step-00000004 >diff.txt || { cat diff.txt; fail "$1: such a step changes something"; }
  trains "$2" knownt "$1" good.bin 5 --resume-from kept-"$1"/step-00000002 --ckpt kept-"$1"
  once '^note: step 3'
done
stops 'step 3: the loss is divided by 0, .*; the run ends' 1 knownt one good.bin 4 --on-nan end --save w.safetensors
cmp w.safetensors good.safetensors || fail "a good file was replaced"

# ---- initial values ----
sed 's/param first.*/param first[a, b] ~ normal(3e38)/' weight.zug >huge.zug
ok zc huge.zug -o huge.zsg
for recipe in one:1 $(at_night && echo pipe_4:4); do
  set -- "${recipe%:*}" "${recipe#*:}"
  stops 'the initial value of first\[[0-3], [0-3]\] is -?inf \(parameter at huge.zug:' "$2" huge "$1" good.bin 1 --save w.safetensors
  once 'is -?inf'
done

# Byte 1 of element 9 of layer.1.turn becomes that of a NaN, in all its four bytes.
trains 1 weight one good.bin 0 --save start.safetensors
says 'no steps'
at=$(od -An -t u8 -N 8 start.safetensors)
begin=$(head -c $((at + 8)) start.safetensors | grep -ao '"layer.1.turn":{[^}]*"data_offsets":\[[0-9]*' | grep -o '[0-9]*$')
cp start.safetensors broken.safetensors
printf '\377\377\377\377' | dd of=broken.safetensors bs=1 seek=$((at + 8 + begin + 36)) conv=notrunc 2>dd.txt
for recipe in $(at_night && echo one:1) pipe_4:4; do
  set -- "${recipe%:*}" "${recipe#*:}"
  stops 'broken.safetensors: layer.1.turn\[2, 1\] is nan' "$2" weight "$1" good.bin 1 --init broken.safetensors --save w.safetensors
  once 'is nan'
done
cmp w.safetensors good.safetensors || fail "a good file was replaced"

# ---- no steps: the initial weights, without data, the same from any layout ----
ok timeout -k 5 60 $MPIRUN -np 4 zrun train weight.zsg --recipe recipes.zug:pipe_4 --steps 0 --save four.safetensors
cmp four.safetensors start.safetensors || fail "initial weights"
trains 1 weight one good.bin 0 --init good.safetensors --save same.safetensors
cmp same.safetensors good.safetensors || fail "weights that were read and written"
refuses 'needs --data' zrun train weight.zsg --recipe recipes.zug:one --steps 1
refuses 'needs --steps' zrun train weight.zsg --recipe recipes.zug:one --data good.bin

# ---- who waits: means over ranks, and the most ----
trains 4 weight pipe_4 good.bin 2 --log waits
tail -n 1 waits/metrics.jsonl | tr -d '][{}"' | tr ',' '\n' | awk -F: '
  $1 == "wait_ms" { if (classes) sum += $2; else mean = $2 }
  $1 == "wait_max_ms" { if (classes && $2 > most) most = $2; if (!classes) top = $2 }
  $1 == "compute_ms" { compute += $2 }   $1 == "bubble" { bubble = $2 }   $1 == "classes" || /stage/ { classes++ }
  function near(a, b) { return a ~ /^[0-9]/ && (a - b) ^ 2 <= 1e-10 * b ^ 2 }
  END { exit !(classes == 2 && near(sum / 2, mean) && near(most, top) && near(bubble * (compute + sum), sum) && top >= mean) }' ||
  { cat waits/metrics.jsonl; fail "waiting in metrics.jsonl"; }
exit 0
