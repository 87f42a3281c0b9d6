/* What ranks tell rank 0 by datagrams, over real ones: between threads of this process, from strangers, and
 * where no descriptor was taken. */
#include "runtime/exec/comm/watch.h"
#include "tests/unit/exec/scratch.h"
#include "tests/unit/exec/threads.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <math.h>
#include <net/if.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RANKS = 3 };
static ZxPostbox *box[RANKS];
static int first = -1; /* the rank that has descriptor 0, which is free, before others come */

static void *opens(void *arg) {
  ThreadRank *r = arg;
  while (first >= 0 && r->rank != first && fcntl(0, F_GETFD) < 0) usleep(100);
  box[r->rank] = zx_postbox_new(&r->base);
  return NULL;
}

static void closes(int n) {
  for (int i = 0; i < n; i++) zx_postbox_free(box[i]);
}

static bool is_heard_of(int rank) {
  const ZxPost p = {.rank = rank, .hangs = true, .text = "waits"};
  bool heard = false;
  zx_post_send(box[rank], &p);
  for (int tries = 0; !heard && tries < 2000; tries++, usleep(1000)) heard = zx_post_receive(box[0], 0).hangs;
  return heard;
}

Test(post, between_ranks) {
  int before = open_files();
  together(RANKS, opens);
  cr_expect_eq(open_files(), before + RANKS);
  for (int k = 1; k < RANKS; k++) cr_expect(is_heard_of(k) && !zx_post_complete(box[0]), "rank %d", k);
  zx_post_send(box[0], &(ZxPost){.rank = 0, .hangs = true});
  cr_expect(zx_post_complete(box[0]));
  zx_post_send(box[0], &(ZxPost){.rank = 0});
  cr_expect(!zx_post_complete(box[0]));
  for (int k = -1; k <= RANKS; k += RANKS + 1) zx_post_send(box[0], &(ZxPost){.rank = k, .hangs = true});
  cr_expect(!zx_post_complete(box[0]), "no such ranks");
  closes(RANKS);
  zx_postbox_free(NULL);
  cr_expect_eq(open_files(), before);
}

/* Where a program was given no standard input a socket is descriptor 0. */
Test(post, by_descriptor_0) {
  for (first = 0; first < 2; first++) {
    close(0);
    together(2, opens);
    cr_expect_eq(fcntl(0, F_GETFD), FD_CLOEXEC);
    cr_expect(fcntl(0, F_GETFL) & O_NONBLOCK);
    cr_expect(is_heard_of(1), "rank %d has it", first);
    closes(2);
    cr_expect(fcntl(0, F_GETFD) < 0);
  }
}

/* What others send is taken out, and what lies behind it is heard. */
Test(post, strangers) {
  struct sockaddr_in a;
  socklen_t n = sizeof a;
  const ZxPost p = {.rank = 1, .hangs = true};
  bool heard = false;
  close(0);
  first = 0;
  together(2, opens);
  int out = socket(AF_INET, SOCK_DGRAM, 0);
  cr_assert(getsockname(0, (struct sockaddr *)&a, &n) == 0 && a.sin_port);
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  cr_assert_eq(sendto(out, &p, sizeof p, 0, (struct sockaddr *)&a, sizeof a), sizeof p);
  for (int tries = 0; tries < 50; tries++, usleep(100))
    cr_expect(!zx_post_receive(box[0], 0).hangs, "who does not know the job");
  for (int tries = 0; !heard && tries < 20; tries++) { /* both may be under way for some time */
    cr_assert_eq(sendto(out, "", 0, 0, (struct sockaddr *)&a, sizeof a), 0);
    zx_post_send(box[1], &p);
    heard = zx_post_receive(box[0], 0).hangs;
    for (int rest = 0; rest < 20; rest++, usleep(100)) zx_post_receive(box[0], 0);
  }
  cr_expect(heard);
  close(out);
  closes(2);
}

static bool is_up(const struct ifaddrs *i) {
  return i->ifa_addr && i->ifa_addr->sa_family == AF_INET && i->ifa_flags & IFF_UP;
}
static bool is_at(const struct ifaddrs *i, const struct sockaddr_in *a) {
  return is_up(i) && ((struct sockaddr_in *)(void *)i->ifa_addr)->sin_addr.s_addr == a->sin_addr.s_addr;
}

