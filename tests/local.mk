# Tests: unit tests (Criterion, a program a room), scenario tests (shell scripts) and fuzz targets.
#
# `make check` runs all. One unit test:      make check TESTS=tests/unit/test-graph
#                one Criterion case of it:   tests/unit/test-graph --filter 'suite/name'
#                one scenario:               make check TESTS=tests/scenarios/layouts.sh
# What a test printed is in TEST.log beside it.

# Tests are compiled in less time than their code would save if it were optimised.
unit_cflags = $(AM_CFLAGS) $(CRITERION_CFLAGS) -O0 -DZUG_SRC='"$(abs_top_srcdir)"'
unit_libs = $(CRITERION_LIBS)

include tests/unit/base/local.mk
include tests/unit/graph/local.mk
include tests/unit/lang/local.mk
include tests/unit/compiler/local.mk
include tests/unit/compiler/grad/local.mk
include tests/unit/kernels/local.mk
include tests/unit/kernels/cuda/local.mk
include tests/unit/plan/local.mk
include tests/unit/plan/models/local.mk
include tests/unit/plan/random/local.mk
include tests/unit/plan/stream/local.mk
include tests/unit/plan/whole/local.mk
include tests/unit/exec/local.mk
include tests/unit/exec/calibrate/local.mk
include tests/unit/exec/engine/local.mk
include tests/unit/exec/answer/local.mk
include tests/unit/exec/generate/local.mk
include tests/unit/exec/shape/local.mk
include tests/unit/keep/local.mk
include tests/unit/machine/local.mk
include tests/unit/text/local.mk
include tests/unit/zdata/local.mk
include tests/unit/zlog/local.mk

TEST_EXTENSIONS = .sh

# Unit tests report each case by itself (TAP).
LOG_DRIVER = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/build-aux/tap-driver.sh --merge
LOG_COMPILER = $(SHELL) $(srcdir)/tests/run-unit
SH_LOG_COMPILER = $(SHELL) $(srcdir)/tests/run-scenario

# Leaks and undefined behaviour must kill the test program, or Criterion does not see them. The stack that gcc 13.2 (Ubuntu
# 24.04) makes up to find uses after return leaves variables of 64 bytes' alignment without it; gcc 12 does not look for these.
AM_TESTS_ENVIRONMENT = \
  ZUG_SRC='$(abs_top_srcdir)' ZUG_BUILD='$(abs_top_builddir)' MPIRUN='$(MPIRUN)'; \
  ASAN_OPTIONS=abort_on_error=1:detect_leaks=1:detect_stack_use_after_return=0; \
  UBSAN_OPTIONS=print_stacktrace=1:abort_on_error=1; \
  export ZUG_SRC ZUG_BUILD MPIRUN ASAN_OPTIONS UBSAN_OPTIONS;

include tests/scenarios/local.mk
include tests/unit/fuzz/local.mk
TESTS += $(scenario_tests)

# What a push runs again with sanitizers: who reads foreign bytes, and communicators. (All of them: `make nightly`.)
if HAVE_CRITERION
sanitized_tests = tests/unit/test-base tests/unit/test-graph tests/unit/test-lang tests/unit/test-text tests/unit/test-zdata \
  tests/unit/test-zlog
if HAVE_MPI
sanitized_tests += tests/unit/test-exec
endif
endif
.PHONY: fuzz check-unit sanitized check-sanitized
# check-TESTS would first build all test programs.
only_these = check_PROGRAMS= check_LIBRARIES=
fuzz: zc zdata $(fuzz_programs)
	$(MAKE) $(AM_MAKEFLAGS) check-TESTS TESTS=tests/scenarios/fuzz.sh $(only_these)
sanitized: zc zdata $(sanitized_tests) $(fuzz_programs)
check-sanitized: sanitized
	$(MAKE) $(AM_MAKEFLAGS) check-TESTS TESTS='$(sanitized_tests) tests/scenarios/fuzz.sh' $(only_these)
check-unit: all $(check_PROGRAMS)
	$(MAKE) $(AM_MAKEFLAGS) check-TESTS TESTS='$(filter-out %.sh,$(TESTS))'

# Breadth, for a night: tests/nightly.sh.
.PHONY: nightly check-breadth
check-breadth: all $(check_PROGRAMS) $(bench_programs)
	BREADTH=all $(MAKE) $(AM_MAKEFLAGS) check-TESTS TESTS='$(TESTS) $(breadth_tests)'
nightly:
	ZUG_SRC='$(abs_top_srcdir)' ZUG_BUILD='$(abs_top_builddir)' $(SHELL) $(srcdir)/tests/nightly.sh

clean-local:
	rm -rf tests/scratch tests/seconds
