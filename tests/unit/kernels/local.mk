# Unit tests of kernels: see the conventions at the top of Makefile.am.
if HAVE_CRITERION
check_PROGRAMS += tests/unit/test-kernels
TESTS += tests/unit/test-kernels
tests_unit_test_kernels_SOURCES = tests/unit/kernels/conform.h \
  tests/unit/kernels/conform.c \
  tests/unit/kernels/update.h \
  tests/unit/kernels/cpu.c \
  tests/unit/kernels/pointwise.c \
  tests/unit/kernels/attend.h \
  tests/unit/kernels/attend.c \
  tests/unit/kernels/attend_parts.c \
  tests/unit/kernels/bgemm.h \
  tests/unit/kernels/bgemm.c \
  tests/unit/kernels/bgemm_amx.c \
  tests/unit/kernels/bgemm_attend.c \
  tests/unit/kernels/bgemm_dot.c \
  tests/unit/kernels/conv.c \
  tests/unit/kernels/elem.c \
  tests/unit/kernels/ew.c \
  tests/unit/kernels/adamw8.c \
  tests/unit/kernels/flat.c \
  tests/unit/kernels/gradients.c \
  tests/unit/kernels/linear.c \
  tests/unit/kernels/machine.c \
  tests/unit/kernels/muon.c \
  tests/unit/kernels/move.c \
  tests/unit/kernels/norm.c \
  tests/unit/kernels/reduce.c \
  tests/unit/kernels/residues.c \
  tests/unit/kernels/select.c \
  tests/unit/kernels/step.h \
  tests/unit/kernels/step.c \
  tests/unit/kernels/steps.c \
  tests/unit/kernels/unfuse.c \
  tests/unit/kernels/experts.c \
  tests/unit/kernels/fgemm.c \
  tests/unit/kernels/invariant.c \
  tests/unit/kernels/packed.c \
  tests/unit/kernels/grouped_half.c \
  tests/unit/kernels/grouped.c
tests_unit_test_kernels_CFLAGS = $(unit_cflags)
tests_unit_test_kernels_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=zk_for
tests_unit_test_kernels_LDADD = libresidues.a $(libs_kernels) $(unit_libs)
endif
