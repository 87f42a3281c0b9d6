/* Lists what must be the same on all ranks, as facts. */
#include "kernels/devices.h"
#include "runtime/exec/facts.h"
#include "runtime/exec/hub/hub.h"
#include "runtime/plan/text.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

/* ---- content of files ---- */
enum { PIECE = 256 << 10, PIECES = 64, HEAD = 16 << 20 };

static bool add_bytes(XXH3_state_t *h, int fd, const char *path, uint64_t at, uint64_t n, ZbErr *err) {
  char piece[8 << 10]; /* on the stack, which may be small */
  for (uint64_t now; n; at += now, n -= now) {
    now = n < sizeof piece ? n : sizeof piece;
    if (!zb_read_at(fd, path, piece, now, at, err)) return false;
    XXH3_64bits_update(h, piece, now);
  }
  return true;
}

/* Hashes a file; a large one by its first bytes, where headers are, its last ones, and pieces between them. */
static bool digest_of(int fd, const char *path, uint64_t size, uint64_t *digest, ZbErr *err) {
  XXH3_state_t *h = XXH3_createState();
  if (!h) zb_out_of_memory(0);
  XXH3_64bits_reset(h);
  bool ok;
  if (size <= ZX_READ_WHOLE) ok = add_bytes(h, fd, path, 0, size, err);
  else {
    ok = add_bytes(h, fd, path, 0, HEAD, err);
    uint64_t step = (size - HEAD - PIECE) / PIECES;
    for (uint64_t i = 1; ok && i <= PIECES; i++)
      ok = add_bytes(h, fd, path, i < PIECES ? HEAD + i * step : size - PIECE, PIECE, err);
  }
  *digest = XXH3_64bits_digest(h);
  XXH3_freeState(h);
  return ok;
}

static uint64_t file_digest(const char *path) {
  uint64_t size, digest = 0;
  int fd = zb_open_file(path, false, &size, NULL);
  if (fd < 0) return 0;
  if (!digest_of(fd, path, size, &digest, NULL)) digest = 0;
  close(fd);
  return digest;
}

/* Returns the lowest rank that has the same file (not a copy) as this one, and reads it for all of these. Collective. */
static int reader_of(ZxComm *c, const struct stat *st) {
  int me = c->t->rank(c), first = 0;
  uint64_t id[] = {(uint64_t)c->t->nodes(c)[me],
                   st->st_dev,
                   st->st_ino,
                   (uint64_t)st->st_size,
                   (uint64_t)st->st_mtim.tv_sec,
                   (uint64_t)st->st_mtim.tv_nsec};
  uint64_t key = XXH3_64bits(id, sizeof id);
  ZbArena *a = zb_arena_new();
  uint64_t *all = ZB_NEWN(a, uint64_t, c->t->size(c));
  c->t->wait(c, c->t->all_gather(c, 0, &key, sizeof key, all));
  while (all[first] != key) first++;
  zb_arena_free(a);
  return first;
}

typedef struct {
  uint64_t bytes, digest;
} Content;

/* Hashes a file once per node. Collective; false where this rank cannot read its file. */
static bool content_of(ZxComm *c, const char *path, Content *out, ZbErr *err) {
  struct stat st = {0};
  uint64_t size = 0, digest = 0;
  int fd = zb_open_file(path, false, &size, err), me = c->t->rank(c);
  if (fd < 0 || fstat(fd, &st) < 0) st.st_ino = (ino_t)me;
  int reader = reader_of(c, &st);
  bool ok = fd >= 0 && (reader != me || digest_of(fd, path, size, &digest, err));
  if (fd >= 0) close(fd);
  ZbArena *a = zb_arena_new();
  uint64_t *all = ZB_NEWN(a, uint64_t, c->t->size(c));
  c->t->wait(c, c->t->all_gather(c, 0, &digest, sizeof digest, all));
  *out = (Content){size, all[reader]};
  zb_arena_free(a);
  return ok;
}

static void note_size(ZxComm *c, const char *path, uint64_t bytes, const char *remedy, ZbText *note) {
  char x[2][24];
  if (bytes > ZX_READ_WHOLE && c->t->rank(c) == 0)
    zb_text_add(note, "note: %s has %s, and more than %s is compared by pieces only%s\n", zb_show(path),
                zb_bytes(x[0], bytes), zb_bytes(x[1], ZX_READ_WHOLE), remedy);
}

static void digest_fact(ZxFacts *f, ZxFactKind kind, const char *name, uint64_t digest) {
  zx_fact(f, kind, name, "%016" PRIx64, digest);
}

