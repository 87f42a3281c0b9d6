/* zrun's options: the table, what one option needs of others, and what ranks compare. */
#include "runtime/exec/options.h"
#include "lang/lang.h"
#include "runtime/exec/comm/comm.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- values of their own kinds --------------------------------------------------------------------------- */
/* Reads a whole number from `least` on, which ends at `stop`. */
static bool number_before(const char *text, const char *stop, int64_t least, int64_t *out) {
  char *end;
  errno = 0;
  long long n = strtoll(text, &end, 10);
  if (end == text || end != stop || errno || n < least) return false;
  *out = n;
  return true;
}

/* Reads "5-8" or "5". */
static bool take_trace_steps(void *options, const char *text, ZbErr *err) {
  (void)err;
  ZxOptions *o = options;
  const char *end = text + strlen(text), *dash = strchr(text, '-');
  return number_before(text, dash ? dash : end, 1, &o->trace_from) &&
         number_before(dash ? dash + 1 : text, end, o->trace_from, &o->trace_to);
}
static void show_trace_steps(const void *options, ZbText *t) {
  const ZxOptions *o = options;
  zb_text_add(t, "%" PRId64 " to %" PRId64, o->trace_from, o->trace_to);
}

/* Reads a number of steps, or a duration. */
static bool take_ckpt_every(void *options, const char *text, ZbErr *err) {
  (void)err;
  ZxOptions *o = options;
  o->ckpt_steps = 0;
  o->ckpt_seconds = 0;
  return number_before(text, text + strlen(text), 1, &o->ckpt_steps) ||
         (zb_duration(text, &o->ckpt_seconds) && o->ckpt_seconds > 0);
}
static void show_ckpt_every(const void *options, ZbText *t) {
  const ZxOptions *o = options;
  zb_text_add(t, "%" PRId64 " steps, %g s", o->ckpt_steps, o->ckpt_seconds);
}

static bool take_debug(void *options, const char *text, ZbErr *err) {
  return zk_debug_take(&((ZxOptions *)options)->debug, text, err);
}
static void show_debug(const void *options, ZbText *t) {
  const ZkDebug *d = &((const ZxOptions *)options)->debug;
  char value[24];
  for (ZkDebugName n = 0; n < ZK_DEBUGS; n++)
    if (d->given >> n & 1)
      zb_text_add(t, "%s%s=%s", t->len ? ", " : "", zk_debug_name(n), zk_debug_text(d, n, value));
  if (!t->len) zb_text_add(t, "none");
}

/* `auto` may be another device on another rank. */
static void show_device(const void *options, ZbText *t) {
  zb_text_add(t, "%s", ((const ZxOptions *)options)->device->name);
}
static void show_cluster(const void *options, ZbText *t) {
  const ZxOptions *o = options;
  zb_text_add(t, "%s", zx_auto_cluster(o) ? "auto" : o->cluster ? "of a file" : "none");
}

/* ---- the table ------------------------------------------------------------------------------------------- */
enum {
  TRAIN = 1 << ZX_TRAIN,
  EVAL = 1 << ZX_EVAL,
  GENERATE = 1 << ZX_GENERATE,
  SERVE = 1 << ZX_SERVE,
  CALIBRATE = 1 << ZX_CALIBRATE
};
enum { MOST_THREADS = 1024 };
enum { BOTH = TRAIN | EVAL, WRITES = GENERATE | SERVE, ALL = BOTH | WRITES };
/* clang-format off */
static const ZbCommand commands[] = {
  [ZX_TRAIN] = {"train", "GRAPH.zsg", 1, 1, "train the model"},
  [ZX_EVAL] = {"eval", "GRAPH.zsg", 1, 1, "evaluate weights on held-out data"},
  [ZX_GENERATE] = {"generate", "DIR|FILE.gguf|GRAPH.zsg", 1, 1,
   "write texts: with a Hugging Face folder, a GGUF file, or a graph and its weights"},
  [ZX_SERVE] = {"serve", "DIR|FILE.gguf|GRAPH.zsg", 1, 1, "answer clients of OpenAI's API by HTTP"},
  [ZX_CALIBRATE] = {"calibrate", NULL, 0, 0,
   "measure this machine, or its GPUs, and write a cluster for plans"},
};

/* Files to read are compared by their contents, wherever they lie: nodes may have copies. Files to write are shared
 * by all ranks. -I only says where to look. */
