# The rooms keep their walls: who includes whom, where MPI may be seen, and what libraries must not call.
. "$ZUG_SRC/tests/lib.sh"
cd "$ZUG_SRC" || exit 99
broken=0

# wall ROOM PATTERN: every quoted include of the room's files must match PATTERN (grep -E, whole path).
wall() {
  find "$1" -name '*.[chly]' -exec grep -HnE '^[[:space:]]*#[[:space:]]*include "' {} + |
    grep -vE "include \"($2)\"" && { echo "^ $1 must not include these"; broken=1; }
}
wall base 'base/.*'
wall graph 'base/.*|graph/.*'
wall lang 'base/.*|lang/.*'
wall compiler 'base/.*|graph/.*|lang/(lang|ast)\.h|compiler/.*'
wall kernels 'base/.*|graph/ops\.h|kernels/.*'
wall runtime/plan 'base/.*|graph/graph\.h|graph/ops\.def|lang/lang\.h|kernels/kernels\.h|runtime/plan/.*'
wall runtime/exec 'base/.*|graph/graph\.h|graph/ops\.def|lang/lang\.h|kernels/kernels\.h|kernels/cuda/cuda\.h|runtime/plan/(plan\.h|[a-z]*\.def)|runtime/exec/.*'

rooms="base graph lang compiler kernels runtime"
# MPI is seen in one file.
grep -rlE '\bMPI_[A-Z]|<mpi\.h>' $rooms --include='*.[ch]' | grep -vxF runtime/exec/comm/mpi.c &&
  { echo "^ only runtime/exec/comm/mpi.c may use MPI"; broken=1; }
# So is NCCL; CUDA in the files of its device, and in the kernels. Others may say "cuda" only to name that device.
grep -rlE '\bnccl[A-Z]|<nccl\.h>' $rooms --include='*.[ch]' | grep -vxF runtime/exec/comm/nccl.c &&
  { echo "^ only runtime/exec/comm/nccl.c may use NCCL"; broken=1; }
grep -rlE '\bcuda[A-Z]|<cuda|zk_cuda_|kernels/cuda/' $rooms --include='*.[ch]' |
  grep -vE '^(kernels/cuda/.*|runtime/exec/(device/cuda[a-z_]*\.[ch]|comm/nccl\.c))$' &&
  { echo "^ only kernels/cuda, device/cuda* and comm/nccl.c may use CUDA"; broken=1; }
# No environment variables (but what Open MPI and NCCL themselves are told); nothing but a program's main file ends the process.
grep -rnE '\b(getenv|setenv|putenv)\(' $rooms --include='*.c' | grep -vE '^runtime/exec/comm/(mpi|nccl)\.c:' &&
  { echo "^ no environment variables"; broken=1; }
grep -rnE '(^|[^a-z_.])exit\(' $rooms --include='*.c' | grep -vE '(main|z[a-z]+)\.c:' &&
  { echo "^ libraries return, they do not exit"; broken=1; }

[ $broken -eq 0 ] || fail "the lines above"
