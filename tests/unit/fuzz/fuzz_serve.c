/* Fuzz target: any bytes as what a client sends, or as what a model answered. The first byte says which. A request is taken or
 * refused with a message that is JSON; of an answer the calls are read, whole and as it grows. */
#include "runtime/exec/serve/room.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char template[] =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}"
    "{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}"
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}";

static ZxServer *server(void) {
  static ZxWords words;
  static ZxServing how = {.name = "m", .words = &words, .length = 4096, .queue = 4};
  static ZxServer s = {.how = &how};
  static ZbArena *a;
  ZbErr err;
  if (a) return &s;
  a = zb_arena_new();
  if (!zx_words_open(&words, a, NULL, NULL, 256, &err)) ZB_BUG("%s", err.text);
  words.chats.usual = zt_template_new(template, sizeof template - 1, "fuzz", &err);
  if (!words.chats.usual) ZB_BUG("%s", err.text);
  pthread_mutex_init(&s.lock, NULL);
  pthread_cond_init(&s.came, NULL);
  return &s;
}

static void check_refusal(ZxForm form, const ZxRefusal *r) {
  ZbText t = {0};
  if (!r->status || !*r->err.text) ZB_BUG("refused without a status or message");
  zx_reply_error(&t, form, r);
  cJSON *o = zb_json_parse(t.s, t.len, ZB_JSON_ANY, NULL);
  if (!o || zt_utf8_valid(t.s, t.len) < t.len) ZB_BUG("a refusal is not JSON: %s", t.s);
  cJSON_Delete(o);
  zb_text_free(&t);
}

static void request(ZxServer *s, ZxForm form, const char *body, size_t n) {
  ZxRefusal r = {0};
  ZxJob *j = zx_request_read(s, form, body, n, &r);
  if (!j) {
    check_refusal(form, &r);
    return;
  }
  for (uint32_t i = 0; i < j->nparts; i++)
    if (!j->part[i].query.ntokens || j->part[i].query.ntokens > s->how->length)
      ZB_BUG("a prompt that cannot fit");
  zx_job_release(s, j);
}

static void endpoint(ZxServer *s, ZxEndpoint *answer, const char *body, size_t n) {
  ZxRefusal r = {0};
  ZbText t = {0};
  answer(s, body, n, &t, &r);
  if (r.status) check_refusal(ZX_COMPLETION, &r);
  else {
    cJSON *o = zb_json_parse(t.s, t.len, ZB_JSON_ANY, NULL);
    if (!o) ZB_BUG("an answer is not JSON: %s", t.s);
    cJSON_Delete(o);
  }
  zb_text_free(&t);
}

static void calls(const char *text, size_t n) {
  ZxCalls whole, part;
  zx_calls_read(text, n, true, ZX_CALLS, &whole);
  zx_calls_read(text, n / 2, false, ZX_CALLS, &part);
  if (part.ncalls > whole.ncalls || part.content.len > whole.content.len ||
      memcmp(part.content.s ? part.content.s : "", whole.content.s ? whole.content.s : "",
             part.content.len) ||
      memcmp(part.call, whole.call, part.ncalls * sizeof *part.call))
    ZB_BUG("a part of an answer says what the whole does not");
  zb_text_free(&whole.content);
  zb_text_free(&part.content);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  ZxServer *s = server();
  const char *text = (const char *)data + 1;
  if (!n--) return 0;
  switch (data[0] % 6) {
  case 0: request(s, ZX_COMPLETION, text, n); break;
  case 1: request(s, ZX_CHAT, text, n); break;
  case 2: request(s, ZX_MESSAGE, text, n); break;
  case 3: endpoint(s, zx_tokenize, text, n); break;
  case 4: endpoint(s, zx_detokenize, text, n); break;
  case 5: calls(text, n); break;
  }
  return 0;
}
