/* States are made as they are met, and numbered: a set of threads is looked up among those that there are, and so is
 * a step from a state by a class of bytes. Stacks are lists of frames that share what lies below, each there once, so
 * that equal stacks have equal numbers. */
#include "runtime/exec/shape/grammar.h"

#include <stdlib.h>

enum { THREADS = 512 /* of a state; further ones are left out: each of those that are there can end */ };
typedef struct {
  uint32_t node, count, stack;
} Thread;
typedef struct {
  uint32_t node, count, below, depth;
} Frame;
typedef struct {
  uint32_t thread, n; /* in the pool */
  uint32_t alike;     /* + 1; 0: not known yet */
  bool may_end, in_text;
} State;
typedef struct {
  uint64_t key; /* + 1; 0: free */
  uint32_t value;
} Slot;
/* From keys to numbers: open addressing, at most half full. */
typedef struct {
  Slot *slot;
  uint32_t mask, n;
} Table;

struct ZxAutomaton {
  const ZxGrammar *g;
  uint32_t longest;
  Thread *pool;
  Frame *frame; /* frame 0 is the bottom */
  State *state;
  size_t npool, poolcap, nframes, framecap, nstates, statecap;
  Table frames, states, steps; /* by hash; by hash; state << 8 | class */
  /* the state that is being made */
  Thread now[THREADS];
  uint32_t n, *visited; /* threads that it came by: of a round of their own, by hash */
  Thread seen[8 * THREADS];
  uint32_t nseen, round;
  bool may_end;
};

/* ---- tables ---- */
static void *room(void *p, size_t n, size_t more, size_t size, size_t *cap) {
  if (n + more <= *cap) return p;
  while (*cap < n + more) *cap = *cap ? 2 * *cap : 64;
  p = realloc(p, *cap * size);
  if (!p) zb_out_of_memory(*cap * size);
  return p;
}

static void clear(Table *t) {
  free(t->slot);
  *t = (Table){.mask = 255};
  t->slot = calloc(t->mask + 1, sizeof *t->slot);
  if (!t->slot) zb_out_of_memory((t->mask + 1) * sizeof *t->slot);
}

static Slot *slot_of(const Table *t, uint64_t key) {
  uint32_t i = (uint32_t)zb_mix64(key) & t->mask;
  while (t->slot[i].key && t->slot[i].key != key + 1) i = (i + 1) & t->mask;
  return &t->slot[i];
}

/* Adds a key that is not there. */
static void add(Table *t, uint64_t key, uint32_t value) {
  if (2 * t->n > t->mask) {
    Table old = *t;
    t->mask = 2 * t->mask + 1;
    t->slot = calloc((size_t)t->mask + 1, sizeof *t->slot);
    if (!t->slot) zb_out_of_memory(((size_t)t->mask + 1) * sizeof *t->slot);
    for (uint32_t i = 0; i <= old.mask; i++)
      if (old.slot[i].key) *slot_of(t, old.slot[i].key - 1) = old.slot[i];
    free(old.slot);
  }
  *slot_of(t, key) = (Slot){key + 1, value};
  t->n++;
}

static uint64_t hash(uint64_t h, uint64_t x) { return zb_mix64(h * 0x9e3779b97f4a7c15ull + x + 1); }

/* Returns the frame above `below`. Frames whose hashes are the same stand behind one another in the table. */
static uint32_t push_frame(ZxAutomaton *m, uint32_t node, uint32_t count, uint32_t below) {
  uint64_t key = hash(hash(node, count), below) >> 1;
  for (const Slot *s; (s = slot_of(&m->frames, key))->key; key++) {
    const Frame *f = &m->frame[s->value];
    if (f->node == node && f->count == count && f->below == below) return s->value;
  }
  m->frame = room(m->frame, m->nframes, 1, sizeof *m->frame, &m->framecap);
  m->frame[m->nframes] = (Frame){node, count, below, m->frame[below].depth + 1};
  add(&m->frames, key, (uint32_t)m->nframes);
  return (uint32_t)m->nframes++;
}

