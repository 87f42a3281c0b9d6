dnl ZUG_MPI: the MPI that zrun is built with; without one everything else is. In this order: what --with-mpi=DIR or MPICC
dnl says, pkg-config (Open MPI, MPICH, Intel's), the compiler wrapper in PATH. Sets MPI_CFLAGS, MPI_LIBS, MPIRUN, $have_mpi
dnl and $zug_mpi, its name.
AC_DEFUN([ZUG_MPI], [
AC_ARG_WITH([mpi], [AS_HELP_STRING([--with-mpi=DIR], [MPI lies in DIR (bin/mpicc, or include and lib); no: none])], [],
  [with_mpi=yes])
AC_ARG_VAR([MPICC], [the wrapper of MPI's compiler, which says how to link with it])
AC_ARG_VAR([MPIRUN], [the MPI launcher used by the tests])
have_mpi=no zug_mpi=no
AS_CASE([$with_mpi],
  [no], [],
  [yes], [AS_IF([test "x$MPICC" != x], [ZUG_MPI_WRAPPER([$MPICC])],
    [PKG_CHECK_MODULES([MPI], [ompi-c], [have_mpi=yes],
      [PKG_CHECK_MODULES([MPI], [mpich], [have_mpi=yes],
        [PKG_CHECK_MODULES([MPI], [impi], [have_mpi=yes],
          [AC_PATH_PROGS([MPICC], [mpicc mpiicc])
           AS_IF([test "x$MPICC" != x], [ZUG_MPI_WRAPPER([$MPICC])])])])])])],
  [AS_IF([test -x "$with_mpi/bin/mpicc"], [ZUG_MPI_WRAPPER([$with_mpi/bin/mpicc])],
    [MPI_CFLAGS="-I$with_mpi/include" MPI_LIBS="-L$with_mpi/lib -Wl,-rpath,$with_mpi/lib" have_mpi=yes
     AS_IF([test -e "$with_mpi/lib/libmpich.so"], [MPI_LIBS="$MPI_LIBS -lmpich"], [MPI_LIBS="$MPI_LIBS -lmpi"])])
   AC_PATH_PROGS([MPIRUN], [mpirun mpiexec], [], [$with_mpi/bin])])
AS_IF([test $have_mpi = yes], [ZUG_MPI_TRY])
AS_IF([test $have_mpi = no], [
  MPI_CFLAGS= MPI_LIBS=
  AS_CASE([$with_mpi], [yes | no], [], [AC_MSG_ERROR([no MPI 3 in $with_mpi: see config.log])])])
AS_CASE([$with_mpi], [yes | no], [AC_CHECK_PROGS([MPIRUN], [mpirun mpiexec])]) # else another MPI's might be taken
AM_CONDITIONAL([HAVE_MPI], [test $have_mpi = yes])
])

dnl What a wrapper would give to the compiler: all of them know -show.
AC_DEFUN([ZUG_MPI_WRAPPER], [
MPI_CFLAGS= MPI_LIBS=
for zug_word in `$1 -show 2>&AS_MESSAGE_LOG_FD | tr -d '"'`; do
  AS_CASE([$zug_word],
    [-I* | -D*], [MPI_CFLAGS="$MPI_CFLAGS $zug_word"],
    [-L* | -l* | -Wl,*], [MPI_LIBS="$MPI_LIBS $zug_word"],
    [-pthread], [MPI_CFLAGS="$MPI_CFLAGS $zug_word" MPI_LIBS="$MPI_LIBS $zug_word"])
done
AS_IF([test "x$MPI_LIBS" != x], [have_mpi=yes])
dnl Its launcher has the same name but for the word, as in mpicc.mpich.
zug_launcher=`AS_ECHO(["$1"]) | sed 's/mpii*cc\([[^/]]*\)$/mpirun\1/'`
AS_IF([test "x$MPIRUN" = x && test "$zug_launcher" != "$1" && command -v "$zug_launcher" >/dev/null 2>&1],
  [MPIRUN=$zug_launcher])
])

dnl Whether a program can be linked with it, and which it is.
AC_DEFUN([ZUG_MPI_TRY], [
AC_MSG_CHECKING([which MPI])
zug_save_CPPFLAGS=$CPPFLAGS zug_save_LIBS=$LIBS
CPPFLAGS="$MPI_CFLAGS $CPPFLAGS" LIBS="$MPI_LIBS $LIBS"
have_mpi=no zug_mpi=none
AC_RUN_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>
#include <string.h>
#if MPI_VERSION < 3
#error operations that do not block came with MPI 3
#endif
int begin(MPI_Request *r) { return MPI_Ibarrier(MPI_COMM_WORLD, r); }]], [[
  static char version[1 << 16]; /* of the library: it need not be that of the header */
  int n, open;
  if (MPI_Get_library_version(version, &n)) return 1;
  open = strstr(version, "Open MPI") != NULL;
#ifdef OPEN_MPI
  return !open;
#else
  return open;
#endif]])], [have_mpi=yes zug_mpi="some MPI"], [], [have_mpi=yes zug_mpi="some MPI"])
m4_foreach([one], [[[OPEN_MPI], [Open MPI]], [[MPICH], [MPICH]], [[I_MPI_VERSION], [Intel MPI]], [[MVAPICH2_VERSION], [MVAPICH]]], [
AS_IF([test $have_mpi = yes], [AC_PREPROC_IFELSE([AC_LANG_SOURCE([[#include <mpi.h>
#ifndef ]m4_car(one)[
#error another
#endif]])], [zug_mpi="]m4_argn(2, one)["])])])
dnl In MPICH's headers MPI_STATUSES_IGNORE is the address 1, of which gcc says that no status is there.
AC_PREPROC_IFELSE([AC_LANG_SOURCE([[#include <mpi.h>
#if defined OPEN_MPI || defined __clang__
#error
#endif]])], [MPI_CFLAGS="$MPI_CFLAGS -Wno-stringop-overflow"])
CPPFLAGS=$zug_save_CPPFLAGS LIBS=$zug_save_LIBS
AC_MSG_RESULT([$zug_mpi])
])
