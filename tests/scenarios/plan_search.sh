# zplan search: what it writes is what it promised, what a recipe gives stays, and it says what is missing.
. "$ZUG_SRC/tests/scenarios/lib.sh"

clusters=$ZUG_SRC/examples/clusters.zug
ok zc "$ZUG_SRC/examples/llama3.zug" -o llama.zsg
ok zc "$ZUG_SRC/examples/llama3.zug" -o 405b.zsg -D layers=126 -D heads=128 -D width=16384 -D inner=53248

# ---- the formulas that weigh, against plans and the event loop; the recipe that is written ----
# check MODEL CLUSTER ARGUMENTS...
check() {
  graph=$1 cluster=$2
  shift 2
  ok zplan search "$graph" --cluster "$cluster" "$@" --json -o best.zug
  cp out.txt found.json
  ok zc fmt --check best.zug
  ok zplan sim "$graph" --recipe best.zug --cluster "$cluster" --json
  grep -q warning out.txt && fail "the recipe is warned of"
  cp out.txt sim.json
  ok zplan show "$graph" --recipe best.zug --json
  python3 - "$graph $*" <<'END' || fail "search, $graph $*"
import json, sys
f, t, p = (json.load(open(x)) for x in ('found.json', 'sim.json', 'out.txt'))
best = f['best']
assert best and f['recipes'] >= f['weighed'] >= f['fit'] > 0, f
assert best[0]['seconds'] == t['seconds'] and best[0]['mfu'] == t['mfu']
assert best[0]['bytes'] == max(s['device_bytes']['arena'] for s in p['stages'])
assert [b['seconds'] for b in best] == sorted(b['seconds'] for b in best)
for b in best:
    ranks = 1
    for n in b['mesh'].values(): ranks *= n
    assert ranks == f['ranks'] and b['bytes'] <= f['limit'], b
    # It only ranks: at least twice as many are simulated as are listed.
    assert .6 < b['ranked_seconds'] / b['seconds'] < 1.3, (b['mesh'], b['ranked_seconds'], b['seconds'])
    assert abs(sum(b['parts'].values()) - b['seconds']) < 1e-6 * b['seconds']
    if b['schedule'] != '1f1b': continue # the formulas are those of 1f1b
    # Scalars, what buckets are rounded up to for their shards, and what is kept as memory allows are not in the formula.
    assert 0 <= b['least_bytes'] - b['ranked_bytes'] < 1e-4 * b['bytes'] + 1e5, (b['least_bytes'], b['ranked_bytes'])
    assert b['least_bytes'] <= b['bytes']
print(sys.argv[1], best[0]['mesh'], best[0]['seconds'])
END
}
check llama.zsg "$clusters:h100" --ranks 64 --batch 256 --seq 8192 --keep 4
check llama.zsg "$clusters:a100" --ranks 32 --batch 64 --seq 4096 --keep 4
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg
check gpt2.zsg "$clusters:rtx4090" --ranks 4 --batch 16 --seq 512 --keep 4
# All of the table, as recipes.
ok zplan search gpt2.zsg --cluster "$clusters:rtx4090" --ranks 4 --batch 16 --seq 512 --keep 4 --all -o all.zug
ok zc fmt --check all.zug
grep -q '^# [0-9.]* [a-z]*, [0-9.]* % slower: ' all.zug || { cat all.zug; fail "no reason of a slower one"; }
for name in best best_2 best_3 best_4; do
  ok zplan sim gpt2.zsg --recipe all.zug:$name --cluster "$clusters:rtx4090" --json
  cp out.txt $name.json
done
python3 - <<'END' || fail "other recipes than those of the table"
import json
best = json.load(open('found.json'))['best']
assert len(best) == 4
for b, name in zip(best, ('best', 'best_2', 'best_3', 'best_4')):
    assert json.load(open(name + '.json'))['seconds'] == b['seconds'], name
END
refuses '--all needs -o FILE' zplan search gpt2.zsg --cluster "$clusters:rtx4090" --ranks 4 --batch 16 --seq 512 --all
refuses 'zplan sim takes no option --all; it belongs to search' zplan sim gpt2.zsg --recipe all.zug:best --cluster "$clusters:rtx4090" --all
# What the formula leaves out of the event loop would not have been better.
cp found.json few.json
ok zplan search gpt2.zsg --cluster "$clusters:rtx4090" --ranks 4 --batch 16 --seq 512 --keep 200 --json
cp out.txt many.json
python3 - <<'END' || fail "what is simulated is not the best"
import json
few, many = (json.load(open(x))['best'] for x in ('few.json', 'many.json'))
assert len(many) > 5 * len(few)
assert few[0]['seconds'] <= 1.01 * many[0]['seconds'], (few[0], many[0])
END
check 405b.zsg "$clusters:h100" --batch 2048 --seq 8192 --keep 3
grep -q 'stages\|shard params' best.zug || fail "405B in one piece"
# Where a pipeline is short of micro-batches it pays to interleave; `best` and its plan are those that were promised.
grep -q '^  schedule interleaved' best.zug || { cat best.zug; fail "405B waits for its pipeline"; }
sed 's/^  schedule interleaved/  schedule 1f1b/; s/^  stages over pipe = .*/  stages over pipe by cost/' best.zug >plain.zug
ok zplan sim 405b.zsg --recipe plain.zug --cluster "$clusters:h100" --json
mv out.txt plain.json
python3 -c 'import json
assert json.load(open("sim.json"))["seconds"] < json.load(open("plain.json"))["seconds"]' || fail "1f1b is faster"

