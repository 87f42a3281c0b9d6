/* The list of devices that ranks can compute on, and what planners ask of one. */
#ifndef ZUG_KERNELS_DEVICES_H
#define ZUG_KERNELS_DEVICES_H

#include "base/base.h"
#include "kernels/kernels.h"

/* A device. One in a module has there, under its name, what planners ask (zk_planning_NAME) and what runs ask
 * (zx_device_NAME, in runtime/exec). */
typedef struct {
  const char *name;   /* "cuda" */
  const char *label;  /* how people call it: "CUDA" */
  const char *module; /* its file; NULL: it is in the program */
  const char *driver; /* a library that machines with such a device have, which its module wants */
} ZkDevice;
extern const ZkDevice zk_devices[];          /* the one list, the best first; one without a name ends it */
const ZkDevice *zk_device(const char *name); /* NULL: there is none */

/* A slow path: how a call is done that a device of its kind could do faster. For people, in words that go on after
 * "3 `dot` a step are done". */
typedef struct {
  const char *what, *why; /* "by our own kernels"; why; they stay as long as the device's context */
  bool scalar;            /* its FLOPs are done by units for f32, not by those for products */
  double work;            /* FLOPs that are done for each that counts; 0: one */
  bool parts;             /* the calls that it joins are done one after the other (zk_unfuse) */
  bool unknown;           /* takes longer than these say, nobody knows how much */
} ZkFallback;
/* What a device can do at most, a second: FLOPs of products in each type and of units for f32, bytes of its
 * memory, bytes from and to the host's; and how many multiprocessors do it. */
typedef struct {
  double bf16, tf32, f32, bytes, link, multiprocessors;
} ZkRates;

/* How a call is cut over the multiprocessors of a device, and how much of them it leaves idle: each has one tile
 * of the result at a time, and a launch ends with the last one. */
typedef struct {
  int64_t rows, columns;   /* of a tile: of the result, of attention its queries, of its gradient its keys */
  int64_t tiles, launches; /* tiles of each launch, one launch after the other */
  double waves;            /* tiles / multiprocessors */
  double busy;             /* part of the multiprocessors' time in which they have one: 0 to 1 */
  double bytes;            /* moved, beside those of operands and results */
} ZkTiling;

/* What a planner asks of a device. `scratch`: as zk_cpu_scratch. `supports`: whether the device does a fused
 * or batched call, or an op that is two, as one; NULL: none. `pins`: its memory is not the host's. `tiles`: of a
 * product or an attention, with so many multiprocessors; false: of others, and what is not known; NULL: none. */
typedef struct {
  size_t (*scratch)(const ZkCall *call, int threads);
  bool (*supports)(const ZkCall *call);
  bool pins;
  bool (*tiles)(const ZkCall *call, int multiprocessors, ZkTiling *t);
} ZkPlanning;
/* NULL and why, if its module cannot be loaded. No driver need be here. */
const ZkPlanning *zk_planning(const ZkDevice *d, ZbErr *err);

#endif
