# What the options of zrun do: the same run twice, threads, seeds, the order of samples, dry runs, clusters, imported recipes.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi

mkdir shared
cat >shared/common.zug <<'END'
recipe base {
  optimizer adamw(lr = 1e-2)
  bind batch = 8, seq = 16
  micro 2
}
END
cat >recipes.zug <<'END'
use common
recipe one from common.base { }
recipe again from one { }
recipe all from common.base {
  mesh pipe = 2, data = 2
  split batch over data
  stages over pipe by cost
  shard params, grads, states over data
}
END
cat >clusters.zug <<'END'
cluster small { device memory 100 kB }
cluster large { device memory 1 GB }
END
head -c 2000 "$ZUG_SRC/LICENSE" >text # 124 windows of 16: an epoch is 15 steps
ok zdata pack text -o text.bin
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg -D layers=2 -D heads=4 -D width=32 -D context=16 -D words=128

run() { # NAME RECIPE RANKS OPTION...
  name=$1 recipe=$2 np=$3
  shift 3
  ok $(on "$np") zrun train gpt2.zsg --recipe recipes.zug:"$recipe" -I shared --data text.bin --log "$name" "$@"
  sed -n 's/.*"loss":\([^,]*\),"grad_norm":\([^,]*\),.*/\1 \2/p' "$name/metrics.jsonl" >"$name.txt"
}
same() { cmp -s "$1.txt" "$2.txt" || { paste "$1.txt" "$2.txt"; fail "$1 and $2 differ"; }; }
differ() { cmp -s "$1.txt" "$2.txt" && fail "$1 and $2 are the same"; }
alike() { ok "$ZUG_BUILD/tests/scenarios/tools/compare_runs" --loss 1e-5 --norm 1e-5 "$1/metrics.jsonl" "$2/metrics.jsonl"; }

# ---- the same run twice gives the same bits, on four ranks as on one; no options are the defaults ----
run first all 4 --steps 20
run again all 4 --steps 20 --seed 1 --order shuffled --threads 1 --device cpu
same first again
run single one 1 --steps 20
# Of several recipes the first that is for so many ranks.
run of_4 all,one,again 4 --steps 20
same of_4 first
run of_1 all,one,again 1 --steps 20
same of_1 single
grep -q 'recipe one:' out.txt || fail "not the first of the recipes that fit"
alike first single

# ---- seeds and orders ----
run seed all 4 --steps 20 --seed 2
differ first seed
run sequential one 1 --steps 20 --order sequential
differ single sequential
run other one 1 --steps 20 --order sequential --seed 2
differ sequential other

# ---- threads: the same sums, whoever makes them ----
run threads one 1 --steps 20 --threads 3
alike threads single
run threads_all all 4 --steps 20 --threads 2
alike threads_all single

# ---- more threads than CPUs are said, once for all ranks ----
one=$(taskset -pc $$ | sed 's/.*: //; s/[,-].*//') turns='take turns on 1 CPU'
for np in 1 4; do
  recipe=$([ $np = 1 ] && echo one || echo all)
  taskset -c "$one" $(on $np) zrun train gpt2.zsg --recipe recipes.zug:"$recipe" -I shared --data text.bin --steps 1 --threads 3 --quiet >turns.txt 2>&1 ||
    { cat turns.txt; fail "no run on one CPU"; }
  [ "$(grep -c "$turns" turns.txt)" -eq 1 ] || { cat turns.txt; fail "$np ranks on one CPU"; }
  [ $np = 1 ] || continue
  ok taskset -c "$one" zrun train gpt2.zsg --recipe recipes.zug:one -I shared --data text.bin --steps 1
  grep "$turns" out.txt && fail "one thread takes no turns"
done

