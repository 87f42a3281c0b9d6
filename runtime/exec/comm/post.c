/* What ranks tell rank 0, and what it answers: datagrams to every address of its node, of which any will do.
 * Nobody waits for them and nothing is lost with them; rank 0 itself says what it has not heard of. */
#include "runtime/exec/comm/watch.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <math.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ADDRESSES = 8, NAME = 64 };

typedef struct {
  uint64_t job; /* what else comes by is not ours */
  uint32_t address[ADDRESSES], n;
  uint16_t port, pad[3];
} Box; /* as others know it */

typedef struct {
  uint64_t job;
  double age; /* of the latest that any rank got done */
} Answer;

struct ZxPostbox {
  int rank, size, socket; /* does not block; -1: there is none */
  Box box;
  char *name; /* rank 0: of each rank's node, NAME bytes each */
  ZxPost *of; /* rank 0: the latest of each rank */
  bool *heard;
};

/* ---- rank 0 ---- */
static void add_addresses(Box *b) {
  struct ifaddrs *all = NULL;
  if (getifaddrs(&all) < 0) return;
  for (struct ifaddrs *i = all; i && b->n < ADDRESSES; i = i->ifa_next) {
    struct sockaddr_in a;
    if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || !(i->ifa_flags & IFF_UP)) continue;
    memcpy(&a, i->ifa_addr, sizeof a);
    b->address[b->n++] = a.sin_addr.s_addr;
  }
  freeifaddrs(all);
}

static void open_box(ZxPostbox *b) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
  socklen_t n = sizeof a;
  if (b->socket < 0 || bind(b->socket, (struct sockaddr *)&a, sizeof a) < 0 ||
      getsockname(b->socket, (struct sockaddr *)&a, &n) < 0)
    return;
  if (getrandom(&b->box.job, sizeof b->box.job, 0) != sizeof b->box.job) return;
  b->box.port = a.sin_port;
  add_addresses(&b->box);
}

ZxPostbox *zx_postbox_new(ZxComm *c) {
  ZxPostbox *b = zx_need(calloc(1, sizeof *b));
  char name[NAME] = "";
  b->rank = c->t->rank(c);
  b->size = c->t->size(c);
  b->socket = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (b->rank == 0) open_box(b);
  c->t->wait(c, c->t->broadcast(c, 0, &b->box, sizeof b->box, 0));
  gethostname(name, sizeof name - 1);
  char *names = zx_need(calloc((size_t)b->size, NAME));
  c->t->wait(c, c->t->all_gather(c, 0, name, sizeof name, names));
  if (b->rank) {
    free(names);
    return b;
  }
  b->name = names;
  b->of = zx_need(calloc((size_t)b->size, sizeof *b->of));
  b->heard = zx_need(calloc((size_t)b->size, sizeof *b->heard));
  return b;
}

void zx_postbox_free(ZxPostbox *b) {
  if (!b) return;
  if (b->socket >= 0) close(b->socket);
  free(b->name);
  free(b->of);
  free(b->heard);
  free(b);
}

/* What a rank that gets on has said before is true no more. */
static bool take(ZxPostbox *b, const ZxPost *p) {
  if (p->rank < 0 || p->rank >= b->size) return false;
  b->of[p->rank] = *p;
  b->of[p->rank].text[ZX_POST_TEXT - 1] = 0;
  b->heard[p->rank] = p->speaks || p->hangs;
  return p->hangs;
}

static ZxNews receive_posts(ZxPostbox *b, double age) {
  ZxPost p;
  ZxNews news = {false, INFINITY};
  struct sockaddr_in from;
  socklen_t n = sizeof from;
  for (ssize_t got; (got = recvfrom(b->socket, &p, sizeof p, 0, (struct sockaddr *)&from, &n)) >= 0;
       n = sizeof from) {
    if (got != sizeof p || p.job != b->box.job) continue;
    news.hangs |= take(b, &p);
    if (p.age >= 0 && p.age < news.age) news.age = p.age;
    Answer answer = {b->box.job, news.age < age ? news.age : age};
    sendto(b->socket, &answer, sizeof answer, 0, (struct sockaddr *)&from, n);
  }
  return news;
}

ZxNews zx_post_receive(ZxPostbox *b, double age) {
  Answer a;
  ZxNews news = {false, INFINITY};
  if (b->socket >= 0 && b->rank == 0) return receive_posts(b, age);
  for (ssize_t got; b->socket >= 0 && (got = recv(b->socket, &a, sizeof a, 0)) >= 0;)
    if (got == sizeof a && a.job == b->box.job && a.age >= 0 && a.age < news.age) news.age = a.age;
  return news;
}

bool zx_post_complete(const ZxPostbox *b) {
  for (int i = 0; i < b->size; i++)
    if (!b->heard[i] || !b->of[i].hangs) return false;
  return true;
}

/* ---- what is said ---- */
/* "ranks 0, 2 to 5 (zn1): waits in ...": those that say the same, on nodes of one name, in one line. */
static bool same(const ZxPostbox *b, int i, int k) {
  return b->heard[i] == b->heard[k] && !memcmp(b->name + i * NAME, b->name + k * NAME, NAME) &&
         (!b->heard[i] || !strcmp(b->of[i].text, b->of[k].text));
}

static void add_ranks(ZbText *t, const int *x, int n) {
  zb_text_add(t, n == 1 ? "rank " : "ranks ");
  zb_text_ranges(t, x, n);
}

static void say_where(const ZxPostbox *b, int *x) {
  bool *said = zx_need(calloc((size_t)b->size, sizeof *said));
  for (int i = 0; i < b->size; i++) {
    ZbText t = {0};
    int n = 0;
    for (int k = i; k < b->size && !said[i]; k++)
      if (!said[k] && same(b, i, k)) x[n++] = k;
    for (int k = 0; k < n; k++) said[x[k]] = true;
    if (!n) continue;
    add_ranks(&t, x, n);
    zx_say(0, "  %s (%s): %s", t.s, b->name + i * NAME,
           b->heard[i] ? b->of[i].text : "nothing is heard from there");
    zb_text_free(&t);
  }
  free(said);
}

void zx_post_report(const ZxPostbox *b) {
  int *x = zx_need(calloc((size_t)b->size, sizeof *x)), n = 0;
  ZbText t = {0};
  zx_say(0, "error: the run hangs; where its ranks are:");
  say_where(b, x);
  for (int i = 0; i < b->size; i++)
    if (!b->heard[i]) x[n++] = i;
  bool silent = n;
  for (int i = 0; i < b->size && !silent; i++)
    if (b->of[i].stands) x[n++] = i;
  if (n) add_ranks(&t, x, n);
  if (silent) zx_say(0, "error: held up by %s: stopped or dead, or cut off from this node", t.s);
  else if (n) zx_say(0, "error: held up by %s, which %s for nobody", t.s, n == 1 ? "waits" : "wait");
  else zx_say(0, "error: all ranks wait for each other: messages between them are lost or held up");
  zb_text_free(&t);
  free(x);
}

/* ---- every rank ---- */
void zx_post_send(ZxPostbox *b, const ZxPost *p) {
  ZxPost q = *p;
  if (b->rank == 0) {
    take(b, p);
    return;
  }
  q.job = b->box.job;
  for (uint32_t i = 0; b->socket >= 0 && i < b->box.n; i++) { /* by any way, or not at all */
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = b->box.port, .sin_addr.s_addr = b->box.address[i]};
    sendto(b->socket, &q, sizeof q, 0, (struct sockaddr *)&to, sizeof to);
  }
}
