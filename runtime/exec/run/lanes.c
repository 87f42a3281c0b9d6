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
#include "runtime/exec/mail.h"
#include "runtime/exec/run/lanes.h"
#include "runtime/exec/stepper.h"

#include <stdlib.h>
#include <string.h>

enum { ASKS = 8, AHEAD = 8 /* choices that wait in a lane, at most */ };
static const double BEAT = 1; /* seconds after which ranks that wait are told that nothing is lost */

/* What a leader tells its replica before each turn, and rank 0 the leaders. */
typedef struct {
  uint64_t digest; /* of all that the wave has decided */
  double seconds;  /* of its last step */
  int32_t stopping, failed;
  bool ends; /* all is written */
  uint32_t n;
  struct {
    uint64_t number;
    uint32_t wave;
  } ask[ASKS];
} Turn;

/* What a leader tells rank 0; `bytes` of text follow. */
typedef struct {
  uint64_t number;
  uint32_t kind, choice, wave, choices;
  uint64_t bytes;
} Told;
enum { BEATS = ZX_TOLD_KINDS, ENDS };

/* A wave of this rank's replica. */
typedef struct {
  ZxAnswers *x;
  bool under_way; /* a step was played, of which nothing is taken yet */
  ZxInbox chosen;
  uint64_t *next; /* of leaders: the numbers of what it will be asked, */
  uint32_t nnext; /* at most as many as a lane is given at once */
} Wave;

/* Another replica, as rank 0 knows it. */
typedef struct {
  ZxInbox told;
  Told head;
  Turn next;
  double beat; /* when it was told something */
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
  bool ends;
  double told; /* when this leader told rank 0 something */
  /* rank 0 */
  Far *far;
  uint32_t *load; /* choices under way, by lane: replica x waves + wave */
  uint32_t slots; /* of a lane */
  ZxLaneCounts counts;
};

static bool leads(const ZxLanes *l) { return l->replica->rank == 0; }
static bool is_first(const ZxLanes *l) { return leads(l) && l->replica->index == 0; }

/* ---- what is written comes to rank 0 -------------------------------------------------------------------------- */
static bool take_told(ZxLanes *l, const Told *t, uint32_t lane, const char *text) {
  if (t->kind == ZX_TOLD_RESULT) l->load[lane] -= t->choices;
  if (l->r->stopping && t->kind == ZX_TOLD_RESULT && !l->desk->wants_parts) return true;
  return l->desk->take(l->desk->ctx, (ZxToldKind)t->kind, t->number, t->choice, text, t->bytes);
}

static void tell(ZxLanes *l, const Told *t, const char *text) {
  int first = l->replica->leaders[0];
  zx_mail_send(l->mail, first, ZX_MAIL_TOLD, t, sizeof *t);
  if (t->bytes) zx_mail_send(l->mail, first, ZX_MAIL_TOLD, text, t->bytes);
  l->told = zb_now();
}

/* Gives rank 0 a part of an answer, or the end of it. */
static void give(ZxLanes *l, uint32_t wave, ZxToldKind kind, uint64_t number, uint32_t choice,
                 uint32_t choices, const char *text, size_t n) {
  Told t = {number, kind, choice, wave, choices, n};
  if (is_first(l)) {
    if (!take_told(l, &t, wave, text) && !l->r->lane_failed) l->r->lane_failed = l->r->failed;
  } else if (leads(l)) tell(l, &t, text);
}

typedef struct {
  ZxLanes *l;
  uint32_t wave;
} Piece;

static void give_piece(void *ctx, uint64_t number, uint32_t choice, const char *text, size_t n) {
  const Piece *p = ctx;
  if (p->l->desk->wants_parts) give(p->l, p->wave, ZX_TOLD_PIECE, number, choice, 0, text, n);
}

