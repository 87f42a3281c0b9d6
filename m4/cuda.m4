dnl ZUG_CUDA: --with-cuda=DIR|no, and what there is of CUDA. Nothing here is required.
dnl
dnl HAVE_CUDA (nvcc, the runtime) is an automake conditional; each of cuBLASLt, cuDNN, NCCL and NVRTC is found by
dnl itself, linked if found and announced by -DHAVE_NAME in CUDA_CPPFLAGS. Sets NVCC, NVCC_GENCODE, CUDA_CPPFLAGS,
dnl CUDA_LIBS (the path included; never libcuda, which machines without a GPU lack), and zug_cuda, a line for people.
AC_DEFUN([ZUG_CUDA], [
AC_ARG_WITH([cuda],
  [AS_HELP_STRING([--with-cuda=DIR], [CUDA toolkit in DIR; `no': not used (default: found by PATH, /usr/local/cuda)])],
  [], [with_cuda=auto])
AC_ARG_VAR([NVCC], [the CUDA compiler])
AC_ARG_VAR([NVCCFLAGS], [more flags for it])
AC_ARG_VAR([CUDA_ARCHS], [GPU generations to compile for, "80 90a" by default])
: ${CUDA_ARCHS="80 90a"}
have_cuda=no zug_cuda=no NVRTC_LIBS= NVCC_GENCODE= CUDA_CPPFLAGS= CUDA_LIBS=
AS_IF([test "x$with_cuda" != xno], [ZUG_CUDA_COMPILER])
AS_IF([test $have_cuda = yes], [
  zug_save_CPPFLAGS=$CPPFLAGS zug_save_LIBS=$LIBS
  CPPFLAGS="$CPPFLAGS $CUDA_CPPFLAGS" CUDA_LIBS="-L$zug_cuda_lib -Wl,-rpath,$zug_cuda_lib"
  ZUG_CUDA_LIBRARY([CUDART], [cuda_runtime_api.h], [cudart], [cudaGetDeviceCount], [have_cuda=yes], [have_cuda=no])
  AS_IF([test $have_cuda = yes], [
    zug_cuda="nvcc"
    ZUG_CUDA_LIBRARY([CUBLASLT], [cublasLt.h], [cublasLt], [cublasLtCreate], [zug_cuda="$zug_cuda cuBLASLt"])
    ZUG_CUDA_LIBRARY([CUDNN], [cudnn.h], [cudnn], [cudnnBackendCreateDescriptor], [zug_cuda="$zug_cuda cuDNN"])
    ZUG_CUDA_LIBRARY([NCCL], [nccl.h], [nccl], [ncclCommSplit], [zug_cuda="$zug_cuda NCCL"])
    dnl Programs made at run time are loaded by the driver, for whose functions the runtime is asked: any of 12 and 13.
    AC_CHECK_HEADER([cudaTypedefs.h],
      [ZUG_CUDA_LIBRARY([NVRTC], [nvrtc.h], [nvrtc], [nvrtcGetCUBIN], [zug_cuda="$zug_cuda NVRTC" NVRTC_LIBS="-L$zug_cuda_lib -Wl,-rpath,$zug_cuda_lib -lnvrtc"])])
    zug_cuda="$zug_cuda (for $CUDA_ARCHS)"])
  CPPFLAGS=$zug_save_CPPFLAGS LIBS=$zug_save_LIBS])
AS_IF([test $have_cuda = no && test "x$with_cuda" != xno && test "x$with_cuda" != xauto],
  [AC_MSG_ERROR([--with-cuda=$with_cuda, but there is no usable CUDA; config.log says why])])
AS_IF([test $have_cuda = no], [CUDA_CPPFLAGS= CUDA_LIBS=],
  [CUDA_CPPFLAGS="$CUDA_CPPFLAGS -DHAVE_CUDA"])
AS_IF([test "x$WERROR_CFLAGS" != x], [NVCC_WERROR="-Werror all-warnings -Xcompiler=-Werror"], [NVCC_WERROR=])
AC_SUBST([NVCC_WERROR]) AC_SUBST([NVCC_GENCODE]) AC_SUBST([CUDA_CPPFLAGS]) AC_SUBST([CUDA_LIBS])
AC_SUBST([NVRTC_LIBS])
AM_CONDITIONAL([HAVE_CUDA], [test $have_cuda = yes])
AM_CONDITIONAL([HAVE_NCCL], [AS_CASE(["$CUDA_CPPFLAGS"], [*-DHAVE_NCCL*], [true], [false])])
AM_CONDITIONAL([HAVE_NVRTC], [test $have_cuda = yes && test "x$NVRTC_LIBS" != x])
])

dnl The compiler, where its toolkit lies, and whether it compiles for CUDA_ARCHS.
AC_DEFUN([ZUG_CUDA_COMPILER], [
AS_CASE([$with_cuda], [auto | yes], [zug_path="$PATH:/usr/local/cuda/bin:/opt/cuda/bin"],
  [zug_path="$with_cuda/bin"])
AC_PATH_PROG([NVCC], [nvcc], [no], [$zug_path])
AS_IF([test "$NVCC" != no], [
  zug_cuda_home=`readlink -f "$NVCC"`
  zug_cuda_home=`dirname "$zug_cuda_home"`
  zug_cuda_home=`dirname "$zug_cuda_home"`
  AS_CASE([$with_cuda], [auto | yes], [], [zug_cuda_home=$with_cuda])
  zug_cuda_lib=$zug_cuda_home/lib64
  test -d "$zug_cuda_lib" || zug_cuda_lib=$zug_cuda_home/lib/`$CC -print-multiarch 2>/dev/null`
  test -d "$zug_cuda_lib" || zug_cuda_lib=$zug_cuda_home/lib
  dnl -isystem /usr/include would hide the C library's own headers from C++'s #include_next.
  AS_IF([test "$zug_cuda_home" != /usr], [CUDA_CPPFLAGS="-isystem $zug_cuda_home/include"])
  zug_ptx=
  for zug_arch in $CUDA_ARCHS; do
    NVCC_GENCODE="$NVCC_GENCODE -gencode arch=compute_$zug_arch,code=sm_$zug_arch"
    AS_CASE([$zug_arch], [*@<:@af@:>@], [], [zug_ptx=$zug_arch])
  done
  dnl For GPUs that came later: the driver compiles this when it loads it. (What ends in a or f is for one generation.)
  AS_IF([test "x$zug_ptx" != x], [NVCC_GENCODE="$NVCC_GENCODE -gencode arch=compute_$zug_ptx,code=compute_$zug_ptx"])
  AC_MSG_CHECKING([whether $NVCC compiles for $CUDA_ARCHS])
  AS_ECHO(['__global__ void f(float *x) { *x = 1; }  int g() { f<<<1, 1>>>(0); return cudaGetLastError(); }']) >conftest.cu
  AS_IF([AC_RUN_LOG([$NVCC $NVCC_GENCODE $NVCCFLAGS -std=c++17 -c conftest.cu -o conftest.o])], [have_cuda=yes])
  AC_MSG_RESULT([$have_cuda])
  rm -f conftest.cu conftest.o])
])

dnl ZUG_CUDA_LIBRARY(NAME, header, library, function, [if found], [if not]): header and library, or neither.
AC_DEFUN([ZUG_CUDA_LIBRARY], [
AC_CHECK_HEADER([$2],
  [AC_CHECK_LIB([$3], [$4], [CUDA_LIBS="-l$3 $CUDA_LIBS" CUDA_CPPFLAGS="$CUDA_CPPFLAGS -DHAVE_$1"
    $5], [$6], [$CUDA_LIBS])], [$6])
])
