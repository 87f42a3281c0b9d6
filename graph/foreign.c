/* Weights by other names: what the maps of a graph must satisfy (zg_verify_foreign in graph.h). A map is
 * exact in both directions: no value of a parameter and none of a foreign tensor is left out or said twice,
 * so that what is read from a foreign file and written again is the same file. */
#include "graph/adapter.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  const ZgGraph *g;
  ZbErr *err;
  ZbArena *tmp;
} Ctx;

#define FAIL(c, ...) zb_fail((c)->err, NULL, __VA_ARGS__)
#define MAX_TEXT 255

/* ---- texts --------------------------------------------------------------------------------------------- */
static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_';
}

static bool words_ok(const char *s, const char *more) {
  size_t n = strlen(s);
  if (n == 0 || n > MAX_TEXT) return false;
  for (; *s; s++)
    if (!is_word(*s) && !strchr(more, *s)) return false;
  return true;
}

/* Of a foreign tensor, or a pattern: what a JSON text holds as it is, without blanks. */
static bool tensor_name_ok(const char *s) {
  size_t n = strlen(s);
  if (n == 0 || n > MAX_TEXT) return false;
  for (; *s; s++)
    if (*s <= ' ' || *s >= 0x7f || *s == '"' || *s == '\\') return false;
  return true;
}

static bool key_ok(const char *s) {
  size_t n = strlen(s);
  return words_ok(s, ".-") && s[0] != '.' && s[n - 1] != '.' && !strstr(s, "..");
}

/* ---- the iteration in a name ---------------------------------------------------------------------------- */
static const char *after_digits(const char *s) {
  const char *from = s;
  while (is_digit(*s)) s++;
  return s > from ? s : NULL;
}

/* "*", or "6*+3" for 6 times the iteration and 3. */
typedef struct {
  const char *begin, *end; /* in the name; NULL if there is none */
  uint64_t times, plus;
  bool sum;
} Star;

static Star star_of(const char *name) {
  const char *star = strchr(name, '*'), *from = star, *end = star;
  if (!star) return (Star){.begin = NULL};
  while (from > name && is_digit(from[-1])) from--;
  if (from < star && star[1] == '+') end = after_digits(star + 2);
  if (end == star || !end || star - from > 9 || end - star > 11) return (Star){star, star + 1, 1, 0, false};
  return (Star){from, end, strtoull(from, NULL, 10), strtoull(star + 2, NULL, 10), true};
}

const char *zg_numbered(ZbArena *a, const char *name, uint32_t iter) {
  Star s = star_of(name);
  if (!s.begin) return name;
  return zb_printf(a, "%.*s%" PRIu64 "%s", (int)(s.begin - name), name, s.times * iter + s.plus, s.end);
}

/* ---- values: JSON without objects, which nested keys replace ------------------------------------------ */
/* and ["a","b"]*5, which is ["a","b","a","b","a"] */
static const char *after_number(const char *s) {
  if (*s == '-') s++;
  s = *s == '0' ? s + 1 : after_digits(s);
  if (s && *s == '.') s = after_digits(s + 1);
  if (!s || (*s != 'e' && *s != 'E')) return s;
  s++;
  return after_digits(*s == '+' || *s == '-' ? s + 1 : s);
}

static const char *after_string(const char *s) {
  for (s++; *s != '"'; s++)
    if ((unsigned char)*s < ' ' || *s == 0x7f || *s == '\\') return NULL; /* the end, too */
  return s + 1;
}

static const char *after_scalar(const char *s) {
  static const char *const words[] = {"true", "false", "null"};
  for (int i = 0; i < 3; i++)
    if (!strncmp(s, words[i], strlen(words[i]))) return s + strlen(words[i]);
  return *s == '"' ? after_string(s) : after_number(s);
}

static bool value_ok(const char *s) {
  if (strlen(s) > MAX_TEXT) return false;
  if (*s != '[') {
    s = after_scalar(s);
    return s && !*s;
  }
  s++;
  if (*s == ']') return !s[1];
  for (;;) {
    s = after_scalar(s);
    if (s && *s == ']' && s[1] == '*')
      return after_digits(s + 2) && !*after_digits(s + 2) && strtoull(s + 2, NULL, 10) <= ZG_MAX_ITEMS;
    if (s && *s == ']') return !s[1];
    if (!s || *s != ',') return false;
    s++;
    while (*s == ' ') s++;
  }
}

