# Unit tests of queries and answers, with a model that is a table: see the conventions at the top of Makefile.am.
if HAVE_CRITERION
check_PROGRAMS += tests/unit/test-answer
TESTS += tests/unit/test-answer
tests_unit_test_answer_SOURCES = \
  tests/unit/exec/answer/answers.c \
  tests/unit/exec/answer/folder.c \
  tests/unit/exec/answer/query.c
tests_unit_test_answer_CFLAGS = $(unit_cflags)
tests_unit_test_answer_LDADD = libexec.a libcompiler.a $(libs_lang) $(libs_graph) $(libs_text) $(unit_libs)
endif
