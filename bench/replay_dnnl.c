/* Products by oneDNN, whose threads are OpenMP's: dnnl_sgemm for f32, the matmul primitive for f32 and bf16,
 * the latter also with parameters already in the layout that it likes best (how they got there is not
 * counted). */
#include <stdlib.h>

#include "bench/replay.h"

#ifdef HAVE_DNNL
#include <dnnl.h>
void omp_set_num_threads(int n); /* omp.h is only there with the compiler's OpenMP */

/* ---- sgemm ---- */
static void sgemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
                  const float *b, int64_t ldb, float *c, int64_t ldc) {
  dnnl_status_t rc = dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, 1, a, lda, b, ldb, 0, c, ldc);
  ZB_ASSERT(rc == dnnl_success);
}

static bool f32(const Shape *s) {
  return s->elem[A] == ZK_F32 && s->elem[B] == ZK_F32 && s->elem[C] == ZK_F32;
}

static bool open_own(const Shape *s, int threads, void **state, size_t bytes[3]) {
  (void)threads, (void)bytes;
  *state = NULL;
  return f32(s);
}

static void alone(void) { omp_set_num_threads(1); }

static bool open_split(const Shape *s, int threads, void **state, size_t bytes[3]) {
  (void)bytes;
  if (!f32(s) || threads == 1) return false;
  *state = replay_split_open(sgemm, alone, threads);
  return true;
}

static void run_own(void *state, const Shape *s, void *const data[3]) {
  (void)state;
  replay_sgemm_all(sgemm, s, data);
}

static void close_own(void *state) { (void)state; }

/* ---- matmul ---- */
#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t Desc;
typedef const_dnnl_memory_desc_t DescIn;
#define desc_strided(d, n, dims, type, strides)                                                              \
  dnnl_memory_desc_create_with_strides(d, n, dims, type, strides)
#define desc_any(d, n, dims, type) dnnl_memory_desc_create_with_tag(d, n, dims, type, dnnl_format_tag_any)
#define desc_free(d) dnnl_memory_desc_destroy(d)
#define desc_in(d) (d)
#else
typedef dnnl_memory_desc_t Desc;
typedef const dnnl_memory_desc_t *DescIn;
#define desc_strided(d, n, dims, type, strides) dnnl_memory_desc_init_by_strides(d, n, dims, type, strides)
#define desc_any(d, n, dims, type) dnnl_memory_desc_init_by_tag(d, n, dims, type, dnnl_format_tag_any)
#define desc_free(d) ((void)(d))
#define desc_in(d) (&(d))
#endif

typedef struct {
  dnnl_engine_t engine;
  dnnl_stream_t stream;
  dnnl_primitive_t primitive;
  dnnl_memory_t memory[3];
} Matmul;

static void close_matmul(void *state) {
  Matmul *m = state;
  for (int k = 0; k < 3; k++)
    if (m->memory[k]) dnnl_memory_destroy(m->memory[k]);
  if (m->primitive) dnnl_primitive_destroy(m->primitive);
  if (m->stream) dnnl_stream_destroy(m->stream);
  if (m->engine) dnnl_engine_destroy(m->engine);
  free(m);
}

/* A batch loop that an operand lacks is one of length 1, which oneDNN repeats. */
static bool describe(const Shape *s, int k, bool any, Desc *d) {
  dnnl_dims_t dims = {0}, strides = {0};
  int n = (int)s->nloops;
  for (int i = 0; i < n; i++) {
    bool repeated = s->loop[i].s[k] == 0;
    dims[i] = repeated ? 1 : s->loop[i].n;
    strides[i] = s->loop[i].s[k];
  }
  dims[n] = k == B ? s->K : s->M, dims[n + 1] = k == A ? s->K : s->N;
  strides[n] = s->rs[k], strides[n + 1] = s->cs[k];
  for (int i = n; i-- > 0;)
    if (strides[i] == 0) strides[i] = strides[i + 1] * dims[i + 1];
  dnnl_data_type_t type = s->elem[k] == ZK_BF16 ? dnnl_bf16 : dnnl_f32;
  return (any ? desc_any(d, n + 2, dims, type) : desc_strided(d, n + 2, dims, type, strides)) == dnnl_success;
}

