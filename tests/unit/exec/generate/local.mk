# Unit tests of what is generated when: see the conventions at the top of Makefile.am. They need no model.
if HAVE_CRITERION
check_PROGRAMS += tests/unit/test-generate
TESTS += tests/unit/test-generate
tests_unit_test_generate_SOURCES = \
  tests/unit/exec/generate/draft.c \
  tests/unit/exec/generate/pages.c \
  tests/unit/exec/generate/sample.c \
  tests/unit/exec/generate/scheduler.c \
  tests/unit/exec/generate/traces.c
tests_unit_test_generate_CFLAGS = $(unit_cflags)
tests_unit_test_generate_LDADD = libexec.a $(XXHASH_LIBS) $(libs_text) $(unit_libs)
endif
