/* Queries go to the ranks that answer them, and answers come to rank 0.
 *
 *   rank 0      desk: the next query -> the lane with least to do          a lane: a wave of a replica
 *   leaders     the first rank of each replica: what is asked, and what was written
 *   all ranks of a replica, turn by turn, a wave after the other:
 *
 *     take what the wave's last step chose; hear from the leader what this turn brings; ask; play a step
 *
 * In a pipeline a wave's step is under way in later stages while its first stage plays other waves: what it chose is
 * taken when the turn comes to the wave again. Replicas wait for each other at the end alone. Those that have nothing to
 * do are told so now and then: a rank that hears nothing for long has lost somebody (comm/watch.h). */
#include "runtime/exec/comm/watch.h"
#include "runtime/exec/exit.h"
#include "runtime/exec/mail.h"
#include "runtime/exec/run/lanes.h"
#include "runtime/exec/stepper.h"

#include <stdlib.h>
#include <string.h>

enum { AHEAD = 8 /* choices that wait in a lane, at most */ };
static const double BEAT = 1; /* seconds after which ranks that wait are told that nothing is lost */

/* What a leader tells its replica before each turn, and rank 0 the leaders; `bytes` of orders follow. */
typedef struct {
  uint64_t digest; /* of all that the wave has decided */
  uint64_t bytes;
  double seconds; /* of its last step */
  int32_t stopping, failed;
  bool ends; /* all is written */
} Turn;

/* A query to be asked, of which `bytes` follow, or to be ended. */
typedef enum { ASK, END } OrderKind;
typedef struct {
  uint64_t number, bytes;
  uint32_t kind, wave;
} Order;

/* What a leader tells rank 0; `bytes` of text follow. */
typedef struct {
  uint64_t number;
  uint32_t kind, choice, wave, choices;
  uint64_t bytes;
} Told;
enum { COUNTS = ZX_TOLD_KINDS /* of a wave, also to say that nothing is lost */, ENDS };

/* A wave of this rank's replica. */
typedef struct {
  ZxAnswers *x;
  bool under_way; /* a step was played, of which nothing is taken yet */
  ZxInbox chosen;
  ZbText orders; /* of its next turn, as far as they have come */
} Wave;

/* Another replica, as rank 0 knows it. */
typedef struct {
  ZxInbox told;
  Told head;
  ZbText orders; /* not sent yet */
  double beat;   /* when it was told something */
  double heard;  /* when it told something */
  bool ended;
} Far;

struct ZxLanes {
  ZxRun *r;
  const ZxDesk *desk;
  const ZxReplica *replica;
  ZxMail *mail;
  Wave *wave;
  ZxAnswering *how; /* by wave */
  uint32_t waves;
  ZxInbox turn, asks; /* of a follower: the leader's; of a leader: rank 0's */
  Turn heard, asked;
  ZbText text; /* what is told or heard now */
  bool ends;
  double told; /* when this leader told rank 0 something */
  /* rank 0 */
  Far *far;
  uint32_t *load;   /* choices under way, by lane: replica x waves + wave */
  ZxCounts *counts; /* by lane */
  uint32_t slots;   /* of a lane */
  ZxRoutes *routes; /* NULL: texts share nothing, or there is one lane */
};

static bool leads(const ZxLanes *l) { return l->replica->rank == 0; }
static bool is_first(const ZxLanes *l) { return leads(l) && l->replica->index == 0; }

/* ---- what is written comes to rank 0 -------------------------------------------------------------------------- */
static bool take_told(ZxLanes *l, const Told *t, uint32_t lane, const char *text) {
  if (t->kind != ZX_TOLD_NEWS) l->load[lane] -= t->choices;
  if (l->r->stopping && t->kind == ZX_TOLD_RESULT && !l->desk->wants_news) return true;
  return l->desk->take(l->desk->ctx, (ZxToldKind)t->kind, t->number, t->choice, text, t->bytes);
}

static void tell(ZxLanes *l, const Told *t, const void *text) {
  int first = l->replica->leaders[0];
  zx_mail_send(l->mail, first, ZX_MAIL_TOLD, t, sizeof *t);
  if (t->bytes) zx_mail_send(l->mail, first, ZX_MAIL_TOLD, text, t->bytes);
  l->told = zb_now();
}

