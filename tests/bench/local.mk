# Benchmarks: nothing here is a test.
EXTRA_DIST += tests/bench/bench.sh tests/bench/recipes.zug

.PHONY: bench
bench: all
	ZUG_SRC='$(abs_top_srcdir)' ZUG_BUILD='$(abs_top_builddir)' $(SHELL) $(srcdir)/tests/bench/bench.sh
