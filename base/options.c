/* Parsing by tables, with messages in getopt's words; then help, man pages and completion. See options.h. */
#include "base/options.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- arguments ------------------------------------------------------------------------------------------ */
typedef struct {
  const ZbProgram *p;
  int argc;
  char *const *argv;
  int at;              /* the next argument */
  const char *letters; /* what is left of "-abc" */
  bool ended;          /* only operands follow */
} Scan;
typedef struct {
  const ZbOption *o; /* NULL: an operand */
  const char *value;
} Item;
typedef enum { END, OPERAND, OPTION, WRONG } Scanned;

/* Returns "--name", or "-x" for an option without a name. */
enum { NAME = 80 };
static const char *name_of(const ZbOption *o, char buf[NAME]) {
  if (o->name) snprintf(buf, NAME, "--%s", o->name);
  else snprintf(buf, NAME, "-%c", o->letter);
  return buf;
}

const ZbOption *zb_option_named(const ZbProgram *p, const char *name) {
  for (uint32_t i = 0; i < p->noptions; i++)
    if (p->options[i].name && !strcmp(p->options[i].name, name)) return &p->options[i];
  return NULL;
}

/* Refuses a word that begins with "--". */
static const ZbOption *unknown(const ZbProgram *p, const char *word, ZbErr *err) {
  const char *names[ZB_OPTIONS];
  char name[64] = "", help[128] = "";
  size_t n = 0, len = strcspn(word + 2, "=");
  snprintf(name, sizeof name, "%.*s", len < sizeof name ? (int)len : 0, word + 2);
  for (uint32_t i = 0; i < p->noptions; i++)
    if (p->options[i].name) names[n++] = p->options[i].name;
  const char *near = zb_nearest(name, names, n);
  if (near) snprintf(help, sizeof help, "did you mean --%s?", near);
  zb_fail(err, help, "unrecognized option '%s'", zb_show(word));
  if (p->hint && err) p->hint(word, err);
  return NULL;
}

/* Finds an option by its name or an unambiguous beginning of it. */
static const ZbOption *by_name(const ZbProgram *p, const char *word, ZbErr *err) {
  const ZbOption *found = NULL;
  bool several = false;
  size_t n = strcspn(word + 2, "=");
  for (uint32_t i = 0; i < p->noptions && n; i++) {
    const ZbOption *o = &p->options[i];
    if (!o->name || strncmp(o->name, word + 2, n) != 0) continue;
    if (!o->name[n]) return o;
    several |= found && strcmp(found->name, o->name) != 0;
    if (!found) found = o;
  }
  if (several) return zb_fail(err, NULL, "option '--%s' is ambiguous", zb_show_n(word + 2, n)), NULL;
  return found ? found : unknown(p, word, err);
}

static const ZbOption *by_letter(const ZbProgram *p, char letter, ZbErr *err) {
  for (uint32_t i = 0; i < p->noptions; i++)
    if (p->options[i].letter == letter) return &p->options[i];
  return zb_fail(err, NULL, "invalid option -- '%s'", zb_show_n(&letter, 1)), NULL;
}

static Scanned scan_letter(Scan *s, Item *x, ZbErr *err) {
  char letter = *s->letters++;
  if (!(x->o = by_letter(s->p, letter, err))) return WRONG;
  if (x->o->kind == ZB_FLAG) return OPTION;
  x->value = *s->letters ? s->letters : s->at < s->argc ? s->argv[s->at++] : NULL;
  s->letters = "";
  if (x->value) return OPTION;
  return zb_fail(err, NULL, "option requires an argument -- '%c'", letter), WRONG;
}

/* Finds the next operand or option. WRONG: with a message, and with the option if its value is missing. */
static Scanned scan(Scan *s, Item *x, ZbErr *err) {
  *x = (Item){NULL, NULL};
  if (s->letters && *s->letters) return scan_letter(s, x, err);
  if (s->at >= s->argc) return END;
  const char *word = x->value = s->argv[s->at++], *equals = strchr(word, '=');
  if (s->ended || word[0] != '-' || !word[1]) {
    s->ended |= s->p->options_first;
    return OPERAND;
  }
  if (word[1] != '-') return s->letters = word + 1, scan_letter(s, x, err);
  if (!word[2]) return s->ended = true, scan(s, x, err);
  if (!(x->o = by_name(s->p, word, err))) return WRONG;
  bool flag = x->o->kind == ZB_FLAG;
  x->value = equals ? equals + 1 : !flag && s->at < s->argc ? s->argv[s->at++] : NULL;
  if (flag == !x->value) return OPTION;
  zb_fail(err, NULL, "option '--%s' %s an argument", x->o->name, flag ? "doesn't allow" : "requires");
  if (flag) x->o = NULL;
  return WRONG;
}

