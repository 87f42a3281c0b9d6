/* Results as lines of JSON, and the file that they are added to. */
#include "runtime/exec/answer/answer.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- a line ------------------------------------------------------------------------------------------------- */
/* Writes what a token stands for by itself: a part of a character is U+FFFD there. */
static void put_token(const ZxWords *w, ZbJson *j, uint32_t id) {
  ZbText t = {0};
  zb_json_count(j, "id", id);
  if (zt_decode(w->coder, &id, 1, 0, &t, NULL)) zb_json_string_n(j, "token", t.s ? t.s : "", t.len);
  zb_text_free(&t);
}

static void put_logprobs(const ZxWords *w, ZbJson *j, const ZxAnswer *x, bool echo) {
  zb_json_list(j, "logprobs");
  for (uint32_t i = echo ? 0 : x->nprompt; i < x->n; i++) {
    const ZxChoice *c = i >= x->first ? &x->logprob[i - x->first] : NULL;
    zb_json_object(j, NULL);
    put_token(w, j, x->id[i]);
    if (c) zb_json_number(j, "logprob", c->logprob);
    else zb_json_null(j, "logprob");
    zb_json_list(j, "top_logprobs");
    for (uint32_t k = 0; c && k < c->ntop; k++) {
      zb_json_object(j, NULL);
      put_token(w, j, c->top[k].id);
      zb_json_number(j, "logprob", c->top[k].logprob);
      zb_json_end(j);
    }
    zb_json_end(j);
    zb_json_end(j);
  }
  zb_json_end(j);
}

static void put_answer(const ZxWords *w, ZbJson *j, const ZxQuery *q, const ZxAnswer *x) {
  zb_json_string_n(j, "text", x->text, x->length);
  zb_json_list(j, "tokens");
  for (uint32_t i = q->echo ? 0 : x->nprompt; i < x->n; i++) zb_json_count(j, NULL, x->id[i]);
  zb_json_end(j);
  zb_json_string(j, "finish_reason", x->finish);
  if (x->logprob || q->logprobs != ZX_UNSAID) put_logprobs(w, j, x, q->echo);
}

void zx_result(const ZxWords *w, const ZxAnswered *q, ZbText *out) {
  ZbJson j = {.text = out};
  zb_json_object(&j, NULL);
  if (q->query->choices == 1) put_answer(w, &j, q->query, &q->answer[0]);
  else {
    zb_json_list(&j, "choices");
    for (uint32_t i = 0; i < (uint32_t)q->query->choices; i++) {
      zb_json_object(&j, NULL);
      put_answer(w, &j, q->query, &q->answer[i]);
      zb_json_end(&j);
    }
    zb_json_end(&j);
  }
  zb_json_count(&j, "prompt_tokens", q->prompt_tokens);
  if (q->query->temperature > 0) zb_json_count(&j, "seed", q->seed);
  zb_json_end(&j);
  zb_text_put(out, "\n", 1);
}

void zx_result_table(const ZxWords *w, const ZxAnswer *x, ZbText *out) {
  for (uint32_t i = x->first; i < x->n && x->logprob; i++) {
    const ZxChoice *c = &x->logprob[i - x->first];
    ZbText t = {0};
    zb_text_add(out, "%10.4f  %-7u ", c->logprob, c->id);
    if (zt_decode(w->coder, &c->id, 1, 0, &t, NULL)) zb_text_show(out, t.s ? t.s : "", t.len);
    for (uint32_t k = 0; k < c->ntop; k++) {
      t.len = 0;
      zb_text_add(out, "%s%.4f ", k ? ", " : "   of: ", c->top[k].logprob);
      if (zt_decode(w->coder, &c->top[k].id, 1, 0, &t, NULL)) zb_text_show(out, t.s ? t.s : "", t.len);
    }
    zb_text_put(out, "\n", 1);
    zb_text_free(&t);
  }
}

/* ---- the file ----------------------------------------------------------------------------------------------- */
static bool is_result(const char *line, size_t n) {
  cJSON *o = zb_json_parse(line, n, ZB_JSON_ANY, NULL);
  bool is =
      cJSON_IsObject(o) && (cJSON_HasObjectItem(o, "finish_reason") || cJSON_HasObjectItem(o, "choices"));
  cJSON_Delete(o);
  return is;
}

static bool foreign(const char *path, uint64_t line, ZbErr *err) {
  return zb_fail(err, "give another file to -o", "%s:%llu: this is not a result of zrun generate",
                 zb_show(path), (unsigned long long)line);
}

/* Counts the whole lines of the file. */
static bool count(ZxResults *r, uint64_t size, ZbErr *err) {
  enum { PART = 1 << 16, MOST_LINE = 1 << 30 };
  ZbText line = {0};
  bool ok = true;
  char part[PART];
  for (uint64_t at = 0; at < size && ok;) {
    uint64_t n = size - at < PART ? size - at : PART;
    if (!(ok = zb_read_at(r->fd, r->path, part, n, at, err))) break;
    const char *end = memchr(part, '\n', n);
    uint64_t take = end ? (uint64_t)(end - part) + 1 : n;
    zb_text_put(&line, part, take);
    at += take;
    if (line.len > MOST_LINE) ok = foreign(r->path, r->done + 1, err);
    if (!end || !ok) continue;
    if (!is_result(line.s, line.len - 1)) ok = foreign(r->path, r->done + 1, err);
    r->done++;
    r->good = at;
    line.len = 0;
  }
  /* A piece of a line that is not the beginning of an object was never a result of ours. */
  if (ok && line.len && !r->done && *line.s != '{') ok = foreign(r->path, 1, err);
  zb_text_free(&line);
  return ok;
}

bool zx_results_open(ZxResults *r, ZbArena *a, const char *path, ZbErr *err) {
  struct stat st;
  *r = (ZxResults){.path = zb_strdup(a, path)};
  r->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY, 0666);
  if (r->fd < 0) r->fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY); /* a pipe, /dev/stdout */
  if (r->fd < 0 || fstat(r->fd, &st) < 0)
    return zb_fail_errno(err, errno, NULL, "cannot write %s", zb_show(path));
  r->regular = S_ISREG(st.st_mode);
  if (!r->regular) return true;
  if (flock(r->fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
    return zb_fail(err, "wait until it has ended, or give another file to -o", "%s: another run writes it",
                   zb_show(path));
  if (!count(r, (uint64_t)st.st_size, err)) return false;
  if ((uint64_t)st.st_size > r->good && ftruncate(r->fd, (off_t)r->good) < 0)
    return zb_fail_errno(err, errno, NULL, "cannot write %s", zb_show(path));
  return lseek(r->fd, (off_t)r->good, SEEK_SET) >= 0 ||
         zb_fail_errno(err, errno, NULL, "cannot write %s", zb_show(path));
}

bool zx_results_add(ZxResults *r, const char *line, size_t n, ZbErr *err) {
  if (zb_write(r->fd, r->path, line, n, err)) {
    r->good += n;
    r->done++;
    return true;
  }
  if (r->regular && (ftruncate(r->fd, (off_t)r->good) < 0 || lseek(r->fd, (off_t)r->good, SEEK_SET) < 0))
    zb_fail_more(err, "; its last line is not whole");
  return false;
}

bool zx_results_close(ZxResults *r, ZbErr *err) {
  if (r->fd < 0) return true;
  int rc = close(r->fd);
  r->fd = -1;
  return rc == 0 || zb_fail_errno(err, errno, NULL, "cannot write %s", zb_show(r->path));
}
