/* base: what every room may use: memory by lifetime, growable arrays, checked arithmetic, text
 * buffers, counter-based randomness, and the one way to stop on a mistake of ours.
 * Knows nothing of Zug. */
#ifndef ZUG_BASE_H
#define ZUG_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* ---- our mistakes ---------------------------------------------------------------------------
 * A user's mistake is a message (lang.h's diagnostics, or a ZbErr); ours says "bug in zug" and aborts. */
#define ZB_BUG(...) zb_bug(__FILE__, __LINE__, __VA_ARGS__)
#define ZB_ASSERT(cond)                                                                                      \
  do {                                                                                                       \
    if (!(cond)) zb_bug(__FILE__, __LINE__, "%s does not hold", #cond);                                      \
  } while (0)
_Noreturn void zb_bug(const char *file, int line, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* From now on such a message begins with "[rank N] "; below 0: it does not. */
void zb_bug_rank(int rank);
/* Ends the program with code 1 and "out of memory: N bytes wanted": it is not our mistake that the machine
 * has no more. (0: the number is not known.) What could be large is limited before, with a message that says
 * what. */
_Noreturn void zb_out_of_memory(size_t bytes);

/* One user-facing error where there is no source text to point at (files, run time).
 * Set by whoever knows the cause; callers pass it up, or add to it what only they know. */
typedef struct {
  char text[1024]; /* what, where, found, expected; no newline at the end */
  char help[256];  /* one remedy, or "" */
  bool passing;    /* it may go better another time, though nothing that was given changes */
} ZbErr;
/* Writes a message to `err` (may be NULL) and returns false, so that `return zb_fail(...)` reads well. */
bool zb_fail(ZbErr *err, const char *help, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The same of what the system refused, with an errno's text behind it. A full or a broken disk is passing; a
 * folder that is not there, or may not be written to, is not. */
bool zb_fail_errno(ZbErr *err, int code, const char *help, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Adds to the message what the caller knows beside: where, how it was come to. `err` may be NULL. */
void zb_fail_more(ZbErr *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* What a test program may define anew, and is then linked with instead. */
#define ZB_REPLACEABLE __attribute__((weak))

/* ---- memory by lifetime ----------------------------------------------------------------------
 * Memory of an arena is zeroed and lives until zb_arena_free. zb_alloc never returns NULL: where there is no
 * memory, zb_out_of_memory ends the program. */
typedef struct ZbArena ZbArena;
ZbArena *zb_arena_new(void);
void zb_arena_free(ZbArena *a); /* NULL is allowed */
void *zb_alloc(ZbArena *a, size_t bytes);
char *zb_strdup(ZbArena *a, const char *s);
char *zb_strndup(ZbArena *a, const char *s, size_t n);
char *zb_printf(ZbArena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define ZB_NEW(arena, T) ((T *)zb_alloc((arena), sizeof(T)))
#define ZB_NEWN(arena, T, n) ((T *)zb_alloc((arena), zb_array_bytes((size_t)(n), sizeof(T))))
size_t zb_array_bytes(size_t n, size_t size); /* n * size, aborts on overflow */

/* Appends `value` to the array `p` of `n` elements, which lives in an arena and doubles as it
 * grows (capacity is the next power of two of n, so it needs no field of its own). */
#define ZB_PUSH(arena, p, n, value)                                                                          \
  do {                                                                                                       \
    (p) = zb_grow((arena), (p), (size_t)(n), sizeof *(p));                                                   \
    (p)[(n)++] = (value);                                                                                    \
  } while (0)
void *zb_grow(ZbArena *a, void *p, size_t n, size_t size);
/* Room for one more element of an array that shrinks too, and so keeps its capacity in *cap. */
void *zb_room(ZbArena *a, void *p, uint32_t n, size_t size, uint32_t *cap);

/* ---- names by number ---------------------------------------------------------------------------
 * Finds names among many in constant time. A name's number is how many were there before it, so that what
 * belongs to names lies in an array beside the table. A zeroed ZbNames is empty; it lives in the arena of its
 * first zb_names_add. */
typedef struct {
  const char **name; /* not copied */
  uint32_t n, cap;
  uint32_t *next, *head, size; /* chains of names of one hash, the latest first; none while names are few */
} ZbNames;
#define ZB_NO_NAME UINT32_MAX
/* Adds a name, which may be there already, and returns its number. */
uint32_t zb_names_add(ZbArena *a, ZbNames *t, const char *name);
/* The number of the latest name that equals `name`, or ZB_NO_NAME. */
uint32_t zb_names_find(const ZbNames *t, const char *name);
/* Forgets all names but the first n. */
void zb_names_cut(ZbNames *t, uint32_t n);
/* Back to `was`, a copy of *t: what was added since, and its memory, may then go. */
void zb_names_back(ZbNames *t, ZbNames was);

/* ---- checked arithmetic: false on overflow, *out is untouched then ---------------------------- */
bool zb_mul_u64(uint64_t a, uint64_t b, uint64_t *out);
bool zb_add_u64(uint64_t a, uint64_t b, uint64_t *out);
static inline uint64_t zb_round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

/* ---- numbers ------------------------------------------------------------------------------------- */
static inline float zb_bf16_to_f32(uint16_t h) {
  uint32_t u = (uint32_t)h << 16;
  float f;
  memcpy(&f, &u, 4);
  return f;
}
/* Rounds to nearest even; a NaN stays one. */
static inline uint16_t zb_f32_to_bf16(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  uint32_t r = u + 0x7fff + ((u >> 16) & 1);
  return (uint16_t)((f != f ? u | 0x400000 : r) >> 16);
}
static inline float zb_f16_to_f32(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7fff, bits = (rest << 13) + ((127 - 15) << 23);
  float x = (float)rest * 0x1p-24f; /* if it is below the normal ones */
  if (rest < 0x400) memcpy(&bits, &x, 4);
  if (rest >= 0x7c00) bits = 0x7f800000 | (rest & 0x3ff) << 13;
  bits |= sign;
  memcpy(&x, &bits, 4);
  return x;
}
/* Rounds to nearest even, from 65520 on to infinity; a NaN stays one. */
uint16_t zb_f32_to_f16(float f);
/* For printing: of a NaN there is only one, without a sign. */
double zb_plain_nan(double x);
/* "500k" or "500K", "4G", "2T", "1000000": bytes, in powers of 1000, at least one. False if it is none. */
bool zb_size(const char *text, int64_t *out);
/* Returns 1, 2 or 5 x 10^n so that a range has about `want` of them, and not more. */
double zb_round_step(double range, int want);
/* The index of the first of n values that is not finite; -1: all are. */
int64_t zb_not_finite(const float *x, uint64_t n);

/* ---- time --------------------------------------------------------------------------------------- */
double zb_now(void); /* seconds, monotonic */
/* "90s", "10m", "3h50m", "1d12h": whole numbers of days, hours, minutes and seconds, each at most once and
 * the larger ones first. False if it is none. */
bool zb_duration(const char *text, double *seconds);
/* The same the other way, to whole seconds, into buf; returns buf. */
const char *zb_duration_text(char buf[24], double seconds);
/* Writes a measured time with four digits into buf, "8.5 us", "12.34 ms", "3.2 s"; returns buf. */
const char *zb_seconds_text(char buf[24], double seconds);

/* ---- processes ----------------------------------------------------------------------------------- */
typedef struct {
  char state; /* 'Z': it has ended, and nobody has waited for it */
  long parent;
  double cpu; /* seconds, of all its threads */
} ZbProcess;
bool zb_process(long pid, ZbProcess *out); /* proc(5); false: there is none */
typedef struct {
  uint32_t n;     /* at least 1 */
  uint64_t which; /* a digest: the same CPUs, the same number */
} ZbCpus;
/* The CPUs on which this process may run, as whoever started it has said. */
ZbCpus zb_cpus(void);

/* ---- growable text ------------------------------------------------------------------------------ */
typedef struct {
  char *s; /* always NUL-terminated after the first zb_text_add; NULL while empty */
  size_t len, cap;
} ZbText;
void zb_text_add(ZbText *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void zb_text_addv(ZbText *t, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));
void zb_text_put(ZbText *t, const char *s, size_t n);
void zb_text_free(ZbText *t);
/* "1, 5 to 7", "0 to 6 by 2": ascending numbers. */
void zb_text_ranges(ZbText *t, const int *x, int n);
/* Adds the shortest decimal text from which strtod has the same number. */
void zb_text_number(ZbText *t, double x);
/* UTF-8 of a character, which is none of the surrogates; returns its bytes. */
size_t zb_utf8(char out[4], uint32_t c);

/* ---- JSON that is written -------------------------------------------------------------------------- */
/* Commas, brackets, quotes and line ends come as they are due; with zeros but for `text`, all is on one line. */
typedef struct {
  ZbText *text;
  const char *indent; /* a line for each member of an object, behind this for each level; NULL: no lines */
  bool script;        /* for an HTML page: '<' and '&' in strings are written as \u003c and \u0026 */
  /* The writer alone: */
  uint64_t lists;   /* bit d: what is open in depth d is a list */
  int depth, line;  /* line: 1 and the blanks of a new line that is due; 0: none is */
  bool more, keyed; /* a comma is due before the next; its key is there already */
} ZbJson;
/* Each puts a value: of an object's member with its key; with NULL a list's item, the whole, or what zb_json_key
 * named. */
void zb_json_object(ZbJson *j, const char *key);                /* begins an object */
void zb_json_list(ZbJson *j, const char *key);                  /* begins a list */
void zb_json_end(ZbJson *j);                                    /* ends the innermost of these */
void zb_json_string(ZbJson *j, const char *key, const char *s); /* bytes from 128 on as they are */
void zb_json_string_n(ZbJson *j, const char *key, const char *s, size_t n); /* NULs, too */
void zb_json_int(ZbJson *j, const char *key, int64_t n);
void zb_json_count(ZbJson *j, const char *key, uint64_t n);
void zb_json_bool(ZbJson *j, const char *key, bool is);
void zb_json_null(ZbJson *j, const char *key);
/* NaN and infinity, which JSON does not have, are null. With all digits that it takes to read the same number; ... */
void zb_json_number(ZbJson *j, const char *key, double x);
void zb_json_rounded(ZbJson *j, const char *key, int digits, double x); /* ... with so many */
/* Puts a value that the caller has formatted as JSON. */
void zb_json_raw(ZbJson *j, const char *key, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Puts the key of the next value, which is then put with NULL. */
void zb_json_key(ZbJson *j, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Has the next key or item stand on a new line, behind so many blanks. */
void zb_json_line(ZbJson *j, int blanks);

/* ---- JSON that is read ------------------------------------------------------------------------------ */
/* Gives the numbers of a value that cJSON made of `text` their digits as `valuestring`: 1e-05, 30.0. */
struct cJSON;
void zb_json_digits(struct cJSON *x, const char *text);
/* Finds the first NaN, Infinity or -Infinity in place of a value, which Python writes and JSON does not have.
 * Returns NULL if there is none. */
const char *zb_json_not_finite(const char *text, size_t n, uint32_t *line);
/* Finds \u0000 in a string of JSON, at which cJSON would end it. */
bool zb_json_has_nul(const char *text, size_t n);
/* Parses text[0..n), all of which must be one JSON value. A cJSON node takes some forty times the bytes of "1,",
 * so a value must have `sparse` bytes of text on average, some thousands of values apart. NULL with a message
 * that begins with "it". Where memory ends, so does the program: that says nothing about the text. */
struct cJSON *zb_json_parse(const char *text, size_t n, size_t sparse, ZbErr *err);
/* Parses a text that must be a JSON object; `path` is for messages. */
bool zb_json_object_of(const char *text, size_t n, const char *path, struct cJSON **out, ZbErr *err);
/* Reads one from the file `name` of a folder, at most 16 MiB. *out NULL: it is not there. */
bool zb_json_file(ZbArena *a, const char *folder, const char *name, struct cJSON **out, ZbErr *err);
/* Returns a member of an object; NULL: it has none of that name, or is something else. */
const struct cJSON *zb_json_member(const struct cJSON *o, const char *name);
/* `sparse` of files of weights, of their lists and of configs, each value of which has a name or stands beside
 * one; of tokenizers, where three may stand in ["a",-1],; and of all others, which are short. */
enum { ZB_JSON_NAMED = 6, ZB_JSON_TOKENS = 3, ZB_JSON_ANY = 2 };

/* ---- texts -------------------------------------------------------------------------------------------- */
/* Whether s ends with `end`, and is longer. */
bool zb_ends(const char *s, const char *end);
/* Formats bytes as a person reads them, "12.3 MB" (powers of 1000), into buf; returns buf. */
const char *zb_bytes(char buf[24], uint64_t bytes);
/* From now on zb_bytes says all digits: "12345678 B". For the main function of a program that was asked to. */
void zb_bytes_exactly(bool yes);
bool zb_bytes_exact(void); /* says whether it does */

/* ---- files that are read ---------------------------------------------------------------------------
 * Regular files only: what else a path may name is refused with a message that says what it is, never waited
 * for. */
/* To be read, and to be written too if `write`; -1 with a message. */
int zb_open_file(const char *path, bool write, uint64_t *size, ZbErr *err);
/* n bytes from byte `at`. `path` is for messages. */
bool zb_read_at(int fd, const char *path, void *p, uint64_t n, uint64_t at, ZbErr *err);
/* A whole file of at most `limit` bytes into `arena`, with a NUL after it that *n does not count. */
char *zb_read_file(ZbArena *a, const char *path, uint64_t limit, size_t *n, ZbErr *err);
/* For what is read once, from the beginning: a regular file, or a pipe that somebody writes to. */
FILE *zb_open_stream(const char *path, ZbErr *err);
bool zb_same_file(const char *a, const char *b); /* both are there, and are one: links, other paths */
/* Whether a file of that path, which need not be there yet, is one of a folder's own. Links are followed. */
bool zb_lies_in(const char *path, const char *folder);
const char *zb_file_kind(unsigned mode); /* "a pipe", of a stat's st_mode */

/* ---- files that are written --------------------------------------------------------------------------
 * A file is written into a temporary beside it, which takes its name, its permissions and its owner once it
 * is whole: who reads it sees the old one or the new one. Links are followed. No two writers have the same
 * temporary, nothing is removed that was not made here, and what a killed program left goes when the same
 * file is written again. */
typedef struct ZbOut ZbOut;
/* What a file must be to be replaced, by its first 16 bytes at most: better not one that something
 * else made. */
typedef struct {
  const char *what; /* "a token file" */
  bool (*is)(const uint8_t *head, size_t n);
} ZbKind;
ZbOut *zb_out_new(const char *path, const ZbKind *kind, ZbErr *err); /* NULL with a message */
/* Of the temporary, to be read and written. */
int zb_out_fd(const ZbOut *o);
const char *zb_out_tmp(const ZbOut *o);
/* Another process' temporary: to discard it is to remove it as well, to commit it is to let go of it. */
ZbOut *zb_out_share(const char *tmp);
/* All is written: the file is there when this returns true. Both free `o`; NULL may be discarded. */
bool zb_out_commit(ZbOut *o, ZbErr *err);
void zb_out_discard(ZbOut *o);
void zb_out_discard_all(void); /* removes all temporaries, before the process ends; safe in signal handlers */
/* Whether zb_write_file can begin: for who has much to do before it. Leaves nothing. */
bool zb_may_write(const char *path, const ZbKind *kind, ZbErr *err);
/* All of it at once. A device, a pipe with a reader, /dev/stdout: written to as it is. */
bool zb_write_file(const char *path, const ZbKind *kind, const void *bytes, size_t n, ZbErr *err);
/* n bytes to byte `at`. `path` is for messages. */
bool zb_write_at(int fd, const char *path, const void *p, uint64_t n, uint64_t at, ZbErr *err);
/* n bytes to where the file is. */
bool zb_write(int fd, const char *path, const void *p, uint64_t n, ZbErr *err);
/* Returns `path`, or the file `name` in it if it is a folder; in the arena. */
const char *zb_file_of(ZbArena *a, const char *path, const char *name);
/* Returns the folder of a file, or the folder itself; in the arena. */
const char *zb_folder_of(ZbArena *a, const char *path);
/* Makes a folder, with what is missing above it. `what` it is for, "log", and `help` are for messages. */
bool zb_make_folders(const char *path, const char *what, const char *help, ZbErr *err);
/* Removes those files of a folder, which is no link to one, that are `ours`. False with a message if one of
 * them stays, or the folder cannot be read. */
bool zb_clear_folder(const char *path, bool (*ours)(const char *name), ZbErr *err);
/* The same, and then the folder if nothing else is in it. */
bool zb_remove_folder(const char *path, bool (*ours)(const char *name), ZbErr *err);
/* Both are there and change names, at once. False with errno: EINVAL or ENOSYS if the file system cannot. */
bool zb_exchange(const char *a, const char *b);
/* A file that only grows: what a full disk does not take waits in memory, and goes before what comes next. */
typedef struct {
  int fd;         /* -1: it is not begun */
  ZbText waiting; /* what could not be written yet */
} ZbAppend;
/* Writes what waits, and then a record; what fails, or comes before the file is begun, waits for the next call. False
 * with a message, in which `name` is the file's. */
bool zb_append(ZbAppend *f, const char *name, const char *record, size_t n, ZbErr *err);
void zb_append_close(ZbAppend *f); /* tries once more */

/* ---- temporaries (tmp.c) ---- */
/* Makes and locks a file or a folder that nobody has, NAME.MACHINE-RANDOM.tmp beside `path`. Returns a descriptor,
 * which holds the lock, and in *tmp the name, to be freed; -1 with errno. */
int zb_tmp_make(const char *path, bool folder, unsigned mode, char **tmp);
/* Removes what makers of `path` that were killed left: files, or folders, which `clear` empties of what belongs
 * there (one that is not empty then stays). Returns whether another maker is at work. */
bool zb_tmp_remove_left(const char *path, void (*clear)(const char *folder));
/* Returns the path of `name` in the folder of `path`, to be freed. */
char *zb_beside(const char *path, const char *name);
/* False, with the message for an errno of writing. */
bool zb_out_failed(const char *path, int code, ZbErr *err);
/* Whether writing `out` leaves alone what it is made from: a file, or a folder with its files. False with a
 * message, in which `option` is what `out` was given by. */
bool zb_spares(const char *option, const char *out, const char *in, ZbErr *err);
/* What a path leads to when links are followed, which need not be there; to be freed. NULL with a message. */
char *zb_resolve(const char *path, ZbErr *err);
/* Last of all in main: whether all that was printed was also written. */
bool zb_close_stdout(ZbErr *err);
/* First of all in main: a signal that ends the program removes its temporaries, a file over the limit is an
 * error of its write, and no file is opened as standard output because that was closed. */
void zb_begin(void);
/* Raises the limits of this thread's stack, and of those of threads to come, to what a program needs. Ends the
 * program where the system refuses even a small one. zb_begin does so. */
void zb_raise_stack(void);

/* ---- text of others, in messages ------------------------------------------------------------------
 * Names of files and tensors, options, cells: they may hold escape codes that a terminal obeys, bytes that
 * are no UTF-8, and megabytes. */
enum { ZB_SHOWN = 256 };
/* What a message may say for `s`: such bytes as \x1b, \u202e or \n, and of what is longer than ZB_SHOWN - 1
 * the beginning, "..." and the end. The eight latest results of a thread are valid. */
const char *zb_show(const char *s);
const char *zb_show_n(const char *s, size_t n); /* of s[0..n), which need not end with a NUL */
/* The same for a whole message in a buffer of `size` bytes, in place; what does not fit is cut off. As
 * zb_fail does. */
void zb_show_all(char *s, size_t size);
/* The same, added to a text, whatever its length. */
void zb_text_show(ZbText *t, const char *s, size_t n);
/* Bytes of the first character of s[0..n); 0 if there is none, if it is no UTF-8, or if it controls
 * something. */
size_t zb_plain(const char *s, size_t n);

/* Loads a module, a shared library beside the program or where modules are installed; it uses what the
 * program has. all: everything that it uses must be there; otherwise only what is called. It stays. NULL with
 * a message. */
void *zb_module(const char *file, bool all, ZbErr *err);
void *zb_symbol(void *module, const char *name, ZbErr *err);
/* Where that file is; false if there is none. */
bool zb_module_path(const char *file, char *path, size_t size);

/* Nearest of `n` names to `name` by edit distance (at most a third of its length + 1, and some letter the
 * same), or NULL. */
const char *zb_nearest(const char *name, const char *const *names, size_t n);

/* Before a function: it is compiled for several instruction sets, and the best one is picked by cpuid at load
 * time. Not with sanitizers: they instrument the picking, which runs before they are ready. */
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__) &&                 \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define ZB_WIDE __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define ZB_WIDE
#endif

/* ---- randomness -----------------------------------------------------------------------------------
 * Counter-based: every number is a pure function of (seed, stream, index), so any sharding draws
 * the same values. The mixing function is SplitMix64's finaliser (Steele, Lea, Flood 2014), applied
 * twice over the three words. */
static inline uint64_t zb_mix64(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}
static inline uint64_t zb_random_u64(uint64_t seed, uint64_t stream, uint64_t index) {
  uint64_t h = zb_mix64(seed + 0x9e3779b97f4a7c15ull * (stream | 1)) ^ stream;
  return zb_mix64(zb_mix64(h + 0x9e3779b97f4a7c15ull * (index + 1)) + index);
}
/* The number of (0, 1) that 64 random bits give, one of 2^23: f32 holds it as it is, and it is never 1. */
static inline float zb_random_unit_f32(uint64_t bits) {
  return ((float)(uint32_t)(bits >> 41) + 0.5f) * 0x1p-23f;
}
/* Uniform in (0, 1), with 53 bits. */
static inline double zb_random_unit(uint64_t seed, uint64_t stream, uint64_t index) {
  return ((double)(zb_random_u64(seed, stream, index) >> 11) + 0.5) * 0x1p-53;
}
/* Standard normal by Box-Muller (1958) from the counters 2*index and 2*index+1: the first root and cosine.
 * The same bits on every machine, and for indices first .. first+n-1 at once. */
double zb_random_normal(uint64_t seed, uint64_t stream, uint64_t index);
void zb_random_normals(uint64_t seed, uint64_t stream, uint64_t first, size_t n, double *out);
/* A stream number from a name (FNV-1a, 64 bit): a parameter's path, a dropout's region path. */
uint64_t zb_stream(const char *name);

#endif
