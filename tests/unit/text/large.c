/* Long texts that are one word, or hard for a pattern: seconds would be minutes if anything were quadratic. */
#include "tests/unit/breadth.h"
#include "tests/unit/text/files.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N = 3000000 }; /* at night; else a sixth, in as much less time */

static void run_of(const char *unit) {
  const int part = at_night() ? 1 : 6;
  size_t bytes = strlen(unit), n = N / part / bytes * bytes;
  char *text = malloc(n);
  for (size_t i = 0; i < n; i += bytes) memcpy(text + i, unit, bytes);
  for (int i = 0; i < 6; i++) {
    ZtTokenizer *t = text_tokenizer(text_names[i]);
    ZtCoder *c = zt_coder_new(t);
    ZtIds ids = {0};
    ZbErr err;
    clock_t begin = clock(); /* processor time: the machine may be busy */
    cr_assert(zt_encode(c, text, n, 0, &ids, &err), "%s, '%s': %s", text_names[i], unit, err.text);
    double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    cr_expect(seconds < 60.0 / part, "%s, '%s': %.1f s", text_names[i], unit, seconds);
    if (i < 2) { /* these lose nothing */
      ZbText back = {0};
      cr_assert(zt_decode(c, ids.id, ids.n, 0, &back, &err));
      cr_expect(back.len == n && !memcmp(back.s, text, n), "%s, '%s': other text comes back", text_names[i],
                unit);
      zb_text_free(&back);
    }
    zt_ids_free(&ids);
    zt_coder_free(c);
    zt_free(t);
  }
  free(text);
}

Test(large, letters, .timeout = 600) { run_of("a"); }
Test(large, spaces, .timeout = 600) { run_of(" "); }
Test(large, newlines, .timeout = 600) { run_of("\n"); }
Test(large, marks, .timeout = 600) { run_of("!"); }
Test(large, accents, .timeout = 600) { run_of("\xcc\x81\xcc\xa7"); }
Test(large, unknown, .timeout = 600) { run_of("\xf0\x9f\x9c\x81"); }
