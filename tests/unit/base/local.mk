if HAVE_CRITERION
check_PROGRAMS += tests/unit/test-base
TESTS += tests/unit/test-base
tests_unit_test_base_SOURCES = tests/unit/base/base.c tests/unit/base/edges.c tests/unit/base/files.c \
  tests/unit/base/json_read.c \
  tests/unit/base/names.c tests/unit/base/folders.c tests/unit/base/options.c tests/unit/base/show.c tests/unit/base/texts.c
tests_unit_test_base_CFLAGS = $(unit_cflags)
tests_unit_test_base_CPPFLAGS = $(AM_CPPFLAGS) $(CJSON_CFLAGS)
tests_unit_test_base_LDADD = libbase.a $(CJSON_LIBS) $(libs_base) $(unit_libs)
endif
