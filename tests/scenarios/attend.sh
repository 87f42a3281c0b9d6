# Attention with windows, caps, biases, documents, sinks, a second sequence and values of another width gives the same losses and
# norms in every layout. Tolerance as in meaning.sh: f32 sums in another order, 1e-5 relative (seen: up to 2e-6).
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi

# 40 samples: 8 tokens and targets, documents 0, 1, 2 of uneven lengths and padding (-1) behind them; 5 tokens of a second
# sequence, of which some are padding, in one sample all; how many tokens all see.
awk 'function id(x) { printf x < 0 ? "\\377\\377\\377\\377" : sprintf("\\%03o\\000\\000\\000", x) }
BEGIN {
  for (s = 0; s < 40; s++) {
    for (i = 0; i < 8; i++) id((s * 7 + i * 5 + s * i) % 32)
    for (i = 0; i < 8; i++) id(i > 6 - s % 3 ? -1 : (s * 3 + i * 11) % 32)
    for (i = 0; i < 8; i++) id(i > 6 - s % 3 ? -1 : i < s % 4 ? 0 : i < 5 ? 1 : 2)
    for (i = 0; i < 5; i++) id((s * 5 + i * 3) % 32)
    for (i = 0; i < 5; i++) id(i > 4 - s % 6 ? -1 : 0)
    id(s % 5)
  }
}' >escapes.txt
printf "$(cat escapes.txt)" >records.raw
ok zdata records records.raw --field tokens:i32:8 --field targets:i32:8 --field doc:i32:8 --field other:i32:5 \
  --field kept:i32:5 --field first:i32:1 -o records.bin
ok zc "$ZUG_SRC/tests/data/models/attend.zug" -o attend.zsg

cat >recipes.zug <<'END'
recipe one { bind batch = 16, seq = 8, past = 5   micro 8   optimizer sgd(lr = 0.1, momentum = 0.9) decay 0.01   clip 1.0 }
recipe again from one { recompute Local, Cross }
recipe data_2 from one { mesh data = 2   split batch over data   micro 4 }
recipe zero3_4 from one { mesh data = 4   split batch over data   micro 2   shard params, grads, states over data }
recipe tensor_2 from one { mesh tensor = 2   split kv, ffn, vocab over tensor }
recipe groups_4 from one { mesh tensor = 4   split kv*grp, ffn, vocab over tensor }
recipe seq_2 from one { mesh tensor = 2   split kv, ffn, vocab over tensor else seq }
recipe context_2 from one { mesh context = 2   split seq over context }
recipe gather_2 from context_2 { attention gather }
recipe heads_2 from context_2 { attention heads over context }
recipe gather_4 from one { mesh context = 4   split seq over context   attention gather }
recipe half_4 from one { mesh outer = 2, context = 2   split seq over outer, context   attention gather over outer   attention heads over context }
recipe ring_2 from context_2 { attention ring }
recipe ring_4 from gather_4 { attention ring   recompute Local }
recipe ring_8 from one {
  mesh pipe = 2, context = 2, tensor = 2
  split seq over context
  split kv, ffn, vocab over tensor
  stages over pipe by cost
  attention ring over context
  shard params, grads, states over context
}
recipe along_4 from ring_4 { split seq over context contiguous   recompute none }
recipe swapped_2 from heads_2 { split seq over context zigzag }
recipe both_8 from one {
  mesh data = 2, context = 2, tensor = 2
  split batch over data
  split seq over context zigzag
  split kv, ffn, vocab over tensor else seq
  attention gather over context
  micro 4
}
recipe tensor_4 from gather_2 { mesh tensor = 2, context = 2   split kv, ffn, vocab over tensor }
recipe zero3_8 from gather_2 {
  mesh data = 2, context = 2, tensor = 2
  split batch over data
  split kv*grp, ffn, vocab over tensor
  micro 4
  shard params, grads, states over data
  shard params, grads, states over context
}
recipe pipe_4 from heads_2 { mesh pipe = 2, context = 2   stages over pipe by cost   recompute Local, Cross }
recipe padded_3 from one { mesh tensor = 3   pad kv to 3   pad vocab to 33   split kv, ffn, vocab over tensor }
recipe pipe_2 from one { mesh pipe = 2   stages over pipe by cost }
recipe all_8 from one {
  mesh pipe = 2, data = 2, tensor = 2
  split batch over data
  split kv, ffn, vocab over tensor else seq
  stages over pipe by cost
  micro 4
  shard params, grads, states over data
}
END

n=0
for recipe in $(awk '$1 == "recipe" { print $2 }' recipes.zug); do
  ranks=$(echo "$recipe" | sed -n 's/.*_\([0-9]\)$/\1/p')
  ok timeout -k 5 100 $(on "${ranks:-1}") zrun train attend.zsg --recipe "recipes.zug:$recipe" --data records.bin \
    --steps 5 --log "$recipe"
  "$ZUG_BUILD/tests/scenarios/tools/compare_runs" --loss 1e-5 --norm 1e-5 "$recipe/metrics.jsonl" one/metrics.jsonl >diff.txt ||
    { cat diff.txt; fail "$recipe trains differently"; }
  printf '%-10s %s ranks  %s\n' "$recipe" "${ranks:-1}" "$(tail -n 1 diff.txt)"
  n=$((n + 1))
done
[ $n -ge 24 ] || fail "only $n layouts were run"

# Positions of two lengths: a causal mask over two sequences is refused where the recipe makes them differ.
sed 's/mask = none, bias/mask = causal, bias/' "$ZUG_SRC/tests/data/models/attend.zug" >causal.zug
ok zc causal.zug -o causal.zsg
refuses 'Z0309' zplan show causal.zsg --recipe recipes.zug:one
says '`seq` has 8 and `past` 5'
