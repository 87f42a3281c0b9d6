/* compare_runs: are two training runs the same run? A test tool.
 *
 *   compare_runs [--loss T] [--norm T] RUN.jsonl OTHER
 *       losses and gradient norms step by step, within relative tolerances. OTHER is another metrics.jsonl or
 * a JSON file with an array "steps" of objects with "step", "loss", "grad_norm". compare_runs [--abs T]
 * [--rel T] A.safetensors B.safetensors the same tensors by name and shape (f32), |a - b| <= abs + rel
 * max(|a|, |b|).
 *
 * Prints the largest differences. Exit code 0: the same; 1: not; 2: cannot tell (unreadable, no steps). */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

#define FILE_LIMIT (1u << 30)

_Noreturn static void cannot(const char *path, const char *why) {
  fprintf(stderr, "compare_runs: %s: %s\n", path, why);
  exit(2);
}

static char *slurp(ZbArena *a, const char *path, size_t *n) {
  ZbErr err;
  char *s = zb_read_file(a, path, FILE_LIMIT, n, &err);
  if (!s) cannot(path, err.text);
  return s;
}

static bool ends_with(const char *s, const char *end) {
  size_t n = strlen(s), m = strlen(end);
  return n >= m && strcmp(s + n - m, end) == 0;
}

/* ---- metrics ---------------------------------------------------------------------------------- */
typedef struct {
  double step, loss, norm; /* NaN where the file does not say */
} Step;
typedef struct {
  Step *step;
  size_t n;
} Run;

static double number(const cJSON *o, const char *name) {
  const cJSON *x = cJSON_GetObjectItemCaseSensitive(o, name);
  return cJSON_IsNumber(x) ? x->valuedouble : NAN;
}

/* Objects without a step and a loss (a header line, say) are not steps. */
static void add_step(ZbArena *a, Run *r, const cJSON *o) {
  Step s = {number(o, "step"), number(o, "loss"), number(o, "grad_norm")};
  if (isnan(s.step) || !cJSON_HasObjectItem(o, "loss")) return;
  ZB_PUSH(a, r->step, r->n, s);
}

static Run read_run(ZbArena *a, const char *path) {
  size_t n;
  Run r = {0};
  char *text = slurp(a, path, &n);
  if (ends_with(path, ".json")) {
    cJSON *all = cJSON_Parse(text), *o;
    if (!all) cannot(path, "not JSON");
    cJSON_ArrayForEach(o, cJSON_GetObjectItemCaseSensitive(all, "steps")) add_step(a, &r, o);
    cJSON_Delete(all);
  } else {
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n"));) {
      if (!*line) continue;
      cJSON *o = cJSON_Parse(line);
      if (!o) cannot(path, "a line is not JSON");
      add_step(a, &r, o);
      cJSON_Delete(o);
    }
  }
  if (r.n == 0) cannot(path, "no steps in it");
  return r;
}

/* Relative difference; a number on one side only is infinitely different. */
static double relative(double x, double y) {
  if (isnan(x) || isnan(y)) return INFINITY;
  double top = fmax(fabs(x), fabs(y));
  return x == y ? 0 : fabs(x - y) / top;
}

static bool compare_metrics(ZbArena *a, const char *pa, const char *pb, double tol_loss, double tol_norm) {
  Run ra = read_run(a, pa), rb = read_run(a, pb);
  if (ra.n != rb.n) {
    printf("%s has %zu steps, %s has %zu\n", pa, ra.n, pb, rb.n);
    return false;
  }
  double worst_loss = 0, worst_norm = 0;
  bool same_steps = true;
  for (size_t i = 0; i < ra.n; i++) {
    Step x = ra.step[i], y = rb.step[i];
    double dl = relative(x.loss, y.loss);
    double dn = isnan(x.norm) && isnan(y.norm) ? 0 : relative(x.norm, y.norm);
    same_steps = same_steps && x.step == y.step;
    printf("step %3.0f  loss %.7f %.7f (%.1e)  grad norm %.7f %.7f (%.1e)\n", x.step, x.loss, y.loss, dl,
           x.norm, y.norm, dn);
    worst_loss = fmax(worst_loss, dl);
    worst_norm = fmax(worst_norm, dn);
  }
  if (!same_steps) printf("the step numbers differ\n");
  printf("largest relative difference: loss %.1e (allowed %.1e), grad norm %.1e (allowed %.1e)\n", worst_loss,
         tol_loss, worst_norm, tol_norm);
  return same_steps && worst_loss <= tol_loss && worst_norm <= tol_norm;
}

/* ---- safetensors ------------------------------------------------------------------------------ */
typedef struct {
  const char *path;
  cJSON *header;
  const char *data;
  uint64_t bytes; /* of data */
} Weights;

static Weights read_weights(ZbArena *a, const char *path) {
  size_t n;
  char *file = slurp(a, path, &n);
  uint64_t len;
  if (n < sizeof len) cannot(path, "too short for safetensors");
  memcpy(&len, file, sizeof len);
  if (len > n - sizeof len) cannot(path, "its header is longer than the file");
  Weights w = {.path = path, .data = file + sizeof len + len, .bytes = n - sizeof len - len};
  w.header = cJSON_ParseWithLength(file + sizeof len, len);
  if (!cJSON_IsObject(w.header)) cannot(path, "its header is not a JSON object");
  return w;
}

