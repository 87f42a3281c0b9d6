/* attend_pages and attend_own: each token of a step with the keys of its sequence, which lie in pages, or are
 * the sequence's own.
 *
 * Keys are taken in blocks of 256 positions, counted from the first of the sequence; what the blocks make is
 * joined in their order. So a token has the same bits in a prompt and alone, among whatever others, and on
 * whatever number of threads. A task is a tile of tokens of one sequence, with the queries that share a head
 * of keys; where there are few, each block of keys is one. */
#include "kernels/attend.h"
#include "kernels/cpu/attend_block.h"
#include "kernels/cpu/step.h"

#define TASKS 4 /* of a thread, below which tiles are made smaller */

enum { Q, K, V, O, BIAS, DOCS_Q, DOCS_K, SINK, LENGTH, VIEWS };

typedef struct { /* neighbours, of one sequence */
  int32_t token, n;
  int64_t sequence, from, to; /* keys that one of them sees */
  int64_t blocks;             /* of tiles before it */
} Tile;

typedef struct {
  bool has[VIEWS], pages;
  ZkView v[VIEWS];
  ZkNest heads, groups;                      /* axes of q that keys have, and have not */
  int64_t nheads, ngroups, nparts, per_part; /* groups are cut into parts of so many rows */
  int64_t ntokens, H, W, Hp, Wp;             /* features; up to whole vectors */
  int64_t by_token[VIEWS], by_feature[VIEWS], by_page[VIEWS], by_within[VIEWS], by_position;
  int64_t within, most; /* positions of a page; most of a sequence */
  float scale, cap;
  int64_t window, part; /* part: where among keys' numbers values are; -1: they are others */
  ZkTokens tokens;
  const int32_t *table;
  int64_t table_sequence, table_entry, length_sequence;
  int threads;
  char *scratch, *per_threads, *slots;
  size_t thread_bytes, slot_floats;
  bool parted[2]; /* features of keys, of values */
  Tile *tiles;
  int64_t ntiles;
} Attend;

/* The room of a thread. */
typedef struct {
  ZkBlock block;
  int32_t from[ZK_BLOCK_ROWS], to[ZK_BLOCK_ROWS];
  int64_t off[ZK_BLOCK_ROWS][VIEWS];             /* of each row */
  int64_t key[ZK_BLOCK_KEYS][2];                 /* page and place of each key */
  float peak[ZK_BLOCK_ROWS], sum[ZK_BLOCK_ROWS]; /* of the blocks so far */
  float *q, *score, *o, *so_far, *kbuf, *vbuf;
} Work;

/* ---- what a call says ---------------------------------------------------------------------------------- */
static void set(Attend *a, int view, const ZkView *v) {
  a->has[view] = true;
  a->v[view] = *v;
}

/* Tells operands from `first` on apart; keys have the axis `key`, or `position`. */
static void tell_more(Attend *a, const ZkCall *c, int first, uint16_t key, uint16_t position) {
  for (int i = first; i < c->nin; i++) {
    const ZkView *x = &c->in[i];
    bool keys = zk_axis_find(x, key) >= 0, tokens = zk_axis_find(x, c->ax[0]) >= 0;
    if (x->elem == ZK_I32) set(a, keys ? DOCS_K : tokens ? DOCS_Q : LENGTH, x);
    else set(a, keys || zk_axis_find(x, position) >= 0 ? BIAS : SINK, x);
  }
}

