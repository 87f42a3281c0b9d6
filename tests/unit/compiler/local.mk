# Unit tests of compiler: see the conventions at the top of Makefile.am. (Derivatives: tests/unit/compiler/grad.)
if HAVE_CRITERION
check_PROGRAMS += tests/unit/test-compiler
TESTS += tests/unit/test-compiler
tests_unit_test_compiler_SOURCES = \
  tests/unit/golden.h tests/unit/golden.c tests/unit/compiler/calls.c tests/unit/compiler/graphs.c tests/unit/compiler/load.c tests/unit/compiler/load.h tests/unit/compiler/messages.c \
  tests/unit/compiler/num.c tests/unit/compiler/scale.c tests/unit/compiler/structure.c
tests_unit_test_compiler_CFLAGS = $(unit_cflags)
tests_unit_test_compiler_LDADD = $(libs_compiler) $(unit_libs)
endif

# What is expected in tests/data/lang/types and tests/data/graphs, from what is said and made now.
regenerate-types: tests/unit/test-compiler
	REGENERATE=yes tests/unit/test-compiler --filter 'messages/golden'
regenerate-graphs: tests/unit/test-compiler
	REGENERATE=yes tests/unit/test-compiler --filter 'graphs/golden'
.PHONY: regenerate-types regenerate-graphs
