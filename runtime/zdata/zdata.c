/* zdata: makes and shows token and record files: which command, and its options. */
#include "runtime/zdata/zdata.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "zdata: make and inspect the files that zrun trains from\n"
    "\n"
    "  zdata pack PATH... -o OUT                 text as tokens, one a byte; folders are walked in the order "
    "of\n"
    "                                            names, hidden files, links and files that are no text left "
    "out\n"
    "  zdata pack FILE... --tokens u16 -o OUT    token files as they are: u16 or u32, little-endian; the "
    "largest\n"
    "      [--vocab N]                           value means \"unknown\". N: ids must be below it\n"
    "  zdata records FILE... -o OUT --field NAME:TYPE:VALUES ...\n"
    "                                            fixed-size records as they are, fields in this order;\n"
    "                                            TYPE: u8, u16, u32, i32, f32\n"
    "  zdata table FILE.csv -o OUT --label COLUMN [--field NAME] [--label-field NAME]\n"
    "                                            a row a record: numbers as the field NAME (default: "
    "features),\n"
    "                                            and the class in COLUMN (its name, or its number from 1)\n"
    "  zdata show OUT                            what is in it, and how it begins\n"
    "  zdata check OUT                           read it all and compare checksums\n"
    "\n"
    "Inputs are regular files; pack and records also take a pipe that is written to, such as /dev/stdin.\n"
    "An OUT that exists is replaced only if it is such a file, and only when the new one is complete.\n";

bool zd_whole(const char *text, uint64_t least, uint64_t *out) {
  char *end;
  errno = 0;
  unsigned long long v = strtoull(text, &end, 10);
  if (errno || end == text || *end || *text == '-' || v < least) return false;
  *out = v;
  return true;
}

/* ---- options ---- */
enum { OUT = 'o', HELP = 'h', TOKENS = 256, VOCAB, FIELD, LABEL, LABEL_FIELD };

static const struct option longs[] = {{"output", required_argument, NULL, OUT},
                                      {"help", no_argument, NULL, HELP},
                                      {"tokens", required_argument, NULL, TOKENS},
                                      {"vocab", required_argument, NULL, VOCAB},
                                      {"field", required_argument, NULL, FIELD},
                                      {"label", required_argument, NULL, LABEL},
                                      {"label-field", required_argument, NULL, LABEL_FIELD},
                                      {0}};

static const struct {
  const char *name;
  bool (*run)(const ZdOptions *, ZbArena *, ZbErr *);
  int max_files;
  const char *needs; /* the option that it cannot do without */
  int takes[4];      /* options besides -o */
} commands[] = {
    {"pack", zd_pack, INT32_MAX, "-o", {TOKENS, VOCAB}},
    {"records", zd_records, INT32_MAX, "-o", {FIELD}},
    {"table", zd_table, 1, "-o", {FIELD, LABEL, LABEL_FIELD}},
    {"show", zd_show, 1, NULL, {0}},
    {"check", zd_check, 1, NULL, {0}},
};

static const char see[] = "zdata --help shows all commands and options";

static bool take_option(int c, const char *name, bool writes, const int takes[4], ZdOptions *o, ZbErr *err) {
  bool known = c == OUT && writes;
  for (int i = 0; i < 4; i++) known |= takes[i] == c;
  const char *option = c == OUT ? "output" : "";
  for (int i = 0; longs[i].name; i++)
    if (longs[i].val == c) option = longs[i].name;
  if (!known) return zb_fail(err, see, "zdata %s takes no option --%s", name, option);
  const char **slot = c == OUT      ? &o->out
                      : c == TOKENS ? &o->tokens
                      : c == VOCAB  ? &o->vocab
                      : c == LABEL  ? &o->label
                      : c == FIELD  ? &o->field[o->nfield++]
                                    : &o->label_field;
  if (*slot) return zb_fail(err, see, "--%s is given twice", option);
  *slot = optarg;
  return true;
}

static bool run(int argc, char **argv, ZbArena *a, ZbErr *err) {
  ZdOptions o = {.file = ZB_NEWN(a, const char *, argc), .field = ZB_NEWN(a, const char *, argc)};
  const size_t ncommand = sizeof commands / sizeof *commands;
  const char *names[sizeof commands / sizeof *commands];
  size_t k = 0;
  for (size_t i = 0; i < ncommand; i++) names[i] = commands[i].name;
  while (k < ncommand && strcmp(names[k], argv[1])) k++;
  if (k == ncommand) {
    const char *near = zb_nearest(argv[1], names, ncommand);
    return zb_fail(err, near ? zb_printf(a, "did you mean '%s'?", near) : see, "zdata has no command '%s'",
                   zb_show(argv[1]));
  }
  opterr = 0;
  optind = 2;
  for (int c; (c = getopt_long(argc, argv, ":o:h", longs, NULL)) != -1;) {
    if (c == HELP) {
      fputs(usage, stdout);
      return true;
    }
    if (c == ':') return zb_fail(err, see, "%s needs a value", zb_show(argv[optind - 1]));
    if (c == '?') return zb_fail(err, see, "zdata knows no option %s", zb_show(argv[optind - 1]));
    if (!take_option(c, names[k], commands[k].needs, commands[k].takes, &o, err)) return false;
  }
  while (optind < argc) o.file[o.nfile++] = argv[optind++];
  if (!o.nfile) return zb_fail(err, see, "zdata %s needs a file", names[k]);
  if (o.nfile > commands[k].max_files) return zb_fail(err, see, "zdata %s takes one file", names[k]);
  if (commands[k].needs && !o.out) return zb_fail(err, see, "zdata %s needs -o OUT", names[k]);
  return commands[k].run(&o, a, err);
}

int main(int argc, char **argv) {
  zb_begin();
  if (argc < 2) return fputs(usage, stderr), 2;
  ZbArena *a = zb_arena_new();
  ZbErr err = {0};
  bool help = !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h");
  if (help) fputs(usage, stdout);
  bool ok = (help || run(argc, argv, a, &err)) && zb_close_stdout(&err);
  if (!ok) fprintf(stderr, "zdata: error: %s\n", err.text);
  if (!ok && err.help[0]) fprintf(stderr, "help: %s\n", err.help);
  zb_arena_free(a);
  return ok ? 0 : 2;
}