static void give_answered(ZxLanes *l, uint32_t wave) {
  for (const ZxAnswered *q; (q = zx_answers_next(l->wave[wave].x));) {
    ZbText t = {0};
    uint32_t choices = (uint32_t)q->query->choices;
    if (leads(l)) {
      for (uint32_t c = 0; l->desk->wants_parts && !q->broken && c < choices; c++) {
        ZbText part = {0};
        zx_result_table(&l->r->prompts.words, &q->answer[c], &part);
        give(l, wave, ZX_TOLD_ENDED, q->number, c, choices, part.s ? part.s : "", part.len);
        zb_text_free(&part);
      }
      if (q->broken) zb_text_add(&t, "%s%c%s", q->broken->text, 0, q->broken->help);
      else if (!l->desk->wants_parts) zx_result(&l->r->prompts.words, q, &t);
      if (q->broken) give(l, wave, ZX_TOLD_BROKEN, q->number, 0, choices, t.s, t.len + 1);
      else give(l, wave, ZX_TOLD_RESULT, q->number, 0, choices, t.s ? t.s : "", t.len);
    }
    zb_text_free(&t);
    l->desk->forget(l->desk->ctx, q->number);
  }
}

/* Takes what other replicas have told; rank 0. False: nothing has come. */
static bool hear_far(ZxLanes *l, int k) {
  Far *f = &l->far[k];
  if (f->ended || !zx_inbox_has(&f->told)) return false;
  Told t = f->head;
  char *text = NULL;
  if (t.bytes) {
    text = zx_need(malloc(t.bytes));
    ZxInbox body = {l->r->c, text, t.bytes, l->replica->leaders[k], ZX_MAIL_TOLD, 0, false};
    zx_inbox_open(&body);
    zx_inbox_wait(&body);
  }
  f->ended = t.kind == ENDS;
  if (f->ended) {
    const ZxLaneCounts *c = (const ZxLaneCounts *)(const void *)text;
    for (int i = 0; i < ZX_LANE_COUNTS; i++) l->counts.of[i] += c->of[i];
  } else if (t.kind != BEATS && !take_told(l, &t, (uint32_t)k * l->waves + t.wave, text) &&
             !l->r->lane_failed)
    l->r->lane_failed = l->r->failed;
  free(text);
  if (!f->ended) zx_inbox_open(&f->told);
  return true;
}

/* ---- what is asked goes to replicas --------------------------------------------------------------------------- */
/* Returns the lane with the least to do that has room for so many choices; -1: none. */
static int free_lane(const ZxLanes *l, uint32_t choices) {
  int best = -1;
  for (int i = 0; i < l->replica->count * (int)l->waves; i++) {
    bool full = i >= (int)l->waves && l->far[(uint32_t)i / l->waves].next.n == ASKS;
    bool room = !l->load[i] || l->load[i] + choices <= l->slots + AHEAD;
    if (room && !full && (best < 0 || l->load[i] < l->load[best])) best = i;
  }
  return best;
}

static void put_next(ZxLanes *l, uint32_t wave, uint64_t number) {
  Wave *v = &l->wave[wave];
  ZB_ASSERT(v->nnext < l->slots + AHEAD + ZX_CHOICES);
  v->next[v->nnext++] = number;
}

static void deal(ZxLanes *l) {
  uint64_t number;
  uint32_t choices;
  for (; !l->r->stopping && l->desk->next(l->desk->ctx, &number, &choices); l->desk->took(l->desk->ctx)) {
    int lane = free_lane(l, choices);
    if (lane < 0) return;
    uint32_t wave = (uint32_t)lane % l->waves, k = (uint32_t)lane / l->waves;
    l->load[lane] += choices;
    if (!k) put_next(l, wave, number);
    else {
      Turn *next = &l->far[k].next;
      next->ask[next->n].number = number, next->ask[next->n++].wave = wave;
    }
  }
}

