# Scenarios, run by tests/run-scenario: those of a push, and those that a night adds.
scenario_tests += \
  tests/scenarios/adapters.sh \
  tests/scenarios/alone.sh \
  tests/scenarios/chat.sh \
  tests/scenarios/ckpt.sh \
  tests/scenarios/comm.sh \
  tests/scenarios/complete.sh \
  tests/scenarios/console.sh \
  tests/scenarios/containers.sh \
  tests/scenarios/cuda.sh \
  tests/scenarios/cut.sh \
  tests/scenarios/documents.sh \
  tests/scenarios/editors.sh \
  tests/scenarios/errors.sh \
  tests/scenarios/eval.sh \
  tests/scenarios/examples.sh \
  tests/scenarios/finite.sh \
  tests/scenarios/fmt.sh \
  tests/scenarios/format.sh \
  tests/scenarios/freeze.sh \
  tests/scenarios/gallery.sh \
  tests/scenarios/generate.sh \
  tests/scenarios/generate_cuda.sh \
  tests/scenarios/generate_hf.sh \
  tests/scenarios/generate_layout.sh \
  tests/scenarios/generate_nodes.sh \
  tests/scenarios/generate_ranks.sh \
  tests/scenarios/hang.sh \
  tests/scenarios/hf.sh \
  tests/scenarios/hf_keys.sh \
  tests/scenarios/keep.sh \
  tests/scenarios/kept.sh \
  tests/scenarios/layouts.sh \
  tests/scenarios/library.sh \
  tests/scenarios/links.sh \
  tests/scenarios/log.sh \
  tests/scenarios/lora.sh \
  tests/scenarios/losses.sh \
  tests/scenarios/memory.sh \
  tests/scenarios/mix.sh \
  tests/scenarios/models.sh \
  tests/scenarios/nodes.sh \
  tests/scenarios/numbers.sh \
  tests/scenarios/optim.sh \
  tests/scenarios/options.sh \
  tests/scenarios/packed.sh \
  tests/scenarios/partial.sh \
  tests/scenarios/pictures.sh \
  tests/scenarios/plan.sh \
  tests/scenarios/plan_generate.sh \
  tests/scenarios/plan_machine.sh \
  tests/scenarios/plan_published.sh \
  tests/scenarios/plan_report.sh \
  tests/scenarios/precision.sh \
  tests/scenarios/quantized.sh \
  tests/scenarios/readme.sh \
  tests/scenarios/racers.sh \
  tests/scenarios/recipes.sh \
  tests/scenarios/recipes_good.sh \
  tests/scenarios/reference.sh \
  tests/scenarios/rooms.sh \
  tests/scenarios/sample.sh \
  tests/scenarios/same.sh \
  tests/scenarios/save.sh \
  tests/scenarios/serve.sh \
  tests/scenarios/stall.sh \
  tests/scenarios/stop.sh \
  tests/scenarios/trace.sh \
  tests/scenarios/tutorials.sh \
  tests/scenarios/weights.sh \
  tests/scenarios/whole.sh \
  tests/scenarios/zc_files.sh \
  tests/scenarios/zc_options.sh \
  tests/scenarios/zckpt.sh \
  tests/scenarios/zdata.sh \
  tests/scenarios/zdata_chat.sh \
  tests/scenarios/zdata_files.sh \
  tests/scenarios/zdata_import.sh \
  tests/scenarios/zdata_inputs.sh \
  tests/scenarios/zdata_tokenizer.sh \
  tests/scenarios/zdata_tokens.sh \
  tests/scenarios/zlog.sh
breadth_tests += \
  tests/scenarios/adamw8.sh \
  tests/scenarios/attend.sh \
  tests/scenarios/average.sh \
  tests/scenarios/bootstrap.sh \
  tests/scenarios/buckets.sh \
  tests/scenarios/calibrate.sh \
  tests/scenarios/conv.sh \
  tests/scenarios/cuda_models.sh \
  tests/scenarios/cuda_more.sh \
  tests/scenarios/experts.sh \
  tests/scenarios/idle.sh \
  tests/scenarios/install.sh \
  tests/scenarios/kills.sh \
  tests/scenarios/meaning.sh \
  tests/scenarios/merged.sh \
  tests/scenarios/moe.sh \
  tests/scenarios/moved.sh \
  tests/scenarios/mpich.sh \
  tests/scenarios/muon.sh \
  tests/scenarios/names.sh \
  tests/scenarios/plan_browser.sh \
  tests/scenarios/plan_search.sh \
  tests/scenarios/random.sh \
  tests/scenarios/relocatable.sh \
  tests/scenarios/resplit.sh \
  tests/scenarios/room.sh \
  tests/scenarios/scans.sh \
  tests/scenarios/slow_link.sh \
  tests/scenarios/states.sh \
  tests/scenarios/streams.sh \
  tests/scenarios/zlog_browser.sh

# zrun with another MPI (OTHER_CFLAGS, OTHER_LIBS) and all else as it is, as file OTHER: tests/scenarios/mpich.sh.
other_mpi = mpi mpi_group mpi_ops
zrun-other: zrun
	for f in $(other_mpi); do $(CC) $(AM_CPPFLAGS) $(CPPFLAGS) $(OTHER_CFLAGS) $(AM_CFLAGS) $(CFLAGS) \
	  -w -c $(srcdir)/runtime/exec/comm/$$f.c -o '$(OTHER)'-$$f.o || exit 1; done
	$(CC) $(AM_CFLAGS) $(CFLAGS) $(AM_LDFLAGS) $(LDFLAGS) -rdynamic -o '$(OTHER)' runtime/exec/zrun.$(OBJEXT) \
	  $(other_mpi:%='$(OTHER)'-%.o) $(filter-out $(MPI_LIBS),$(libs_zrun)) $(OTHER_LIBS)
.PHONY: zrun-other

# What measures a link runs when no other test does any more.
tests/scenarios/slow_link.log: $(filter-out tests/scenarios/slow_link.log,$(TEST_LOGS))

# What the planner says (tests/data/plan, a case is a recipe) and what zlog draws (tests/data/zlog), from what they say now.
regenerate-plan regenerate-zlog: regenerate-%: all
	REGENERATE=yes ZUG_SRC='$(abs_top_srcdir)' ZUG_BUILD='$(abs_builddir)' $(SHELL) $(srcdir)/tests/run-scenario $(srcdir)/tests/scenarios/$*.sh
.PHONY: regenerate-plan regenerate-zlog

include tests/scenarios/tools/local.mk
include tests/scenarios/cuda/local.mk
include tests/scenarios/gpu/local.mk
