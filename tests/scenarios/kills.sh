# Runs that are killed while they write checkpoints: every time the same command goes on from the last complete one, and
# makes the very steps that a run that is never killed makes.
#
# A checkpoint is begun after every step, so that one is nearly always being written. Some kills end all ranks at once, as
# a power cut does, others a single one. Counted are those that left an unfinished checkpoint: 204, and KILLS=5 makes five
# times as many.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi

cat >recipes.zug <<'END'
recipe ranks_1 { bind batch = 8, seq = 16   optimizer adamw(lr = 0.01) }
recipe ranks_2 from ranks_1 { mesh data = 2   split batch over data   shard params, grads, states over data unit layer }
recipe ranks_4 from ranks_1 { mesh pipe = 2, data = 2   stages over pipe by cost   split batch over data   micro 2 }
recipe ranks_8 from ranks_1 {
  mesh pipe = 2, data = 2, tensor = 2
  stages over pipe by cost
  split batch over data
  split head, ffn over tensor
  micro 2
  shard params, grads, states over data
}
END
ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg -D layers=2 -D heads=2 -D width=32 -D context=16 -D words=128
train() { exec $MPIRUN -np "$1" zrun train gpt2.zsg --recipe recipes.zug:ranks_"$1" --data text.bin --steps 60 --log "$2" $3; }
# follows NAME: all steps of the run NAME so far are those of the one that is never killed.
follows() {
  awk -F '"lr"' 'NR == FNR { want[FNR] = $1; next } $1 != want[FNR] { print FILENAME ": " $1 " is not " want[FNR]; exit 1 }' \
    whole_$ranks/metrics.jsonl "$1"/metrics.jsonl
}
random() { echo $(($(od -An -N2 -tu2 /dev/urandom) % $1)); }

# A checkpoint that the present run has begun. Another's is at times still there: the run removes it at its start.
begun() { find ckpt -maxdepth 1 -name 'step-*.tmp' -newer stamp 2>/dev/null | grep -q .; }
alive() { kill -0 $job 2>/dev/null; }
# soon CONDITION...: waits for it, for half a minute at the most.
soon() {
  tries=0
  until "$@"; do
    sleep 0.01
    tries=$((tries + 1))
    [ $tries -lt 3000 ] || return 1
  done
}
begun_or_ended() { begun || ! alive; }
ended() { ! alive; }

# One run until it is killed; adds to `kills` if a checkpoint is left unfinished.
one_kill() {
  rm -f out.txt
  : >stamp
  train $ranks log "--ckpt ckpt --ckpt-every 1 --ckpt-keep 2 --resume" >out.txt 2>&1 &
  job=$!
  soon begun_or_ended || { cat out.txt; fail "the ranks do not start"; }
  sleep 0.0$(random 10)
  victims=$(cat /proc/$job/task/$job/children 2>/dev/null)
  [ "$(random 2)" -eq 0 ] && victims=${victims%% *}
  kill -KILL $victims 2>/dev/null
  soon ended || { cat out.txt; fail "mpirun is still there"; }
  wait $job
  code=$?
  grep -q 'bug in zug\|altered\|not a complete' out.txt && { cat out.txt; fail "after $kills kills on $ranks ranks"; }
  follows log || { cat out.txt; fail "after $kills kills on $ranks ranks a resumed run is another"; }
  begun && kills=$((kills + 1))
  [ $code -eq 0 ] && rm -rf ckpt log # to its end: begin anew
  return 0
}

for way in '1 108' '2 48' '4 30' '8 18'; do
  set -- ${way% *} $((${way#* } * ${KILLS:-1}))
  ranks=$1 kills=0 runs=0
  rm -rf ckpt log
  mkdir -p log && : >log/metrics.jsonl
  (train $ranks whole_$ranks "") >out.txt 2>&1 || { cat out.txt; fail "training on $ranks ranks"; }
  while [ $kills -lt "$2" ]; do
    mkdir -p log ckpt
    [ -e log/metrics.jsonl ] || : >log/metrics.jsonl
    one_kill
    runs=$((runs + 1))
    [ $runs -lt $((4 * $2)) ] || fail "of $runs runs on $ranks ranks only $kills were killed while they wrote"
  done
  (train $ranks log "--ckpt ckpt --resume") >out.txt 2>&1 || { cat out.txt; fail "the last run on $ranks ranks"; }
  follows log || fail "the last run on $ranks ranks is another"
  [ "$(wc -l <log/metrics.jsonl)" -eq 60 ] || fail "steps are missing"
  echo "$ranks ranks: $kills kills in $runs runs"
done
exit 0
