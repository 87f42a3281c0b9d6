# What needs a GPU, and is no part of `make check`. Where there is none each test skips and says so.
gpu_tests = tests/gpu/kernels.sh tests/gpu/layouts.sh tests/gpu/models.sh tests/gpu/nccl.sh tests/gpu/sanitizer.sh
dist_check_SCRIPTS += $(gpu_tests)
gpu_programs =
EXTRA_PROGRAMS += tests/gpu/test-kernels tests/gpu/zrun-nccl
CLEANFILES += tests/gpu/test-kernels tests/gpu/zrun-nccl
if HAVE_CUDA
if HAVE_CRITERION
gpu_programs += tests/gpu/test-kernels
endif
if HAVE_NCCL
if HAVE_MPI
gpu_programs += tests/gpu/zrun-nccl
endif
endif
endif

# The conformance cases of the CPU's kernels on the device, and those of fused and batched calls.
tests_gpu_test_kernels_SOURCES = tests/gpu/backend.c tests/gpu/backend.h \
  tests/unit/kernels/conform.h \
  tests/unit/kernels/conform.c \
  tests/gpu/attend.c \
  tests/unit/kernels/attend.h \
  tests/unit/kernels/attend.c \
  tests/unit/kernels/conv.c \
  tests/unit/kernels/ew.c \
  tests/unit/kernels/move.c \
  tests/unit/kernels/norm.c \
  tests/unit/kernels/attend_parts.c \
  tests/unit/kernels/reduce.c \
  tests/unit/kernels/select.c \
  tests/unit/kernels/cuda/lookup.c \
  tests/unit/kernels/cuda/fused.h \
  tests/unit/kernels/cuda/fused.c \
  tests/unit/kernels/cuda/norm_fused.h \
  tests/unit/kernels/cuda/norm_fused.c \
  tests/unit/kernels/cuda/xent.c
tests_gpu_test_kernels_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_gpu_test_kernels_CFLAGS = $(unit_cflags)
tests_gpu_test_kernels_LDADD = $(libs_cuda) $(libs_graph) $(unit_libs) -lstdc++

# zrun, whose ranks believe that each has a GPU of its own.
tests_gpu_zrun_nccl_SOURCES = runtime/exec/zrun.c tests/gpu/apart.c tests/cuda/devices.c
tests_gpu_zrun_nccl_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_gpu_zrun_nccl_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=cudaGetDeviceProperties,--wrap=cudaGetDeviceProperties_v2
tests_gpu_zrun_nccl_LDADD = libexec.a libexec_cuda.a libkernels_cuda.a $(libs_exec) $(CUDA_LIBS) -lstdc++

EXTRA_DIST += tests/gpu/first.sh
dist_check_SCRIPTS += tests/gpu/first_check.sh
TESTS += tests/gpu/first_check.sh
.PHONY: check-gpu first-gpu
first-gpu: all $(gpu_programs) tests/tools/compare_runs
	ZUG_SRC='$(abs_top_srcdir)' ZUG_BUILD='$(abs_top_builddir)' $(SHELL) $(srcdir)/tests/gpu/first.sh
check-gpu: all $(gpu_programs) tests/tools/compare_runs
	$(MAKE) $(AM_MAKEFLAGS) check-TESTS TESTS='$(gpu_tests)'
