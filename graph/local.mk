# graph: the stage graph; see graph.h.
noinst_LIBRARIES += libgraph.a
libgraph_a_SOURCES = graph/graph.h graph/ops.def graph/build.c graph/infer.c
EXTRA_DIST += graph/OPS.md