/* Strides; `page` and `within` are the axes that say where a key lies. */
static void find_strides(Attend *a, const ZkCall *c, uint16_t page, uint16_t within) {
  uint16_t token = c->ax[0], h = c->ax[1], w = c->ax[2];
  const ZkView *views[VIEWS];
  bool own = zk_axis_find(&a->v[V], w) >= 0;
  a->part = own ? -1 : c->opt[0];
  for (int i = 0; i < VIEWS; i++) {
    views[i] = &a->v[i];
    a->by_token[i] = zk_axis_stride(views[i], token);
    a->by_feature[i] = zk_axis_stride(views[i], i == O || (i == V && own) ? w : h);
    a->by_page[i] = zk_axis_stride(views[i], page), a->by_within[i] = zk_axis_stride(views[i], within);
  }
  a->by_position = a->pages ? zk_axis_stride(&a->v[BIAS], c->ax[7]) : 0;
  a->length_sequence = zk_axis_stride(&a->v[LENGTH], c->ax[3]);
  a->heads.nviews = a->groups.nviews = VIEWS;
  for (int i = 0; i < a->v[Q].rank; i++) {
    uint16_t axis = a->v[Q].axis[i];
    if (axis == token || axis == h) continue;
    bool shared = zk_axis_find(&a->v[K], axis) >= 0 || zk_axis_find(&a->v[V], axis) >= 0;
    zk_nest_add(shared ? &a->heads : &a->groups, views, VIEWS, axis, a->v[Q].size[i]);
  }
}

static size_t bytes_of_thread(const Attend *a) {
  int64_t rows = ZK_BLOCK_ROWS * (a->Hp + ZK_BLOCK_KEYS + 2 * a->Wp), keys = ZK_BLOCK_KEYS * (a->Hp + a->Wp);
  return zb_round_up(sizeof(Work), 64) + zb_round_up((size_t)(rows + keys) * sizeof(float), 64);
}

static Attend attend(const ZkCall *c) {
  Attend a = {.pages = c->op == ZG_OP_ATTEND_PAGES, .scale = (float)c->num[0], .cap = (float)c->num[1]};
  set(&a, Q, &c->in[0]), set(&a, K, &c->in[1]), set(&a, V, &c->in[2]), set(&a, O, &c->out[0]);
  uint16_t page = a.pages ? c->ax[5] : c->ax[3], within = a.pages ? c->ax[6] : c->ax[4];
  tell_more(&a, c, a.pages ? 6 : 4, a.pages ? page : within, a.pages ? c->ax[7] : within);
  find_strides(&a, c, page, within);
  a.within = a.most = zk_axis_size(&a.v[K], within);
  if (a.pages) {
    a.window = c->opt[1];
    a.most *= zk_axis_size(&c->in[3], c->ax[4]);
    a.table_sequence = zk_axis_stride(&c->in[3], c->ax[3]),
    a.table_entry = zk_axis_stride(&c->in[3], c->ax[4]);
  }
  a.ntokens = zk_axis_size(&a.v[Q], c->ax[0]);
  a.H = zk_axis_size(&a.v[Q], c->ax[1]), a.W = zk_axis_size(&a.v[O], c->ax[2]);
  a.Hp = zk_block_up(a.H), a.Wp = zk_block_up(a.W);
  a.nheads = zk_nest_count(&a.heads), a.ngroups = zk_nest_count(&a.groups);
  a.per_part = zk_max(1, zk_min(a.ngroups, ZK_BLOCK_ROWS));
  a.nparts = zk_ceil_div(a.ngroups, a.per_part);
  a.parted[0] = zk_block_parted(&a.v[K], a.H), a.parted[1] = zk_block_parted(&a.v[V], a.W);
  a.thread_bytes = bytes_of_thread(&a);
  a.slot_floats = (size_t)(a.per_part * (a.Wp + 2));
  return a;
}

/* Where there are fewer tasks than this, blocks of keys are tasks. */
static int64_t few(int threads) { return TASKS * (int64_t)threads; }

static size_t tile_bytes(const Attend *a) { return zb_round_up((size_t)a->ntokens * sizeof(Tile), 64); }

size_t zk_scratch_attend_pages(const ZkCall *c, int threads) {
  Attend a = attend(c);
  int64_t tasks = zk_min(few(threads) - 1, a.ntokens * a.nheads * a.nparts);
  size_t slots = (size_t)(tasks * zk_ceil_div(a.most, ZK_BLOCK_KEYS)) * a.slot_floats * sizeof(float);
  return tile_bytes(&a) + (size_t)threads * a.thread_bytes + slots;
}

