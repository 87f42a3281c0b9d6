/* Event files, as TensorBoard reads them while they grow: records of the TFRecord format, each a protocol
 * buffer `Event`. What is needed of both is here: the fields of tensorflow/core/util/event.proto and
 * framework/summary.proto.
 *
 *   Event        1 double wall_time, 2 int64 step, 3 string file_version, 5 Summary, 7 SessionLog
 *   Summary      1 repeated Value { 1 string tag, 2 float simple_value, 8 TensorProto, 9 SummaryMetadata }
 *   SummaryMetadata  1 PluginData { 1 string plugin_name }, 4 data_class
 *   TensorProto  1 dtype, 2 TensorShapeProto { 2 Dim { 1 int64 size } }, 8 repeated bytes string_val
 *   SessionLog   1 status
 *
 * A run that goes on begins a new file, since the old one may end within a record. Its SessionLog START makes
 * TensorBoard forget what older files say of that step and later ones; of a run that begins that is all. */
#include "runtime/exec/log/sinks.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct ZxEvents {
  ZxLogOptions o;
  ZbAppend to;       /* begun with the first event */
  ZbText path;       /* of it */
  ZbText event, sum; /* what is being made: an Event in its record, and its Summary */
  uint32_t crc[256];
};

/* ---- records ---- */
/* CRC-32C (Castagnoli), reflected, as RFC 3720 has it. */
static void make_crc(uint32_t table[256]) {
  for (uint32_t i = 0; i < 256; i++) {
    uint32_t c = i;
    for (int k = 0; k < 8; k++) c = c & 1 ? c >> 1 ^ 0x82f63b78u : c >> 1;
    table[i] = c;
  }
}

/* Masked: a record may hold records, and a CRC of data that have CRCs in them is a poor one. */
static uint32_t masked_crc(const uint32_t table[256], const char *s, size_t n) {
  uint32_t c = ~0u;
  for (size_t i = 0; i < n; i++) c = table[(c ^ (uint8_t)s[i]) & 255] ^ c >> 8;
  c = ~c;
  return (c >> 15 | c << 17) + 0xa282ead8u;
}

static void put_le(char *out, uint64_t x, int bytes) {
  for (int i = 0; i < bytes; i++) out[i] = (char)(x >> 8 * i);
}

enum { HEAD = 12, TAIL = 4 }; /* length and its CRC before the data; theirs behind */

static bool write_record(ZxEvents *e, ZbErr *err) {
  char *s = e->event.s, tail[TAIL];
  size_t n = e->event.len - HEAD;
  put_le(s, n, 8);
  put_le(s + 8, masked_crc(e->crc, s, 8), 4);
  put_le(tail, masked_crc(e->crc, s + HEAD, n), 4);
  zb_text_put(&e->event, tail, TAIL);
  return zb_append(&e->to, e->path.s, e->event.s, e->event.len, err);
}

/* ---- protocol buffers ---- */
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static void put_varint(ZbText *t, uint64_t x) {
  char s[10];
  size_t n = 0;
  do s[n++] = (char)((x & 127) | (x > 127 ? 128 : 0));
  while (x >>= 7);
  zb_text_put(t, s, n);
}

static void put_key(ZbText *t, int field, int type) { put_varint(t, (uint64_t)field << 3 | (uint64_t)type); }

static void put_int(ZbText *t, int field, int64_t x) {
  put_key(t, field, VARINT);
  put_varint(t, (uint64_t)x);
}

static void put_fixed(ZbText *t, int field, uint64_t bits, int bytes) {
  char s[8];
  put_le(s, bits, bytes);
  put_key(t, field, bytes == 8 ? FIXED64 : FIXED32);
  zb_text_put(t, s, (size_t)bytes);
}

static void put_double(ZbText *t, int field, double x) {
  uint64_t bits;
  memcpy(&bits, &x, 8);
  put_fixed(t, field, bits, 8);
}

static void put_float(ZbText *t, int field, double x) {
  float f = (float)x;
  uint32_t bits;
  memcpy(&bits, &f, 4);
  put_fixed(t, field, bits, 4);
}

static void put_bytes(ZbText *t, int field, const char *s, size_t n) {
  put_key(t, field, BYTES);
  put_varint(t, n);
  zb_text_put(t, s, n);
}

static void put_string(ZbText *t, int field, const char *s) { put_bytes(t, field, s, strlen(s)); }

