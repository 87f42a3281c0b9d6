/* Tokens that a conversation teaches: ids and masks of eight families as TRL has them, turns of templates without marks, and where the
 * tokens of a text begin. */
#include "runtime/text/template/template.h"
#include "tests/unit/text/files.h"

#include <stdlib.h>

/* ---- families ---- */
typedef struct {
  ZtTokenizer *t;
  ZtCoder *coder;
  ZtTemplate *public, *training;
  cJSON *tokens;
} Family;

/* One of the small tokenizers, with a family's markers. */
static ZtTokenizer *tokenizer_of(ZbArena *a, const cJSON *family) {
  const char *name = cJSON_GetObjectItem(family, "tokenizer")->valuestring;
  cJSON *json = text_json(a, zb_printf(a, "%s/tokenizer.json", name)),
        *list = cJSON_GetObjectItem(json, "added_tokens");
  const cJSON *x;
  cJSON_ArrayForEach(x, cJSON_GetObjectItem(family, "added")) {
    cJSON *one = cJSON_CreateObject();
    cJSON_AddNumberToObject(one, "id", cJSON_GetArrayItem(x, 1)->valuedouble);
    cJSON_AddStringToObject(one, "content", cJSON_GetArrayItem(x, 0)->valuestring);
    for (int i = 0; i < 4; i++)
      cJSON_AddFalseToObject(one,
                             ((const char *const[]){"single_word", "lstrip", "rstrip", "normalized"})[i]);
    cJSON_AddBoolToObject(one, "special", cJSON_IsTrue(cJSON_GetArrayItem(x, 2)));
    bool there = false;
    const cJSON *y;
    cJSON_ArrayForEach(y, list) there |=
        cJSON_GetObjectItem(y, "id")->valuedouble == cJSON_GetArrayItem(x, 1)->valuedouble;
    if (there) cJSON_Delete(one);
    else cJSON_AddItemToArray(list, one);
  }
  ZbErr err;
  char *text = cJSON_PrintUnformatted(json);
  ZtTokenizer *t = zt_read(text, strlen(text), name, &err);
  cr_assert(t, "%s: %s", name, err.text);
  free(text);
  cJSON_Delete(json);
  return t;
}

static Family open_family(ZbArena *a, const cJSON *all, const char *name) {
  const cJSON *f = cJSON_GetObjectItem(cJSON_GetObjectItem(all, "families"), name),
              *bos = cJSON_GetObjectItem(f, "bos");
  const char *public = cJSON_GetObjectItem(f, "public")->valuestring,
             *training = cJSON_GetObjectItem(f, "training")->valuestring;
  ZbErr err = {0};
  Family x = {.t = tokenizer_of(a, f), .tokens = cJSON_CreateObject()};
  x.coder = zt_coder_new(x.t);
  x.public = zt_template_new(public, strlen(public), "public", &err);
  cr_assert(x.public, "%s: %s", name, err.text);
  x.training = zt_template_new(training, strlen(training), "training", &err);
  cr_assert(x.training, "%s: %s", name, err.text);
  if (cJSON_IsString(bos)) cJSON_AddStringToObject(x.tokens, "bos_token", bos->valuestring);
  cJSON_AddStringToObject(x.tokens, "eos_token", cJSON_GetObjectItem(f, "eos")->valuestring);
  return x;
}

static void close_family(Family *x) {
  zt_template_free(x->public);
  zt_template_free(x->training);
  zt_coder_free(x->coder);
  zt_free(x->t);
  cJSON_Delete(x->tokens);
}

/* The ids of a conversation and its mask as "0011", or the message. */
static bool learn(const Family *f, const ZtTemplate *t, const cJSON *x, ZtLearn what, ZtIds *ids,
                  ZbText *mask, ZbErr *err) {
  const cJSON *from = cJSON_GetObjectItem(x, "from");
  ZtChat chat = {.messages = cJSON_GetObjectItem(x, "messages"),
                 .tools = cJSON_GetObjectItem(x, "tools"),
                 .tokens = f->tokens};
  ids->n = mask->len = 0;
  bool ok =
      zt_template_learn(t, f->coder, &chat, &(ZtLearning){what, from ? from->valueint : 0}, ids, mask, err);
  for (size_t i = 0; i < mask->len; i++) mask->s[i] += '0';
  zb_text_put(mask, "", 1);
  return ok;
}

