dnl ZUG_SWITCHES: --enable-sanitize, --enable-werror and the optimisation levels.
dnl Sets OPT_CFLAGS (all rooms), KERNEL_CFLAGS (kernels), SANITIZE_FLAGS, WARN_CFLAGS, WERROR_CFLAGS.
AC_DEFUN([ZUG_SWITCHES], [
AC_ARG_ENABLE([sanitize],
  [AS_HELP_STRING([--enable-sanitize], [build with AddressSanitizer and UndefinedBehaviorSanitizer])],
  [], [enable_sanitize=no])
AC_ARG_ENABLE([werror], [AS_HELP_STRING([--enable-werror], [make warnings errors])],
  [], [enable_werror=no])
OPT_CFLAGS= KERNEL_CFLAGS= SANITIZE_FLAGS= WERROR_CFLAGS=
AS_IF([test $zug_own_cflags = yes],
  [AS_IF([test $enable_sanitize = yes],
    [OPT_CFLAGS=-O1],
    [OPT_CFLAGS=-O2; KERNEL_CFLAGS=-O3])])
dnl Without -fno-sanitize-recover a test with undefined behaviour passes.
AS_IF([test $enable_sanitize = yes],
  [SANITIZE_FLAGS="-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"])
AS_IF([test $enable_werror = yes], [WERROR_CFLAGS=-Werror])
dnl clang's -Wextra also warns of initializers that leave out members of members, and of loops that it does not make vectors of.
AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#ifndef __clang__
#error
#endif]])], [WARN_CFLAGS="-Wall -Wextra -Wno-missing-field-initializers -Wno-pass-failed"], [WARN_CFLAGS="-Wall -Wextra"])
AC_SUBST([WARN_CFLAGS])
AM_CONDITIONAL([SANITIZE], [test $enable_sanitize = yes])
AC_SUBST([OPT_CFLAGS]) AC_SUBST([KERNEL_CFLAGS])
AC_SUBST([SANITIZE_FLAGS]) AC_SUBST([WERROR_CFLAGS])
dnl Archives without times and owners, so that two builds give the same bytes.
AC_SUBST([ARFLAGS], [crD])
])
