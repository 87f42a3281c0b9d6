# Weights of 8 and 4 bits: a model generates with them, in the planned bytes, the same in every layout; adapters train on a
# frozen base that has them; what cannot be is refused with what would do.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi
compare=$ZUG_BUILD/tests/scenarios/tools/compare_runs

# ---- a model of bytes that has learned one text by heart ----
cat >r.zug <<'END'
recipe learn { bind batch = 8, seq = 32   optimizer adamw(lr = 5e-3, b2 = 0.95)   clip 1.0 }
recipe plain { bind batch = 6, seq = 64 }
recipe int8 { bind batch = 6, seq = 64   precision weights int8 group 32 }
recipe int4 from int8 { precision weights int4 group 32 }
recipe nf4 from int8 { precision weights nf4 group 32 }
recipe half from int4 { precision compute bf16 }
recipe mixed from int8 { precision weights none, weights int4 group 32 for layer, weights int8 group 64 for wte }
recipe train from int8 { optimizer adamw(lr = 1e-3) }
recipe int8_t2 from int8 { mesh tensor = 2   split head, ffn, vocab over tensor }
recipe int4_t2 from int4 { mesh tensor = 2   split head, ffn, vocab over tensor }
recipe half_t2 from half { mesh tensor = 2   split head, ffn, vocab over tensor }
recipe nf4_t2 from nf4 { mesh tensor = 2   split head, ffn, vocab over tensor }
recipe int4_p2 from int4 { mesh pipe = 2   stages over pipe by cost }
END
for i in $(seq 200); do printf 'the cat sat on the mat. '; done >text
ok zdata pack text -o text.bin
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg -q -D layers=2 -D heads=2 -D width=64 -D context=64 -D words=256
ok timeout -k 5 100 zrun train gpt2.zsg --recipe r.zug:learn --data text.bin --steps 100 --save w.safetensors --quiet

# ---- it writes what it has learned ----
gen() { # RANKS RECIPE OPTION...
  n=$1 recipe=$2
  shift 2
  timeout -k 5 60 $(on $n) zrun generate gpt2.zsg --init w.safetensors --recipe r.zug:$recipe --threads 1 --quiet "$@"
}
for recipe in plain int8 int4 nf4 half mixed; do
  got=$(gen 1 $recipe --prompt "the cat sat on" --max-tokens 13) || fail "code $? of $recipe"
  [ "$got" = " the mat. the" ] || fail "$recipe: '$got'"
done
got=$(timeout -k 5 60 zrun generate gpt2.zsg --init w.safetensors --weights int4 --group 32 --quiet --prompt "the cat sat on" \
  --max-tokens 13) || fail "code $? of --weights"
[ "$got" = " the mat. the" ] || fail "--weights int4: '$got'"

# ---- the same in every layout, and in any company ----
for i in $(seq 16); do
  echo "{\"prompt\": \"$(printf 'the cat sat on the mat. ' | head -c $((i % 20 + 1)))\", \"max_tokens\": $((i % 13 + 1)), \"logprobs\": 2}"
done >in.jsonl
for format in int4 $(at_night && echo int8 half nf4); do
  gen 1 $format --prompts in.jsonl -o $format.jsonl || fail "code $? of $format"
  gen 2 ${format}_t2 --prompts in.jsonl -o ${format}_t2.jsonl || fail "code $? of $format on two ranks"
  cmp $format.jsonl ${format}_t2.jsonl || fail "$format: other results on two ranks"
done
gen 1 int4 --sequences 1 --prompts in.jsonl -o apart.jsonl || fail "one after the other"
cmp int4.jsonl apart.jsonl || fail "company changes results"
if at_night; then
  gen 2 int4_p2 --prompts in.jsonl -o p2.jsonl || fail "stages"
  cmp int4.jsonl p2.jsonl || fail "other results in two stages"
fi

# ---- log-probabilities are those of the model, but for roundings ----
# The model has seen little else than this text: what it says of it moves a little in 8 bits, more in 4.
echo '{"prompt": "the cat sat on the mat. the cat", "max_tokens": 0, "echo": true, "logprobs": 0}' >echo.jsonl
for f in f32 int8 int4; do
  timeout -k 5 60 zrun generate gpt2.zsg --init w.safetensors $([ $f = f32 ] || echo --weights $f --group 32) --quiet --prompts echo.jsonl -o $f.echo ||
    fail "echo of $f"
done
python3 - <<'END' || fail 'log-probabilities'
import json
def mean(path):
    x = [t["logprob"] for t in json.load(open(path))["logprobs"][1:]]
    return sum(x) / len(x)
f32, int8, int4 = (mean(f + ".echo") for f in ("f32", "int8", "int4"))
print(f32, int8, int4)
assert abs(int8 - f32) < 0.01 and abs(int4 - f32) < 0.2 and int8 != f32 != int4
END

# ---- bytes are those of the formats: a scale of 16 bits for 32 weights ----
params() { timeout -k 5 60 zplan show gpt2.zsg --generate --recipe r.zug:$1 --json | sed -n 's/^\t*"params":\t\([0-9]*\).*/\1/p'; }
rest=$((2 * 832 * 4 + 128 * 4)) matrices=$((2 * 49152)) tables=$((256 * 64 + 64 * 64))
[ "$(params int8)" = $((rest + (matrices + tables) * 34 / 32)) ] || fail "int8 takes $(params int8) bytes"
[ "$(params int4)" = $((rest + matrices * 18 / 32 + tables * 34 / 32)) ] || fail "int4 takes $(params int4) bytes"

