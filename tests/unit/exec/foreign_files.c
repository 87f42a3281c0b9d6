/* Weights by other names in a test's folder. */
#include "tests/unit/exec/foreign_files.h"

#include "tests/unit/exec/scratch.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ZbErr err;

void foreign_tensors(const char *name, const ZxTensorInfo *t, size_t n, ZkElem as, int odd) {
  ZbText head = {0};
  uint64_t total, count;
  cr_assert(zx_weights_head_as(&head, t, n, as, 8, &total, &err), "%s", err.text);
  for (int i = 0; i < odd; i++) zb_text_put(&head, " ", 1);
  uint64_t len = head.len;
  count = (total + (uint64_t)odd - 8 - len) / zk_plain_bytes(as);
  float *x = calloc(count + 1, sizeof *x);
  char *bytes = malloc(total + (uint64_t)odd + 8);
  uint32_t *values = calloc(count + 1, sizeof *values);
  for (uint64_t i = 0; i < count; i++) x[i] = as == ZK_F16 ? (float)(i % 2048) : (float)i;
  memcpy(bytes, &len, 8);
  memcpy(bytes + 8, head.s, len);
  cr_assert_eq(zx_as(as, x, count, values), -1);
  memcpy(bytes + 8 + len, values, count * zk_plain_bytes(as));
  scratch_write(name, bytes, total + (uint64_t)odd);
  free(x);
  free(bytes);
  free(values);
  zb_text_free(&head);
}

ZgGraph *foreign_graph(ZbArena *a) {
  ZgGraph *g = zg_graph_new(a, "M");
  uint16_t e = (uint16_t)zg_axis_add(g, "embed", 4), h = (uint16_t)zg_axis_add(g, "head", 2),
           d = (uint16_t)zg_axis_add(g, "hd", 3);
  zg_segment_add(g, "", 0, false, 1);
  zg_segment_add(g, "layer", 0, true, 3);
  uint16_t all[] = {e, h, d}, some[] = {e, h};
  static const char *const names[] = {"wq", "wk", "wv"};
  for (uint32_t i = 0; i < 3; i++) {
    zg_param_add(
        g, (ZgParam){
               .path = names[i], .type = zg_type(ZG_REAL, all, 3), .order = {0, 1, 2}, .segment = ZG_NONE});
    zg_foreign_add(g, (ZgForeign){"hf", i, "c_attn", 2, {4, 18}, 6 * i, {18, 3, 1}, -1, 0});
  }
  zg_param_add(
      g, (ZgParam){.path = "wo", .type = zg_type(ZG_REAL, all, 3), .order = {1, 2, 0}, .segment = ZG_NONE});
  zg_foreign_add(g, (ZgForeign){"hf", 3, "o", 2, {4, 6}, 0, {3, 1, 6}, -1, 0});
  zg_param_add(
      g, (ZgParam){.path = "layer.*.e", .type = zg_type(ZG_REAL, some, 2), .order = {1, 0}, .segment = 1});
  zg_foreign_add(g, (ZgForeign){"hf", 4, "h.*.e.0", 2, {4, 1}, 0, {0, 1}, 0, 0});
  zg_foreign_add(g, (ZgForeign){"hf", 4, "h.*.e.1", 2, {4, 1}, 0, {0, 1}, 0, 1});
  zg_ignored_add(g, "hf", "*.inv_freq", NULL);
  zg_ignored_add(g, "hf", "h.*.attn.bias", NULL);
  zg_config_add(g, "hf", "vocab_size", "300");
  zg_config_add(g, "hf", "rope.theta", "1e-05");
  zg_config_add(g, "hf", "architectures", "[\"A\", \"B\"]");
  cr_assert(zg_verify_foreign(g, &err), "%s", err.text);
  return g;
}

void count_reads(uint64_t *calls, uint64_t *bytes) {
  char text[512] = "";
  int fd = open("/proc/thread-self/io", O_RDONLY);
  cr_assert(fd >= 0 && read(fd, text, sizeof text - 1) > 0 && close(fd) == 0);
  const char *number = strstr(text, "syscr: "), *all = strstr(text, "rchar: ");
  cr_assert(number && all);
  *calls = strtoull(number + 7, NULL, 10);
  *bytes = strtoull(all + 7, NULL, 10);
}
