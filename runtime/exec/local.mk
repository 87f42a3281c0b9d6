# runtime/exec: see the conventions at the top of Makefile.am.
noinst_LIBRARIES += libexec.a
libexec_a_SOURCES = \
  runtime/exec/answer/answer.h \
  runtime/exec/answer/answers.c \
  runtime/exec/answer/chats.c \
  runtime/exec/answer/folder.c \
  runtime/exec/answer/packed.c \
  runtime/exec/answer/query.c \
  runtime/exec/answer/query.h \
  runtime/exec/answer/results.c \
  runtime/exec/answer/shipped.c \
  runtime/exec/answer/words.c \
  runtime/exec/calibrate/calibrate.c \
  runtime/exec/calibrate/calibrate.h \
  runtime/exec/calibrate/kernels.c \
  runtime/exec/calibrate/links.c \
  runtime/exec/calibrate/trials.c \
  runtime/exec/elsewhere.def \
  runtime/exec/epochs.c \
  runtime/exec/epochs.h \
  runtime/exec/evaluate.c \
  runtime/exec/mail.c \
  runtime/exec/mail.h \
  runtime/exec/replica.c \
  runtime/exec/replica.h \
  runtime/exec/admission.c \
  runtime/exec/admission.h \
  runtime/exec/stepper.c \
  runtime/exec/stepper.h \
  runtime/exec/evaluate.h \
  runtime/exec/facts.c \
  runtime/exec/facts.h \
  runtime/exec/generate/draft.c \
  runtime/exec/generate/generate.h \
  runtime/exec/generate/pages.c \
  runtime/exec/generate/sample.c \
  runtime/exec/generate/shared.c \
  runtime/exec/generate/scheduler.c \
  runtime/exec/shape/automaton.c \
  runtime/exec/shape/grammar.c \
  runtime/exec/shape/grammar.h \
  runtime/exec/shape/literals.c \
  runtime/exec/shape/masks.c \
  runtime/exec/shape/schema.c \
  runtime/exec/shape/shape.h \
  runtime/exec/shape/trie.c \
  runtime/exec/health.c \
  runtime/exec/health.h \
  runtime/exec/log/events.c \
  runtime/exec/log/lines.c \
  runtime/exec/log/log.c \
  runtime/exec/log/log.h \
  runtime/exec/log/metrics.c \
  runtime/exec/log/scalars.c \
  runtime/exec/log/scalars.def \
  runtime/exec/log/sinks.h \
  runtime/exec/log/terminal.c \
  runtime/exec/options.c \
  runtime/exec/options.h \
  runtime/exec/recipe.c \
  runtime/exec/recipe.h \
  runtime/exec/report.c \
  runtime/exec/report.h \
  runtime/exec/saves.c \
  runtime/exec/saves.h \
  runtime/exec/serve/calls.c \
  runtime/exec/serve/forced.c \
  runtime/exec/serve/calls.h \
  runtime/exec/serve/chat.c \
  runtime/exec/serve/connection.c \
  runtime/exec/serve/endpoints.c \
  runtime/exec/serve/http.c \
  runtime/exec/serve/job.c \
  runtime/exec/serve/logprobs.c \
  runtime/exec/serve/loop.c \
  runtime/exec/serve/messages.c \
  runtime/exec/serve/metrics.c \
  runtime/exec/serve/openai.c \
  runtime/exec/serve/part.c \
  runtime/exec/serve/reply.c \
  runtime/exec/serve/request.c \
  runtime/exec/serve/room.h \
  runtime/exec/serve/serve.h \
  runtime/exec/exit.h \
  runtime/exec/stop.c \
  runtime/exec/stop.h \
  runtime/exec/run/agree.c \
  runtime/exec/run/answering.c \
  runtime/exec/run/chat.c \
  runtime/exec/run/generate.c \
  runtime/exec/run/layout.c \
  runtime/exec/run/inputs.c \
  runtime/exec/run/lanes.c \
  runtime/exec/run/lanes.h \
  runtime/exec/run/machine.c \
  runtime/exec/run/model.c \
  runtime/exec/run/new_tokens.c \
  runtime/exec/run/routes.c \
  runtime/exec/run/run.h \
  runtime/exec/run/sample.c \
  runtime/exec/run/serve.c \
  runtime/exec/run/start.c \
  runtime/exec/run/train.c \
  runtime/exec/trace.c \
  runtime/exec/trace.h \
  runtime/exec/comm/agree.c \
  runtime/exec/comm/combine.c \
  runtime/exec/comm/comm.h \
  runtime/exec/comm/launch.c \
  runtime/exec/comm/p2p_reduce.c \
  runtime/exec/comm/p2p_reduce.h \
  runtime/exec/comm/post.c \
  runtime/exec/comm/reap.c \
  runtime/exec/comm/same.c \
  runtime/exec/comm/same.h \
  runtime/exec/comm/say.c \
  runtime/exec/comm/self.c \
  runtime/exec/comm/shm.c \
  runtime/exec/comm/shm.h \
  runtime/exec/comm/vigil.c \
  runtime/exec/comm/wait.c \
  runtime/exec/comm/watch.c \
  runtime/exec/comm/watch.h \
  runtime/exec/data/data.h \
  runtime/exec/data/file.h \
  runtime/exec/data/mix.c \
  runtime/exec/data/mix.h \
  runtime/exec/data/read.c \
  runtime/exec/data/shards.c \
  runtime/exec/data/shares.c \
  runtime/exec/data/turns.c \
  runtime/exec/data/windows.c \
  runtime/exec/data/write.c \
  runtime/exec/device/cpu.c \
  runtime/exec/device/device.h \
  runtime/exec/device/memory.c \
  runtime/exec/device/memory.h \
  runtime/exec/device/registry.c \
  runtime/exec/device/staged.c \
  runtime/exec/engine/admit.c \
  runtime/exec/engine/beside.c \
  runtime/exec/engine/averages.c \
  runtime/exec/engine/buffers.c \
  runtime/exec/engine/capture.c \
  runtime/exec/engine/collective.c \
  runtime/exec/engine/compute.c \
  runtime/exec/engine/cut.c \
  runtime/exec/engine/engine.c \
  runtime/exec/engine/engine.h \
  runtime/exec/engine/exchange.c \
  runtime/exec/engine/feed.c \
  runtime/exec/engine/grads.c \
  runtime/exec/engine/halo.c \
  runtime/exec/engine/internal.h \
  runtime/exec/engine/muon.c \
  runtime/exec/engine/accumulate.c \
  runtime/exec/engine/nan.c \
  runtime/exec/engine/narrow.c \
  runtime/exec/engine/node.c \
  runtime/exec/engine/optimizer.c \
  runtime/exec/engine/play.c \
  runtime/exec/engine/profile.c \
  runtime/exec/engine/queues.c \
  runtime/exec/engine/rows.c \
  runtime/exec/engine/ring.c \
  runtime/exec/engine/setup.c \
  runtime/exec/engine/stall.c \
  runtime/exec/engine/tokens.c \
  runtime/exec/engine/trace.c \
  runtime/exec/engine/views.c \
  runtime/exec/engine/fallback.c \
  runtime/exec/engine/generate.c \
  runtime/exec/state/save.c \
  runtime/exec/state/checkpoints.c \
  runtime/exec/state/checkpoints.h \
  runtime/exec/state/finite.c \
  runtime/exec/state/alike.c \
  runtime/exec/state/alike.h \
  runtime/exec/state/init.c \
  runtime/exec/state/resume.c \
  runtime/exec/state/grow.c \
  runtime/exec/state/grow.h \
  runtime/exec/state/load.c \
  runtime/exec/state/predict.c \
  runtime/exec/state/moments.c \
  runtime/exec/state/moments.h \
  runtime/exec/state/packed.c \
  runtime/exec/state/slices.c \
  runtime/exec/state/walk.c \
  runtime/exec/state/slices.h \
  runtime/exec/state/snapshot.c \
  runtime/exec/state/snapshot.h \
  runtime/exec/state/state.h \
  runtime/exec/state/writer.c \
  runtime/exec/state/writer.h \
  runtime/exec/ckpt/ckpt.h \
  runtime/exec/ckpt/contents.c \
  runtime/exec/ckpt/folder.c \
  runtime/exec/ckpt/look.c \
  runtime/exec/ckpt/manifest.c \
  runtime/exec/ckpt/weights.c \
  runtime/exec/ckpt/weights.h \
  runtime/exec/hub/adapter.c \
  runtime/exec/hub/adapter.h \
  runtime/exec/gguf/blocks.c \
  runtime/exec/gguf/config.c \
  runtime/exec/gguf/file.c \
  runtime/exec/gguf/file.h \
  runtime/exec/gguf/folder.c \
  runtime/exec/gguf/gguf.h \
  runtime/exec/gguf/names.c \
  runtime/exec/gguf/names.h \
  runtime/exec/gguf/tensors.c \
  runtime/exec/gguf/texts.h \
  runtime/exec/gguf/tokenizer.c \
  runtime/exec/hub/awq_gptq.c \
  runtime/exec/hub/bitsandbytes.c \
  runtime/exec/hub/box.c \
  runtime/exec/hub/coded.c \
  runtime/exec/hub/coded.h \
  runtime/exec/hub/compressed_tensors.c \
  runtime/exec/hub/config.c \
  runtime/exec/hub/export.c \
  runtime/exec/hub/floats.c \
  runtime/exec/hub/hub.h \
  runtime/exec/hub/map.c \
  runtime/exec/hub/pack.c \
  runtime/exec/hub/pack.h \
  runtime/exec/hub/quantized.c \
  runtime/exec/hub/quantized.h \
  runtime/exec/hub/taking.c \
  runtime/exec/hub/shards.c