#define FIELD(f) ZB_AT(ZxOptions, f)
static const ZbOption options[] = {
  {"recipe", 0, ZB_TEXT, FIELD(recipe), "FILE:NAME", .commands = ALL, .needed = BOTH,
   .help = "how to spread the model over the ranks, and how to train it; of FILE:A,B,C the first recipe for "
           "the number of ranks that were started. Without it serve takes one rank, and generate finds what "
           "is soonest on its ranks"},
  {"data", 0, ZB_TEXT, FIELD(data), "FILE.bin", .commands = BOTH, .shown = BOTH, .same = ZB_SAME_PRESENCE,
   .help = "a token or record file made by zdata, or a folder of them; or several, mixed by weights: "
           "A.bin:0.7,B.bin:0.3"},
  {"init", 0, ZB_TEXT, FIELD(init), "FILE", .commands = ALL, .shown = EVAL, .same = ZB_SAME_PRESENCE,
   .help = "start from the weights of a safetensors or GGUF file, or of a checkpoint, which is a folder"},
  {"adapter", 0, ZB_TEXTS, FIELD(adapter), "[NAME=]DIR", .commands = ALL, .same = ZB_SAME_PRESENCE,
   .help = "take the adapter of a folder, as peft writes it. Of a graph its adapters begin so; a model of a folder gets them, "
           "and may have several, which clients of serve choose by `model`: each by its NAME, or its folder's"},
  {"names", 0, ZB_TEXT, FIELD(names), "MAP", .commands = ALL, .same = ZB_SAME_VALUE,
   .help = "tensors of --init, a file or a folder of shards, are named as `weights MAP for` the model says"},
  {"eval-batches", 0, ZB_WHOLE, FIELD(eval_batches), "K", .least = 1, .commands = BOTH, .same = ZB_SAME_VALUE,
   .help = "evaluate on the first K batches (default: all whole batches)"},
  {"recipe-out", 0, ZB_TEXT, FIELD(recipe_out), "FILE", .commands = GENERATE, .same = ZB_SAME_VALUE,
   .help = "without --recipe: write the recipe that was found for these ranks here, with reasons"},
  {"cluster", 0, ZB_TEXT, FIELD(cluster), "FILE:NAME", .commands = GENERATE,
   .help = "without --recipe: find one by the constants of this cluster, which zrun calibrate measured (default: what "
           "is assumed of CPUs)"},
  {"cluster", 0, ZB_TEXT, FIELD(cluster), "FILE:NAME", .commands = BOTH, .same = ZB_SAME_VALUE,
   .show = show_cluster,
   .help = "check the plan against the memory of a cluster, and predict the step's time by its constants; "
           "`auto`: the machines that the launcher gave"},
  {NULL, 'I', ZB_TEXTS, FIELD(include), "DIR", .commands = ALL,
   .help = "search imported recipe files here, too; may be repeated"},
  {"log", 0, ZB_TEXT, FIELD(log), "DIR", .commands = BOTH, .same = ZB_SAME_VALUE,
   .help = "write metrics.jsonl there, and event files for TensorBoard; an earlier run's metrics.jsonl "
           "becomes metrics.jsonl.1, .2, ..."},
  {"exact", 0, ZB_FLAG, FIELD(exact), .commands = ALL, .same = ZB_SAME_VALUE,
   .help = "print bytes with all digits, not as 5.3 GB"},
  {"dry-run", 0, ZB_FLAG, FIELD(dry_run), .commands = ALL, .same = ZB_SAME_VALUE,
   .help = "make and show the plan, and stop; for a GPU also list slow paths, with the reason of each"},
  {"repeatable", 0, ZB_FLAG, FIELD(repeatable), .commands = BOTH, .same = ZB_SAME_VALUE,
   .help = "give the same bits in every run on a GPU: choose only among algorithms of libraries that round "
           "like the default one, and never add in arbitrary order"},
  {"debug", 0, ZB_OTHER, FIELD(debug), "NAME=VALUE",
   .commands = BOTH, .same = ZB_SAME_VALUE, .take = take_debug,
   .show = show_debug, .help = "try something out on a GPU; may be repeated:\n"
#define SETTING(id, name, unit, least, most, usual, what) name "=" unit ": " what "\n"
#include "kernels/debug.def"
  },

  {"steps", 0, ZB_WHOLE, FIELD(steps), "K", .commands = TRAIN, .shown = TRAIN, .same = ZB_SAME_VALUE,
   .help = "number of optimizer steps; 0: none, which needs no data, and with --save writes the initial "
           "weights"},
  {"seed", 0, ZB_WHOLE, FIELD(seed), "S", .usual = "1", .commands = TRAIN, .same = ZB_SAME_VALUE,
   .help = "seed of initial values, dropout and the order of samples"},
  {"order", 0, ZB_WORD, FIELD(order), "shuffled|sequential", .usual = "shuffled", .commands = TRAIN,
   .same = ZB_SAME_VALUE, .help = "order of samples"},
  {"init-partial", 0, ZB_FLAG, FIELD(init_partial), .commands = TRAIN, .same = ZB_SAME_VALUE,
   .help = "initialise parameters that --init lacks from the seed, and ignore other tensors there"},
  {"new-tokens", 0, ZB_TEXT, FIELD(new_tokens), "mean|NEW=OLD,..", .commands = TRAIN, .same = ZB_SAME_VALUE,
   .help = "the model may have more words than --init (zc -D): their rows begin as the mean of those that are there, or NEW as "
           "OLD, by number or by text in the tokenizer.json there"},
  {"save", 0, ZB_TEXT, FIELD(save), "FILE", .commands = TRAIN, .same = ZB_SAME_VALUE,
   .help = "write the weights to a safetensors file at the end. Space is reserved at the start, in a folder "
           "that all nodes share; an existing safetensors file is replaced at the end"},
  {"ckpt", 0, ZB_TEXT, FIELD(ckpt), "DIR", .commands = TRAIN, .same = ZB_SAME_VALUE,
   .help = "write checkpoints there: all that the run needs to continue, at its end and periodically"},
  {"ckpt-every", 0, ZB_OTHER, FIELD(ckpt_steps), "N", .usual = "30m", .commands = TRAIN,
   .same = ZB_SAME_VALUE, .take = take_ckpt_every, .show = show_ckpt_every,
   .expects = "give a number of steps, or a duration: 90s, 30m, 2h",
   .help = "interval of checkpoints: N steps, or a duration, such as 90s, 30m or 2h"},
  {"ckpt-keep", 0, ZB_WHOLE, FIELD(ckpt_keep), "K", .least = 1, .most = INT32_MAX - 1, .commands = TRAIN,
   .same = ZB_SAME_VALUE, .help = "keep the K latest checkpoints, and remove older ones (default: keep all)"},
  {"ckpt-file-size", 0, ZB_SIZE, FIELD(ckpt_file_size), "S", .usual = "4G", .commands = TRAIN,
   .same = ZB_SAME_VALUE, .help = "bytes of tensors per file, with K, M or G behind the number"},
  {"ckpt-fail", 0, ZB_WORD, FIELD(ckpt_fail), "go-on|end", .usual = "go-on", .commands = TRAIN,
   .same = ZB_SAME_VALUE, .help = "whether the run goes on when a checkpoint cannot be written"},
  {"resume", 0, ZB_FLAG, FIELD(resume), .commands = TRAIN, .same = ZB_SAME_VALUE,
   .help = "continue from the latest checkpoint of --ckpt; without one, begin"},
  {"resume-from", 0, ZB_TEXT, FIELD(resume_from), "DIR", .commands = TRAIN, .same = ZB_SAME_VALUE,
   .help = "continue from that checkpoint"},
  {"resume-copy", 0, ZB_TEXTS, FIELD(resume_copy), "NEW=OLD", .commands = TRAIN, .same = ZB_SAME_VALUE,
   .help = "a parameter that the checkpoint lacks begins as its parameter OLD, with its optimizer states; may be "
           "repeated"},
  {"resume-model", 0, ZB_WORD, FIELD(resume_model), "other|same", .usual = "other", .commands = TRAIN,
   .same = ZB_SAME_VALUE,
   .help = "whether a checkpoint's model may be another one of the same parameters (another window, context, "
           "dropout: what differs is listed), or must be the same"},
  {"eval", 0, ZB_TEXT, FIELD(eval), "FILE", .commands = TRAIN, .same = ZB_SAME_PRESENCE,
   .help = "evaluate on this held-out data after the last step, without changing anything"},
  {"eval-every", 0, ZB_WHOLE, FIELD(eval_every), "N", .least = 1, .commands = TRAIN, .same = ZB_SAME_VALUE,
   .help = "evaluate after every N steps, too"},
  {"sample-every", 0, ZB_WHOLE, FIELD(sample_every), "N", .least = 1,
   .commands = TRAIN, .same = ZB_SAME_VALUE,
   .help = "let the model write after every N steps, to each --prompt, without changing anything: to the standard "
           "output, and into --log"},
  {"print-every", 0, ZB_WHOLE, FIELD(print_every), "N", .least = 1, .commands = TRAIN, .same = ZB_SAME_VALUE,
   .help = "print a line every N steps (default 1; on a terminal, one line that is kept up to date)"},
  {"quiet", 0, ZB_FLAG, FIELD(quiet), .commands = TRAIN | WRITES, .same = ZB_SAME_VALUE,
   .help = "print only notes, warnings and errors"},
  {"times", 0, ZB_FLAG, FIELD(times), .commands = TRAIN, .same = ZB_SAME_VALUE,
   .help = "print the time by operation at the end, with its share of the bound (such a run is slower on a "
           "GPU, which is synchronised after every call)"},
  {"trace", 0, ZB_TEXT, FIELD(trace), "FILE", .commands = TRAIN, .same = ZB_SAME_VALUE,
   .help = "write a timeline of some steps on every rank, for ui.perfetto.dev"},
  {"trace-steps", 0, ZB_OTHER, FIELD(trace_from), "A-B", .commands = TRAIN, .same = ZB_SAME_VALUE,
   .take = take_trace_steps, .show = show_trace_steps, .expects = "give a step, or two as 5-8",
   .help = "the steps of --trace (default: the second and third of the run)"},
  {"time-limit", 0, ZB_SECONDS, FIELD(time_limit), "D", .least = 1, .commands = TRAIN, .same = ZB_SAME_VALUE,
   .help = "stop early enough to have written everything a duration D after the start: 90s, 10m, 3h50m"},
  {"on-nan", 0, ZB_WORD, FIELD(on_nan), "end|skip", .least = ZX_ON_NAN_END, .commands = TRAIN,
   .same = ZB_SAME_VALUE,
   .help = "A step whose loss or gradients are not finite updates nothing. By default the run ends after 3 "
           "such steps in a row. end: it ends at the first; skip: it never ends for that. A step without a "
           "known target counts only with `end`"},
  {"compare-every", 0, ZB_WHOLE, FIELD(compare_every), "N", .usual = "100", .commands = TRAIN,
   .same = ZB_SAME_VALUE,
   .help = "compare replicas bit for bit after every N steps (0: never) and before every checkpoint; if they "
           "differ, the run ends without writing it"},

  {"predict", 0, ZB_TEXT, FIELD(predict), "FILE", .commands = EVAL, .same = ZB_SAME_VALUE,
   .help = "write the model's outputs, a tensor each under its name, to a safetensors file"},

  {"prompt", 0, ZB_TEXTS, FIELD(prompt), "TEXT", .commands = TRAIN, .same = ZB_SAME_VALUE,
   .help = "what the model goes on with after every --sample-every steps; may be repeated. It writes as `zrun generate` does "
           "with the same options and this --seed"},
  {"prompt", 0, ZB_TEXTS, FIELD(prompt), "TEXT", .commands = GENERATE, .shown = GENERATE,
   .help = "go on with this text; may be repeated. What is written goes to the standard output as it comes"},
  {"prompt-file", 0, ZB_TEXTS, FIELD(prompt_file), "FILE", .commands = GENERATE,
   .help = "go on with the text of this file; `-`: of the standard input; may be repeated"},
  {"prompts", 0, ZB_TEXT, FIELD(prompts), "FILE.jsonl", .commands = GENERATE,
   .help = "go on with each of many prompts, a line {\"prompt\": TEXT}, {\"messages\": [...]} or {\"tokens\": [ID, ...]} each, "
           "with fields named as the options below (`max_tokens`); results go to -o"},
  {"chat", 0, ZB_FLAG, FIELD(chat), .commands = GENERATE | TRAIN, .same = ZB_SAME_VALUE,
   .help = "prompts are messages of a user, and the model answers, by its chat template. Without a prompt it is a conversation: "
           "each line of the standard input is a message. Ctrl-C ends an answer, Ctrl-D the conversation"},
  {"system", 0, ZB_TEXT, FIELD(system), "TEXT",
   .commands = GENERATE | TRAIN, .same = ZB_SAME_VALUE,
   .help = "begin a --chat with this message of the system"},
  {NULL, 'o', ZB_TEXT, FIELD(out), "FILE.jsonl", .commands = GENERATE,
   .help = "where to write the results of --prompts, a line each and in their order. One that is there already is gone on with "
           "behind its last whole line"},
  {"tokenizer", 0, ZB_TEXT, FIELD(tokenizer), "PATH", .commands = WRITES | TRAIN, .same = ZB_SAME_PRESENCE,
   .help = "a tokenizer.json, or a folder with one (default: that of DIR, or of --init; of a graph: a token is a byte)"},
  {"chat-template", 0, ZB_TEXT, FIELD(chat_template), "FILE",
   .commands = WRITES | TRAIN, .same = ZB_SAME_PRESENCE,
   .help = "what makes texts of conversations, in Jinja (default: chat_template.jinja or tokenizer_config.json beside the "
           "tokenizer)"},
  {"max-tokens", 0, ZB_WHOLE, FIELD(query.max_tokens), "K", .most = INT32_MAX,
   .commands = GENERATE | TRAIN, .same = ZB_SAME_VALUE,
   .help = "write at most K tokens (default: 256, or as many as fit)"},
  {"min-tokens", 0, ZB_WHOLE, FIELD(query.min_tokens), "K", .usual = "0", .most = INT32_MAX, .commands = GENERATE,
   .help = "let nothing end the text before K tokens"},
  {"temperature", 0, ZB_REAL, FIELD(query.temperature), "T", .usual = "0", .most = 1e6,
   .commands = GENERATE | TRAIN, .same = ZB_SAME_VALUE,
   .help = "0: always the most likely token; 1: draw tokens as the model has them; more: more evenly"},
  {"top-k", 0, ZB_WHOLE, FIELD(query.top_k), "K", .usual = "0", .most = INT32_MAX,
   .commands = GENERATE | TRAIN, .same = ZB_SAME_VALUE,
   .help = "draw from the K most likely tokens (0: all)"},
  {"top-p", 0, ZB_REAL, FIELD(query.top_p), "P", .usual = "1", .most = 1,
   .commands = GENERATE | TRAIN, .same = ZB_SAME_VALUE,
   .help = "draw from the most likely tokens that have probability P together"},
  {"min-p", 0, ZB_REAL, FIELD(query.min_p), "P", .usual = "0", .most = 1, .commands = GENERATE,
   .help = "draw from tokens that have at least P times the probability of the most likely one"},
  {"repetition-penalty", 0, ZB_REAL, FIELD(query.repetition), "R", .usual = "1", .most = 1e6, .commands = GENERATE,
   .help = "above 1: tokens of prompt and answer become less likely"},
  {"presence-penalty", 0, ZB_REAL, FIELD(query.presence), "R", .usual = "0", .least = -2, .most = 2,
   .commands = GENERATE, .help = "take R from the logits of tokens that the answer has"},
  {"frequency-penalty", 0, ZB_REAL, FIELD(query.frequency), "R", .usual = "0", .least = -2, .most = 2,
   .commands = GENERATE, .help = "take R from them as often as it has them"},
  {"logit-bias", 0, ZB_TEXTS, FIELD(bias), "ID=B", .commands = GENERATE,
   .help = "add B to the logit of a token, -100 to 100; may be repeated"},
  {"seed", 0, ZB_WHOLE, FIELD(query.seed), "S", .commands = GENERATE,
   .help = "seed of what is drawn (default: another one for each prompt)"},
  {"stop", 0, ZB_TEXTS, FIELD(query.stop), "TEXT", .commands = GENERATE,
   .help = "end before this text; may be repeated"},
  {"stop-token-id", 0, ZB_TEXTS, FIELD(end), "ID", .commands = GENERATE,
   .help = "end at this token, as at the model's own end tokens; may be repeated"},
  {"ignore-eos", 0, ZB_FLAG, FIELD(query.ignore_end), .commands = GENERATE,
   .help = "go on behind the model's own end tokens"},
  {"json-schema", 0, ZB_TEXT, FIELD(json_schema), "FILE", .commands = GENERATE,
   .help = "write JSON that fits this JSON schema; the text ends with it"},
  {"logprobs", 0, ZB_WHOLE, FIELD(query.logprobs), "K", .most = ZX_TOP_LOGPROBS, .commands = GENERATE,
   .help = "give the model's log-probability of each token, and the K most likely ones"},
  {"echo", 0, ZB_FLAG, FIELD(query.echo), .commands = GENERATE,
   .help = "give the prompt, too, with its log-probabilities"},
  {NULL, 'n', ZB_WHOLE, FIELD(query.choices), "N", .usual = "1", .least = 1, .most = ZX_CHOICES, .commands = GENERATE,
   .help = "write N texts for each prompt"},
  {"sequences", 0, ZB_WHOLE, FIELD(sequences), "N", .least = 1, .most = 1 << 16, .commands = WRITES,
   .help = "write at most N texts at once (default: 8, fewer where there are fewer or memory is short)"},
  {"length", 0, ZB_WHOLE, FIELD(length), "L", .least = 1, .most = INT32_MAX,
   .commands = WRITES | TRAIN, .same = ZB_SAME_VALUE,
   .help = "positions of a text, prompt and answer (default: as many as the prompts need, and the model has, or the recipe binds)"},
  {"draft-tokens", 0, ZB_WHOLE, FIELD(drafts), "N", .usual = "16", .most = ZX_DRAFTS, .commands = WRITES,
   .help = "guess up to N tokens by what the text has said before, and check them in one step, where that "
           "is faster; the same is written"},
  {"precision", 0, ZB_WORD, FIELD(precision), "f32|bf16", .least = ZX_IN_F32, .commands = WRITES,
   .help = "compute in this type (default: bf16 if the weights of DIR are, else f32)"},
  {"weights", 0, ZB_WORD, FIELD(weights), ZL_PACKED_FORMATS, .least = 1, .commands = WRITES,
   .help = "store the weights of products in 8 or 4 bits (default: as they are computed with)"},
  {"group", 0, ZB_WHOLE, FIELD(group), "G", .usual = "64", .least = 32, .most = 128, .commands = WRITES,
   .help = "of --weights: so many weights share a scale: 32, 64 or 128"},

  {"port", 0, ZB_WHOLE, FIELD(port), "P", .usual = "8080", .most = 65535, .commands = SERVE, .shown = SERVE,
   .help = "where to listen; 0: on any port that is free, which is printed"},
  {"host", 0, ZB_TEXT, FIELD(host), "ADDRESS", .usual = "127.0.0.1", .commands = SERVE,
   .help = "the address to listen at. Others than this machine's own (127.0.0.1, ::1) need --api-key-file or --open"},
  {"api-key-file", 0, ZB_TEXT, FIELD(key_file), "FILE", .commands = SERVE, .same = ZB_SAME_PRESENCE,
   .help = "lines of keys; clients must send one: Authorization: Bearer KEY, or x-api-key: KEY"},
  {"open", 0, ZB_FLAG, FIELD(open), .commands = SERVE, .help = "let anybody who reaches --host ask, without a key"},
  {"name", 0, ZB_TEXT, FIELD(name), "NAME", .commands = SERVE,
   .help = "what clients call the model (default: the name of DIR or GRAPH)"},
  {"queue", 0, ZB_WHOLE, FIELD(queue), "N", .usual = "512", .least = 1, .most = 1 << 16, .commands = SERVE,
   .help = "requests that may be under way or wait; others are told to come again (429)"},
  {"request-limit", 0, ZB_SECONDS, FIELD(request_limit), "D", .usual = "1h", .commands = SERVE,
   .help = "end a request that takes longer (0s: none)"},
  {"grace", 0, ZB_SECONDS, FIELD(grace), "D", .usual = "30s", .commands = SERVE,
   .help = "at SIGTERM let requests under way go on for so long"},

  {NULL, 'o', ZB_TEXT, FIELD(out), "FILE.zug", .commands = CALIBRATE, .needed = CALIBRATE,
   .same = ZB_SAME_VALUE, .help = "where to write the cluster"},

  {"threads", 0, ZB_WHOLE, FIELD(threads), "T", .least = 1, .most = MOST_THREADS, .same = ZB_SAME_VALUE,
   .help = "threads of each rank (default: 1; of generate and serve on one rank, as many as it has CPUs)"},
  {"device", 0, ZB_TEXT, FIELD(device_name), "WORD", .usual = "auto", .same = ZB_SAME_VALUE,
   .show = show_device, .help = "where to compute: cpu, cuda, or auto, the fastest device that is there"},
  {"hang-after", 0, ZB_SECONDS, FIELD(hang_after), "D", .usual = "10m", .same = ZB_SAME_VALUE,
   .help = "end the run, with all ranks, when a rank has made no progress for so long (0s: never). At the "
           "start and at the end a rank has six times as long, but not more than 10m, unless D is longer"},
};
/* clang-format on */