/* ---- data and initial weights ---- */
/* Adds the facts of a data file's header; `of` goes before their names. */
static void head_facts(ZxFacts *f, ZxFactKind kind, const ZxDataInfo *info, const char *of) {
  zx_fact(f, kind, zb_printf(f->a, "%skind", of), "%s", info->stream ? "stream" : "records");
  if (info->windows) zx_fact(f, kind, zb_printf(f->a, "%swindows", of), "%s", zx_windows_text(info->windows));
  zx_fact(f, kind, zb_printf(f->a, "%s%s", of, info->stream ? "tokens" : "number of records"), "%" PRIu64,
          info->count);
  for (uint32_t i = 0; i < info->nfield; i++) {
    const ZxDataField *x = &info->field[i];
    zx_fact(f, kind, zb_printf(f->a, "%sfield %u", of, i), "%s: %" PRIu64 " x %s below %" PRIu64, x->name,
            x->values, zx_data_elem_name(x->elem), x->limit);
  }
  digest_fact(f, kind, zb_printf(f->a, "%scontent's checksum", of), info->data_sum);
  if (info->documents) digest_fact(f, kind, zb_printf(f->a, "%sdocuments' checksum", of), info->begin_sum);
}

/* Verifies the header's checksum of the data; of a large file adds a hash of pieces. Collective. */
static bool content_facts(ZxFacts *f, ZxFactKind kind, ZxComm *c, const ZxData *d, const char *of,
                          ZbText *note, ZbErr *err) {
  const char *path = zx_data_path(d);
  uint64_t bytes = zx_data_bytes(d);
  if (bytes <= ZX_READ_WHOLE) {
    struct stat st = {0};
    if (stat(path, &st) < 0) st.st_ino = (ino_t)c->t->rank(c); /* gone since: this rank reads it itself */
    return reader_of(c, &st) != c->t->rank(c) || zx_data_verify(d, err);
  }
  Content x;
  bool ok = content_of(c, path, &x, err);
  digest_fact(f, kind, zb_printf(f->a, "%spieces' checksum", of), x.digest);
  note_size(c, path, bytes, "; `zdata check` reads all", note);
  return ok;
}

/* Compares headers, which say how many files there are and how large, before contents, whose comparison is collective. */
bool zx_data_facts(ZxFacts *f, ZxFactKind kind, ZxComm *c, const ZxMix *m, ZbText *note, ZbErr *err) {
  uint32_t n = zx_mix_files(m);
  const char **of = ZB_NEWN(f->a, const char *, n);
  zx_fact(f, kind, "number of files", "%u", n);
  for (uint32_t i = 0; i < n; i++) {
    const ZxData *d = zx_mix_file(m, i);
    of[i] = n > 1 ? zb_printf(f->a, "file %u's ", i + 1) : "";
    zx_fact(f, kind, zb_printf(f->a, "%sshare", of[i]), "%u/%u", zx_mix_share(m, i), zx_mix_period(m));
    head_facts(f, kind, zx_data_info(d), of[i]);
    if (zx_data_files(d) > 1) zx_fact(f, kind, zb_printf(f->a, "%sshards", of[i]), "%u", zx_data_files(d));
  }
  if (!zx_same_or_say(c, f)) return false;
  bool ok = true;
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t k = 0, files = zx_data_files(zx_mix_file(m, i)); k < files; k++) {
      const char *name = files > 1 ? zb_printf(f->a, "%sshard %u's ", of[i], k + 1) : of[i];
      ok = content_facts(f, kind, c, zx_data_file(zx_mix_file(m, i), k), name, note, ok ? err : NULL) && ok;
    }
  return ok;
}

/* Compares the number of files before their contents, whose comparison is collective. */
bool zx_init_facts(ZxFacts *f, ZxComm *c, const char *path, const char *whose, ZbText *note, ZbErr *err) {
  const char **files;
  uint32_t n;
  uint64_t bytes = 0;
  bool ok = zx_shards_list(f->a, path, &files, &n, err);
  if (!zx_agree(c, ok)) return false;
  zx_fact(f, ZX_INIT, zb_printf(f->a, "%snumber of files", whose), "%u", n);
  if (!zx_same_or_say(c, f)) return false;
  for (uint32_t i = 0; i < n; i++) {
    const char *of = n > 1 ? zb_printf(f->a, "%sfile %u's ", whose, i + 1) : whose;
    Content x;
    ok = content_of(c, files[i], &x, ok ? err : NULL) && ok;
    zx_fact(f, ZX_INIT, zb_printf(f->a, "%sbytes", of), "%" PRIu64, x.bytes);
    digest_fact(f, ZX_INIT, zb_printf(f->a, "%scontent's checksum", of), x.digest);
    if (x.bytes > ZX_READ_WHOLE) bytes += x.bytes;
  }
  note_size(c, path, bytes, "", note);
  const char *config = zb_file_of(f->a, path, "config.json"); /* which says how weights are quantized */
  if (config != path)
    digest_fact(f, ZX_INIT, zb_printf(f->a, "%sconfig.json's checksum", whose), file_digest(config));
  return ok;
}

