/* What the files of text share. */
#ifndef ZUG_TEXT_ROOM_H
#define ZUG_TEXT_ROOM_H

#include "runtime/text/text.h"

#include <string.h>

/* ---- bytes by name (strings.c) ------------------------------------------------------------------ */
/* Strings to numbers: open addressing, at most half full. The strings are not copied. */
typedef struct {
  const char *s;
  uint32_t n, value;
} ZtEntry;
typedef struct {
  ZtEntry *slot;
  uint32_t mask, count;
} ZtTable;
void zt_table_init(ZbArena *a, ZtTable *t, uint32_t entries); /* room for so many */
/* Adds one; false if it is there already, which it then stays. */
bool zt_table_add(ZtTable *t, const char *s, size_t n, uint32_t value);
uint32_t zt_table_find(const ZtTable *t, const char *s, size_t n); /* ZT_NONE: not there */
uint64_t zt_hash(const char *s, size_t n);

/* Strings by prefix, a node a byte. Node 0 is the root. */
typedef struct {
  uint64_t *key; /* node << 8 | byte, + 1; 0: free */
  uint32_t *child, mask, nodes;
  uint32_t *value; /* of a node: of the string that ends there, or ZT_NONE */
} ZtTrie;
/* Room for strings of so many bytes together. False with a message if that is too much. */
bool zt_trie_init(ZbArena *a, ZtTrie *t, uint64_t bytes, ZbErr *err);
void zt_trie_add(ZtTrie *t, const char *s, size_t n, uint32_t value); /* the first value of a string stays */
/* The node after `byte`, or 0: there is none. */
static inline uint32_t zt_trie_step(const ZtTrie *t, uint32_t node, uint8_t byte) {
  uint64_t key = ((uint64_t)node << 8 | byte) + 1;
  for (uint32_t i = (uint32_t)(key * 0x9e3779b97f4a7c15ull >> 32) & t->mask;; i = (i + 1) & t->mask) {
    if (t->key[i] == key) return t->child[i];
    if (!t->key[i]) return 0;
  }
}

/* Growing arrays of scratch: room for `more` elements after n; keeps *cap. */
void *zt_room(void *p, size_t n, size_t more, size_t size, size_t *cap);
static inline void zt_push(ZtIds *ids, uint32_t id) {
  if (ids->n == ids->cap) ids->id = zt_room(ids->id, ids->n, 1, sizeof *ids->id, &ids->cap);
  ids->id[ids->n++] = id;
}

/* ---- characters (utf8.c, unicode.c, nf.c) --------------------------------------------------------- */
/* The character at s, which is valid UTF-8, and its bytes. */
uint32_t zt_char(const char *s, size_t *bytes);
static inline size_t zt_char_bytes(uint8_t first) {
  return first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}
void zt_text_char(ZbText *t, uint32_t c);
size_t zt_char_before(const char *s, size_t at); /* where the character begins that ends at `at` > 0 */
void zt_utf8_repair(const char *s, size_t n, ZbText *out);
/* Counts the bytes at the end of s[0..n) that begin a character that is not whole: 0 to 3. */
size_t zt_utf8_open(const char *s, size_t n);
bool zt_starts(const char *s, size_t n, const char *with, size_t with_n);

/* Sets of characters, by their names in unicode.txt. */
/* clang-format off */
#define ZT_SCRIPTS(X) \
  X(Arabic) X(Armenian) X(Bengali) X(Bopomofo) X(Cyrillic) X(Devanagari) X(Ethiopic) X(Georgian) \
  X(Greek) X(Gujarati) X(Gurmukhi) X(Han) X(Hangul) X(Hebrew) X(Hiragana) X(Kannada) X(Katakana) \
  X(Khmer) X(Lao) X(Latin) X(Malayalam) X(Mongolian) X(Myanmar) X(Oriya) X(Sinhala) X(Tamil) X(Telugu) \
  X(Thai) X(Tibetan)
#define ZT_SETS(X) \
  X(white_space) X(numeric) X(punctuation) X(word) X(accent) X(bert_removed) X(bert_nonspacing) \
  X(newer_L) X(newer_N) X(newer_M) X(newer_Lu) X(newer_Ll) X(newer_Lm) X(newer_Lo) X(newer_P) X(newer_S) \
  X(newer_Nd) X(newer_w) X(alpha) X(upper) X(lower) X(graph) X(word_in_class) X(decimal) \
  ZT_SCRIPTS(X)
/* clang-format on */
typedef enum {
#define X(name) ZT_SET_##name,
  ZT_SETS(X)
#undef X
      ZT_NSETS
} ZtSet;
bool zt_in(ZtSet set, uint32_t c);
/* Its ranges, first and last in turn; *n counts ranges. */
const uint32_t *zt_ranges(ZtSet set, uint32_t *n);
const char *zt_set_name(ZtSet set);
/* Lower case: one or two characters. */
int zt_lower(uint32_t c, uint32_t out[2]);

