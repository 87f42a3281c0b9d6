/* Documents of texts and JSON lines, one after the other, in pieces. See zdata.h for how a long one is cut. */
#include "runtime/zdata/zdata.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct ZdReader {
  const ZdFiles *files;
  const char *field; /* of JSON lines */
  bool jsonl, skip_bad;
  size_t next; /* file */
  ZdCounts counts;
  ZdBytes *b; /* the open file; NULL: none */
  bool lines; /* it is one of JSON lines, or */
  bool array; /* one list of JSON, whose items are taken as lines */
  uint64_t line;
  char *buffer;      /* of the file: ZD_PIECE bytes, of which */
  size_t at, have;   /* at..have are still to be read, */
  bool last;         /* and then none */
  bool within;       /* a document has begun and is not given away whole */
  ZbText json, text; /* a line that does not lie in the buffer as a whole; what it says */
  const char *doc;   /* of JSON: what is left of the document */
  size_t doc_n;
};

ZdReader *zd_reader_new(const ZdFiles *files, const char *field, bool jsonl, bool skip_bad) {
  ZdReader *r = calloc(1, sizeof *r);
  if (!r || !(r->buffer = malloc(ZD_PIECE))) zb_out_of_memory(0);
  r->files = files;
  r->field = field;
  r->jsonl = jsonl;
  r->skip_bad = skip_bad;
  return r;
}

void zd_reader_free(ZdReader *r) {
  if (!r) return;
  zd_bytes_close(r->b);
  zb_text_free(&r->json);
  zb_text_free(&r->text);
  free(r->buffer);
  free(r);
}

const ZdCounts *zd_reader_counts(const ZdReader *r) { return &r->counts; }
uint64_t zd_reader_at(const ZdReader *r) { return r->counts.bytes + (r->b ? zd_bytes_at(r->b) : 0); }

void zd_reader_take(ZdReader *r, ZdBytes *b, bool lines) {
  ZB_ASSERT(!r->b);
  r->b = b;
  r->lines = lines;
  r->array = false;
  r->line = 0;
  r->at = r->have = 0;
  r->last = r->within = false;
}

static void done_with_file(ZdReader *r) {
  r->counts.bytes += zd_bytes_at(r->b);
  zd_bytes_close(r->b);
  r->b = NULL;
}

/* Moves what is left to the buffer's beginning, and fills it. */
static bool fill(ZdReader *r, ZbErr *err) {
  size_t n;
  memmove(r->buffer, r->buffer + r->at, r->have - r->at);
  r->have -= r->at;
  r->at = 0;
  if (r->last) return true;
  if (!zd_bytes_read(r->b, r->buffer + r->have, ZD_PIECE - r->have, &n, err)) return false;
  r->have += n;
  r->last = r->have < ZD_PIECE;
  return true;
}

/* ---- where a long document is cut ---- */
static bool blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* How much of s[0..n), after which more comes, is a piece: up to the last end of a line between two
 * characters that are no blanks, where the usual tokenizers cut too; or else up to a character's beginning. */
static size_t cut(const char *s, size_t n) {
  for (size_t i = n - 1; i > n / 2; i--)
    if (s[i - 1] == '\n' && !blank(s[i]) && !blank(s[i - 2])) return i;
  size_t i = n - 1;
  while (i > n - 4 && ((uint8_t)s[i] & 0xc0) == 0x80) i--;
  return i;
}

/* ---- texts ---- */
/* The next piece of a file that is one document; false with *err untouched if the file was empty. */
static bool text_piece(ZdReader *r, ZdPiece *p, ZbErr *err) {
  if (!fill(r, err)) return false;
  *p = (ZdPiece){r->buffer, r->last ? r->have : cut(r->buffer, r->have), !r->within, r->last, false};
  r->counts.cut += !r->within && !r->last;
  r->within = true;
  r->at = p->n;
  if (r->last) done_with_file(r);
  if (p->n || !p->begins) return true;
  r->counts.empty++;
  return false;
}

/* ---- JSON lines ---- */
/* Names the fields of a file's first line, for there the option is at fault; later the line is. s NULL: it
 * is not there. */
static void help_line(const ZdReader *r, const char *s, size_t n, char *help, size_t size) {
  ZbText list = {0}, text = {0};
  bool first = !r->counts.documents || r->line == 1;
  if (!s || !first || !zd_json_names(s, n, &list, &text))
    snprintf(help, size, "%s", r->skip_bad ? "" : "--skip-bad leaves such lines out and counts them");
  else if (text.len) snprintf(help, size, "--field %s: it has %s", zb_show_n(text.s, text.len), list.s);
  else snprintf(help, size, "--field NAME takes one with a text; it has %s", list.len ? list.s : "none");
  zb_text_free(&list);
  zb_text_free(&text);
}

bool zd_reader_bad(ZdReader *r, const ZbErr *why, ZbErr *err) {
  static const char skip[] = "--skip-bad leaves such out and counts them";
  if (r->skip_bad && r->counts.bad++) return true; /* the first is said */
  zb_fail(r->skip_bad ? &r->counts.first_bad : err, *why->help || r->skip_bad ? why->help : skip,
          "%s%s%" PRIu64 ": %s", r->b ? zd_bytes_name(r->b) : zb_show(r->files->path[r->next - 1]),
          r->array ? ", item " : ":", r->line ? r->line : 1, why->text);
  return r->skip_bad;
}

static bool bad_line(ZdReader *r, const char *s, size_t n, const char *why, ZbErr *err) {
  ZbErr e;
  char help[sizeof e.help] = "";
  if (r->field && (!r->skip_bad || !r->counts.bad)) help_line(r, s, n, help, sizeof help);
  if (r->field) zb_fail(&e, help, "no text of the field '%s': %s", zb_show(r->field), why);
  else zb_fail(&e, NULL, "%s", why);
  return zd_reader_bad(r, &e, err);
}

