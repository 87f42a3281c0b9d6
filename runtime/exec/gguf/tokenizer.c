/* tokenizer.json of a GGUF file. It has two kinds: `gpt2`, byte-level BPE with merges, and a name of how
 * texts are cut into words before, of which this has the rule; and `llama`, SentencePiece's BPE, whose
 * merges follow from the scores of its pieces: of two neighbours those are merged first that make the
 * piece of the best score. */
#include "runtime/exec/gguf/texts.h"

#include <math.h>
#include <stdlib.h>

static const char again[] = "give the tokenizer.json of the model's folder: --tokenizer";

/* ---- tokens ---- */
enum { NORMAL = 1, UNKNOWN, CONTROL, USER, UNUSED, BYTE };
typedef struct {
  const ZxGgufFile *f;
  ZbArena *a; /* of what is needed while the text is made */
  ZbNames token;
  float *score;
  uint8_t *kind;
  uint64_t nscores, nkinds;
  ZbJson j;
  ZbErr *err;
} Tokens;

static bool take_token(void *ctx, uint64_t i, const ZxItem *item) {
  Tokens *t = ctx;
  if (memchr(item->s, 0, item->n))
    return zb_fail(t->err, again, "%s: token %llu has a NUL", zb_show(t->f->path), (unsigned long long)i);
  zb_names_add(t->a, &t->token, zb_strndup(t->a, item->s, item->n));
  return true;
}

static bool take_score(void *ctx, uint64_t i, const ZxItem *item) {
  Tokens *t = ctx;
  if (i < t->token.n) t->score[i] = (float)item->number;
  t->nscores++;
  return true;
}

static bool take_kind(void *ctx, uint64_t i, const ZxItem *item) {
  Tokens *t = ctx;
  bool known = item->number >= NORMAL && item->number <= BYTE;
  if (i < t->token.n) t->kind[i] = known ? (uint8_t)item->number : NORMAL;
  t->nkinds++;
  return true;
}

static bool read_tokens(Tokens *t) {
  if (!zx_gguf_list(t->f, "tokenizer.ggml.tokens", true, take_token, t, t->err)) return false;
  if (!t->token.n) return zb_fail(t->err, again, "%s has no tokenizer.ggml.tokens", zb_show(t->f->path));
  t->score = ZB_NEWN(t->a, float, t->token.n);
  t->kind = ZB_NEWN(t->a, uint8_t, t->token.n);
  memset(t->kind, NORMAL, t->token.n);
  if (!zx_gguf_list(t->f, "tokenizer.ggml.scores", false, take_score, t, t->err) ||
      !zx_gguf_list(t->f, "tokenizer.ggml.token_type", false, take_kind, t, t->err))
    return false;
  bool good = (!t->nscores || t->nscores == t->token.n) && (!t->nkinds || t->nkinds == t->token.n);
  return good ||
         zb_fail(t->err, again, "%s has %u tokens, %llu scores and %llu types of tokens", zb_show(t->f->path),
                 t->token.n, (unsigned long long)t->nscores, (unsigned long long)t->nkinds);
}

/* Returns a token that a key names by its number; NULL: there is none. */
static const char *named(const Tokens *t, const char *key, double *id) {
  *id = zx_gguf_number(t->f, key, -1);
  return *id >= 0 && *id < t->token.n && *id == (double)(uint32_t)*id ? t->token.name[(uint32_t)*id] : NULL;
}

static const char begin_key[] = "tokenizer.ggml.bos_token_id";
static const char *const end_keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};

void zx_gguf_ids(const ZxGgufFile *f, ZbJson *j) {
  double begin = zx_gguf_number(f, begin_key, -1);
  if (begin >= 0 && begin < UINT32_MAX) zb_json_count(j, "bos_token_id", (uint64_t)begin);
  zb_json_list(j, "eos_token_id");
  for (size_t i = 0; i < sizeof end_keys / sizeof *end_keys; i++) {
    double end = zx_gguf_number(f, end_keys[i], -1);
    if (end >= 0 && end < UINT32_MAX) zb_json_count(j, NULL, (uint64_t)end);
  }
  zb_json_end(j);
}