/* Tells rank 0 how far the waves are. */
static void tell_counts(ZxLanes *l) {
  for (uint32_t w = 0; w < l->waves; w++) {
    ZxCounts c = zx_answers_counts(l->wave[w].x);
    if (is_first(l)) l->counts[w] = c;
    else if (leads(l)) tell(l, &(Told){.kind = COUNTS, .wave = w, .bytes = sizeof c}, &c);
  }
}

/* Gives rank 0 a part of an answer, or the end of it: what l->text has. */
static void give(ZxLanes *l, uint32_t wave, ZxToldKind kind, uint64_t number, uint32_t choice,
                 uint32_t choices) {
  Told t = {number, kind, choice, wave, choices, l->text.len};
  const char *text = l->text.len ? l->text.s : "";
  if (is_first(l)) {
    if (!take_told(l, &t, wave, text) && !l->r->lane_failed) l->r->lane_failed = l->r->failed;
  } else if (leads(l)) tell(l, &t, text);
}

static void give_news(ZxLanes *l, uint32_t wave, uint64_t number, uint32_t choice) {
  if (!leads(l) || !l->desk->wants_news) return;
  l->text.len = 0;
  zx_answers_news(l->wave[wave].x, number, choice, &l->text);
  give(l, wave, ZX_TOLD_NEWS, number, choice, 0);
}

typedef struct {
  ZxLanes *l;
  uint32_t wave;
} Piece;

static void give_piece(void *ctx, uint64_t number, uint32_t choice, const char *text, size_t n) {
  const Piece *p = ctx;
  (void)text, (void)n;
  give_news(p->l, p->wave, number, choice);
}

/* Gives rank 0 a message why there is no answer. */
static void give_error(ZxLanes *l, uint32_t wave, ZxToldKind kind, uint64_t number, uint32_t choices,
                       const ZbErr *err) {
  l->text.len = 0;
  zb_text_put(&l->text, err->text, strlen(err->text) + 1);
  zb_text_put(&l->text, err->help, strlen(err->help) + 1);
  give(l, wave, kind, number, 0, choices);
}

static void give_result(ZxLanes *l, uint32_t wave, const ZxAnswered *q) {
  uint32_t choices = (uint32_t)q->query->choices;
  ZxSummary summary = {q->prompt_tokens, q->cached};
  if (q->broken) {
    give_error(l, wave, ZX_TOLD_BROKEN, q->number, choices, q->broken);
    return;
  }
  for (uint32_t c = 0; c < choices; c++) give_news(l, wave, q->number, c);
  l->text.len = 0;
  if (l->desk->wants_news) zb_text_put(&l->text, (const char *)&summary, sizeof summary);
  else zx_result(&l->r->prompts.words, q, &l->text);
  give(l, wave, ZX_TOLD_RESULT, q->number, 0, choices);
}

static void give_answered(ZxLanes *l, uint32_t wave) {
  bool any = false;
  for (const ZxAnswered *q; (q = zx_answers_next(l->wave[wave].x)); any = true) {
    if (!any) tell_counts(l);
    if (leads(l)) give_result(l, wave, q);
    l->desk->forget(l->desk->ctx, q->number, q->query);
  }
}

/* Waits for `bytes` that follow a message, and appends them. */
static void hear_rest(const ZxLanes *l, int from, int tag, uint64_t bytes, ZbText *to) {
  if (!bytes) return;
  char *text = zx_need(malloc(bytes));
  ZxInbox rest = {l->r->c, text, bytes, from, tag, 0, false};
  zx_inbox_open(&rest);
  zx_inbox_wait(&rest);
  zb_text_put(to, text, bytes);
  free(text);
}

/* Takes what other replicas have told; rank 0. False: nothing has come. */
static bool hear_far(ZxLanes *l, int k) {
  Far *f = &l->far[k];
  if (f->ended || !zx_inbox_has(&f->told)) return false;
  Told t = f->head;
  f->heard = zb_now();
  uint32_t lane = (uint32_t)k * l->waves + t.wave;
  l->text.len = 0;
  hear_rest(l, l->replica->leaders[k], ZX_MAIL_TOLD, t.bytes, &l->text);
  f->ended = t.kind == ENDS;
  if (t.kind == COUNTS) memcpy(&l->counts[lane], l->text.s, sizeof l->counts[lane]);
  else if (!f->ended && !take_told(l, &t, lane, t.bytes ? l->text.s : "") && !l->r->lane_failed)
    l->r->lane_failed = l->r->failed;
  if (!f->ended) zx_inbox_open(&f->told);
  return true;
}