typedef enum { ZT_NFC, ZT_NFD, ZT_NFKC, ZT_NFKD } ZtForm;
/* Tables for normal forms. */
typedef struct ZtForms ZtForms;
ZtForms *zt_forms_new(ZbArena *a);
typedef struct { /* scratch: characters of a stretch that forms one */
  uint32_t *c, *spare;
  uint8_t *class, *spare_class;
  size_t n, cap;
} ZtStretch;
void zt_stretch_free(ZtStretch *s);
void zt_form(const ZtForms *f, ZtForm form, ZtStretch *scratch, const char *s, size_t n, ZbText *out);

/* ---- patterns (regex.c) --------------------------------------------------------------------------- */
typedef struct ZtPattern ZtPattern;
typedef struct ZtMatcher ZtMatcher; /* scratch of a thread */
/* A pattern of the library's syntax, or a literal text; in the arena, to be closed by zt_patterns_close. */
ZtPattern *zt_pattern(ZtTokenizer *t, const char *source, bool literal, ZbErr *err);
bool zt_may_be_empty(const ZtPattern *p); /* whether a match may be of no characters */
extern const char zt_gpt2_pattern[];      /* the one of ByteLevel (pretokenize.c) */
void zt_patterns_close(ZtTokenizer *t);
ZtMatcher *zt_matcher_new(void);
void zt_matcher_free(ZtMatcher *m);
void zt_matcher_begin(ZtMatcher *m, double seconds); /* of processor time, from now on */
extern const char zt_cluster_pattern[]; /* the one of Precompiled (precompiled.c), which no file may have */
#define ZT_FIRST_MATCH SIZE_MAX
/* The first match in s[0..n) from byte `from` on: 1; 0: there is none; -1 with a message. It may be empty, but not where
 * the match before it ended, at `last` (ZT_FIRST_MATCH: there was none). */
int zt_match(const ZtPattern *p, ZtMatcher *m, const char *s, size_t n, size_t from, size_t last,
             size_t *begin, size_t *end, ZbErr *err);

/* ---- the parts of a tokenizer ------------------------------------------------------------------------ */
typedef enum {
  ZT_NORM_FORM,
  ZT_NORM_LOWER,
  ZT_NORM_STRIP,
  ZT_NORM_STRIP_ACCENTS,
  ZT_NORM_PREPEND,
  ZT_NORM_REPLACE,
  ZT_NORM_BERT,
  ZT_NORM_PRECOMPILED
} ZtNormKind;
typedef struct {
  ZtNormKind kind;
  ZtForm form;
  bool left, right;                  /* Strip */
  bool clean, chinese, strip, lower; /* Bert */
  const char *text;                  /* of Prepend and Replace */
  size_t text_n;
  const ZtPattern *pattern; /* of Replace; of Precompiled: a grapheme cluster */
  const uint32_t *trie;     /* of Precompiled */
  uint32_t trie_n;
  const char *blob; /* its replacements, each with a NUL */
  uint32_t blob_n;
} ZtNorm;

typedef enum {
  ZT_PRE_BYTES,
  ZT_PRE_SPLIT,
  ZT_PRE_METASPACE,
  ZT_PRE_WORDS,
  ZT_PRE_WHITESPACE_SPLIT,
  ZT_PRE_BERT,
  ZT_PRE_PUNCTUATION,
  ZT_PRE_DIGITS
} ZtPreKind;
/* What becomes of the parts that match and of the gaps between them. */
typedef enum {
  ZT_REMOVED,
  ZT_ISOLATED,
  ZT_MERGED_WITH_PREVIOUS,
  ZT_MERGED_WITH_NEXT,
  ZT_CONTIGUOUS
} ZtBehavior;
typedef enum { ZT_ALWAYS, ZT_FIRST, ZT_NEVER } ZtScheme;
typedef struct {
  ZtPreKind kind;
  const ZtPattern *pattern; /* of Split, and of ByteLevel with its regular expression */
  ZtBehavior behavior;
  bool invert;
  bool prefix_space; /* of ByteLevel */
  bool map;          /* of ByteLevel: bytes become characters here; else the model takes bytes */
  bool split;        /* of Metaspace */
  ZtScheme scheme;
  const char *blank; /* of Metaspace: what stands for U+0020 */
  size_t blank_n;
} ZtPre;

typedef enum {
  ZT_DEC_BYTES,
  ZT_DEC_BYTE_FALLBACK,
  ZT_DEC_REPLACE,
  ZT_DEC_FUSE,
  ZT_DEC_STRIP,
  ZT_DEC_METASPACE,
  ZT_DEC_WORDPIECE
} ZtDecKind;
typedef struct {
  ZtDecKind kind;
  const ZtPattern *pattern;
  const char *text; /* what Replace writes, Strip removes, Metaspace takes for a space; WordPiece's prefix */
  size_t text_n;
  uint32_t start, stop;
  bool never, cleanup;
} ZtDec;