# ---- a log is written anew; one line a step; all ranks' classes ----
run first all 4 --steps 3
[ "$(wc -l <first/metrics.jsonl)" -eq 3 ] || fail "the log is not written anew"
grep -q '"classes":\[{"stage":0,.*},{"stage":1,' first/metrics.jsonl || fail "no line of both stages in metrics.jsonl"
for key in step loss grad_norm lr tokens step_ms tokens_per_s flops bubble wait_ms wait_max_ms planned_bytes used_bytes; do
  for log in first single; do
    grep -q "\"$key\":[0-9]" $log/metrics.jsonl || fail "no $key in $log/metrics.jsonl"
  done
done
# What follows from something else in a line does so; of stages, which have two ranks each, the mean and the most.
awk '
  function value(key, s,   m) { return match(s, "\"" key "\":[-0-9.e+]+") ? substr(s, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0 : -1 }
  function near(what, a, b) { if (a < b - 2e-5 * b - 1e-9 || a > b + 2e-5 * b + 1e-9) { print "step " NR ": " what ": " a " and not " b; bad = 1 } }
  { head = $0; sub(/"classes".*/, "", head); n = split($0, class, /{"stage"/) }
  { ms = value("step_ms", head); wait = value("wait_ms", head); most = mean = compute = 0 }
  { near("tokens_per_s", value("tokens_per_s", head), 128000 / ms) }
  { for (i = 2; i <= n; i++) {
      mean += value("wait_ms", class[i]) / (n - 1)
      compute += value("compute_ms", class[i]) / (n - 1)
      if (value("wait_max_ms", class[i]) > most) most = value("wait_max_ms", class[i])
      if (value("compute_ms", class[i]) <= 0) { print "step " NR ": " class[i]; bad = 1 }
      if (value("compute_ms", class[i]) + value("wait_ms", class[i]) > 1.5 * ms) late[NR] = 1 # of other ranks: on a busy machine now and then
    } }
  n != 3 { print "step " NR ": " n - 1 " stages"; bad = 1 }
  { near("bubble", value("bubble", head), mean / (mean + compute)); near("wait_ms", wait, mean); near("wait_max_ms", value("wait_max_ms", head), most) }
  (value("peak_share", head) > 0) != (NR > 1) { print "step " NR ": peak_share " value("peak_share", head); bad = 1 }
  END { for (i in late) nlate++
    if (nlate == NR) { print "stages take longer than steps"; bad = 1 }
    exit bad }' first/metrics.jsonl >diff.txt || { cat first/metrics.jsonl diff.txt; fail "numbers that do not belong together"; }
tokens=$(sed -n '1s/.*"tokens":\([0-9]*\),.*/\1/p' first/metrics.jsonl)
[ "$tokens" -eq 128 ] || fail "$tokens tokens a step, not 8 x 16"

# ---- what is said: at the beginning, of steps, at the end ----
run first all 4 --steps 3
says '^model GPT2, 0\.0[0-9]* M parameters; recipe all: 4 ranks, 2 stages, 2 micro-batches; '
says '^stage 0: arena [0-9.]+ kB a rank, [0-9]+ parts$'
says '^stage 1: arena [0-9.]+ kB a rank, [0-9]+ parts$'
says '^host memory: .* for the arenas of 4 ranks on this node'
says '^first step [0-9]+ ms after the start$'
sed '/^step 1/q' out.txt | grep -q '^first step ' || { cat out.txt; fail "said of another step"; }
says '^planned == used: [0-9.]+ kB on rank 0, and equal on every rank$'
says '^median step [0-9.]+ ms: [0-9]+ tokens/s, [0-9.]+ GFLOP/s, [0-9.]+ % of the [0-9.]+ GFLOP/s that products reach here$'
[ "$(grep -c '^step [123]/3 ' out.txt)" -eq 3 ] || { cat out.txt; fail "not a line for each step"; }
grep -q 'time by operation' out.txt && fail "times that nobody asked for"
run none one 1 --steps 0
says '^no steps: the parameters are as they began$'
says 'recipe one: 1 ranks, 1 stage, 4 micro-batches; '
grep -q 'planned == used' out.txt && fail "a step that was not made"
refuses 'recipe all is for 4 ranks \(pipe = 2, data = 2\); zrun was started alone' \
  zrun train gpt2.zsg --recipe recipes.zug:all -I shared --data text.bin --steps 1
for wrong in '--steps -1:2' '--recipe recipes.zug:none:2'; do
  zrun train gpt2.zsg --recipe recipes.zug:one -I shared --data text.bin --steps 1 ${wrong%:*} >out.txt 2>&1
  code=$?
  [ "$code" -eq "${wrong##*:}" ] || { cat out.txt; fail "exit code $code from ${wrong%:*}"; }
done

# ---- without training ----
ok $MPIRUN -np 4 zrun train gpt2.zsg --recipe recipes.zug:all -I shared --dry-run
says 'recipe all'
says 'arena'
grep -q '^step' out.txt && fail "a dry run trains"
ok zrun train gpt2.zsg --recipe recipes.zug:one -I shared --data text.bin --steps 21 --times --threads 2 --log timed
says 'time by operation on rank 0 in steps 2 to 21'
says '^  dot  .* s  .* %  .* GFLOP/s  .* GB/s  .* % of its bound .(FLOPs|bytes).$'
says '^  optimizer  .* s  .* %  .* GB/s  .* % of its bound .bytes.$'
says '^at the .* GFLOP/s of large products and the .* GB/s of large copies these take .* s, .* %$'
says '^of that the longest calls:$'
says '^  dot  *(forward|backward)  *gpt2.zug:[0-9]*  .* ms x 160  .* %  .* GFLOP/s  .* of its bound' # 20 steps, 4 micro-batches, 2 layers
# Work is what 20 steps have: the model's FLOPs; 28 bytes a parameter for AdamW and 4 for the norm (a bucket is rounded up to a
# multiple of 16 elements). Printed times end at a millisecond, rates at 0.1.
flops=$(sed -n '1s/.*"flops":\([^,]*\),.*/\1/p' timed/metrics.jsonl)
params=$(sed -n 's/^model .*, \([0-9.]*\) M parameters.*/\1/p' out.txt)
sed -n 's/^  \([a-z_]*\)  *\([0-9.]*\) s .* %  *\([0-9.]*\) GFLOP\/s .*/F \2 \3/p
  s/^  optimizer  *\([0-9.]*\) s .* %  *\([0-9.]*\) GB\/s .*/B \1 \2/p' out.txt | awk -v flops="$flops" -v params="$params" '
  { have[$1] += $2 * $3 * 1e9; off[$1] += (0.0006 * $3 + 0.06 * $2) * 1e9 }
  function wrong(k, want,   d) {
    d = have[k] - want
    if (d < 0) d = -d
    if (d > off[k] + 0.02 * want) { print k ": " have[k] " and not " want; bad = 1 }
  }
  END { wrong("F", 20 * flops); wrong("B", 20 * 32 * params * 1e6); exit bad }' >diff.txt || { cat out.txt diff.txt; fail "other work"; }
ok zrun train gpt2.zsg --recipe recipes.zug:one -I shared --data text.bin --steps 3 --times
says '^  dot  .* % of its bound' # with a single thread, too
ok zrun train gpt2.zsg --recipe recipes.zug:one -I shared --data text.bin --steps 2 --times
says 'time by operation on rank 0 in steps 1 to 2'
grep -q 'of its bound' out.txt && fail "a bound where no peak was measured"
ok env OMPI_MCA_pml=none zrun --help # where no ranks can be started, too
says '^usage: zrun train'

# ---- clusters, and where recipes are found ----
refuses 'error.Z0501.' zrun train gpt2.zsg --recipe recipes.zug:one -I shared --dry-run --cluster clusters.zug:small
ok zrun train gpt2.zsg --recipe recipes.zug:one -I shared --dry-run --cluster clusters.zug:large
refuses 'error.Z0801.' zrun train gpt2.zsg --recipe recipes.zug:one -I shared --dry-run --cluster clusters.zug:huge
refuses 'error.Z0005.' zrun train gpt2.zsg --recipe recipes.zug:one --dry-run
exit 0
