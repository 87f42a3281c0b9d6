/* A model that is trained in a test: compiled, planned by a recipe, and played by as many ranks as that has,
 * which are threads (world.h). What they read is made up, what they save lies in the test's folder
 * (scratch.h). */
#ifndef ZUG_TEST_JOB_H
#define ZUG_TEST_JOB_H

#include "runtime/exec/engine/internal.h"
#include "runtime/exec/state/checkpoints.h"
#include "runtime/exec/state/state.h"
#include "tests/unit/exec/engine/world.h"
#include "tests/unit/exec/scratch.h"
#include "tests/unit/plan/models/plan.h"

/* `file`: below the source folder, or NULL: `text`. options: as zc's. */
Model job_model(const char *file, const char *text, const char *options);
/* x is read, so that only w has a gradient: of 4 samples a micro-batch three products, of 256, 32 and 256
 * FLOPs. */
extern const char job_line[];
/* Dropout along a sequence that attention reads. */
extern const char job_drops[];

enum { JOB_STEPS = 8, JOB_RECORDS = 64 };
typedef struct Job Job;
typedef struct {
  Job *job;
  int rank;
  ZxComm *c;
  ZbArena *a;
  ZkEnv env;
  ZxMix *data;
  ZxEngine *e;
  ZbErr err;
  bool ok;          /* all that it did, so far */
  uint64_t planned; /* bytes of its arena */
  char told[1024];  /* by zx_engine_tell */
  ZxStep step[JOB_STEPS + 1];
} Player;

struct Job {
  Plan q;
  const ZpPlan *p, *also;
  const ZxDeviceTable *dev;
  ZxEngineOptions o; /* what is not the player's */
  ZkDebug debug;
  int ranks, steps;
  const char *save; /* of the folder, in which parameters end; NULL: nowhere */
  uint8_t *bytes;   /* of the records */
  uint64_t nbytes;
  Player player[WORLD_MOST];
  bool exchanges; /* ranks do so at once: world_exchanging */
  void *ctx;      /* the test's */
};

/* By a recipe of the model's file, by its name; or by a recipe's body, and that of one which it is from. */
Job job_named(const Model *m, const char *recipe, const ZxDeviceTable *dev, ZpOptions o);
Job job_of(const Model *m, const char *base, const char *body, const ZxDeviceTable *dev, ZpOptions o);
void job_close(Job *j);
/* What each input of the model has in sample s at place i, of `n` there: as job_of and job_named make it. */
int32_t job_id(const char *name, uint64_t s, uint64_t i, int64_t limit);
float job_real(const char *name, uint64_t s, uint64_t i);
/* ... or as these say, before anything is played. */
void job_data(Job *j, int32_t (*id)(const char *name, uint64_t s, uint64_t i, int64_t limit),
              float (*real)(const char *name, uint64_t s, uint64_t i));

/* All ranks: sets up, does that, and gives back. Fails the test where a rank is not content. */
void job_play(Job *j, void (*act)(Player *));
/* The same, where some may fail: the test looks at their `ok` and `err`. */
void job_try(Job *j, void (*act)(Player *));
/* What a player may do. Draws parameters, makes the steps, saves. */
void job_train(Player *p);
void job_steps(Player *p, int from, int to);
void job_save(Player *p);

/* The values that were saved under this name of the folder. To be freed. */
float *job_saved(const char *name, uint64_t *n);
/* Both jobs were trained alike: losses, norms and what they saved, up to so much of the largest value. */
void job_compare(const Job *one, const Job *other, double tolerance, const char *what);

/* A device's `prepare` that takes every call. */
bool job_prepares(const ZkEnv *env, const ZkCall *c, ZbErr *err);

#endif
