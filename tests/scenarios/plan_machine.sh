# --cluster auto: what this machine is, and what the launcher gave; ranks on NUMA nodes where nobody bound them.
. "$ZUG_SRC/tests/scenarios/lib.sh"

ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg -D layers=2 -D heads=2 -D width=32 -D words=256 -D context=16
cat >two.zug <<'END'
recipe one { bind batch = 4, seq = 16   micro 1   optimizer sgd(lr = 0.1) }
recipe two { mesh data = 2   bind batch = 4, seq = 16   micro 1   split batch over data   optimizer sgd(lr = 0.1) }
END
ok zplan show gpt2.zsg --recipe two.zug:two --cluster "$ZUG_SRC/examples/clusters.zug:laptop"
ok zplan show gpt2.zsg --recipe two.zug:one --cluster auto
says '^machine .*core.*memory [0-9.]+ [GT]B'
refuses 'error.Z0813.: cluster `auto` does not say what times are made from' zplan sim gpt2.zsg --recipe two.zug:one --cluster auto
grep -q 'D.*HAVE_HWLOC' "$ZUG_BUILD/Makefile" || { echo "built without hwloc: no more of it"; exit 0; }
# hwloc takes the machine that it is told of: here one of two packages with two NUMA nodes each.
HWLOC_SYNTHETIC='package:2 numa:2 l3:1 core:4 pu:2' && export HWLOC_SYNTHETIC
ok zplan show gpt2.zsg --recipe two.zug:two --cluster auto
says '^machine 2 packages, 4 NUMA nodes, 16 cores, 32 threads, memory .*; caches .*L3 [0-9.]+ MB of 4 cores'
says 'numa' && says 'machine'
[ -n "$MPIRUN" ] && [ -x "$ZUG_BUILD/zrun" ] || exit 0
head -c 4096 /dev/zero >data.bin
ok zdata pack data.bin -o tokens.bin
HWLOC_SYNTHETIC='package:1 numa:2 core:1 pu:1' && export HWLOC_SYNTHETIC
train="zrun train gpt2.zsg --recipe two.zug:two --data tokens.bin --steps 1 --device cpu"
ok $MPIRUN --bind-to none -np 2 $train --cluster auto
says '^machine 1 package, 2 NUMA nodes, 2 cores'
grep -q 'NUMA node each' out.txt && fail "bound to another machine than this one"
# As if that were this machine: it can be where this process may use CPUs 0 and 1.
case $(sed -n 's/^Cpus_allowed:.*\(.\)$/\1/p' /proc/self/status) in [37bf]) ;; *) exit 0 ;; esac
HWLOC_THISSYSTEM=1 && export HWLOC_THISSYSTEM
ok $MPIRUN --bind-to none -np 2 $train
says '^note: ranks are kept on a NUMA node each, of 1 core here: the launcher bound them to none$'
ok $MPIRUN --bind-to core -np 2 $train
grep -q 'NUMA node each' out.txt && fail "bound where the launcher had"
exit 0
