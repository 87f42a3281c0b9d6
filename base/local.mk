# base: what every room may use.
noinst_LIBRARIES += libbase.a
libbase_a_SOURCES = base/base.h base/base.c
EXTRA_DIST += base/embed.awk
