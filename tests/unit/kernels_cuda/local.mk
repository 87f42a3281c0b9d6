# Unit tests of kernels/cuda, emulated: the conformance cases of the CPU's kernels through the CUDA ones, and what
# only these have. See the conventions at the top of Makefile.am.
if HAVE_CRITERION
if HAVE_CXX
check_PROGRAMS += tests/unit/test-kernels-cuda
TESTS += tests/unit/test-kernels-cuda
endif
endif
tests_unit_test_kernels_cuda_SOURCES = tests/unit/kernels/conform.h tests/unit/kernels/conform.c \
  tests/unit/kernels_cuda/emu.h tests/unit/kernels_cuda/emu.c \
  tests/unit/kernels_cuda/attend.c \
  tests/unit/kernels_cuda/chain.c \
  tests/unit/kernels_cuda/dot.c \
  tests/unit/kernels_cuda/emulator.c \
  tests/unit/kernels_cuda/flat.c \
  tests/unit/kernels_cuda/host.c \
  tests/unit/kernels/attend.c tests/unit/kernels/ew.c tests/unit/kernels/move.c tests/unit/kernels/norm.c tests/unit/kernels/reduce.c \
  tests/unit/kernels/select.c
tests_unit_test_kernels_cuda_CFLAGS = $(unit_cflags) -DZUG_CXX='"$(CXX)"' -DZUG_SANITIZE='"$(SANITIZE_FLAGS)"' \
  $(CUDA_CPPFLAGS)
tests_unit_test_kernels_cuda_LDFLAGS = $(AM_LDFLAGS) -rdynamic
tests_unit_test_kernels_cuda_LDADD = tests/unit/kernels_cuda/faults.emu.o libkernels_emu.a $(libs_kernels) $(libs_graph) \
  $(unit_libs) -lstdc++
if HAVE_NVRTC
tests_unit_test_kernels_cuda_SOURCES += kernels/cuda/compile.c
tests_unit_test_kernels_cuda_LDADD += $(NVRTC_LIBS)
endif
if HAVE_CUDA
# The file that calls cuBLASLt, with a cuBLASLt of the tests' own behind it.
tests_unit_test_kernels_cuda_SOURCES += kernels/cuda/dot_lt.c tests/unit/kernels_cuda/fake_lt.h tests/unit/kernels_cuda/fake_lt.c
endif
EXTRA_DIST += tests/unit/kernels_cuda/faults.cu tests/unit/kernels_cuda/chain.txt
CLEANFILES += tests/unit/kernels_cuda/*.emu.o