if HAVE_MPI
libexec_a_SOURCES += \
  runtime/exec/comm/mpi.c \
  runtime/exec/comm/mpi.h \
  runtime/exec/comm/mpi_group.c \
  runtime/exec/comm/mpi_ops.c
endif
# The models with names of their weights travel inside zrun (runtime/exec/answer/shipped.c).
nodist_libexec_a_SOURCES = runtime/exec/answer/shipped.embed.c runtime/exec/serve/page.embed.c
CLEANFILES += runtime/exec/answer/shipped.embed.c runtime/exec/serve/page.embed.c
runtime/exec/serve/page.embed.c: runtime/exec/serve/page.html base/embed.awk
	@$(MKDIR_P) $(@D)
	$(V_EMBED)$(EMBED) -v name=zx_serve_page -v root=$(srcdir)/runtime/exec/serve/ $(filter %.html,$^) > $@
runtime/exec/answer/shipped.embed.c: $(examples_files) base/embed.awk
	@$(MKDIR_P) $(@D)
	$(V_EMBED)$(EMBED) -v name=zx_shipped -v root=$(srcdir)/examples/ $(filter %.zug,$^) > $@
libexec_a_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS) $(MPI_CFLAGS) $(CJSON_CFLAGS) $(XXHASH_CFLAGS) $(MICROHTTPD_CFLAGS)
libexec_a_CFLAGS = $(AM_CFLAGS) $(KERNEL_CFLAGS) # sums and updates of whole tensors are here too

