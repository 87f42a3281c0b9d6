# What the planner says: the messages of `zplan check` for every recipe of tests/data/plan/*.zug are those in the .expect beside it. A
# recipe is planned for the cluster of its own name, if the file has one; those of times.zug are simulated on it. The tables for the recipes of shown.zug are those of
# shown.txt. `make regenerate-plan` writes all of them anew: read the difference before committing.
. "$ZUG_SRC/tests/scenarios/lib.sh"

messages() { # FILE: of all its recipes
  for recipe in $(awk '$1 == "recipe" { print $2 }' "$1"); do
    echo "== $recipe"
    cluster=
    grep -q "^cluster $recipe " "$1" && cluster="--cluster $1:$recipe"
    command=check
    [ "$1" = times.zug ] && command=sim
    code=0
    zplan $command "$graph" --recipe "$1:$recipe" $cluster >"$work/said.txt" 2>&1 || code=$?
    sed '/^proved in /d' "$work/said.txt"
    case $code in 0) echo fits ;; 1) ;; *) echo "exit code $code" ;; esac
  done
}

work=$(pwd)
graph=$work/model.zsg
cd "$ZUG_SRC/tests/data/plan" || exit 99
zc model.zug -o "$graph" >"$work/out.txt" 2>&1 || { cat "$work/out.txt"; fail "model.zug does not compile"; }
for file in *.zug; do
  [ "$file" = model.zug ] && continue
  name=${file%.zug}
  messages "$file" >"$work/$name.expect"
  if [ "$REGENERATE" ]; then
    cp "$work/$name.expect" "$name.expect"
    continue
  fi
  diff -u "$name.expect" "$work/$name.expect" || bad="$bad $file"
done
# tables, but for the bytes of each rank, which are also those of the machine's kernels
for recipe in $(awk '$1 == "recipe" { print $2 }' shown.zug); do
  echo "== $recipe"
  zplan show "$graph" --recipe "shown.zug:$recipe" 2>&1 | sed '/^bytes of one rank/,/^$/d; /^proved: /d'
  zplan explain "$graph" --recipe "shown.zug:$recipe" 2>&1
done | sed 's/ *$//' >"$work/shown.txt"
if [ "$REGENERATE" ]; then cp "$work/shown.txt" .; fi
diff -u shown.txt "$work/shown.txt" || bad="$bad shown.txt"
[ "$bad" ] && fail "other messages than expected:$bad"
cd "$work" || exit 99