/* Tells other replicas what there is, or after a while that nothing is lost. */
static void send_asks(ZxLanes *l, bool now) {
  double t = zb_now();
  for (int k = 1; k < l->replica->count; k++) {
    Far *f = &l->far[k];
    if (!f->next.n && !now && t - f->beat < BEAT) continue;
    f->next.stopping = l->r->stopping, f->next.failed = l->r->lane_failed, f->next.ends = l->ends;
    zx_mail_send(l->mail, l->replica->leaders[k], ZX_MAIL_ASK, &f->next, sizeof f->next);
    f->next = (Turn){0};
    f->beat = t;
  }
}

/* Does rank 0's part between turns. Returns whether something has come. */
static bool manage(ZxLanes *l) {
  bool any = false;
  for (int k = 1; k < l->replica->count; k++)
    while (hear_far(l, k)) any = true;
  if (any) zx_watch_moved();
  if (!l->r->stopping) l->r->stopping = zx_stop_wanted(&l->r->stop);
  deal(l);
  bool over = l->r->stopping || l->r->lane_failed || l->desk->done(l->desk->ctx), ends = over && !l->ends;
  l->ends = over;
  send_asks(l, ends);
  return any;
}

/* Takes what rank 0 asks of this replica. Returns whether something has come. */
static bool hear_asks(ZxLanes *l) {
  bool any = false;
  for (; !l->ends && zx_inbox_has(&l->asks); any = true) {
    const Turn *h = &l->asked;
    for (uint32_t i = 0; i < h->n; i++) put_next(l, h->ask[i].wave, h->ask[i].number);
    if (h->stopping) l->r->stopping = h->stopping;
    if (h->failed) l->r->lane_failed = h->failed;
    l->ends |= h->ends;
    zx_watch_moved();
    if (!l->ends) zx_inbox_open(&l->asks);
  }
  if (zb_now() - l->told > BEAT) tell(l, &(Told){.kind = BEATS}, NULL);
  return any;
}

static bool is_idle(const ZxLanes *l) {
  for (uint32_t w = 0; w < l->waves; w++)
    if (l->wave[w].under_way || l->wave[w].nnext || !zx_answers_idle(l->wave[w].x)) return false;
  return true;
}

/* A leader without work waits for some; not for ever, since its followers wait, too. */
static void await_work(ZxLanes *l) {
  double until = zb_now() + BEAT;
  ZxWait w = {0};
  for (;;) {
    bool any = is_first(l) ? manage(l) : hear_asks(l);
    if (!is_idle(l) || l->ends) return;
    if (zb_now() > until) {
      zx_watch_waits(is_first(l) ? "what other replicas write" : "what rank 0 asks");
      return;
    }
    if (any) w = (ZxWait){0};
    (void)zx_pause(&w, l->r->c);
  }
}

/* ---- turns ---------------------------------------------------------------------------------------------------- */
/* What this turn brings, on all ranks of the replica. */
static void hear_turn(ZxLanes *l, Wave *v) {
  if (!leads(l)) {
    zx_inbox_open(&l->turn);
    zx_inbox_wait(&l->turn);
    return;
  }
  if (is_idle(l)) await_work(l);
  else if (is_first(l)) manage(l);
  else hear_asks(l);
  l->heard = (Turn){0};
  while (l->heard.n < ASKS && l->heard.n < v->nnext) {
    l->heard.ask[l->heard.n].number = v->next[l->heard.n];
    l->heard.n++;
  }
  v->nnext -= l->heard.n;
  memmove(v->next, v->next + l->heard.n, v->nnext * sizeof *v->next);
  l->heard.digest = zx_answers_digest(v->x);
  l->heard.seconds = zx_answers_seconds(v->x);
  l->heard.stopping = l->r->stopping, l->heard.failed = l->r->lane_failed, l->heard.ends = l->ends;
  for (int i = 1; i < l->replica->size; i++)
    zx_mail_send(l->mail, l->replica->world[i], ZX_MAIL_TURN, &l->heard, sizeof l->heard);
}

