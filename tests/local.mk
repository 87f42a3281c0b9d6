# Tests: unit tests (Criterion, a program a room), scenario tests (shell scripts) and fuzz targets.
#
# `make check` runs all. One unit test:      make check TESTS=tests/unit/test-graph
#                one Criterion case of it:   tests/unit/test-graph --filter 'suite/name'
#                one scenario:               make check TESTS=tests/mpi/layouts.sh
# What a test printed is in TEST.log beside it.

unit_cflags = $(AM_CFLAGS) $(CRITERION_CFLAGS) -DZUG_SRC='"$(abs_top_srcdir)"'
unit_libs = $(CRITERION_LIBS)

include tests/unit/base/local.mk
include tests/unit/graph/local.mk
include tests/unit/lang/local.mk
include tests/unit/compiler/local.mk
include tests/unit/kernels/local.mk
include tests/unit/plan/local.mk
include tests/unit/exec/local.mk

TEST_EXTENSIONS = .sh

# Unit tests report each case by itself (TAP).
EXTRA_DIST += tests/run-unit tests/run-mpi tests/lib.sh
LOG_DRIVER = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/build-aux/tap-driver.sh --merge
LOG_COMPILER = $(SHELL) $(srcdir)/tests/run-unit
SH_LOG_COMPILER = $(SHELL) $(srcdir)/tests/run-mpi

# Leaks and undefined behaviour must kill the test program, or Criterion does not see them.
AM_TESTS_ENVIRONMENT = \
  ZUG_SRC='$(abs_top_srcdir)' ZUG_BUILD='$(abs_top_builddir)' MPIRUN='$(MPIRUN)'; \
  ASAN_OPTIONS=abort_on_error=1:detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1:abort_on_error=1; \
  export ZUG_SRC ZUG_BUILD MPIRUN ASAN_OPTIONS UBSAN_OPTIONS;
