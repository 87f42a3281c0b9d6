/* zrun's options. A new one is a row of options.c, and its field here. */
#ifndef ZUG_EXEC_OPTIONS_H
#define ZUG_EXEC_OPTIONS_H

#include "base/options.h"
#include "runtime/exec/answer/query.h"
#include "runtime/exec/comm/same.h"
#include "runtime/exec/data/data.h"
#include "runtime/exec/device/device.h"
#include "runtime/exec/health.h"

typedef enum { ZX_TRAIN, ZX_EVAL, ZX_GENERATE, ZX_SERVE, ZX_CALIBRATE } ZxCommand;
typedef struct {
  ZxCommand command;
  const char *graph, *recipe, *cluster, *data, *init, *names, *save, *log;
  const char *new_tokens;
  const char *out;                       /* calibrate: a cluster; generate: results, or NULL */
  ZbTexts include, resume_copy, adapter; /* the last: [NAME=]DIR */
  int64_t steps;                         /* -1: not given */
  uint64_t seed;
  int threads;
  const char *device_name; /* as it was given */
  const ZxDeviceTable *device;
  ZbErr device_note; /* why `auto` is not the GPU whose driver is there */
  ZxOrder order;
  bool dry_run, times, init_partial, quiet, exact, repeatable;
  int64_t print_every; /* steps; 0: every step, or none on a terminal */
  /* Checkpoints: their folder, or NULL; their interval in steps, or in seconds (0: by the other); how many are kept
   * (0: all); bytes of tensors per file; whether the run ends if one fails. */
  const char *ckpt, *resume_from;
  int64_t ckpt_steps, ckpt_keep, ckpt_file_size;
  double ckpt_seconds;
  enum { ZX_CKPT_FAIL_GO_ON, ZX_CKPT_FAIL_END } ckpt_fail;
  bool resume;
  enum { ZX_MODEL_OTHER, ZX_MODEL_SAME } resume_model; /* what the model of a checkpoint may be */
  int64_t compare_every; /* steps between comparisons of replicas; 0: never, not even at checkpoints */
  double time_limit, hang_after; /* seconds; 0: none */
  ZxOnNan on_nan;
  ZkDebug debug;
  bool evaluates; /* eval: `data` is held out, and nothing is trained */
  const char *eval;
  const char *predict;
  const char *trace; /* a file, or NULL; its steps, 0: the default ones */
  int64_t trace_from, trace_to;
  /* generate: what is asked for, and what of it lines of `prompts` need not say. Sizes, of serve too; 0: they are
   * chosen. */
  ZbTexts prompt, prompt_file, end, bias;
  const char *prompts, *tokenizer, *json_schema, *chat_template, *system;
  bool chat; /* prompts are messages of a user; without one, a conversation */
  int64_t length, sequences, drafts;
  const char *recipe_out;
  enum { ZX_AS_WEIGHTS, ZX_IN_F32, ZX_IN_BF16 } precision;
  int weights;   /* number of a format of zl_packed_formats, from 1; 0: as they are */
  int64_t group; /* of it */
  ZxQuery query;
  /* serve: where it listens and who may ask, and bounds. */
  const char *host, *key_file, *name;
  int64_t port, queue;
  bool open;                        /* anybody may */
  double request_limit, grace;      /* seconds; 0: none */
  int64_t eval_every, eval_batches; /* 0: only after the last step; all batches */
  int64_t sample_every;             /* train: the model writes to `prompt` after so many steps; 0: never */
} ZxOptions;

extern const ZbProgram zx_program;
/* False with a message. */
bool zx_parse_options(ZbArena *a, int argc, char *const *argv, ZxOptions *o, ZbErr *err);
/* Returns --hang-after before anything else is looked at; the default where it is wrong or missing. */
double zx_hang_after(int argc, char *const *argv);
/* Whether the cluster is `auto`, which ranks make together; each reads one of a file by itself. */
bool zx_auto_cluster(const ZxOptions *o);
/* Adds the options that must be the same on all ranks. */
void zx_option_facts(ZxFacts *f, const ZxOptions *o);

#endif
