/* options: command lines from tables. A program has a table of commands and a table of options. These give
 * the parser and its messages, --help, the man page, completion, and the list of what several processes must
 * have alike. A new option is a row, and the field that it sets. */
#ifndef ZUG_BASE_OPTIONS_H
#define ZUG_BASE_OPTIONS_H

#include "base/base.h"

typedef enum {
  ZB_FLAG,    /* bool, without a value */
  ZB_TEXT,    /* const char * */
  ZB_TEXTS,   /* ZbTexts: the option may be repeated */
  ZB_WHOLE,   /* int or int64_t: a whole number from `least` to `most` */
  ZB_REAL,    /* double: a number from `least` to `most` */
  ZB_SIZE,    /* int64_t: bytes, see zb_size */
  ZB_SECONDS, /* double: a duration of at least `least` seconds, see zb_duration */
  ZB_WORD,    /* int, or an enum: one of the words of `value`, "one|two", of which the first is `least` */
  ZB_OTHER    /* `take` reads it */
} ZbOptionKind;

/* Whether several processes must be given the same. */
typedef enum { ZB_MAY_DIFFER, ZB_SAME_VALUE, ZB_SAME_PRESENCE } ZbSame;

typedef struct {
  const char **s;
  uint32_t n;
} ZbTexts;

typedef struct {
  const char *name; /* after "--"; NULL: it only has a letter */
  char letter;      /* after "-"; 0: it only has a name */
  ZbOptionKind kind;
  size_t at, size;   /* the field in the program's options: ZB_AT */
  const char *value; /* stands for the value in --help: "FILE" */
  const char *help;
  const char *usual;  /* the default, as a user would give it; NULL: the field stays as it is */
  double least, most; /* most 0: no limit */
  /* Bits, 1 << the index of a command: which commands have it (0: all), which fail without it, and which show it in
   * their usage although it may be left out. Rows of one name and several commands may follow each other. */
  uint32_t commands, needed, shown;
  ZbSame same;
  /* ZB_OTHER: reads a value. False, with a message that names the value, or without one: `expects` then says what
   * would be right. */
  bool (*take)(void *options, const char *text, ZbErr *err);
  const char *expects;
  void (*show)(const void *options, ZbText *t); /* writes the value for ZB_SAME_VALUE; NULL: by its kind */
} ZbOption;
#define ZB_AT(T, field) .at = offsetof(T, field), .size = sizeof((T *)0)->field

typedef struct {
  const char *name; /* NULL: the command without a word. Further rows of this kind are shown in --help only */
  const char *operands; /* as usage shows them: "GRAPH.zsg", "DIR..." */
  uint32_t least, most; /* how many */
  const char *help;
} ZbCommand;
enum { ZB_ANY_NUMBER = INT32_MAX, ZB_OPTIONS = 128 };

/* A row of what a program tells about itself beside its options; behind the last is one without a name. */
typedef struct {
  const char *name, *help;
} ZbNote;

#define ZB_TABLES(commands_, options_)                                                                       \
  .commands = commands_, .ncommands = sizeof commands_ / sizeof *commands_, .options = options_,             \
  .noptions = sizeof options_ / sizeof *options_
typedef struct {
  const char *name, *what; /* "zdata", "make and inspect the files that zrun trains from" */
  const ZbCommand *commands;
  uint32_t ncommands;
  const ZbOption *options; /* at most ZB_OPTIONS */
  uint32_t noptions;
  const char *notes;                          /* paragraphs behind the options, a line each; NULL: none */
  const ZbNote *codes;                        /* "0", "done": what exit codes mean; NULL: not said */
  const ZbNote *examples, *files;             /* command lines, and names of files: of the man page alone */
  bool once;                                  /* an option that is not a list is refused the second time */
  bool options_first;                         /* options end before the first operand */
  void (*hint)(const char *word, ZbErr *err); /* may write err->help for an unknown command or "--option" */
} ZbProgram;

typedef struct {
  uint32_t command;     /* its index */
  const char **operand; /* without the command's name; NULL behind the last */
  uint32_t noperands;
} ZbArgs;

/* Writes defaults and what is given into *options. False with a message. */
bool zb_parse(const ZbProgram *p, ZbArena *a, int argc, char *const *argv, void *options, ZbArgs *args,
              ZbErr *err);
/* Returns the value that an option is given last, or its default. Looks at nothing else, and ignores
 * mistakes. */
const char *zb_option_given(const ZbProgram *p, const char *name, int argc, char *const *argv);
/* Returns the row of that name, or NULL. */
const ZbOption *zb_option_named(const ZbProgram *p, const char *name);
/* Calls `add` for each option that several processes must have alike. */
void zb_options_list(const ZbProgram *p, ZbArena *a, const void *options,
                     void (*add)(void *ctx, const char *name, const char *value), void *ctx);

/* ---- what a program tells about itself ---- */
/* Whether an argument before "--" is -h, --help or the beginning of it. */
bool zb_asks_help(int argc, char *const *argv);
/* Whether --version is all there is. */
bool zb_asks_version(int argc, char *const *argv);
void zb_help(const ZbProgram *p, FILE *to);
/* Prints what --help, --version, --man-page or --complete ask for. False: none of them is given. For the
 * last, which completion of a shell calls, the arguments before the cursor follow. */
bool zb_tells(const ZbProgram *p, int argc, char *const *argv);

/* All of main for programs whose code is 2 for mistakes and errors. `run` returns the code; for 2 with a
 * message. */
int zb_main(const ZbProgram *p, int argc, char **argv, void *options,
            int (*run)(void *options, const ZbArgs *args, ZbArena *a, ZbErr *err));

#endif
