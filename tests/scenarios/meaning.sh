# What a model means does not depend on where it runs: dropout, statistics under aux, unevenly known targets, values that cross
# repeats, shared and tied parameters, and operations along split axes give the same losses and norms in every layout.
# Tolerance: f32 sums in another order, 1e-5 relative (seen: up to 1e-6).
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi

# ---- records: 40 samples of 8 tokens (below 32) and 8 targets, of which few are known, and in some samples none ----
awk 'BEGIN {
  for (s = 0; s < 40; s++) {
    for (i = 0; i < 8; i++) printf "\\%03o\\000\\000\\000", (s * 7 + i * 5 + s * i) % 32
    for (i = 0; i < 8; i++) {
      known = s % 16 < 3 || (s % 16 > 10 && i == s % 8)
      printf known ? sprintf("\\%03o\\000\\000\\000", (s * 3 + i * 11) % 32) : "\\377\\377\\377\\377"
    }
  }
}' >escapes.txt
printf "$(cat escapes.txt)" >records.raw
ok zdata records records.raw --field tokens:i32:8 --field targets:i32:8 -o records.bin
says '40 records'

# ---- layouts: all take 8 samples a micro-batch, over all ranks, but those of micro.txt ----
cat >base.txt <<'END'
recipe one { bind batch = 16, seq = 8   micro 8   optimizer sgd(lr = 0.1, momentum = 0.9) decay 0.01   clip 1.0 }
recipe data_2 from one { mesh data = 2   split batch over data   micro 4 }
recipe data_4 from one { mesh data = 4   split batch over data   micro 2   shard params, grads, states over data }
recipe tensor_2 from one { mesh tensor = 2   split ffn, vocab over tensor }
recipe seq_2 from one { mesh tensor = 2   split ffn, vocab over tensor else seq }
recipe context_2 from one { mesh context = 2   split seq over context }
recipe both_4 from one {
  mesh data = 2, tensor = 2
  split batch over data
  split ffn, vocab over tensor else seq
  micro 4
  shard grads, states over data
}
END
cat >again.txt <<'END'
recipe again from one { recompute Half }
recipe again_2 from tensor_2 { recompute Half }
END
cat >pad.txt <<'END'
recipe padded from one { pad ffn to 20   pad vocab to 24 }
recipe padded_2 from tensor_2 { pad ffn to 20   pad vocab to 24 }
recipe padded_4 from both_4 { pad ffn to 12   pad vocab to 24   shard params, grads, states over data }
END
cat >pipe.txt <<'END'
recipe pipe_2 from one { mesh pipe = 2   stages over pipe by cost }
recipe gpipe_4 from one { mesh pipe = 2, data = 2   split batch over data   stages over pipe by cost   schedule gpipe   micro 4 }
recipe all_8 from one {
  mesh pipe = 2, data = 2, tensor = 2
  split batch over data
  split ffn, vocab over tensor else seq
  stages over pipe by cost
  micro 4
  shard params, grads, states over data
}
END
cat >micro.txt <<'END'
recipe whole from one { micro 16 }
recipe single from one { micro 1 }
recipe single_2 from data_2 { micro 1 }
recipe wide_4 from data_4 { micro 4 }
END

# trained NAME TEXT...: compiles NAME.zug; it must train alike in the layouts of each TEXT.txt
trained() {
  model=$1
  shift
  ok zc "$model.zug" -o "$model.zsg"
  for file; do cat "$file.txt"; done >"recipes-$model.zug"
  for recipe in $(awk '$1 == "recipe" { print $2 }' "recipes-$model.zug"); do
    ranks=$(echo "$recipe" | sed -n 's/.*_\([0-9]\)$/\1/p')
    ok timeout -k 5 60 $(on "${ranks:-1}") zrun train "$model.zsg" --recipe "recipes-$model.zug:$recipe" --data records.bin \
      --order sequential --steps 3 --log "$model-$recipe"
    "$ZUG_BUILD/tests/scenarios/tools/compare_runs" --loss 1e-5 --norm 1e-5 "$model-$recipe/metrics.jsonl" "$model-one/metrics.jsonl" \
      >diff.txt || { cat diff.txt; fail "$model: $recipe trains differently"; }
    printf '%-10s %-10s %s\n' "$model" "$recipe" "$(tail -n 1 diff.txt)"
  done
}