static void take_turn(ZxLanes *l, Wave *v, Turn *t) {
  *t = l->heard;
  if (t->digest != zx_answers_digest(v->x))
    ZB_BUG("rank %d has come to other steps or tokens than rank %d", l->r->rank, l->replica->world[0]);
  l->r->stopping = t->stopping, l->r->lane_failed = t->failed, l->ends = t->ends;
  zx_answers_took(v->x, t->seconds);
}

static bool ask(ZxLanes *l, Wave *v, const Turn *t) {
  ZbErr err;
  for (uint32_t i = 0; i < t->n; i++) {
    uint64_t number = t->ask[i].number;
    if (!zx_answers_ask(v->x, l->desk->query(l->desk->ctx, number), number, &err))
      ZB_BUG("query %llu: %s", (unsigned long long)number, err.text);
  }
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
  Turn t;
  if (!finish(l, wave, err)) return false;
  give_answered(l, wave);
  hear_turn(l, v);
  take_turn(l, v, &t);
  if (l->r->stopping || l->r->lane_failed || l->ends) return true;
  return ask(l, v, &t) && play(l, wave, err);
}

/* Ends what is under way, in all waves: whoever waits for it gets it. */
static bool wind_up(ZxLanes *l, ZbErr *err) {
  for (uint32_t w = 0; w < l->waves; w++) {
    if (!finish(l, w, err)) return false;
    if (l->r->stopping) zx_answers_cancel(l->wave[w].x);
    give_answered(l, w);
    ZxCounts c = zx_answers_counts(l->wave[w].x);
    uint64_t of[ZX_LANE_COUNTS] = {c.prompt_tokens, c.answer_tokens, c.cached_tokens, c.drafts,
                                   c.right_drafts};
    for (int i = 0; i < ZX_LANE_COUNTS; i++) l->counts.of[i] += of[i];
  }
  if (leads(l) && !is_first(l)) tell(l, &(Told){.kind = ENDS, .bytes = sizeof l->counts}, (char *)&l->counts);
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
  l->wave[wave].next = ZB_NEWN(r->a, uint64_t, l->slots + AHEAD + ZX_CHOICES);
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
  l->far = ZB_NEWN(l->r->a, Far, p->count);
  for (int k = 1; k < p->count; k++) {
    Far *f = &l->far[k];
    f->told = (ZxInbox){l->r->c, &f->head, sizeof f->head, p->leaders[k], ZX_MAIL_TOLD, 0, false};
    zx_inbox_open(&f->told);
  }
}

bool zx_run_lanes(ZxRun *r, const ZxDesk *desk, ZxLaneCounts *counts) {
  ZbErr err = {0};
  uint32_t waves = zx_waves(r->plan);
  ZxLanes l = {.r = r, .desk = desk, .replica = &r->replica, .waves = waves};
  l.wave = ZB_NEWN(r->a, Wave, waves);
  l.how = ZB_NEWN(r->a, ZxAnswering, waves);
  bool ok = true;
  for (uint32_t w = 0; ok && w < waves; w++) ok = open_wave(&l, w, &err);
  if (ok) {
    open_boxes(&l);
    for (uint32_t w = 0; ok && !l.ends && !r->stopping && !r->lane_failed; w = (w + 1) % waves)
      ok = turn(&l, w, &err);
    ok = ok && wind_up(&l, &err);
    if (!ok && r->c->t->size(r->c) > 1) zx_die(r->c, "%s", err.text); /* others wait for it */
    ok = ok ? !r->lane_failed : zx_run_fail(r, &err);
    if (r->lane_failed) r->failed = r->lane_failed;
    zx_mail_free(l.mail);
  }
  if (ok) zx_run_tell_used(r, l.how, waves);
  *counts = l.counts;
  for (uint32_t w = 0; w < waves; w++) zx_answers_free(l.wave[w].x);
  return ok;
}