/* ---- what is asked goes to replicas --------------------------------------------------------------------------- */
/* Returns the lane with the least to do that has room for so many choices; -1: none. */
static int free_lane(const ZxLanes *l, uint32_t choices) {
  int best = -1;
  for (int i = 0; i < l->replica->count * (int)l->waves; i++) {
    bool room = !l->load[i] || l->load[i] + choices <= l->slots + AHEAD;
    if (room && (best < 0 || l->load[i] < l->load[best])) best = i;
  }
  return best;
}

/* Says whether a lane can begin a query at once, and has not much more to do than the one with the least. */
static bool may_prefer(const ZxLanes *l, int lane, int least, uint32_t choices) {
  return l->load[lane] + choices <= l->slots && l->load[lane] <= l->load[least] + l->slots / 4;
}

/* Returns the lane for a query: the one with the least to do, or one that wrote what it begins with; -1: none. */
static int lane_for(ZxLanes *l, const ZxNext *next) {
  int lane = free_lane(l, next->choices), known;
  if (lane < 0 || !l->routes || !next->query) return lane;
  ZxRoute route = zx_route_of(l->routes, next->query);
  known = zx_routes_find(l->routes, &route);
  if (known >= 0 && may_prefer(l, known, lane, next->choices)) lane = known;
  zx_routes_note(l->routes, &route, (uint32_t)lane);
  return lane;
}

/* Puts an order where its lane finds it. A query is packed into it. */
static void order(ZxLanes *l, uint32_t lane, OrderKind kind, uint64_t number, const ZxQuery *q) {
  uint32_t k = lane / l->waves, wave = lane % l->waves;
  ZbText *to = k ? &l->far[k].orders : &l->wave[wave].orders;
  Order o = {.number = number, .kind = kind, .wave = wave};
  size_t at = to->len;
  zb_text_put(to, (const char *)&o, sizeof o);
  if (q) zx_pack_query(q, to);
  o.bytes = to->len - at - sizeof o;
  memcpy(to->s + at, &o, sizeof o);
}

/* Reads the next order of a text; *at goes behind it and what follows it. Returns what follows it; NULL: no more. */
static const char *next_order(const ZbText *from, size_t *at, Order *o) {
  if (*at == from->len) return NULL;
  memcpy(o, from->s + *at, sizeof *o);
  const char *rest = from->s + *at + sizeof *o;
  *at += sizeof *o + o->bytes;
  return rest;
}

static void deal(ZxLanes *l) {
  const ZxDesk *d = l->desk;
  uint64_t number;
  uint32_t lane;
  while (d->open && d->open->leaves(d->ctx, &number, &lane)) order(l, lane, END, number, NULL);
  for (ZxNext next; !l->r->stopping && d->next(d->ctx, &next);) {
    int to = lane_for(l, &next);
    if (to < 0) return;
    lane = (uint32_t)to;
    l->load[lane] += next.choices;
    order(l, lane, ASK, next.number, next.query);
    d->took(d->ctx, lane);
  }
}

/* Tells other replicas what there is, or after a while that nothing is lost. */
static void send_asks(ZxLanes *l, bool now) {
  double t = zb_now();
  for (int k = 1; k < l->replica->count; k++) {
    Far *f = &l->far[k];
    int to = l->replica->leaders[k];
    if (!f->orders.len && !now && t - f->beat < BEAT) continue;
    Turn next = {.stopping = l->r->stopping, .failed = l->r->lane_failed, .ends = l->ends};
    next.bytes = f->orders.len;
    zx_mail_send(l->mail, to, ZX_MAIL_ASK, &next, sizeof next);
    if (next.bytes) zx_mail_send(l->mail, to, ZX_MAIL_ASK, f->orders.s, next.bytes);
    f->orders.len = 0;
    f->beat = t;
  }
}

/* Shows the desk how far all lanes are. */
static void look(ZxLanes *l) {
  ZxCounts all = {0};
  tell_counts(l);
  for (uint32_t i = 0; i < (uint32_t)l->replica->count * l->waves; i++) zx_counts_add(&all, &l->counts[i]);
  l->desk->open->look(l->desk->ctx, &all);
}

