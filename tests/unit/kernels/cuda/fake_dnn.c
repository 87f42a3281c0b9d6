/* See fake_dnn.h. A descriptor is its attributes, as they were set. Tensors between operations are rounded to
 * bf16 where that is their type, and kept as f32. */
#ifdef HAVE_CUDNN
#include "tests/unit/kernels/cuda/fake_dnn.h"

#include <cudnn.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

FakeDnn fake_dnn;
struct cudnnContext *fake_dnn_handle(void) {
  return (struct cudnnContext *)&fake_dnn;
}

/* ---- descriptors --------------------------------------------------------------------------------------- */
#define ATTRIBUTES 12
typedef struct {
  cudnnBackendAttributeName_t name;
  int64_t count;
  char *value;
} Attribute;
typedef struct {
  cudnnBackendDescriptorType_t type;
  Attribute attribute[ATTRIBUTES];
  int n;
  bool final;
  float *dense; /* of a tensor between operations, while a graph is computed */
} Desc;

static size_t size_of(cudnnBackendAttributeType_t t) {
  switch (t) {
  case CUDNN_TYPE_INT64: return sizeof(int64_t);
  case CUDNN_TYPE_BOOLEAN: return sizeof(bool);
  case CUDNN_TYPE_VOID_PTR:
  case CUDNN_TYPE_HANDLE:
  case CUDNN_TYPE_BACKEND_DESCRIPTOR: return sizeof(void *);
  default: return sizeof(int); /* enumerations */
  }
}

static void *value(const Desc *d, cudnnBackendAttributeName_t name) {
  for (int i = 0; i < d->n; i++)
    if (d->attribute[i].name == name) return d->attribute[i].value;
  return NULL;
}
static Desc *desc(const Desc *d, cudnnBackendAttributeName_t name) {
  Desc **p = value(d, name);
  return p ? *p : NULL;
}
static int number(const Desc *d, cudnnBackendAttributeName_t name) { return *(int *)value(d, name); }

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *to) {
  Desc *d = calloc(1, sizeof *d);
  d->type = type;
  *to = d;
  fake_dnn.alive++;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  Desc *d = descriptor;
  for (int i = 0; i < d->n; i++) free(d->attribute[i].value);
  free(d);
  fake_dnn.alive--;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void *from) {
  Desc *d = descriptor;
  if (d->final || d->n == ATTRIBUTES || value(d, name)) return fake_dnn.misuses++, CUDNN_STATUS_BAD_PARAM;
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
    for (int64_t i = 0; i < count; i++)
      if (!((Desc *const *)from)[i]->final) return fake_dnn.misuses++, CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
  Attribute *a = &d->attribute[d->n++];
  *a = (Attribute){name, count, malloc((size_t)count * size_of(type))};
  memcpy(a->value, from, (size_t)count * size_of(type));
  return CUDNN_STATUS_SUCCESS;
}

/* ---- tensors ------------------------------------------------------------------------------------------- */
static const int64_t *dims(const Desc *t) { return value(t, CUDNN_ATTR_TENSOR_DIMENSIONS); }
static bool is_virtual(const Desc *t) { return value(t, CUDNN_ATTR_TENSOR_IS_VIRTUAL) != NULL; }
/* Of a product: what blocks add to in the order in which they come, in memory of the caller's. */
static bool is_sum(const Desc *t) {
  return !is_virtual(t) && number(t, CUDNN_ATTR_TENSOR_DATA_TYPE) == CUDNN_DATA_FLOAT;
}
static int64_t count(const Desc *t) { return dims(t)[0] * dims(t)[1] * dims(t)[2] * dims(t)[3]; }

typedef struct {
  int64_t i[4];
} At;
static At at(const Desc *t, int64_t n) {
  At a;
  for (int k = 3; k >= 0; n /= dims(t)[k--]) a.i[k] = n % dims(t)[k];
  return a;
}

typedef struct {
  const int64_t *uid;
  void **p;
  int64_t n;
} Pack;
static Pack pack;

