# base: what every room may use.
noinst_LIBRARIES += libbase.a
libbase_a_SOURCES = \
  base/base.h base/append.c base/base.c base/folder.c base/installed.h base/json.c base/json_read.c base/module.c base/names.c base/number.c base/options.c base/options.h base/process.c base/random.c base/read.c base/show.c base/time.c base/tmp.c \
  base/write.c
libbase_a_CPPFLAGS = $(AM_CPPFLAGS) $(CJSON_CFLAGS) -DZUG_MODULES='"$(pkglibdir)"'
libbase_a_CFLAGS = $(AM_CFLAGS) $(KERNEL_CFLAGS) -ffp-contract=off -fno-math-errno # random.c: the same bits everywhere
