/* The parser's state, shared by scan.l and parse.y only. */
#ifndef ZUG_LANG_SCAN_H
#define ZUG_LANG_SCAN_H

#include "lang/internal.h"

/* Lists under construction in the arena. */
/* clang-format off */
typedef struct { ZlExpr **at; uint32_t n; } ZlExprList;
typedef struct { ZlArg *at; uint32_t n; } ZlArgList;
typedef struct { ZlStmt **at; uint32_t n, depth; } ZlStmtList; /* depth: repeats within */
typedef struct { ZlParamDef *at; uint32_t n; } ZlParamList;
typedef struct { ZlAxisDef *at; uint32_t n; } ZlAxisList;
typedef struct { ZlStatic *at; uint32_t n; } ZlStaticList;
typedef struct { ZlFormal *at; uint32_t n; } ZlFormalList;
typedef struct { ZlTypeExpr *at; uint32_t n; } ZlTypeList;
typedef struct { ZlQuantity *at; uint32_t n; } ZlQuantityList;
typedef struct { ZlProd *at; uint32_t n; } ZlProdList;
typedef struct { ZlPath *at; uint32_t n; } ZlPathList;
typedef struct { ZlKwAst *at; uint32_t n; } ZlKwList;
typedef struct { ZlDim **at; uint32_t n; } ZlDimList;
typedef struct { ZlConfigValue *at; uint32_t n; } ZlValueList;
typedef struct { ZlName key, value; } ZlPair;
typedef struct { ZlPrecision *at; uint32_t n; } ZlPrecisionList;
/* clang-format on */

/* One token as the scanner gives it. */
typedef struct {
  int kind;
  ZlSpan span;
  uint32_t depth; /* open braces before it */
  bool first;     /* first of its line */
  union {
    ZlName name;     /* IDENT, MAYBE, PLACE, STRING */
    ZlNumber number; /* NUMBER */
    ZlQuantity quantity;
    ZlElem elem;
    ZlDirectiveKind directive; /* NUMBERED, CHOSEN */
  };
} ZlToken;

struct ZlParser {
  ZbArena *arena;
  ZlDiags *diags;
  ZlFile *file;
  const char *text;
  void *scanner; /* flex's */

  /* The scanner: where it is, and which words are keywords there. */
  uint32_t pos;    /* byte after the last token */
  bool line_start; /* nothing but blanks since the last newline */
  bool bad_line;   /* a character of this line was reported and skipped */
  int body;        /* WEIGHTS, RECIPE or CLUSTER: the next brace opens such a body; else 0 */
  uint32_t body_depth;
  ZlSpan *open; /* open braces */
  uint32_t nopen, parens;

  /* Error recovery (recover.c). */
  ZlToken before, last, again;
  bool skipping, replay;
  bool brace_missing; /* reported: the end of the file is not reported as well */
  bool reported;      /* a syntax error at byte last_error */
  uint32_t last_error;
  bool in_use; /* `use` was the last word but `as` */

  ZlNames maybe;  /* of the directive being parsed: axes that the model may lack, `head?` */
  bool open_else; /* of it: `else ?` */
  ZlModel *model; /* being parsed */
  ZlWeights *weights;
  const ZlCond *cond; /* in its innermost `if` */
};

/* ---- scan.l: the next token (kind 0 at the end), with braces counted ---- */
ZlToken zl_scan_token(ZlParser *ps);
void zl_scan_open(ZlParser *ps, const char *text, size_t n);
void zl_scan_close(ZlParser *ps);

/* ---- recover.c: what the parser sees of the scanner, and the report of a syntax error ---- */
ZlToken zl_next_token(ZlParser *ps);
/* Says whether an item, a statement or a directive begins with this word (`from`: in maps, where it is not part of
 * a head). */
bool zl_begins(int kind);
typedef struct {
  const char *at[128]; /* names of the tokens that could stand here */
  int n;
} ZlExpected;
void zl_syntax_error(ZlParser *ps, ZlExpected *e);

/* ---- ast.c: nodes ---- */
ZlExpr *zl_binary(ZbArena *a, ZlSpan span, char op, ZlExpr *x, ZlExpr *y);
ZlExpr *zl_unary(ZbArena *a, ZlSpan span, ZlExprKind kind, ZlExpr *x); /* NEG, NOT */
ZlExpr *zl_number(ZbArena *a, ZlNumber n);
ZlExpr *zl_named(ZbArena *a, ZlName n);
ZlExpr *zl_call(ZbArena *a, ZlSpan span, ZlPath path, ZlArgList args);
ZlExpr *zl_cast(ZbArena *a, ZlSpan span, ZlElem elem, ZlExpr *x);
ZlStmt *zl_statement(ZbArena *a, ZlStmtKind kind, ZlSpan span);
void zl_add_statement(ZbArena *a, ZlStmtList *list, ZlStmt *s);
/* The axes that a statement of a model declares, also in an `if`, into the model's. */
void zl_collect_axes(ZbArena *a, ZlModel *m, const ZlStmt *s, const ZlCond *cond);
const ZlCond *zl_cond(ZbArena *a, const ZlCond *outer, ZlExpr *expr, bool otherwise);
ZlDirective *zl_directive(ZbArena *a, ZlDirectiveKind kind);
/* ---- weights.c: nodes of maps ---- */
ZlDim *zl_dim(ZbArena *a, ZlDimKind kind, ZlSpan span);
ZlDim *zl_dim_add(ZbArena *a, ZlDimKind kind, ZlSpan span, ZlDim *x, ZlDim *y); /* x kind y */
ZlPath zl_path_joined(ZbArena *a, const ZlPath *x, const ZlPath *y);
ZlName zl_path_name(ZbArena *a, const ZlPath *path); /* as one name */

ZlQuantity zl_number_quantity(ZlName name, ZlNumber n);

#endif
