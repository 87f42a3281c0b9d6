# Memory that a machine or a control group does not have is said before the first step: by how much, and what to do. The
# machine is a tree of files, machine/proc/meminfo and so on, of both versions of control groups.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi
hasty=$ZUG_BUILD/tests/scenarios/tools/zrun-hasty

cat >recipes.zug <<'END'
recipe two { mesh data = 2   split batch over data   optimizer sgd(lr = 0.1)   bind batch = 4, seq = 16 }
recipe one { optimizer sgd(lr = 0.1)   bind batch = 4, seq = 16 }
END
ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg -D layers=1 -D heads=2 -D width=16 -D context=16 -D words=128
train="$MPIRUN -np 2 $hasty train gpt2.zsg --recipe recipes.zug:two --data text.bin --steps 1"

machine() { # MB available, MB of swap
  rm -rf machine
  mkdir -p machine/proc/self machine/sys/fs/cgroup machine/dev/shm
  printf 'MemTotal:       99999999 kB\nMemFree: 1 kB\nMemAvailable:   %d kB\nSwapTotal: 999999 kB\nSwapFree:  %d kB\n' \
    $(($1 * 1024)) $(($2 * 1024)) >machine/proc/meminfo
}
v2() { # PATH LIMIT USED CACHE [SWAP]: of the group at /sys/fs/cgroup/PATH, MB
  mkdir -p "machine/sys/fs/cgroup/$1"
  cd "machine/sys/fs/cgroup/$1" || exit 99
  if [ "$2" = max ]; then echo max >memory.max; else echo $(($2 << 20)) >memory.max; fi
  echo $(($3 << 20)) >memory.current
  printf 'anon 1\ninactive_file %d\nactive_file 99999999999\n' $(($4 << 20)) >memory.stat
  echo $((${5:-0} << 20)) >memory.swap.max
  echo 0 >memory.swap.current
  cd - >pwd.txt || exit 99
}

# ---- the machine: two ranks touch some 8.5 MB each ----
machine 100 0
ok $train
says 'host memory: 1[0-9]\.[0-9] MB for the arenas of 2 ranks on this node, up to [0-9.]+ MB taken beside each; 104.9 MB left'
machine 10 0
refuses '\[rank 0\] error: 2 ranks on .* will touch 1[0-9]\.[0-9] MB more \(8\.[0-9] MB each\), and the machine has 10\.5 MB left' $train
[ "$(grep -c 'error:' out.txt)" -eq 1 ] || { cat out.txt; fail "not said once"; }
machine 10 50
ok $train
says 'note: 2 ranks here will touch .* the machine has 10\.5 MB left: it will swap'

# ---- control groups, version 2: the least of all that are above ----
machine 1000 40
echo '0::/jobs/7' >machine/proc/self/cgroup
printf '%s\n' '30 1 0:26 / / rw - ext4 /dev/sda rw' '31 30 0:27 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup rw,nsdelegate' >machine/proc/self/mountinfo
v2 . max 5000 0
v2 jobs 200 190 0
v2 jobs/7 max 190 0
refuses 'of the 209\.7 MB that control group /sys/fs/cgroup/jobs may have there are 10\.5 MB left' $train
v2 jobs 200 190 80
ok $train
says '94\.4 MB left'
v2 jobs/7 50 49 0
refuses 'control group /sys/fs/cgroup/jobs/7 may have there are 1\.0 MB left' $train
v2 jobs/7 50 49 0 30
ok $train

# ---- version 1, seen from inside a container: what is mounted is its own group ----
machine 1000 0
printf '%s\n' '5:cpu,cpuacct:/docker/1' '4:memory:/docker/1' '0::/' >machine/proc/self/cgroup
echo '33 32 0:33 /docker/1 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory' >machine/proc/self/mountinfo
mkdir machine/sys/fs/cgroup/memory
cd machine/sys/fs/cgroup/memory || exit 99
echo 9223372036854771712 >memory.limit_in_bytes
echo $((50 << 20)) >memory.usage_in_bytes
printf 'cache 9\ntotal_inactive_file %d\n' $((1 << 20)) >memory.stat
cd - >pwd.txt || exit 99
ok $train
echo $((60 << 20)) >machine/sys/fs/cgroup/memory/memory.limit_in_bytes
refuses 'of the 62\.9 MB that control group /sys/fs/cgroup/memory may have there are 11\.5 MB left' $train

# ---- address space: whatever is missing, a run ends, and soon ----
machine 1000 0
# Where the sanitizers map terabytes there is nothing to limit.
ulimit -v 400000 && "$hasty" --help >help.txt 2>&1 || exit 0
for kilobytes in 150000 300000 400000; do
  refuses 'address space|cannot allocate|cannot be started|Cannot allocate|rror' sh -c \
    "ulimit -v $kilobytes; exec $hasty train gpt2.zsg --recipe recipes.zug:one --data text.bin --steps 1 --threads 4"
done
exit 0