# The CUDA device: a library for test programs, and the module that zrun loads where there is a GPU. The module is linked
# as a program is, but for -shared, and finds in zrun what it does not have itself. --enable-new-dtags: LD_LIBRARY_PATH goes before
# the paths in it, so that a machine says which of its CUDA libraries are taken; the toolkit of the build comes last.
if HAVE_CUDA
noinst_LIBRARIES += libexec_cuda.a
if HAVE_MPI
modules_PROGRAMS += zug-cuda.so
endif
endif
libexec_cuda_a_SOURCES = runtime/exec/device/cuda.h runtime/exec/device/cuda.c runtime/exec/device/cuda_peak.c
if HAVE_NCCL
libexec_cuda_a_SOURCES += runtime/exec/device/nccl.c
endif
libexec_cuda_a_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
libexec_cuda_a_CFLAGS = $(AM_CFLAGS) -fPIC
zug_cuda_so_SOURCES =
zug_cuda_so_LDFLAGS = $(AM_LDFLAGS) -Wl,--enable-new-dtags -shared -Wl,-soname,zug-cuda.so -Wl,-u,zx_device_cuda \
  -Wl,-z,lazy # zplan, which only asks for memory, has not all of zrun
zug_cuda_so_LDADD = libexec_cuda.a libkernels_cuda.a $(CUDA_LIBS) -lstdc++

bin_PROGRAMS += zckpt
zckpt_SOURCES = runtime/exec/ckpt/zckpt.c runtime/exec/ckpt/zckpt.h runtime/exec/ckpt/zckpt_diff.c \
  runtime/exec/ckpt/zckpt_read.c runtime/exec/ckpt/zckpt_show.c runtime/exec/ckpt/zckpt_verify.c \
  runtime/exec/ckpt/zckpt_weights.c runtime/exec/hub/zckpt_export.c
zckpt_CPPFLAGS = $(AM_CPPFLAGS) $(CJSON_CFLAGS)
zckpt_LDADD = libexec.a libkernels.a $(CJSON_LIBS) $(libs_graph) -lm

if HAVE_MPI
bin_PROGRAMS += zrun
zrun_SOURCES = runtime/exec/zrun.c
zrun_LDFLAGS = $(AM_LDFLAGS) -rdynamic # for modules
zrun_LDADD = $(libs_zrun)
endif
