# Unit tests of graph: see the conventions at the top of Makefile.am.
EXTRA_DIST += tests/unit/graph/rules.txt tests/unit/graph/sample.txt
if HAVE_CRITERION
check_PROGRAMS += tests/unit/test-graph
TESTS += tests/unit/test-graph
tests_unit_test_graph_SOURCES = \
  tests/unit/graph/file.c \
  tests/unit/graph/infer.c \
  tests/unit/graph/make.c \
  tests/unit/graph/make.h \
  tests/unit/graph/rules.c \
  tests/unit/graph/verify.c
tests_unit_test_graph_CFLAGS = $(unit_cflags)
tests_unit_test_graph_LDADD = $(libs_graph) $(unit_libs)
endif

# The expected outcomes of rules.c, from what they are now. Read the difference before you commit it.
regenerate-rules: tests/unit/test-graph
	-REGENERATE='$(abs_top_srcdir)/tests/unit/graph/rules.txt' tests/unit/test-graph --filter 'rules/*'
.PHONY: regenerate-rules
