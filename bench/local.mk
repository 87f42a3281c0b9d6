# Benchmarks: `make bench`, or one of them, as bench-tokens. Nothing here is a test, but for bench/check.sh and
# bench/check-generate.sh, at night: that bench-gpu.sh and bench-generate.sh measure, compare and print what they should.
breadth_tests += bench/check.sh bench/check-generate.sh

# All matrix products of a step alone, by the best library: what `make bench` holds a step against.
bench_programs = bench-replay
bench_replay_SOURCES = bench/plan.h bench/plan.c bench/replay.h bench/replay.c bench/replay_list.c bench/replay_blas.c \
  bench/replay_dnnl.c
bench_replay_CPPFLAGS = $(AM_CPPFLAGS) $(BLAS_CFLAGS)
bench_replay_LDADD = libkernels.a $(BLAS_LIBS) -lpthread $(libs_plan)

# What a step takes at least, by the plan alone.
bench_programs += bench-bound
bench_bound_SOURCES = bench/plan.h bench/plan.c bench/bound.c
bench_bound_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
bench_bound_LDFLAGS = $(AM_LDFLAGS) -rdynamic # for the module
bench_bound_LDADD = $(libs_exec)

# Attention with what masks leave of it; recurrences along sequences of several lengths; convolutions against the products that
# they are.
bench_programs += bench-attend bench-recur bench-conv
bench_attend_SOURCES = bench/attend.c
bench_attend_LDADD = $(libs_kernels)
bench_recur_SOURCES = bench/recur.c
bench_recur_LDADD = $(libs_kernels)
bench_conv_SOURCES = bench/conv.c
bench_conv_LDADD = $(libs_kernels)

# Texts to tokens.
bench_programs += bench-text
bench_text_SOURCES = bench/text.c
bench_text_LDADD = $(libs_text) -lpthread

# What memory gives, for `make bench-generate`.
bench_programs += bench-read
bench_read_SOURCES = bench/read.c
bench_read_LDADD = $(libs_kernels)

check_PROGRAMS += $(bench_programs)

bench_sh = ZUG_SRC='$(abs_top_srcdir)' ZUG_BUILD='$(abs_top_builddir)' MPIRUN='$(MPIRUN)' $(SHELL) $(srcdir)/bench

.PHONY: bench bench-step bench-tokens bench-optimizers bench-attention bench-recurrence bench-convolution
bench: bench-step bench-tokens bench-attention bench-recurrence bench-convolution bench-optimizers
bench-step: all $(bench_programs)
	$(bench_sh)/bench.sh
bench-tokens: all bench-text
	$(bench_sh)/tokens.sh
bench-optimizers: all $(bench_programs)
	$(bench_sh)/optimizers.sh
bench-attention: bench-attend
	./bench-attend
bench-recurrence: bench-recur
	./bench-recur
bench-convolution: bench-conv
	./bench-conv

.PHONY: bench-generate
bench-generate: all bench-read
	$(bench_sh)/bench-generate.sh

# On GPUs; and predicted steps against measured ones.
.PHONY: bench-gpu bench-search bench-time
bench-gpu: all $(bench_programs)
	$(bench_sh)/bench-gpu.sh
bench-search: all $(bench_programs)
	$(bench_sh)/search.sh
bench-time: all $(bench_programs)
	$(bench_sh)/time.sh
.PHONY: bench-serve
bench-serve: all
	$(bench_sh)/bench-serve.sh