/* Both templates of a family: as TRL marks it, and as it is published, where answers are found by rendering parts. */
Test(learned, as_trl_has_it) {
  ZbArena *a = zb_arena_new();
  cJSON *all = text_json(a, "chat/learned.json"), *x;
  int families = 0, cases = 0, found = 0;
  const char *name = "";
  Family f = {0};
  ZtIds ids = {0};
  ZbText mask = {0};
  cJSON_ArrayForEach(x, cJSON_GetObjectItem(all, "cases")) {
    if (strcmp(name, cJSON_GetObjectItem(x, "family")->valuestring)) {
      if (f.t) close_family(&f);
      name = cJSON_GetObjectItem(x, "family")->valuestring;
      f = open_family(a, all, name);
      families++;
    }
    size_t n;
    const uint32_t *want = text_ids(a, cJSON_GetObjectItem(x, "ids"), &n);
    const char *what = cJSON_GetObjectItem(x, "what")->valuestring,
               *learned = cJSON_GetObjectItem(x, "mask")->valuestring;
    for (int public = 0; public < 2; public ++) {
      ZbErr err = {0};
      if (public && cJSON_HasObjectItem(x, "only")) continue;
      bool ok = learn(&f, public ? f.public : f.training, x, ZT_LEARN_ASSISTANT, &ids, &mask, &err);
      cr_expect(ok, "%s, %s: %s", name, what, err.text);
      if (!ok) continue;
      cr_expect(ids.n == n && !memcmp(ids.id, want, n * sizeof *want), "%s, %s: other ids", name, what);
      if (public && cJSON_HasObjectItem(x, "published"))
        learned = cJSON_GetObjectItem(x, "published")->valuestring;
      cr_expect_str_eq(mask.s, learned, "%s, %s%s:\n%s\n%s", name, what, public ? ", as it is published" : "",
                       mask.s, learned);
      found += public;
    }
    cases++;
  }
  cr_expect(families >= 8 && cases >= 60 && found >= 50, "%d families, %d cases, %d of them as published",
            families, cases, found);
  close_family(&f);
  zt_ids_free(&ids);
  zb_text_free(&mask);
  cJSON_Delete(all);
  zb_arena_free(a);
}

/* ---- templates without marks ---- */
/* A byte is a token; `marks` are special ones. */
static ZtTokenizer *bytes_and(const char *const *marks, size_t n) {
  ZbText t = {0};
  ZbErr err;
  zb_text_add(
      &t, "{\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}, "
          "\"decoder\": {\"type\": \"ByteLevel\"}, \"added_tokens\": [");
  for (size_t i = 0; i < n; i++)
    zb_text_add(
        &t,
        "%s{\"id\": %zu, \"content\": \"%s\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
        "\"normalized\": false, \"special\": true}",
        i ? ", " : "", 96 + i, marks[i]);
  zb_text_add(&t, "], \"model\": {\"type\": \"BPE\", \"merges\": [], \"vocab\": {\"\\u010a\": 0");
  for (int c = 32; c < 127; c++)
    zb_text_add(&t, ", \"%s%s\": %d", c == '"' || c == '\\' ? "\\" : "",
                c == ' ' ? "\xc4\xa0" : (char[]){(char)c, 0}, c - 31);
  zb_text_add(&t, "}}}");
  ZtTokenizer *x = zt_read(t.s, t.len, "bytes", &err);
  cr_assert(x, "%s", err.text);
  zb_text_free(&t);
  return x;
}

static const char *const marks[] = {"<|im_start|>", "<|im_end|>", "</s>"};

