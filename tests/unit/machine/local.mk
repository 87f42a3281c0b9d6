# Unit tests of machine: see the conventions at the top of Makefile.am.
if HAVE_CRITERION
check_PROGRAMS += tests/unit/test-machine
TESTS += tests/unit/test-machine
tests_unit_test_machine_SOURCES = tests/unit/machine/machine.c
tests_unit_test_machine_CPPFLAGS = $(AM_CPPFLAGS) $(HWLOC_CFLAGS)
tests_unit_test_machine_CFLAGS = $(unit_cflags)
tests_unit_test_machine_LDADD = $(libs_machine) $(libs_base) $(unit_libs)
endif
