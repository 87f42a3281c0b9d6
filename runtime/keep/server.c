/* Servers: whether the command is one, and whether it has come to serve. */
#include "runtime/keep/keep.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

/* Returns the value of "--NAME VALUE" or "--NAME=VALUE" if this word begins it; NULL: it does not. */
static const char *value_of(char *const *word, const char *name) {
  size_t n = strlen(name);
  if (!strcmp(*word, name)) return word[1];
  return !strncmp(*word, name, n) && (*word)[n] == '=' ? *word + n + 1 : NULL;
}

bool keep_server(char *const *command, KeepServer *out) {
  bool serves = false;
  *out = (KeepServer){"127.0.0.1", 8080};
  for (const char *before = ""; *command; before = *command++) {
    const char *program = strrchr(before, '/') ? strrchr(before, '/') + 1 : before, *value;
    serves |= !strcmp(program, "zrun") && !strcmp(*command, "serve");
    if ((value = value_of(command, "--host"))) out->host = value;
    if ((value = value_of(command, "--port"))) out->port = atoi(value);
  }
  return serves;
}

/* Connects to a server on this machine; -1: nobody listens there. */
static int connect_to(const KeepServer *s) {
  struct timeval second = {1, 0};
  struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)s->port)};
  struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)s->port)};
  const char *host = !strcmp(s->host, "localhost") || !strcmp(s->host, "0.0.0.0") ? "127.0.0.1"
                     : !strcmp(s->host, "::")                                     ? "::1"
                                                                                  : s->host;
  bool is_v4 = inet_pton(AF_INET, host, &v4.sin_addr) == 1;
  if (!is_v4 && inet_pton(AF_INET6, host, &v6.sin6_addr) != 1) return -1;
  int fd = socket(is_v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &second, sizeof second);
  if (connect(fd, is_v4 ? (void *)&v4 : (void *)&v6, is_v4 ? sizeof v4 : sizeof v6) == 0) return fd;
  close(fd);
  return -1;
}

bool keep_answers(const KeepServer *s) {
  static const char ask[] = "GET /health HTTP/1.0\r\n\r\n";
  char text[13];
  size_t got = 0;
  int fd = connect_to(s);
  if (fd < 0) return false;
  if (send(fd, ask, sizeof ask - 1, MSG_NOSIGNAL) == (ssize_t)(sizeof ask - 1))
    for (ssize_t n; got < sizeof text && (n = recv(fd, text + got, sizeof text - got, 0)) > 0;)
      got += (size_t)n;
  close(fd);
  return got == sizeof text && !memcmp(text, "HTTP/1.", 7) && !memcmp(text + 8, " 200 ", 5);
}
