# The reference kernels, over doubles in libkernels.a and over residues in a library of their own, which needs
# neither BLAS nor threads.
ref_kernels = kernels/ref/num.h \
  kernels/ref/ref.h \
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
  kernels/ref/linear_attend.c \
  kernels/ref/pages.c \
  kernels/ref/resume.c
libkernels_a_SOURCES += $(ref_kernels)

noinst_LIBRARIES += libresidues.a
libresidues_a_SOURCES = kernels/residue.h kernels/unfuse.c kernels/updates.c $(ref_kernels)
libresidues_a_CPPFLAGS = $(AM_CPPFLAGS) -DZUG_RESIDUES
