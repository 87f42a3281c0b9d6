# lang: see the conventions at the top of Makefile.am.
noinst_LIBRARIES += liblang.a
liblang_a_SOURCES = \
  lang/ast.h \
  lang/errors.def \
  lang/lang.h
liblang_a_CPPFLAGS = $(AM_CPPFLAGS) $(CJSON_CFLAGS)
