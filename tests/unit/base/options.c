/* Command lines from tables: what options become, what is refused and how, and what a program tells about itself. */
#include "base/options.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <string.h>

#define LONG "as-long-as-names-are-that-are-looked-for-and-not-by-one-letter"

typedef struct {
  const char *out, *in;
  ZbTexts also;
  int64_t count, bytes;
  int threads;
  enum { RED, GREEN } color;
  enum { NO_MODE, FAST, SLOW } mode;
  double wait, share;
  bool quiet, dry, lengthy;
  int sum, part;
} Options;

static bool take_sum(void *options, const char *text, ZbErr *err) {
  int *sum = &((Options *)options)->sum;
  if (!strcmp(text, "seven")) return zb_fail(err, "give 7", "`seven` is a word");
  if (strlen(text) != 1 || *text < '0' || *text > '9') return false;
  *sum += *text - '0';
  return true;
}
static void show_sum(const void *options, ZbText *t) {
  zb_text_add(t, "%d in all", ((const Options *)options)->sum);
}

#define FIELD(f) ZB_AT(Options, f)
/* clang-format off */
enum { MAKE, SHOW, JOIN };
static const ZbCommand commands[] = {
  [MAKE] = {"make", "FILE...", 1, ZB_ANY_NUMBER, "make it"},
  [SHOW] = {"show", "FILE", 1, 1, "show it"},
  [JOIN] = {"join", "A B [C]", 2, 3, "join them"}};
static const ZbOption options[] = {
  {"output", 'o', ZB_TEXT, FIELD(out), "OUT", .commands = 1 << MAKE | 1 << JOIN, .needed = 1 << MAKE, .help = "where to"},
  {"part", 0, ZB_WHOLE, FIELD(part), "N", .commands = 1 << MAKE, .help = "of what is made"},
  {"part", 0, ZB_WHOLE, FIELD(part), "N", .commands = 1 << SHOW, .most = 3, .help = "of what is shown"},
  {"in", 0, ZB_TEXT, FIELD(in), "FILE", .same = ZB_SAME_PRESENCE, .help = "where from"},
  {NULL, 'I', ZB_TEXTS, FIELD(also), "DIR", .help = "where to look, too"},
  {"count", 0, ZB_WHOLE, FIELD(count), "N", .usual = "3", .same = ZB_SAME_VALUE, .help = "how many"},
  {"threads", 0, ZB_WHOLE, FIELD(threads), "T", .least = 1, .most = 8, .same = ZB_SAME_VALUE, .help = "threads"},
  {"bytes", 0, ZB_SIZE, FIELD(bytes), "S", .least = 1000, .same = ZB_SAME_VALUE, .help = "bytes"},
  {"color", 0, ZB_WORD, FIELD(color), "red|green", .usual = "red", .same = ZB_SAME_VALUE, .help = "color"},
  {"mode", 0, ZB_WORD, FIELD(mode), "fast|slow", .least = FAST, .same = ZB_SAME_VALUE, .help = "mode"},
  {"wait", 0, ZB_SECONDS, FIELD(wait), "D", .usual = "90s", .least = 1, .same = ZB_SAME_VALUE, .help = "a time"},
  {"share", 0, ZB_REAL, FIELD(share), "X", .most = 0.5, .same = ZB_SAME_VALUE, .help = "a share"},
  {"sum", 0, ZB_OTHER, FIELD(sum), "DIGIT", .same = ZB_SAME_VALUE, .take = take_sum, .show = show_sum,
   .expects = "give a digit", .help = "is added"},
  {"quiet", 'q', ZB_FLAG, FIELD(quiet), .same = ZB_SAME_VALUE, .help = "say nothing"},
  {"dry", 0, ZB_FLAG, FIELD(dry), .commands = 1 << JOIN, .help = "join nothing"},
  {LONG, 0, ZB_FLAG, FIELD(lengthy), .commands = 1 << JOIN, .help = "words that take more than a line, so that the "
   "line must be broken somewhere, which it is, before\na new one"},
};
static void hint(const char *word, ZbErr *err) {
  if (!strcmp(word, "--lr") || !strcmp(word, "build")) snprintf(err->help, sizeof err->help, "elsewhere: %s", word);
}
static ZbProgram program = {
  .name = "prog", .what = "make things", .commands = commands, .ncommands = 3, .options = options,
  .noptions = sizeof options / sizeof *options, .hint = hint, .notes = "The end."};
/* clang-format on */

static ZbArena *a;
static Options o;
static ZbArgs args;
static ZbErr err;

