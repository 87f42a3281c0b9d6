/* Rules, nodes and edges; and what follows from all of them. */
#include "runtime/exec/shape/grammar.h"

enum { CHARACTERS = 0x110000 };

void zx_grammar_init(ZxGrammar *g, ZbArena *a) {
  *g = (ZxGrammar){.a = a};
  ZxEdge none = {0};
  ZB_PUSH(a, g->edge, g->nedges, none);
  g->needs = ZB_NEWN(a, uint64_t, CHARACTERS / 64);
}

uint32_t zx_node(ZxGrammar *g, uint32_t rule) {
  ZxNode x = {.rule = rule, .height = ZX_SHAPE_DEPTH + 1};
  ZB_PUSH(g->a, g->node, g->nnodes, x);
  return g->nnodes - 1;
}

uint32_t zx_rule(ZxGrammar *g, uint32_t min, uint32_t max) {
  uint32_t rule = g->nrules;
  ZxRule x = {.min = min, .max = max};
  ZB_PUSH(g->a, g->rule, g->nrules, x);
  uint32_t start = zx_node(g, rule), end = zx_node(g, rule);
  g->rule[rule].start = start;
  g->rule[rule].end = end;
  return rule;
}

static ZxEdge *add(ZxGrammar *g, uint32_t from, ZxEdge x) {
  ZB_ASSERT(from != g->rule[g->node[from].rule].end);
  x.next = g->node[from].edge;
  ZB_PUSH(g->a, g->edge, g->nedges, x);
  g->node[from].edge = g->nedges - 1;
  return &g->edge[g->nedges - 1];
}

ZxEdge *zx_edge_bytes(ZxGrammar *g, uint32_t from, uint8_t low, uint8_t high, uint32_t to) {
  return add(g, from, (ZxEdge){.kind = ZX_BYTES, .low = low, .high = high, .to = to});
}
ZxEdge *zx_edge_call(ZxGrammar *g, uint32_t from, uint32_t rule, uint32_t to) {
  return add(g, from, (ZxEdge){.kind = ZX_CALL, .rule = rule, .to = to});
}
void zx_edge_go(ZxGrammar *g, uint32_t from, uint32_t to) { add(g, from, (ZxEdge){.kind = ZX_GO, .to = to}); }

/* ---- texts ---- */
/* Notes the characters of a text, which is UTF-8. */
static void note_needs(ZxGrammar *g, const char *s, size_t n) {
  for (size_t i = 0, bytes; i < n; i += bytes) {
    uint8_t b = (uint8_t)s[i];
    bytes = b < 0x80 ? 1 : b < 0xe0 ? 2 : b < 0xf0 ? 3 : 4;
    ZB_ASSERT(i + bytes <= n);
    uint32_t c = bytes == 1 ? b : b & (0x7fu >> bytes);
    for (size_t k = 1; k < bytes; k++) c = c << 6 | ((uint8_t)s[i + k] & 0x3f);
    ZB_ASSERT(c < CHARACTERS);
    g->needs[c / 64] |= 1ull << c % 64;
  }
}

static uint32_t child_of(const ZxGrammar *g, uint32_t node, uint8_t byte) {
  for (uint32_t e = g->node[node].edge; e; e = g->edge[e].next)
    if (g->edge[e].kind == ZX_BYTES && g->edge[e].low == byte && g->edge[e].high == byte)
      return g->edge[e].to;
  return UINT32_MAX;
}

uint32_t zx_edge_text(ZxGrammar *g, uint32_t from, const char *s, size_t n) {
  note_needs(g, s, n);
  for (size_t i = 0; i < n; i++) {
    uint32_t to = child_of(g, from, (uint8_t)s[i]);
    if (to == UINT32_MAX) {
      to = zx_node(g, g->node[from].rule);
      zx_edge_bytes(g, from, (uint8_t)s[i], (uint8_t)s[i], to);
    }
    from = to;
  }
  return from;
}

