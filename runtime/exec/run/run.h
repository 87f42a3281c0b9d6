/* run: one run of zrun, from what was given to its last step. Every rank goes through the same functions;
 * what all ranks see alike is said by rank 0, what some see is agreed on, so that all go on or none does.
 *
 * agree.c    how mistakes are said, and who goes on
 * inputs.c   files, recipe and plan; whether all ranks were given the same
 * model.c    the same of a run that generates: model, tokenizer, prompts, and the sizes of a step
 * layout.c   the layout of such a run, where none was given
 * new_tokens.c which words begin as others, of a model with more than its weights have
 * answering.c what plays steps of the engine for answers
 * sample.c   texts that a model writes between steps that train it
 * start.c    everything up to the first step: device, engine, parameters, checkpoints, log
 * train.c    the steps, with evaluations, stops and what is written between them
 * generate.c answers to prompts, in place of steps: where queries come from, and answers go to; lanes.c who answers
 *            which, and routes.c who wrote such a text before (lanes.h)
 * chat.c     answers to what somebody types
 * serve.c    answers to what comes by HTTP
 *
 * Functions of type bool are collective, and false on all ranks when the run is not to go on: all that is to
 * be said has been said then, and `failed` is the code to end with. */
#ifndef ZUG_EXEC_RUN_H
#define ZUG_EXEC_RUN_H

#include "runtime/exec/answer/answer.h"
#include "runtime/exec/engine/engine.h"
#include "runtime/exec/epochs.h"
#include "runtime/exec/evaluate.h"
#include "runtime/exec/facts.h"
#include "runtime/exec/health.h"
#include "runtime/exec/log/log.h"
#include "runtime/exec/options.h"
#include "runtime/exec/replica.h"
#include "runtime/exec/report.h"
#include "runtime/exec/saves.h"
#include "runtime/exec/serve/serve.h"
#include "runtime/exec/stepper.h"
#include "runtime/exec/state/alike.h"
#include "runtime/exec/stepper.h"
#include "runtime/exec/stop.h"
#include "runtime/exec/trace.h"
#include "runtime/plan/time/time.h"

/* What writes texts between the steps of a run that trains; sample.c. */
typedef struct ZxWatching ZxWatching;

/* Prompts of a run that generates: of options, or lines. */
typedef struct {
  ZxWords words;
  ZxQuery *query; /* of options; NULL: lines */
  uint32_t nqueries;
  const char *lines;
  size_t size, *line_at; /* by line: where it begins */
  uint64_t nlines;
  ZxResults results; /* rank 0's; others know how many there are */
  uint64_t seed;     /* of which prompts that say none have theirs */
} ZxPrompts;

typedef struct {
  ZbArena *a;
  ZxOptions o;
  ZxComm *c;
  int rank;
  ZlSources *sources;
  ZlDiags *diags;
  ZgGraph *graph;
  const ZlRecipe *recipe;
  const ZlCluster *cluster;
  ZpPlan *plan;
  ZpOptions plan_options;
  ZpGenerating generating;
  ZxPrompts prompts;
  ZxServing serving;
  ZbTexts adapters, adapter_names; /* folders of --adapter, and what clients call them */
  ZxServer *server;                /* on rank 0 of `serve`; NULL */
  ZxReplica replica;               /* of a run that generates: the ranks that play the same steps */
  int lane_failed;                 /* 0: no; the code with which rank 0 says that all end */
  ZxMix *data;
  ZpPlan *eval_plan; /* in the arena of `plan`, with --eval; as are these */
  ZxMix *eval_data;
  ZpPlan *sample_plan; /* in that arena, too, with --sample-every */
  ZxWatching *watching;
  ZkEnv env;
  bool opened; /* the device, in env */
  ZxEngine *engine;
  ZxAdmission *admission; /* of a plan that has one; NULL */
  ZxEngine *eval_engine;
  ZxEval eval; /* where there is one, of the one engine or the other */
  ZxPredict *predict;
  ZxLog *log;
  ZxTrace *trace;    /* not written yet; NULL: there is none */
  const char *coded; /* what of the weights is quantized, as it is said; NULL: nothing */
  ZbText memory;     /* what is said of it */
  ZbText plan_text;
  ZxEpochs epochs;
  double began, peak;
  ZpPeaks own;             /* of this rank, while all are busy */
  int64_t timed;           /* the first step that the table of times has */
  ZxStepTimes times;       /* on rank 0 */
  const ZpTime *predicted; /* of a step, on rank 0, by the cluster that was given; or NULL */
  const char *command;
  ZxFacts facts; /* of what checkpoints are of */
  /* The checkpoint that the run goes on from, or NULL; the steps made before it. */
  const char *from;
  ZxManifest *manifest;
  int64_t before;
  ZxSaves saves;
  ZxHealth health;
  ZxAlike *alike;   /* NULL: replicas are not compared */
  int64_t compared; /* the last step after which they were; -1: none */
  ZxStop stop;
  bool log_waits; /* a part of the log could not be written yet */
  int stopping;   /* why all ranks stop after this step (zx_stop_why); 0: they go on */
  int failed; /* the code with which it ends if it does not go on; ZX_EXIT_FAILED until a mistake is seen */
} ZxRun;

