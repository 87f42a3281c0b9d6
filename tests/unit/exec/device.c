/* A communicator of a device's memory by way of the host's, on a device and a communicator that note what they are
 * told; which device is had; what a machine and its control groups have left. */
#include "runtime/exec/device/device.h"
#include "runtime/exec/device/memory.h"
#include "tests/unit/exec/scratch.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

TestSuite(device, .init = scratch_make, .fini = scratch_remove);

static ZbErr err;

/* ---- a communicator and a device that note what they are told ---- */
enum { EVENT = 100, QUEUE = 2 };
static ZbText told;
static int queue, members = 3, rank = 1, left_open;
static bool reached[ZX_STAGED_EVENTS], done[ZX_STAGED_EVENTS];
static char *host; /* what was pinned last */

static void was_told(const char *want) {
  cr_expect_str_eq(told.s ? told.s : "", want, "'%s', not '%s'", told.s, want);
  told.len = 0;
  zb_text_add(&told, "%s", "");
}

static ZxRequest started(const char *fmt, ...) {
  va_list list;
  va_start(list, fmt);
  char text[200];
  vsnprintf(text, sizeof text, fmt, list);
  va_end(list);
  zb_text_add(&told, "%s; ", text);
  return left_open++;
}

static int in_rank(ZxComm *c) { return (void)c, rank; }
static int in_size(ZxComm *c) { return (void)c, members; }
static int in_node_rank(ZxComm *c) { return (void)c, 5; }
static const int *in_nodes(ZxComm *c) {
  static const int nodes[] = {0, 0, 2};
  return (void)c, nodes;
}
static ZxGroup in_split(ZxComm *c, int color) { return (void)c, color + 40; }
static int in_group_rank(ZxComm *c, ZxGroup g) { return (void)c, g == 9 ? rank : 77; }
static int in_group_size(ZxComm *c, ZxGroup g) { return (void)c, g == 9 || !g ? members : 77; }
static ZxRequest in_send(ZxComm *c, const void *p, size_t bytes, int peer, int tag) {
  (void)c;
  return started("send %.*s to %d, tag %d", (int)bytes, (const char *)p, peer, tag);
}
static ZxRequest in_recv(ZxComm *c, void *p, size_t bytes, int peer, int tag) {
  (void)c;
  memset(p, 'r', bytes);
  return started("recv %zu from %d, tag %d", bytes, peer, tag);
}
static ZxRequest in_all_reduce(ZxComm *c, ZxGroup g, void *p, size_t n, ZkElem elem, ZxReduce how) {
  (void)c;
  ZxRequest r =
      started("reduce %.*s of %d, %zu x %d, %d", (int)(zk_bytes(elem, n)), (const char *)p, g, n, elem, how);
  memset(p, 's', zk_bytes(elem, n));
  return r;
}
/* What goes out must not lie where something arrives. */
static ZxRequest in_apart(const char *what, ZxGroup g, const void *in, size_t out, void *to, size_t back,
                          size_t n) {
  ZxRequest r = started("%s %.*s of %d, %zu", what, (int)out, (const char *)in, g, n);
  cr_expect((const char *)to >= (const char *)in + out || (const char *)in >= (const char *)to + back);
  memset(to, 'g', back);
  return r;
}
static ZxRequest in_all_gather(ZxComm *c, ZxGroup g, const void *part, size_t bytes, void *out) {
  (void)c;
  return in_apart("gather", g, part, bytes, out, 3 * bytes, bytes);
}
static ZxRequest in_reduce_scatter(ZxComm *c, ZxGroup g, void *in, size_t n, ZkElem elem, ZxReduce how,
                                   void *out) {
  (void)c;
  size_t bytes = zk_bytes(elem, n);
  return in_apart(how == ZX_MAX ? "scatter the most" : "scatter", g, in, 3 * bytes, out, bytes, n);
}
static ZxRequest in_all_to_all(ZxComm *c, ZxGroup g, const void *in, size_t bytes, void *out) {
  (void)c;
  return in_apart("to all", g, in, 3 * bytes, out, 3 * bytes, bytes);
}
static ZxRequest in_broadcast(ZxComm *c, ZxGroup g, void *p, size_t bytes, int root) {
  (void)c;
  ZxRequest r = started("broadcast of %d, %zu from %d", g, bytes, root);
  if (root != rank) memset(p, 'b', bytes);
  return r;
}
static bool in_test(ZxComm *c, ZxRequest r) { return (void)c, r < 0 || done[r]; }
static void in_barrier(ZxComm *c) { (void)c, zb_text_add(&told, "barrier; "); }
static void in_explain(ZxComm *c, ZxRequest r, ZbText *out) { (void)c, zb_text_add(out, "request %d", r); }
static uint64_t in_moves(ZxComm *c) { return (void)c, 1000; }
static void in_progress(ZxComm *c) { (void)c, zb_text_add(&told, "progress; "); }
static const ZxCommTable in_table = {.rank = in_rank,
                                     .size = in_size,
                                     .node_rank = in_node_rank,
                                     .nodes = in_nodes,
                                     .split = in_split,
                                     .group_rank = in_group_rank,
                                     .group_size = in_group_size,
                                     .send = in_send,
                                     .recv = in_recv,
                                     .all_reduce = in_all_reduce,
                                     .all_gather = in_all_gather,
                                     .reduce_scatter = in_reduce_scatter,
                                     .all_to_all = in_all_to_all,
                                     .broadcast = in_broadcast,
                                     .test = in_test,
                                     .barrier = in_barrier,
                                     .explain = in_explain,
                                     .moves = in_moves,
                                     .progress = in_progress};

