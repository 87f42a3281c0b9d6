# kernels: see the conventions at the top of Makefile.am. -fopenmp-simd: loops marked so are vectorised at
# every optimisation level that vectorises; no OpenMP threads. The other two let comparisons and square roots
# be vectors.
noinst_LIBRARIES += libkernels.a
libkernels_a_SOURCES = kernels/kernels.h \
  kernels/codes.h \
  kernels/everywhere.h \
  kernels/elem.def \
  kernels/gradients.h \
  kernels/halves.h \
  kernels/elem.h \
  kernels/matrix.h \
  kernels/sides.h \
  kernels/optimize.h \
  kernels/kernels.def \
  kernels/debug.c \
  kernels/debug.def \
  kernels/debug.h \
  kernels/devices.c \
  kernels/devices.h \
  kernels/unfuse.c \
  kernels/packed.h \
  kernels/packed.c \
  kernels/packed_round.c \
  kernels/ref/packed.c \
  kernels/cpu/packed.h \
  kernels/cpu/packed_amx.c \
  kernels/cpu/packed_dot.c \
  kernels/cpu/packed_half.c \
  kernels/cpu/packed_rows.c \
  kernels/cpu/packed_view.c \
  kernels/updates.c \
  kernels/table.c \
  kernels/cpu/cpu.h \
  kernels/cpu/math.h \
  kernels/cpu/attend.h \
  kernels/cpu/view.c \
  kernels/cpu/pool.c \
  kernels/cpu/run.c \
  kernels/cpu/machine.c \
  kernels/cpu/codes.c \
  kernels/cpu/params.c \
  kernels/cpu/gradients.c \
  kernels/cpu/attend.c \
  kernels/cpu/attend_grad.c \
  kernels/cpu/attend_half.c \
  kernels/cpu/attend_bias.c \
  kernels/cpu/attend_scores.c \
  kernels/cpu/attend_block.c \
  kernels/cpu/attend_block.h \
  kernels/cpu/attend_pages.c \
  kernels/attend.h \
  kernels/conv.h \
  kernels/cpu/attend_rows.c \
  kernels/cpu/bgemm.h \
  kernels/cpu/bgemm.c \
  kernels/cpu/amx.h \
  kernels/cpu/bgemm_amx.c \
  kernels/cpu/bgemm_avx512.c \
  kernels/cpu/bgemm_pack.c \
  kernels/cpu/bgemm_path.c \
  kernels/cpu/pointwise.c \
  kernels/cpu/pointwise.h \
  kernels/cpu/pointwise_steps.def \
  kernels/cpu/pointwise_steps.h \
  kernels/cpu/pointwise_code.c \
  kernels/cpu/pointwise_steps.c \
  kernels/cpu/cumsum.c \
  kernels/cpu/dot.c \
  kernels/cpu/flat.c \
  kernels/cpu/experts.c \
  kernels/cpu/conv.c \
  kernels/cpu/scan.c \
  kernels/cpu/linear.h \
  kernels/cpu/linear_attend.c \
  kernels/cpu/linear_chunk.c \
  kernels/cpu/linear_scores.c \
  kernels/cpu/lookup.c \
  kernels/cpu/move.c \
  kernels/cpu/norm.c \
  kernels/cpu/pages.c \
  kernels/cpu/random.c \
  kernels/cpu/recent.c \
  kernels/cpu/resume.c \
  kernels/cpu/resume_linear.c \
  kernels/cpu/reduce.c \
  kernels/cpu/orthogonalize.c \
  kernels/cpu/optimize.c \
  kernels/cpu/rope.c \
  kernels/cpu/rows.c \
  kernels/cpu/step.h \
  kernels/cpu/sgemm.c \
  kernels/cpu/sides.c \
  kernels/cpu/softmax.c \
  kernels/cpu/xent.c \
  kernels/cpu/topk.c \
  kernels/cpu/transpose.h \
  kernels/cpu/fgemm.h \
  kernels/cpu/fgemm_strip.h \
  kernels/cpu/fgemm.c \
  kernels/cpu/invariant.h \
  kernels/cpu/invariant.c \
  kernels/cpu/invariant_pack.c \
  kernels/cpu/invariant_rows.c \
  kernels/cpu/invariant_rows_set.h \
  kernels/cpu/invariant_ahead.h \
  kernels/cpu/invariant_tiles.c \
  kernels/cpu/grouped.h \
  kernels/cpu/grouped_places.c \
  kernels/cpu/grouped_outer.c \
  kernels/cpu/grouped_half.c \
  kernels/cpu/grouped_invariant.c \
  kernels/cpu/grouped.c
libkernels_a_CPPFLAGS = $(AM_CPPFLAGS) $(BLAS_CFLAGS)
libkernels_a_CFLAGS = $(AM_CFLAGS) $(KERNEL_CFLAGS) -fopenmp-simd -fno-math-errno -fno-trapping-math

# For GPUs: kernels/cuda/local.mk says how they are compiled.
cuda_kernels = kernels/cuda/attend.cu \
  kernels/cuda/attend_pages.cu \
  kernels/cuda/attend_pages_mma.cu \
  kernels/cuda/attend_mma.cu \
  kernels/cuda/pointwise.cu \
  kernels/cuda/conv.cu \
  kernels/cuda/cumsum.cu \
  kernels/cuda/dot.cu \
  kernels/cuda/dot_few.cu \
  kernels/cuda/experts.cu \
  kernels/cuda/flat.cu \
  kernels/cuda/gradients.cu \
  kernels/cuda/linear_attend.cu \
  kernels/cuda/lookup.cu \
  kernels/cuda/move.cu \
  kernels/cuda/norm.cu \
  kernels/cuda/optimize.cu \
  kernels/cuda/orthogonalize.cu \
  kernels/cuda/packed.cu \
  kernels/cuda/packed_rows.cu \
  kernels/cuda/random.cu \
  kernels/cuda/reduce.cu \
  kernels/cuda/sides.cu \
  kernels/cuda/resume_linear.cu \
  kernels/cuda/rope.cu \
  kernels/cuda/steps.cu \
  kernels/cuda/grouped.cu \
  kernels/cuda/topk.cu \
  kernels/cuda/scan.cu \
  kernels/cuda/xent.cu

# Times of all kernels against the peaks of the machine: build/bench-kernels 1
noinst_PROGRAMS += bench-kernels
bench_kernels_SOURCES = kernels/bench/bench.c
bench_kernels_LDADD = $(libs_kernels)

include kernels/ref/local.mk
include kernels/cuda/local.mk
