# Unit tests of JSON schemas and the tokens that they let come: see the conventions at the top of Makefile.am.
if HAVE_CRITERION
check_PROGRAMS += tests/unit/test-shape
TESTS += tests/unit/test-shape
tests_unit_test_shape_SOURCES = \
  tests/unit/exec/shape/masks.c \
  tests/unit/exec/shape/schema.c \
  tests/unit/exec/shape/tokens.c \
  tests/unit/exec/shape/tokens.h
tests_unit_test_shape_CPPFLAGS = $(AM_CPPFLAGS) $(CJSON_CFLAGS)
tests_unit_test_shape_CFLAGS = $(unit_cflags)
tests_unit_test_shape_LDADD = libexec.a $(libs_text) $(unit_libs)
endif
