# Every key of config.json, changed, set to null and deleted, one at a time: zc refuses the file, or warns of the key, or makes a model whose loss is
# the one that transformers computes. tests/data/hf/make_keys.py made the lists, tests/data/hf/FAMILY/keys.
#
# Tolerance: sums in another order move a loss of 6 by less than 2e-6; the least change among those stored is 7e-6.
. "$ZUG_SRC/tests/scenarios/lib.sh"
hf=$ZUG_SRC/tests/data/hf
printf 'recipe one {\n  bind batch = 2, seq = 16\n  optimizer sgd(lr = 1)\n}\nrecipe moe from one { bind slot = 1 }\n' >r.zug

# changed CONFIG KEYS: 1.json, 2.json, ...: CONFIG as transformers writes it (two blanks before each key) with each line of KEYS
changed() {
  awk -F '\t' '
    NR == FNR && /^  "/ { key = $0; sub(/^  "/, "", key); sub(/".*/, "", key); order[++n] = key; value[key] = $0; sub(/^  "[^"]*": /, "", value[key]); next }
    NR == FNR && /^ / { value[key] = value[key] "\n" $0; next }
    NR == FNR { next }
    {
      file = FNR ".json"; printf "{" >file; comma = ""
      if (!($1 in value) && $1 != ".") { printf "\n  \"%s\": %s", $1, $2 >file; comma = "," }
      for (i = 1; i <= n; i++) {
        v = order[i] == $1 ? $2 : value[order[i]]
        sub(/,$/, "", v)
        if (v == "-") continue
        printf "%s\n  \"%s\": %s", comma, order[i], v >file; comma = ","
      }
      printf "\n}\n" >file; close(file)
    }' "$1" "$2"
}
near() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(a != "" && d < 4e-6 && d > -4e-6) }'; }

# Losses are compared where the folder has weights; else that the model is the same exactly if the loss is.
family() { # FOLDER MODEL [zc options]
  name=${1##*/} from=$hf/$1 model=$ZUG_SRC/examples/$2.zug records=$hf/llama/records.i32
  shift 2
  grep -q '^ *axis.* slot' "$model" && recipe=moe || recipe=one
  mkdir "$name" && cd "$name" || fail "$name"
  changed "$from/config.json" "$from/keys"
  ok zc "$model" --config 1.json "$@" -q -o base.zsg
  [ ! -s out.txt ] || { cat out.txt; fail "$name: the folder's own config.json has a warning"; }
  weights=$(find "$from" -name 'model*.safetensors' | head -n 1)
  [ -z "$weights" ] || ok zdata records "$records" -o data.bin --field tokens:i32:16 --field targets:i32:16
  line=0 base='' refused=0 evaluated=0
  while IFS="$(printf '\t')" read -r key value loss <&3; do
    line=$((line + 1)) what="$name: $key = $value"
    [ -n "$base" ] || base=$loss
    if ! zc "$model" --config $line.json "$@" -q -o m.zsg >said.txt 2>&1; then
      grep -q '^error' said.txt || { cat said.txt; fail "$what: zc ends without an error"; }
      refused=$((refused + 1))
    elif grep -q "^warning.*\`$key" said.txt; then refused=$((refused + 1))
    elif cmp -s m.zsg base.zsg && [ $line -gt 1 ]; then
      near "$loss" "$base" || { cat said.txt; fail "$what: nothing is said, and transformers has the loss $loss instead of $base"; }
    elif [ -n "$weights" ] && [ -x "$ZUG_BUILD/zrun" ]; then
      evaluated=$((evaluated + 1))
      if zrun eval m.zsg --recipe ../r.zug:$recipe --data data.bin --init "$from" --names hf --device cpu --log log >eval.txt 2>&1; then
        near "$(sed -n 's/.*"eval_loss":\([^,}]*\).*/\1/p' log/metrics.jsonl)" "$loss" || { cat eval.txt log/metrics.jsonl; fail "$what: transformers has $loss"; }
        rm -r log
      else
        grep -q error eval.txt || { cat eval.txt; fail "$what"; }
      fi
    fi
  done 3<"$from/keys"
  echo "$name: $line changes, $refused refused or warned of, $evaluated evaluated"
  cd ..
}
for name in gemma3 mixtral $(at_night && echo gemma2 mistral qwen2 qwen3 mamba2 deepseek bert t5); do family $name $name; done
family llama llama3
! at_night || family llama_tied llama3
family gpt2 gpt2 --names hf
at_night || exit 0
for name in phi3 olmo2 granite glm4 smollm3 starcoder2 neox falcon opt phi cohere; do family small/$name $name; done
family small/falcon40 falcon
for name in qwen3moe gptoss; do family small/$name $name -D balance=0; done # transformers' loss has no share of balance
