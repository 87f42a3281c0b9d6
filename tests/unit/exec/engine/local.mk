# Unit tests of the engine and of what stands on it, with models and ranks: see the conventions at the top of
# Makefile.am. (Parts of it that need no model: tests/unit/exec.)
if HAVE_CRITERION
check_PROGRAMS += tests/unit/test-engine
TESTS += tests/unit/test-engine
tests_unit_test_engine_SOURCES = \
  tests/scenarios/tools/device_threads.c tests/scenarios/tools/device_threads.h \
  tests/unit/compiler/load.c tests/unit/compiler/load.h \
  tests/unit/exec/scratch.c tests/unit/exec/scratch.h \
  tests/unit/exec/engine/alike.c \
  tests/unit/exec/engine/checkpoints.c \
  tests/unit/exec/engine/devices.c \
  tests/unit/exec/engine/generate.c \
  tests/unit/exec/engine/inputs.c \
  tests/unit/exec/engine/job.c \
  tests/unit/exec/engine/job.h \
  tests/unit/exec/engine/layouts.c \
  tests/unit/exec/engine/muon.c \
  tests/unit/exec/engine/optimizers.c \
  tests/unit/exec/engine/outputs.c \
  tests/unit/exec/engine/parameters.c \
  tests/unit/exec/engine/peaks.c \
  tests/unit/exec/engine/profile.c \
  tests/unit/exec/engine/queued.c \
  tests/unit/exec/engine/queued.h \
  tests/unit/exec/engine/soundness.c \
  tests/unit/exec/engine/stalls.c \
  tests/unit/exec/engine/streams.c \
  tests/unit/exec/engine/traces.c \
  tests/unit/exec/engine/waits.c \
  tests/unit/exec/engine/fallback.c \
  tests/unit/exec/engine/world.c \
  tests/unit/exec/engine/world.h \
  tests/unit/exec/engine/writer.c \
  tests/unit/plan/stream/models.c tests/unit/plan/stream/models.h \
  tests/unit/plan/models/plan.c tests/unit/plan/models/plan.h
tests_unit_test_engine_CFLAGS = $(unit_cflags)
tests_unit_test_engine_LDADD = $(libs_zrun) $(unit_libs)
endif
