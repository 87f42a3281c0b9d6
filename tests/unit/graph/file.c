/* The .zsg file: written, read and written again it is the same bytes; every field of it, broken, is a
 * message. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "graph/file.h"
#include "tests/unit/graph/make.h"

typedef struct {
  ZbArena *a;
  ZbText t;
} File;

static File written(void) {
  Make m = make_sample();
  File f = {.a = m.a};
  ZB_ASSERT(zg_write(m.g, &f.t, NULL));
  return f;
}

static void done(File *f) {
  zb_text_free(&f->t);
  zb_arena_free(f->a);
}

static uint8_t *at(File *f, size_t i) { return (uint8_t *)f->t.s + i; }
static uint8_t *entry(File *f, int kind) { return at(f, ZSG_HEADER + (size_t)(kind - 1) * ZSG_ENTRY); }
static uint8_t *section(File *f, int kind) { return at(f, zsg_get(entry(f, kind) + 8, 8)); }

static void rejected(File *f, const char *what, const char *why) {
  ZbErr err = {0};
  cr_expect_null(zg_read(f->a, f->t.s, f->t.len, &err), "%s", what);
  cr_expect(strstr(err.text, why), "%s: got '%s', want '%s'", what, err.text, why);
}

Test(file, same_bytes_again) {
  Make m = make_sample();
  ZbText first = {0}, second = {0}, before = {0}, after = {0};
  ZbErr err;
  ZB_ASSERT(zg_write(m.g, &first, NULL));
  ZgGraph *g = zg_read(m.a, first.s, first.len, &err);
  cr_assert(g, "%s", err.text);
  cr_expect(g->hash[0] == m.g->hash[0] && g->hash[1] == m.g->hash[1] && g->hash[0]);
  ZB_ASSERT(zg_write(g, &second, NULL));
  cr_assert_eq(first.len, second.len);
  cr_expect(!memcmp(first.s, second.s, first.len));
  zg_print(m.g, ZG_NONE, &before);
  zg_print(g, ZG_NONE, &after);
  cr_expect_str_eq(before.s, after.s);
  cr_expect(g->segments[1].backward && g->segments[1].nforward == m.g->segments[1].nforward);
  zb_text_free(&first);
  zb_text_free(&second);
  zb_text_free(&before);
  zb_text_free(&after);
  zb_arena_free(m.a);
}

/* A comment moves places, another folder renames files; neither makes another model. */
Test(file, what_is_computed_has_its_own_hash) {
  Make m = make_sample();
  const char *before = zg_hash_computed(m.a, m.g);
  for (uint32_t i = 1; i < m.g->nlocs; i++) m.g->locs[i].line += 7, m.g->locs[i].file = "other.zug";
  m.g->params[0].loc = zg_loc_add(m.g, "lib.zug", 3, 4);
  m.g->segments[0].nodes[0].loc = m.g->params[0].loc;
  cr_expect_str_eq(before, zg_hash_computed(m.a, m.g));
  m.g->params[0].num[0] += 0.5;
  const char *init = zg_hash_computed(m.a, m.g);
  cr_expect_str_neq(before, init);
  m.g->segments[0].nodes[0].region = 0;
  m.g->axes[0].name = "another";
  cr_expect_str_neq(init, zg_hash_computed(m.a, m.g));
  zb_arena_free(m.a);
}

