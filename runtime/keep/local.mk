# runtime/keep: zkeep, which starts a run again. See the conventions at the top of Makefile.am.
noinst_LIBRARIES += libkeep.a
libkeep_a_SOURCES = \
  runtime/keep/orphan.c \
  runtime/keep/child.c \
  runtime/keep/hosts.c \
  runtime/keep/keep.h \
  runtime/keep/policy.c \
  runtime/keep/server.c
bin_PROGRAMS += zkeep
zkeep_SOURCES = runtime/keep/zkeep.c
zkeep_LDADD = libkeep.a $(libs_base)
