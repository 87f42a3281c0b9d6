/* Blocks of ggml as f32: a block has a scale, which is f16, and codes; that of 256 has scales of its
 * parts, which are small integers. After the reader of ggml's own Python package (gguf/quants.py), which
 * says it in the fewest words. */
#include "runtime/exec/gguf/file.h"

#include <stdlib.h>

static float half(const uint8_t *at) {
  uint16_t h;
  memcpy(&h, at, 2);
  return zb_f16_to_f32(h);
}

/* ---- numbers as they are ---- */
static void f32(const uint8_t *b, float *out) { memcpy(out, b, sizeof *out); }
static void f16(const uint8_t *b, float *out) { *out = half(b); }
static void bf16(const uint8_t *b, float *out) {
  uint16_t h;
  memcpy(&h, b, 2);
  *out = zb_bf16_to_f32(h);
}

/* ---- blocks of 32: halves of the block are in halves of bytes ---- */
static void q4_0(const uint8_t *b, float *out) {
  float d = half(b);
  for (int i = 0; i < 16; i++) {
    out[i] = d * (float)((b[2 + i] & 15) - 8);
    out[16 + i] = d * (float)((b[2 + i] >> 4) - 8);
  }
}

static void q4_1(const uint8_t *b, float *out) {
  float d = half(b), m = half(b + 2);
  for (int i = 0; i < 16; i++) {
    out[i] = d * (float)(b[4 + i] & 15) + m;
    out[16 + i] = d * (float)(b[4 + i] >> 4) + m;
  }
}

/* Unpacks 32 codes of 5 bits: of each the last four, and one of `high`. */
static void five(const uint8_t *high, const uint8_t *low, int out[32]) {
  uint32_t h;
  memcpy(&h, high, 4);
  for (int i = 0; i < 16; i++) {
    out[i] = (low[i] & 15) | (int)(h >> i & 1) << 4;
    out[16 + i] = low[i] >> 4 | (int)(h >> (16 + i) & 1) << 4;
  }
}

static void q5_0(const uint8_t *b, float *out) {
  float d = half(b);
  int q[32];
  five(b + 2, b + 6, q);
  for (int i = 0; i < 32; i++) out[i] = d * (float)(q[i] - 16);
}

static void q5_1(const uint8_t *b, float *out) {
  float d = half(b), m = half(b + 2);
  int q[32];
  five(b + 4, b + 8, q);
  for (int i = 0; i < 32; i++) out[i] = d * (float)q[i] + m;
}

static void q8_0(const uint8_t *b, float *out) {
  float d = half(b);
  for (int i = 0; i < 32; i++) out[i] = d * (float)(int8_t)b[2 + i];
}

/* ---- blocks of 256, in parts of 16 or 32 ---- */
/* Unpacks scales and minima of 8 parts, 6 bits each, of 12 bytes: the last four parts' are of halves of a
 * byte and what is left of the first eight. */
static void scales_6(const uint8_t *b, int scale[8], int least[8]) {
  for (int i = 0; i < 4; i++) {
    scale[i] = b[i] & 63;
    least[i] = b[4 + i] & 63;
    scale[4 + i] = (b[8 + i] & 15) | (b[i] >> 6) << 4;
    least[4 + i] = b[8 + i] >> 4 | (b[4 + i] >> 6) << 4;
  }
}

