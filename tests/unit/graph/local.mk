# Unit tests of graph: see the conventions at the top of Makefile.am.
if HAVE_CRITERION
check_PROGRAMS += tests/unit/test-graph
TESTS += tests/unit/test-graph
tests_unit_test_graph_SOURCES = tests/unit/golden.h tests/unit/golden.c \
  tests/unit/graph/bytes.c \
  tests/unit/graph/file.c \
  tests/unit/graph/foreign.c \
  tests/unit/graph/infer.c \
  tests/unit/graph/limits.c \
  tests/unit/graph/make.c \
  tests/unit/graph/make.h \
  tests/unit/graph/outcomes.c \
  tests/unit/graph/outcomes.h \
  tests/unit/graph/rules.c \
  tests/unit/graph/verify.c
tests_unit_test_graph_CFLAGS = $(unit_cflags)
tests_unit_test_graph_LDADD = $(libs_graph) $(unit_libs)
endif

# The expected outcomes of rules.c and bytes.c, from what they are now.
regenerate-outcomes: tests/unit/test-graph
	for suite in rules bytes; do REGENERATE=yes tests/unit/test-graph --filter "$$suite/*" || exit 1; done
.PHONY: regenerate-outcomes
