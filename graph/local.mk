# graph: see the conventions at the top of Makefile.am.
noinst_LIBRARIES += libgraph.a
libgraph_a_SOURCES = \
  graph/adapter.c \
  graph/adapter.h \
  graph/attend.h \
  graph/conv.h \
  graph/linear.h \
  graph/build.c \
  graph/file.h \
  graph/foreign.c \
  graph/graph.h \
  graph/infer.c \
  graph/infer.h \
  graph/infer_layers.c \
  graph/ops.c \
  graph/ops.def \
  graph/ops.h \
  graph/pointwise.def \
  graph/print.c \
  graph/ragged.c \
  graph/ragged.h \
  graph/read.c \
  graph/stream.c \
  graph/stream.h \
  graph/verify.c \
  graph/write.c
libgraph_a_CPPFLAGS = $(AM_CPPFLAGS) $(XXHASH_CFLAGS)
