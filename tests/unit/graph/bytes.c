/* The .zsg file of the sample, every byte of its sections but the text, and of its header and directory,
 * changed in three ways behind fresh checksums, and some of others:
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

/* The bytes [at, at + bytes), in records of so many. */
static void change_bytes(Outcomes *o, const ZbText *file, uint64_t at, uint64_t bytes, uint32_t record,
                         const char *before) {
  for (uint64_t i = 0; i < bytes; i++)
    for (int way = 0; way < 3; way++) {
      ZbArena *a = zb_arena_new();
      char *copy = zb_alloc(a, file->len);
      memcpy(copy, file->s, file->len);
      if (way == 2) copy[at + i] ^= (char)0x80;
      else copy[at + i] = (char)(copy[at + i] + (way ? -1 : 1));
      zg_seal(copy, file->len);
      const char *change =
          zb_printf(a, "%u.%u%c", (unsigned)(i / record), (unsigned)(i % record), "+-^"[way]);
      outcomes_note(o, outcome(copy, file->len, before, a), change);
      zb_arena_free(a);
    }
}

static void change_section(Outcomes *o, const ZbText *file, int kind, const char *before) {
  const uint8_t *entry = (const uint8_t *)file->s + ZSG_HEADER + (size_t)(kind - 1) * ZSG_ENTRY;
  change_bytes(o, file, zsg_get(entry + 8, 8), zsg_get(entry + 16, 8), records[kind], before);
}

/* The sample with all that is optional. */
static Make whole(void) {
  static ZgUpdateStep steps[] = {
      {ZG_OP_FILL, 0, 0, 0, 0.25}, {ZG_OP_MUL, 1, 2, 0, 0}, {ZG_OP_ADD, 0, 3, 0, 0}};
  static const ZgUpdate update = {3, steps};
  static const uint8_t order[ZG_MAX_AXES] = {2, 0, 1};
  Make m = make_sample();
  m.g->params[0].state = m.g->params[1].state = true;
  m.g->params[1].update = &update;
  zg_loss_add(m.g, "main", 1);
  ZgForeign table = {.map = "hf", .param = 0, .name = "wte", .ndims = 2, .dims = {9, 4}, .stride = {4, 1}};
  table.fixed = -1;
  zg_foreign_add(m.g, table);
  for (int64_t e = 0; e < 4; e++) {
    ZgForeign row = {.map = "hf", .param = 1, .name = zb_printf(m.a, "h.*.%d", (int)e), .ndims = 1, .at = e};
    row.dims[0] = 4, row.stride[0] = 1, row.fixed = 1;
    zg_foreign_add(m.g, row);
  }
  zg_config_add(m.g, "hf", "hidden_size", "4");
  zg_ignored_add(m.g, "hf", "*.bias", NULL);
  zg_ignored_add(m.g, "hf", "lm_head", "wte");
  m.g->outputs[0].order = order;
  double(*each)[2] = (void *)ZB_NEWN(m.a, double, 2 * m.g->segments[m.g->params[1].segment].trip);
  each[0][0] = 0.5;
  m.g->params[1].each = (const double(*)[2])each;
  static ZgUpdateStep by_place[] = {{ZG_OP_FILL, 0, 0, 0, 2}, {ZG_OP_ADD, 0, 3, 0, 0}};
  static const ZgUpdate formula = {2, by_place};
  m.g->params[0].formula = &formula;
  m.g->params[0].init = ZG_INIT_CONST;
  m.g->params[0].num[0] = m.g->params[0].num[1] = 0;
  return m;
}

/* A node with attributes that files may leave out. */
static Make attributes(void) {
  Make made = make_graph(), *m = &made;
  make_axis(m, "batch", 0);
  make_axis(m, "seq", 0);
  make_axis(m, "hd", 4);
  uint32_t x = make_input(m, "x", make_type(m, ZG_REAL, "batch seq hd")), in[] = {x, x, x};
  uint32_t y = make_with(m, (ZgNode){.op = ZG_OP_ATTEND, .num = {0.5, 50}, .opt = {1, 7}}, "seq hd", 3, in);
  make_loss(m, make_sum(m, y, "batch seq hd"));
  return made;
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
  Outcomes o = {.a = m.a};
  change_bytes(&o, &file, 0, ZSG_HEADER + 2 * ZSG_ENTRY, ZSG_ENTRY, before);
  zb_text_add(&got, "header and two entries of the directory\n");
  outcomes_put(&o, &got);
  zb_text_free(&file);
  zb_arena_free(m.a);
  m = whole();
  ZB_ASSERT(zg_write(m.g, &file, NULL));
  before = printed(m.g, m.a);
  for (int kind = ZSG_KINDS + 1; kind <= ZSG_ALL_KINDS; kind++) {
    o = (Outcomes){.a = m.a};
    change_section(&o, &file, kind, before);
    zb_text_add(&got, "section %s\n", names[kind]);
    outcomes_put(&o, &got);
  }
  zb_text_free(&file);
  zb_arena_free(m.a);
  m = attributes();
  ZB_ASSERT(zg_write(m.g, &file, NULL));
  before = printed(m.g, m.a);
  for (int kind = SEC_NODE; kind <= SEC_ATTR; kind++) {
    o = (Outcomes){.a = m.a};
    change_section(&o, &file, kind, before);
    zb_text_add(&got, "section %s of attention\n", names[kind]);
    outcomes_put(&o, &got);
  }
  outcomes_compare(got.s, "bytes.txt");
  zb_text_free(&got);
  zb_text_free(&file);
  zb_arena_free(m.a);
}

/* What is left out is 0, and what is 0 is left out: window and cap of the node of attention, number 1. */
Test(bytes, attributes_left_out) {
  static const struct {
    int mask, zero; /* of its attributes; which of these is 0 */
    const char *why;
  } cases[] = {{15, -1, NULL},
               {15 & ~ZSG_HAS_OPT1, -1, "section ATTR has records that nothing uses"},
               {15 & ~ZSG_HAS_NUM1, -1, "section ATTR has records that nothing uses"},
               {15, 2, "a node of attend has a window of 0, which is left out"},
               {15, 3, "a node of attend has a cap of 0, which is left out"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Make m = attributes();
    ZbText t = {0};
    ZbErr err = {0};
    ZB_ASSERT(zg_write(m.g, &t, NULL));
    uint8_t *p = (uint8_t *)t.s, *node = p + zsg_get(p + ZSG_HEADER + (SEC_NODE - 1) * ZSG_ENTRY + 8, 8) + 16,
            *attr = p + zsg_get(p + ZSG_HEADER + (SEC_ATTR - 1) * ZSG_ENTRY + 8, 8) + 8;
    cr_assert_eq(node[7], 15);
    node[7] = (uint8_t)cases[i].mask;
    if (cases[i].zero >= 0) zsg_set(attr + 8 * cases[i].zero, 8, 0);
    zg_seal(t.s, t.len);
    const ZgGraph *g = zg_read(m.a, t.s, t.len, &err);
    cr_expect_eq(g != NULL, !cases[i].why, "%zu: %s", i, err.text);
    if (cases[i].why) cr_expect_str_eq(err.text, cases[i].why);
    zb_text_free(&t);
    zb_arena_free(m.a);
  }
}
