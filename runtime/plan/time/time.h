/* plan/time: how long a step of a plan takes on a cluster, and where the time goes. Pure, as the plan is:
 * made from the plan's own calls and programs and a cluster's constants, which belong to devices and links,
 * never to models.
 *
 * kernel.c   a call: the least that it takes; products in tiles and waves, attention, bytes for the rest
 * link.c     a collective, a transfer: from its kind, its bytes and where its group lies
 * cost.c     an instruction: its calls and collectives in order; what of the cluster is needed and not there
 * loop.c     the event loop: all stages play their programs, one rank stands for the ranks of a stage
 * step.c     a step of generation, by what is in it
 * predict.c  generation, made of steps: the first token, the time between tokens, tokens a second
 * print.c    the result as a table and as JSON
 *
 * What is left out: ranks that differ (padding, causal masks over a split sequence), data that come late,
 * noise. */
#ifndef ZUG_PLAN_TIME_H
#define ZUG_PLAN_TIME_H

#include "runtime/plan/text.h"

typedef enum {
#define P(NAME, word, text) ZP_T_##NAME,
#include "runtime/plan/time/parts.def"
  ZP_T_PARTS
} ZpTimePart;

/* ---- kernel.c: seconds of one kernel, at the least and as predicted ------------------------------------ */
/* The peaks of a device, per second; 0: not known. */
typedef struct {
  double flops, bytes;        /* of large products, of large copies */
  double attend, attend_grad; /* FLOPs of attention, as plans count them; 0: as of products */
} ZpPeaks;
ZpPeaks zp_peaks(const ZlCluster *c,
                 ZkElem elem); /* by what a cluster says of its device, for operands of this type */
/* Returns the least that a call takes: the longer of its FLOPs and of its bytes at a device's peaks. What is
 * not known takes no time. Every predicted time of a kernel is one, at the rates that such kernels reach, and
 * its launch. */
double zp_bound(const ZpPeaks *p, int op, double flops, double bytes);
double zp_call_bytes(const ZkCall *k); /* that a call reads and writes: of a table those rows that it takes */
/* batch products of m x k by k x n, both of type `elem`, that move `bytes` to and from memory. Whole tiles go
 * in whole waves over the multiprocessors, with the tile that is best; without `sms` there are no tiles. */
double zp_product_seconds(const ZlCluster *c, ZkElem elem, double m, double n, double k, double batch,
                          double bytes);
/* FLOPs that the device does for such a product, in whole tiles; `*fill`: those that each unit of `tile_fill`
 * adds. sms: 0: there are no tiles. */
double zp_product_flops(double sms, double m, double n, double k, double batch, double *fill);
/* flops of attention, forward or backward. */
double zp_attention_seconds(const ZlCluster *c, ZkElem elem, double flops, bool backward);
/* Returns the seconds of a kernel that passes over so many bytes, such as an optimizer's. */
double zp_stream_seconds(const ZlCluster *c, double bytes);

/* ---- step.c: seconds of a product of a step of generation -------------------------------------------- */
/* Rows by weights, which are read once. */
typedef struct {
  double rows, columns, depth, batch;
  double weights, others; /* bytes */
  ZkElem elem;            /* of weights */
} ZpStepProduct;
double zp_step_product_seconds(const ZlCluster *c, const ZpStepProduct *p);

/* ---- link.c: seconds of one exchange ------------------------------------------------------------------- */
#define ZP_MOST_LEVELS 8
/* Where a group of n devices lies. units[l]: members of level l that have some of it; level: the innermost
 * that holds all of it. */
typedef struct {
  int64_t n, units[ZP_MOST_LEVELS];
  uint32_t level;
} ZpPlace;
/* Returns the place of the devices with these numbers, ascending; numbers are such that neighbours share
 * inner levels. */
ZpPlace zp_place(const ZlCluster *c, const int64_t *device, int64_t n);
/* op: ZG_OP_ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER or ALL_TO_ALL; bytes: of the whole tensor of a rank, as
 * gathered, or before it is reduced or exchanged. As rings do it; all-reduce as a tree if that is sooner. */
double zp_collective_seconds(const ZlCluster *c, int op, double bytes, const ZpPlace *at);
double zp_transfer_seconds(const ZlCluster *c, double bytes, const ZpPlace *at); /* one device to another */
/* Returns the place of n devices, each `stride` after the one before, as in a mesh dim. */
ZpPlace zp_place_of_dim(const ZlCluster *c, int64_t n, int64_t stride);

