# zrun train --sample-every: a model writes while it trains what `zrun generate` writes of its checkpoint of that step, on one rank and on many; into
# the log, too; training is the same to the last bit; a run that goes on writes the same; what cannot be sampled is refused before the first step.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi
read="$ZUG_BUILD/tests/scenarios/tools/read_events"

cat >r.zug <<'END'
recipe one { bind batch = 8, seq = 32   optimizer adamw(lr = 1e-2, b2 = 0.95)   clip 1.0 }
recipe all from one {   # parameters of ZeRO-3 are gathered layer by layer
  mesh pipe = 2, data = 2, tensor = 2   split batch over data   split head, ffn, vocab over tensor else seq   stages over pipe by cost
  micro 2   shard params, grads, states over data unit layer
}
recipe shared from one {   # of ZeRO-1 they are whole only within a step; positions are split, which steps of generation leave whole
  mesh data = 2, context = 2   split batch over data   split seq over context   shard states over data
}
recipe zero from one { mesh data = 2   split batch over data   shard params, grads, states over data unit layer }
recipe tensor from one { mesh tensor = 2   split head, ffn, vocab over tensor }
END
for i in $(seq 100); do printf 'the cat sat on the mat. a dog ran. '; done >text
ok zdata pack text -o text.bin
ok zc "$ZUG_SRC/examples/gpt2.zug" -o cat.zsg -q -D layers=2 -D heads=2 -D width=32 -D context=64 -D words=256
how="--temperature 0.3 --seed 5" # so that texts show what logits are
tokens=20
ask="--prompt the_cat --prompt a --temperature 0.3 --max-tokens $tokens"

train() { # RANKS RECIPE NAME OPTION...: leaves NAME.safetensors
  n=$1 recipe=$2 name=$3
  shift 3
  ok timeout -k 5 200 $(on "$n") ${emulated:-zrun} train cat.zsg --recipe r.zug:"$recipe" --data text.bin --steps 4 --save "$name.safetensors" --seed 5 ${emulated:+--device cuda} "$@"
}
# texts LOG STEP: what was written after a step, a line a text
texts() { python3 -c 'import json, sys
for x in map(json.loads, open(sys.argv[1] + "/metrics.jsonl")):
    if "sample" in x and x["step"] == int(sys.argv[2]): print(json.dumps(x["prompt"] + x["text"]))' "$1" "$2"; }
# generated CHECKPOINT: what zrun generate writes of it, alike
generated() {
  printf '{"prompt": "the_cat", "max_tokens": %d}\n{"prompt": "a", "max_tokens": %d}\n' $tokens $tokens >in.jsonl
  rm -f out.jsonl
  ok timeout -k 5 60 zrun generate cat.zsg --init "$1" --prompts in.jsonl -o out.jsonl --quiet $how
  paste -d '\n' in.jsonl out.jsonl | python3 -c 'import json, sys
for p in sys.stdin: print(json.dumps(json.loads(p)["prompt"] + json.loads(next(sys.stdin))["text"]))'
}
# same RANKS RECIPE: weights are those of a run that writes nothing (many ranks': at night), texts those of its checkpoints
same() {
  rm -rf log ck
  train "$1" "$2" with --sample-every 2 $ask --log log --ckpt ck --ckpt-every 2
  cp out.txt trained.txt
  [ "$(grep -c '^sample [24]/4  prompt [12]  [0-9]* tokens$' trained.txt)" = 4 ] || { cat trained.txt; fail "$2: not the samples of steps 2 and 4"; }
  texts log 4 >got.txt
  generated ck/step-00000004 >want.txt
  [ "$(wc -l <want.txt)" = 2 ] || fail "this test's own tool is broken"
  cmp want.txt got.txt || { cat want.txt got.txt; fail "$2: a sample is not what zrun generate writes of the checkpoint"; }
  if [ "$1" -eq 1 ] || at_night; then
    train "$1" "$2" without --quiet
    cmp without.safetensors with.safetensors || fail "$2: sampling changes training"
  fi
  mv trained.txt out.txt
}

same 1 one
says '^samples: 2 prompts after every 2 steps$'
says '^stage 0: a sample takes [0-9.]+ [kM]B of the arena beside parameters'
says '^  \| the_cat'
cp -r log first
ok $read log/events.out.tfevents.*
says '^4 sample/2 text'
says '^the_cat'
ok zlog tail log --once -n 3
says '^sample 4/4  prompt 1  the_cat'
ok zlog compare log log

# ---- a run that goes on ----
rm -r ck/step-00000004
train 1 one again --sample-every 2 $ask --log log --ckpt ck --ckpt-every 2 --resume
for step in 2 4; do # the first stays
  texts first $step >want.txt
  texts log $step | cmp want.txt - || fail "a run that went on has written something else after step $step"
done

# ---- many ranks ----
same 8 all
says '^stage 1: a sample takes'
if at_night; then same 4 shared; fi

# ---- on GPUs that are threads ----
if at_night && [ -x "$ZUG_BUILD/tests/scenarios/cuda/zrun-emu" ]; then
  emulated=$ZUG_BUILD/tests/scenarios/cuda/zrun-emu
  same 1 one
  same 2 zero
  same 2 tensor
  emulated=
fi

# ---- what is wrong ----
t="zrun train cat.zsg --recipe r.zug:one --data text.bin --steps 2"
mistake 'sample-every' $t --sample-every 0 --prompt a
mistake 'zrun train needs --prompt TEXT' $t --sample-every 1
mistake 'zrun train needs --sample-every N' $t --prompt a
mistake 'zrun train needs --sample-every N' $t --max-tokens 3
mistake '--prompt: ' $t --sample-every 1 --prompt "$(printf '%040d' 0)"
ok zc "$ZUG_SRC/examples/vit.zug" -o vit.zsg -q -D layers=1 -D heads=2 -D width=16
mistake 'error: --sample-every: ' zrun train vit.zsg --recipe r.zug:one --data text.bin --steps 2 --sample-every 1 --prompt a

# ---- other models: experts, states, windows, and parameters that only training reads, which a checkpoint has and generation passes over ----
sizes() { awk '/"sizes"/ { on = 1; next } on && /}/ { exit } on { gsub(/[",: ]+/, " "); printf "-D %s=%s ", $1, $1 == "words" ? 256 : $2 }' "$ZUG_SRC/tests/data/reference/$1.json"; }
model() { # NAME BIND SPLIT
  cat >r.zug <<END
recipe one { bind batch = 8, seq = 16$2   pad vocab to 4   optimizer adamw(lr = 1e-2, b2 = 0.95) }
recipe all from one {
  mesh pipe = 2, data = 2, tensor = 2   split batch over data   split $3   stages over pipe by cost
  micro 2   shard params, grads, states over data
}
END
  # shellcheck disable=SC2046 # words are wanted
  ok zc "$ZUG_SRC/examples/$1.zug" -o cat.zsg -q $(sizes "$1")
  same 1 one
  if at_night; then same 8 all; fi
}
tokens=8
ask="--prompt the_cat --prompt a --temperature 0.3 --max-tokens $tokens"
model deepseek ", slot = 0.8" "head, ffn, sffn, vocab over tensor"
if at_night; then
  model mixtral ", slot = 0.8" "kv, ffn, vocab over tensor else seq"
  model mamba2 "" "head, vocab over tensor else seq"
  model deltanet "" "head, ffn, vocab over tensor else seq"
  model gemma3 "" "kv, ffn, vocab over tensor else seq"
fi