/* Where the element lies, and how far from the first: a dimension of 1 is repeated. */
static void *place(const Desc *t, At a, int64_t *off) {
  const int64_t *stride = value(t, CUDNN_ATTR_TENSOR_STRIDES), *n = dims(t);
  int64_t dense = 0;
  *off = 0;
  for (int k = 0; k < 4; k++) {
    int64_t i = n[k] == 1 ? 0 : a.i[k];
    *off += i * stride[k];
    dense = dense * n[k] + i;
  }
  if (is_virtual(t)) {
    *off = dense;
    return t->dense;
  }
  int64_t uid = *(int64_t *)value(t, CUDNN_ATTR_TENSOR_UNIQUE_ID);
  for (int64_t i = 0; i < pack.n; i++)
    if (pack.uid[i] == uid) return pack.p[i];
  abort(); /* nothing is bound to it */
}
static float get(const Desc *t, At a) {
  int64_t off;
  const void *p = place(t, a, &off);
  if (is_virtual(t) || number(t, CUDNN_ATTR_TENSOR_DATA_TYPE) == CUDNN_DATA_FLOAT)
    return ((const float *)p)[off];
  uint32_t u = (uint32_t)((const uint16_t *)p)[off] << 16;
  float x;
  memcpy(&x, &u, 4);
  return x;
}
static float rounded(float x) { /* to bf16, to nearest even */
  uint32_t u;
  memcpy(&u, &x, 4);
  if ((u & 0x7fffffff) < 0x7f800000) u = (u + 0x7fff + (u >> 16 & 1)) & 0xffff0000u;
  memcpy(&x, &u, 4);
  return x;
}
static void put(const Desc *t, At a, float x) {
  int64_t off;
  void *p = place(t, a, &off);
  bool half = number(t, CUDNN_ATTR_TENSOR_DATA_TYPE) == CUDNN_DATA_BFLOAT16;
  if (half) x = rounded(x);
  uint32_t u;
  memcpy(&u, &x, 4);
  if (is_virtual(t) || !half) ((float *)p)[off] = x;
  else ((uint16_t *)p)[off] = (uint16_t)(u >> 16);
}

/* ---- operations ---------------------------------------------------------------------------------------- */
/* The head of t that goes with head `head` of `of`, which may have more. */
static int64_t shared_head(const Desc *t, const Desc *of, int64_t head) {
  return head / (dims(of)[1] / dims(t)[1]);
}

