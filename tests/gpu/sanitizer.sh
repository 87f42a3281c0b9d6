# The conformance cases under compute-sanitizer: memory that is not a kernel's own, races in shared memory, barriers that some
# threads do not reach. TOOLS: which of them; slow, some minutes each.
. "$ZUG_SRC/tests/lib.sh"
need_gpu
[ -x "$ZUG_BUILD/tests/gpu/test-kernels" ] || { echo "no Criterion here"; exit 77; }
sanitizer=$(PATH="$PATH:/usr/local/cuda/bin:/opt/cuda/bin" command -v compute-sanitizer) ||
  { echo "no compute-sanitizer here; it comes with the CUDA toolkit"; exit 77; }
for tool in ${TOOLS:-memcheck racecheck synccheck}; do
  # Criterion runs each test in a process of its own.
  ok "$sanitizer" --tool "$tool" --target-processes all --error-exitcode 9 "$ZUG_BUILD/tests/gpu/test-kernels" -j"$(at_once)" \
    --timeout 900
  says 'ERROR SUMMARY: 0 errors|RACECHECK SUMMARY: 0 hazards'
  grep -E '(ERROR|RACECHECK) SUMMARY: [1-9]' out.txt && { cat out.txt; fail "$tool found something"; }
done
exit 0
