/* Debug settings: reading and showing them. See debug.h. */
#include "kernels/debug.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const struct {
  const char *name, *unit, *form;
  int64_t least, most;
} list[] = {
#define SETTING(id, name, unit, least, most, usual, what) {name, unit, name "=" unit, least, most},
#include "kernels/debug.def"
};

static bool is_switch(ZkDebugName n) { return strchr(list[n].unit, '|'); }

static bool unknown(const char *text, ZbErr *err) {
  ZbText t = {0};
  for (int i = 0; i < ZK_DEBUGS; i++) zb_text_add(&t, "%s%s", i ? ", " : "", list[i].form);
  zb_fail(err, "", "there is no setting `%s`; there are %s", zb_show_n(text, strcspn(text, "=")), t.s);
  zb_text_free(&t);
  return false;
}

static bool value_of(ZkDebugName n, const char *text, int64_t *value) {
  char *end;
  if (is_switch(n)) {
    *value = !strcmp(text, "on");
    return *value || !strcmp(text, "off");
  }
  errno = 0;
  *value = strtoll(text, &end, 10);
  return *text >= '0' && *text <= '9' && !*end && !errno && *value >= list[n].least && *value <= list[n].most;
}

static bool wrong(ZkDebugName n, const char *text, ZbErr *err) {
  if (is_switch(n)) return zb_fail(err, "", "%s is on or off, not `%s`", list[n].name, zb_show(text));
  return zb_fail(err, "", "%s is a whole number from %" PRId64 " to %" PRId64 ", not `%s`", list[n].name,
                 list[n].least, list[n].most, zb_show(text));
}

bool zk_debug_take(ZkDebug *d, const char *text, ZbErr *err) {
  size_t len = strcspn(text, "=");
  for (ZkDebugName n = 0; n < ZK_DEBUGS; n++) {
    if (strlen(list[n].name) != len || memcmp(list[n].name, text, len)) continue;
    if (!text[len]) return zb_fail(err, "", "%s lacks its value: give %s", list[n].name, list[n].form);
    if (!value_of(n, text + len + 1, &d->value[n])) return wrong(n, text + len + 1, err);
    d->given |= 1u << n;
    return true;
  }
  return unknown(text, err);
}

const char *zk_debug_name(ZkDebugName n) { return list[n].name; }

const char *zk_debug_text(const ZkDebug *d, ZkDebugName n, char buf[24]) {
  if (!(d->given >> n & 1)) return "default";
  if (is_switch(n)) return d->value[n] ? "on" : "off";
  snprintf(buf, 24, "%" PRId64, d->value[n]);
  return buf;
}