/* The floats of one tensor, and how many. */
static const char *tensor_data(const Weights *w, const cJSON *t, uint64_t *n) {
  const cJSON *at = cJSON_GetObjectItemCaseSensitive(t, "data_offsets");
  const cJSON *type = cJSON_GetObjectItemCaseSensitive(t, "dtype");
  if (!cJSON_IsString(type) || strcmp(type->valuestring, "F32") != 0) cannot(w->path, "a tensor is not F32");
  if (cJSON_GetArraySize(at) != 2) cannot(w->path, "a tensor has no data_offsets");
  double lo = cJSON_GetArrayItem(at, 0)->valuedouble, hi = cJSON_GetArrayItem(at, 1)->valuedouble;
  if (!(lo >= 0 && lo <= hi && hi <= (double)w->bytes)) cannot(w->path, "a tensor lies outside the file");
  *n = (uint64_t)(hi - lo) / sizeof(float);
  return w->data + (uint64_t)lo;
}

typedef struct {
  double allowed; /* difference / allowed difference */
  double diff, x, y;
  const char *name;
  uint64_t at;
} Worst;

static bool compare_tensor(const Weights *wa, const Weights *wb, const cJSON *ta, const cJSON *tb,
                           double tol_abs, double tol_rel, Worst *worst) {
  const cJSON *sa = cJSON_GetObjectItemCaseSensitive(ta, "shape");
  const cJSON *sb = cJSON_GetObjectItemCaseSensitive(tb, "shape");
  if (!cJSON_Compare(sa, sb, true)) {
    printf("%s: the shapes differ\n", ta->string);
    return false;
  }
  uint64_t na, nb, bad = 0;
  const char *pa = tensor_data(wa, ta, &na), *pb = tensor_data(wb, tb, &nb);
  if (na != nb) {
    printf("%s: the sizes differ\n", ta->string);
    return false;
  }
  for (uint64_t i = 0; i < na; i++) {
    float x, y;
    memcpy(&x, pa + i * sizeof x, sizeof x);
    memcpy(&y, pb + i * sizeof y, sizeof y);
    double diff = x == y ? 0 : fabs((double)x - (double)y);
    double limit = tol_abs + tol_rel * fmax(fabs((double)x), fabs((double)y));
    double share = diff == 0 ? 0 : diff / limit;
    if (isnan(share)) share = INFINITY;
    if (share > 1) bad++;
    if (share > worst->allowed) *worst = (Worst){share, diff, x, y, ta->string, i};
  }
  if (bad)
    printf("%s: %llu of %llu elements differ\n", ta->string, (unsigned long long)bad, (unsigned long long)na);
  return bad == 0;
}

static bool compare_weights(ZbArena *a, const char *pa, const char *pb, double tol_abs, double tol_rel) {
  Weights wa = read_weights(a, pa), wb = read_weights(a, pb);
  bool same = true;
  Worst worst = {0};
  int tensors = 0;
  const cJSON *t;
  cJSON_ArrayForEach(t, wa.header) {
    if (strcmp(t->string, "__metadata__") == 0) continue;
    const cJSON *u = cJSON_GetObjectItemCaseSensitive(wb.header, t->string);
    if (!u) printf("%s is not in %s\n", t->string, pb);
    same = u && compare_tensor(&wa, &wb, t, u, tol_abs, tol_rel, &worst) && same;
    tensors++;
  }
  cJSON_ArrayForEach(t, wb.header) {
    if (strcmp(t->string, "__metadata__") == 0) continue;
    if (cJSON_GetObjectItemCaseSensitive(wa.header, t->string)) continue;
    printf("%s is not in %s\n", t->string, pa);
    same = false;
  }
  if (tensors == 0) cannot(pa, "no tensors in it");
  printf("%d tensors, allowed %.1e + %.1e relative; ", tensors, tol_abs, tol_rel);
  if (worst.name)
    printf("worst %s[%llu]: %.9g and %.9g, %.1e apart\n", worst.name, (unsigned long long)worst.at, worst.x,
           worst.y, worst.diff);
  else printf("all equal\n");
  cJSON_Delete(wa.header);
  cJSON_Delete(wb.header);
  return same;
}

/* ---- the command line ------------------------------------------------------------------------- */
_Noreturn static void usage(void) {
  fprintf(stderr, "usage: compare_runs [--loss T] [--norm T] RUN.jsonl OTHER.jsonl|OTHER.json\n"
                  "       compare_runs [--abs T] [--rel T] A.safetensors B.safetensors\n");
  exit(2);
}

int main(int argc, char **argv) {
  static const char *const option[] = {"--loss", "--norm", "--abs", "--rel"};
  double tol[4] = {1e-5, 1e-5, 1e-5, 1e-5};
  const char *path[2];
  int npath = 0;
  for (int i = 1; i < argc; i++) {
    int k = 0;
    while (k < 4 && strcmp(argv[i], option[k]) != 0) k++;
    if (k == 4) {
      if (npath == 2 || argv[i][0] == '-') usage();
      path[npath++] = argv[i];
      continue;
    }
    char *end;
    if (++i == argc) usage();
    tol[k] = strtod(argv[i], &end);
    if (*end || !(tol[k] >= 0)) usage();
  }
  if (npath != 2) usage();
  ZbArena *a = zb_arena_new();
  bool same = ends_with(path[0], ".safetensors") ? compare_weights(a, path[0], path[1], tol[2], tol[3])
                                                 : compare_metrics(a, path[0], path[1], tol[0], tol[1]);
  zb_arena_free(a);
  return same ? 0 : 1;
}