/* ---- a part by itself ---------------------------------------------------------------------------------- */
/* The elements of a part within its tensor: from `first`, `n` nested runs, outermost first. */
typedef struct {
  uint64_t first, size[ZG_MAX_AXES], stride[ZG_MAX_AXES];
  int n, from; /* runs before `from` are dealt with */
} Box;

static int64_t axis_size(const ZgGraph *g, const ZgParam *p, int declared) {
  return g->axes[p->type.axis[p->order[declared]]].size;
}

static bool count_elements(const ZgForeign *f, uint64_t *n) {
  *n = 1;
  for (int k = 0; k < f->ndims; k++)
    if (f->dims[k] < 1 || !zb_mul_u64(*n, (uint64_t)f->dims[k], n) || *n > ZG_MAX_ELEMENTS) return false;
  return true;
}

static void add_run(Box *b, uint64_t size, uint64_t stride) {
  int i = b->n++;
  for (; i > 0 && b->stride[i - 1] < stride; i--) {
    b->size[i] = b->size[i - 1];
    b->stride[i] = b->stride[i - 1];
  }
  b->size[i] = size;
  b->stride[i] = stride;
}

/* One past the last element, of runs from b->from on. */
static uint64_t box_end(const Box *b) {
  uint64_t end = b->first + 1;
  for (int i = b->from; i < b->n; i++) end += (b->size[i] - 1) * b->stride[i];
  return end;
}

/* Runs that follow each other without a gap are one. False if some overlap. */
static bool box_join(Box *b) {
  for (int i = 0; i < b->n; i++)
    if (b->stride[i] < (i + 1 < b->n ? b->stride[i + 1] * b->size[i + 1] : 1)) return false;
  for (int i = b->n - 1; i-- > 0;) {
    if (b->stride[i] != b->stride[i + 1] * b->size[i + 1]) continue;
    b->size[i] *= b->size[i + 1];
    b->stride[i] = b->stride[i + 1];
    b->n--;
    for (int k = i + 1; k < b->n; k++) b->size[k] = b->size[k + 1], b->stride[k] = b->stride[k + 1];
  }
  return true;
}

/* False unless the part lies in its tensor and holds no element twice. */
static bool box_of(const ZgGraph *g, const ZgForeign *f, Box *b) {
  const ZgParam *p = &g->params[f->param];
  uint64_t all, extent, part = 1;
  *b = (Box){.first = (uint64_t)f->first};
  if (!count_elements(f, &all) || f->first < 0 || b->first >= all) return false;
  for (int k = 0; k < p->type.naxes; k++) {
    uint64_t size = (uint64_t)axis_size(g, p, k), stride = (uint64_t)f->stride[k];
    if (f->stride[k] < 0 || stride > all) return false;
    if (k == f->fixed || size == 1) continue;
    part *= size; /* of a parameter: at most ZG_MAX_ELEMENTS */
    if (!zb_mul_u64(size - 1, stride, &extent) || stride < 1 || extent >= all) return false;
    add_run(b, size, stride);
  }
  return part <= all && box_end(b) <= all && box_join(b);
}

