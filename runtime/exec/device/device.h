/* device: where a rank's arena lies and who computes on it. A device is a table of functions; another one is
 * a file more and a line in the list.
 *
 * registry.c    the list of devices; choosing one, and loading its module
 * cpu.c         the CPU
 * cuda.c        a GPU by CUDA (cuda.h), in a module of its own; cuda_peak.c measures it
 * staged.c      a communicator of a device's memory by way of the host's
 * nccl.c        one by NCCL
 * memory.c      whether the machine has the memory that ranks will touch (memory.h) */
#ifndef ZUG_EXEC_DEVICE_H
#define ZUG_EXEC_DEVICE_H

#include "base/base.h"
#include "kernels/devices.h"
#include "kernels/optimize.h"
#include "runtime/exec/comm/comm.h"

enum { ZX_GRAPHS = 16 }; /* captured steps that a device keeps */

/* What an update has to do with the step's scalars: gradients, whose squared norm is `squares`, are scaled to
 * a norm of at most `most` (0: not); `lost` becomes 1 if a parameter or a state is not finite afterwards.
 * There is no update, and parameters and states keep every bit, unless all of `nsums` sums are finite, no
 * divisor of a loss is negative, and one of them is not 0. */
typedef struct {
  const double *squares;
  float most;
  double *lost;
  const double *sums;
  int nsums;
  const double *divisors;
  int ndivisors; /* 0: nothing is asked of them */
} ZxScalars;

/* Every call but those that say so may only queue its work on the current stream, one for each of the plan's
 * queues: work of a stream is done in order, and work of another is ordered after it by an event. A host
 * device does it at once. */
