/* The index beside Megatron's tokens, NAME.idx of NAME.bin, as megatron/core/datasets/indexed_dataset.py of
 * Megatron-LM writes it; numbers are little-endian:
 *
 *   "MMIDIDX\0\0"   u64 version: 1   u8 type of tokens   u64 sequences   u64 entries of the last list
 *   i32 tokens of each sequence      i64 byte of NAME.bin where each begins
 *   i64 sequence that each document begins with, and at last the number of sequences
 *   i8 kind of each sequence; only where texts are mixed with pictures
 *
 * It is read by pieces: there may be a billion of sequences. */
#include "runtime/zdata/zdata.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HEAD = 34, AT_VERSION = 9, AT_TYPE = 17, AT_SEQUENCES = 18, AT_DOCUMENTS = 26, WINDOW = 32 << 10 };

/* A list of the file, of which a piece is in memory. */
typedef struct {
  uint64_t at, from, n; /* bytes: where it begins; which piece */
  uint8_t bytes[WINDOW];
} List;

struct ZdMegatron {
  int fd;
  char *name;
  uint64_t size;
  ZdIds type;
  uint64_t sequences, documents, bytes; /* bytes: of the tokens' file */
  uint64_t next, document;              /* sequence; document that it is of */
  uint64_t first, end;                  /* sequences of that document */
  List lengths, pointers, starts;
};

static const char again[] = "preprocess the data again, or copy both files again";

bool zd_is_megatron(const uint8_t *head, size_t n) { return n >= 9 && !memcmp(head, "MMIDIDX\0\0", 9); }

static bool damaged(const ZdMegatron *m, const char *what, uint64_t number, ZbErr *err) {
  return zb_fail(err, again, "%s is damaged: %s %" PRIu64, m->name, what, number);
}

/* Element i of a list, of `size` bytes. */
static bool element(ZdMegatron *m, List *l, uint64_t i, size_t size, void *out, ZbErr *err) {
  uint64_t at = l->at + i * size;
  ZB_ASSERT(at + size <= m->size);
  if (at < l->from || at + size > l->from + l->n) {
    l->n = 0;
    l->from = at;
    uint64_t n = m->size - at < WINDOW ? m->size - at : WINDOW;
    if (!zb_read_at(m->fd, m->name, l->bytes, n, at, err)) return false;
    l->n = n;
  }
  memcpy(out, l->bytes + (at - l->from), size);
  return true;
}

/* ---- opening ---- */
static bool read_head(ZdMegatron *m, ZbErr *err) {
  static const ZdIds types[] = {
      [1] = ZD_U8, [2] = ZD_I8, [3] = ZD_I16, [4] = ZD_I32, [5] = ZD_I64, [8] = ZD_U16};
  uint8_t p[HEAD];
  uint64_t version, entries;
  if (m->size < HEAD) return zb_fail(err, again, "%s is truncated: it ends within its header", m->name);
  if (!zb_read_at(m->fd, m->name, p, HEAD, 0, err)) return false;
  if (!zd_is_megatron(p, HEAD)) return zb_fail(err, NULL, "%s is not an index of Megatron's", m->name);
  memcpy(&version, p + AT_VERSION, 8);
  memcpy(&m->sequences, p + AT_SEQUENCES, 8);
  memcpy(&entries, p + AT_DOCUMENTS, 8);
  if (version != 1)
    return zb_fail(err, NULL, "%s has version %" PRIu64 "; this program reads 1", m->name, version);
  if (p[AT_TYPE] < sizeof types / sizeof *types) m->type = types[p[AT_TYPE]];
  if (m->type == ZD_NO_IDS)
    return zb_fail(err, NULL, "%s: its tokens are of type %u, which is none of whole numbers", m->name,
                   p[AT_TYPE]);
  if (m->sequences > m->size / 12 || entries > m->size / 8 || entries < 1)
    return zb_fail(err, again,
                   "%s is damaged: %" PRIu64 " sequences and %" PRIu64 " entries for documents in %" PRIu64
                   " bytes",
                   m->name, m->sequences, entries, m->size);
  uint64_t wanted = HEAD + 12 * m->sequences + 8 * entries;
  if (m->size != wanted && m->size != wanted + m->sequences)
    return zb_fail(err, again, "%s is %s: its header promises %" PRIu64 " bytes, it has %" PRIu64, m->name,
                   m->size < wanted ? "truncated" : "damaged", wanted, m->size);
  m->documents = entries - 1;
  m->lengths.at = HEAD;
  m->pointers.at = HEAD + 4 * m->sequences;
  m->starts.at = HEAD + 12 * m->sequences;
  return true;
}

ZdMegatron *zd_megatron_new(int fd, const char *name, uint64_t size, uint64_t bytes, ZbErr *err) {
  ZdMegatron *m = calloc(1, sizeof *m);
  if (!m || !(m->name = strdup(zb_show(name)))) zb_out_of_memory(0);
  m->fd = fd;
  m->size = size;
  m->bytes = bytes;
  if (read_head(m, err)) return m;
  zd_megatron_free(m);
  return NULL;
}

void zd_megatron_free(ZdMegatron *m) {
  if (!m) return;
  close(m->fd);
  free(m->name);
  free(m);
}

ZdIds zd_megatron_type(const ZdMegatron *m) { return m->type; }

/* ---- sequences ---- */
/* Goes on to the document of the next sequence; some have none. */
static bool next_document(ZdMegatron *m, ZbErr *err) {
  while (m->next == m->end) {
    if (m->document == m->documents) return damaged(m, "no document has sequence", m->next, err);
    int64_t two[2];
    for (uint64_t i = 0; i < 2; i++)
      if (!element(m, &m->starts, m->document + i, 8, &two[i], err)) return false;
    if (two[0] != (int64_t)m->end || two[1] < two[0] || (uint64_t)two[1] > m->sequences)
      return damaged(m, "its sequences contradict each other in document", m->document, err);
    m->first = (uint64_t)two[0];
    m->end = (uint64_t)two[1];
    m->document++;
  }
  return true;
}

bool zd_megatron_next(ZdMegatron *m, ZdSequence *s, ZbErr *err) {
  int32_t length;
  int64_t at;
  size_t size = zd_ids_bytes(m->type);
  if (m->next == m->sequences) return false;
  if (!next_document(m, err) || !element(m, &m->lengths, m->next, 4, &length, err) ||
      !element(m, &m->pointers, m->next, 8, &at, err))
    return false;
  if (length < 0 || at < 0 || (uint64_t)at > m->bytes || (uint64_t)length > (m->bytes - (uint64_t)at) / size)
    return damaged(m, "the tokens' file has no room for sequence", m->next, err);
  *s = (ZdSequence){(uint64_t)at, (uint64_t)length, m->next == m->first};
  m->next++;
  return true;
}
