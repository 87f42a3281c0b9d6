# ---- fuzzing: built and run where the sanitizers watch ----
fuzz_programs = tests/unit/fuzz/fuzz-lang tests/unit/fuzz/fuzz-format tests/unit/fuzz/fuzz-zsg tests/unit/fuzz/fuzz-data tests/unit/fuzz/fuzz-manifest \
  tests/unit/fuzz/fuzz-weights tests/unit/fuzz/fuzz-hub tests/unit/fuzz/fuzz-quantized tests/unit/fuzz/fuzz-gguf tests/unit/fuzz/fuzz-metrics tests/unit/fuzz/fuzz-text \
  tests/unit/fuzz/fuzz-documents tests/unit/fuzz/fuzz-megatron tests/unit/fuzz/fuzz-table tests/unit/fuzz/fuzz-config tests/unit/fuzz/fuzz-adapter tests/unit/fuzz/fuzz-trace \
  tests/unit/fuzz/fuzz-hosts tests/unit/fuzz/fuzz-schema tests/unit/fuzz/fuzz-serve tests/unit/fuzz/fuzz-template
EXTRA_PROGRAMS += $(fuzz_programs)
tests_unit_fuzz_fuzz_lang_SOURCES = tests/unit/fuzz/driver.c tests/unit/fuzz/fuzz_lang.c
tests_unit_fuzz_fuzz_lang_LDADD = $(libs_compiler)
tests_unit_fuzz_fuzz_format_SOURCES = tests/unit/fuzz/driver.c tests/unit/fuzz/fuzz_format.c
tests_unit_fuzz_fuzz_format_LDADD = $(libs_compiler)
tests_unit_fuzz_fuzz_config_SOURCES = tests/unit/fuzz/driver.c tests/unit/fuzz/fuzz_config.c
tests_unit_fuzz_fuzz_adapter_SOURCES = tests/unit/fuzz/driver.c tests/unit/fuzz/fuzz_adapter.c
tests_unit_fuzz_fuzz_adapter_LDADD = $(libs_compiler)
tests_unit_fuzz_fuzz_config_LDADD = $(libs_compiler)
tests_unit_fuzz_fuzz_trace_SOURCES = tests/unit/fuzz/driver.c tests/unit/fuzz/fuzz_trace.c
tests_unit_fuzz_fuzz_trace_LDADD = libcompiler.a $(libs_plan)
tests_unit_fuzz_fuzz_zsg_SOURCES = tests/unit/fuzz/driver.c tests/unit/fuzz/fuzz_zsg.c tests/unit/fuzz/mend.h \
  tests/unit/fuzz/mend_zsg.c
tests_unit_fuzz_fuzz_zsg_LDADD = $(libs_graph)
tests_unit_fuzz_fuzz_data_SOURCES = tests/unit/fuzz/driver.c tests/unit/fuzz/fuzz_data.c tests/unit/fuzz/mend.h \
  tests/unit/fuzz/mend_data.c
tests_unit_fuzz_fuzz_data_LDADD = $(libs_exec)
tests_unit_fuzz_fuzz_manifest_SOURCES = tests/unit/fuzz/driver.c tests/unit/fuzz/fuzz_manifest.c tests/unit/fuzz/mend.h \
  tests/unit/fuzz/mend_manifest.c runtime/exec/ckpt/zckpt_read.c runtime/exec/ckpt/zckpt_verify.c
