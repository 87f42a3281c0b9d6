# What needs a GPU, and is not a part of `make check`; README.md says how it is tried. Where there is none each target says so.
gpu_programs =
EXTRA_PROGRAMS += tests/scenarios/gpu/test-kernels tests/scenarios/gpu/apart.so
CLEANFILES += tests/scenarios/gpu/test-kernels tests/scenarios/gpu/apart.so
if HAVE_CUDA
if HAVE_MPI
if HAVE_CRITERION
gpu_programs += tests/scenarios/gpu/test-kernels
endif
if HAVE_NCCL
gpu_programs += tests/scenarios/gpu/apart.so
endif
endif
endif

# The cases of tests/unit/kernels/cuda on a GPU, and those that only a GPU can run, with the very module that zrun loads.
# (It finds what it needs of zrun's libraries here, but for what a step calls, which no case does.)
tests_scenarios_gpu_test_kernels_SOURCES = $(gpu_cases) tests/scenarios/gpu/backend.h tests/scenarios/gpu/backend.c \
  tests/scenarios/gpu/attend.c tests/scenarios/gpu/libraries.c
tests_scenarios_gpu_test_kernels_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_scenarios_gpu_test_kernels_CFLAGS = $(unit_cflags)
tests_scenarios_gpu_test_kernels_LDFLAGS = $(AM_LDFLAGS) -Wl,--enable-new-dtags -Wl,-rpath,'$$ORIGIN/$(module_from_here)' \
  -Wl,--allow-shlib-undefined,--as-needed
tests_scenarios_gpu_test_kernels_LDADD = zug-cuda.so $(libs_kernels) $(CUDA_LIBS) $(unit_libs)
# In the build folder; `make installed/tests/scenarios/gpu/test-kernels` makes one for bin/ of an installed folder.
module_from_here = ../../..
installed/tests/scenarios/gpu/test-kernels: private module_from_here = ../lib/zug
CLEANFILES += installed/tests/scenarios/gpu/test-kernels

tests_scenarios_gpu_apart_so_SOURCES = tests/scenarios/gpu/apart.c
tests_scenarios_gpu_apart_so_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_scenarios_gpu_apart_so_CFLAGS = $(AM_CFLAGS) -fPIC
tests_scenarios_gpu_apart_so_LDFLAGS = $(AM_LDFLAGS) -shared
tests_scenarios_gpu_apart_so_LDADD = -ldl

breadth_tests += tests/scenarios/gpu/kit/check.sh
.PHONY: check-gpu first-gpu gpu-kit
gpu_script = ZUG_SRC='$(abs_top_srcdir)' ZUG_BUILD='$(abs_top_builddir)' MPIRUN='$(MPIRUN)' $(SHELL) $(srcdir)/tests/scenarios/gpu
first-gpu: all $(gpu_programs) tests/scenarios/tools/compare_runs
	$(gpu_script)/first.sh || test $$? -eq 77
check-gpu: all $(gpu_programs) tests/scenarios/tools/compare_runs
	PARTS="$${PARTS:-open kernels generate layouts models nccl sanitizer}" LIMIT="$${LIMIT:-5400}" \
	  $(gpu_script)/first.sh '$(abs_top_builddir)/tests/scratch/check-gpu' || test $$? -eq 77
gpu-kit: all $(gpu_programs) tests/scenarios/tools/compare_runs
	@MAKE='$(MAKE)' $(gpu_script)/kit/make.sh '$(OUT)'