static void *dev_pinned(const ZkEnv *env, size_t bytes, ZbErr *e) {
  (void)env, (void)e;
  zb_text_add(&told, "pin %zu; ", bytes);
  return host = calloc(1, bytes);
}
static void dev_unpin(const ZkEnv *env, void *p) {
  (void)env;
  zb_text_add(&told, "unpin; ");
  free(p);
}
static void dev_copy(const ZkEnv *env, void *to, const void *from, size_t bytes) {
  (void)env;
  zb_text_add(&told, "copy %zu; ", bytes);
  memmove(to, from, bytes);
}
static void dev_upload(const ZkEnv *env, void *to, const void *from, size_t bytes) {
  (void)env;
  zb_text_add(&told, "up %zu; ", bytes);
  memcpy(to, from, bytes);
}
static void dev_download(const ZkEnv *env, void *to, const void *from, size_t bytes) {
  (void)env;
  zb_text_add(&told, "down %zu; ", bytes);
  memcpy(to, from, bytes);
}
static void dev_stream(ZkEnv *env, int q) {
  (void)env;
  zb_text_add(&told, "stream %d; ", queue = q);
}
static int dev_current(const ZkEnv *env) { return (void)env, queue; }
static void dev_record(const ZkEnv *env, uint32_t event) {
  (void)env;
  reached[event - EVENT] = false;
  zb_text_add(&told, "event %u; ", event - EVENT);
}
static bool dev_reached(const ZkEnv *env, uint32_t event) { return (void)env, reached[event - EVENT]; }
static const ZxDeviceTable dev = {.pinned = dev_pinned,
                                  .unpin = dev_unpin,
                                  .copy = dev_copy,
                                  .upload = dev_upload,
                                  .download = dev_download,
                                  .stream = dev_stream,
                                  .current = dev_current,
                                  .record = dev_record,
                                  .reached = dev_reached};
static ZkEnv env;
static ZxComm inner = {&in_table};

/* ---- operations ---- */
static char buf[64], out[64];

