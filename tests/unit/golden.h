/* Golden cases: files NAME.zug with what is expected of them, NAME.expect, many in one text archive (*.txtar):
 * a line `-- FILE --` before the text of each file, as Go's txtar has it. A new case is a few lines. */
#ifndef ZUG_TESTS_GOLDEN_H
#define ZUG_TESTS_GOLDEN_H

#include "base/base.h"

/* Calls check with every NAME.zug that has a NAME.expect, in the folder itself and in its archives, which are
 * unpacked into a scratch folder. The working folder is that of the case. Where the environment says
 * REGENERATE, what golden_expect is given is packed into the archive. Returns the number of cases. */
int golden_each(const char *folder, void (*check)(const char *file));

/* Returns the first line that differs, as a sentence, or NULL. */
const char *difference(ZbArena *a, const char *want, const char *got);

/* Fails if the text differs from what the file holds; where the environment says REGENERATE, it is written. */
void golden_file(const char *path, const char *got);

/* The same with NAME.expect of the case NAME.zug. */
void golden_expect(const char *file, const char *got);

/* Appends all archives of the folder, and the .expect files that lie beside them, as they are. */
void golden_read(const char *folder, ZbText *out);

#endif
