/* A folder of its own for each test, and words in messages. */
#ifndef ZUG_TEST_SCRATCH_H
#define ZUG_TEST_SCRATCH_H

#include "base/base.h"

void scratch_make(void);
void scratch_remove(void);
/* The path of `name` in the folder; a few of the last ones stay valid. */
const char *scratch(const char *name);
void scratch_folder(const char *name);
void scratch_write(const char *name, const void *bytes, size_t n);
char *scratch_read(const char *name, size_t *n); /* to be freed; NUL-terminated */
int scratch_files(void);                         /* how many there are, hidden ones too */
int open_files(void);                            /* of this process */
/* Files may not grow beyond `bytes` from now on: a full disk. */
void scratch_full_at(uint64_t bytes);
/* How often a disk was waited for (fsync) since this was asked last. */
int scratch_synced(void);
/* From now on that fails with this errno, after as many times as it still succeeds; 0: no more. */
void scratch_sync_fails(int code, int after);
/* From now on files fail to be read in the middle (pread) with this errno, or as ones that shrink meanwhile
 * (0), after as many times as it still succeeds; below 0: no more. */
void scratch_reads_fail(int code, int after);

/* The message has these words in it. */
#define says(err, words)                                                                                     \
  cr_expect(strstr((err).text, words), "line %d: no '%s' in '%s'", __LINE__, words, (err).text)

/* A suite whose tests have a folder each, and an arena `a`. */
#define SCRATCH_SUITE(name)                                                                                  \
  static ZbArena *a;                                                                                         \
  static void make(void) {                                                                                   \
    scratch_make();                                                                                          \
    a = zb_arena_new();                                                                                      \
  }                                                                                                          \
  static void unmake(void) {                                                                                 \
    zb_arena_free(a);                                                                                        \
    scratch_remove();                                                                                        \
  }                                                                                                          \
  TestSuite(name, .init = make, .fini = unmake)

#endif
