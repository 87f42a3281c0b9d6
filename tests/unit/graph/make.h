/* Small graphs by hand: one straight segment (or a chain of them), nodes by op and operands. */
#ifndef ZUG_TESTS_MAKE_H
#define ZUG_TESTS_MAKE_H

#include "graph/graph.h"

typedef struct {
  ZbArena *a;
  ZgGraph *g;
  ZgSegment *s; /* where nodes go */
} Make;

Make make_graph(void); /* with one straight segment */
/* The same with the axes batch, seq, embed 8, head 2, hd 4, vocab 11, odd 3, eight 8, x0 .. x8 2, wide 16. */
Make make_axes(void);
uint16_t make_axis(Make *m, const char *name, int64_t size);      /* finds or adds */
ZgType make_type(Make *m, ZgElem elem, const char *axes);         /* "batch seq"; an axis must exist */
ZgType make_typed_text(Make *m, const char *text);                /* "f32 batch seq", "index(vocab) batch" */
uint32_t make_param(Make *m, const char *path, const char *axes); /* a parameter and its node */
uint32_t make_input(Make *m, const char *name, ZgType t);         /* an input and its node */
uint32_t make_ids(Make *m, const char *name, const char *of, const char *axes);
uint32_t make_fill(Make *m, double x);
uint32_t make1(Make *m, ZgOp op, uint32_t x);
uint32_t make2(Make *m, ZgOp op, uint32_t x, uint32_t y);
uint32_t make3(Make *m, ZgOp op, uint32_t x, uint32_t y, uint32_t z);
/* With axis arguments and attributes. */
uint32_t make_with(Make *m, ZgNode n, const char *axes, int nin, const uint32_t *in);
uint32_t make_sum(Make *m, uint32_t x, const char *axes);
uint32_t make_typed(Make *m, ZgOp op, uint32_t x, ZgType t); /* cast, broadcast */
/* Ends the straight segment by carrying out `x` and begins the next one, where the result is the carried
 * value. trip 0: straight. */
uint32_t make_next(Make *m, uint32_t x, const char *label, uint32_t trip);
/* loss = sum(y * random input) per 1, so that all of y matters and no two of its elements alike. */
void make_loss(Make *m, uint32_t y);
void make_sink(Make *m, ZgOp op, uint32_t x);

/* A complete small graph with a backward part: a lookup; a repeat of x = x + dot(x, w); cross-entropy with
 * the table as head. */
Make make_sample(void);

#endif
