/* data: token and record files, which hold what a model is trained with. The format is described in DATA.md.
 *
 * read.c      a file's samples, in any order; nothing in it is trusted
 * windows.c   samples of whole documents, such as conversations: which share a window, and what is learned
 * shards.c    a folder of files that is read as one
 * mix.c       several files, mixed by weights: mix.h has what it is made of, shares.c and turns.c
 * write.c     makes one
 *
 * The program that makes them of texts, tables and others is runtime/zdata.
 * The engine asks a mix for parts of samples; zdata, tests and facts.c also see files as bytes. */
#ifndef ZUG_EXEC_DATA_H
#define ZUG_EXEC_DATA_H

#include "base/base.h"

/* ---- samples ------------------------------------------------------------------------------------------- */
/* A token file: a header and either one stream of tokens or fixed-size records with named fields (for models
 * that are not language models). Never read whole; sizes are checked against the file's own. By one thread at
 * a time. */
typedef struct ZxData ZxData;
typedef enum { ZX_ORDER_SHUFFLED, ZX_ORDER_SEQUENTIAL } ZxOrder;
ZxData *zx_data_open(const char *path,
                     ZbErr *err); /* a file, or a folder of files ending in .bin, in the order of names */
void zx_data_close(ZxData *d);
const char *zx_data_name(const ZxData *d);              /* for messages */
uint64_t zx_data_tokens(const ZxData *d);               /* 0 for records */
uint64_t zx_data_samples(const ZxData *d, int64_t seq); /* windows of seq tokens (stream), or records */
/* Lays whole documents into windows of seq tokens, and is called once before samples are read of data whose windows
 * have such (ZxWindows). `apart`: the model keeps those that share a window apart (its input `doc`); without, a window
 * has one. Other data it leaves alone. False with a message: a document is longer than a window. */
bool zx_data_arrange(ZxData *d, int64_t seq, bool apart, ZbErr *err);
/* Returns how full these windows are; all 0 of other data. */
typedef struct {
  uint64_t documents, windows;
  double padding; /* the part of all positions that no document has */
} ZxFilled;
ZxFilled zx_data_filled(const ZxData *d);
/* One field of samples. For a stream: field "tokens" is window[s0 .. s0+ns), "targets" the same shifted by
 * one; ids as i32; "doc" and "place" its documents, counted within the window, and positions in them. For
 * records: field by name, floats for real fields, i32 for index fields. Sample g, a
 * global position 0, 1, 2, ..., is the g-th window in order, or the g-th of a permutation that is a pure
 * function of (seed, epoch): the same in every layout. Fills out[ns values] for the part s0..s0+ns of the
 * sample's `seq` values. A value outside [-1, limit) is an error that names file, position and value. limit <
 * 0: real field; ZX_ANY_I32: whole numbers, which select nothing. */
#define ZX_ANY_I32 INT64_MAX
typedef struct {
  const ZxData *data;
  ZxOrder order;
  uint64_t seed;
  int64_t seq; /* values per sample: the product of the field's axes without batch */
} ZxSampler;
/* Which window, or record, of the file sample g is. */
uint64_t zx_data_place(const ZxSampler *s, uint64_t g);
/* Whether `field` exists and holds `seq` values per sample (records) or can (stream), with a helpful
 * message. */
bool zx_data_check_field(const ZxData *d, const char *field, bool index, int64_t seq, ZbErr *err);
/* Whether the field's ids are below `limit`, as far as headers know: a file that nobody knows it of is taken. */
bool zx_data_check_ids(const ZxData *d, const char *field, int64_t limit, ZbErr *err);
bool zx_data_read(const ZxSampler *s, const char *field, uint64_t g, int64_t s0, int64_t ns, int64_t limit,
                  void *out, ZbErr *err);

/* ---- several files ------------------------------------------------------------------------------------- */
/* What a run is trained with: a file, or several of one kind by weights. Which file gives the sample at a
 * global position, and which of the file's samples that is, are pure functions of the position: see DATA.md. */