# ---- experts and long sequences ----
ok zc "$ZUG_SRC/examples/mixtral.zug" -o mixtral.zsg -D layers=16 -D experts=64
check mixtral.zsg "$clusters:h100" --ranks 64 --batch 512 --seq 4096 --keep 4
grep -q 'split batch, expert over ep' best.zug || { cat best.zug; fail "Mixtral without expert parallelism"; }
check llama.zsg "$clusters:h100" --ranks 64 --batch 32 --seq 131072 --keep 4
grep -q 'split seq over context' best.zug && grep -Eq '^  attention (gather|heads|ring) over context' best.zug ||
  { cat best.zug; fail "131,072 tokens on one rank"; }
# What is given of it stays; `?` is completed.
cat >long.zug <<'END'
recipe long for Llama3 {
  mesh data = ?, tensor = ?, context = ?
  bind batch = 32, seq = 131072
  micro ?
  precision compute bf16
  split batch over data
  split seq over context
  attention ? over context
  split kv, ffn, vocab over tensor
  shard ? over data
  shard ? over context
  recompute ?
  optimizer adamw(lr = 1e-4)
}
recipe heads from long { mesh data = 2, tensor = ?, context = 4   attention heads }
END
ok zplan search llama.zsg --cluster "$clusters:h100" --recipe long.zug:long --ranks 64 -o best.zug
grep -Eq '^  attention (gather|heads|ring) over context' best.zug || { cat best.zug; fail "which way"; }
ok zplan check llama.zsg --recipe best.zug
ok zplan search llama.zsg --cluster "$clusters:h100" --recipe long.zug:heads --ranks 64 -o best.zug
grep -q '^  attention heads' best.zug || fail "a way that was given"
refuses 'error.Z0814.: recipe `long` leaves open' zplan show llama.zsg --recipe long.zug:long

# ---- a table, with reasons ----
ok zplan search llama.zsg --cluster "$clusters:h100" --ranks 64 --batch 256 --seq 8192 --keep 3
says 'MFU +slower +because$'
says ' the best$'
says '[0-9.]+%  [a-z]+ \+[0-9.]+ m?s'

# ---- what a recipe gives stays ----
cat >partial.zug <<'END'
recipe some for Llama3 {
  mesh pipe = ?, data = ?, tensor = 8
  bind batch = 256, seq = 8192
  micro ?
  precision compute bf16
  split batch over data
  split kv, ffn, vocab over tensor else seq
  stages over pipe by cost
  shard states over data
  recompute Layer.mlp
  optimizer adamw(lr = 1e-4, warmup = 100, anneal = cosine, until = 1000) decay 0.1 except norm, bias, rate 2 for embed_in
  optimizer sgd(lr = 0.1) for embed_out
  clip 0.5
  average 0.999
  limit memory 60 GB
}
recipe whole from some { mesh pipe = 2, data = 4, tensor = 8   micro 2 }
END
ok zplan search llama.zsg --cluster "$clusters:h100" --recipe partial.zug:some --ranks 64 -o best.zug
refuses '-o ./best.zug would overwrite best.zug, from which it is made' zplan search llama.zsg --cluster "$clusters:h100" --recipe best.zug \
  --ranks 64 -o ./best.zug
for line in 'mesh .*tensor = 8' 'split kv, ffn, vocab over tensor else seq' 'shard states over data' 'recompute Layer.mlp' \
  'optimizer sgd\(lr = 0.1\) for embed_out' 'rate 2 for embed_in' 'average 0.999' 'clip 0.5' 'limit memory 60 ?GB|limit memory 60000000000 B'; do
  grep -Eq "$line" best.zug || { cat best.zug; fail "the recipe lost: $line"; }
