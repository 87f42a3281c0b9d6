# The CUDA device of cuda.sh where things go otherwise: no graph, other orders, libraries that refuse, NCCL of other versions,
# mixed precision.
. "$ZUG_SRC/tests/scenarios/lib.sh"
. "$ZUG_SRC/tests/scenarios/cuda_lib.sh"

export ZUG_TEST_CPU=1
# ---- no graph can be made of a step: it is queued anew, and the numbers stay ----
run cpu 2 zrun zero3_2
run anew 2 "env ZUG_TEST_GRAPH_FAIL=1 $emu" zero3_2
says 'note: each step is queued anew: CUDA: cudaGraphInstantiate: out of memory'
same zero3_2 anew cpu --loss 1e-6 --norm 1e-6

# With events left out the numbers must be others, or none of this sees anything.
run cpu 2 zrun zero3_2
ZUG_TEST_NO_WAIT=1 timeout -k 5 100 $MPIRUN -np 2 "$emu" train gpt2.zsg --recipe recipes.zug:zero3_2 --data text.bin --steps 3 \
  --log none >out.txt 2>&1
$compare --loss 1e-6 --norm 1e-6 none/metrics.jsonl cpu/metrics.jsonl >/dev/null 2>&1 && fail "events left out were not noticed"

unset ZUG_TEST_CPU

# ---- the kernels, emulated, in more kinds of recipes than cuda.sh has ----
run cpu 1 zrun short small.zsg
run cuda 2 "$emu" short2 small.zsg
# what is slower than it might be is said once, of all ranks, with why and what it costs
says '^note: products in f32 take at least [0-9.e-]+ ms a step; with `precision compute tf32` [0-9.e-]+ ms, with `bf16` '
says '^note: [0-9]+ `dot` a step are done by our own kernels on units for f32: there is no cuBLASLt; [0-9.e-]+ ms at best'
says '^note: [0-9]+ `attend_grad` a step are done by our own kernels on units for f32: this build has no cuDNN; [0-9.e-]+ ms at best'
says '^note: [0-9]+ `pointwise` a step are done by an interpreter: this build has no NVRTC; '
[ "$(grep -c '`dot` a step' out.txt)" -eq 1 ] || fail "said by more than one rank"
same short2 cuda cpu --loss 1e-6 --norm 1e-5
run cpu 1 zrun half small.zsg
run cuda 1 "env ZUG_TEST_SAY_FUSED=1 $emu" half small.zsg
says 'fused dot: 3 operands, 14 ops, 2 results'    # GELU, and what it is of
says 'fused dot: 3 operands, (2[0-9]) ops, 1 results' # its gradient
says '^batched dot_bias_grad: 2 operands, 0 ops, 2 results' # gradients of the weights and biases of q, k and v
says '^dot_bias_grad: 2 operands'
says '^xent_sums_grad: 3 operands, 0 ops, 4 results'
says '`attend_grad` a step are done by our own kernels on units for f32: this build has no cuDNN; [0-9.e-]+ ms at best'
grep 'products in f32' out.txt && fail "there are none"
same half cuda cpu --loss 5e-4 --norm 5e-3

# ---- with a cuBLASLt that is a stand-in, too: trials, epilogues, products in captured steps ----
model tiny.zsg -D layers=1 -D width=16 -D context=16
run cpu 1 zrun tiny tiny.zsg
run lt 1 "env ZUG_TEST_LT=1 $emu" tiny tiny.zsg
grep '`dot` a step' out.txt && fail "cuBLASLt was not used"
says 'steps are captured'
grep 'queued anew' out.txt && fail "its products are not captured"
same tiny lt cpu --loss 1e-6 --norm 1e-5
run lt 1 "env ZUG_TEST_LT=2 $emu" tiny tiny.zsg
says 'note: `dot` .*: cuBLASLt refused it in a step .not supported., so it is done (in parts|by our own kernels) from now on'
grep 'queued anew' out.txt && fail "the second step knew"
same tiny lt cpu --loss 1e-6 --norm 1e-5
run lt 1 "env ZUG_TEST_LT=3 $emu" tiny tiny.zsg
says 'note: each step is queued anew: `dot.*: cuBLASLt refused it while the step was captured: not supported; that is about'
same tiny lt cpu --loss 1e-6 --norm 1e-5

