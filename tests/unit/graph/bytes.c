/* The .zsg file of the sample, every byte of its sections but the text changed in three ways behind fresh
 * checksums:
 * bytes.txt says which are refused with what, and what the others made of the graph, as the first printed
 * line that is new. A change is RECORD.BYTE and what was done: +, - one, or ^ the highest bit. */
#include <criterion/criterion.h>
#include <string.h>

#include "graph/file.h"
#include "tests/unit/graph/make.h"
#include "tests/unit/graph/outcomes.h"

static const char *const names[] = {[0] = "",
#define X(number, name, record, most) [number] = #name,
                                    ZG_SECTIONS(X)
#undef X
};
static const uint32_t records[] = {[0] = 1,
#define X(number, name, record, most) [number] = record,
                                   ZG_SECTIONS(X)
#undef X
};

static const char *printed(const ZgGraph *g, ZbArena *a) {
  ZbText t = {0};
  zg_print(g, ZG_NONE, &t);
  const char *s = zb_strdup(a, t.s);
  zb_text_free(&t);
  return s;
}

/* Numbers of three digits and more are what a byte happened to make: #. */
static const char *without_numbers(ZbArena *a, const char *s) {
  ZbText t = {0};
  while (*s) {
    size_t n = strspn(s, "0123456789");
    if (n < 3) zb_text_put(&t, s, n ? n : 1);
    else zb_text_add(&t, "#");
    s += n ? n : 1;
  }
  const char *out = zb_strdup(a, t.s);
  zb_text_free(&t);
  return out;
}

/* What reading makes of the bytes: "! why", or what is new in the graph. */
static const char *outcome(const char *bytes, size_t n, const char *before, ZbArena *a) {
  ZbErr err = {0};
  const ZgGraph *g = zg_read(a, bytes, n, &err);
  if (!g) return zb_printf(a, "! %s", without_numbers(a, err.text));
  const char *after = printed(g, a);
  while (*before && *after) {
    size_t b = strcspn(before, "\n"), x = strcspn(after, "\n");
    if (b != x || memcmp(before, after, b)) break;
    before += b + (before[b] != 0);
    after += x + (after[x] != 0);
  }
  if (!*before && !*after) return "the same graph";
  while (*after == ' ') after++;
  return zb_printf(a, "`%.*s`", (int)strcspn(after, "\n"), after);
}

static void change_section(Outcomes *o, const ZbText *file, int kind, const char *before) {
  const uint8_t *entry = (const uint8_t *)file->s + ZSG_HEADER + (size_t)(kind - 1) * ZSG_ENTRY;
  uint64_t at = zsg_get(entry + 8, 8), bytes = zsg_get(entry + 16, 8);
  for (uint64_t i = 0; i < bytes; i++)
    for (int way = 0; way < 3; way++) {
      ZbArena *a = zb_arena_new();
      char *copy = zb_alloc(a, file->len);
      memcpy(copy, file->s, file->len);
      if (way == 2) copy[at + i] ^= (char)0x80;
      else copy[at + i] = (char)(copy[at + i] + (way ? -1 : 1));
      zg_seal(copy, file->len);
      const char *change =
          zb_printf(a, "%u.%u%c", (unsigned)(i / records[kind]), (unsigned)(i % records[kind]), "+-^"[way]);
      outcomes_note(o, outcome(copy, file->len, before, a), change);
      zb_arena_free(a);
    }
}

Test(bytes, every_byte_of_every_section) {
  Make m = make_sample();
  ZbText file = {0}, got = {0};
  ZB_ASSERT(zg_write(m.g, &file, NULL));
  const char *before = printed(m.g, m.a);
  for (int kind = 1; kind <= ZSG_KINDS; kind++) {
    if (kind == SEC_STRB) continue; /* limits.c tries what text may hold */
    Outcomes o = {.a = m.a};
    change_section(&o, &file, kind, before);
    zb_text_add(&got, "section %s\n", names[kind]);
    outcomes_put(&o, &got);
  }
  outcomes_compare(got.s, "bytes.txt");
  zb_text_free(&got);
  zb_text_free(&file);
  zb_arena_free(m.a);
}
