# Every example compiles, every recipe of examples/recipes.zug plans for its model, recipes_good.sh has those of published.zug, and each model trains: its loss
# falls. The large ones are planned as they are; small ones are trained. (Those that are not here: tests/scenarios/models.sh.)
. "$ZUG_SRC/tests/scenarios/lib.sh"
examples=$ZUG_SRC/examples

# ---- compiling: 50 ms at most, whatever the depth (the limit here allows for a busy machine) ----
models="mlp gpt2 llama3 qwen2 qwen3 bert t5 lora vit dit gemma2 gemma3 mistral mixtral deepseek clip resnet unet mamba2 deltanet \
  phi3 qwen3moe gptoss olmo2 granite glm4 smollm3 starcoder2 neox falcon opt phi cohere minilm llamadpo nanochat speedrun"
for model in $models; do ok timeout 2 zc "$examples/$model.zug" -o $model.zsg; done
zc "$examples/resnet.zug" -o resnet.zsg | grep -q '25,557,032 parameters' || fail "resnet's parameters" # as torchvision's
zc "$examples/qwen2.zug" -o qwen2.zsg | grep -q '494,032,768 parameters' || fail "qwen2's parameters" # as Qwen2.5-0.5B's
zc "$examples/unet.zug" -o unet.zsg | grep -q '35,746,307 parameters' || fail "unet's parameters"       # as Ho et al.'s
ok timeout 2 zc "$examples/llama3.zug" -o llama405b.zsg -D layers=126 -D heads=128 -D width=16384 -D inner=53248
says '405,853,388,800 parameters'
ok zc "$examples/gpt2.zug" -o demo.zsg -D layers=4 -D heads=4 -D width=128 -D context=128 -D words=256
small="-D layers=4 -D heads=4 -D width=32 -D words=256"
ok zc "$examples/gpt2.zug" -o small_gpt2.zsg $small -D context=128
ok zc "$examples/llama3.zug" -o small_llama3.zsg $small -D kv_heads=2 -D inner=64
ok zc "$examples/llama3.zug" -o small_llama31.zsg $small -D kv_heads=2 -D inner=64 -D tied=1 -D factor=8 -D original=16
ok zc "$examples/qwen3.zug" -o small_qwen3.zsg $small -D kv_heads=2 -D head_dim=16 -D inner=64
ok zc "$examples/mlp.zug" -o small_mlp.zsg -D inputs=2 -D hidden=16 -D classes=2

# ---- planning ----
[ -x "$ZUG_BUILD/zplan" ] || exit 0
sed -n 's/^recipe *\([a-z0-9_]*\) *for *\([A-Za-z0-9]*\).*/\1 \2/p' "$examples/recipes.zug" >recipes.txt
[ "$(wc -l <recipes.txt)" -gt 30 ] || fail "recipes.zug lost its recipes"
while read -r recipe model; do
  case $recipe in
    demo*) graph=demo ;;
    *) graph=$(echo "$model" | tr '[:upper:]' '[:lower:]') ;;
  esac
  ok timeout 10 zplan show $graph.zsg --recipe "$examples/recipes.zug:$recipe"
  grep -q '^error' out.txt && fail "recipe $recipe"
done <recipes.txt
for recipe in nanochat nanochat8 speedrun speedrun8; do
  ok timeout 20 zplan show ${recipe%8}.zsg --recipe "$examples/races.zug:$recipe"
done
ok zplan show llama3.zsg --recipe "$examples/published.zug:llama8b" --cluster "$examples/clusters.zug:h100"
# Every cluster says all that times are made from.
for cluster in $(awk '$1 == "cluster" { print $2 }' "$examples/clusters.zug"); do
  ok zplan sim gpt2.zsg --recipe "$examples/recipes.zug:tp" --cluster "$examples/clusters.zug:$cluster"
  says 'MFU'
done

# ---- training ----
[ -n "$MPIRUN" ] && [ -x "$ZUG_BUILD/zrun" ] || exit 0
cat >train.zug <<'END'
recipe lm  { bind batch = 8, seq = 32   micro 4   optimizer adamw(lr = 1e-2)   clip 1.0 }
recipe mlp { bind batch = 16   optimizer adamw(lr = 1e-2) }
END
# A circle in a square: x, y, inside or not.
awk 'BEGIN { print "x,y,inside"; for (i = 0; i < 400; i++) { x = (i * 37 % 101) / 50 - 1; y = (i * 61 % 103) / 51 - 1
  print x "," y "," (x * x + y * y < 0.5) } }' >circle.csv
ok zdata table circle.csv -o circle.bin --label inside --field image --label-field label
ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin

# falls GRAPH RECIPE DATA STEPS SHARE: the last loss is below SHARE of the first.
falls() {
  ok zrun train "$1" --recipe "train.zug:$2" --data "$3" --steps "$4" --log "log_$1"
  awk -v share="$5" '{ match($0, /"loss": *[0-9.e+-]+/); x = substr($0, RSTART, RLENGTH); sub(/.*: */, "", x)
    if (NR == 1) first = x; last = x } END { print first, last; exit !(last < share * first) }' \
    "log_$1/metrics.jsonl" || { cat "log_$1/metrics.jsonl"; fail "the loss of $1 does not fall"; }
}
falls small_gpt2.zsg lm text.bin 40 0.7
falls small_llama3.zsg lm text.bin 40 0.7
falls small_llama31.zsg lm text.bin 40 0.7
falls small_qwen3.zsg lm text.bin 40 0.7
falls small_mlp.zsg mlp circle.bin 100 0.7
# Racers learn by their own optimizers, small ones at rates for a width of 32.
for model in nanochat speedrun; do
  ok zc "$examples/$model.zug" -o small_$model.zsg -D layers=4 -D heads=2 -D width=32 -D words=256 $([ $model = speedrun ] || echo -D kv_heads=2)
  sed "s/bind batch = [0-9]*, seq = [0-9]*/bind batch = 8, seq = 32/; s/micro [0-9]*/micro 4/" "$examples/races.zug" >train.zug
  falls small_$model.zsg $model text.bin 40 0.8
done
