# Adapters against peft (tests/data/hf/peft, made by make_peft.py): what is written with an adapter, matrices with theirs added, the files that
# go out again, and the losses of training one. By day a few families, by night all.
#
# Tolerances: log-probabilities as generate_hf.sh has them, 1e-5. Sums over a merged matrix of up to 20,000 elements of size 1: 2e-4, 1e-5 of what one
# wrong scale or one wrong row makes. Losses of 20 steps of AdamW, which amplify what differs in the last bit: 1e-4.
. "$ZUG_SRC/tests/scenarios/lib.sh"
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

# ---- several at once ----
command -v python3 >/dev/null || exit 77
: >server.txt
zrun serve "$hf/llama" --port 0 --precision f32 --adapter all="$peft/llama" --adapter "$peft/llama_stable/" 2>server.txt &
pid=$!
trap 'kill -9 $pid 2>/dev/null' EXIT
for i in $(seq 200); do
  port=$(sed -n 's,.* at http://[^ ]*:\([0-9]*\);.*,\1,p' server.txt)
  [ -n "$port" ] && break
  kill -0 $pid 2>/dev/null || break
  sleep 0.05
done
if grep -q 'has no HTTP server' server.txt; then
  echo "no libmicrohttpd here: nothing is served"
else
  [ -n "$port" ] || { cat server.txt; fail 'the server does not begin'; }
  ok timeout -k 5 60 python3 "$ZUG_SRC/tests/scenarios/tools/choose.py" "$port" "$hf/llama/greedy" "$peft/llama/greedy" "$peft/llama_stable/greedy"
  cat out.txt
  kill -TERM $pid
  wait $pid || fail 'the server ends with a code'
fi
mistake 'two of that name' zrun serve "$hf/llama" --adapter a="$peft/llama" --adapter a="$peft/llama_stable"
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
bad 'lora_A.weight. has shape 3 x|lora_A.weight. has shape' r 8
refuses 'no tensor of weights hf is .query.weight' zc "$ZUG_SRC/examples/llama3.zug" --lora query -o g.zsg
refuses 'is not a matrix' zc "$ZUG_SRC/examples/llama3.zug" --lora embed_tokens -o g.zsg
exit 0
