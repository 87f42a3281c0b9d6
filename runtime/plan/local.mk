# runtime/plan: see the conventions at the top of Makefile.am.
noinst_LIBRARIES += libplan.a
libplan_a_SOURCES = \
  runtime/plan/instr.def \
  runtime/plan/ledger.def \
  runtime/plan/plan.h
