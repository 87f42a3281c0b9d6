/* Whether the machine has the memory that a run will touch. Arenas are mapped at once and touched by the
 * first step: where they do not fit, the kernel kills a rank there, without a word. So all that is known to
 * come is added up before, for the ranks of a node, and for those in one control group (a container, a job),
 * and held against what is left.
 *
 *   left of a machine          MemAvailable, and free swap
 *   left of a control group    limit - (used - file cache that can go), and what it may swap; of all groups
 *   above it, the least
 *
 * What ranks have taken already (the program, MPI, libraries, shared windows, pinned memory) is part of what
 * is used. */
#include "runtime/exec/device/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

ZB_REPLACEABLE const char zx_system[] = "";

enum { SEGMENT = 4 << 20 }; /* of a rank in /dev/shm, by Open MPI's default */

/* ---- files of one line or a few ---- */
static FILE *open_file(const char *root, const char *dir, const char *name) {
  char path[4096];
  int n = snprintf(path, sizeof path, "%s%s%s", root, dir, name);
  return n > 0 && (size_t)n < sizeof path ? fopen(path, "re") : NULL;
}

/* The number in a file of one line, or that of the line that begins with `key`; UINT64_MAX: there is none ("max"). */
static uint64_t number_in(const char *root, const char *dir, const char *name, const char *key) {
  FILE *f = open_file(root, dir, name);
  char line[256];
  uint64_t x = UINT64_MAX;
  size_t n = key ? strlen(key) : 0;
  while (f && x == UINT64_MAX && fgets(line, sizeof line, f)) {
    if (key && (strncmp(line, key, n) || !strchr(" :", line[n]))) continue;
    const char *digits = line + n + strspn(line + n, ": \t");
    if (*digits >= '0' && *digits <= '9') x = strtoull(digits, NULL, 10);
  }
  if (f) fclose(f);
  return x;
}

static uint64_t less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }
static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

static uint64_t kilobytes(const char *root, const char *key) {
  uint64_t x = number_in(root, "/proc/", "meminfo", key);
  return x == UINT64_MAX ? x : x * 1024;
}

/* ---- control groups ---- */
typedef struct {
  bool v2;
  const char *limit, *used, *cache;
} Version;
static const Version versions[] = {
    {false, "/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file"},
    {true, "/memory.max", "/memory.current", "inactive_file"}};

/* Of /proc/self/cgroup "4:memory:/job" or "0::/job": the path of this process's group. */
static bool find_group(const char *root, bool v2, char *path, size_t size) {
  FILE *f = open_file(root, "/proc/self", "/cgroup");
  char line[4096];
  bool found = false;
  while (f && !found && fgets(line, sizeof line, f)) {
    char *names = strchr(line, ':'), *at = names ? strchr(names + 1, ':') : NULL;
    if (!at) continue;
    *at++ = 0;
    at[strcspn(at, "\n")] = 0;
    bool memory = false;
    for (char *save = NULL, *w = strtok_r(names + 1, ",", &save); w; w = strtok_r(NULL, ",", &save))
      memory |= !strcmp(w, "memory");
    found = (v2 ? !names[1] : memory) && strlen(at) < size;
    if (found) strcpy(path, at);
  }
  if (f) fclose(f);
  return found;
}

/* Of /proc/self/mountinfo "32 31 0:33 /job /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory": where groups
 * are found, and which of them is there. */
static bool find_mount(const char *root, bool v2, char *base, char *mount, size_t size) {
  FILE *f = open_file(root, "/proc/self", "/mountinfo");
  char line[4096];
  bool found = false;
  while (f && !found && fgets(line, sizeof line, f)) {
    char *kind = strstr(line, " - "), type[32], options[1024];
    if (!kind || sscanf(kind, " - %31s %*s %1023s", type, options) != 2 ||
        strcmp(type, v2 ? "cgroup2" : "cgroup"))
      continue;
    bool memory = v2;
    for (char *save = NULL, *w = strtok_r(options, ",", &save); w; w = strtok_r(NULL, ",", &save))
      memory |= !strcmp(w, "memory");
    *kind = 0;
    char a[2048], b[2048];
    found = memory && sscanf(line, "%*s %*s %*s %2047s %2047s", a, b) == 2 && strlen(a) < size &&
            strlen(b) < size;
    if (found) strcpy(base, a), strcpy(mount, b);
  }
  if (f) fclose(f);
  return found;
}

