/* What the files of a template share: its tree, values, and a run. */
#ifndef ZUG_TEXT_TEMPLATE_INSIDE_H
#define ZUG_TEXT_TEMPLATE_INSIDE_H

#include "runtime/text/room.h"
#include "runtime/text/template/template.h"

/* ---- values ---------------------------------------------------------------------------------- */
/* Where a byte of a text came from. A byte may be of several: it is in a {% generation %} block, and a
 * message's, which is the last one's content where an answer goes on with it. */
enum {
  ZT_OF_TEMPLATE = 0,
  ZT_OF_OTHERS = ZT_SPAN_OTHERS,
  ZT_OF_ASSISTANT = ZT_SPAN_ASSISTANT,
  ZT_GENERATED = 4,
  ZT_OF_LAST = 8
};
typedef struct {
  const char *s;
  size_t n;
  const uint8_t *mark; /* of each byte; NULL: all are `all` */
  uint8_t all;
} ZtString;

typedef enum {
  ZT_UNDEFINED, /* has the name that was not found */
  ZT_NULL,
  ZT_BOOL,
  ZT_INT,
  ZT_FLOAT,
  ZT_STRING,
  ZT_LIST,
  ZT_TUPLE,
  ZT_DICT,
  ZT_NAMESPACE, /* the only one that changes */
  ZT_LOOP,
  ZT_MACRO,
  ZT_FUNCTION,
  ZT_METHOD,
  ZT_ABSENT /* an argument that was not given; templates never see it */
} ZtKind;
typedef struct ZtValue ZtValue;
typedef struct {
  ZtValue *item;
  size_t n;
} ZtList;
typedef struct {
  ZtValue *key, *value;
  size_t n, cap;
} ZtDict;
typedef struct ZtLoop ZtLoop;
typedef struct ZtMacro ZtMacro;
typedef struct ZtBuiltin ZtBuiltin;
typedef struct ZtMethod ZtMethod;
struct ZtValue {
  ZtKind kind;
  bool view; /* of a dict: templates cannot tell, but text of it differs */
  union {
    bool b;
    int64_t i;
    double f;
    const ZtString *s;
    const ZtList *l; /* and of tuples */
    ZtDict *d;       /* and of namespaces */
    ZtLoop *loop;
    const ZtMacro *macro;
    const ZtBuiltin *function;
    const ZtMethod *method;
    const char *name; /* of what is undefined */
  };
};

/* ---- lex.c ----------------------------------------------------------------------------------- */
typedef enum {
  ZT_LEX_DATA,
  ZT_LEX_PRINT,
  ZT_LEX_PRINT_END,
  ZT_LEX_BLOCK,
  ZT_LEX_BLOCK_END,
  ZT_LEX_NAME,
  ZT_LEX_STRING,
  ZT_LEX_INT,
  ZT_LEX_FLOAT,
  ZT_LEX_SIGN,
  ZT_LEX_END
} ZtLexKind;
typedef struct {
  ZtLexKind kind;
  uint32_t line;
  const char *s; /* text, a name, what a string says, a sign as it is written; NUL-terminated */
  size_t n;
  int64_t i;
  double f;
} ZtLexeme;
/* Cuts a template into lexemes, of which the last is ZT_LEX_END. NULL with a message. */
ZtLexeme *zt_lex(ZbArena *a, const char *source, size_t n, const char *name, ZbErr *err);
/* White space as Python has it. */
bool zt_blank(uint32_t c);

