# make mutants ROOM=graph N=50 SEED=1: does a test fail when the source is wrong? run.sh says how it goes.
check_PROGRAMS += tests/mutants/mutate
tests_mutants_mutate_SOURCES = tests/mutants/mutate.c
tests_mutants_mutate_LDADD = $(libs_base)
EXTRA_DIST += tests/mutants/again.sh tests/mutants/judge.sh tests/mutants/known.txt tests/mutants/prepare.sh \
  tests/mutants/record.sh tests/mutants/rooms.txt tests/mutants/run.sh tests/mutants/test.sh tests/mutants/time.sh

ROOM =
N = 50
SEED = 1
MIN = 92
JOBS = `nproc`
ONLY =
mutants: tests/mutants/mutate
	@$(SHELL) $(srcdir)/tests/mutants/prepare.sh '$(abs_top_srcdir)' tests/mutants/work '$(CC)'
	@ONLY='$(ONLY)' $(SHELL) $(srcdir)/tests/mutants/run.sh '$(abs_builddir)/tests/mutants/work' \
	  '$(abs_builddir)/tests/mutants/mutate' '$(ROOM)' '$(N)' '$(SEED)' '$(MIN)' "$(JOBS)"
.PHONY: mutants
