# --trace: every instruction of the plan is in it, once a step, on every rank; it keeps the format's rules; a run with it
# makes the steps that it makes without.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi
check="$ZUG_BUILD/tests/scenarios/tools/check_trace"

sed 's/ kv,//' "$ZUG_SRC/tests/data/models/layouts.zug" | sed '/^recipe gqa/,$d' >recipes.zug
head -c 8000 "$ZUG_SRC/LICENSE" >text
ok zdata pack text -o text.bin
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg -D layers=4 -D heads=4 -D width=32 -D context=32 -D words=127

train() { # RECIPE RANKS OPTION...
  recipe=$1 ranks=$2
  shift 2
  ok timeout -k 5 100 $(on "$ranks") zrun train gpt2.zsg --recipe "recipes.zug:$recipe" --data text.bin --steps 5 "$@"
}
# of WORD: its number in the lines of check_trace
of() { sed -n "s/.* $1 \([0-9]*\).*/\1/p" ranks.txt; }

# traced RECIPE RANKS: with the default steps; each rank of a stage has as many slices as its stage has instructions
traced() {
  train "$1" "$2" --trace "$1.json" --log "$1"
  says "^trace of steps 2 to 3: $1.json"
  $check "$1.json" >ranks.txt || { cat ranks.txt; fail "the trace of $1"; }
  [ "$(wc -l <ranks.txt)" -eq $((2 * $2)) ] || { cat ranks.txt; fail "$1: not two steps of each rank"; }
  zplan show gpt2.zsg --recipe "recipes.zug:$1" --exact | sed 's/ B\>//g' >plan.txt || fail "no plan"
  awk 'FNR == NR { if (/^stage +cost/) part = 1; else if (/^stage +params/) part = 2; else if (NF == 0) part = 0
      else if (part == 1) instrs[$1] = $4; else if (part == 2) arena[$1] = $NF; next }
    { if ($8 != instrs[$4]) { print "slices:", $0, instrs[$4]; exit 1 }
      if ($14 > arena[$4] || $14 < arena[$4] / 4) { print "arena:", $0, arena[$4]; exit 1 } }' plan.txt ranks.txt || { cat plan.txt; fail "$1"; }
  # metrics have the same of each stage
  awk '/^stage +params/ { on = 1; next } !NF { on = 0 } on { print $1, $NF, $NF }' plan.txt >planned.txt
  tail -n 1 "$1/metrics.jsonl" | grep -o '"stage":[0-9]*,"planned_bytes":[0-9]*,"used_bytes":[0-9]*' | tr -c '0-9\n' ' ' |
    awk '{ print $1, $2, $3 }' >logged.txt
  diff planned.txt logged.txt || fail "$1: arenas of metrics.jsonl"
}
# Micro-batches go to the other stage and their gradients come back: two arrows each.
traced pipe2 2
[ "$(of arrows | sort -u)" = 8 ] || { cat ranks.txt; fail "not 8 ends of arrows: 4 micro-batches, there and back"; }
[ "$(of nodes | sort -u)" = 0 ] || { cat ranks.txt; fail "collectives of nodes where nothing is split"; }
grep -q '"name":"FWD(layer.1, mb 2)","args":{"step":3,"micro-batch":2,"cause":"after ' pipe2.json &&
  grep -q '"name":"RECV_ACT(mb 3)","args":{"step":2,"micro-batch":3,"bytes":16384,"peer":0' pipe2.json ||
  { grep -m 3 'FWD\|RECV_ACT' pipe2.json; fail "what is said of instructions"; }
traced all_zero3_8 8
[ "$(of nodes | sort -n | head -n 1)" -gt 10 ] || { cat ranks.txt; fail "no collectives of nodes"; }
grep -q '"name":"all_gather".*"cat":"node"\|"cat":"node".*"name":"all_gather".*"source":"gpt2.zug:[0-9]*","cause":' all_zero3_8.json || fail "no cause of a collective"
grep -q '"name":"GATHER_PARAMS(layer.0)".*"collective":"all_gather","over":"data"' all_zero3_8.json || fail "no gather of parameters"
grep -q '"gathered":[1-9]' all_zero3_8.json && grep -q '"staging":[1-9]' all_zero3_8.json || fail "the arena's counter"
traced one 1

