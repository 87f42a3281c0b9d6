# Models that are more than products and attention on the CUDA device of cuda.sh, on GPUs that are threads: the losses and
# norms of the CPU, with all kernels emulated; sums are in other orders.
. "$ZUG_SRC/tests/scenarios/lib.sh"
need_emulated_gpu

compare="$ZUG_BUILD/tests/scenarios/tools/compare_runs"
ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin
cat >recipes.zug <<'END'
recipe one {
  optimizer adamw(lr = 1e-3, b1 = 0.9, b2 = 0.95, eps = 1e-8) decay 0.1 except norm, bias
  clip 1.0
  bind batch = 4, seq = 24
  micro 2
}
recipe muon from one { optimizer adamw(lr = 1e-3, bits = 8)   optimizer muon(lr = 0.02) for matrices decay 0.1   optimizer lion(lr = 1e-3, every = 2) for norm }
recipe muon2 from muon { mesh data = 2   split batch over data   shard params, grads, states over data }
recipe least1 from one { precision grads bf16   optimizer adamw(lr = 1e-3, bits = 8) }
recipe least2 from least1 { mesh data = 2   split batch over data   shard params, grads, states over data }
recipe zero2 from one { mesh data = 2   split batch over data   shard params, grads, states over data }
recipe tensor2 from one { mesh tensor = 2   split head over tensor }
recipe ring2 from one { mesh context = 2   split seq over context   attention ring }
recipe short from one { bind batch = 2, seq = 16   micro 1 }
recipe short_ring2 from short { mesh context = 2   split seq over context   attention ring }
recipe half from short { precision compute bf16 }
recipe half_ring2 from short_ring2 { precision compute bf16 }
recipe ring4 from ring2 { mesh pipe = 2, context = 2   stages over pipe by cost   shard params, grads, states over context }
recipe nf4 from one { freeze all except lora   precision weights nf4 group 32 }
recipe nf4_half from nf4 { precision compute bf16 }
recipe few_ep2 from one { mesh ep = 2   split batch, expert over ep   bind slot = 0.6 }
END
model() { # NAME OPTIONS...
  name=$1
  shift
  ok zc "$ZUG_SRC/examples/$name.zug" -o "$name.zsg" -D layers=1 -D width=16 -D words=256 "$@"
}
run() { # LOG RANKS 'PROGRAM' RECIPE
  rm -rf "$1"
  ok timeout -k 5 200 $(on "$2") $3 train "$name.zsg" --recipe "recipes.zug:$4" --data text.bin --steps 3 --log "$1" --debug nccl-capture=on
}
same() { # RECIPE, on the CPU, RECIPE:RANKS...
  run cpu 1 zrun "$1"
  shift
  for each in "$@"; do
    run cuda "${each#*:}" "$emu" "${each%:*}"
    $compare --loss 1e-6 --norm 1e-5 cuda/metrics.jsonl cpu/metrics.jsonl >diff.txt ||
      { cat diff.txt; fail "$name: ${each%:*} differs from the CPU"; }
    printf '%-9s %-8s %s\n' "$name" "${each%:*}" "$(tail -n 1 diff.txt)"
  done
}

# ---- recurrences with a matrix as state: linear_attend ----
model mamba2 -D heads=2 -D head_dim=16 -D state=8
same one one:1 zero2:2 tensor2:2
model deltanet -D heads=2 -D key_dim=8 -D value_dim=12 -D inner=24
same one one:1 tensor2:2

# ---- optimizers: whole matrices, states of 8 bits, and one that acts in every second step ----
model llama3 -D heads=2 -D kv_heads=1 -D inner=24
same muon muon:1 muon2:2
says 'planned == used'

