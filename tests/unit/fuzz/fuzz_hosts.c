/* Fuzz target: any bytes as a file of hosts. What is read goes into a command of mpirun, as one word. */
#include "runtime/keep/keep.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  static const char path[] = "fuzz.hosts";
  static char *const command[] = {"mpirun", "true", NULL};
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return 0;
  bool ok = write(fd, data, n) == (ssize_t)n;
  close(fd);
  ZbArena *a = zb_arena_new();
  KeepHosts h;
  ZbErr err = {0};
  if (ok && keep_read_hosts(a, path, &h, &err)) {
    int *ranks;
    for (uint32_t i = 0; i < h.n; i++) h.host[i].answers = i % 3;
    if (keep_read_ranks(a, "8,4,2", &ranks, &err)) keep_ranks(&h, ranks);
    const char *list = keep_on_hosts(a, command, &h, 2)[4];
    if (list[strcspn(list, " \t\r\n;'\"$&|<>`\\(")]) ZB_BUG("a word of hosts: %s", list);
  } else if (ok && !*err.text) ZB_BUG("no hosts, and no message");
  zb_arena_free(a);
  unlink(path);
  return 0;
}
