# Unit tests of plan with random recipes, thousands of them: see the conventions at the top of Makefile.am.
if HAVE_CRITERION
check_PROGRAMS += tests/unit/test-plan-random
TESTS += tests/unit/test-plan-random
tests_unit_test_plan_random_SOURCES = \
  tests/unit/compiler/load.c tests/unit/compiler/load.h \
  tests/unit/plan/models/brute.c \
  tests/unit/plan/models/plan.c tests/unit/plan/models/plan.h \
  tests/unit/plan/models/recipes.c tests/unit/plan/models/recipes.h \
  tests/unit/plan/random/change.c tests/unit/plan/random/change.h \
  tests/unit/plan/random/differ.c \
  tests/unit/plan/random/nodes.c \
  tests/unit/plan/random/play.c tests/unit/plan/random/play.h \
  tests/unit/plan/random/player.c tests/unit/plan/random/player.h \
  tests/unit/plan/random/reach.c \
  tests/unit/plan/random/random.c
tests_unit_test_plan_random_CFLAGS = $(unit_cflags)
tests_unit_test_plan_random_LDADD = libcompiler.a libplan.a libkernels.a libresidues.a liblang.a $(CJSON_LIBS) $(BLAS_LIBS) -lpthread $(libs_graph) $(unit_libs)
endif