/* The next line, without its end, lies in the buffer or, if that ends within it, in r->json. *s NULL: the
 * file has no more. *n > ZD_LINE: it is too long, and not kept. */
static bool next_line(ZdReader *r, const char **s, size_t *n, ZbErr *err) {
  bool any = false;
  *s = NULL;
  *n = r->json.len = 0;
  r->line++;
  for (;;) {
    if (r->at == r->have && !fill(r, err)) return false;
    const char *from = r->buffer + r->at, *end = memchr(from, '\n', r->have - r->at);
    size_t more = end ? (size_t)(end - from) : r->have - r->at;
    r->at += more + (end != NULL);
    *n += more;
    if (end && !any) return *s = from, true; /* all of it is here */
    if (!more && !end && !any) return true;
    any = true;
    if (*n <= ZD_LINE) zb_text_put(&r->json, from, more);
    *s = r->json.s ? r->json.s : "";
    if (end || (r->last && r->at == r->have)) return true;
  }
}

/* ---- a list of JSON ---- */
static bool json_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/* Returns the next byte of the file, which is taken; -1: there is none, or it cannot be read. */
static int next_byte(ZdReader *r, ZbErr *err) {
  if (r->at == r->have && (!fill(r, err) || r->at == r->have)) return -1;
  return (uint8_t)r->buffer[r->at++];
}

/* The next item of the list, up to the comma or bracket behind it. *s NULL: the list has no more. */
static bool next_item(ZdReader *r, const char **s, size_t *n, ZbErr *err) {
  bool inside = false; /* a string */
  int depth = 0, c;
  *s = NULL;
  *n = r->json.len = 0;
  r->line++;
  while ((c = next_byte(r, err)) >= 0) {
    if (!inside && !depth && c == ']' && !*n) return true;
    if (!inside && !depth && (c == ']' || c == ',')) {
      r->at -= c == ']'; /* it is for the next call */
      return *s = r->json.s ? r->json.s : "", true;
    }
    if (!*n && json_blank((char)c)) continue;
    if (!inside) depth += (c == '{' || c == '[') - (c == '}' || c == ']');
    if (c == '"') inside = !inside;
    char two[2] = {(char)c, 0};
    size_t bytes = 1;
    if (inside && c == '\\' && (c = next_byte(r, err)) >= 0) two[bytes++] = (char)c;
    *n += bytes;
    if (*n <= ZD_LINE) zb_text_put(&r->json, two, bytes);
  }
  return !err->text[0] && bad_line(r, NULL, 0, "the list is not closed", err);
}

/* Finds out if a file of conversations is a list, lines, or a text, by its first byte. */
static bool look_at_first(ZdReader *r, ZbErr *err) {
  size_t at = 0;
  if (!fill(r, err)) return false;
  if (r->have >= 3 && !memcmp(r->buffer, "\xef\xbb\xbf", 3)) at = 3;
  while (at < r->have && json_blank(r->buffer[at])) at++;
  if (at == r->have) return true;
  r->array = r->buffer[at] == '[';
  r->lines |= r->array || r->buffer[at] == '{';
  if (r->array) r->at = at + 1;
  return true;
}

static bool all_blank(const char *s, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (!blank(s[i])) return false;
  return true;
}

/* The document of the next line that has one, or r->doc NULL at the file's end. */
static bool next_document(ZdReader *r, ZbErr *err) {
  for (;;) {
    const char *s, *why;
    size_t n;
    r->doc = NULL;
    if (!(r->array ? next_item : next_line)(r, &s, &n, err)) return false;
    if (!s) return true;
    if (n > ZD_LINE) {
      if (!bad_line(r, NULL, 0, "the line is longer than 64 MiB", err)) return false;
      continue;
    }
    if (!r->array && r->line == 1 && n >= 3 && !memcmp(s, "\xef\xbb\xbf", 3)) s += 3, n -= 3;
    if (!r->array && all_blank(s, n)) continue;
    if (!r->field) return r->doc = s, r->doc_n = n, true;
    if (!zd_json_field(s, n, r->field, &r->text, &r->counts.replaced, &why)) {
      if (!bad_line(r, s, n, why, err)) return false;
    } else if (!r->text.len) r->counts.empty++;
    else return r->doc = r->text.s, r->doc_n = r->text.len, true;
  }
}

static bool json_piece(ZdReader *r, ZdPiece *p, ZbErr *err) {
  if (!r->within && !next_document(r, err)) return false;
  if (!r->doc) return done_with_file(r), false;
  bool ends = !r->field || r->doc_n <= ZD_PIECE;
  *p = (ZdPiece){r->doc, ends ? r->doc_n : cut(r->doc, ZD_PIECE), !r->within, ends, !r->field};
  r->counts.cut += !r->within && !ends;
  r->within = !ends;
  r->doc += p->n;
  r->doc_n -= p->n;
  return true;
}

bool zd_reader_next(ZdReader *r, ZdPiece *p, ZbErr *err) {
  for (;;) {
    if (!r->b) {
      if (r->next == r->files->n) return false;
      const char *path = r->files->path[r->next++];
      ZdBytes *b = zd_bytes_open(path, err);
      if (!b) return false;
      zd_reader_take(r, b, r->jsonl || zd_is_jsonl(path));
      if (!r->field && !look_at_first(r, err)) return false;
    }
    if ((r->lines ? json_piece : text_piece)(r, p, err)) {
      r->counts.documents += p->begins;
      return true;
    }
    if (err->text[0]) return false;
  }
}
