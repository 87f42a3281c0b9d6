/* Private to hub: tensors whose values lie in files as codes, which are numbers only together with scales. */
#ifndef ZUG_EXEC_CODED_H
#define ZUG_EXEC_CODED_H

#include "runtime/exec/hub/hub.h"

/* A matrix of small numbers, row after row, several of them in a word: beside each other, or below. */
typedef struct {
  const ZxWeights *file; /* NULL: there is none */
  int64_t tensor;
  int64_t cols;      /* numbers of a row */
  int bits, each;    /* of a number; numbers of a word, which has bits * each bits */
  bool down;         /* a word has numbers of `each` rows */
  uint8_t place[16]; /* number i of a word lies at bit place[i] * bits */
} ZxPacked;

/* Factors of a matrix. */
typedef struct {
  const ZxWeights *file;
  int64_t tensor, cols;
  const ZxCoded *coded; /* in place of the file: they are codes themselves */
  bool powers;          /* a byte e is 2^(e - 127): E8M0 of the OCP's microscaling formats (2023) */
  float times, plus;    /* what the file has, times `times`, and then `plus` */
} ZxFactors;

/* Element [r, c] of the matrix that lies in the file is
 *
 *   factor[r / down, c / across] * (value(code[r, c]) - zero[r / down, c / across])
 */
struct ZxCoded {
  ZxTensorInfo info; /* as a model sees it */
  const char *kind;  /* what it is, for people: "int4 of AWQ, groups of 128" */
  bool turned;       /* the last two axes lie in the file the other way around */
  int64_t rows, cols;
  ZxPacked code;
  const float *value; /* of each code; NULL: it is the number itself */
  int64_t down, across;
  ZxFactors factor;
  ZxPacked zero;
  int none, more; /* without `zero`: what stands for 0; with it: what its numbers are short of */
  bool uneven;    /* with `zero`: they are not all the middle of what codes can be */
};

/* Memory of a reader, which goes on where it was. Starts with zeros. */
typedef struct {
  void *at;
  size_t room;
  int64_t row, rows, first, n; /* what is there: words first .. first + n of `rows` rows of words */
} ZxSeen;
typedef struct {
  ZxSeen code, zero, factor;
} ZxDecoder;
void zx_decoder_free(ZxDecoder *d);
/* Reads n elements from flat element `at`, in the order of the file, to f32. */
bool zx_coded_read(const ZxCoded *c, ZxDecoder *d, uint64_t at, uint64_t n, float *out, ZbErr *err);
/* Makes of a box of the tensor as a model sees it that of the tensor as it lies. No axis of it crosses
 * rows. */
void zx_coded_turn(const ZxCoded *c, ZxBox *b);

/* ---- shards.c ------------------------------------------------------------------------------------------ */
/* Reads n elements of a tensor from flat element `at`, in the order in which they lie. */
bool zx_shards_read(const ZxShards *s, uint32_t tensor, ZxDecoder *d, uint64_t at, uint64_t n, float *out,
                    ZbErr *err);

/* ---- quantized.c --------------------------------------------------------------------------------------- */
/* Puts in place of codes, scales and zero points what a model has: one tensor. It is done as the
 * quantization_config of the config.json beside says; without one nothing changes. False with a message:
 * it is of a kind that cannot be read, or the tensors are not what it says. */
bool zx_quantized_open(ZxShards *s, ZbArena *a, ZbErr *err);

#endif
