# runtime/zdata: the program zdata. See the conventions at the top of Makefile.am.
noinst_LIBRARIES += libzdata.a
libzdata_a_SOURCES = \
  runtime/zdata/bytes.c \
  runtime/zdata/chat.c \
  runtime/zdata/check.c \
  runtime/zdata/copy.c \
  runtime/zdata/decode.c \
  runtime/zdata/documents.c \
  runtime/zdata/encode.c \
  runtime/zdata/folder.c \
  runtime/zdata/forms.c \
  runtime/zdata/import.c \
  runtime/zdata/content.c \
  runtime/zdata/inputs.c \
  runtime/zdata/json.c \
  runtime/zdata/megatron.c \
  runtime/zdata/number.c \
  runtime/zdata/pack.c \
  runtime/zdata/progress.c \
  runtime/zdata/records.c \
  runtime/zdata/show.c \
  runtime/zdata/sink.c \
  runtime/zdata/table.c \
  runtime/zdata/tokenizer.c \
  runtime/zdata/zdata.h
libzdata_a_CPPFLAGS = $(AM_CPPFLAGS) $(ZLIB_CFLAGS) $(ZSTD_CFLAGS)
bin_PROGRAMS += zdata
zdata_SOURCES = runtime/zdata/zdata.c
zdata_LDADD = $(libs_zdata)
