# Unit tests of kernels/cuda, emulated: the conformance cases of the CPU's kernels through the CUDA ones, and what
# only these have. See the conventions at the top of Makefile.am.
if HAVE_CRITERION
if HAVE_CXX
check_PROGRAMS += tests/unit/test-kernels-cuda
TESTS += tests/unit/test-kernels-cuda
endif
endif
# Cases for kernels of GPUs: emulated here, and on a GPU in tests/scenarios/gpu.
gpu_cases = tests/unit/kernels/conform.h \
  tests/unit/kernels/conform.c \
  tests/unit/kernels/update.h \
  tests/unit/kernels/attend.h \
  tests/unit/kernels/attend.c \
  tests/unit/kernels/attend_parts.c \
  tests/unit/kernels/conv.c \
  tests/unit/kernels/ew.c \
  tests/unit/kernels/experts.c \
  tests/unit/kernels/grouped.c \
  tests/unit/kernels/linear.c \
  tests/unit/kernels/move.c \
  tests/unit/kernels/norm.c \
  tests/unit/kernels/reduce.c \
  tests/unit/kernels/select.c \
  tests/unit/kernels/step.h \
  tests/unit/kernels/step.c \
  tests/unit/kernels/steps.c \
  tests/unit/kernels/cuda/dot_few.c \
  tests/unit/kernels/cuda/flat.c \
  tests/unit/kernels/cuda/fused.h \
  tests/unit/kernels/cuda/fused.c \
  tests/unit/kernels/cuda/lookup.c \
  tests/unit/kernels/cuda/packed.c \
  tests/unit/kernels/cuda/norm_fused.h \
  tests/unit/kernels/cuda/norm_fused.c \
  tests/unit/kernels/cuda/pointwise_cases.h \
  tests/unit/kernels/cuda/pointwise_cases.c \
  tests/unit/kernels/cuda/products.h \
  tests/unit/kernels/cuda/products.c \
  tests/unit/kernels/cuda/xent.c
tests_unit_test_kernels_cuda_SOURCES = $(gpu_cases) \
  tests/unit/kernels/cuda/emu.h \
  tests/unit/kernels/cuda/emu.c \
  tests/unit/kernels/cuda/programs.h \
  tests/unit/kernels/cuda/programs.c \
  tests/unit/kernels/cuda/norm_text.c \
  tests/unit/kernels/cuda/attend.c \
  tests/unit/kernels/cuda/pointwise.c \
  tests/unit/kernels/cuda/dot.c \
  tests/unit/kernels/cuda/dot_trial.c \
  tests/unit/kernels/cuda/emulator.c \
  tests/unit/kernels/cuda/host.c \
  tests/unit/kernels/cuda/fused_lt.c
tests_unit_test_kernels_cuda_CFLAGS = $(unit_cflags) -O1 -DZUG_CXX='"$(CXX)"' -DZUG_SANITIZE='"$(SANITIZE_FLAGS)"' \
  $(CUDA_CPPFLAGS)
tests_unit_test_kernels_cuda_LDFLAGS = $(AM_LDFLAGS) -rdynamic \
  -Wl,--wrap=zk_cuda_program,--wrap=zk_cuda_program_launch
tests_unit_test_kernels_cuda_LDADD = tests/unit/kernels/cuda/faults.emu.o libkernels_emu.a $(libs_kernels) \
  $(unit_libs) -lstdc++
if HAVE_NVRTC
tests_unit_test_kernels_cuda_SOURCES += kernels/cuda/compile.c kernels/cuda/program.c \
  tests/unit/kernels/cuda/program.c
tests_unit_test_kernels_cuda_LDADD += $(NVRTC_LIBS)
endif
if HAVE_CUDA
# The files that call cuBLASLt and cuDNN, with libraries of the tests' own behind them.
tests_unit_test_kernels_cuda_SOURCES += kernels/cuda/dot_lt.c kernels/cuda/dot_trial.c kernels/cuda/attend_cudnn.c \
  tests/unit/kernels/cuda/fake_lt.h tests/unit/kernels/cuda/fake_lt.c tests/unit/kernels/cuda/fake_lt_cuda.c \
  tests/unit/kernels/cuda/fake_dnn.h tests/unit/kernels/cuda/fake_dnn.c
tests_unit_test_kernels_cuda_CFLAGS += -DZK_ATTEND_ROOM=65536 -DZK_ATTEND_SPARE=256 -DZK_ATTEND_TILE=1
endif
CLEANFILES += tests/unit/kernels/cuda/*.emu.o

# cuDNN itself, asked for plans.
if HAVE_CRITERION
if HAVE_CUDA
check_PROGRAMS += tests/unit/test-kernels-cudnn
check_DATA = tests/unit/kernels/cuda/standin_cuda.so
TESTS += tests/unit/test-kernels-cudnn
endif
endif
tests_unit_test_kernels_cudnn_SOURCES = tests/unit/kernels/cuda/cudnn.c
tests_unit_test_kernels_cudnn_CFLAGS = $(unit_cflags) $(CUDA_CPPFLAGS) -DZUG_BUILD='"$(abs_top_builddir)"'
tests_unit_test_kernels_cudnn_LDADD = $(libs_cuda) $(unit_libs) -lstdc++ -ldl
tests/unit/kernels/cuda/standin_cuda.so: tests/unit/kernels/cuda/standin_cuda.c
	@$(MKDIR_P) $(@D)
	$(AM_V_CCLD)$(CC) $(CFLAGS) -shared -fPIC -Wl,-soname,libcuda.so.1 -o $@ $<
CLEANFILES += tests/unit/kernels/cuda/standin_cuda.so
