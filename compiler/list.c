/* zc --list: what a library holds. The head of each block as it is written, and the first line of the comment
 * above it. */
#include "compiler/compiler.h"
#include "lang/ast.h"

#include <string.h>

/* Without the word `block`; lines as one, comments in it left out. */
static void put_head(ZbText *out, const char *text, ZlSpan span) {
  bool blank = false;
  for (uint32_t i = span.start + (uint32_t)strlen("block"); i < span.end; i++) {
    if (text[i] == '#')
      while (i + 1 < span.end && text[i + 1] != '\n') i++;
    else if (strchr(" \t\r\n", text[i])) blank = true;
    else {
      if (blank) zb_text_add(out, out->len && out->s[out->len - 1] != '(' ? " " : "");
      zb_text_put(out, text + i, 1);
      blank = false;
    }
  }
}

static const char *line_before(const char *text, const char *line) {
  if (line == text) return NULL;
  for (line--; line > text && line[-1] != '\n';) line--;
  return line;
}

/* The first of the lines of comment that end right above `at`; NULL: there are none. */
static const char *comment_above(const char *text, uint32_t at) {
  const char *line = text + at, *first = NULL;
  while (line > text && line[-1] != '\n') line--;
  while ((line = line_before(text, line)) && *line == '#') first = line;
  return first;
}

void zc_list(ZlSources *s, const ZlFile *f, ZbText *out) {
  size_t n;
  const char *text = zl_source_text(s, f->id, &n);
  for (uint32_t i = 0; i < f->nblocks; i++) {
    const ZlBlock *b = f->blocks[i];
    const char *comment = comment_above(text, b->span.start);
    ZbText head = {0};
    put_head(&head, text, b->span);
    zb_text_add(out, "%s\n", head.s + (*head.s == ' '));
    zb_text_free(&head);
    if (!comment) continue;
    comment += 1 + strspn(comment + 1, " ");
    zb_text_add(out, "    %.*s\n", (int)strcspn(comment, "\r\n"), comment);
  }
}
