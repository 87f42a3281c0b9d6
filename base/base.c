/* Arenas, text, checked arithmetic and the nearest-name search. See base.h. */
#include "base/base.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static char bug_rank[32];

void zb_bug_rank(int rank) {
  if (rank < 0) *bug_rank = 0;
  else snprintf(bug_rank, sizeof bug_rank, "[rank %d] ", rank);
}

_Noreturn void zb_bug(const char *file, int line, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  fprintf(stderr, "%sbug in zug: %s:%d: ", bug_rank, file, line);
  vfprintf(stderr, fmt, ap);
  fprintf(stderr, " (please report)\n");
  va_end(ap);
  zb_out_discard_all();
  abort();
}

_Noreturn void zb_out_of_memory(size_t bytes) {
  if (bytes) fprintf(stderr, "out of memory: %zu bytes wanted\n", bytes);
  else fprintf(stderr, "out of memory\n");
  _Exit(1);
}

__attribute__((format(printf, 3, 0))) static void say(ZbErr *err, const char *help, const char *fmt,
                                                      va_list ap) {
  vsnprintf(err->text, sizeof err->text, fmt, ap);
  snprintf(err->help, sizeof err->help, "%s", help ? help : "");
  zb_show_all(err->text, sizeof err->text); /* names that nobody showed by zb_show */
  zb_show_all(err->help, sizeof err->help);
  err->passing = false;
}

bool zb_fail(ZbErr *err, const char *help, const char *fmt, ...) {
  if (!err) return false;
  va_list ap;
  va_start(ap, fmt);
  say(err, help, fmt, ap);
  va_end(ap);
  return false;
}

/* What is wrong with a path, or with what may be done there, stays wrong. */
static bool passes(int code) {
  static const int stays[] = {EACCES, EEXIST, EFBIG,   EINVAL, EISDIR, ELOOP, ENAMETOOLONG,
                              ENOENT, ENODEV, ENOTDIR, ENXIO,  EPERM,  EROFS};
  for (size_t i = 0; i < sizeof stays / sizeof *stays; i++)
    if (code == stays[i]) return false;
  return true;
}

bool zb_fail_errno(ZbErr *err, int code, const char *help, const char *fmt, ...) {
  if (!err) return false;
  va_list ap;
  va_start(ap, fmt);
  say(err, help, fmt, ap);
  va_end(ap);
  zb_fail_more(err, ": %s", strerror(code));
  err->passing = passes(code);
  return false;
}

void zb_fail_more(ZbErr *err, const char *fmt, ...) {
  if (!err) return;
  size_t n = strlen(err->text);
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(err->text + n, sizeof err->text - n, fmt, ap);
  va_end(ap);
  zb_show_all(err->text, sizeof err->text);
}

/* ---- arenas ---- */
/* AddressSanitizer knows whole blocks only. So each allocation is followed by bytes that may not be touched,
 * and it sees what goes past an allocation into the next. */
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#define GUARD 16
#else
#define GUARD 0
#define ASAN_POISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

typedef struct Block {
  struct Block *next;
  size_t used, size;
  _Alignas(64) char data[];
} Block;
struct ZbArena {
  Block *head;
};

ZbArena *zb_arena_new(void) {
  ZbArena *a = calloc(1, sizeof *a);
  if (!a) zb_out_of_memory(sizeof *a);
  return a;
}

void zb_arena_free(ZbArena *a) {
  if (!a) return;
  for (Block *b = a->head, *next; b; b = next) {
    next = b->next;
    free(b);
  }
  free(a);
}

/* written: of its beginning, what will be written before anybody reads it, and need not be zeroed */
static Block *block_new(size_t bytes, size_t written) {
  size_t size = bytes > (64u << 10) ? bytes : (64u << 10);
  Block *b = NULL;
  if (size <= SIZE_MAX - sizeof *b - 64) b = aligned_alloc(64, (sizeof *b + size + 63) & ~(size_t)63);
  if (!b) zb_out_of_memory(bytes);
  memset(b, 0, sizeof *b);
  memset(b->data + written, 0, size - written);
  b->size = size;
  return b;
}

static void *alloc(ZbArena *a, size_t bytes, size_t written) {
  size_t asked = bytes;
  bytes = ((bytes + 15) & ~(size_t)15) + GUARD;
  Block *b = a->head;
  if (!b || b->size - b->used < bytes) {
    b = block_new(bytes, written);
    /* A large request gets a block of its own behind the head, which stays open for small ones. */
    if (a->head && bytes > (32u << 10)) {
      b->next = a->head->next;
      a->head->next = b;
    } else {
      b->next = a->head;
      a->head = b;
    }
  }
  void *p = b->data + b->used;
  b->used += bytes;
  ASAN_POISON_MEMORY_REGION((char *)p + asked, bytes - asked);
  return p;
}

void *zb_alloc(ZbArena *a, size_t bytes) { return alloc(a, bytes, 0); }

size_t zb_array_bytes(size_t n, size_t size) {
  if (size && n > SIZE_MAX / 2 / size) ZB_BUG("array of %zu x %zu bytes", n, size);
  return n * size;
}

