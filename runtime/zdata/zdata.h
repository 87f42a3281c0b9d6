/* zdata: the program that makes and inspects the files that zrun trains from. Their format is defined by exec/data
 * (data.h, DATA.md); this room knows where their contents come from.
 *
 * zdata.c     the options; then a file per command: pack.c, chat.c, import.c, tokenizer.c, records.c, table.c,
 *             decode.c, show.c, check.c
 *
 * Texts go through these files, one after the other, in chunks:
 *
 *   inputs.c     which files: those given, and those in folders
 *   content.c    the format of a given file, by its first bytes
 *   bytes.c      the bytes of a file, .gz and .zst decompressed
 *   documents.c  a file is a document, or each line of it is, by json.c
 *   encode.c     texts to tokens, by runtime/text and several threads; without a tokenizer, bytes are tokens
 *   sink.c       tokens into a data file, or several: split for validation, shards (folder.c)
 *
 * Conversations come from documents.c, too, as JSON; forms.c makes messages of them, runtime/text/template tokens and which of
 * these are learned, and chat.c puts both into the sink.
 *
 * progress.c shows progress, megatron.c reads the index of Megatron's files, and copy.c concatenates files of ids or
 * records. */
#ifndef ZUG_ZDATA_H
#define ZUG_ZDATA_H

#include "base/options.h"
#include "runtime/exec/data/data.h"
#include "runtime/text/template/template.h"

/* ---- commands ------------------------------------------------------------------------------------------ */
/* Options; NULL or 0 where nothing was given, but -1 for numbers that may be 0. */
typedef struct {
  const char **file;
  int nfile;
  const char *out, *field, *label, *label_field, *end, *tokenizer, *template, *names;
  ZbTexts fields; /* of records */
  enum { ZD_ASSISTANT = ZT_LEARN_ASSISTANT, ZD_LAST = ZT_LEARN_LAST, ZD_ALL = ZT_LEARN_ALL } loss;
  enum { ZD_FIT, ZD_EACH, ZD_PAIRS } windows;
  enum { ZD_TEXTS, ZD_TOKENS_U16, ZD_TOKENS_U32 } tokens;
  enum { ZD_GUESS, ZD_MEGATRON, ZD_LLMC, ZD_NANOGPT } format;
  int threads;
  int64_t vocab, shard_size, seed, from, count, document, start_id, end_id, seq;
  double split;
  bool jsonl, skip_bad, special_as_text, chat, apart, show_mask;
} ZdOptions;
#define ZD_NOT_GIVEN .seed = -1, .from = -1, .count = -1, .document = -1, .start_id = -1, .end_id = -1

/* Each prints what it made or found. False with a message; then no output is left. */
bool zd_pack(const ZdOptions *o, ZbArena *a, ZbErr *err);
bool zd_pack_chat(const ZdOptions *o, ZbArena *a, ZbErr *err); /* pack --chat */
bool zd_import(const ZdOptions *o, ZbArena *a, ZbErr *err);
bool zd_records(const ZdOptions *o, ZbArena *a, ZbErr *err);
bool zd_table(const ZdOptions *o, ZbArena *a, ZbErr *err);
bool zd_show(const ZdOptions *o, ZbArena *a, ZbErr *err);
bool zd_check(const ZdOptions *o, ZbArena *a, ZbErr *err);
bool zd_tokenizer(const ZdOptions *o, ZbArena *a, ZbErr *err);
bool zd_decode(const ZdOptions *o, ZbArena *a, ZbErr *err);

/* Reads a text that is a decimal number of at least `least`, and nothing else. */
bool zd_whole(const char *text, uint64_t least, uint64_t *out);

/* ---- which files are read (inputs.c) ------------------------------------------------------------------ */
typedef struct {
  ZbArena *a;
  const char **path;
  size_t n, skipped; /* skipped: in folders, what is no text */
  uint64_t bytes;    /* of all regular files, as they are stored */
} ZdFiles;
/* The files named by `o`, none of which may be o->out; and where `folders`, the text files in folders, by
 * name: those without a NUL among their first bytes, decompressed. */
bool zd_files(ZdFiles *fs, const ZdOptions *o, bool folders, ZbErr *err);
/* False, with the command that helps, if the named file is known to be no text, or (`text` false) no raw numbers: Parquet, NumPy,
 * UTF-16, a JSON array unless such `lists` are read. Notes what else is odd (content.c). */
bool zd_content_fits(const char *path, bool text, bool lists, ZbErr *err);

/* ---- their bytes (bytes.c) ----------------------------------------------------------------------------- */
typedef enum { ZD_PLAIN, ZD_GZIP, ZD_ZSTD } ZdPacking;
ZdPacking zd_packing(const char *path); /* by its ending: .gz, .zst */
bool zd_is_jsonl(const char *path);     /* .jsonl or .ndjson, before one of these */
typedef struct ZdBytes ZdBytes;
ZdBytes *zd_bytes_open(const char *path, ZbErr *err); /* a file or a pipe; NULL with a message */
ZdBytes *zd_bytes_of(FILE *f, const char *name, ZdPacking packing); /* f is closed with it */
void zd_bytes_close(ZdBytes *b);                                    /* NULL is allowed */
/* *n bytes into out[0..room), fewer than there is room for only at the end. False with a message: it cannot
 * be read, or is damaged or cut off. */
