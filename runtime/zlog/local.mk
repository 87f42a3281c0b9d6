# runtime/zlog: zlog, which draws, compares and follows runs. See the conventions at the top of Makefile.am.
noinst_LIBRARIES += libzlog.a
libzlog_a_SOURCES = \
  runtime/zlog/compare.c \
  runtime/zlog/curves.c \
  runtime/zlog/html.c \
  runtime/zlog/lines.c \
  runtime/zlog/plot.c \
  runtime/zlog/run.c \
  runtime/zlog/scale.c \
  runtime/zlog/svg.c \
  runtime/zlog/tail.c \
  runtime/zlog/zlog.h
nodist_libzlog_a_SOURCES = runtime/zlog/page.embed.c
CLEANFILES += runtime/zlog/page.embed.c
runtime/zlog/page.embed.c: runtime/zlog/page.html base/embed.awk
	@$(MKDIR_P) $(@D)
	$(V_EMBED)$(EMBED) -v name=zv_page -v root=$(srcdir)/runtime/zlog/ $(filter %.html,$^) > $@
libzlog_a_CPPFLAGS = $(AM_CPPFLAGS) $(CJSON_CFLAGS)
bin_PROGRAMS += zlog
zlog_SOURCES = runtime/zlog/main.c
zlog_CPPFLAGS = $(AM_CPPFLAGS) $(CJSON_CFLAGS)
zlog_LDADD = $(libs_zlog)
