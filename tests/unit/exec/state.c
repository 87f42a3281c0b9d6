/* Where a rank's elements lie in whole parameters, what of a checkpoint a rank's thread writes, and its way to a
 * name. */
#include "runtime/exec/state/writer.h"
#include "tests/unit/exec/scratch.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

SCRATCH_SUITE(state);

static ZbErr err;

/* ---- stretches ---- */
enum { AXIS = 7 };
static uint16_t split_axes[] = {AXIS};
static const ZpMesh two = {
    .dim = {{.name = "d", .size = 2, .axes = split_axes, .naxes = 1, .zigzag = ZP_NO_AXIS}},
    .ndims = 1,
    .pipe = ZP_NONE,
    .nranks = 2};
static struct {
  uint64_t global[64], local[64], n[64];
  int count, most; /* stops after so many */
} got;

static bool note(void *ctx, uint64_t global, uint64_t local, uint64_t n) {
  cr_expect_eq(ctx, &got);
  got.global[got.count] = global, got.local[got.count] = local, got.n[got.count++] = n;
  return got.count < got.most;
}

/* The place of a local element in the whole parameter, axis by axis; -1: it is padding. */
static int64_t global_of(const ZpSlice *s, int64_t rank, uint64_t local) {
  int64_t at = 0, scale = 1;
  for (int k = s->naxes; k-- > 0; scale *= s->valid[k], local /= (uint64_t)s->size[k]) {
    int64_t i = (int64_t)(local % (uint64_t)s->size[k]) + (s->axis[k] == AXIS ? rank * s->size[k] : 0);
    if (i >= s->valid[k]) return -1;
    at += i * scale;
  }
  return at;
}

/* Each element once, in order, in stretches that are as long as they can be. */
static void check_stretches(const ZpSlice *s, int64_t rank, uint64_t from, uint64_t to) {
  uint64_t k = 0, in = 0;
  got.count = 0, got.most = 64;
  cr_expect(zx_stretches(&two, rank, s, from, to, note, &got));
  int64_t before = -2;
  uint64_t last = 0;
  for (uint64_t i = from; i < to; i++) {
    int64_t at = global_of(s, rank, i);
    if (at < 0) continue;
    bool begins = at != before + 1 || i != last + 1;
    if (begins && before >= 0) cr_assert_eq(in, got.n[k++]);
    if (begins) in = 0;
    cr_assert(k < (uint64_t)got.count && got.global[k] + in == (uint64_t)at && got.local[k] + in == i,
              "element %d of %d to %d", (int)i, (int)from, (int)to);
    before = at, last = i, in++;
  }
  cr_assert_eq((uint64_t)got.count, before >= 0 ? k + 1 : 0);
  if (before >= 0) cr_assert_eq(in, got.n[k]);
}

Test(state, stretches) {
  static const ZpSlice slices[] = {
      {.naxes = 0},
      {.naxes = 1, .axis = {AXIS}, .size = {4}, .valid = {7}, .state = {{.kind = 'S', .axis = AXIS}}},
      {.naxes = 1, .axis = {AXIS}, .size = {4}, .valid = {4}, .state = {{.kind = 'S', .axis = AXIS}}},
      {.naxes = 2, .axis = {1, 2}, .size = {3, 4}, .valid = {3, 4}, .state = {{.kind = 'R'}}},
      {.naxes = 2,
       .axis = {AXIS, 2},
       .size = {2, 3},
       .valid = {3, 3},
       .state = {{.kind = 'S', .axis = AXIS}}},
      {.naxes = 2,
       .axis = {1, AXIS},
       .size = {3, 2},
       .valid = {3, 4},
       .state = {{.kind = 'S', .axis = AXIS}}},
      {.naxes = 3,
       .axis = {1, AXIS, 2},
       .size = {2, 3, 4},
       .valid = {2, 5, 3},
       .state = {{.kind = 'S', .axis = AXIS}}}};
  for (size_t i = 0; i < sizeof slices / sizeof *slices; i++) {
    uint64_t n = 1;
    for (int k = 0; k < slices[i].naxes; k++) n *= (uint64_t)slices[i].size[k];
    for (int64_t rank = 0; rank < 2; rank++)
      for (uint64_t from = 0; from <= n; from++)
        for (uint64_t to = from; to <= n; to++) check_stretches(&slices[i], rank, from, to);
  }
  got.count = 0, got.most = 1; /* who wants no more gets none */
  cr_expect(!zx_stretches(&two, 0, &slices[5], 0, 6, note, &got) && got.count == 1);
}

/* ---- a part of a checkpoint ---- */
static const ZxTensorInfo params[] = {{"w", 2, {3, 4}}, {"b", 1, {5}}};
static const char *const states[] = {"m"};
static const ZpMesh one = {.nranks = 1, .pipe = ZP_NONE};
static const ZpSlice slice_w = {.naxes = 2, .axis = {1, 2}, .size = {3, 4}, .valid = {3, 4}},
                     slice_b = {.naxes = 1, .axis = {1}, .size = {8}, .valid = {5}};

