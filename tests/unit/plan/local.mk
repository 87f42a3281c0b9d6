# Unit tests of plan: see the conventions at the top of Makefile.am.
if HAVE_CRITERION
check_PROGRAMS += tests/unit/test-plan
TESTS += tests/unit/test-plan
tests_unit_test_plan_SOURCES = \
  tests/unit/plan/alike.c \
  tests/unit/plan/broken.c \
  tests/unit/plan/broken.h \
  tests/unit/plan/check.c \
  tests/unit/plan/check_memory.c \
  tests/unit/plan/cut.c \
  tests/unit/plan/fake.c \
  tests/unit/plan/fake.h \
  tests/unit/plan/nodes.c \
  tests/unit/plan/machine.c \
  tests/unit/plan/machine.h \
  tests/unit/plan/mutate.c \
  tests/unit/plan/order.c \
  tests/unit/plan/program.c \
  tests/unit/plan/published.c \
  tests/unit/plan/rate.c \
  tests/unit/plan/rehearse.c \
  tests/unit/plan/time.c
tests_unit_test_plan_CFLAGS = $(unit_cflags)
tests_unit_test_plan_LDADD = $(libs_plan) $(unit_libs)
endif
