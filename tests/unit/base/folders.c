/* Folders: what is removed from them, and what stays. */
#include "base/base.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/tmp/zug-folders-XXXXXX";

static const char *in(const char *name) {
  static char path[4][512];
  static int n;
  char *p = path[n++ % 4];
  snprintf(p, sizeof path[0], "%s/%s", dir, name);
  return p;
}

static void make(const char *name) {
  int fd = open(in(name), O_WRONLY | O_CREAT | O_EXCL, 0666);
  cr_assert(fd >= 0);
  close(fd);
}

static bool is_there(const char *path) {
  struct stat st;
  return lstat(path, &st) == 0;
}

static bool ours(const char *name) { return zb_ends(name, ".bin"); }

static void begin(void) { cr_assert(mkdtemp(dir)); }
static void end(void) {
  char command[600];
  snprintf(command, sizeof command, "rm -rf %s", dir);
  cr_expect_eq(system(command), 0);
}
TestSuite(folders, .init = begin, .fini = end);

Test(folders, only_own_files_go) {
  ZbErr err = {0};
  cr_assert(mkdir(in("f"), 0777) == 0);
  make("f/a.bin"), make("f/b.txt"), make("f/c.bin");
  cr_expect(zb_clear_folder(in("f"), ours, &err));
  cr_expect(!is_there(in("f/a.bin")) && !is_there(in("f/c.bin")) && is_there(in("f/b.txt")));
  cr_expect(zb_remove_folder(in("f"), ours, &err));
  cr_expect(is_there(in("f/b.txt")));
  unlink(in("f/b.txt"));
  make("f/d.bin");
  cr_expect(zb_remove_folder(in("f"), ours, &err));
  cr_expect_not(is_there(in("f")));
}

Test(folders, what_is_missing_above_is_made_too) {
  ZbErr err = {0};
  struct stat st;
  cr_expect(zb_make_folders(in("a/b//c"), "log", "look there", &err), "%s", err.text);
  cr_expect(stat(in("a/b/c"), &st) == 0 && S_ISDIR(st.st_mode));
  cr_expect(zb_make_folders(in("a/b/c"), "log", "look there", &err), "what is there is enough: %s", err.text);
  make("file");
  cr_expect_not(zb_make_folders(in("file/x"), "log", "look there", &err));
  cr_expect(strstr(err.text, "cannot make the log folder") && strstr(err.text, "file/x: Not a directory"),
            "%s", err.text);
  cr_expect_str_eq(err.help, "look there");
  cr_expect_not(zb_make_folders("", "log", NULL, &err));
  cr_expect_str_eq(err.text, "the log folder has no name");
}

Test(folders, what_cannot_be_removed_is_an_error) {
  ZbErr err = {0};
  cr_expect_not(zb_clear_folder(in("none"), ours, &err));
  cr_expect(strstr(err.text, "cannot remove") && strstr(err.text, "none"));
  cr_assert(mkdir(in("f"), 0777) == 0 && mkdir(in("f/x.bin"), 0777) == 0); /* a folder is no file */
  cr_expect_not(zb_clear_folder(in("f"), ours, &err));
  cr_expect_not(zb_remove_folder(in("f"), ours, NULL));
  cr_expect(is_there(in("f/x.bin")));
}

Test(folders, links_to_folders_are_not_followed) {
  cr_assert(mkdir(in("f"), 0777) == 0 && symlink(in("f"), in("link")) == 0);
  make("f/a.bin");
  cr_expect_not(zb_remove_folder(in("link"), ours, NULL));
  cr_expect(is_there(in("f/a.bin")) && is_there(in("link")));
}

Test(folders, names_are_exchanged) {
  cr_assert(mkdir(in("f"), 0777) == 0 && mkdir(in("g"), 0777) == 0);
  make("f/a.bin");
  if (zb_exchange(in("f"), in("g"))) cr_expect(is_there(in("g/a.bin")) && !is_there(in("f/a.bin")));
  else cr_expect(errno == EINVAL || errno == ENOSYS); /* a file system that cannot */
  cr_expect_not(zb_exchange(in("f"), in("none")));
}
