/* What the engine's files share.
 *
 * engine.c    set-up
 * queues.c    the queues and their instructions
 * setup.c     what a device needs at start-up
 * node.c      one node: kernel, collective
 * optimizer.c norms, optimizer steps, learning rates
 * feed.c      data into input blocks
 * profile.c   what operations had to do
 * grads.c     what of a gradient is cleared, what is written first
 * capture.c   steps that are queued once
 * stall.c     what a wait that lasts is for
 * The room on top of this one, state/, reads it too. */
#ifndef ZUG_EXEC_ENGINE_INTERNAL_H
#define ZUG_EXEC_ENGINE_INTERNAL_H

#include "runtime/exec/engine/engine.h"

/* Where a bucket lies that a running instruction uses. */
typedef struct {
  char *param, *grad; /* grad: of a backward */
  bool fresh;         /* there is nothing yet in `grad` */
} ZxHeldAt;

/* Where the parts of a running instruction lie. */
typedef struct {
  char *scratch, *saved, *inputs, *carry_in, *carry_out, *dcarry_in, *dcarry_out;
  const ZxHeldAt *held; /* per bucket of the segment */
  uint32_t mb, iter; /* micro-batch; iteration of the repeat */
} ZxFrame;

typedef struct { uint64_t from, to; bool decay; } ZxRange; /* elements of a bucket */
typedef struct { ZxRange *range; uint32_t n; } ZxClear;

/* The plan's two blocks of scalars, 64 bytes each, on the device. */
typedef struct {
  double loss, aux, squares; /* numerator of the loss, auxiliary losses, squared norm of the gradient */
  double denominator;
  double lost;               /* not summed; of this rank: 1 if its update left something that is not finite */
} ZxSums;
typedef struct {
  double denominator;
  float seed[2]; /* 1/denominator, 1/micro-batches */
  ZkNow now;     /* of a device that is not the host */
} ZxCount;

/* Whether steps are captured: no; once one was played; in this step; they are. */
typedef enum { ZX_CAPTURE_NEVER, ZX_CAPTURE_LATER, ZX_CAPTURE_NEXT, ZX_CAPTURED } ZxCapture;

struct ZxEngine {
  ZbArena *a;
  ZpPlan *p;
  ZxComm *world; /* of the host's memory */
  ZxComm *c;     /* of the arena's */
  ZxEngineOptions o;
  const ZxDeviceTable *dev; /* = o.device */
  ZkEnv *env;               /* = o.env */
  int64_t rank;
  uint32_t stage;
  ZpStage *st;
  char *arena;
  uint64_t high;         /* highest byte handed out */
  /* Groups by set of dims; -1: not made. Nodes and the collective queue have groups of their own: each keeps its
   * order on all ranks, but how the two interleave depends on timing and so differs from rank to rank. */
  ZxGroup group[1 << ZP_MAX_DIMS], node_group[1 << ZP_MAX_DIMS];
  ZxGroup *tied;         /* per p->tied */
  ZxHeldAt *held_at;     /* of the running instruction's frame: as many as any segment of the stage has buckets */
  bool *done;
  ZxRequest *request;
  uint32_t head[ZP_QUEUES];
  uint32_t *flight, nflight;
  ZxSums *sums;          /* in the arena */
  ZxCount *count;        /* in the arena */
  char *pinned;          /* not a host's device: `nblocks` micro-batches' inputs; what comes with a step; its sums */
  uint64_t pinned_now, pinned_sums;
  uint32_t nblocks;      /* used in turn */
  uint32_t pinned_event; /* the latest inputs' upload */
  uint32_t call_event;   /* the call just made, where the host waits for each */
  struct {
    uint64_t total, at[4]; /* of the device's memory; unused at first, after all calls were prepared, with the arena, ... */
    const char *road;      /* ... and with the communicators; why those are not of the device's memory */
  } beside;
  bool in_order; /* all that is queued is, in the order of the program */
  ZxCapture capture;
  const char *why_not;   /* ... NEVER */
  bool capturing;        /* what is queued is not done now */
  ZbOut *save;           /* reserved: rank 0's temporary, on the others a share in it */
  float *row;            /* one row of real inputs, before rounding */
  ZxRange **ranges; uint32_t *nranges; /* per bucket template: runs of equal decay */
  ZxClear **clear;       /* per segment, per bucket of it: what its backward does not set */
  const ZxClear **first_user; /* per held bucket: that of the backward which comes first in a step; NULL: none */
  bool *fresh;           /* per held bucket: no backward of this step has touched its gradient */
  int64_t step;
  double lr;
  ZxScalars clip;
  ZxStep out;
  ZbErr *err;
  bool failed, polling, has_loss;
  bool playing;          /* within a step: only then do the queues move */
  uint32_t at;           /* the compute instruction that is played or waits, or ZP_NONE; its node, if that is a collective */
  const ZpNode *node;
  double times[ZG_OP_COUNT + 2];
  ZxWork work[ZG_OP_COUNT + 2];
  ZxCallTime *calls;     /* where calls are timed: those of segments' fwd, bwd and count, one after the other, ... */
  uint32_t ncalls, *calls_at; /* ... from here on for each segment */
  ZxPeaks peak;
};