/* ---- tiles --------------------------------------------------------------------------------------------- */
/* Keys that a token sees. */
static ZgSeen seen_by(const Attend *a, int64_t token, int64_t sequence) {
  if (sequence < 0) return (ZgSeen){0, 0};
  if (!a->pages) {
    const int32_t *length = a->v[LENGTH].data;
    return (ZgSeen){0, length ? length[sequence * a->length_sequence] : a->most};
  }
  int64_t last = zk_position(&a->tokens, token);
  return (ZgSeen){a->window > 0 ? zk_max(0, last - a->window + 1) : 0, last + 1};
}

static int64_t blocks_of(const Tile *t) {
  return t->to > t->from ? zk_ceil_div(t->to, ZK_BLOCK_KEYS) - t->from / ZK_BLOCK_KEYS : 0;
}

/* Makes tiles of up to n tokens. */
static void make_tiles(Attend *a, int64_t n) {
  Tile *t = NULL;
  a->ntiles = 0;
  for (int64_t i = 0; i < a->ntokens; i++) {
    int64_t sequence = zk_sequence(&a->tokens, i);
    ZgSeen s = seen_by(a, i, sequence);
    if (!t || t->n == n || sequence != t->sequence) {
      Tile new = {.token = (int32_t)i, .sequence = sequence, .from = s.from, .to = s.to};
      new.blocks = t ? t->blocks + blocks_of(t) : 0;
      t = &a->tiles[a->ntiles++];
      *t = new;
    }
    t->n++;
    t->from = zk_min(t->from, s.from), t->to = zk_max(t->to, s.to);
  }
}

/* Makes tiles as large as leaves each thread enough of them; says whether there are too few even so. */
static bool tile(Attend *a) {
  int64_t n = zk_max(1, ZK_BLOCK_ROWS / a->per_part);
  for (;; n /= 2) {
    make_tiles(a, n);
    bool enough = a->ntiles * a->nheads * a->nparts >= few(a->threads);
    if (enough || n == 1) return !enough;
  }
}

/* ---- a tile's rows ------------------------------------------------------------------------------------- */
static Work *work_of(const Attend *a, int part) {
  char *mem = a->per_threads + (size_t)part * a->thread_bytes;
  Work *w = (Work *)mem;
  w->q = (float *)(mem + zb_round_up(sizeof *w, 64));
  w->score = w->q + ZK_BLOCK_ROWS * a->Hp;
  w->o = w->score + ZK_BLOCK_ROWS * ZK_BLOCK_KEYS;
  w->so_far = w->o + ZK_BLOCK_ROWS * a->Wp;
  w->kbuf = w->so_far + ZK_BLOCK_ROWS * a->Wp;
  w->vbuf = w->kbuf + ZK_BLOCK_KEYS * a->Hp;
  w->block.from = w->from, w->block.to = w->to;
  w->block.H = a->Hp, w->block.W = a->Wp;
  w->block.q = w->q, w->block.score = w->score, w->block.o = w->o;
  return w;
}

/* A task: a tile, a head of keys, a part of its groups. */
typedef struct {
  const Tile *tile;
  ZkWalk head;
  int64_t group, ngroups;
} Task;

static Task task_of(const Attend *a, int64_t i) {
  Task t = {.tile = &a->tiles[i / (a->nheads * a->nparts)]};
  t.group = i % a->nparts * a->per_part;
  t.ngroups = zk_min(a->per_part, a->ngroups - t.group);
  zk_walk_seek(&a->heads, &t.head, i / a->nparts % a->nheads);
  return t;
}

static void find_rows(const Attend *a, const Task *t, Work *w) {
  w->block.rows = t->tile->n * t->ngroups;
  for (int64_t i = 0; i < w->block.rows; i++) {
    ZkWalk g;
    int64_t token = t->tile->token + i / t->ngroups;
    zk_walk_seek(&a->groups, &g, t->group + i % t->ngroups);
    for (int k = 0; k < VIEWS; k++) w->off[i][k] = t->head.off[k] + g.off[k] + token * a->by_token[k];
  }
}

