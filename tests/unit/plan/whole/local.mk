# Whole plans and times: see the conventions at the top of Makefile.am.
if HAVE_CRITERION
check_PROGRAMS += tests/unit/test-plan-whole
TESTS += tests/unit/test-plan-whole
tests_unit_test_plan_whole_SOURCES = tests/unit/golden.h tests/unit/golden.c \
  tests/unit/compiler/load.c tests/unit/compiler/load.h \
  tests/unit/plan/models/plan.c tests/unit/plan/models/plan.h \
  tests/unit/plan/models/recipes.c tests/unit/plan/models/recipes.h \
  tests/unit/plan/whole/compare.c \
  tests/unit/plan/whole/search.c \
  tests/unit/plan/whole/whole.c tests/unit/plan/whole/whole.h
tests_unit_test_plan_whole_CFLAGS = $(unit_cflags)
tests_unit_test_plan_whole_CPPFLAGS = $(AM_CPPFLAGS) $(CJSON_CFLAGS)
tests_unit_test_plan_whole_LDADD = libcompiler.a libplan.a libkernels.a libresidues.a liblang.a $(CJSON_LIBS) $(BLAS_LIBS) -lpthread $(libs_graph) $(unit_libs)
endif

regenerate-whole: tests/unit/test-plan-whole
	REGENERATE=yes tests/unit/test-plan-whole
.PHONY: regenerate-whole
