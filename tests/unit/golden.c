#include "tests/unit/golden.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
  char **name;
  uint32_t n;
} Names;

static bool ends(const char *name, const char *end) {
  size_t n = strlen(name), k = strlen(end);
  return n > k && !strcmp(name + n - k, end);
}

/* Returns the names in a folder with this end, sorted. */
static Names names_in(ZbArena *a, const char *folder, const char *end) {
  Names x = {0};
  struct dirent **list = NULL;
  int n = scandir(folder, &list, NULL, alphasort);
  cr_assert(n >= 0, "%s", folder);
  for (int i = 0; i < n; i++) {
    if (ends(list[i]->d_name, end)) ZB_PUSH(a, x.name, x.n, zb_strdup(a, list[i]->d_name));
    free(list[i]);
  }
  free(list);
  return x;
}

static char *read_text(ZbArena *a, const char *path, size_t *n) {
  ZbErr err;
  char *text = zb_read_file(a, path, 1 << 24, n, &err);
  cr_assert(text, "%s", err.text);
  return text;
}

static void write_text(const char *path, const char *text, size_t n) {
  FILE *f = fopen(path, "w");
  cr_assert(f && fwrite(text, 1, n, f) == n && fclose(f) == 0, "%s", path);
}

/* True if a file begins at this line: sets its name, and where its text begins. */
static bool begins(ZbArena *a, const char *line, char **name, const char **text) {
  size_t n = strcspn(line, "\n");
  if (n < 7 || strncmp(line, "-- ", 3) || strncmp(line + n - 3, " --", 3)) return false;
  *name = zb_strndup(a, line + 3, n - 6);
  *text = line + n + (line[n] == '\n');
  return true;
}

/* Writes the files of an archive into this folder. Returns their names, in order. */
static Names unpack(ZbArena *a, const char *archive) {
  Names x = {0};
  size_t bytes;
  const char *at = read_text(a, archive, &bytes), *end = at + bytes, *text;
  char *name, *next;
  cr_assert(begins(a, at, &name, &text), "%s: no `-- FILE --` at the beginning", archive);
  while (text) {
    const char *from = text, *to = text, *line_text = NULL;
    while (to < end && !begins(a, to, &next, &line_text)) {
      const char *line = memchr(to, '\n', (size_t)(end - to));
      to = line ? line + 1 : end;
    }
    char *slash = strchr(name, '/');
    if (slash) mkdir(zb_strndup(a, name, (size_t)(slash - name)), 0777);
    write_text(name, from, (size_t)(to - from));
    ZB_PUSH(a, x.name, x.n, name);
    name = next, text = to < end ? line_text : NULL;
  }
  return x;
}

/* Packs them again, each .expect right behind its .zug. */
static void pack(ZbArena *a, const char *archive, const Names *files) {
  ZbText t = {0};
  for (uint32_t i = 0; i < files->n; i++) {
    size_t n;
    const char *text = read_text(a, files->name[i], &n);
    zb_text_add(&t, "-- %s --\n", files->name[i]);
    zb_text_put(&t, text, n);
  }
  write_text(archive, t.s, t.len);
  zb_text_free(&t);
}

static char *expect_name(ZbArena *a, const char *file) {
  return zb_printf(a, "%.*s.expect", (int)strlen(file) - 4, file);
}

/* Calls check with every case among these files of this folder. */
static int each_of(ZbArena *a, const Names *files, void (*check)(const char *file)) {
  int cases = 0;
  for (uint32_t i = 0; i < files->n; i++) {
    if (!ends(files->name[i], ".zug") || access(expect_name(a, files->name[i]), F_OK)) continue;
    check(files->name[i]);
    cases++;
  }
  return cases;
}

int golden_each(const char *folder, void (*check)(const char *file)) {
  ZbArena *a = zb_arena_new();
  Names archive = names_in(a, folder, ".txtar"), loose = names_in(a, folder, ".zug");
  cr_assert(chdir(folder) == 0);
  int cases = each_of(a, &loose, check);
  for (uint32_t k = 0; k < archive.n; k++) {
    const char *path = zb_printf(a, "%s/%s", folder, archive.name[k]);
    char scratch[] = "/tmp/zug-golden-XXXXXX";
    cr_assert(mkdtemp(scratch) && chdir(scratch) == 0);
    Names files = unpack(a, path);
    cases += each_of(a, &files, check);
    if (getenv("REGENERATE")) pack(a, path, &files);
    for (uint32_t i = 0; i < files.n; i++) {
      unlink(files.name[i]);
      char *slash = strchr(files.name[i], '/');
      if (slash) *slash = 0, rmdir(files.name[i]);
    }
    cr_assert(chdir("/") == 0);
    rmdir(scratch);
  }
  zb_arena_free(a);
  return cases;
}

const char *difference(ZbArena *a, const char *want, const char *got) {
  if (!strcmp(want, got)) return NULL;
  uint32_t number = 1;
  while (*want && *got) {
    size_t n = strcspn(want, "\n"), m = strcspn(got, "\n");
    if (n != m || memcmp(want, got, n) != 0) break;
    want += n + (want[n] == '\n');
    got += m + (got[m] == '\n');
    number++;
  }
  return zb_printf(a, "line %u: expected '%.*s', found '%.*s'", number, (int)strcspn(want, "\n"), want,
                   (int)strcspn(got, "\n"), got);
}

void golden_file(const char *path, const char *got) {
  ZbArena *a = zb_arena_new();
  size_t n;
  if (getenv("REGENERATE")) write_text(path, got, strlen(got));
  const char *wrong = difference(a, read_text(a, path, &n), got);
  cr_expect(!wrong, "%s: %s", path, wrong);
  zb_arena_free(a);
}

void golden_expect(const char *file, const char *got) {
  ZbArena *a = zb_arena_new();
  golden_file(expect_name(a, file), got);
  zb_arena_free(a);
}

void golden_read(const char *folder, ZbText *out) {
  ZbArena *a = zb_arena_new();
  static const char *const end[] = {".txtar", ".expect"};
  for (int e = 0; e < 2; e++) {
    Names file = names_in(a, folder, end[e]);
    for (uint32_t k = 0; k < file.n; k++) {
      size_t n;
      const char *text = read_text(a, zb_printf(a, "%s/%s", folder, file.name[k]), &n);
      zb_text_put(out, text, n);
    }
  }
  zb_arena_free(a);
}
