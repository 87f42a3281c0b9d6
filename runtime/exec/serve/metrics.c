/* Metrics: what the server counts, as text for Prometheus (its exposition format 0.0.4) and as JSON for the page. */
#include "runtime/exec/serve/room.h"

#include <inttypes.h>

static const double bounds[ZX_BUCKETS] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                          0.25,  0.5,    1,     2.5,  5,     10,   60};

void zx_histogram_add(ZxHistogram *h, double seconds) {
  int i = 0;
  while (i < ZX_BUCKETS && seconds > bounds[i]) i++;
  h->bucket[i]++;
  h->n++;
  h->sum += seconds;
}

static void head(ZbText *t, const char *name, const char *type, const char *help) {
  zb_text_add(t, "# HELP zug_%s %s\n# TYPE zug_%s %s\n", name, help, name, type);
}

static void number(ZbText *t, const char *name, const char *type, const char *help, uint64_t value) {
  head(t, name, type, help);
  zb_text_add(t, "zug_%s %" PRIu64 "\n", name, value);
}

static void histogram(ZbText *t, const char *name, const char *help, const ZxHistogram *h) {
  uint64_t all = 0;
  head(t, name, "histogram", help);
  for (int i = 0; i < ZX_BUCKETS; i++)
    zb_text_add(t, "zug_%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, bounds[i], all += h->bucket[i]);
  zb_text_add(t, "zug_%s_bucket{le=\"+Inf\"} %" PRIu64 "\nzug_%s_sum ", name, h->n, name);
  zb_text_number(t, h->sum);
  zb_text_add(t, "\nzug_%s_count %" PRIu64 "\n", name, h->n);
}

/* Copies what is counted. */
static void look(ZxServer *s, ZxMetrics *m, ZxServed *now, uint32_t *jobs) {
  pthread_mutex_lock(&s->lock);
  *m = s->metrics;
  *now = s->served;
  *jobs = s->njobs;
  pthread_mutex_unlock(&s->lock);
}

void zx_tell_metrics(ZxServer *s, const char *body, size_t n, ZbText *t, ZxRefusal *r) {
  static const char *const outcome[] = {"done", "refused", "left"};
  ZxMetrics m;
  ZxServed now;
  uint32_t jobs;
  (void)body, (void)n, (void)r;
  look(s, &m, &now, &jobs);
  number(t, "requests_under_way", "gauge", "Requests that are being answered.", jobs);
  number(t, "sequences_running", "gauge", "Sequences that have a place in steps.", now.of.running);
  number(t, "sequences_waiting", "gauge", "Sequences that wait for a place or for pages.", now.of.waiting);
  number(t, "sequences_most", "gauge", "Sequences that can run at once.", now.slots);
  number(t, "pages", "gauge", "Pages of caches.", now.of.pages);
  number(t, "pages_free", "gauge", "Pages that no sequence has.", now.of.free_pages);
  head(t, "requests_total", "counter", "Requests by what became of them.");
  for (int i = 0; i < 3; i++)
    zb_text_add(t, "zug_requests_total{outcome=\"%s\"} %" PRIu64 "\n", outcome[i], m.requests[i]);
  number(t, "steps_total", "counter", "Steps.", now.of.steps);
  number(t, "prompt_tokens_total", "counter", "Tokens of prompts that went through steps.",
         now.of.prompt_tokens);
  number(t, "cached_prompt_tokens_total", "counter", "Tokens of prompts that were there already.",
         now.of.cached_tokens);
  number(t, "draft_tokens_total", "counter", "Draft tokens that were looked at.", now.of.drafts);
  number(t, "accepted_draft_tokens_total", "counter", "Draft tokens that were right.", now.of.right_drafts);
  number(t, "answer_tokens_total", "counter", "Tokens written.", now.of.answer_tokens);
  number(t, "preempted_total", "counter", "Sequences that gave up their pages for older ones.",
         now.of.preempted);
  number(t, "preempted_tokens_total", "counter", "Positions that they had to make again.", now.of.lost);
  histogram(t, "first_token_seconds", "From the request to its first text.", &m.first);
  histogram(t, "between_tokens_seconds", "From one text of a request to the next.", &m.between);
  histogram(t, "request_seconds", "Requests that were answered.", &m.whole);
}

void zx_tell_state(ZxServer *s, const char *body, size_t n, ZbText *t, ZxRefusal *r) {
  ZxMetrics m;
  ZxServed now;
  uint32_t jobs;
  ZbJson j = {.text = t};
  (void)body, (void)n, (void)r;
  look(s, &m, &now, &jobs);
  zb_json_object(&j, NULL);
  zb_json_string(&j, "model", s->how->name);
  zb_json_count(&j, "length", s->how->length);
  zb_json_count(&j, "requests", jobs);
  zb_json_count(&j, "running", now.of.running);
  zb_json_count(&j, "waiting", now.of.waiting);
  zb_json_count(&j, "most", now.slots);
  zb_json_bool(&j, "chats", s->how->words->chats.usual != NULL);
  zb_json_count(&j, "pages", now.of.pages);
  zb_json_count(&j, "pages_free", now.of.free_pages);
  zb_json_count(&j, "steps", now.of.steps);
  zb_json_count(&j, "answer_tokens", now.of.answer_tokens);
  zb_json_count(&j, "prompt_tokens", now.of.prompt_tokens);
  zb_json_rounded(&j, "seconds", 6, zb_now() - s->began);
  zb_json_end(&j);
}
