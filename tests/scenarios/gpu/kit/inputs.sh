#!/bin/sh
# inputs.sh DIR: makes all of a kit that is not a program: its scripts, and in DIR/data models, data and recipes, the same bytes in
# every build. zc and zdata are those in PATH.
#
#   ZUG_SRC            the sources
#   REFERENCE=quick    the model that is trained against losses kept from CPUs (part `first`) is a small one
set -eu
from=$ZUG_SRC/tests/scenarios/gpu/kit bench=$ZUG_SRC/bench
mkdir -p "$1/data" && cd "$1/data"
cp "$from/try-gpu.sh" "$from/parts.sh" "$from/cases.txt" "$ZUG_SRC/tests/scenarios/gpu/README.md" ..
cp "$bench/models-gpu.sh" "$bench/torch_lm.py" "$bench/torch_gpt2.py" .
. ./models-gpu.sh

# ---- models ----
model() { # NAME FILE SIZE=N...
  to=$1 example=$2
  shift 2
  # shellcheck disable=SC2046 # words are wanted
  zc -q "$ZUG_SRC/examples/$example.zug" -o "$to.zsg" $(printf -- '-D %s ' "$@")
}
for name in gpt2 llama tiny_gpt2 tiny_llama; do
  measured_model $name
  # shellcheck disable=SC2086
  model $name $file $sizes $more
done
model small gpt2 layers=4 heads=4 width=32 context=32 words=127
model mid_gpt2 gpt2 layers=3 heads=4 width=128 context=64 words=250 # a vocabulary that no vector divides
model mid_llama llama3 layers=3 heads=4 kv_heads=2 width=128 inner=192 words=250
model mlp mlp inputs=2 hidden=16 classes=2

# ---- data ----
# Ids of two bytes below 125 each, so below 32000.
awk 'BEGIN { for (x = 1; i < 2000000; i++) { x = x * 16807 % 2147483647; printf "%c", 1 + x % 124 } }' |
  LC_ALL=C tr '\001-\174' '\000-\173' >tokens.u16
zdata pack tokens.u16 --tokens u16 -o tokens.bin
zdata pack "$ZUG_SRC/LICENSE" -o text.bin
awk 'BEGIN { print "x,y,inside"; for (i = 0; i < 400; i++) { x = (i * 37 % 101) / 50 - 1; y = (i * 61 % 103) / 51 - 1
  print x "," y "," (x * x + y * y < 0.5) } }' >circle.csv
zdata table circle.csv -o circle.bin --label inside --field image --label-field label
rm tokens.u16 circle.csv

# ---- recipes ----
sed 's/ kv,//' "$ZUG_SRC/tests/data/models/layouts.zug" | sed '/^recipe gqa/,$d' >layouts.zug # the small model has no axis kv
cat "$bench/recipes-gpu.zug" "$from/recipes.zug" >recipes.zug

# ---- what part `first` trains ----
if [ "${REFERENCE:-}" = quick ]; then
  ln -s mid_gpt2.zsg first.zsg && ln -s text.bin first.bin
  sed -i '/^recipe first /s/seq = [0-9]*/seq = 64/' recipes.zug
else
  ln -s gpt2.zsg first.zsg && ln -s tokens.bin first.bin
fi
