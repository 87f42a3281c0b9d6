/* Collectives through a window of memory that all members of a group map.
 *
 * A member writes only its own part of the window and reads everybody's. Its part is a few slots for data,
 * and counters that say how far it is. An operation is cut into rounds that fit into a slot; all members see
 * the same rounds 0, 1, 2, ..., since they start the same operations in the same order. Round r of all
 * members uses slot r % SLOTS and has up to three stages, each of which runs through the rounds in order:
 *
 *     post    copies what the others need into the own slot;       then posted = r + 1
 *     reduce  (large all-reduces) sums the own block of all slots
 *             and puts the sum in that block of the own slot;      then reduced = r + 1
 *     take    copies or sums what the others have put there;       then taken = r + 1
 *
 * A large all-reduce on 3 members, rank 1's view (blocks of its round, [..] in its slot):
 *
 *     post    [b0 .. b2]     its own block stays at home: nobody else reads it
 *     reduce  s1 = a1 + b1 + c1, always in rank order: the same bits on any layout; [b0 s1 b2]
 *     take    s0 from slot 0, s2 from slot 2
 *
 * So every element is summed by one member and all get the same bits. A small vector is instead posted whole
 * and summed by each member for itself, in the same order: one time less to wait for each other.
 *
 * Why nobody reads what is not yet, or no more, there. A counter is stored with release by its owner alone,
 * after the reads and writes of the stage it counts, and loaded with acquire by the others:
 * - What member i posts in round r it writes before posted_i = r + 1. Others read it in `reduce` and `take`
 *   of r, having seen posted_i > r.
 * - The sum of block i is written to slot i between posted_i = r + 1 and reduced_i = r + 1. Block i of slot i
 *   is not part of what is posted, and others read it only in `take`, having seen reduced_i > r.
 * - Slot i is written anew in round r + SLOTS. Before, member i has seen taken_j > r of all j, and j's reads
 *   of round r all came before its taken_j = r + 1, since `take` is the last stage.
 * Every pair of conflicting accesses is thus ordered by one release and one acquire of the same counter. A
 * member whose operation is done owes the others nothing: all its stages are behind it. It may leave and
 * never come back, but for freeing the window, which the others keep mapped. */
#define _GNU_SOURCE /* memfd_create */
#include "runtime/exec/comm/shm.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
  SLOTS = 2,
  SLOT_BYTES = 256 << 10,
  WHOLE_BYTES = 16 << 10, /* vectors up to this size are summed by every member */
  LINE = 64,              /* blocks begin at multiples of it */
  APART = 128,            /* two counters' owners do not share this many bytes, which are fetched together */
  PAGE = 4096
};

typedef struct {
  _Alignas(APART) _Atomic uint64_t posted;
  _Atomic uint64_t reduced, taken;
} Counters;
_Static_assert(sizeof(Counters) == APART, "counters of one member fill their lines");

typedef struct {
  uint64_t key;
  _Atomic uint64_t claimed;
} Head; /* then Counters of each member, then, from the next page on, slots of each member */

typedef enum { ALL_REDUCE, ALL_REDUCE_WHOLE, REDUCE_SCATTER, ALL_GATHER, ALL_TO_ALL, BROADCAST } Kind;

typedef struct {
  Kind kind;
  int root;
  ZkElem elem; /* ZK_U8 where nothing is reduced */
  ZxReduce reduce;
  const char *in;
  char *out;
  size_t n, most; /* elements of the vector, or of a block of it, and of one round */
} Op;

/* Where a stage stands. */
typedef struct {
  uint64_t round, op;
  size_t at;
} Cursor;

struct ZxShm {
  int rank, size;
  size_t slot_bytes;
  Head *head;
  Counters *counters; /* of member 0 */
  char *slots;        /* of member 0 */
  Op *ops;            /* those not yet done, at their number % nops */
  uint64_t nops, started;
  Cursor post, reduce, take;
  uint64_t all_posted, all_reduced, all_taken; /* what is known to be true of all members */
  const void **part;                           /* one pointer a member, for combining */
};

/* ---- the memory ---- */
/* A block of a slot for each member must hold something. */
static size_t slot_bytes(int size) {
  size_t least = (size_t)size * LINE;
  return zb_round_up(least > SLOT_BYTES ? least : SLOT_BYTES, PAGE);
}
static size_t head_bytes(int size) { return zb_round_up(APART + (size_t)size * sizeof(Counters), PAGE); }
static size_t share_bytes(int size) { return SLOTS * slot_bytes(size); }

size_t zx_shm_bytes(int size) { return head_bytes(size) + (size_t)size * share_bytes(size); }

