# The average of parameters over the steps: what the values of all steps give, in every layout; kept in checkpoints, and
# written by `zckpt weights --average`. Frozen parameters have none, and are what they are.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi

ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg -D layers=4 -D heads=4 -D width=32 -D context=32 -D words=127
sed 's/ kv,//' "$ZUG_SRC/tests/data/models/layouts.zug" | sed '/^recipe gqa/,$d' | sed 's/recipe base {/recipe base {\n  average 0.75/' >recipes.zug
cat >>recipes.zug <<'END'
recipe frozen_2 from zero3_2 { freeze wte   precision compute bf16 }
recipe none_2 from zero3_2 { average 0 }
recipe mixed_2 from zero3_2 { optimizer sgd(lr = 0.1) for norm   optimizer lion(lr = 1e-4) for bias }
END
train() { # RECIPE OPTION...
  recipe=$1
  shift
  ranks=$(echo "$recipe" | sed -n 's/.*[^0-9]\([0-9]\)$/\1/p')
  ok timeout -k 5 100 $(on "${ranks:-1}") zrun train gpt2.zsg --recipe "recipes.zug:$recipe" --data text.bin "$@"
}

# f32: each step rounds three times, 1e-7 of values below 1
cat >judge.py <<'END'
import json, struct, sys
from array import array
def read(path):
    text = open(path, "rb").read()
    n = struct.unpack("<Q", text[:8])[0]
    head = json.loads(text[8 : 8 + n])
    return {k: array("f", text[8 + n + v["data_offsets"][0] : 8 + n + v["data_offsets"][1]]) for k, v in head.items() if k != "__metadata__"}
frozen, steps, average = sys.argv[1].split(","), sys.argv[2:-1], read(sys.argv[-1])
want = read(steps[0])
for path in steps[1:]:
    now = read(path)
    for k in want:
        want[k] = [0.75 * a + 0.25 * w for a, w in zip(want[k], now[k])]
assert sorted(want) == sorted(average)
moved = 0
for k in want:
    for a, b in zip(want[k], average[k]):
        assert abs(a - b) <= 1e-6, (k, a, b)
    moved += k not in frozen and list(average[k]) != list(now[k])
    assert k not in frozen or average[k] == now[k], k
assert moved > 30, moved
END
for recipe in one zero1_2 zero3_2 all_zero3_8 mixed_2 frozen_2; do
  train $recipe --steps 0 --save begun.safetensors
  for step in 1 2 3; do train $recipe --steps $step --save $step.safetensors; done
  train $recipe --steps 4 --save 4.safetensors --ckpt ckpt
  values='begun.safetensors 1.safetensors 2.safetensors 3.safetensors 4.safetensors'
  ok zckpt weights ckpt/step-00000004 -o average.safetensors --average
  says ', averaged$'
  python3 judge.py "$([ $recipe = frozen_2 ] && echo wte)" $values average.safetensors || fail "$recipe: another average"
  ok zckpt verify ckpt/step-00000004
  rm -r ckpt
done

# ---- a run goes on with it; another number of ranks, too ----
train zero3_2 --steps 6 --ckpt whole
train zero3_2 --steps 3 --ckpt ckpt
cp -r ckpt other
train zero3_2 --steps 6 --ckpt ckpt --resume
ok zckpt diff whole/step-00000006 ckpt/step-00000006 --states
train one --steps 6 --ckpt other --resume
for run in whole other; do ok zckpt weights $run/step-00000006 -o $run.safetensors --average; done
ok "$ZUG_BUILD/tests/scenarios/tools/compare_runs" --abs 1e-4 whole.safetensors other.safetensors
ok timeout -k 5 60 $MPIRUN -np 2 zrun eval gpt2.zsg --recipe recipes.zug:zero3_2 --data text.bin --init whole.safetensors

# ---- without one ----
train none_2 --steps 1 --ckpt none
refuses 'has no average of the parameters' zckpt weights none/step-00000001 -o x.safetensors --average
refuses 'has no optimizer state `average`' $MPIRUN -np 2 zrun train gpt2.zsg --recipe recipes.zug:zero3_2 --data text.bin --steps 2 \
  --ckpt none --resume
exit 0