/* ---- a step -------------------------------------------------------------------------------------------- */
typedef struct {
  double part[ZP_T_PARTS]; /* seconds; their sum is the step */
  double recomputed;       /* of products, attention and memory: seconds that recompute what forward made */
  ZpSpan *spans;           /* ascending by `begin`; NULL unless asked for */
  uint64_t nspans;
} ZpStageTime;
typedef struct {
  double seconds;            /* of a step; forward_only: of a batch */
  double samples, tokens;    /* a second; tokens: values of its largest input of indexes, 0: it has none */
  double flops, utilization; /* of the model, a second and device; as a share of the device's peak (MFU) */
  ZpStageTime *stages;       /* one per stage of the plan */
  double mean[ZP_T_PARTS];   /* of the stages */
} ZpTime;
/* NULL, with a report of all constants that the plan needs and the cluster lacks. spans: keeps when
 * everything began and ended. */
ZpTime *zp_time(ZbArena *a, const ZpPlan *p, const ZlCluster *c, bool spans, ZlDiags *d);
/* Returns the seconds of one pass through a list of a segment, apart from all other lists. Also of plans
 * without stages. */
double zp_pass_seconds(const ZpPlan *p, const ZlCluster *c, uint32_t segment, ZpPhase phase);
/* Fills the seconds of every node of a stage's list, each alone, in order. */
void zp_list_seconds(const ZpPlan *p, const ZlCluster *c, uint32_t stage, uint32_t segment, ZpPhase phase,
                     double *seconds);
/* Returns whether the cluster says all that times of the plan's calls, on so many ranks, are made from; else
 * reports what it does not. */
bool zp_cluster_suffices(const ZpPlan *p, int64_t nranks, const ZlCluster *c, ZlDiags *d);
/* Returns the bytes that the update of so many elements of a bucket moves. */
double zp_optimizer_bytes(const ZpPlan *p, const ZpBucket *k, double elems);

/* ---- step.c ------------------------------------------------------------------------------------------- */
/* Some of a step's tokens. */
typedef struct {
  int64_t tokens, sequences; /* the sequences that they are of */
  double seen; /* positions that one sees, itself among them, in the mean, where there is no window */
} ZpStepTokens;
/* The contents of a step of generation: a token of each of some sequences, and parts of prompts. */
typedef struct {
  ZpStepTokens writes, reads;
} ZpStepLoad;
/* Returns the seconds and parts of a step of a plan that generates; else as zp_time. */
ZpTime *zp_step_time(ZbArena *a, const ZpPlan *p, const ZlCluster *c, const ZpStepLoad *load, ZlDiags *d);
/* As zp_pass_seconds, of a pass forward. */
double zp_step_pass_seconds(const ZpPlan *p, const ZlCluster *c, const ZpStepLoad *load, uint32_t segment);

/* ---- predict.c ----------------------------------------------------------------------------------------- */
/* The task of a plan that generates. */
typedef struct {
  int64_t sequences;      /* written at once, by all replicas; at most the plan's */
  int64_t prompt, answer; /* tokens of each: together at most the plan's length */
} ZpWriting;
/* Times in seconds. Waves are steps under way at once: a pipeline has as many as stages, each with its share of the
 * sequences. */
typedef struct {
  int64_t waves;
  double first;   /* to the first token of a prompt that comes alone */
  int64_t steps;  /* in which that prompt is read */
  double between; /* two tokens of a sequence, while all sequences write */
  double beside;  /* the same, while a step has as many tokens of prompts as fit in it */
  double answer;  /* of a whole answer: the first token, and the others while all sequences write */
  double written; /* tokens written a second by all sequences of all replicas, */
  double mixed;   /* and where each sequence that ends is followed by another, whose prompt is read beside */
  double step;    /* of a wave through all stages, of which `between` is made */
  double part[ZP_T_PARTS]; /* of that step, in the mean of the stages */
} ZpGenerationTime;
/* NULL as zp_time. */
ZpGenerationTime *zp_predict(ZbArena *a, const ZpPlan *p, const ZlCluster *c, const ZpWriting *w, ZlDiags *d);
void zp_show_generation(const ZpPlan *p, const ZlCluster *c, const ZpWriting *w, const ZpGenerationTime *t,
                        ZbText *out);
void zp_show_generation_json(const ZpPlan *p, const ZlCluster *c, const ZpWriting *w,
                             const ZpGenerationTime *t, ZbText *out); /* output/JSON.md */
/* Puts the same, the members of an object that the caller has begun. */
void zp_json_generation(ZbJson *j, const ZpWriting *w, const ZpGenerationTime *t);

/* ---- print.c ------------------------------------------------------------------------------------------- */
extern const char *const zp_part_word[ZP_T_PARTS]; /* "products" */
void zp_show_time(const ZpPlan *p, const ZlCluster *c, const ZpTime *t, ZbText *out);
void zp_show_time_json(const ZpPlan *p, const ZlCluster *c, const ZpTime *t,
                       ZbText *out); /* output/JSON.md */
/* Puts the same, the members of an object that the caller has begun. */
void zp_json_time(ZbJson *j, const ZpPlan *p, const ZlCluster *c, const ZpTime *t);

#endif
