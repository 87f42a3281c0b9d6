# Parts of a model with many buckets: 72 parameters, which parts 0 to 14 use in as many ways, train the same whole and cut
# over two ranks. (An engine that had room for 64 buckets in a part stopped at such a model.)
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi

awk 'BEGIN {
  n = 72
  print "use std.nn as nn"
  print "model Many {"
  print "  axis batch, field = 4, width = 8, class = 3"
  print "  input image: real[batch, field]"
  print "  input label: index(class)[batch]"
  print "  x = nn.Linear[field, width](image) as first"
  for (i = 0; i < n; i++) printf "  param t%d[width] ~ normal(0.3)\n  x = x + t%d\n", i, i
  for (k = 0; 2 ^ k < n; k++) {
    printf "  repeat 2 as r%d {\n    param own[width] ~ normal(0.3)\n    x = nn.relu(x + own)\n", k
    for (i = 0; i < n; i++) if (int(i / 2 ^ k) % 2) printf "    x = x + t%d\n", i
    print "  }"
  }
  print "  output logits = nn.Linear[width, class](x) as last"
  print "  loss xent[class](logits, label) per known(label)"
  print "}"
}' >many.zug
cat >recipes.zug <<'END_OF_RECIPES'
recipe one { optimizer adamw(lr = 0.01, warmup = 2)   clip 1   bind batch = 8 }
recipe states from one { mesh data = 2   split batch over data   shard states over data }
recipe all from one { mesh data = 2   split batch over data   shard params, grads, states over data }
END_OF_RECIPES
awk 'BEGIN {
  print "a,b,c,d,kind"
  for (i = 0; i < 48; i++) printf "%.2f,%.2f,%.2f,%.2f,k%d\n", i % 3, i % 5 / 4, i % 7 / 6, i % 11 / 10, i % 3
}' >points.csv
ok zdata table points.csv --label kind --label-field label --field image -o points.bin
ok zc many.zug -o many.zsg
ok zplan show many.zsg --recipe recipes.zug:one
[ "$(grep -c '^t[0-9].* of gradients)' out.txt)" -gt 64 ] || { cat out.txt; fail "that is not many buckets"; }

run() { # RECIPE RANKS
  ok timeout -k 5 100 $(on "$2") zrun train many.zsg --recipe "recipes.zug:$1" --data points.bin --steps 3 --log "$1"
}
run one 1
for recipe in states all; do
  run $recipe 2
  ok "$ZUG_BUILD/tests/scenarios/tools/compare_runs" --loss 1e-5 --norm 1e-5 $recipe/metrics.jsonl one/metrics.jsonl
done
exit 0