void *zb_grow(ZbArena *a, void *p, size_t n, size_t size) {
  if (n & (n - 1)) return p; /* between powers of two there is room */
  void *q = alloc(a, zb_array_bytes(n ? 2 * n : 1, size), n * size);
  if (n) memcpy(q, p, n * size);
  return q;
}

void *zb_room(ZbArena *a, void *p, uint32_t n, size_t size, uint32_t *cap) {
  if (n < *cap) return p;
  *cap = *cap ? 2 * *cap : 4;
  void *q = zb_alloc(a, zb_array_bytes(*cap, size));
  if (n) memcpy(q, p, n * size);
  return q;
}

char *zb_strndup(ZbArena *a, const char *s, size_t n) {
  char *p = zb_alloc(a, n + 1);
  memcpy(p, s, n);
  return p;
}

char *zb_strdup(ZbArena *a, const char *s) { return zb_strndup(a, s, strlen(s)); }

char *zb_printf(ZbArena *a, const char *fmt, ...) {
  va_list ap, again;
  va_start(ap, fmt);
  va_copy(again, ap);
  int n = vsnprintf(NULL, 0, fmt, ap);
  va_end(ap);
  if (n < 0) ZB_BUG("format '%s'", fmt);
  char *p = zb_alloc(a, (size_t)n + 1);
  vsnprintf(p, (size_t)n + 1, fmt, again);
  va_end(again);
  return p;
}

/* ---- checked arithmetic ---- */
bool zb_mul_u64(uint64_t a, uint64_t b, uint64_t *out) {
  uint64_t r;
  if (__builtin_mul_overflow(a, b, &r)) return false;
  *out = r;
  return true;
}

bool zb_add_u64(uint64_t a, uint64_t b, uint64_t *out) {
  uint64_t r;
  if (__builtin_add_overflow(a, b, &r)) return false;
  *out = r;
  return true;
}

/* ---- text ---- */
static void text_room(ZbText *t, size_t more) {
  if (t->cap - t->len > more) return;
  size_t cap = 2 * (t->cap + more) + 64;
  char *s = realloc(t->s, cap);
  if (!s) zb_out_of_memory(cap);
  t->s = s;
  t->cap = cap;
}

void zb_text_put(ZbText *t, const char *s, size_t n) {
  text_room(t, n + 1);
  if (n) memcpy(t->s + t->len, s, n);
  t->len += n;
  t->s[t->len] = 0;
}

void zb_text_add(ZbText *t, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  zb_text_addv(t, fmt, ap);
  va_end(ap);
}

void zb_text_addv(ZbText *t, const char *fmt, va_list ap) {
  va_list again;
  va_copy(again, ap);
  int n = vsnprintf(NULL, 0, fmt, ap);
  if (n < 0) ZB_BUG("format '%s'", fmt);
  text_room(t, (size_t)n + 1);
  vsnprintf(t->s + t->len, (size_t)n + 1, fmt, again);
  va_end(again);
  t->len += (size_t)n;
}

void zb_text_free(ZbText *t) {
  free(t->s);
  *t = (ZbText){0};
}

static bool exactly;
void zb_bytes_exactly(bool yes) { exactly = yes; }
bool zb_bytes_exact(void) { return exactly; }

const char *zb_bytes(char buf[24], uint64_t bytes) {
  static const char *const unit[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  double v = (double)bytes;
  size_t u = 0;
  if (exactly) return snprintf(buf, 24, "%llu B", (unsigned long long)bytes), buf;
  while (v >= 999.95 && u + 1 < sizeof unit / sizeof *unit) {
    v /= 1000;
    u++;
  }
  snprintf(buf, 24, u ? "%.1f %s" : "%.0f %s", v, unit[u]);
  return buf;
}

/* Levenshtein distance with two rows; names are short. */
static size_t distance(const char *a, const char *b, size_t best) {
  size_t n = strlen(a), m = strlen(b), row[65], prev;
  if (n > 64 || m > 64) return best;
  for (size_t j = 0; j <= m; j++) row[j] = j;
  for (size_t i = 1; i <= n; i++) {
    prev = row[0];
    row[0] = i;
    for (size_t j = 1; j <= m; j++) {
      size_t sub = prev + (a[i - 1] != b[j - 1]), del = row[j] + 1, ins = row[j - 1] + 1;
      prev = row[j];
      row[j] = sub < del ? sub : del;
      if (ins < row[j]) row[j] = ins;
    }
  }
  return row[m];
}

bool zb_ends(const char *s, const char *end) {
  size_t n = strlen(s), m = strlen(end);
  return n > m && !strcmp(s + n - m, end);
}

const char *zb_nearest(const char *name, const char *const *names, size_t n) {
  size_t len = strlen(name), best = len / 3 + 2;
  const char *found = NULL;
  for (size_t i = 0; i < n; i++) {
    size_t d = distance(name, names[i], best), other = strlen(names[i]);
    /* Something must be the same: no letter is near another. */
    if (d < best && d < (len > other ? len : other)) {
      best = d;
      found = names[i];
    }
  }
  return found;
}

/* ---- randomness ---- */
uint64_t zb_stream(const char *name) {
  uint64_t h = 0xcbf29ce484222325ull;
  for (; *name; name++) h = (h ^ (unsigned char)*name) * 0x100000001b3ull;
  return h;
}
