/* zrun's options: what they become, their limits, and what is said of each that is wrong. */
#include "runtime/exec/options.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <errno.h>
#include <string.h>

enum { MOST = 64 };
static ZxOptions o;

/* Of words with a blank between them. */
static bool parse(const char *line, const char *who) {
  static char text[2048];
  char *argv[MOST + 1], *rest = NULL;
  int argc = 0;
  snprintf(text, sizeof text, "zrun %s", line);
  for (char *w = strtok_r(text, " ", &rest); w && argc < MOST; w = strtok_r(NULL, " ", &rest))
    argv[argc++] = w;
  argv[argc] = NULL;
  errno = ERANGE; /* of something else */
  return zx_parse_options(argc, argv, &o, who);
}
#define GOOD(line) cr_assert(parse("train g.zsg --recipe r.zug:a " line, NULL), "%s", line)
#define BAD(line) cr_expect(!parse("train g.zsg --recipe r.zug:a " line, NULL), "%s", line)

Test(options, what_they_become) {
  GOOD("--data d.bin --steps 7");
  cr_expect(!strcmp(o.graph, "g.zsg") && !strcmp(o.recipe, "r.zug:a") && !strcmp(o.data, "d.bin"));
  cr_expect(o.steps == 7 && o.seed == 1 && o.threads == 1 && o.order == ZX_ORDER_SHUFFLED);
  cr_expect(!o.init && !o.save && !o.log && !o.cluster && !o.ninclude && !o.times && !o.dry_run && o.device);
  GOOD("--dry-run --times --init i --save s --log l --cluster c -I one -Itwo --order sequential --seed 0 "
       "--threads 1024 --device cpu");
  cr_expect(o.dry_run && o.times && !strcmp(o.init, "i") && !strcmp(o.save, "s") && !strcmp(o.log, "l"));
  cr_expect(!strcmp(o.cluster, "c") && o.ninclude == 2 && !strcmp(o.include[0], "one") &&
            !strcmp(o.include[1], "two"));
  cr_expect(o.order == ZX_ORDER_SEQUENTIAL && o.seed == 0 && o.threads == 1024 &&
            !strcmp(o.device->name, "cpu"));
  GOOD("--steps 9223372036854775807 --data d --order shuffled");
  cr_expect(o.steps == INT64_MAX && o.order == ZX_ORDER_SHUFFLED);
}

Test(options, limits) {
  GOOD("--steps 0");
  BAD("--steps 1");
  GOOD("--steps 1 --dry-run");
  BAD("--data d");
  BAD("--data d --steps -1");
  BAD("--data d --steps 9223372036854775808");
  BAD("--data d --steps 3x");
  BAD("--data d --steps 1 --seed -1");
  BAD("--data d --steps 1 --threads 0");
  BAD("--data d --steps 1 --threads 1025");
  BAD("--data d --steps 1 --threads 4294967297");
  BAD("--data d --steps 1 --order random");
  BAD("--data d --steps 1 --device gpu");
  BAD("--data d --steps 1 more");
  GOOD("--dry-run -I a -I b -I c -I d -I e -I f -I g -I h -I i -I j -I k -I l -I m -I n -I o -I p");
  cr_expect(o.ninclude == 16 && !strcmp(o.include[15], "p"));
  BAD("--dry-run -I a -I b -I c -I d -I e -I f -I g -I h -I i -I j -I k -I l -I m -I n -I o -I p -I q");
  cr_expect(!parse("trains g.zsg --recipe r --dry-run", NULL));
  cr_expect(!parse("train --recipe r --dry-run", NULL));
  cr_expect(!parse("train g.zsg --dry-run", NULL));
}

Test(options, what_is_said) {
  cr_redirect_stderr();
  cr_expect(parse("train g --recipe r --dry-run", "zrun"));
  cr_expect(!parse("train g --recipe r --dry-run --steps", NULL));
  cr_expect(!parse("train g --recipe r --dry-run --seed 1 --steps x", "zrun"));
  cr_expect(!parse("train g --recipe r --device none", "zrun"));
  cr_expect(!parse("train g --recipe r --step", "zrun"));
  cr_expect(!parse("train g --recipe r --stepz", "zrun"));
  cr_expect(!parse("train g --recipe r --data d", "zrun"));
  cr_expect(!parse("train g --recipe r --steps 1", "zrun"));
  cr_expect(!parse("train g", "zrun"));
  cr_expect(!parse("g --recipe r", "zrun"));
  cr_expect(
      !parse("-I 1 -I 2 -I 3 -I 4 -I 5 -I 6 -I 7 -I 8 -I 9 -I 10 -I 11 -I 12 -I 13 -I 14 -I 15 -I 16 -I 17",
             "zrun"));
  fflush(stderr);
  cr_expect_stderr_eq_str("zrun: wrong value `x` for --steps; zrun --help lists what is meant\n"
                          "zrun: wrong value `none` for --device; zrun --help lists what is meant\n"
                          "zrun: option '--steps' requires an argument\n"
                          "zrun: unrecognized option '--stepz'; did you mean --steps?\n"
                          "zrun: give --steps K; zrun --help lists all options\n"
                          "zrun: give --data FILE; zrun --help lists all options\n"
                          "zrun: give --recipe FILE:NAME; zrun --help lists all options\n"
                          "zrun: give train GRAPH.zsg or eval GRAPH.zsg; zrun --help lists all options\n"
                          "zrun: at most 16 folders with -I\n");
}

Test(options, help) {
  static char *asks[][4] = {{"zrun", "train", "--help"}, {"zrun", "-h"}, {"zrun", "--he"}, {"zrun", "-hx"}};
  static char *does_not[][4] = {{"zrun", "train", "help"}, {"zrun", "--"}, {"--help"}, {"zrun", "--helper"}};
  for (int i = 0; i < 4; i++) {
    int a = 0, b = 0;
    while (asks[i][a]) a++;
    while (does_not[i][b]) b++;
    cr_expect(zx_asks_help(a, asks[i]), "%d", i);
    cr_expect(!zx_asks_help(b, does_not[i]), "%d", i);
  }
}