# head_of NAME: what the models begin with
head_of() {
  cat <<END
use std.nn as nn
model $1(width = 16, words = 32) {
  axis batch, seq
  axis embed = width, ffn = 2 * width, vocab = words, pos = 8
  input tokens: index(vocab)[batch, seq]
  input targets: index(vocab)[batch, seq]
  block Half(x: real[.., embed]) -> real[.., embed] {
    param up[embed, ffn] ~ normal(0.3)
    param down[ffn, embed] ~ normal(0.3)
    return dot[ffn](nn.relu(dot[embed](nn.RMSNorm[embed](x) as norm, up)), down)
  }
  param wte[vocab, embed] ~ normal(0.5)
  param wpe[pos, embed] ~ normal(0.5)
  e = lookup(wte, tokens) + lookup(wpe, position[seq, pos]())
END
}

# ---- few known targets: every one counts the same, wherever it falls ----
{ head_of Known; cat <<'END'; } >known.zug
  x = e
  repeat 2 as layer { x = x + Half(x) }
  loss xent[vocab](dot[embed](x, wte), targets) per known(targets)
}
END
trained known base micro pad pipe

# ---- dropout: the same elements are dropped, forward and in backward ----
{ head_of Noise; cat <<'END'; } >noise.zug
  block Layer(x: real[.., embed]) -> real[.., embed] {
    param up[embed, ffn] ~ normal(0.3)
    param down[ffn, embed] ~ normal(0.3)
    h = nn.dropout(nn.relu(dot[embed](x, up)), p = 0.3)
    return x + nn.dropout(dot[ffn](h, down) + Half(x) as half, p = 0.2)
  }
  x = nn.dropout(e, p = 0.1)
  repeat 4 as layer { x = Layer(x) }
  loss xent[vocab](dot[embed](x, wte), targets) per known(targets)
}
END
sed 's/Half/Layer/' again.txt >noise_again.txt
trained noise base micro pad noise_again pipe
differ() { # A B: first losses
  for run; do sed -n '1s/.*"loss":\([0-9.e+-]*\),.*/\1/p' "$run/metrics.jsonl"; done | uniq | wc -l | grep -q 2 || fail "$*: no difference"
}
ok zrun train noise.zsg --recipe recipes-noise.zug:one --data records.bin --order sequential --steps 1 --seed 2 \
  --log noise-seed --save noise.safetensors
ok zrun train noise.zsg --recipe recipes-noise.zug:one --data records.bin --order sequential --steps 1 --seed 3 \
  --log noise-other --init noise.safetensors
differ noise-seed noise-other

# ---- aux: statistics of a micro-batch, from within a repeat, beside the loss ----
{ head_of Aux; cat <<'END'; } >aux.zug
  param route[embed, ffn] ~ normal(0.5)
  x = e
  repeat 3 as layer {
    share = mean[batch, seq](softmax[ffn](dot[embed](x, route)))
    aux 0.1 * sum[ffn](share * share)
    x = x + Half(x)
  }
  aux 0.01 * peak[batch, seq, embed](x * x)
  loss xent[vocab](dot[embed](x, wte), targets) per known(targets)
}
END
trained aux base again pipe
# What it is made of is said in each layout, whatever stage a term is on; a model that adds nothing has a loss alone.
for recipe in one $(awk '$1 == "recipe" { print $2 }' base.txt again.txt pipe.txt); do
  sed -n 's/.*"loss":\([^,]*\),.*"loss_main":\([^,]*\),"loss_aux":\([^,}]*\).*/\1 \2 \3/p' "aux-$recipe/metrics.jsonl" >parts.txt
  [ "$recipe" = one ] && cp parts.txt one.txt
  paste -d ' ' parts.txt one.txt | awk '
    function near(a, b) { d = a - b; return a > 0 && d <= 1e-5 * b && -d <= 1e-5 * b }
    near($1, $2 + $3) && near($2, $5) && near($3, $6) { n++ }
    END { exit n != 3 || NR != 3 }' || { cat parts.txt; fail "$recipe: parts that do not add up, or not those of one rank"; }
done
grep -q '"loss_' known-one/metrics.jsonl && fail "parts of a loss that has none"

# ---- means under aux, used linearly: the same whatever a micro-batch is ----
{ head_of Means; cat <<'END'; } >means.zug
  param route[embed, ffn] ~ normal(0.5)
  x = e
  repeat 2 as layer {
    a = dot[embed](x, route)
    aux 0.1 * mean[batch, seq, ffn](a * a) + 0.01 * sum[ffn](mean[batch](sum[seq](a)) * 0.3 - 1)
    x = x + Half(x)
  }
  aux 0.05 * mean[batch](peak[seq, embed](x * x)) + 0.1 * sum[embed, ffn](route * route)
  loss xent[vocab](dot[embed](x, wte), targets) per known(targets)
}
END
grep -E 'recipe (one|data_2|data_4) ' base.txt >few.txt
trained means few micro

