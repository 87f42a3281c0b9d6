/* Documents in pieces: where a long one is cut, which piece begins and ends one, what is counted, and which
 * line is bad. */
#include "runtime/zdata/zdata.h"
#include "tests/unit/exec/scratch.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

TestSuite(documents, .init = scratch_make, .fini = scratch_remove);

static const ZdFiles none;

/* A reader of what is in memory, as a file. */
static ZdReader *reader(const char *text, size_t n, bool lines) {
  FILE *f = tmpfile();
  cr_assert(f && fwrite(text, 1, n, f) == n && fseek(f, 0, SEEK_SET) == 0);
  ZdReader *r = zd_reader_new(&none, "text", lines, false);
  zd_reader_take(r, zd_bytes_of(f, "it", ZD_PLAIN), lines);
  return r;
}

/* ---- where a long document is cut ---- */
/* Of a text of letters and one more than a piece, with something at a place: the bytes of its first piece. */
static void cuts(const char *what, size_t at, size_t want) {
  static char text[ZD_PIECE + 1];
  ZdPiece p;
  ZbErr err = {0};
  memset(text, 'a', sizeof text);
  memcpy(text + at, what, strlen(what));
  ZdReader *r = reader(text, sizeof text, false);
  cr_assert(zd_reader_next(r, &p, &err), "%s", err.text);
  cr_expect(p.begins && !p.ends);
  cr_expect_eq(p.n, want, "'%s' at %zu: %zu", what, at, p.n);
  size_t first = p.n;
  cr_assert(zd_reader_next(r, &p, &err), "%s", err.text);
  cr_expect(!p.begins && p.ends && p.n == sizeof text - first && !memcmp(p.text, text + first, p.n));
  cr_expect_not(zd_reader_next(r, &p, &err));
  const ZdCounts *c = zd_reader_counts(r);
  cr_expect(c->documents == 1 && c->cut == 1 && !c->empty && c->bytes == sizeof text);
  zd_reader_free(r);
}

Test(documents, where_they_are_cut) {
  const size_t n = ZD_PIECE;
  cuts("a", 0, n - 1);
  cuts("\n", n - 2, n - 1);
  cuts("\n", n - 3, n - 2);
  cuts("\n", n - 1, n - 1); /* behind it is what is not known yet */
  cuts("\n", n / 2, n / 2 + 1);
  cuts("\n", n / 2 - 1, n - 1); /* too far back */
  cuts("\n ", n - 100, n - 1);  /* not before a blank, */
  cuts("\n\t", n - 100, n - 1);
  cuts("\n\r", n - 100, n - 1);
  cuts(" \n", n - 100, n - 1); /* nor behind one */
  cuts("\n\n", n - 100, n - 1);
  cuts("\nb\n c", n - 100, n - 99); /* the last good one */
  cuts("\nb\nc", n - 100, n - 97);
}

Test(documents, characters_stay_whole) {
  const size_t n = ZD_PIECE;
  cuts("\u00e9", n - 2, n - 2);
  cuts("\u00e9", n - 1, n - 1);
  cuts("\u20ac", n - 3, n - 3);
  cuts("\u20ac", n - 2, n - 2);
  cuts("\U0001f600", n - 4, n - 4);
  cuts("\U0001f600", n - 3, n - 3);
  cuts("\x80\x80\x80\x80\x80", n - 5, n - 4); /* no characters at all */
}

/* ---- texts ---- */
static bool next_is(ZdReader *r, const char *text) {
  ZdPiece p;
  ZbErr err = {0};
  bool more = zd_reader_next(r, &p, &err);
  cr_expect(!*err.text, "%s", err.text);
  if (!more) return false;
  cr_expect(p.begins && p.ends && p.n == strlen(text) && !memcmp(p.text, text, p.n), "%.*s", (int)p.n,
            p.text);
  return true;
}

