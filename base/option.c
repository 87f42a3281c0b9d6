/* Options: what is wrong with one, in getopt's words, but as zb_show has it. See base.h. */
#include "base/base.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

static const char *long_name(const struct option *longs, int value) {
  for (; longs->name; longs++)
    if (longs->val == value) return longs->name;
  return NULL;
}

/* A word that begins with --: no option begins so, or several do. */
static bool unknown(const char *word, const struct option *longs, ZbErr *err) {
  const char *names[64];
  char name[64] = "", help[128] = "";
  size_t n = 0, begin = 0, len = strcspn(word + 2, "=");
  snprintf(name, sizeof name, "%.*s", len < sizeof name ? (int)len : 0, word + 2);
  for (; longs->name && n < sizeof names / sizeof *names; longs++) {
    names[n++] = longs->name;
    begin += *name && !strncmp(longs->name, name, len);
  }
  if (begin > 1) return zb_fail(err, NULL, "option '--%s' is ambiguous", zb_show(name));
  const char *near = zb_nearest(name, names, n);
  if (near) snprintf(help, sizeof help, "did you mean --%s?", near);
  return zb_fail(err, help, "unrecognized option '%s'", zb_show(word));
}

bool zb_option_failed(int c, char *const *argv, const struct option *longs, ZbErr *err) {
  const char *name = optopt > 255 ? long_name(longs, optopt) : NULL;
  char letter[2] = {(char)optopt, 0};
  if (!optopt) return unknown(argv[optind - 1], longs, err);
  if (c == ':' && name) return zb_fail(err, NULL, "option '--%s' requires an argument", name);
  if (c == ':') return zb_fail(err, NULL, "option requires an argument -- '%s'", zb_show(letter));
  if (name) return zb_fail(err, NULL, "option '--%s' doesn't allow an argument", name);
  return zb_fail(err, NULL, "invalid option -- '%s'", zb_show(letter));
}

bool zb_tells_version(int argc, char *const *argv, const char *program) {
  if (argc != 2 || strcmp(argv[1], "--version")) return false;
  printf("%s (zug) %s\n", program, PACKAGE_VERSION);
  return true;
}