static ZxRequest start(ZxComm *c, int which) {
  const ZxCommTable *t = c->t;
  switch (which) {
  case 0: return t->send(c, buf, 6, 2, 7);
  case 1: return t->recv(c, out, 6, 0, 8);
  case 2: return t->all_reduce(c, 9, buf, 3, ZK_F32, ZX_MAX);
  case 3: return t->all_gather(c, 9, buf, 5, out);
  case 4: return t->reduce_scatter(c, 9, buf, 3, ZK_BF16, ZX_SUM, out);
  case 5: return t->all_to_all(c, 9, buf, 4, out);
  case 6: return t->broadcast(c, 9, buf, 10, 1);
  default: return t->broadcast(c, 9, out, 10, 2);
  }
}

/* Each through all its states; a state is not left before its event, or its request, is complete. */
Test(device, staged_operations) {
  static const struct {
    const char *begun, *inside, *after, *buf, *out;
  } want[] = {
      {"pin 6; down 6; event 0; ", "send abcdef to 2, tag 7; ", "stream 2; event 0; stream 1; ", "abcdefghij",
       ""},
      {"event 0; ", "recv 6 from 0, tag 8; ", "stream 2; up 6; event 0; stream 1; ", "abcdefghij", "rrrrrr"},
      {"unpin; pin 12; down 12; event 0; ", "reduce abcdefghijkl of 9, 3 x 0, 1; ",
       "stream 2; up 12; event 0; stream 1; ", "ssssssssssssmn", ""},
      {"unpin; pin 79; down 5; event 0; ", "gather abcde of 9, 5; ", "stream 2; up 15; event 0; stream 1; ",
       "abcdefghij", "ggggggggggggggg"},
      {"down 18; event 0; ", "scatter abcdefghijklmnopqr of 9, 3; ", "stream 2; up 6; event 0; stream 1; ",
       "abcdefghij", "gggggg"},
      {"down 12; event 0; ", "to all abcdefghijkl of 9, 4; ", "stream 2; up 12; event 0; stream 1; ",
       "abcdefghij", "gggggggggggg"},
      {"down 10; event 0; ", "broadcast of 9, 10 from 1; ", "stream 2; event 0; stream 1; ", "abcdefghij",
       ""},
      {"event 0; ", "broadcast of 9, 10 from 2; ", "stream 2; up 10; event 0; stream 1; ", "abcdefghij",
       "bbbbbbbbbb"}};
  ZxComm *c = zx_comm_staged(&inner, &dev, &env, EVENT);
  for (int i = 0; i < 8; i++) {
    ZbText t = {0};
    strcpy(buf, "abcdefghijklmnopqrstuvwxyz");
    memset(out, 0, sizeof out);
    memset(done, 0, sizeof done);
    left_open = 0;
    queue = QUEUE;
    ZxRequest r = start(c, i);
    cr_assert_eq(r, 0);
    was_told(want[i].begun);
    queue = 1; /* others work meanwhile */
    c->t->explain(c, r, &t);
    cr_expect_str_eq(t.s, "the device, to copy what is sent");
    cr_expect(!c->t->test(c, r));
    was_told("");
    reached[0] = true;
    cr_expect(!c->t->test(c, r));
    was_told(want[i].inside);
    t.len = 0;
    c->t->explain(c, r, &t);
    cr_expect_str_eq(t.s, "request 0");
    cr_expect(!c->t->test(c, r));
    was_told("");
    done[0] = true;
    cr_expect(!c->t->test(c, r));
    was_told(want[i].after);
    t.len = 0;
    c->t->explain(c, r, &t);
    cr_expect_str_eq(t.s, "the device, to copy what is received");
    cr_expect(!c->t->test(c, r));
    reached[0] = true;
    cr_expect(c->t->test(c, r));
    was_told("");
    cr_expect(!strncmp(buf, want[i].buf, strlen(want[i].buf)) && !strcmp(out, want[i].out), "%d: %s, %s", i,
              buf, out);
    cr_expect_eq(c->t->moves(c), 1000 + (uint64_t)i + 1);
    zb_text_free(&t);
  }
  c->t->free(c);
  was_told("unpin; ");
}

