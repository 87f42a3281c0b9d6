# Tests: unit tests (Criterion, a program a room), scenario tests (shell scripts) and fuzz targets.
#
# `make check` runs all. One unit test:      make check TESTS=tests/unit/test-graph
#                one Criterion case of it:   tests/unit/test-graph --filter 'suite/name'
#                one scenario:               make check TESTS=tests/mpi/layouts.sh
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
include tests/unit/plan/whole/local.mk
include tests/unit/exec/local.mk
include tests/unit/exec/calibrate/local.mk
include tests/unit/exec/engine/local.mk
include tests/unit/keep/local.mk
include tests/unit/machine/local.mk
include tests/unit/text/local.mk
include tests/unit/zdata/local.mk
include tests/unit/zlog/local.mk

TEST_EXTENSIONS = .sh

# Unit tests report each case by itself (TAP).
LOG_DRIVER = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/build-aux/tap-driver.sh --merge
LOG_COMPILER = $(SHELL) $(srcdir)/tests/run-unit
SH_LOG_COMPILER = $(SHELL) $(srcdir)/tests/run-mpi

# Leaks and undefined behaviour must kill the test program, or Criterion does not see them. The stack that gcc 13.2 (Ubuntu
# 24.04) makes up to find uses after return leaves variables of 64 bytes' alignment without it; gcc 12 does not look for these.
AM_TESTS_ENVIRONMENT = \
  ZUG_SRC='$(abs_top_srcdir)' ZUG_BUILD='$(abs_top_builddir)' MPIRUN='$(MPIRUN)'; \
  ASAN_OPTIONS=abort_on_error=1:detect_leaks=1:detect_stack_use_after_return=0; \
  UBSAN_OPTIONS=print_stacktrace=1:abort_on_error=1; \
  export ZUG_SRC ZUG_BUILD MPIRUN ASAN_OPTIONS UBSAN_OPTIONS;

# ---- scenarios: those that a push runs, and those that a night adds ----
breadth_tests += \
  tests/bootstrap.sh \
  tests/install.sh \
  tests/plan/browser.sh \
  tests/plan/search.sh \
  tests/relocatable.sh
scenario_tests += \
  tests/cli/files.sh \
  tests/cli/fmt.sh \
  tests/cli/zc.sh \
  tests/complete.sh \
  tests/editors.sh \
  tests/examples.sh \
  tests/format.sh \
  tests/keep.sh \
  tests/library.sh \
  tests/mpi/comm.sh \
  tests/plan.sh \
  tests/plan/published.sh \
  tests/plan/report.sh \
  tests/plan/machine.sh \
  tests/readme.sh \
  tests/rooms.sh \
  tests/zdata.sh \
  tests/zdata_files.sh \
  tests/zdata_import.sh \
  tests/zdata_inputs.sh \
  tests/zlog.sh \
  tests/zdata_tokenizer.sh \
  tests/zdata_tokens.sh
include tests/mpi/local.mk
include tests/plan/local.mk

regenerate-zlog: all
	REGENERATE=yes ZUG_SRC='$(abs_top_srcdir)' ZUG_BUILD='$(abs_builddir)' $(SHELL) $(srcdir)/tests/run-mpi $(srcdir)/tests/zlog.sh
.PHONY: regenerate-zlog
TESTS += $(scenario_tests)

if HAVE_MPI
check_PROGRAMS += tests/mpi/comm
tests_mpi_comm_SOURCES = tests/mpi/comm.c
tests_mpi_comm_CPPFLAGS = $(AM_CPPFLAGS) $(MPI_CFLAGS)
tests_mpi_comm_LDADD = $(libs_exec)

# A step with a communicator that counts: tests/mpi/moved.sh.
check_PROGRAMS += tests/mpi/moved
tests_mpi_moved_SOURCES = tests/mpi/moved.c
tests_mpi_moved_LDADD = $(libs_exec)

