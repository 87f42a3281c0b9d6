# States are updated once a step by sums over all its samples: they, losses and norms are the same in every layout and
# with micro-batches of any size; a checkpoint has them, and a run goes on from it bit for bit. What is frozen stays.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi
model=$ZUG_SRC/tests/data/models/states.zug

ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin
ok zc "$model" -o states.zsg
train() { # LOG RECIPE OPTION...; the number of ranks ends the recipe's name
  log=$1 recipe=$2
  shift 2
  ranks=$(echo "$recipe" | sed -n 's/.*_\([0-9]\)$/\1/p')
  ok timeout -k 5 100 $(on "${ranks:-1}") zrun train states.zsg --recipe "$model:$recipe" --data text.bin \
    --log "$log" "$@"
}
value() { # FILE NAME: the tensor's elements, a line each
  python3 - "$1" "$2" <<'END'
import json, struct, sys
with open(sys.argv[1], "rb") as f:
    head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
    start = f.tell()
    t = head[sys.argv[2]]
    a, b = t["data_offsets"]
    f.seek(start + a)
    assert t["dtype"] == "F32", t
    print("\n".join("%.9g" % x for x in struct.unpack("<%df" % ((b - a) // 4), f.read(b - a))))
END
}
near() { # FILE OTHER TOLERANCE: element by element
  paste "$1" "$2" | awk -v t="$3" '{ d = $1 - $2; if (d < 0) d = -d; if (d > t) { print NR, $0; bad = 1 } } END { exit bad || NR == 0 }'
}

train one one --steps 6 --save one.safetensors
for name in seen layer.0.bias layer.3.mean layer.3.square layer.3.last; do value one.safetensors $name >want.$name; done
# 6 steps of 16 sequences of 16 tokens were read
awk '{ n += $1 } END { exit n != 6 * 16 * 16 }' want.seen || fail "tokens were read $(awk '{ n += $1 } END { print n }' want.seen) times"
# each step is 0.02, up or down
awk '{ x = $1 / 0.02; n = int(x < 0 ? x - 0.5 : x + 0.5); d = x - n; if (d < 0) d = -d; if (d > 1e-4 || n > 6 || n < -6) exit 1; all += n < 0 ? -n : n } END { exit all == 0 }' \
  want.layer.0.bias || fail "$(cat want.layer.0.bias)"
value one.safetensors unused | grep -qv '^0$' && fail "a state without an update has changed"

for recipe in small data_2 zero1_4 zero3_4 experts_2 tokens_2 pipe_2 all_8; do
  train $recipe $recipe --steps 6 --save $recipe.safetensors
  # f32 sums in another order, as tests/scenarios/layouts.sh has them
  "$ZUG_BUILD/tests/scenarios/tools/compare_runs" --loss 1e-5 --norm 1e-5 $recipe/metrics.jsonl one/metrics.jsonl >diff.txt || { cat diff.txt; fail "$recipe"; }
  printf '%-9s %s\n' "$recipe" "$(tail -n 1 diff.txt)"
  for name in seen layer.0.bias layer.3.mean layer.3.square layer.3.last; do
    value $recipe.safetensors $name >got
    # means are of some thousand numbers of about 1; the others are exact, but for the step's 0.02
    near got want.$name 1e-5 || fail "$recipe: $name"
  done
done

# ---- a checkpoint has them ----
train first zero3_4 --steps 3 --ckpt ckpt --save half.safetensors
train second zero3_4 --steps 6 --ckpt ckpt --resume --save whole.safetensors
cmp whole.safetensors zero3_4.safetensors || fail "a run that went on is another"
ok timeout -k 5 100 zrun eval states.zsg --recipe "$model:one" --data text.bin --init one.safetensors --eval-batches 2

# ---- what is frozen stays; bf16 rounds what reads a state, not the state; averages go along ----
train frozen frozen --steps 4 --save frozen.safetensors
value frozen.safetensors layer.0.bias | grep -qv '^0$' && fail "a frozen state has changed"
value frozen.safetensors layer.0.square | grep -q '^1$' && fail "a state that is not frozen has not changed"
train half half --steps 6 --save half.safetensors
value half.safetensors seen >got
near got want.seen 0 || fail "bf16: seen"
train average average --steps 6 --save average.safetensors
value average.safetensors seen >got
near got want.seen 0 || fail "average: seen"
exit 0