const char *zb_option_given(const ZbProgram *p, const char *name, int argc, char *const *argv) {
  Scan s = {.p = p, .argc = argc, .argv = argv, .at = 1};
  Item x;
  const ZbOption *wanted = zb_option_named(p, name);
  const char *last = wanted->usual;
  for (Scanned k; (k = scan(&s, &x, NULL)) != END;)
    if (k == OPTION && x.o == wanted) last = x.value;
  return last;
}

/* ---- values ---------------------------------------------------------------------------------------------- */
/* Returns what follows the first word of "one|two", or NULL. */
static const char *next_word(const char *words) {
  words = strchr(words, '|');
  return words ? words + 1 : NULL;
}

/* Returns which of the words the text is, or -1. */
static int word_of(const char *words, const char *text) {
  size_t n = strlen(text);
  for (int i = 0; words; i++, words = next_word(words))
    if (strcspn(words, "|") == n && !memcmp(words, text, n)) return i;
  return -1;
}

static bool whole(const ZbOption *o, const char *text, int64_t *out) {
  char *end;
  errno = 0;
  long long n = strtoll(text, &end, 10);
  *out = n;
  return *text >= '0' && *text <= '9' && !*end && !errno && (double)n >= o->least &&
         (o->most == 0 || (double)n <= o->most);
}

static bool real(const ZbOption *o, const char *text, double *out) {
  char *end;
  *out = strtod(text, &end);
  return end != text && !*end && *out >= o->least && (o->most == 0 || *out <= o->most);
}

static void put(void *field, size_t size, int64_t n) {
  if (size == sizeof(int)) *(int *)field = (int)n;
  else *(int64_t *)field = n;
}

/* Adds what a value may be, as a remedy. */
static void add_expected(const ZbOption *o, ZbText *t) {
  switch (o->kind) {
  case ZB_WHOLE:
  case ZB_REAL:
    zb_text_add(t, "give a %snumber from %.10g ", o->kind == ZB_WHOLE ? "whole " : "", o->least);
    zb_text_add(t, o->most > 0 ? "to %.10g" : "on", o->most);
    break;
  case ZB_SIZE: zb_text_add(t, "give %.0f bytes or more, such as 500K or 4G", fmax(o->least, 1)); break;
  case ZB_SECONDS: zb_text_add(t, "give a duration, such as 90s, 10m or 3h50m"); break;
  case ZB_WORD:
    zb_text_add(t, "give ");
    for (const char *w = o->value; w; w = next_word(w))
      zb_text_add(t, "%s%.*s", w == o->value ? "" : next_word(w) ? ", " : " or ", (int)strcspn(w, "|"), w);
    break;
  default: zb_text_add(t, "%s", o->expects ? o->expects : "");
  }
}

static bool refuse_value(const ZbOption *o, const char *text, ZbErr *err) {
  ZbText t = {0};
  char name[NAME];
  name_of(o, name);
  if (err && *err->text) {
    ZbErr own = *err;
    return zb_fail(err, own.help, "%s: %s", name, own.text);
  }
  add_expected(o, &t);
  zb_fail(err, t.s, "%s cannot be '%s'", name, zb_show(text));
  zb_text_free(&t);
  return false;
}