/* 2 bits: bytes 0 to 31 of a half have its four parts of 32, one above the other. */
static int two(const uint8_t *b, int i) { return b[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3; }

static void q2_k(const uint8_t *b, float *out) {
  float d = half(b + 80), m = half(b + 82);
  for (int i = 0; i < 256; i++)
    out[i] = d * (float)(b[i / 16] & 15) * (float)two(b + 16, i) - m * (float)(b[i / 16] >> 4);
}

static void q3_k(const uint8_t *b, float *out) {
  float d = half(b + 108);
  const uint8_t *scales = b + 96;
  for (int i = 0; i < 256; i++) {
    int part = i / 16, low = scales[part % 8] >> (part / 8 * 4) & 15,
        high = scales[8 + part % 4] >> (part / 4 * 2) & 3;
    int q = two(b + 32, i) - (b[i % 32] >> (i / 32) & 1 ? 0 : 4);
    out[i] = d * (float)((low | high << 4) - 32) * (float)q;
  }
}

static void q4_k(const uint8_t *b, float *out) {
  float d = half(b), m = half(b + 2);
  int scale[8], least[8];
  scales_6(b + 4, scale, least);
  for (int i = 0; i < 256; i++) {
    int part = i / 32, q = b[16 + i / 64 * 32 + i % 32] >> (part % 2 * 4) & 15;
    out[i] = d * (float)scale[part] * (float)q - m * (float)least[part];
  }
}

static void q5_k(const uint8_t *b, float *out) {
  float d = half(b), m = half(b + 2);
  int scale[8], least[8];
  scales_6(b + 4, scale, least);
  for (int i = 0; i < 256; i++) {
    int part = i / 32, low = b[48 + i / 64 * 32 + i % 32] >> (part % 2 * 4) & 15,
        high = b[16 + i % 32] >> part & 1;
    out[i] = d * (float)scale[part] * (float)(low | high << 4) - m * (float)least[part];
  }
}

static void q6_k(const uint8_t *b, float *out) {
  float d = half(b + 208);
  for (int i = 0; i < 256; i++) {
    int h = i / 128, k = i % 128 / 32, low = b[h * 64 + i % 64] >> (k / 2 * 4) & 15,
        high = b[128 + h * 32 + i % 32] >> (2 * k) & 3;
    out[i] = d * (float)(int8_t)b[192 + i / 16] * (float)((low | high << 4) - 32);
  }
}

/* ---- codes of a table ---- */
static const int8_t uneven[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

static void uneven_32(float d, const uint8_t *b, float *out) {
  for (int i = 0; i < 16; i++) {
    out[i] = d * (float)uneven[b[i] & 15];
    out[16 + i] = d * (float)uneven[b[i] >> 4];
  }
}

static void iq4_nl(const uint8_t *b, float *out) { uneven_32(half(b), b + 2, out); }

static void iq4_xs(const uint8_t *b, float *out) {
  float d = half(b);
  int high = b[2] | b[3] << 8;
  for (int i = 0; i < 8; i++) {
    int scale = (b[4 + i / 2] >> (i % 2 * 4) & 15) | (high >> (2 * i) & 3) << 4;
    uneven_32(d * (float)(scale - 32), b + 8 + 16 * i, out + 32 * i);
  }
}

/* ---- which there are ---- */
static const ZxFormat formats[] = {
    {"F32", 0, 1, 4, f32},
    {"F16", 1, 1, 2, f16},
    {"BF16", 30, 1, 2, bf16},
    {"Q4_0", 2, 32, 18, q4_0},
    {"Q4_1", 3, 32, 20, q4_1},
    {"Q5_0", 6, 32, 22, q5_0},
    {"Q5_1", 7, 32, 24, q5_1},
    {"Q8_0", 8, 32, 34, q8_0},
    {"Q2_K", 10, 256, 84, q2_k},
    {"Q3_K", 11, 256, 110, q3_k},
    {"Q4_K", 12, 256, 144, q4_k},
    {"Q5_K", 13, 256, 176, q5_k},
    {"Q6_K", 14, 256, 210, q6_k},
    {"IQ4_NL", 20, 32, 18, iq4_nl},
    {"IQ4_XS", 23, 256, 136, iq4_xs},
    /* known by name alone */
    {"Q8_1", 9, 1, 0, NULL},
    {"Q8_K", 15, 1, 0, NULL},
    {"IQ2_XXS", 16, 1, 0, NULL},
    {"IQ2_XS", 17, 1, 0, NULL},
    {"IQ3_XXS", 18, 1, 0, NULL},
    {"IQ1_S", 19, 1, 0, NULL},
    {"IQ3_S", 21, 1, 0, NULL},
    {"IQ2_S", 22, 1, 0, NULL},
    {"I8", 24, 1, 0, NULL},
    {"I16", 25, 1, 0, NULL},
    {"I32", 26, 1, 0, NULL},
    {"I64", 27, 1, 0, NULL},
    {"F64", 28, 1, 0, NULL},
    {"IQ1_M", 29, 1, 0, NULL},
    {"TQ1_0", 34, 1, 0, NULL},
    {"TQ2_0", 35, 1, 0, NULL},
    {"MXFP4", 39, 1, 0, NULL},
};
enum { FORMATS = sizeof formats / sizeof *formats };

const ZxFormat *zx_gguf_format(uint32_t number) {
  for (int i = 0; i < FORMATS; i++)
    if (formats[i].number == number) return &formats[i];
  return NULL;
}

const char *zx_gguf_formats(ZbArena *a) {
  const char *list = "";
  for (int i = 0; i < FORMATS; i++)
    if (formats[i].decode) list = zb_printf(a, "%s%s%s", list, *list ? ", " : "", formats[i].name);
  return list;
}
