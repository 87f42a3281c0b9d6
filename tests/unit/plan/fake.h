/* Plans made up without a model, so that programs and proofs are tested by themselves: an `embed` part with
 * inputs, a repeat of layers, a `head` part with the loss, over pipeline stages of about equal length. Mesh:
 * pipe, replica = 2,
 * data = 2, tensor = 2; gradients are partial over replica and data, storage is cut over data. */
#ifndef ZUG_TEST_FAKE_H
#define ZUG_TEST_FAKE_H

#include "runtime/plan/plan.h"

typedef struct {
  const char *schedule; /* NULL: 1f1b */
  uint32_t stages, nmicro, layers;
  int level;        /* ZeRO stage of all buckets */
  bool keep;        /* gathered once a step */
  int further;      /* than one layer ahead */
  bool tied;        /* embed and head share a bucket */
  bool shared;      /* all layers use one bucket more */
  bool saves_carry; /* backward of a layer reads what it took in */
  bool counts;      /* the loss denominator depends on inputs */
  bool bf16;
  bool costs; /* a layer is dear, embed and head are cheap; else all equal */
  bool pins;  /* the device has its own memory */
  bool checkpoints;
  bool alone; /* no replica dim: nothing is left to reduce after a scatter */
  bool forward_only;
  int frozen; /* 1: the layers; 2: and backward reads them; 3: embed's bucket, too, which nothing reads */
} Fake;

/* Everything but the programs; also places every buffer once zp_program has run (fake_arena). */
ZpPlan *fake_plan(ZbArena *a, Fake f);
void fake_arena(ZpPlan *p);
/* Both, and the programs. */
ZpPlan *fake_programs(ZbArena *a, Fake f);

/* First instruction of `stage` with this op, micro-batch and held bucket or instance (UINT32_MAX: any); fails
 * the test if there is none. */
uint32_t fake_find(const ZpPlan *p, uint32_t stage, ZpInstrOp op, uint32_t mb, uint32_t what);
/* Takes one instruction out; those that wait for it wait for what it waited for. */
void fake_remove(ZpPlan *p, uint32_t stage, uint32_t instr);
/* Queues and waits of a stage after its instructions were permuted: now[i] is the old number of
 * the one at i. */
void fake_reorder(ZpPlan *p, uint32_t stage, const uint32_t *now);
/* Queues side by side: what each instruction is and what it waits for. */
void fake_print(const ZpPlan *p, ZbText *out);

#endif
