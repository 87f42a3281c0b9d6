/* The thread that writes a rank's part of a checkpoint, so that steps need not wait for a disk. It touches
 * the snapshot, files and its own error; nothing of the engine, and no communicator. */
#ifndef ZUG_EXEC_WRITER_H
#define ZUG_EXEC_WRITER_H

#include "runtime/exec/state/snapshot.h"

typedef struct ZxWriter ZxWriter;
typedef enum { ZX_WRITER_IDLE, ZX_WRITER_WORKS, ZX_WRITER_DONE, ZX_WRITER_FAILED } ZxWriterState;
typedef struct {
  const ZpMesh *mesh;
  int64_t rank;
  const ZxSnapshot *snapshot;
  const ZxContents *contents;
  bool heads; /* this rank writes the files' headers */
} ZxWriterOptions;
/* Starts the thread. NULL with a message. */
ZxWriter *zx_writer_new(const ZxWriterOptions *o, ZbErr *err);
/* Asks it to stop where it is, and waits for that. NULL is allowed. */
void zx_writer_free(ZxWriter *w);

/* While it is not working: writes the snapshot into the files of folder `tmp`, and syncs them. */
void zx_writer_write(ZxWriter *w, const char *tmp);
/* While it is not working: writes the manifest into `tmp`, gives that its name, and removes checkpoints of
 * `dir` until `keep` are left (0: all stay). */
void zx_writer_publish(ZxWriter *w, const ZxManifest *m, const char *tmp, const char *path, const char *dir,
                       uint32_t keep);

/* Any time. Of DONE and FAILED the rest may be read: the digests of what was written of each tensor, bytes,
 * time, why. */
ZxWriterState zx_writer_state(const ZxWriter *w);
const uint64_t *zx_writer_digests(const ZxWriter *w);
uint64_t zx_writer_bytes(const ZxWriter *w);
double zx_writer_seconds(const ZxWriter *w); /* that writing and syncing took */
const ZbErr *zx_writer_error(const ZxWriter *w);

#endif