done
ok zc fmt --check best.zug
ok zplan check llama.zsg --recipe best.zug --cluster "$clusters:h100"
ok zplan search llama.zsg --cluster "$clusters:h100" --recipe partial.zug:whole # nothing is open: what it is
says '^  pipe 2, data 4, tensor 8 '
refuses 'error.Z0814.: recipe `some` leaves open' zplan show llama.zsg --recipe partial.zug:some
says 'zplan search GRAPH.zsg --recipe FILE:some'
cat >chunked.zug <<'END'
recipe chunked { mesh data = ?, tensor = ?   bind batch = 64, seq = 96   micro ?   precision compute bf16, reduce bf16   split batch over data
  split kv, ffn, vocab over tensor else seq   shard ? over data   chunk vocab = 48   prefetch 2   optimizer adamw(lr = 1e-4) }
END
ok zplan search llama.zsg --cluster "$clusters:h100" --recipe chunked.zug:chunked --ranks 8 -o chunked-best.zug # of tensor 4 a rank has 24
for line in 'chunk vocab = 48' 'reduce bf16'; do grep -q "$line" chunked-best.zug || fail "the recipe lost: $line"; done
ok zplan check llama.zsg --recipe chunked-best.zug --cluster "$clusters:h100"
if [ -n "$MPIRUN" ] && [ -x "$ZUG_BUILD/zrun" ]; then
  refuses 'error.Z0814.' zrun train llama.zsg --recipe partial.zug:some --data llama.zsg --steps 1
fi

cat >two.zug <<'END'
recipe two { mesh a = ?, b = 2   bind batch = 8, seq = 64   split kv over a   split ffn over b   optimizer sgd(lr = 1) }
recipe idle { mesh data = ?, x = 2   bind batch = 8, seq = 64   split batch over data   optimizer sgd(lr = 1) }
recipe stored { mesh data = ?   bind batch = 8, seq = 64   shard ? over data   optimizer sgd(lr = 1) }
recipe one { mesh tensor = ?, data = 1   bind batch = 8, seq = 64   split kv, ffn over tensor   optimizer sgd(lr = 1) }
recipe whole { mesh data = 2, context = ?   bind batch = 8, seq = 64   split batch over data   split seq over context   attention ring
  optimizer sgd(lr = 1) }
recipe odd { mesh tensor = 3, data = ?   bind batch = 8, seq = 64   split kv over tensor   split batch over data   optimizer sgd(lr = 1) }
END
refuses 'error.Z0808.: `a` and `b` do the same' zplan search llama.zsg --cluster "$clusters:h100" --recipe two.zug:two
refuses 'error.Z0306.: mesh dimension `x` splits nothing' zplan search llama.zsg --cluster "$clusters:h100" --recipe two.zug:idle
ok zplan search llama.zsg --cluster "$clusters:h100" --recipe two.zug:one --ranks 2
ok zplan search llama.zsg --cluster "$clusters:h100" --recipe two.zug:whole --ranks 2 -o best.zug # no rank is left for `context`
ok zplan check llama.zsg --recipe best.zug
! grep -Eq '^  attention|no effect' best.zug out.txt || fail "a way over a sequence that is not split"
refuses 'error.Z0306.: mesh dimension `data` splits nothing' zplan search llama.zsg --cluster "$clusters:h100" --recipe two.zug:stored
refuses 'error.Z0805.: 64 ranks are no multiple of the mesh that is given, of 3' zplan search llama.zsg --cluster "$clusters:h100" --recipe two.zug:odd --ranks 64

# ---- nothing fits ----
refuses 'nothing fits into 75.0 GB a device' zplan search 405b.zsg --cluster "$clusters:h100" --ranks 8 --batch 64 --seq 8192
says '^nearest comes .*: stage [0-9]+ needs [0-9.]+ [GT]B, [0-9.]+ [GT]B too many: .*states [0-9.]+ [GT]B'

# ---- odd wishes ----
# Of 64 ranks a recipe without `data` cannot use more than heads or layers: that has nothing to do with memory.
cat >narrow.zug <<'END'
recipe heads { mesh tensor = ?   bind batch = 64, seq = 64   micro 1   split ? over tensor   optimizer sgd(lr = 1) }
recipe listed { mesh pipe = 2   bind batch = 64, seq = 64   micro 1   stages over pipe = [1, 2]   optimizer sgd(lr = 1) }
recipe layers { mesh pipe = ?   bind batch = 64, seq = 64   micro 1   stages over pipe = ?   optimizer sgd(lr = 1) }
END
for recipe in heads layers; do
  refuses '^no mesh of 64 ranks divides' zplan search gpt2.zsg --cluster "$clusters:h100" --recipe narrow.zug:$recipe --ranks 64
  says '^0 meshes, 0 recipes'
done
refuses '^none can be planned: stages over pipe places 3 layers; model GPT2 repeats 12$' zplan search gpt2.zsg --cluster "$clusters:h100" \
  --recipe narrow.zug:listed