void zx_edge_text_to(ZxGrammar *g, uint32_t from, const char *s, uint32_t to) {
  note_needs(g, s, strlen(s));
  for (; s[1]; s++) {
    uint32_t next = zx_node(g, g->node[from].rule);
    zx_edge_bytes(g, from, (uint8_t)*s, (uint8_t)*s, next);
    from = next;
  }
  zx_edge_bytes(g, from, (uint8_t)*s, (uint8_t)*s, to);
}

uint32_t zx_blank(ZxGrammar *g, uint32_t from) {
  uint32_t to = zx_node(g, g->node[from].rule);
  zx_edge_bytes(g, from, ' ', ' ', to);
  zx_edge_go(g, from, to);
  return to;
}

/* ---- heights ---- */
/* Returns the height of an edge's way, as far as it is known. */
static uint8_t way(const ZxGrammar *g, const ZxEdge *e) {
  uint8_t back = g->node[e->to].height;
  if (e->kind != ZX_CALL) return back;
  uint8_t in = g->node[g->rule[e->rule].start].height;
  if (e->to != g->rule[g->node[e->to].rule].end) in += in <= ZX_SHAPE_DEPTH; /* a frame of its own */
  return in > back ? in : back;
}

/* Lists by node the nodes whose height depends on its own: from[at[i]] to from[at[i + 1]]. */
static uint32_t *turned(const ZxGrammar *g, ZbArena *a, uint32_t **from) {
  uint32_t *at = ZB_NEWN(a, uint32_t, g->nnodes + 2);
  *from = ZB_NEWN(a, uint32_t, 2 * (size_t)g->nedges);
  for (int fill = 0; fill < 2; fill++) {
    for (uint32_t i = 0; i < g->nnodes; i++)
      for (uint32_t e = g->node[i].edge; e; e = g->edge[e].next) {
        const ZxEdge *x = &g->edge[e];
        uint32_t of[2] = {x->to, x->kind == ZX_CALL ? g->rule[x->rule].start : x->to};
        for (int k = 0; k < 1 + (x->kind == ZX_CALL); k++) {
          if (fill) (*from)[at[of[k] + 1]++] = i;
          else at[of[k] + 2]++;
        }
      }
    for (uint32_t i = 2; i < g->nnodes + 2 && !fill; i++) at[i] += at[i - 1];
  }
  return at;
}

/* Lowers heights from the ends on, until nothing changes; each can change as often as there are heights. */
static void find_heights(ZxGrammar *g) {
  ZbArena *a = zb_arena_new();
  uint32_t *from, *at = turned(g, a, &from), *queue = ZB_NEWN(a, uint32_t, g->nnodes), head = 0, n = 0;
  bool *queued = ZB_NEWN(a, bool, g->nnodes);
  for (uint32_t r = 0; r < g->nrules; r++) {
    uint32_t end = g->rule[r].end;
    g->node[end].height = 0;
    queue[n++] = end;
    queued[end] = true;
  }
  while (n) {
    uint32_t i = queue[head];
    head = head + 1 == g->nnodes ? 0 : head + 1;
    n--;
    queued[i] = false;
    for (uint32_t k = at[i]; k < at[i + 1]; k++) {
      ZxNode *x = &g->node[from[k]];
      uint8_t before = x->height;
      for (uint32_t e = x->edge; e; e = g->edge[e].next)
        if (way(g, &g->edge[e]) < x->height) x->height = way(g, &g->edge[e]);
      if (x->height == before || queued[from[k]]) continue;
      queued[from[k]] = true;
      queue[(head + n++) % g->nnodes] = from[k];
    }
  }
  zb_arena_free(a);
}

static void find_classes(ZxGrammar *g) {
  bool begins[257] = {true};
  for (uint32_t e = 1; e < g->nedges; e++)
    if (g->edge[e].kind == ZX_BYTES) begins[g->edge[e].low] = begins[g->edge[e].high + 1] = true;
  g->classes = 0;
  for (int b = 0; b < 256; b++) {
    if (begins[b]) g->first_of[g->classes++] = (uint8_t)b;
    g->class_of[b] = (uint8_t)(g->classes - 1);
  }
}

bool zx_grammar_done(ZxGrammar *g) {
  find_heights(g);
  find_classes(g);
  return g->node[g->rule[0].start].height <= ZX_SHAPE_DEPTH;
}
