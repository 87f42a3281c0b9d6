/* Inputs of a run that generates: a model with its tokenizer and weights, prompts, and how large a step is. */
#include "runtime/exec/comm/watch.h"
#include "runtime/exec/hub/hub.h"
#include "runtime/exec/run/run.h"
#include "runtime/plan/stream/stream.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
  STEP_TOKENS = 256,
  DEVICE_STEP_TOKENS = 1024,
  PAGE = 32,
  SEQUENCES = 8,
  SERVED_LENGTH = 1 << 15,
  SERVED_SOURCE = 1024
};

/* ---- the model --------------------------------------------------------------------------------------------- */
static bool is_folder(const char *path) {
  struct stat st;
  return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Whether a path has a model, its weights and what belongs to it: a Hugging Face folder, or a GGUF file. */
static bool has_all(const char *path) { return is_folder(path) || zx_is_gguf(path); }

/* Takes the model from such a path. */
static bool model_of_folder(ZxRun *r, ZxFolder *f, ZbErr *err) {
  const char *names;
  if (!zx_folder_read(f, r->a, r->o.graph, err)) return zx_run_accept(r, false, err);
  r->graph = zx_shipped_model(r->a, r->sources, &r->diags, f, r->adapters, &names, err);
  if (*err->text) return zx_run_accept(r, false, err);
  if (!zx_run_agree_diags(r, r->graph)) return false;
  zx_run_print_diags(r); /* warnings */
  r->diags = zl_diags_new(r->a, r->sources);
  if (!r->o.init) {
    r->o.init = r->o.graph;
    r->o.names = names;
  }
  return true;
}

/* Takes what belongs to the weights of --init: a tokenizer, and how texts end. */
static bool folder_of_init(const ZxRun *r, ZxFolder *f, ZbErr *err) {
  bool any = r->o.names && r->o.init && has_all(r->o.init);
  return !any || zx_folder_read(f, r->a, r->o.init, err);
}

static bool model_of_graph(ZxRun *r, ZxFolder *f, ZbErr *err) {
  ZxMap names;
  r->graph = zg_read_file(r->a, r->o.graph, err);
  bool ok = r->graph && zx_map_open(&names, r->a, r->graph, r->o.names, err);
  if (ok && !r->o.init && !r->o.dry_run)
    ok = zb_fail(err, "give --init FILE, a checkpoint or a file of weights", "%s is a graph, without weights",
                 zb_show(r->o.graph));
  return zx_run_accept(r, ok && folder_of_init(r, f, err), err);
}

static bool find_weights(ZxRun *r, ZbErr *err) {
  if (!r->o.init || r->o.names || !is_folder(r->o.init)) return true;
  return zx_run_accept(r, zx_run_read_manifest(r, err), err);
}

/* Opens the chat template beside a tokenizer, NULL: bytes. One that cannot be used is wrong for those who want to talk. */
static bool open_chats(ZxRun *r, const char *tokenizer, ZbErr *err) {
  ZtChats *c = &r->prompts.words.chats;
  const char *folder = tokenizer ? zx_folder_of(r->a, tokenizer) : NULL;
  bool ok = zt_chats_open(c, r->a, folder, r->o.chat_template, zx_folder_json, err),
       wanted = r->o.command == ZX_SERVE || r->o.chat || r->o.chat_template;
  if (ok && r->o.chat && !c->usual) {
    *err = c->why;
    ok = false;
  }
  if (!ok && !wanted) *err = (ZbErr){0};
  return zx_run_accept(r, ok || !wanted, err);
}

/* Opens the tokenizer that was given, or that of the folder that the weights come from. */
static bool open_words(ZxRun *r, const ZxFolder *f, const ZgStream *along, ZbErr *err) {
  int64_t words = r->graph->axes[along->words].size;
  const char *path = r->o.tokenizer, *own = f->path ? zb_printf(r->a, "%s/tokenizer.json", f->path) : NULL;
  if (!path && own && zx_is_gguf(f->path)) path = f->path;
  if (!path && own && access(own, F_OK) == 0) path = f->path;
  if (!path && own && !r->o.quiet && !r->rank)
    fprintf(stderr, "note: %s has no tokenizer.json: a token is a byte\n", zb_show(f->path));
  bool ok = words > 0 && words < ZX_NONE;
  if (!ok)
    zb_fail(err, NULL, "the model's words, axis %s, have no size of their own",
            r->graph->axes[along->words].name);
  else ok = zx_words_open(&r->prompts.words, r->a, path, f->path ? f : NULL, (uint32_t)words, err);
  return zx_run_accept(r, ok, err) && open_chats(r, path, err);
}

/* Says that it is about the texts of a run that trains. */
static void about_samples(const ZxRun *r, ZbErr *err) {
  ZbErr why = *err;
  if (!r->o.sample_every || !*err->text) return;
  zb_fail(err, *why.help ? why.help : "leave --sample-every out", "--sample-every: %s", why.text);
}

/* Finds time, and what belongs to a sequence as a whole: one text, an encoder's source, can. */
static bool find_time(ZxRun *r, ZpStream *s, ZbErr *err) {
  const ZgGraph *g = r->graph;
  bool ok = zp_stream(g, r->a, NULL, NULL, s, err);
  for (uint32_t i = 0; i < g->ninputs && ok && s->admit && s->source == ZG_NONE; i++)
    if (s->along.asked[i] && i != s->along.tokens && !zg_stream_has_time(&s->along, &g->inputs[i].type))
      ok = zb_fail(err, "models of one text can, and those with another text, which the prompt is",
                   "model %s cannot generate: its input %s belongs to a sequence as a whole, beside %s",
                   g->model, g->inputs[i].name, g->inputs[s->along.tokens].name);
  if (!ok) about_samples(r, err);
  return zx_run_accept(r, ok, err);
}

static bool has_source(const ZpStream *s) { return s->admit && s->source != ZG_NONE; }

/* Returns how many positions the model has: its axis of time is so long, or a table of positions, or the folder says
 * so, which with a source is about that; 0: nothing does. */
static int64_t positions_of(const ZgGraph *g, const ZpStream *s, const ZxFolder *f) {
  const ZgStream *along = &s->along;
  int64_t least = g->axes[along->time].size ? g->axes[along->time].size : has_source(s) ? 0 : f->positions;
  for (uint32_t s = 0; s < g->nsegments; s++)
    for (uint32_t i = 0; i < g->segments[s].nforward; i++) {
      const ZgNode *n = &g->segments[s].nodes[i];
      const ZgType *t = &g->segments[s].values[n->out].type;
      int64_t size = n->op == ZG_OP_POSITION && t->elem == ZG_INDEX && zg_stream_has_time(along, t)
                         ? g->axes[t->of].size
                         : 0;
      if (size && (!least || size < least)) least = size;
    }
  return least;
}

/* ---- what rank 0 has ---- */
void zx_run_share_text(ZxRun *r, ZbText *t) {
  uint64_t n = t->len;
  zx_run_tell_all(r, &n, sizeof n);
  if (!n || r->c->t->size(r->c) == 1) return;
  char *all = r->rank ? zx_need(malloc(n)) : t->s;
  zx_run_tell_all(r, all, n);
  if (!r->rank) return;
  zb_text_put(t, all, n);
  free(all);
}

/* ---- prompts ----------------------------------------------------------------------------------------------- */
/* Reads all of a file, or of the standard input. */
static bool read_own(const char *path, ZbText *out, ZbErr *err) {
  const uint64_t most = (uint64_t)4 << 30;
  bool standard = !strcmp(path, "-");
  FILE *f = standard ? stdin : zb_open_stream(path, err);
  char part[1 << 16];
  if (!f) return false;
  for (size_t n; (n = fread(part, 1, sizeof part, f)) && out->len <= most;) zb_text_put(out, part, n);
  bool ok = !ferror(f) && out->len <= most;
  if (!standard) fclose(f);
  return ok || zb_fail(err, "give it in parts", "cannot read all of %s: %s",
                       standard ? "the standard input" : zb_show(path),
                       out->len > most ? "it has more than 4 GiB" : "an error of its device");
}

/* Collective: the same by rank 0, which has the standard input, and perhaps the file. */
static bool read_all(ZxRun *r, const char *path, ZbText *out, ZbErr *err) {
  bool ok = r->rank || read_own(path, out, err);
  if (!zx_agree(r->c, ok)) return false;
  zx_run_share_text(r, out);
  return true;
}

const char *zx_run_line(const ZxPrompts *p, size_t *at, size_t *n) {
  const char *line = p->lines + *at, *end;
  if (*at >= p->size) return NULL;
  end = memchr(line, '\n', p->size - *at);
  *n = end ? (size_t)(end - line) : p->size - *at;
  *at += *n + 1;
  return line;
}

bool zx_run_all_there(const ZxPrompts *p) { return p->lines && p->results.done == p->nlines; }

/* Sums up what prompts need. */
typedef struct {
  uint32_t most;   /* positions that a sequence can have */
  uint32_t length; /* positions of the longest, prompt and answer */
  uint32_t source; /* tokens of the longest prompt that is a source */
  uint64_t choices;
  ZtIds id;
} Need;

static bool needs(ZxRun *r, const ZxQuery *q, Need *need, ZbErr *err) {
  ZxGenRequest g;
  need->id.n = 0;
  if (!zx_words_of(&r->prompts.words, q, &need->id, err) ||
      !zx_words_request(&r->prompts.words, q, &need->id, need->most, &g, err))
    return false;
  zx_shape_release(g.shape);
  if (g.nprompt + g.max_tokens > need->length) need->length = g.nprompt + g.max_tokens;
  if (g.nsource > need->source) need->source = g.nsource;
  need->choices += g.choices;
  return true;
}

bool zx_run_talks(const ZxRun *r) {
  return r->o.chat && !r->o.prompt.n && !r->o.prompt_file.n && !r->o.dry_run;
}

void zx_run_message(ZbJson *j, const char *role, const char *text, size_t n) {
  if (!text) return;
  zb_json_object(j, NULL);
  zb_json_string(j, "role", role);
  zb_json_string_n(j, "content", text, n);
  zb_json_end(j);
}

/* Makes a prompt the message of a user. */
static void make_message(ZxRun *r, ZxQuery *q, const char *text, size_t n) {
  ZbText t = {0};
  ZbJson j = {.text = &t};
  zb_json_object(&j, NULL);
  zb_json_list(&j, "messages");
  zx_run_message(&j, "system", r->o.system, r->o.system ? strlen(r->o.system) : 0);
  zx_run_message(&j, "user", text, n);
  zb_json_end(&j);
  zb_json_end(&j);
  q->chat = zb_strndup(r->a, t.s, t.len);
  q->nchat = t.len;
  zb_text_free(&t);
}

static bool add_prompt(ZxRun *r, const char *text, size_t n, const char *name, Need *need, ZbErr *err) {
  ZxPrompts *p = &r->prompts;
  ZxQuery q = r->o.query;
  ZbErr why = {0};
  if (r->o.chat) make_message(r, &q, text, n);
  else q.prompt = text;
  q.length = n;
  ZB_PUSH(r->a, p->query, p->nqueries, q);
  return needs(r, &q, need, &why) || zb_fail(err, why.help, "%s: %s", name, why.text);
}

/* Takes the schema that all prompts have which say nothing else. */
static bool read_schema(ZxRun *r, ZbErr *err) {
  const char *path = r->o.json_schema;
  ZxQuery *q = &r->o.query;
  ZbErr why;
  if (!path) return true;
  q->format = ZX_JSON_SCHEMA;
  q->schema = zb_read_file(r->a, path, ZX_SCHEMA_LIMIT, &q->nschema, err);
  if (!q->schema) return false;
  ZxShape *s = zx_words_shape(&r->prompts.words, q, &why);
  zx_shape_release(s);
  return s || zb_fail(err, why.help, "%s: %s", zb_show(path), why.text);
}

static bool read_options(ZxRun *r, Need *need, ZbErr *err) {
  for (uint32_t i = 0; i < r->o.prompt.n; i++)
    if (!add_prompt(r, r->o.prompt.s[i], strlen(r->o.prompt.s[i]), "--prompt", need, err)) return false;
  for (uint32_t i = 0; i < r->o.prompt_file.n; i++) {
    const char *path = r->o.prompt_file.s[i];
    ZbText t = {0};
    bool ok = read_all(r, path, &t, err);
    const char *text = ok ? zb_strndup(r->a, t.s ? t.s : "", t.len) : NULL;
    ok = ok && add_prompt(r, text, t.len, strcmp(path, "-") ? zb_show(path) : "standard input", need, err);
    zb_text_free(&t);
    if (!ok) return false;
  }
  return true;
}

/* Checks all lines behind the results that are there: a mistake in the last is known before the first is answered. */
static bool read_lines(ZxRun *r, Need *need, ZbErr *err) {
  ZxPrompts *p = &r->prompts;
  const char *path = r->o.prompts,
             *name = strcmp(path, "-") ? zb_strdup(r->a, zb_show(path)) : "standard input";
  ZbText t = {0};
  bool opened = r->rank || zx_results_open(&p->results, r->a, r->o.out, err);
  if (!zx_agree(r->c, opened)) return false;
  zx_run_tell_all(r, &p->results.done, sizeof p->results.done);
  if (r->rank) p->results.path = r->o.out;
  if (!read_all(r, path, &t, err)) return false;
  p->lines = zb_strndup(r->a, t.s ? t.s : "", t.len);
  p->size = t.len;
  zb_text_free(&t);
  size_t at = 0, n;
  while (zx_run_line(p, &at, &n)) p->nlines++;
  p->line_at = ZB_NEWN(r->a, size_t, p->nlines + 1);
  p->nlines = at = 0;
  for (const char *line; p->line_at[p->nlines] = at, (line = zx_run_line(p, &at, &n)); p->nlines++) {
    if (p->nlines < p->results.done) continue;
    ZbArena *a = zb_arena_new();
    ZxQuery q = r->o.query;
    ZbErr why = {0};
    bool ok = zx_query_read(&q, a, line, n, &why) && needs(r, &q, need, &why);
    zb_arena_free(a);
    if (!ok) return zb_fail(err, why.help, "%s:%" PRIu64 ": %s", name, p->nlines + 1, why.text);
  }
  if (p->results.done > p->nlines)
    return zb_fail(err, "give the lines that it was made from, or another file to -o",
                   "%s has %" PRIu64 " results, and %s only %" PRIu64 " lines", zb_show(r->o.out),
                   p->results.done, name, p->nlines);
  return true;
}

/* ---- sizes ------------------------------------------------------------------------------------------------- */
/* Returns the size to which the recipe binds an axis; 0: it does not. */
static int64_t bound(const ZlRecipe *r, const char *axis) {
  for (uint32_t i = 0; r && i < r->nbinds; i++)
    if (!strcmp(r->binds[i].axis.s, axis)) return r->binds[i].size;
  return 0;
}

static bool read_sizes(ZxRun *r, const ZpStream *s, const ZxFolder *f, Need *need, ZbErr *err) {
  const ZgGraph *g = r->graph;
  const ZgStream *along = &s->along;
  int64_t own = positions_of(g, s, f), most = r->o.length, said = 0;
  if (r->o.recipe && !r->recipe && !zx_run_agree_diags(r, zx_run_read_recipe(r, err))) return false;
  if (r->o.recipe && !zx_run_accept(r, r->recipe, err)) return false;
  if (r->recipe) said = bound(r->recipe, g->axes[along->time].name);
  if (!most) most = said ? said : own ? own : INT32_MAX;
  if (own && most > own) {
    zb_fail(err, "ask for fewer", "%s %" PRId64 ": the model has %" PRId64 " positions",
            r->o.length ? "--length" : "the recipe binds its positions to", most, own);
    return zx_run_accept(r, false, err);
  }
  need->most = (uint32_t)most;
  return true;
}

/* Returns how many tokens a step has at most: of a GPU enough for prompts at its full speed. */
static int64_t step_tokens(const ZxRun *r) { return r->o.device->host ? STEP_TOKENS : DEVICE_STEP_TOKENS; }
/* Finds how long prompts may be that are sources, and what begins the text that is written of one. */
static bool read_source(ZxRun *r, const ZpStream *s, const ZxFolder *f, ZbErr *err) {
  ZxWords *w = &r->prompts.words;
  if (!has_source(s)) return true;
  const ZgAxis *axis = &r->graph->axes[s->length];
  int64_t said = axis->size ? axis->size : bound(r->recipe, axis->name);
  w->source = said ? (uint32_t)said : INT32_MAX;
  w->start = f->path ? f->start : ZX_NONE;
  if (w->start >= w->vocabulary)
    zb_fail(err, "give a folder whose config.json has decoder_start_token_id: DIR, or --init DIR --names ..",
            "model %s writes of a source, and nothing says which token begins what it writes",
            r->graph->model);
  bool one = r->c->t->size(r->c) == 1 && !r->o.recipe_out;
  if (w->start < w->vocabulary && !one)
    zb_fail(err, "start it without mpirun and --recipe-out",
            "model %s makes text of another text, which is for one rank yet", r->graph->model);
  return zx_run_accept(r, w->start < w->vocabulary && one, err);
}

/* Returns how long the longest source is. */
static int64_t choose_source(ZxRun *r, const ZpStream *s, const ZxFolder *f, const Need *need) {
  ZxWords *w = &r->prompts.words;
  if (!has_source(s)) return 0;
  if (w->source == INT32_MAX)
    w->source = need->source ? need->source : f->positions ? (uint32_t)f->positions : SERVED_SOURCE;
  return w->source;
}

/* Returns bytes of caches and of parameters. */
static uint64_t cache_bytes(const ZpStream *s, int64_t sequences, int64_t length, int64_t source,
                            ZkElem real) {
  uint64_t sequence = zp_cache_bytes(s, ZP_CACHE_STATE, 0, real) +
                      zp_cache_bytes(s, ZP_CACHE_RECENT, 0, real) +
                      zp_cache_bytes(s, ZP_CACHE_OWN, 0, real) * (uint64_t)source;
  for (uint32_t i = 0; i < s->ngroups; i++) {
    int64_t window = s->groups[i].window, most = window ? window + STEP_TOKENS + 2 * PAGE : length;
    sequence += zp_cache_bytes(s, ZP_CACHE_PAGES, i, real) * (uint64_t)(most < length ? most : length);
  }
  return sequence * (uint64_t)sequences;
}

/* Chooses how many sequences are written at once: as many as there are, on CPUs if their caches take at most
 * a quarter of the machine's memory. (What a GPU has is known when it is opened, which is after the plan.) */
static int64_t choose_sequences(ZxRun *r, const ZpStream *s, const Need *need, int64_t length, int64_t source,
                                ZkElem real) {
  bool serves = r->o.command == ZX_SERVE;
  int64_t n = !serves && need->choices < SEQUENCES ? (int64_t)need->choices : SEQUENCES;
  long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
  uint64_t memory = pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : UINT64_MAX;
  if (r->o.sequences) return r->o.sequences;
  if (!r->o.device->host) memory = UINT64_MAX;
  if (n < 1) n = r->o.dry_run ? SEQUENCES : 1;
  while (n > 1 && cache_bytes(s, n, length, source, real) > memory / 4) n--;
  return n;
}

/* Makes a recipe of one rank. */
static bool make_recipe(ZxRun *r, const ZpStream *s, int64_t sequences, int64_t length, int64_t source,
                        bool bf16, const char *weights) {
  const ZgStream *along = &s->along;
  const ZgAxis *axis = r->graph->axes;
  ZbText t = {0};
  zb_text_add(&t, "recipe generate {\n  bind %s = %" PRId64, axis[along->batch].name, sequences);
  if (!axis[along->time].size) zb_text_add(&t, ", %s = %" PRId64, axis[along->time].name, length);
  if (source && !axis[s->length].size) zb_text_add(&t, ", %s = %" PRId64, axis[s->length].name, source);
  zb_text_add(&t, "\n  precision compute %s%s%s\n}\n", bf16 ? "bf16" : "f32", weights ? ", weights " : "",
              weights ? weights : "");
  ZlProgram *p = zl_load_text(r->a, r->sources, r->diags, "<generate>", t.s, t.len, &(ZlOptions){0});
  zb_text_free(&t);
  r->recipe = p ? zl_recipe(p, r->diags, "generate") : NULL;
  return zx_run_agree_diags(r, r->recipe);
}

static bool choose_sizes(ZxRun *r, const ZpStream *s, const ZxFolder *f, const Need *need) {
  const ZgStream *along = &s->along;
  int64_t source = choose_source(r, s, f, need);
  bool bf16 = r->o.precision == ZX_AS_WEIGHTS ? f->bf16 : r->o.precision == ZX_IN_BF16;
  int64_t length = (int64_t)zb_round_up(need->length ? need->length : 1, PAGE);
  if (length > need->most) length = need->most;
  int64_t served = source ? SERVED_SOURCE : SERVED_LENGTH;
  if (r->o.command == ZX_SERVE || zx_run_talks(r)) length = need->most < served ? need->most : served;
  if (r->o.length || r->graph->axes[along->time].size) length = need->most;
  if (r->o.dry_run && !need->length) length = need->most < 4096 ? need->most : 4096;
  r->generating = (ZpGenerating){.step = step_tokens(r), .page = PAGE};
  if (r->recipe) {
    r->generating.length = r->o.length;
    r->generating.sequences = r->o.sequences;
    return true;
  }
  int64_t sequences = choose_sequences(r, s, need, length, source, bf16 ? ZK_BF16 : ZK_F32);
  const char *weights = NULL;
  if (r->o.weights)
    weights = zb_printf(r->a, "%s group %" PRId64, zl_packed_formats[r->o.weights - 1], r->o.group);
  if (r->c->t->size(r->c) > 1 || r->o.recipe_out)
    return zx_run_choose_layout(r, sequences, length, bf16, weights);
  return make_recipe(r, s, sequences, length, source, bf16, weights);
}

/* ---- all of it ----------------------------------------------------------------------------------------------- */
static bool read_prompts(ZxRun *r, Need *need, ZbErr *err) {
  if (r->o.command == ZX_SERVE) return true;
  r->o.query.now = (int64_t)time(NULL); /* the same for all ranks */
  zx_run_tell_all(r, &r->o.query.now, sizeof r->o.query.now);
  bool ok = read_schema(r, err);
  if (ok && !zx_run_talks(r)) ok = r->o.prompts ? read_lines(r, need, err) : read_options(r, need, err);
  zt_ids_free(&need->id);
  return zx_run_accept(r, ok, err);
}

bool zx_run_read_model(ZxRun *r) {
  ZbErr err = {0};
  ZxFolder f = {0};
  ZpStream s;
  Need need = {0};
  zx_watch_phase("opening files");
  if (!zx_run_take_adapters(r)) return false;
  r->prompts.results.fd = -1;
  r->sources = zl_sources_new(r->a);
  r->diags = zl_diags_new(r->a, r->sources);
  return (has_all(r->o.graph) ? model_of_folder : model_of_graph)(r, &f, &err) && find_weights(r, &err) &&
         find_time(r, &s, &err) && open_words(r, &f, &s.along, &err) && read_sizes(r, &s, &f, &need, &err) &&
         read_source(r, &s, &f, &err) && read_prompts(r, &need, &err) && choose_sizes(r, &s, &f, &need);
}

/* A step of samples is small: a training step has all the more tokens, in whose memory it is made. */
static void choose_sampling(ZxRun *r, const Need *need) {
  int64_t n = need->choices < SEQUENCES ? (int64_t)need->choices : SEQUENCES,
          length = (int64_t)zb_round_up(need->length, PAGE), step = STEP_TOKENS;
  if (length > need->most) length = need->most;
  if (step > n * length) step = n * length;
  r->generating = (ZpGenerating){.step = step, .page = PAGE, .sequences = n, .length = length};
}

bool zx_run_read_samples(ZxRun *r) {
  ZbErr err = {0};
  ZxFolder f = {0};
  ZpStream s;
  Need need = {0};
  if (!r->o.sample_every) return true;
  if (!zx_run_accept(r, folder_of_init(r, &f, &err), &err) || !find_time(r, &s, &err)) return false;
  if (s.admit) {
    zb_fail(&err, "leave it out, and give a checkpoint to zrun generate",
            "--sample-every: what model %s writes depends on more than the text before it", r->graph->model);
    return zx_run_refuse(r, &err);
  }
  if (!open_words(r, &f, &s.along, &err) || !read_sizes(r, &s, &f, &need, &err) ||
      !read_prompts(r, &need, &err))
    return false;
  choose_sampling(r, &need);
  return true;
}
