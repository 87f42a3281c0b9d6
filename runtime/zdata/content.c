/* What a named file is, by its first bytes: those of which people think that they are texts or tokens, and which would become
 * tokens of something else without a word. */
#define _GNU_SOURCE
#include "runtime/zdata/zdata.h"

#include <string.h>
#include <sys/stat.h>

enum { LOOK = 8 << 10 };

/* ---- files with a mark at their beginning ---- */
static const struct {
  const char *mark;
  size_t n;
  const char *what, *help; /* with %s for the file's name */
} marked[] = {
    {"PAR1", 4, "a Parquet file",
     "two lines of Python make JSON lines of it: import pandas\n"
     "      pandas.read_parquet('%s').to_json('data.jsonl', orient='records', lines=True)"},
    {"ARROW1", 6, "an Arrow file", "make JSON lines of %s, such as with datasets' to_json()"},
    {"\211HDF", 4, "an HDF5 file", "make JSON lines or raw numbers of %s"},
    {"SQLite format 3", 15, "an SQLite data base",
     "sqlite3 -json %s 'SELECT ...' | jq -c '.[]' makes JSON lines of it"},
    {"PK\003\004", 4, "a ZIP archive", "unzip %s"},
    {"%PDF-", 5, "a PDF file", "pdftotext %s makes a text of it"},
    {"\037\213", 2, "compressed by gzip", "mv %s to a name that ends in .gz"},
    {"\050\265\057\375", 4, "compressed by zstd", "mv %s to a name that ends in .zst"},
    {"\375"
     "7zXZ",
     5, "compressed by xz", "xz -d %s"},
    {"BZh", 3, "compressed by bzip2", "bzip2 -d %s"},
};

static bool starts(const uint8_t *s, size_t n, const char *mark, size_t m) {
  return n >= m && !memcmp(s, mark, m);
}

static bool is_marked(const char *name, const uint8_t *s, size_t n, bool text, ZbErr *err) {
  for (size_t i = 0; i < sizeof marked / sizeof *marked; i++) {
    if (!starts(s, n, marked[i].mark, marked[i].n) || (!text && marked[i].n < 4)) continue;
    char help[400];
    const char *at = strstr(marked[i].help, "%s");
    snprintf(help, sizeof help, "%.*s%s%s", (int)(at - marked[i].help), marked[i].help, name, at + 2);
    zb_fail(err, help, "%s is %s, not %s", name, marked[i].what, text ? "a text" : "raw numbers");
    return true;
  }
  return false;
}

/* NumPy's .npy: a header says what the numbers behind it are. */
static bool is_npy(const char *name, const uint8_t *s, size_t n, ZbErr *err) {
  if (!starts(s, n, "\223NUMPY", 6) || n < 12) return false;
  size_t head = s[6] == 1 ? 10u + s[8] + 256u * s[9] : 12u + s[8] + 256u * s[9] + 65536u * s[10];
  char help[480];
  snprintf(help, sizeof help,
           "tail -c +%zu %s >raw.bin takes its header off; then zdata pack raw.bin --tokens TYPE, of the "
           "type that the header names",
           head + 1, name);
  zb_fail(err, help, "%s is a file of NumPy's, whose first %zu bytes are a header", name, head);
  return true;
}

/* ---- texts that are not UTF-8, or not what is to be learned ---- */
/* By its mark, or by a NUL in most of every other byte. */
static bool is_utf16(const uint8_t *s, size_t n) {
  size_t zero[2] = {0, 0};
  if (starts(s, n, "\377\376", 2) || starts(s, n, "\376\377", 2)) return true;
  for (size_t i = 0; i < n; i++) zero[i & 1] += !s[i];
  return n >= 16 &&
         ((zero[1] > n * 2 / 5 && zero[0] <= n / 20) || (zero[0] > n * 2 / 5 && zero[1] <= n / 20));
}

static bool is_odd_text(const char *name, const char *path, const uint8_t *s, size_t n, bool lists,
                        ZbErr *err) {
  char help[400];
  if (is_utf16(s, n)) {
    snprintf(help, sizeof help, "iconv -f UTF-16 -t UTF-8 %s >utf8.txt", name);
    zb_fail(err, help, "%s is UTF-16, and texts are UTF-8", name);
    return true;
  }
  size_t at = starts(s, n, "\357\273\277", 3) ? 3 : 0;
  while (at < n && strchr(" \t\r\n", s[at]) && s[at]) at++;
  if (lists) return false;
  static const char *const endings[] = {".json", ".json.gz", ".json.zst"};
  bool json = false;
  for (int i = 0; i < 3; i++) json |= zb_ends(path, endings[i]);
  if (at < n && json && s[at] == '{')
    fprintf(stderr,
            "zdata: note: %s is taken as a text, JSON and all; if it is an object a line, name it .jsonl\n",
            name);
  if (at == n || !json || s[at] != '[') return false;
  snprintf(help, sizeof help,
           "jq -c '.[]' %s >data.jsonl; then --field NAME says which text of each is meant", name);
  zb_fail(err, help, "%s is one JSON array, not a text", name);
  return true;
}

bool zd_content_fits(const char *path, bool text, bool lists, ZbErr *err) {
  uint8_t head[LOOK];
  struct stat st;
  size_t n = 0;
  if (stat(path, &st) < 0 || !S_ISREG(st.st_mode))
    return true; /* what cannot be read twice is taken as it is */
  ZdBytes *b = zd_bytes_open(path, err);
  bool ok = b && zd_bytes_read(b, head, sizeof head, &n, err);
  zd_bytes_close(b);
  if (!ok) return false;
  char name[256];
  snprintf(name, sizeof name, "%s", zb_show(path));
  if (is_marked(name, head, n, text, err) || is_npy(name, head, n, err)) return false;
  if (!text) return true;
  if (!zd_is_jsonl(path) ? is_odd_text(name, path, head, n, lists, err)
                         : is_utf16(head, n) && is_odd_text(name, path, head, n, lists, err))
    return false;
  if (!zd_is_jsonl(path) && memchr(head, 0, n))
    fprintf(stderr, "zdata: note: %s has bytes of 0, as texts have none: it is taken byte for byte\n", name);
  return true;
}