static bool check_part(Ctx *c, uint32_t i) {
  const ZgGraph *g = c->g;
  const ZgForeign *f = &g->foreign[i];
  Box b;
  if (f->param >= g->nparams) return FAIL(c, "foreign part %u is of no parameter", i);
  const ZgParam *p = &g->params[f->param];
  if (!words_ok(f->map, "")) return FAIL(c, "foreign part %u: its map has no well-formed name", i);
  if (!tensor_name_ok(f->name)) return FAIL(c, "foreign part %u has a name that is not well-formed", i);
  Star star = star_of(f->name);
  if ((star.begin != NULL) != (p->segment != ZG_NONE) || (star.begin && strchr(star.end, '*')))
    return FAIL(c, "foreign tensor %s: a name has one * for parameters of a repeat and none elsewhere",
                f->name);
  if (star.begin && (is_digit(*star.end) || (star.begin > f->name && is_digit(star.begin[-1]))))
    return FAIL(c, "foreign tensor %s: the * stands beside a digit", f->name);
  if (star.begin && !star.times) return FAIL(c, "foreign tensor %s: each iteration has the same", f->name);
  bool ok = f->ndims >= 1 && f->ndims <= ZG_MAX_AXES && f->fixed >= -1 && f->fixed < p->type.naxes;
  for (int k = 0; ok && k < ZG_MAX_AXES; k++)
    ok = (k < f->ndims || f->dims[k] == 0) && (k < p->type.naxes || f->stride[k] == 0);
  if (ok)
    ok = f->fixed < 0 ? f->at == 0 : f->at >= 0 && f->at < axis_size(g, p, f->fixed) && !f->stride[f->fixed];
  if (!ok || !box_of(g, f, &b))
    return FAIL(c, "foreign tensor %s: what it has of parameter %s does not lie in it", f->name, p->path);
  return true;
}

/* ---- every parameter once ------------------------------------------------------------------------------ */
static int by_param(const void *x, const void *y) {
  const ZgForeign *a = *(const ZgForeign *const *)x, *b = *(const ZgForeign *const *)y;
  if (a->param != b->param) return a->param < b->param ? -1 : 1;
  return a->at < b->at ? -1 : a->at > b->at;
}

static bool check_params(Ctx *c, const ZgForeign **part, uint32_t n) {
  const ZgGraph *g = c->g;
  qsort(part, n, sizeof *part, by_param);
  uint32_t i = 0;
  bool *mapped = ZB_NEWN(c->tmp, bool, g->nparams + 1);
  for (uint32_t k = 0; k < n; k++) mapped[part[k]->param] = true;
  bool some = zg_tags_of_map(g, mapped) != 0;
  for (uint32_t k = 0; k < g->nparams; k++) {
    const char *path = g->params[k].path;
    uint32_t from = i;
    if (some && !mapped[k]) continue;
    if (i == n || part[i]->param != k)
      return FAIL(c, "map %s has nothing for parameter %s", part[0]->map, path);
    int fixed = part[i]->fixed;
    for (; i < n && part[i]->param == k; i++)
      if (part[i]->fixed != fixed || (fixed < 0 ? i > from : part[i]->at != i - from))
        return FAIL(c, "map %s has a part of parameter %s twice or not at all", part[0]->map, path);
    if (fixed >= 0 && i - from != axis_size(g, &g->params[k], fixed))
      return FAIL(c, "map %s has not all parts of parameter %s", part[0]->map, path);
  }
  return true;
}

/* ---- every foreign tensor once ------------------------------------------------------------------------- */
static int by_first(const void *x, const void *y) {
  const Box *a = x, *b = y;
  return a->first < b->first ? -1 : a->first > b->first;
}

/* Do n boxes cover the elements from `low` to `high` once? Boxes that interleave must all repeat in the same
 * way, and then it is enough to look at one of the repetitions: all that the language can say is so. */
static bool tiles(Box *b, uint32_t n, uint64_t low, uint64_t high) {
  qsort(b, n, sizeof *b, by_first);
  for (uint32_t i = 0, next; i < n; i = next) {
    if (b[i].first != low) return false;
    uint64_t end = box_end(&b[i]);
    for (next = i + 1; next < n && b[next].first < end; next++)
      if (box_end(&b[next]) > end) end = box_end(&b[next]);
    int runs = b[i].n - b[i].from;
    uint64_t stride = runs ? b[i].stride[b[i].from] : 1, size = runs ? b[i].size[b[i].from] : 1;
    if (end > high || stride * size != end - low) return false;
    if (next == i + 1) {
      if (runs > 1 || stride != 1) return false;
    } else {
      if (stride == 1) return false;
      for (uint32_t k = i; k < next; k++) {
        if (b[k].from == b[k].n || b[k].stride[b[k].from] != stride || b[k].size[b[k].from] != size)
          return false;
        b[k].from++;
        if (box_end(&b[k]) > low + stride) return false;
      }
      if (!tiles(b + i, next - i, low, low + stride)) return false;
    }
    low = end;
  }
  return low == high;
}

