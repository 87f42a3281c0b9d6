/* Parts of jobs: a prompt each, as ids that are known to fit. */
#include "runtime/exec/serve/room.h"

#include <string.h>

bool zx_request_part(ZxReading *x, const ZxQuery *q) {
  ZxWords words = *x->s->how->words;
  ZxPart *p = &x->j->part[x->j->nparts];
  ZtIds id = {0};
  ZxGenRequest g;
  words.coder = zx_coder(x->s);
  bool ok = zx_words_of(&words, q, &id, &x->r->err) &&
            zx_words_request(&words, q, &id, x->s->how->length, &g, &x->r->err);
  zx_coder_back(x->s, words.coder);
  if (ok) zx_shape_release(g.shape);
  if (ok) {
    uint32_t *own = ZB_NEWN(x->j->a, uint32_t, id.n + 1);
    memcpy(own, id.id, id.n * sizeof *own);
    *p = (ZxPart){.job = x->j, .index = x->j->nparts++, .query = *q};
    p->query.prompt = NULL;
    p->query.token = own;
    p->query.ntokens = (uint32_t)id.n;
    p->query.seed = (int64_t)g.sampling.seed;
  }
  zt_ids_free(&id);
  return ok || zx_refuse_field(x->r, "prompt");
}