/* ---- events ---- */
static void begin_event(ZxEvents *e, int64_t step) {
  static const char room[HEAD] = {0};
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  e->event.len = e->sum.len = 0;
  zb_text_put(&e->event, room, HEAD);
  put_double(&e->event, 1, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
  put_int(&e->event, 2, step);
}

static void put_scalar(ZxEvents *e, const char *tag, double x) {
  ZbText *t = &e->sum;
  size_t n = strlen(tag);
  ZB_ASSERT(n < 128); /* so that its length is one byte */
  put_key(t, 1, BYTES);
  put_varint(t, 2 + n + 5); /* of the two fields that follow */
  put_string(t, 1, tag);
  put_float(t, 2, x);
}

static void put_scalars(ZxEvents *e, const ZxScalar *list, const void *m) {
  double x;
  for (const ZxScalar *s = list; s->key; s++)
    if (s->tag && zx_scalar(s, m, &x)) put_scalar(e, s->tag, x);
}

/* Beside the loss that they add up to. */
static void put_parts(ZxEvents *e, const char *loss, const ZxLossPart *part, uint32_t n) {
  char tag[128];
  for (uint32_t i = 0; i < n; i++) {
    snprintf(tag, sizeof tag, "%s_%s", loss, part[i].name);
    put_scalar(e, tag, part[i].value);
  }
}

static bool end_event(ZxEvents *e, ZbErr *err) {
  put_bytes(&e->event, 5, e->sum.s, e->sum.len);
  return write_record(e, err);
}

/* Returns how many of a character follow each other in a text, at most. */
static size_t longest_run(const char *s, char of) {
  size_t most = 0;
  for (size_t n = 0; *s; s++) {
    n = *s == of ? n + 1 : 0;
    if (n > most) most = n;
  }
  return most;
}

/* Shown as it is: TensorBoard takes text for Markdown, in which code lies between fences longer than any in it. */
static bool put_text(ZxEvents *e, const struct ZxLogText *x, int64_t step, ZbErr *err) {
  ZbText value = {0}, part = {0}, code = {0}, fence = {0};
  for (size_t i = longest_run(x->text, '~') + 4; i; i--) zb_text_put(&fence, "~", 1);
  zb_text_add(&code, "%s\n%s\n%s\n", fence.s, x->text, fence.s);
  zb_text_free(&fence);
  put_string(&value, 1, x->name);
  put_int(&part, 1, 7);                       /* DT_STRING, */
  put_bytes(&part, 2, "\x12\x02\x08\x01", 4); /* of shape [1] */
  put_bytes(&part, 8, code.s, code.len);
  put_bytes(&value, 8, part.s, part.len);
  part.len = 0;
  put_bytes(&part, 1, "\x0a\x04text", 6); /* the plugin's name */
  put_int(&part, 4, 2);                   /* DATA_CLASS_TENSOR */
  put_bytes(&value, 9, part.s, part.len);
  begin_event(e, step);
  put_bytes(&e->sum, 1, value.s, value.len);
  zb_text_free(&value);
  zb_text_free(&part);
  zb_text_free(&code);
  return end_event(e, err);
}

/* ---- the file ---- */
enum { MOST_TRIES = 1000 };
static const char prefix[] = "events.out.tfevents.";

/* TensorBoard reads files in the order of their names: returns a number later than all that there are, whatever
 * clocks say. Numbers of more than ten digits, which no clock has made, are passed over. */
static long long next_number(const char *dir) {
  enum { DIGITS = 10 };
  long long next = (long long)time(NULL);
  DIR *d = opendir(dir);
  for (struct dirent *x; d && (x = readdir(d));) {
    if (strncmp(x->d_name, prefix, sizeof prefix - 1)) continue;
    char *end, *number = x->d_name + sizeof prefix - 1;
    long long n = strtoll(number, &end, 10);
    if (end - number <= DIGITS && n >= next) next = n + 1;
  }
  if (d) closedir(d);
  return next;
}

static bool begin_file(ZxEvents *e, ZbErr *err) {
  const int64_t from = e->o.before ? e->o.before + 1 : 0;
  if (e->to.fd >= 0) return true;
  long long number = next_number(e->o.dir);
  for (int tries = 0; tries < MOST_TRIES && e->to.fd < 0; tries++) { /* others may begin files just now */
    e->path.len = 0;
    zb_text_add(&e->path, "%s/%s%010lld.zug", e->o.dir, prefix, number + tries);
    e->to.fd = open(e->path.s, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (e->to.fd < 0 && errno != EEXIST) break;
  }
  if (e->to.fd < 0)
    return zb_fail_errno(err, errno, "give another folder with --log, or make it writable", "cannot write %s",
                         zb_show(e->path.s));
  bool ok = true;
  begin_event(e, 0);
  put_string(&e->event, 3, "brain.Event:2");
  ok &= write_record(e, err); /* what fails waits, and the rest behind it */
  begin_event(e, from);
  put_bytes(&e->event, 7, "\x08\x01", 2); /* SessionLog START */
  ok &= write_record(e, err);
  for (uint32_t i = 0; i < e->o.ntext; i++) ok &= put_text(e, &e->o.text[i], from, err);
  return ok;
}

ZxEvents *zx_events_open(const ZxLogOptions *o) {
  ZxEvents *e = calloc(1, sizeof *e);
  if (!e) zb_out_of_memory(0);
  e->o = *o;
  e->to.fd = -1;
  make_crc(e->crc);
  return e;
}

bool zx_events_step(ZxEvents *e, const ZxMetrics *m, ZbErr *err) {
  bool ok = begin_file(e, err);
  if (e->to.fd < 0) return false;
  begin_event(e, m->step);
  put_scalars(e, zx_step_scalars, m);
  put_parts(e, "loss/train", m->part, m->nparts);
  return end_event(e, err) && ok;
}

bool zx_events_eval(ZxEvents *e, const ZxEvalMetrics *m, ZbErr *err) {
  bool ok = begin_file(e, err);
  if (e->to.fd < 0) return false;
  begin_event(e, m->step);
  put_scalars(e, zx_eval_scalars, m);
  put_parts(e, "loss/eval", m->part, m->nparts);
  return end_event(e, err) && ok;
}

/* Prompt and text, by number of the prompt: the same place for all steps. */
bool zx_events_sample(ZxEvents *e, const ZxSampleMetrics *m, ZbErr *err) {
  bool ok = begin_file(e, err);
  if (e->to.fd < 0) return false;
  char name[24];
  ZbText t = {0};
  snprintf(name, sizeof name, "sample/%u", m->prompt);
  zx_put_sample(&t, m);
  ok &= put_text(e, &(struct ZxLogText){name, t.s ? t.s : ""}, m->step, err);
  zb_text_free(&t);
  return ok;
}

void zx_events_close(ZxEvents *e) {
  if (!e) return;
  zb_append_close(&e->to);
  zb_text_free(&e->path);
  zb_text_free(&e->event);
  zb_text_free(&e->sum);
  free(e);
}
