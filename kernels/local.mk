# kernels: see the conventions at the top of Makefile.am.
noinst_LIBRARIES += libkernels.a
libkernels_a_SOURCES = kernels/kernels.h
libkernels_a_CPPFLAGS = $(AM_CPPFLAGS) $(OPENBLAS_CFLAGS)
libkernels_a_CFLAGS = $(AM_CFLAGS) $(KERNEL_CFLAGS)

include kernels/ref/local.mk