static bool parse_words(const char *const *word) {
  int n = 0;
  while (word[n]) n++;
  if (!a) a = zb_arena_new();
  o = (Options){0}, err = (ZbErr){0};
  return zb_parse(&program, a, n, (char *const *)word, &o, &args, &err);
}
#define PARSE(...) parse_words((const char *const[]){"prog", __VA_ARGS__, NULL})
#define GOOD(...) cr_assert(PARSE(__VA_ARGS__), "%s", err.text)
#define BAD(words, ...)                                                                                      \
  do {                                                                                                       \
    cr_expect(!PARSE(__VA_ARGS__), "%s", words);                                                             \
    cr_expect_str_eq(*err.help ? strcat(strcat(err.text, "; "), err.help) : err.text, words);                \
  } while (0)

Test(options, what_they_become) {
  GOOD("make", "a", "-o", "b");
  cr_expect(args.command == MAKE && args.noperands == 1 && !strcmp(args.operand[0], "a") && !args.operand[1]);
  cr_expect(!strcmp(o.out, "b") && o.count == 3 && o.color == RED && o.wait == 90 && !o.threads && !o.mode &&
            !o.in);
  GOOD("join", "a", "-ob", "--count=0", "--threads", "8", "--bytes", "20k", "--color", "green", "--mode",
       "slow", "c", "--wait", "1h", "--share", "0.5", "--sum", "4", "--sum", "5", "-q", "--", "--dry");
  cr_expect(args.command == JOIN && args.noperands == 3 && !strcmp(args.operand[2], "--dry") && !o.dry);
  cr_expect(!strcmp(o.out, "b") && o.count == 0 && o.threads == 8 && o.bytes == 20000 && o.color == GREEN &&
            o.quiet);
  cr_expect(o.mode == SLOW && o.wait == 3600 && o.share == 0.5 && o.sum == 9);
  GOOD("--count", "5", "--count", "9223372036854775807", "show", "-", "-qIone", "-I", "two");
  cr_expect(o.count == INT64_MAX && o.quiet && o.also.n == 2 && !strcmp(o.also.s[0], "one") &&
            !strcmp(o.also.s[1], "two"));
  cr_expect(!strcmp(args.operand[0], "-"));
  GOOD("show", "a", "--thr", "2", "--sh=0.25"); /* unambiguous beginnings */
  cr_expect(o.threads == 2 && o.share == 0.25);
}

Test(options, unknown_ones) {
  BAD("unrecognized option '--foo'", "show", "a", "--foo");
  BAD("unrecognized option '--coun t'; did you mean --count?", "show", "a", "--coun t", "x");
  BAD("unrecognized option '--\\x1b[1m=x'", "show", "--\033[1m=x");
  BAD("unrecognized option '--=x'", "show", "--=x");
  BAD("unrecognized option '--lr'; elsewhere: --lr", "show", "--lr");
  BAD("option '--s' is ambiguous", "show", "--s", "x");
  BAD("option '--count' requires an argument", "show", "a", "--count");
  BAD("option requires an argument -- 'o'", "make", "a", "-o");
  BAD("option '--quiet' doesn't allow an argument", "show", "a", "--quiet=x");
  BAD("invalid option -- 'x'", "show", "-qx");
  BAD("invalid option -- '\\x1b'", "show", "-\033");
  /* A name of 63 letters may be near another, one of 64 is too long for that. */
  BAD("unrecognized option '--x" LONG "'; did you mean --" LONG "?", "show", "--x" LONG);
  BAD("unrecognized option '--xx" LONG "'", "show", "--xx" LONG);
}

Test(options, values) {
  BAD("--count cannot be '-1'; give a whole number from 0 on", "show", "a", "--count", "-1");
  BAD("--count cannot be '1x'; give a whole number from 0 on", "show", "a", "--count", "1x");
  BAD("--count cannot be ''; give a whole number from 0 on", "show", "a", "--count", "");
  BAD("--count cannot be '9223372036854775808'; give a whole number from 0 on", "show", "a", "--count",
      "9223372036854775808");
  BAD("--threads cannot be '0'; give a whole number from 1 to 8", "show", "a", "--threads", "0");
  BAD("--threads cannot be '4294967297'; give a whole number from 1 to 8", "show", "a", "--threads",
      "4294967297");
  BAD("--bytes cannot be '999'; give 1000 bytes or more, such as 500K or 4G", "show", "a", "--bytes", "999");
  BAD("--color cannot be 'gree'; give red or green", "show", "a", "--color", "gree");
  BAD("--wait cannot be '0s'; give a duration, such as 90s, 10m or 3h50m", "show", "a", "--wait", "0s");
  BAD("--wait cannot be '5'; give a duration, such as 90s, 10m or 3h50m", "show", "a", "--wait", "5");
  BAD("--share cannot be '0.6'; give a number from 0 to 0.5", "show", "a", "--share", "0.6");
  BAD("--share cannot be 'nan'; give a number from 0 to 0.5", "show", "a", "--share", "nan");
  BAD("--sum cannot be 'x'; give a digit", "show", "a", "--sum", "x");
  BAD("--sum: `seven` is a word; give 7", "show", "a", "--sum", "seven");
}

