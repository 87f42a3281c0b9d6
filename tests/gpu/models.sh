# Models train on the GPU as they do on the CPU. Sums are added in other orders: in f32 losses of 10 steps agree to 1e-4 and
# norms to 1e-3 (AdamW takes steps of the size of its rate even where a gradient is little but rounding errors). In bf16, as
# tests/mpi/precision.sh explains, to 1e-2 and 2e-2.
. "$ZUG_SRC/tests/lib.sh"
need_gpu
cat >models.zug <<'END'
recipe lm       { bind batch = 8, seq = 64   micro 4   optimizer adamw(lr = 1e-3, warmup = 4) decay 0.1 except norm, bias   clip 1.0 }
recipe lm_half  from lm { precision compute bf16 }
recipe mlp      { bind batch = 16   optimizer sgd(lr = 0.1, momentum = 0.9) }
recipe mlp_half from mlp { precision compute bf16 }
END
awk 'BEGIN { print "x,y,inside"; for (i = 0; i < 400; i++) { x = (i * 37 % 101) / 50 - 1; y = (i * 61 % 103) / 51 - 1
  print x "," y "," (x * x + y * y < 0.5) } }' >circle.csv
ok zdata table circle.csv -o circle.bin --label inside --field image --label-field label
ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin
lm="-D layers=3 -D heads=4 -D width=128 -D words=250" # a vocabulary that no vector divides
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg $lm -D context=64
ok zc "$ZUG_SRC/examples/llama3.zug" -o llama3.zsg $lm -D kv_heads=2 -D inner=192
ok zc "$ZUG_SRC/examples/mlp.zug" -o mlp.zsg -D inputs=2 -D hidden=16 -D classes=2

run() { # LOG DEVICE GRAPH RECIPE DATA
  ok timeout -k 5 200 $MPIRUN -np 1 zrun train "$3" --recipe "models.zug:$4" --data "$5" --steps 10 --device "$2" --log "$1"
}
for each in gpt2:lm:text llama3:lm:text mlp:mlp:circle; do
  model=${each%%:*} data=${each##*:} recipe=${each#*:} recipe=${recipe%:*}
  for half in "" _half; do
    loss=1e-4 norm=1e-3
    [ -z "$half" ] || loss=1e-2 norm=2e-2
    run cpu$half cpu "$model.zsg" "$recipe$half" "$data.bin"
    run cuda$half cuda "$model.zsg" "$recipe$half" "$data.bin"
    arena=$(sed -n 's/^planned == used: \(.*\) on rank 0.*/\1/p' out.txt) # which zplan knows beforehand, without a GPU
    ok zplan show "$model.zsg" --recipe "models.zug:$recipe$half" --device cuda
    says "^ +0 .* $arena\$"
    echo "$model$half"
    "$ZUG_BUILD/tests/tools/compare_runs" --loss $loss --norm $norm cuda$half/metrics.jsonl cpu$half/metrics.jsonl >diff.txt || {
      cat diff.txt
      fail "$model$half: the GPU trains differently"
    }
    tail -1 diff.txt
    rm -r cpu$half cuda$half
  done
done
exit 0
