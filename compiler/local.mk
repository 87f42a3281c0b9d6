# compiler: see the conventions at the top of Makefile.am.
noinst_LIBRARIES += libcompiler.a
libcompiler_a_SOURCES = \
  compiler/compiler.h \
  compiler/grad.c \
  compiler/grad.h \
  compiler/grad_rules.c \
  compiler/simpl.c
