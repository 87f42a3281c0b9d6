/* A folder of files that is there when it is whole, and what is in its way. */
#include "runtime/zdata/zdata.h"
#include "tests/unit/exec/scratch.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(folder, .init = scratch_make, .fini = scratch_remove);

static ZbErr err;

static void refused(const char *path, const char *words) {
  int open = open_files();
  err = (ZbErr){0};
  cr_expect_null(zd_folder_new(path, &err));
  says(err, words);
  cr_expect_eq(open_files(), open);
}

static bool is_folder(const char *name) {
  struct stat st;
  return lstat(scratch(name), &st) == 0 && S_ISDIR(st.st_mode);
}

/* Fills a folder of that name as one does who is then killed. Returns its temporary, which stays. */
static const char *killed(const char *name, const char *file) {
  static char path[PATH_MAX];
  int ends[2];
  cr_assert(pipe(ends) == 0);
  pid_t child = fork();
  if (!child) {
    ZdFolder *f = zd_folder_new(scratch(name), &err);
    const char *tmp = f ? zd_folder_path(f) : "";
    bool good = f && zd_folder_add(f, "train", &err);
    FILE *x = good ? fopen(zb_printf(zb_arena_new(), "%s/%s", tmp, file), "w") : NULL;
    good = x && fclose(x) == 0 && write(ends[1], tmp, strlen(tmp) + 1) > 0;
    _exit(!good);
  }
  int status;
  cr_assert(waitpid(child, &status, 0) == child && status == 0 && read(ends[0], path, sizeof path) > 1);
  close(ends[0]), close(ends[1]);
  return path;
}

Test(folder, takes_its_name_at_the_end) {
  int open = open_files();
  for (int round = 0; round < 2; round++) { /* the second time it is there, and empty */
    ZdFolder *f = zd_folder_new(scratch("x"), &err);
    cr_assert(f, "%s", err.text);
    char *tmp = strdup(zd_folder_path(f));
    const char *train = zd_folder_add(f, "train", &err);
    cr_expect(train && !strncmp(train, tmp, strlen(tmp)));
    cr_expect_null(zd_folder_add(f, "train", &err));
    says(err, "/train: File exists");
    cr_expect_eq(is_folder("x"), round == 1);
    cr_assert(zd_folder_commit(f, &err), "%s", err.text);
    cr_expect(is_folder("x/train") && access(tmp, F_OK) < 0);
    rmdir(scratch("x/train"));
    free(tmp);
  }
  cr_expect_eq(open_files(), open);
}

/* What one that was killed left goes, but for what zdata does not write; and whatever has a name of another kind
 * stays, as does all of other users. */
Test(folder, is_made_anew) {
  char *left = strdup(killed("x", "0.bin"));
  cr_expect(access(left, F_OK) == 0);
  mkdir(scratch("x.partial"), 0777);
  scratch_write("x.partial/0.bin", "", 0);
  mkdir(scratch("x.tmp"), 0777);
  ZdFolder *f = zd_folder_new(scratch("x"), &err);
  cr_assert(f, "%s", err.text);
  cr_expect(access(left, F_OK) < 0, "what was left is there");
  cr_expect(access(scratch("x.partial/0.bin"), F_OK) == 0 && is_folder("x.tmp"));
  zd_folder_discard(f);
  free(left);
  left = strdup(killed("y", "mine"));
  f = zd_folder_new(scratch("y"), &err);
  cr_assert(f, "%s", err.text);
  cr_expect(access(left, F_OK) == 0, "a file that zdata did not make is gone");
  zd_folder_discard(f);
  free(left);
  if (geteuid()) return;
  left = strdup(killed("z", "0.bin"));
  cr_assert(chown(left, 65534, 65534) == 0);
  f = zd_folder_new(scratch("z"), &err);
  cr_assert(f, "%s", err.text);
  cr_expect(access(left, F_OK) == 0, "what is another user's is gone");
  zd_folder_discard(f);
  free(left);
}

Test(folder, what_is_in_its_way) {
  scratch_write("file", "", 0);
  mkdir(scratch("full"), 0777);
  scratch_write("full/x", "", 0);
  refused(scratch("file"), "file exists and is not an empty folder");
  refused(scratch("full"), "full exists and is not an empty folder");
  refused(scratch("none/x"), "none/x: No such file");
  refused("", "a folder without a name");
  ZdFolder *f = zd_folder_new(scratch("x"), &err);
  char *tmp = strdup(zd_folder_path(f));
  refused(scratch("x"), "another zdata makes ");
  mkdir(scratch("x"), 0777);
  scratch_write("x/y", "", 0);
  int open = open_files();
  cr_expect_not(zd_folder_commit(f, &err));
  says(err, "cannot rename ");
  cr_expect_str_eq(err.help, "it is whole: rename it yourself");
  cr_expect(access(tmp, F_OK) == 0 && open_files() == open - 1);
  free(tmp);
}

Test(folder, is_discarded) {
  ZdFolder *f = zd_folder_new(scratch("x"), &err);
  cr_assert(zd_folder_add(f, "valid", &err));
  zd_folder_discard(f);
  zd_folder_discard(NULL);
  cr_expect_eq(scratch_files(), 0);
}