static int by_name(const void *x, const void *y) {
  const ZgForeign *a = *(const ZgForeign *const *)x, *b = *(const ZgForeign *const *)y;
  return strcmp(a->name, b->name);
}

/* The name with its numbers and iterations as `#`. Only names that are alike in this can be the same in some
 * iteration, and if `*` is the same number of them in all, they are not. *field: which one it is. */
static const char *outline(ZbArena *a, const char *name, int *field) {
  char *out = zb_strdup(a, name), *to = out;
  Star star = star_of(name);
  *field = -1;
  for (int numbers = 0; *name;) {
    const char *end = name == star.begin ? star.end : after_digits(name);
    if (name == star.begin) *field = numbers;
    *to++ = end ? '#' : *name;
    numbers += end != NULL;
    name = end ? end : name + 1;
  }
  *to = 0;
  return out;
}

typedef struct {
  ZbNames outlines, names;
  int *field;   /* of `*` in the first name with this outline, */
  bool *differ; /* and whether it is another in others, or a sum */
  uint32_t n, ndiffer, tensors;
} Names;

static uint32_t trip_of(const Ctx *c, const ZgForeign *f) {
  uint32_t segment = c->g->params[f->param].segment;
  return segment == ZG_NONE ? 1 : c->g->segments[segment].trip;
}

static bool add_outline(Ctx *c, Names *all, const ZgForeign *f) {
  int field;
  const char *name = outline(c->tmp, f->name, &field);
  uint32_t i = zb_names_find(&all->outlines, name);
  if ((all->tensors += trip_of(c, f)) > ZG_MAX_FOREIGN)
    return FAIL(c, "map %s has more than %u foreign tensors", f->map, ZG_MAX_FOREIGN);
  if (i == ZB_NO_NAME) {
    zb_names_add(c->tmp, &all->outlines, name);
    ZB_PUSH(c->tmp, all->field, all->n, field);
    ZB_PUSH(c->tmp, all->differ, all->ndiffer, star_of(f->name).sum);
  } else if (all->field[i] != field || star_of(f->name).sum) {
    all->differ[i] = true;
  }
  return true;
}

/* Where that is in doubt: no two names of all iterations are the same. */
static bool check_names(Ctx *c, Names *all, const ZgForeign *f) {
  int field;
  if (!all->differ[zb_names_find(&all->outlines, outline(c->tmp, f->name, &field))]) return true;
  for (uint32_t i = 0; i < trip_of(c, f); i++) {
    const char *name = zg_numbered(c->tmp, f->name, i);
    if (zb_names_find(&all->names, name) != ZB_NO_NAME)
      return FAIL(c, "map %s has foreign tensor %s under two names", f->map, name);
    zb_names_add(c->tmp, &all->names, name);
  }
  return true;
}

static bool check_tensors(Ctx *c, const ZgForeign **part, uint32_t n) {
  const ZgGraph *g = c->g;
  Names all = {0};
  Box *box = ZB_NEWN(c->tmp, Box, n);
  qsort(part, n, sizeof *part, by_name);
  for (uint32_t i = 0, next; i < n; i = next) {
    const ZgForeign *f = part[i];
    uint64_t elements;
    for (next = i; next < n && !strcmp(part[next]->name, f->name); next++) {
      const ZgForeign *o = part[next];
      if (o->ndims != f->ndims || memcmp(o->dims, f->dims, sizeof f->dims))
        return FAIL(c, "foreign tensor %s has two shapes", f->name);
      if (g->params[o->param].segment != g->params[f->param].segment)
        return FAIL(c, "foreign tensor %s is for parameters of different repeats", f->name);
      box_of(g, o, &box[next]);
    }
    count_elements(f, &elements);
    if (!tiles(box + i, next - i, 0, elements))
      return FAIL(c, "foreign tensor %s: its parts do not cover it once", f->name);
    if (!add_outline(c, &all, f)) return false;
  }
  for (uint32_t i = 0; i < n; i++)
    if ((i == 0 || strcmp(part[i]->name, part[i - 1]->name)) && !check_names(c, &all, part[i])) return false;
  return true;
}