typedef struct {
  /* ---- what it is ---- */
  /* As in zk_devices (kernels/devices.h). In place of a device that is in a module there is a table with
   * nothing but this. */
  const char *name;
  /* Its memory is the host's, and a call is done when it returns: nothing need be copied to be fed or
   * read. */
  bool host;
  /* May be NULL: always. Whether there is one on this machine; if not, why. */
  bool (*available)(ZbErr *err);
  /* Fills env->device, and takes what libraries keep for themselves. `node_rank`: this rank's number among
   * those of its node. */
  bool (*open)(ZkEnv *env, int node_rank, ZbErr *err);
  void (*close)(ZkEnv *env);
  const char *(*describe)(const ZkEnv *env);
  /* FLOP/s of products of this type (ZK_F32, ZK_BF16), measured for about `ms`; returns when done. 0: not
   * known. */
  double (*measure_flops)(const ZkEnv *env, ZkElem elem, int ms);
  /* May be NULL. The same of copying large blocks, in bytes/s read and written. */
  double (*measure_copy)(const ZkEnv *env, int ms);

  /* ---- what planners ask: as ZpOptions has it ---- */
  size_t (*scratch)(const ZkCall *call, int threads);
  bool (*supports)(const ZkCall *call); /* may be NULL */

  /* ---- memory ---- */
  void *(*alloc)(const ZkEnv *env, size_t bytes,
                 ZbErr *err); /* 64-byte aligned, zeroed; the one allocation of a run */
  void (*free)(const ZkEnv *env, void *p, size_t bytes);
  /* May be NULL. Bytes of the device's memory, and how many of them nobody has taken. */
  void (*memory)(const ZkEnv *env, uint64_t *total, uint64_t *unused);
  void (*zero)(const ZkEnv *env, void *p, size_t bytes);
  void (*copy)(const ZkEnv *env, void *to, const void *from, size_t bytes);
  /* Row i of the n at `to` becomes row map[i] at `from`, or zeros where that is below 0. */
  void (*gather)(const ZkEnv *env, size_t n, size_t row, const int32_t *map, const void *from, void *to);
  /* Memory of the host's that the device can reach; to the device, and from it. `from` (`to`) is memory of
   * `pinned` and stays untouched until done. */
  void *(*pinned)(const ZkEnv *env, size_t bytes, ZbErr *err);
  void (*unpin)(const ZkEnv *env, void *p);
  void (*upload)(const ZkEnv *env, void *to, const void *from, size_t bytes);
  void (*download)(const ZkEnv *env, void *to, const void *from, size_t bytes);

  /* ---- computing ---- */
  /* May be NULL. At start-up, for all calls of the steps to come: makes what it needs. False if the device
   * lacks it. */
  bool (*prepare)(const ZkEnv *env, const ZkCall *call, ZbErr *err);
  /* May be NULL, all three. Whether a call that was prepared is not done in the fastest way, and how; rates by the data sheet.
   * `pretend`: as `open`, of a device that is not here: it can be asked for fallbacks and rates, and closed. */
  bool (*fallback)(const ZkEnv *env, const ZkCall *call, ZkFallback *how);
  void (*rates)(const ZkEnv *env, ZkRates *out);
  /* May be NULL. What a step has shown to be done in another way than `fallback` said before it, once; NULL:
   * nothing. */
  const char *(*late)(const ZkEnv *env);
  bool (*pretend)(ZkEnv *env, ZbErr *err);
  /* May be NULL, both. What was chosen by time among algorithms, `bytes` a choice; and taken from another rank. */
  uint32_t (*choices)(const ZkEnv *env, void *out, uint32_t most, size_t *bytes);
  void (*choose)(const ZkEnv *env, const void *choices, uint32_t n);
  void (*run)(const ZkEnv *env, const ZkCall *call);
  /* As zk_cpu_optimize; where there is no update, a kind that makes momenta makes zeros. */
  void (*optimize)(const ZkEnv *env, const ZkOptimizer *p, const ZxScalars *clip, int64_t n, ZkFlat g,
                   ZkMaster w);
  /* As zk_cpu_matrix, and zk_cpu_orthogonalize. */
  void (*matrix)(const ZkEnv *env, const ZkMatrix *m, ZkMatrixWay way, float *blocks, float *x);
  void (*orthogonalize)(const ZkEnv *env, int64_t rows, int64_t cols, int steps, ZkCoefficients which,
                        float *x, float *scratch);
  /* As zk_cpu_side_squares and the others; where there is no update factors are 0. */
  void (*side_squares)(const ZkEnv *env, int64_t rows, int64_t cols, const float *x, bool columns,
                       float *sums);
  void (*side_factors)(const ZkEnv *env, const ZkSides *p, const ZxScalars *clip, float *squares,
                       float *moments);
  void (*side_scale)(const ZkEnv *env, int64_t rows, int64_t cols, float *x, bool columns, const float *by);
  /* Of a state; g, its measure, is not clipped. */
  void (*update)(const ZkEnv *env, const ZkUpdate *p, const ZxScalars *clip, int64_t n, const float *g,
                 ZkMaster w);
  /* a = decay*a + (1-decay)*w, where there is an update. */
  void (*average)(const ZkEnv *env, const ZxScalars *clip, int64_t n, float decay, ZkMaster w, float *a);
  void (*swap)(const ZkEnv *env, int64_t n, ZkMaster w, float *y);            /* n values for each other */
  void (*sumsq_params)(const ZkEnv *env, int64_t n, ZkMaster w, double *sum); /* sum += w.w */
  void (*sumsq)(const ZkEnv *env, int64_t n, ZkFlat x, double *sum);          /* sum += x.x, of f32 or bf16 */
  /* As zk_cpu_add_bf16. */
  void (*add_bf16)(const ZkEnv *env, const ZkDraws *d, int64_t n, const float *x, uint16_t *y);
  void (*axpy)(const ZkEnv *env, int64_t n, float a, const float *x, float *y);
  void (*to_bf16)(const ZkEnv *env, int64_t n, const float *x, uint16_t *y);
  void (*from_bf16)(const ZkEnv *env, int64_t n, const uint16_t *x, float *y);
  void (*add_scalar)(const ZkEnv *env, const float *x, double *sum); /* sum += x */
  void (*reciprocal)(const ZkEnv *env, const double *x, float *y);   /* y = 1/x, 0 where x is not positive */
  /* Adds to *sum, in memory of `pinned`, a number made of these bytes and `salt`: the same on all ranks of a
   * run if the bytes are the same, another one if one bit is another. */
  void (*digest)(const ZkEnv *env, const void *p, size_t bytes, uint64_t salt, uint64_t *sum);

  /* ---- streams and events 0..n-1, which are made once ---- */
  bool (*events)(ZkEnv *env, uint32_t n, ZbErr *err);
  void (*stream)(ZkEnv *env, int queue); /* makes that queue's stream the current one */
  int (*current)(const ZkEnv *env);
  void (*record)(const ZkEnv *env,
                 uint32_t event); /* reached when all that the current stream has so far is done */
  void (*wait)(const ZkEnv *env, uint32_t event); /* later work of the current stream is done after it */
  bool (*reached)(const ZkEnv *env, uint32_t event);
  bool (*idle)(const ZkEnv *env); /* all streams have done their work */
  /* Returns when all streams have done their work. False if any of it failed: where and why. */
  bool (*finish)(const ZkEnv *env, ZbErr *err);

  /* ---- captured steps. May be NULL, all four ---- */
  /* From `capture` on, what streams are given is not done but noted, until `end_capture`; at both the compute
   * queue's stream is the current one, and what others are given in between is ordered by events of that
   * time. False: it cannot be done, nothing is noted, and the step is to be queued anew. `replay` gives the
   * current stream all that was noted to do; `drop_graph` ends it, before communicators that are used in it
   * end. A graph of more nodes than debug setting graph-nodes says cannot be done. */
  bool (*capture)(ZkEnv *env, ZbErr *err);
  bool (*end_capture)(ZkEnv *env, ZbErr *err);
  void (*replay)(const ZkEnv *env);
  void (*drop_graph)(ZkEnv *env);
  /* May be NULL: a device that keeps one. Makes graph n, below ZX_GRAPHS, the one that the three above are of; at
   * first it is 0. */
  void (*graph)(ZkEnv *env, uint32_t n);
  /* May be NULL. Nodes of what was captured last, also if that cannot be done: all that libraries launch,
   * too. */
  uint64_t (*graph_nodes)(const ZkEnv *env);

  /* May be NULL. Collective: a communicator of the device's memory over the ranks of `world`, whose
   * operations go to the current stream and are complete (-1) once they are there; of a host device, `world`
   * itself. NULL on all ranks if there is none, and why. */
  ZxComm *(*comm)(ZxComm *world, ZkEnv *env, const char **why);
  const char *comm_missing; /* why this build has none; NULL: it has, or needs none */
} ZxDeviceTable;

extern const ZxDeviceTable zx_device_cpu;
extern const ZxDeviceTable zx_device_cuda; /* in a module of builds with CUDA */
/* Those of zk_devices that this build has; NULL ends the list. A test program may replace it. */
extern const ZxDeviceTable *const zx_devices[];
/* The device of that name, or NULL; "auto" is the first that this build and machine have. `err` says why a
 * device is not had that is in the list (of "auto": why it is not one whose driver is there). */
const ZxDeviceTable *zx_device(const char *name, ZbErr *err);
/* The same to plan for: it need not be on this machine. */
const ZxDeviceTable *zx_device_to_plan(const char *name, ZbErr *err);

/* Events of a staged communicator, beside those of its user. */
enum { ZX_STAGED_EVENTS = 64 };
/* A communicator of a device's memory by way of the host's, `inner`. Uses events [event, event +
 * ZX_STAGED_EVENTS). */
ZxComm *zx_comm_staged(ZxComm *inner, const ZxDeviceTable *d, ZkEnv *env, uint32_t event);

#endif
