/* zckpt: looks at the checkpoints of zrun. */
#include "runtime/exec/ckpt/zckpt.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "zckpt: look at the checkpoints that zrun --ckpt writes\n"
    "\n"
    "  zckpt list DIR                        which there are in the folder that --ckpt was given, the oldest "
    "first\n"
    "  zckpt show CKPT [--tensors]           what is in DIR/step-00000400: step, data, recipe, files, and "
    "with "
    "--tensors\n"
    "                                        each parameter\n"
    "  zckpt verify CKPT                     read all of it, and say everything that is not as it was "
    "written\n"
    "  zckpt diff CKPT CKPT [--top N] [--states]\n"
    "                                        the parameters that differ most (default: 10), and with "
    "--states the\n"
    "                                        optimizer's states; by the norm of the difference over that of "
    "the "
    "first\n"
    "  zckpt weights CKPT -o OUT [--average] the parameters alone, as one safetensors file for zrun --init; "
    "with "
    "--average\n"
    "                                        what `average` in the recipe made of them\n"
    "  zckpt export CKPT --names MAP -o DIR  the parameters as a folder for other programs: safetensors "
    "files, "
    "config.json,\n"
    "                                        under the names that `weights MAP for` the model gives. CKPT "
    "may "
    "be a\n"
    "                                        safetensors file\n"
    "    --graph G.zsg                       the model (default: what the command of the checkpoint's run "
    "names)\n"
    "    --dtype f32|bf16|f16                of the values (default f32)\n"
    "    --like SRC                          what else SRC's config.json says, and its tokenizer's files\n"
    "    --shard-size S                      bytes of tensors in a file, with K, M, G behind the number "
    "(default 5G)\n"
    "    --force                             an export that is there already is replaced\n"
    "  zckpt --version\n"
    "\n"
    "Exit code 0; 1 where `diff` finds a difference; 2 for an error. An OUT that exists is replaced only if "
    "it is a\n"
    "safetensors file, and only when the new one is complete.\n";

static const char see[] = "zckpt --help shows all commands and options";

enum {
  OUT = 'o',
  HELP = 'h',
  TOP = 256,
  AVERAGE,
  STATES,
  TENSORS,
  NAMES,
  GRAPH,
  LIKE,
  DTYPE,
  SHARD_SIZE,
  FORCE
};
static const struct option longs[] = {{"output", 1, NULL, OUT},
                                      {"help", 0, NULL, HELP},
                                      {"top", 1, NULL, TOP},
                                      {"states", 0, NULL, STATES},
                                      {"tensors", 0, NULL, TENSORS},
                                      {"names", 1, NULL, NAMES},
                                      {"graph", 1, NULL, GRAPH},
                                      {"like", 1, NULL, LIKE},
                                      {"dtype", 1, NULL, DTYPE},
                                      {"shard-size", 1, NULL, SHARD_SIZE},
                                      {"force", 0, NULL, FORCE},
                                      {"average", 0, NULL, AVERAGE},
                                      {0}};

