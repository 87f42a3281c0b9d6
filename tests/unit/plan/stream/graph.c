/* The graph of a step holds together, and has nothing that the output does not need. */
#include <criterion/criterion.h>
#include <string.h>

#include "runtime/plan/stream/stream.h"
#include "tests/unit/plan/stream/models.h"

typedef struct {
  Case c;
  ZpStream s;
  const char *name;
} Derived;

/* Derives model i of the table; false if it is one that is refused. */
static bool derive(int i, Derived *d) {
  const StreamModel *m = &stream_models[i];
  ZbErr err = {0};
  d->name = m->name;
  if (m->refused) return false;
  ZgGraph *g = stream_model(&d->c, m);
  cr_assert(zp_stream(g, d->c.a, NULL, NULL, &d->s, &err), "%s: %s", m->name, err.text);
  return true;
}

static bool same_types(const ZgType *a, uint32_t n, const ZgType *b, uint32_t m) {
  bool same = n == m;
  for (uint32_t i = 0; same && i < n; i++) same = zg_type_eq(&a[i], &b[i]);
  return same;
}

/* Operands come before their use; what is carried has the same types on both sides, and around a repeat. */
static void check_chain(const Derived *d, const ZgGraph *g) {
  for (uint32_t k = 0; k < g->nsegments; k++) {
    const ZgSegment *s = &g->segments[k], *next = k + 1 < g->nsegments ? s + 1 : NULL;
    bool ok = !next || same_types(s->carry_out, s->ncarry_out, next->carry_in, next->ncarry_in);
    ok &= !s->repeat || same_types(s->carry_out, s->ncarry_out, s->carry_in, s->ncarry_in);
    uint32_t values = 0, out = 0;
    for (uint32_t i = 0; i < s->nnodes; i++) {
      const ZgNode *n = &s->nodes[i];
      const ZgType *t = n->nout ? &s->values[n->out].type : &s->values[n->in[0]].type;
      for (int j = 0; j < n->nin; j++) ok &= n->in[j] < values;
      ok &= n->out == values || !n->nout;
      values += n->nout;
      if (n->op == ZG_OP_CARRY) ok &= zg_type_eq(t, &s->carry_in[n->opt[0]]);
      if (n->op == ZG_OP_CARRY_OUT) ok &= zg_type_eq(t, &s->carry_out[n->opt[0]]), out++;
    }
    cr_expect(ok && values == s->nvalues && out == s->ncarry_out, "%s, segment %u", d->name, k);
  }
}

/* Each node that is no way out has a result that somebody uses. */
static void check_used(const Derived *d, const ZgGraph *g) {
  for (uint32_t k = 0; k < g->nsegments; k++) {
    const ZgSegment *s = &g->segments[k];
    bool *used = ZB_NEWN(d->c.a, bool, s->nvalues + 1);
    for (uint32_t i = 0; i < s->nnodes; i++)
      for (int j = 0; j < s->nodes[i].nin; j++) used[s->nodes[i].in[j]] = true;
    for (uint32_t i = 0; i < s->nnodes; i++) {
      const ZgNode *n = &s->nodes[i];
      bool any = !n->nout;
      for (int j = 0; j < n->nout; j++) any |= used[n->out + (uint32_t)j];
      cr_expect(any, "%s, segment %u: nobody uses this %s", d->name, k, zg_op_info[n->op].text);
    }
  }
}

Test(graph, holds_together) {
  for (int i = 0; i < stream_model_count; i++) {
    Derived d;
    if (!derive(i, &d)) continue;
    check_chain(&d, d.s.step);
    check_used(&d, d.s.step);
    if (d.s.admit) check_chain(&d, d.s.admit), check_used(&d, d.s.admit);
    done(&d.c);
  }
}

/* The chunk of a prompt makes no logits but of its last token, and no loss; targets are no input. */
Test(graph, only_what_is_wanted) {
  for (int i = 0; i < stream_model_count; i++) {
    Derived d;
    if (!derive(i, &d)) continue;
    const ZgGraph *g = d.s.step;
    ZgType logits = zg_type(ZG_REAL, (uint16_t[]){d.s.axis.row, d.s.along.words}, 2);
    logits.elem = g->outputs[0].type.elem;
    cr_expect(g->noutputs == 1 && zg_type_eq(&g->outputs[0].type, &logits), "%s", d.name);
    for (uint32_t k = 0; k < g->ninputs; k++) cr_expect(strcmp(g->inputs[k].name, "targets"), "%s", d.name);
    for (uint32_t k = 0; k < g->nsegments; k++)
      for (uint32_t v = 0; v < g->segments[k].nvalues; v++) {
        const ZgType *t = &g->segments[k].values[v].type;
        bool words = zg_type_has(t, d.s.along.words), tokens = zg_type_has(t, d.s.axis.token);
        cr_expect(!(words && tokens), "%s: logits of all tokens", d.name);
        cr_expect(!zg_type_has(t, d.s.along.batch), "%s: a value has samples", d.name);
      }
    done(&d.c);
  }
}

/* Caches that models have; what several operations see is kept once. */
Test(graph, caches) {
  static const struct {
    const char *model;
    uint32_t caches;
  } of[] = {{"llama3", 2},
            {"deepseek", 2},
            {"keys of two attends", 3},
            {"values that are keys", 1},
            {"documents", 3},
            {"ALiBi", 2},
            {"attention that forgets", 4},
            {"relative bias", 2},
            {"cross attention", 2},
            {"shift of tokens", 1},
            {"two shifts of one value", 1},
            {"running mean", 1}};
  for (size_t k = 0; k < sizeof of / sizeof *of; k++)
    for (int i = 0; i < stream_model_count; i++) {
      Derived d;
      if (strcmp(stream_models[i].name, of[k].model)) continue;
      cr_assert(derive(i, &d));
      cr_expect(d.s.ncaches == of[k].caches, "%s: %u", d.name, d.s.ncaches);
      done(&d.c);
    }
}

/* What a sequence has alone is made at admission: of T5 the encoder, of which the step has but its keys. */
Test(graph, own) {
  for (int i = 0; i < stream_model_count; i++) {
    Derived d;
    if (strcmp(stream_models[i].name, "t5")) continue;
    cr_assert(derive(i, &d));
    uint32_t source = 0, params[2] = {0};
    for (uint32_t k = 0; k < d.s.step->ninputs; k++) source += !strcmp(d.s.step->inputs[k].name, "source");
    for (uint32_t k = 0; k < d.s.step->nsegments; k++) {
      params[0] += count_op(&d.s.step->segments[k], ZG_OP_PARAM);
      params[1] += count_op(&d.s.admit->segments[k], ZG_OP_PARAM);
    }
    cr_expect(source == 0);
    /* Tables of words and of a bias, a norm, and of a layer: 9 of the encoder; 14 of the decoder, of which
     * those that make keys and values of the source belong to it. */
    cr_expect(params[0] == 4 + 12, "%u", params[0]);
    cr_expect(params[1] == 3 + 9 + 2, "%u", params[1]);
    done(&d.c);
  }
}
