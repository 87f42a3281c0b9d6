# Scenarios on several ranks: scripts run by tests/run-mpi. Those that a push runs, and those that a night adds.
scenario_tests += \
  tests/mpi/alone.sh \
  tests/mpi/ckpt.sh \
  tests/mpi/comm.sh \
  tests/mpi/console.sh \
  tests/mpi/cuda.sh \
  tests/mpi/cut.sh \
  tests/mpi/documents.sh \
  tests/mpi/errors.sh \
  tests/mpi/eval.sh \
  tests/mpi/finite.sh \
  tests/mpi/freeze.sh \
  tests/mpi/hang.sh \
  tests/mpi/hf.sh \
  tests/mpi/hf_keys.sh \
  tests/mpi/kept.sh \
  tests/mpi/layouts.sh \
  tests/mpi/log.sh \
  tests/mpi/lora.sh \
  tests/mpi/losses.sh \
  tests/mpi/memory.sh \
  tests/mpi/mix.sh \
  tests/mpi/models.sh \
  tests/mpi/nodes.sh \
  tests/mpi/numbers.sh \
  tests/mpi/optim.sh \
  tests/mpi/options.sh \
  tests/mpi/partial.sh \
  tests/mpi/precision.sh \
  tests/mpi/recipes.sh \
  tests/mpi/reference.sh \
  tests/mpi/same.sh \
  tests/mpi/save.sh \
  tests/mpi/stall.sh \
  tests/mpi/stop.sh \
  tests/mpi/trace.sh \
  tests/mpi/weights.sh \
  tests/mpi/whole.sh \
  tests/mpi/zckpt.sh
breadth_tests += \
  tests/mpi/adamw8.sh \
  tests/mpi/attend.sh \
  tests/mpi/average.sh \
  tests/mpi/buckets.sh \
  tests/mpi/calibrate.sh \
  tests/mpi/conv.sh \
  tests/mpi/cuda_models.sh \
  tests/mpi/cuda_more.sh \
  tests/mpi/experts.sh \
  tests/mpi/idle.sh \
  tests/mpi/kills.sh \
  tests/mpi/meaning.sh \
  tests/mpi/merged.sh \
  tests/mpi/moe.sh \
  tests/mpi/moved.sh \
  tests/mpi/mpich.sh \
  tests/mpi/muon.sh \
  tests/mpi/names.sh \
  tests/mpi/random.sh \
  tests/mpi/resplit.sh \
  tests/mpi/room.sh \
  tests/mpi/scans.sh \
  tests/mpi/slow_link.sh \
  tests/mpi/states.sh \
  tests/mpi/streams.sh

# zrun with another MPI (OTHER_CFLAGS, OTHER_LIBS) and all else as it is, as file OTHER: tests/mpi/mpich.sh.
other_mpi = mpi mpi_group mpi_ops
zrun-other: zrun
	for f in $(other_mpi); do $(CC) $(AM_CPPFLAGS) $(CPPFLAGS) $(OTHER_CFLAGS) $(AM_CFLAGS) $(CFLAGS) \
	  -w -c $(srcdir)/runtime/exec/comm/$$f.c -o '$(OTHER)'-$$f.o || exit 1; done
	$(CC) $(AM_CFLAGS) $(CFLAGS) $(AM_LDFLAGS) $(LDFLAGS) -rdynamic -o '$(OTHER)' runtime/exec/zrun.$(OBJEXT) \
	  $(other_mpi:%='$(OTHER)'-%.o) $(filter-out $(MPI_LIBS),$(libs_exec)) $(OTHER_LIBS)
.PHONY: zrun-other

# What measures a link runs when no other test does any more.
tests/mpi/slow_link.log: $(filter-out tests/mpi/slow_link.log,$(TEST_LOGS))