/* One goes to each address of rank 0's node, and comes from there; of many addresses to the first eight. */
Test(post, by_all_addresses) {
  struct sockaddr_in a;
  struct ifaddrs *all;
  const ZxPost p = {.rank = 1};
  int want = 0, found = 0;
  close(0);
  first = 0;
  together(2, opens);
  zx_post_send(box[1], &p);
  cr_assert(getifaddrs(&all) == 0);
  for (struct ifaddrs *i = all; i; i = i->ifa_next) want += is_up(i);
  if (want > 8) want = 8;
  bool known[64] = {false};
  for (int tries = 0; found < want && tries < 2000; tries++) {
    ZxPost got;
    socklen_t n = sizeof a;
    if (recvfrom(0, &got, sizeof got, MSG_DONTWAIT, (struct sockaddr *)&a, &n) != sizeof got) {
      usleep(1000);
      continue;
    }
    int at = 0;
    struct ifaddrs *i = all;
    while (i && (known[at] || !is_at(i, &a))) i = i->ifa_next, at++;
    cr_expect(i && at < 64 && got.rank == 1, "from an address of this machine, and from each once");
    known[at] = true;
    found++;
  }
  cr_expect_eq(found, want);
  zx_post_send(box[0], &(ZxPost){.rank = 0, .hangs = true});
  cr_expect(recv(0, &a, sizeof a, MSG_DONTWAIT) < 0, "and no more: rank 0 keeps its own");
  freeifaddrs(all);
  closes(2);
}

static double heard_age(ZxPostbox *b, double own) {
  ZxNews news = {false, INFINITY};
  for (int tries = 0; isinf(news.age) && tries < 2000; tries++, usleep(1000)) news = zx_post_receive(b, own);
  return news.age;
}

/* Rank 0 learns when others got something done, and answers when any rank did. */
Test(post, ages) {
  together(RANKS, opens);
  cr_expect(isinf(zx_post_receive(box[0], 0).age) && isinf(zx_post_receive(box[1], 0).age), "nobody speaks");
  zx_post_send(box[1], &(ZxPost){.rank = 1, .age = 7});
  cr_expect_eq(heard_age(box[0], 3), 7);
  cr_expect_eq(heard_age(box[1], 0), 3);
  zx_post_send(box[1], &(ZxPost){.rank = 1, .age = 2});
  cr_expect_eq(heard_age(box[0], 3), 2);
  cr_expect_eq(heard_age(box[1], 0), 2);
  cr_expect(isinf(zx_post_receive(box[2], 0).age), "who says nothing is not answered");
  zx_post_send(box[1], &(ZxPost){.rank = 1, .age = NAN});
  zx_post_send(box[2], &(ZxPost){.rank = 2, .age = 5});
  cr_expect_eq(heard_age(box[0], INFINITY), 5);
  closes(RANKS);
}

/* A rank that gets on, and then stops, has not said where it is. */
Test(post, what_was_said_before_it_got_on) {
  char said[2000] = "";
  cr_redirect_stderr();
  together(2, opens);
  zx_post_send(box[0], &(ZxPost){.rank = 0, .hangs = true, .text = "waits in x"});
  zx_post_send(box[1], &(ZxPost){.rank = 1, .speaks = true, .text = "waits in y"});
  heard_age(box[0], 0);
  zx_post_send(box[1], &(ZxPost){.rank = 1, .age = 1});
  heard_age(box[0], 0);
  zx_post_report(box[0]);
  fflush(stderr);
  said[fread(said, 1, sizeof said - 1, cr_get_redirected_stderr())] = 0;
  cr_expect(strstr(said, "waits in x") && !strstr(said, "waits in y"), "%s", said);
  cr_expect(strstr(said, "held up by rank 1: stopped or dead, or cut off"), "%s", said);
  closes(2);
}

/* A text without an end has one, and all of it before that is said. */
Test(post, a_long_text) {
  ZxPost p = {.rank = 0, .hangs = true, .stands = true};
  char said[2000] = "", want[ZX_POST_TEXT + 8];
  cr_redirect_stderr();
  together(1, opens);
  memset(p.text, 'x', sizeof p.text);
  zx_post_send(box[0], &p);
  zx_post_report(box[0]);
  fflush(stderr);
  said[fread(said, 1, sizeof said - 1, cr_get_redirected_stderr())] = 0;
  snprintf(want, sizeof want, "): %.*s\n", ZX_POST_TEXT - 1, p.text);
  cr_expect(strstr(said, want), "%s", said);
  closes(1);
}
