# Messages of the planner, see tests/plan.sh: a case is a recipe.

regenerate-plan: all
	REGENERATE=yes ZUG_SRC='$(abs_top_srcdir)' ZUG_BUILD='$(abs_builddir)' $(SHELL) $(srcdir)/tests/run-mpi $(srcdir)/tests/plan.sh
.PHONY: regenerate-plan
