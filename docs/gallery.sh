#!/bin/sh
# gallery.sh: recipes for published machines, and the page that shows them.
#
#   gallery.sh marks     prints a line for each recipe of examples/published.zug that is of a model, from the comment above it:
#                        cluster ranks seconds MFU GB recipe example OPTION... (of zc)
#   gallery.sh measure   writes these comments anew, with what `zplan sim` and `zplan show` say
#   gallery.sh page      prints docs/gallery.md, from these comments, the examples and what zc and zplan say of them
#
# `make docs-gallery` does the last two; tests/scenarios/recipes_good.sh compares comments and programs, gallery.sh there the page.
# ZUG_SRC is the source folder; programs are those of PATH.
set -eu
ZUG_SRC=${ZUG_SRC:-$(cd "$(dirname "$0")/.." && pwd)}
examples=$ZUG_SRC/examples
published=$examples/published.zug
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "gallery.sh: $*" >&2
  exit 1
}

# ---- marks ----
# A mark is "# On CLUSTER, N ranks: T s a step, P % MFU, M GB a rank.", and may go on with " Made by `zc FILE OPTION...`.".
marks() {
  awk '
    /^# On [a-z0-9_]+, [0-9]+ ranks?: [0-9.]+ m?s a step, [0-9.]+ % MFU, [0-9.]+ GB a rank\./ {
      sub(/,/, "", $3)
      mark = $3 " " $4 " " ($7 ~ /^ms/ ? $6 / 1000 : $6) " " $10 " " $13
      options = ""
      if (match($0, / Made by `zc [a-z0-9]+\.zug( -D [a-z_]+=[0-9.]+)+`\.$/)) {
        options = substr($0, RSTART + 13, RLENGTH - 15)
        sub(/^[^ ]+/, "", options)
      }
      next
    }
    $1 == "recipe" && $3 == "for" {
      if (!mark) { print "recipe " $2 " has no comment that says machine, time and memory" >"/dev/stderr"; bad = 1 }
      print mark, $2, tolower($4) options
    }
    { mark = "" }
    END { exit bad }' "$published" || fail "$published"
}

# compile RECIPE EXAMPLE OPTION...: makes $work/RECIPE.zsg; prints the number of parameters.
compile() {
  graph=$work/$1.zsg file=$examples/$2.zug
  shift 2
  zc "$file" -o "$graph" "$@" >"$work/said.txt" 2>&1 || { cat "$work/said.txt" >&2; fail "$file does not compile"; }
  sed -n 's/.* \([0-9,]*\) parameters.*/\1/p' "$work/said.txt" | tr -d ,
}

# number FILE KEY: the first number of that key.
number() { awk -v key="\"$2\":" '{ at = index($0, key); if (at) { $0 = substr($0, at + length(key)); print $0 + 0; exit } }' "$1"; }

measure() {
  marks >"$work/marks.txt"
  cp "$published" "$work/published.zug"
  # shellcheck disable=SC2034 # some fields are not used
  while read -r cluster ranks seconds mfu memory recipe options; do
    # shellcheck disable=SC2086 # words are wanted
    compile "$recipe" $options >"$work/said.txt"
    zplan sim "$work/$recipe.zsg" --recipe "$published:$recipe" --cluster "$examples/clusters.zug:$cluster" --json >"$work/sim.json"
    zplan show "$work/$recipe.zsg" --recipe "$published:$recipe" --cluster "$examples/clusters.zug:$cluster" --json >"$work/show.json"
    made=
    case $options in *' '*) made=" Made by \`zc ${options%% *}.zug ${options#* }\`." ;; esac
    arena=$(grep -o '"arena":[^0-9]*[0-9]*' "$work/show.json" | tr -dc '0-9\n' | sort -n | tail -n 1)
    line=$(awk -v c="$cluster" -v n="$(number "$work/sim.json" ranks)" -v s="$(number "$work/sim.json" seconds)" \
      -v mfu="$(number "$work/sim.json" mfu)" -v arena="$arena" -v made="$made" 'BEGIN {
        printf "# On %s, %d rank%s: %.4g %s a step, %.1f %% MFU, %s GB a rank.%s", c, n, n == 1 ? "" : "s",
          s < 1 ? 1000 * s : s, s < 1 ? "ms" : "s", 100 * mfu, sprintf(arena < 1e9 ? "%.3g" : "%.1f", arena / 1e9), made }')
    echo "$recipe: $line" >&2
    awk -v recipe="$recipe" -v line="$line" '
      held != "" && $1 == "recipe" && $2 == recipe { held = line }
      held != "" { print held; held = "" }
      /^# On / { held = $0; next }
      { print }' "$work/published.zug" >"$work/next.zug"
    mv "$work/next.zug" "$work/published.zug"
  done <"$work/marks.txt"
  cmp -s "$work/published.zug" "$published" || cp "$work/published.zug" "$published"
}

