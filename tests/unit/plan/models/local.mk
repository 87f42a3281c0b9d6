# Unit tests of plan with real models: see the conventions at the top of Makefile.am. (Orders, programs and their proofs
# without a model: tests/unit/plan.)
if HAVE_CRITERION
check_PROGRAMS += tests/unit/test-plan-models
TESTS += tests/unit/test-plan-models
tests_unit_test_plan_models_SOURCES = \
  tests/unit/compiler/load.c tests/unit/compiler/load.h \
  tests/unit/plan/models/attend.c \
  tests/unit/plan/models/axes.c \
  tests/unit/plan/models/batch_gemms.c \
  tests/unit/plan/models/brute.c \
  tests/unit/plan/models/chunk.c \
  tests/unit/plan/models/convert.c \
  tests/unit/plan/models/delay_grads.c \
  tests/unit/plan/models/digest.c \
  tests/unit/plan/models/explain.c \
  tests/unit/plan/models/faults.h \
  tests/unit/plan/models/forward.c \
  tests/unit/plan/models/steps.c \
  tests/unit/plan/models/freeze.c \
  tests/unit/plan/models/packed.c \
  tests/unit/plan/models/fuse_bias_grad.c \
  tests/unit/plan/models/fuse_epilogue.c \
  tests/unit/plan/models/fuse_norm_sums.c \
  tests/unit/plan/models/fuse_pointwise.c \
  tests/unit/plan/models/fuse_prologue.c \
  tests/unit/plan/models/fuse_xent_grad.c \
  tests/unit/plan/models/generator.c \
  tests/unit/plan/models/json.c \
  tests/unit/plan/models/groups.c \
  tests/unit/plan/models/stash.c \
  tests/unit/plan/models/muon.c \
  tests/unit/plan/models/ledger.c tests/unit/plan/models/meaning.c \
  tests/unit/plan/models/halo.c \
  tests/unit/plan/models/linear.c \
  tests/unit/plan/models/overlap.c \
  tests/unit/plan/models/pad.c \
  tests/unit/plan/models/place.c \
  tests/unit/plan/models/plan.c \
  tests/unit/plan/models/plan.h \
  tests/unit/plan/models/recipes.c \
  tests/unit/plan/models/recipes.h \
  tests/unit/plan/models/remat.c \
  tests/unit/plan/models/rounds.c \
  tests/unit/plan/models/scale.c \
  tests/unit/plan/models/scratch.c \
  tests/unit/plan/models/segment.c \
  tests/unit/plan/models/shapes.c \
  tests/unit/plan/models/shard.c \
  tests/unit/plan/models/stage.c \
  tests/unit/plan/models/stream.c \
  tests/unit/plan/models/stream.h \
  tests/unit/plan/models/wide.c
tests_unit_test_plan_models_CFLAGS = $(unit_cflags)
tests_unit_test_plan_models_LDADD = libcompiler.a $(libs_exec) $(unit_libs)
endif
