# Recipes of examples/recipes.zug that are for a published machine are good ones: each takes at most 5 % more time than the best
# that `zplan search` finds for the same model, sizes, ranks and cluster, fits into what search leaves of the memory, and is what
# the comment above it says. By day some of them; at night all.
. "$ZUG_SRC/tests/scenarios/lib.sh"
recipes=$ZUG_SRC/examples/recipes.zug
clusters=$ZUG_SRC/examples/clusters.zug

# ---- marks: what is said above each recipe of the section, and of no other ----
# Writes: cluster ranks seconds mfu memory recipe model, or what is wrong with the mark of a recipe.
awk '/^# ---- / { inside = /for published machines/; found += inside }
  /^# On [a-z0-9_]+, [0-9]+ ranks?: [0-9.]+ m?s a step, [0-9.]+ % MFU, [0-9.]+ GB a rank\.$/ {
    seconds = $7 == "ms" ? $6 / 1000 : $6
    sub(/,/, "", $3)
    mark = $3 " " $4 " " seconds " " $10 " " $13
    next
  }
  $1 == "recipe" && $3 == "for" && (inside || mark) {
    print inside && mark ? mark " " $2 " " $4 : "recipe " $2 " has no mark, or no place for one"
  }
  { mark = "" }
  END { if (found != 1) print "no section for published machines" }' "$recipes" >marks.txt
grep -E '^(recipe|no) ' marks.txt && fail "marks of recipes.zug"
[ "$(wc -l <marks.txt)" -ge 10 ] || { cat marks.txt; fail "recipes.zug lost its recipes for published machines"; }

# ---- the graph of a recipe: the example as it is, or as its file says that others are made ----
make() {
  case $1 in
    llama70b) set -- $1 llama3 -D layers=80 -D heads=64 -D width=8192 -D inner=28672 ;;
    llama405b) set -- $1 llama3 -D layers=126 -D heads=128 -D width=16384 -D inner=53248 ;;
    *) set -- $1 "$(echo "$2" | tr '[:upper:]' '[:lower:]')" ;;
  esac
  graph=$1.zsg example=$2
  shift 2
  ok zc "$ZUG_SRC/examples/$example.zug" -o "$graph" "$@"
}

n=0
while read -r cluster ranks seconds mfu memory recipe model; do
  at_night || case $recipe in llama8b | mistral7b | deltanet1b) ;; *) continue ;; esac # the shortest
  make $recipe $model
  ok zplan sim $graph --recipe "$recipes:$recipe" --cluster "$clusters:$cluster" --json
  mv out.txt sim.json
  ok zplan show $graph --recipe "$recipes:$recipe" --json
  mv out.txt plan.json
  sizes=$(python3 -c 'import json
t, p = json.load(open("sim.json")), json.load(open("plan.json"))
print("--batch", p["batch"]["samples"], "--seq", round(t["tokens_per_second"] / t["samples_per_second"]))')
  ok zplan search $graph --cluster "$clusters:$cluster" --ranks $ranks $sizes --keep 1 --json
  mv out.txt found.json
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
at_night && least=10 || least=3
[ $n -ge $least ] || fail "only $n recipes were compared"
