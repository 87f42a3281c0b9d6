/* zlog: draws, compares and follows runs. */
#include "runtime/zlog/zlog.h"
#include "base/options.h"

enum { PLOT, COMPARE, TAIL };
/* clang-format off */
static const ZbCommand commands[] = {
  [PLOT] = {"plot", "DIR...", 1, ZB_ANY_NUMBER, "draw runs, as a picture.svg or as a page.html to zoom in"},
  [COMPARE] = {"compare", "DIR DIR", 2, 2,
   "where two runs diverge, and by how much: loss, gradient norm, learning rate"},
  [TAIL] = {"tail", "DIR", 1, 1, "print the last lines, and new ones as they come, until Ctrl-C"},
};
#define FIELD(f) ZB_AT(ZvOptions, f)
#define ON(command) .commands = 1 << command
static const ZbOption options[] = {
  {"output", 'o', ZB_TEXT, FIELD(out), "OUT", ON(PLOT), .needed = 1 << PLOT,
   .help = "picture.svg or page.html. An existing file is replaced only if it is a picture or a page"},
  {"y", 0, ZB_TEXT, FIELD(y), "KEY", ON(PLOT), .usual = "loss",
   .help = "which number of metrics.jsonl to draw; its values in evaluations are drawn, too"},
  {"x", 0, ZB_WORD, FIELD(x), "steps|tokens|hours", ON(PLOT), .usual = "steps",
   .help = "horizontal axis; hours: of steps and evaluations"},
  {"smooth", 0, ZB_REAL, FIELD(smooth), "W", ON(PLOT), .usual = "0", .most = 0.9999,
   .help = "exponential smoothing: weight of the past, 0 to 0.9999; 0.9, say"},
  {"log", 0, ZB_FLAG, FIELD(log), ON(PLOT), .help = "logarithmic y axis"},
  {"tolerance", 0, ZB_REAL, FIELD(tolerance), "T", ON(COMPARE), .usual = "0", .most = 1,
   .help = "relative difference up to which values count as equal"},
  {"lines", 'n', ZB_WHOLE, FIELD(lines), "N", ON(TAIL), .usual = "10", .most = 1e15,
   .help = "begin with the last N lines"},
  {"once", 0, ZB_FLAG, FIELD(once), ON(TAIL), .help = "do not wait for new lines"},
};
static const ZbNote codes[] = {
  {"0", "done"},
  {"1", "`compare` found a difference"},
  {"2", "an error"},
  {NULL, NULL},
};
static const ZbNote examples[] = {
  {"zlog plot log -o loss.svg", "a picture of the loss"},
  {"zlog plot runs/* -o loss.html --smooth 0.9 --x tokens", "several runs, to zoom in"},
  {"zlog compare one eight --tolerance 1e-5", "where two runs part, if they do"},
  {"zlog tail log", "lines of a run as they come"},
  {NULL, NULL},
};
static const ZbNote files[] = {
  {"DIR/metrics.jsonl", "what zrun --log DIR writes: a JSON object a line"},
  {"*.svg, *.html", "pictures and pages of plot, light or dark as the reader's machine is"},
  {NULL, NULL},
};
static const ZbProgram program = {
  .name = "zlog", .what = "draw, compare and follow runs, by the metrics that zrun --log DIR writes",
  ZB_TABLES(commands, options),
  .notes = "DIR may be a metrics.jsonl, too.", .codes = codes, .examples = examples, .files = files,
};
/* clang-format on */
static ZvEnd (*const run[])(const ZvOptions *, ZbArena *, ZbErr *) = {zv_plot, zv_compare, zv_tail};

static int run_command(void *options, const ZbArgs *args, ZbArena *a, ZbErr *err) {
  ZvOptions *o = options;
  o->dir = args->operand;
  o->ndir = args->noperands;
  return (int)run[args->command](o, a, err);
}

int main(int argc, char **argv) { return zb_main(&program, argc, argv, &(ZvOptions){0}, run_command); }
