# Layouts drawn at random: each trains as one rank does, with the bytes that were planned, or is refused by a code that says
# why, which is never that its plan fails its proof. LAYOUT_SEED and LAYOUTS in the environment draw others, and more of them.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi
command -v python3 >/dev/null || { echo "no python3"; exit 77; }
drawn=${LAYOUTS:-8} seed=${LAYOUT_SEED:-1}

ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin

# layouts GRAPH AXES SPLITS
layouts() {
  { echo 'recipe base { bind batch = 16, seq = 32   micro 8   optimizer adamw(lr = 1e-2) decay 0.1   clip 1.0 }'
    python3 "$ZUG_SRC/tests/scenarios/random_layouts.py" "$seed" "$drawn" 8 "$2" "$3"; } >"$1.zug"
  ok timeout -k 5 100 zrun train "$1.zsg" --recipe "$1.zug:base" --data text.bin --steps 3 --log one
  trained=0
  sed -n 's/^recipe \(x[0-9]*\) .* # \([0-9]*\)$/\1 \2/p' "$1.zug" >recipes
  while read -r recipe ranks; do
    if zplan check "$1.zsg" --recipe "$1.zug:$recipe" >out.txt 2>&1; then
      ok timeout -k 5 100 $(on "$ranks") zrun train "$1.zsg" --recipe "$1.zug:$recipe" --data text.bin --steps 3 --log x </dev/null
      says "planned == used"
      # f32 sums in another order, as tests/scenarios/layouts.sh has them
      "$ZUG_BUILD/tests/scenarios/tools/compare_runs" --loss 1e-5 --norm 1e-5 x/metrics.jsonl one/metrics.jsonl >diff.txt ||
        { cat diff.txt; grep "^recipe $recipe " "$1.zug"; fail "$1: it trains otherwise (LAYOUT_SEED=$seed)"; }
      rm -r x
      trained=$((trained + 1))
    else
      grep -q 'error.Z0[3-8]' out.txt || { cat out.txt; grep "^recipe $recipe " "$1.zug"; fail "$1: refused without a reason (LAYOUT_SEED=$seed)"; }
    fi
  done <recipes
  rm -r one
  echo "$1: $trained of $drawn train"
  [ $((3 * trained)) -ge "$drawn" ] || fail "$1: nearly all are refused"
}

ok zc "$ZUG_SRC/tests/data/models/resplit.zug" -o resplit.zsg
layouts resplit vocab,embed,ffn,head,hd,batch,seq
ok zc "$ZUG_SRC/examples/deepseek.zug" -o deepseek.zsg -D layers=3 -D dense=1 -D heads=4 -D width=32 -D inner=48 -D words=256 \
  -D plain=8 -D rotary=4 -D value=8 -D query_rank=12 -D key_rank=8 -D experts=8 -D active=2 -D small=16 -D groups=4 -D take=2
layouts deepseek stages,vocab,embed,ffn,sffn,head,batch,seq 'batch, expert; batch; head, ffn, sffn, vocab; seq; batch, expert, seq'
ok zc "$ZUG_SRC/examples/mamba2.zug" -o mamba2.zsg -D layers=2 -D width=32 -D heads=4 -D head_dim=16 -D state=8 -D words=256
layouts mamba2 stages,vocab,embed,head,batch,seq 'batch; head, vocab; seq, head'