refuses '^no mesh of 13 ranks divides' zplan search gpt2.zsg --cluster "$clusters:h100" --ranks 13 --batch 7 --seq 512
ok zplan search gpt2.zsg --cluster "$clusters:h100" --ranks 12 --batch 7 --seq 512 --keep 1
# A vocabulary that two ranks can split and four cannot stays whole on four.
ok zc "$ZUG_SRC/examples/gpt2.zug" -o even.zsg -D words=50258 -D layers=2
ok zplan search even.zsg --cluster "$clusters:h100" --ranks 4 --batch 1 --seq 512 --keep 20
says '^  tensor 4 '
# Neither what does not divide the ranks nor a micro-batch that does not divide a rank's samples is tried for ever.
cat >micro.zug <<'END'
recipe three { mesh data = ?  bind batch = 12, seq = 64  micro 3  split batch over data  optimizer sgd(lr = 1) }
cluster large {
  device f32 1 TFLOPS, memory 80 GB, stream 1 GB/s, products 0.5, attention 0.5, attention_grad 0.5, launch 2 us, steal 0.1
  level box 8000000, link 10 GB/s, latency 1 us, start 1 us, ramp 1 us
}
END
few() { (ulimit -t 5 && exec zplan search gpt2.zsg --cluster micro.zug:large "$@"); }
few --ranks 8000000 --batch 16 --seq 512 >out.txt 2>&1 && fail "16 samples over 8000000 ranks"
says '^no mesh of 8000000 ranks divides'
few --recipe micro.zug:three --ranks 3 >out.txt 2>&1 && fail "micro-batches of 3 of 4 samples"
says '^none can be planned: 4 samples of a rank are no multiple of a micro-batch of 3$'
ok zplan search gpt2.zsg --cluster "$clusters:h100" --ranks 1 --batch 7 --seq 512
says '^  one rank +7 '
ok zc "$ZUG_SRC/examples/t5.zug" -o t5.zsg -D layers=2
refuses 'model T5 has a data axis `src2`; add --bind src2=N, its size' zplan search t5.zsg --cluster "$clusters:h100" --ranks 4 --batch 16 --bind src=128
refuses 'model T5 has no data axis `seq`; it has `batch`, `src`' zplan search t5.zsg --cluster "$clusters:h100" --ranks 4 --batch 16 --seq 5 \
  --bind src=128 --bind src2=128 --bind tgt=64 --bind tgt2=64
ok zplan search t5.zsg --cluster "$clusters:h100" --ranks 4 --batch 16 --bind src=128 --bind src2=128 --bind tgt=64 --bind tgt2=64 --keep 2
refuses 'bind takes AXIS=N' zplan search t5.zsg --cluster "$clusters:h100" --batch 16 --bind src
cat >none.zug <<'END'
recipe none from long { mesh data = 2, tensor = 1, context = 16   attention heads over context   micro 1 }
END
sed -i 's/^recipe none from long/use long\n&/; s/from long /from long.long /' none.zug
refuses 'no axis of the keys. heads divides over' zplan search llama.zsg --cluster "$clusters:h100" --recipe none.zug:none

# ---- what it needs ----
refuses 'zplan search needs --cluster FILE:NAME' zplan search llama.zsg --batch 8
refuses 'search needs --batch N' zplan search llama.zsg --cluster "$clusters:h100"
refuses 'binds the sizes; give it, or --batch, --seq and --bind, not both' zplan search llama.zsg --cluster "$clusters:h100" \
  --recipe partial.zug:some --batch 16
refuses 'takes no option --ranks; it belongs to search' zplan show llama.zsg --recipe partial.zug:whole --ranks 4
refuses '--ranks cannot be .0.; give a whole number from 1 to' zplan search llama.zsg --cluster "$clusters:h100" --batch 8 --ranks 0
refuses 'error.Z0310.: 20000 ranks, but cluster h100 has 16384 devices' zplan search llama.zsg --cluster "$clusters:h100" --ranks 20000 --batch 256 --seq 128
refuses 'has a data axis `seq`; add --seq N' zplan search llama.zsg --cluster "$clusters:h100" --ranks 4 --batch 16
printf 'cluster silent { device bf16 100 TFLOPS, memory 80 GB  level box 8, link 10 GB/s }\ncluster dumb { device bf16 1 TFLOPS }\n' >silent.zug
refuses 'error.Z0813' zplan search llama.zsg --cluster silent.zug:silent --batch 16 --seq 128
says '`stream` of its device'
refuses 'error.Z0813' zplan search llama.zsg --cluster silent.zug:dumb --batch 16 --seq 128
says '`memory` of its device'
echo 'recipe mine { }' >best.zug
refuses 'is not a recipe of zplan search: it is not replaced' zplan search llama.zsg --cluster "$clusters:h100" --ranks 64 --batch 256 --seq 8192 -o best.zug
