/* Templates: compiled, rendered, and what they wrote as ids. */
#include "runtime/text/template/template.h"
#include "runtime/text/template/inside.h"

#include <stdlib.h>

/* ---- loading --------------------------------------------------------------------------------- */
static bool compile(ZtTemplate *t, const char *source, size_t n, ZbErr *err) {
  if (n > ZT_TEMPLATE_LIMIT)
    return zb_fail(err, NULL, "%s has %zu bytes; at most %d are read", zb_show(t->name), n,
                   ZT_TEMPLATE_LIMIT);
  if (zt_utf8_valid(source, n) < n || memchr(source, 0, n))
    return zb_fail(err, NULL, "%s is not UTF-8 text", zb_show(t->name));
  t->source = zb_strndup(t->a, source, n);
  t->nsource = n;
  ZtParser p = {.t = t, .err = err, .at = zt_lex(t->a, source, n, t->name, err)};
  return p.at && (t->root = zt_parse(&p));
}

ZtTemplate *zt_template_new(const char *source, size_t n, const char *name, ZbErr *err) {
  ZbArena *a = zb_arena_new();
  ZtTemplate *t = ZB_NEW(a, ZtTemplate);
  t->a = a;
  t->name = zb_strdup(a, name);
  if (compile(t, source, n, err)) return t;
  zt_template_free(t);
  return NULL;
}

void zt_template_free(ZtTemplate *t) {
  if (t) zb_arena_free(t->a);
}

bool zt_template_reads(const ZtTemplate *t, const char *variable) {
  return zb_names_find(&t->names, variable) != ZB_NO_NAME;
}

/* ---- rendering ------------------------------------------------------------------------------- */
/* Puts the spans of bytes that have one of the marks, in the first n. */
static ZtSpan *spans(const ZtMade *m, size_t n, uint8_t marks, size_t *count) {
  ZtSpan *out = NULL;
  size_t cap = 0, k = 0;
  for (size_t at = 0; m->mark && at < n;) {
    size_t begin = at;
    uint8_t of = m->mark[at] & marks;
    while (at < n && (m->mark[at] & marks) == of) at++;
    if (!of) continue;
    out = zt_room(out, k, 1, sizeof *out, &cap);
    out[k++] = (ZtSpan){.begin = begin, .end = at, .of = of & (ZT_SPAN_OTHERS | ZT_SPAN_ASSISTANT)};
  }
  *count = k;
  return out;
}

/* Where the last message's text ends in what was rendered. */
static bool last_text_end(const ZtMade *m, size_t *end, ZbErr *err) {
  size_t n = m->mark ? m->n : 0;
  while (n && !(m->mark[n - 1] & ZT_OF_LAST)) n--;
  *end = n;
  return n || zb_fail(err, NULL,
                      "the last message has no text in what the chat template writes, so that no answer can "
                      "go on with it");
}

bool zt_template_apply(const ZtTemplate *t, const ZtChat *chat, ZtRendered *out, ZbErr *err) {
  ZtMade m = {0};
  ZtFrame globals = {0};
  ZtRun r = {.t = t, .chat = chat, .a = zb_arena_new(), .err = err, .frame = &globals, .out = &m, .line = 1};
  *out = (ZtRendered){0};
  if (chat->add_generation_prompt && chat->continue_final_message)
    zt_wrong(&r, "an answer is to begin, and to go on with the last message");
  if (zt_chat_variables(&r)) zt_execute(&r);
  size_t n = m.n;
  bool ok = !r.failed && (!chat->continue_final_message || last_text_end(&m, &n, err));
  if (ok) {
    zb_text_put(&out->text, n ? m.s : "", n);
    out->given = spans(&m, n, ZT_SPAN_OTHERS | ZT_SPAN_ASSISTANT, &out->ngiven);
    out->generated = spans(&m, n, ZT_GENERATED, &out->ngenerated);
  }
  zb_arena_free(r.a);
  return ok;
}

void zt_rendered_free(ZtRendered *r) {
  zb_text_free(&r->text);
  free(r->given);
  free(r->generated);
  *r = (ZtRendered){0};
}

bool zt_template_encode(const ZtTemplate *t, ZtCoder *c, const ZtRendered *r, ZtCuts *cuts, ZtIds *out,
                        ZbErr *err) {
  const ZtMarked marked = {
      .span = r->given, .nspans = r->ngiven, .written = t->source, .nwritten = t->nsource, .cuts = cuts};
  return zt_encode_marked(c, r->text.s, r->text.len, &marked, out, err);
}
