/* See scratch.h. */
#define _GNU_SOURCE /* nftw */
#include "tests/unit/exec/scratch.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static char folder[64];

void scratch_make(void) {
  strcpy(folder, "/tmp/zug-exec-XXXXXX");
  cr_assert(mkdtemp(folder));
}

static int drop(const char *path, const struct stat *st, int type, struct FTW *ftw) {
  (void)st, (void)type, (void)ftw;
  return remove(path);
}

void scratch_remove(void) { nftw(folder, drop, 8, FTW_DEPTH | FTW_PHYS); }

const char *scratch(const char *name) {
  static char path[8][512];
  static int k;
  k = (k + 1) % 8;
  snprintf(path[k], sizeof *path, "%s/%s", folder, name);
  return path[k];
}

void scratch_folder(const char *name) { cr_assert_eq(mkdir(scratch(name), 0777), 0, "%s", name); }

void scratch_write(const char *name, const void *bytes, size_t n) {
  FILE *f = fopen(scratch(name), "wb");
  cr_assert(f && fwrite(bytes, 1, n, f) == n && fclose(f) == 0);
}

char *scratch_read(const char *name, size_t *n) {
  FILE *f = fopen(scratch(name), "rb");
  cr_assert(f);
  struct stat st;
  cr_assert(fstat(fileno(f), &st) == 0);
  char *p = calloc(1, (size_t)st.st_size + 1);
  *n = fread(p, 1, (size_t)st.st_size, f);
  fclose(f);
  return p;
}

int scratch_files(void) {
  int n = -2; /* . and .. */
  DIR *d = opendir(folder);
  cr_assert(d);
  while (readdir(d)) n++;
  closedir(d);
  return n;
}

int open_files(void) {
  int n = -3; /* . and .., and the one that this is read by */
  DIR *d = opendir("/proc/self/fd");
  cr_assert(d);
  while (readdir(d)) n++;
  closedir(d);
  return n;
}

void scratch_full_at(uint64_t bytes) {
  signal(SIGXFSZ, SIG_IGN);
  cr_assert(setrlimit(RLIMIT_FSIZE, &(struct rlimit){bytes, bytes}) == 0);
}

/* ---- in place of the library's: what is handed to the disk, and read from it ---- */
static atomic_int synced, failure, good;
int fsync(int fd) {
  synced++;
  if (failure && good-- <= 0) return errno = failure, -1;
  return (int)syscall(SYS_fsync, fd);
}
int scratch_synced(void) { return atomic_exchange(&synced, 0); }
void scratch_sync_fails(int code, int after) {
  good = after;
  failure = code;
}

static atomic_int bad_read = -1, good_reads;
ssize_t pread(int fd, void *p, size_t n, off_t at) {
  if (bad_read < 0 || good_reads-- > 0) return (ssize_t)syscall(SYS_pread64, fd, p, n, at);
  errno = bad_read;
  return bad_read ? -1 : 0;
}
void scratch_reads_fail(int code, int after) {
  good_reads = after;
  bad_read = code;
}
