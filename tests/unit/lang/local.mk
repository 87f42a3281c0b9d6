# Unit tests of lang: see the conventions at the top of Makefile.am.
if HAVE_CRITERION
check_PROGRAMS += tests/unit/test-lang tests/unit/test-library
TESTS += tests/unit/test-lang tests/unit/test-library
tests_unit_test_lang_SOURCES = \
  tests/unit/golden.h tests/unit/golden.c tests/unit/lang/bytes.c tests/unit/lang/codes.c tests/unit/lang/golden.c tests/unit/lang/program.c tests/unit/lang/recipe.c \
  tests/unit/lang/recipe_text.c \
  tests/unit/lang/records.c tests/unit/lang/records.h tests/unit/lang/render.c tests/unit/lang/render.h \
  tests/unit/lang/sources.c
tests_unit_test_lang_CFLAGS = $(unit_cflags)
tests_unit_test_lang_LDADD = $(libs_lang) $(unit_libs)
tests_unit_test_library_SOURCES = tests/unit/lang/library.c
tests_unit_test_library_CFLAGS = $(unit_cflags)
tests_unit_test_library_LDADD = $(libs_lang) $(unit_libs)
endif

# The expected messages, trees, recipes and layouts of tests/data/lang, from what is said now.
regenerate-lang: tests/unit/test-lang
	REGENERATE=yes tests/unit/test-lang --filter 'golden/*'
.PHONY: regenerate-lang