ZxShmFile zx_shm_create(int size) {
  ZxShmFile f = {.pid = getpid(), .size = size, .fd = memfd_create("zug-group", MFD_CLOEXEC)};
  f.key = zb_random_u64((uint64_t)f.pid, (uint64_t)f.fd, (uint64_t)(zb_now() * 1e9));
  Head h = {.key = f.key};
  if (f.fd >= 0 &&
      (ftruncate(f.fd, (off_t)zx_shm_bytes(size)) || pwrite(f.fd, &h, sizeof h, 0) != sizeof h)) {
    close(f.fd);
    f.fd = -1;
  }
  return f;
}

/* Memory is had here or not at all: a page that is missing later would be a signal in the middle of a step.
 * The own share is allocated by its owner, on its side of the machine. */
static bool fill(int fd, int rank, int size) {
  size_t at = head_bytes(size) + (size_t)rank * share_bytes(size);
  return !posix_fallocate(fd, 0, (off_t)head_bytes(size)) &&
         !posix_fallocate(fd, (off_t)at, (off_t)share_bytes(size));
}

void *zx_shm_map(const ZxShmFile *f, int rank) {
  char name[64];
  struct stat st;
  Head h;
  snprintf(name, sizeof name, "/proc/%lld/fd/%d", (long long)f->pid, f->fd);
  int fd = open(name, O_RDWR | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0) return NULL;
  size_t bytes = zx_shm_bytes(f->size);
  void *p = MAP_FAILED; /* a process of that number may be another one in another container */
  if (!fstat(fd, &st) && st.st_size == (off_t)bytes && pread(fd, &h, sizeof h, 0) == sizeof h &&
      h.key == f->key && fill(fd, rank, f->size))
    p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  return p == MAP_FAILED ? NULL : p;
}

void zx_shm_unmap(void *window, int size) { munmap(window, zx_shm_bytes(size)); }

void zx_shm_close(const ZxShmFile *f) {
  if (f->fd >= 0) close(f->fd);
}

/* ---- a member ---- */
ZxShm *zx_shm_new(void *window, int rank, int size) {
  ZxShm *s = zx_need(calloc(1, sizeof *s));
  char *w = window;
  s->rank = rank;
  s->size = size;
  s->slot_bytes = slot_bytes(size);
  s->head = (Head *)(void *)w;
  s->counters = (Counters *)(void *)(w + APART);
  s->slots = w + head_bytes(size);
  s->part = zx_need(calloc((size_t)size, sizeof *s->part));
  s->nops = 16;
  s->ops = zx_need(calloc(s->nops, sizeof *s->ops));
  return s;
}

void zx_shm_free(ZxShm *s) {
  if (!s) return;
  ZB_ASSERT(zx_shm_idle(s));
  free(s->ops);
  free(s->part);
  free(s);
}

bool zx_shm_done(const ZxShm *s, uint64_t op) { return op < s->take.op; }
bool zx_shm_idle(const ZxShm *s) { return s->take.op == s->started; }

static Op *op_at(const ZxShm *s, uint64_t op) { return &s->ops[op & (s->nops - 1)]; }

/* Happens while the first steps find out how many operations are ever open. */
static void grow(ZxShm *s) {
  Op *more = zx_need(calloc(zb_array_bytes(s->nops, 2), sizeof *more));
  for (uint64_t i = s->take.op; i < s->started; i++) more[i & (2 * s->nops - 1)] = *op_at(s, i);
  free(s->ops);
  s->ops = more;
  s->nops *= 2;
}

static uint64_t start(ZxShm *s, Op o) {
  if (s->started - s->take.op == s->nops) grow(s);
  bool blocks = o.kind == REDUCE_SCATTER || o.kind == ALL_TO_ALL; /* a slot holds one for each member */
  size_t bytes = (blocks ? s->slot_bytes / (size_t)s->size : s->slot_bytes) & ~(size_t)(LINE - 1);
  o.most = bytes / zk_plain_bytes(o.elem);
  *op_at(s, s->started) = o;
  s->started++;
  zx_shm_progress(s);
  return s->started - 1;
}

uint64_t zx_shm_all_reduce(ZxShm *s, void *p, size_t n, ZkElem elem, ZxReduce reduce) {
  Kind kind = zk_bytes(elem, n) <= WHOLE_BYTES ? ALL_REDUCE_WHOLE : ALL_REDUCE;
  return start(s, (Op){.kind = kind, .elem = elem, .reduce = reduce, .in = p, .out = p, .n = n});
}

