# All ways in which names can map, read in every layout: transposed, merged, side by side per head or as columns, one
# tensor for two parameters, and one parameter in a tensor for each index of an axis. What an export writes where, element by element,
# is a unit test's (tests/unit/exec/hub.c); here all layouts must find the same there.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi

cat >parts.zug <<'END'
model Parts(width = 8, heads = 4, experts = 6, words = 11) {
  axis batch, embed = width, head = heads, hd = 3, expert = experts, ffn = 5, vocab = words
  block Layer(x: real[.., embed]) -> real[.., embed] {
    param wq[embed, head, hd], wk[embed, head, hd], wv[embed, head, hd], w[embed, expert, ffn] ~ normal(1)
    q = dot[embed](x, wq) * dot[embed](x, wk) * dot[embed](x, wv)
    h = x + sum[head, hd](q)
    return h + sum[expert, ffn](dot[embed](h, w))
  }
  input x: real[batch, embed]
  input y: index(vocab)[batch]
  param table[vocab, embed], first[embed], second[embed] ~ normal(1)
  h = x * first + second
  repeat 2 as layer { h = Layer(h) }
  loss xent[vocab](dot[embed](h, table), y) per known(y)
}
weights heads for Parts {      # as GPT-NeoX has them, and an expert each in a tensor
  table = "table"[embed, 1, vocab]
  (first, second) = "both"[embed + embed]
  layer.{i}.(wq, wk, wv) = "h.{i}.qkv"[head 3 hd, embed]
  layer.{i}.w[expert = {e}] = "h.{i}.experts.{e}.w"[ffn, embed]
}
weights columns for Parts {    # as GPT-2 has them
  table = "table"[vocab, embed]
  (first, second) = "both"[2 embed]
  layer.{i}.(wv, wk, wq) = "h.{i}.qkv"[embed, 3 (head hd)]
  layer.{i}.w[embed = {e}] = "h.{i}.rows.{e}"[ffn expert]
}
END
cat >recipes.zug <<'END'
recipe one_1 {
  bind batch = 4
  optimizer sgd(lr = 0.01)
}
recipe heads_2 from one_1 { mesh tensor = 2   split head, expert over tensor   pad vocab to 4 }
recipe experts_3 from one_1 { mesh tensor = 3   split expert over tensor }
recipe grid_4 from one_1 {
  mesh data = 2, tensor = 2
  split batch over data
  split head, expert, vocab over tensor
  pad vocab to 4
  shard params, grads, states over data unit layer
}
recipe half_4 from grid_4 { precision compute bf16 }
recipe zero_3 from one_1 {
  bind batch = 6
  mesh data = 3
  split batch over data
  shard params, grads, states over data
}
recipe pipe_2 from one_1 { mesh pipe = 2   stages over pipe by cost }
END
zrun_of() { # RECIPE OPTION...: the number of ranks ends its name
  recipe=$1
  shift
  echo timeout -k 5 60 $(on "${recipe#*_}") zrun train parts.zsg --recipe "recipes.zug:$recipe" --steps 0 "$@"
}
ok zc parts.zug -o parts.zsg
ok $(zrun_of one_1 --save own.safetensors)
for names in heads columns; do
  ok zckpt export own.safetensors --graph parts.zsg --names $names -o $names --shard-size 300
  says "^note: there is no config.json: the names \`$names\` say nothing of it$"
  for recipe in one_1 heads_2 experts_3 grid_4 half_4 zero_3 pipe_2; do
    ok $(zrun_of $recipe --init $names --names $names --save read.safetensors)
    cmp read.safetensors own.safetensors || fail "$names in $recipe"
  done
done
cmp -s heads/model-00001-of-00015.safetensors columns/model-00001-of-00012.safetensors && fail "both are the same"

# ---- types ----
for type in f32:F32 bf16:BF16 f16:F16; do
  ok zckpt export own.safetensors --graph parts.zsg --names heads -o "as_${type%:*}" --dtype "${type%:*}"
  [ "$(grep -ao '"dtype":"[A-Z0-9]*"' "as_${type%:*}/model.safetensors" | sort -u)" = "\"dtype\":\"${type#*:}\"" ] ||
    fail "--dtype ${type%:*} writes another"
done
refuses 'as_f16 is there already' zckpt export own.safetensors --graph parts.zsg --names heads -o as_f16
says 'give another -o, or --force'
ok zckpt export own.safetensors --graph parts.zsg --names heads -o as_f16 --force
cmp as_f16/model.safetensors as_f32/model.safetensors || fail "--force does not replace"

# ---- a folder of somebody else's, whatever its name ----
mkdir again.export.tmp && echo mine >again.export.tmp/model.safetensors
ok zckpt export own.safetensors --graph parts.zsg --names heads -o again
grep -qx mine again.export.tmp/model.safetensors || fail "a file of others is gone"

# ---- some parts of a parameter, and not all: wrong even where a whole one may be missing ----
ok zckpt export own.safetensors --graph parts.zsg --names heads -o whole
LC_ALL=C sed -i 's/h.1.experts.3.w/h.1.experts.9.w/' whole/model.safetensors
refuses "whole has 'h.1.experts.5.w' and lacks 'h.1.experts.3.w'; both are of parameter 'layer.1.w'" \
  $(zrun_of grid_4 --init whole --names heads --init-partial)
# ---- a whole one: drawn, the same in every layout ----
LC_ALL=C sed -i 's/h.1.experts.9.w/h.1.experts.3.w/; s/"h.0.qkv"/"x.0.qkv"/' whole/model.safetensors
for recipe in one_1 grid_4; do
  ok $(zrun_of $recipe --init whole --names heads --init-partial --seed 7 --save $recipe.safetensors)
  says '^parameters: 8 from whole, 3 drawn from the seed: layer.0.wq, layer.0.wk, layer.0.wv$'
  says "^note: whole holds 1 tensor that model Parts has not; the first is 'x.0.qkv'$"
done
cmp one_1.safetensors grid_4.safetensors || fail "drawn otherwise"
cmp -s one_1.safetensors own.safetensors && fail "nothing is drawn"
exit 0