/* ---- threads ---- */
static bool can_end(const ZxAutomaton *m, uint32_t node, uint32_t stack) {
  return m->frame[stack].depth + m->g->node[node].height <= ZX_SHAPE_DEPTH;
}

/* Adds a thread to those that are gone by, if it is new and can come to an end. */
static void visit(ZxAutomaton *m, Thread t) {
  enum { SLOTS = 16 * THREADS * 2 };
  if (!can_end(m, t.node, t.stack) || m->nseen == 8 * THREADS) return;
  uint32_t i = (uint32_t)hash(hash(t.node, t.count), t.stack) & (SLOTS - 1);
  for (;; i = (i + 1) & (SLOTS - 1)) {
    uint32_t v = m->visited[i];
    if (v / (8 * THREADS) != m->round) break;
    const Thread *s = &m->seen[v % (8 * THREADS)];
    if (s->node == t.node && s->count == t.count && s->stack == t.stack) return;
  }
  m->visited[i] = m->round * 8 * THREADS + m->nseen;
  m->seen[m->nseen++] = t;
}

static void begin(ZxAutomaton *m) {
  enum { SLOTS = 16 * THREADS * 2, ROUNDS = UINT32_MAX / (8 * THREADS) };
  m->n = m->nseen = 0;
  m->may_end = false;
  if (++m->round < ROUNDS) return;
  memset(m->visited, 0, SLOTS * sizeof *m->visited);
  m->round = 1;
}

static uint32_t counted(const ZxRule *r, const ZxEdge *e, uint32_t count) {
  count += e->counts;
  return r->max == ZX_ENDLESS && count > r->min ? r->min : count;
}

static bool allowed(const ZxRule *r, const ZxEdge *e, uint32_t count) {
  return e->guard == ZX_ALWAYS || (e->guard == ZX_FROM_MIN ? count >= r->min : count < r->max);
}

/* Takes an edge that needs no byte. */
static void go(ZxAutomaton *m, Thread t, const ZxEdge *e) {
  const ZxGrammar *g = m->g;
  uint32_t count = counted(&g->rule[g->node[t.node].rule], e, t.count);
  if (e->kind == ZX_GO) {
    visit(m, (Thread){e->to, count, t.stack});
    return;
  }
  bool last = g->node[e->to].rule == g->node[t.node].rule && e->to == g->rule[g->node[t.node].rule].end;
  if (!can_end(m, e->to, t.stack)) return;
  uint32_t start = g->rule[e->rule].start;
  if (last) visit(m, (Thread){start, 0, t.stack}); /* nothing is left to do here */
  else if (m->frame[t.stack].depth + 1 + g->node[start].height <= ZX_SHAPE_DEPTH)
    visit(m, (Thread){start, 0, push_frame(m, e->to, count, t.stack)});
}

/* Goes by all that no byte is needed for: what is left are threads that wait for one. */
static void close_threads(ZxAutomaton *m) {
  const ZxGrammar *g = m->g;
  for (uint32_t i = 0; i < m->nseen; i++) {
    Thread t = m->seen[i];
    const ZxRule *r = &g->rule[g->node[t.node].rule];
    if (t.node == r->end) {
      const Frame *f = &m->frame[t.stack];
      if (t.stack) visit(m, (Thread){f->node, f->count, f->below});
      else m->may_end = true;
      continue;
    }
    bool waits = false;
    for (uint32_t k = g->node[t.node].edge; k; k = g->edge[k].next) {
      const ZxEdge *e = &g->edge[k];
      if (!allowed(r, e, t.count)) continue;
      if (e->kind == ZX_BYTES) waits = true;
      else go(m, t, e);
    }
    if (waits && m->n < THREADS) m->now[m->n++] = t;
  }
}

/* ---- states ---- */
static int compare(const void *a, const void *b) { return memcmp(a, b, sizeof(Thread)); }

