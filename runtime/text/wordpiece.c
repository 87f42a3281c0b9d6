/* WordPiece: the longest token that a word begins with, then the longest continuing one ("##ing"), and so on.
 * A word that does not come out even is unknown as a whole. */
#include "runtime/text/room.h"

bool zt_wordpiece_init(ZtTokenizer *t, ZbErr *err) {
  ZtModel *m = &t->model;
  if (!zt_model_trie(t, err)) return false;
  uint32_t node = 0;
  for (uint32_t i = 0; i < m->prefix_n; i++)
    if (!(node = zt_trie_step(&m->trie, node, (uint8_t)m->prefix[i]))) break;
  m->continuing = m->prefix_n && !node ? ZT_NONE : node;
  return true;
}

void zt_wordpiece(ZtCoder *c, const char *s, size_t n) {
  const ZtModel *m = &c->t->model;
  size_t chars = 0, begin = c->out->n;
  for (size_t at = 0; at < n; at += zt_char_bytes((uint8_t)s[at])) chars++;
  bool known = chars <= m->max_chars;
  for (size_t at = 0, end; known && at < n; at = end) {
    uint32_t node = at ? m->continuing : 0, id = ZT_NONE;
    known = node != ZT_NONE;
    end = at;
    for (size_t i = at; known && i < n && (node = zt_trie_step(&m->trie, node, (uint8_t)s[i])); i++)
      if (m->trie.value[node] != ZT_NONE) {
        id = m->trie.value[node];
        end = i + 1;
      }
    known &= id != ZT_NONE;
    if (known) zt_push(c->out, id);
  }
  if (known) return;
  c->out->n = begin;
  zt_push(c->out, m->unk);
}