typedef struct {
  const char *s, *matched; /* as written, and as it is looked for: normalized if it says so */
  uint32_t n, matched_n, id;
  bool special, normalized, single_word, left, right;
} ZtAdded;
enum {
  /* Bytes of an added token, and of a token of Unigram or WordPiece: as many steps are made at each place
   * of a text at most. */
  ZT_ADDED_LIMIT = 1 << 10,
  ZT_TOKEN_LIMIT = 1 << 10,
  /* Normalizers, pre-tokenizers, decoders, and tokens that post-processors put around a text. */
  ZT_PARTS = 256
};
/* Added tokens of one kind, raw or normalized, to be looked for. */
typedef struct {
  uint32_t count;
  ZtTrie trie;
  bool first[256]; /* bytes that one of them begins with */
} ZtSought;

typedef enum { ZT_BPE, ZT_UNIGRAM, ZT_WORDPIECE } ZtModelKind;
typedef struct {
  const char *s;
  uint32_t n;
} ZtToken;
typedef struct {
  uint64_t pair; /* left id << 32 | right id */
  uint32_t rank, id;
} ZtMerge;

typedef struct {
  ZtModelKind kind;
  uint32_t count; /* tokens of the model */
  ZtTable vocab;
  uint32_t unk; /* ZT_NONE: there is none */
  bool byte_fallback;
  uint32_t fallback[256]; /* the tokens <0x00> to <0xFF>, or ZT_NONE */
  /* BPE */
  bool fuse_unk, ignore_merges;
  const char *prefix, *suffix; /* "": none; the prefix is WordPiece's, too */
  uint32_t prefix_n, suffix_n;
  ZtMerge *merge; /* open addressing by pair; rank ZT_NONE: free */
  uint32_t merge_mask, merges;
  bool bytes;         /* words come as bytes (ByteLevel is the last pre-tokenizer) */
  uint32_t byte[256]; /* then: the token of a byte, or ZT_NONE */
  ZtTable raw;        /* and words of bytes, when ignore_merges looks for them */
  bool cut_at_blank;  /* no merge goes over the place before a U+2581 that follows another character */
  /* Unigram */
  double *score, unk_score;
  ZtTrie trie; /* WordPiece's too */
  /* WordPiece */
  uint32_t max_chars, continuing; /* the trie's node after the prefix; ZT_NONE: no token begins so */
} ZtModel;

struct ZtTokenizer {
  ZbArena *arena;
  const char *name; /* of the file, for messages */
  ZtForms *forms;
  struct ZtPattern *patterns; /* to be closed */
  ZtNorm *norm;
  ZtPre *pre;
  ZtDec *dec;
  uint32_t nnorm, npre, ndec;
  bool has_decoder;
  ZtModel model;
  ZtAdded *added;
  uint32_t nadded;
  ZtTable added_ids;        /* by what is written */
  ZtSought raw, normal;     /* added tokens that are looked for before and after normalization */
  uint32_t *before, *after; /* what the post-processor adds */
  uint32_t nbefore, nafter;
  ZtToken *token;     /* by id */
  uint32_t *added_at; /* by id: its place in `added` + 1, or 0 */
  uint32_t size;
};

/* ---- scratch of a thread ------------------------------------------------------------------------------ */
typedef struct {
  uint32_t id, prev, next;
} ZtSymbol;
typedef struct { /* a word that was seen, and its tokens */
  uint8_t n, nids;
  char text[30];
  uint32_t id[8];
} ZtSeen;
typedef struct { /* best path to a place */
  double score;
  uint32_t from, id;
} ZtStep;
typedef struct { /* a decoder at work */
  ZbText held;   /* what it has of the token that comes in */
  ZbText run;    /* bytes that may become a character */
  ZbText made;   /* of the token that goes out */
  size_t grown;  /* bytes that it made of the row */
  uint32_t cut;  /* Strip: so many times at the beginning of the token */
  bool tokens;   /* one came before */
  bool broken;   /* ByteFallback: the run is no UTF-8, and `run` has none of it that was given on */
} ZtStage;
typedef struct { /* a row of tokens on its way through the decoders */
  const ZtTokenizer *t;
  ZtStage *stage; /* one for each decoder */
  unsigned flags;
  bool any;     /* a token came */
  size_t bytes; /* of all that came */
  ZbText *out;
  ZtCoder *c; /* its matcher, limits and error, while a call runs */
} ZtDecoding;