/* Waits for it to be done. */
static ZxWriterState end(const ZxWriter *w) {
  while (zx_writer_state(w) == ZX_WRITER_WORKS) usleep(200);
  return zx_writer_state(w);
}

static void failed(const ZxWriter *w, const char *words) {
  cr_expect_eq(end(w), ZX_WRITER_FAILED, "%s", words);
  says(*zx_writer_error(w), words);
}

typedef struct {
  ZxContents c;
  float values[40];
  ZxPiece piece[5];
  ZxSnapshot s;
  ZxWriterOptions o;
} Part;

/* All of w and b, and of their states; w in two pieces. */
static void part(Part *p) {
  *p = (Part){0};
  cr_assert(zx_contents_make(a, params, 2, states, 1, NULL, NULL, 60, &p->c, &err), "%s", err.text);
  for (int i = 0; i < 40; i++) p->values[i] = (float)i + 0.5f;
  const ZxPiece list[] = {{&slice_w, 0, 0, 7, p->values},
                          {&slice_w, 0, 7, 12, p->values + 7},
                          {&slice_b, 1, 0, 8, p->values + 12},
                          {&slice_w, 2, 0, 12, p->values + 20},
                          {&slice_b, 3, 0, 8, p->values + 32}};
  memcpy(p->piece, list, sizeof list);
  p->s = (ZxSnapshot){.memory = p->values, .piece = p->piece, .npieces = 5};
  p->o = (ZxWriterOptions){&one, 0, &p->s, &p->c, true};
}

Test(state, a_part_is_written) {
  Part p;
  part(&p);
  int before = open_files();
  const char *dir = zb_strdup(a, scratch(".")), *tmp = zx_ckpt_tmp(a, dir, 3, "run"),
             *path = zx_ckpt_path(a, dir, 3);
  ZxWriter *w = zx_writer_new(&p.o, &err);
  cr_assert(w && zx_writer_state(w) == ZX_WRITER_IDLE);
  for (int again = 0; again < 2; again++) {
    zx_writer_write(w, tmp);
    cr_assert_eq(end(w), ZX_WRITER_DONE, "%s", zx_writer_error(w)->text);
    const uint64_t *d = zx_writer_digests(w);
    uint64_t heads = 0;
    for (uint32_t i = 0; i < p.c.nfiles; i++) heads += p.c.files[i].head_bytes;
    cr_expect(d[0] == zx_digest(p.values, 0, 12) && d[1] == zx_digest(p.values + 12, 0, 5));
    cr_expect(d[2] == zx_digest(p.values + 20, 0, 12) && d[3] == zx_digest(p.values + 32, 0, 5));
    cr_expect(zx_writer_bytes(w) == heads + 4 * 34 && zx_writer_seconds(w) > 0 && zx_writer_seconds(w) < 60);
    for (uint32_t i = 0; i < 4; i++) p.c.tensors[i].digest = d[i];
    ZxManifest m = {.step = 3,
                    .serial = 1 + again,
                    .version = "1",
                    .model = "M",
                    .command = "c",
                    .recipe = "r",
                    .c = p.c};
    zx_writer_publish(w, &m, tmp, path, dir, 0);
    cr_assert_eq(end(w), ZX_WRITER_DONE, "%s", zx_writer_error(w)->text);
    const ZxManifest *r = zx_manifest_read(a, path, &err);
    cr_assert(r && r->serial == 1 + again && zx_ckpt_look(r, path, &err), "%s", err.text);
    for (uint32_t i = 0; i < 4; i++) {
      const ZxCkptTensor *t = &r->c.tensors[i];
      float x[12];
      ZxWeights *f = zx_weights_open(zb_printf(a, "%s/%s", path, r->c.files[t->file].name), false, &err);
      cr_assert(f && zx_weights_read(f, zx_weights_find(f, &t->info, &err), 0, t->n, x, &err));
      cr_expect(!memcmp(x, p.values + (const int[]){0, 12, 20, 32}[i], 4 * t->n), "tensor %u", i);
      zx_weights_close(f, NULL);
    }
  }
  zx_writer_free(w);
  zx_writer_free(NULL);
  cr_expect_eq(open_files(), before);
}

