# kernels/cuda: nvcc compiles the .cu files if configure found it; the C++ compiler compiles them again for the
# emulator, in which tests run them without a GPU. They are listed beside those of the CPU, in kernels/local.mk.
cuda_host = kernels/cuda/cuda.h kernels/cuda/host.h kernels/cuda/packed.h kernels/cuda/shape.h kernels/cuda/common.cuh kernels/cuda/flat.cuh kernels/cuda/optimize.h \
  kernels/cuda/rows.cuh kernels/cuda/products.cuh kernels/cuda/linear.cuh kernels/cuda/steps.cuh kernels/cuda/packed.cuh kernels/cuda/norm_text.c kernels/cuda/norm_fused.c \
  kernels/cuda/device.cuh kernels/cuda/table.c kernels/cuda/host.c kernels/cuda/pointwise.h \
  kernels/cuda/rows.cuh kernels/cuda/norm_text.c kernels/cuda/norm_fused.c \
  kernels/cuda/device.cuh kernels/cuda/fallback.c kernels/cuda/tiles.c kernels/cuda/table.c kernels/cuda/host.c kernels/cuda/pointwise.h \
  kernels/cuda/pointwise_text.c kernels/cuda/program.c kernels/cuda/packed_dot.c kernels/cuda/dot.h kernels/cuda/dot.c kernels/cuda/dot_epilogue.c kernels/cuda/dot_lt.h kernels/cuda/dot_lt.c \
  kernels/cuda/dot_trial.c \
  kernels/cuda/attend.h kernels/cuda/attend.cuh kernels/cuda/attend_pages.cuh kernels/cuda/attend_tiles.cuh kernels/cuda/mma.cuh kernels/cuda/attend.c kernels/cuda/attend_cudnn.c

if HAVE_CUDA
noinst_LIBRARIES += libkernels_cuda.a
endif
libkernels_cuda_a_SOURCES = $(cuda_host) $(cuda_kernels) kernels/cuda/context.c kernels/cuda/compile.c \
  graph/ops.c kernels/packed.c kernels/unfuse.c kernels/updates.c # the module has its own: zrun may need none of it
nodist_libkernels_cuda_a_SOURCES = kernels/cuda/texts.embed.c
libkernels_cuda_a_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
libkernels_cuda_a_CFLAGS = $(AM_CFLAGS) -fPIC # a part of a module

if HAVE_CXX
check_LIBRARIES += libkernels_emu.a
endif
libkernels_emu_a_SOURCES = $(cuda_host) kernels/cuda/emu.h
nodist_libkernels_emu_a_SOURCES = kernels/cuda/texts.embed.c
libkernels_emu_a_LIBADD = $(cuda_kernels:.cu=.emu.o) kernels/cuda/emu.emu.o
libkernels_emu_a_DEPENDENCIES = $(libkernels_emu_a_LIBADD)
libkernels_emu_a_CPPFLAGS = $(AM_CPPFLAGS) -DZK_EMU
CLEANFILES += kernels/cuda/*.emu.o

# Programs made at run time carry these.
cuda_texts = kernels/cuda/shape.h kernels/cuda/device.cuh kernels/cuda/rows.cuh
kernels/cuda/texts.embed.c: $(cuda_texts) base/embed.awk
	@$(MKDIR_P) $(@D)
	$(V_EMBED)$(EMBED) -v name=zk_cuda_texts -v root=$(srcdir)/kernels/cuda/ $(filter-out %.awk,$^) > $@
CLEANFILES += kernels/cuda/texts.embed.c

# ---- rules: dependencies are noted as automake's own are, warnings of the host's part are the project's ----
SUFFIXES += .cu
V_NVCC = $(V_NVCC_@AM_V@)
V_NVCC_ = $(V_NVCC_@AM_DEFAULT_V@)
V_NVCC_0 = @echo "  NVCC     $@";
V_EMU = $(V_EMU_@AM_V@)
V_EMU_ = $(V_EMU_@AM_DEFAULT_V@)
V_EMU_0 = @echo "  EMU      $@";

nvcc_flags = -std=c++17 -O3 -lineinfo -Xcompiler=-Wall,-Wextra,-fPIC $(NVCC_WERROR) $(NVCC_GENCODE) -I$(srcdir) -I$(builddir) \
  $(CUDA_CPPFLAGS) $(NVCCFLAGS)
emu_flags = -x c++ -std=c++17 -DZK_EMU -Wall -Wextra -Wno-unknown-pragmas $(WERROR_CFLAGS) $(OPT_CFLAGS) -g \
  -I$(srcdir) -I$(builddir) -fmacro-prefix-map=$(srcdir)/= $(SANITIZE_FLAGS) $(CXXFLAGS)

# Objects are made anew for other GPU generations, and with other flags.
$(cuda_kernels:.cu=.o): kernels/cuda/generations
kernels/cuda/generations: always
	@$(MKDIR_P) $(@D)
	@echo '$(NVCC_GENCODE) $(NVCCFLAGS)' | cmp -s - $@ || echo '$(NVCC_GENCODE) $(NVCCFLAGS)' >$@
.PHONY: always
CLEANFILES += kernels/cuda/generations
.cu.o:
	@$(MKDIR_P) $(@D)/$(DEPDIR)
	$(V_NVCC)$(NVCC) $(nvcc_flags) -MMD -MP -MT $@ -MF $(@D)/$(DEPDIR)/$(*F).cu.d -c -o $@ $<
%.emu.o: %.cu
	@$(MKDIR_P) $(@D)/$(DEPDIR)
	$(V_EMU)$(CXX) $(emu_flags) -MMD -MP -MT $@ -MF $(@D)/$(DEPDIR)/$(*F).emu.d -c -o $@ $<
%.emu.o: %.cc
	@$(MKDIR_P) $(@D)/$(DEPDIR)
	$(V_EMU)$(CXX) $(emu_flags) -MMD -MP -MT $@ -MF $(@D)/$(DEPDIR)/$(*F).emu.d -c -o $@ $<
cu_depdirs = kernels/cuda/$(DEPDIR) tests/unit/kernels/cuda/$(DEPDIR)
-include $(wildcard $(cu_depdirs:=/*.cu.d) $(cu_depdirs:=/*.emu.d))

distclean-local:
	-rm -rf $(cu_depdirs)
