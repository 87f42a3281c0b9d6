# Unit tests of zdata: see the conventions at the top of Makefile.am.
if HAVE_CRITERION
check_PROGRAMS += tests/unit/test-zdata
TESTS += tests/unit/test-zdata
tests_unit_test_zdata_SOURCES = \
  tests/unit/exec/scratch.c \
  tests/unit/exec/scratch.h \
  tests/unit/zdata/documents.c \
  tests/unit/zdata/folder.c \
  tests/unit/zdata/lines.c \
  tests/unit/zdata/sink.c
tests_unit_test_zdata_CFLAGS = $(unit_cflags)
tests_unit_test_zdata_LDADD = $(libs_zdata) $(unit_libs)
endif
