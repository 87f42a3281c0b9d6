# Every op's kernel on the GPU against the reference in f64: the cases of the CPU's kernels.
. "$ZUG_SRC/tests/lib.sh"
need_gpu
[ -x "$ZUG_BUILD/tests/gpu/test-kernels" ] || { echo "no Criterion here"; exit 77; }
exec "$ZUG_BUILD/tests/gpu/test-kernels" -j"$(at_once)" --timeout 120
