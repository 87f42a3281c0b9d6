/* zckpt: looks at the checkpoints of zrun. */
#include "runtime/exec/ckpt/zckpt.h"
#include "base/options.h"

enum { LIST, SHOW, VERIFY, DIFF, WEIGHTS, EXPORT };
/* clang-format off */
static const ZbCommand commands[] = {
  [LIST] = {"list", "DIR", 1, 1, "list the checkpoints in DIR, the folder of --ckpt, oldest first"},
  [SHOW] = {"show", "CKPT", 1, 1, "contents of a checkpoint, DIR/step-00000400: step, data, recipe, files"},
  [VERIFY] = {"verify", "CKPT", 1, 1,
   "read everything, and report everything that has changed since it was written"},
  [DIFF] = {"diff", "CKPT CKPT", 2, 2,
   "list the parameters that differ most, by the norm of the difference over that of the first"},
  [WEIGHTS] = {"weights", "CKPT", 1, 1,
   "write the parameters alone, as one safetensors file for zrun --init"},
  [EXPORT] = {"export", "CKPT", 1, 1,
   "write the parameters as a folder for other programs: safetensors files and config.json, with the names "
   "that `weights MAP for` the model gives. CKPT may be a safetensors file"},
};
#define FIELD(f) ZB_AT(ZsOptions, f)
#define ON(command) .commands = 1 << command
static const ZbOption options[] = {
  {"tensors", 0, ZB_FLAG, FIELD(tensors), ON(SHOW), .help = "list each parameter, too"},
  {"top", 0, ZB_WHOLE, FIELD(top), "N", ON(DIFF), .usual = "10", .help = "list the first N"},
  {"states", 0, ZB_FLAG, FIELD(states), ON(DIFF), .help = "compare the optimizer's states, too"},
  {"average", 0, ZB_FLAG, FIELD(average), ON(WEIGHTS),
   .help = "write the averages that `average` in the recipe made"},
  {"output", 'o', ZB_TEXT, FIELD(out), "OUT", ON(WEIGHTS) | 1 << EXPORT, .needed = 1 << WEIGHTS | 1 << EXPORT,
   .help = "the file, or the folder of an export. An existing file is replaced if it is a safetensors file, "
           "when the new one is complete"},
  {"names", 0, ZB_TEXT, FIELD(names), "MAP", ON(EXPORT), .needed = 1 << EXPORT,
   .help = "which `weights MAP for` the model"},
  {"graph", 0, ZB_TEXT, FIELD(graph), "G.zsg", ON(EXPORT),
   .help = "the model (default: the one that the checkpoint's run names)"},
  {"dtype", 0, ZB_WORD, FIELD(dtype), "f32|bf16|f16", ON(EXPORT), .usual = "f32",
   .help = "type of the values"},
  {"weights", 0, ZB_WORD, FIELD(weights), "int8|int4", ON(EXPORT), .least = 1,
   .help = "write matrices of products in 8 or 4 bits, as compressed-tensors, which vLLM reads; scales are in --dtype"},
  {"group", 0, ZB_WHOLE, FIELD(group), "G", ON(EXPORT), .usual = "128", .least = 32, .most = 128,
   .help = "of --weights: so many weights of a row share a scale: 32, 64 or 128"},
  {"like", 0, ZB_TEXT, FIELD(like), "SRC", ON(EXPORT),
   .help = "copy the rest of SRC's config.json, and its tokenizer's files"},
  {"shard-size", 0, ZB_SIZE, FIELD(shard_size), "S", ON(EXPORT), .usual = "5G",
   .help = "bytes of tensors per file, with K, M or G behind the number"},
  {"merge", 0, ZB_FLAG, FIELD(merge), ON(EXPORT),
   .help = "of a model with adapters: add them to its matrices, and write the whole model (default: write the adapters "
           "alone, for peft)"},
  {"force", 0, ZB_FLAG, FIELD(force), ON(EXPORT), .help = "replace an existing export"},
};
static const ZbNote codes[] = {
  {"0", "done"},
  {"1", "`diff` found a difference"},
  {"2", "an error"},
  {NULL, NULL},
};
static const ZbNote examples[] = {
  {"zckpt list checkpoints", "what there is, oldest first"},
  {"zckpt verify checkpoints/step-00000400", "whether it is as it was written"},
  {"zckpt weights checkpoints/step-00000400 -o weights.safetensors", "the parameters alone"},
  {"zckpt export checkpoints/step-00000400 -o folder --names hf --like DIR", "a folder for transformers"},
  {NULL, NULL},
};
static const ZbNote files[] = {
  {"DIR/step-*", "the checkpoints of zrun --ckpt DIR, a folder each"},
  {"*.safetensors", "parameters, for zrun --init and for other programs"},
  {NULL, NULL},
};
static const ZbProgram program = {
  .name = "zckpt", .what = "look at checkpoints of zrun --ckpt, and hand weights to other programs",
  ZB_TABLES(commands, options),
  .codes = codes, .examples = examples, .files = files,
};
/* clang-format on */
static ZsEnd (*const run[])(const ZsOptions *, ZbArena *,
                            ZbErr *) = {[LIST] = zs_list, [SHOW] = zs_show,       [VERIFY] = zs_verify,
                                        [DIFF] = zs_diff, [WEIGHTS] = zs_weights, [EXPORT] = zs_export};

static int run_command(void *options, const ZbArgs *args, ZbArena *a, ZbErr *err) {
  ZsOptions *o = options;
  o->path = args->operand;
  return (int)run[args->command](o, a, err);
}

int main(int argc, char **argv) { return zb_main(&program, argc, argv, &(ZsOptions){0}, run_command); }