/* A loss with a name needs a section; the number of a second one an attribute that the first does not write. */
Test(file, losses) {
  Make m = make_sample();
  ZbText plain = {0}, t = {0}, again = {0};
  ZbErr err;
  ZB_ASSERT(zg_write(m.g, &plain, NULL));
  zg_loss_add(m.g, "main", 0);
  ZB_ASSERT(zg_write(m.g, &t, NULL));
  cr_expect(plain.s[6] == 0 && t.s[6] == 2 && t.s[12] == ZSG_KINDS + 1);
  cr_expect_eq(zsg_get((uint8_t *)t.s + ZSG_HEADER + ZSG_KINDS * ZSG_ENTRY, 4), SEC_LOSS);
  t.len = 0;
  zg_loss_add(m.g, "more", 0);
  m.s = &m.g->segments[2];
  m.s->nnodes = m.s->nforward;
  m.s->nvalues = m.s->nodes[m.s->nnodes - 1].in[0] + 1;
  for (uint32_t i = 0; i < 2; i++) { /* the repeat and what is before it, without backward too */
    ZgSegment *s = &m.g->segments[i];
    s->nnodes = s->nforward;
    s->nvalues = 0;
    for (uint32_t k = 0; k < s->nnodes; k++) s->nvalues += s->nodes[k].nout;
    s->backward = false;
  }
  m.s->backward = false;
  m.s->nvalues = 0;
  for (uint32_t k = 0; k < m.s->nnodes; k++) m.s->nvalues += m.s->nodes[k].nout;
  for (int op = ZG_OP_LOSS_NUM; op <= ZG_OP_LOSS_DEN; op++) {
    uint32_t x = make_fill(&m, 3);
    make_with(&m, (ZgNode){.op = (uint16_t)op, .opt = {1}}, "", 1, &x);
  }
  cr_assert(zg_verify(m.g, &err), "%s", err.text);
  ZB_ASSERT(zg_write(m.g, &t, NULL));
  ZgGraph *g = zg_read(m.a, t.s, t.len, &err);
  cr_assert(g, "%s", err.text);
  cr_expect(g->nlosses == 2 && !strcmp(g->losses[1].name, "more"));
  ZB_ASSERT(zg_write(g, &again, NULL));
  cr_expect(t.len == again.len && !memcmp(t.s, again.s, t.len));
  zb_text_free(&plain);
  zb_text_free(&t);
  zb_text_free(&again);
  zb_arena_free(m.a);
}

