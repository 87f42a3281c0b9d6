# Unit tests of lang: see the conventions at the top of Makefile.am.
EXTRA_DIST += tests/lang
if HAVE_CRITERION
check_PROGRAMS += tests/unit/test-lang tests/unit/test-library
TESTS += tests/unit/test-lang tests/unit/test-library
tests_unit_test_lang_SOURCES = \
  tests/unit/lang/bytes.c tests/unit/lang/codes.c tests/unit/lang/golden.c tests/unit/lang/program.c tests/unit/lang/recipe.c \
  tests/unit/lang/recipe_text.c \
  tests/unit/lang/records.c tests/unit/lang/records.h tests/unit/lang/render.c tests/unit/lang/render.h \
  tests/unit/lang/sources.c
tests_unit_test_lang_CFLAGS = $(unit_cflags)
tests_unit_test_lang_LDADD = $(libs_lang) $(unit_libs)
tests_unit_test_library_SOURCES = tests/unit/lang/library.c
tests_unit_test_library_CFLAGS = $(unit_cflags)
tests_unit_test_library_LDADD = $(libs_lang) $(unit_libs)
endif

# The expected messages, trees, recipes and layouts of tests/lang, from what is said now.
EXTRA_PROGRAMS += tests/unit/lang-print
tests_unit_lang_print_SOURCES = tests/unit/lang/print.c \
  tests/unit/lang/records.c tests/unit/lang/records.h tests/unit/lang/render.c tests/unit/lang/render.h
tests_unit_lang_print_LDADD = $(libs_lang)
CLEANFILES += tests/unit/lang-print
regenerate-lang: tests/unit/lang-print
	cd $(srcdir)/tests/lang && for f in *.zug format/*.zug; do \
	  $(abs_builddir)/tests/unit/lang-print $$f > $${f%.zug}.expect || exit 1; \
	done
.PHONY: regenerate-lang