bool zd_bytes_read(ZdBytes *b, void *out, size_t room, size_t *n, ZbErr *err);
uint64_t zd_bytes_at(const ZdBytes *b); /* of the file so far, as it is stored */
const char *zd_bytes_name(const ZdBytes *b);

/* ---- JSON (json.c) ------------------------------------------------------------------------------------- */
/* The text of a field of the object that the line is; of several of that name, the last. A half of a
 * surrogate pair becomes U+FFFD and is added to *replaced; UTF-8 is not looked at. False: *why says what is
 * wrong. */
bool zd_json_field(const char *line, size_t n, const char *field, ZbText *text, uint64_t *replaced,
                   const char **why);

/* Lists the names of the object's fields, in quotes, with those marked that are texts; `text` is the first
 * of these, "": there is none. False: the line is no JSON object. */
bool zd_json_names(const char *line, size_t n, ZbText *list, ZbText *text);

/* ---- documents (documents.c) --------------------------------------------------------------------------- */
/* A text file is a document, and so is a line of JSON. A document comes in pieces, so that memory does not
 * grow with it: one of more than ZD_PIECE bytes is cut after a line, if there is one. A line of JSON is held
 * whole, and is bad if it is longer than ZD_LINE. */
enum { ZD_PIECE = 4 << 20, ZD_LINE = 64 << 20 };
typedef struct {
  const char *text; /* valid until the next one; may be empty where a document ends */
  size_t n;
  bool begins, ends; /* a document */
  bool json;         /* it is a value of JSON, which nobody has looked at */
} ZdPiece;
typedef struct {
  uint64_t documents, cut, empty; /* cut: those of several pieces; empty: left out, not among `documents` */
  uint64_t bad;                   /* lines that were left out */
  ZbErr first_bad;
  uint64_t replaced; /* halves of surrogate pairs */
  uint64_t bytes;    /* of the files read to their ends, as they are stored */
} ZdCounts;
typedef struct ZdReader ZdReader;
/* Of all files; jsonl: all are JSON lines. skip_bad: bad lines are counted; otherwise they are errors. `field` NULL:
 * documents are the lines themselves, or the items where a file is a list of JSON, and are never in pieces. */
ZdReader *zd_reader_new(const ZdFiles *files, const char *field, bool jsonl, bool skip_bad);
void zd_reader_free(ZdReader *r); /* NULL is allowed */
/* False: at the end, with err->text empty, or with a message. */
bool zd_reader_next(ZdReader *r, ZdPiece *p, ZbErr *err);
/* Counts the latest line as a bad one, or fails if such are not left out; says where it is. */
bool zd_reader_bad(ZdReader *r, const ZbErr *why, ZbErr *err);
const ZdCounts *zd_reader_counts(const ZdReader *r);
uint64_t zd_reader_at(const ZdReader *r); /* bytes of all files so far */
/* Goes on with b, which becomes the reader's. */
void zd_reader_take(ZdReader *r, ZdBytes *b, bool lines);

/* ---- tokens by a tokenizer (encode.c) ------------------------------------------------------------------ */
typedef struct ZdSink ZdSink;
typedef struct ZdEncoder ZdEncoder;
/* Into a sink of `elem`, u16 or u32, by 1 to ZD_THREADS threads; flags as zt_encode has them. What comes out
 * is the same with any number of threads. */
enum { ZD_THREADS = 1024 };
ZdEncoder *zd_encoder_new(const ZtTokenizer *t, unsigned flags, int threads, ZxDataElem elem, ZdSink *sink);
void zd_encoder_free(ZdEncoder *e); /* NULL is allowed */
/* Takes a copy of the piece; pieces before it may be written meanwhile. Each piece of a document is encoded
 * alone. */
bool zd_encode(ZdEncoder *e, const ZdPiece *p, ZbErr *err);
bool zd_encode_end(ZdEncoder *e, ZbErr *err);   /* all is in the sink then */
uint64_t zd_encoder_broken(const ZdEncoder *e); /* pieces that were no UTF-8 */

/* ---- conversations (forms.c) --------------------------------------------------------------------------- */
/* A line of conversations, whatever its form. */
typedef struct {
  struct cJSON *root;     /* the line, ... */
  struct cJSON *messages; /* ... and what it comes to; NULL: it is a text */
  struct cJSON *rejected; /* of a pair, the other answer's messages; else NULL */
  const struct cJSON *tools, *documents, *more;
  const char *text; /* all of which is learned */
  int from;         /* messages before this one are not learned */
} ZdTalk;
/* Where fields of a line have other names, by the names that they have here: see DATA.md. */
typedef struct ZdNames ZdNames;
ZdNames *zd_names(ZbArena *a, const char *text, ZbErr *err); /* of --fields, or NULL; NULL with a message */
/* Reads a line. False with a message; *t is to be freed in any case. */
bool zd_talk_read(ZdTalk *t, const ZdNames *names, const char *json, size_t n, ZbErr *err);
void zd_talk_free(ZdTalk *t);

