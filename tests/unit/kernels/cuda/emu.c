/* The CUDA kernels as a back end, on the CPU: every call runs the threads of its blocks in another order. */
#include "kernels/cuda/cuda.h"
#include "tests/unit/kernels/cuda/emu.h"

static struct cublasLtContext *blas;
void emu_use_blas(struct cublasLtContext *handle) { blas = handle, conform_leaves_none_out = true; }
static struct cudnnContext *dnn;
void emu_use_dnn(struct cudnnContext *handle) { dnn = handle, conform_leaves_none_out = true; }
static bool tf32, repeatable;
void emu_use_flags(bool tf32_now, bool repeatable_now) { tf32 = tf32_now, repeatable = repeatable_now; }
static int arch = 90;
void emu_use_arch(int now) { arch = now; }

static bool lacks(int op) { return (void)op, false; }

/* And those that do what several do. */
Test(table, same_ops_as_the_cpu) {
  for (int op = 0; op < ZG_OP_COUNT; op++) {
    bool several = op == ZG_OP_DOT_BIAS_GRAD || op == ZG_OP_XENT_MAX_SUMS || op == ZG_OP_XENT_SUMS_GRAD ||
                   op == ZG_OP_NORMALIZE_GRAD_SUMS;
    cr_assert((zk_cuda_kernel(op) != NULL) == (several || zk_cpu_kernel(op)), "%s", zg_op_info[op].text);
  }
  cr_assert(zk_cuda_kernel(-1) == NULL && zk_cuda_kernel(ZG_OP_COUNT) == NULL);
}

static int open_device(ZkEnv *env, int way) {
  static int order;
  (void)way;
  zk_cuda_emulate(order++ % 5);
  ZkCuda *cu = zk_cuda_new(0, NULL);
  static _Alignas(256) char workspace[4096];
  cu->blas = blas;
  if (blas) cu->l2 = 4096; /* which trials write over, and tests have many */
  cu->workspace = workspace, cu->workspace_bytes = sizeof workspace;
  cu->dnn = dnn;
  cu->arch = arch;
  cu->tf32 = tf32, cu->repeatable = repeatable;
  env->device = cu;
  return 1;
}

static void close_device(ZkEnv *env) {
  const char *error = zk_cuda_error(env->device);
  cr_assert(error == NULL, "%s", error);
  zk_cuda_free(env->device);
}

const Backend backend = {.name = "cuda, emulated",
                         .kernel = zk_cuda_kernel,
                         .scratch = zk_cuda_scratch,
                         .lacks = lacks,
                         .ways = 1,
                         .open = open_device,
                         .close = close_device,
                         .prompts = true,
                         .odd = true};