/* Those of one queue reach the host's communicator in the order in which they began, whatever comes first. */
Test(device, staged_operations_keep_their_order) {
  ZxComm *c = zx_comm_staged(&inner, &dev, &env, EVENT);
  strcpy(buf, "abcdefghijkl");
  queue = 0;
  ZxRequest first = c->t->send(c, buf, 1, 2, 0), second = c->t->send(c, buf + 1, 1, 2, 1);
  queue = 1;
  ZxRequest other = c->t->send(c, buf + 2, 1, 2, 2);
  cr_expect(first == 0 && second == 1 && other == 2);
  told.len = 0;
  reached[1] = reached[2] = true;
  cr_expect(!c->t->test(c, second));
  was_told("send c to 2, tag 2; ");
  reached[0] = true;
  cr_expect(!c->t->test(c, other));
  was_told("send a to 2, tag 0; send b to 2, tag 1; ");
  done[1] = true; /* of the first, which was the second to be started inside */
  cr_expect(!c->t->test(c, second));
  was_told("stream 0; event 0; stream 1; ");
  reached[0] = true;
  cr_expect(!c->t->test(c, second) && c->t->test(c, first) && c->t->test(c, -1));
  queue = 1;
  cr_expect_eq(c->t->send(c, buf + 3, 1, 2, 3), 0, "its place is free");
  was_told("down 1; event 0; ");
  reached[0] = true;
  done[0] = done[2] = true;
  cr_expect(!c->t->test(c, 0));
  was_told("send d to 2, tag 3; stream 0; event 1; stream 1; stream 1; event 2; stream 1; ");
  c->t->free(c);
  was_told("unpin; unpin; unpin; ");
}

Test(device, staged_operations_of_one_rank) {
  ZxComm *c = zx_comm_staged(&inner, &dev, &env, EVENT);
  cr_expect(!c->t->stream_ordered(c));
  members = 1;
  strcpy(buf, "abcdefghijkl");
  cr_expect(c->t->stream_ordered(c));
  cr_expect(c->t->all_reduce(c, 9, buf, 3, ZK_F32, ZX_SUM) == -1 && c->t->broadcast(c, 9, buf, 3, 0) == -1);
  cr_expect(c->t->all_gather(c, 9, buf, 5, buf) == -1);
  was_told("");
  cr_expect(c->t->all_gather(c, 9, buf, 5, out) == -1 && !strcmp(out, "abcde"));
  was_told("copy 5; ");
  cr_expect(c->t->reduce_scatter(c, 9, buf, 2, ZK_F32, ZX_SUM, out) == -1 && !strcmp(out, "abcdefgh"));
  was_told("copy 8; ");
  cr_expect(c->t->all_to_all(c, 9, buf, 10, out) == -1 && !strcmp(out, "abcdefghij"));
  was_told("copy 10; ");
  c->t->free(c);
  was_told("");
}

Test(device, staged_asks_the_one_inside) {
  ZxComm *c = zx_comm_staged(&inner, &dev, &env, EVENT);
  cr_expect(c->t->rank(c) == 1 && c->t->size(c) == 3 && c->t->node_rank(c) == 5 && c->t->nodes(c)[2] == 2);
  cr_expect(c->t->split(c, 2) == 42 && c->t->group_rank(c, 9) == 1 && c->t->group_size(c, 9) == 3);
  c->t->barrier(c);
  c->t->progress(c);
  was_told("barrier; progress; ");
  ZxCommTable less = in_table;
  less.progress = NULL, less.moves = NULL;
  inner.t = &less;
  c->t->progress(c);
  was_told("");
  cr_expect_eq(c->t->moves(c), 0);
  c->t->free(c);
}

