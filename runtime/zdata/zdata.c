/* zdata: makes and shows token and record files: which command, and its options. */
#include "runtime/zdata/zdata.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] = /* clang-format off */
    "zdata: make and inspect the files that zrun trains from\n"
    "\n"
    "  zdata pack PATH... -o OUT [--tokenizer tokenizer.json]\n"
    "                                  texts as tokens: those of the tokenizer, or one a byte. What is named .jsonl\n"
    "                                  has a document a line; .gz and .zst are decompressed; folders are walked in\n"
    "                                  the order of names, hidden files, links and what is no text left out\n"
    "      --field NAME                the field of JSON lines that has the text (default: text)\n"
    "      --jsonl                     all are JSON lines, whatever their names\n"
    "      --skip-bad                  lines without a text are counted and left out\n"
    "      --end TOKEN                 put after every document: a token, an id, or none (default: what the tokenizer\n"
    "                                  has for it, <|endoftext|> or </s>, say; for bytes none)\n"
    "      --special-as-text           texts that spell a special token are not that token\n"
    "      --threads N                 default: all cores; the result is the same\n"
    "      --split 0.99 [--seed N]     0.99 of the documents into OUT with .train before its ending, the others into\n"
    "                                  that with .valid\n"
    "      --shard-size 10G            OUT is a folder of files of about this size; zrun takes it as one file\n"
    "  zdata pack FILE... --tokens u16 -o OUT [--vocab N]\n"
    "                                  token files as they are: u16 or u32, little-endian; the largest value means\n"
    "                                  \"unknown\". N: ids must be below it\n"
    "  zdata tokenizer --vocab N PATH... -o tokenizer.json [--end TOKEN]\n"
    "                                  byte-level BPE of N tokens, learned from texts as pack reads them; TOKEN: the\n"
    "                                  last of them, a special one, or none (default: <|endoftext|>)\n"
    "  zdata import FILE... -o OUT [--format megatron|llmc|nanogpt] [--vocab N]\n"
    "                                  tokens of others: Megatron's NAME.idx with NAME.bin, llm.c's .bin, and with\n"
    "                                  --format nanogpt bare u16. --split and --shard-size as above\n"
    "      --start ID, --end ID        the token that every document begins, or ends with; Megatron's index and\n"
    "                                  llm.c's header tell\n"
    "  zdata records FILE... -o OUT --field NAME:TYPE:VALUES ...\n"
    "                                  fixed-size records as they are, fields in this order;\n"
    "                                  TYPE: u8, u16, u32, i32, f32\n"
    "  zdata table FILE.csv -o OUT --label COLUMN [--field NAME] [--label-field NAME]\n"
    "                                  a row a record: numbers as the field NAME (default: features),\n"
    "                                  and the class in COLUMN (its name, or its number from 1)\n"
    "  zdata show OUT                  what is in it, and how it begins\n"
    "  zdata decode OUT [--tokenizer tokenizer.json] [--from N] [--count M | --document I]\n"
    "                                  its text, or that of M tokens from token N on, or of document I; from 0\n"
    "  zdata check OUT                 read it all and compare checksums\n"
    "  zdata --version\n"
    "\n"
    "Inputs are regular files; pack and records also take a pipe that is written to, such as /dev/stdin.\n"
    "An OUT that exists is replaced only if it is such a file, and only when the new one is complete.\n";
/* clang-format on */

/* ---- options ---- */
enum {
  OUT,
  TOKENS,
  VOCAB,
  FIELD,
  LABEL,
  LABEL_FIELD,
  END,
  JSONL,
  SKIP_BAD,
  TOKENIZER,
  THREADS,
  SPECIAL_AS_TEXT,
  FROM,
  COUNT,
  DOCUMENT,
  SPLIT,
  SEED,
  SHARD_SIZE,
  FORMAT,
  START,
  NOPTION,
  FIRST = 256
};

/* Where an option goes: one with a value is a `const char *`, one without a `bool`; --field is a list. */
static const struct {
  const char *name;
  bool value;
  size_t at; /* in ZdOptions */
} options[NOPTION] = {
    [OUT] = {"output", true, offsetof(ZdOptions, out)},
    [TOKENS] = {"tokens", true, offsetof(ZdOptions, tokens)},
    [VOCAB] = {"vocab", true, offsetof(ZdOptions, vocab)},
    [FIELD] = {"field", true, offsetof(ZdOptions, field)},
    [LABEL] = {"label", true, offsetof(ZdOptions, label)},
    [LABEL_FIELD] = {"label-field", true, offsetof(ZdOptions, label_field)},
    [END] = {"end", true, offsetof(ZdOptions, end)},
    [JSONL] = {"jsonl", false, offsetof(ZdOptions, jsonl)},
    [SKIP_BAD] = {"skip-bad", false, offsetof(ZdOptions, skip_bad)},
    [TOKENIZER] = {"tokenizer", true, offsetof(ZdOptions, tokenizer)},
    [THREADS] = {"threads", true, offsetof(ZdOptions, threads)},
    [SPECIAL_AS_TEXT] = {"special-as-text", false, offsetof(ZdOptions, special_as_text)},
    [SPLIT] = {"split", true, offsetof(ZdOptions, split)},
    [SEED] = {"seed", true, offsetof(ZdOptions, seed)},
    [SHARD_SIZE] = {"shard-size", true, offsetof(ZdOptions, shard_size)},
    [FORMAT] = {"format", true, offsetof(ZdOptions, format)},
    [START] = {"start", true, offsetof(ZdOptions, start)},
    [FROM] = {"from", true, offsetof(ZdOptions, from)},
    [COUNT] = {"count", true, offsetof(ZdOptions, count)},
    [DOCUMENT] = {"document", true, offsetof(ZdOptions, document)},
};

