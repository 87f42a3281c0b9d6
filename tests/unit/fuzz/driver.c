/* A small fuzzer for compilers without libFuzzer: runs LLVMFuzzerTestOneInput on every file of a corpus
 * folder, then on mutations of them, a pure function of the seed and the count. The sanitizers judge.
 *
 *   PROGRAM CORPUS [--seconds S] [--runs N] [--seed K] [--only I]
 *
 * Stops after N mutations (default: no limit) or S seconds (default 2), whichever is first. On a crash it
 * prints the number of the input (--only I repeats it alone) and leaves its bytes in crash-I.bin. A target
 * knows nothing of this file: it links with libFuzzer as well, and its own way to mutate (mend.h) is called
 * as that calls it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
size_t LLVMFuzzerMutate(uint8_t *data, size_t n, size_t most);
/* A target's own, if it has one. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t most, unsigned seed) __attribute__((weak));

enum { INPUT_LIMIT = 64 << 10, INPUT_SECONDS = 20 };

typedef struct {
  char *name;
  uint8_t *data;
  size_t n;
} Seed;

typedef struct {
  const char *corpus;
  double seconds;
  uint64_t runs, seed, only;
  bool has_only;
} Options;

/* What the crash handler tells about; written before each input. */
static struct {
  const uint8_t *data;
  size_t n;
  uint64_t number;
} now;

/* ---- what happens on a crash: async-signal-safe calls only ---- */
static size_t put_decimal(char *s, uint64_t v) {
  char digits[20];
  size_t n = 0, i = 0;
  do digits[n++] = (char)('0' + v % 10);
  while (v /= 10);
  while (n) s[i++] = digits[--n];
  s[i] = 0;
  return i;
}

static void on_crash(int sig) {
  char path[40] = "crash-", text[160] = "fuzz: input ";
  put_decimal(path + strlen(path), now.number);
  strcat(path, ".bin");
  put_decimal(text + strlen(text), now.number);
  strcat(text, sig == SIGALRM ? " takes too long; its bytes are in " : " crashed; its bytes are in ");
  strcat(strcat(text, path), "\n");
  if (write(2, text, strlen(text)) < 0) _exit(70);
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (fd >= 0 && write(fd, now.data, now.n) < 0) _exit(70);
  signal(sig, SIG_DFL);
  raise(sig);
}

static void run_one(uint64_t number, const uint8_t *data, size_t n) {
  /* A copy of the exact size, so that reading one byte too far is seen. */
  uint8_t *copy = malloc(n ? n : 1);
  if (!copy) abort();
  memcpy(copy, data, n);
  now.data = copy;
  now.n = n;
  now.number = number;
  alarm(INPUT_SECONDS);
  LLVMFuzzerTestOneInput(copy, n);
  alarm(0);
  free(copy);
}

/* ---- mutation ---- */
typedef struct {
  uint64_t seed, number, drawn;
} Dice;

static uint64_t draw(Dice *d, uint64_t below) {
  return below ? zb_random_u64(d->seed, d->number, d->drawn++) % below : 0;
}

/* Values at the edges of integers, which length and index fields do not like. */
static uint64_t edge_value(Dice *d) {
  static const uint64_t edges[] = {0,
                                   1,
                                   0x7f,
                                   0x80,
                                   0xff,
                                   0x7fff,
                                   0xffff,
                                   0x7fffffff,
                                   0x80000000,
                                   0xffffffff,
                                   0x7fffffffffffffff,
                                   0x8000000000000000,
                                   UINT64_MAX};
  return edges[draw(d, sizeof edges / sizeof *edges)] + draw(d, 2);
}

/* Changes `x` (n bytes, room for `most`) once; returns the new size. */
static size_t mutate_once(Dice *d, uint8_t *x, size_t n, size_t most, const Seed *other) {
  size_t at = draw(d, n), len = 1 + draw(d, draw(d, 4) ? 8 : 256);
  if (len > n - at) len = n - at;
  switch (draw(d, 8)) {
  case 0: /* flip a bit */
    if (n) x[at] ^= (uint8_t)(1u << draw(d, 8));
    return n;
  case 1: /* another byte */
    if (n) x[at] = (uint8_t)draw(d, 256);
    return n;
  case 2: { /* an integer field, aligned as file formats have them */
    size_t width = (size_t)1 << draw(d, 4);
    uint64_t v = edge_value(d);
    at -= at % width;
    if (at + width <= n) memcpy(x + at, &v, width); /* little-endian machines, as the formats */
    return n;
  }
  case 3: /* cut the end off */ return at;
  case 4: /* remove a piece */ memmove(x + at, x + at + len, n - at - len); return n - len;
  case 5: /* double a piece */
    if (n + len > most) return n;
    memmove(x + at + len, x + at, n - at);
    return n + len;
  case 6: { /* a piece of another input goes in between */
    size_t from = draw(d, other->n);
    if (len > other->n - from) len = other->n - from;
    if (n + len > most) return n;
    memmove(x + at + len, x + at, n - at);
    memcpy(x + at, other->data + from, len);
    return n + len;
  }
  default: /* swap two bytes */
    if (n) {
      size_t b = draw(d, n);
      uint8_t t = x[at];
      x[at] = x[b];
      x[b] = t;
    }
    return n;
  }
}

