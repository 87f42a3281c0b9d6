/* The AMX path on any machine with AVX-512: compiled here with ud2, which traps on every CPU, before each of its
 * instructions. A handler does what the manual says (Intel SDM volume 2: LDTILECFG, TILELOADD, TILESTORED,
 * TILEZERO, TDPBF16PS, TILERELEASE), after checking what the CPU would check, and goes on behind. So encodings,
 * the configuration of the tiles and every address are those that run on a machine with AMX.
 *
 * Where there is AMX, the same products run on it too. */
#define _GNU_SOURCE
#include "tests/unit/breadth.h"
#include "tests/unit/kernels/bgemm.h"

#include <criterion/criterion.h>

#define BEFORE_AMX "ud2\n\t"
#define zk_bgemm_amx emulated_amx
#include "kernels/cpu/bgemm_amx.c"
#undef zk_bgemm_amx

#if defined(ZK_BGEMM_X86)
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <ucontext.h>
#include <unistd.h>

/* ---- the tiles ------------------------------------------------------------------------------------ */
static struct {
  bool configured;
  uint16_t bytes[8];
  uint8_t rows[8];
  uint8_t data[8][16][64];
} tiles;
static long counts[256]; /* by opcode byte */

/* What the CPU would refuse ends the test; in a handler nothing may be printed by stdio. */
static void must(bool ok, const char *what) {
  if (ok) return;
  ssize_t n = write(2, "AMX: the CPU would refuse: ", 27);
  n = write(2, what, strlen(what));
  n = write(2, "\n", 1);
  (void)n;
  abort();
}

static void load_config(const uint8_t *m) {
  must(m[0] == 1, "palette");
  must(m[1] == 0, "a start row");
  for (int i = 2; i < 16; i++) must(m[i] == 0, "reserved bytes of the configuration");
  for (int i = 0; i < 16; i++) {
    uint16_t bytes = (uint16_t)(m[16 + 2 * i] | m[17 + 2 * i] << 8);
    uint8_t rows = m[48 + i];
    must(i < 8 ? bytes <= 64 && rows <= 16 : bytes == 0 && rows == 0, "size of a tile");
    must((bytes == 0) == (rows == 0), "a tile with rows but no columns, or columns but no rows");
    if (i < 8) tiles.bytes[i] = bytes, tiles.rows[i] = rows;
  }
  tiles.configured = true;
  memset(tiles.data, 0, sizeof tiles.data);
}

static void must_exist(int t) {
  must(tiles.configured, "a tile before ldtilecfg or after tilerelease");
  must(t < 8 && tiles.rows[t] > 0, "a tile without rows");
}

static void move_tile(int t, uint8_t *at, int64_t stride, bool load) {
  must_exist(t);
  if (load) memset(tiles.data[t], 0, sizeof tiles.data[t]);
  for (int i = 0; i < tiles.rows[t]; i++) {
    if (load) memcpy(tiles.data[t][i], at + i * stride, tiles.bytes[t]);
    else memcpy(at + i * stride, tiles.data[t][i], tiles.bytes[t]);
  }
}

static float flush(float x) { return fpclassify(x) == FP_SUBNORMAL ? copysignf(0, x) : x; }
static float bf16_at(const uint8_t *row, int i) {
  uint16_t h;
  memcpy(&h, row + 2 * i, 2);
  return flush(zb_bf16_to_f32(h));
}

static void dot(int c, int a, int b) {
  must_exist(c), must_exist(a), must_exist(b);
  must(c != a && a != b && c != b, "the same tile twice");
  must(tiles.rows[c] == tiles.rows[a] && tiles.bytes[c] == tiles.bytes[b] &&
           tiles.bytes[a] == 4 * tiles.rows[b] && tiles.bytes[b] % 4 == 0,
       "tiles that do not fit each other");
  int n = tiles.bytes[c] / 4;
  for (int i = 0; i < tiles.rows[c]; i++) {
    float sum[16][2] = {0}, row[16];
    for (int k = 0; k < tiles.bytes[a] / 4; k++)
      for (int j = 0; j < n; j++)
        for (int h = 0; h < 2; h++)
          sum[j][h] = flush(
              fmaf(bf16_at(tiles.data[a][i], 2 * k + h), bf16_at(tiles.data[b][k], 2 * j + h), sum[j][h]));
    memcpy(row, tiles.data[c][i], sizeof row);
    for (int j = 0; j < n; j++) row[j] = flush(flush(row[j]) + flush(sum[j][0] + sum[j][1]));
    memset(tiles.data[c][i], 0, 64);
    memcpy(tiles.data[c][i], row, (size_t)n * 4);
  }
}

/* ---- instructions --------------------------------------------------------------------------------- */
typedef struct {
  const uint8_t *at;
  int pp, vvvv, opcode, mod, reg, rm;
  bool sib;
  int64_t base, index; /* of the operand in memory; base with displacement */
} Instruction;