/* ---- programs ---- */
void zx_build_facts(ZxFacts *f) {
  zx_fact(f, ZX_BUILD, "version", "%s", PACKAGE_VERSION);
  digest_fact(f, ZX_BUILD, "program's checksum", file_digest("/proc/self/exe"));
}

void zx_module_facts(ZxFacts *f, const ZxDeviceTable *device) {
  char path[PATH_MAX];
  const ZkDevice *d = zk_device(device->name);
  if (!d || !d->module || !zb_module_path(d->module, path, sizeof path)) return;
  digest_fact(f, ZX_BUILD, zb_printf(f->a, "checksum of %s", d->module), file_digest(path));
}

/* ---- graph, recipe, cluster, plan ---- */
/* What an attribute of an operation is called and has in a node. */
static const char *attribute(const ZgNode *n, int which, double *value) {
  const ZgOpInfo *o = &zg_op_info[n->op];
  const char *const names[] = {o->num, o->num1, o->opt[0], o->opt[1]};
  const double values[] = {n->num[0], n->num[1], (double)n->opt[0], (double)n->opt[1]};
  *value = values[which];
  return names[which];
}

/* The values of one attribute in all forward nodes of an operation, each once, in their order: "2, 3". */
static void attribute_fact(ZxFacts *f, const ZgGraph *g, uint16_t op, int which) {
  enum { MOST = 16 };
  double seen[MOST], x;
  const char *name = NULL;
  ZbText t = {0};
  uint32_t n = 0;
  for (uint32_t s = 0; s < g->nsegments; s++)
    for (uint32_t i = 0; i < g->segments[s].nforward && n < MOST; i++) {
      const ZgNode *k = &g->segments[s].nodes[i];
      if (k->op != op || !(name = attribute(k, which, &x))) continue;
      uint32_t at = 0;
      while (at < n && seen[at] != x) at++;
      if (at < n) continue;
      if (n) zb_text_add(&t, ", ");
      zb_text_number(&t, seen[n++] = x);
    }
  if (name) zx_fact(f, ZX_GRAPH, zb_printf(f->a, "%s %s", zg_op_info[op].text, name), "%s", t.s);
  zb_text_free(&t);
}

/* What shows, where two graphs differ, in which way: operations, iterations, attributes. */
static void contents_facts(ZxFacts *f, const ZgGraph *g) {
  uint32_t nodes = 0;
  ZbText trips = {0};
  for (uint32_t s = 0; s < g->nsegments; s++) {
    nodes += g->segments[s].nforward;
    if (g->segments[s].repeat) zb_text_add(&trips, "%s%u", trips.len ? ", " : "", g->segments[s].trip);
  }
  zx_fact(f, ZX_GRAPH, "operations", "%u", nodes);
  zx_fact(f, ZX_GRAPH, "iterations", "%s", trips.s ? trips.s : "none");
  zb_text_free(&trips);
  for (uint16_t op = 0; op < ZG_OP_COUNT; op++)
    for (int k = 0; k < 4 && zg_op_info[op].kind != ZG_SOURCE && zg_op_info[op].kind != ZG_SINK; k++)
      attribute_fact(f, g, op, k);
}

void zx_graph_facts(ZxFacts *f, const ZgGraph *g) {
  zx_fact(f, ZX_GRAPH, "model", "%s", g->model);
  zx_fact(f, ZX_GRAPH, "hash", "%s", zg_hash_computed(f->a, g));
  zx_fact(f, ZX_GRAPH, "source", "%016" PRIx64 "%016" PRIx64, g->hash[1], g->hash[0]);
  contents_facts(f, g);
}

typedef struct {
  ZxFacts *f;
  ZxFactKind kind;
} Kind;

static void add_text(void *ctx, const char *what, const char *text) {
  const Kind *k = ctx;
  zx_fact(k->f, k->kind, what, "%s", text);
}
static void add_digest(void *ctx, const char *what, uint64_t digest) {
  const Kind *k = ctx;
  digest_fact(k->f, k->kind, what, digest);
}

void zx_recipe_facts(ZxFacts *f, const ZlRecipe *r) { zl_recipe_list(r, add_text, &(Kind){f, ZX_RECIPE}); }
void zx_cluster_facts(ZxFacts *f, const ZlCluster *c) {
  zl_cluster_list(c, add_text, &(Kind){f, ZX_CLUSTER});
}
void zx_plan_facts(ZxFacts *f, const ZpPlan *p) { zp_digest(p, f->a, add_digest, &(Kind){f, ZX_PLAN}); }