/* ---- the tree -------------------------------------------------------------------------------- */
typedef enum {
  /* statements */
  ZT_DO_BLOCK,      /* list */
  ZT_DO_TEXT,       /* value */
  ZT_DO_PRINT,      /* a */
  ZT_DO_IF,         /* list: condition, block, condition, block ..., and perhaps a block */
  ZT_DO_FOR,        /* list: target, iterable, block, `else` or NULL, condition or NULL */
  ZT_DO_SET,        /* a: target, b: value */
  ZT_DO_CATCH,      /* a: target of a {% set %} block, b: block, c: filters over ZT_CAUGHT, or NULL */
  ZT_DO_MACRO,      /* name, list: parameters' defaults or NULL, names: theirs, a: block */
  ZT_DO_CALL,       /* a: the call, b: a ZT_DO_MACRO, which is its caller */
  ZT_DO_FILTER,     /* a: filters over ZT_CAUGHT, b: block */
  ZT_DO_WITH,       /* list: target, value, target, value ..., a: block */
  ZT_DO_GENERATION, /* a: block */
  ZT_DO_BREAK,
  ZT_DO_CONTINUE,
  /* expressions */
  ZT_CONST,     /* value */
  ZT_NAME,      /* name */
  ZT_CAUGHT,    /* what the statement around has caught */
  ZT_MAKE_LIST, /* list */
  ZT_MAKE_TUPLE,
  ZT_MAKE_DICT, /* list: key, value, key, value ... */
  ZT_ATTRIBUTE, /* a, value: its name */
  ZT_ITEM,      /* a, b */
  ZT_SLICE,     /* a, list: three, each of which may be NULL */
  ZT_CALL,      /* a, list: arguments, names: theirs */
  ZT_FILTER,    /* a, of, list, names */
  ZT_TEST,      /* a, of, list, names */
  ZT_AND,
  ZT_OR,
  ZT_NOT,
  ZT_NEGATIVE,
  ZT_POSITIVE,
  ZT_ARITHMETIC, /* a, op, b */
  ZT_COMPARE,    /* list: operands, ops */
  ZT_CONCAT,     /* list */
  ZT_CHOOSE      /* list: condition, value, other or NULL */
} ZtNodeKind;
typedef enum {
  ZT_ADD = 1,
  ZT_SUB,
  ZT_MUL,
  ZT_DIV,
  ZT_FLOOR,
  ZT_MOD,
  ZT_POW,
  ZT_EQ,
  ZT_NE,
  ZT_LT,
  ZT_LE,
  ZT_GT,
  ZT_GE,
  ZT_IN,
  ZT_NOT_IN
} ZtOp;
typedef struct ZtNode ZtNode;
struct ZtNode {
  ZtNodeKind kind;
  uint8_t op;
  uint16_t height; /* of the tree below: evaluation is recursive */
  uint32_t line;
  uint32_t name; /* its number among the template's */
  uint32_t n;    /* of list */
  ZtNode *a, *b, *c, **list;
  uint32_t *names; /* of the arguments in list; ZB_NO_NAME: by place */
  uint8_t *ops;
  const ZtBuiltin *of;
  ZtValue value;
};
struct ZtTemplate {
  ZbArena *a;
  const char *name;
  ZbNames names; /* of variables, attributes of calls, parameters */
  bool *written; /* by number: set by the template itself */
  /* What it asks of a message's members. */
  ZbNames asked_none; /* those of which it asks if they are none */
  bool takes_parts;   /* it goes through contents, so that they may be lists, */
  bool takes_text;    /* and asks if they are strings, so that they may be texts, too */
  bool generates;     /* it says what of its text is an answer */
  ZtNode *root;
  const char *source;
  size_t nsource;
};
enum { ZT_TREE_HEIGHT = 400, ZT_ARGUMENTS = 64 };

/* parse.c, expr.c: a parser, which has failed once err is set */
typedef struct {
  ZtTemplate *t;
  const ZtLexeme *at;
  ZbErr *err;
  bool failed;
  uint32_t depth, loops;
  ZtNode **called; /* calls of names, which must be there somewhere */
  uint32_t ncalled;
  ZbNames contents; /* names that a message's content was assigned to */
} ZtParser;
ZtNode *zt_parse(ZtParser *p); /* the whole; NULL with a message */
/* Notes what a template asks of messages' members: x is compared with none, is tested for a string, is
 * gone through, is assigned to a name. */