static void matmul(const Desc *op) {
  const Desc *a = desc(op, CUDNN_ATTR_OPERATION_MATMUL_ADESC),
             *b = desc(op, CUDNN_ATTR_OPERATION_MATMUL_BDESC);
  const Desc *c = desc(op, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
  bool adds = is_sum(c) && cudnnGetVersion() < 90600; /* later ones set it to zero */
  for (int64_t e = 0; e < count(c); e++) {
    At to = at(c, e), x = to, y = to;
    float sum = 0;
    x.i[1] = shared_head(a, c, to.i[1]), y.i[1] = shared_head(b, c, to.i[1]);
    for (int64_t k = 0; k < dims(a)[3]; k++) {
      x.i[3] = y.i[2] = k;
      sum += get(a, x) * get(b, y);
    }
    put(c, to, adds ? get(c, to) + sum : sum);
  }
}

static float apply(int mode, float x, float b, float t) {
  switch (mode) {
  case CUDNN_POINTWISE_MUL: return x * b;
  case CUDNN_POINTWISE_ADD: return x + b;
  case CUDNN_POINTWISE_SUB: return x - b;
  case CUDNN_POINTWISE_DIV: return x / b;
  case CUDNN_POINTWISE_EXP: return expf(x);
  case CUDNN_POINTWISE_IDENTITY: return x;
  case CUDNN_POINTWISE_LOG: return logf(x);
  case CUDNN_POINTWISE_CMP_GE: return x >= b;
  case CUDNN_POINTWISE_BINARY_SELECT: return t != 0 ? x : b;
  default: abort();
  }
}

static void pointwise(const Desc *op) {
  const Desc *how = desc(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
  const Desc *x = desc(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC),
             *b = desc(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
  const Desc *t = desc(op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC),
             *y = desc(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
  int mode = number(how, CUDNN_ATTR_POINTWISE_MODE);
  for (int64_t e = 0; e < count(y); e++) {
    At to = at(y, e);
    if (mode == CUDNN_POINTWISE_GEN_INDEX)
      put(y, to, (float)to.i[*(int64_t *)value(how, CUDNN_ATTR_POINTWISE_AXIS)]);
    else put(y, to, apply(mode, get(x, to), b ? get(b, to) : 0, t ? get(t, to) : 0));
  }
}

/* Over the dimensions of x that y lacks; or over the heads that one of y stands for. */
static void reduce(const Desc *op) {
  const Desc *how = desc(op, CUDNN_ATTR_OPERATION_REDUCTION_DESC),
             *x = desc(op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
  const Desc *y = desc(op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
  bool add = number(how, CUDNN_ATTR_REDUCTION_OPERATOR) == CUDNN_REDUCE_TENSOR_ADD;
  float *sum = malloc((size_t)count(y) * sizeof *sum);
  for (int64_t e = 0; e < count(y); e++) sum[e] = add ? 0 : -INFINITY;
  for (int64_t e = 0; e < count(x); e++) {
    At from = at(x, e);
    int64_t to = 0;
    for (int k = 0; k < 4; k++)
      to = to * dims(y)[k] + (k == 1 ? shared_head(y, x, from.i[1]) : dims(y)[k] == 1 ? 0 : from.i[k]);
    sum[to] = add ? sum[to] + get(x, from) : fmaxf(sum[to], get(x, from));
  }
  for (int64_t e = 0; e < count(y); e++) put(y, at(y, e), sum[e]);
  free(sum);
}

/* The last two dimensions exchanged. */
static void reshape(const Desc *op) {
  const Desc *x = desc(op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC),
             *y = desc(op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
  for (int64_t e = 0; e < count(y); e++) {
    At to = at(y, e), from = to;
    from.i[2] = to.i[3], from.i[3] = to.i[2];
    put(y, to, get(x, from));
  }
}

/* ---- graphs, plans ------------------------------------------------------------------------------------- */
static const cudnnBackendAttributeName_t result_of[] = {
    CUDNN_ATTR_OPERATION_MATMUL_CDESC, CUDNN_ATTR_OPERATION_POINTWISE_YDESC,
    CUDNN_ATTR_OPERATION_REDUCTION_YDESC, CUDNN_ATTR_OPERATION_RESHAPE_YDESC};

static Desc *result(const Desc *op) {
  for (size_t i = 0; i < sizeof result_of / sizeof *result_of; i++)
    if (desc(op, result_of[i])) return desc(op, result_of[i]);
  abort();
}

static int64_t count_ops(const Desc *graph) {
  for (int i = 0; i < graph->n; i++)
    if (graph->attribute[i].name == CUDNN_ATTR_OPERATIONGRAPH_OPS) return graph->attribute[i].count;
  return 0;
}

static const Desc *graph_of(const Desc *plan) {
  return desc(desc(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG), CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
}

/* ---- what the documents want --------------------------------------------------------------------------- */
static int64_t uid(const Desc *t) { return *(int64_t *)value(t, CUDNN_ATTR_TENSOR_UNIQUE_ID); }
static bool by_value(const Desc *t) { return value(t, CUDNN_ATTR_TENSOR_IS_BY_VALUE) != NULL; }
static int elem(const Desc *t) { return number(t, CUDNN_ATTR_TENSOR_DATA_TYPE); }

/* Rank 4; addresses of whole 16 bytes. The heads' elements (bf16) lie side by side, and are eights, up to
 * 256. */
static bool good_tensor(const Desc *t) {
  const int64_t *n = dims(t), *stride = value(t, CUDNN_ATTR_TENSOR_STRIDES),
                *align = value(t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
  if (!n || !stride || !align || *align != 16 || !value(t, CUDNN_ATTR_TENSOR_UNIQUE_ID)) return false;
  for (int k = 0; k < 4; k++)
    if (n[k] < 1 || stride[k] < 1) return false;
  if (is_virtual(t) || elem(t) != CUDNN_DATA_BFLOAT16) return !(is_virtual(t) && by_value(t));
  int h = stride[3] == 1 ? 3 : 2;
  if (stride[h] != 1 || n[h] % 8 != 0 || n[h] > 256) return false;
  for (int k = 0; k < 4; k++)
    if (k != h && stride[k] % 8 != 0) return false;
  return true;
}

/* x as y, or one of it, or (heads) one for several. */
static bool spreads(const Desc *x, const Desc *y) {
  for (int k = 0; k < 4; k++)
    if (dims(x)[k] != dims(y)[k] && dims(x)[k] != 1 && (k != 1 || dims(y)[1] % dims(x)[1] != 0)) return false;
  return true;
}

static bool good_matmul(const Desc *op) {
  const Desc *a = desc(op, CUDNN_ATTR_OPERATION_MATMUL_ADESC),
             *b = desc(op, CUDNN_ATTR_OPERATION_MATMUL_BDESC),
             *c = desc(op, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
  const int64_t *x = dims(a), *y = dims(b), *z = dims(c);
  return x[0] == z[0] && y[0] == z[0] && z[1] % x[1] == 0 && z[1] % y[1] == 0 && x[2] == z[2] &&
         y[3] == z[3] && x[3] == y[2];
}

/* Indices are counted in i32 and compared as what is true or not, the rest is of floats: as the frontend has
 * it. */
static bool good_pointwise(const Desc *op) {
  const Desc *how = desc(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
  const Desc *y = desc(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
  const Desc *x[3] = {desc(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC),
                      desc(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC),
                      desc(op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC)};
  int mode = number(how, CUDNN_ATTR_POINTWISE_MODE), prec = number(how, CUDNN_ATTR_POINTWISE_MATH_PREC);
  bool index = mode == CUDNN_POINTWISE_GEN_INDEX, compare = mode == CUDNN_POINTWISE_CMP_GE;
  int wanted = index ? CUDNN_DATA_INT32 : compare ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT;
  bool one =
      index || mode == CUDNN_POINTWISE_EXP || mode == CUDNN_POINTWISE_LOG || mode == CUDNN_POINTWISE_IDENTITY;
  if (prec != wanted || ((index || compare) && elem(y) != wanted) || !x[0] || !x[1] != one ||
      !x[2] == (mode == CUDNN_POINTWISE_BINARY_SELECT))
    return false;
  for (int i = 0; i < 3; i++)
    if (x[i] && !spreads(x[i], y)) return false;
  return !x[2] || elem(x[2]) == CUDNN_DATA_BOOLEAN;
}

/* What is between operations comes from one of those before; names are not used twice; one position is no
 * sequence. */
static bool good_graph(const Desc *g) {
  static const cudnnBackendAttributeName_t of[] = {
      CUDNN_ATTR_OPERATION_MATMUL_ADESC,    CUDNN_ATTR_OPERATION_MATMUL_BDESC,
      CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
      CUDNN_ATTR_OPERATION_POINTWISE_TDESC, CUDNN_ATTR_OPERATION_REDUCTION_XDESC,
      CUDNN_ATTR_OPERATION_RESHAPE_XDESC};
  Desc **op = value(g, CUDNN_ATTR_OPERATIONGRAPH_OPS);
  const Desc *named[64] = {NULL};
  bool made[64] = {false};
  int64_t n = count_ops(g);
  for (int64_t i = 0; i < n; i++) {
    for (size_t k = 0; k <= sizeof of / sizeof *of; k++) {
      const Desc *t = k < sizeof of / sizeof *of ? desc(op[i], of[k]) : result(op[i]);
      if (!t) continue;
      if (uid(t) < 0 || uid(t) >= 64 || (named[uid(t)] && named[uid(t)] != t)) return false;
      named[uid(t)] = t;
      if (k < sizeof of / sizeof *of && is_virtual(t) && !made[uid(t)]) return false;
    }
    if (made[uid(result(op[i]))] || by_value(result(op[i])) || dims(result(op[0]))[2] < 2) return false;
    made[uid(result(op[i]))] = true;
  }
  return n > 0;
}

static bool good(const Desc *d) {
  switch (d->type) {
  case CUDNN_BACKEND_TENSOR_DESCRIPTOR: return good_tensor(d);
  case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: return good_matmul(d);
  case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: return good_pointwise(d);
  case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
    return spreads(desc(d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC),
                   desc(d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC));
  case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
    return count(desc(d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC)) ==
           count(desc(d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC));
  case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: return good_graph(d);
  default: return true;
  }
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  Desc *d = descriptor;
  if ((int)d->type == fake_dnn.refuses && fake_dnn.refuses) return CUDNN_STATUS_NOT_SUPPORTED;
  if (d->final || !good(d)) return fake_dnn.misuses++, CUDNN_STATUS_BAD_PARAM;
  d->final = true;
  return CUDNN_STATUS_SUCCESS;
}

static int64_t workspace_of(const Desc *graph);

/* One configuration, which is the graph; and a workspace as cuDNN's. */
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t wanted, int64_t *n,
                                       void *to) {
  const Desc *d = descriptor;
  (void)type, (void)wanted;
  *n = 1;
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
    cudnnBackendDescriptor_t config = *(cudnnBackendDescriptor_t *)to;
    Desc *graph = desc(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    cudnnBackendSetAttribute(config, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                             &graph);
    return cudnnBackendFinalize(config);
  }
  if (name != CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) return CUDNN_STATUS_BAD_PARAM;
  *(int64_t *)to = workspace_of(graph_of(d));
  return CUDNN_STATUS_SUCCESS;
}

/* Forward none to speak of. Of a gradient dk and dv of each head of queries, where they share those of keys;
 * and ds, or with dq by sums whatever else the device needs. */
static int64_t workspace_of(const Desc *graph) {
  Desc **op = value(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
  const int64_t *heads = dims(result(op[0])); /* of the scores; in a gradient of do o: [batch, head, s, h] */
  int64_t elements = heads[0] * heads[1] * heads[2] * heads[3], bytes = 256;
  bool sums = false, shares = false;
  if (op[0]->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) return bytes;
  for (int i = 0, reduced = 0; i < count_ops(graph); i++) {
    sums |= op[i]->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR && is_sum(result(op[i]));
    reduced += op[i]->type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR;
    shares |= reduced > 1;
  }
  if (shares) bytes += 2 * elements * 2;
  if (!sums) bytes += heads[0] * heads[1] * heads[2] * heads[2] * 2;
  else if (fake_dnn.own_sum) bytes += elements * 4;
  return bytes;
}

/* Each tensor of the graph's own memory is there once, where it may be, and nothing else is. */
static bool good_pack(Desc **op, int64_t n) {
  bool named[64] = {false};
  int64_t wanted = 0;
  for (int64_t i = 0; i < n; i++)
    for (int k = 0; k < op[i]->n; k++) {
      const Desc *t = *(Desc **)(void *)op[i]->attribute[k].value;
      if (!t || t->type != CUDNN_BACKEND_TENSOR_DESCRIPTOR || is_virtual(t) || named[uid(t)]) continue;
      int found = 0;
      for (int64_t m = 0; m < pack.n; m++)
        if (pack.uid[m] == uid(t)) found += pack.p[m] && (by_value(t) || (uintptr_t)pack.p[m] % 16 == 0);
      if (found != 1) return false;
      named[uid(t)] = true;
      wanted++;
    }
  return wanted == pack.n;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t variants) {
  (void)handle;
  const Desc *graph = graph_of(plan), *v = variants;
  Desc **op = value(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
  int64_t n = count_ops(graph);
  pack = (Pack){value(v, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS), value(v, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS),
                0};
  for (int i = 0; i < v->n; i++)
    if (v->attribute[i].name == CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS) pack.n = v->attribute[i].count;
  void **space = value(v, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  if (!((const Desc *)plan)->final || !v->final || !good_pack(op, n) || !space || !*space ||
      (uintptr_t)*space % 256 != 0)
    return fake_dnn.misuses++, CUDNN_STATUS_BAD_PARAM;
  if (fake_dnn.fails_from && fake_dnn.runs >= fake_dnn.fails_from) return CUDNN_STATUS_EXECUTION_FAILED;
  memset(*space, 0x5a, (size_t)workspace_of(graph)); /* it is the plan's */
  for (int64_t i = 0; i < n; i++) {
    Desc *y = result(op[i]);
    if (is_virtual(y)) y->dense = malloc((size_t)count(y) * sizeof *y->dense);
    if (op[i]->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) matmul(op[i]);
    else if (op[i]->type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) pointwise(op[i]);
    else if (op[i]->type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) reduce(op[i]);
    else reshape(op[i]);
  }
  for (int64_t i = 0; i < n; i++) free(result(op[i])->dense);
  fake_dnn.runs++;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  return (void)handle, (void)stream, CUDNN_STATUS_SUCCESS;
}
size_t cudnnGetVersion(void) { return fake_dnn.version ? fake_dnn.version : CUDNN_VERSION; }
const char *cudnnGetErrorString(cudnnStatus_t status) { return status ? "wrong" : "right"; }
#endif