# Collectives that are in every round of experts: as often as explain says, for both steps of both ranks.
ok zc "$ZUG_SRC/tests/data/models/moe.zug" -o moe.zsg -D layers=1
ok timeout -k 5 100 $MPIRUN -np 2 zrun train moe.zsg --recipe "$ZUG_SRC/tests/data/models/moe.zug:sums_2" --data text.bin --steps 3 --trace rounds.json
$check rounds.json >ranks.txt || { cat ranks.txt; fail "the trace of rounds"; }
zplan explain moe.zsg --recipe "$ZUG_SRC/tests/data/models/moe.zug:sums_2" >plan.txt || fail "no plan"
grep -q 'slot\].* mul needs them complete' plan.txt || { cat plan.txt; fail "nothing is sent in rounds"; }
[ "$(awk '$7 == "all_reduce" && !/all ranks/ { n += $2 } END { print 4 * n }' plan.txt)" -eq "$(grep -c '"cat":"node".*"name":"all_reduce"' rounds.json)" ] ||
  { cat plan.txt; fail "other numbers of all-reduces than explain says"; }

# The steps that are asked for; and the same digits as without.
train pipe2 2 --log plain
train pipe2 2 --log traced --trace chosen.json --trace-steps 4-9 --eval text.bin --eval-batches 1 --eval-every 1
says '^trace of steps 4 to 5: chosen.json'
$check chosen.json >ranks.txt || fail "the trace of chosen steps"
[ "$(of step | sort -u | tr '\n' ' ')" = '4 5 ' ] || { cat ranks.txt; fail "not steps 4 and 5"; }
for log in plain traced; do sed -n 's/"tokens".*//; /grad_norm/p' $log/metrics.jsonl >$log.txt; done
cmp plain.txt traced.txt || fail "a traced run is another"
# A file that is no trace stays; steps that are none of the run; a run that stops before them.
echo text >x.json
mistake 'x.json.*is not a trace: it is not replaced' zrun train gpt2.zsg --recipe recipes.zug:one --data text.bin --steps 3 --trace x.json
grep -qx text x.json || fail "a file is lost"
mistake 'step 9 is none of this run, which makes 1 to 5' zrun train gpt2.zsg --recipe recipes.zug:one --data text.bin --steps 5 --trace y.json --trace-steps 9
refuses '--trace-steps cannot be .3-2.' zrun train gpt2.zsg --recipe recipes.zug:one --data text.bin --steps 5 --trace y.json --trace-steps 3-2
refuses 'zrun train needs --trace FILE' zrun train gpt2.zsg --recipe recipes.zug:one --data text.bin --steps 5 --trace-steps 3
ls y.json ./*.tmp 2>/dev/null && fail "half a trace"

# The tool notices what is wrong.
breaks() { # WHAT SED
  sed "$2" pipe2.json >broken.json
  cmp -s broken.json pipe2.json && fail "this test's own tool is broken: $1 changes nothing"
  $check broken.json >out.txt && fail "this test's own tool is broken: $1"
}
breaks 'no name of a process' '/"name":"process_name","pid":1/d'
breaks 'no name of a thread' '/"name":"thread_name","pid":0,"tid":1,/d'
breaks 'a phase that is none' '0,/"ph":"X"/s//"ph":"Y"/'
breaks 'an arrow without its end' '0,/"ph":"f"/{/"ph":"f"/d}'
breaks 'a slice before others' '0,/"ts":[1-9][0-9]*\.[0-9]*,"dur"/!{0,/"ts":[1-9][0-9.]*,"dur"/s//"ts":0.001,"dur"/}'
breaks 'a slice that ends before it begins' '0,/"dur":[0-9.]*/s//"dur":-1/'
# One that reaches to the middle of the next.
long=$(awk -F'"ts":|,"dur":|,"name":' '/"ph":"X".*"pid":0,"tid":1,/ { if (n++) { printf "%.3f", $2 + $3 / 2 - at; exit } at = $2 }' pipe2.json)
breaks 'slices that overlap' '0,/\("pid":0,"tid":1,.*"dur":\)[0-9.]*/s//\1'"$long/"
grep -q 'slices that overlap' out.txt || { cat out.txt; fail "another mistake was found"; }
exit 0