static void load_queries(const Attend *a, Work *w) {
  for (int64_t i = 0; i < w->block.rows; i++) {
    float *q = w->q + i * a->Hp;
    zk_load(q, &a->v[Q], w->off[i][Q], a->by_feature[Q], a->H);
    for (int64_t h = a->H; h < a->Hp; h++) q[h] = 0;
    if (a->parted[0]) zk_block_part(q, a->H);
  }
}

static void begin(const Attend *a, int64_t sink, float *peak, float *sum, float *o) {
  *peak = a->has[SINK] ? zk_get(&a->v[SINK], sink) : (float)ZK_ATTEND_LOW;
  *sum = a->has[SINK];
  zk_run_fill(o, 0, a->Wp);
}

static void end(const Attend *a, int64_t to, float sum, float *o) {
  if (a->parted[1]) zk_block_unpart(o, a->W);
  zk_run_scale(o, o, sum == 0 ? 1 : 1 / sum, a->W);
  zk_store(&a->v[O], to, a->by_feature[O], a->W, o, false);
}

/* ---- a block of keys ----------------------------------------------------------------------------------- */
/* Finds where keys [first, end) of the block that begins at `at` lie. */
static void find_keys(const Attend *a, const Task *t, Work *w, int64_t at) {
  ZkBlock *b = &w->block;
  b->first = zk_max(t->tile->from - at, 0);
  b->end = zk_min(t->tile->to - at, ZK_BLOCK_KEYS);
  for (int64_t j = b->first, end; j < b->end; j = end) {
    int64_t within = a->pages ? (at + j) % a->within : at + j, page = t->tile->sequence;
    end = a->pages ? zk_min(b->end, j + a->within - within) : b->end;
    if (a->pages)
      page = a->table[t->tile->sequence * a->table_sequence + (at + j) / a->within * a->table_entry];
    ZB_ASSERT(page >= 0);
    for (int64_t k = j; k < end; k++) w->key[k][0] = page, w->key[k][1] = within + k - j;
  }
}

static int64_t key_at(const Attend *a, const Work *w, int view, int64_t key) {
  return w->key[key][0] * a->by_page[view] + w->key[key][1] * a->by_within[view];
}

/* Says where the rows of keys, or of values, are: in place, or copied as f32 where they do not lie as whole
 * vectors, or where many queries would each convert them. */
static bool take(const Attend *a, const Task *t, Work *w, int view, float *buf, const void **to) {
  const ZkView *v = &a->v[view];
  const ZkBlock *b = &w->block;
  int64_t n = view == K ? a->H : a->W, np = zk_block_up(n), s = a->by_feature[view];
  int64_t off = t->head.off[view] + (view == V && a->part > 0 ? a->part * s : 0);
  bool parted = a->parted[view == V];
  bool in_place = s == 1 && (v->elem == ZK_F32 ? n == np : parted && b->rows < ZK_BLOCK_FEW);
  for (int64_t j = b->first; j < b->end; j++) {
    int64_t at = off + key_at(a, w, view, j);
    to[j] = in_place ? (const void *)zk_at(v, at) : buf + j * np;
    if (in_place) continue;
    if (parted && s == 1) zk_block_split(buf + j * np, (const uint16_t *)v->data + at, n);
    else zk_load(buf + j * np, v, at, s, n);
    if (parted && s != 1) zk_block_part(buf + j * np, n);
    for (int64_t i = n; i < np; i++) buf[j * np + i] = 0;
  }
  return in_place && v->elem == ZK_BF16;
}

/* Fills up to whole vectors with keys that are there; nobody looks at their scores. Behind keys are
 * values. */
static void fill_up(ZkBlock *b) {
  int64_t end = zk_block_up(b->end);
  for (int64_t j = zk_block_down(b->first); j < b->first; j++) b->k[j] = b->k[b->first];
  for (int64_t j = b->end; j < end; j++) b->k[j] = b->k[b->first];
  for (int64_t j = 0; j < ZK_BLOCK_AHEAD; j++) {
    b->k[end + j] = b->v[zk_min(b->first + j, b->end - 1)];
    b->v[b->end + j] = b->v[b->end - 1];
  }
}