# ---- no silent cliff: as of a GPU, where there is none
ok env ZUG_TEST_GPUS=0 "$emu" train small.zsg --recipe recipes.zug:half --dry-run --device cuda
says '^no such device is here: '
says '`attend_grad` a step are done by our own kernels on units for f32: this build has no cuDNN; [0-9.e-]+ ms at best'
grep '^stage 0$' out.txt && fail "a heading where there is one stage"
ok env ZUG_TEST_GPUS=0 $MPIRUN -np 2 "$emu" train gpt2.zsg --recipe recipes.zug:pipe2 --dry-run --device cuda
says '^stage 0$'
says '^stage 1$'
ok zc "$ZUG_SRC/examples/gpt2.zug" -o large.zsg -D layers=2 -D heads=12 -D width=768 -D context=1024
ok "$emu" train large.zsg --recipe recipes.zug:large --dry-run --device cuda
says '^note: 4 `attend` a step are done by our own kernels on units for f32: .*; at least [0-9.]+ ms instead of [0-9.]+ ms$'
says '^note: 4 `attend_grad` a step are done by our own kernels, not by cuDNN: .*; at least [0-9.]+ ms instead of [0-9.]+ ms$'
ok "$emu" train small.zsg --recipe recipes.zug:tf32 --dry-run --device cuda
says '^note: products in tf32 take at least [0-9.e-]+ ms a step; with `precision compute bf16` '
ok zrun train small.zsg --recipe recipes.zug:tf32 --data text.bin --steps 1 --device cpu
says '^note: tf32 is f32 on a CPU'

# ---- one order for all: streams that do not run side by side, hosts that wait for the device now and then, connections made
# by the first operation. Where ranks queue in another order than their partners these hang ----
export ZUG_TEST_CPU=1
for each in pipe2:2 few4:4 pipe_data4:4; do
  recipe=${each%:*} ranks=${each#*:}
  run cpu "$ranks" zrun $recipe
  run late "$ranks" "env ZUG_TEST_ONE_QUEUE=1 ZUG_TEST_SYNC=1 NCCL_RUNTIME_CONNECT=1 $emu" $recipe
  says 'steps are captured'
  same $recipe late cpu --loss 1e-6 --norm 1e-6
done

# ---- communicators that do not block, because of the environment; a NCCL that does not keep an order in graphs ----
run cpu 2 zrun pipe2
run older 2 "env NCCL_COMM_BLOCKING=0 ZUG_TEST_NCCL_VERSION=22505 $emu" pipe2
says 'each step is queued anew: NCCL keeps its operations in order in a graph from 2.26 on only'
same pipe2 older cpu --loss 1e-6 --norm 1e-6

run large 2 "$emu" pipe2 gpt2.zsg --debug graph-nodes=10
says 'each step is queued anew: its graph would have more than 10 nodes .*; that is about [0-9]+ calls, and at 4 us each'
same pipe2 large cpu --loss 1e-6 --norm 1e-6
# A call may be several launches: where the calls are few enough the graph may still be too large.
run cpu 1 zrun one
run few 1 "$emu" one gpt2.zsg --debug graph-nodes=10
calls=$(grep -Eo 'about [0-9]+ calls' out.txt | grep -Eo '[0-9]+')
run larger 1 "$emu" one gpt2.zsg --debug graph-nodes="$calls"
says 'steps are captured'
says "note: each step is queued anew: its graph has [0-9]+ nodes, and may have $calls .*; that is [0-9]+ launches, and at 4 us each"
same one larger cpu --loss 1e-6 --norm 1e-6
run driver 2 "env ZUG_TEST_DRIVER=12080 $emu" pipe2
says 'ranks exchange by NCCL .*one after the other with this driver'
run unordered 2 "env NCCL_LAUNCH_ORDER_IMPLICIT=0 $emu" pipe2
says 'each step is queued anew: NCCL_LAUNCH_ORDER_IMPLICIT=0 leaves its operations in no order in a graph'
same pipe2 unordered cpu --loss 1e-6 --norm 1e-6

# ---- NCCL cannot be captured on one rank: all queue anew, with new communicators ----
run anew 2 "env ZUG_TEST_NCCL_CAPTURE=1 $emu" pipe2
says 'rank 1\] note: each step is queued anew: NCCL: [a-z-]+: unhandled cuda error'
same pipe2 anew cpu --loss 1e-6 --norm 1e-6

# ---- NCCL cannot start: on any rank, on one ----
run refused 2 "env ZUG_TEST_NCCL_START=-1 $emu" pipe2
says 'rank 0\] note: NCCL cannot start: invalid usage: Duplicate GPU detected'
says "ranks exchange by way of the host's memory: NCCL cannot start here"
same pipe2 refused cpu --loss 1e-6 --norm 1e-6
run refused 2 "env ZUG_TEST_NCCL_START=1 $emu" pipe2
says 'note: NCCL cannot start: '
same pipe2 refused cpu --loss 1e-6 --norm 1e-6
ls nccl-* >files.txt 2>/dev/null && fail "communicators were left: $(cat files.txt)"

# ---- times by operation, for which every call is waited for: the numbers stay ----
run cpu 2 zrun pipe2
ok timeout -k 5 100 $MPIRUN -np 2 "$emu" train gpt2.zsg --recipe recipes.zug:pipe2 --data text.bin --steps 3 --log times --times
says '^  dot +[0-9.]+ s'
says 'each step is queued anew: every call is timed'
same pipe2 times cpu --loss 1e-6 --norm 1e-6

exit 0