/* Ends the job if a replica tells nothing any more: while rank 0 makes steps, its own watchdog finds nothing wrong. */
static void miss(const ZxLanes *l, int k) {
  double limit = l->r->o.hang_after, silent = zb_now() - l->far[k].heard;
  if (limit > 0 && silent > limit)
    zx_die_of(l->r->c, ZX_EXIT_HANGS, "nothing has come from rank %d, the first of replica %d, for %.0f s",
              l->replica->leaders[k], k, silent);
}

/* Does rank 0's part between turns. Returns whether something has come. */
static bool manage(ZxLanes *l) {
  bool any = false;
  for (int k = 1; k < l->replica->count; k++) {
    while (hear_far(l, k)) any = true;
    miss(l, k);
  }
  if (any) zx_watch_moved();
  if (l->desk->open) look(l);
  else if (!l->r->stopping) l->r->stopping = zx_stop_wanted(&l->r->stop);
  deal(l);
  bool over = l->desk->done(l->desk->ctx) || l->r->stopping || l->r->lane_failed, ends = over && !l->ends;
  l->ends = over;
  send_asks(l, ends);
  return any;
}

/* Takes what rank 0 asks of this replica. Returns whether something has come. */
static bool hear_asks(ZxLanes *l) {
  bool any = false;
  Order o;
  for (; !l->ends && zx_inbox_has(&l->asks); any = true) {
    const Turn *h = &l->asked;
    l->text.len = 0;
    hear_rest(l, l->replica->leaders[0], ZX_MAIL_ASK, h->bytes, &l->text);
    for (size_t at = 0, from = 0; next_order(&l->text, &at, &o); from = at)
      zb_text_put(&l->wave[o.wave].orders, l->text.s + from, at - from);
    if (h->stopping) l->r->stopping = h->stopping;
    if (h->failed) l->r->lane_failed = h->failed;
    l->ends |= h->ends;
    zx_watch_moved();
    if (!l->ends) zx_inbox_open(&l->asks);
  }
  if (zb_now() - l->told > BEAT) tell_counts(l);
  return any;
}

static bool is_idle(const ZxLanes *l) {
  for (uint32_t w = 0; w < l->waves; w++)
    if (l->wave[w].under_way || l->wave[w].orders.len || !zx_answers_idle(l->wave[w].x)) return false;
  return true;
}

/* Says whether any lane has something to do; rank 0. */
static bool are_busy(const ZxLanes *l) {
  for (uint32_t i = 0; i < (uint32_t)l->replica->count * l->waves; i++)
    if (l->load[i]) return true;
  return false;
}

/* A leader without work waits for some; not for ever, since its followers wait, too. */
static void await_work(ZxLanes *l) {
  double until = zb_now() + BEAT;
  ZxWait w = {0};
  for (;;) {
    bool any = is_first(l) ? manage(l) : hear_asks(l);
    if (!is_idle(l) || l->ends) return;
    bool rests = is_first(l) && l->desk->open && !are_busy(l);
    if (rests) {
      zx_watch_moved();
      l->desk->open->wait(l->desk->ctx);
    }
    if (zb_now() > until) {
      if (!rests) zx_watch_waits(is_first(l) ? "what other replicas write" : "what rank 0 asks");
      return;
    }
    if (any) w = (ZxWait){0};
    if (!rests) (void)zx_pause(&w, l->r->c);
  }
}

/* ---- turns ---------------------------------------------------------------------------------------------------- */
/* Finds what this turn brings, on all ranks of the replica. */
static void hear_turn(ZxLanes *l, Wave *v) {
  const ZxReplica *p = l->replica;
  if (!leads(l)) {
    zx_inbox_open(&l->turn);
    zx_inbox_wait(&l->turn);
    hear_rest(l, p->world[0], ZX_MAIL_TURN, l->heard.bytes, &v->orders);
    return;
  }
  if (is_idle(l)) await_work(l);
  else if (is_first(l)) manage(l);
  else hear_asks(l);
  l->heard = (Turn){.digest = zx_answers_digest(v->x),
                    .bytes = v->orders.len,
                    .seconds = zx_answers_seconds(v->x),
                    .stopping = l->r->stopping,
                    .failed = l->r->lane_failed,
                    .ends = l->ends};
  for (int i = 1; i < p->size; i++) {
    zx_mail_send(l->mail, p->world[i], ZX_MAIL_TURN, &l->heard, sizeof l->heard);
    if (v->orders.len) zx_mail_send(l->mail, p->world[i], ZX_MAIL_TURN, v->orders.s, v->orders.len);
  }
}