# ---- gradients in bf16: what is drawn on a GPU is what a CPU draws, and tolerances are those of precision.sh ----
for ranks in 1 2; do
  run cpu $ranks zrun least$ranks
  run cuda $ranks "$emu" least$ranks
  says 'planned == used'
  $compare --loss 2e-6 --norm 2e-4 cuda/metrics.jsonl cpu/metrics.jsonl >diff.txt || { cat diff.txt; fail "$name: least$ranks differs from the CPU"; }
  printf '%-9s %-8s %s\n' "$name" least$ranks "$(tail -n 1 diff.txt)"
done

# ---- adapters on a frozen base of 4 bits: forward reads codes or unpacks some of a matrix at a time, as backward does ----
name=lora
ok zc "$ZUG_SRC/examples/lora.zug" -o lora.zsg -D layers=1 -D heads=2 -D width=64 -D context=24 -D words=256 -D rank=4 -D alpha=8
same nf4 nf4:1
says 'planned == used'
run cpu 1 zrun nf4_half
run cuda 1 "$emu" nf4_half
$compare --loss 5e-4 --norm 5e-3 cuda/metrics.jsonl cpu/metrics.jsonl >diff.txt || { cat diff.txt; fail "$name: nf4_half"; }

# ---- mixtures of experts: rounds, whose number the hosts must know; rows to their owners and back ----
model mixtral -D heads=2 -D kv_heads=1 -D inner=24 -D experts=4
same one one:1 few_ep2:2
says 'planned == used'
model deepseek -D layers=2 -D dense=1 -D heads=2 -D plain=8 -D rotary=4 -D value=8 -D query_rank=12 -D key_rank=8 -D inner=24 -D small=12 \
  -D experts=4 -D active=2 -D groups=2 -D take=1
same one one:1

# ---- attention around a ring: the transfer queue's stream brings keys while compute works ----
model llama3 -D heads=2 -D kv_heads=1 -D inner=24
same short short_ring2:2
says 'steps are captured'
# bf16: values that round to the neighbour, 2^-8 of them, as cuda.sh has them; partial results are f32 on both
run cpu 1 zrun half
run cuda 2 "$emu" half_ring2
$compare --loss 5e-4 --norm 5e-3 cuda/metrics.jsonl cpu/metrics.jsonl >diff.txt || { cat diff.txt; fail "$name: half_ring2"; }

# Layouts, by the CPU's kernels on the GPUs' streams; what moves rows is the GPU's own.
export ZUG_TEST_CPU=1
model llama3 -D heads=2 -D kv_heads=1 -D inner=24 -D layers=2
run cpu 4 zrun ring4
run nccl 4 "$emu" ring4
says 'steps are captured'
says 'planned == used'
$compare --loss 1e-6 --norm 1e-6 nccl/metrics.jsonl cpu/metrics.jsonl || fail "ring4 differs from the CPU"
run staged 4 "env ZUG_TEST_GPUS=1 $emu" ring4
$compare --loss 0 --norm 0 staged/metrics.jsonl nccl/metrics.jsonl || fail "ring4: NCCL and the host's memory differ"
name=moe
cp "$ZUG_SRC/tests/data/models/moe.zug" recipes.zug
ok zc recipes.zug -o moe.zsg
run cpu 1 zrun one
for each in few:1 five_8:8 experts_4:4; do
  run nccl "${each#*:}" "$emu" "${each%:*}"
  says 'planned == used'
  says 'each step is queued anew: hosts must know how many rows experts have'
  $compare --loss 1e-6 --norm 1e-6 nccl/metrics.jsonl cpu/metrics.jsonl >diff.txt || { cat diff.txt; fail "moe: ${each%:*}"; }
  printf '%-9s %-8s %s\n' moe "${each%:*}" "$(tail -n 1 diff.txt)"
done
run staged 4 "env ZUG_TEST_GPUS=1 $emu" experts_4
says "ranks exchange by way of the host's memory: NCCL wants a GPU for every rank"
$compare --loss 0 --norm 0 staged/metrics.jsonl nccl/metrics.jsonl || fail "moe: NCCL and the host's memory differ"