# zrun with one device more: tests/mpi/streams.sh.
check_PROGRAMS += tests/mpi/zrun-threads
tests_mpi_zrun_threads_SOURCES = runtime/exec/zrun.c tests/mpi/device_threads.c tests/mpi/device_threads.h \
  tests/mpi/patience.c
tests_mpi_zrun_threads_LDADD = $(libs_exec)

# zrun on nodes that are made up: tests/mpi/nodes.sh.
check_PROGRAMS += tests/mpi/zrun-nodes
tests_mpi_zrun_nodes_SOURCES = runtime/exec/zrun.c tests/mpi/nodes.c
tests_mpi_zrun_nodes_LDADD = $(libs_exec)
# Those that do not wait for long: tests/mpi/stall.sh.
check_PROGRAMS += tests/mpi/stall tests/mpi/zrun-hasty
tests_mpi_stall_SOURCES = tests/mpi/stall.c tests/mpi/patience.c
tests_mpi_stall_LDADD = $(libs_exec)
tests_mpi_zrun_hasty_SOURCES = runtime/exec/zrun.c tests/mpi/patience.c
tests_mpi_zrun_hasty_LDADD = $(libs_exec)
endif

# ---- fuzzing: built and run where the sanitizers watch ----
fuzz_programs = tests/fuzz/fuzz-lang tests/fuzz/fuzz-format tests/fuzz/fuzz-zsg tests/fuzz/fuzz-data tests/fuzz/fuzz-manifest \
  tests/fuzz/fuzz-weights tests/fuzz/fuzz-hub tests/fuzz/fuzz-metrics tests/fuzz/fuzz-text \
  tests/fuzz/fuzz-documents tests/fuzz/fuzz-megatron tests/fuzz/fuzz-table tests/fuzz/fuzz-config tests/fuzz/fuzz-trace \
  tests/fuzz/fuzz-hosts
EXTRA_PROGRAMS += $(fuzz_programs)
tests_fuzz_fuzz_lang_SOURCES = tests/fuzz/driver.c tests/fuzz/fuzz_lang.c
tests_fuzz_fuzz_lang_LDADD = $(libs_compiler)
tests_fuzz_fuzz_format_SOURCES = tests/fuzz/driver.c tests/fuzz/fuzz_format.c
tests_fuzz_fuzz_format_LDADD = $(libs_compiler)
tests_fuzz_fuzz_config_SOURCES = tests/fuzz/driver.c tests/fuzz/fuzz_config.c
tests_fuzz_fuzz_config_LDADD = $(libs_compiler)
tests_fuzz_fuzz_trace_SOURCES = tests/fuzz/driver.c tests/fuzz/fuzz_trace.c
tests_fuzz_fuzz_trace_LDADD = libcompiler.a $(libs_plan)
tests_fuzz_fuzz_zsg_SOURCES = tests/fuzz/driver.c tests/fuzz/fuzz_zsg.c tests/fuzz/mend.h \
  tests/fuzz/mend_zsg.c
tests_fuzz_fuzz_zsg_LDADD = $(libs_graph)
tests_fuzz_fuzz_data_SOURCES = tests/fuzz/driver.c tests/fuzz/fuzz_data.c tests/fuzz/mend.h \
  tests/fuzz/mend_data.c
tests_fuzz_fuzz_data_LDADD = $(libs_exec)
tests_fuzz_fuzz_manifest_SOURCES = tests/fuzz/driver.c tests/fuzz/fuzz_manifest.c tests/fuzz/mend.h \
  tests/fuzz/mend_manifest.c runtime/exec/ckpt/zckpt_read.c runtime/exec/ckpt/zckpt_verify.c
