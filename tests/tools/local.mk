# Tools that scenario tests call; built by `make check`.
check_PROGRAMS += tests/tools/compare_runs
tests_tools_compare_runs_SOURCES = tests/tools/compare_runs.c
tests_tools_compare_runs_CFLAGS = $(AM_CFLAGS) $(CJSON_CFLAGS)
tests_tools_compare_runs_LDADD = $(CJSON_LIBS) $(libs_base)
check_PROGRAMS += tests/tools/read_events
tests_tools_read_events_SOURCES = tests/tools/read_events.c
check_PROGRAMS += tests/tools/check_trace
tests_tools_check_trace_SOURCES = tests/tools/check_trace.c
tests_tools_check_trace_CFLAGS = $(AM_CFLAGS) $(CJSON_CFLAGS)
tests_tools_check_trace_LDADD = $(CJSON_LIBS) $(libs_base)
check_PROGRAMS += tests/tools/alter_ckpt
tests_tools_alter_ckpt_SOURCES = tests/tools/alter_ckpt.c
tests_tools_alter_ckpt_LDADD = $(libs_exec)