/* setup.c */
bool zx_open_memory(ZxEngine *e, ZbErr *err); /* the arena, and a block to reach it through */
bool zx_open_events(ZxEngine *e, ZbErr *err);
void zx_open_comm(ZxEngine *e); /* collective */
void zx_connect(ZxEngine *e);   /* collective */
bool zx_prepare(ZxEngine *e, ZbErr *err); /* all calls of the stage */
void zx_note_memory(ZxEngine *e, int when);

/* queues.c */
char *zx_buf_at(ZxEngine *e, const ZpBuf *b);
void zx_play(ZxEngine *e);     /* queues all instructions of one step */
void zx_end_step(ZxEngine *e); /* waits for them, and takes in their sums */
/* Advances the transfer and collective queues without waiting. True if anything moved. */
bool zx_poll(ZxEngine *e);
/* Waits for a request while the queues go on; yields, then sleeps. */
void zx_await(ZxEngine *e, ZxRequest r);
/* Waits for all that the device has to do. */
bool zx_finish(ZxEngine *e, ZbErr *err);
/* Where every call is timed: waits for the current stream while the queues go on. */
void zx_finish_call(ZxEngine *e);

/* stall.c: a pause in a wait for a request, for the queues or for the device, which tells when that lasts; and what comes
 * when something has moved. */
enum { ZX_FOR_QUEUES = -2, ZX_FOR_DEVICE = -3 };
void zx_relax(ZxEngine *e, ZxWait *w, ZxRequest r);
void zx_moved(ZxEngine *e, ZxWait *w);

/* node.c */
void zx_bind_calls(ZxEngine *e);
/* Prepares the calls of one segment; what cannot be said, with where it comes from. */
bool zx_prepare_nodes(ZxEngine *e, const ZpSegment *s, ZpNode *nodes, uint32_t n, ZbErr *err);
void zx_run_nodes(ZxEngine *e, const ZpSegment *s, ZpNode *nodes, uint32_t n, const ZxFrame *f);

/* optimizer.c: own range of a held bucket: what this rank updates and saves. */
void zx_own_range(const ZxEngine *e, const ZpHeld *h, uint64_t *from, uint64_t *to);
bool zx_counts(const ZxEngine *e, const ZpHeld *h); /* whether this rank speaks for the own range */
float *zx_master(const ZxEngine *e, const ZpHeld *h);  /* f32 values of the own range */
float *zx_grads(const ZxEngine *e, const ZpHeld *h);   /* gradients of the own range */
void zx_make_ranges(ZxEngine *e);
void zx_norm_local(ZxEngine *e); /* adds to the squared norm */
void zx_optimize(ZxEngine *e, const ZpHeld *h);

/* grads.c */
void zx_make_clears(ZxEngine *e);
void zx_begin_grads(ZxEngine *e); /* of a step: clears what no backward sets */
/* Before the backward of an instance adds to the gradient of its bucket i at `grads`: clears it as far as needed if it is
 * staged there (else `staged` is NULL); true if there is nothing in it yet. */
bool zx_begin_backward(ZxEngine *e, uint32_t inst, uint32_t i, const ZpAccess *staged, char *grads);

/* profile.c: where calls are timed, adds what one had to do. */
void zx_make_counts(ZxEngine *e);
void zx_count_node(ZxEngine *e, const ZpSegment *s, const ZpNode *n, double seconds);
void zx_count_norm(ZxEngine *e);
void zx_count_update(ZxEngine *e, const ZpHeld *h);

/* capture.c */
void zx_open_capture(ZxEngine *e); /* collective */
void zx_step(ZxEngine *e);

/* feed.c */
bool zx_feed(ZxEngine *e, char *inputs, uint32_t mb);
bool zx_feed_all(ZxEngine *e); /* a captured step's inputs, of all micro-batches, into pinned memory */
uint64_t zx_input_bytes(const ZxEngine *e); /* of one micro-batch */
bool zx_check_inputs(ZxEngine *e, ZbErr *err);
/* Collective: the name of an input of this step that is not finite in some sample of the run, or NULL. */
const char *zx_bad_input(ZxEngine *e, uint64_t *sample);

#endif