/* Shows a conversation, and in brackets what is learned of it: "u[hi</s>]". */
static const char *shown(const char *source, const char *messages, ZtLearning how, ZbText *out, ZbErr *err) {
  ZtTokenizer *tokenizer = bytes_and(marks, 3);
  Family f = {.t = tokenizer, .coder = zt_coder_new(tokenizer)};
  ZtTemplate *t = zt_template_new(source, strlen(source), "t", err);
  cr_assert(t, "%s", err->text);
  cJSON *m = cJSON_Parse(messages);
  ZtChat chat = {.messages = m};
  ZtIds ids = {0};
  ZbText mask = {0};
  cr_assert(m);
  out->len = 0;
  bool ok = zt_template_learn(t, f.coder, &chat, &how, &ids, &mask, err), in = false;
  for (size_t i = 0; ok && i <= ids.n; i++) {
    bool is = i < ids.n && mask.s[i];
    if (is != in) zb_text_add(out, is ? "[" : "]");
    in = is;
    if (i < ids.n) zt_decode(f.coder, &ids.id[i], 1, 0, out, err);
  }
  zb_text_add(out, "%s", "");
  zt_ids_free(&ids);
  zb_text_free(&mask);
  cJSON_Delete(m);
  zt_template_free(t);
  zt_coder_free(f.coder);
  zt_free(tokenizer);
  return ok ? out->s : NULL;
}

static const char
    two[] = "[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"},"
            " {\"role\": \"user\", \"content\": \"c\"}, {\"role\": \"assistant\", \"content\": \"d\"}]",
    first[] = "[{\"role\": \"assistant\", \"content\": \"b\"}, {\"role\": \"user\", \"content\": \"c\"},"
              " {\"role\": \"assistant\", \"content\": \"d\"}]";
#define CHATML                                                                                               \
  "{% for m in messages %}<|im_start|>{{ m.role }}: {{ m.content }}<|im_end|>;{% endfor %}"                  \
  "{% if add_generation_prompt %}<|im_start|>assistant: {% endif %}"

static void expect(const char *source, const char *messages, ZtLearning how, const char *want) {
  ZbText out = {0};
  ZbErr err = {0};
  const char *is = shown(source, messages, how, &out, &err);
  cr_expect(is && !strcmp(is, want), "%s\n  is %s, wanted %s", source, is ? is : err.text, want);
  zb_text_free(&out);
}

Test(learned, turns) {
  const ZtLearning all = {ZT_LEARN_ALL, 0}, each = {ZT_LEARN_ASSISTANT, 0}, last = {ZT_LEARN_LAST, 0},
                   later = {ZT_LEARN_ASSISTANT, 3};
  expect(CHATML, two, each,
         "<|im_start|>user: a<|im_end|>;<|im_start|>assistant: [b<|im_end|>;]<|im_start|>user: c<|im_end|>;"
         "<|im_start|>assistant: [d<|im_end|>;]");
  expect(CHATML, two, last,
         "<|im_start|>user: a<|im_end|>;<|im_start|>assistant: b<|im_end|>;<|im_start|>user: c<|im_end|>;"
         "<|im_start|>assistant: [d<|im_end|>;]");
  expect(CHATML, two, later,
         "<|im_start|>user: a<|im_end|>;<|im_start|>assistant: b<|im_end|>;<|im_start|>user: c<|im_end|>;"
         "<|im_start|>assistant: [d<|im_end|>;]");
  expect(CHATML, two, all,
         "[<|im_start|>user: a<|im_end|>;<|im_start|>assistant: b<|im_end|>;<|im_start|>user: c<|im_end|>;"
         "<|im_start|>assistant: d<|im_end|>;]");
  /* the assistant begins: its head is that of any answer */
  expect(CHATML, first, each,
         "<|im_start|>assistant: [b<|im_end|>;]<|im_start|>user: c<|im_end|>;<|im_start|>assistant: "
         "[d<|im_end|>;]");
  /* no token ends a turn, and no head is written before an answer */
  expect("{% for m in messages %}{{ m.role[0] }}:{{ m.content }}\n{% endfor %}{% if add_generation_prompt "
         "%}a:{% endif %}",
         two, each, "u:a\na:[b\n]u:c\na:[d\n]");
  /* the head of an answer opens a thought that is dropped */
  expect("{% for m in messages %}<|im_start|>{{ m.content }}</s>{% endfor %}{% if add_generation_prompt "
         "%}<|im_start|>THINK{% endif %}",
         two, each, "<|im_start|>a</s><|im_start|>[b</s>]<|im_start|>c</s><|im_start|>[d</s>]");
  /* a turn is written otherwise when it is not the last: up to the token that ends it */
  expect("{% for m in messages %}<|im_start|>{{ m.role }}:{% if loop.last and not add_generation_prompt "
         "%}!{% endif %}{{ m.content }}<|im_end|>;"
         "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant:{% endif %}",
         two, each,
         "<|im_start|>user:a<|im_end|>;<|im_start|>assistant:[b<|im_end|>;]<|im_start|>user:c<|im_end|>;"
         "<|im_start|>assistant:[!d<|im_end|>;]");
  /* a block without the token that ends the answer, which follows at once */
  expect("{% for m in messages %}{% if m.role == 'assistant' %}A{% generation %}{{ m.content }}{% "
         "endgeneration %}</s>{% else %}"
         "{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}A{% endif %}",
         two, each, "aA[b</s>]cA[d</s>]");
  expect("{% for m in messages %}{% if m.role == 'assistant' %}A{% generation %}{{ m.content }}</s>;{% "
         "endgeneration %}{% else %}"
         "<|im_start|>{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}A{% endif %}",
         two, last, "<|im_start|>aAb</s>;<|im_start|>cA[d</s>;]");
}