static void take_turn(ZxLanes *l, Wave *v) {
  const Turn *t = &l->heard;
  if (t->digest != zx_answers_digest(v->x))
    ZB_BUG("rank %d has come to other steps or tokens than rank %d", l->r->rank, l->replica->world[0]);
  l->r->stopping = t->stopping, l->r->lane_failed = t->failed, l->ends = t->ends;
  zx_answers_took(v->x, t->seconds);
}

/* Asks and ends what the turn has brought. */
static bool follow(ZxLanes *l, uint32_t wave, ZbErr *err) {
  Wave *v = &l->wave[wave];
  const ZxDesk *d = l->desk;
  Order o;
  const char *rest;
  for (size_t at = 0; (rest = next_order(&v->orders, &at, &o));) {
    if (o.kind == END) {
      if (!zx_answers_end(v->x, o.number, err)) return false;
      continue;
    }
    ZbErr why;
    const ZxQuery *q = d->query(d->ctx, o.number, rest, o.bytes);
    if (zx_answers_ask(v->x, q, o.number, &why)) continue;
    give_error(l, wave, ZX_TOLD_REFUSED, o.number, (uint32_t)q->choices, &why);
    d->forget(d->ctx, o.number, q);
  }
  v->orders.len = 0;
  return true;
}

/* Plays a step of the wave, if it has one. The last stage chooses, and tells the others. */
static bool play(ZxLanes *l, uint32_t wave, ZbErr *err) {
  Wave *v = &l->wave[wave];
  const ZxReplica *p = l->replica;
  size_t bytes;
  if (!zx_answers_play(v->x, &v->under_way, err)) return false;
  if (!v->under_way) return true;
  void *chosen = zx_answers_chosen(v->x, &bytes);
  if (!p->last) {
    v->chosen = (ZxInbox){l->r->c, chosen, bytes, p->world[p->root], ZX_MAIL_CHOSEN + (int)wave, 0, false};
    zx_inbox_open(&v->chosen);
    return true;
  }
  zx_answers_sample(v->x);
  for (int i = 0; p->staged && p->rank == p->root && i < p->size; i++)
    if (!p->of_last[i]) zx_mail_send(l->mail, p->world[i], ZX_MAIL_CHOSEN + (int)wave, chosen, bytes);
  return true;
}

static bool finish(ZxLanes *l, uint32_t wave, ZbErr *err) {
  Wave *v = &l->wave[wave];
  if (!v->under_way) return true;
  zx_inbox_wait(&v->chosen);
  v->under_way = false;
  return zx_answers_take(v->x, err);
}

static bool turn(ZxLanes *l, uint32_t wave, ZbErr *err) {
  Wave *v = &l->wave[wave];
  if (!finish(l, wave, err)) return false;
  give_answered(l, wave);
  hear_turn(l, v);
  take_turn(l, v);
  if (l->r->stopping || l->r->lane_failed || l->ends) return true;
  if (!follow(l, wave, err) || !play(l, wave, err)) return false;
  if (!v->under_way) give_answered(l, wave);
  return true;
}

/* Ends what is under way, in all waves: whoever waits for it gets it. */
static bool wind_up(ZxLanes *l, ZbErr *err) {
  for (uint32_t w = 0; w < l->waves; w++) {
    if (!finish(l, w, err)) return false;
    if (l->r->stopping) zx_answers_cancel(l->wave[w].x);
    give_answered(l, w);
  }
  tell_counts(l);
  if (leads(l) && !is_first(l)) tell(l, &(Told){.kind = ENDS}, NULL);
  ZxWait wait = {0};
  for (int k = 1; is_first(l) && k < l->replica->count; k++)
    while (!l->far[k].ended)
      if (hear_far(l, k)) wait = (ZxWait){0};
      else (void)zx_pause(&wait, l->r->c);
  zx_mail_flush(l->mail);
  return true;
}

