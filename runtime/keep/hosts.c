/* Reads host files, asks which hosts answer, and tells mpirun. */
#include "runtime/keep/keep.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- reading ---- */
/* Returns whether it is a name of letters, digits, dots, dashes and underscores: it goes to a shell. */
static bool is_name(const char *s) {
  static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  return *s && *s != '-' && strlen(s) < 256 && !s[strspn(s, good)];
}

static bool number(const char *s, int *out) {
  char *end;
  long n = strtol(s, &end, 10);
  *out = (int)n;
  return *s >= '0' && *s <= '9' && !*end && n >= 1 && n <= 1 << 20;
}

static bool read_line(ZbArena *a, char *line, KeepHosts *out) {
  static const char blank[] = " \t\r";
  char *rest, *name = strtok_r(line, blank, &rest), *word, *colon;
  KeepHost h = {.slots = 1};
  if (!name) return true;
  if ((colon = strchr(name, ':')) && (*colon = 0, !number(colon + 1, &h.slots))) return false;
  while ((word = strtok_r(NULL, blank, &rest)))
    if (strncmp(word, "slots=", 6) == 0 ? !number(word + 6, &h.slots) : strncmp(word, "max_slots=", 10) != 0)
      return false;
  if (!is_name(name)) return false;
  h.name = name;
  ZB_PUSH(a, out->host, out->n, h);
  return true;
}

bool keep_read_hosts(ZbArena *a, const char *path, KeepHosts *out, ZbErr *err) {
  size_t n;
  char *text = zb_read_file(a, path, 16 << 20, &n, err);
  if (!text) return false;
  *out = (KeepHosts){0};
  int at = 0;
  for (char *line = text, *end; line; line = end) {
    at++;
    if ((end = strchr(line, '\n'))) *end++ = 0;
    line[strcspn(line, "#")] = 0;
    char *shown = zb_strdup(a, line);
    if (!read_line(a, line, out))
      return zb_fail(err, "a line is NAME, NAME slots=N or NAME:N", "%s:%d: `%s` is not a host",
                     zb_show(path), at, zb_show(shown));
  }
  return out->n || zb_fail(err, "a line is NAME, NAME slots=N or NAME:N", "%s has no hosts", zb_show(path));
}

bool keep_read_ranks(ZbArena *a, const char *text, int **out, ZbErr *err) {
  char *words = zb_strdup(a, text);
  uint32_t n = 0;
  int x = 0, *list = NULL;
  for (char *at = words, *end; at; at = end) {
    if ((end = strchr(at, ','))) *end++ = 0;
    if (!number(at, &x))
      return zb_fail(err, "--ranks 8,4,2", "`%s` is not a list of numbers of ranks", zb_show(text));
    ZB_PUSH(a, list, n, x);
  }
  x = 0;
  ZB_PUSH(a, list, n, x);
  *out = list;
  return true;
}

/* ---- asking ---- */
static char *with_name(ZbArena *a, const char *probe, const char *name) {
  static const char word[] = "HOST";
  ZbText t = {0};
  for (const char *at = probe, *next;; at = next + sizeof word - 1) {
    next = strstr(at, word);
    zb_text_put(&t, at, next ? (size_t)(next - at) : strlen(at));
    if (!next) break;
    zb_text_put(&t, name, strlen(name));
  }
  char *s = zb_strdup(a, t.s ? t.s : "");
  zb_text_free(&t);
  return s;
}

/* Waits for all probes until `until`, then kills them. */
static void collect(KeepHost *h, const pid_t *pid, uint32_t n, double until) {
  bool ended[n];
  memset(ended, 0, n);
  for (uint32_t left = n; left;) {
    bool late = zb_now() > until;
    for (uint32_t i = 0; i < n; i++) {
      int status = 0;
      if (ended[i]) continue;
      if (late && pid[i] > 0) kill(-pid[i], SIGKILL);
      if (pid[i] > 0 && waitpid(pid[i], &status, late ? 0 : WNOHANG) == 0) continue;
      h[i].answers = pid[i] > 0 && !late && WIFEXITED(status) && WEXITSTATUS(status) == 0;
      ended[i] = true;
      left--;
    }
    if (left) nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
  }
}

void keep_probe(ZbArena *a, KeepHosts *h, const char *probe, double limit) {
  enum { AT_ONCE = 64 };
  pid_t pid[AT_ONCE];
  for (uint32_t from = 0, n; from < h->n; from += n) {
    n = h->n - from < AT_ONCE ? h->n - from : AT_ONCE;
    for (uint32_t i = 0; i < n; i++) {
      char *const command[] = {"sh", "-c", with_name(a, probe, h->host[from + i].name), NULL};
      pid[i] = keep_start(command, NULL);
    }
    collect(h->host + from, pid, n, zb_now() + limit);
  }
}

/* ---- choosing ---- */
int keep_ranks(const KeepHosts *h, const int *ranks) {
  int64_t slots = 0;
  int most = 0;
  for (uint32_t i = 0; i < h->n; i++)
    if (h->host[i].answers) slots += h->host[i].slots;
  for (; *ranks; ranks++)
    if (*ranks <= slots && *ranks > most) most = *ranks;
  return most;
}

char **keep_on_hosts(ZbArena *a, char *const *command, const KeepHosts *h, int ranks) {
  uint32_t n = 0, args = 0;
  ZbText list = {0};
  for (uint32_t i = 0; i < h->n; i++)
    if (h->host[i].answers) zb_text_add(&list, "%s%s:%d", n++ ? "," : "", h->host[i].name, h->host[i].slots);
  while (command[args]) args++;
  char **all = ZB_NEWN(a, char *, args + 5);
  char *const more[] = {"-np", zb_printf(a, "%d", ranks), "--host", zb_strdup(a, list.s ? list.s : "")};
  all[0] = command[0];
  memcpy(all + 1, more, sizeof more);
  memcpy(all + 5, command + 1, (args - 1) * sizeof *all);
  all[args + 4] = NULL;
  zb_text_free(&list);
  return all;
}
