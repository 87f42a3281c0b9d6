/* Texts to tokens by a tokenizer, by several threads at once and in the order in which they came. Batches go
 * round in a ring: the caller fills one, any thread encodes it, the caller writes it when its turn has come.
 * So what is written does not depend on the number of threads, and memory is that of the ring. */
#include "runtime/zdata/zdata.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 512 << 10 /* bytes of text, after which a batch is full */ };

typedef struct {
  size_t text_end, id_end; /* in the batch */
  bool begins, ends;
} Part;

typedef struct {
  ZbText text;
  Part *part;
  size_t n, cap;
  ZtIds ids;
  uint64_t broken; /* pieces that were no UTF-8 */
  bool done, ok;
  ZbErr err;
} Batch;

struct ZdEncoder {
  const ZtTokenizer *t;
  unsigned flags;
  ZdSink *sink;
  ZxDataElem elem;
  uint64_t broken;
  int threads, started;
  pthread_t *thread;
  Batch *ring;
  uint64_t size;                   /* of the ring */
  uint64_t filled, taken, written; /* batches so far; size - 1 at most are between `filled` and `written` */
  bool stop;
  pthread_mutex_t lock; /* of taken, filled, stop and each batch's `done` */
  pthread_cond_t work, done;
};

/* ---- threads ---- */
static void encode_batch(ZdEncoder *e, ZtCoder *coder, Batch *b) {
  size_t at = 0;
  b->ids.n = 0;
  b->broken = 0;
  b->ok = true;
  for (size_t i = 0; b->ok && i < b->n; i++) {
    const char *s = b->text.s ? b->text.s + at : "";
    size_t n = b->part[i].text_end - at;
    b->broken += zt_utf8_valid(s, n) < n;
    b->ok = !n || zt_encode(coder, s, n, e->flags, &b->ids, &b->err);
    b->part[i].id_end = b->ids.n;
    at = b->part[i].text_end;
  }
}

static void *work(void *arg) {
  ZdEncoder *e = arg;
  ZtCoder *coder = zt_coder_new(e->t);
  pthread_mutex_lock(&e->lock);
  for (;;) {
    while (e->taken == e->filled && !e->stop) pthread_cond_wait(&e->work, &e->lock);
    if (e->stop) break;
    Batch *b = &e->ring[e->taken++ % e->size];
    pthread_mutex_unlock(&e->lock);
    encode_batch(e, coder, b);
    pthread_mutex_lock(&e->lock);
    b->done = true;
    pthread_cond_signal(&e->done);
  }
  pthread_mutex_unlock(&e->lock);
  zt_coder_free(coder);
  return NULL;
}

ZdEncoder *zd_encoder_new(const ZtTokenizer *t, unsigned flags, int threads, ZxDataElem elem, ZdSink *sink) {
  ZdEncoder *e = calloc(1, sizeof *e);
  if (!e) zb_out_of_memory(0);
  *e = (ZdEncoder){.t = t, .flags = flags, .sink = sink, .elem = elem, .threads = threads};
  e->size = 2 * (uint64_t)threads + 2;
  e->ring = calloc(e->size, sizeof *e->ring);
  e->thread = calloc((size_t)threads, sizeof *e->thread);
  if (!e->ring || !e->thread) zb_out_of_memory(0);
  pthread_mutex_init(&e->lock, NULL);
  pthread_cond_init(&e->work, NULL);
  pthread_cond_init(&e->done, NULL);
  while (e->started < threads && pthread_create(&e->thread[e->started], NULL, work, e) == 0) e->started++;
  if (!e->started) zb_out_of_memory(0); /* fewer than were asked for will do */
  return e;
}

void zd_encoder_free(ZdEncoder *e) {
  if (!e) return;
  pthread_mutex_lock(&e->lock);
  e->stop = true;
  pthread_cond_broadcast(&e->work);
  pthread_mutex_unlock(&e->lock);
  for (int i = 0; i < e->started; i++) pthread_join(e->thread[i], NULL);
  for (uint64_t i = 0; i < e->size; i++) {
    zb_text_free(&e->ring[i].text);
    zt_ids_free(&e->ring[i].ids);
    free(e->ring[i].part);
  }
  pthread_mutex_destroy(&e->lock);
  pthread_cond_destroy(&e->work);
  pthread_cond_destroy(&e->done);
  free(e->ring);
  free(e->thread);
  free(e);
}

uint64_t zd_encoder_broken(const ZdEncoder *e) { return e->broken; }

/* ---- writing ---- */
/* ids as the file has them, in place: they get narrower, if anything. */
static void narrow(const ZdEncoder *e, uint32_t *id, size_t n) {
  uint8_t *to = (uint8_t *)id;
  for (size_t i = 0; e->elem == ZX_DATA_U16 && i < n; i++) {
    uint16_t v = (uint16_t)id[i];
    memcpy(to + 2 * i, &v, sizeof v);
  }
}

static bool write_batch(ZdEncoder *e, Batch *b, ZbErr *err) {
  if (!b->ok) return *err = b->err, false;
  size_t at = 0, size = zx_data_elem_bytes(e->elem);
  e->broken += b->broken;
  narrow(e, b->ids.id, b->ids.n);
  for (size_t i = 0; i < b->n; i++) {
    const Part *p = &b->part[i];
    const char *tokens = (const char *)b->ids.id + (b->ids.n ? at * size : 0);
    if (!zd_sink_put(e->sink, tokens, p->id_end - at, p->begins, p->ends, err)) return false;
    at = p->id_end;
  }
  b->text.len = b->n = 0;
  b->done = false;
  return true;
}

/* Writes batches while more than `left` are not written. */
static bool write_some(ZdEncoder *e, uint64_t left, ZbErr *err) {
  while (e->filled - e->written > left) {
    Batch *b = &e->ring[e->written % e->size];
    pthread_mutex_lock(&e->lock);
    while (!b->done) pthread_cond_wait(&e->done, &e->lock);
    pthread_mutex_unlock(&e->lock);
    if (!write_batch(e, b, err)) return false;
    e->written++;
  }
  return true;
}

static bool hand_over(ZdEncoder *e, ZbErr *err) {
  pthread_mutex_lock(&e->lock);
  e->filled++;
  pthread_cond_signal(&e->work);
  pthread_mutex_unlock(&e->lock);
  return write_some(e, e->size - 1, err); /* the next one is free then */
}

bool zd_encode(ZdEncoder *e, const ZdPiece *p, ZbErr *err) {
  Batch *b = &e->ring[e->filled % e->size];
  if (b->n == b->cap) {
    b->cap = b->cap ? 2 * b->cap : 64;
    b->part = realloc(b->part, zb_array_bytes(b->cap, sizeof *b->part));
    if (!b->part) zb_out_of_memory(0);
  }
  zb_text_put(&b->text, p->text, p->n);
  b->part[b->n++] = (Part){b->text.len, 0, p->begins, p->ends};
  return b->text.len < BATCH || hand_over(e, err);
}

bool zd_encode_end(ZdEncoder *e, ZbErr *err) {
  bool rest = e->ring[e->filled % e->size].n > 0;
  return (!rest || hand_over(e, err)) && write_some(e, 0, err);
}