static bool take(const ZbOption *o, void *options, const char *text, ZbArena *a, ZbErr *err) {
  void *field = (char *)options + o->at;
  ZbTexts *list = field;
  double seconds = 0;
  int64_t n = 0;
  if (err) *err = (ZbErr){0};
  switch (o->kind) {
  case ZB_FLAG: *(bool *)field = true; return true;
  case ZB_TEXT: *(const char **)field = text; return true;
  case ZB_TEXTS: ZB_PUSH(a, list->s, list->n, text); return true;
  case ZB_WHOLE:
    if (!whole(o, text, &n)) break;
    put(field, o->size, n);
    return true;
  case ZB_REAL:
    if (!real(o, text, &seconds)) break;
    *(double *)field = seconds;
    return true;
  case ZB_SIZE:
    if (!zb_size(text, &n) || (double)n < o->least) break;
    *(int64_t *)field = n;
    return true;
  case ZB_SECONDS:
    if (!zb_duration(text, &seconds) || seconds < o->least) break;
    *(double *)field = seconds;
    return true;
  case ZB_WORD:
    if ((n = word_of(o->value, text)) < 0) break;
    put(field, o->size, n + (int64_t)o->least);
    return true;
  case ZB_OTHER:
    if (o->take(options, text, err)) return true;
  }
  return refuse_value(o, text, err);
}

static void add_value(const ZbOption *o, const void *options, ZbText *t) {
  const void *field = (const char *)options + o->at;
  const char *text = o->kind == ZB_TEXT ? *(const char *const *)field : NULL, *word = o->value;
  int64_t n = o->size == sizeof(int) ? *(const int *)field
              : o->size == sizeof n  ? *(const int64_t *)field
                                     : 0;
  if (o->show) {
    o->show(options, t);
    return;
  }
  switch (o->kind) {
  case ZB_FLAG: zb_text_add(t, "%s", *(const bool *)field ? "yes" : "no"); break;
  case ZB_TEXT: zb_text_add(t, "%s", text ? text : "none"); break;
  case ZB_TEXTS: {
    const ZbTexts *list = field;
    for (uint32_t i = 0; i < list->n; i++) zb_text_add(t, "%s%s", i ? " " : "", list->s[i]);
    if (!list->n) zb_text_add(t, "none");
    break;
  }
  case ZB_WHOLE:
  case ZB_SIZE: zb_text_add(t, "%" PRId64, n); break;
  case ZB_REAL: zb_text_number(t, *(const double *)field); break;
  case ZB_SECONDS: zb_text_add(t, "%.0f s", *(const double *)field); break;
  case ZB_WORD:
    for (n -= (int64_t)o->least; n > 0; n--) word = next_word(word);
    if (n < 0) zb_text_add(t, "not given");
    else zb_text_put(t, word, strcspn(word, "|"));
    break;
  default: ZB_BUG("--%s cannot be compared", o->name);
  }
}

void zb_options_list(const ZbProgram *p, ZbArena *a, const void *options,
                     void (*add)(void *ctx, const char *name, const char *value), void *ctx) {
  for (uint32_t i = 0; i < p->noptions; i++) {
    const ZbOption *o = &p->options[i];
    char name[NAME];
    ZbText t = {0};
    name_of(o, name);
    if (o->same == ZB_SAME_PRESENCE) {
      const char *text = *(const char *const *)((const char *)options + o->at);
      add(ctx, zb_printf(a, "a file for %s", name), text ? "yes" : "no");
    } else if (o->same == ZB_SAME_VALUE) {
      add_value(o, options, &t);
      add(ctx, zb_strdup(a, name), zb_strndup(a, t.s ? t.s : "", t.len));
    }
    zb_text_free(&t);
  }
}

/* ---- a command line -------------------------------------------------------------------------------------- */
static bool has_option(const ZbProgram *p, uint32_t command, const ZbOption *o) {
  return command >= p->ncommands || !o->commands || o->commands >> command & 1;
}

/* Returns the index of the command of that name, or of the one without a name; ncommands: there is none. */
static uint32_t command_named(const ZbProgram *p, const char *name) {
  uint32_t i = 0, plain = 0;
  while (i < p->ncommands && !(p->commands[i].name && name && !strcmp(p->commands[i].name, name))) i++;
  while (plain < p->ncommands && p->commands[plain].name) plain++;
  return i < p->ncommands ? i : plain;
}

/* "pack, import and table" */
static void add_commands(const ZbProgram *p, uint32_t bits, ZbText *t) {
  bool first = true;
  for (uint32_t i = 0; i < p->ncommands; i++) {
    if (!(bits >> i & 1) || !p->commands[i].name) continue;
    bits &= ~(1u << i);
    zb_text_add(t, "%s%s", first ? "" : bits ? ", " : " and ", p->commands[i].name);
    first = false;
  }
}

