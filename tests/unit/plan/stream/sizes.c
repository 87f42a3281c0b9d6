/* What a token, a token within a window and a sequence take in models of published sizes, in bf16. */
#include <criterion/criterion.h>

#include "runtime/plan/stream/stream.h"
#include "tests/unit/plan/stream/models.h"

typedef struct {
  const char *name, *options;
  uint64_t token, windowed; /* bytes in pages of all positions, and of a window */
  uint64_t state, recent, own;
} Size;

#define B 2 /* bytes of a number; states are f32 */

/* clang-format off */
static const Size sizes[] = { /* layers x (keys + values), or x latent */
    {"gpt2", "", 12 * 2 * 768 * B, 0, 0, 0, 0},
    {"llama3", "", 32 * 2 * 8 * 128 * B, 0, 0, 0, 0},
    {"llama3", "-D layers=126 -D heads=128 -D width=16384 -D inner=53248", 126 * 2 * 8 * 128 * B, 0, 0, 0, 0},
    {"mistral", "", 0, 32 * 2 * 8 * 128 * B, 0, 0, 0},
    {"gemma3", "", 4 * 2 * 256 * B, 22 * 2 * 256 * B, 0, 0, 0},         /* every sixth layer sees all */
    {"deepseek", "", 61 * (512 + 64) * B, 0, 0, 0, 0},
    {"mamba2", "", 0, 0, 64 * 80 * 64 * 128 * 4, 64 * 3 * (2 * 2560 + 2 * 128) * B, 0}, /* shifts by 1, 2 and 3 */
    {"deltanet", "", 0, 0, 21 * 6 * 256 * 512 * 4, 21 * 3 * 6 * (2 * 256 + 512) * B, 0},
    {"t5", "", 12 * 2 * 768 * B, 0, 0, 0, 12 * 2 * 768 * B},            /* and of a word of the source */
};
/* clang-format on */

static uint64_t of_kind(const ZpStream *s, ZpCacheKind kind, bool window) {
  uint64_t total = 0;
  if (kind != ZP_CACHE_PAGES) return zp_cache_bytes(s, kind, 0, ZK_BF16);
  for (uint32_t i = 0; i < s->ngroups; i++)
    if ((s->groups[i].window > 0) == window) total += zp_cache_bytes(s, kind, i, ZK_BF16);
  return total;
}

Test(sizes, published) {
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    const Size *want = &sizes[i];
    Case c;
    StreamModel m = {.name = want->name, .options = want->options};
    ZgGraph *g = stream_model(&c, &m);
    ZpStream s;
    ZbErr err = {0};
    cr_assert(zp_stream(g, c.a, NULL, NULL, &s, &err), "%s: %s", want->name, err.text);
    Size got = {want->name,
                want->options,
                of_kind(&s, ZP_CACHE_PAGES, false),
                of_kind(&s, ZP_CACHE_PAGES, true),
                of_kind(&s, ZP_CACHE_STATE, 0),
                of_kind(&s, ZP_CACHE_RECENT, 0),
                of_kind(&s, ZP_CACHE_OWN, 0)};
    cr_expect(got.token == want->token && got.windowed == want->windowed && got.state == want->state &&
                  got.recent == want->recent && got.own == want->own,
              "%s %s: a token %llu, of a window %llu, state %llu, recent %llu, own %llu", want->name,
              want->options, (unsigned long long)got.token, (unsigned long long)got.windowed,
              (unsigned long long)got.state, (unsigned long long)got.recent, (unsigned long long)got.own);
    done(&c);
  }
}