/* ---- the list ---- */
Test(device, which_is_had) {
  for (const char *const *name = (const char *const[]){"cpu", "auto", NULL}; *name; name++) {
    err = (ZbErr){0};
    cr_expect(zx_device(*name, &err) && zx_device_to_plan(*name, &err), "%s", *name);
    cr_expect_str_eq(err.text, "");
  }
  cr_expect_eq(zx_device("cpu", &err), &zx_device_cpu);
  cr_expect(!zx_device("cp", &err) && !zx_device_to_plan("cpuu", &err));
  cr_expect_str_eq(err.text, "");
  if (zx_devices[1]) return; /* a build with CUDA */
  cr_expect(!zx_device("cuda", &err));
  says(err, "this build has no ");
  cr_expect_str_eq(err.help, "configure --with-cuda=DIR, and build again; or --device cpu");
}

/* ---- memory ---- */
const char zx_system[] = "system";

static void put(const char *path, const char *text) {
  char all[256];
  snprintf(all, sizeof all, "system%s", path);
  for (char *s = strchr(all, '/'); s; s = strchr(s + 1, '/')) {
    *s = 0;
    mkdir(scratch(all), 0777);
    *s = '/';
  }
  scratch_write(all, text, strlen(text));
}

/* Of a group of version 2. */
static void group(const char *path, const char *limit, const char *used, const char *cache,
                  const char *swap) {
  char at[128];
  for (int i = 0; i < 4; i++) {
    static const char *const names[] = {"max", "current", "stat", "swap.max"};
    snprintf(at, sizeof at, "%s/memory.%s", path, names[i]);
    put(at, (const char *const[]){limit, used, cache, swap}[i]);
  }
}

static void room_is(bool any, uint64_t limit, uint64_t left, const char *name) {
  ZxRoom r;
  cr_expect_eq(zx_room_of_group(scratch("system"), &r), any);
  cr_expect(r.limit == limit && r.left == left && !strcmp(r.name, name),
            "%llu of %llu in '%s', not %llu of %llu in '%s'", (unsigned long long)r.left,
            (unsigned long long)r.limit, r.name, (unsigned long long)left, (unsigned long long)limit, name);
}

Test(device, what_a_machine_has_left) {
  uint64_t left, swap;
  cr_expect(!zx_room_of_machine(scratch("system"), &left, &swap) && left == UINT64_MAX && swap == 0);
  put("/proc/meminfo",
      "MemTotal: 9 kB\nMemAvailableX: 8 kB\nMemAvailable:\t  7 kB\nSwapFree:    6 kB\nSwapFree: 5 kB\n");
  cr_expect(zx_room_of_machine(scratch("system"), &left, &swap) && left == 7 * 1024 && swap == 6 * 1024);
  put("/proc/meminfo", "MemAvailable 10 kB\n");
  cr_expect(zx_room_of_machine(scratch("system"), &left, &swap) && left == 10 * 1024 && swap == 0);
  put("/proc/meminfo", "MemAvailable: x\n");
  cr_expect(!zx_room_of_machine(scratch("system"), &left, &swap));
}

