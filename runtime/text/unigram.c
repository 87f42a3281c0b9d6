/* Unigram: of all ways to cut a word into tokens, the one with the largest sum of scores, in f64 and from
 * left to right; of equal ones that which was found first. */
#include "runtime/text/room.h"

bool zt_unigram_init(ZtTokenizer *t, ZbErr *err) {
  ZtModel *m = &t->model;
  double least = 0;
  for (uint32_t i = 0; i < m->count; i++)
    if (!i || m->score[i] < least) least = m->score[i];
  m->unk_score = least - 10;
  return zt_model_trie(t, err);
}

static void better(ZtStep *s, double score, size_t from, uint32_t id) {
  if (s->from != ZT_NONE && score <= s->score) return;
  *s = (ZtStep){score, (uint32_t)from, id};
}

/* The best step to every place, from one before it. */
static void find_path(ZtCoder *c, const char *s, size_t n) {
  const ZtModel *m = &c->t->model;
  ZtStep *step = c->step;
  for (size_t i = 0; i <= n; i++) step[i].from = ZT_NONE;
  step[0].score = 0;
  for (size_t at = 0, bytes; at < n; at += bytes) {
    bytes = zt_char_bytes((uint8_t)s[at]);
    bool single = false;
    uint32_t node = 0;
    for (size_t i = at; i < n && (node = zt_trie_step(&m->trie, node, (uint8_t)s[i])); i++) {
      uint32_t id = m->trie.value[node];
      if (id == ZT_NONE) continue;
      single |= i + 1 == at + bytes;
      better(&step[i + 1], m->score[id] + step[at].score, at, id);
    }
    if (!single) better(&step[at + bytes], m->unk_score + step[at].score, at, m->unk);
  }
}

static void add_unknown(ZtCoder *c, const char *s, size_t n) {
  const ZtModel *m = &c->t->model;
  uint32_t id = zt_table_find(&m->vocab, s, n);
  if (id != ZT_NONE) {
    zt_push(c->out, id);
    return;
  }
  size_t have = 0;
  while (m->byte_fallback && have < n && m->fallback[(uint8_t)s[have]] != ZT_NONE) have++;
  if (have < n) zt_push(c->out, m->unk);
  else
    for (size_t i = 0; i < n; i++) zt_push(c->out, m->fallback[(uint8_t)s[i]]);
}

bool zt_unigram(ZtCoder *c, const char *s, size_t n) {
  const ZtModel *m = &c->t->model;
  c->step = zt_room(c->step, 0, n + 1, sizeof *c->step, &c->step_cap);
  find_path(c, s, n);
  /* Back to front; neighbours that are unknown become one. Scores are no longer wanted: instead each place
   * where a token begins says where it ends (below 2^53), to go from front to back then. */
  size_t next = n;
  for (size_t end = n; end;) {
    size_t from = c->step[end].from;
    uint32_t id = c->step[end].id;
    while (id == m->unk && from && c->step[from].id == m->unk) from = c->step[from].from;
    c->step[from].score = (double)end;
    next = end = from;
  }
  for (size_t at = next, end; at < n; at = end) {
    end = (size_t)c->step[at].score;
    uint32_t id = c->step[end].id;
    if (id != m->unk) zt_push(c->out, id);
    else if (m->unk == ZT_NONE)
      return zb_fail(c->err, NULL, "the text has %s, and the tokenizer's model no unk_id",
                     zb_show_n(s + at, end - at));
    else add_unknown(c, s + at, end - at);
  }
  return true;
}