enum {
  ZX_MIX_FILES = 256,
  ZX_MIX_PERIOD = 1 << 16 /* samples after which turns are the same again, at most */
};
typedef struct ZxMix ZxMix;
/* "A.bin", or "A.bin:0.7,B.bin:0.3". NULL with a message: the text, a file, or files that do not go
 * together. */
ZxMix *zx_mix_open(const char *text, ZbErr *err);
ZxMix *zx_mix_one(ZxData *d); /* of one file, which is closed with it */
void zx_mix_close(ZxMix *m);  /* NULL is allowed */
uint32_t zx_mix_files(const ZxMix *m);
const ZxData *zx_mix_file(const ZxMix *m, uint32_t i);
const char *zx_mix_path(const ZxMix *m, uint32_t i);
/* File i gives `share` of `period` samples; rounded: that is not quite what the weights say. */
uint32_t zx_mix_share(const ZxMix *m, uint32_t i);
uint32_t zx_mix_period(const ZxMix *m);
bool zx_mix_rounded(const ZxMix *m);
/* Of the shares and of all that the files' headers say, their data's checksums among it: runs with the same
 * have the same samples at the same positions. */
uint64_t zx_mix_digest(const ZxMix *m);
/* As zx_data_arrange, of all files. */
bool zx_mix_arrange(ZxMix *m, int64_t seq, bool apart, ZbErr *err);
/* As zx_data_check_field, of all files. */
bool zx_mix_check_field(const ZxMix *m, const char *field, bool index, int64_t seq, ZbErr *err);
bool zx_mix_check_ids(const ZxMix *m, const char *field, int64_t limit, ZbErr *err);
/* Global sample g is sample *nth of this sampler, for zx_data_read. */
ZxSampler zx_mix_sampler(const ZxMix *m, ZxOrder order, uint64_t seed, int64_t seq, uint64_t g,
                         uint64_t *nth);
/* How many samples at positions below g are of file i. */
uint64_t zx_mix_before(const ZxMix *m, uint32_t i, uint64_t g);

/* ---- files as bytes ------------------------------------------------------------------------------------ */
enum {
  ZX_DATA_HEAD = 64, /* bytes of the header, and of an entry of the field table after it */
  ZX_DATA_NAME = 40, /* bytes of a field's name, the NUL included */
  ZX_DATA_MAX_FIELDS = 1024,
  ZX_DATA_SHARDS = 1000, /* files of a folder that is data */
  ZX_DATA_VERSION = 3    /* of files with windows of their own; others are as versions 1 and 2 have them */
};
/* How samples are made of a stream, and what its file has beside the tokens. Windows of whole documents have
 * `learned`: 1 where a token is asked for, 0 where it is only read. */
#define ZX_WINDOWS(X)                                                                                        \
  X(CUT, false, "windows of any seq tokens, one behind the other")                                           \
  X(APART, false, "the same; no document asks for the first token of the next")                              \
  X(FIT, true, "whole documents, as many as fit in a window")                                                \
  X(EACH, true, "whole documents, one a window")                                                             \
  X(PAIRS, true, "pairs of whole documents, one behind the other in the halves of a window")
#define X(name, whole, text) ZX_WINDOWS_##name,
typedef enum { ZX_WINDOWS(X) ZX_WINDOWS_KINDS } ZxWindows;
#undef X
bool zx_windows_whole(ZxWindows w);       /* documents are not cut, and some tokens may not be learned */
const char *zx_windows_text(ZxWindows w); /* what it says above */
typedef enum { ZX_DATA_U8, ZX_DATA_U16, ZX_DATA_U32, ZX_DATA_I32, ZX_DATA_F32, ZX_DATA_ELEMS } ZxDataElem;
size_t zx_data_elem_bytes(ZxDataElem e);
const char *zx_data_elem_name(ZxDataElem e); /* "u16" */
/* ZX_DATA_ELEMS if there is none of this name. */
ZxDataElem zx_data_elem_of(const char *name);

typedef struct {
  char name[ZX_DATA_NAME];
  ZxDataElem elem;
  uint64_t values;  /* per record; 1 in a stream */
  uint64_t limit;   /* ids are below this; 0: not ids, or not known */
  uint32_t largest; /* of a stream, largest id + 1; 0: not known */
  uint64_t at;      /* byte offset within the record; derived */
} ZxDataField;