static dnnl_status_t make_desc(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const Desc d[3]) {
#if DNNL_VERSION_MAJOR >= 3
  return dnnl_matmul_primitive_desc_create(pd, engine, d[A], d[B], NULL, d[C], NULL);
#else
  dnnl_matmul_desc_t op;
  dnnl_status_t rc = dnnl_matmul_desc_init(&op, &d[A], &d[B], NULL, &d[C]);
  return rc ? rc : dnnl_primitive_desc_create(pd, &op, NULL, engine, NULL);
#endif
}

static bool make(Matmul *m, const Desc d[3], size_t bytes[3]) {
  static const dnnl_query_t which[3] = {dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md};
  dnnl_primitive_desc_t pd;
  if (dnnl_engine_create(&m->engine, dnnl_cpu, 0) ||
      dnnl_stream_create(&m->stream, m->engine, dnnl_stream_default_flags))
    return false;
  if (make_desc(&pd, m->engine, d)) return false;
  bool ok = dnnl_primitive_create(&m->primitive, pd) == dnnl_success;
  for (int k = 0; k < 3 && ok; k++) {
    DescIn md = dnnl_primitive_desc_query_md(pd, which[k], 0);
    size_t n = dnnl_memory_desc_get_size(md);
    if (n > bytes[k]) bytes[k] = n;
    ok = dnnl_memory_create(&m->memory[k], md, m->engine, DNNL_MEMORY_NONE) == dnnl_success;
  }
  dnnl_primitive_desc_destroy(pd);
  return ok;
}

static bool open_any(const Shape *s, bool any, void **state, size_t bytes[3]) {
  Matmul *m = calloc(1, sizeof *m);
  ZB_ASSERT(m != NULL);
  Desc d[3];
  int n = 0;
  bool ok = true;
  while (n < 3 && ok) ok = describe(s, n, any && n == B, &d[n]), n += ok;
  ok = ok && make(m, d, bytes);
  while (n-- > 0) desc_free(d[n]);
  if (ok) *state = m;
  else close_matmul(m);
  return ok;
}

static bool open_matmul(const Shape *s, int threads, void **state, size_t bytes[3]) {
  (void)threads;
  return open_any(s, false, state, bytes);
}

static bool open_packed(const Shape *s, int threads, void **state, size_t bytes[3]) {
  (void)threads;
  return s->weights && open_any(s, true, state, bytes);
}

static void run_matmul(void *state, const Shape *s, void *const data[3]) {
  Matmul *m = state;
  (void)s;
  dnnl_exec_arg_t args[3] = {
      {DNNL_ARG_SRC, m->memory[A]}, {DNNL_ARG_WEIGHTS, m->memory[B]}, {DNNL_ARG_DST, m->memory[C]}};
  for (int k = 0; k < 3; k++) dnnl_memory_set_data_handle(m->memory[k], data[k]);
  dnnl_status_t rc = dnnl_primitive_execute(m->primitive, m->stream, 3, args);
  if (rc == dnnl_success) rc = dnnl_stream_wait(m->stream);
  ZB_ASSERT(rc == dnnl_success);
}

static void start(int threads) { omp_set_num_threads(threads); }

static const Library own = {"oneDNN", start, open_own, run_own, close_own},
                     split = {"oneDNN/thread", start, open_split, replay_split_run, replay_split_close},
                     matmul = {"oneDNN matmul", start, open_matmul, run_matmul, close_matmul},
                     packed = {"oneDNN packed", start, open_packed, run_matmul, close_matmul};
const Library *const replay_dnnl[] = {&own, &split, &matmul, &packed, NULL};
#else
const Library *const replay_dnnl[] = {NULL};
#endif
