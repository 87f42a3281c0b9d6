/* Products by packed weights as products by plain ones (packed.cu). Private to kernels/cuda. */
#ifndef ZUG_KERNELS_CUDA_PLAIN_H
#define ZUG_KERNELS_CUDA_PLAIN_H

#include "kernels/cuda/host.h"

/* Gives a product a plain operand in place of a packed one, in the first bytes of its scratch: so many are
 * returned, 0 if none is packed. */
size_t zk_cuda_plain(const ZkCall *call, ZkCall *plain);
/* Runs such a product by `kernel`. False: none is packed. */
bool zk_cuda_run_plain(const ZkEnv *env, const ZkCall *call, ZkKernel *kernel);
ZkCudaScratch zk_cuda_grouped_scratch;

#endif
