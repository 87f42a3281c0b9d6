/* Compiling a program for a test: from a file of the source folder or from a string. */
#ifndef ZUG_TESTS_COMPILER_LOAD_H
#define ZUG_TESTS_COMPILER_LOAD_H

#include "compiler/compiler.h"

typedef struct {
  ZbArena *a;
  ZlSources *s;
  ZlDiags *d;
  ZlProgram *p; /* NULL if it could not be read */
  ZcOptions opt;
  ZbText text; /* of messages() */
} Case;

/* `piece` n times; %u is the number of the piece. */
void put_pieces(ZbText *t, const char *piece, uint32_t n);
Case load_text(const char *text);
Case load_file(const char *path);
/* "-D a=1 -D b=2 -m Model", as on zc's command line. */
void set_options(Case *c, const char *options);
ZgGraph *compile(Case *c); /* all passes */
ZgGraph *elaborate(Case *c);
const char *messages(Case *c);
void done(Case *c);

/* Looking into a graph. */
uint32_t count_op(const ZgSegment *s, ZgOp op);
const ZgParam *find_param(const ZgGraph *g, const char *path); /* NULL if there is none */

#endif