struct ZtCoder {
  const ZtTokenizer *t;
  size_t given, room; /* bytes of the text, and what may still be made of it: ZT_GROWTH */
  ZtMatcher *matcher;
  ZtStretch stretch;
  ZbText repaired, norm[2], *pre; /* pre: one for each pre-tokenizer */
  ZtIds *out;
  ZbErr *err;
  unsigned flags;
  ZtSeen *seen;
  ZtSymbol *symbol;
  size_t nsymbol, symbol_cap;
  uint64_t *heap;
  size_t nheap, heap_cap;
  uint32_t pending; /* a token for what is unknown, not yet written */
  ZtStep *step;
  size_t step_cap;
  ZtDecoding decoding;
  const ZtMarked *marked; /* while a marked text is encoded, ... */
  size_t cut;             /* ... of which so many places are known to lie between tokens */
  ZtSpan *span;           /* of a normalized piece of it */
  size_t span_cap;
  ZbText whole; /* that piece */
};

/* Which added tokens are looked for. */
typedef struct {
  bool special;
  const ZtMarked *marked; /* NULL: all are found everywhere */
  const ZtSpan *span;     /* then: parts of the text where not all are, */
  size_t nspans, base;    /* whose places count from so many bytes before it */
} ZtAllowed;
/* added.c: looks for the next added token in s[from..n); sets where it begins and ends. Anything before is
 * text. NULL: none follows. */
const ZtAdded *zt_added_next(const ZtTokenizer *t, const ZtSought *in, const ZtAllowed *may, const char *s,
                             size_t n, size_t done, size_t *from, size_t *begin, size_t *end);
bool zt_sought_init(ZtTokenizer *t, bool normalized, ZbErr *err);
/* marked.c: has the spans of raw[0..nraw), which is may->base bytes on in the text, follow what normalizers have
 * made of it, s[0..n), which may move. */
bool zt_marks_follow(ZtCoder *c, const char *raw, size_t nraw, const char **s, size_t *n, ZtAllowed *may);
/* encode.c: begins with a text of n bytes, which may grow within limits and take its time. */
void zt_grow_from(ZtCoder *c, size_t n);
/* Whether it may grow by n bytes; false with a message. zt_grow also counts them. */
bool zt_may_grow(ZtCoder *c, size_t n);
bool zt_grow(ZtCoder *c, size_t n);
/* decode.c: what the decoders take for an id; without text if it is left out. */
ZtToken zt_decoding_token(const ZtTokenizer *t, unsigned flags, uint32_t id);
/* Returns the byte of <0xHH>; -1: it is another token. */
int zt_fallback_byte(const char *s, size_t n);
/* Begins a row, whose text is appended to *out as it becomes sure: when no later token can change it. A
 * zeroed ZtDecoding is empty, and is always used with the same tokenizer. */
void zt_decoding_begin(ZtDecoding *d, const ZtTokenizer *t, unsigned flags, ZbText *out);
void zt_decoding_free(ZtDecoding *d);
/* One token more, or the end, at which all is sure. False with a message in c->err; see zt_grow_from. */
bool zt_decoding_put(ZtDecoding *d, ZtCoder *c, uint32_t id);
bool zt_decoding_end(ZtDecoding *d, ZtCoder *c);
/* normalize.c: all normalizers over s[0..n); *out is s itself, or scratch of the coder until the next
 * call. */
bool zt_normalize(ZtCoder *c, const char *s, size_t n, const char **out, size_t *out_n);
/* precompiled.c */
bool zt_precompiled_init(ZtTokenizer *t, ZtNorm *norm, const char *base64, ZbErr *err);
bool zt_precompiled(ZtCoder *c, const ZtNorm *norm, const char *s, size_t n, ZbText *out);
/* pretokenize.c: cuts s[0..n) by the pre-tokenizers from number k on and gives the words to zt_word. first:
 * the piece is at the beginning of the text. */
bool zt_pretokenize(ZtCoder *c, uint32_t k, const char *s, size_t n, bool first);
/* The character that stands for a byte, and back (-1: for none). */
uint32_t zt_byte_char(uint8_t byte);
int zt_char_byte(uint32_t c);
/* encode.c: the tokens of a word, remembered. */
bool zt_word(ZtCoder *c, const char *s, size_t n);
/* The models: append the tokens of a word to c->out. */
void zt_bpe(ZtCoder *c, const char *s, size_t n);
bool zt_unigram(ZtCoder *c, const char *s, size_t n);
void zt_wordpiece(ZtCoder *c, const char *s, size_t n);
/* Makes ready what they look up, when all else is read. */
void zt_bpe_init(ZtTokenizer *t);
bool zt_unigram_init(ZtTokenizer *t, ZbErr *err);
bool zt_wordpiece_init(ZtTokenizer *t, ZbErr *err);
bool zt_model_trie(ZtTokenizer *t, ZbErr *err); /* of all its tokens */

#endif
