dnl Libraries that are needed, each by pkg-config or in a folder of the user's own.
dnl
dnl ZUG_LIBRARY(VARIABLE, OPTION, MODULE, HEADER, LIBRARY, FUNCTION, DEBIAN'S PACKAGE, [if there is none]): --with-OPTION=DIR,
dnl where DIR has include and lib. Sets VARIABLE_CFLAGS and VARIABLE_LIBS. DIR's headers are known to all files.
AC_DEFUN([ZUG_LIBRARY], [
AC_ARG_WITH([$2], [AS_HELP_STRING([--with-$2=DIR], [it lies in DIR (include and lib)])], [], [with_$2=yes])
AS_CASE([$with_$2],
  [yes], [PKG_CHECK_MODULES([$1], [$3], [zug_found=yes], [zug_found=no])],
  [no], [zug_found=no],
  [ZUG_LIBRARY_AT([$1], [$with_$2], [$4], [$5], [$6])])
AS_IF([test $zug_found = no], [m4_default([$8], [AC_MSG_ERROR([$2 is missing (Debian: $7; or --with-$2=DIR)])])])
])

dnl ZUG_LIBRARY_AT(VARIABLE, DIR, HEADER, LIBRARY, FUNCTION): of an installed library. Sets zug_found; an error if it is not in
dnl DIR after all.
AC_DEFUN([ZUG_LIBRARY_AT], [
zug_dir=`cd "$2" 2>/dev/null && pwd` zug_lib=$zug_dir/lib
for zug_where in "$zug_dir/lib/`$CC -print-multiarch 2>/dev/null`" "$zug_dir/lib64" "$zug_dir/lib"; do
  AS_IF([ls "$zug_where"/lib$4.* >/dev/null 2>&1], [zug_lib=$zug_where])
done
zug_include=$zug_dir/include
AS_IF([test ! -e "$zug_include/$3" && test -e "$zug_include/$4/$3"], [zug_include=$zug_dir/include/$4])
$1_CFLAGS="-isystem $zug_include" $1_LIBS="-L$zug_lib -Wl,-rpath,$zug_lib -l$4"
CPPFLAGS="$CPPFLAGS -isystem $zug_include"
AC_MSG_CHECKING([for $4 in $2])
zug_save_LIBS=$LIBS LIBS="$$1_LIBS $LIBS" zug_found=no
AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <stddef.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <$3>]], [[return (void (*)(void))$5 == 0;]])], [zug_found=yes])
LIBS=$zug_save_LIBS
AC_MSG_RESULT([$zug_found])
AS_IF([test $zug_found = no], [AC_MSG_ERROR([no $3 and lib$4 in $2: see config.log])])
AC_SUBST([$1_CFLAGS]) AC_SUBST([$1_LIBS])
])

dnl cJSON and xxHash, which clusters often lack, also from their sources: DIR has cJSON.c, or xxhash.h.
AC_DEFUN([ZUG_SMALL_LIBRARIES], [
zug_sources=no
AS_IF([test -f "$with_cjson/cJSON.c"], [
  zug_dir=`cd "$with_cjson" && pwd` zug_sources=yes
  AS_MKDIR_P([sources/cjson])
  cp "$zug_dir/cJSON.c" "$zug_dir/cJSON.h" sources/cjson/ || AC_MSG_ERROR([cannot read cJSON's sources in $with_cjson])
  CJSON_CFLAGS= CJSON_LIBS=libcjson.a CPPFLAGS="$CPPFLAGS -isystem `pwd`/sources"
  AC_SUBST([CJSON_CFLAGS]) AC_SUBST([CJSON_LIBS])
], [ZUG_LIBRARY([CJSON], [cjson], [libcjson], [cjson/cJSON.h], [cjson], [cJSON_Parse], [libcjson-dev])])
AM_CONDITIONAL([CJSON_SOURCES], [test $zug_sources = yes])
AS_IF([test -f "$with_xxhash/xxhash.h"], [
  zug_dir=`cd "$with_xxhash" && pwd`
  XXHASH_CFLAGS= XXHASH_LIBS= CPPFLAGS="$CPPFLAGS -isystem $zug_dir -DXXH_INLINE_ALL"
  AC_SUBST([XXHASH_CFLAGS]) AC_SUBST([XXHASH_LIBS])
], [ZUG_LIBRARY([XXHASH], [xxhash], [libxxhash >= 0.8], [xxhash.h], [xxhash], [XXH3_64bits], [libxxhash-dev])])
])
