# Recipes of examples/published.zug are good ones: each takes at most 5 % more time than the best that `zplan search` finds for
# the same model, sizes, ranks and cluster, fits into what search leaves of the memory, and is what the comment above it says.
# By day some of them; at night all.
. "$ZUG_SRC/tests/scenarios/lib.sh"
recipes=$ZUG_SRC/examples/published.zug
clusters=$ZUG_SRC/examples/clusters.zug

sh "$ZUG_SRC/docs/gallery.sh" marks >marks.txt || fail "comments of published.zug"
[ "$(wc -l <marks.txt)" -ge 41 ] || { cat marks.txt; fail "published.zug lost recipes"; }

# The sizes that a recipe binds, as options of search. Slots are a choice of the recipe, as its mesh is.
sizes() {
  awk -v recipe="$1" '
    $1 == "recipe" { on = $2 == recipe }
    on && $1 == "bind" {
      sub(/#.*/, "")
      gsub(/bind|[ =]+/, " ")
      n = split($0, part, ",")
      for (i = 1; i <= n; i++) {
        split(part[i], word, " ")
        if (word[1] == "batch") print "--batch " word[2]
        else if (word[1] != "slot") print "--bind " word[1] "=" word[2]
      }
    }' "$recipes"
}

# search RECIPE OPTION...: writes found.json. Where something is frozen the search is told, by a recipe in which all else is open.
search() {
  recipe=$1
  shift
  frozen=$(awk -v recipe="$recipe" '$1 == "recipe" { on = $2 == recipe } on && ($1 == "freeze" || $1 == "bind")' "$recipes")
  case $frozen in
    *freeze*)
      cat >open.zug <<END
recipe open {
  mesh pipe = ?, data = ?, tensor = ?
  micro ?
  precision compute bf16
  split batch over data
  split ? over tensor else ?
  stages over pipe = ?
  shard ? over data
  recompute ?
  optimizer adamw(lr = 3e-4)
$frozen
}
END
      ok zplan search $recipe.zsg --recipe open.zug:open "$@" ;;
    # shellcheck disable=SC2046
    *) ok zplan search $recipe.zsg $(sizes $recipe) "$@" ;;
  esac
  mv out.txt found.json
}

n=0
while read -r cluster ranks seconds mfu memory recipe example options; do
  at_night || case $recipe in llama8b | mistral7b | deltanet1b) ;; *) continue ;; esac # the shortest
  # shellcheck disable=SC2086 # words are wanted
  ok zc "$ZUG_SRC/examples/$example.zug" -o $recipe.zsg $options
  ok zplan sim $recipe.zsg --recipe "$recipes:$recipe" --cluster "$clusters:$cluster" --json
  mv out.txt sim.json
  ok zplan show $recipe.zsg --recipe "$recipes:$recipe" --json
  mv out.txt plan.json
  case $recipe in
    clip150m) echo '{"best": [{"seconds": 1e9}], "limit": 75e9}' >found.json ;; # search takes no model whose samples meet
    *) search $recipe --cluster "$clusters:$cluster" --ranks $ranks --keep 1 --json ;;
  esac
  python3 - $recipe $ranks $seconds $mfu $memory <<'END' || fail "recipe $recipe on $cluster: make it better, or say what it is"
import json, sys
name, (ranks, seconds, mfu, memory) = sys.argv[1], map(float, sys.argv[2:])
sim, plan, found = (json.load(open(x)) for x in ('sim.json', 'plan.json', 'found.json'))
best, is_, wrong = found['best'][0]['seconds'], sim['seconds'], []
held = max(s['device_bytes']['arena'] for s in plan['stages'])
print('%-15s %6d ranks  %8.3f s, found %8.3f s: %+5.1f %%  %4.1f %% MFU  %4.1f GB' %
      (name, sim['ranks'], is_, best, 100 * (is_ / best - 1), 100 * sim['mfu'], held / 1e9))
if is_ > 1.05 * best: wrong += ['it is more than 5 % slower than the best found']
if held > found['limit']: wrong += ['it needs more memory than there is']
if sim['ranks'] != ranks: wrong += ['it is of %d ranks, its comment says %d' % (sim['ranks'], ranks)]
# A plan may change a little without making comments wrong.
for what, said, now in (('seconds', seconds, is_), ('% MFU', mfu, 100 * sim['mfu']), ('GB', memory, held / 1e9)):
    if abs(said / now - 1) > .02: wrong += ['its comment says %g %s, it is %.4g' % (said, what, now)]
for w in wrong: print('%s: %s' % (name, w))
sys.exit(bool(wrong))
END
  n=$((n + 1))
done <marks.txt
at_night && least=41 || least=3
[ $n -ge $least ] || fail "only $n recipes were compared"