tests_fuzz_fuzz_manifest_CPPFLAGS = $(AM_CPPFLAGS) $(CJSON_CFLAGS)
tests_fuzz_fuzz_manifest_LDADD = $(libs_exec)
tests_fuzz_fuzz_documents_SOURCES = tests/fuzz/driver.c tests/fuzz/fuzz_documents.c
tests_fuzz_fuzz_documents_CPPFLAGS = $(AM_CPPFLAGS) $(ZLIB_CFLAGS) $(ZSTD_CFLAGS)
tests_fuzz_fuzz_documents_LDADD = $(libs_zdata)
tests_fuzz_fuzz_megatron_SOURCES = tests/fuzz/driver.c tests/fuzz/fuzz_megatron.c tests/fuzz/mend.h
tests_fuzz_fuzz_megatron_LDADD = $(libs_zdata)
tests_fuzz_fuzz_table_SOURCES = tests/fuzz/driver.c tests/fuzz/fuzz_table.c
tests_fuzz_fuzz_table_LDADD = $(libs_zdata)
tests_fuzz_fuzz_weights_SOURCES = tests/fuzz/driver.c tests/fuzz/fuzz_weights.c tests/fuzz/mend.h \
  tests/fuzz/mend_weights.c
tests_fuzz_fuzz_weights_LDADD = $(libs_exec)
tests_fuzz_fuzz_hub_SOURCES = tests/fuzz/driver.c tests/fuzz/fuzz_hub.c tests/fuzz/mend.h \
  tests/fuzz/mend_weights.c
tests_fuzz_fuzz_hub_LDADD = $(libs_exec)
tests_fuzz_fuzz_metrics_SOURCES = tests/fuzz/driver.c tests/fuzz/fuzz_metrics.c
tests_fuzz_fuzz_metrics_CPPFLAGS = $(AM_CPPFLAGS) $(CJSON_CFLAGS)
tests_fuzz_fuzz_metrics_LDADD = $(libs_zlog)
tests_fuzz_fuzz_text_SOURCES = tests/fuzz/driver.c tests/fuzz/fuzz_text.c
tests_fuzz_fuzz_text_LDADD = $(libs_text)
tests_fuzz_fuzz_hosts_SOURCES = tests/fuzz/driver.c tests/fuzz/fuzz_hosts.c
tests_fuzz_fuzz_hosts_LDADD = libkeep.a $(libs_base)
CLEANFILES += $(fuzz_programs)

# What a push runs again with sanitizers: who reads foreign bytes, and communicators. (All of them: `make nightly`.)
if HAVE_CRITERION
sanitized_tests = tests/unit/test-base tests/unit/test-graph tests/unit/test-lang tests/unit/test-text tests/unit/test-zdata \
  tests/unit/test-zlog
if HAVE_MPI
sanitized_tests += tests/unit/test-exec
endif
endif
.PHONY: fuzz check-unit sanitized check-sanitized
fuzz: zc zdata $(fuzz_programs)
	$(MAKE) $(AM_MAKEFLAGS) check-TESTS TESTS=tests/fuzz.sh
sanitized: zc zdata $(sanitized_tests) $(fuzz_programs)
check-sanitized: sanitized
	BREADTH=few $(MAKE) $(AM_MAKEFLAGS) check-TESTS TESTS='$(sanitized_tests) tests/fuzz.sh'
check-unit: all $(check_PROGRAMS)
	$(MAKE) $(AM_MAKEFLAGS) check-TESTS TESTS='$(filter-out %.sh,$(TESTS))'

# Breadth, for a night: tests/nightly.sh.
.PHONY: nightly check-breadth
check-breadth: all $(check_PROGRAMS) $(bench_programs)
	BREADTH=all $(MAKE) $(AM_MAKEFLAGS) check-TESTS TESTS='$(TESTS) $(breadth_tests)'
nightly:
	ZUG_SRC='$(abs_top_srcdir)' ZUG_BUILD='$(abs_top_builddir)' $(SHELL) $(srcdir)/tests/nightly.sh

clean-local:
	rm -rf tests/scratch

include tests/cuda/local.mk
include tests/gpu/local.mk
include tests/tools/local.mk
