/* The CPU as a device: its memory is the host's, in one mapping that asks for huge pages. */
#include "runtime/exec/exec.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

static void *cpu_alloc(size_t bytes, ZbErr *err) {
  void *p = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) {
    char text[24];
    zb_fail(err, "use more ranks, `shard params, grads, states`, `recompute` or a smaller `micro`",
            "cannot allocate the arena of %s: %s", zb_bytes(text, bytes), strerror(errno));
    return NULL;
  }
#ifdef MADV_HUGEPAGE
  madvise(p, bytes, MADV_HUGEPAGE);
#endif
  return p;
}

static void cpu_free(void *p, size_t bytes) { munmap(p, bytes ? bytes : 1); }
static void cpu_zero(void *p, size_t bytes) { memset(p, 0, bytes); }
static void cpu_copy(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }

const ZxDeviceTable zx_device_cpu = {
    .name = "cpu",
    .alloc = cpu_alloc,
    .free = cpu_free,
    .kernel = zk_cpu_kernel,
    .scratch = zk_cpu_scratch,
    .adamw = zk_cpu_adamw,
    .sgd = zk_cpu_sgd,
    .sumsq = zk_cpu_sumsq,
    .axpy = zk_cpu_axpy,
    .to_bf16 = zk_cpu_to_bf16,
    .zero = cpu_zero,
    .copy = cpu_copy,
    .peak = zk_cpu_peak,
    .describe = zk_cpu_describe,
};