# ---- the page ----
# The models, in the order of the page; every example that has one must be among them.
groups='Text, dense|gpt2 opt neox phi phi3 falcon llama3 mistral olmo2 granite glm4 smollm3 starcoder2 qwen2 qwen3 gemma2 gemma3 cohere nanochat speedrun
Text, with experts|mixtral qwen3moe gptoss deepseek
Text, recurrent|mamba2 deltanet
Encoders, and an encoder with a decoder|bert minilm t5
Pictures|vit clip dit resnet unet
Adapters, and the smallest|llamadpo lora mlp'

# about FILE: the first sentence of the comment that an example begins with
about() {
  awk '!/^# / { exit } { sub(/^# /, ""); text = text (NR > 1 ? " " : "") $0 }
    END { if (match(text, /[^l]\. [A-Z`]/)) text = substr(text, 1, RSTART); sub(/\.$/, "", text); print text }' "$1"
}

# generates RECIPE: whether zplan makes a plan of generation of it, on one rank
generates() {
  printf 'recipe one { bind batch = 1, seq = 64 }\n' >"$work/one.zug"
  zplan check "$work/$1.zsg" --recipe "$work/one.zug:one" --generate >"$work/said.txt" 2>&1 && echo yes || echo -
}

# types EXAMPLE: the model types of Hugging Face whose weights its map reads
types() {
  awk '/^weights / { on = $2 == "hf" } on && /model_type = / { sub(/.*model_type = /, ""); gsub(/"/, "`"); print; exit }' "$examples/$1.zug"
}

rows() { # EXAMPLE: a row for each of its recipes
  found=$(awk -v example="$1" '$7 == example' "$work/marks.txt")
  [ "$found" ] || fail "examples/$1.zug has no recipe in examples/published.zug"
  what=$(about "$examples/$1.zug")
  writes=
  echo "$found" | while read -r cluster ranks seconds mfu memory recipe options; do
    # shellcheck disable=SC2086
    n=$(compile "$recipe" $options)
    [ "$writes" ] || writes=$(generates "$recipe")
    awk -v example="$1" -v what="$what" -v n="$n" -v recipe="$recipe" -v ranks="$ranks" -v cluster="$cluster" -v s="$seconds" \
      -v mfu="$mfu" -v gb="$memory" -v writes="$writes" -v types="$(types "$1")" 'BEGIN {
        size = n < 99e6 ? sprintf("%.3g M", n / 1e6) : n < 999e6 ? sprintf("%.0f M", n / 1e6) : sprintf(n < 99e9 ? "%.3g B" : "%.0f B", n / 1e9)
        time = s < 1 ? sprintf("%.3g ms", 1000 * s) : sprintf("%.3g s", s)
        printf "| [%s](../examples/%s.zug) | %s | %s | `%s` | %s x %s | %s | %s %% | %s GB | %s | %s |\n", example, example, what, size,
          recipe, ranks, cluster, time, mfu, gb, writes, types == "" ? "-" : types }'
    what='"'
  done
}

page() {
  marks >"$work/marks.txt"
  for file in "$examples"/*.zug; do
    name=$(basename "$file" .zug)
    ! grep -q '^model ' "$file" || echo "$groups" | grep -Eq "[| ]$name( |\$)" || fail "examples/$name.zug is missing in the list of gallery.sh"
  done
  cat <<'END'
# Gallery

<!-- `make docs-gallery` makes this page: docs/gallery.sh. -->

Each example is a file that you can read, change and train.
*Writes* is generation (`zrun generate`), and *weights* are the `model_type`s of Hugging Face whose folders it reads and exports.
All train on CPUs; [status](status.md) says what has run on GPUs.

A recipe is one of [examples/published.zug](../examples/published.zug), with its batch and its lengths, for a machine of [examples/clusters.zug](../examples/clusters.zug).
Step, MFU (model FLOPs utilization) and memory of the fullest GPU are what `zplan sim` and `zplan show` predict, not what was measured; on published steps such predictions were 3.5 % off in the mean ([performance](guides/performance.md#predictions)).
Each recipe takes at most 5 % longer than the best that `zplan search` finds for the same batch and machine (CLIP, which search does not take, was tried by hand).

Models of other sizes than the defaults of their file have their `zc` command above the recipe.

To see a plan:

```console
build/zc examples/mistral.zug -o mistral.zsg
build/zplan sim mistral.zsg --recipe examples/published.zug:mistral7b --cluster examples/clusters.zug:h100
```
END
  echo "$groups" | while IFS='|' read -r title names; do
    printf '\n## %s\n\n' "$title"
    echo '| example | model | parameters | recipe | GPUs | step | MFU | memory | writes | weights |'
    echo '|---|---|---|---|---|---|---|---|---|---|'
    for name in $names; do rows "$name"; done
  done
}

case ${1:-} in
marks | measure | page) "$1" ;;
*) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
