/* A folder of files that is there when it is whole, and what is in its way. */
#include "runtime/zdata/zdata.h"
#include "tests/unit/exec/scratch.h"

#include <criterion/criterion.h>
#include <string.h>
#include <sys/stat.h>
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

Test(folder, takes_its_name_at_the_end) {
  int open = open_files();
  for (int round = 0; round < 2; round++) { /* the second time it is there, and empty */
    ZdFolder *f = zd_folder_new(scratch("x"), &err);
    cr_assert(f, "%s", err.text);
    cr_expect_str_eq(zd_folder_path(f), scratch("x.partial"));
    cr_expect_str_eq(zd_folder_add(f, "train", &err), scratch("x.partial/train"));
    cr_expect_null(zd_folder_add(f, "train", &err));
    says(err, "cannot create ");
    says(err, "x.partial/train: File exists");
    scratch_write("x.partial/1.bin", "", 0);
    cr_expect_eq(is_folder("x"), round == 1);
    cr_assert(zd_folder_commit(f, &err), "%s", err.text);
    cr_expect(is_folder("x/train") && !is_folder("x.partial") && access(scratch("x/1.bin"), F_OK) == 0);
    unlink(scratch("x/1.bin"));
    rmdir(scratch("x/train"));
  }
  cr_expect_eq(open_files(), open);
}

/* What was left by one that was killed goes, and nothing else. */
Test(folder, is_made_anew) {
  mkdir(scratch("x.partial"), 0777);
  mkdir(scratch("x.partial/train"), 0777);
  mkdir(scratch("x.partial/valid"), 0777);
  scratch_write("x.partial/0.bin", "", 0);
  scratch_write("x.partial/0.bin.123.tmp", "", 0);
  scratch_write("x.partial/train/0.bin", "", 0);
  scratch_write("x.partial/valid/0.bin", "", 0);
  ZdFolder *f = zd_folder_new(scratch("x"), &err);
  cr_assert(f, "%s", err.text);
  cr_expect(rmdir(scratch("x.partial")) == 0, "it is not empty");
  zd_folder_discard(f);
  mkdir(scratch("x.partial"), 0777);
  scratch_write("x.partial/0.bin", "", 0);
  scratch_write("x.partial/mine", "", 0);
  refused(scratch("x"), "x.partial has files that zdata did not make");
  cr_expect(access(scratch("x.partial/mine"), F_OK) == 0);
}

Test(folder, what_is_in_its_way) {
  scratch_write("file", "", 0);
  mkdir(scratch("full"), 0777);
  scratch_write("full/x", "", 0);
  refused(scratch("file"), "file exists and is not an empty folder");
  refused(scratch("full"), "full exists and is not an empty folder");
  refused(scratch("none/x"), "cannot create ");
  says(err, "none/x.partial: No such file");
  refused("", "a folder without a name");
  scratch_write("y.partial", "", 0);
  refused(scratch("y"), "cannot open ");
  cr_assert(symlink("full", scratch("z.partial")) == 0);
  refused(scratch("z"), "cannot open ");
  cr_expect(access(scratch("full/x"), F_OK) == 0);
  ZdFolder *f = zd_folder_new(scratch("x"), &err);
  refused(scratch("x"), "another zdata makes ");
  mkdir(scratch("x"), 0777);
  scratch_write("x/y", "", 0);
  int open = open_files();
  cr_expect_not(zd_folder_commit(f, &err));
  says(err, "cannot rename ");
  cr_expect_str_eq(err.help, "it is whole: rename it yourself");
  cr_expect(is_folder("x.partial") && open_files() == open - 1);
}

Test(folder, is_discarded) {
  ZdFolder *f = zd_folder_new(scratch("x"), &err);
  scratch_write("x.partial/0.bin", "", 0);
  cr_assert(zd_folder_add(f, "valid", &err));
  zd_folder_discard(f);
  zd_folder_discard(NULL);
  cr_expect_eq(scratch_files(), 0);
}
