/* Where a step whose numbers went wrong has its first NaN: the step is played again, as nothing was updated,
 * and what each node makes is looked at. Infinities are not: masks have them. */
#include "runtime/exec/engine/internal.h"
#include "runtime/plan/text.h"

#include <math.h>
#include <string.h>

enum { CHUNK = 64 << 10 };
struct ZxLook {
  int64_t key; /* of the first so far, below 0: none. Lower is earlier, on all ranks */
  char text[256];
  char *room; /* CHUNK bytes that the device can reach; NULL: its memory is the host's */
};

static bool chunk_has(const void *p, uint64_t n, ZkElem elem) {
  for (uint64_t i = 0; i < n; i++)
    if (isnan(elem == ZK_BF16 ? zb_bf16_to_f32(((const uint16_t *)p)[i]) : ((const float *)p)[i]))
      return true;
  return false;
}

static bool has_nan(ZxEngine *e, const ZpValue *v, const char *data) {
  if (v->elem != ZK_F32 && v->elem != ZK_BF16) return false;
  uint64_t size = zk_plain_bytes((ZkElem)v->elem), n = v->bytes / size, most = CHUNK / size;
  ZbErr none;
  for (uint64_t i = 0, m; i < n; i += m) {
    const char *at = data + i * size;
    m = n - i < most ? n - i : most;
    if (e->look->room) {
      e->dev->download(e->env, e->look->room, at, m * size);
      if (!e->dev->finish(e->env, &none)) return false;
      at = e->look->room;
    }
    if (chunk_has(at, m, (ZkElem)v->elem)) return true;
  }
  return false;
}

void zx_look_node(ZxEngine *e, const ZpSegment *s, const ZpNode *n, const ZkCall *c, ZpPhase phase,
                  const ZxFrame *f) {
  bool backward = phase == ZP_BWD;
  uint32_t v = e->st->prog.instrs[e->at].vstage;
  int64_t order = backward ? e->p->programs.nvstages - 1 - v : v;
  int64_t key = (((((int64_t)backward << 20) + f->mb) << 10) + order) << 20 | (e->at & 0xfffff);
  if (phase == ZP_COUNT || (e->look->key >= 0 && e->look->key <= key)) return;
  for (int i = 0; i < c->nout; i++) {
    if (!has_nan(e, &s->values[n->out[i]], c->out[i].data)) continue;
    ZbText t = {0};
    e->look->key = key;
    zp_instr_text(e->p, e->stage, &e->st->prog.instrs[e->at], &t);
    snprintf(e->look->text, sizeof e->look->text, "`%s` at %s in %s", zg_op_info[c->op].text,
             zp_loc_text(e->p, n->loc), t.s);
    zb_text_free(&t);
    return;
  }
}

bool zx_look_begin(ZxEngine *e) {
  ZbErr none;
  e->look = ZB_NEW(e->a, ZxLook);
  e->look->key = -1;
  if (!e->dev->host) e->look->room = e->dev->pinned(e->env, CHUNK, &none);
  return zx_agree(e->world, e->dev->host || e->look->room);
}

bool zx_look_end(ZxEngine *e, ZbText *out) {
  ZxLook *l = e->look;
  e->look = NULL;
  if (l->room) e->dev->unpin(e->env, l->room);
  int64_t key = zx_lowest(e->world, l->key),
          rank = zx_lowest(e->world, key >= 0 && l->key == key ? e->rank : -1);
  if (rank < 0) return false;
  e->world->t->wait(e->world, e->world->t->broadcast(e->world, 0, l->text, sizeof l->text, (int)rank));
  zb_text_add(out, "%s", l->text);
  return true;
}