/* ---- maps ---------------------------------------------------------------------------------------------- */
static bool check_config(Ctx *c, const ZbNames *maps) {
  const ZgGraph *g = c->g;
  ZbNames keys = {0}, outer = {0};
  for (uint32_t i = 0; i < g->nconfig; i++) {
    const ZgConfig *k = &g->config[i];
    if (zb_names_find(maps, k->map) == ZB_NO_NAME && !zg_adapter_is(k->map))
      return FAIL(c, "config key %u is of no map", i);
    if (!key_ok(k->key)) return FAIL(c, "config key %u is not well-formed", i);
    if (!value_ok(k->value)) return FAIL(c, "config key %s has no well-formed value", k->key);
    const char *full = zb_printf(c->tmp, "%s %s", k->map, k->key);
    if (zb_names_find(&keys, full) != ZB_NO_NAME) return FAIL(c, "config key %s occurs twice", k->key);
    zb_names_add(c->tmp, &keys, full);
    for (const char *dot = strchr(full, '.'); dot; dot = strchr(dot + 1, '.')) {
      const char *object = zb_strndup(c->tmp, full, (size_t)(dot - full));
      if (zb_names_find(&outer, object) == ZB_NO_NAME) zb_names_add(c->tmp, &outer, object);
    }
  }
  for (uint32_t i = 0; i < g->nconfig; i++)
    if (zb_names_find(&outer, zb_printf(c->tmp, "%s %s", g->config[i].map, g->config[i].key)) != ZB_NO_NAME)
      return FAIL(c, "config key %s has a value and keys inside of it", g->config[i].key);
  return true;
}

static bool is_mapped(const ZgGraph *g, const char *map, const char *name) {
  for (uint32_t i = 0; i < g->nforeign; i++)
    if (!strcmp(g->foreign[i].map, map) && !strcmp(g->foreign[i].name, name)) return true;
  return false;
}

static bool check_ignored(Ctx *c, const ZbNames *maps) {
  for (uint32_t i = 0; i < c->g->nignored; i++) {
    const ZgIgnored *k = &c->g->ignored[i];
    if (zb_names_find(maps, k->map) == ZB_NO_NAME) return FAIL(c, "ignored pattern %u is of no map", i);
    if (!tensor_name_ok(k->pattern)) return FAIL(c, "ignored pattern %u is not well-formed", i);
    if (!k->of) continue;
    if (strchr(k->pattern, '*')) return FAIL(c, "ignored pattern %u is the copy of one tensor", i);
    if (!is_mapped(c->g, k->map, k->of)) return FAIL(c, "%s is a copy of what is not mapped", k->pattern);
  }
  return true;
}

static bool check_maps(Ctx *c) {
  const ZgGraph *g = c->g;
  ZbNames maps = {0};
  const ZgForeign **part = ZB_NEWN(c->tmp, const ZgForeign *, g->nforeign);
  for (uint32_t i = 0; i < g->nforeign; i++)
    if (!check_part(c, i)) return false;
  for (uint32_t i = 0, next; i < g->nforeign; i = next) {
    const char *map = g->foreign[i].map;
    if (zb_names_find(&maps, map) != ZB_NO_NAME) return FAIL(c, "the parts of map %s are not together", map);
    zb_names_add(c->tmp, &maps, map);
    for (next = i; next < g->nforeign && !strcmp(g->foreign[next].map, map); next++)
      part[next - i] = &g->foreign[next];
    if (!check_params(c, part, next - i) || !check_tensors(c, part, next - i)) return false;
  }
  return check_config(c, &maps) && check_ignored(c, &maps);
}

bool zg_verify_foreign(const ZgGraph *g, ZbErr *err) {
  if (!g->nforeign && !g->nconfig && !g->nignored) return true;
  Ctx c = {.g = g, .err = err, .tmp = zb_arena_new()};
  bool ok = check_maps(&c);
  zb_arena_free(c.tmp);
  return ok;
}
