# The engine's streams: on a device whose calls only queue their work (tests/scenarios/tools/device_threads.c) every layout must give
# the very numbers of the CPU. That the comparison sees a missing event is shown by leaving out all of them.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_mpi

same="$ZUG_BUILD/tests/scenarios/tools/compare_runs --loss 0 --norm 0"
ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg -D layers=4 -D heads=4 -D width=32 -D context=32 -D words=127
sed 's/ kv,//' "$ZUG_SRC/tests/data/models/layouts.zug" | sed '/^recipe gqa/,$d' >recipes.zug

steps=3
run() { # 'PROGRAM' DEVICE RECIPE RANKS LOG OPTION...
  program=$1 device=$2 recipe=$3 ranks=$4 log=$5
  shift 5
  ok timeout -k 5 100 $(on "$ranks") $program train gpt2.zsg --recipe "recipes.zug:$recipe" --data text.bin --steps $steps \
    --device "$device" --log "$log" $more "$@"
}

more='--eval text.bin --eval-batches 2'
for each in one:1 zero1_2:2 zero3_2:2 keep_4:4 tensor2:2 seq2:2 pipe2:2 few4:4 all8:8; do
  recipe=${each%:*} ranks=${each#*:}
  grep -q "^recipe $recipe " recipes.zug || fail "no recipe $recipe"
  run zrun cpu "$recipe" "$ranks" cpu
  run "$ZUG_BUILD/tests/scenarios/tools/zrun-threads" threads "$recipe" "$ranks" threads
  [ "$ranks" -eq 1 ] || says "^ranks exchange by way of the host's memory: there is no communicator for this device$"
  [ "$ranks" -eq 1 ] || says '^each step is queued anew: ranks exchange by way of the host; that is about [0-9]* calls'
  says "^device memory beside the arena$([ "$ranks" -eq 1 ] || echo ', with that of other ranks there'): 100.0 MB taken at first, 50.0 MB for prepared calls, 10.0 MB for communicators; 690.0 MB of 1.0 GB left$"
  $same threads/metrics.jsonl cpu/metrics.jsonl >diff.txt || { cat diff.txt; fail "$recipe: other numbers on streams"; }
  tail -n 1 cpu/metrics.jsonl | sed 's/,"eval_ms":[^,]*//' >cpu.eval
  tail -n 1 threads/metrics.jsonl | sed 's/,"eval_ms":[^,]*//' | cmp - cpu.eval || fail "$recipe: another evaluation on streams"
  grep -q 'wait_ms\|bubble' threads/metrics.jsonl && fail "what the host waits is said of another device"
  rm -r cpu threads
done

# ---- what is frozen has bf16 values alone: they are drawn, read, saved and copied on their way to a device ----
cat >>recipes.zug <<'END'
recipe frozen from zero3_2 { freeze all except layer.attn   precision compute bf16   average 0.75 }
END
run zrun cpu frozen 2 cpu --save cpu.safetensors --ckpt cpu.ckpt
run "$ZUG_BUILD/tests/scenarios/tools/zrun-threads" threads frozen 2 threads --save threads.safetensors --ckpt threads.ckpt
$same threads/metrics.jsonl cpu/metrics.jsonl >diff.txt || { cat diff.txt; fail "other numbers on streams"; }
cmp cpu.safetensors threads.safetensors || fail "frozen: other weights are saved"
ok zckpt diff cpu.ckpt/step-00000003 threads.ckpt/step-00000003 --states
says "^164 of 164 tensors are the same"
rm -r cpu threads
run "$ZUG_BUILD/tests/scenarios/tools/zrun-threads" threads frozen 2 threads --init cpu.safetensors --save again.safetensors --steps 0
cmp cpu.safetensors again.safetensors || fail "frozen: weights do not come back as they were"

# ---- a captured step: what a rank alone does in its second step is done again in the third ... Its numbers are right only if
# whatever differs from step to step comes from memory: inputs, the rate while it rises, AdamW's corrections, what is dropped ----
sed 's/return x + Mlp(\(.*\)) as mlp/return x + nn.dropout(Mlp(\1) as mlp, p = 0.1)/' "$ZUG_SRC/examples/gpt2.zug" >drops.zug
grep -q 'nn.dropout(Mlp' drops.zug || fail "no dropout in the model"
ok zc drops.zug -o gpt2.zsg -D layers=2 -D heads=4 -D width=32 -D context=32 -D words=127
cat >>recipes.zug <<'END'
recipe adamw from one { optimizer adamw(lr = 1e-2, warmup = 5) }
recipe sgd   from one { optimizer sgd(lr = 0.1, momentum = 0.9, warmup = 5) }
recipe muon  from one { optimizer adamw(lr = 1e-2, bits = 8, every = 2)   optimizer muon(lr = 1e-2, coefficients = polar) for matrices decay 0.1 }
recipe lion  from one { optimizer lion(lr = 1e-3, warmup = 5) rate 0.5 for wte   optimizer adamw(lr = 1e-2, warmup = 4) for norm, bias rate 2 for bias }
END
steps=5
more='--eval text.bin --eval-every 1 --eval-batches 2' # between steps, captured or not
evaluations() { sed -n 's/.*"eval_loss":\([^,]*\),.*/\1/p' "$1/metrics.jsonl"; }
for recipe in adamw sgd lion muon; do
  run zrun cpu $recipe 1 cpu
  run "$ZUG_BUILD/tests/scenarios/tools/zrun-threads" threads $recipe 1 threads
  says 'steps are captured'
  grep 'queued anew' out.txt && fail "$recipe: it was not captured"
  $same threads/metrics.jsonl cpu/metrics.jsonl >diff.txt || { cat diff.txt; fail "$recipe: other numbers in captured steps"; }
  [ "$(evaluations cpu | wc -l)" -eq 5 ] && [ "$(evaluations threads)" = "$(evaluations cpu)" ] || fail "$recipe: other evaluations"
  rm -r threads
done
# ... and where it cannot be captured it is queued anew, and says so.
run "env ZUG_TEST_NO_CAPTURE=1 $ZUG_BUILD/tests/scenarios/tools/zrun-threads" threads $recipe 1 threads
says 'note: each step is queued anew: there is no room for it'
$same threads/metrics.jsonl cpu/metrics.jsonl >diff.txt || { cat diff.txt; fail "other numbers where steps cannot be captured"; }
rm -r threads cpu
steps=3
ok zc "$ZUG_SRC/examples/gpt2.zug" -o gpt2.zsg -D layers=4 -D heads=4 -D width=32 -D context=32 -D words=127

# ---- outputs are brought to the host ----
run zrun cpu tensor2 2 cpu --save w.safetensors
for device in cpu threads; do
  program=zrun
  [ $device = cpu ] || program=$ZUG_BUILD/tests/scenarios/tools/zrun-threads
  ok timeout -k 5 100 $MPIRUN -np 2 "$program" eval gpt2.zsg --recipe recipes.zug:tensor2 --data text.bin \
    --init w.safetensors --eval-batches 3 --device $device --predict $device.safetensors
done
cmp cpu.safetensors threads.safetensors || fail "other outputs on streams"
rm -r cpu

# zero3: gathers, scatters and computation are on different streams.
run zrun cpu zero3_2 2 cpu
ZUG_TEST_NO_WAIT=1 timeout -k 5 100 $MPIRUN -np 2 "$ZUG_BUILD/tests/scenarios/tools/zrun-threads" train gpt2.zsg --recipe recipes.zug:zero3_2 \
  --data text.bin --steps 3 --log none >out.txt 2>&1
$same none/metrics.jsonl cpu/metrics.jsonl >/dev/null 2>&1 && fail "events left out were not noticed"
exit 0
