# runtime/zdata: the program zdata. See the conventions at the top of Makefile.am.
noinst_LIBRARIES += libzdata.a
libzdata_a_SOURCES = \
  runtime/zdata/check.c \
  runtime/zdata/copy.c \
  runtime/zdata/inputs.c \
  runtime/zdata/pack.c \
  runtime/zdata/records.c \
  runtime/zdata/show.c \
  runtime/zdata/table.c \
  runtime/zdata/zdata.h
bin_PROGRAMS += zdata
zdata_SOURCES = runtime/zdata/zdata.c
zdata_LDADD = $(libs_zdata)
