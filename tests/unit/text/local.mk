# Unit tests of text: see the conventions at the top of Makefile.am.
if HAVE_CRITERION
check_PROGRAMS += tests/unit/test-text
TESTS += tests/unit/test-text
tests_unit_test_text_SOURCES = \
  tests/unit/text/bounds.c \
  tests/unit/text/broken.c \
  tests/unit/text/detokenize.c \
  tests/unit/text/files.c \
  tests/unit/text/files.h \
  tests/unit/text/ids.c \
  tests/unit/text/large.c \
  tests/unit/text/learned.c \
  tests/unit/text/plain.c \
  tests/unit/text/plain.h \
  tests/unit/text/regex.c \
  tests/unit/text/template.c \
  tests/unit/text/train.c \
  tests/unit/text/variants.c
tests_unit_test_text_CPPFLAGS = $(AM_CPPFLAGS) $(CJSON_CFLAGS)
tests_unit_test_text_CFLAGS = $(unit_cflags)
tests_unit_test_text_LDADD = $(libs_text) $(unit_libs)
endif
