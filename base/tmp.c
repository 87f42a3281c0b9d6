/* Temporaries: files and folders NAME.MACHINE-RANDOM.tmp beside what they become. See base.h.
 *
 * A temporary is made anew (O_EXCL, mkdir: nothing that is there is opened, no link is followed) and locked as
 * long as its maker lives. One that a killed maker left is known by the missing lock, and removed when the same
 * thing is made again: if it belongs to the same user, and was made on this machine, since locks of other
 * machines may not be seen here. */
#include "base/base.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
  MACHINE = 8,
  RANDOM = 8,
  SUFFIX = 1 + MACHINE + 1 + RANDOM + 4 /* ".MACHINE-RANDOM.tmp" */,
  TRIES = 100
};

static size_t folder_bytes(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? (size_t)(slash + 1 - path) : 0;
}

char *zb_beside(const char *path, const char *name) {
  ZbText t = {0};
  zb_text_put(&t, path, folder_bytes(path));
  zb_text_add(&t, "%s", name);
  return t.s;
}

/* Writes one word for the machine since it was started, the same in all its containers; "" if it has none. */
static void machine(char out[MACHINE + 1]) {
  char id[64] = "";
  int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? 0 : read(fd, id, sizeof id - 1);
  if (fd >= 0) close(fd);
  out[0] = 0;
  if (n > MACHINE) snprintf(out, MACHINE + 1, "%08x", (unsigned)zb_mix64(zb_stream(id)));
}

/* Returns the part of a temporary's name that says what it becomes: long names are cut. To be freed. */
static char *stem_of(const char *path) {
  const char *name = path + folder_bytes(path);
  size_t n = strlen(name);
  char *stem = strndup(name, n < NAME_MAX - SUFFIX ? n : NAME_MAX - SUFFIX);
  if (!stem) zb_out_of_memory(0);
  return stem;
}

static bool is_of(const char *name, const char *stem, const char *here) {
  size_t n = strlen(stem);
  if (!*here || strlen(name) != n + SUFFIX || strncmp(name, stem, n) || name[n] != '.') return false;
  if (strncmp(name + n + 1, here, MACHINE) || name[n + 1 + MACHINE] != '-' ||
      strcmp(name + n + SUFFIX - 4, ".tmp"))
    return false;
  return strspn(name + n + 2 + MACHINE, "0123456789abcdef") == RANDOM;
}

/* Removes it if it was left. Returns whether its maker lives. */
static bool look_at(const char *tmp, void (*clear)(const char *folder)) {
  struct stat st, now;
  int fd =
      open(tmp, (clear ? O_RDONLY | O_DIRECTORY : O_RDWR) | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0) return false;
  bool ours =
      fstat(fd, &st) == 0 && (clear ? S_ISDIR(st.st_mode) : S_ISREG(st.st_mode)) && st.st_uid == geteuid();
  bool lives = ours && flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;
  if (ours && !lives && lstat(tmp, &now) == 0 && now.st_ino == st.st_ino && now.st_dev == st.st_dev) {
    if (clear) clear(tmp), rmdir(tmp);
    else unlink(tmp);
  }
  close(fd);
  return lives;
}

bool zb_tmp_remove_left(const char *path, void (*clear)(const char *folder)) {
  char here[MACHINE + 1], *stem = stem_of(path), *folder = zb_beside(path, ".");
  machine(here);
  bool lives = false;
  DIR *d = opendir(folder);
  for (struct dirent *e; d && (e = readdir(d));) {
    if (!is_of(e->d_name, stem, here)) continue;
    char *tmp = zb_beside(path, e->d_name);
    lives |= look_at(tmp, clear);
    free(tmp);
  }
  if (d) closedir(d);
  free(folder);
  free(stem);
  return lives;
}

/* Returns a descriptor that holds the lock of a new file or folder; -1 with errno. Who removes what was left may
 * have the lock for a moment and remove this one too: errno is EEXIST then, as where the name is taken. */
static int make(const char *tmp, bool folder, mode_t mode) {
  struct stat st;
  if (folder && mkdir(tmp, mode) < 0) return -1;
  int fd = open(tmp,
                folder ? O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC
                       : O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                mode);
  if (fd < 0) return errno = folder && errno == ENOENT ? EEXIST : errno, -1;
  if (!(flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) && fstat(fd, &st) == 0 && st.st_nlink)
    return fd;
  close(fd);
  errno = EEXIST;
  return -1;
}

int zb_tmp_make(const char *path, bool folder, unsigned mode, char **tmp) {
  char here[MACHINE + 1], name[NAME_MAX + 1], *stem = stem_of(path);
  machine(here);
  int fd = -1;
  errno = EEXIST;
  for (int tries = 0; tries < TRIES && fd < 0 && errno == EEXIST; tries++) {
    uint64_t word = 0;
    if (getrandom(&word, sizeof word, 0) != sizeof word)
      word = zb_mix64((uint64_t)getpid() << 32 ^ (uint64_t)tries);
    snprintf(name, sizeof name, "%s.%s-%08x.tmp", stem, *here ? here : "unknown.", (unsigned)word);
    *tmp = zb_beside(path, name);
    fd = make(*tmp, folder, (mode_t)mode);
    int code = errno;
    if (fd < 0) free(*tmp), *tmp = NULL;
    errno = code;
  }
  free(stem);
  return fd;
}
