# Blocks of the library: every line `# Example: y = ...` of stdlib/std/*.zug is put into a model, which trains the same
# in two layouts, with micro-batches of as many samples, as on one rank. And every block with parameters has such a line.
. "$ZUG_SRC/tests/scenarios/lib.sh"
library="$ZUG_SRC/stdlib/std/nn.zug $ZUG_SRC/stdlib/std/recurrent.zug"

# ---- a block with parameters has an example, in the comment right above it ----
awk '/^# Example:/ { example = 1; next } /^#/ { next } /^block/ { name = $2; sub(/[[(].*/, "", name); has = example }
  /^  param/ && !has { print name } { example = 0 }' $library | sort -u >without.txt
[ ! -s without.txt ] || { cat without.txt; fail "blocks without an example"; }

# ---- every example is a piece of a model ----
sed -n 's/^# Example: //p' $library >examples.txt
[ "$(wc -l <examples.txt)" -ge 9 ] || fail "examples are lost"
n=0
while read -r example; do
  n=$((n + 1))
  cat >$n.zug <<END
use std.nn as nn
use std.recurrent as rec
model Block {
  axis batch, seq, key, embed = 12, other = 12, head = 2, kv = 2, grp = 2, hd = 4, ffn = 8, cond = 6, vocab = 256
  axis channel = 3, py = 2, px = 2, bucket = 6, expert = 6, choice = 2, pq = 4, hv = 3, lq = 5, lk = 4
  axis chan = 6, more = 8, group = 2, half = 4, row = 4, col = 4, row2 = 2, col2 = 2
  input tokens: index(vocab)[batch, seq]
  param table[vocab, embed], conditions[vocab, cond], pixels[vocab, channel, py, px], photos[vocab, chan, row, col] ~ normal(1)
  x = lookup(table, tokens)
  c = mean[seq](lookup(conditions, tokens))
  image = lookup(pixels, tokens)
  photo = lookup(photos, tokens)
  param router[embed, expert] ~ normal(1)
  z = dot[embed](x, router)
  p = softmax[expert](z)
  w, e = topk[expert, choice](p)
  $example
  loss mean[embed](y * y * y) per known(tokens)      # of what is normed, y * y is nearly constant
}
END
  ok zc $n.zug -o $n.zsg
done <examples.txt

# ---- and trains; f32 sums in another order differ by 1e-6, the bound is that of tests/scenarios/layouts.sh ----
need_mpi
cat >recipes.zug <<'END'
recipe one_1 { bind batch = 8, seq = 8, key = 8   micro 4   optimizer adamw(lr = 1e-2, eps = 1e-5)   clip 1.0 }
recipe zero_2 from one_1 { mesh data = 2   micro 2   split batch over data   shard params, grads, states over data }
recipe tensor_2 from one_1 { mesh tensor = 2   split vocab, head, kv, ffn, more, half over tensor else seq }
END
head -c $((8 * 64)) "$ZUG_SRC/LICENSE" >bytes
ok zdata records bytes -o bytes.bin --field tokens:u8:8
n=0
while read -r example; do
  n=$((n + 1))
  for recipe in one_1 $(at_night && echo zero_2 tensor_2); do
    ok timeout -k 5 100 $(on "${recipe#*_}") zrun train $n.zsg --recipe recipes.zug:$recipe --data bytes.bin --steps 3 \
      --log $n-$recipe </dev/null
    ok "$ZUG_BUILD/tests/scenarios/tools/compare_runs" --loss 1e-5 --norm 1e-5 $n-$recipe/metrics.jsonl $n-one_1/metrics.jsonl
  done
  echo "$example"
  tail -n 1 out.txt
done <examples.txt
[ $n -ge 9 ] || fail "only $n examples were trained"
