/* What lang says of a file: shared by the golden test and the program that makes the goldens. */
#ifndef ZUG_TESTS_LANG_RENDER_H
#define ZUG_TESTS_LANG_RENDER_H

#include "lang/ast.h"

/* Loads `path` and, if that went well, resolves each of its recipes and clusters. Appends all messages to
 * *out, and of a file without errors the tree and those recipes and clusters that are right. */
void render_file(const char *path, ZbText *out);
/* The file as the formatter lays it out, and again if that is not what it says of its own text. */
void render_format(const char *path, ZbText *out);

#endif
