# Unit tests of exec: see the conventions at the top of Makefile.am.
if HAVE_CRITERION
check_PROGRAMS += tests/unit/test-exec
TESTS += tests/unit/test-exec
tests_unit_test_exec_SOURCES = \
  tests/unit/exec/calls.c \
  tests/unit/exec/ckpt.c \
  tests/unit/exec/config.c \
  tests/unit/exec/cpu.c \
  tests/unit/exec/damaged.c \
  tests/unit/exec/data.c \
  tests/unit/exec/device.c \
  tests/unit/exec/documents.c \
  tests/unit/exec/windows.c \
  tests/unit/exec/engine.c \
  tests/unit/exec/epochs.c \
  tests/unit/exec/evaluate.c \
  tests/unit/exec/exports.c \
  tests/unit/exec/facts.c \
  tests/unit/exec/foreign_files.c \
  tests/unit/exec/foreign_files.h \
  tests/unit/exec/gguf.c \
  tests/unit/exec/hang.c \
  tests/unit/exec/health.c \
  tests/unit/exec/hub.c \
  tests/unit/exec/lines.c \
  tests/unit/exec/log.c \
  tests/unit/exec/manifest.c \
  tests/unit/exec/manifest_file.c \
  tests/unit/exec/manifest_file.h \
  tests/unit/exec/mix.c \
  tests/unit/exec/options.c \
  tests/unit/exec/p2p_reduce.c \
  tests/unit/exec/post.c \
  tests/unit/exec/quantized.c \
  tests/unit/exec/reap.c \
  tests/unit/exec/recipe.c \
  tests/unit/exec/report.c \
  tests/unit/exec/same.c \
  tests/unit/exec/saves.c \
  tests/unit/exec/stop.c \
  tests/unit/exec/scratch.c \
  tests/unit/exec/scratch.h \
  tests/unit/exec/self.c \
  tests/unit/exec/shm.c \
  tests/unit/exec/sinks.c \
  tests/unit/exec/state.c \
  tests/unit/exec/stream_file.c \
  tests/unit/exec/stream_file.h \
  tests/unit/exec/synced.c \
  tests/unit/exec/threads.c \
  tests/unit/exec/threads.h \
  tests/unit/exec/trace.c \
  tests/unit/exec/vigil.c \
  tests/unit/exec/weights.c
tests_unit_test_exec_CPPFLAGS = $(AM_CPPFLAGS) $(CJSON_CFLAGS) $(XXHASH_CFLAGS)
tests_unit_test_exec_CFLAGS = $(unit_cflags)
tests_unit_test_exec_LDADD = $(libs_zrun) $(unit_libs)
endif