/* ---- all of it ------------------------------------------------------------------------------------------------- */
static bool open_wave(ZxLanes *l, uint32_t wave, ZbErr *err) {
  ZxRun *r = l->r;
  ZxAnswering *how = &l->how[wave];
  Piece *piece = ZB_NEW(r->a, Piece);
  if (!zx_run_answering(r, (ZxWave){wave, l->waves}, how)) return false;
  *piece = (Piece){l, wave};
  how->piece = give_piece;
  how->ctx = piece;
  if (l->slots < how->sizes.slots) l->slots = how->sizes.slots;
  l->wave[wave].x = zx_answers_new(how, err);
  return l->wave[wave].x || zx_run_refuse(r, err);
}

static void open_boxes(ZxLanes *l) {
  const ZxReplica *p = l->replica;
  l->turn = (ZxInbox){l->r->c, &l->heard, sizeof l->heard, p->world[0], ZX_MAIL_TURN, 0, false};
  l->mail = zx_mail_new(l->r->c);
  l->told = zb_now();
  if (leads(l) && p->index) {
    l->asks = (ZxInbox){l->r->c, &l->asked, sizeof l->asked, p->leaders[0], ZX_MAIL_ASK, 0, false};
    zx_inbox_open(&l->asks);
  }
  if (!is_first(l)) return;
  l->load = ZB_NEWN(l->r->a, uint32_t, (uint32_t)p->count * l->waves);
  l->counts = ZB_NEWN(l->r->a, ZxCounts, (uint32_t)p->count * l->waves);
  if (l->how->sizes.prefixes && (uint32_t)p->count * l->waves > 1)
    l->routes = zx_routes_new(l->r->a, l->how->sizes.page);
  l->far = ZB_NEWN(l->r->a, Far, p->count);
  for (int k = 1; k < p->count; k++) {
    Far *f = &l->far[k];
    f->told = (ZxInbox){l->r->c, &f->head, sizeof f->head, p->leaders[k], ZX_MAIL_TOLD, 0, false};
    f->heard = l->told;
    zx_inbox_open(&f->told);
  }
}

/* Plays turns until all is answered. */
static bool play_all(ZxLanes *l, ZbErr *err) {
  ZxRun *r = l->r;
  const ZxDesk *d = l->desk;
  bool ok = true;
  open_boxes(l);
  if (is_first(l) && d->open) d->open->opened(d->ctx, l->slots * l->waves * (uint32_t)l->replica->count);
  for (uint32_t w = 0; ok && !l->ends && !r->stopping && !r->lane_failed; w = (w + 1) % l->waves)
    ok = turn(l, w, err);
  ok = ok && wind_up(l, err);
  if (!ok && is_first(l) && d->open) d->open->lost(d->ctx);
  if (!ok && r->c->t->size(r->c) > 1) zx_die(r->c, "%s", err->text); /* others wait for it */
  ok = ok ? !r->lane_failed : zx_run_fail(r, err);
  if (r->lane_failed) r->failed = r->lane_failed;
  zx_mail_free(l->mail);
  return ok;
}

static void close_lanes(ZxLanes *l) {
  for (int k = 1; l->far && k < l->replica->count; k++) zb_text_free(&l->far[k].orders);
  for (uint32_t w = 0; w < l->waves; w++) {
    zx_answers_free(l->wave[w].x);
    zb_text_free(&l->wave[w].orders);
  }
  zb_text_free(&l->text);
}

bool zx_run_lanes(ZxRun *r, const ZxDesk *desk, ZxCounts *counts) {
  ZbErr err = {0};
  uint32_t waves = zx_waves(r->plan);
  ZxLanes l = {.r = r, .desk = desk, .replica = &r->replica, .waves = waves};
  l.wave = ZB_NEWN(r->a, Wave, waves);
  l.how = ZB_NEWN(r->a, ZxAnswering, waves);
  bool ok = true;
  for (uint32_t w = 0; ok && w < waves; w++) ok = open_wave(&l, w, &err);
  ok = ok && play_all(&l, &err);
  if (ok) zx_run_tell_used(r, l.how, waves);
  *counts = (ZxCounts){0};
  for (uint32_t i = 0; l.counts && i < (uint32_t)r->replica.count * waves; i++)
    zx_counts_add(counts, &l.counts[i]);
  close_lanes(&l);
  return ok;
}