static void look_at(const char *root, const Version *v, const char *dir, ZxRoom *out) {
  uint64_t limit = number_in(root, dir, v->limit, NULL), used = number_in(root, dir, v->used, NULL);
  uint64_t cache = number_in(root, dir, "/memory.stat", v->cache), swap = 0;
  if (limit >= (uint64_t)1 << 60 || used == UINT64_MAX) return; /* v1 has no word for none */
  if (v->v2)
    swap = less(number_in(root, dir, "/memory.swap.max", NULL),
                number_in(root, dir, "/memory.swap.current", NULL));
  uint64_t left =
      less(limit, less(used, cache == UINT64_MAX ? 0 : cache)) + least(swap, kilobytes(root, "SwapFree"));
  if (out->limit && out->left <= left) return;
  out->limit = limit;
  out->left = left;
  snprintf(out->name, sizeof out->name, "%.*s", (int)sizeof out->name - 1, dir);
}

bool zx_room_of_group(const char *root, ZxRoom *out) {
  *out = (ZxRoom){0};
  for (int i = 0; i < 2; i++) {
    char path[1024], base[1024], mount[1024], dir[2100];
    if (!find_group(root, versions[i].v2, path, sizeof path) ||
        !find_mount(root, versions[i].v2, base, mount, sizeof mount))
      continue;
    size_t n = strcmp(base, "/") ? strlen(base) : 0; /* what is mounted may be a group inside */
    const char *below = strncmp(path, base, n) ? "" : path + n;
    snprintf(dir, sizeof dir, "%s%s", mount, strcmp(below, "/") ? below : "");
    for (char *end = dir + strlen(dir); end >= dir + strlen(mount); *end = 0) {
      look_at(root, &versions[i], dir, out);
      do end--;
      while (end > dir && *end != '/');
    }
  }
  return out->limit > 0;
}

bool zx_room_of_machine(const char *root, uint64_t *left, uint64_t *swap) {
  *left = kilobytes(root, "MemAvailable");
  *swap = kilobytes(root, "SwapFree");
  if (*swap == UINT64_MAX) *swap = 0;
  return *left != UINT64_MAX;
}

/* ---- what all ranks have, and will need ---- */
typedef struct { /* of a rank; exchanged */
  int64_t node;
  uint64_t need, taken, left, swap;        /* of the machine */
  uint64_t group, group_left, group_limit; /* 0: none */
} Rank;

