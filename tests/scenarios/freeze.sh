# Frozen parameters: they stay as they are, bit for bit; all else trains the same in every layout; checkpoints, saved weights
# and evaluations have them. A head alone, trained on a frozen body, is what plain training with a rate of 0 for the body
# would give: its first step's loss and the gradient of the head are those of a run that freezes nothing.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi
compare=$ZUG_BUILD/tests/scenarios/tools/compare_runs

ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg -D layers=4 -D heads=4 -D width=32 -D context=32 -D words=127
sed 's/ kv,//' "$ZUG_SRC/tests/data/models/layouts.zug" | sed '/^recipe gqa/,$d' >all.zug
train() { # RECIPES RECIPE OPTION...
  file=$1 recipe=$2
  shift 2
  ranks=$(echo "$recipe" | sed -n 's/.*[^0-9]\([0-9]\)$/\1/p')
  ok timeout -k 5 100 $(on "${ranks:-1}") zrun train gpt2.zsg --recipe "$file:$recipe" --data text.bin "$@"
}
# values NAME FILE: checksums of tensors of a weights file, by name
values() {
  python3 - "$1" <<'END'
import hashlib, json, struct, sys
text = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", text[:8])[0]
for k, v in json.loads(text[8 : 8 + n]).items():
  if k != "__metadata__":
    a, b = v["data_offsets"]
    print(k, hashlib.md5(text[8 + n + a : 8 + n + b]).hexdigest())
END
}
# stays FREEZE PATTERN: exactly the parameters that match have other values after training.
stays() {
  values begun.safetensors >begun.txt
  values "$2" >now.txt
  diff begun.txt now.txt | sed -n 's/^> \([^ ]*\) .*/\1/p' | sort >changed.txt
  cut -d' ' -f1 begun.txt | grep -E "$1" | sort >wanted.txt
  cmp changed.txt wanted.txt || { diff changed.txt wanted.txt; fail "$2: other parameters changed than $1"; }
}

# ---- the same in every layout ----
n=0
layouts() { # TOLERANCE FREEZE PATTERN LAYOUT...
  tolerance=$1
  sed "s/recipe base {/recipe base {\n  freeze $2\n  $4/" all.zug >f.zug
  pattern=$3
  shift 4
  train f.zug one --steps 0 --save begun.safetensors
  for recipe in one "$@"; do
    train f.zug $recipe --steps 4 --log log_$recipe --save $recipe.safetensors
    $compare --loss "$tolerance" --norm "$tolerance" log_$recipe/metrics.jsonl log_one/metrics.jsonl >diff.txt ||
      { cat diff.txt; fail "$recipe trains differently"; }
    stays "$pattern" $recipe.safetensors
    [ $recipe = one ] || rm -r log_$recipe
    n=$((n + 1))
  done
  rm -r log_one
}
layouts 1e-5 'all except layer.attn' '\.attn\.' '' zero3_2 $(at_night && echo zero1_2 zero2_2 keep_4 seq2 pipe2 uneven3 pipe_zero2_4 all_zero3_8)
layouts 1e-5 'layer except norm' 'wte|wpe|ln' '' pipe_zero3_4 $(at_night && echo zero3_2 tensor2)
if at_night; then
  layouts 1e-5 'wte, wpe' 'layer|ln_f' '' zero2_2 gpipe2 all_zero1_8
  layouts 1e-5 'all except ln_f' 'ln_f' '' zero3_4 recompute2 all_zero3_8
fi
# in bf16 sums are rounded, in another layout at other places: 8 bits
layouts 1e-2 'all except layer.attn' '\.attn\.' 'precision compute bf16' zero3_2 $(at_night && echo zero1_2 all_zero3_8)
! at_night || [ $n -ge 25 ] || fail "only $n layouts were run"

# ---- the gradient that is left is that of training all ----
sed 's/recipe base {/recipe base {\n  freeze all except ln_f/' all.zug >head.zug
sed 's/  clip 1.0//' head.zug >f.zug
sed 's/  clip 1.0//; s/adamw([^)]*)/sgd(lr = 1)/; s/ decay.*//' all.zug >sgd.zug
sed 's/recipe base {/recipe base {\n  freeze all except ln_f/' sgd.zug >sgd_head.zug
train sgd.zug one --steps 1 --save all.safetensors
train sgd_head.zug one --steps 1 --save head.safetensors
for k in g b; do
  values all.safetensors | grep "^ln_f.$k " >x.txt
  values head.safetensors | grep "^ln_f.$k " | cmp - x.txt || fail "ln_f.$k: another step than when all is trained"
done

# ---- checkpoints: on in the same layout bit for bit, in others as near as layouts are ----
sed 's/recipe base {/recipe base {\n  freeze all except layer.attn\n  precision compute bf16/' all.zug >half.zug
train half.zug zero3_2 --steps 6 --log whole --save whole.safetensors
train half.zug zero3_2 --steps 4 --ckpt ckpt --ckpt-every 2
ok zckpt show ckpt/step-00000004
ok zckpt verify ckpt/step-00000004
cp -r ckpt other
train half.zug zero3_2 --steps 6 --ckpt ckpt --resume --save resumed.safetensors
cmp whole.safetensors resumed.safetensors || fail 'a resumed run has other weights'
train half.zug one --steps 6 --ckpt other --resume --save moved.safetensors
$compare --abs 2e-3 whole.safetensors moved.safetensors >diff.txt || { cat diff.txt; fail 'another layout goes on differently'; }
train half.zug one --steps 0 --save begun.safetensors
stays '\.attn\.' moved.safetensors
grep -q '"path":"wte","shape":\[127,32\],"states":\[\],"checksums":\["[0-9a-f]*"\]' ckpt/step-00000004/manifest.json ||
  fail 'the manifest has states of wte'
refuses "has 0 optimizer states of 'wte', and the recipe keeps 2" zrun train gpt2.zsg \
  --recipe all.zug:one --data text.bin --steps 6 --ckpt ckpt --resume
sed 's/recipe base {/recipe base {\n  freeze all except layer.attn/' all.zug >full.zug
train full.zug one --steps 2 --init whole.safetensors --eval text.bin --eval-every 1 --eval-batches 2 --log evaluated
grep -q eval_loss evaluated/metrics.jsonl || fail 'no evaluation'
ok timeout -k 5 100 $MPIRUN -np 2 zrun eval gpt2.zsg --recipe half.zug:zero3_2 --data text.bin --init whole.safetensors
exit 0
