/* Lines of a metrics.jsonl. Whatever is wrong with one is said with its number. */
#include "runtime/zlog/zlog.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char help[] = "metrics.jsonl is what zrun --log DIR writes into DIR";

bool zv_lines_open(ZbArena *a, const char *dir, ZvLines *l, ZbErr *err) {
  struct stat st;
  bool folder = stat(dir, &st) == 0 && S_ISDIR(st.st_mode);
  *l = (ZvLines){.path = folder ? zb_printf(a, "%s/metrics.jsonl", dir) : dir, .step = -1};
  return (l->f = zb_open_stream(l->path, err)) != NULL;
}

void zv_lines_close(ZvLines *l) {
  if (l->f) fclose(l->f);
  zb_text_free(&l->line);
  *l = (ZvLines){0};
}

static bool wrong(const ZvLines *l, ZbErr *err, const char *what) {
  return zb_fail(err, help, "%s:%llu: %s: %s", zb_show(l->path), (unsigned long long)l->number, what,
                 zb_show(l->line.s));
}

static bool read_line(ZvLines *l, ZbErr *err) {
  l->line.len = 0;
  zb_text_add(&l->line, "%s", "");
  for (int c; (c = getc_unlocked(l->f)) != EOF;) {
    char byte = (char)c;
    if (c == '\n') return l->number++, true;
    if (l->line.len == ZV_LINE) {
      l->number++;
      zb_fail(err, help, "%s:%llu: the line has more than %d bytes", zb_show(l->path),
              (unsigned long long)l->number, ZV_LINE);
      return false;
    }
    zb_text_put(&l->line, &byte, 1);
  }
  if (ferror(l->f)) zb_fail(err, NULL, "cannot read %s", zb_show(l->path));
  return false;
}

static bool good_step(ZvLines *l, const cJSON *o, ZbErr *err) {
  const cJSON *step = cJSON_GetObjectItemCaseSensitive(o, "step");
  if (!step) return true;
  double x = cJSON_IsNumber(step) ? step->valuedouble : -1;
  if (!(x >= 0 && x < 0x1p53 && x == floor(x))) return wrong(l, err, "\"step\" is not a whole number");
  if ((int64_t)x < l->step) return wrong(l, err, "its step comes after a later one");
  l->step = (int64_t)x;
  return true;
}

cJSON *zv_next(ZvLines *l, ZbErr *err) {
  if (!read_line(l, err)) return NULL;
  cJSON *o = zb_json_parse(l->line.s, l->line.len, ZB_JSON_ANY, NULL);
  if (!cJSON_IsObject(o)) wrong(l, err, o ? "no JSON object" : "no JSON");
  else if (good_step(l, o, err)) return o;
  cJSON_Delete(o);
  return NULL;
}

const char *zv_part(const char *key, const char *loss) {
  size_t n = strlen(loss);
  return !strncmp(key, loss, n) && key[n] == '_' ? key + n + 1 : NULL;
}

bool zv_number(const ZvLines *l, const cJSON *o, const char *key, double *out, ZbErr *err) {
  const cJSON *x = cJSON_GetObjectItemCaseSensitive(o, key);
  *out = cJSON_IsNumber(x) ? x->valuedouble : NAN;
  if (!x || cJSON_IsNumber(x) || cJSON_IsNull(x)) return true;
  return zb_fail(err, help, "%s:%llu: \"%s\" is not a number: %s", zb_show(l->path),
                 (unsigned long long)l->number, zb_show(key), zb_show(l->line.s));
}
