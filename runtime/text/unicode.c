/* Sets of characters and lower case, from the tables of unicode.txt. */
#include "runtime/text/unicode.h"

bool zt_in(ZtSet set, uint32_t c) {
  const uint32_t *range = zt_set_table[set].range;
  uint32_t low = 0, high = zt_set_table[set].n;
  while (low < high) {
    uint32_t mid = (low + high) / 2;
    if (c < range[2 * mid]) high = mid;
    else if (c > range[2 * mid + 1]) low = mid + 1;
    else return true;
  }
  return false;
}

const uint32_t *zt_ranges(ZtSet set, uint32_t *n) {
  *n = zt_set_table[set].n;
  return zt_set_table[set].range;
}

const char *zt_set_name(ZtSet set) {
  static const char *const names[] = {
#define X(name) #name,
      ZT_SETS(X)
#undef X
  };
  return names[set];
}

int zt_lower(uint32_t c, uint32_t out[2]) {
  out[0] = c;
  if (c < 0x80) {
    if (c >= 'A' && c <= 'Z') out[0] = c + 32;
    return 1;
  }
  uint32_t low = 0, high = zt_nlower;
  while (low < high) {
    uint32_t mid = (low + high) / 2;
    if (c < zt_lower_table[mid].c) high = mid;
    else if (c > zt_lower_table[mid].c) low = mid + 1;
    else {
      memcpy(out, zt_lower_table[mid].lower, 8);
      return out[1] ? 2 : 1;
    }
  }
  return 1;
}
