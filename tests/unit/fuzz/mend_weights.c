#include "tests/unit/fuzz/mend.h"

#include <stdbool.h>
#include <string.h>

/* Where the JSON object that begins at s ends, or 0. */
static size_t end_of_object(const uint8_t *s, size_t n) {
  int depth = 0;
  bool text = false;
  for (size_t i = 0; i < n; i++) {
    if (text && s[i] == '\\') i++;
    else if (s[i] == '"') text = !text;
    else if (!text && s[i] == '{') depth++;
    else if (!text && s[i] == '}' && --depth <= 0) return i + 1;
  }
  return 0;
}

/* The largest number that ends a `data_offsets`. */
static uint64_t end_of_data(const uint8_t *s, size_t n) {
  static const char key[] = "\"data_offsets\":[";
  uint64_t most = 0;
  for (size_t i = 0; i + sizeof key < n; i++) {
    if (memcmp(s + i, key, sizeof key - 1)) continue;
    uint64_t x = 0;
    for (i += sizeof key - 1; i < n && s[i] != ']'; i++)
      x = s[i] >= '0' && s[i] <= '9' && x < 1u << 24 ? 10 * x + (s[i] - '0') : 0;
    if (x > most) most = x;
  }
  return most;
}

/* The header's length is that of the JSON there, and the data's what its tensors want. */
size_t fuzz_mend_weights(uint8_t *x, size_t n, size_t most) {
  if (n < 10) return n;
  uint64_t head = end_of_object(x + 8, n - 8);
  if (!head) return n;
  size_t size = 8 + head + end_of_data(x + 8, head);
  memcpy(x, &head, 8);
  return fuzz_resize(x, n < size ? n : size, size, most);
}