static int64_t reg64(const ucontext_t *u, int r) {
  static const int slot[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                               REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
  return u->uc_mcontext.gregs[slot[r]];
}

/* Addressing by ModRM and SIB. Returns the first byte behind. */
static const uint8_t *decode_memory(Instruction *in, const ucontext_t *u, const uint8_t *p, int x, int b) {
  bool no_base = false, rip = false;
  int base = in->rm | b << 3;
  if (in->rm == 4) {
    int sib = *p++, index = (sib >> 3 & 7) | x << 3;
    in->sib = true;
    base = (sib & 7) | b << 3;
    no_base = (sib & 7) == 5 && in->mod == 0;
    in->index = index == 4 ? 0 : reg64(u, index) << (sib >> 6);
  } else if (in->rm == 5 && in->mod == 0) {
    rip = true;
  }
  int32_t disp = 0;
  if (in->mod == 1) disp = (int8_t)*p++;
  if (in->mod == 2 || no_base || rip) memcpy(&disp, p, 4), p += 4;
  in->base = disp + (rip ? (int64_t)p : no_base ? 0 : reg64(u, base));
  return p;
}

/* ud2, VEX.128.0F38.W0. Returns the address of the next instruction. */
static const uint8_t *decode(Instruction *in, const ucontext_t *u, const uint8_t *p) {
  must(p[0] == 0x0f && p[1] == 0x0b, "an instruction without ud2 before it");
  p += 2;
  must(p[0] == 0xc4 && (p[1] & 0x1f) == 2 && (p[2] & 0x84) == 0, "not an AMX instruction");
  int r = !(p[1] >> 7 & 1), x = !(p[1] >> 6 & 1), b = !(p[1] >> 5 & 1);
  *in = (Instruction){.at = p, .pp = p[2] & 3, .vvvv = ~p[2] >> 3 & 15, .opcode = p[3]};
  in->mod = p[4] >> 6;
  in->reg = (p[4] >> 3 & 7) | r << 3;
  in->rm = p[4] & 7;
  must(r == 0, "tile registers are eight");
  return in->mod == 3 ? p + 5 : decode_memory(in, u, p + 5, x, b);
}

enum { NONE, P66, PF3, PF2 };

static void execute(const Instruction *in) {
  bool memory = in->mod != 3;
  counts[in->opcode]++;
  if (in->opcode == 0x5c && in->pp == PF3 && !memory) {
    dot(in->reg, in->rm, in->vvvv);
    return;
  }
  must(in->vvvv == 0, "vvvv in use");
  if (in->opcode == 0x49 && in->pp == NONE && memory && in->reg == 0) {
    load_config((const uint8_t *)(in->base + in->index));
  } else if (in->opcode == 0x49 && in->pp == NONE && !memory && in->reg == 0 && in->rm == 0) {
    tiles.configured = false;
  } else if (in->opcode == 0x49 && in->pp == PF2 && !memory && in->rm == 0) {
    must_exist(in->reg);
    memset(tiles.data[in->reg], 0, sizeof tiles.data[0]);
  } else if (in->opcode == 0x4b && in->pp != NONE && memory) {
    must(in->sib, "a tile is loaded and stored by base and index");
    move_tile(in->reg, (uint8_t *)in->base, in->index, in->pp != PF3); /* 66: non-temporal */
  } else {
    must(false, "no such instruction");
  }
}

static void on_sigill(int sig, siginfo_t *info, void *context) {
  (void)sig, (void)info;
  ucontext_t *u = context;
  Instruction in;
  const uint8_t *next = decode(&in, u, (const uint8_t *)u->uc_mcontext.gregs[REG_RIP]);
  execute(&in);
  u->uc_mcontext.gregs[REG_RIP] = (greg_t)next;
}

static void emulate(void) {
  struct sigaction act = {.sa_sigaction = on_sigill, .sa_flags = SA_SIGINFO};
  cr_assert(sigaction(SIGILL, &act, NULL) == 0);
}

/* ---- tests ---------------------------------------------------------------------------------------- */

static const int64_t sizes[][3] = {{1, 1, 1},    {15, 17, 31},  {16, 16, 32},  {17, 15, 33},   {31, 33, 63},
                                   {32, 32, 64}, {33, 31, 2},   {63, 65, 96},  {65, 1, 97},    {1, 63, 128},
                                   {48, 64, 65}, {100, 40, 34}, {3, 33, 2050}, {40, 600, 160}, {64, 100, 1}};
#define SIZES ((int)(sizeof sizes / sizeof *sizes))

Test(bgemm_amx, emulated) {
  use_path("avx512"); /* packing needs it */
  ZkEnv alone = {0};  /* a pool's threads block signals */
  emulate();
  zk_bgemm_use(&emulated_amx);
  for (int i = 0; i < SIZES; i++)
    if (breadth_tries((size_t)i, 3)) exact_products(&alone, sizes[i][0], sizes[i][1], sizes[i][2]);
  cr_assert(counts[0x5c] > 1000 && counts[0x4b] > 1000 && counts[0x49] > 100, "other instructions ran");
  cr_assert(!tiles.configured, "tiles were not released");
}

Test(bgemm_amx, emulated_attention) {
  if (!at_night()) cr_skip_test("at night");
  use_path("avx512");
  ZkEnv alone = {0};
  emulate();
  zk_bgemm_use(&emulated_amx);
  attention_as_by_f32(&alone);
  cr_assert(counts[0x5c] > 1000, "other instructions ran");
}

Test(bgemm_amx, native) {
  use_path("amx");
  ZkEnv env = {.pool = zk_pool_new(3)};
  for (int i = 0; i < SIZES; i++) exact_products(&env, sizes[i][0], sizes[i][1], sizes[i][2]);
  zk_pool_free(env.pool);
}

#endif