# ---- a layout that is found has them, and the recipe that is kept says so ----
ok timeout -k 5 60 zrun generate gpt2.zsg --init w.safetensors --weights int4 --group 32 --recipe-out found.zug --prompt "the cat" --max-tokens 1
grep -q 'weights int4 group 32' found.zug || { cat found.zug; fail "the recipe that was found has no weights in 4 bits"; }
[ "$(timeout -k 5 60 zrun generate gpt2.zsg --init w.safetensors --recipe found.zug:best --quiet --prompt "the cat sat on" --max-tokens 8)" = " the mat" ] ||
  fail "with the recipe that was found"

# ---- what cannot be ----
wrong() { # PATTERN PRECISION [MORE]
  echo "recipe r { bind batch = 4, seq = 32   precision $2   $3 }" >wrong.zug
  mistake "$1" zrun generate gpt2.zsg --init w.safetensors --recipe wrong.zug:r --prompt a
}
wrong 'groups of 128 do not divide the 64 elements of `embed`' 'weights int4 group 128'
says 'write `group 64`'
wrong 'groups of 64 do not divide the 32 elements on a rank' 'weights int4' 'mesh tensor = 2   split head, ffn, vocab over tensor'
says 'write `group 32`'
wrong 'a group must be 32, 64 or 128' 'weights int4 group 48'
wrong 'weights have no format `int5`' 'weights int5'
wrong 'nothing of this can be stored in int8' 'weights int8 for ln_f'
wrong 'given twice in one recipe' 'weights int8, weights int4'
wrong 'this and another precision both name' 'weights int8 group 32 for attn, weights int4 group 32 for layer'
wrong '`compute` has one precision, and no list' 'compute bf16 for layer'
wrong '`layer` follows no list of parameters' 'weights int4, layer'
wrong 'weights have no setting `size`' 'weights int4 size 64'
wrong '`compute` takes no settings' 'compute bf16 group 64'
mistake 'weights is of runs without a recipe' zrun generate gpt2.zsg --init w.safetensors --recipe r.zug:int8 --weights int8 --prompt a
mistake 'is trained, which needs more' zrun train gpt2.zsg --recipe r.zug:train --data text.bin --steps 1

# ---- adapters on a frozen base: they train as on the base unpacked, the same in every layout ----
cat >a.zug <<'END'
recipe plain { bind batch = 8, seq = 32   freeze all except lora   optimizer adamw(lr = 3e-3, warmup = 2) rate 4 for lora_b   clip 1.0 }
recipe nf4 from plain { precision weights nf4 group 32 }
recipe still from nf4 { optimizer sgd(lr = 0) }
recipe half from nf4 { precision compute bf16 }
recipe data from nf4 { mesh data = 2   split batch over data   shard grads, states over data }
recipe tensor from nf4 { mesh tensor = 2   split head, ffn, vocab over tensor else seq }
recipe pipe from nf4 { mesh pipe = 2   micro 2   stages over pipe by cost }
recipe int4 from nf4 { precision weights int4 group 32 for layer except lora }
recipe full from nf4 { mesh data = 2   split batch over data   shard params, grads, states over data }
recipe full_still from still { mesh data = 2   split batch over data   shard params, grads, states over data }
recipe full_int4 from int4 { mesh data = 2   split batch over data   shard params, grads, states over data }
END
ok zc "$ZUG_SRC/examples/lora.zug" -o lora.zsg -D layers=2 -D heads=2 -D width=64 -D context=64 -D words=256 -D rank=4 -D alpha=8
train() { # RANKS RECIPE OPTION...
  n=$1 recipe=$2
  shift 2
  ok timeout -k 5 100 $(on $n) zrun train lora.zsg --recipe a.zug:$recipe --steps 6 --quiet "$@"
}
ok zdata pack "$ZUG_SRC/LICENSE" -o licence.bin
base="--data licence.bin --init w.safetensors --init-partial"
train 1 nf4 $base --log nf4 --eval text.bin --eval-every 6
train 1 still $base --save unpacked.safetensors
train 1 plain --data licence.bin --init unpacked.safetensors --log plain
# Products of the same numbers, in another order where they are unpacked.
$compare --loss 1e-5 --norm 1e-4 nf4/metrics.jsonl plain/metrics.jsonl >diff.txt || { cat diff.txt; fail "a packed base trains otherwise than the base unpacked"; }
losses() { sed -n 's/.*"loss":\([^,]*\),.*/\1/p' $1/metrics.jsonl; }
for layout in tensor full $(at_night && echo data pipe); do
  train 2 $layout $base --log $layout
  $compare --loss 1e-5 --norm 1e-4 $layout/metrics.jsonl nf4/metrics.jsonl >diff.txt || { cat diff.txt; fail "$layout trains differently"; }
done
# Shards of packed bytes are gathered as they are: losses are those of whole parameters, and so is what is saved.
if at_night; then
  losses data >a
  losses full >b
  cmp a b || { cat a b; fail "a base that is sharded trains otherwise than a whole one"; }
fi
train 2 full_still $base --save sharded.safetensors
cmp unpacked.safetensors sharded.safetensors || fail "a base that is sharded is saved otherwise than a whole one"

# ---- a run that is resumed goes on with the same base ----
for recipe in 2:full_int4 $(at_night && echo 1:int4 2:full 1:nf4); do
  n=${recipe%:*} recipe=${recipe#*:}
  rm -rf kept whole resumed
  train $n $recipe $base --ckpt kept --ckpt-every 3 --log whole
  rm -rf kept/step-00000006
  train $n $recipe --data licence.bin --ckpt kept --resume --log resumed
  losses whole | tail -n 3 >a
  losses resumed | tail -n 3 >b
  cmp a b || { cat a b; fail "a run of $recipe that is resumed has other losses"; }
done
exit 0