/* ---- parts of the text ---- */
static void type(ZbJson *j, const char *key, const char *name) {
  zb_json_object(j, key);
  zb_json_string(j, "type", name);
}

static void alone(ZbJson *j, const char *key, const char *name) {
  type(j, key, name);
  zb_json_end(j);
}

static void put_added(Tokens *t) {
  zb_json_list(&t->j, "added_tokens");
  for (uint32_t i = 0; i < t->token.n; i++) {
    if (t->kind[i] != CONTROL && t->kind[i] != USER) continue;
    zb_json_object(&t->j, NULL);
    zb_json_count(&t->j, "id", i);
    zb_json_string(&t->j, "content", t->token.name[i]);
    zb_json_bool(&t->j, "single_word", false);
    zb_json_bool(&t->j, "lstrip", false);
    zb_json_bool(&t->j, "rstrip", false);
    zb_json_bool(&t->j, "normalized", false);
    zb_json_bool(&t->j, "special", t->kind[i] == CONTROL);
    zb_json_end(&t->j);
  }
  zb_json_end(&t->j);
}

static void put_vocabulary(Tokens *t) {
  zb_json_object(&t->j, "vocab");
  for (uint32_t i = 0; i < t->token.n; i++)
    if (zb_names_find(&t->token, t->token.name[i]) == i) zb_json_count(&t->j, t->token.name[i], i);
  zb_json_end(&t->j);
}

/* Puts the token before every text, where the file says so, or its kind does without saying. */
static void put_begin(Tokens *t, bool usual) {
  double id, yes = zx_gguf_number(t->f, "tokenizer.ggml.add_bos_token", usual);
  const char *name = named(t, begin_key, &id);
  if (!name || yes != 1) return;
  type(&t->j, "post_processor", "TemplateProcessing");
  for (int pair = 0; pair < 2; pair++) {
    zb_json_list(&t->j, pair ? "pair" : "single");
    zb_json_object(&t->j, NULL);
    zb_json_object(&t->j, "SpecialToken");
    zb_json_string(&t->j, "id", name);
    zb_json_int(&t->j, "type_id", 0);
    zb_json_end(&t->j);
    zb_json_end(&t->j);
    for (int k = 0; k <= pair; k++) {
      zb_json_object(&t->j, NULL);
      zb_json_object(&t->j, "Sequence");
      zb_json_string(&t->j, "id", k ? "B" : "A");
      zb_json_int(&t->j, "type_id", k);
      zb_json_end(&t->j);
      zb_json_end(&t->j);
    }
    zb_json_end(&t->j);
  }
  zb_json_object(&t->j, "special_tokens");
  zb_json_object(&t->j, name);
  zb_json_string(&t->j, "id", name);
  zb_json_list(&t->j, "ids");
  zb_json_count(&t->j, NULL, (uint64_t)id);
  zb_json_end(&t->j);
  zb_json_list(&t->j, "tokens");
  zb_json_string(&t->j, NULL, name);
  zb_json_end(&t->j);
  zb_json_end(&t->j);
  zb_json_end(&t->j);
  zb_json_end(&t->j);
}

