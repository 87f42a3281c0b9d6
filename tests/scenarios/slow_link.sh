# Two nodes over a link of 100 Mbit/s: a step of data parallelism takes little longer than its gradients on the way, in both
# directions at once. (Open MPI's own way over TCP takes 1.25 times that at best.)
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi
. "$ZUG_SRC/tests/scenarios/lib_nodes.sh"
command -v tc >/dev/null || { echo "no tc here: links cannot be limited"; exit 77; }
nodes_up 2
for i in 1 2; do
  ip netns exec "$node$i" tc qdisc add dev eth0 root tbf rate 100mbit burst 128kb latency 100ms 2>err.txt ||
    { echo "links cannot be limited here ($(cat err.txt))"; exit 77; }
done

# A million parameters: 4 MB that each rank sends and receives, at 12 MB/s a third of a second.
cat >large.zug <<'END'
model Large { axis batch, a = 1000000   input x: real[batch]   input y: real[batch]
  param w[a] ~ normal(1)   h = spread[a](x) * w   loss sum[a](h * h) per y }
recipe two { mesh data = 2   split batch over data   bind batch = 2   optimizer sgd(lr = 1e-9) }
END
ok zc large.zug -o large.zsg
for i in 1 2 3 4 5 6 7 8; do printf '\0\0\200?\0\0\200?'; done >x.raw # records of 1 and 1
ok zdata records x.raw -o x.bin --field x:f32:1 --field y:f32:1
ok on_two 1 zrun train large.zsg --recipe large.zug:two --data x.bin --steps 12 --log slow
# What is measured of such a link: its rate, but that the bucket which limits it lets 128 KB through at once after a pause.
ok on_two 1 zrun calibrate -o slow.zug
grep 'level nodes' slow.zug
awk '/level nodes 2, / { match($0, /link [0-9.e+-]+ GB/); link = substr($0, RSTART + 5) + 0 }
  END { exit !(link > .008 && link < .025) }' slow.zug || fail "not about 12 MB/s"

# The best of twelve: whatever else this machine does, the link was free for it once.
best=$(sed -n 's/.*"step_ms":\([0-9]*\).*/\1/p' slow/metrics.jsonl | sort -n | head -n 1)
echo "the best step: $best ms"
[ "$best" -ge 300 ] || fail "faster than the link: $best ms"
[ "$best" -le 385 ] || fail "a step takes $best ms, where its gradients need 335"
