# Derivatives against central differences: the compiler's graphs, played by the reference kernels.
if HAVE_CRITERION
check_PROGRAMS += tests/unit/test-grad
TESTS += tests/unit/test-grad
tests_unit_test_grad_SOURCES = \
  tests/unit/grad/interp.c \
  tests/unit/grad/interp.h \
  tests/unit/graph/make.c \
  tests/unit/graph/make.h \
  tests/unit/grad/models.c \
  tests/unit/grad/ops.c \
  tests/unit/grad/simpl.c
tests_unit_test_grad_CFLAGS = $(unit_cflags)
tests_unit_test_grad_LDADD = $(libs_compiler) libkernels.a $(BLAS_LIBS) -lpthread $(libs_base) $(unit_libs)
endif