static const struct {
  const char *name;
  ZsEnd (*run)(const ZsOptions *, ZbArena *, ZbErr *);
  int folders;
  int takes[7]; /* options; -o comes first, and has to be given */
} commands[] = {
    {"list", zs_list, 1, {0}},
    {"show", zs_show, 1, {TENSORS}},
    {"verify", zs_verify, 1, {0}},
    {"diff", zs_diff, 2, {TOP, STATES}},
    {"weights", zs_weights, 1, {OUT, AVERAGE}},
    {"export", zs_export, 1, {OUT, NAMES, GRAPH, LIKE, DTYPE, SHARD_SIZE, FORCE}},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static bool take_dtype(const char *text, ZxAs *as, ZbErr *err) {
  static const char *const types[] = {[ZX_AS_F32] = "f32", [ZX_AS_BF16] = "bf16", [ZX_AS_F16] = "f16"};
  for (*as = ZX_AS_F32; *as <= ZX_AS_F16; ++*as)
    if (!strcmp(text, types[*as])) return true;
  return zb_fail(err, "it is f32, bf16 or f16", "--dtype cannot be '%s'", zb_show(text));
}

static bool take_option(int c, size_t command, ZsOptions *o, ZbErr *err) {
  const char *option = "";
  char *end;
  for (int i = 0; longs[i].name; i++)
    if (longs[i].val == c) option = longs[i].name;
  bool takes = false;
  for (size_t i = 0; i < sizeof commands->takes / sizeof *commands->takes; i++)
    takes |= c == commands[command].takes[i];
  if (!takes) return zb_fail(err, see, "zckpt %s takes no option --%s", commands[command].name, option);
  switch (c) {
  case OUT: o->out = optarg; break;
  case STATES: o->states = true; break;
  case AVERAGE: o->average = true; break;
  case TENSORS: o->tensors = true; break;
  case NAMES: o->names = optarg; break;
  case GRAPH: o->graph = optarg; break;
  case LIKE: o->like = optarg; break;
  case FORCE: o->force = true; break;
  case DTYPE: return take_dtype(optarg, &o->as, err);
  case SHARD_SIZE:
    if (!zb_size(optarg, &o->shard_size))
      return zb_fail(err, "--shard-size 5G, say", "--shard-size cannot be '%s'", zb_show(optarg));
    break;
  default:
    errno = 0;
    o->top = strtoll(optarg, &end, 10);
    if (errno || end == optarg || *end || o->top < 0)
      return zb_fail(err, "--top 20, say", "--top cannot be '%s'", zb_show(optarg));
  }
  return true;
}

static bool parse_command(int argc, char **argv, size_t *command, ZsOptions *o, ZbErr *err) {
  const char *names[COMMANDS];
  size_t k = 0;
  for (size_t i = 0; i < COMMANDS; i++) names[i] = commands[i].name;
  while (k < COMMANDS && strcmp(names[k], argv[1])) k++;
  if (k == COMMANDS) {
    const char *near = zb_nearest(argv[1], names, COMMANDS);
    char help[64];
    snprintf(help, sizeof help, "did you mean '%s'?", near ? near : "");
    return zb_fail(err, near ? help : see, "zckpt has no command '%s'", zb_show(argv[1]));
  }
  *command = k;
  opterr = 0;
  optind = 2;
  for (int c; (c = getopt_long(argc, argv, ":o:h", longs, NULL)) != -1;) {
    if (c == ':' || c == '?') return zb_option_failed(c, argv, longs, err);
    if (!take_option(c, k, o, err)) return false;
  }
  for (; optind < argc; optind++) {
    if (o->npath == commands[k].folders)
      return zb_fail(err, see, "zckpt %s takes %d folder%s", names[k], o->npath, o->npath == 1 ? "" : "s");
    o->path[o->npath++] = argv[optind];
  }
  if (o->npath < commands[k].folders)
    return zb_fail(err, see, "zckpt %s needs %d folder%s", names[k], commands[k].folders,
                   commands[k].folders == 1 ? "" : "s");
  if (!o->out && commands[k].takes[0] == OUT) return zb_fail(err, see, "zckpt %s needs -o OUT", names[k]);
  return o->names || commands[k].takes[1] != NAMES ||
         zb_fail(err, see, "zckpt %s needs --names MAP", names[k]);
}

int main(int argc, char **argv) {
  zb_begin();
  if (argc < 2) return fputs(usage, stderr), 2;
  ZbArena *a = zb_arena_new();
  ZbErr err = {0};
  ZsOptions o = {.top = 10, .shard_size = 5000000000};
  ZsEnd end = ZS_OK;
  size_t command = 0;
  if (zb_asks_help(argc, argv)) fputs(usage, stdout);
  else if (zb_tells_version(argc, argv, "zckpt")) end = 0;
  else if (!parse_command(argc, argv, &command, &o, &err)) end = ZS_FAILED;
  else end = commands[command].run(&o, a, &err);
  if (end != ZS_FAILED && !zb_close_stdout(&err)) end = ZS_FAILED;
  fflush(stdout);
  if (end == ZS_FAILED) fprintf(stderr, "zckpt: error: %s\n", err.text);
  if (end == ZS_FAILED && err.help[0]) fprintf(stderr, "help: %s\n", err.help);
  zb_arena_free(a);
  return end;
}