static uint32_t all_commands(const ZbProgram *p) { return UINT32_MAX >> (32 - p->ncommands); }

static bool refuse_command(const ZbProgram *p, const char *word, ZbErr *err) {
  const char *names[32], *near = NULL;
  size_t n = 0;
  ZbText help = {0};
  for (uint32_t i = 0; i < p->ncommands; i++)
    if (p->commands[i].name) names[n++] = p->commands[i].name;
  if (word) near = zb_nearest(word, names, n);
  if (near) zb_text_add(&help, "did you mean '%s'?", near);
  else zb_text_add(&help, "there are "), add_commands(p, all_commands(p), &help);
  if (word) zb_fail(err, help.s, "%s has no command '%s'", p->name, zb_show(word));
  else zb_fail(err, help.s, "%s needs a command", p->name);
  if (word && p->hint && err) p->hint(word, err);
  zb_text_free(&help);
  return false;
}

/* "zckpt diff", "zkeep" */
static const char *spoken(const ZbProgram *p, uint32_t command, char buf[64]) {
  const char *name = p->commands[command].name;
  snprintf(buf, 64, "%s%s%s", p->name, name ? " " : "", name ? name : "");
  return buf;
}

static bool find_command(const ZbProgram *p, ZbArgs *args, ZbErr *err) {
  const char *word = args->noperands ? args->operand[0] : NULL;
  args->command = command_named(p, word);
  if (args->command == p->ncommands) return refuse_command(p, word, err);
  if (!p->commands[args->command].name) return true;
  args->operand++;
  args->noperands--;
  return true;
}

/* Finds the row that the command has of an option's name, or of its letter. */
static const ZbOption *row_of(const ZbProgram *p, uint32_t command, const ZbOption *o, ZbErr *err) {
  ZbText help = {0};
  char name[NAME], who[64];
  uint32_t bits = 0;
  for (uint32_t i = 0; i < p->noptions; i++) {
    const ZbOption *x = &p->options[i];
    bool same =
        x == o || (x->name && o->name ? !strcmp(x->name, o->name) : x->letter && x->letter == o->letter);
    if (same && has_option(p, command, x)) return x;
    if (same) bits |= x->commands;
  }
  if (bits) zb_text_add(&help, "it belongs to "), add_commands(p, bits, &help);
  zb_fail(err, help.s, "%s takes no option %s", spoken(p, command, who), name_of(o, name));
  zb_text_free(&help);
  return NULL;
}

/* Checks the number of operands, and whether all options are there that the command needs. */
static bool is_complete(const ZbProgram *p, const ZbArgs *args, const bool *given, ZbErr *err) {
  const ZbCommand *c = &p->commands[args->command];
  char name[64], help[64];
  bool few = args->noperands < c->least;
  uint32_t limit = few ? c->least : c->most;
  snprintf(help, sizeof help, "%s --help shows all commands and options", p->name);
  spoken(p, args->command, name);
  if (args->noperands > c->most && !c->most)
    return zb_fail(err, help, "%s takes no operand, such as '%s'", name, zb_show(args->operand[0]));
  if (few || args->noperands > c->most)
    return zb_fail(err, help, "%s takes %s%u operand%s (%s), not %u", name,
                   c->least < c->most ? few ? "at least " : "at most " : "", limit, limit == 1 ? "" : "s",
                   c->operands, args->noperands);
  for (uint32_t i = 0; i < p->noptions; i++) {
    const ZbOption *o = &p->options[i];
    if (!(o->needed >> args->command & 1) || given[i]) continue;
    if (o->letter) return zb_fail(err, help, "%s needs -%c %s", name, o->letter, o->value);
    return zb_fail(err, help, "%s needs --%s %s", name, o->name, o->value);
  }
  return true;
}