uint64_t zx_shm_reduce_scatter(ZxShm *s, void *in, size_t n, ZkElem elem, ZxReduce reduce, void *out) {
  return start(s, (Op){.kind = REDUCE_SCATTER, .elem = elem, .reduce = reduce, .in = in, .out = out, .n = n});
}

uint64_t zx_shm_all_gather(ZxShm *s, const void *part, size_t bytes, void *out) {
  return start(s, (Op){.kind = ALL_GATHER, .elem = ZK_U8, .in = part, .out = out, .n = bytes});
}

uint64_t zx_shm_all_to_all(ZxShm *s, const void *in, size_t bytes, void *out) {
  return start(s, (Op){.kind = ALL_TO_ALL, .elem = ZK_U8, .in = in, .out = out, .n = bytes});
}

uint64_t zx_shm_broadcast(ZxShm *s, void *p, size_t bytes, int root) {
  return start(s, (Op){.kind = BROADCAST, .elem = ZK_U8, .in = p, .out = p, .n = bytes, .root = root});
}

/* ---- rounds ---- */
/* One stage's round: `n` elements from element `at`; offsets below are in bytes. */
typedef struct {
  const Op *o;
  uint64_t round;
  size_t n, at, bytes; /* at, bytes: in bytes */
} Round;

static Round round_at(const ZxShm *s, const Cursor *c) {
  const Op *o = op_at(s, c->op);
  size_t size = zk_plain_bytes(o->elem), left = o->n - c->at, n = left < o->most ? left : o->most;
  return (Round){o, c->round, n, c->at * size, n * size};
}

static void advance(Cursor *c, const Round *r) {
  c->round++;
  c->at += r->n;
  if (c->at < r->o->n) return;
  c->op++;
  c->at = 0;
}

static char *slot_of(const ZxShm *s, int i, const Round *r) {
  return s->slots + ((size_t)i * SLOTS + r->round % SLOTS) * s->slot_bytes;
}

/* Bytes at which member i's block of an all-reduce's round begins; i = size gives the end. */
static size_t block_at(const ZxShm *s, const Round *r, int i) {
  size_t each = zb_round_up((r->bytes + (size_t)s->size - 1) / (size_t)s->size, LINE);
  size_t at = each * (size_t)i;
  return at < r->bytes ? at : r->bytes;
}

/* Bytes at which the block for or of member i begins in vectors of blocks, and in slots. */
static size_t far(const Round *r, int i) { return zk_bytes(r->o->elem, (size_t)i * r->o->n) + r->at; }
static size_t near(const Round *r, int i) { return zk_bytes(r->o->elem, (size_t)i * r->o->most); }

/* Whether the counter `which` of all members is at least `least`; `known` remembers. */
static bool all_at(const ZxShm *s, size_t which, uint64_t least, uint64_t *known) {
  if (*known >= least) return true;
  uint64_t low = UINT64_MAX;
  for (int i = 0; i < s->size; i++) {
    _Atomic uint64_t *p = (_Atomic uint64_t *)(void *)((char *)&s->counters[i] + which);
    uint64_t x = atomic_load_explicit(p, memory_order_acquire);
    if (x < least) return false;
    if (x < low) low = x;
  }
  *known = low;
  return true;
}
#define ALL_AT(s, which, least) all_at(s, offsetof(Counters, which), least, &(s)->all_##which)

static void tell(_Atomic uint64_t *counter, uint64_t x) {
  atomic_store_explicit(counter, x, memory_order_release);
}

static bool post(ZxShm *s) {
  if (s->post.op == s->started) return false;
  uint64_t k = s->post.round;
  if (k >= SLOTS && !ALL_AT(s, taken, k - SLOTS + 1)) return false;
  Round r = round_at(s, &s->post);
  const Op *o = r.o;
  char *slot = slot_of(s, s->rank, &r);
  switch (o->kind) {
  case ALL_REDUCE: {
    size_t from = block_at(s, &r, s->rank), to = block_at(s, &r, s->rank + 1);
    memcpy(slot, o->in + r.at, from);
    memcpy(slot + to, o->in + r.at + to, r.bytes - to);
    break;
  }
  case REDUCE_SCATTER:
  case ALL_TO_ALL:
    for (int i = 0; i < s->size; i++)
      if (i != s->rank) memcpy(slot + near(&r, i), o->in + far(&r, i), r.bytes);
    break;
  case ALL_REDUCE_WHOLE:
  case ALL_GATHER: memcpy(slot, o->in + r.at, r.bytes); break;
  case BROADCAST:
    if (s->rank == o->root) memcpy(slot, o->in + r.at, r.bytes);
    break;
  }
  advance(&s->post, &r);
  tell(&s->counters[s->rank].posted, k + 1);
  return true;
}

