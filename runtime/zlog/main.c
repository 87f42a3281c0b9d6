/* zlog: draws, compares and follows runs. */
#include "runtime/zlog/zlog.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "zlog: look at the metrics that zrun --log DIR writes\n"
    "\n"
    "  zlog plot DIR... -o OUT [options]   draw runs: OUT is a picture.svg, or a page.html of its own to "
    "zoom in\n"
    "      --y KEY          which number of metrics.jsonl (default: loss); that of evaluations is drawn with "
    "it\n"
    "      --x WORD         against what: steps (default), tokens, hours (of steps and evaluations)\n"
    "      --smooth W       weight of what was before, 0 to 0.9999 (default 0: as it is); 0.9, say\n"
    "      --log            a log scale for y\n"
    "  zlog compare A B [--tolerance T]    where two runs part, and by how much: loss, gradient norm, rate\n"
    "                       T: how far apart, of the larger, is the same (default 0)\n"
    "  zlog tail DIR [-n N] [--once]       the last N lines (default 10), and those that come, until Ctrl-C; "
    "with --once "
    "no\n"
    "                       more come\n"
    "  zlog --version\n"
    "\n"
    "DIR may be a metrics.jsonl, too. Exit code 0; 1 where `compare` finds a difference; 2 for an error. An "
    "OUT that\n"
    "exists is replaced only if it is a picture or a page.\n";

static const char see[] = "zlog --help shows all commands and options";

enum { OUT = 'o', LINES = 'n', HELP = 'h', Y = 256, X, SMOOTH, LOG, TOLERANCE, ONCE };
static const struct option longs[] = {{"output", 1, NULL, OUT},
                                      {"lines", 1, NULL, LINES},
                                      {"help", 0, NULL, HELP},
                                      {"y", 1, NULL, Y},
                                      {"x", 1, NULL, X},
                                      {"smooth", 1, NULL, SMOOTH},
                                      {"log", 0, NULL, LOG},
                                      {"once", 0, NULL, ONCE},
                                      {"tolerance", 1, NULL, TOLERANCE},
                                      {0}};

static const struct {
  const char *name;
  ZvEnd (*run)(const ZvOptions *, ZbArena *, ZbErr *);
  size_t least, most; /* folders */
  int takes[5];       /* options */
} commands[] = {
    {"plot", zv_plot, 1, SIZE_MAX, {OUT, Y, X, SMOOTH, LOG}},
    {"compare", zv_compare, 2, 2, {TOLERANCE}},
    {"tail", zv_tail, 1, 1, {LINES, ONCE}},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static bool number(const char *name, double least, double most, double *out, ZbErr *err) {
  char *end;
  double x = strtod(optarg, &end);
  if (end == optarg || *end || !(x >= least && x <= most))
    return zb_fail(err, see, "--%s cannot be '%s'", name, zb_show(optarg));
  *out = x;
  return true;
}

static bool axis(ZvX *x, ZbErr *err) {
  static const char *const words[] = {"steps", "tokens", "hours"};
  for (int i = 0; i < 3; i++)
    if (!strcmp(words[i], optarg)) return *x = (ZvX)i, true;
  return zb_fail(err, "steps, tokens or hours", "--x cannot be '%s'", zb_show(optarg));
}

static bool take_option(int c, size_t command, ZvOptions *o, ZbErr *err) {
  const char *name = "";
  bool taken = false;
  double n = 0;
  for (int i = 0; longs[i].name; i++)
    if (longs[i].val == c) name = longs[i].name;
  for (int i = 0; i < 5; i++) taken |= commands[command].takes[i] == c;
  if (!taken) return zb_fail(err, see, "zlog %s takes no option --%s", commands[command].name, name);
  switch (c) {
  case OUT: o->out = optarg; return true;
  case Y: o->y = optarg; return true;
  case X: return axis(&o->x, err);
  case SMOOTH: return number(name, 0, 0.9999, &o->smooth, err);
  case TOLERANCE: return number(name, 0, 1, &o->tolerance, err);
  case LOG: return o->log = true;
  case ONCE: return o->once = true;
  default:
    if (!number(name, 0, 1e15, &n, err) || n != floor(n))
      return zb_fail(err, see, "--%s cannot be '%s'", name, zb_show(optarg));
    o->lines = (int64_t)n;
    return true;
  }
}

static bool parse_command(int argc, char **argv, ZbArena *a, size_t *command, ZvOptions *o, ZbErr *err) {
  const char *names[COMMANDS];
  size_t k = 0;
  for (size_t i = 0; i < COMMANDS; i++) names[i] = commands[i].name;
  while (k < COMMANDS && strcmp(names[k], argv[1])) k++;
  if (k == COMMANDS) {
    const char *near = zb_nearest(argv[1], names, COMMANDS);
    return zb_fail(err, near ? zb_printf(a, "did you mean '%s'?", near) : see, "zlog has no command '%s'",
                   zb_show(argv[1]));
  }
  *command = k;
  opterr = 0;
  optind = 2;
  for (int c; (c = getopt_long(argc, argv, ":o:n:h", longs, NULL)) != -1;) {
    if (c == ':' || c == '?') return zb_option_failed(c, argv, longs, err);
    if (!take_option(c, k, o, err)) return false;
  }
  o->dir = ZB_NEWN(a, const char *, argc);
  while (optind < argc) o->dir[o->ndir++] = argv[optind++];
  if (o->ndir < commands[k].least || o->ndir > commands[k].most)
    return zb_fail(err, see, "zlog %s takes %s", names[k],
                   k == 0   ? "the folders of runs"
                   : k == 1 ? "two folders"
                            : "one folder");
  return o->out || k != 0 || zb_fail(err, see, "zlog plot needs -o OUT");
}

int main(int argc, char **argv) {
  zb_begin();
  if (argc < 2) return fputs(usage, stderr), 2;
  ZbArena *a = zb_arena_new();
  ZbErr err = {0};
  ZvOptions o = {.y = "loss", .lines = 10};
  ZvEnd end = ZV_DONE;
  size_t command = 0;
  if (zb_asks_help(argc, argv)) fputs(usage, stdout);
  else if (zb_tells_version(argc, argv, "zlog")) end = 0;
  else if (!parse_command(argc, argv, a, &command, &o, &err)) end = ZV_FAILED;
  else end = commands[command].run(&o, a, &err);
  if (end != ZV_FAILED && !zb_close_stdout(&err)) end = ZV_FAILED;
  fflush(stdout);
  if (end == ZV_FAILED) fprintf(stderr, "zlog: error: %s\n", err.text);
  if (end == ZV_FAILED && err.help[0]) fprintf(stderr, "help: %s\n", err.help);
  zb_arena_free(a);
  return (int)end;
}
