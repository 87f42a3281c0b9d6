# Unit tests of keep: see the conventions at the top of Makefile.am.
if HAVE_CRITERION
check_PROGRAMS += tests/unit/test-keep
TESTS += tests/unit/test-keep
tests_unit_test_keep_SOURCES = \
  tests/unit/exec/scratch.c tests/unit/exec/scratch.h \
  tests/unit/keep/child.c \
  tests/unit/keep/hosts.c \
  tests/unit/keep/policy.c
tests_unit_test_keep_CFLAGS = $(unit_cflags)
tests_unit_test_keep_LDADD = libkeep.a $(libs_base) $(unit_libs)
endif
