/* Updates at the end of a step. One bucket after the other; those of Muon last, which pass through whole
 * matrices: the momentum, the gather of what is cut of them, their orthogonalisation, each by one rank, and
 * the way back.
 *
 * Where something is gathered, there are two buffers in turn, so that one bucket is on its way while matrices
 * of the one before are orthogonalised;
 * M momentum, O orthogonalisation, U update, `>` a collective:
 *   compute  M0  M1  O0      U0 M2  O1      U1  O2      U2
 *   coll       >0  >1  0>         >2  1>          2>
 * Else one is enough. The way back is a sum: of a matrix that is another's a rank has zeros. */
#include "runtime/plan/schedule/schedule.h"

static const ZpBucket *bucket_of(const ZpBuilder *g, uint32_t held) {
  return &g->p->programs.buckets[g->st->held[held].bucket];
}

void zp_gen_update_bufs(ZpBuilder *g) {
  uint64_t most = 0;
  uint32_t n = 0, gathered = 0;
  g->turn = ZB_NEWN(g->a, uint32_t, g->st->nheld);
  g->gathered = ZB_NEWN(g->a, uint32_t, g->st->nheld);
  g->scattered = ZB_NEWN(g->a, uint32_t, g->st->nheld);
  for (uint32_t h = 0; h < g->st->nheld; h++) {
    const ZpBucket *b = bucket_of(g, h);
    g->gathered[h] = g->scattered[h] = ZP_NONE;
    if (!zp_updates_whole(g->p, b)) continue;
    uint64_t bytes = zp_update_bytes(g->p, b);
    if (bytes > most) most = bytes;
    g->turn[h] = n++ % 2;
    gathered += b->matrices != 0;
  }
  g->nupdate = n < 2 || !gathered ? n > 0 : 2;
  for (uint32_t h = 0; h < g->st->nheld && g->nupdate == 1; h++) g->turn[h] = 0;
  g->update_buf = zp_gen_bufs(g, ZP_B_UPDATE, 0, g->nupdate, zb_round_up(most, 64));
}

static void update(ZpBuilder *g, uint32_t h, uint64_t time) {
  zp_gen_compute(g, ZP_I_OPT_STEP, time, 1)->held = h;
}

/* ---- Muon ---- */
/* Returns an instruction of the collective queue, behind the last of the compute queue: one contents of the
 * update into another. */
static uint32_t exchange(ZpBuilder *g, ZpInstrOp op, uint32_t held, uint64_t time, ZgOp coll,
                         uint32_t before) {
  const ZpBucket *b = bucket_of(g, held);
  if (!b->matrices) return ZP_NONE;
  uint32_t id = zp_gen_draft(g, op, time, BY_UPDATE, held);
  ZpDraft *d = &g->d[id];
  d->after_pos = g->ncomp - 1;
  d->in.held = held;
  d->in.dims = b->matrices;
  d->in.coll = (uint16_t)coll;
  d->in.bytes = zp_update_bytes(g->p, b);
  d->in.naccess = 2;
  d->in.access = ZB_NEWN(g->p->arena, ZpAccess, 2);
  for (uint32_t k = 0; k < 2; k++)
    d->in.access[k] = (ZpAccess){g->update_buf + g->turn[held], k ? ZP_WRITE : ZP_READ,
                                 zp_tag_held(g, ZP_TAG_UPDATE, held, before + k)};
  return id;
}

static void momentum(ZpBuilder *g, uint32_t held, uint64_t *now) {
  zp_gen_compute(g, ZP_I_MOMENTUM, (*now)++, 1)->held = held;
  g->gathered[held] = exchange(g, ZP_I_GATHER_UPDATES, held, *now, ZG_OP_ALL_GATHER, 0);
}

static void orthogonalize(ZpBuilder *g, uint32_t held, uint64_t *now) {
  zp_gen_compute(g, ZP_I_ORTHOGONALIZE, (*now)++, 1)->held = held;
  g->scattered[held] = exchange(g, ZP_I_SCATTER_UPDATES, held, *now, ZG_OP_REDUCE_SCATTER, 2);
}

static void update_matrices(ZpBuilder *g, uint64_t now) {
  uint32_t *list = ZB_NEWN(g->a, uint32_t, g->st->nheld), n = 0;
  for (uint32_t h = 0; h < g->st->nheld; h++)
    if (zp_updates_whole(g->p, bucket_of(g, h))) list[n++] = h;
  uint32_t ahead = g->nupdate == 2; /* whose momentum comes before the matrices of one */
  for (uint32_t i = 0; i < n; i++) {
    if (!i && ahead) momentum(g, list[0], &now);
    if (i && ahead) update(g, list[i - 1], now++);
    if (i + ahead < n) momentum(g, list[i + ahead], &now);
    orthogonalize(g, list[i], &now);
    if (!ahead || i + 1 == n) update(g, list[i], now++);
  }
}

void zp_gen_updates(ZpBuilder *g, uint64_t step) {
  for (uint32_t h = 0; h < g->st->nheld; h++)
    if (!bucket_of(g, h)->frozen && !zp_updates_whole(g->p, bucket_of(g, h))) update(g, h, step + h);
  update_matrices(g, step + g->st->nheld + 1);
}

void zp_gen_touch_muon(ZpBuilder *g, uint32_t pos, const ZpInstr *in) {
  uint32_t h = in->held, buf = g->update_buf + g->turn[h], states = g->state_buf[h];
  bool whole = bucket_of(g, h)->matrices != 0;
  if (in->op == ZP_I_MOMENTUM) {
    zp_gen_touch(g, g->grad_buf[h], ZP_READ, zp_tag_held(g, ZP_TAG_GRAD, h, g->phase[h]));
    zp_gen_touch(g, states, ZP_READ | ZP_WRITE, zp_tag_held(g, ZP_TAG_STATE, h, 0));
    zp_gen_touch(g, g->scalars_buf + ZP_SCALARS_SUMS, ZP_READ, zp_tag(ZP_TAG_SUMS, 0, 0, 2));
    zp_gen_touch(g, buf, ZP_WRITE, zp_tag_held(g, ZP_TAG_UPDATE, h, 0));
    zp_gen_await(g, pos, g->step);
  } else if (in->op == ZP_I_ORTHOGONALIZE) {
    zp_gen_touch(g, buf, ZP_READ, zp_tag_held(g, ZP_TAG_UPDATE, h, whole));
    zp_gen_touch(g, buf, ZP_WRITE, zp_tag_held(g, ZP_TAG_UPDATE, h, 2));
    if (zp_moments(g->p, bucket_of(g, h)))
      zp_gen_touch(g, states, ZP_READ | ZP_WRITE, zp_tag_held(g, ZP_TAG_STATE, h, 0));
    if (zp_scales_sides(&g->p->asked.optimizers[bucket_of(g, h)->optimizer]))
      zp_gen_touch(g, g->scalars_buf + ZP_SCALARS_SUMS, ZP_READ, zp_tag(ZP_TAG_SUMS, 0, 0, 2));
    zp_gen_await(g, pos, g->gathered[h]);
  } else {
    zp_gen_touch(g, buf, ZP_READ, zp_tag_held(g, ZP_TAG_UPDATE, h, whole ? 3 : 2));
    if (g->p->asked.average > 0)
      zp_gen_touch(g, states, ZP_READ | ZP_WRITE, zp_tag_held(g, ZP_TAG_STATE, h, 0));
    zp_gen_await(g, pos, g->scattered[h]);
  }
}