Test(documents, each_file_is_one) {
  const char *path[] = {strdup(scratch("a")), strdup(scratch("none")), strdup(scratch("b"))};
  ZdFiles files = {.path = path, .n = 3};
  scratch_write("a", "first\n", 6);
  scratch_write("none", "", 0);
  scratch_write("b", "second", 6);
  ZdReader *r = zd_reader_new(&files, "text", false, false);
  cr_expect_eq(zd_reader_at(r), 0);
  cr_expect(next_is(r, "first\n") && zd_reader_at(r) == 6);
  cr_expect(next_is(r, "second") && zd_reader_at(r) == 12);
  cr_expect(!next_is(r, ""));
  const ZdCounts *c = zd_reader_counts(r);
  cr_expect(c->documents == 2 && c->empty == 1 && !c->cut && c->bytes == 12);
  zd_reader_free(r);
  zd_reader_free(NULL);
  for (int i = 0; i < 3; i++) free((char *)path[i]);
}

Test(documents, a_file_that_is_gone) {
  const char *path[] = {strdup(scratch("gone"))};
  ZdFiles files = {.path = path, .n = 1};
  ZdPiece p;
  ZbErr err = {0};
  ZdReader *r = zd_reader_new(&files, "text", false, false);
  cr_expect_not(zd_reader_next(r, &p, &err));
  says(err, "gone");
  zd_reader_free(r);
  free((char *)path[0]);
}

/* ---- JSON lines ---- */
Test(documents, lines_are_numbered_in_each_file) {
  static const char first[] = "\xef\xbb\xbf{\"text\":\"1\"}\n\n \t\r\n{\"text\":\"\"}\n{\"text\":\"4\"}",
                    second[] =
                        "\xef\xbb\xbf{\"text\":\"5\"}\nx\n\xef\xbb\xbf{\"text\":\"6\"}\n{\"text\":\"7\"}\n";
  const char *path[] = {strdup(scratch("a.jsonl")), strdup(scratch("b.ndjson"))};
  for (int skip = 0; skip < 2; skip++) {
    ZdFiles files = {.path = path, .n = 2};
    ZdPiece p;
    ZbErr err = {0};
    scratch_write("a.jsonl", first, sizeof first - 1);
    scratch_write("b.ndjson", second, sizeof second - 1);
    ZdReader *r = zd_reader_new(&files, "text", false, skip);
    const ZdCounts *c = zd_reader_counts(r);
    cr_expect(next_is(r, "1") && next_is(r, "4") && next_is(r, "5"));
    if (skip) {
      cr_expect(next_is(r, "7") && !next_is(r, ""));
      cr_expect(c->bad == 2 && c->documents == 4 && c->bytes == sizeof first + sizeof second - 2);
      says(c->first_bad, "b.ndjson:2: no text of the field 'text': ");
    } else {
      cr_expect_not(zd_reader_next(r, &p, &err));
      says(err, "b.ndjson:2: no text of the field 'text': ");
      cr_expect(c->bad == 0 && c->documents == 3);
    }
    cr_expect_eq(c->empty, 1);
    zd_reader_free(r);
  }
  for (int i = 0; i < 2; i++) free((char *)path[i]);
}

/* A document of a line, longer than a piece; and lines that lie over the end of what is read at a time. */
Test(documents, long_lines) {
  enum { LONG = ZD_PIECE + 7 };
  char *text = malloc(3 * ZD_PIECE);
  size_t n = 0;
  n += (size_t)sprintf(text, "{\"text\":\"");
  memset(text + n, 'a', LONG);
  n += LONG;
  text[n - 9] = '\\', text[n - 8] = 'n'; /* as a byte fewer: an end of a line */
  n += (size_t)sprintf(text + n, "\"}\n{\"text\":\"short\"}\n");
  ZdReader *r = reader(text, n, true);
  ZdPiece p;
  ZbErr err = {0};
  cr_assert(zd_reader_next(r, &p, &err));
  cr_expect(p.begins && !p.ends && p.n == LONG - 8 && p.text[p.n - 1] == '\n', "%zu", p.n);
  cr_assert(zd_reader_next(r, &p, &err));
  cr_expect(!p.begins && p.ends && p.n == 7);
  cr_expect(next_is(r, "short") && !next_is(r, ""));
  cr_expect(zd_reader_counts(r)->cut == 1 && zd_reader_counts(r)->documents == 2);
  zd_reader_free(r);
  free(text);
}