static void refuses(const char *source, const char *messages, const char *why) {
  ZbText out = {0};
  ZbErr err = {0};
  const char *is = shown(source, messages, (ZtLearning){ZT_LEARN_ASSISTANT, 0}, &out, &err);
  cr_expect(!is && strstr(err.text, why), "%s: %s, wanted %s", source, is ? is : err.text, why);
  zb_text_free(&out);
}

/* Nothing falls back to learning everything. */
Test(learned, what_cannot_be_told) {
  refuses(CHATML, "[{\"role\": \"user\", \"content\": \"a\"}]", "no message is the assistant's");
  refuses("{% for m in messages %}{{ m.content }}{% generation %}{% endgeneration %}{% endfor %}", two,
          "no answer is written in a {% generation %} block");
  refuses("{{ messages|length }}{% for m in messages %}{{ m.content }}{% endfor %}", two,
          "messages[1] otherwise once others follow");
  refuses("{% for m in messages %}{{ m.content }}{% if loop.last and not add_generation_prompt %}!{% endif "
          "%}{% endfor %}",
          two, "with which token an answer ends");
  refuses("{% for m in messages %}{{ raise_exception('no ' + m.role) }}{% endfor %}", two, "no user");
}

/* ---- places between tokens ---- */
/* Encodes "abc <mark> def" and others, and expects of each place the tokens before it and those begun. */
Test(learned, places) {
  struct {
    const char *name, *text;
    ZtCut cut[4];
  } of[] = {{"gpt2", "one two<|endoftext|>", {{0, 0, 0}, {3, 0, 0}, {7, 0, 0}, {9, 0, 0}}},
            {"llama2", "one two</s>three", {{0, 0, 0}, {3, 0, 0}, {7, 0, 0}, {11, 0, 0}}}};
  for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
    ZtTokenizer *t = text_tokenizer(of[i].name);
    ZtCoder *c = zt_coder_new(t);
    ZtIds ids = {0}, part = {0};
    ZbErr err;
    ZtCuts cuts = {of[i].cut, 4};
    cr_assert(zt_encode_marked(c, of[i].text, strlen(of[i].text), &(ZtMarked){.cuts = &cuts}, &ids, &err),
              "%s", err.text);
    for (int k = 0; k < 4; k++) {
      const ZtCut *x = &of[i].cut[k];
      part.n = 0;
      cr_assert(zt_encode(c, of[i].text, x->at, 0, &part, &err));
      bool inside = i == 0 && k == 3; /* of the marker */
      if (inside) cr_expect(x->begun == x->before + 1 && ids.id[x->before] == zt_id(t, "<|endoftext|>"));
      else
        cr_expect(x->before == part.n && x->begun == part.n, "%s, byte %zu: %zu and %zu, wanted %zu",
                  of[i].name, x->at, x->before, x->begun, part.n);
    }
    zt_ids_free(&ids);
    zt_ids_free(&part);
    zt_coder_free(c);
    zt_free(t);
  }
}
