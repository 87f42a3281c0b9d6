# runtime/exec: see the conventions at the top of Makefile.am.
noinst_LIBRARIES += libexec.a
libexec_a_SOURCES = \
  runtime/exec/call.c \
  runtime/exec/capture.c \
  runtime/exec/comm.h \
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
  runtime/exec/engine.c \
  runtime/exec/engine.h \
  runtime/exec/exec.h \
  runtime/exec/feed.c \
  runtime/exec/grads.c \
  runtime/exec/log.c \
  runtime/exec/params.c \
  runtime/exec/play.c \
  runtime/exec/rate.c \
  runtime/exec/setup.c \
  runtime/exec/times.c \
  runtime/exec/update.c \
  runtime/exec/weights.c
if HAVE_MPI
libexec_a_SOURCES += runtime/exec/comm_mpi.c
endif
if HAVE_CUDA
libexec_a_SOURCES += runtime/exec/cuda.h runtime/exec/device_cuda.c runtime/exec/device_cuda_peak.c
if HAVE_NCCL
libexec_a_SOURCES += runtime/exec/comm_nccl.c
endif
endif
libexec_a_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS) $(MPI_CFLAGS) $(CJSON_CFLAGS) $(XXHASH_CFLAGS)
libexec_a_CFLAGS = $(AM_CFLAGS) $(KERNEL_CFLAGS) # sums and updates of whole tensors are here too
EXTRA_DIST += runtime/exec/DATA.md

bin_PROGRAMS += zdata
zdata_SOURCES = runtime/exec/zdata.c runtime/exec/zdata.h runtime/exec/zdata_pack.c runtime/exec/zdata_table.c
zdata_LDADD = libexec.a $(XXHASH_LIBS) $(libs_base)

if HAVE_MPI
bin_PROGRAMS += zrun
zrun_SOURCES = runtime/exec/zrun.c
zrun_LDADD = $(libs_exec)
endif