#define TAKES(option) (1u << (option))
static const struct {
  const char *name;
  bool (*run)(const ZdOptions *, ZbArena *, ZbErr *);
  int max_files;
  unsigned takes; /* with OUT: it needs that too */
} commands[] = {
    {"pack", zd_pack, INT32_MAX,
     TAKES(OUT) | TAKES(TOKENS) | TAKES(VOCAB) | TAKES(FIELD) | TAKES(END) | TAKES(JSONL) | TAKES(SKIP_BAD) |
         TAKES(TOKENIZER) | TAKES(THREADS) | TAKES(SPECIAL_AS_TEXT) | TAKES(SPLIT) | TAKES(SEED) |
         TAKES(SHARD_SIZE)},
    {"import", zd_import, INT32_MAX,
     TAKES(OUT) | TAKES(FORMAT) | TAKES(VOCAB) | TAKES(START) | TAKES(END) | TAKES(SPLIT) | TAKES(SEED) |
         TAKES(SHARD_SIZE)},
    {"records", zd_records, INT32_MAX, TAKES(OUT) | TAKES(FIELD)},
    {"table", zd_table, 1, TAKES(OUT) | TAKES(FIELD) | TAKES(LABEL) | TAKES(LABEL_FIELD)},
    {"tokenizer", zd_tokenizer, INT32_MAX,
     TAKES(OUT) | TAKES(VOCAB) | TAKES(FIELD) | TAKES(END) | TAKES(JSONL) | TAKES(SKIP_BAD)},
    {"decode", zd_decode, 1, TAKES(TOKENIZER) | TAKES(FROM) | TAKES(COUNT) | TAKES(DOCUMENT)},
    {"show", zd_show, 1, 0},
    {"check", zd_check, 1, 0},
};

static const char see[] = "zdata --help shows all commands and options";

static bool take_option(int option, size_t command, ZdOptions *o, ZbErr *err) {
  const char *name = options[option].name;
  void *at = (char *)o + options[option].at;
  if (!(commands[command].takes & TAKES(option)))
    return zb_fail(err, see, "zdata %s takes no option --%s", commands[command].name, name);
  if (option == FIELD) return o->field[o->nfield++] = optarg, true;
  if (options[option].value ? *(const char **)at != NULL : *(bool *)at)
    return zb_fail(err, see, "--%s is given twice", name);
  if (options[option].value) *(const char **)at = optarg;
  else *(bool *)at = true;
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
  struct option longs[NOPTION + 2] = {{"help", no_argument, NULL, 'h'}};
  for (int i = 0; i < NOPTION; i++)
    longs[i + 1] = (struct option){options[i].name, options[i].value, NULL, FIRST + i};
  opterr = 0;
  optind = 2;
  for (int c; (c = getopt_long(argc, argv, ":o:h", longs, NULL)) != -1;) {
    if (c == 'h') {
      fputs(usage, stdout);
      return true;
    }
    if (c == ':' || c == '?') return zb_option_failed(c, argv, longs, err);
    if (!take_option(c == 'o' ? OUT : c - FIRST, k, &o, err)) return false;
  }
  while (optind < argc) o.file[o.nfile++] = argv[optind++];
  if (!o.nfile) return zb_fail(err, see, "zdata %s needs a file", names[k]);
  if (o.nfile > commands[k].max_files) return zb_fail(err, see, "zdata %s takes one file", names[k]);
  if ((commands[k].takes & TAKES(OUT)) && !o.out) return zb_fail(err, see, "zdata %s needs -o OUT", names[k]);
  return commands[k].run(&o, a, err);
}

int main(int argc, char **argv) {
  zb_begin();
  if (argc < 2) return fputs(usage, stderr), 2;
  ZbArena *a = zb_arena_new();
  ZbErr err = {0};
  bool help = !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h");
  if (help) fputs(usage, stdout);
  help |= zb_tells_version(argc, argv, "zdata");
  bool ok = (help || run(argc, argv, a, &err)) && zb_close_stdout(&err);
  if (!ok) fprintf(stderr, "zdata: error: %s\n", err.text);
  if (!ok && err.help[0]) fprintf(stderr, "help: %s\n", err.help);
  zb_arena_free(a);
  return ok ? 0 : 2;
}
