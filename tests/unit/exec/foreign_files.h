/* Weights by other names in a test's folder: files of tensors, and a graph that has the names. */
#ifndef ZUG_TEST_FOREIGN_FILES_H
#define ZUG_TEST_FOREIGN_FILES_H

#include "runtime/exec/hub/hub.h"

/* A safetensors file of one type; value i of all tensors is i, where that fits. With `odd` bytes of padding,
 * so that data are unaligned. */
void foreign_tensors(const char *name, const ZxTensorInfo *t, size_t n, ZkElem as, int odd);

/* A graph with wq, wk, wv[embed 4, head 2, hd 3] in c_attn[embed, 3 (head hd)]; wo[head, hd, embed] in
 * o[embed, (head hd)]; in a repeat of 3 layer.*.e[head, embed] in an embed x 1 tensor for each head. */
ZgGraph *foreign_graph(ZbArena *a);

/* How often this thread has read, and how many bytes. */
void count_reads(uint64_t *calls, uint64_t *bytes);

#endif
