/* Prints what lang says of a file, or how it lays out one of format/; `make regenerate-lang` makes the goldens of tests/lang with it. */
#include "tests/unit/lang/render.h"

#include <string.h>

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: lang-print FILE.zug\n");
    return 2;
  }
  ZbText out = {0};
  if (strncmp(argv[1], "format/", 7) == 0) render_format(argv[1], &out);
  else render_file(argv[1], &out);
  fputs(out.s, stdout);
  zb_text_free(&out);
  return 0;
}