/* The oldest by their numbers go, but never the one that was written. */
Test(state, which_stay) {
  static const struct {
    uint32_t keep;
    const char *left; /* of steps 1, 2 and 3, in this order, and of 2 again */
  } cases[] = {{0, "1 3 2"}, {1, "2"}, {2, "3 2"}, {3, "1 3 2"}, {9, "1 3 2"}};
  Part p;
  part(&p);
  ZxWriter *w = zx_writer_new(&p.o, &err);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *dir = zb_printf(a, "%s/%zu", scratch("."), i), *path = NULL;
    cr_assert(w && mkdir(dir, 0777) == 0);
    for (int k = 0; k < 4; k++) {
      int64_t step = k == 3 ? 2 : k + 1;
      const char *tmp = zx_ckpt_tmp(a, dir, step, "run");
      path = zx_ckpt_path(a, dir, step);
      zx_writer_write(w, tmp);
      cr_assert_eq(end(w), ZX_WRITER_DONE, "%s", zx_writer_error(w)->text);
      ZxManifest m = {.step = step,
                      .serial = 1 + k,
                      .version = "1",
                      .model = "M",
                      .command = "c",
                      .recipe = "r",
                      .c = p.c};
      zx_writer_publish(w, &m, tmp, path, dir, k == 3 ? cases[i].keep : 0);
      cr_assert_eq(end(w), ZX_WRITER_DONE, "%s", zx_writer_error(w)->text);
    }
    ZxCkptEntry *all;
    ZbText t = {0};
    uint32_t n = zx_ckpt_list(a, dir, &all, &err);
    for (uint32_t k = 0; k < n; k++) zb_text_add(&t, "%s%d", k ? " " : "", (int)all[k].step);
    cr_expect_str_eq(t.s, cases[i].left, "%u: %s", cases[i].keep, t.s);
    zb_text_free(&t);
  }
  zx_writer_free(w);
}

Test(state, what_cannot_be_written) {
  Part p;
  part(&p);
  int before = open_files();
  const char *dir = zb_strdup(a, scratch(".")), *tmp = zx_ckpt_tmp(a, dir, 3, "run"),
             *path = zx_ckpt_path(a, dir, 3);
  ZxWriter *w = zx_writer_new(&p.o, &err);
  ZxManifest m = {
      .step = 3, .serial = 1, .version = "1", .model = "M", .command = "c", .recipe = "r", .c = p.c};
  zx_writer_write(w, scratch("none/x"));
  failed(w, "/none/x: No such file");
  zx_writer_write(w, scratch("none/x")); /* and so it is told again */
  failed(w, "/none/x: No such file");
  zx_writer_publish(w, &m, tmp, path, dir, 0); /* nothing is there */
  failed(w, "cannot open ");
  zx_writer_write(w, tmp);
  cr_assert_eq(end(w), ZX_WRITER_DONE);
  cr_assert(truncate(zb_printf(a, "%s/%s", tmp, p.c.files[1].name), 7) == 0);
  zx_writer_publish(w, &m, tmp, path, dir, 0);
  failed(w, zb_printf(a, "%s/%s has 7 bytes of %d that ranks wrote", tmp, p.c.files[1].name,
                      (int)p.c.files[1].bytes));
  cr_expect_str_eq(zx_writer_error(w)->help, "--ckpt wants a folder that all nodes share");
  cr_expect(access(path, F_OK) < 0);
  scratch_full_at(p.c.files[0].head_bytes + 10);
  zx_writer_write(w, tmp);
  failed(w, ": File too large");
  zx_writer_free(w);
  cr_expect_eq(open_files(), before);
}

/* ---- sums over ranks: here as if three ranks had the same ---- */
static ZxRequest thrice(ZxComm *c, ZxGroup g, void *p, size_t n, ZkElem elem, ZxReduce how) {
  (void)c;
  cr_assert(g == 0 && elem == ZK_F64);
  for (size_t i = 0; i < n && how == ZX_SUM; i++) ((double *)p)[i] *= 3;
  return -1;
}
static void at_once(ZxComm *c, ZxRequest r) {
  (void)c;
  cr_expect(r < 0);
}

Test(state, digests_of_all_ranks) {
  static const ZxCommTable t = {.all_reduce = thrice, .wait = at_once};
  static const uint64_t own[] = {
      0, 1, UINT64_MAX, 0xfedcba9876543210, 0x00000000ffffffff, 0xffffffff00000000};
  uint64_t digest[7], bytes, most;
  double halves[14], longest = 0;
  memcpy(digest, own, sizeof own);
  digest[6] = 5;
  zx_add_digests(&(ZxComm){&t}, digest, 6, halves);
  for (int i = 0; i < 6; i++) cr_expect_eq(digest[i], 3 * own[i], "%d", i);
  cr_expect_eq(digest[6], 5);
  zx_add_bytes(&(ZxComm){&t}, 100, 2.5, &bytes, &most, &longest);
  cr_expect(bytes == 300 && most == 100 && longest == 2.5);
  zx_add_bytes(&(ZxComm){&t}, 7, 2.5, &bytes, &most, NULL);
  cr_expect(bytes == 21 && most == 7);
}