Test(options, commands) {
  BAD("prog needs a command; there are make, show and join", "-q");
  BAD("prog has no command 'sow'; did you mean 'show'?", "sow", "a");
  BAD("prog has no command 'x'; there are make, show and join", "x");
  BAD("prog has no command 'build'; elsewhere: build", "build");
  BAD("prog show takes no option --dry; it belongs to join", "show", "a", "--dry");
  BAD("prog show takes no option --output; it belongs to make and join", "show", "a", "-o", "b");
  BAD("prog make needs -o OUT; prog --help shows all commands and options", "make", "a");
  BAD("prog make takes at least 1 operand (FILE...), not 0; prog --help shows all commands and options",
      "make");
  BAD("prog show takes 1 operand (FILE), not 2; prog --help shows all commands and options", "show", "a",
      "b");
  BAD("prog join takes at least 2 operands (A B [C]), not 1; prog --help shows all commands and options",
      "join", "a");
  BAD("prog join takes at most 3 operands (A B [C]), not 4; prog --help shows all commands and options",
      "join", "a", "b", "c", "d");
  /* Commands may have rows of their own for one name. */
  GOOD("make", "a", "-o", "b", "--part", "9");
  cr_expect_eq(o.part, 9);
  BAD("--part cannot be '9'; give a whole number from 0 to 3", "show", "a", "--part", "9");
  BAD("prog join takes no option --part; it belongs to make and show", "join", "a", "b", "--part", "1");
}

Test(options, programs_differ) {
  static const ZbCommand plain[] = {{NULL, "COMMAND...", 0, ZB_ANY_NUMBER, "run it"}};
  program.commands = plain, program.ncommands = 1;
  program.options += 3; /* those of all commands */
  program.noptions -= 5;
  program.options_first = true;
  GOOD("--count", "4", "ls", "--count", "5", "-q");
  cr_expect(o.count == 4 && !o.quiet && args.noperands == 4 && !strcmp(args.operand[1], "--count"));
  program.options_first = false;
  program.once = true;
  BAD("--count is given twice", "--count", "1", "--count", "1");
  BAD("--quiet is given twice", "-q", "--quiet");
  GOOD("-I", "1", "-I", "1");
}

static void add(void *t, const char *name, const char *value) { zb_text_add(t, "%s: %s\n", name, value); }

Test(options, what_processes_have_alike) {
  ZbText t = {0};
  GOOD("show", "a");
  zb_options_list(&program, a, &o, add, &t);
  cr_expect_str_eq(
      t.s, "a file for --in: no\n--count: 3\n--threads: 0\n--bytes: 0\n--color: red\n--mode: not given\n"
           "--wait: 90 s\n--share: 0\n--sum: 0 in all\n--quiet: no\n");
  t.len = 0;
  GOOD("show", "a", "--in", "x", "--mode", "slow", "--threads", "2", "--share", "0.25", "-q", "--sum", "3",
       "--bytes", "5K");
  zb_options_list(&program, a, &o, add, &t);
  cr_expect_str_eq(
      t.s, "a file for --in: yes\n--count: 3\n--threads: 2\n--bytes: 5000\n--color: red\n--mode: slow\n"
           "--wait: 90 s\n--share: 0.25\n--sum: 3 in all\n--quiet: yes\n");
  zb_text_free(&t);
}

