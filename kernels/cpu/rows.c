/* rows: those that ids name, of any element type. */
#include "kernels/cpu/step.h"

typedef struct {
  ZkView x, y;
  const int32_t *ids;
  ZkNest outer, rest; /* the ids' axes, and the others; views: y, x, ids */
  ZkLoop run;
  int64_t from; /* stride of x */
} Rows;

static void copy_rows(void *arg, int64_t from, int64_t to, int part) {
  const Rows *p = arg;
  int64_t rest = zk_nest_count(&p->rest);
  ZkWalk o, r;
  (void)part;
  zk_walk_seek(&p->outer, &o, from);
  for (int64_t i = from; i < to; i++, zk_walk_next(&p->outer, &o)) {
    int64_t id = p->ids[o.off[2]];
    zk_walk_seek(&p->rest, &r, 0);
    for (int64_t k = 0; k < rest; k++, zk_walk_next(&p->rest, &r)) {
      int64_t at = o.off[0] + r.off[0];
      if (id < 0) zk_fill_run(&p->y, at, p->run.s[0], 0, p->run.n);
      else
        zk_copy_run(&p->y, at, p->run.s[0], &p->x, o.off[1] + r.off[1] + id * p->from, p->run.s[1], p->run.n);
    }
  }
}

/* Takes an axis out of a view. */
static ZkView without(ZkView v, uint16_t axis) {
  int at = zk_axis_find(&v, axis);
  ZB_ASSERT(at >= 0);
  for (int i = at; i + 1 < v.rank; i++)
    v.axis[i] = v.axis[i + 1], v.size[i] = v.size[i + 1], v.stride[i] = v.stride[i + 1];
  v.rank--;
  return v;
}

void zk_cpu_rows(const ZkEnv *env, const ZkCall *c) {
  const ZkView *ids = &c->in[1];
  ZkView x = without(c->in[0], c->ax[0]);
  Rows p = {.x = c->in[0], .y = c->out[0], .ids = zk_ids(ids), .from = zk_axis_stride(&c->in[0], c->ax[0])};
  const ZkView *views[] = {&p.y, &x, ids};
  p.outer = zk_nest(views, 3, ids->axis, ids->rank, true);
  p.rest = zk_nest(views, 3, ids->axis, ids->rank, false);
  zk_nest_order(&p.rest, 0);
  p.run = zk_nest_pop(&p.rest);
  int64_t work = zk_max(1, zk_nest_count(&p.rest) * p.run.n);
  zk_for(env, zk_nest_count(&p.outer), zk_max(1, 16384 / work), copy_rows, &p);
}
