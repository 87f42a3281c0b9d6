/* Members of a tokenizer.json, with messages that say which is missing or wrong. `part` is what the message
 * begins with, such as "normalizer Replace". */
#ifndef ZUG_TEXT_JSON_H
#define ZUG_TEXT_JSON_H

#include "runtime/text/room.h"

#include <cjson/cJSON.h>

/* NULL: absent, or null. */
const cJSON *zt_json(const cJSON *o, const char *key);
/* Each of these leaves *out as it is if the member is absent, unless it must be there. */
enum { ZT_MAY = 0, ZT_MUST = 1 };
bool zt_json_bool(const char *part, const cJSON *o, const char *key, bool must, bool *out, ZbErr *err);
/* In the arena of the tokenizer. */
bool zt_json_text(ZtTokenizer *t, const char *part, const cJSON *o, const char *key, bool must,
                  const char **out, ZbErr *err);
/* A whole number from 0 to `most`. */
bool zt_json_count(const char *part, const cJSON *o, const char *key, bool must, uint32_t most, uint32_t *out,
                   ZbErr *err);
/* The `pattern` of Split and Replace: {"String": ...} or {"Regex": ...}. */
bool zt_json_pattern(ZtTokenizer *t, const char *part, const cJSON *o, const ZtPattern **out, ZbErr *err);
/* Calls `one` for every part of a possibly nested Sequence, whose list is called `list`; an absent part is
 * none. */
typedef bool ZtJsonPart(ZtTokenizer *t, const cJSON *o, const char *type, ZbErr *err);
bool zt_json_sequence(ZtTokenizer *t, const char *what, const cJSON *o, const char *list, ZtJsonPart *one,
                      ZbErr *err);

/* Each file's part. */
bool zt_normalizers_read(ZtTokenizer *t, const cJSON *root, ZbErr *err);
bool zt_pretokenizers_read(ZtTokenizer *t, const cJSON *root, ZbErr *err);
bool zt_decoders_read(ZtTokenizer *t, const cJSON *root, ZbErr *err);
bool zt_model_read(ZtTokenizer *t, const cJSON *root, ZbErr *err);
bool zt_merges_read(ZtTokenizer *t, const cJSON *model, ZbErr *err);
bool zt_added_read(ZtTokenizer *t, const cJSON *root, ZbErr *err);
bool zt_post_read(ZtTokenizer *t, const cJSON *root, ZbErr *err);

#endif
