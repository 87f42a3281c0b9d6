# A rank that stands still: after a while (here one second) the others say once whom they wait for and in what, and that it
# goes on when it does; in steps and outside of them. Nobody says anything while all go on.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi
stall=$ZUG_BUILD/tests/scenarios/tools/stall

# ---- operations: rank 1 of 3 comes late, to each of them in a job of its own at the same time ----
for what in split barrier reduce apart gather transfer free; do
  timeout -k 5 60 $MPIRUN -np 3 "$stall" $what >"$what.txt" 2>&1 || echo "exit code $?" >>"$what.txt" &
done
wait
late() { # WHAT PATTERN [RANKS]: how many say it
  [ "$(grep -Ec "^\[rank [02]\] note: has waited 1 s for $2" "$1.txt")" -eq "${3:-2}" ] || { cat "$1.txt"; fail "$1: who waits for whom"; }
  [ "$(grep -c 'note: it goes on' "$1.txt")" -ge "${3:-2}" ] || { cat "$1.txt"; fail "$1: it goes on"; }
  [ "$(grep -c 'has waited\|exit code' "$1.txt")" -le 2 ] || { cat "$1.txt"; fail "$1: said twice"; }
}
late split 'making a group among ranks 0, 1, 2$'
late barrier 'barrier among ranks 0, 1, 2$'
late reduce 'all-reduce of 64 B among ranks 0, 1, 2; not there yet: rank 1$'
late apart 'all-reduce of 64 B among ranks 0, 1, 2; not there yet: rank 1$'
late gather 'all-gather of 64 B among ranks 0, 1, 2; not there yet: rank 1$'
late transfer 'receive of 64 B from rank 1$' 1
late free 'the end among ranks 0, 1, 2$'

# ---- steps ----
cat >recipes.zug <<'END'
recipe all {
  mesh pipe = 2, data = 2
  optimizer sgd(lr = 0.1)
  bind batch = 16, seq = 16
  micro 4
  split batch over data
  stages over pipe by cost
  shard params, grads, states over data
}
recipe wide { mesh tensor = 3   optimizer sgd(lr = 0.1)   bind batch = 4, seq = 16   split head, ffn, vocab over tensor   pad vocab to 3 }
END
ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg -D layers=2 -D heads=3 -D width=24 -D context=16 -D words=128

until_true() { # COMMAND...
  tries=0
  until "$@"; do
    sleep 0.1
    tries=$((tries + 1))
    [ $tries -lt 300 ] || { cat out.txt; fail "not in half a minute: $*"; }
  done
}
says_all() { [ "$(grep -c "$1" out.txt)" -ge "$2" ]; }
steps() { [ "$(wc -l <"$1/metrics.jsonl")" -ge "$2" ]; }

# stand NP RECIPE RANK PROGRAM: that rank stands still for a while, and goes on
stand() {
  $MPIRUN -np "$1" "$ZUG_BUILD/tests/scenarios/tools/$4" train gpt2.zsg --recipe recipes.zug:"$2" --data text.bin --steps 10000000 \
    --log "$2-$4" >out.txt 2>&1 &
  job=$!
  trap 'kill $job 2>/dev/null' EXIT
  until_true [ -s "$2-$4/metrics.jsonl" ]
  grep -v '^\[rank .* note: each step' out.txt | grep '^\[rank' && fail "$2: something was said while all went on"
  stopped=$(rank_pid "$3")
  [ "$stopped" ] || fail "rank $3 is not found"
  kill -STOP "$stopped"
  until_true says_all 'has waited 1 s for' $(($1 - 1))
  sleep 1.5 # nothing is said again
  cp out.txt stood.txt
  at=$(wc -l <"$2-$4/metrics.jsonl")
  kill -CONT "$stopped"
  until_true says_all 'it goes on' $(($1 - 1))
  until_true steps "$2-$4" $((at + 2))
  kill "$job"
  wait "$job"
  trap - EXIT
  grep '^\[rank' stood.txt
  [ "$(grep -c 'has waited' stood.txt)" -eq $(($1 - 1)) ] || { cat stood.txt; fail "$2: not once by every rank that waits"; }
  grep -q "^\[rank $3\]" stood.txt && fail "$2: the rank that stood still complains"
  grep 'has waited' stood.txt | grep -qE "from rank $3|to rank $3|not there yet: ([0-9], )*$3" ||
    grep 'has waited' stood.txt | grep -qE "not there yet: ranks? ([0-9], )*$3" || fail "$2: nobody names rank $3"
}
stand 4 all 3 zrun-hasty
grep -Eq 'note: step [0-9]+: .*has waited 1 s for ' stood.txt || grep -Eq 'note: has waited 1 s for all-reduce' stood.txt || fail "no step"
stand 3 wide 1 zrun-hasty
stand 4 all 2 zrun-threads
exit 0
