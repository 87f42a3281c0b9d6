# A rank that stands still, mpirun that does, a network that is cut: the run says who holds up whom and is gone, with a code
# that is not 0, within --hang-after and 10 seconds; nothing of it is left on any node.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi

cat >recipes.zug <<'END'
recipe one { optimizer sgd(lr = 0.1)   bind batch = 4, seq = 16   micro 2 }
recipe four from one { mesh pipe = 2, data = 2   split batch over data   stages over pipe by cost   shard params, grads, states over data }
END
ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg -D layers=2 -D heads=2 -D width=8 -D context=16 -D words=128
after=6
at_night && slack=11 || slack=40 # by day other tests take time, too
four="zrun train gpt2.zsg --recipe recipes.zug:four --data text.bin --steps 100000000 --hang-after ${after}s"

in_job() { # PID of the job's ranks: those with this test's folder as theirs
  for process in /proc/[0-9]*; do
    [ "$(readlink "$process/cwd")" = "$PWD" ] && grep -q '^zrun$' "$process/comm" 2>/dev/null && echo "${process#/proc/}"
  done
}
rank_pid() { # RANK
  rank_among "$1" $(in_job)
}
begin() { # NAME COMMAND...
  name=$1 tries=0
  shift
  "$@" --log "$name" >"$name.out" 2>&1 &
  job=$!
  trap 'kill -CONT $job 2>/dev/null; kill $job 2>/dev/null; kill -KILL $(in_job) 2>/dev/null' EXIT
  until [ -s "$name/metrics.jsonl" ] && [ "$(wc -l <"$name/metrics.jsonl")" -ge 3 ]; do
    sleep 0.1
    tries=$((tries + 1))
    [ $tries -lt 300 ] || { cat "$name.out"; fail "the ranks do not start"; }
  done
  start=$(date +%s)
}
# gone CODE...: the job ends in time with one of these codes, and none of its ranks is left
gone() {
  wait "$job"
  code=$? took=$(($(date +%s) - start))
  echo "$name: code $code after $took s"
  for good in "$@"; do [ $code -eq "$good" ] && code=good; done
  [ "$code" = good ] || { tail -20 "$name.out"; fail "$name: code $code"; }
  [ $took -ge $after ] || { tail -20 "$name.out"; fail "$name: ended after $took s already"; }
  [ $took -le $((after + slack)) ] || { tail -20 "$name.out"; fail "$name: ended after $took s only"; } # of whole seconds
  sleep 1
  [ "$(in_job)" ] && fail "$name: ranks are left"
  trap - EXIT
  grep -v '^step ' "$name.out" >said.txt
}
said() { grep -Eq -- "$1" said.txt || { cat said.txt; fail "$name: no line like '$1'"; }; }

# ---- a rank that stands still ----
begin stopped $MPIRUN -np 4 $four
kill -STOP "$(rank_pid 2)"
gone 69
said '^\[rank 0\] error: waits in .*; since [0-9:]{8}, for [0-9]+s: the run ends'
said '^\[rank 1\] error: waits in '
said '^\[rank 3\] error: waits in '
said '^\[rank 0\]   rank 2 \(.*\): nothing is heard from there'
said '^\[rank 0\] error: held up by rank 2: stopped or dead, or cut off'

if at_night; then
  # ---- rank 0: each of the others says its own ----
  begin first $MPIRUN -np 4 $four
  kill -STOP "$(rank_pid 0)"
  gone 69
  for rank in 1 2 3; do said "^\[rank $rank\] error: waits in "; done

  # ---- mpirun does not end it either ----
  begin launcher $MPIRUN -np 4 $four
  kill -STOP "$(rank_pid 3)" $job
  gone 137 # killed, since it does not even hear that its ranks end
fi

# ---- a rank that never comes to MPI_Init: six times the limit, and it need not be known who that is ----
name=early start=$(date +%s)
$MPIRUN -np 2 sh -c '[ "$OMPI_COMM_WORLD_RANK" = 0 ] || kill -STOP $$; exec "$@"' sh zrun train gpt2.zsg \
  --recipe recipes.zug:one --data text.bin --steps 1 --hang-after 1s >early.out 2>&1
code=$? took=$(($(date +%s) - start))
[ $code -eq 69 ] || { cat early.out; fail "early: code $code"; }
[ $took -ge 6 ] && [ $took -le $((slack + 4)) ] || fail "early: ended after $took s"
cp early.out said.txt
said '^\[rank 0\] error: waits in MPI_Init .*: the run ends'

# ---- what goes on is left alone, however short the time ----
at_night && steps=3000 || steps=300
ok timeout 60 $MPIRUN -np 4 zrun train gpt2.zsg --recipe recipes.zug:four --data text.bin --steps $steps --hang-after 2s --save w.safetensors
ok timeout 60 zrun train gpt2.zsg --recipe recipes.zug:one --data text.bin --steps 3 --hang-after 0s
refuses '--hang-after cannot be .5.; give a duration' zrun train gpt2.zsg --recipe recipes.zug:one --data text.bin --steps 1 --hang-after 5
exit 0
