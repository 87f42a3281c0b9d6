/* Names by number: a table that finds names quickly and forgets the latest ones, as scopes do. See base.h. */
#include "base/base.h"

#include <string.h>

enum { FEW = 8 }; /* names up to here are compared one by one: most scopes have no more, and need no table */

static uint32_t *bucket(const ZbNames *t, const char *name) {
  return &t->head[zb_mix64(zb_stream(name)) & (t->size - 1)];
}

static void chain(ZbNames *t, uint32_t i) {
  uint32_t *head = bucket(t, t->name[i]);
  t->next[i] = *head;
  *head = i;
}

static void grow(ZbArena *a, ZbNames *t) {
  t->size = t->size ? 2 * t->size : 4 * FEW;
  t->head = ZB_NEWN(a, uint32_t, t->size);
  t->next = ZB_NEWN(a, uint32_t, t->size);
  memset(t->head, 0xff, t->size * sizeof *t->head);
  for (uint32_t i = 0; i < t->n; i++) chain(t, i);
}

uint32_t zb_names_add(ZbArena *a, ZbNames *t, const char *name) {
  t->name = zb_room(a, t->name, t->n, sizeof *t->name, &t->cap);
  t->name[t->n++] = name;
  if (t->size) {
    if (t->n > t->size) grow(a, t);
    else chain(t, t->n - 1);
  } else if (t->n > FEW) grow(a, t);
  return t->n - 1;
}

uint32_t zb_names_find(const ZbNames *t, const char *name) {
  if (t->size) {
    uint32_t i = *bucket(t, name);
    while (i != ZB_NO_NAME && strcmp(t->name[i], name) != 0) i = t->next[i];
    return i;
  }
  for (uint32_t i = t->n; i-- > 0;)
    if (strcmp(t->name[i], name) == 0) return i;
  return ZB_NO_NAME;
}

void zb_names_cut(ZbNames *t, uint32_t n) {
  /* The latest of its bucket. */
  for (uint32_t i = t->n; t->size && i-- > n;) *bucket(t, t->name[i]) = t->next[i];
  if (n < t->n) t->n = n;
}

void zb_names_back(ZbNames *t, ZbNames was) {
  bool grew = t->head != was.head;
  zb_names_cut(t, was.n);
  *t = was;
  if (!grew || !t->size) return;
  memset(t->head, 0xff, t->size * sizeof *t->head); /* the old table knows names up to when it grew */
  for (uint32_t i = 0; i < t->n; i++) chain(t, i);
}