/* ---- where tokens go (sink.c) -------------------------------------------------------------------------- */
#define ZD_NO_END UINT32_MAX
typedef struct {
  const char *path;
  ZxDataElem elem;
  uint64_t limit; /* ids are below it */
  uint32_t end;   /* is put after every document, or ZD_NO_END */
  double split;   /* the part of the documents that is for training; 0: all are */
  uint64_t seed;  /* of the split */
  uint64_t shard; /* bytes of tokens after which a shard ends; 0: no shards */
  bool unknown;   /* what is put as documents is none: files will know of none */
  ZxWindows windows;
} ZdTarget;
/* Sets split, seed and shard by --split, --seed and --shard-size. */
bool zd_target_options(ZdTarget *to, const ZdOptions *o, ZbErr *err);
/* A stream of tokens at path; with a split those of the documents for training and for validation, with
 * .train and .valid before path's ending; with shards, path is a folder of 00000.bin, 00001.bin ..., and with
 * both it has folders train and valid of these. NULL with a message. */
ZdSink *zd_sink_new(const ZdTarget *to, ZbErr *err);
/* n tokens of a document, each with a byte that says if it is learned where windows are of whole documents; one without any
 * leaves nothing. */
bool zd_sink_put(ZdSink *s, const void *tokens, size_t n, bool begins, bool ends, ZbErr *err);
void zd_sink_limit(ZdSink *s, uint64_t limit); /* that of files that are finished from now on */
uint64_t zd_sink_tokens(const ZdSink *s);
uint64_t zd_sink_documents(const ZdSink *s);
/* All files get their names, and what is in them is printed, without the last end of line. Failed, none has;
 * the sink is still to be abandoned, always. */
bool zd_sink_finish(ZdSink *s, ZbErr *err);
void zd_sink_abandon(ZdSink *s); /* NULL is allowed */

/* ---- tokens of others (import.c, megatron.c) ----------------------------------------------------------- */
/* How ids are stored. */
typedef enum { ZD_NO_IDS, ZD_U8, ZD_I8, ZD_U16, ZD_I16, ZD_U32, ZD_I32, ZD_I64 } ZdIds;
size_t zd_ids_bytes(ZdIds t);
/* A sequence of Megatron's. Documents have one or more, which follow each other. */
typedef struct {
  uint64_t at, n; /* from this byte of the tokens' file so many tokens, which it has */
  bool begins;    /* a document */
} ZdSequence;
typedef struct ZdMegatron ZdMegatron;
bool zd_is_megatron(const uint8_t *head, size_t n);
/* An index of `size` bytes, open as fd, which is closed with it; `bytes` are those of the tokens' file. NULL
 * with a message, fd is closed then. */
ZdMegatron *zd_megatron_new(int fd, const char *name, uint64_t size, uint64_t bytes, ZbErr *err);
void zd_megatron_free(ZdMegatron *m); /* NULL is allowed */
ZdIds zd_megatron_type(const ZdMegatron *m);
/* False: after the last, with err->text empty, or with a message. */
bool zd_megatron_next(ZdMegatron *m, ZdSequence *s, ZbErr *err);

/* ---- folders of files (folder.c) ----------------------------------------------------------------------- */
/* A folder that must not be there yet, or be empty; no slash ends its path. */
typedef struct ZdFolder ZdFolder;
ZdFolder *zd_folder_new(const char *path, ZbErr *err);
const char *zd_folder_path(const ZdFolder *f); /* where it is meanwhile */
const char *zd_folder_add(ZdFolder *f, const char *name,
                          ZbErr *err);          /* a folder within it: its path, or NULL with a message */
bool zd_folder_commit(ZdFolder *f, ZbErr *err); /* it has its name; f is gone, whatever the result */
void zd_folder_discard(ZdFolder *f);            /* with all that is in it; NULL is allowed */

/* ---- progress (progress.c) ----------------------------------------------------------------------------- */
/* On a terminal, at most twice a second: bytes read of all, tokens, time left. */
typedef struct {
  bool on;
  uint64_t total; /* bytes */
  double begun, next;
  bool shown;
} ZdProgress;
ZdProgress zd_progress_new(uint64_t total);
void zd_progress(ZdProgress *p, uint64_t done, uint64_t tokens);
void zd_progress_end(ZdProgress *p); /* the line is gone */

/* ---- copying ------------------------------------------------------------------------------------------- */
/* Makes o->out of what is in the files, whole tokens or records of `info`. vocab: 0, or what ids must be
 * below. */
bool zd_copy(const ZdOptions *o, ZdFiles *fs, ZxDataInfo *info, uint64_t vocab, ZbErr *err);

#endif