Test(device, what_control_groups_have_left) {
  room_is(false, 0, 0, "");
  put("/proc/meminfo", "SwapFree: 1 kB\n");
  put("/proc/self/cgroup", "nothing\n3:memory\n0::/jobs/7\n");
  put("/proc/self/mountinfo", "30 1 0:26 / / rw - ext4 /dev/sda rw\nshort - cgroup2 cgroup rw\n31 30 0:27 / "
                              "/cg rw - cgroup2 cgroup rw,x\n");
  room_is(false, 0, 0, "");
  group("/cg", "max\n", "500\n", "", "");
  group("/cg/jobs", "200\n", "190\n", "anon 7\ninactive_file_x 99\ninactive_file 30\ninactive_file 4\n", "");
  room_is(true, 200, 40, "/cg/jobs");
  group("/cg/jobs/7", "100\n", "70\n", "", "0\n");
  room_is(true, 100, 30, "/cg/jobs/7");
  group("/cg/jobs/7", "100\n", "60\n", "", "0\n");
  room_is(true, 100, 40, "/cg/jobs/7"); /* of two with as much left the inner one */
  group("/cg/jobs/7", "100\n", "130\n", "inactive_file 200\n", "0\n");
  room_is(true, 200, 40, "/cg/jobs");
  group("/cg/jobs/7", "100\n", "130\n", "inactive_file 10\n", "0\n");
  room_is(true, 100, 0, "/cg/jobs/7");
  group("/cg/jobs/7", "100\n", "100\n", "", "25\n");
  put("/cg/jobs/7/memory.swap.current", "5\n");
  room_is(true, 100, 20, "/cg/jobs/7"); /* that it may swap, and there is swap */
  group("/cg/jobs/7", "100\n", "99\n", "", "5000\n");
  room_is(true, 200, 40, "/cg/jobs");
  group("/cg/jobs", "4000\n", "190\n", "", "");
  room_is(true, 100, 1025, "/cg/jobs/7"); /* no more than that */
  group("/cg", "10\n", "4\n", "", "");
  room_is(true, 10, 6, "/cg");
  put("/proc/self/cgroup", "0::/\n");
  room_is(true, 10, 6, "/cg");
  group("/cg", "1152921504606846976\n", "4\n", "", "");
  room_is(false, 0, 0, "");
  group("/cg", "1152921504606846975\n", "4\n", "", "");
  room_is(true, 1152921504606846975, 1152921504606846971, "/cg");
  group("/cg", "10\n", "\n", "", "");
  room_is(false, 0, 0, "");
  group("/cg", "1\n", "0\n", "", "");
  room_is(true, 1, 1, "/cg");
  group("/cg", "99\n", "9\n", "", "90\n");
  put("/cg/memory.swap.current", "0\n");
  room_is(true, 99, 180, "/cg"); /* a number may begin with any digit */
  group("/cg", "99\n", "9\n", "", "0\n");
  room_is(true, 99, 90, "/cg");
}

/* What is as long as there is room for is a name, and nothing longer. */
Test(device, long_names_of_groups) {
  enum { ROOM = 1024 };
  char name[ROOM + 1] = "/", text[2 * ROOM + 100];
  memset(name + 1, 'x', ROOM - 1);
  group("/cg", "10\n", "4\n", "", "");
  for (int longer = 0; longer < 2; longer++) {
    name[ROOM - 1] = longer ? 'x' : 0;
    put("/proc/self/mountinfo", "31 30 0:27 / /cg rw - cgroup2 cgroup rw\n");
    snprintf(text, sizeof text, "0::%s\n", name);
    put("/proc/self/cgroup", text);
    room_is(!longer, longer ? 0 : 10, longer ? 0 : 6, longer ? "" : "/cg");
    put("/proc/self/cgroup", "0::/\n");
    snprintf(text, sizeof text, "31 30 0:27 %s /cg rw - cgroup2 cgroup rw\n", name);
    put("/proc/self/mountinfo", text);
    room_is(!longer, longer ? 0 : 10, longer ? 0 : 6, longer ? "" : "/cg");
    snprintf(text, sizeof text, "31 30 0:27 / %s rw - cgroup2 cgroup rw\n", name);
    put("/proc/self/mountinfo", text);
    room_is(false, 0, 0, "");
  }
}