/* Suggests what replaces an option of another framework: an option of zrun, or a directive of the recipe. */
static void hint(const char *option, ZbErr *err) {
  static const struct {
    const char *word, *help;
  } rows[] = {
#define OPTION(word, help) {word, help},
#include "runtime/exec/elsewhere.def"
  };
  char word[64];
  size_t n = strcspn(option, "=");
  if (strncmp(option, "--", 2) || n - 2 >= sizeof word) return;
  snprintf(word, sizeof word, "%.*s", (int)n - 2, option + 2);
  const char *recipe = zl_said_elsewhere(word);
  if (recipe) snprintf(err->help, sizeof err->help, "the recipe says it: `%s`", recipe);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (zl_same_word(rows[i].word, word)) snprintf(err->help, sizeof err->help, "%s", rows[i].help);
}

static const ZbNote codes[] = {
    {"0", "done"},        {"2", "wrong options or inputs"},
    {"69", "hung"},       {"75", "stopped before the last step or prompt, to be started again"},
    {"others", "failed"}, {NULL, NULL},
};
static const ZbNote examples[] = {
    {"zrun train gpt2.zsg --recipe recipes.zug:demo1 --data corpus.bin --steps 400 --log log",
     "train on one rank"},
    {"mpirun -np 8 zrun train gpt2.zsg --recipe recipes.zug:demo --data corpus.bin --steps 400 --ckpt "
     "checkpoints --resume",
     "on eight, with checkpoints, from the newest if there is one"},
    {"zrun generate gpt2.zsg --init weights.safetensors --prompt \"Once upon a time\"", "let it write"},
    {"zrun serve Qwen3-0.6B --port 8080", "let clients of OpenAI's API use a model"},
    {"mpirun -np 8 zrun calibrate -o here.zug", "measure this machine"},
    {NULL, NULL},
};
static const ZbNote files[] = {
    {"*.zsg", "stage graphs that zc made"},
    {"*.zug", "recipes and clusters"},
    {"*.bin", "data that zdata made"},
    {"DIR/metrics.jsonl", "of --log DIR: a JSON object a step, which zlog reads"},
    {"DIR/step-*", "of --ckpt DIR: checkpoints, which zckpt reads"},
    {NULL, NULL},
};

