/* Columns: tables that were lined up by hand stay lined up.
 *
 * Two tokens of near lines belong to one column of a table if they began in the same column of the source and
 * more blanks were before one of them than must be. All that belong together begin where the one that is
 * pushed furthest to the right must begin. Comments behind code keep their distance, those below each other
 * together.
 *
 * A piece is moved by what is left of it in its line, by its column of the table, and, if it is the first of
 * its line, by its anchor. Lines only share columns if that can be no circle: see `shared_from`. So the
 * result is the least solution, found by going through the pieces until nothing moves. */
#include "lang/format.h"

#include <string.h>

typedef struct {
  uint32_t first, end; /* pieces */
  bool moved;          /* other pieces were in this line: columns of the source say nothing */
} Line;

typedef struct {
  ZbArena *arena;
  const ZlPieces *p;
  Line *lines;
  uint32_t nlines;
  uint32_t *group; /* of each piece: a member nearer to the root, which is its own */
  uint32_t *most;  /* of each root: the column of its members */
  uint32_t *at;
} Columns;

static const ZlPiece *piece(const Columns *c, uint32_t i) { return &c->p->at[i]; }
static bool ends_in_comment(const Columns *c, const Line *l) {
  return piece(c, l->end - 1)->kind == ZL_COMMENT;
}
static bool is_comment(const Columns *c, const Line *l) { return piece(c, l->first)->kind == ZL_COMMENT; }

static void find_lines(Columns *c) {
  for (uint32_t i = 0; i < c->p->n; i++) {
    const ZlPiece *x = piece(c, i);
    if (i == 0 || x->breaks) ZB_PUSH(c->arena, c->lines, c->nlines, ((Line){.first = i}));
    Line *l = &c->lines[c->nlines - 1];
    l->end = i + 1;
    l->moved |= i > 0 && (x->newlines == 0) != (x->breaks == 0);
  }
}

/* ---- what belongs together ---- */
static uint32_t root(Columns *c, uint32_t i) {
  while (c->group[i] != i) i = c->group[i] = c->group[c->group[i]];
  return i;
}

static void join(Columns *c, uint32_t i, uint32_t k) { c->group[root(c, k)] = root(c, i); }

/* The first piece of line x that may share a column with line y, below it: any but the first if both begin a
 * statement of the same kind, at the same depth, or both hang from the same piece; what is right of the piece
 * that y hangs from, if that is in x. Then what moves y's pieces is never moved by them. */
static uint32_t shared_from(const Columns *c, const Line *x, const Line *y) {
  const ZlPiece *a = piece(c, x->first), *b = piece(c, y->first);
  if (a->hangs == b->hangs && a->depth == b->depth && a->starts == b->starts &&
      (!a->starts || a->kind == b->kind))
    return x->first + 1;
  if (b->hangs != ZL_NO_PIECE && b->hangs >= x->first && b->hangs < x->end) return b->hangs + 1;
  return x->end;
}

static bool is_wide(const ZlPiece *x) { return x->blanks > x->gap; }

static void share(Columns *c, const Line *x, const Line *y, uint32_t i) {
  uint32_t k = y->first + 1;
  while (i < x->end && k < y->end) {
    const ZlPiece *a = piece(c, i), *b = piece(c, k);
    bool tokens = a->kind != ZL_COMMENT && b->kind != ZL_COMMENT;
    if (a->column == b->column && tokens && a->gap && b->gap && (is_wide(a) || is_wide(b))) join(c, i, k);
    if (a->column <= b->column) i++;
    else k++;
  }
}

static void share_comment(Columns *c, const Line *x, const Line *y) {
  if (x->moved || y->moved || !ends_in_comment(c, x) || !ends_in_comment(c, y)) return;
  if (piece(c, x->end - 1)->column == piece(c, y->end - 1)->column) join(c, x->end - 1, y->end - 1);
}

/* Line y with those above it that it may be a row of a table with: the nearest, since a table may have a row
 * of another kind, or a body, in it. */
static void find_rows(Columns *c, const Line *const *line, uint32_t y) {
  enum { ROWS = 3, LINES = 40 };
  const Line *below = line[y];
  for (uint32_t x = y, rows = 0; x-- && y - x <= LINES && rows < ROWS;) {
    if (piece(c, line[x]->first)->depth < piece(c, below->first)->depth) return;
    uint32_t from = shared_from(c, line[x], below);
    if (from == line[x]->end) continue;
    rows++;
    if (!line[x]->moved && !below->moved) share(c, line[x], below, from);
  }
}

/* Lines that are comments are no rows, and do not end a table. */
static void find_groups(Columns *c) {
  const Line **line = NULL;
  uint32_t n = 0;
  for (uint32_t i = 0; i < c->nlines; i++) {
    const Line *l = &c->lines[i];
    if (is_comment(c, l)) continue;
    ZB_PUSH(c->arena, line, n, l);
    if (n == 1) continue;
    find_rows(c, line, n - 1);
    if (piece(c, l->first)->breaks == 1) share_comment(c, line[n - 2], l);
  }
}

/* ---- where they begin ---- */
static uint32_t natural(const Columns *c, uint32_t i) {
  const ZlPiece *x = piece(c, i);
  if (i == 0 || x->breaks) return (x->anchor == ZL_NO_PIECE ? 0 : c->at[x->anchor]) + x->indent;
  bool keeps = x->kind == ZL_COMMENT && x->blanks > x->gap;
  return c->at[i - 1] + piece(c, i - 1)->n + (keeps ? x->blanks : x->gap);
}

static bool place(Columns *c, bool grouped) {
  bool moved = false;
  for (uint32_t i = 0; i < c->p->n; i++) {
    uint32_t r = grouped ? root(c, i) : i, to = natural(c, i);
    if (to < c->most[r]) to = c->most[r];
    moved |= to != c->at[i];
    c->at[i] = c->most[r] = to;
  }
  return moved;
}

uint32_t *zl_columns(ZbArena *a, const ZlPieces *p) {
  enum { ROUNDS = 200 }; /* tables of tables of tables: nobody writes more */
  Columns c = {.arena = a, .p = p};
  c.group = ZB_NEWN(a, uint32_t, p->n);
  c.most = ZB_NEWN(a, uint32_t, p->n);
  c.at = ZB_NEWN(a, uint32_t, p->n);
  find_lines(&c);
  for (uint32_t i = 0; i < p->n; i++) c.group[i] = i;
  find_groups(&c);
  for (int i = 0; i < ROUNDS; i++)
    if (!place(&c, true)) return c.at;
  memset(c.most, 0, p->n * sizeof *c.most);
  place(&c, false);
  return c.at;
}
