# --init-partial: some parameters from a file, the others from the seed, the same in every layout; and what is said
# of files that have too little or too much.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi

cat >recipes.zug <<'END2'
recipe one {
  bind batch = 8, seq = 16
  micro 2
  optimizer adamw(lr = 0.01)
}
recipe zero3_2 from one { mesh data = 2   split batch over data   shard params, grads, states over data unit layer }
recipe all_4 from one {
  mesh pipe = 2, tensor = 2
  split head, ffn, vocab over tensor else seq
  stages over pipe by cost
}
recipe half_2 from zero3_2 { precision compute bf16 }
END2
ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin
# Initial values that do not depend on the number of layers.
sed 's| / sqrt(2 \* layers)||' "$ZUG_SRC/examples/gpt2.zug" >gpt2.zug
grep -q 'sqrt(2 \* layers)' gpt2.zug && fail "this test's own tool is broken"
model() { ok zc gpt2.zug -o "$1.zsg" -D layers="$2" -D heads=2 -D width="${3:-16}" -D context=16 -D words=128; }
model two 2
model three 3
model wide 2 32
zrun_of() { # MODEL RECIPE OPTION...; the number of ranks ends its name
  graph=$1 name=$2
  shift 2
  ranks=$(echo "$name" | sed -n 's/.*_\([0-9]\)$/\1/p')
  echo timeout -k 5 60 $(on "${ranks:-1}") zrun train "$graph.zsg" --recipe "recipes.zug:$name" --data text.bin "$@"
}
train() { ok $(zrun_of "$@"); }
wrong() { # PATTERN MODEL OPTION...: on two ranks, said once
  pattern=$1 graph=$2
  shift 2
  mistake "$pattern" $(zrun_of "$graph" zero3_2 --steps 1 "$@")
  [ "$(grep -Ec -- "$pattern" out.txt)" -eq 1 ] || { cat out.txt; fail "not said once"; }
}
same() { cmp "$1.safetensors" "$2.safetensors" || fail "$1 and $2 differ"; }

train two one --steps 0 --save two.safetensors
train two one --steps 0 --seed 2 --save two_seed.safetensors
train three one --steps 0 --seed 2 --save three_seed.safetensors

# ---- a third layer is drawn as if all were: with the same seed nothing shows where a value came from ----
for recipe in one zero3_2 all_4 half_2; do
  train three $recipe --steps 0 --seed 2 --init two_seed.safetensors --init-partial --save $recipe.safetensors
  says '^parameters: 36 from two_seed.safetensors, 16 drawn from the seed: layer.2.ln1.g, layer.2.ln1.b, layer.2.attn.wq, .*, \.\.\.$'
  same $recipe three_seed
  train three $recipe --steps 0 --seed 2 --init two.safetensors --init-partial --save mixed_$recipe.safetensors
  same mixed_$recipe mixed_one
done
cmp -s mixed_one.safetensors three_seed.safetensors && fail "nothing is read"
# ---- and back: what the file has beside is left out ----
train two zero3_2 --steps 0 --seed 3 --init mixed_one.safetensors --init-partial --save back.safetensors
says '^parameters: 36 from mixed_one.safetensors, 0 drawn from the seed$'
says "^note: mixed_one.safetensors holds 16 tensors that model GPT2 has not; the first is 'layer.2.attn.bk'$"
same back two
train three zero3_2 --steps 2 --init two.safetensors --init-partial
train two zero3_2 --steps 2 --init two.safetensors --init-partial
says '^parameters: 36 from two.safetensors, 0 drawn from the seed$'

# ---- what is refused ----
wrong "two.safetensors lacks 'layer.2.ln1.g' and 15 more of the 52 parameters of model GPT2; --init-partial draws" \
  three --init two.safetensors
wrong "three_seed.safetensors holds 16 tensors that model GPT2 has not; the first is 'layer.2.attn.bk'; --init-partial leaves" \
  two --init three_seed.safetensors
wrong "two.safetensors: tensor 'wte' has shape \[128, 16\]; the model wants \[128, 32\]" wide --init two.safetensors --init-partial
sed 's/\bwpe\b/wpeq/; s/(wpe,/(wpeq,/' gpt2.zug >renamed.zug # in the map, too
ok zc renamed.zug -o renamed.zsg -D layers=2 -D heads=2 -D width=16 -D context=16 -D words=128
wrong "two.safetensors lacks 'wpeq' of the 36 parameters of model GPT2; the nearest names in it are 'wpe'; --init-partial draws" \
  renamed --init two.safetensors
head='{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
{ printf "\\$(printf %o ${#head})\\0\\0\\0\\0\\0\\0\\0%s\\0\\0\\0\\0" "$head"; } >other.safetensors
wrong "other.safetensors has none of the 36 parameters of model GPT2; its first tensor is 'x'; is it the file of another" \
  two --init other.safetensors --init-partial
wrong 'zrun train needs --init FILE, which --init-partial completes' two --init-partial
exit 0
