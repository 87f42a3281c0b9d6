/* Strings to numbers, whole and by prefix, and growing scratch. */
#include "runtime/text/room.h"

#include <stdlib.h>

uint64_t zt_hash(const char *s, size_t n) {
  uint64_t h = 0x9e3779b97f4a7c15ull ^ n, w;
  for (; n >= 8; s += 8, n -= 8) {
    memcpy(&w, s, 8);
    h = (h ^ w) * 0xff51afd7ed558ccdull;
    h ^= h >> 32;
  }
  w = 0;
  memcpy(&w, s, n);
  return zb_mix64(h ^ w);
}

static uint32_t power_of_two(uint64_t least) {
  uint64_t n = 16;
  while (n < least) n *= 2;
  return (uint32_t)n;
}

void zt_table_init(ZbArena *a, ZtTable *t, uint32_t entries) {
  uint32_t size = power_of_two(2 * (uint64_t)entries);
  *t = (ZtTable){.slot = ZB_NEWN(a, ZtEntry, size), .mask = size - 1};
}

static ZtEntry *slot_of(const ZtTable *t, const char *s, size_t n) {
  uint32_t i = (uint32_t)zt_hash(s, n) & t->mask;
  while (t->slot[i].s && !(t->slot[i].n == n && !memcmp(t->slot[i].s, s, n))) i = (i + 1) & t->mask;
  return &t->slot[i];
}

bool zt_table_add(ZtTable *t, const char *s, size_t n, uint32_t value) {
  ZtEntry *e = slot_of(t, s, n);
  if (e->s) return false;
  if (++t->count > t->mask / 2 + 1) ZB_BUG("a table of %u slots is full", t->mask + 1);
  *e = (ZtEntry){s, (uint32_t)n, value};
  return true;
}

uint32_t zt_table_find(const ZtTable *t, const char *s, size_t n) {
  if (!t->count) return ZT_NONE;
  const ZtEntry *e = slot_of(t, s, n);
  return e->s ? e->value : ZT_NONE;
}

bool zt_trie_init(ZbArena *a, ZtTrie *t, uint64_t bytes, ZbErr *err) {
  if (bytes > 1u << 28) return zb_fail(err, NULL, "its tokens have %llu bytes", (unsigned long long)bytes);
  uint32_t size = power_of_two(2 * (bytes + 1));
  *t = (ZtTrie){
      .key = ZB_NEWN(a, uint64_t, size), .child = ZB_NEWN(a, uint32_t, size), .mask = size - 1, .nodes = 1};
  t->value = ZB_NEWN(a, uint32_t, bytes + 1);
  memset(t->value, 0xff, (bytes + 1) * sizeof *t->value);
  return true;
}

void zt_trie_add(ZtTrie *t, const char *s, size_t n, uint32_t value) {
  uint32_t node = 0;
  for (size_t i = 0; i < n; i++) {
    uint32_t next = zt_trie_step(t, node, (uint8_t)s[i]);
    if (!next) {
      uint64_t key = ((uint64_t)node << 8 | (uint8_t)s[i]) + 1;
      uint32_t k = (uint32_t)(key * 0x9e3779b97f4a7c15ull >> 32) & t->mask;
      while (t->key[k]) k = (k + 1) & t->mask;
      t->key[k] = key;
      t->child[k] = next = t->nodes++;
    }
    node = next;
  }
  if (t->value[node] == ZT_NONE) t->value[node] = value;
}

void *zt_room(void *p, size_t n, size_t more, size_t size, size_t *cap) {
  if (*cap - n >= more) return p;
  size_t want = n + more > 2 * *cap ? n + more : 2 * *cap;
  if (want < 64) want = 64;
  p = realloc(p, zb_array_bytes(want, size));
  if (!p) zb_out_of_memory(want * size);
  *cap = want;
  return p;
}

void zt_ids_free(ZtIds *ids) {
  free(ids->id);
  *ids = (ZtIds){0};
}