# ---- values that cross repeats ----
{ head_of Across; cat <<'END'; } >across.zug
  axis embed2 = width
  param turn[embed, embed2] ~ normal(0.2)
  x = e
  h = 0.1 * e
  repeat 3 as first {
    h = 0.5 * h + rename[embed2, embed](dot[embed](x, turn))
    repeat 2 as inner { x = x + 0.3 * Half(x) }
    x = x + h + 0.1 * e
  }
  y = x
  repeat 2 as second { x = 0.5 * y + Half(x) as half + 0.2 * h }
  loss xent[vocab](dot[embed](x + e, wte), targets) per known(targets)
}
END
cat >more.txt <<'END'
recipe five_5 from one { mesh pipe = 5   stages over pipe = [1, 1, 1, 1, 1] }
recipe uneven_3 from one { mesh pipe = 3   stages over pipe = [1, 3, 1]   recompute Half }
END
trained across base again pipe more

# ---- no repeat; operations along split axes ----
{ head_of Ops; cat <<'END'; } >ops.zug
  axis left = 24, right = 8, ffn2 = 2 * width
  param up[embed, ffn] ~ normal(0.3)
  param down[ffn, embed] ~ normal(0.3)
  param mix[ffn2, ffn] ~ uniform(-0.3, 0.3)
  param bias[ffn] ~ trunc_normal(0.3) tag bias
  a = dot[embed](e, up) + bias
  a = select(less(a, 0), 0.1 * a, stop(a) * 0.2 + 0.8 * a)
  b = concat[ffn, left, right](slice[ffn, left](a, start = 8), slice[ffn, right](a))
  c = dot[ffn2](rename[ffn, ffn2](b), mix)
  d = softmax[ffn](c) * peak[ffn](a) + min(max(c, -1), 1) - mean[ffn](b)
  past = sum[seq](d) / 8 + erf(mean[seq](a))
  x = nn.LayerNorm[embed](e + dot[ffn](d + past, down)) as norm
  loss xent[vocab](dot[embed](x, wte), targets) per known(targets)
}
END
cat >odd.txt <<'END'
recipe parts_2 from one { mesh tensor = 2   split ffn2, left, right, embed over tensor }
recipe twice_4 from one { mesh a = 2, b = 2   split ffn, vocab over a   split embed, ffn2, vocab, ffn over b }
recipe mixed_8 from one {
  mesh a = 2, data = 2, b = 2
  split batch, ffn over a
  split batch over data
  split ffn, vocab over b else seq
  micro 2
  shard grads, states over data
  shard grads, states over a
}
END
trained ops base micro odd

# ---- indices and whole numbers: joined, cut and turned, they stay what they are ----
cat >turned.txt <<'END'
recipe one { bind batch = 16   micro 8   optimizer sgd(lr = 0.1) }
recipe data_2 from one { mesh data = 2   split batch over data   micro 4 }
recipe tensor_2 from one { mesh tensor = 2   split embed, vocab over tensor }
END
cat >turned.zug <<'END'
model Turned(width = 16, words = 32) {
  axis batch, all = 8, few = 3, many = 5, embed = width, vocab = words
  input tokens: index(vocab)[batch, all]
  input targets: index(vocab)[batch, all]
  param wte[vocab, embed] ~ normal(0.5)
  head = slice[all, few](tokens)
  turned = concat[all, many, few](slice[all, many](tokens, start = 3), head)
  x = lookup(wte, turned)
  repeat 2 {
    x = x + lookup(wte, turned)
    turned = concat[all, many, few](slice[all, many](turned, start = 3), slice[all, few](turned))
  }
  loss xent[vocab](dot[embed](x, wte), turned) per known(tokens)
}
END
trained turned turned
cat >whole.zug <<'END'
model Whole {
  axis batch, all = 8, few = 3, many = 5
  input tokens: i32[batch, all]
  input targets: i32[batch, all]
  param w[all] = 1
  turned = concat[all, many, few](slice[all, many](tokens, start = 3), slice[all, few](tokens))
  loss f32(max(turned, 20) - tokens * 2 + select(less(targets, 0), 1, targets)) * w per f32(tokens * 0 + 1)
}
END
ok zc whole.zug -o whole.zsg
ok zrun train whole.zsg --recipe turned.txt:one --data records.bin --order sequential --steps 1 --log whole
awk 'BEGIN {
  for (s = 0; s < 16; s++)
    for (i = 0; i < 8; i++) {
      j = (i + 3) % 8
      t = (s * 7 + j * 5 + s * j) % 32
      known = s % 16 < 3 || (s % 16 > 10 && i == s % 8)
      sum += (t > 20 ? t : 20) - 2 * ((s * 7 + i * 5 + s * i) % 32) + (known ? (s * 3 + i * 11) % 32 : 1)
    }
  printf "%.6f\n", sum / 128
}' >want.txt
sed -n '1s/.*"loss":\([0-9.e+-]*\),.*/\1/p' whole/metrics.jsonl | awk '{ printf "%.6f\n", $1 }' | diff want.txt - || fail "whole numbers are not what they are"
exit 0