/* Says whether a thread is inside of a string that goes on for as long as any token. */
static bool in_text(const ZxAutomaton *m, const Thread *t) {
  const ZxRule *r = &m->g->rule[m->g->node[t->node].rule];
  return m->g->node[t->node].body && (r->max == ZX_ENDLESS || r->max - t->count >= m->longest);
}

static bool same(const ZxAutomaton *m, const State *s) {
  return s->n == m->n && s->may_end == m->may_end &&
         !memcmp(m->pool + s->thread, m->now, m->n * sizeof *m->now);
}

/* Returns the number of the state that was made. */
static uint32_t number(ZxAutomaton *m) {
  if (!m->n && !m->may_end) return ZX_NOWHERE;
  qsort(m->now, m->n, sizeof *m->now, compare);
  uint64_t key = m->may_end;
  for (uint32_t i = 0; i < m->n; i++)
    key = hash(key, hash((uint64_t)m->now[i].node << 32 | m->now[i].count, m->now[i].stack));
  key >>= 1;
  for (const Slot *s; (s = slot_of(&m->states, key))->key; key++)
    if (same(m, &m->state[s->value])) return s->value;
  m->pool = room(m->pool, m->npool, m->n, sizeof *m->pool, &m->poolcap);
  m->state = room(m->state, m->nstates, 1, sizeof *m->state, &m->statecap);
  memcpy(m->pool + m->npool, m->now, m->n * sizeof *m->now);
  State x = {.thread = (uint32_t)m->npool, .n = m->n, .may_end = m->may_end};
  for (uint32_t i = 0; i < m->n; i++) x.in_text |= in_text(m, &m->now[i]);
  m->npool += m->n;
  m->state[m->nstates] = x;
  add(&m->states, key, (uint32_t)m->nstates);
  return (uint32_t)m->nstates++;
}

static uint32_t step(ZxAutomaton *m, uint32_t state, uint8_t byte) {
  const ZxGrammar *g = m->g;
  begin(m);
  for (uint32_t i = 0; i < m->state[state].n; i++) {
    Thread t = m->pool[m->state[state].thread + i];
    const ZxRule *r = &g->rule[g->node[t.node].rule];
    for (uint32_t k = g->node[t.node].edge; k; k = g->edge[k].next) {
      const ZxEdge *e = &g->edge[k];
      if (e->kind == ZX_BYTES && e->low <= byte && byte <= e->high && allowed(r, e, t.count))
        visit(m, (Thread){e->to, counted(r, e, t.count), t.stack});
    }
  }
  close_threads(m);
  return number(m);
}

uint32_t zx_automaton_next(ZxAutomaton *m, uint32_t state, uint8_t byte) {
  uint8_t class = m->g->class_of[byte];
  uint64_t key = (uint64_t)state << 8 | class;
  const Slot *s = slot_of(&m->steps, key);
  if (s->key) return s->value;
  uint32_t to = step(m, state, m->g->first_of[class]);
  add(&m->steps, key, to);
  return to;
}

bool zx_automaton_may_end(const ZxAutomaton *m, uint32_t state) { return m->state[state].may_end; }
bool zx_automaton_must_end(const ZxAutomaton *m, uint32_t state) {
  return m->state[state].may_end && !m->state[state].n;
}
bool zx_automaton_in_text(const ZxAutomaton *m, uint32_t state) { return m->state[state].in_text; }

/* ---- alike ---- */
/* Returns a counter for which a token finds the same edges: what lies further than its bytes makes no difference. */
static uint32_t alike_count(const ZxAutomaton *m, uint32_t node, uint32_t count) {
  const ZxRule *r = &m->g->rule[m->g->node[node].rule];
  uint64_t more = m->longest;
  if (count >= r->min) return r->max == ZX_ENDLESS || count + more < r->max ? r->min : count;
  return count + more < r->min ? 0 : count;
}

