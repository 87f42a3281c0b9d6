# Derivatives against central differences: the compiler's graphs, played by the reference kernels.
if HAVE_CRITERION
check_PROGRAMS += tests/unit/test-compiler-grad
TESTS += tests/unit/test-compiler-grad
tests_unit_test_compiler_grad_SOURCES = \
  tests/unit/compiler/grad/interp.c \
  tests/unit/compiler/grad/interp.h \
  tests/unit/graph/make.c \
  tests/unit/graph/make.h \
  tests/unit/compiler/grad/library.c \
  tests/unit/compiler/grad/models.c \
  tests/unit/compiler/grad/numbers.c \
  tests/unit/compiler/grad/ops.c \
  tests/unit/compiler/grad/simpl.c
tests_unit_test_compiler_grad_CFLAGS = $(unit_cflags)
tests_unit_test_compiler_grad_LDADD = $(libs_compiler) libkernels.a $(BLAS_LIBS) -lpthread $(libs_base) $(unit_libs)
endif