const ZbProgram zx_program = {
    .name = "zrun",
    .what = "train, evaluate, generate and serve with a stage graph on many ranks",
    ZB_TABLES(commands, options),
    .hint = hint,
    .notes =
        "This starts one rank; `mpirun -np N zrun ...` starts N.\n"
        "SIGTERM, SIGUSR1 and Ctrl-C stop a run after the current step; a second Ctrl-C ends it at once.",
    .codes = codes,
    .examples = examples,
    .files = files,
};

/* ---- reading --------------------------------------------------------------------------------------------- */
static bool find_device(ZxOptions *o, ZbErr *err) {
  o->device = (o->dry_run ? zx_device_to_plan : zx_device)(o->device_name, &o->device_note);
  if (o->device) return true;
  if (*o->device_note.text) return zb_fail(err, o->device_note.help, "--device: %s", o->device_note.text);
  return zb_fail(err, "give auto, cpu or cuda", "--device cannot be '%s'", zb_show(o->device_name));
}

/* Says if it is said to what or how a model writes. */
static bool says_how_to_write(const ZxOptions *o) {
  const ZxQuery *q = &o->query;
  return o->prompt.n || o->tokenizer || o->chat || o->system || o->chat_template || o->length ||
         q->max_tokens != ZX_UNSAID || q->temperature > 0 || q->top_k || q->top_p < 1;
}

