# Benchmarks: nothing here is a test.
EXTRA_DIST += tests/bench/bench.sh tests/bench/README.md tests/bench/recipes.zug tests/bench/torch_gpt2.py \
  tests/bench/bench-gpu.sh tests/bench/models-gpu.sh tests/bench/recipes-gpu.zug tests/bench/torch_lm.py

# Only that bench-gpu.sh measures, compares and prints what it should; not how fast anything is.
scenario_benches = tests/bench/check.sh
dist_check_SCRIPTS += $(scenario_benches)
TESTS += $(scenario_benches)

# All matrix products of a step alone, by the best library: what `make bench` holds a step against.
noinst_PROGRAMS += bench-replay
bench_replay_SOURCES = tests/bench/plan.h tests/bench/plan.c tests/bench/replay.h tests/bench/replay.c tests/bench/replay_list.c tests/bench/replay_blas.c \
  tests/bench/replay_dnnl.c
bench_replay_CPPFLAGS = $(AM_CPPFLAGS) $(BLAS_CFLAGS)
bench_replay_LDADD = libkernels.a $(BLAS_LIBS) -lpthread $(libs_plan)

# What a step takes at least, by the plan alone.
noinst_PROGRAMS += bench-bound
bench_bound_SOURCES = tests/bench/plan.h tests/bench/plan.c tests/bench/bound.c
bench_bound_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
bench_bound_LDFLAGS = $(AM_LDFLAGS) -rdynamic # for the module
bench_bound_LDADD = $(libs_exec)

# Attention with what masks leave of it.
noinst_PROGRAMS += bench-attend
bench_attend_SOURCES = tests/bench/attend.c
bench_attend_LDADD = $(libs_kernels)

# What recurrences cost, along sequences of several lengths.
noinst_PROGRAMS += bench-recur
bench_recur_SOURCES = tests/bench/recur.c
bench_recur_LDADD = $(libs_kernels)
# Convolutions against the products that they are.
noinst_PROGRAMS += bench-conv
bench_conv_SOURCES = tests/bench/conv.c
bench_conv_LDADD = $(libs_kernels)

# Texts to tokens.
noinst_PROGRAMS += bench-text
bench_text_SOURCES = tests/bench/text.c
bench_text_LDADD = $(libs_text) -lpthread

EXTRA_DIST += tests/bench/tokens.sh tests/bench/tokens.py
.PHONY: bench bench-gpu bench-tokens bench-attention bench-convolution
EXTRA_DIST += tests/bench/optimizers.sh
.PHONY: bench bench-gpu bench-tokens bench-attention bench-optimizers
bench: all
	ZUG_SRC='$(abs_top_srcdir)' ZUG_BUILD='$(abs_top_builddir)' $(SHELL) $(srcdir)/tests/bench/bench.sh
	ZUG_SRC='$(abs_top_srcdir)' ZUG_BUILD='$(abs_top_builddir)' $(SHELL) $(srcdir)/tests/bench/tokens.sh
	./bench-attend
	./bench-recur
	./bench-conv
	ZUG_SRC='$(abs_top_srcdir)' ZUG_BUILD='$(abs_top_builddir)' $(SHELL) $(srcdir)/tests/bench/optimizers.sh
bench-optimizers: all
	ZUG_SRC='$(abs_top_srcdir)' ZUG_BUILD='$(abs_top_builddir)' $(SHELL) $(srcdir)/tests/bench/optimizers.sh
bench-attention: bench-attend
	./bench-attend
bench-convolution: bench-conv
	./bench-conv
bench-tokens: bench-text
	ZUG_SRC='$(abs_top_srcdir)' ZUG_BUILD='$(abs_top_builddir)' $(SHELL) $(srcdir)/tests/bench/tokens.sh
bench-gpu: all
	ZUG_SRC='$(abs_top_srcdir)' ZUG_BUILD='$(abs_top_builddir)' MPIRUN='$(MPIRUN)' $(SHELL) $(srcdir)/tests/bench/bench-gpu.sh

# Predicted steps against measured ones.
EXTRA_DIST += tests/bench/ranks.sh tests/bench/search.sh tests/bench/time.sh tests/bench/time.zug
.PHONY: bench-search bench-time
bench-search: all
	ZUG_SRC='$(abs_top_srcdir)' ZUG_BUILD='$(abs_top_builddir)' $(SHELL) $(srcdir)/tests/bench/search.sh
bench-time: all
	ZUG_SRC='$(abs_top_srcdir)' ZUG_BUILD='$(abs_top_builddir)' $(SHELL) $(srcdir)/tests/bench/time.sh