bool zb_parse(const ZbProgram *p, ZbArena *a, int argc, char *const *argv, void *options, ZbArgs *args,
              ZbErr *err) {
  Scan s = {.p = p, .argc = argc, .argv = argv, .at = 1};
  Item *item = NULL, now;
  uint32_t n = 0;
  bool given[ZB_OPTIONS] = {0};
  char name[NAME];
  ZB_ASSERT(p->noptions <= ZB_OPTIONS && p->ncommands <= 32);
  *args = (ZbArgs){.operand = ZB_NEWN(a, const char *, argc + 1)};
  for (uint32_t i = 0; i < p->noptions; i++)
    if (p->options[i].usual) ZB_ASSERT(take(&p->options[i], options, p->options[i].usual, a, NULL));
  for (Scanned k; (k = scan(&s, &now, err)) != END;) {
    if (k == WRONG) return false;
    if (k == OPERAND) args->operand[args->noperands++] = now.value;
    else ZB_PUSH(a, item, n, now);
  }
  if (!find_command(p, args, err)) return false;
  for (uint32_t i = 0; i < n; i++) {
    const ZbOption *o = row_of(p, args->command, item[i].o, err);
    if (!o) return false;
    bool *before = &given[o - p->options];
    if (p->once && o->kind != ZB_TEXTS && *before)
      return zb_fail(err, NULL, "%s is given twice", name_of(o, name));
    if (!take(o, options, item[i].value, a, err)) return false;
    *before = true;
  }
  return is_complete(p, args, given, err);
}

int zb_main(const ZbProgram *p, int argc, char **argv, void *options,
            int (*run)(void *options, const ZbArgs *args, ZbArena *a, ZbErr *err)) {
  zb_begin();
  if (argc < 2) return zb_help(p, stderr), 2;
  ZbArena *a = zb_arena_new();
  ZbErr err = {0};
  ZbArgs args;
  int code = 0;
  if (!zb_tells(p, argc, argv))
    code = zb_parse(p, a, argc, argv, options, &args, &err) ? run(options, &args, a, &err) : 2;
  if (code != 2 && !zb_close_stdout(&err)) code = 2;
  fflush(stdout);
  if (code == 2) fprintf(stderr, "%s: error: %s\n", p->name, err.text);
  if (code == 2 && *err.help) fprintf(stderr, "help: %s\n", err.help);
  zb_arena_free(a);
  return code;
}

/* ---- help and man page ----------------------------------------------------------------------------------- */
/* "zckpt weights CKPT -o OUT [options]" */
static void add_usage(const ZbProgram *p, uint32_t command, ZbText *t) {
  const ZbCommand *c = &p->commands[command];
  bool plain = c->name || command == command_named(p, NULL),
       more = false; /* others are complete as they are */
  zb_text_add(t, "%s%s", p->name, p->options_first ? " [options] --" : "");
  if (c->name) zb_text_add(t, " %s", c->name);
  if (c->operands) zb_text_add(t, " %s", c->operands);
  for (uint32_t i = 0; plain && i < p->noptions; i++) {
    const ZbOption *o = &p->options[i];
    bool show = (o->needed | o->shown) >> command & 1;
    if (show && o->letter) zb_text_add(t, " -%c %s", o->letter, o->value);
    else if (show) zb_text_add(t, " --%s %s", o->name, o->value);
    more |= !show && has_option(p, command, o);
  }
  if (more && !p->options_first) zb_text_add(t, " [options]");
}

/* Returns whether the option begins a group, of the commands that have it, and adds the group's title; "" where one
 * of them has no name. */
static bool begins_group(const ZbProgram *p, uint32_t i, ZbText *title) {
  uint32_t bits = p->options[i].commands, all = all_commands(p), plain = command_named(p, NULL);
  if (i && bits == p->options[i - 1].commands) return false;
  if (plain < p->ncommands && (!bits || bits >> plain & 1)) return !i;
  zb_text_add(title, "options of ");
  if (!bits || bits == all) zb_text_add(title, "all commands");
  else add_commands(p, bits, title);
  return true;
}

enum { WIDTH = 100, MARGIN = 7, COMMANDS_AT = 44, OPTIONS_AT = 24 };

/* Adds words in lines of at most WIDTH columns, those after the first behind `indent` blanks; `at`: where the first
 * begins. */