/* A state, and one that is updated: readers that know no states must not read it. */
Test(file, states) {
  Make m = make_sample();
  ZbText t = {0}, again = {0}, before = {0}, after = {0};
  ZbErr err;
  ZgUpdateStep steps[] = {{ZG_OP_FILL, 0, 0, 0, 0.25}, {ZG_OP_MUL, 1, 2, 0, 0}, {ZG_OP_ADD, 0, 3, 0, 0}};
  ZgUpdate u = {3, steps};
  for (uint32_t i = 0; i < 2; i++) {
    m.g->params[i].state = true;
    m.g->params[i].update = i ? &u : NULL;
  }
  cr_assert(zg_verify(m.g, &err), "%s", err.text);
  ZB_ASSERT(zg_write(m.g, &t, NULL));
  const uint8_t *entry = (uint8_t *)t.s + ZSG_HEADER + ZSG_KINDS * ZSG_ENTRY;
  cr_expect(t.s[6] == 3 && t.s[12] == ZSG_KINDS + 2);
  cr_expect(zsg_get(entry, 4) == SEC_STAT && zsg_get(entry + 4, 4) == ZSG_REQUIRED);
  cr_expect(zsg_get(entry + ZSG_ENTRY, 4) == SEC_STEP && zsg_get(entry + ZSG_ENTRY + 4, 4) == ZSG_REQUIRED);
  ZgGraph *g = zg_read(m.a, t.s, t.len, &err);
  cr_assert(g, "%s", err.text);
  cr_expect(g->params[0].state && !g->params[0].update && g->params[1].update && g->params[1].update->n == 3);
  ZB_ASSERT(zg_write(g, &again, NULL));
  cr_expect(t.len == again.len && !memcmp(t.s, again.s, t.len));
  zg_print(m.g, ZG_NONE, &before);
  zg_print(g, ZG_NONE, &after);
  cr_expect_str_eq(before.s, after.s);
  cr_expect(strstr(before.s, " updates %2 = fill 0.25; %3 = mul %1, %2; %4 = add %0, %3"), "%s", before.s);
  static const struct {
    int section, at, value;
    const char *why;
  } bad[] = {{SEC_STAT, 0, 9, "state 0 is not a parameter"},
             {SEC_STAT, 8, 0, "state 1 is not a parameter"},
             {SEC_STAT, 12, 4, "section STEP is too short"},
             {SEC_STAT, 12, 2, "section STEP has records that nothing uses"},
             {SEC_STEP, 0, ZG_OP_DOT, "step 0 of its update is none"},
             {SEC_STEP, 18, 2 + 1, "step 1 of its update is none"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    char *copy = zb_alloc(m.a, t.len);
    memcpy(copy, t.s, t.len);
    copy[zsg_get(entry + (bad[i].section - SEC_STAT) * ZSG_ENTRY + 8, 8) + (uint64_t)bad[i].at] =
        (char)bad[i].value;
    zg_seal(copy, t.len);
    cr_expect(!zg_read(m.a, copy, t.len, &err) && strstr(err.text, bad[i].why), "%zu: %s", i, err.text);
  }
  zb_text_free(&t);
  zb_text_free(&again);
  zb_text_free(&before);
  zb_text_free(&after);
  zb_arena_free(m.a);
}

/* Initial values by iteration: of a repeat's parameter one record for each, in order, or none. */
Test(file, each_iteration) {
  Make m = make_sample();
  ZbText t = {0}, again = {0}, shown = {0};
  ZbErr err;
  uint32_t k = 0;
  while (m.g->params[k].segment == ZG_NONE) k++;
  uint32_t trip = m.g->segments[m.g->params[k].segment].trip;
  double(*each)[2] = (void *)ZB_NEWN(m.a, double, 2 * trip);
  for (uint32_t i = 0; i < trip; i++) each[i][0] = 0.5 + i;
  m.g->params[k].each = (const double(*)[2])each;
  cr_assert(zg_verify(m.g, &err), "%s", err.text);
  ZB_ASSERT(zg_write(m.g, &t, NULL));
  const uint8_t *entry = (uint8_t *)t.s + ZSG_HEADER + ZSG_KINDS * ZSG_ENTRY;
  cr_expect(t.s[6] == 5 && t.s[12] == ZSG_KINDS + 1);
  cr_expect(zsg_get(entry, 4) == SEC_EACH && zsg_get(entry + 4, 4) == ZSG_REQUIRED);
  ZgGraph *g = zg_read(m.a, t.s, t.len, &err);
  cr_assert(g, "%s", err.text);
  cr_expect(zg_init_numbers(&g->params[k], trip - 1)[0] == 0.5 + (trip - 1));
  ZB_ASSERT(zg_write(g, &again, NULL));
  cr_expect(t.len == again.len && !memcmp(t.s, again.s, t.len));
  zg_print(g, ZG_NONE, &shown);
  cr_expect(strstr(shown.s, "normal(0.5); normal(1.5)"), "%s", shown.s);
  static const struct {
    int at, value;
    const char *why;
  } bad[] = {{0, 99, "are of no parameter"},
             {0, 0, "not of a repeat's parameter"},
             {4, 1, "record 0: not the next one"},
             {24 + 4, 0, "record 1: not the next one"},
             {15, 0x7f, "no valid initialiser in iteration 0"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    char *copy = zb_alloc(m.a, t.len);
    uint64_t first = zsg_get(entry + 8, 8);
    memcpy(copy, t.s, t.len);
    if (i == 4) zsg_set((uint8_t *)copy + first + 8, 8, 0x7ff0000000000000u);
    else copy[first + (uint64_t)bad[i].at] = (char)bad[i].value;
    zg_seal(copy, t.len);
    cr_expect(!zg_read(m.a, copy, t.len, &err) && strstr(err.text, bad[i].why), "%zu: %s", i, err.text);
  }
  zb_text_free(&t);
  zb_text_free(&again);
  zb_text_free(&shown);
  zb_arena_free(m.a);
}

/* Initial values by position: their steps come behind those of states, and are checked as these. */
Test(file, by_position) {
  Make m = make_sample();
  ZbText t = {0}, again = {0}, shown = {0};
  ZbErr err;
  ZgParam *p = &m.g->params[0];
  ZgUpdateStep steps[] = {{.op = ZG_OP_FILL, .num = 2},
                          {.op = ZG_OP_POW, .a = (uint16_t)(p->type.naxes + 1), .b = 0}};
  p->init = ZG_INIT_CONST, p->num[0] = p->num[1] = 0;
  p->formula = &(ZgUpdate){2, steps};
  cr_assert(zg_verify(m.g, &err), "%s", err.text);
  ZB_ASSERT(zg_write(m.g, &t, NULL));
  cr_expect(t.s[6] == ZSG_MINOR && t.s[12] == ZSG_KINDS + 2);
  ZgGraph *g = zg_read(m.a, t.s, t.len, &err);
  cr_assert(g, "%s", err.text);
  cr_expect(zg_initial(&g->params[0], (double[ZG_MAX_AXES]){3}, 0) == 8);
  ZB_ASSERT(zg_write(g, &again, NULL));
  cr_expect(t.len == again.len && !memcmp(t.s, again.s, t.len));
  zg_print(g, ZG_NONE, &shown);
  cr_expect(strstr(shown.s, " = pow %"), "%s", shown.s);
  static const struct {
    uint32_t n;
    ZgUpdateStep last;
    const char *why;
  } bad[] = {{0, {.op = ZG_OP_POW}, "no valid initial value by position"},
             {ZG_MAX_FORMULA + 1, {.op = ZG_OP_POW}, "no valid initial value by position"},
             {2, {.op = ZG_OP_POW, .a = 100}, "step 1 of its initial value is none"},
             {2, {.op = ZG_OP_DOT}, "step 1 of its initial value is none"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    steps[1] = bad[i].last;
    p->formula = &(ZgUpdate){bad[i].n, steps};
    cr_expect(!zg_verify(m.g, &err) && strstr(err.text, bad[i].why), "%zu: %s", i, err.text);
  }
  zb_text_free(&t);
  zb_text_free(&again);
  zb_text_free(&shown);
  zb_arena_free(m.a);
}

/* Axes that are not written in the order of their numbers: readers that do not know that must not read it. */
Test(file, orders) {
  Make m = make_sample();
  ZbText t = {0}, again = {0}, shown = {0};
  ZbErr err;
  ZgIo *io = &m.g->outputs[0];
  io->order = (const uint8_t[ZG_MAX_AXES]){2, 0, 1};
  cr_assert(zg_verify(m.g, &err), "%s", err.text);
  ZB_ASSERT(zg_write(m.g, &t, NULL));
  const uint8_t *entry = (uint8_t *)t.s + ZSG_HEADER + ZSG_KINDS * ZSG_ENTRY;
  cr_expect(t.s[6] == 4 && t.s[12] == ZSG_KINDS + 1);
  cr_expect(zsg_get(entry, 4) == SEC_ORDR && zsg_get(entry + 4, 4) == ZSG_REQUIRED);
  ZgGraph *g = zg_read(m.a, t.s, t.len, &err);
  cr_assert(g, "%s", err.text);
  cr_expect(!g->inputs[0].order && zg_io_axis(&g->outputs[0], 0) == 2 && zg_io_axis(&g->outputs[0], 2) == 1);
  ZB_ASSERT(zg_write(g, &again, NULL));
  cr_expect(t.len == again.len && !memcmp(t.s, again.s, t.len));
  zg_print(g, ZG_NONE, &shown);
  cr_expect(strstr(shown.s, "output logits: real[vocab, batch, seq]"), "%s", shown.s);
  static const struct {
    int at, value;
    const char *why;
  } bad[] = {{0, 9, "order 0 is of no input or output"},
             {4, 3, "output logits: the order of its axes is not an order"},
             {4, 0, "output logits: the order of its axes is not an order"},
             {4 + 3, 1, "logits: the order of its axes is not an order"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    char *copy = zb_alloc(m.a, t.len);
    memcpy(copy, t.s, t.len);
    copy[zsg_get(entry + 8, 8) + (uint64_t)bad[i].at] = (char)bad[i].value;
    zg_seal(copy, t.len);
    cr_expect(!zg_read(m.a, copy, t.len, &err) && strstr(err.text, bad[i].why), "%zu: %s", i, err.text);
  }
  zb_text_free(&t);
  zb_text_free(&again);
  zb_text_free(&shown);
  zb_arena_free(m.a);
}

Test(file, every_truncation) {
  File f = written();
  for (size_t n = 0; n < f.t.len; n += n < 700 ? 1 : 13) {
    ZbErr err;
    char *copy = zb_alloc(f.a, n + 1);
    memcpy(copy, f.t.s, n);
    cr_expect_null(zg_read(f.a, copy, n, &err));
    zg_seal(copy, n); /* past the checksums the size is still wrong */
    cr_expect_null(zg_read(f.a, copy, n, &err));
  }
  done(&f);
}

Test(file, every_altered_byte) {
  File f = written();
  for (size_t i = 0; i < f.t.len; i += 3) {
    f.t.s[i] ^= 0x10;
    ZbErr err;
    cr_expect_null(zg_read(f.a, f.t.s, f.t.len, &err), "byte %zu", i);
    f.t.s[i] ^= 0x10;
  }
  done(&f);
}

/* The same with checksums that fit: whatever is accepted verifies (zg_read sees to that) and can be
 * written. */
Test(file, every_altered_byte_sealed) {
  File f = written();
  for (size_t i = 0; i < f.t.len; i++) {
    ZbArena *a = zb_arena_new();
    ZbErr err = {0};
    char *copy = zb_alloc(a, f.t.len);
    memcpy(copy, f.t.s, f.t.len);
    copy[i] ^= (char)(1 << (i % 8));
    zg_seal(copy, f.t.len);
    ZgGraph *g = zg_read(a, copy, f.t.len, &err);
    if (g) {
      ZbText again = {0};
      ZB_ASSERT(zg_write(g, &again, NULL));
      zb_text_free(&again);
    } else cr_expect(err.text[0]);
    zb_arena_free(a);
  }
  done(&f);
}

Test(file, damage) {
  File f = written();
  f.t.s[f.t.len - 1] ^= 1;
  rejected(&f, "damage", "its contents do not have the hash in its header");
  f.t.s[20] ^= 1;
  rejected(&f, "damage", "the file's header is damaged");
  f.t.s[4] = 2;
  rejected(&f, "damage", "the file has format version 2, this program reads 1");
  f.t.s[0] = 'X';
  rejected(&f, "damage", "this is not a stage graph");
  f.t.len = 30;
  f.t.s[0] = 'Z';
  rejected(&f, "damage", "cut off within its header");
  done(&f);
}

Test(file, minor_version_and_unknown_sections_may_be_ignored) {
  File f = written();
  ZbErr err;
  zsg_set(at(&f, 6), 2, 9);
  zg_seal(f.t.s, f.t.len);
  cr_expect(zg_read(f.a, f.t.s, f.t.len, &err), "%s", err.text);
  /* one more entry in the directory moves everything by its size */
  ZbText t = {0};
  size_t table = ZSG_HEADER + ZSG_KINDS * ZSG_ENTRY;
  uint8_t more[ZSG_ENTRY] = {99};
  zsg_set(more + 8, 8, f.t.len + ZSG_ENTRY);
  zb_text_put(&t, f.t.s, table);
  zb_text_put(&t, (char *)more, sizeof more);
  zb_text_put(&t, f.t.s + table, f.t.len - table);
  for (int k = 1; k <= ZSG_KINDS; k++) {
    uint8_t *e = (uint8_t *)t.s + ZSG_HEADER + (k - 1) * ZSG_ENTRY;
    zsg_set(e + 8, 8, zsg_get(e + 8, 8) + ZSG_ENTRY);
  }
  zsg_set((uint8_t *)t.s + 12, 4, ZSG_KINDS + 1);
  zsg_set((uint8_t *)t.s + 16, 8, t.len);
  zg_seal(t.s, t.len);
  cr_expect(zg_read(f.a, t.s, t.len, &err), "%s", err.text);
  t.s[table + 4] = ZSG_REQUIRED;
  zg_seal(t.s, t.len);
  cr_expect_null(zg_read(f.a, t.s, t.len, &err));
  cr_expect(strstr(err.text, "section 99 is required"), "%s", err.text);
  zb_text_free(&t);
  done(&f);
}

/* How many records a section may have: the last that is written and read, the first that is neither. */
Test(file, most_records) {
  for (int n = 1024; n <= 1025; n++) {
    Make m = make_sample();
    File f = {.a = m.a};
    ZbErr err = {0};
    for (int i = 0; i < n; i++) zg_ignored_add(m.g, "hf", "*", NULL);
    bool ok = zg_write(m.g, &f.t, &err);
    cr_expect_eq(ok, n == 1024, "%s", err.text);
    if (ok) { /* one more, by hand: IGNO is the file's last section */
      uint8_t *e = at(&f, ZSG_HEADER + ZSG_KINDS * ZSG_ENTRY);
      uint8_t one[8] = {0};
      zsg_set(e + 16, 8, 8 * 1025);
      zsg_set(e + 24, 8, 1025);
      zb_text_put(&f.t, (char *)one, sizeof one);
      zsg_set(at(&f, 16), 8, f.t.len);
      zg_seal(f.t.s, f.t.len);
      rejected(&f, "IGNO", "section IGNO has 1025 records, at most 1024 are possible");
    } else {
      cr_expect_str_eq(
          err.text, "the stage graph is too large: 1025 records in section IGNO, at most 1024 are possible");
      cr_expect(*err.help && f.t.len == 0);
    }
    done(&f);
  }
}

Test(file, known_by_its_beginning) {
  File f = written();
  cr_expect(zg_is_one(at(&f, 0), 4) && zg_is_one(at(&f, 0), f.t.len));
  for (size_t n = 0; n < 4; n++) {
    cr_expect(!zg_is_one(at(&f, 0), n));
    f.t.s[n] ^= 1;
    cr_expect(!zg_is_one(at(&f, 0), f.t.len));
    f.t.s[n] ^= 1;
  }
  done(&f);
}

/* What lies behind the last section, of which the header's size knows: nothing may, not even zeros. */
Test(file, nothing_behind) {
  for (int byte = 0; byte < 2; byte++) {
    File f = written();
    char more[8] = {0, 0, 0, (char)byte};
    zb_text_put(&f.t, more, sizeof more);
    zsg_set(at(&f, 16), 8, f.t.len);
    zg_seal(f.t.s, f.t.len);
    rejected(&f, "more bytes", "there is something behind the last section");
    done(&f);
  }
}

/* Sets `bytes` bytes at WHERE to VALUE behind fresh checksums. */
#define BROKEN(NAME, WHY, WHERE, BYTES, VALUE)                                                               \
  do {                                                                                                       \
    File f = written();                                                                                      \
    uint8_t *p = WHERE;                                                                                      \
    zsg_set(p, BYTES, (uint64_t)(VALUE));                                                                    \
    zg_seal(f.t.s, f.t.len);                                                                                 \
    rejected(&f, #NAME, WHY);                                                                                \
    done(&f);                                                                                                \
  } while (0)
#define OLD(bytes) (zsg_get(p, bytes))

Test(file, every_field) {
  BROKEN(header_size, "it is cut off or something was added", at(&f, 16), 8, OLD(8) + 8);
  BROKEN(header_features, "the file needs features (0x4)", at(&f, 8), 4, 4);
  BROKEN(header_reserved, "reserved bytes of the header", at(&f, 48), 1, 1);
  BROKEN(directory_count, "sections do not fit into it", at(&f, 12), 4, UINT32_MAX);
  BROKEN(directory_short, "is not in its place", at(&f, 12), 4, 3);
  BROKEN(directory_order, "section 1 is not in order", entry(&f, 2), 4, 1);
  BROKEN(directory_flags, "section 2 has unknown flags", entry(&f, 2) + 4, 4, 2);
  BROKEN(directory_offset, "section 2 is not in its place", entry(&f, 2) + 8, 8, OLD(8) + 8);
  BROKEN(directory_offset_huge, "section 2 is not in its place", entry(&f, 2) + 8, 8, UINT64_MAX - 7);
  BROKEN(directory_bytes, "section 2 is not in its place", entry(&f, 2) + 16, 8, UINT64_MAX);
  BROKEN(directory_records, "section AXIS has", entry(&f, SEC_AXIS) + 24, 8, OLD(8) + 1);
  BROKEN(directory_overflow, "section AXIS has", entry(&f, SEC_AXIS) + 24, 8, (1ull << 60) + 5);
  BROKEN(directory_kind, "section 200 is required and this program does not know it", entry(&f, ZSG_KINDS), 4,
         200);
  BROKEN(directory_missing, "section RSLT is missing",
         (zsg_set(entry(&f, ZSG_KINDS) + 4, 4, 0), entry(&f, ZSG_KINDS)), 4, 200);
  BROKEN(padding, "is not in its place", section(&f, SEC_STRB) + zsg_get(entry(&f, SEC_STRB) + 16, 8), 1, 1);
  BROKEN(meta_string, "there is no string 4000", section(&f, SEC_META), 4, 4000);
  BROKEN(meta_reserved, "section META is not one record", section(&f, SEC_META) + 4, 4, 1);
  BROKEN(string_end, "string 0 has no valid extent", section(&f, SEC_STRE), 4, UINT32_MAX);
  BROKEN(string_order, "string 1 has no valid extent", section(&f, SEC_STRE) + 4, 4, 1);
  BROKEN(string_control, "string 0 is not clean UTF-8", section(&f, SEC_STRB), 1, '\n');
  BROKEN(string_nul, "string 0 is not clean UTF-8", section(&f, SEC_STRB), 1, 0);
  BROKEN(string_utf8, "string 0 is not clean UTF-8", section(&f, SEC_STRB), 1, 0xc3);
  BROKEN(place_string, "there is no string", section(&f, SEC_LOCS), 4, 99);
  BROKEN(axis_string, "there is no string", section(&f, SEC_AXIS), 4, 99);
  BROKEN(axis_reserved, "axis 0: reserved bytes", section(&f, SEC_AXIS) + 4, 4, 1);
  BROKEN(axis_size, "axis batch has size -1", section(&f, SEC_AXIS) + 8, 8, -1);
  BROKEN(axis_name, "the axis name", section(&f, SEC_AXIS), 4, zsg_get(section(&f, SEC_AXIS) + 16, 4));
  BROKEN(tag_string, "there is no string", section(&f, SEC_TAGS), 4, 99);
  BROKEN(type_elem, "type 0 is not a type", section(&f, SEC_TYPE), 1, ZG_ELEMS);
  BROKEN(type_axes, "type 0 is not a type", section(&f, SEC_TYPE) + 1, 1, 9);
  BROKEN(type_of, "type 0 selects along no axis", section(&f, SEC_TYPE) + 2, 2, 1);
  BROKEN(type_axis, "type 0 has axes that do not exist", section(&f, SEC_TYPE) + 4, 2, 600);
  BROKEN(type_order, "type 0 has axes that do not exist or are not in order", section(&f, SEC_TYPE) + 6, 2,
         1);
  BROKEN(type_rest, "type 0 has axes that do not exist", section(&f, SEC_TYPE) + 18, 2, 1);
  BROKEN(param_string, "there is no string", section(&f, SEC_PARM), 4, 99);
  BROKEN(param_type, "there is no type", section(&f, SEC_PARM) + 4, 4, 99);
  BROKEN(param_tags, "a tag that does not exist", section(&f, SEC_PARM) + 8, 4, 8);
  BROKEN(param_segment, "belongs to a repeat that does not exist", section(&f, SEC_PARM) + 12, 4, 7);
  BROKEN(param_place, "parameter table has no valid place", section(&f, SEC_PARM) + 16, 4, 7);
  BROKEN(param_init, "parameter 0 has an unknown initialiser", section(&f, SEC_PARM) + 20, 4, 256);
  BROKEN(param_order, "is not an order", section(&f, SEC_PARM) + 24, 1, 5);
  BROKEN(param_order_rest, "is not an order", section(&f, SEC_PARM) + 31, 1, 5);
  BROKEN(param_number, "no valid initialiser", section(&f, SEC_PARM) + 38, 2, 0x7ff8);
  BROKEN(region_kind, "region 1 has an unknown kind", section(&f, SEC_REGN) + 16, 4, 3);
  BROKEN(region_parent, "region 1 has the wrong kind or parent", section(&f, SEC_REGN) + 20, 4, 1);
  BROKEN(region_label, "there is no string", section(&f, SEC_REGN) + 24, 4, 99);
  BROKEN(io_kind, "inputs and outputs are not in order", section(&f, SEC_INOU), 4, 1);
  BROKEN(io_unknown, "inputs and outputs are not in order", section(&f, SEC_INOU), 4, 2);
  BROKEN(io_string, "there is no string", section(&f, SEC_INOU) + 4, 4, 99);
  BROKEN(io_type, "there is no type", section(&f, SEC_INOU) + 8, 4, 99);
  BROKEN(io_place, "input tokens has no valid type", section(&f, SEC_INOU) + 12, 4, 99);
  BROKEN(segment_label, "there is no string", section(&f, SEC_SEGM), 4, 99);
  BROKEN(segment_region, "its region is not its repeat's", section(&f, SEC_SEGM) + 4, 4, 1);
  BROKEN(segment_trip, "segment 1 runs 1000000 times", section(&f, SEC_SEGM) + 32 + 8, 4, 1000000);
  BROKEN(segment_flags, "unknown flags", section(&f, SEC_SEGM) + 12, 4, 4);
  BROKEN(segment_carries, "section CARR is too short", section(&f, SEC_SEGM) + 16, 4, UINT32_MAX);
  BROKEN(segment_carries_less, "section CARR has records that nothing uses",
         section(&f, SEC_SEGM) + 2 * 32 + 16, 4, 0);
  BROKEN(segment_nodes, "section NODE is too short", section(&f, SEC_SEGM) + 24, 4, UINT32_MAX);
  BROKEN(segment_nodes_less, "section NODE has records that nothing uses",
         section(&f, SEC_SEGM) + 2 * 32 + 24, 4, 1);
  BROKEN(segment_forward, "forward nodes", section(&f, SEC_SEGM) + 28, 4, 4000);
  BROKEN(carried_type, "there is no type", section(&f, SEC_CARR), 4, 99);
  BROKEN(node_op, "op 5000 in version 1 is not known", section(&f, SEC_NODE), 2, 5000);
  BROKEN(node_version, "in version 2 is not known", section(&f, SEC_NODE) + 2, 2, 2);
  BROKEN(node_operands, "a node of input has 11 operands", section(&f, SEC_NODE) + 4, 1, 11);
  BROKEN(node_results, "a node of input has", section(&f, SEC_NODE) + 5, 1, 2);
  BROKEN(node_axes, "a node of input has", section(&f, SEC_NODE) + 6, 1, 10);
  BROKEN(node_attributes, "a node of input has other attributes than the op", section(&f, SEC_NODE) + 7, 1,
         1);
  BROKEN(node_region, "no such place or region", section(&f, SEC_NODE) + 8, 4, 99);
  BROKEN(node_place, "no such place or region", section(&f, SEC_NODE) + 12, 4, 99);
  BROKEN(node_list, "records that nothing uses", section(&f, SEC_NODE) + 2 * 16 + 4, 1, 1);
  BROKEN(operand, "is not defined before it", section(&f, SEC_OPND), 4, 50);
  BROKEN(axis_argument, "there is no axis number 600", section(&f, SEC_AXAR), 2, 600);
  BROKEN(attribute, "segment 0, node 0 (input): input: the input number is 77", section(&f, SEC_ATTR), 8, 77);
  BROKEN(result, "there is no type", section(&f, SEC_RSLT), 4, 99);
  BROKEN(result_of_another_type, "its operands make it", section(&f, SEC_RSLT) + 8, 4, zsg_get(p - 4, 4));
}

/* The last list of the file, a record longer. */
Test(file, results_that_nothing_uses) {
  File f = written();
  uint64_t bytes = zsg_get(entry(&f, SEC_RSLT) + 16, 8);
  if (bytes % 8 == 0) zb_text_put(&f.t, "\0\0\0\0\0\0\0", 8);
  zsg_set(at(&f, 16), 8, f.t.len);
  zsg_set(entry(&f, SEC_RSLT) + 16, 8, bytes + 4);
  zsg_set(entry(&f, SEC_RSLT) + 24, 8, bytes / 4 + 1);
  zg_seal(f.t.s, f.t.len);
  rejected(&f, "a longer list", "section RSLT has records that nothing uses");
  done(&f);
}

Test(file, from_disk) {
  File f = written();
  ZbErr err;
  char path[] = "/tmp/zug-test-XXXXXX";
  int fd = mkstemp(path);
  cr_assert_geq(fd, 0);
  FILE *out = fdopen(fd, "wb");
  fwrite(f.t.s, 1, f.t.len, out);
  fclose(out);
  cr_expect(zg_read_file(f.a, path, &err), "%s", err.text);
  cr_expect_eq(truncate(path, 100), 0);
  cr_expect_null(zg_read_file(f.a, path, &err));
  cr_expect(strstr(err.text, path) && strstr(err.text, "cut off") && err.help[0], "%s", err.text);
  remove(path);
  cr_expect_null(zg_read_file(f.a, path, &err));
  cr_expect(strstr(err.text, path), "%s", err.text);
  done(&f);
}
