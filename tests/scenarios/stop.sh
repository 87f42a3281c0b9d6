# Runs that are stopped: by a signal to mpirun, to one rank, by Ctrl-C, by the time. All ranks stop after the same step, what
# is to be saved is saved, and the code is 75.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi

cat >recipes.zug <<'END'
recipe one { optimizer sgd(lr = 0.1)   bind batch = 4, seq = 16   micro 2 }
recipe two from one { mesh data = 2   split batch over data }
recipe four from one { mesh pipe = 2, data = 2   split batch over data   stages over pipe by cost   shard params, grads, states over data }
recipe slow { optimizer sgd(lr = 0.1)   bind batch = 32, seq = 128 }
END
ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin
head -c 68 "$ZUG_SRC/LICENSE" >short
ok zdata pack short -o short.bin # a step is an epoch, of which a line is printed
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg -D layers=2 -D heads=2 -D width=8 -D context=16 -D words=128
ok zc "$ZUG_SRC/examples/gpt2.zug" -o slow.zsg -D layers=4 -D heads=4 -D width=64 -D context=128 -D words=128
four="zrun train gpt2.zsg --recipe recipes.zug:four --data text.bin"
epochs="zrun train gpt2.zsg --recipe recipes.zug:four --data short.bin"
one="zrun train gpt2.zsg --recipe recipes.zug:one --data text.bin"

# begin NAME COMMAND...: in the background, until some steps are made; $job is its process, its output goes to NAME.out.
begin() {
  name=$1 tries=0
  shift
  rm -f w.safetensors
  "$@" --log "$name" >"$name.out" 2>&1 &
  job=$!
  trap 'kill $job 2>/dev/null' EXIT
  until [ -s "$name/metrics.jsonl" ] && [ "$(wc -l <"$name/metrics.jsonl")" -ge 3 ]; do
    sleep 0.1
    tries=$((tries + 1))
    [ $tries -lt 300 ] || { cat "$name.out"; fail "the ranks do not start"; }
  done
}
# ends CODE: the job ends with it, soon.
ends() {
  start=$(date +%s)
  wait "$job"
  code=$?
  trap - EXIT
  [ $code -eq "$1" ] || { tail "$name.out"; fail "$name: code $code, wanted $1"; }
  [ $(($(date +%s) - start)) -le 15 ] || fail "$name: it goes on for long"
}
# stopped WHY: it says so once, after the last step of its metrics, and has saved what a run of so many steps saves.
stopped() {
  step=$(sed -n "s/^stopped after step \([0-9]*\) by $1; code 75: .*/\1/p" "$name.out")
  [ "$step" ] || { tail "$name.out"; fail "$name: it does not say why it stops"; }
  [ "$(wc -l <"$name/metrics.jsonl")" -eq "$step" ] || fail "$name: stopped after another step than $step"
  [ "$(find . -name '*.tmp' | wc -l)" -eq 0 ] || fail "$name: a file is left"
  ok zrun train gpt2.zsg --recipe "recipes.zug:$2" --data text.bin --steps 0 --init w.safetensors # is whole
}

# ---- signals to mpirun: it forwards SIGUSR1; of SIGTERM and Ctrl-C it makes an abort, in which each rank gets a SIGTERM ----
begin user $MPIRUN -np 4 $four --steps 100000000 --save w.safetensors
kill -USR1 $job
ends 75
stopped SIGUSR1 one
mv w.safetensors user.safetensors
ok $MPIRUN -np 4 $four --steps "$step" --save w.safetensors
cmp w.safetensors user.safetensors || fail "ranks have stopped after different steps"
for signal in TERM INT; do # nothing that ranks say is heard any more, and mpirun's code is its own
  begin mpirun_$signal $MPIRUN --mca odls_base_sigkill_timeout 4 -np 4 $epochs --steps 100000000 --save w.safetensors
  kill -$signal $job
  ends 1
  mv w.safetensors user.safetensors || fail "mpirun_$signal: nothing is saved"
  ok $MPIRUN -np 4 $epochs --steps "$(wc -l <"$name/metrics.jsonl")" --save w.safetensors
  cmp w.safetensors user.safetensors || fail "mpirun_$signal: other weights than those of the last step"
done

# ---- signals to one rank ----
for signal in USR1 TERM INT; do
  begin rank_$signal $MPIRUN -np 4 $four --steps 100000000 --save w.safetensors
  kill -$signal "$(rank_pid 2)"
  ends 75
  stopped SIG$signal one
done

# ---- a second Ctrl-C ends it at once: within the step, and nothing is saved ----
begin twice setsid zrun train slow.zsg --recipe recipes.zug:slow --data text.bin --steps 100000000 --save w.safetensors
kill -TERM $job # not by Ctrl-C, which a shell's background job ignores; mpirun is not needed for one rank
while grep -q '^ShdPnd:.*[1-9a-f]' /proc/$job/status; do :; done # of two pending signals SIGINT would come first
kill -INT $job
ends 130
grep -q '^stopped' twice.out && fail "the second signal waits for the step"
[ "$(find . -name '*.tmp' -o -name w.safetensors | wc -l)" -eq 0 ] || fail "something is left, or was saved"

# ---- before the first step ----
two="$one --recipe recipes.zug:two"
refuses 'stopped before the first step by its time limit; code 75' $MPIRUN -np 1 $two --steps 10 --time-limit 2s --save w.safetensors : \
  -np 1 sh -c "sleep 3; exec $two --steps 10 --time-limit 2s --save w.safetensors"
[ "$(grep -c '^step ' out.txt)" -eq 0 ] || fail "a step although there is no time"
# A rank that waits for another to start is asked as well.
$MPIRUN -np 1 $two --steps 10 : -np 1 sh -c "sleep 3; exec $two --steps 10" >early.out 2>&1 &
job=$!
trap 'kill $job 2>/dev/null' EXIT
sleep 1.5
kill -USR1 "$(rank_pid 0)"
name=early
ends 75
grep -q '^stopped before the first step by SIGUSR1; code 75' early.out || { cat early.out; fail "no word of an early signal"; }

# ---- the time ----
start=$(date +%s)
name=limit
$MPIRUN -np 4 $four --steps 100000000 --time-limit 12s --log limit --save w.safetensors >limit.out 2>&1
[ $? -eq 75 ] || { tail limit.out; fail "a run whose time is over has another code"; }
took=$(($(date +%s) - start))
# (mpirun takes a second or two of its own)
[ $took -ge 6 ] && [ $took -le 16 ] || fail "--time-limit 12s: stopped after $took s"
stopped 'its time limit' one
for wrong in 12 0s 1h2h x ''; do
  refuses '--time-limit cannot be' $one --steps 1 --time-limit "$wrong"
done
# The last step is no stop.
ok $one --steps 1 --time-limit 10m
grep -q '^stopped' out.txt && fail "a run that is done says that it was stopped"

# ---- what is wrong has a code of its own, which says that it need not be tried again ----
for wrong in '--foo' '--init none.safetensors' '--data none.bin'; do
  $MPIRUN -np 2 zrun train gpt2.zsg --recipe recipes.zug:one --data text.bin --steps 1 $wrong >out.txt 2>&1
  [ $? -eq 2 ] || { cat out.txt; fail "another code than 2 for $wrong"; }
done
exit 0
