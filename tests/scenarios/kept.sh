# zkeep, mpirun and zrun together: a run whose rank is killed, that is told to stop, and on two nodes of which one loses its
# network: it goes on with those that are left, with the recipe for so many ranks.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi

# A step takes some milliseconds. All steps up to the stop are made again below, and a small step beside other tests takes a
# hundred times as long as alone: it waits for a rank that has no core.
cat >recipes.zug <<'END'
recipe one { optimizer sgd(lr = 0.1)   bind batch = 512, seq = 16   micro 2 }
recipe two from one { mesh data = 2   split batch over data }
recipe four from one { mesh data = 4   split batch over data   micro 1 }
END
ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg -D layers=2 -D heads=2 -D width=8 -D context=16 -D words=128
run="zrun train gpt2.zsg --recipe recipes.zug:four,two,one --data text.bin"
lasts="$run --steps 100000000 --ckpt-every 10 --ckpt-keep 2 --resume"

until_true() { # COMMAND...
  tries=0
  until "$@"; do
    sleep 0.1
    tries=$((tries + 1))
    [ $tries -lt 600 ] || { cat keep.out; fail "not in a minute: $*"; }
  done
}
ranks() { # of this test
  for process in /proc/[0-9]*; do
    [ "$(readlink "$process/cwd")" = "$PWD" ] && grep -q '^zrun$' "$process/comm" 2>/dev/null && echo "${process#/proc/}"
  done
}
says_keep() { grep -Eq "$1" keep.out; }

# ---- a rank is killed; then it is told to stop: the parameters are those of a run that nothing befell ----
setsid zkeep --wait 1s -- $MPIRUN -np 2 $lasts --ckpt ckpt --log log --save w.safetensors >keep.out 2>&1 &
job=$!
trap 'kill -KILL $job $(ranks) 2>/dev/null' EXIT
a_checkpoint() { ls "$1" 2>/dev/null | grep -qx 'step-[0-9]*'; }
until_true a_checkpoint ckpt
kill -KILL "$(ranks | tail -1)"
until_true says_keep '^resumed from ckpt/step-'
steps_again() { [ "$(sed -n '/start 2:/,$p' keep.out | grep -c '^step ')" -ge 3 ]; }
until_true steps_again
kill -TERM $job
wait $job
code=$?
trap - EXIT
[ $code -eq 75 ] || { cat keep.out; fail "code $code of a run that was told to stop"; }
says_keep 'the command exited with code 137' || { grep zkeep keep.out; fail "the killed rank's code"; }
says_keep '^stopped after step .* by SIGUSR1' || { tail keep.out; fail "the run has not stopped in order"; }
mv w.safetensors kept.safetensors || fail "nothing is saved"
ok $MPIRUN -np 2 $run --steps "$(sed -n 's/^stopped after step \([0-9]*\) .*/\1/p' keep.out)" --save w.safetensors
cmp w.safetensors kept.safetensors || fail "the run that was killed and stopped comes to other parameters"
[ -z "$(ranks)" ] || fail "ranks are left"

# ---- what is wrong is not tried again ----
refuses 'not restarted: it would fail the same way' zkeep -- $MPIRUN -np 2 $run --steps 1 --init none.safetensors
[ "$(grep -c 'zkeep .*: start' out.txt)" -eq 1 ] || fail "it is tried again"

# ---- two nodes, of which one is cut off ----
. "$ZUG_SRC/tests/scenarios/lib_nodes.sh"
nodes_up 2
cat >hosts.txt <<END
${node}1 slots=2
${node}2 slots=2
END
# Somebody who refuses answers, too.
cat >probe <<'END'
#!/bin/bash
timeout 2 bash -c "</dev/tcp/$1/9" 2>/dev/null
[ $? -ne 124 ]
END
chmod +x probe
on_node "${node}1" "cd $PWD && exec zkeep --wait 1s --hosts hosts.txt --ranks 4,2,1 --probe './probe HOST' -- mpirun --allow-run-as-root \
  --oversubscribe --mca plm_rsh_agent $PWD/agent --mca pml ob1 --mca btl self,vader,tcp --mca btl_vader_single_copy_mechanism none \
  --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 $lasts --ckpt saved --hang-after 6s --log nodes" >keep.out 2>&1 &
job=$!
trap 'nodes_down' EXIT
until_true a_checkpoint saved
says_keep 'recipe four: 4 ranks' || { cat keep.out; fail "not on all ranks"; }
start=$(date +%s)
node_cut 2
until_true says_keep '^resumed from saved/step-'
until_true steps_again
echo "with the ranks that are left after $(($(date +%s) - start)) s"
says_keep "host ${node}2 does not answer and is left out" || { grep zkeep keep.out; fail "the host is not left out"; }
says_keep "start 2: mpirun -np 2 --host ${node}1:2 " || { grep zkeep keep.out; fail "another command"; }
last=$(sed '/start 2:/,$d' keep.out | sed -n 's/^step *\([0-9]*\)\/.*/\1/p' | tail -1)
from=$(sed -n 's/^resumed from saved\/step-0*\([0-9]*\):.*/\1/p' keep.out)
[ "$from" ] && [ "$from" -ge 10 ] && [ "$from" -le "$last" ] || { grep -v '^step' keep.out; fail "resumed from step $from of $last"; }
echo "step $last had been made, step $from was saved" # steps are quicker than the disk here
says_keep 'recipe two: 2 ranks' || { tail keep.out; fail "another recipe"; }
kill -TERM "$(ip netns pids "${node}1" | while read -r p; do grep -q '^zkeep$' "/proc/$p/comm" && echo "$p"; done | head -1)"
wait $job
code=$?
[ $code -eq 75 ] || { tail keep.out; fail "code $code of a run that was told to stop"; }
nobody() { [ -z "$(node_pids)" ]; }
until_true nobody
exit 0