/* The sum of one block of `bytes` bytes: the own part from `mine`, the others' from their slots. */
static void combine_block(ZxShm *s, const Round *r, size_t at, size_t bytes, const char *mine, char *out) {
  for (int i = 0; i < s->size; i++) s->part[i] = i == s->rank ? mine : slot_of(s, i, r) + at;
  zx_combine(out, s->part, s->size, bytes / zk_plain_bytes(r->o->elem), r->o->elem, r->o->reduce);
}

static bool reduce(ZxShm *s) {
  if (s->reduce.round == s->post.round) return false;
  Round r = round_at(s, &s->reduce);
  if (r.o->kind == ALL_REDUCE) {
    if (!ALL_AT(s, posted, r.round + 1)) return false;
    size_t from = block_at(s, &r, s->rank), bytes = block_at(s, &r, s->rank + 1) - from;
    char *mine = r.o->out + r.at + from;
    combine_block(s, &r, from, bytes, mine, mine);
    memcpy(slot_of(s, s->rank, &r) + from, mine, bytes);
    tell(&s->counters[s->rank].reduced, r.round + 1);
  }
  advance(&s->reduce, &r);
  return true;
}

/* Whether all that `take` needs of the round is there. */
static bool there(ZxShm *s, const Round *r) {
  if (r->o->kind == ALL_REDUCE) return ALL_AT(s, reduced, r->round + 1);
  if (r->o->kind != BROADCAST) return ALL_AT(s, posted, r->round + 1);
  return atomic_load_explicit(&s->counters[r->o->root].posted, memory_order_acquire) > r->round;
}

/* The block of each member, or from each member: a gather's slots hold one, the other's one for everybody. */
static void take_blocks(const ZxShm *s, const Round *r) {
  bool gather = r->o->kind == ALL_GATHER;
  const char *own = r->o->in + (gather ? r->at : far(r, s->rank));
  size_t place = gather ? 0 : near(r, s->rank);
  for (int i = 0; i < s->size; i++) {
    char *out = r->o->out + far(r, i);
    if (i != s->rank) memcpy(out, slot_of(s, i, r) + place, r->bytes);
    else if (out != own) memcpy(out, own, r->bytes);
  }
}

static void take_sums(const ZxShm *s, const Round *r) {
  for (int i = 0; i < s->size; i++) {
    size_t from = block_at(s, r, i), to = block_at(s, r, i + 1);
    if (i != s->rank) memcpy(r->o->out + r->at + from, slot_of(s, i, r) + from, to - from);
  }
}

static bool take(ZxShm *s) {
  if (s->take.round == s->reduce.round) return false;
  Round r = round_at(s, &s->take);
  if (!there(s, &r)) return false;
  const Op *o = r.o;
  char *out = o->out + r.at;
  switch (o->kind) {
  case ALL_REDUCE: take_sums(s, &r); break;
  case ALL_REDUCE_WHOLE: combine_block(s, &r, 0, r.bytes, o->in + r.at, out); break;
  case REDUCE_SCATTER: combine_block(s, &r, near(&r, s->rank), r.bytes, o->in + far(&r, s->rank), out); break;
  case ALL_GATHER:
  case ALL_TO_ALL: take_blocks(s, &r); break;
  case BROADCAST:
    if (s->rank != o->root) memcpy(out, slot_of(s, o->root, &r), r.bytes);
    break;
  }
  advance(&s->take, &r);
  tell(&s->counters[s->rank].taken, r.round + 1);
  return true;
}

bool zx_shm_claim(ZxShm *s) { return atomic_exchange(&s->head->claimed, 1) == 0; }

uint64_t zx_shm_moves(const ZxShm *s) { return s->post.round + s->reduce.round + s->take.round; }

/* The last stage that has something to do is the one that waits, for what `take`, `reduce` and `post` ask of
 * a member. */
bool zx_shm_late(const ZxShm *s, int member) {
  const Counters *c = &s->counters[member];
  if (s->take.round < s->reduce.round) {
    const Op *o = op_at(s, s->take.op);
    if (o->kind == BROADCAST && member != o->root) return false;
    return atomic_load(o->kind == ALL_REDUCE ? &c->reduced : &c->posted) <= s->take.round;
  }
  if (s->reduce.round < s->post.round) return atomic_load(&c->posted) <= s->reduce.round;
  return s->post.round >= SLOTS && atomic_load(&c->taken) <= s->post.round - SLOTS;
}

void zx_shm_progress(ZxShm *s) {
  for (bool moved = true; moved;) { /* each of them, every time */
    moved = post(s);
    moved |= reduce(s);
    moved |= take(s);
  }
}
