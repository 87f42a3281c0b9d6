# graph: see the conventions at the top of Makefile.am.
noinst_LIBRARIES += libgraph.a
libgraph_a_SOURCES = \
  graph/build.c \
  graph/graph.h \
  graph/infer.c \
  graph/ops.def \
  graph/print.c \
  graph/verify.c
libgraph_a_CPPFLAGS = $(AM_CPPFLAGS) $(XXHASH_CFLAGS)
EXTRA_DIST += graph/OPS.md