static uint64_t taken_here(void) {
  FILE *f = fopen("/proc/self/statm", "re");
  unsigned long long pages = 0;
  if (f && fscanf(f, "%*u %llu", &pages) != 1) pages = 0;
  if (f) fclose(f);
  return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* What those that share a node, or also a control group, need together. */
typedef struct {
  uint64_t need, taken;
  int ranks, first;
} Sum;
static Sum add_up(const Rank *r, int n, int me, bool group) {
  Sum s = {.first = -1};
  for (int i = 0; i < n; i++) {
    if (r[i].node != r[me].node || (group && r[i].group != r[me].group)) continue;
    if (s.first < 0) s.first = i;
    s.ranks++;
    s.need += r[i].need;
    if (r[i].taken > s.taken) s.taken = r[i].taken;
  }
  return s;
}

static bool too_little(const Sum *s, uint64_t left, const char *where, ZbErr *err) {
  char x[4][24], host[256] = "";
  if (s->need <= left) return true;
  gethostname(host, sizeof host - 1);
  return zb_fail(
      err,
      "use more nodes, give the job more memory, or choose a recipe that needs less: `shard`, `recompute`, a "
      "smaller `micro`",
      "%d rank%s on %s will touch %s more (%s each), and %s %s left: the kernel would kill %s; each has "
      "taken up to %s beside its arena",
      s->ranks, s->ranks > 1 ? "s" : "", host, zb_bytes(x[0], s->need),
      zb_bytes(x[1], s->need / (uint64_t)s->ranks), where, zb_bytes(x[2], left), s->ranks > 1 ? "one" : "it",
      zb_bytes(x[3], s->taken));
}

static void note_shm(int rank, const char *root, int ranks) {
  char path[4096], x[2][24];
  struct statvfs v;
  snprintf(path, sizeof path, "%s/dev/shm", root);
  if (ranks < 2 || statvfs(path, &v) || !v.f_blocks) return;
  uint64_t left = (uint64_t)v.f_bavail * v.f_frsize, all = (uint64_t)v.f_blocks * v.f_frsize,
           want = (uint64_t)ranks * SEGMENT;
  if (all >= want) return;
  zx_say(rank,
         "note: /dev/shm has %s, %s of it left, and Open MPI keeps up to %d MiB there for each of the %d "
         "ranks of this node: "
         "if it fills up they die of SIGBUS; a container gets more by --shm-size",
         zb_bytes(x[0], all), zb_bytes(x[1], left), SEGMENT >> 20, ranks);
}

static bool here(const char *root, const Rank *all, int n, int me, ZbText *tell, ZbErr *err) {
  const Rank *r = &all[me];
  Sum node = add_up(all, n, me, false), group = add_up(all, n, me, true);
  char where[512], x[3][24];
  ZxRoom room;
  zb_text_add(tell, "host memory: %s for the arena%s of %d rank%s on this node, up to %s taken beside each",
              zb_bytes(x[0], node.need), node.ranks > 1 ? "s" : "", node.ranks, node.ranks > 1 ? "s" : "",
              zb_bytes(x[1], node.taken));
  if (r->left != UINT64_MAX)
    zb_text_add(tell, "; %s left",
                zb_bytes(x[2], r->group && r->group_left < r->left ? r->group_left : r->left));
  zb_text_add(tell, "\n");
  if (me == node.first) note_shm(me, root, node.ranks);
  if (me == group.first && r->group && zx_room_of_group(root, &room)) {
    snprintf(where, sizeof where, "of the %s that control group %s may have there are",
             zb_bytes(x[0], room.limit), room.name);
    if (!too_little(&group, r->group_left, where, err)) return false;
  }
  if (me != node.first || r->left == UINT64_MAX) return true;
  if (!too_little(&node, r->left + r->swap, "the machine has", err)) return false;
  if (node.need > r->left)
    zx_say(me, "note: %d ranks here will touch %s more, and the machine has %s left: it will swap",
           node.ranks, zb_bytes(x[0], node.need), zb_bytes(x[1], r->left));
  return true;
}

bool zx_check_memory(ZxComm *c, uint64_t need, ZbText *tell, ZbErr *err) {
  int n = c->t->size(c), me = c->t->rank(c);
  ZxRoom room;
  Rank *all = calloc((size_t)n, sizeof *all);
  if (!all) zb_out_of_memory(0);
  all[me] = (Rank){.node = c->t->nodes(c)[me], .need = need, .taken = taken_here()};
  zx_room_of_machine(zx_system, &all[me].left, &all[me].swap);
  if (zx_room_of_group(zx_system, &room))
    all[me].group = zb_stream(room.name), all[me].group_left = room.left, all[me].group_limit = room.limit;
  c->t->wait(c, c->t->all_gather(c, 0, &all[me], sizeof *all, all));
  bool ok = here(zx_system, all, n, me, tell, err);
  free(all);
  return zx_agree(c, ok);
}
