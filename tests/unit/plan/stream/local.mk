# Generation: which models can be made token by token, and steps against whole sequences, by the reference kernels.
if HAVE_CRITERION
check_PROGRAMS += tests/unit/test-plan-stream
TESTS += tests/unit/test-plan-stream
tests_unit_test_plan_stream_SOURCES = \
  tests/unit/compiler/load.c tests/unit/compiler/load.h \
  tests/unit/compiler/grad/interp.c tests/unit/compiler/grad/interp.h \
  tests/unit/graph/make.c tests/unit/graph/make.h \
  tests/unit/breadth.h \
  tests/unit/plan/stream/graph.c \
  tests/unit/plan/stream/later.c \
  tests/unit/plan/stream/models.c \
  tests/unit/plan/stream/models.h \
  tests/unit/plan/stream/rule.c \
  tests/unit/plan/stream/sizes.c \
  tests/unit/plan/stream/steps.c
tests_unit_test_plan_stream_CFLAGS = $(unit_cflags)
tests_unit_test_plan_stream_LDADD = libcompiler.a libkernels.a libresidues.a $(BLAS_LIBS) -lpthread $(libs_plan) $(unit_libs)
endif
