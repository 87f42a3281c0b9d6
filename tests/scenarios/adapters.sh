# Adapters against peft (tests/data/hf/peft, made by make_peft.py): what is written with an adapter, matrices with theirs added, the files that
# go out again, and the losses of training one. By day a few families, by night all.
#
# Tolerances: log-probabilities as generate_hf.sh has them, 1e-5. Sums over a merged matrix of up to 20,000 elements of size 1: 2e-4, 1e-5 of what one
# wrong scale or one wrong row makes. Losses of 20 steps of AdamW, which amplify what differs in the last bit: 1e-4.
. "$ZUG_SRC/tests/scenarios/lib.sh"
. "$ZUG_SRC/tests/scenarios/lib_serve.sh"
need_mpi
. "$ZUG_SRC/tests/scenarios/generate_lib.sh"
peft=$hf/peft

write() {
  rm -f out.jsonl
  ok timeout -k 5 60 zrun generate "$@" --prompts in.jsonl -o out.jsonl --precision f32 --quiet
}
cat >train.zug <<'END'
recipe still { bind batch = 2, seq = 16  optimizer sgd(lr = 0) }
recipe steps { bind batch = 2, seq = 16  freeze all except lora  optimizer adamw(lr = 1e-2, b1 = 0.9, b2 = 0.95, eps = 1e-8) }
END

# merges CASE MODEL: the base with the adapter goes through training's files; out come the folder that peft merges, and the adapter's own bytes.
merges() {
  case=$1 base=$hf/$(cat "$peft/$1/base")
  ok zc "$ZUG_SRC/examples/$2.zug" --config "$base" --adapter "$peft/$case" -q -o g.zsg
  ok zrun train g.zsg --recipe train.zug:still --steps 0 --init "$base" --names hf --adapter "$peft/$case" --save own.safetensors
  ok zckpt export own.safetensors --graph g.zsg --names hf -o merged --like "$base" --merge --force
  ok zckpt export own.safetensors --graph g.zsg --names hf -o apart --dtype bf16 --force
  python3 "$ZUG_SRC/tests/scenarios/tools/adapters.py" "$base" "$peft/$case" merged apart || fail "$case: merged or exported otherwise than by peft"
}

for case in gpt2 llama llama_patterns llama_stable $(at_night && ls "$peft" | grep -v 'steps\|^gpt2$\|^llama'); do
  family "peft/$case" "$hf/$(cat "$peft/$case/base")" --adapter "$peft/$case"
done
merges gpt2 gpt2
merges llama_patterns llama3
if at_night; then
  for case in deepseek phi3 neox mamba2 glm4 gemma3; do merges $case $case; done
fi

# ---- training ----
ok zc "$ZUG_SRC/examples/llama3.zug" --config "$hf/llama" --adapter "$peft/steps" -q -o steps.zsg
ok zdata records "$hf/llama/records.i32" -o records.bin --field tokens:i32:16 --field targets:i32:16
ok zrun train steps.zsg --recipe train.zug:steps --data records.bin --order sequential --steps 20 --init "$hf/llama" --names hf \
  --adapter "$peft/steps" --log log
sed 's/.*"loss":\([^,]*\),.*/\1/' log/metrics.jsonl | paste - "$peft/steps/losses" |
  awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > most) most = d } END { printf "20 losses, at most %.1e apart\n", most; exit NR != 20 || most > 1e-4 }' ||
  fail 'training adapters gives other losses than by torch'

