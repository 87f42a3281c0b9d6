/* How fast products and copies can be on this GPU: large ones by what steps use, again and again. */
#include "runtime/exec/device/cuda.h"

#include <string.h>

/* ---- products ---- */
enum { WAYS = 3 }; /* in which operands lie: both by rows, the first by columns, the second by columns */
typedef struct {
  ZkCall call[WAYS];
  double flops; /* of one */
} Products;

static ZkView matrix(ZkElem elem, uint16_t rows, uint16_t columns, int64_t side, void *data) {
  return (ZkView){.data = data,
                  .elem = (uint8_t)elem,
                  .rank = 2,
                  .axis = {rows, columns},
                  .size = {side, side},
                  .stride = {side, 1},
                  .whole = {side, side}};
}

/* Numbers as they occur: products of zeros take less power, and so are faster than any of use. */
static bool fill(char *to, size_t bytes, ZkElem elem, cudaStream_t stream) {
  union {
    float f[4096];
    uint16_t h[8192];
  } x;
  size_t have = sizeof x < bytes ? sizeof x : bytes;
  for (size_t i = 0; i < 8192; i++) {
    float f = (float)zb_random_normal(1, 2, i);
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (elem == ZK_BF16) x.h[i] = (uint16_t)(bits >> 16);
    else if (i < 4096) x.f[i] = f;
  }
  /* The stream does not wait for what is copied outside of it. */
  bool ok = cudaMemcpy(to, &x, have, cudaMemcpyHostToDevice) == cudaSuccess &&
            cudaDeviceSynchronize() == cudaSuccess;
  for (size_t n = have; ok && n < bytes; n *= 2) {
    size_t more = n < bytes - n ? n : bytes - n;
    ok = cudaMemcpyAsync(to + n, to, more, cudaMemcpyDeviceToDevice, stream) == cudaSuccess;
  }
  return ok;
}

/* Memory for the products, or NULL; whether it is filled is for the first product to find out. */
static char *make(Products *p, const ZkEnv *env, ZkElem elem, int64_t side) {
  size_t bytes = zk_bytes(elem, (uint64_t)(side * side)), scratch = 0;
  p->flops = 2.0 * (double)side * (double)side * (double)side;
  for (int i = 0; i < WAYS; i++) {
    ZkCall *c = &p->call[i];
    *c = (ZkCall){.op = ZG_OP_DOT, .nin = 2, .nout = 1, .nax = 1, .ax = {2}};
    c->in[0] = i == 1 ? matrix(elem, 2, 1, side, NULL) : matrix(elem, 1, 2, side, NULL);
    c->in[1] = i == 2 ? matrix(elem, 3, 2, side, NULL) : matrix(elem, 2, 3, side, NULL);
    c->out[0] = matrix(elem, 1, 3, side, NULL);
    size_t n = zk_cuda_scratch(c, 1);
    if (n > scratch) scratch = n;
  }
  char *memory = NULL;
  if (cudaMalloc((void **)&memory, 3 * bytes + scratch) != cudaSuccess) {
    cudaGetLastError();
    return NULL;
  }
  for (int i = 0; i < WAYS; i++) {
    ZkCall *c = &p->call[i];
    c->in[0].data = memory;
    c->in[1].data = memory + bytes;
    c->out[0].data = memory + 2 * bytes;
    c->scratch = memory + 3 * bytes;
  }
  fill(memory, 2 * bytes, elem, zx_cuda_stream(env));
  return memory;
}

/* Seconds of `n` pieces of work; negative after an error. */
static double run(const ZkEnv *env, void (*one)(const ZkEnv *env, const void *arg), const void *arg, int n) {
  double from = zb_now();
  for (int i = 0; i < n; i++) one(env, arg);
  if (cudaStreamSynchronize(zx_cuda_stream(env)) != cudaSuccess || zk_cuda_error(zx_cuda(env)->cu)) return -1;
  return zb_now() - from;
}

/* How many of them a second, for that long; 0 after an error. */
static double rate(const ZkEnv *env, void (*one)(const ZkEnv *env, const void *arg), const void *arg,
                   double seconds) {
  double t;
  int n = 1;
  while ((t = run(env, one, arg, n)) >= 0 && t < seconds) n *= 2;
  return t > 0 ? n / t : 0;
}

static void product(const ZkEnv *env, const void *arg) { zk_cuda_kernel(ZG_OP_DOT)(env, arg); }

/* The way that is fastest in a short trial each is measured. */
double zx_cuda_measure_flops(const ZkEnv *env, ZkElem elem, int ms) {
  ZxCuda *d = zx_cuda(env);
  if (!zk_cuda_kernel(ZG_OP_DOT)) return 0;
  /* As much work as fills the device, or as its memory still has room for; f32, not by tensor cores, takes
   * ten times as long. */
  int64_t side = (int64_t)zb_round_up((uint64_t)d->cu->sms * (elem == ZK_BF16 ? 60 : 30), 256);
  Products p;
  char *memory = NULL;
  while (side >= 256 && !(memory = make(&p, env, elem, side))) side /= 2;
  if (!memory) return 0;
  double seconds = ms * 1e-3, best = 0;
  int way = 0;
  for (int i = 0; i < WAYS; i++) {
    zk_cuda_prepare(env, &p.call[i]);
    if (run(env, product, &p.call[i], 1) < 0) break;
    double r = rate(env, product, &p.call[i], seconds / 8);
    if (r > best) best = r, way = i;
    if (r * seconds < 1) break; /* a device so slow that this takes long enough */
  }
  double r = best > 0 ? rate(env, product, &p.call[way], seconds) : 0;
  cudaFree(memory);
  return r * p.flops;
}

/* ---- copies ---- */
typedef struct {
  char *memory;
  size_t bytes;
} Copy;

static void copy(const ZkEnv *env, const void *arg) {
  const Copy *c = arg;
  cudaMemcpyAsync(c->memory + c->bytes, c->memory, c->bytes, cudaMemcpyDeviceToDevice, zx_cuda_stream(env));
}

/* Of blocks far larger than a cache, or it is not known. */
double zx_cuda_measure_copy(const ZkEnv *env, int ms) {
  Copy c = {.bytes = (size_t)zx_cuda(env)->cu->sms << 22};
  while (c.bytes >= 256 << 20 && cudaMalloc((void **)&c.memory, 2 * c.bytes) != cudaSuccess) {
    cudaGetLastError();
    c.memory = NULL;
    c.bytes /= 2;
  }
  if (!c.memory) return 0;
  cudaMemsetAsync(c.memory, 1, 2 * c.bytes, zx_cuda_stream(env));
  double r = run(env, copy, &c, 1) < 0 ? 0 : rate(env, copy, &c, ms * 1e-3);
  cudaFree(c.memory);
  return 2.0 * (double)c.bytes * r;
}
