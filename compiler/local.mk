# compiler: see the conventions at the top of Makefile.am.
noinst_LIBRARIES += libcompiler.a
libcompiler_a_SOURCES = \
  compiler/adapt.c \
  compiler/adapt.h \
  compiler/adapter.c \
  compiler/adapter_keys.def \
  compiler/apart.c \
  compiler/attention.c \
  compiler/builtin.c \
  compiler/builtin.h \
  compiler/call.c \
  compiler/compile.c \
  compiler/compiler.h \
  compiler/compose.c \
  compiler/compose.h \
  compiler/config.c \
  compiler/config_file.c \
  compiler/config.h \
  compiler/config_keys.def \
  compiler/conv.c \
  compiler/elab.c \
  compiler/elab.h \
  compiler/experts.c \
  compiler/expr.c \
  compiler/families.c \
  compiler/grad.c \
  compiler/grad.h \
  compiler/grad_rules.c \
  compiler/list.c \
  compiler/num.c \
  compiler/operands.c \
  compiler/place.c \
  compiler/recurrence.c \
  compiler/formula.c \
  compiler/rope.c \
  compiler/sep.c \
  compiler/unused.c \
  compiler/update.c \
  compiler/simpl.c \
  compiler/static.c \
  compiler/weights.c
libcompiler_a_CPPFLAGS = $(AM_CPPFLAGS) $(CJSON_CFLAGS)

bin_PROGRAMS += zc
zc_SOURCES = compiler/main.c
zc_LDADD = $(libs_compiler)
