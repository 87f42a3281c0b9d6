# Tools that scenario tests call; built by `make check`.
check_PROGRAMS += tests/scenarios/tools/compare_runs
tests_scenarios_tools_compare_runs_SOURCES = tests/scenarios/tools/compare_runs.c
tests_scenarios_tools_compare_runs_CFLAGS = $(AM_CFLAGS) $(CJSON_CFLAGS)
tests_scenarios_tools_compare_runs_LDADD = $(CJSON_LIBS) $(libs_base)
check_PROGRAMS += tests/scenarios/tools/read_events
tests_scenarios_tools_read_events_SOURCES = tests/scenarios/tools/read_events.c
check_PROGRAMS += tests/scenarios/tools/check_trace
tests_scenarios_tools_check_trace_SOURCES = tests/scenarios/tools/check_trace.c
tests_scenarios_tools_check_trace_CFLAGS = $(AM_CFLAGS) $(CJSON_CFLAGS)
tests_scenarios_tools_check_trace_LDADD = $(CJSON_LIBS) $(libs_base)
check_PROGRAMS += tests/scenarios/tools/alter_ckpt
tests_scenarios_tools_alter_ckpt_SOURCES = tests/scenarios/tools/alter_ckpt.c
tests_scenarios_tools_alter_ckpt_LDADD = $(libs_exec)

if HAVE_MPI
check_PROGRAMS += tests/scenarios/tools/comm
tests_scenarios_tools_comm_SOURCES = tests/scenarios/tools/comm.c
tests_scenarios_tools_comm_CPPFLAGS = $(AM_CPPFLAGS) $(MPI_CFLAGS)
tests_scenarios_tools_comm_LDADD = $(libs_exec)

# A step with a communicator that counts: tests/scenarios/moved.sh.
check_PROGRAMS += tests/scenarios/tools/moved
tests_scenarios_tools_moved_SOURCES = tests/scenarios/tools/moved.c
tests_scenarios_tools_moved_LDADD = $(libs_exec)

# zrun with one device more: tests/scenarios/streams.sh.
check_PROGRAMS += tests/scenarios/tools/zrun-threads
tests_scenarios_tools_zrun_threads_SOURCES = runtime/exec/zrun.c tests/scenarios/tools/device_threads.c tests/scenarios/tools/device_threads.h \
  tests/scenarios/tools/patience.c
tests_scenarios_tools_zrun_threads_LDADD = $(libs_zrun)

# zrun on nodes that are made up: tests/scenarios/nodes.sh.
check_PROGRAMS += tests/scenarios/tools/zrun-nodes
tests_scenarios_tools_zrun_nodes_SOURCES = runtime/exec/zrun.c tests/scenarios/tools/nodes.c
tests_scenarios_tools_zrun_nodes_LDADD = $(libs_zrun)
# Those that do not wait for long: tests/scenarios/stall.sh.
check_PROGRAMS += tests/scenarios/tools/stall tests/scenarios/tools/zrun-hasty
tests_scenarios_tools_stall_SOURCES = tests/scenarios/tools/stall.c tests/scenarios/tools/patience.c
tests_scenarios_tools_stall_LDADD = $(libs_exec)
tests_scenarios_tools_zrun_hasty_SOURCES = runtime/exec/zrun.c tests/scenarios/tools/patience.c
tests_scenarios_tools_zrun_hasty_LDADD = $(libs_zrun)
endif