void zt_note_none(ZtParser *p, const ZtNode *x);
void zt_note_text(ZtParser *p, const ZtNode *x);
void zt_note_parts(ZtParser *p, const ZtNode *x);
void zt_note_name(ZtParser *p, const ZtNode *target, const ZtNode *x);
/* Fails at the current lexeme. Returns NULL. */
void *zt_parse_fail(ZtParser *p, uint32_t line, const char *help, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
ZtNode *zt_node(ZtParser *p, ZtNodeKind kind, uint32_t line);
/* Adds a child's height to its parent's, and returns the child. */
ZtNode *zt_under(ZtParser *p, ZtNode *parent, ZtNode *child);
bool zt_is(const ZtParser *p, ZtLexKind kind, const char *s); /* s NULL: any */
bool zt_skip(ZtParser *p, ZtLexKind kind, const char *s);     /* if it is */
bool zt_expect(ZtParser *p, ZtLexKind kind, const char *s);
const char *zt_shown_lexeme(const ZtLexeme *x);
uint32_t zt_parse_name(ZtParser *p); /* a name that may be written to */
ZtNode *zt_parse_expr(ZtParser *p);
ZtNode *zt_parse_tuple(ZtParser *p, bool conditions); /* one, or several with commas */
ZtNode *zt_parse_target(ZtParser *p, bool attributes);
ZtNode *zt_parse_filters(ZtParser *p, ZtNode *x, bool first); /* first: its bar is not written */
ZtNode *zt_parse_postfix(ZtParser *p, ZtNode *x);
ZtNode *zt_parse_primary(ZtParser *p);

/* ---- a run ----------------------------------------------------------------------------------- */
typedef struct ZtVar ZtVar;
struct ZtVar {
  uint32_t name;
  ZtValue value;
  ZtVar *next;
};
typedef struct ZtFrame ZtFrame;
struct ZtFrame {
  ZtFrame *up;
  ZtVar *var;
};
/* Text that is being made. */
typedef struct {
  char *s;
  uint8_t *mark; /* NULL: all are of the template */
  size_t n, cap;
} ZtMade;
typedef struct {
  const ZtTemplate *t;
  const ZtChat *chat;
  ZbArena *a;
  ZbErr *err;
  bool failed; /* what is evaluated from now on means nothing */
  uint32_t line, depth;
  uint64_t steps, bytes;
  ZtFrame *frame;
  ZtMade *out;
  ZtValue caught;
  uint8_t mark; /* of what is written in a {% generation %} block */
} ZtRun;
/* Says what is wrong, where; the first one counts. Returns undefined. */
ZtValue zt_wrong(ZtRun *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Counts a step, and the bytes it looks at. False: enough. */
bool zt_step(ZtRun *r, size_t bytes);
bool zt_deeper(ZtRun *r); /* false: too deep. The caller counts r->depth down if it is true. */
/* Memory of the run, zeroed; NULL: too much. */
void *zt_take(ZtRun *r, size_t n, size_t size);

struct ZtLoop {
  const ZtList *list;
  size_t at;
  ZtValue changed;
};
struct ZtMacro {
  const ZtNode *node;
  ZtFrame *frame;
};
/* What a call was given: first those by place. */
typedef struct {
  const ZtValue *v;
  const uint32_t *names; /* of the template; ZB_NO_NAME: by place */
  uint32_t n;
} ZtGiven;
typedef ZtValue ZtCode(ZtRun *r, const ZtBuiltin *of, ZtValue self, const ZtValue *arg, const ZtGiven *given);
/* A filter, a test, a function or a method. Parameters by name; without those that are given, ZT_ABSENT.
 * "*": it looks at `given` itself. */
struct ZtBuiltin {
  const char *name;
  const char *parameters[5];
  ZtCode *code;
  uint8_t must; /* the first so many must be given */
};
struct ZtMethod {
  const ZtBuiltin *of;
  const char *name; /* of one that is not built here, and can only be there */
  ZtValue self;
};
ZtValue zt_invoke(ZtRun *r, const ZtBuiltin *of, ZtValue self, const ZtGiven *given);
const ZtBuiltin *zt_filter(const char *name);
const ZtBuiltin *zt_test(const char *name);
const ZtBuiltin *zt_function(const char *name);
bool zt_method_known(const char *name); /* of any kind of value */
/* The method of a value; false: it has none of that name. */
bool zt_method(ZtRun *r, ZtValue of, const char *name, ZtValue *out);
/* Says if a test holds. */
bool zt_holds(ZtRun *r, const ZtBuiltin *test, ZtValue x, const ZtGiven *given);

/* run.c */
ZtValue zt_call_macro(ZtRun *r, const ZtMacro *m, const ZtGiven *given, ZtValue caller);
void zt_execute(ZtRun *r); /* the whole */
void zt_assign(ZtRun *r, uint32_t name, ZtValue v);
bool zt_lookup(const ZtRun *r, uint32_t name, ZtValue *out);
/* eval.c */
ZtValue zt_eval(ZtRun *r, const ZtNode *x);
ZtGiven zt_eval_given(ZtRun *r, const ZtNode *x);
ZtValue zt_call(ZtRun *r, ZtValue f, const ZtGiven *given, ZtValue caller);
ZtValue zt_arithmetic(ZtRun *r, ZtOp op, ZtValue a, ZtValue b);
bool zt_compare(ZtRun *r, ZtOp op, ZtValue a, ZtValue b);
ZtValue zt_get_attribute(ZtRun *r, ZtValue of, const char *name);
ZtValue zt_get_item(ZtRun *r, ZtValue of, ZtValue key);
/* "a.b.0" of a value, as filters name attributes; v may be a whole number. */
ZtValue zt_get_path(ZtRun *r, ZtValue of, ZtValue path);

/* value.c */
ZtValue zt_none(void);
ZtValue zt_bool(bool b);
ZtValue zt_int(int64_t i);
ZtValue zt_float(double f);
ZtValue zt_undefined(const char *name);
ZtValue zt_list(ZtRun *r, ZtKind kind, ZtValue *item, size_t n);
bool zt_truth(ZtValue v);
bool zt_equal(ZtRun *r, ZtValue a, ZtValue b);
/* -1, 0, 1; wrong if they have no order. */
int zt_order(ZtRun *r, ZtValue a, ZtValue b);
const char *zt_kind(ZtValue v); /* as Python calls it */
bool zt_is_number(ZtValue v);   /* also true and false */
double zt_as_double(ZtValue v);
int64_t zt_as_int(ZtValue v); /* of an int or a bool */
/* The items of what can be iterated: characters of texts, keys of dicts. False, and wrong, of all else. */
bool zt_items(ZtRun *r, ZtValue v, ZtList *out);
const ZtValue *zt_dict_find(ZtRun *r, const ZtDict *d, ZtValue key);
const ZtValue *zt_dict_named(const ZtDict *d, const char *key);
void zt_dict_put(ZtRun *r, ZtDict *d, ZtValue key, ZtValue v);
ZtDict *zt_dict_new(ZtRun *r, size_t cap);
/* Length as Python's len; false: it has none. */
bool zt_length(ZtValue v, size_t *n);

/* strings.c: text that is made, and texts by characters */
void zt_put(ZtRun *r, ZtMade *m, const char *s, size_t n, const uint8_t *mark, uint8_t all);
void zt_put_string(ZtRun *r, ZtMade *m, const ZtString *s);
void zt_put_part(ZtRun *r, ZtMade *m, const ZtString *s, size_t begin, size_t end);
void zt_put_text(ZtRun *r, ZtMade *m, const char *s);
void zt_put_char(ZtRun *r, ZtMade *m, uint32_t c, uint8_t mark);
ZtValue zt_made(ZtRun *r, const ZtMade *m);
ZtValue zt_text(ZtRun *r, const char *s);                           /* of the template */
ZtValue zt_text_n(ZtRun *r, const char *s, size_t n, uint8_t mark); /* copied */
ZtValue zt_part(ZtRun *r, const ZtString *s, size_t begin, size_t end);
uint8_t zt_mark_at(const ZtString *s, size_t at);
const ZtString *zt_str(ZtRun *r, ZtValue v); /* as Python's str */
void zt_put_str(ZtRun *r, ZtMade *m, ZtValue v);
void zt_put_repr(ZtRun *r, ZtMade *m, ZtValue v);
void zt_put_float(ZtRun *r, ZtMade *m, double f);
size_t zt_chars(const ZtString *s);
size_t zt_char_at(const ZtString *s, size_t nth); /* bytes before it */
typedef enum { ZT_UPPER, ZT_LOWER, ZT_TITLE, ZT_CAPITALIZE, ZT_TITLE_FILTER } ZtCase;
ZtValue zt_recase(ZtRun *r, const ZtString *s, ZtCase to);
ZtValue zt_strip(ZtRun *r, const ZtString *s, ZtValue chars, bool left, bool right);
ZtValue zt_replace(ZtRun *r, const ZtString *s, const ZtString *old, const ZtString *by, int64_t most);
ZtValue zt_format_percent(ZtRun *r, const ZtString *s, ZtValue args);
/* Finds `what` in s[from..); SIZE_MAX: it is not there. */
size_t zt_find(const ZtString *s, const ZtString *what, size_t from);

/* json.c */
void zt_put_json(ZtRun *r, ZtMade *m, ZtValue v,
                 const ZtValue *arg); /* arg: ensure_ascii, indent, separators, sort_keys */
struct cJSON;
ZtValue zt_text_given(ZtRun *r, const char *s, uint8_t mark); /* wrong if it is not UTF-8 */
ZtValue zt_from_json(ZtRun *r, const struct cJSON *x, uint8_t mark);
ZtValue zt_parse_json(ZtRun *r, const ZtString *s, bool *is);
/* messages.c: the conversation's variables, in the current frame. */
bool zt_chat_variables(ZtRun *r);

#endif