static void add_wrapped(ZbText *t, size_t at, size_t indent, const char *text) {
  for (bool first = true; *text; first = false) {
    size_t blanks = strspn(text, " "), n = strcspn(text + blanks, " \n");
    if (!strncmp(text + blanks, "(default ", 9)) n = strcspn(text + blanks, ")") + 1; /* stays in one piece */
    if (!first && at + blanks + n > WIDTH) {
      zb_text_add(t, "\n%*s", (int)indent, "");
      at = indent;
      text += blanks;
      blanks = 0;
    }
    zb_text_put(t, text, blanks + n);
    at += blanks + n;
    text += blanks + n;
    if (*text != '\n') continue;
    zb_text_add(t, "\n%*s", text[1] ? (int)indent : 0, "");
    at = indent;
    text++;
  }
  if (t->s[t->len - 1] != '\n') zb_text_put(t, "\n", 1);
}

/* Adds text with what troff would take for itself escaped. */
static void add_troff(ZbText *t, const char *text) {
  for (bool begins = true; *text; text++) {
    if (begins && strchr(".'", *text)) zb_text_add(t, "\\&");
    if (*text == '\\') zb_text_add(t, "\\e");
    else if (*text == '-') zb_text_add(t, "\\-");
    else if (*text == '\n') zb_text_add(t, text[1] ? "\n.br\n" : "");
    else zb_text_put(t, text, 1);
    begins = *text == '\n';
  }
}

/* Adds what `head` is for: from a column on, or for troff if that is 0. */
static void add_row(ZbText *t, const char *margin, ZbText *head, size_t column, const char *about) {
  size_t at = strlen(margin) + head->len;
  if (column) {
    zb_text_add(t, "%s%s", margin, head->s);
    zb_text_add(t, at + 2 > column ? "\n%*s" : "%*s", (int)(at + 2 > column ? column : column - at), "");
    add_wrapped(t, column, column, about);
  } else {
    zb_text_add(t, ".TP\n\\fB");
    add_troff(t, head->s);
    zb_text_add(t, "\\fR\n");
    add_troff(t, about);
    zb_text_add(t, "\n");
  }
  zb_text_free(head);
}

/* Adds what commands do, beside their usage, or below it where one of these is long. */
static void add_command_rows(const ZbProgram *p, bool man, ZbText *t) {
  ZbText head[32] = {0};
  size_t column = 0;
  for (uint32_t i = 0; i < p->ncommands; i++) {
    add_usage(p, i, &head[i]);
    if (MARGIN + head[i].len + 2 > column) column = MARGIN + head[i].len + 2;
  }
  if (column > COMMANDS_AT) column = MARGIN + 4;
  for (uint32_t i = 0; i < p->ncommands; i++)
    add_row(t, i ? "       " : "usage: ", &head[i], man ? 0 : column, p->commands[i].help);
}

static void add_option_rows(const ZbProgram *p, bool man, ZbText *t) {
  for (uint32_t i = 0; i < p->noptions; i++) {
    const ZbOption *o = &p->options[i];
    ZbText head = {0}, about = {0}, title = {0};
    bool begins = begins_group(p, i, &title);
    if (man && title.len) zb_text_add(t, ".SS %s\n", title.s);
    else if (begins && !man) zb_text_add(t, "\n%s%s", title.len ? title.s : "", title.len ? ":\n" : "");
    if (o->letter) zb_text_add(&head, "-%c%s", o->letter, o->name ? ", " : "");
    if (o->name) zb_text_add(&head, "--%s", o->name);
    if (o->value) zb_text_add(&head, " %s", o->value);
    zb_text_add(&about, "%s", o->help);
    if (o->usual) zb_text_add(&about, " (default %s)", o->usual);
    add_row(t, "  ", &head, man ? 0 : OPTIONS_AT, about.s);
    zb_text_free(&about);
    zb_text_free(&title);
  }
}

/* Adds "Exit code: 0 done; 2 an error." */
static void add_codes(const ZbNote *codes, ZbText *t) {
  ZbText line = {0};
  for (const ZbNote *c = codes; c->name; c++)
    zb_text_add(&line, "%s%s %s", c == codes ? "Exit code: " : "; ", c->name, c->help);
  zb_text_add(&line, ".");
  add_wrapped(t, 0, 0, line.s);
  zb_text_free(&line);
}