/* ---- agree.c ------------------------------------------------------------------------------------------- */
/* Says a mistake that every rank sees alike, and has the run end with its code. Returns false. */
bool zx_run_refuse(ZxRun *r, const ZbErr *err);
/* The same of what is no mistake: it may go better another time. */
bool zx_run_fail(ZxRun *r, const ZbErr *err);
/* The lowest rank for which `mine` is true, on all ranks; -1: none. */
int zx_run_lowest(ZxRun *r, bool mine);
/* Collective: what rank 0 has comes to all. */
void zx_run_tell_all(ZxRun *r, void *p, size_t bytes);
/* Whether all ranks are `ok`. The lowest that knows why one is not says it. */
bool zx_run_agree(ZxRun *r, bool ok, const ZbErr *err);
/* The same for what was given: that it is wrong is a mistake, unless some rank's error is a passing one. */
bool zx_run_accept(ZxRun *r, bool ok, const ZbErr *err);
/* The same for source texts: the lowest rank that is not content prints what it has to say of them. */
bool zx_run_agree_diags(ZxRun *r, bool ok);
void zx_run_print_diags(ZxRun *r);
/* Collective, ends with a line feed each: lines that some ranks have, each said once, by rank 0, with the
 * lowest rank that has it where that is another. Frees them. */
void zx_run_say_once(ZxRun *r, ZbText *lines);
/* Says whether a part of the log could be written: a run goes on without it for a while, or ends. Rank 0's. */
void zx_run_logged(ZxRun *r, bool ok, int64_t step, const ZbErr *err);
void zx_run_say(ZbText *t); /* prints it, if there is any, and frees it */

/* ---- inputs.c ------------------------------------------------------------------------------------------ */
bool zx_run_same_options(ZxRun *r);
/* Takes --adapter apart. */
bool zx_run_take_adapters(ZxRun *r);
/* Reads graph, recipe, data and the checkpoint to resume from: headers, and what they hold. */
bool zx_run_read(ZxRun *r);
/* Parts of it: the recipe that was given; the manifest of --init, which is a folder without --names. */
bool zx_run_read_recipe(ZxRun *r, ZbErr *err);
bool zx_run_read_manifest(ZxRun *r, ZbErr *err);
bool zx_run_plan(ZxRun *r); /* and that of evaluations */
bool zx_run_fits(ZxRun *r); /* as many ranks as the recipe wants */
/* The mesh's fast dims go inside nodes, whatever order the launcher dealt the ranks out in. */
void zx_run_place(ZxRun *r);

/* ---- machine.c ----------------------------------------------------------------------------------------- */
/* The machines that the launcher gave, as a cluster; the same on all ranks, which must all ask. NULL with reports. */
const ZlCluster *zx_run_auto_cluster(ZxRun *r);
/* Keeps the ranks of a machine of several NUMA nodes on one each, unless the launcher or the user bound them. Before
 * there are threads. */
void zx_run_bind(ZxRun *r);
/* Collective: says once where ranks have more threads than CPUs. */
void zx_run_note_threads(ZxComm *c, int threads);

/* ---- layout.c ------------------------------------------------------------------------------------------ */
/* Collective. Finds how so many sequences of such a length are written soonest by these ranks, and makes the recipe of
 * it, which --recipe-out keeps. */
bool zx_run_choose_layout(ZxRun *r, int64_t sequences, int64_t length, bool bf16, const char *weights);

