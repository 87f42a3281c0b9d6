# zrun calibrate measures this machine, and its cluster is one from which plans are timed; a run that is given a cluster says what
# was predicted. How near that comes is no matter of a test: machines that run tests do other things, too.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi

ok $MPIRUN -np 2 zrun calibrate -o here.zug
ok zc fmt --check here.zug

ok zc "$ZUG_SRC/examples/gpt2.zug" -o model.zsg -D layers=2 -D heads=4 -D width=64
cat >recipes.zug <<'END'
recipe one { bind batch = 8, seq = 32   micro 2   optimizer adamw(lr = 1e-3) }
recipe half from one { precision compute bf16 }
recipe pipe from one { mesh pipe = 2   stages over pipe by cost }
END
ok zdata pack "$ZUG_SRC/README.md" -o corpus.bin
ok zplan sim model.zsg --recipe recipes.zug:half --cluster here.zug
ok zplan sim model.zsg --recipe recipes.zug:pipe --cluster here.zug --json
seconds=$(sed -n 's/.*"seconds":\([0-9.e+-]*\).*/\1/p' out.txt)
ok $MPIRUN -np 2 zrun train model.zsg --recipe recipes.zug:pipe --data corpus.bin --steps 4 --cluster here.zug --log pipe \
  --trace run.json --trace-steps 3-4
says '^predicted [0-9.e+-]+ ms a step; in the mean it took [0-9.e+-]+ \([+-][0-9]+ %\), computing .*, waiting for others .*: mostly (computing|waiting) was off'
awk -v s="$seconds" '{ match($0, /"predicted_ms":[0-9.e+-]+/); p = substr($0, RSTART + 15, RLENGTH - 15) + 0
  if (!(p > 0) || p / (1e3 * s) - 1 > 1e-6 || p / (1e3 * s) - 1 < -1e-6) exit 1 }' pipe/metrics.jsonl ||
  fail "metrics have not what zplan sim predicts"

# ---- the predicted step beside the measured ones ----
ok zplan compare model.zsg --recipe recipes.zug:pipe --cluster here.zug --run run.json --trace both.json
says '^a step: [0-9.e+-]+ ms predicted, [0-9.e+-]+ ms measured \([+-][0-9.]+ %\)$'
# Which ten differ most is not known beforehand; that a line adds up is (three digits behind the point are printed).
awk '/^ *[01]  / { n = NF; d = $(n - 1) - $(n - 2) - $n; if ($(n - 3) < 1 || d > 0.002 || d < -0.002) exit 1 }' out.txt ||
  { cat out.txt; fail "a difference is not measured less predicted"; }
[ "$(grep -c '^ *[01]  ' out.txt)" = 10 ] || { cat out.txt; fail "not ten differences"; }
awk '/^ *[01]  / { d = $NF < 0 ? -$NF : $NF; if (NR > 5 && d > before) exit 1; before = d }' out.txt || fail "not the largest first"
ok "$ZUG_BUILD/tests/scenarios/tools/check_trace" both.json
for what in 'rank 0 stage 0 step 3' 'rank 1 stage 1 step 4' 'rank 2 stage 0 step 1' 'rank 3 stage 1 step 1'; do says "$what"; done
refuses 'the trace is of 2 ranks, recipe one is for 1' zplan compare model.zsg --recipe recipes.zug:one --cluster here.zug --run run.json
cp run.json kept.json
refuses '--trace ./run.json would overwrite run.json, from which it is made' \
  zplan compare model.zsg --recipe recipes.zug:pipe --cluster here.zug --run run.json --trace ./run.json
cmp run.json kept.json || fail "the run's trace is lost"
refuses 'is not a trace of zrun' zplan compare model.zsg --recipe recipes.zug:pipe --cluster here.zug --run corpus.bin
refuses 'zplan compare needs --run FILE' zplan compare model.zsg --recipe recipes.zug:pipe --cluster here.zug
refuses 'zplan compare needs --cluster FILE:NAME' zplan compare model.zsg --recipe recipes.zug:pipe --run run.json

ok zplan search model.zsg --cluster here.zug --batch 8 --seq 32 -o best.zug

# Of a cluster that says too little it is said.
echo 'cluster small { device memory 1 GB  level box 2, link 1 GB/s }' >small.zug
ok zrun train model.zsg --recipe recipes.zug:one --data corpus.bin --steps 1 --cluster small.zug --log none
says '^note: cluster small does not say what times are made from: `zplan sim` lists it'
grep -q predicted none/metrics.jsonl && fail "predicted from nothing"

mistake 'recipes.zug exists and is not a cluster of zrun calibrate' zrun calibrate -o recipes.zug

# ---- a GPU: one that is a thread (tests/scenarios/cuda/gpu.h), whose kernels are the CPU's here ----
emu="$ZUG_BUILD/tests/scenarios/cuda/zrun-emu"
[ -x "$emu" ] || exit 0
export ZUG_TEST_CPU=1
ok "$emu" calibrate -o gpu.zug --device cuda
says 'device bf16 [0-9.e+]+ TFLOPS, tf32 [0-9.e+]+ TFLOPS, hbm [0-9.e+]+ GB/s, sms [0-9]+'
says 'host memory .*, link [0-9.e+-]+ GB/s'
ok zplan sim model.zsg --recipe recipes.zug:half --cluster gpu.zug