static uint32_t alike_stack(ZxAutomaton *m, uint32_t stack) {
  uint32_t list[ZX_SHAPE_DEPTH + 1], n = 0, out = 0;
  for (; stack; stack = m->frame[stack].below) list[n++] = stack;
  while (n--) {
    Frame f = m->frame[list[n]];
    out = push_frame(m, f.node, alike_count(m, f.node, f.count), out);
  }
  return out;
}

uint32_t zx_automaton_alike(ZxAutomaton *m, uint32_t state) {
  if (m->state[state].alike) return m->state[state].alike - 1;
  begin(m);
  m->may_end = m->state[state].may_end;
  for (uint32_t i = 0; i < m->state[state].n; i++) {
    Thread t = m->pool[m->state[state].thread + i];
    t.stack = alike_stack(m, t.stack);
    t.count = alike_count(m, t.node, t.count);
    m->now[m->n++] = t;
  }
  uint32_t to = number(m);
  m->state[state].alike = to + 1;
  return to;
}

/* ---- opening ---- */
size_t zx_automaton_bytes(const ZxAutomaton *m) {
  return m->npool * sizeof *m->pool + m->nframes * sizeof *m->frame + m->nstates * sizeof *m->state +
         ((size_t)m->frames.mask + m->states.mask + m->steps.mask) * sizeof(Slot);
}

static void clear_all(ZxAutomaton *m) {
  clear(&m->frames);
  clear(&m->states);
  clear(&m->steps);
  m->npool = 0;
  m->nframes = 1;
  m->nstates = 1; /* nowhere */
  begin(m);
  visit(m, (Thread){m->g->rule[0].start, 0, 0});
  close_threads(m);
  ZB_ASSERT(number(m) == ZX_BEGINNING);
}

uint32_t zx_automaton_forget(ZxAutomaton *m, uint32_t state) {
  State was = m->state[state];
  Thread *thread = malloc((was.n + 1) * sizeof *thread);
  Frame(*frame)[ZX_SHAPE_DEPTH + 1] = malloc((was.n + 1) * sizeof *frame);
  if (!thread || !frame) zb_out_of_memory((was.n + 1) * sizeof *frame);
  for (uint32_t i = 0; i < was.n; i++) {
    thread[i] = m->pool[was.thread + i];
    for (uint32_t s = thread[i].stack; s; s = m->frame[s].below) frame[i][m->frame[s].depth] = m->frame[s];
    thread[i].stack = m->frame[thread[i].stack].depth;
  }
  clear_all(m);
  begin(m);
  m->may_end = was.may_end;
  for (uint32_t i = 0; i < was.n; i++) {
    uint32_t stack = 0;
    for (uint32_t d = 1; d <= thread[i].stack; d++)
      stack = push_frame(m, frame[i][d].node, frame[i][d].count, stack);
    m->now[m->n++] = (Thread){thread[i].node, thread[i].count, stack};
  }
  free(thread);
  free(frame);
  return number(m);
}

ZxAutomaton *zx_automaton_new(const ZxGrammar *g, uint32_t longest) {
  ZxAutomaton *m = calloc(1, sizeof *m);
  if (!m) zb_out_of_memory(sizeof *m);
  m->g = g;
  m->longest = longest;
  m->visited = calloc(16 * THREADS * 2, sizeof *m->visited);
  if (!m->visited) zb_out_of_memory(16 * THREADS * 2 * sizeof *m->visited);
  m->frame = room(NULL, 0, 1, sizeof *m->frame, &m->framecap);
  m->frame[0] = (Frame){0};
  m->state = room(NULL, 0, 1, sizeof *m->state, &m->statecap);
  m->state[0] = (State){0};
  clear_all(m);
  return m;
}

void zx_automaton_free(ZxAutomaton *m) {
  if (!m) return;
  free(m->pool);
  free(m->frame);
  free(m->state);
  free(m->frames.slot);
  free(m->states.slot);
  free(m->steps.slot);
  free(m->visited);
  free(m);
}
