# A rank that waits leaves its core to others: while one rank stands still, the others use little time, and go on after it.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi

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
END
ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg -D layers=2 -D heads=2 -D width=16 -D context=16 -D words=128

$MPIRUN -np 4 zrun train gpt2.zsg --recipe recipes.zug:all --data text.bin --steps 10000000 --log log >out.txt 2>&1 &
job=$!
trap 'kill $job 2>/dev/null' EXIT
tries=0
until [ -s log/metrics.jsonl ]; do
  sleep 0.1
  tries=$((tries + 1))
  [ $tries -lt 300 ] || { cat out.txt; fail "the ranks do not start"; }
done

ticks() { awk '{ print $14 + $15 }' "/proc/$1/stat"; } # user and system time
stopped=$(rank_pid 3)
for rank in 0 1 2; do pids="$pids $(rank_pid $rank)"; done
[ "$stopped" ] && [ "$(echo $pids | wc -w)" -eq 3 ] || { kill "$job"; fail "the ranks are not found"; }

kill -STOP "$stopped"
sleep 0.5 # until all others wait for it
for pid in $pids; do eval "before_$pid=$(ticks "$pid")"; done
sleep 2
share=0
for pid in $pids; do
  eval "before=\$before_$pid"
  used=$(($(ticks "$pid") - before))
  percent=$((100 * used / (2 * $(getconf CLK_TCK))))
  echo "a waiting rank uses $percent % of a core"
  [ $percent -gt $share ] && share=$percent
done
steps=$(wc -l <log/metrics.jsonl)
kill -CONT "$stopped"
tries=0
until [ "$(wc -l <log/metrics.jsonl)" -gt $((steps + 3)) ]; do
  sleep 0.1
  tries=$((tries + 1))
  [ $tries -lt 300 ] || { kill "$job"; fail "the ranks do not go on"; }
done
kill "$job"
wait "$job"
[ $share -lt 40 ] || fail "a waiting rank uses $share % of a core"
exit 0
