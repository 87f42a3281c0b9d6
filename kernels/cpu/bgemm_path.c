/* Which instructions multiply bf16 in this process: asked of the CPU once, when first needed. */
#include "kernels/cpu/bgemm.h"

#include <pthread.h>

static const ZkBgemmPath *const paths[] = {&zk_bgemm_amx, &zk_bgemm_avx512};
#define PATHS ((int)(sizeof paths / sizeof *paths))

static const ZkBgemmPath *path;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void choose(void) {
  for (int i = 0; i < PATHS && path == NULL; i++)
    if (paths[i]->here() && paths[i]->fast()) path = paths[i];
}

const ZkBgemmPath *zk_bgemm_path(void) {
  pthread_once(&once, choose);
  return path;
}

static void nothing(void) {}

void zk_bgemm_use(const ZkBgemmPath *other) {
  pthread_once(&once, nothing); /* of the CPU nothing is asked, nor of Linux */
  path = other;
}

const char *zk_bgemm_text(void) {
  const ZkBgemmPath *p = zk_bgemm_path();
  return p ? p->text : "f32 products";
}
