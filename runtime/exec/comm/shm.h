/* Collectives among processes of one node, through memory that all of them map. Knows nothing of MPI: whoever
 * makes a group brings the mapping about, and the members may as well be threads. See comm/shm.c. */
#ifndef ZUG_COMM_SHM_H
#define ZUG_COMM_SHM_H

#include "runtime/exec/comm/comm.h"

/* ---- the memory ---- */
/* What one member makes and tells the others, byte by byte. It has no name in any file system, so nothing is
 * left over however a job ends. */
typedef struct {
  int64_t pid; /* who made it */
  int32_t fd;  /* there; -1: it could not be made */
  int32_t size;
  uint64_t key; /* found at its beginning */
} ZxShmFile;
size_t zx_shm_bytes(int size); /* of the window of a group of `size` members */
ZxShmFile zx_shm_create(int size);
/* The window, with the caller's share of it in real memory; NULL if the file cannot be had here. */
void *zx_shm_map(const ZxShmFile *f, int rank);
void zx_shm_unmap(void *window, int size);
void zx_shm_close(const ZxShmFile *f); /* by its maker, when all have mapped it or given up */

/* ---- one member of a group ---- */
typedef struct ZxShm ZxShm;
/* `window`: zx_shm_bytes(size) bytes, aligned to a page and zero when the first member comes. */
ZxShm *zx_shm_new(void *window, int rank, int size);
void zx_shm_free(ZxShm *s);

/* Operations are numbered 0, 1, 2, ... as they start and complete in this order. They mean what their
 * namesakes in ZxCommTable mean; nothing is empty, and nothing of a window's arithmetic is of bytes. */
uint64_t zx_shm_all_reduce(ZxShm *s, void *p, size_t n, ZkElem elem, ZxReduce reduce);
uint64_t zx_shm_reduce_scatter(ZxShm *s, void *in, size_t n, ZkElem elem, ZxReduce reduce, void *out);
uint64_t zx_shm_all_gather(ZxShm *s, const void *part, size_t bytes, void *out);
uint64_t zx_shm_all_to_all(ZxShm *s, const void *in, size_t bytes, void *out);
uint64_t zx_shm_broadcast(ZxShm *s, void *p, size_t bytes, int root);
/* Does what can be done without waiting for another member. */
void zx_shm_progress(ZxShm *s);
bool zx_shm_claim(ZxShm *s); /* true for the first member that asks */
bool zx_shm_done(const ZxShm *s, uint64_t op);
bool zx_shm_idle(const ZxShm *s);      /* all are done */
uint64_t zx_shm_moves(const ZxShm *s); /* grows as operations get on */
/* Whether the first open operation waits for this member. */
bool zx_shm_late(const ZxShm *s, int member);

#endif