/* What LLVMFuzzerMutate draws from, as libFuzzer's keeps it: of the input that is being made. */
static struct {
  Dice dice;
  const Seed *seeds;
  size_t nseeds;
} drawing;

size_t LLVMFuzzerMutate(uint8_t *x, size_t n, size_t most) {
  Dice *d = &drawing.dice;
  for (uint64_t k = 1 + draw(d, 4); k; k--)
    n = mutate_once(d, x, n, most, &drawing.seeds[draw(d, drawing.nseeds)]);
  return n;
}

static size_t mutate(uint64_t seed, uint64_t number, const Seed *seeds, size_t nseeds, uint8_t *x) {
  drawing.dice = (Dice){seed, number, 0};
  drawing.seeds = seeds;
  drawing.nseeds = nseeds;
  const Seed *s = &seeds[draw(&drawing.dice, nseeds)];
  memcpy(x, s->data, s->n);
  if (!LLVMFuzzerCustomMutator) return LLVMFuzzerMutate(x, s->n, INPUT_LIMIT);
  return LLVMFuzzerCustomMutator(x, s->n, INPUT_LIMIT, (unsigned)draw(&drawing.dice, UINT32_MAX));
}

/* ---- corpus ---- */
static int by_name(const void *a, const void *b) {
  return strcmp(((const Seed *)a)->name, ((const Seed *)b)->name);
}

/* Reads all regular files of the folder, in the order of their names; false with a message. */
static bool read_corpus(ZbArena *a, const char *folder, Seed **seeds, size_t *n) {
  DIR *dir = opendir(folder);
  if (!dir) {
    fprintf(stderr, "fuzz: cannot open corpus %s: %s\n", folder, strerror(errno));
    return false;
  }
  for (struct dirent *e; (e = readdir(dir));) {
    if (e->d_name[0] == '.') continue;
    ZbErr err;
    Seed s = {.name = zb_strdup(a, e->d_name)};
    s.data = (uint8_t *)zb_read_file(a, zb_printf(a, "%s/%s", folder, e->d_name), INPUT_LIMIT, &s.n, &err);
    if (!s.data) {
      fprintf(stderr, "fuzz: %s\n", err.text);
      closedir(dir);
      return false;
    }
    ZB_PUSH(a, *seeds, *n, s);
  }
  closedir(dir);
  if (!*n) fprintf(stderr, "fuzz: corpus %s is empty\n", folder);
  else qsort(*seeds, *n, sizeof **seeds, by_name);
  return *n > 0;
}

static double seconds_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool read_options(int argc, char **argv, Options *o) {
  *o = (Options){.seconds = 2, .runs = UINT64_MAX, .seed = 1};
  for (int i = 1; i < argc; i++) {
    if (argv[i][0] != '-') {
      if (o->corpus) return false;
      o->corpus = argv[i];
      continue;
    }
    if (i + 1 == argc) return false;
    const char *key = argv[i], *value = argv[++i];
    if (!strcmp(key, "--seconds")) o->seconds = atof(value);
    else if (!strcmp(key, "--runs")) o->runs = strtoull(value, NULL, 10);
    else if (!strcmp(key, "--seed")) o->seed = strtoull(value, NULL, 10);
    else if (!strcmp(key, "--only")) {
      o->only = strtoull(value, NULL, 10);
      o->has_only = true;
    } else return false;
  }
  return o->corpus != NULL;
}

/* Inputs are numbered: first the corpus, then the mutations. */
static uint64_t fuzz(const Options *o, const Seed *seeds, size_t nseeds) {
  static uint8_t x[INPUT_LIMIT];
  uint64_t number = 0;
  double end = seconds_now() + o->seconds;
  for (; number < nseeds; number++)
    if (!o->has_only || o->only == number) run_one(number, seeds[number].data, seeds[number].n);
  if (o->has_only) {
    if (o->only >= nseeds) run_one(o->only, x, mutate(o->seed, o->only, seeds, nseeds, x));
    return 1;
  }
  for (; number - nseeds < o->runs && seconds_now() < end; number++)
    run_one(number, x, mutate(o->seed, number, seeds, nseeds, x));
  return number;
}

int main(int argc, char **argv) {
  Options o;
  if (!read_options(argc, argv, &o)) {
    fprintf(stderr, "usage: %s CORPUS [--seconds S] [--runs N] [--seed K] [--only I]\n", argv[0]);
    return 2;
  }
  static const int crashes[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGALRM};
  for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++) signal(crashes[i], on_crash);
  ZbArena *a = zb_arena_new();
  Seed *seeds = NULL;
  size_t nseeds = 0;
  int code = 1;
  if (read_corpus(a, o.corpus, &seeds, &nseeds)) {
    uint64_t ran = fuzz(&o, seeds, nseeds);
    fprintf(stderr, "fuzz: %" PRIu64 " inputs from %zu files, seed %" PRIu64 "\n", ran, nseeds, o.seed);
    code = 0;
  }
  zb_arena_free(a);
  return code;
}