static void take_keys(const Attend *a, const Task *t, Work *w) {
  ZkBlock *b = &w->block;
  b->half_k = take(a, t, w, K, w->kbuf, b->k);
  bool of_copies = a->part >= 0 && b->k[b->first] == (const void *)(w->kbuf + b->first * a->Hp);
  bool whole = a->W == a->Wp && a->parted[0] == a->parted[1] && (!a->parted[0] || a->part % 32 == 0);
  if (of_copies && whole && a->part + a->W <= a->H) {
    b->half_v = false;
    for (int64_t j = b->first; j < b->end; j++) b->v[j] = w->kbuf + j * a->Hp + a->part;
  } else {
    b->half_v = take(a, t, w, V, w->vbuf, b->v);
  }
  fill_up(b);
}

/* Adds the bias of keys, and hides those of other documents. */
static void dress(const Attend *a, Work *w, int64_t row, int64_t at) {
  float *x = w->score + row * ZK_BLOCK_KEYS;
  const int64_t *off = w->off[row];
  const int32_t *docs = a->v[DOCS_K].data;
  int32_t own = a->has[DOCS_Q] ? ((const int32_t *)a->v[DOCS_Q].data)[off[DOCS_Q]] : 0;
  for (int64_t j = w->from[row]; a->has[BIAS] && j < w->to[row]; j++)
    x[j] += zk_get(&a->v[BIAS], off[BIAS] + key_at(a, w, BIAS, j) + (at + j) * a->by_position);
  for (int64_t j = w->from[row]; docs && j < w->to[row]; j++) {
    int32_t doc = docs[off[DOCS_K] + key_at(a, w, DOCS_K, j)];
    if (doc < 0 || (a->has[DOCS_Q] && doc != own)) x[j] = -__builtin_inff();
  }
}

/* Computes what the rows make of the block that begins at key `at`. */
static void run_block(const Attend *a, const Task *t, Work *w, int64_t at) {
  ZkBlock *b = &w->block;
  for (int64_t i = 0; i < b->rows; i++) {
    ZgSeen s = seen_by(a, t->tile->token + i / t->ngroups, t->tile->sequence);
    w->from[i] = (int32_t)zk_max(0, zk_min(ZK_BLOCK_KEYS, s.from - at));
    w->to[i] = (int32_t)zk_max(0, zk_min(ZK_BLOCK_KEYS, s.to - at));
  }
  find_keys(a, t, w, at);
  take_keys(a, t, w);
  zk_block_scores(b);
  for (int64_t i = 0; i < b->rows; i++) {
    int64_t first = zk_block_down(w->from[i]), end = zk_block_up(w->to[i]);
    if (w->to[i] <= w->from[i]) continue;
    zk_block_cap(w->score + i * ZK_BLOCK_KEYS + first, a->scale, a->cap, end - first);
    dress(a, w, i, at);
  }
  zk_block_soften(b);
  zk_block_values(b);
}

/* ---- tasks --------------------------------------------------------------------------------------------- */
static void run_tiles(void *arg, int64_t from, int64_t to, int part) {
  const Attend *a = arg;
  Work *w = work_of(a, part);
  ZkBlock *b = &w->block;
  for (int64_t i = from; i < to; i++) {
    Task t = task_of(a, i);
    find_rows(a, &t, w);
    load_queries(a, w);
    for (int64_t r = 0; r < b->rows; r++)
      begin(a, w->off[r][SINK], &w->peak[r], &w->sum[r], w->so_far + r * a->Wp);
    for (int64_t k = 0; k < blocks_of(t.tile); k++) {
      run_block(a, &t, w, (t.tile->from / ZK_BLOCK_KEYS + k) * ZK_BLOCK_KEYS);
      for (int64_t r = 0; r < b->rows; r++)
        zk_block_join(&w->peak[r], &w->sum[r], w->so_far + r * a->Wp, b->peak[r], b->sum[r], w->o + r * a->Wp,
                      a->Wp);
    }
    for (int64_t r = 0; r < b->rows; r++) end(a, w->off[r][O], w->sum[r], w->so_far + r * a->Wp);
  }
}