# ---- every family, also where peft has none: experts of a tensor each. What was trained apart is what it is merged ----
trained() { # MODEL FOLDER
  base=$hf/$2
  echo '{"tokens": [5,77,123,9,250,31,44,8], "max_tokens": 16, "ignore_eos": true, "echo": true, "logprobs": 0}' >in.jsonl
  ok zc "$ZUG_SRC/examples/$1.zug" --config "$base" --lora all-linear --rank 3 -q -o g.zsg
  ok zrun train g.zsg --recipe train.zug:steps --data records.bin --steps 4 --init "$base" --names hf --init-partial --save own.safetensors
  ok zckpt export own.safetensors --graph g.zsg --names hf -o apart --like "$base" --force
  ok zckpt export own.safetensors --graph g.zsg --names hf -o merged --like "$base" --merge --force
  for what in base apart merged; do
    case $what in base) write "$base" ;; apart) write "$base" --adapter apart ;; merged) write merged ;; esac
    logs >$what.logs
  done
  paste apart.logs merged.logs base.logs | awk -v family="$1" '{ d = $1 - $2; if (d < 0) d = -d; if (d > most) most = d; e = $1 - $3; if (e < 0) e = -e; if (e > far) far = e }
    END { printf "%s: merged and apart %.1e, from the base %.1e\n", family, most, far; exit NR != 23 || most > 1e-5 || far < 0.05 }' ||
    fail "$1: merged adapters write something else, or adapters count for nothing"
}
if at_night; then
  for case in gpt2:gpt2 llama3:llama qwen2:qwen2 qwen3:qwen3 gemma2:gemma2; do trained ${case%:*} ${case#*:}; done
  for case in mixtral qwen3moe deepseek gptoss mamba2 phi3 gemma3 mistral olmo2 granite glm4 smollm3 starcoder2 neox falcon opt phi cohere; do
    trained $case small/$case
  done
  trained falcon small/falcon40
fi

# ---- several at once ----
command -v python3 >/dev/null || exit 77
if ! serving zrun serve "$hf/llama" --precision f32 --adapter all="$peft/llama" --adapter "$peft/llama_stable/"; then
  echo "no libmicrohttpd here: nothing is served"
else
  ok timeout -k 5 60 python3 "$ZUG_SRC/tests/scenarios/tools/choose.py" "$port" "$hf/llama/greedy" "$peft/llama/greedy" "$peft/llama_stable/greedy"
  cat out.txt
  kill -TERM $pid
  wait $pid || fail 'the server ends with a code'
fi
mistake 'two of that name' zrun serve "$hf/llama" --adapter a="$peft/llama" --adapter a="$peft/llama_stable"
mistake 'the model without it is called so' zrun serve "$hf/llama" --adapter "$peft/llama" --adapter b="$peft/llama_stable"
mistake 'several --adapter are for serve' zrun generate "$hf/llama" --adapter a="$peft/llama" --adapter b="$peft/llama_stable" --prompt x

# ---- what has no place ----
bad() { # PATTERN KEY VALUE
  mkdir -p bad
  sed "s/\"$2\": [^,]*,\{0,1\}\$/\"$2\": $3,/" "$peft/llama_stable/adapter_config.json" >bad/adapter_config.json
  cp "$peft/llama_stable/adapter_model.safetensors" bad
  mistake "$1" zrun generate "$hf/llama" --adapter bad --prompt x
}
bad 'use_dora.*is true: that is not done' use_dora true
bad 'modules_to_save.*lm_head' modules_to_save '["lm_head"]'
bad 'peft_type.*IA3' peft_type '"IA3"'
bad 'bias.*"all"' bias '"all"'
bad 'layers_to_transform.*is .0.' layers_to_transform '[0]'
bad 'init_lora_weights.*pissa' init_lora_weights '"pissa"'
bad 'rank_pattern.*of one layer' rank_pattern '{"layers.0.self_attn.q_proj": 2}'
bad 'lora_A.weight. has shape 3 x|lora_A.weight. has shape' r 8
# ---- dropout: in training alone, by the seed ----
cp -r "$peft/llama_stable" dropped && sed -i 's/"lora_dropout": 0.1/"lora_dropout": 0.5/' dropped/adapter_config.json
ok zc "$ZUG_SRC/examples/llama3.zug" --config "$hf/llama" --adapter dropped -q -o dropped.zsg
from="--init $hf/llama --names hf --adapter dropped"
for seed in 1 2; do
  ok zrun train dropped.zsg --recipe train.zug:still --data records.bin --order sequential --steps 1 $from --seed $seed --log seed$seed
  first=$(sed 's/.*"loss":\([^,]*\),.*/\1/' seed$seed/metrics.jsonl)
  echo "$first" >>trained
done
ok zrun eval dropped.zsg --recipe train.zug:still --data records.bin $from
sed -n 's/^eval  loss \([0-9.]*\).*/\1/p' out.txt >evaluated
sed 's/"lora_dropout": 0.5/"lora_dropout": 0/' -i dropped/adapter_config.json
ok zc "$ZUG_SRC/examples/llama3.zug" --config "$hf/llama" --adapter dropped -q -o dropped.zsg
ok zrun eval dropped.zsg --recipe train.zug:still --data records.bin $from
sed -n 's/^eval  loss \([0-9.]*\).*/\1/p' out.txt >>evaluated
cat trained evaluated | tr '\n' ' ' | awk '{ print "losses with dropout", $1, $2, "evaluated", $3, $4
  exit !(NF == 4 && $1 != $2 && $3 - $4 < 1e-4 && $4 - $3 < 1e-4 && ($1 - $4) ^ 2 > 1e-6 && ($2 - $4) ^ 2 > 1e-6) }' || fail 'dropout'

refuses 'no tensor of weights hf is .query.weight' zc "$ZUG_SRC/examples/llama3.zug" --lora query -o g.zsg
refuses 'is not a matrix' zc "$ZUG_SRC/examples/llama3.zug" --lora embed_tokens -o g.zsg

# ---- more words than the base has: the mean of its rows, or another's, in every layout ----
cat >more.zug <<'END'
recipe one { bind batch = 2, seq = 16   optimizer sgd(lr = 0) }
recipe zero3_2 { bind batch = 2, seq = 16   mesh data = 2   split batch over data   shard params, grads, states over data   optimizer sgd(lr = 0) }
recipe tensor_2 { bind batch = 2, seq = 16   mesh tensor = 2   split vocab, ffn, kv over tensor   pad vocab to 304   optimizer sgd(lr = 0) }
END
ok zc "$ZUG_SRC/examples/llama3.zug" --config "$hf/llama" -D words=303 -q -o more.zsg
more="zrun train more.zsg --steps 0 --names hf --quiet"
refuses 'new-tokens mean lets' $more --recipe more.zug:one --init "$hf/llama"
cp -r "$hf/llama" words && cp "$ZUG_SRC/tests/data/text/gpt2/tokenizer.json" words
ok $more --recipe more.zug:one --init words --new-tokens 301=a --save more.safetensors
for recipe in $(at_night && echo zero3_2 tensor_2); do
  ok $(on 2) $more --recipe more.zug:$recipe --init words --new-tokens 301=a --save $recipe.safetensors
  cmp more.safetensors $recipe.safetensors || fail "$recipe begins new words otherwise"
done
ok zckpt export more.safetensors --graph more.zsg --names hf -o more --like "$hf/llama"
ok python3 "$ZUG_SRC/tests/scenarios/tools/more_words.py" words more 301 "$(sed -n 's/.*"a": *\([0-9]*\).*/\1/p' words/tokenizer.json | head -1)"
mistake 'word 5 is not among those from 300 to 302' $more --recipe more.zug:one --init words --new-tokens 5=1
mistake 'has no row 400' $more --recipe more.zug:one --init words --new-tokens 301=400
mistake 'has no token .no such' $more --recipe more.zug:one --init words --new-tokens 'no such=1'
exit 0
