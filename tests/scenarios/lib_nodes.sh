# Several nodes on one machine, for scenarios that lose one: network and host-name namespaces around a switch, each with
# shared memory of its own. Read with: . "$ZUG_SRC/tests/scenarios/lib_nodes.sh"; nodes are $node1, $node2, ...
#
#   nodes_up N              makes them, or skips the test where that is not allowed
#   on_node NAME COMMAND    runs a command line there
#   on_two EACH COMMAND     runs one on the first two nodes by mpirun, so many ranks on each, over TCP between them
#   node_cut I, node_heal I takes node I off the network, and back
#   node_pids               processes that run on any of them

# The names are this process', so that several tests can run at once; the links are inside the switch's namespace.
node=zug$$n
net_switch=zug${$}s

nodes_down() {
  for i in $(seq 8); do
    kill -KILL $(ip netns pids "$node$i" 2>/dev/null) 2>/dev/null
    ip netns del "$node$i" 2>/dev/null
  done
  ip netns del "$net_switch" 2>/dev/null
  rm -f "$PWD/hosts" "$PWD/agent"
}

nodes_up() {
  for tool in ip nsenter unshare; do
    command -v $tool >/dev/null && continue
    echo "no $tool here: nodes cannot be emulated"
    exit 77
  done
  if ! ip netns add "$net_switch" 2>err.txt; then
    echo "no namespaces here ($(cat err.txt)): nodes cannot be emulated"
    exit 77
  fi
  trap nodes_down EXIT
  ip -n "$net_switch" link add hub type bridge && ip -n "$net_switch" link set hub up || { echo "no bridge here: nodes cannot be emulated"; exit 77; }
  cat /etc/hosts >hosts
  for i in $(seq "$1"); do
    ip netns add "$node$i" &&
      ip -n "$net_switch" link add "port$i" type veth peer name eth0 netns "$node$i" &&
      ip -n "$net_switch" link set "port$i" master hub up &&
      ip -n "$node$i" addr add "10.78.0.$i/24" dev eth0 &&
      ip -n "$node$i" link set eth0 up &&
      ip -n "$node$i" link set lo up || fail "node $i cannot be made"
    echo "10.78.0.$i $node$i" >>hosts
  done
  # mpirun's agent: agent HOST COMMAND...
  cat >agent <<END
#!/bin/sh
host=\$1
shift
exec nsenter --net=/run/netns/\$host unshare --uts --mount sh -c 'hostname \$0 && mount -t tmpfs none /dev/shm &&
  mount --bind $PWD/hosts /etc/hosts && exec sh -c "\$1"' "\$host" "\$*"
END
  chmod +x agent
  if ! ./agent "${node}1" true 2>err.txt; then
    echo "no mounts here ($(cat err.txt)): nodes cannot be emulated"
    exit 77
  fi
}

on_node() {
  host=$1
  shift
  ./agent "$host" "$*"
}
on_two() {
  each=$1
  shift
  on_node "${node}1" "cd $PWD && exec mpirun --allow-run-as-root --oversubscribe --mca plm_rsh_agent $PWD/agent --mca pml ob1 \
    --mca btl self,vader,tcp --mca btl_vader_single_copy_mechanism none --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 \
    -H ${node}1:$each,${node}2:$each -np $((2 * each)) $*"
}
node_cut() { ip -n "$net_switch" link set "port$1" down; }
node_heal() { ip -n "$net_switch" link set "port$1" up; }
node_pids() { for i in $(seq 8); do ip netns pids "$node$i" 2>/dev/null; done; }
