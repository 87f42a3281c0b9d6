# The network of one of two nodes is cut: mpirun would wait for ever, and so would its daemon there. The run is gone from both
# within --hang-after and 10 seconds.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi
. "$ZUG_SRC/tests/scenarios/lib_nodes.sh"
nodes_up 2

cat >recipes.zug <<'END'
recipe four {
  mesh pipe = 2, data = 2
  optimizer sgd(lr = 0.1)
  bind batch = 4, seq = 16
  micro 2
  split batch over data
  stages over pipe by cost
  shard params, grads, states over data
}
END
ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg -D layers=2 -D heads=2 -D width=8 -D context=16 -D words=128
after=8
# begin NAME: two ranks on each node, that train until something happens. What they say is in NAME.out; the job is $job.
begin() {
  on_two 2 zrun train gpt2.zsg --recipe recipes.zug:four --data text.bin --steps 100000000 --hang-after ${after}s --log "$1" >"$1.out" 2>&1 &
  job=$!
  tries=0
  until [ -s "$1/metrics.jsonl" ] && [ "$(wc -l <"$1/metrics.jsonl")" -ge 3 ]; do
    sleep 0.1
    tries=$((tries + 1))
    [ $tries -lt 400 ] || { cat "$1.out"; fail "the ranks do not start"; }
  done
}

# ---- a rank of the second node stops. What the other one there says is heard, though the first node has addresses, such as those
# of containers, to which there is no way ----
ip -n "${node}1" addr add 10.99.0.1/32 dev lo
begin stopped
victim=$(rank_among 3 $(ip netns pids "${node}2") | head -n 1)
[ "$victim" ] || fail "rank 3 is not found"
kill -STOP "$victim"
wait $job && fail "a run with a rank that stands still is no success"
grep -v '^step ' stopped.out
grep -q 'held up by rank 3: stopped or dead, or cut off' stopped.out || fail "rank 2 was not heard"
ip -n "${node}1" addr del 10.99.0.1/32 dev lo

# ---- the network ----
begin cut
[ "$(ip netns pids "${node}2" | wc -l)" -ge 3 ] || fail "the second node has no ranks"
start=$(date +%s)
node_cut 2
wait $job
code=$? took=$(($(date +%s) - start))
echo "code $code after $took s"
grep -v '^step ' cut.out
[ $code -ne 0 ] || fail "a run whose network was cut is no success"
[ $took -ge $after ] && [ $took -le $((after + 11)) ] || fail "it ended after $took s"
tries=0
until [ -z "$(node_pids)" ]; do
  sleep 0.1
  tries=$((tries + 1))
  [ $tries -lt 30 ] || { ps -o pid,ppid,args -p "$(node_pids | paste -sd,)"; fail "processes are left"; }
done
for rank in 0 1; do grep -q "^\[rank $rank\] error: waits in .*: the run ends" cut.out || fail "rank $rank says nothing"; done
grep -Eq "^\[rank 0\]   ranks 2, 3 \(${node}2\): nothing is heard from there" cut.out || fail "nobody says which node is gone"
grep -q 'held up by ranks 2, 3: stopped or dead, or cut off' cut.out || fail "nobody says who is to blame"
exit 0
