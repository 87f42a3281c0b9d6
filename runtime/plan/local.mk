# runtime/plan: see the conventions at the top of Makefile.am.
noinst_LIBRARIES += libplan.a
libplan_a_SOURCES = \
  runtime/plan/attach.c runtime/plan/attach_before.c runtime/plan/attach_peak.c \
  runtime/plan/attach_sums.c \
  runtime/plan/bind.c \
  runtime/plan/bucket.c \
  runtime/plan/check.c \
  runtime/plan/check.h \
  runtime/plan/check_arena.c \
  runtime/plan/check_local.c \
  runtime/plan/check_local.h \
  runtime/plan/check_memory.c \
  runtime/plan/check_operands.c \
  runtime/plan/check_queues.c \
  runtime/plan/check_segment.c \
  runtime/plan/check_words.c \
  runtime/plan/convert.c \
  runtime/plan/digest.c \
  runtime/plan/explain.c \
  runtime/plan/fuse.c \
  runtime/plan/impl.h \
  runtime/plan/impl_shard.h \
  runtime/plan/instr.c \
  runtime/plan/instr.def \
  runtime/plan/ledger.c \
  runtime/plan/ledger.def \
  runtime/plan/mesh.c \
  runtime/plan/nodes.c \
  runtime/plan/order.c \
  runtime/plan/pad.c \
  runtime/plan/place.c \
  runtime/plan/plan.c \
  runtime/plan/plan.h \
  runtime/plan/program.c \
  runtime/plan/program.h \
  runtime/plan/program_params.c \
  runtime/plan/program_time.c \
  runtime/plan/remat.c \
  runtime/plan/shard.c \
  runtime/plan/show.c \
  runtime/plan/stack.c \
  runtime/plan/stage.c

bin_PROGRAMS += zplan
zplan_SOURCES = runtime/plan/zplan.c
zplan_LDFLAGS = $(AM_LDFLAGS) -rdynamic # for modules
zplan_LDADD = $(libs_plan) $(libs_kernels)