/* Of version 1 a group of its own for memory, which may be mounted alone, as in a container. */
Test(device, what_the_first_version_says) {
  put("/proc/self/cgroup", "5:cpu,cpuacct:/docker/2\n4:hugetlb,memory:/docker/1/in\n0::/x\n");
  put("/proc/self/mountinfo", "32 31 0:33 /docker/2 /cpu ro - cgroup cgroup rw,cpu\n"
                              "33 31 0:33 /docker/1 /m ro - cgroup cgroup rw,memory\n");
  put("/m/in/memory.limit_in_bytes", "60\n");
  put("/m/in/memory.usage_in_bytes", "50\n");
  put("/m/in/memory.stat", "total_inactive_file 5\n");
  put("/m/in/memory.swap.max", "30\n");
  put("/proc/meminfo", "SwapFree: 1 kB\n");
  room_is(true, 60, 15, "/m/in");
  put("/m/memory.limit_in_bytes", "60\n");
  put("/m/memory.usage_in_bytes", "55\n");
  room_is(true, 60, 5, "/m");
  put("/proc/self/cgroup", "4:memory:/docker/1\n");
  room_is(true, 60, 5, "/m");
  put("/proc/self/cgroup", "4:memory:/elsewhere/in\n"); /* not below what is mounted */
  room_is(true, 60, 5, "/m");
  put("/proc/self/cgroup", "4:memoryx:/docker/1\n");
  room_is(false, 0, 0, "");
}

static bool apart; /* ranks are in control groups of their own */
/* Of ranks of which the first two share a node, and of many ones all, each with what this one has. */
static const int *my_nodes(ZxComm *c) {
  static int *all;
  if (members == 3) return in_nodes(c);
  free(all);
  return all = calloc((size_t)members, sizeof *all);
}
static ZxRequest same_for_all(ZxComm *c, ZxGroup g, const void *part, size_t bytes, void *all) {
  char *to = all, mine[256];
  (void)c, (void)g;
  memcpy(mine, part, bytes);
  cr_expect(((const uint64_t *)(const void *)mine)[2] > 1 << 20, "this process has taken something");
  const int *nodes = my_nodes(c);
  for (int i = 0; i < members; i++) {
    int64_t node = nodes[i];
    memcpy(to + bytes * (size_t)i, mine, bytes);
    memcpy(to + bytes * (size_t)i, &node, sizeof node);
    uint64_t taken = (uint64_t)(i < 3 ? 2 + i : 1) << 20;
    memcpy(to + bytes * (size_t)i + 16, &taken, sizeof taken);
    if (apart) to[bytes * (size_t)i + 40] ^= (char)i; /* the group */
  }
  return -1;
}
static ZxRequest as_here(ZxComm *c, ZxGroup g, void *p, size_t n, ZkElem elem, ZxReduce how) {
  return (void)c, (void)g, (void)p, (void)n, (void)elem, (void)how, -1;
}
static void at_once(ZxComm *c, ZxRequest r) {
  (void)c;
  cr_expect(r < 0);
}

static void fits(int me, uint64_t need, const char *line, const char *words) {
  static const ZxCommTable t = {.rank = in_rank,
                                .size = in_size,
                                .nodes = my_nodes,
                                .all_gather = same_for_all,
                                .all_reduce = as_here,
                                .wait = at_once};
  ZbText tell = {0};
  rank = me;
  err = (ZbErr){0};
  cr_expect_eq(zx_check_memory(&(ZxComm){&t}, need, &tell, &err), words == NULL, "rank %d: %s", me, err.text);
  if (words) says(err, words);
  cr_expect(!strncmp(tell.s, line, strlen(line)), "'%s', not '%s'", tell.s, line);
  zb_text_free(&tell);
}

