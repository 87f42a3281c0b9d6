# runtime/plan: see the conventions at the top of Makefile.am.
noinst_LIBRARIES += libplan.a
libplan_a_SOURCES = \
  runtime/plan/bind/batch.c \
  runtime/plan/bind/bind.c \
  runtime/plan/bind/bind.h \
  runtime/plan/instr.def \
  runtime/plan/schedule/choose.c \
  runtime/plan/ledger.def \
  runtime/plan/mesh/mesh.c \
  runtime/plan/bind/names.c \
  runtime/plan/mesh/nodes.c \
  runtime/plan/bind/pad.c \
  runtime/plan/plan.c \
  runtime/plan/mesh.h \
  runtime/plan/plan.h \
  runtime/plan/program.h \
  runtime/plan/text.h \
  runtime/plan/values.h \
  runtime/plan/bind/groups.c \
  runtime/plan/bind/muon.c \
  runtime/plan/mesh/rate.c \
  runtime/plan/schedule/alike.c \
  runtime/plan/bind/select.c \
  runtime/plan/bind/chunk.c \
  runtime/plan/bind/slots.c \
  runtime/plan/bind/wide.c \
  runtime/plan/mesh/vstages.c \
  runtime/plan/mesh/words.c \
  runtime/plan/bind/zigzag.c \
  runtime/plan/check/arena.c \
  runtime/plan/check/axes.c \
  runtime/plan/check/beside.c \
  runtime/plan/check/check.c \
  runtime/plan/check/check.h \
  runtime/plan/check/contents.c \
  runtime/plan/check/carried.c \
  runtime/plan/check/inputs.c \
  runtime/plan/check/layout.c \
  runtime/plan/check/layout.h \
  runtime/plan/check/operands.c \
  runtime/plan/check/queues.c \
  runtime/plan/check/say.c \
  runtime/plan/check/segment.c \
  runtime/plan/local/attend.c \
  runtime/plan/local/batch_gemms.c \
  runtime/plan/local/batch_gemms.h \
  runtime/plan/local/buckets.c \
  runtime/plan/local/traffic.c \
  runtime/plan/local/calls.c \
  runtime/plan/local/cotangents.c \
  runtime/plan/local/cut_conv.c \
  runtime/plan/local/cut_linear.c \
  runtime/plan/local/cut_nodes.c \
  runtime/plan/local/cut_sequences.c \
  runtime/plan/local/cut.h \
  runtime/plan/local/delay_grads.c \
  runtime/plan/local/experts.c \
  runtime/plan/local/fuse_bias_grad.c \
  runtime/plan/local/fuse_epilogue.c \
  runtime/plan/local/fuse_norm_sums.c \
  runtime/plan/local/fuse_pointwise.c \
  runtime/plan/local/fuse_prologue.c \
  runtime/plan/local/fuse_xent_grad.c \
  runtime/plan/local/fuse_xent_max.c \
  runtime/plan/local/halo.c \
  runtime/plan/local/local.c \
  runtime/plan/local/local.h \
  runtime/plan/local/lower.h \
  runtime/plan/local/memory.c \
  runtime/plan/local/narrow.c \
  runtime/plan/local/overlap.c \
  runtime/plan/local/param_grads.c \
  runtime/plan/local/remat.c \
  runtime/plan/local/reshard.c \
  runtime/plan/local/rewrite.c \
  runtime/plan/local/rewrite.h \
  runtime/plan/local/rounds.c \
  runtime/plan/local/shard.c \
  runtime/plan/local/shard.h \
  runtime/plan/local/values.c \
  runtime/plan/output/digest.c \
  runtime/plan/output/explain.c \
  runtime/plan/output/json.c \
  runtime/plan/output/places.c \
  runtime/plan/output/page.c \
  runtime/plan/output/page.h \
  runtime/plan/output/lists.c \
  runtime/plan/output/show.c \
  runtime/plan/output/trace.c \
  runtime/plan/output/uses.c \
  runtime/plan/output/tables.h \
  runtime/plan/schedule/cut.c \
  runtime/plan/schedule/draft.c \
  runtime/plan/schedule/ledger.c \
  runtime/plan/schedule/orders.c \
  runtime/plan/schedule/program.c \
  runtime/plan/schedule/rehearse.c \
  runtime/plan/schedule/schedule.h \
  runtime/plan/schedule/simulate.c \
  runtime/plan/schedule/stages.c \
  runtime/plan/schedule/updates.c \
  runtime/plan/schedule/zero.c \
  runtime/plan/search/closed.c \
  runtime/plan/search/internal.h \
  runtime/plan/search/dims.c \
  runtime/plan/search/measure.c \
  runtime/plan/search/bytes.c \
  runtime/plan/search/found.c \
  runtime/plan/search/search.c \
  runtime/plan/search/search.h \
  runtime/plan/search/space.c \
  runtime/plan/search/weigh.c \
  runtime/plan/output/compare.c \
  runtime/plan/output/compare.h \
  runtime/plan/time/cost.c \
  runtime/plan/time/internal.h \
  runtime/plan/time/kernel.c \
  runtime/plan/time/link.c \
  runtime/plan/time/loop.c \
  runtime/plan/time/needs.c \
  runtime/plan/time/parts.def \
  runtime/plan/time/print.c \
  runtime/plan/time/time.c \
  runtime/plan/time/time.h
nodist_libplan_a_SOURCES = runtime/plan/output/page.embed.c
CLEANFILES += runtime/plan/output/page.embed.c
runtime/plan/output/page.embed.c: runtime/plan/output/page.html base/embed.awk
	@$(MKDIR_P) $(@D)
	$(V_EMBED)$(EMBED) -v name=zp_page -v root=$(srcdir)/runtime/plan/output/ $(filter %.html,$^) > $@

bin_PROGRAMS += zplan
zplan_SOURCES = runtime/plan/zplan.c
zplan_LDFLAGS = $(AM_LDFLAGS) -rdynamic # for modules
zplan_LDADD = $(libs_machine) $(libs_plan) $(libs_kernels)
