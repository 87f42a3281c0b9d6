# zrun generate without a recipe on several ranks: it finds a layout, says it, keeps it, and writes what one rank writes.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi

echo 'recipe initial { bind batch = 1, seq = 16   optimizer sgd(lr = 1e-3) }' >r.zug
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg -q -D layers=2 -D heads=2 -D width=32 -D context=64 -D words=256
ok zrun train gpt2.zsg --recipe r.zug:initial --steps 0 --save w.safetensors --quiet
gen="zrun generate gpt2.zsg --init w.safetensors --prompt seldom --max-tokens 12"
ranks() { # N OPTION...: its texts, in texts; what else it says, in said
  n=$1
  shift
  timeout -k 5 60 $MPIRUN -np "$n" $gen "$@" >texts 2>said || { cat said; fail "$n ranks: $*"; }
}
$gen --quiet >one || fail "one rank"
ranks 2 --recipe-out kept.zug
cmp one texts || fail "two ranks write something else"
grep -q 'the best' said && grep -q 'zrun calibrate. measures' said || { cat said; fail "the table is not said"; }
ok zc fmt --check kept.zug
ranks 2 --recipe kept.zug --quiet
cmp one texts || fail "the recipe that was kept writes something else"
# A measured cluster decides: where what ranks send each other takes for ever, replicas send nothing, and stages least.
cat >slow.zug <<'END'
cluster slow {
  device memory 1 GB, f32 10 GFLOPS, products 0.8, attention 0.4, stream 10 GB/s, launch 1 us, steal 0.1
  level box 2, link 1 MB/s, latency 1 ms, start 1 ms, ramp 1 us
}
END
ranks 2 --cluster slow.zug --dry-run
grep -q '^  data 2 .*the best' said && grep -A1 'the best' said | grep -q '^  pipe 2 ' || { cat said; fail "tensor ranks on a slow link"; }
grep -q 'zrun calibrate' said && fail "a measured cluster is not known as one"
sed 's/memory 1 GB/memory 100 kB/' slow.zug >small.zug
mistake 'no layout of model GPT2 over 2 ranks will do: the nearest does not fit: .* of 93.8 kB' $MPIRUN -np 2 $gen --cluster small.zug
