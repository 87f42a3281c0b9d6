# runtime/exec: see the conventions at the top of Makefile.am.
noinst_LIBRARIES += libexec.a
libexec_a_SOURCES = \
  runtime/exec/call.c \
  runtime/exec/capture.c \
  runtime/exec/comm.h \
  runtime/exec/combine.c \
  runtime/exec/comm_self.c \
  runtime/exec/comm_shm.c \
  runtime/exec/comm_shm.h \
  runtime/exec/comm_staged.c \
  runtime/exec/data.c \
  runtime/exec/data.h \
  runtime/exec/data_write.c \
  runtime/exec/device.c \
  runtime/exec/device_cpu.c \
  runtime/exec/device_list.c \
  runtime/exec/device_load.c \
  runtime/exec/device_load.h \
  runtime/exec/die.c \
  runtime/exec/engine.c \
  runtime/exec/engine.h \
  runtime/exec/exec.h \
  runtime/exec/facts.c \
  runtime/exec/feed.c \
  runtime/exec/finite.c \
  runtime/exec/grads.c \
  runtime/exec/log.c \
  runtime/exec/memory.c \
  runtime/exec/memory.h \
  runtime/exec/params.c \
  runtime/exec/patience.c \
  runtime/exec/play.c \
  runtime/exec/rate.c \
  runtime/exec/same.c \
  runtime/exec/same.h \
  runtime/exec/setup.c \
  runtime/exec/stall.c \
  runtime/exec/system.c \
  runtime/exec/times.c \
  runtime/exec/update.c \
  runtime/exec/wait.c \
  runtime/exec/weights.c
if HAVE_MPI
libexec_a_SOURCES += runtime/exec/comm_mpi.c
endif
libexec_a_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS) $(MPI_CFLAGS) $(CJSON_CFLAGS) $(XXHASH_CFLAGS)
libexec_a_CFLAGS = $(AM_CFLAGS) $(KERNEL_CFLAGS) # sums and updates of whole tensors are here too
EXTRA_DIST += runtime/exec/DATA.md

# The CUDA device: a library for test programs, and the module that zrun loads where there is a GPU. The module is linked
# as a program is, but for -shared, and finds in zrun what it does not have itself.
if HAVE_CUDA
noinst_LIBRARIES += libexec_cuda.a
if HAVE_MPI
modules_PROGRAMS += zug-cuda.so
endif
endif
libexec_cuda_a_SOURCES = runtime/exec/cuda.h runtime/exec/device_cuda.c runtime/exec/device_cuda_peak.c
if HAVE_NCCL
libexec_cuda_a_SOURCES += runtime/exec/comm_nccl.c
endif
libexec_cuda_a_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
libexec_cuda_a_CFLAGS = $(AM_CFLAGS) -fPIC
zug_cuda_so_SOURCES =
zug_cuda_so_LDFLAGS = $(AM_LDFLAGS) -shared -Wl,-soname,zug-cuda.so -Wl,-u,zx_device_cuda \
  -Wl,-z,lazy # zplan, which only asks for memory, has not all of zrun
zug_cuda_so_LDADD = libexec_cuda.a libkernels_cuda.a $(CUDA_LIBS) -lstdc++

bin_PROGRAMS += zdata
zdata_SOURCES = runtime/exec/zdata.c runtime/exec/zdata.h runtime/exec/zdata_pack.c runtime/exec/zdata_table.c
zdata_LDADD = libexec.a $(XXHASH_LIBS) $(libs_base)

if HAVE_MPI
bin_PROGRAMS += zrun
zrun_SOURCES = runtime/exec/zrun.c
zrun_LDFLAGS = $(AM_LDFLAGS) -rdynamic # for modules
zrun_LDADD = $(libs_exec)
endif
