/* Single kernels and collectives of published benchmarks against the clusters of the examples. */
#include "runtime/plan/time/time.h"

#include <criterion/criterion.h>
#include <math.h>

typedef struct {
  ZbArena *a;
  const ZlCluster *c;
} Machine;

static Machine machine(const char *name) {
  ZbArena *a = zb_arena_new();
  ZlDiags *d = zl_diags_new(a, zl_sources_new(a));
  ZlProgram *p = zl_load(a, zl_sources_new(a), d, ZUG_SRC "/examples/clusters.zug", NULL);
  Machine m = {a, p ? zl_cluster(p, d, name) : NULL};
  cr_assert(m.c, "%s", name);
  return m;
}

/* bf16 products on an A100 SXM, the best shape found and cuBLASLt with random numbers, in TFLOPS: Azure's AI
 * benchmarking guide, and "Machine Learning Engineering". Mean error 9.5 %; 2048^3 is worst, whose 256 tiles
 * of 128 x 128 need a third wave. */
Test(published, products) {
  static const struct {
    double m, n, k, tflops;
  } row[] = {{1024, 10240, 5120, 271.2}, {1024, 1024, 1024, 119.4},   {2048, 2048, 2048, 221.8},
             {4096, 4096, 4096, 228.0},  {8192, 8192, 8192, 253.7},   {16384, 16384, 16384, 256.5},
             {1024, 2145, 1024, 132.8},  {6144, 12288, 12288, 250.8}, {802816, 192, 768, 157.8}};
  Machine m = machine("a100");
  double sum = 0;
  const int n = sizeof row / sizeof *row;
  for (int i = 0; i < n; i++) {
    double bytes = 2 * (row[i].m * row[i].k + row[i].k * row[i].n + row[i].m * row[i].n);
    double is = 2 * row[i].m * row[i].n * row[i].k / row[i].tflops / 1e12;
    double error = zp_product_seconds(m.c, ZK_BF16, row[i].m, row[i].n, row[i].k, 1, bytes) / is - 1;
    cr_expect(fabs(error) < .28, "%g x %g x %g: %+.1f %%", row[i].m, row[i].n, row[i].k, 100 * error);
    sum += fabs(error);
  }
  cr_expect(sum / n < .096, "mean error %.2f %%", 100 * sum / n);
  zb_arena_free(m.a);
}

typedef struct {
  double bytes, busbw; /* GB/s: 2 (n - 1) / n bytes / time */
} Point;

static void all_reduce(const char *name, const Point *row, int n, double most, double mean) {
  static const int64_t device[] = {0, 1, 2, 3, 4, 5, 6, 7};
  Machine m = machine(name);
  ZpPlace at = zp_place(m.c, device, 8);
  double sum = 0;
  for (int i = 0; i < n; i++) {
    double is = 2 * 7. / 8 * row[i].bytes / row[i].busbw / 1e9;
    double error = zp_collective_seconds(m.c, ZG_OP_ALL_REDUCE, row[i].bytes, &at) / is - 1;
    cr_expect(fabs(error) < most, "%s, %g bytes: %+.1f %%", name, row[i].bytes, 100 * error);
    sum += fabs(error);
  }
  cr_expect(sum / n < mean, "%s: mean error %.2f %%", name, 100 * sum / n);
  zb_arena_free(m.a);
}

/* NCCL's all-reduce on the 8 GPUs of a node, from 1 MB on: Azure's AI benchmarking guide. */
Test(published, all_reduces) {
  static const Point a100[] = {{1048576, 36.22},     {2097152, 53.54},    {4194304, 71.43},
                               {8388608, 89.99},     {16777216, 109.22},  {34603008, 132.77},
                               {70254592, 166.63},   {140509184, 174.18}, {281018368, 213.87},
                               {562036736, 221.58},  {1073741824, 228.1}, {2147483648, 230.22},
                               {4294967296, 230.48}, {8589934592, 231.58}};
  static const Point h100[] = {{1048576, 43.7},      {2097152, 81.93},     {4194304, 128.73},
                               {8388608, 172.13},    {16777216, 234.45},   {34603008, 295.53},
                               {70254592, 361.78},   {140509184, 400.61},  {281018368, 423.38},
                               {562036736, 438.46},  {1073741824, 466.35}, {2147483648, 472.36},
                               {4294967296, 475.54}, {8589934592, 478.87}};
  static const Point h200[] = {{1048576, 57.15},     {2097152, 88.73},     {4194304, 137.77},
                               {8388608, 179.84},    {16777216, 240.37},   {34603008, 298.12},
                               {70254592, 367.56},   {140509184, 413.01},  {281018368, 434.72},
                               {562036736, 445.62},  {1073741824, 468.11}, {2147483648, 474.83},
                               {4294967296, 478.73}, {8589934592, 480.94}};
  all_reduce("a100", a100, 14, .26, .067);
  all_reduce("h100", h100, 14, .20, .054);
  all_reduce("h200", h200, 14, .42,
             .103); /* its switches are sooner with small ones than those of the H100 */
}

/* Others, of "Machine Learning Engineering": all 8 GPUs of an H200 node gather and scatter 16 GB; two nodes of H100 add up
 * 8 GB, which the links between them alone allow 380 GB/s for (Nebius' 467 are with switches that add). */
Test(published, other_collectives) {
  static const int64_t device[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  Machine m = machine("h200");
  ZpPlace one = zp_place(m.c, device, 8), two = zp_place(m.c, device, 16);
  double bytes = 17179869184., wire = bytes * 7 / 8;
  cr_expect_float_eq(wire / zp_collective_seconds(m.c, ZG_OP_ALL_GATHER, bytes, &one) / 1e9, 361.4,
                     .02 * 361.4);
  cr_expect_float_eq(wire / zp_collective_seconds(m.c, ZG_OP_REDUCE_SCATTER, bytes, &one) / 1e9, 362.9,
                     .02 * 362.9);
  wire = 2 * bytes * 15 / 16;
  cr_expect_float_eq(wire / zp_collective_seconds(m.c, ZG_OP_ALL_REDUCE, bytes, &two) / 1e9, 380, .05 * 380);
  zb_arena_free(m.a);
}