typedef struct {
  bool stream;       /* a field "tokens" with one value per record, and perhaps "learned"; nothing padded */
  ZxWindows windows; /* of a stream */
  uint64_t count;    /* tokens, or records */
  uint64_t record_bytes; /* derived from the fields */
  uint64_t data_at;      /* derived */
  uint64_t data_sum;     /* XXH3 of all records */
  uint64_t documents;    /* in a stream: how many it knows the beginnings of; 0: none */
  uint64_t begin_sum;    /* XXH3 of those beginnings, 0 without; behind them in the file, not in its header */
  uint32_t nfield;
  ZxDataField *field;
} ZxDataInfo;

/* Fills in what is derived (`at`, record_bytes, data_at); false with a message when names or sizes are
 * impossible. */
bool zx_data_layout(ZxDataInfo *info, ZbErr *err);

/* Of a folder: what its files say together; `documents` is 0 if one of them does not know its own. */
const ZxDataInfo *zx_data_info(const ZxData *d);
/* The files of a folder, by name; of a file, itself. */
uint32_t zx_data_files(const ZxData *d);
const ZxData *zx_data_file(const ZxData *d, uint32_t i);
const char *zx_data_path(const ZxData *d); /* as it was opened */
/* Whether two have samples of one kind: both streams of one type, or records with the same fields. */
bool zx_data_alike(const ZxData *one, const ZxData *two, ZbErr *err);
uint64_t zx_data_bytes(const ZxData *d); /* of the whole file */
/* A file's bytes that are in memory already, and stay there until the data is closed. */
ZxData *zx_data_of_bytes(const void *bytes, uint64_t n, const char *name, ZbErr *err);
/* n bytes from byte `at` of the records, of a folder as if they were joined. */
bool zx_data_get(const ZxData *d, uint64_t at, uint64_t n, void *out, ZbErr *err);
bool zx_data_is_one(const uint8_t *head, size_t n); /* whether a file that begins so is a token file */
/* Document i of info->documents is tokens *first to *end - 1. False with a message: it cannot be read, or is
 * damaged. */
bool zx_data_document(const ZxData *d, uint64_t i, uint64_t *first, uint64_t *end, ZbErr *err);
/* Reads all records and beginnings of documents once and compares their checksums. */
bool zx_data_verify(const ZxData *d, ZbErr *err);

/* The i-th of a permutation of 0..n-1, chosen by seed and epoch. */
uint64_t zx_data_permute(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t i);

/* ---- writing ------------------------------------------------------------------------------------------- */
/* PATH is there when finished; abandoned or failed, nothing is left, and what was there stays. An existing
 * PATH that is no token file is not replaced. */
typedef struct ZxDataWriter ZxDataWriter;
ZxDataWriter *zx_data_create(const char *path, const ZxDataInfo *info,
                             ZbErr *err); /* info->count is not read */
bool zx_data_put(ZxDataWriter *w, const void *bytes, size_t n, ZbErr *err);
/* The next token begins a document; at least one is put into each. The first begins with the stream. A file
 * with a single one is as one that knows of none. */
bool zx_data_begin_document(ZxDataWriter *w, ZbErr *err);
/* Writes what is known only at the end, before zx_data_commit, which gives the file its name: several files
 * are sealed before the first is committed. `limit`: one a field. */
bool zx_data_seal(ZxDataWriter *w, const uint64_t *limit, ZbErr *err);
bool zx_data_commit(ZxDataWriter *w, ZbErr *err); /* the writer is gone afterwards, whatever the result */
/* Both. The writer is gone afterwards, whatever the result. */
bool zx_data_finish(ZxDataWriter *w, const uint64_t *limit, ZbErr *err);
void zx_data_abandon(ZxDataWriter *w); /* NULL is allowed */

/* The header and field table of `info`, data_at bytes. */
void zx_data_encode(const ZxDataInfo *info, uint8_t *out);
/* The checksum that belongs at the end of the header `p`, which a field table of nfield entries follows. */
uint64_t zx_data_head_sum(const uint8_t *p, uint32_t nfield);

#endif
