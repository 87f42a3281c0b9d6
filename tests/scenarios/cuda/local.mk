# zrun as it is for GPUs, on a GPU that is a thread: tests/scenarios/cuda/gpu.h. The CUDA runtime and NCCL are the tests' own (their
# headers are needed), kernels are emulated. libexec.a and libexec_cuda.a are the very ones that zrun and
# its module have.
if HAVE_CUDA
if HAVE_NCCL
if HAVE_CXX
if HAVE_MPI
check_PROGRAMS += tests/scenarios/cuda/zrun-emu
endif
endif
endif
endif
tests_scenarios_cuda_zrun_emu_SOURCES = runtime/exec/zrun.c tests/scenarios/cuda/gpu.h tests/scenarios/cuda/fake_cudart.c tests/scenarios/cuda/fake_nccl.c tests/scenarios/cuda/fallback.c tests/scenarios/cuda/devices.c \
  kernels/cuda/dot_lt.c kernels/cuda/dot_trial.c tests/unit/kernels/cuda/fake_lt.h tests/unit/kernels/cuda/fake_lt.c
tests_scenarios_cuda_zrun_emu_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_scenarios_cuda_zrun_emu_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=zk_cuda_kernel,--wrap=zk_cuda_scratch,--wrap=zk_cuda_prepare,--wrap=zk_cuda_memo,--wrap=zk_cuda_new,--wrap=zk_cuda_fallback
tests_scenarios_cuda_zrun_emu_LDADD = libexec.a libexec_cuda.a libexec.a libcompiler.a libtext.a $(PCRE2_LIBS) $(MICROHTTPD_LIBS) libkernels_emu.a libkernels.a libplan.a libresidues.a liblang.a $(libs_machine) $(CJSON_LIBS) $(BLAS_LIBS) $(MPI_LIBS) \
  -lpthread -ldl $(libs_graph) -lstdc++

# What nvcc and NVRTC made of the kernels: machine_code.sh reads it.
if HAVE_NVRTC
check_PROGRAMS += tests/scenarios/cuda/programs
endif
tests_scenarios_cuda_programs_SOURCES = tests/scenarios/cuda/programs.c
tests_scenarios_cuda_programs_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_scenarios_cuda_programs_LDADD = libexec_cuda.a libkernels_cuda.a $(libs_exec) $(CUDA_LIBS) $(NVRTC_LIBS) -lstdc++
breadth_tests += tests/scenarios/cuda/machine_code.sh
