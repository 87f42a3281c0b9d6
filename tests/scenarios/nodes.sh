# Ranks on nodes: whatever order they were dealt out in, the mesh's fast dims come to lie inside nodes, and the run is the same
# run. Nodes are made up (tests/scenarios/tools/nodes.c); groups that span them exchange by messages.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi

cat >recipes.zug <<'END'
recipe eight {
  mesh pipe = 2, data = 2, tensor = 2
  split batch over data
  split head, ffn, vocab over tensor
  stages over pipe by cost
  shard params, grads, states over data
  optimizer adamw(lr = 0.01)
  bind batch = 8, seq = 16
  micro 2
}
recipe six {
  mesh data = 3, tensor = 2
  split batch over data
  split head, ffn, vocab over tensor
  optimizer adamw(lr = 0.01)
  bind batch = 6, seq = 16
}
recipe four from six { mesh data = 1, tensor = 4 }
END
ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg -D layers=2 -D heads=4 -D width=16 -D context=16 -D words=128

run() { # NODES RECIPE LOG OPTION...
  nodes=$1 recipe=$2 log=$3
  shift 3
  ok timeout -k 5 100 env "ZUG_TEST_NODES=$nodes" $MPIRUN -np ${#nodes} "$ZUG_BUILD/tests/scenarios/tools/zrun-nodes" train gpt2.zsg \
    --recipe "recipes.zug:$recipe" --data text.bin --steps 3 --log "$log" "$@"
}
same() { # the very numbers: sums are in the order of ranks wherever these are
  ok "$ZUG_BUILD/tests/scenarios/tools/compare_runs" --loss 0 --norm 0 "$1/metrics.jsonl" "$2/metrics.jsonl"
}

run AAAAAAAA eight one --save one.safetensors
grep -q 'nodes' out.txt && { cat out.txt; fail "something is said of one node"; }
run AAAABBBB eight two
says '^2 nodes of 4 ranks; inside nodes: data x tensor; between nodes: pipe$'
grep -q 'in order of nodes' out.txt && { cat out.txt; fail "a good order is changed"; }
same two one
run ABABABAB eight dealt --save dealt.safetensors
says '^2 nodes of 4 ranks; inside nodes: data x tensor; between nodes: pipe$'
says "^ranks are in order of nodes: 0 to 3 .mpirun's 0 to 6 by 2.; 4 to 7 .mpirun's 1 to 7 by 2.$"
same dealt one
cmp one.safetensors dealt.safetensors || fail "other weights"
run ABCDABCD eight small
says '^4 nodes of 2 ranks; inside nodes: tensor; between nodes: pipe x data$'
same small one

# It cannot be: nodes that hold no whole number of groups, and nodes that are too small.
run AAABBB six odd
says '^note: 1 of 3 groups of tensor .2 ranks. spans nodes and waits for the network: nodes of 3 ranks hold no whole number'
run AABB four large --dry-run
says '^note: tensor .4 ranks. spans nodes: none has so many ranks$'
exit 0
