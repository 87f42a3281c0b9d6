# Models that are more than products and attention on the CUDA device of cuda.sh, on GPUs that are threads: the losses and
# norms of the CPU, with all kernels emulated; sums are in other orders.
. "$ZUG_SRC/tests/lib.sh"
need_mpi
emu="$ZUG_BUILD/tests/cuda/zrun-emu"
[ -x "$emu" ] || { echo "this build has no CUDA with NCCL, or no C++ compiler"; exit 77; }

compare="$ZUG_BUILD/tests/tools/compare_runs"
ok zdata pack "$ZUG_SRC/LICENSE" -o text.bin
cat >recipes.zug <<'END'
recipe one {
  optimizer adamw(lr = 1e-3, b1 = 0.9, b2 = 0.95, eps = 1e-8) decay 0.1 except norm, bias
  clip 1.0
  bind batch = 4, seq = 24
  micro 2
}
recipe zero2 from one { mesh data = 2   split batch over data   shard params, grads, states over data }
recipe tensor2 from one { mesh tensor = 2   split head over tensor }
END
model() { # NAME OPTIONS...
  name=$1
  shift
  ok zc "$ZUG_SRC/examples/$name.zug" -o "$name.zsg" -D layers=1 -D width=16 -D words=256 "$@"
}
run() { # LOG RANKS 'PROGRAM' RECIPE
  rm -rf "$1"
  ok timeout -k 5 200 $MPIRUN -np "$2" $3 train "$name.zsg" --recipe "recipes.zug:$4" --data text.bin --steps 3 --log "$1"
}
same() { # RECIPES...: RECIPE:RANKS, each with the CPU's kernels on the GPU's streams, and with its own
  run cpu 1 zrun one
  for each in "$@"; do
    run cuda "${each#*:}" "$emu" "${each%:*}"
    $compare --loss 1e-6 --norm 1e-5 cuda/metrics.jsonl cpu/metrics.jsonl >diff.txt ||
      { cat diff.txt; fail "$name: ${each%:*} differs from the CPU"; }
    printf '%-9s %-8s %s\n' "$name" "${each%:*}" "$(tail -n 1 diff.txt)"
  done
}

# ---- recurrences with a matrix as state: linear_attend ----
model mamba2 -D heads=2 -D head_dim=16 -D state=8
same one:1 zero2:2 tensor2:2
model deltanet -D heads=2 -D key_dim=8 -D value_dim=12 -D inner=24
same one:1 tensor2:2