/* Checks what options need of each other. */
static bool check_options(const ZxOptions *o, ZbErr *err) {
  bool plays = !o->dry_run && (o->command == ZX_TRAIN || o->command == ZX_EVAL),
       trains = o->command == ZX_TRAIN;
  const struct {
    bool missing;
    const char *what;
  } rows[] = {
      {plays && o->steps && !o->data, "--data FILE"},
      {plays && o->evaluates && !o->init, "--init FILE, the weights to evaluate"},
      {plays && trains && o->steps < 0, "--steps K"},
      {o->resume && !o->ckpt, "--ckpt DIR, the folder to --resume from"},
      {o->new_tokens && !o->init, "--init FILE, which lacks words for --new-tokens"},
      {o->init_partial && !o->init, "--init FILE, which --init-partial completes"},
      {plays && o->adapter.n && !o->names, "--init DIR --names MAP, the weights that --adapter is of"},
      {o->names && !o->init, "--init FILE, the weights with these --names"},
      {trains && o->sample_every && !o->prompt.n, "--prompt TEXT, which --sample-every goes on with"},
      {trains && !o->sample_every && says_how_to_write(o),
       "--sample-every N, the steps after which the model writes"},
      {trains && !o->eval && (o->eval_every || o->eval_batches), "--eval FILE"},
      {o->trace_to && !o->trace, "--trace FILE"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (rows[i].missing)
      return zb_fail(err, "zrun --help shows all commands and options", "zrun %s needs %s",
                     commands[o->command].name, rows[i].what);
  if (o->weights && o->recipe)
    return zb_fail(err, "write `precision weights` there, or leave --recipe out",
                   "--weights is of runs without a recipe, which says itself how weights are stored");
  return true;
}

static bool check_chat(const ZxOptions *o, bool prompts, ZbErr *err) {
  const ZxQuery *q = &o->query;
  if (o->system && !o->chat) return zb_fail(err, "give --chat, too", "--system begins a conversation");
  if (o->chat && o->prompts)
    return zb_fail(
        err, "write {\"messages\": [{\"role\": \"user\", \"content\": \"...\"}]} there",
        "--chat is for --prompt and the standard input; lines of --prompts say themselves what they are");
  if (!o->chat || prompts || (q->choices == 1 && !q->echo && q->logprobs == ZX_UNSAID)) return true;
  return zb_fail(err, "give --prompt, too, or leave it out", "%s is not for a conversation",
                 q->choices > 1 ? "-n"
                 : q->echo      ? "--echo"
                                : "--logprobs");
}

/* Checks what a run that generates is asked, and takes what is several options' together. */
static bool check_query(ZbArena *a, ZxOptions *o, ZbErr *err) {
  bool some = o->prompt.n || o->prompt_file.n;
  const char *help = "zrun --help shows all commands and options";
  for (uint32_t i = 0; i < o->end.n; i++)
    if (!zx_query_add_end(&o->query, a, o->end.s[i]))
      return zb_fail(err, "give the id of a token", "--stop-token-id cannot be '%s'", zb_show(o->end.s[i]));
  for (uint32_t i = 0; i < o->bias.n; i++)
    if (!zx_query_add_bias(&o->query, a, o->bias.s[i]))
      return zb_fail(err, "give ID=NUMBER, the number from -100 to 100", "--logit-bias cannot be '%s'",
                     zb_show(o->bias.s[i]));
  if (!check_chat(o, some, err)) return false;
  if (some && o->prompts)
    return zb_fail(err, "give one of them", "zrun generate takes --prompts, or --prompt and --prompt-file");
  if (!some && !o->prompts && !o->chat && !o->dry_run)
    return zb_fail(err, help,
                   "zrun generate needs --prompt TEXT, --prompt-file FILE, --prompts FILE or --chat");
  if (!o->prompts != !o->out)
    return zb_fail(err, help,
                   o->out ? "-o is for the results of --prompts FILE"
                          : "--prompts needs -o FILE, where the results go");
  if (o->out && zb_same_file(o->out, o->prompts))
    return zb_fail(err, "give another file", "-o %s would write into the --prompts", zb_show(o->out));
  return zx_query_check(&o->query, err);
}

/* Checks that nobody from outside can ask without a key, unless that is wanted. */
static bool check_server(const ZxOptions *o, ZbErr *err) {
  bool own = !strcmp(o->host, "localhost") || !strncmp(o->host, "127.", 4) || !strcmp(o->host, "::1");
  if (o->open && o->key_file)
    return zb_fail(err, "give one of them", "--open and --api-key-file contradict each other");
  return own || o->open || o->key_file ||
         zb_fail(err, "give --api-key-file FILE, or --open if anybody may ask",
                 "--host %s can be reached from outside", zb_show(o->host));
}

/* Returns how many threads a rank has if nobody says it. A rank that writes alone takes all CPUs that it may use. */
static int usual_threads(const ZxOptions *o) {
  uint32_t cpus = zb_cpus().n;
  if (!(1 << o->command & WRITES) || !zx_launch().alone) return 1;
  return cpus < MOST_THREADS ? (int)cpus : MOST_THREADS;
}

bool zx_parse_options(ZbArena *a, int argc, char *const *argv, ZxOptions *o, ZbErr *err) {
  ZbArgs args;
  *o = (ZxOptions){.steps = -1};
  o->query.max_tokens = o->query.logprobs = o->query.seed = ZX_UNSAID;
  if (!zb_parse(&zx_program, a, argc, argv, o, &args, err)) return false;
  o->command = (ZxCommand)args.command;
  o->evaluates = o->command == ZX_EVAL;
  o->graph = args.operand[0];
  if (!o->threads) o->threads = usual_threads(o);
  if (o->command == ZX_TRAIN) o->query.seed = (int64_t)o->seed;
  return find_device(o, err) && check_options(o, err) &&
         (o->command != ZX_GENERATE || check_query(a, o, err)) &&
         (!o->sample_every || (check_chat(o, true, err) && zx_query_check(&o->query, err))) &&
         (o->command != ZX_SERVE || check_server(o, err));
}

static void add_fact(void *ctx, const char *name, const char *value) {
  zx_fact(ctx, ZX_OPTIONS, name, "%s", value);
}

void zx_option_facts(ZxFacts *f, const ZxOptions *o) {
  add_fact(f, "the command", commands[o->command].name);
  zb_options_list(&zx_program, f->a, o, add_fact, f);
}

double zx_hang_after(int argc, char *const *argv) {
  double limit;
  if (!zb_duration(zb_option_given(&zx_program, "hang-after", argc, argv), &limit))
    zb_duration(zb_option_named(&zx_program, "hang-after")->usual, &limit);
  return limit;
}

bool zx_auto_cluster(const ZxOptions *o) { return o->cluster && !strcmp(o->cluster, "auto"); }
