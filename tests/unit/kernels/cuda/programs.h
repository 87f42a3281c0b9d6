/* Programs that kernels are made of at run time: their texts, compiled by NVRTC for GPUs that are not here,
 * and by the C++ compiler for the emulator. */
#ifndef ZUG_TESTS_KERNELS_CUDA_PROGRAMS_H
#define ZUG_TESTS_KERNELS_CUDA_PROGRAMS_H

#include "tests/unit/kernels/cuda/emu.h"

/* The program without what programs begin with. */
const char *programs_own_part(const char *text);
/* The own part is what file FILE beside this one holds. */
void programs_expect(const char *text, const char *file);

/* A list of texts, each once. */
void programs_add(char *text); /* takes it, from malloc */
int programs_count(void);
void programs_drop(void);

/* All of them: for two generations of GPUs. */
void programs_compile(void);
/* And for the emulator, of kernels that take an `args` ("ZkcPointwise"): from then on calls run by these, as
 * if NVRTC had compiled them, and there must be one for each text that is asked for. */
void programs_build(const char *args);
int programs_launched(void); /* how often since */

#endif