/* Before anything else is looked at, and whatever else is wrong. */
Test(options, one_alone) {
  static const struct {
    const char *argv[8], *value;
  } cases[] = {{{"prog", "show", "a"}, "90s"},
               {{"prog", "show", "--wait", "5s"}, "5s"},
               {{"prog", "--wait=2m", "show"}, "2m"},
               {{"prog", "show", "--wai", "x"}, "x"},
               {{"prog", "show", "--in", "--wait", "7s"}, "90s"},
               {{"prog", "show", "--wrong", "--count", "x", "-Z", "--wait", "7s"}, "7s"},
               {{"prog", "show", "--wait"}, "90s"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int n = 0;
    while (n < 8 && cases[i].argv[n]) n++;
    cr_expect_str_eq(zb_option_given(&program, "wait", n, (char *const *)cases[i].argv), cases[i].value,
                     "%zu", i);
  }
}

/* ---- what a program tells ---- */
Test(tells, help_is_asked_for) {
  static char *yes[][4] = {{"p", "run", "-h"}, {"p", "--help", "--"}, {"p", "--he"}, {"p", "-hx"}};
  static char *no[][4] = {
      {"--help", "run", "--helpful", "x-h"}, {"p", "run", "--", "--help"}, {"p", "help"}, {"p", "--"}};
  for (int i = 0; i < 4; i++) {
    int n = 0, m = 0;
    while (n < 4 && yes[i][n]) n++;
    while (m < 4 && no[i][m]) m++;
    cr_expect(zb_asks_help(n, yes[i]), "%d", i);
    cr_expect(!zb_asks_help(m, no[i]), "%d", i); /* argument 0 is the program */
  }
}

static void tells(const char *want, const char *const *word) {
  int n = 0;
  while (word[n]) n++;
  cr_expect(zb_tells(&program, n, (char *const *)word));
  fflush(stdout);
  cr_expect_stdout_eq_str(want);
}
#define TELLS(want, ...) cr_redirect_stdout(), tells(want, (const char *const[]){"prog", __VA_ARGS__, NULL})

static const char help[] =
    "prog: make things\n"
    "\n"
    "usage: prog make FILE... -o OUT [options]  make it\n"
    "       prog show FILE [options]            show it\n"
    "       prog join A B [C] [options]         join them\n"
    "\n"
    "options of make and join:\n"
    "  -o, --output OUT      where to\n"
    "\n"
    "options of make:\n"
    "  --part N              of what is made\n"
    "\n"
    "options of show:\n"
    "  --part N              of what is shown\n"
    "\n"
    "options of all commands:\n"
    "  --in FILE             where from\n"
    "  -I DIR                where to look, too\n"
    "  --count N             how many (default 3)\n"
    "  --threads T           threads\n"
    "  --bytes S             bytes\n"
    "  --color red|green     color (default red)\n"
    "  --mode fast|slow      mode\n"
    "  --wait D              a time (default 90s)\n"
    "  --share X             a share\n"
    "  --sum DIGIT           is added\n"
    "  -q, --quiet           say nothing\n"
    "\n"
    "options of join:\n"
    "  --dry                 join nothing\n"
    "  --" LONG "\n"
    "                        words that take more than a line, so that the line must be broken somewhere,\n"
    "                        which it is, before\n"
    "                        a new one\n"
    "\n"
    "  --version, --help\n"
    "\n"
    "The end.\n";
Test(tells, help) { TELLS(help, "show", "--help"); }
Test(tells, version) { TELLS("prog (zug) " PACKAGE_VERSION "\n", "--version"); }
Test(tells, nothing) {
  cr_expect(!zb_tells(&program, 3, (char *const[]){"prog", "show", "--version"}));
  cr_expect(!zb_tells(&program, 1, (char *const[]){"prog"}));
}
Test(tells, man_page) {
  static const ZbOption few[] = {
      {"in", 0, ZB_TEXT, FIELD(in), "FILE", .usual = "a\\b", .help = "where\n.from-here"}};
  program.options = few, program.noptions = 1;
  TELLS(".TH PROG 1 \"\" \"zug " PACKAGE_VERSION "\" \"Zug\"\n.SH NAME\nprog \\- make things\n.SH SYNOPSIS\n"
        ".TP\n\\fBprog make FILE... [options]\\fR\nmake it\n.TP\n\\fBprog show FILE [options]\\fR\nshow it\n"
        ".TP\n\\fBprog join A B [C] [options]\\fR\njoin them\n"
        ".SH OPTIONS\n.SS options of all commands\n.TP\n\\fB\\-\\-in FILE\\fR\nwhere\n.br\n\\&.from\\-here "
        "(default a\\eb)\n"
        ".SH NOTES\nThe end.\n",
        "--man-page");
}

#define OF_ALL "--in\n-I\n--count\n--threads\n--bytes\n--color\n--mode\n--wait\n--share\n--sum\n--quiet\n"
Test(tells, completion_of_a_command) { TELLS("--part\n" OF_ALL "--help\n", "--complete", "show", "a"); }
Test(tells, completion_of_a_value) { TELLS("red\ngreen\n", "--complete", "show", "--color"); }
Test(tells, completion_of_a_file) { TELLS("", "--complete", "show", "--in"); }
Test(tells, completion_of_all) {
  TELLS("make\nshow\njoin\n--output\n--part\n" OF_ALL "--dry\n--" LONG "\n--help\n--version\n", "--complete");
}
