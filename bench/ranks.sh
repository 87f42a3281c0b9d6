# One and two ranks, a core each, for what is predicted and measured: small models, their data, and how ranks are started. Read
# by time.sh and search.sh in an empty folder.
#
#   RUN="nice -n -5"  a command before mpirun, and
#   RANK="..."        one before each rank's program
#   NODES=200mbit     two ranks on two emulated nodes, whose links are so fast (needs root)

mpi="--allow-run-as-root --map-by core --bind-to core --mca pml ob1"
if [ "${NODES:-}" ]; then
  . "$ZUG_SRC/tests/scenarios/lib_nodes.sh"
  nodes_up 2
  for i in 1 2; do
    ip netns exec "$node$i" tc qdisc add dev eth0 root tbf rate "$NODES" burst 128kb latency 100ms || fail "links cannot be limited here"
  done
  # Each rank has a core of its own, though both nodes think of the first.
  printf '#!/bin/sh\nexec taskset -c "$OMPI_COMM_WORLD_RANK" "$@"\n' >pinned
  chmod +x pinned
fi
start() { # RANKS COMMAND...
  ranks=$1
  shift
  if [ "${NODES:-}" ]; then
    # shellcheck disable=SC2086 # words are wanted
    ${RUN:-} "$PWD/agent" "${node}1" "cd $PWD && PATH=$PATH exec mpirun --allow-run-as-root --bind-to none --mca plm_rsh_agent $PWD/agent \
      --mca btl tcp,self --mca pml ob1 --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 -H ${node}1:1,${node}2:1 -np $ranks ./pinned ${RANK:-} $*"
  else
    # shellcheck disable=SC2086
    ${RUN:-} mpirun $mpi --mca btl self,vader --mca btl_vader_single_copy_mechanism none -np "$ranks" ${RANK:-} "$@"
  fi
}

zdata pack "$ZUG_SRC/lang" "$ZUG_SRC/runtime" -o text.bin >/dev/null
awk 'BEGIN { srand(7); for (j = 0; j < 64; j++) printf "p%d,", j; print "kind"
  for (i = 0; i < 2048; i++) { for (j = 0; j < 64; j++) printf "%.2f,", rand(); print "k" i % 10 } }' >points.csv
zdata table points.csv --label kind --label-field label --field image -o points.bin >/dev/null
zc -q "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg -D layers=4 -D heads=4 -D width=256 -D context=128 -D words=256
zc -q "$ZUG_SRC/examples/gpt2.zug" -o tiny.zsg -D layers=4 -D heads=2 -D width=128 -D context=128 -D words=256
zc -q "$ZUG_SRC/examples/llama3.zug" -o llama3.zsg -D layers=4 -D heads=4 -D kv_heads=2 -D width=256 -D inner=768 -D words=256
zc -q "$ZUG_SRC/examples/mlp.zug" -o mlp.zsg -D inputs=64 -D hidden=1024

# What machines have changes from minute to minute, by whatever else runs on them: each run lies between two calibrations.
calibrate() { # RANKS
  [ -s "here$1.zug" ] && mv "here$1.zug" "before$1.zug"
  start "$1" zrun calibrate -o "here$1.zug" >calibrate.out 2>&1 || fail "$(cat calibrate.out)"
}
data_of() { case $1 in mlp) echo points.bin ;; *) echo text.bin ;; esac }
machine() { echo "$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1), $(nproc) cores; load $(cut -d ' ' -f 1 /proc/loadavg); ${NODES:-shared memory}"; }
