# Unit tests of calibrate: see the conventions at the top of Makefile.am. A program of its own, since its clock and
# its CPU are not the library's.
if HAVE_CRITERION
check_PROGRAMS += tests/unit/test-calibrate
TESTS += tests/unit/test-calibrate
tests_unit_test_calibrate_SOURCES = \
  tests/unit/exec/calibrate/clock.c \
  tests/unit/exec/calibrate/command.c \
  tests/unit/exec/calibrate/device.c \
  tests/unit/exec/calibrate/machine.h \
  tests/unit/exec/calibrate/world.c \
  tests/unit/exec/scratch.c tests/unit/exec/scratch.h
tests_unit_test_calibrate_CFLAGS = $(unit_cflags)
tests_unit_test_calibrate_LDADD = $(libs_exec) $(unit_libs)
endif
