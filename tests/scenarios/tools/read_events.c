/* read_events FILE: the events of a file of TensorBoard's, one a line: "version TEXT", "START step N", "STEP
 * TAG VALUE", "STEP TAG text", and the text's lines behind that. Every CRC, length and field is checked, by
 * code that shares nothing with what writes them. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Noreturn void bad(const char *what, size_t at) {
  fprintf(stderr, "read_events: %s, at byte %zu\n", what, at);
  exit(1);
}

static uint64_t le(const uint8_t *p, int n) {
  uint64_t x = 0;
  for (int i = n; i-- > 0;) x = x << 8 | p[i];
  return x;
}

/* Castagnoli's polynomial, bit by bit, highest first: bits are turned round on their way in and out. */
static uint32_t masked(const uint8_t *p, size_t n) {
  uint32_t c = ~0u, turned = 0;
  for (size_t i = 0; i < 8 * n; i++) {
    uint32_t bit = (p[i / 8] >> i % 8 & 1) ^ c >> 31;
    c = c << 1 ^ (bit ? 0x1edc6f41u : 0);
  }
  for (int i = 0; i < 32; i++) turned |= (c >> i & 1) << (31 - i);
  turned = ~turned;
  return ((turned >> 15) | (turned << 17)) + 0xa282ead8u;
}

typedef struct {
  int number, type;
  uint64_t value;   /* of numbers */
  const uint8_t *p; /* of bytes */
  size_t n;
} Field;

static uint64_t varint(const uint8_t **p, const uint8_t *end) {
  uint64_t x = 0;
  for (int shift = 0; *p < end && shift < 64; shift += 7) {
    uint8_t c = *(*p)++;
    x |= (uint64_t)(c & 127) << shift;
    if (!(c & 128)) return x;
  }
  bad("a number without an end", 0);
}

static bool next(const uint8_t **p, const uint8_t *end, Field *f) {
  if (*p == end) return false;
  uint64_t key = varint(p, end);
  *f = (Field){.number = (int)(key >> 3), .type = (int)(key & 7)};
  size_t left = (size_t)(end - *p), n = f->type == 1 ? 8 : f->type == 5 ? 4 : 0;
  if (f->type == 0) f->value = varint(p, end);
  else if (f->type == 2) {
    uint64_t len = varint(p, end);
    if (len > (size_t)(end - *p)) bad("a field longer than what it is in", 0);
    f->p = *p, f->n = (size_t)len, *p += len;
  } else {
    if (!n || n > left) bad("a field of no known type", 0);
    f->value = le(*p, (int)n), *p += n;
  }
  return true;
}

/* The bytes of field `number`, which must be there once. */
static Field find(Field in, int number, int type) {
  Field f, found = {0};
  for (const uint8_t *p = in.p; next(&p, in.p + in.n, &f);)
    if (f.number == number) {
      if (found.number || f.type != type) bad("a field twice, or of another type", 0);
      found = f;
    }
  return found;
}

static void print_value(int64_t step, Field value) {
  Field tag = find(value, 1, 2), number = find(value, 2, 5), tensor = find(value, 8, 2),
        meta = find(value, 9, 2);
  if (!tag.number || !number.number == !tensor.number)
    bad("a value without a tag, or not exactly one value", 0);
  printf("%lld %.*s ", (long long)step, (int)tag.n, (const char *)tag.p);
  if (number.number) {
    float x;
    uint32_t bits = (uint32_t)number.value;
    memcpy(&x, &bits, 4);
    printf("%.9g\n", (double)x);
    return;
  }
  Field plugin = find(find(meta, 1, 2), 1, 2), dim = find(find(tensor, 2, 2), 2, 2),
        text = find(tensor, 8, 2);
  if (plugin.n != 4 || memcmp(plugin.p, "text", 4) || find(meta, 4, 0).value != 2)
    bad("a text of no plugin", 0);
  if (find(tensor, 1, 0).value != 7 || find(dim, 1, 0).value != 1) bad("a tensor that is not one string", 0);
  printf("text\n%.*s", (int)text.n, (const char *)text.p);
}

static void print_event(Field e) {
  Field f, session = find(e, 7, 2), version = find(e, 3, 2), wall = find(e, 1, 1);
  int64_t step = (int64_t)find(e, 2, 0).value;
  double seconds;
  memcpy(&seconds, &wall.value, 8);
  if (!(seconds > 1.5e9 && seconds < 1e11)) bad("an event of no time", 0);
  if (version.number) printf("version %.*s\n", (int)version.n, (const char *)version.p);
  if (session.number && find(session, 1, 0).value == 1) printf("START step %lld\n", (long long)step);
  Field sum = find(e, 5, 2);
  for (const uint8_t *p = sum.p; sum.number && next(&p, sum.p + sum.n, &f);)
    if (f.number == 1 && f.type == 2) print_value(step, f);
    else bad("a summary of something else", 0);
}

int main(int argc, char **argv) {
  FILE *f = argc == 2 ? fopen(argv[1], "rb") : NULL;
  if (!f) return fprintf(stderr, "usage: read_events FILE\n"), 2;
  uint8_t head[12], tail[4];
  size_t at = 0, got;
  while ((got = fread(head, 1, 12, f))) {
    if (got < 12) bad("half a head", at);
    if (le(head + 8, 4) != masked(head, 8)) bad("the CRC of a length", at);
    size_t n = (size_t)le(head, 8);
    if (n > 1 << 28) bad("an event too long", at);
    uint8_t *data = malloc(n + 1);
    if (!data || fread(data, 1, n, f) != n || fread(tail, 1, 4, f) != 4) bad("half an event", at);
    if (le(tail, 4) != masked(data, n)) bad("the CRC of an event", at);
    print_event((Field){.p = data, .n = n});
    free(data);
    at += 16 + n;
  }
  fclose(f);
  return 0;
}