# every code that the planner reports is provoked, but Z0999, a bug of ours, which tests/unit/plan provokes
for code in $(grep -rohE --include='*.c' 'ZL_Z[0-9]+' "$ZUG_SRC"/runtime/plan | sort -u | sed 's/ZL_//; /Z0999/d'); do
  grep -q "$code\]" "$ZUG_SRC"/tests/data/plan/*.expect "$ZUG_SRC/tests/scenarios/plan.sh" || fail "no case in tests/data/plan provokes $code"
  ok zc --explain "$code"
done

# ---- a model that does not generate ----
cat >both.zug <<'EOF'
model Both { axis batch, seq, h = 4, v = 8  input t: index(v)[batch, seq]  param e[v, h] ~ normal(1)  x = lookup(e, t)
  o = attend[seq, h](x, x, x, mask = none)  output logits = dot[h](o, e)  loss sum[seq, v](logits) per samples() }
recipe one { optimizer sgd(lr = 0.1)  bind batch = 2, seq = 6 }
EOF
ok zc both.zug -o both.zsg
ok zplan check both.zsg --recipe both.zug:one
refuses 'Z0815]: Both cannot be made token by token along `seq`: attend with mask = none' zplan check both.zsg --recipe both.zug:one --generate
says 'both.zug:2:'

# ---- two sequences whose positions are compared ----
cat >cross.zug <<'EOF'
model Cross { axis batch, src, tgt, h = 4  input x: real[batch, tgt, h]  input y: real[batch, src, h]
  param w[h] = 1  k = y * w  o = attend[tgt, src, h](x, k, k, mask = none, window = 2)  loss sum[tgt, h](o) per samples() }
recipe even { optimizer sgd(lr = 0.1)  bind batch = 2, src = 6, tgt = 6 }
recipe uneven from even { bind src = 7 }
EOF
ok zc cross.zug -o cross.zsg
ok zplan check cross.zsg --recipe cross.zug:even
says '^proved in [0-9.e+]* ms: '
refuses 'Z0309]: .attend. .cross.zug:2. compares positions of two lengths: .tgt. has 6 and .src. 7' \
  zplan check cross.zsg --recipe cross.zug:uneven

# ---- f32 that meets activations ----
cat >spread.zug <<'EOF'
model Spread { axis batch, e = 4, f = 4  input x: f32[batch, e]  param w[e, f] = 1
  y = dot[e](x, w)  loss sum[f](y * y) per samples() }
recipe whole { optimizer sgd(lr = 0.1)  bind batch = 4 }
recipe half from whole { precision compute bf16 }
EOF
ok zc spread.zug -o spread.zsg
ok zplan check spread.zsg --recipe spread.zug:half
says 'Z0210]: f32 spreads from spread.zug:1'
ok zplan check spread.zsg --recipe spread.zug:whole
grep Z0210 out.txt && fail "f32 is what is asked for"

# ---- the command line, and files ----
cp "$ZUG_SRC"/tests/data/plan/*.zug .
fits="--recipe sizes.zug:fits"
ok zplan --help
says '^usage: zplan show GRAPH.zsg --recipe FILE:NAME'
refuses 'usage: zplan' zplan
refuses 'zplan show needs --recipe FILE:NAME' zplan show model.zsg
refuses 'zplan show takes 1 operand \(GRAPH.zsg\), not 0' zplan show $fits
refuses 'no command .shwo.; did you mean .show.' zplan shwo model.zsg $fits
refuses '--threads cannot be .*; give a whole number from 1 to 1024' zplan show model.zsg $fits --threads 0
refuses '--threads cannot be .*; give a whole number from 1 to 1024' zplan show model.zsg $fits --threads 2x
refuses '--device: there is no device .gpu.: give .cpu. or .cuda.' zplan show model.zsg $fits --device gpu
refuses '--diag cannot be .xml.; give text or json' zplan show model.zsg $fits --diag xml
refuses "unrecognized option '--recipes'" zplan show model.zsg --recipes sizes.zug:fits
refuses 'none.zsg' zplan show none.zsg $fits
refuses 'model.zug' zplan show model.zug $fits
refuses 'error.Z0004.' zplan show model.zsg --recipe none.zug:fits
refuses 'error.Z0801.: no recipe .fit.' zplan show model.zsg --recipe sizes.zug:fit
says 'did you mean .fits.'
refuses 'error.Z0801.' zplan show model.zsg $fits --cluster mesh.zug:smal
says 'did you mean .small.'
refuses '^.*"code":"Z0304"' zplan show model.zsg --recipe sizes.zug:axis_unknown --diag json
ok zplan show model.zsg --recipe mesh.zug:wide --cluster mesh.zug:wide
says 'warning.Z0311.'
says 'M parameters, [0-9]* ranks = '
ok zplan show model.zsg --recipe sizes.zug:fits
says 'M parameters, 1 rank$'
ok zplan programs model.zsg --recipe stages.zug:fits
says 'FWD'
ok zplan programs model.zsg --recipe shown.zug:tensor --calls layer
says '^forward, .* calls: .*FLOP .* read and written, collectives of'
says '^ +[0-9]+  dot.*model.zug:[0-9]+  .*FLOP'
says '^ +reads +layer[.].* of [0-9]+.*parameter$'
says '^ +adds to +layer[.].*gradient'
ok zplan programs model.zsg --recipe shown.zug:tensor --calls layer --json
says '"segment":[[:space:]]*"layer"'
refuses 'no segment .lyaer.; it has .part 0., .layer., ' zplan programs model.zsg $fits --calls lyaer
refuses 'zplan show takes no option --calls; it belongs to programs' zplan show model.zsg $fits --calls layer
ok zplan explain model.zsg --recipe splits.zug:product
says 'all_reduce .*tensor'
ok zplan programs model.zsg --recipe stages.zug:fits --eval
says 'FWD'
grep -q 'BWD\|GRAD\|OPT_STEP' out.txt && fail "an evaluation is planned to train"
ok zplan show model.zsg --recipe stages.zug:fits --eval
says 'TFLOP a batch .forward only.$'

# ---- for people, exactly, and as JSON (whose keys tests/unit/plan looks at) ----
ok zplan show model.zsg $fits
says '^    0 .* [0-9.]+ MB$'
ok zplan show model.zsg $fits --exact
arena=$(awk '/^stage +params/ { getline; print $(NF - 1) }' out.txt)
says "^    0 .* $arena B\$"
ok zplan show model.zsg $fits --json
says "^\"?[[:space:]]*\"arena\":[[:space:]]*$arena\$"
ok zplan explain model.zsg --recipe shown.zug:tensor
says ' 9.6 kB +4.8 kB  reduce_scatter '
ok zplan explain model.zsg --recipe shown.zug:tensor --exact
says ' 9600 B +4800 B  reduce_scatter '
ok zplan explain model.zsg --recipe shown.zug:tensor --json
says '"bytes":[[:space:]]*9600,'
ok zplan programs model.zsg --recipe shown.zug:tensor --json
says '"op":[[:space:]]*"OPT_STEP"'
# ---- on a cluster: which ranks are where, and all that is sent, over links of one level or another ----
cat >places.zug <<'END'
cluster pairs { device memory 8 GB   level node 2, link 100 GB/s   level pod 4, link 10 GB/s }
END
for recipe in tensor zero2 zero3 keep; do
  ok zplan explain model.zsg --recipe shown.zug:$recipe --exact
  ranks=$(zplan show model.zsg --recipe shown.zug:$recipe | sed -n 's/.*parameters, \([0-9]*\) ranks.*/\1/p')
  sent=$(awk -v ranks="$ranks" '/^a rank of stage/ { sum += $7; n++ } END { print sum * ranks / n }' out.txt)
  ok zplan show model.zsg --recipe shown.zug:$recipe --exact --cluster places.zug:pairs
  awk -v sent="$sent" -v ranks="$ranks" '/^link of/ { on = 1; next } on && /^(node|pod) / && !/at most/ { all += $(NF - 1); rows++ }
    END { print "over links", all, "of", sent; exit !(rows > 1 && all > sent - ranks * rows && all <= sent + ranks) }' out.txt ||
    { cat out.txt; fail "$recipe: what goes over links is not what is sent"; }