/* ---- gpt2 ---- */
/* How texts are cut into words, by tokenizer.ggml.pre, as the families' own files have it. */
static const struct {
  const char *pre, *regex; /* NULL: GPT-2's own, alone */
  bool whole;              /* a word that is a token is one, whatever merges would make of it */
  bool also;               /* what the expression leaves is cut by GPT-2's own, too */
  bool nfc, begins;
} cuts[] = {
#define WORDS(digits)                                                                                        \
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits                                       \
  "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
    {"llama-bpe", WORDS("\\p{N}{1,3}"), .whole = true, .begins = true},
    {"llama-v3", WORDS("\\p{N}{1,3}"), .whole = true, .begins = true},
    {"llama3", WORDS("\\p{N}{1,3}"), .whole = true, .begins = true},
    {"qwen2", WORDS("\\p{N}"), .nfc = true},
    {"deepseek-r1-qwen", WORDS("\\p{N}"), .begins = true},
    {"tekken",
     "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"
     "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|\\p{N}| "
     "?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     .whole = true, .begins = true},
    {"smollm", "\\p{N}", .also = true},
    {"gpt-2", NULL, .also = true},
#undef WORDS
};

static bool put_merge(void *ctx, uint64_t i, const ZxItem *item) {
  Tokens *t = ctx;
  (void)i;
  zb_json_string_n(&t->j, NULL, item->s, item->n);
  return true;
}

static void put_cut(ZbJson *j, const char *regex, bool also) {
  type(j, "pre_tokenizer", "Sequence");
  zb_json_list(j, "pretokenizers");
  if (regex) {
    type(j, NULL, "Split");
    zb_json_object(j, "pattern");
    zb_json_string(j, "Regex", regex);
    zb_json_end(j);
    zb_json_string(j, "behavior", "Isolated");
    zb_json_bool(j, "invert", false);
    zb_json_end(j);
  }
  type(j, NULL, "ByteLevel");
  zb_json_bool(j, "add_prefix_space", false);
  zb_json_bool(j, "use_regex", also);
  zb_json_end(j);
  zb_json_end(j);
  zb_json_end(j);
}

static bool byte_level(Tokens *t) {
  const char *pre = zx_gguf_string(t->f, "tokenizer.ggml.pre", "none", t->err);
  size_t k = 0, n = sizeof cuts / sizeof *cuts;
  while (pre && k < n && strcmp(cuts[k].pre, pre)) k++;
  if (!pre) return false;
  if (k == n)
    return zb_fail(t->err, again, "%s: texts are cut into words by the rule `%s`, which is not known",
                   zb_show(t->f->path), zb_show(pre));
  if (cuts[k].nfc) alone(&t->j, "normalizer", "NFC");
  put_cut(&t->j, cuts[k].regex, cuts[k].also);
  put_begin(t, cuts[k].begins);
  type(&t->j, "decoder", "ByteLevel");
  zb_json_end(&t->j);
  type(&t->j, "model", "BPE");
  zb_json_bool(&t->j, "ignore_merges", cuts[k].whole);
  put_vocabulary(t);
  zb_json_list(&t->j, "merges");
  bool ok = zx_gguf_list(t->f, "tokenizer.ggml.merges", true, put_merge, t, t->err);
  zb_json_end(&t->j);
  zb_json_end(&t->j);
  return ok;
}

/* ---- llama ---- */
typedef struct {
  uint32_t left, right;
  float score; /* of what they make */
  uint32_t made;
} Merge;

/* Orders merges: the best score first, those of one piece by its parts. */
static int better_first(const void *a, const void *b) {
  const Merge *x = a, *y = b;
  if (x->score != y->score) return x->score > y->score ? -1 : 1;
  if (x->made != y->made) return x->made < y->made ? -1 : 1;
  if (x->left != y->left) return x->left < y->left ? -1 : 1;
  return x->right < y->right ? -1 : x->right > y->right;
}

/* Lists the pairs of tokens that make a token, each part of whole characters. */
static void merges_of(Tokens *t, uint32_t i, Merge **merge, uint32_t *n) {
  const char *s = t->token.name[i];
  char part[1024];
  size_t all = strlen(s);
  if (all >= sizeof part) return;
  for (size_t cut = 1; cut < all; cut++) {
    if (((uint8_t)s[cut] & 0xc0) == 0x80) continue;
    memcpy(part, s, cut);
    part[cut] = 0;
    Merge m = {zb_names_find(&t->token, part), zb_names_find(&t->token, s + cut), t->score[i], i};
    if (m.left != ZB_NO_NAME && m.right != ZB_NO_NAME) ZB_PUSH(t->a, *merge, *n, m);
  }
}

static void put_merges(Tokens *t) {
  Merge *merge = NULL;
  uint32_t n = 0;
  for (uint32_t i = 0; i < t->token.n; i++)
    if (t->kind[i] == NORMAL && zb_names_find(&t->token, t->token.name[i]) == i) merges_of(t, i, &merge, &n);
  if (n) qsort(merge, n, sizeof *merge, better_first);
  zb_json_list(&t->j, "merges");
  for (uint32_t i = 0; i < n; i++) {
    zb_json_list(&t->j, NULL);
    zb_json_string(&t->j, NULL, t->token.name[merge[i].left]);
    zb_json_string(&t->j, NULL, t->token.name[merge[i].right]);
    zb_json_end(&t->j);
  }
  zb_json_end(&t->j);
}

static void put_replace(ZbJson *j, const char *key, const char *from, const char *to) {
  type(j, key, "Replace");
  zb_json_object(j, "pattern");
  zb_json_string(j, "String", from);
  zb_json_end(j);
  zb_json_string(j, "content", to);
  zb_json_end(j);
}

static bool pieces(Tokens *t) {
  static const char blank[] = "\xe2\x96\x81"; /* U+2581 */
  bool before = zx_gguf_number(t->f, "tokenizer.ggml.add_space_prefix", 1) == 1;
  double id;
  const char *unknown = named(t, "tokenizer.ggml.unknown_token_id", &id);
  type(&t->j, "normalizer", "Sequence");
  zb_json_list(&t->j, "normalizers");
  if (before) {
    type(&t->j, NULL, "Prepend");
    zb_json_string(&t->j, "prepend", blank);
    zb_json_end(&t->j);
  }
  put_replace(&t->j, NULL, " ", blank);
  zb_json_end(&t->j);
  zb_json_end(&t->j);
  put_begin(t, true);
  type(&t->j, "decoder", "Sequence");
  zb_json_list(&t->j, "decoders");
  put_replace(&t->j, NULL, blank, " ");
  alone(&t->j, NULL, "ByteFallback");
  alone(&t->j, NULL, "Fuse");
  if (before) {
    type(&t->j, NULL, "Strip");
    zb_json_string(&t->j, "content", " ");
    zb_json_int(&t->j, "start", 1);
    zb_json_int(&t->j, "stop", 0);
    zb_json_end(&t->j);
  }
  zb_json_end(&t->j);
  zb_json_end(&t->j);
  type(&t->j, "model", "BPE");
  if (unknown) zb_json_string(&t->j, "unk_token", unknown);
  zb_json_bool(&t->j, "fuse_unk", true);
  zb_json_bool(&t->j, "byte_fallback", true);
  put_vocabulary(t);
  put_merges(t);
  zb_json_end(&t->j);
  return true;
}

/* ---- all of it ---- */
bool zx_gguf_tokenizer(const ZxGgufFile *f, ZbText *out, ZbErr *err) {
  Tokens t = {.f = f, .a = zb_arena_new(), .j = {.text = out}, .err = err};
  const char *model = zx_gguf_string(f, "tokenizer.ggml.model", "", err);
  bool ok = model && read_tokens(&t);
  if (ok) {
    zb_json_object(&t.j, NULL);
    put_added(&t);
    if (!strcmp(model, "gpt2")) ok = byte_level(&t);
    else if (!strcmp(model, "llama")) ok = pieces(&t);
    else
      ok = zb_fail(err, again, "%s: its tokenizer is of kind `%s`; gpt2 and llama can be read",
                   zb_show(f->path), zb_show(model));
  }
  if (ok) zb_json_end(&t.j);
  zb_arena_free(t.a);
  return ok;
}

bool zx_gguf_tokenizer_config(const ZxGgufFile *f, ZbText *out, ZbErr *err) {
  static const struct {
    const char *key, *name;
  } special[] = {{begin_key, "bos_token"},
                 {"tokenizer.ggml.eos_token_id", "eos_token"},
                 {"tokenizer.ggml.unknown_token_id", "unk_token"},
                 {"tokenizer.ggml.padding_token_id", "pad_token"}};
  Tokens t = {.f = f, .a = zb_arena_new(), .j = {.text = out}, .err = err};
  const char *chat = zx_gguf_string(f, "tokenizer.chat_template", "", err);
  bool ok = chat && zx_gguf_list(f, "tokenizer.ggml.tokens", true, take_token, &t, err);
  zb_json_object(&t.j, NULL);
  for (size_t i = 0; i < sizeof special / sizeof *special && ok; i++) {
    double id;
    const char *name = named(&t, special[i].key, &id);
    if (name) zb_json_string(&t.j, special[i].name, name);
  }
  if (ok && *chat) zb_json_string(&t.j, "chat_template", chat);
  zb_json_end(&t.j);
  zb_arena_free(t.a);
  return ok;
}
