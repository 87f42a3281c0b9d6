# The CUDA device and NCCL without either: zrun for GPUs on a GPU that is a thread (tests/scenarios/cuda/gpu.h), which refuses what the
# real CUDA runtime and NCCL refuse by their documents. What this says nothing about: the hardware, and whether the real ones
# do as they say. More of it: cuda_more.sh, at night.
. "$ZUG_SRC/tests/scenarios/lib.sh"
. "$ZUG_SRC/tests/scenarios/cuda_lib.sh"

# ---- streams, events, communicators: all kernels but the flat ones are the CPU's ----
# NCCL's stand-in adds in the order of ranks, as the host's communicator: not a bit may differ between them. AdamW and norms
# are rounded otherwise than on the CPU: a few units of f32 in 3 steps.
export ZUG_TEST_CPU=1
for each in zero3_2:2 pipe2:2 $(at_night && echo zero1_2:2 keep_4:4 tensor2:2 seq2:2 few4:4 all8:8); do
  recipe=${each%:*} ranks=${each#*:}
  grep -q "^recipe $recipe " recipes.zug || fail "no recipe $recipe"
  run cpu "$ranks" zrun "$recipe"
  run nccl "$ranks" "$emu" "$recipe"
  says 'ranks exchange by NCCL'
  says 'steps are captured'
  grep 'queued anew' out.txt && fail "$recipe: no graph was made"
  run staged "$ranks" "env ZUG_TEST_GPUS=1 $emu" "$recipe"
  says "ranks exchange by way of the host's memory: NCCL wants a GPU for every rank"
  same "$recipe" nccl staged --loss 0 --norm 0
  asked=$capture capture=
  run usual "$ranks" "$emu" "$recipe"
  capture=$asked
  says 'each step is queued anew: a captured step of NCCL.s operations crashed in the driver'
  same "$recipe" usual nccl --loss 0 --norm 0
  same "$recipe" nccl cpu --loss 1e-6 --norm 1e-6
done
# A rank alone has no use for NCCL, which could not start here; where it is asked for, not a bit differs.
run cpu 1 zrun one
run alone 1 "env ZUG_TEST_NCCL_START=-1 $emu" one
says 'steps are captured'
grep 'ranks exchange\|cannot start' out.txt && fail "a rank alone starts NCCL, or tells how it exchanges"
run nccl 1 "$emu" one gpt2.zsg --debug nccl-alone=on
says 'ranks exchange by NCCL'
says 'steps are captured'
same one nccl alone --loss 0 --norm 0
same one nccl cpu --loss 1e-6 --norm 1e-6
ls nccl-* >files.txt 2>/dev/null && fail "communicators were left: $(cat files.txt)"

# ---- the kernels, emulated: sums in other orders than the CPU's. bf16: some values round to the neighbour, 2^-8 of them,
# in each of some dozens of roundings, of which most cancel in a mean over tokens ----
unset ZUG_TEST_CPU
run cpu 1 zrun short small.zsg
run cuda 1 "env ZUG_TEST_SAY_FUSED=1 $emu" short small.zsg
says '^batched fused dot: 3 operands, 1 ops, 1 results' # q, k and v with their biases
says '^batched dot: 2 operands, 0 ops, 1 results'         # gradients of their weights
says 'fused dot: 4 operands, 2 ops, 1 results'      # ... and a residual
says 'fused normalize: 3 operands, 2 ops, 3 results' # scale and shift
says 'fused normalize_grad_sums: 7 operands, 5 ops, 4 results' # its gradient, with those of its scale and shift
same short cuda cpu --loss 1e-6 --norm 1e-5
# ---- the module that zrun itself loads: all that it needs is there, in it or in zrun. The driver is a stand-in without GPUs ----
standin="$ZUG_BUILD/tests/unit/kernels/cuda/standin_cuda.so"
if [ -f "$standin" ]; then
  mkdir -p driver && cp "$standin" driver/libcuda.so.1
  one="zrun train gpt2.zsg --recipe recipes.zug:one --data text.bin --steps 1"
  refuses 'device: there is no CUDA device here: ' env LD_LIBRARY_PATH="$PWD/driver:$LD_LIBRARY_PATH" $one --device cuda
  ok env LD_LIBRARY_PATH="$PWD/driver:$LD_LIBRARY_PATH" $one
  says 'note: computing on the CPU, there is no CUDA device here: '
  echo 'no module' >driver/libcuda.so.1
  refuses 'no CUDA device here: its driver cannot be loaded: .*invalid ELF header|file too short' \
    env LD_LIBRARY_PATH="$PWD/driver" $one --device cuda
fi

# ---- what goes wrong ----
args="train gpt2.zsg --recipe recipes.zug:zero3_2 --data text.bin --steps 3"
two="$MPIRUN -np 2 $emu $args"
refuses 'device: there is no CUDA device here: no CUDA-capable device is detected' env ZUG_TEST_GPUS=0 $two --device cuda
ok env ZUG_TEST_GPUS=0 $two --device auto # is the CPU then
refuses 'error: rank 1 was given other options: --device cpu where rank 0 has cuda' $MPIRUN -np 1 $emu $args : -np 1 env ZUG_TEST_GPUS=0 $emu $args
says 'rank 1\] note: computing on the CPU, there is no CUDA device here: '
refuses 'error: rank 1 was given other options: NCCL_ALGO Ring where rank 0 has none' \
  $MPIRUN -np 1 $emu $args : -np 1 env NCCL_ALGO=Ring $emu $args
refuses 'error: `dot` is not among the CUDA kernels of this build \(.*:[0-9]+\)' env ZUG_TEST_LACKS=dot $two
refuses 'error: cannot allocate the arena of .*: out of memory; stage 0 needs params .*; `shard' env ZUG_TEST_GPU_MEMORY=1000000 $two
refuses 'rank [01]\] error: step [123]: CUDA: .*illegal memory access' env ZUG_TEST_GPU_FAIL=2500 $two
refuses 'rank [01]\] error: NCCL: a rank or the way to it has failed.* among 2 ranks' env ZUG_TEST_NCCL_FAIL=60 $two
exit 0