done
ok zplan show model.zsg --recipe shown.zug:tensor --cluster places.zug:pairs
says '^node 1  ranks 2-3  data 1, tensor 0-1$'
says '^node +all_reduce +tensor .2. '
says '^pod +reduce_scatter +data .2. '
says '^pod +at most .* a step from one rank: .* ms at 10 GB/s$'
grep -q '^pod .* tensor (2)' out.txt && { cat out.txt; fail "tensor is inside nodes"; }
# Of four stages on two nodes two pairs of neighbours share a node.
ok zc "$ZUG_SRC/examples/gpt2.zug" -o four.zsg -D layers=4 -D heads=2 -D width=64
echo 'recipe four { mesh pipe = 4   stages over pipe by cost   bind batch = 8, seq = 64   micro 2   optimizer adamw(lr = 1e-3) }' >>places.zug
ok zplan show four.zsg --recipe places.zug:four --cluster places.zug:pairs
for way in 'next stage' 'stage before'; do
  says "^node +send +$way +131.1 kB +262.1 kB$"
  says "^pod +send +$way +131.1 kB +131.1 kB$"
done

refuses '^error.Z0304' zplan show model.zsg --recipe sizes.zug:axis_unknown --json
grep -q '^{' out.txt && fail "half a plan as JSON"
if [ -w /dev/full ]; then
  refuses 'No space left' sh -c "zplan show model.zsg $fits >/dev/full"
fi

# ---- times ----
timed="model.zsg --recipe times.zug:pipe --cluster times.zug:pipe"
refuses 'zplan sim needs --cluster FILE:NAME' zplan sim model.zsg $fits
ok zplan sim $timed
says 'collectives within forward'
ok zplan sim $timed --json --trace predicted.json
cp out.txt sim.json
ok "$ZUG_BUILD/tests/scenarios/tools/check_trace" predicted.json
says 'rank 4 stage 0 step 1'
says 'rank 6 stage 1 step 1'
python3 - <<'END' || fail "the JSON of sim is not what it should be"
import json
t, e = json.load(open('sim.json')), json.load(open('predicted.json'))['traceEvents']
assert t['ranks'] == 4 and t['tokens_per_second'] == 16 * t['samples_per_second'] and len(t['stages']) == 2
for x in [t['parts']] + t['stages']:
    assert abs(sum(v for k, v in x.items() if k != 'recomputed') - t['seconds']) < 1e-6 * t['seconds'], x
names = {x['args']['name'] for x in e if x['name'] == 'process_name'}
assert names == {'rank 0, stage 0, predicted', 'rank 2, stage 1, predicted'}, names
assert max(x['ts'] + x['dur'] for x in e if x['ph'] == 'X') <= 1e6 * t['seconds'] + .01
assert {x['cat'] for x in e if x['ph'] == 'X'} == {'compute', 'transfers', 'collectives', 'node'}
END

# ---- another device: parameters and what belongs to them are the same, the scratch of its kernels is its own ----
columns() { sed 's/ B\>//g' "$1" | awk '$1 == "stage" && $2 == "params" { getline; print $2, $3, $4, $5 }'; }
if [ -f "$ZUG_BUILD/zug-cuda.so" ]; then
  ok zplan show model.zsg $fits --exact
  cp out.txt cpu.txt
  ok zplan show model.zsg $fits --exact --device cuda
  [ -n "$(columns cpu.txt)" ] && [ "$(columns cpu.txt)" = "$(columns out.txt)" ] || { diff cpu.txt out.txt; fail "other parameters for CUDA"; }
  cmp -s cpu.txt out.txt && fail "the plan for CUDA is the CPU's"
else
  refuses 'cannot load zug-cuda.so: .*; configure --with-cuda' zplan show model.zsg $fits --device cuda
fi
exit 0
