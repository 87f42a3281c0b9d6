# zplan sim and search --generate: what a step takes by bytes that anybody can count, recipes that keep what was asked,
# and what is said where nothing does.
. "$ZUG_SRC/tests/scenarios/lib.sh"

# shellcheck disable=SC2086 # words are wanted
clusters=$ZUG_SRC/examples/clusters.zug
ok zc "$ZUG_SRC/examples/llama3.zug" -o llama.zsg
ok zc "$ZUG_SRC/examples/mixtral.zug" -o mixtral.zsg -D layers=4

# ---- a device that reads 1 GB/s, and does all else at once ----
cat >reads.zug <<'END'
cluster reads {
  device memory 4000 GB, bf16 1000 PFLOPS, f32 1000 PFLOPS, products 1, attention 1, stream 1 GB/s, launch 1 ns, steal 0.1
}
recipe one { bind batch = 1, seq = 4096   precision compute bf16 }
recipe six { bind batch = 6, seq = 4096   precision compute bf16 }
recipe four { bind batch = 1, seq = 4096   precision compute bf16, weights int4 }
END
for recipe in one six four; do
  for model in llama mixtral; do
    ok zplan sim $model.zsg --generate --recipe reads.zug:$recipe --cluster reads.zug:reads --prompt 4000 --json
    cp out.txt $model-$recipe.json
  done
done
python3 - <<'END' || fail "a step does not take what its bytes say"
import json
at = lambda name: json.load(open(name + '.json'))['between_seconds']
layer = 2 * 4096 * 4096 + 2 * 4096 * 1024  # q and o, k and v
token = 2 * 1024 * 2  # bytes of a layer's keys and values
# Weights once, keys and values of what was written so far. Activations of a step are in the hundredth that is left.
for name, n, size in ('one', 1, 2), ('six', 6, 2), ('four', 1, 4.25 / 8):
    llama = size * (32 * (layer + 3 * 4096 * 14336) + 128256 * 4096) + n * (4000 + 48.5) * 32 * token
    assert abs(at('llama-' + name) * 1e9 / llama - 1) < .01, (name, at('llama-' + name), llama)
    # Two of eight experts a token: n tokens choose 8 (1 - (1 - 2/8)^n) different ones in the mean.
    experts = 8 * (1 - (1 - 2 / 8) ** n)
    mixtral = size * (4 * (layer + experts * 3 * 4096 * 14336) + 32000 * 4096) + n * (4000 + 48.5) * 4 * token
    assert abs(at('mixtral-' + name) * 1e9 / mixtral - 1) < .01, (name, at('mixtral-' + name), mixtral)
END

# ---- the recipe that is written is the one that was promised ----
search="zplan search llama.zsg --generate --cluster $clusters:h100 --length 4096"
bound() { sed -n 's/.*bind batch = \([0-9]*\).*/\1/p' best.zug; }
for asked in "--ranks 8" "--ranks 2 --sequences 16" "--ranks 1 --latency 20ms"; do
  ok $search $asked --json -o best.zug
  cp out.txt found.json
  ok zc fmt --check best.zug
  ok zplan sim llama.zsg --generate --recipe best.zug --cluster "$clusters:h100" --json
  cp out.txt sim.json
  python3 - "$asked" <<'END' || fail "search --generate $asked"
import json, sys
f, t = json.load(open('found.json')), json.load(open('sim.json'))
best = f['best']
for key in 'first_seconds', 'between_seconds': assert best and best[0][key] == t[key], (best[0], t)
assert best[0]['mixed_per_second'] == t['mixed_per_second'] or best[0]['sequences'] < t['sequences']  # a replica was idle
for b in best:
    ranks = 1
    for n in b['mesh'].values(): ranks *= n
    assert ranks == f['ranks'] and b['bytes'] <= f['limit'], b
    assert not f['latency'] or b['between_seconds'] <= f['latency'], b
    assert abs(sum(b['parts'].values()) / b['step_seconds'] - 1) < 1e-6, b
order = [-b['mixed_per_second'] if f['latency'] else b['answer_seconds'] for b in best]
assert order == sorted(order)
END
done
# More texts would not have been written within the time, or would not have fitted.
if zplan sim llama.zsg --generate --recipe best.zug --cluster "$clusters:h100" --sequences $(($(bound) + 8)) --json >more.json 2>more.err; then
  python3 -c 'import json; t = json.load(open("more.json")); assert t["between_seconds"] > .02, t' || fail "more texts would do"
else
  grep -q 'Z0309' more.err || { cat more.err; fail "not refused for its memory"; }
fi
# Weights of fewer bits are read sooner: of those that are allowed the recipe takes 4, and its text says so.
ok $search --ranks 1 --weights any --json -o best.zug
cp out.txt found.json
grep -q 'weights int4 group 64' best.zug || { cat best.zug; fail "no int4 in the recipe"; }
ok zplan sim llama.zsg --generate --recipe best.zug --cluster "$clusters:h100" --json
cp out.txt sim.json
python3 - <<'END' || fail 'formats'
import json
f, t = json.load(open('found.json')), json.load(open('sim.json'))
at = {b['weights']: b for b in f['best']}
assert f['best'][0]['weights'] == 'int4 group 64' and f['best'][0]['between_seconds'] == t['between_seconds'], f['best']
assert at['bf16']['answer_seconds'] > at['int8 group 64']['answer_seconds'] > at['int4 group 64']['answer_seconds'], at
assert at['bf16']['bytes'] > at['int8 group 64']['bytes'] > at['int4 group 64']['bytes'], at
END
ok $search --ranks 1 --weights none,int8
grep -q 'weights in bf16 or int8 group 64' out.txt || { cat out.txt; fail "formats are not said"; }
# Weights that 8 GPUs read together are read sooner.
ok $search --ranks 8 --json
python3 -c 'import json; b = json.load(open("out.txt"))["best"]; assert b[0]["mesh"].get("tensor", 1) > 1, b[0]' || fail "no tensor ranks"

# ---- where nothing will do ----
ok zc "$ZUG_SRC/examples/llama3.zug" -o 70b.zsg -D layers=80 -D heads=64 -D width=8192 -D inner=28672
ok zc "$ZUG_SRC/examples/bert.zug" -o bert.zsg
refused() { # PATTERN COMMAND...: on the standard output
  want=$1
  shift
  "$@" >out.txt 2>&1 && fail "done: $*"
  grep -q "$want" out.txt || { cat out.txt; fail "no '$want': $*"; }
}
refused 'does not fit: 142.5 GB of 75.0 GB, params 141.1 GB' zplan search 70b.zsg --generate --cluster "$clusters:h100" --ranks 1 --length 4096
refused 'more than 5 ms, even of one text' $search --ranks 1 --latency 5ms
refused 'attend' zplan search bert.zsg --generate --cluster "$clusters:h100" --ranks 1 --length 512
refuses 'search --generate needs --length' zplan search llama.zsg --generate --cluster "$clusters:h100"
refuses 'leaves nothing to write' $search --prompt 4096
refuses 'belong to --generate' zplan search llama.zsg --cluster "$clusters:h100" --batch 8 --seq 128 --latency 5ms
refuses '50ms or 0.2s' $search --latency 5m
refuses 'each once' $search --weights int4,int5
refuses 'each once' $search --weights int4,int4
refuses 'belong to --generate' zplan search llama.zsg --cluster "$clusters:h100" --batch 8 --seq 128 --weights int4
