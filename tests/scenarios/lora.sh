# Adapters (zc --lora): a base is trained and saved; the model with adapters begins with it, computes what it
# computes, and trains the adapters alone, the same in every layout.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi
compare=$ZUG_BUILD/tests/scenarios/tools/compare_runs

ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin
small="-D layers=4 -D heads=4 -D width=32 -D context=32 -D words=127"
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg $small
ok zc "$ZUG_SRC/examples/gpt2.zug" -o lora.zsg $small --lora c_attn --rank 4 --alpha 8
sed 's/ kv,//' "$ZUG_SRC/tests/data/models/layouts.zug" | sed '/^recipe gqa/,$d' >base.zug
sed 's/recipe base {/recipe base {\n  freeze all except lora/; s/adamw([^)]*)\(.*\)/adamw(lr = 3e-3, warmup = 2) rate 4 for lora_b/' base.zug >lora.zug
grep -q 'rate 4 for lora_b' lora.zug || fail 'no recipe'
train() { # GRAPH RECIPES RECIPE OPTION...
  graph=$1 file=$2 recipe=$3
  shift 3
  ranks=$(echo "$recipe" | sed -n 's/.*[^0-9]\([0-9]\)$/\1/p')
  ok timeout -k 5 100 $(on "${ranks:-1}") zrun train $graph --recipe "$file:$recipe" --data text.bin "$@"
}
first_loss() { sed -n '1s/.*"loss":\([^,]*\),.*/\1/p' "$1/metrics.jsonl"; }

# ---- a base, and what begins with it ----
train gpt2.zsg base.zug zero3_2 --steps 6 --save base.safetensors
sed 's/adamw([^)]*)/sgd(lr = 0)/' base.zug >still.zug
train gpt2.zsg still.zug one --steps 12 --init base.safetensors --log plain
refuses "base.safetensors lacks 'layer.0.attn.wq.lora_a' and 15 more" zrun train lora.zsg --recipe lora.zug:one \
  --data text.bin --steps 1 --init base.safetensors
says '--init-partial draws from the seed what is not there'
train lora.zsg lora.zug one --steps 12 --init base.safetensors --init-partial --log one --save one.safetensors
[ "$(first_loss one)" = "$(first_loss plain)" ] || fail "a first loss of $(first_loss one), the base's is $(first_loss plain)"
# over the same samples the base's loss is higher
last_losses() { tail -n 6 "$1/metrics.jsonl" | sed 's/.*"loss":\([^,]*\),.*/\1/' | awk '{ s += $1 } END { print s / NR }'; }
awk -v a="$(last_losses plain)" -v b="$(last_losses one)" 'BEGIN { exit !(b < a - 0.002) }' ||
  fail "losses of $(last_losses one), the base's are $(last_losses plain)"

# ---- the same in every layout: losses and norms as tests/scenarios/layouts.sh has them ----
for recipe in pipe_zero3_4 $(at_night && echo data2 zero1_2 zero2_2 zero3_2 keep_4 tensor2 seq2 pipe2 all_zero3_8); do
  train lora.zsg lora.zug $recipe --steps 12 --init base.safetensors --init-partial --log $recipe
  $compare --loss 1e-5 --norm 1e-5 $recipe/metrics.jsonl one/metrics.jsonl >diff.txt || { cat diff.txt; fail "$recipe trains differently"; }
done

# ---- the base is as it was, and the file has both ----
python3 - <<'END' || fail 'the base changed'
import json, struct
def read(path):
    text = open(path, "rb").read()
    n = struct.unpack("<Q", text[:8])[0]
    head = json.loads(text[8 : 8 + n])
    return {k: text[8 + n + v["data_offsets"][0] : 8 + n + v["data_offsets"][1]] for k, v in head.items() if k != "__metadata__"}
base, now = read("base.safetensors"), read("one.safetensors")
assert all(now[k] == base[k] for k in base)
assert sorted(k for k in now if k not in base) == sorted(f"layer.{i}.attn.{m}" for i in range(4) for m in ("wq.lora_a", "wq.lora_b", "wk.lora_b", "wv.lora_b"))
END
exit 0
