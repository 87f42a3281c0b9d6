/* The tables of recipe words: directives, schedules, ways of attention, tags of the standard library. */
#include "lang/words.h"

#include <string.h>

const char *const zl_std_tags[] = {"norm", "bias", "lora", NULL};
const char *const zl_schedules[] = {
#define S(word, function, placement, vstages, halves) word,
#include "lang/schedules.def"
    NULL};
static const ZlSchedule schedule_info[] = {
#define S(word, function, placement, vstages, halves) {ZL_##placement, vstages, halves},
#include "lang/schedules.def"
};
const char *const zl_attention_ways[] = {"auto", "gather", "heads", "ring", NULL};
const char *const zl_orders[] = {"", "contiguous", "zigzag"};
const char *const zl_schedules_later[] = {"zb-h1", "zb-h2", "zb-v", "dualpipe", NULL};

const ZlSchedule *zl_schedule_info(const char *name) {
  int i = zl_word_index(name, zl_schedules, sizeof schedule_info / sizeof *schedule_info);
  return i < 0 ? NULL : &schedule_info[i];
}

const char *const zl_directive_words[] = {
#define DIRECTIVE(NAME, word, ...) #word,
#define NUMBER DIRECTIVE
#define CHOICE DIRECTIVE
#define LATER DIRECTIVE
#include "lang/directives.def"
};

int zl_word_index(const char *word, const char *const *words, int n) {
  for (int i = 0; i < n; i++)
    if (strcmp(word, words[i]) == 0) return i;
  return -1;
}

bool zl_is_named(ZlNames names, const char *s) {
  for (uint32_t i = 0; i < names.n; i++)
    if (!strcmp(names.at[i].s, s)) return true;
  return false;
}

void zl_report_no_such(ZlDiags *d, ZbArena *a, const char *what, const char *file, const char *name,
                       ZlNames all) {
  if (all.n == 0) {
    zl_report(d, ZL_Z0801, ZL_NOWHERE, "%s has no %s", file, what);
    return;
  }
  ZlDiag *g = name ? zl_report(d, ZL_Z0801, ZL_NOWHERE, "no %s `%s` in %s", what, name, file)
                   : zl_report(d, ZL_Z0801, ZL_NOWHERE, "%s has %u %ss: say which", file, all.n, what);
  zl_note(g, "it has %s", zl_names_text(a, all));
  if (name) zl_help_nearest_of(g, a, name, all);
}
