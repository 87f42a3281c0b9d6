# Unit tests of plan with real models: see the conventions at the top of Makefile.am. (Orders, programs and their proofs
# without a model: tests/unit/plan.)
if HAVE_CRITERION
check_PROGRAMS += tests/unit/test-layout
TESTS += tests/unit/test-layout
tests_unit_test_layout_SOURCES = \
  tests/unit/compiler/load.c tests/unit/compiler/load.h \
  tests/unit/layout/fuse_epilogue.c tests/unit/layout/fuse_prologue.c tests/unit/layout/fuse_bias_grad.c \
  tests/unit/layout/brute.c \
  tests/unit/layout/convert.c tests/unit/layout/digest.c \
  tests/unit/layout/explain.c \
  tests/unit/layout/fuse_pointwise.c \
  tests/unit/layout/generator.c \
  tests/unit/layout/ledger.c \
  tests/unit/layout/pad.c \
  tests/unit/layout/place.c \
  tests/unit/layout/plan.c \
  tests/unit/layout/plan.h \
  tests/unit/layout/play.c \
  tests/unit/layout/profile.c \
  tests/unit/layout/random.c \
  tests/unit/layout/recipes.c \
  tests/unit/layout/recipes.h \
  tests/unit/layout/remat.c \
  tests/unit/layout/segment.c \
  tests/unit/layout/shapes.c \
  tests/unit/layout/shard.c \
  tests/unit/layout/batch_gemms.c \
  tests/unit/layout/stage.c \
  tests/unit/layout/stream.c \
  tests/unit/layout/stream.h
tests_unit_test_layout_CFLAGS = $(unit_cflags)
tests_unit_test_layout_LDADD = libcompiler.a $(libs_exec) $(unit_libs)
endif