/* The results of a block for a task: each row's peak, sum and values. Those of a tile lie one behind the
 * other. */
static float *slot_of(const Attend *a, const Task *t, int64_t task, int64_t block) {
  int64_t each = a->nheads * a->nparts;
  return (float *)a->slots + (size_t)((t->tile->blocks + block) * each + task % each) * a->slot_floats;
}

/* Finds the tile that has a block. */
static int64_t tile_with(const Attend *a, int64_t block) {
  int64_t low = 0, high = a->ntiles - 1;
  while (low < high) {
    int64_t mid = (low + high + 1) / 2;
    if (a->tiles[mid].blocks <= block) low = mid;
    else high = mid - 1;
  }
  return low;
}

static void run_blocks(void *arg, int64_t from, int64_t to, int part) {
  const Attend *a = arg;
  Work *w = work_of(a, part);
  const ZkBlock *b = &w->block;
  int64_t each = a->nheads * a->nparts;
  for (int64_t i = from; i < to; i++) {
    int64_t tile = tile_with(a, i / each), task = tile * each + i % each;
    int64_t block = i / each - a->tiles[tile].blocks;
    Task t = task_of(a, task);
    find_rows(a, &t, w);
    load_queries(a, w);
    run_block(a, &t, w, (t.tile->from / ZK_BLOCK_KEYS + block) * ZK_BLOCK_KEYS);
    float *slot = slot_of(a, &t, task, block);
    for (int64_t r = 0; r < b->rows; r++, slot += a->Wp + 2) {
      slot[0] = b->peak[r], slot[1] = b->sum[r];
      memcpy(slot + 2, w->o + r * a->Wp, (size_t)a->Wp * sizeof(float));
    }
  }
}

static void join_blocks(void *arg, int64_t from, int64_t to, int part) {
  const Attend *a = arg;
  Work *w = work_of(a, part);
  for (int64_t i = from; i < to; i++) {
    Task t = task_of(a, i);
    find_rows(a, &t, w);
    for (int64_t r = 0; r < w->block.rows; r++) {
      float peak, sum;
      begin(a, w->off[r][SINK], &peak, &sum, w->so_far);
      for (int64_t k = 0; k < blocks_of(t.tile); k++) {
        const float *slot = slot_of(a, &t, i, k) + r * (a->Wp + 2);
        zk_block_join(&peak, &sum, w->so_far, slot[0], slot[1], slot + 2, a->Wp);
      }
      end(a, w->off[r][O], sum, w->so_far);
    }
  }
}

static void run(const ZkEnv *env, const ZkCall *c) {
  Attend a = attend(c);
  const ZkView *sequence = &c->in[a.pages ? 4 : 3];
  if (!a.ntokens) return;
  a.threads = zk_threads(env);
  a.tokens = zk_tokens(sequence, a.pages ? &c->in[5] : NULL, c->ax[0]);
  if (a.pages) a.table = zk_ids(&c->in[3]);
  a.tiles = (Tile *)c->scratch;
  a.per_threads = (char *)c->scratch + tile_bytes(&a);
  a.slots = a.per_threads + (size_t)a.threads * a.thread_bytes;
  bool cut = tile(&a);
  int64_t tasks = a.ntiles * a.nheads * a.nparts;
  const Tile *last = &a.tiles[a.ntiles - 1];
  if (!cut) {
    zk_for(env, tasks, 1, run_tiles, &a);
    return;
  }
  zk_for(env, (last->blocks + blocks_of(last)) * a.nheads * a.nparts, 1, run_blocks, &a);
  zk_for(env, tasks, 1, join_blocks, &a);
}

void zk_cpu_attend_pages(const ZkEnv *env, const ZkCall *c) { run(env, c); }
void zk_cpu_attend_own(const ZkEnv *env, const ZkCall *c) { run(env, c); }
