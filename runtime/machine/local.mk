# runtime/machine: what this machine is. See the conventions at the top of Makefile.am.
noinst_LIBRARIES += libmachine.a
libmachine_a_CPPFLAGS = $(AM_CPPFLAGS) $(HWLOC_CFLAGS)
libmachine_a_SOURCES = \
  runtime/machine/bind.c \
  runtime/machine/cluster.c \
  runtime/machine/look.c \
  runtime/machine/machine.h
