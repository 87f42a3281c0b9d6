/* How fast products can be on this GPU: one large product by the kernel that steps use, again and again. */
#include "runtime/exec/cuda.h"

#include <string.h>

typedef struct {
  char *memory;
  ZkCall call;
} Product;

static ZkView matrix(ZkElem elem, uint16_t rows, uint16_t columns, int64_t side, void *data) {
  return (ZkView){.data = data, .elem = (uint8_t)elem, .rank = 2, .axis = {rows, columns}, .size = {side, side},
                  .stride = {side, 1}, .whole = {side, side}};
}

/* Numbers as they occur: products of zeros take less power, and so are faster than any of use. */
static bool fill(char *to, size_t bytes, ZkElem elem, cudaStream_t stream) {
  union { float f[4096]; uint16_t h[8192]; } x;
  size_t have = sizeof x < bytes ? sizeof x : bytes;
  for (size_t i = 0; i < 8192; i++) {
    float f = (float)zb_random_normal(1, 2, i);
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (elem == ZK_BF16) x.h[i] = (uint16_t)(bits >> 16);
    else if (i < 4096) x.f[i] = f;
  }
  bool ok = cudaMemcpy(to, &x, have, cudaMemcpyHostToDevice) == cudaSuccess;
  for (size_t n = have; ok && n < bytes; n *= 2) {
    size_t more = n < bytes - n ? n : bytes - n;
    ok = cudaMemcpyAsync(to + n, to, more, cudaMemcpyDeviceToDevice, stream) == cudaSuccess;
  }
  return ok;
}

static bool make(Product *p, const ZkEnv *env, ZkElem elem, int64_t side) {
  size_t bytes = (size_t)(side * side) * zk_elem_bytes(elem);
  p->call = (ZkCall){.op = ZG_OP_DOT, .nin = 2, .nout = 1, .nax = 1, .ax = {2}};
  p->call.in[0] = matrix(elem, 1, 2, side, NULL);
  p->call.in[1] = matrix(elem, 2, 3, side, NULL);
  p->call.out[0] = matrix(elem, 1, 3, side, NULL);
  if (cudaMalloc((void **)&p->memory, 3 * bytes + zk_cuda_scratch(&p->call, 1)) != cudaSuccess) {
    cudaGetLastError();
    p->memory = NULL;
    return false;
  }
  p->call.in[0].data = p->memory;
  p->call.in[1].data = p->memory + bytes;
  p->call.out[0].data = p->memory + 2 * bytes;
  p->call.scratch = p->memory + 3 * bytes;
  zk_cuda_prepare(env, &p->call);
  return fill(p->memory, 2 * bytes, elem, zx_cuda_stream(env));
}

/* Seconds for `n` products; negative after an error. */
static double run(const Product *p, const ZkEnv *env, int n) {
  double from = zx_now();
  for (int i = 0; i < n; i++) zk_cuda_kernel(ZG_OP_DOT)(env, &p->call);
  if (cudaStreamSynchronize(zx_cuda_stream(env)) != cudaSuccess || zk_cuda_error(zx_cuda(env)->cu)) return -1;
  return zx_now() - from;
}

double zx_cuda_peak(const ZkEnv *env, ZkElem elem, int ms) {
  ZxCuda *d = zx_cuda(env);
  if (!zk_cuda_kernel(ZG_OP_DOT)) return 0;
  /* As much work as fills the device, or as its memory still has room for. */
  int64_t side = (int64_t)zb_round_up((uint64_t)d->cu->sms * 60, 256);
  Product p = {0};
  while (!p.memory && side >= 256)
    if (!make(&p, env, elem, side) && !p.memory) side /= 2;
  double t = -1;
  int n = 1;
  if (p.memory && run(&p, env, 1) >= 0)
    while ((t = run(&p, env, n)) >= 0 && t < ms * 1e-3) n *= 2;
  cudaFree(p.memory);
  return t > 0 ? 2.0 * (double)side * (double)side * (double)side * n / t : 0;
}