/* ---- model.c ------------------------------------------------------------------------------------------- */
/* Does what zx_run_read does, for a run that generates: reads or compiles the model, opens its tokenizer, reads and
 * checks all prompts, and chooses what is not given. */
bool zx_run_read_model(ZxRun *r);
/* Does the same for the texts of a run that trains, whose graph and recipe are there: tokenizer, prompts and sizes.
 * Nothing, if it writes none. */
bool zx_run_read_samples(ZxRun *r);
/* Returns the next line of the prompts, *n bytes of it, and moves *at behind it; NULL: there is none. */
const char *zx_run_line(const ZxPrompts *p, size_t *at, size_t *n);
/* Collective: a text of rank 0's, to all; others have none yet. */
void zx_run_share_text(ZxRun *r, ZbText *t);
/* Says if the run is a conversation, whose messages are not there yet. */
bool zx_run_talks(const ZxRun *r);
/* Adds a message to a list of them; nothing, if its text is NULL. */
void zx_run_message(ZbJson *j, const char *role, const char *text, size_t n);
/* Says if all lines have results. */
bool zx_run_all_there(const ZxPrompts *p);

/* ---- new_tokens.c -------------------------------------------------------------------------------------- */
/* Reads --new-tokens, "mean" or "300=17,301=5": words by their numbers, or by their texts in the tokenizer.json of --init.
 * False with a message. */
struct ZxNewWords;
bool zx_run_new_words(ZxRun *r, struct ZxNewWords *w, ZbErr *err);

/* ---- start.c ------------------------------------------------------------------------------------------- */
bool zx_run_start(ZxRun *r);
/* The same for a run that generates: an engine with its parameters. Nothing, if there is nothing to do. */
bool zx_run_start_generating(ZxRun *r);
/* Samples that steps 1 to `step` take. */
uint64_t zx_run_taken(const ZxRun *r, int64_t step);

/* ---- train.c ------------------------------------------------------------------------------------------- */
bool zx_run_train(ZxRun *r);
/* Once, of a run that trains nothing. A loss that is not finite is the data's fault, or the weights'. */
bool zx_run_evaluate(ZxRun *r);

/* ---- sample.c ------------------------------------------------------------------------------------------ */
/* Makes what writes texts between steps, in the arena of the engine; collective. Nothing, if none are wanted. */
bool zx_run_open_samples(ZxRun *r);
/* Lets the model write to all prompts, as it is after this step; rank 0 logs what came. Collective. */
void zx_run_sample(ZxRun *r, int64_t step);
void zx_watching_free(ZxWatching *s); /* NULL is allowed */

/* ---- answering.c --------------------------------------------------------------------------------------- */
/* Makes what plays steps of the engine for answers of a wave; of the first one collective. */
bool zx_run_answering(ZxRun *r, ZxWave w, ZxAnswering *how);
/* The same for one wave, of which all ranks play the steps: replicas are refused. */
bool zx_run_answering_together(ZxRun *r, ZxAnswering *how);
/* Collective: what rank 0 knows before a step of that wave, for all. False if it has failed, which it has said. What
 * ranks have decided so far is compared. If somebody wants the run to end, all that is under way is cancelled. */
bool zx_run_goes_on(ZxRun *r, ZxAnswers *x, bool ok);
/* Plays a step of it, if there is one; the last stage chooses, and tells the others. */
bool zx_run_step(ZxRun *r, ZxAnswers *x, ZbErr *err);
/* Ends the job if the steps of all waves did not use what was planned for them. */
void zx_run_tell_used(const ZxRun *r, const ZxAnswering *how, uint32_t n);

/* ---- generate.c ---------------------------------------------------------------------------------------- */
bool zx_run_generate(ZxRun *r);
/* Gives a query that says no seed one that is the same on all ranks. */
void zx_run_give_seed(const ZxRun *r, ZxQuery *q, uint64_t number);

/* ---- chat.c -------------------------------------------------------------------------------------------- */
bool zx_run_chat(ZxRun *r);

/* ---- serve.c -------------------------------------------------------------------------------------------- */
/* Listens, before weights are read: an address that is taken is known at once. */
bool zx_run_open_server(ZxRun *r);
bool zx_run_serve(ZxRun *r);

#endif