static void add_help(const ZbProgram *p, ZbText *t) {
  zb_text_add(t, "%s: %s\n\n", p->name, p->what);
  add_command_rows(p, false, t);
  add_option_rows(p, false, t);
  zb_text_add(t, "\n  --version, --help\n");
  if (p->notes || p->codes) zb_text_put(t, "\n", 1);
  if (p->notes) add_wrapped(t, 0, 0, p->notes);
  if (p->codes) add_codes(p->codes, t);
}

/* Adds a section of the man page. */
static void add_section(const char *title, const ZbNote *rows, ZbText *t) {
  if (!rows) return;
  zb_text_add(t, ".SH %s\n", title);
  for (; rows->name; rows++) {
    ZbText head = {0};
    zb_text_add(&head, "%s", rows->name);
    add_row(t, "", &head, 0, rows->help);
  }
}

static void add_man_page(const ZbProgram *p, ZbText *t) {
  zb_text_add(t, ".TH ");
  for (const char *c = p->name; *c; c++) zb_text_add(t, "%c", toupper((unsigned char)*c));
  zb_text_add(t, " 1 \"\" \"zug %s\" \"Zug\"\n.SH NAME\n%s \\- ", PACKAGE_VERSION, p->name);
  add_troff(t, p->what);
  zb_text_add(t, "\n.SH SYNOPSIS\n");
  add_command_rows(p, true, t);
  zb_text_add(t, ".SH OPTIONS\n");
  add_option_rows(p, true, t);
  add_section("EXIT STATUS", p->codes, t);
  add_section("EXAMPLES", p->examples, t);
  add_section("FILES", p->files, t);
  if (!p->notes) return;
  zb_text_add(t, ".SH NOTES\n");
  add_troff(t, p->notes);
  zb_text_add(t, "\n");
}

void zb_help(const ZbProgram *p, FILE *to) {
  ZbText t = {0};
  add_help(p, &t);
  fputs(t.s, to);
  zb_text_free(&t);
}

/* ---- completion ------------------------------------------------------------------------------------------ */
/* Adds what may come next, a line each: words of an option that lacks its value; commands; options. */
static void add_candidates(const ZbProgram *p, int argc, char *const *argv, ZbText *t) {
  Scan s = {.p = p, .argc = argc, .argv = argv};
  Item x;
  const char *word = NULL;
  for (Scanned k; (k = scan(&s, &x, NULL)) != END;) {
    if (k == OPERAND && !word) word = x.value;
    if (k != WRONG || !x.o) continue;
    for (const char *w = x.o->kind == ZB_WORD ? x.o->value : NULL; w; w = next_word(w))
      zb_text_add(t, "%.*s\n", (int)strcspn(w, "|"), w);
    return;
  }
  uint32_t command = word ? command_named(p, word) : p->ncommands;
  for (uint32_t i = 0; !word && i < p->ncommands; i++)
    if (p->commands[i].name) zb_text_add(t, "%s\n", p->commands[i].name);
  for (uint32_t i = 0; i < p->noptions; i++) {
    const ZbOption *o = &p->options[i];
    char name[NAME];
    bool again = !word && o->name && zb_option_named(p, o->name) != o;
    if (!again && has_option(p, command, o)) zb_text_add(t, "%s\n", name_of(o, name));
  }
  zb_text_add(t, "--help\n%s", argc ? "" : "--version\n");
}

bool zb_asks_help(int argc, char *const *argv) {
  for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
    size_t n = strlen(argv[i]);
    if (!strncmp(argv[i], "-h", 2) || (n > 2 && !strncmp("--help", argv[i], n))) return true;
  }
  return false;
}

bool zb_asks_version(int argc, char *const *argv) { return argc == 2 && !strcmp(argv[1], "--version"); }

bool zb_tells(const ZbProgram *p, int argc, char *const *argv) {
  ZbText t = {0};
  if (argc > 1 && !strcmp(argv[1], "--complete")) add_candidates(p, argc - 2, argv + 2, &t);
  else if (argc == 2 && !strcmp(argv[1], "--man-page")) add_man_page(p, &t);
  else if (zb_asks_version(argc, argv)) zb_text_add(&t, "%s (zug) %s\n", p->name, PACKAGE_VERSION);
  else if (zb_asks_help(argc, argv)) add_help(p, &t);
  else return false;
  fputs(t.s ? t.s : "", stdout);
  zb_text_free(&t);
  return true;
}