Test(device, whether_all_ranks_fit) {
  cr_redirect_stderr();
  cr_assert(chdir(scratch(".")) == 0);
  int before = open_files();
  fits(0, 1 << 20,
       "host memory: 2.1 MB for the arenas of 2 ranks on this node, up to 3.1 MB taken beside each\n", NULL);
  fits(2, 1 << 20,
       "host memory: 1.0 MB for the arena of 1 rank on this node, up to 4.2 MB taken beside each\n", NULL);
  put("/proc/meminfo", "MemAvailable: 1000 kB\nSwapFree: 1000 kB\n");
  fits(0, 1024000, "host memory: 2.0 MB", NULL); /* just so, with all of the swap */
  fits(0, 1024001, "host memory: 2.0 MB",
       " will touch 2.0 MB more (1.0 MB each), and the machine has 2.0 MB left: "
       "the kernel would kill one; each has taken up to 3.1 MB beside its arena");
  says(err, "2 ranks on ");
  fits(1, 1024001, "host memory: 2.0 MB", NULL); /* the first of a node says it */
  fits(2, 1024000, "host memory: 1.0 MB", NULL);
  fits(2, 2048001, "host memory: 2.0 MB", "1 rank on ");
  says(err, "the kernel would kill it; each has");
  put("/proc/self/cgroup", "0::/\n");
  put("/proc/self/mountinfo", "31 30 0:27 / /cg rw - cgroup2 cgroup rw\n");
  group("/cg", "900000\n", "200000\n", "", "");
  fits(0, 350000, "host memory: 700.0 kB for the arenas of 2 ranks on this node, up to ", NULL);
  fits(0, 350001, "host memory: 700.0 kB",
       "and of the 900.0 kB that control group /cg may have there are 700.0 kB left: the kernel");
  fits(1, 350001, "host memory: 700.0 kB", NULL);
  fits(2, 700000, "host memory: 700.0 kB", NULL);
  fits(2, 700001, "host memory: 700.0 kB", "control group /cg");
  apart = true;
  fits(0, 700000, "host memory: 1.4 MB", NULL);
  fits(1, 700001, "host memory: 1.4 MB", "1 rank on ");
  cr_expect_eq(open_files(), before);
  cr_expect_stderr_eq_str(
      "[rank 0] note: 2 ranks here will touch 2.0 MB more, and the machine has 1.0 MB left: it will swap\n"
      "[rank 0] note: 2 ranks here will touch 1.4 MB more, and the machine has 1.0 MB left: it will swap\n");
}

/* Open MPI keeps 4 MiB there for each rank. */
Test(device, shared_memory_of_many_ranks) {
  struct statvfs v;
  char text[512] = "", want[64], all[24];
  cr_redirect_stderr();
  cr_assert(chdir(scratch(".")) == 0);
  put("/dev/shm/x", "");
  cr_assert(statvfs("system/dev/shm", &v) == 0);
  uint64_t bytes = (uint64_t)v.f_blocks * v.f_frsize, most = bytes / (4 << 20);
  if (most > 4000000) return;
  members = (int)most;
  fits(0, 0, "host memory: 0 B for the arenas of ", NULL);
  members++;
  fits(1, 0, "host memory: 0 B for the arenas of ", NULL); /* the first of a node says it */
  fits(0, 0, "host memory: 0 B for the arenas of ", NULL);
  size_t n = fread(text, 1, sizeof text - 1, cr_get_redirected_stderr());
  snprintf(want, sizeof want, "[rank 0] note: /dev/shm has %s, ", zb_bytes(all, bytes));
  cr_expect(!strncmp(text, want, strlen(want)), "%s, not %s", text, want);
  struct statvfs now;
  cr_assert(statvfs("system/dev/shm", &now) == 0); /* others may write meanwhile */
  snprintf(want, sizeof want, ", %s of it left,", zb_bytes(all, (uint64_t)v.f_bavail * v.f_frsize));
  bool left = strstr(text, want);
  snprintf(want, sizeof want, ", %s of it left,", zb_bytes(all, (uint64_t)now.f_bavail * now.f_frsize));
  cr_expect(left || strstr(text, want), "%s, not %s", text, want);
  snprintf(want, sizeof want, "for each of the %d ranks of this node: if", members);
  cr_expect(strstr(text, want) && strstr(text, " up to 4 MiB there ") && text[n - 1] == '\n', "%s", text);
}
