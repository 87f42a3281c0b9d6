# Tokens to their experts in rounds: losses and norms are those of the model in which all experts see all
# tokens, in every layout and however many rounds there are. What a rank plans is what it uses.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi
model=$ZUG_SRC/tests/data/models/moe.zug dense=$ZUG_SRC/tests/data/models/moe_dense.zug

ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin

# run RECIPE OPTION...: one of moe.zug's, against the dense model with these options
run() {
  recipe=$1
  shift
  ranks=$(echo "$recipe" | sed -n 's/.*_\([0-9]\)$/\1/p')
  ok zc "$model" -o moe.zsg "$@"
  ok timeout -k 5 100 $(on "${ranks:-1}") zrun train moe.zsg --recipe "$model:$recipe" --data text.bin --steps 5 --log "$recipe"
  says "planned == used"
  # f32 sums in another order, as tests/scenarios/layouts.sh has them. A choice that they turn would show as more.
  "$ZUG_BUILD/tests/scenarios/tools/compare_runs" --loss 1e-5 --norm 1e-5 "$recipe/metrics.jsonl" dense/metrics.jsonl >diff.txt || {
    cat diff.txt
    fail "$recipe $*"
  }
  printf '%-9s %s\n' "$recipe" "$(tail -n 1 diff.txt)"
  rm -r "$recipe"
}

dense() {
  rm -rf dense
  ok zc "$dense" -o dense.zsg "$@"
  ok timeout -k 5 100 zrun train dense.zsg --recipe "$dense:one" --data text.bin --steps 5 --log dense
}

dense
for recipe in $(sed -n 's/^recipe \([a-z0-9_]*\) .*/\1/p' "$model"); do
  [ "$recipe" = base ] || run "$recipe"
done

# all tokens to the last experts: nothing is lost, though a round has less than they get
dense -D hot=100 -D active=1
run one -D hot=100 -D active=1
run few -D hot=100 -D active=1
run all_8 -D hot=100 -D active=1
run experts_4 -D hot=100 -D active=1
run more_8 -D hot=100 -D active=1

# an expert that all tokens go to: what it does of the gradient of x is a part of a sum where dispatch's is not
dense -D shared=1
for recipe in one again tokens_2 data_2 experts_2 pipe_2 beside_4 tensor_4 five_8 more_8 all_8; do
  run "$recipe" -D shared=1
done

# ---- evaluation, alone and beside training, where experts are another rank's ----
ok zc "$model" -o moe.zsg
eval_loss() { sed -n 's/.*"eval_loss":\([^,}]*\).*/\1/p' "$1/metrics.jsonl" | tail -n 1; }
for recipe in one experts_2 five_8; do
  ranks=$(echo "$recipe" | sed -n 's/.*_\([0-9]\)$/\1/p')
  ok timeout -k 5 100 $(on "${ranks:-1}") zrun train moe.zsg --recipe "$model:$recipe" --data text.bin --steps 2 --log beside \
    --eval text.bin --eval-every 2 --eval-batches 3 --save weights.safetensors
  ok timeout -k 5 100 $(on "${ranks:-1}") zrun eval moe.zsg --recipe "$model:$recipe" --data text.bin --eval-batches 3 \
    --init weights.safetensors --log alone
  for log in beside alone; do
    wanted=${wanted:-$(eval_loss $log)}
    awk -v a="$(eval_loss $log)" -v b="$wanted" 'BEGIN { exit !(a > 0 && a - b < 1e-5 * b && b - a < 1e-5 * b) }' ||
      fail "$recipe, $log: $(eval_loss $log), wanted $wanted"
    rm -r $log
  done
done

# ---- what is refused, before anything is trained ----
no() { # PATTERN SPLIT: of a mesh of 2 ranks, d
  printf 'recipe no { bind batch = 8, seq = 16   micro 4   optimizer sgd(lr = 1)   mesh d = 2   %s }\n' "$2" >no.zug
  refuses "$1" zplan check moe.zsg --recipe no.zug:no
}
no 'Z0302.: `expert` cannot be split over `d`: its ranks have the same tokens' 'split expert over d'
no 'Z0302.: over `d` weights of experts would be split by `ffn`, not by `expert`' 'split ffn, batch, expert over d'
no 'name `expert` before `ffn`' 'split batch, ffn, expert over d'
no 'Z0302.: `slot` cannot be split over `d`: it counts rows of experts' 'split slot over d'
printf 'recipe may { bind batch = 8, seq = 16   micro 4   optimizer sgd(lr = 1)   mesh d = 2   split batch, expert, ffn over d }\n' >may.zug
ok zplan check moe.zsg --recipe may.zug:may

# and a layer that trains otherwise would show
ok zc "$model" -o moe.zsg
ok timeout -k 5 100 zrun train moe.zsg --recipe "$model:one" --data text.bin --steps 5 --log other
"$ZUG_BUILD/tests/scenarios/tools/compare_runs" --loss 1e-5 --norm 1e-5 other/metrics.jsonl dense/metrics.jsonl >diff.txt && fail "any choice will do"
exit 0
