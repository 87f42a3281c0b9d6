/* How fast texts become tokens: bench-text TOKENIZER.json FILE [THREADS [IDS]]. The file's lines are
 * documents, in blocks that threads take in turn; the best of three passes is printed. IDS: the file, as one
 * text, as u32 there, to be compared. */
#define _GNU_SOURCE
#include "runtime/text/text.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 1 << 16, MAX_THREADS = 64, PASSES = 3 };

typedef struct {
  const ZtTokenizer *t;
  const char *s;
  size_t n;
  _Atomic size_t next; /* block */
  _Atomic uint64_t tokens;
} Work;

static void encode_block(Work *w, ZtCoder *c, ZtIds *ids, size_t begin) {
  size_t end = begin + BLOCK < w->n ? begin + BLOCK : w->n;
  /* A line belongs to the block that it begins in. */
  const char *s = w->s + begin, *all = w->s + w->n;
  if (begin) {
    s = memchr(s - 1, '\n', (size_t)(all - s) + 1);
    s = s ? s + 1 : all;
  }
  while (s < w->s + end) {
    const char *line = memchr(s, '\n', (size_t)(all - s));
    size_t n = line ? (size_t)(line + 1 - s) : (size_t)(all - s);
    ZbErr err;
    if (!zt_encode(c, s, n, 0, ids, &err)) {
      fprintf(stderr, "bench-text: %s\n", err.text);
      exit(1);
    }
    s += n;
  }
}

static void *work(void *arg) {
  Work *w = arg;
  ZtCoder *c = zt_coder_new(w->t);
  ZtIds ids = {0};
  for (size_t at; (at = BLOCK * atomic_fetch_add(&w->next, 1)) < w->n;) {
    ids.n = 0;
    encode_block(w, c, &ids, at);
    atomic_fetch_add(&w->tokens, ids.n);
  }
  zt_ids_free(&ids);
  zt_coder_free(c);
  return NULL;
}

static double pass(Work *w, int threads) {
  pthread_t thread[MAX_THREADS];
  double begin = zb_now();
  atomic_store(&w->next, 0);
  atomic_store(&w->tokens, 0);
  for (int i = 0; i < threads; i++)
    if (pthread_create(&thread[i], NULL, work, w)) exit(1);
  for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL);
  return zb_now() - begin;
}

static bool anything(const uint8_t *head, size_t n) { return head || !n; }

static bool write_ids(const Work *w, const char *path, ZbErr *err) {
  static const ZbKind kind = {"ids", anything};
  ZtCoder *c = zt_coder_new(w->t);
  ZtIds ids = {0};
  bool ok = zt_encode(c, w->s, w->n, 0, &ids, err) &&
            zb_write_file(path, &kind, ids.id, ids.n * sizeof *ids.id, err);
  zt_ids_free(&ids);
  zt_coder_free(c);
  return ok;
}

int main(int argc, char **argv) {
  if (argc < 3 || argc > 5) {
    fprintf(stderr, "usage: bench-text TOKENIZER.json FILE [THREADS [IDS]]\n");
    return 2;
  }
  ZbErr err;
  ZbArena *a = zb_arena_new();
  int threads = argc > 3 ? atoi(argv[3]) : 1, code = 1;
  if (threads < 1 || threads > MAX_THREADS) threads = 1;
  ZtTokenizer *t = zt_load(argv[1], &err);
  Work w = {.t = t};
  if (t) w.s = zb_read_file(a, argv[2], ZT_TEXT_LIMIT, &w.n, &err);
  if (w.s && (argc < 5 || write_ids(&w, argv[4], &err))) {
    double best = pass(&w, threads);
    for (int i = 1; i < PASSES; i++) {
      double seconds = pass(&w, threads);
      if (seconds < best) best = seconds;
    }
    printf("%d threads: %" PRIu64 " tokens, %.3f M tokens/s, %.1f MB/s\n", threads, atomic_load(&w.tokens),
           1e-6 * (double)atomic_load(&w.tokens) / best, 1e-6 * (double)w.n / best);
    code = 0;
  } else fprintf(stderr, "bench-text: %s\n", err.text);
  zt_free(t);
  zb_arena_free(a);
  return code;
}
