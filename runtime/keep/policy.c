/* Decides whether a run is restarted, and when. */
#include "runtime/exec/exit.h"
#include "runtime/keep/keep.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

KeepVerdict keep_judge(const KeepLimits *l, KeepState *s, int code, int64_t step, double *wait) {
  bool progress = step > s->step;
  s->step = step;
  s->stalled = progress ? 0 : s->stalled + 1;
  *wait = 0;
  if (code == ZX_EXIT_DONE) return KEEP_DONE;
  if (code == ZX_EXIT_MISTAKE || code == 126 || code == 127)
    return KEEP_MISTAKE; /* the last two: a shell found no such command */
  if (s->stalled > l->most) return KEEP_GIVE_UP;
  if (code == ZX_EXIT_AGAIN && progress) return KEEP_RESTART; /* it was only stopped */
  *wait = l->wait;
  for (int i = 1; i < s->stalled && *wait < l->wait_most; i++) *wait *= 2;
  if (*wait > l->wait_most) *wait = l->wait_most;
  return KEEP_RESTART;
}

/* Reads "step-00000400"; a checkpoint that is being written has more after the number. */
static int64_t step_of(const char *name) {
  static const char prefix[] = "step-";
  if (strncmp(name, prefix, sizeof prefix - 1)) return -1;
  const char *digits = name + sizeof prefix - 1;
  if (!*digits || strlen(digits) > 18 || digits[strspn(digits, "0123456789")]) return -1;
  return strtoll(digits, NULL, 10);
}

int64_t keep_newest(const char *dir) {
  DIR *d = dir ? opendir(dir) : NULL;
  int64_t newest = -1;
  if (!d) return -1;
  for (struct dirent *e; (e = readdir(d));)
    if (step_of(e->d_name) > newest) newest = step_of(e->d_name);
  closedir(d);
  return newest;
}

const char *keep_checkpoints(char *const *command) {
  static const char option[] = "--ckpt";
  size_t n = sizeof option - 1;
  for (; *command; command++) {
    if (!strcmp(*command, option)) return command[1];
    if (!strncmp(*command, option, n) && (*command)[n] == '=') return *command + n + 1;
  }
  return NULL;
}
