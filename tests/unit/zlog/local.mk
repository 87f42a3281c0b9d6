# Unit tests of zlog: see the conventions at the top of Makefile.am.
if HAVE_CRITERION
check_PROGRAMS += tests/unit/test-zlog
TESTS += tests/unit/test-zlog
tests_unit_test_zlog_SOURCES = tests/unit/zlog/figure.c
tests_unit_test_zlog_CPPFLAGS = $(AM_CPPFLAGS) $(CJSON_CFLAGS)
tests_unit_test_zlog_CFLAGS = $(unit_cflags)
tests_unit_test_zlog_LDADD = $(libs_zlog) $(unit_libs)
endif
