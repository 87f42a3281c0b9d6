# Fine-tuning of a chat model: 20 steps on conversations lose what transformers loses (tests/data/chat), with conversations in windows of their
# own, kept apart, and on two ranks; and 12 steps on preferences lose what torch does.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi
compare=$ZUG_BUILD/tests/scenarios/tools/compare_runs
chat=$ZUG_SRC/tests/data/chat

cat >r.zug <<'END'
recipe tune for Llama3 { bind batch = 8, seq = 64   optimizer adamw(lr = 1e-3, b1 = 0.9, b2 = 0.95, eps = 1e-6) }
recipe two for Llama3 from tune { mesh tensor = 2   split kv, ffn, vocab over tensor else seq }
END
ok zc "$ZUG_SRC/examples/llama3.zug" --config "$chat/model" -o chat.zsg
ok zc "$ZUG_SRC/examples/llama3.zug" --config "$chat/model" --apart -o apart.zsg
ok zdata pack --chat --tokenizer "$chat/model" "$chat/chats.jsonl" --windows each --seq 64 -o each.bin
says '^450 tokens .* are learned'
train() { # NAME GRAPH RECIPE: as transformers, to 1e-5 (f32; 2e-6 measured, and sums of two ranks are others)
  ok timeout -k 5 100 $(on "${4:-1}") zrun train "$2.zsg" --recipe "r.zug:$3" --data each.bin --order sequential --steps 20 \
    --init "$chat/model" --names hf --log "$1"
  ok "$compare" --loss 1e-5 --norm 1e-4 "$1/metrics.jsonl" "$chat/losses.jsonl"
}
train chat chat tune
if at_night; then
  train apart apart tune
  train two apart two 2
fi

# ---- preferences: the loss of TRL's DPOTrainer, of a policy that is the frozen reference with adapters ----
ok zc "$ZUG_SRC/examples/llamadpo.zug" --config "$chat/model" -D rank=4 -D alpha=8 -D beta=0.5 -o dpo.zsg
ok zdata pack --chat --tokenizer "$chat/model" --windows pairs "$chat/pairs.jsonl" --seq 32 -o pairs.bin
cat >dpo.zug <<'END'
recipe dpo for LlamaDpo { bind batch = 4, seq = 32   optimizer adamw(lr = 1e-2, b1 = 0.9, b2 = 0.95, eps = 1e-6)   freeze all except lora }
END
ok timeout -k 5 100 zrun train dpo.zsg --recipe dpo.zug:dpo --data pairs.bin --order sequential --steps 12 --init "$chat/dpo.safetensors" --log dpo \
  --save policy.safetensors
ok "$compare" --loss 2e-5 --norm 1e-4 dpo/metrics.jsonl "$chat/dpo.jsonl" # 3e-6 measured; the loss is a difference of four sums

# A map of the adapters alone: a file of theirs, which goes back beside a base that is drawn.
ok zckpt export policy.safetensors --graph dpo.zsg --names peft -o adapters
says '^adapters: the parameters .*as 8 tensors'
refuses "adapters lacks 'embed_in' and 20 more" zrun train dpo.zsg --recipe dpo.zug:dpo --data pairs.bin --steps 1 --init adapters --names peft
ok timeout -k 5 100 zrun train dpo.zsg --recipe dpo.zug:dpo --data pairs.bin --steps 1 --init adapters --names peft --init-partial
says '^parameters: 8 from adapters, 21 drawn'

# ---- shared windows hold less padding, and all conversations together have the loss that they have in windows of their own ----
ok zdata pack --chat --tokenizer "$chat/model" "$chat/chats.jsonl" --seq 64 -o fit.bin
says '^windows of 64: 26, 10.9 % padding$'
evals() { # DATA GRAPH
  printf 'recipe all for Llama3 { bind batch = 1, seq = 64   optimizer sgd(lr = 1) }\n' >all.zug
  ok timeout -k 5 100 zrun eval "$2.zsg" --recipe all.zug:all --data "$1" --init "$chat/model" --names hf
  sed -n 's/.*loss \([0-9.]*\).*[^0-9]\([0-9][0-9]*\) targets.*/\1 \2/p' out.txt
}
echo "$(evals each.bin chat) $(evals fit.bin apart)" | awk '{ exit !(NF == 4 && $2 == 450 && $4 == 450 && ($1 - $3) ^ 2 < 1e-10) }' ||
  fail "shared windows have another loss: $(evals each.bin chat), $(evals fit.bin apart)"

# What would mix documents, or cannot keep them apart, is refused.
refuses 'error.Z0707.: `linear_attend` along `seq` mixes documents' zc "$ZUG_SRC/examples/mamba2.zug" --apart -o no.zsg
refuses 'error.Z0707.: nothing of `T5` can keep documents apart' zc "$ZUG_SRC/examples/t5.zug" --apart -o no.zsg

# Learned positions, by a table or by numbers, begin again with each document.
positions="gpt2"
at_night && positions="gpt2 opt falcon"
for model in $positions; do
  ok zc "$ZUG_SRC/examples/$model.zug" --apart -o own.zsg -D layers=2 -D heads=2 -D width=16 -D words=300
  name=$(sed -n 's/^model \([A-Za-z0-9]*\).*/\1/p' "$ZUG_SRC/examples/$model.zug")
  printf 'recipe all for %s { bind batch = 1, seq = 64   optimizer sgd(lr = 1) }\n' "$name" >own.zug
  ok timeout -k 5 100 zrun train own.zsg --recipe own.zug:all --data fit.bin --steps 1 --save own.safetensors
  for data in each fit; do
    ok timeout -k 5 100 zrun eval own.zsg --recipe own.zug:all --data $data.bin --init own.safetensors
    sed -n 's/.*loss \([0-9.]*\).*[^0-9]\([0-9][0-9]*\) targets.*/\1 \2/p' out.txt >$data.txt
  done
  cat each.txt fit.txt | tr '\n' ' ' | awk '{ exit !(NF == 4 && $2 == 450 && $4 == 450 && ($1 - $3) ^ 2 < 1e-10) }' ||
    fail "$model: shared windows have another loss: $(cat each.txt fit.txt)"
done
exit 0
