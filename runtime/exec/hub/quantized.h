/* Private to hub: what readers of quantized weights share. Each has two functions: one reads and judges
 * quantization_config, the other looks whether a tensor of the files is the main one of a quantized
 * weight, and makes that of it and of what lies beside.
 *
 * taking.c              what they share
 * awq_gptq.c            words of 4 (2, 8) bits, which lie with rows and columns exchanged
 * compressed_tensors.c  what the tools of vLLM write: words, int8, f8
 * floats.c              f8 with scales of blocks (DeepSeek-V3), of channels, of a tensor; MXFP4 (gpt-oss)
 * bitsandbytes.c        int8 of rows; 4 bits by a table, whose scales may be quantized again */
#ifndef ZUG_EXEC_QUANTIZED_H
#define ZUG_EXEC_QUANTIZED_H

#include "runtime/exec/hub/coded.h"

#include <cjson/cJSON.h>

/* A tensor of the files as it is. */
typedef struct {
  uint32_t number; /* among names of all files; ZB_NO_NAME: it is not there */
  const ZxWeights *file;
  int64_t tensor;
  ZxTensorInfo info;
  const char *dtype;
} ZxRaw;

/* How the weights of a scheme are quantized. */
typedef struct {
  int bits;
  bool real;            /* f8, and not integers */
  bool symmetric;       /* there are no zero points */
  bool even;            /* symmetric by zero points, which are all the middle */
  int less;             /* what zero points in the file are short of */
  bool ordered;         /* columns are in order of activation */
  int64_t down, across; /* elements of a column, of a row that share a scale; 0: all */
} ZxScheme;

/* Values of codes: bytes with a sign; bytes from -128 as 0 on; f8 of two kinds; 4 bits of MXFP4. */
typedef enum { ZX_SIGNED8, ZX_ABOVE8, ZX_E4M3, ZX_E5M2, ZX_E2M1, ZX_VALUES } ZxValues;

typedef struct {
  ZxShards *s; /* with names as they are in the files */
  ZbArena *a;
  const char *file;    /* the config's path */
  const cJSON *config; /* quantization_config */
  const char *method;
  ZxScheme *scheme; /* at least one */
  uint32_t nschemes;
  bool *used; /* tensors that are part of what was taken */
  ZbNames names;
  const ZxCoded **coded; /* what was taken, by number of its name */
  const float *values[ZX_VALUES];
  ZbErr *err;
} ZxTaking;

/* Reads quantization_config. False with a message. */
typedef bool ZxTakeConfig(ZxTaking *x);
/* Sees tensor `main`. True if it is nothing of this kind, or was taken; false with a message. */
typedef bool ZxTakeOne(ZxTaking *x, const ZxRaw *main);
ZxTakeConfig zx_awq_config, zx_gptq_config, zx_ct_config, zx_fp8_config, zx_mxfp4_config, zx_bnb_config;
ZxTakeOne zx_awq_take, zx_gptq_take, zx_ct_take, zx_fp8_take, zx_mxfp4_take, zx_bnb_take;

/* ---- of the config: what it says for a key, or `usual` where the key is not there or null ---- */
int64_t zx_config_whole(const cJSON *x, const char *key, int64_t usual);
bool zx_config_flag(const cJSON *x, const char *key, bool usual);
const char *zx_config_text(const cJSON *x, const char *key, const char *usual);
/* Reads two numbers from 1 on, [128, 128]. False with a message. */
bool zx_config_pair(ZxTaking *x, const cJSON *of, const char *key, int64_t *first, int64_t *second);
/* Refuses what it says for a key: "bits 3"; `can` says what can be read. Returns false. */
bool zx_cannot(ZxTaking *x, const char *key, const char *value, const char *can);
bool zx_cannot_whole(ZxTaking *x, const char *key, int64_t value, const char *can);
void zx_scheme_add(ZxTaking *x, ZxScheme s);

/* ---- of the tensors ---- */
/* Returns the name without `end`; NULL: it does not end so. */
const char *zx_without(ZxTaking *x, const char *name, const char *end);
ZxRaw zx_raw(ZxTaking *x, uint32_t number);
/* Finds a tensor; one that must be there is missed with a message. */
ZxRaw zx_raw_find(ZxTaking *x, const char *prefix, const char *end);
bool zx_raw_need(ZxTaking *x, const char *prefix, const char *end, ZxRaw *out);
/* Says whether it has one of the types ("F16 BF16 F32") and the shape. False with a message. */
bool zx_raw_is(ZxTaking *x, const ZxRaw *r, const char *types, int naxes, int64_t d0, int64_t d1);
/* The same for types alone, and any matrix. */
bool zx_raw_matrix(ZxTaking *x, const ZxRaw *r, const char *types);
extern const char zx_factor_types[];
/* Says whether n codes fit `each` to a word. False with a message. */
bool zx_whole_words(ZxTaking *x, const ZxRaw *r, int64_t n, int each);
/* Returns how many groups of `each` n elements are; 0: one has all. */
static inline int64_t zx_groups(int64_t n, int64_t each) { return each ? (n + each - 1) / each : 1; }
/* Return packed numbers of a tensor, and factors. */
ZxPacked zx_packed(const ZxRaw *r, int64_t cols, int bits, int each, bool down);
ZxFactors zx_factors(const ZxRaw *r, int64_t cols);
/* Says whether 4-byte integers of a tensor are those of a rule; *same. False with a message if they cannot be
 * read. */
typedef uint32_t ZxRule(const void *ctx, uint64_t i);
bool zx_raw_follows(ZxTaking *x, const ZxRaw *r, ZxRule *rule, const void *ctx, bool *same);
/* Takes a weight, which the model calls prefix + end. False with a message: that is there, too, or the
 * config says that it is not quantized. */
bool zx_take(ZxTaking *x, const char *prefix, const char *end, ZxCoded c);
/* Marks a tensor as part of what was taken; of one that is not there nothing. */
void zx_uses(ZxTaking *x, const ZxRaw *r);
/* Returns the 256 values. */
const float *zx_values(ZxTaking *x, ZxValues of);
static inline ZxValues zx_f8_of(const char *dtype) { return strcmp(dtype, "F8_E5M2") ? ZX_E4M3 : ZX_E5M2; }

#endif
