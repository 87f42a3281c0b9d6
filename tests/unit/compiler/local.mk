# Unit tests of compiler: see the conventions at the top of Makefile.am. (Derivatives: tests/unit/compiler/grad.)
if HAVE_CRITERION
check_PROGRAMS += tests/unit/test-compiler
TESTS += tests/unit/test-compiler
tests_unit_test_compiler_SOURCES = \
  tests/unit/compiler/calls.c tests/unit/compiler/graphs.c tests/unit/compiler/load.c tests/unit/compiler/load.h tests/unit/compiler/messages.c \
  tests/unit/compiler/num.c tests/unit/compiler/scale.c tests/unit/compiler/structure.c
EXTRA_DIST += tests/unit/compiler/calls.txt
tests_unit_test_compiler_CFLAGS = $(unit_cflags)
tests_unit_test_compiler_LDADD = $(libs_compiler) $(unit_libs)
endif

# The expected messages of tests/lang/types, from what `zc --check` says now. A first line `# zc: -D n=3` gives
# options. Read the difference before you commit it.
regenerate-types: zc
	cd $(srcdir)/tests/lang/types && for f in *.zug; do \
	  $(abs_builddir)/zc --check `sed -n '1s/^# zc: //p' $$f` $$f > $${f%.zug}.expect 2>&1; \
	done; true
.PHONY: regenerate-types

# The expected graphs of tests/graphs, from what is made now.
EXTRA_DIST += tests/graphs
regenerate-graphs: zc
	cd $(srcdir)/tests/graphs && for f in *.zug; do \
	  $(abs_builddir)/zc -d elab -d final $$f > $${f%.zug}.expect || exit 1; \
	done
.PHONY: regenerate-graphs
