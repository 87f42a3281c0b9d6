libkernels_a_SOURCES += kernels/ref/ref.h \
  kernels/ref/ref.c \
  kernels/ref/ew.c \
  kernels/ref/move.c \
  kernels/ref/reduce.c \
  kernels/ref/norm.c \
  kernels/ref/attend.c \
  kernels/ref/select.c \
  kernels/ref/grouped.c \
  kernels/ref/experts.c \
  kernels/ref/conv.c \
  kernels/ref/linear_attend.c
