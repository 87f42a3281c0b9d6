/* Products by packed weights: these are unpacked into the call's scratch, in the type of the other operand, and
 * multiplied as any others. */
#include "kernels/cuda/packed.cuh"

#define THREADS 256

typedef struct {
  Packed from;
  void *to;
  int elem;
  long long fours;
} Unpack;

static __global__ void __launch_bounds__(THREADS) unpack(const __grid_constant__ Unpack p) {
  for (long long u = blockIdx.x * (long long)THREADS + threadIdx.x; u < p.fours;
       u += gridDim.x * (long long)THREADS) {
    float x[4];
    packed_four(p.from, 4 * u, x);
#pragma unroll
    for (int i = 0; i < 4; i++) zk_store(p.to, p.elem, 4 * u + i, x[i]);
  }
}

/* Returns which operand of a product is packed; -1: none. */
static int packed_operand(const ZkCall *c) {
  for (int i = 0; i < 2; i++)
    if (zk_is_packed((ZkElem)c->in[i].elem)) return i;
  return -1;
}

extern "C" size_t zk_cuda_plain(const ZkCall *call, ZkCall *plain) {
  int i = packed_operand(call);
  *plain = *call;
  if (i < 0) return 0;
  ZkView *w = &plain->in[i];
  w->elem = call->in[!i].elem, w->summed = 0, w->data = call->scratch;
  size_t bytes = zb_round_up(zk_bytes((ZkElem)w->elem, (uint64_t)zkc_count(w)), 256);
  if (call->scratch) plain->scratch = (char *)call->scratch + bytes;
  return bytes;
}

extern "C" bool zk_cuda_run_plain(const ZkEnv *env, const ZkCall *call, ZkKernel *kernel) {
  int i = packed_operand(call);
  ZkCall plain;
  if (i < 0) return false;
  ZkCuda *cu = zk_cu(env);
  zk_cuda_plain(call, &plain);
  Unpack p = {packed_of(&call->in[i]), plain.in[i].data, plain.in[i].elem, zkc_count(&plain.in[i]) / 4};
  ZK_LAUNCH(cu, call, unpack, zk_blocks(cu, zk_ceil_of(p.fours, THREADS)), THREADS, 0, p);
  kernel(env, &plain);
  return true;
}
