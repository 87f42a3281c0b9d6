/* Private to config.c and config_file.c: a config.json that is read, and the map that it is read by. */
#ifndef ZUG_COMPILER_CONFIG_H
#define ZUG_COMPILER_CONFIG_H

#include "compiler/elab.h"

#include <cjson/cJSON.h>

struct Config {
  const char *path;
  cJSON *json; /* numbers have their digits as `valuestring` */
  const ZlWeights *map;
  const ZlConfigEntry *
      *missing; /* keys that a static needed, to be reported after what contradicts the model */
  uint32_t nmissing;
};

/* ---- config.c ------------------------------------------------------------------------------------------ */
/* Returns the value as JSON; NULL and a report if it has none. */
const char *config_value(Elab *e, const ZlConfigValue *v);
/* Returns whether what the file has is the JSON `text`. */
bool config_same(const cJSON *found, const char *text);

/* ---- config_file.c -------------------------------------------------------------------------------------- */
/* Reports what is wrong with an entry's key in the file. */
ZlDiag *config_fails(Elab *e, ZlCode code, const ZlConfigEntry *c, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Finds what the file has under the entry's key, NULL if that is absent. False, and a report, if the key is there
 * twice: readers disagree on which counts. */
bool config_find(Elab *e, const ZlConfigEntry *c, const cJSON **out);
/* Returns a value of the file for messages, cut where it is long. */
const char *config_shown(Elab *e, const cJSON *v);
/* Reports keys of the file that no line of the map reads, unless they are known to be harmless. */
void config_unread(Elab *e);

#endif