tests_unit_fuzz_fuzz_manifest_CPPFLAGS = $(AM_CPPFLAGS) $(CJSON_CFLAGS)
tests_unit_fuzz_fuzz_manifest_LDADD = $(libs_exec)
tests_unit_fuzz_fuzz_documents_SOURCES = tests/unit/fuzz/driver.c tests/unit/fuzz/fuzz_documents.c
tests_unit_fuzz_fuzz_documents_CPPFLAGS = $(AM_CPPFLAGS) $(ZLIB_CFLAGS) $(ZSTD_CFLAGS)
tests_unit_fuzz_fuzz_documents_LDADD = $(libs_zdata)
tests_unit_fuzz_fuzz_megatron_SOURCES = tests/unit/fuzz/driver.c tests/unit/fuzz/fuzz_megatron.c tests/unit/fuzz/mend.h
tests_unit_fuzz_fuzz_megatron_LDADD = $(libs_zdata)
tests_unit_fuzz_fuzz_table_SOURCES = tests/unit/fuzz/driver.c tests/unit/fuzz/fuzz_table.c
tests_unit_fuzz_fuzz_table_LDADD = $(libs_zdata)
tests_unit_fuzz_fuzz_weights_SOURCES = tests/unit/fuzz/driver.c tests/unit/fuzz/fuzz_weights.c tests/unit/fuzz/mend.h \
  tests/unit/fuzz/mend_weights.c
tests_unit_fuzz_fuzz_weights_LDADD = $(libs_exec)
tests_unit_fuzz_fuzz_hub_SOURCES = tests/unit/fuzz/driver.c tests/unit/fuzz/fuzz_hub.c tests/unit/fuzz/mend.h \
  tests/unit/fuzz/mend_weights.c
tests_unit_fuzz_fuzz_hub_LDADD = $(libs_exec)
tests_unit_fuzz_fuzz_gguf_SOURCES = tests/unit/fuzz/driver.c tests/unit/fuzz/fuzz_gguf.c tests/unit/fuzz/mend.h
tests_unit_fuzz_fuzz_gguf_LDADD = $(libs_exec)
tests_unit_fuzz_fuzz_quantized_SOURCES = tests/unit/fuzz/driver.c tests/unit/fuzz/fuzz_quantized.c tests/unit/fuzz/mend.h \
  tests/unit/fuzz/mend_weights.c
tests_unit_fuzz_fuzz_quantized_LDADD = $(libs_exec)
tests_unit_fuzz_fuzz_metrics_SOURCES = tests/unit/fuzz/driver.c tests/unit/fuzz/fuzz_metrics.c
tests_unit_fuzz_fuzz_metrics_CPPFLAGS = $(AM_CPPFLAGS) $(CJSON_CFLAGS)
tests_unit_fuzz_fuzz_metrics_LDADD = $(libs_zlog)
tests_unit_fuzz_fuzz_text_SOURCES = tests/unit/fuzz/driver.c tests/unit/fuzz/fuzz_text.c
tests_unit_fuzz_fuzz_text_LDADD = $(libs_text)
tests_unit_fuzz_fuzz_template_SOURCES = tests/unit/fuzz/driver.c tests/unit/fuzz/fuzz_template.c
tests_unit_fuzz_fuzz_template_CPPFLAGS = $(AM_CPPFLAGS) $(CJSON_CFLAGS)
tests_unit_fuzz_fuzz_template_LDADD = $(libs_text)
tests_unit_fuzz_fuzz_hosts_SOURCES = tests/unit/fuzz/driver.c tests/unit/fuzz/fuzz_hosts.c
tests_unit_fuzz_fuzz_hosts_LDADD = libkeep.a $(libs_base)
tests_unit_fuzz_fuzz_schema_SOURCES = tests/unit/fuzz/driver.c tests/unit/fuzz/fuzz_schema.c
tests_unit_fuzz_fuzz_schema_LDADD = libexec.a $(libs_text) -lpthread
CLEANFILES += $(fuzz_programs)
tests_unit_fuzz_fuzz_serve_SOURCES = tests/unit/fuzz/driver.c tests/unit/fuzz/fuzz_serve.c
tests_unit_fuzz_fuzz_serve_CPPFLAGS = $(AM_CPPFLAGS) $(CJSON_CFLAGS)
tests_unit_fuzz_fuzz_serve_LDADD = $(libs_zrun)
