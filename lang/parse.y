%{
/* The grammar: tokens to tree, no meaning. Newlines are blanks; a statement ends where the next cannot go on.
 *
 * Error recovery: the report of a syntax error switches the token source to skipping (see `resync` below); it
 * then delivers the made-up token RESYNC just before the next statement, directive or item, which is what
 * the rules `error RESYNC` wait for. So each mistake is reported once and the rest is still checked. */
#include "lang/scan.h"

#include <string.h>

#define YYMAXDEPTH 4000
#define YYLLOC_DEFAULT(cur, rhs, n)                                                                 \
  do {                                                                                              \
    if (n) (cur) = (ZlSpan){YYRHSLOC(rhs, 1).file, YYRHSLOC(rhs, 1).start, YYRHSLOC(rhs, n).end};   \
    else (cur) = (ZlSpan){YYRHSLOC(rhs, 0).file, YYRHSLOC(rhs, 0).end, YYRHSLOC(rhs, 0).end};       \
  } while (0)
#define PUSH(list, value) ZB_PUSH(ps->arena, (list).at, (list).n, value)
#define PUSH_IGNORED(name, of) \
  ADD(ps->weights->ignored, ps->weights->nignored, ((ZlIgnore){name, of, ps->cond}))
#define PUSH_HARMLESS(path) \
  ADD(ps->weights->harmless, ps->weights->nharmless, \
      ((ZlIgnore){.pattern = zl_path_name(ps->arena, &path), .cond = ps->cond}))
#define TEXT(v, where) (v).kind = ZL_V_TEXT, (v).span = (where)
#define ADD(p, n, value) ZB_PUSH(ps->arena, p, n, value)
#define NEW(kind) zl_directive(ps->arena, ZL_D_##kind)
%}
%code requires {
#include "lang/scan.h"
}
%define api.prefix {zl_bison_}
%define api.pure full
%define api.location.type {ZlSpan}
%define parse.error custom
%define parse.lac full
%expect 0
%param {ZlParser *ps}
%initial-action { @$ = (ZlSpan){ps->file->id, 0, 0}; }

%union {
  ZlName name; ZlNames names; ZlNumber number; ZlQuantity quantity; ZlElem elem; ZlPath path; ZlSpan span;
  ZlTypeExpr type; ZlTypeList types; ZlExpr *expr; ZlExprList exprs; ZlArg arg; ZlArgList args;
  ZlStmt *stmt; ZlStmtList stmts; ZlParamDef pdef; ZlParamList pdefs; ZlAxisDef axdef; ZlAxisList axdefs;
  ZlStaticList statics; ZlFormal formal; ZlFormalList formals; ZlBlock *block;
  struct { bool all; ZlNames names; ZlSpan span; } axpar;
  struct { ZlExpr *value; ZlName name; ZlExprList args; } init;
  ZlQuantityList quantities; ZlProd prod; ZlProdList prods; ZlPathList paths; ZlKwAst kw; ZlKwList kws; ZlAmountAst amount;
  ZlPrecision precision; ZlPrecisionList precisions; ZlClause clause; ZlDirective *directive; ZlRecipeAst *recipe; ZlClusterAst *cluster; ZlClusterLine line;
  bool flag; ZlWeights *weights; ZlDim *dim; ZlDimList dims; ZlConfigValue value; ZlValueList values;
  struct { ZlName axis, index; } fix; ZlOrder order; ZlDirectiveKind kind;
}
%token END 0 "end of file"
%token USE "use" AS "as" BLOCK "block" MODEL "model" RECIPE "recipe" CLUSTER "cluster" WEIGHTS "weights"
%token FOR "for" FROM "from"
%token AXIS "axis" PARAM "param" TAG "tag" INPUT "input" OUTPUT "output" LOSS "loss" PER "per" AUX "aux"
%token STATE "state" UPDATE "update"
%token REPEAT "repeat" IF "if" RETURN "return" INDEX "index" ARROW "->" DOTDOT ".."
%token MESH "mesh" BIND "bind" MICRO "micro" SPLIT "split" OVER "over" ELSE "else" SHARD "shard" UNIT "unit"
%token KEEP "keep" STAGES "stages" BY "by" RECOMPUTE "recompute" OFFLOAD "offload" TO "to"
%token PRECISION "precision" OPTIMIZER "optimizer" DECAY "decay" EXCEPT "except" PAD "pad"
%token LIMIT "limit" FREEZE "freeze" ATTENTION "attention" CHUNK "chunk"
%token <kind> NUMBERED "a directive and its number" CHOSEN "a directive and its word"
%token IGNORE "ignore" WITHOUT "without" CONFIG "config" TRUTH "true" UNTRUTH "false" NOTHING "null"
%token ZIGZAG "zigzag" CONTIGUOUS "contiguous"
%token AND "and" OR "or" NOT "not"
%token DEVICE "device" HOST "host" LEVEL "level"
%token AT_MOST "<=" AT_LEAST ">=" EQUALS "==" DIFFERS "!="
%token RESYNC
%token <name> IDENT "a name" MAYBE "a name with ?" PLACE "a place such as {i}" STRING "a name between quotes"
%token <number> NUMBER "a number"
%token <quantity> QUANTITY "a quantity such as 80 GB"
%token <elem> ELEM "an element type"

%type <name> as for
%type <names> names name1 tag else axes
%type <name> axis
%type <path> path from
%type <span> head
%type <block> block
%type <axpar> axpar axes0 row
%type <formal> formal
%type <formals> formals formals0
%type <type> type
%type <types> types
%type <statics> statics statics0
%type <axdef> axdef
%type <axdefs> axdefs
%type <stmt> stmt choice
%type <stmts> stmts branch otherwise
%type <pdef> pdef
%type <pdefs> pdefs
%type <init> init
%type <expr> expr sexpr call
%type <exprs> exprs sexprs sexprs0
%type <arg> arg
%type <args> args args0
%type <quantity> const dim0
%type <quantities> dims0 nums numlist quants consts
%type <prod> prod
%type <prods> prods
%type <path> unit
%type <paths> paths but
%type <kw> kw
%type <amount> amount
%type <kws> kws kws0
%type <precision> prec
%type <precisions> precs
%type <directive> directive clauses split
%type <clause> clause
%type <recipe> rhead
%type <cluster> chead
%type <line> cline
%type <flag> kept keep
%type <weights> whead
%type <name> word attended
%type <path> ours
%type <paths> target tails
%type <fix> fix
%type <order> order
%type <dim> dim merged dim1
%type <dims> dims
%type <expr> times
%type <value> value item0 absent
%type <values> values items items0

%precedence UNLABELLED
%precedence AS
%left OR
%left AND
%precedence NOT
%nonassoc '<' '>' AT_MOST AT_LEAST EQUALS DIFFERS
%left '+' '-'
%left '*' '/'
%precedence UMINUS

%code {
static int zl_bison_lex(ZL_BISON_STYPE *v, ZlSpan *span, ZlParser *ps);
static void zl_bison_error(const ZlSpan *span, ZlParser *ps, const char *msg);
static ZlSpan between(ZlSpan a, ZlSpan b) { return (ZlSpan){a.file, a.start, b.end}; }
}
%%
file    : %empty
        | file item
        ;
item    : use
        | block          { ADD(ps->file->blocks, ps->file->nblocks, $1); }
        | model
        | weights
        | recipe
        | cluster
        | error RESYNC   { yyerrok; }
        ;
use     : USE path as    {
            ZlUse u = {.path = $2, .alias = $3.s ? $3 : $2.part[$2.n - 1], .span = @$};
            ADD(ps->file->uses, ps->file->nuses, u);
          }
        ;
as      : %empty %prec UNLABELLED { $$ = (ZlName){NULL, ZL_NOWHERE}; }
        | AS IDENT       { $$ = $2; }
        ;
path    : IDENT          { $$ = (ZlPath){.span = @1}; ADD($$.part, $$.n, $1); }
        | path '.' IDENT { $$ = $1; $$.span = @$; ADD($$.part, $$.n, $3); }
        ;
names   : name1
        | names ',' IDENT { $$ = $1; PUSH($$, $3); }
        ;
name1   : IDENT          { $$ = (ZlNames){0}; PUSH($$, $1); }
        ;

/* ---- blocks and models ---- */
block   : BLOCK IDENT axpar '(' formals0 ')' ARROW types '{' stmts '}' {
            $$ = ZB_NEW(ps->arena, ZlBlock);
            *$$ = (ZlBlock){.name = $2, .span = between(@1, @8), .file = ps->file, .model = ps->model, .axes = $3.names, .row = $3.all,
                            .formals = $5.at, .nformals = $5.n, .results = $8.at, .nresults = $8.n,
                            .body = $10.at, .nbody = $10.n};
          }
        ;
axpar   : %empty         { memset(&$$, 0, sizeof $$); $$.span = ZL_NOWHERE; }
        | row
        ;
row     : '[' names ']'  { $$.all = false; $$.names = $2; $$.span = @$; }
        | '[' DOTDOT ']' { memset(&$$, 0, sizeof $$); $$.all = true; $$.span = @$; }
        | '[' DOTDOT ',' names ']' { $$.all = true; $$.names = $4; $$.span = @$; }
        ;
formals0 : %empty        { $$ = (ZlFormalList){0}; }
        | formals
        ;
formals : formal         { $$ = (ZlFormalList){0}; PUSH($$, $1); }
        | formals ',' formal { $$ = $1; PUSH($$, $3); }
        ;
formal  : IDENT ':' type { $$ = (ZlFormal){.name = $1, .type = $3, .span = @$}; }
        | IDENT '=' sexpr { $$ = (ZlFormal){.name = $1, .is_static = true, .value = $3, .span = @$}; }
        ;
types   : type           { $$ = (ZlTypeList){0}; PUSH($$, $1); }
        | types ',' type { $$ = $1; PUSH($$, $3); }
        ;
type    : ELEM axes0     { $$ = (ZlTypeExpr){.elem = $1, .rest = $2.all, .axes = $2.names, .span = @$}; }
        | INDEX '(' IDENT ')' axes0 {
            $$ = (ZlTypeExpr){.elem = ZL_INDEX, .of = $3, .rest = $5.all, .axes = $5.names, .span = @$};
          }
        ;
axes0   : %empty         { memset(&$$, 0, sizeof $$); }
        | '[' ']'        { memset(&$$, 0, sizeof $$); }
        | row
        ;
model   : MODEL IDENT statics0 head {
            ZlModel *m = ZB_NEW(ps->arena, ZlModel);
            *m = (ZlModel){.name = $2, .span = between(@1, @3), .file = ps->file, .statics = $3.at, .nstatics = $3.n};
            ADD(ps->file->models, ps->file->nmodels, m);
            ps->model = m;
          } mstmts '}'   { ps->model = NULL; }
        ;
head    : '{'            { $$ = @1; }
        ;
statics0 : %empty        { $$ = (ZlStaticList){0}; }
        | '(' ')'        { $$ = (ZlStaticList){0}; }
        | '(' statics ')' { $$ = $2; }
        ;
statics : IDENT '=' sexpr { $$ = (ZlStaticList){0}; PUSH($$, ((ZlStatic){$1, $3})); }
        | statics ',' IDENT '=' sexpr { $$ = $1; PUSH($$, ((ZlStatic){$3, $5})); }
        ;
mstmts  : %empty
        | mstmts block   { ADD(ps->model->blocks, ps->model->nblocks, $2); }
        | mstmts stmt    {
            ADD(ps->model->body, ps->model->nbody, $2);
            zl_collect_axes(ps->arena, ps->model, $2, NULL);
          }
        | mstmts error RESYNC { yyerrok; }
        ;

/* ---- statements ---- */
stmts   : %empty         { $$ = (ZlStmtList){0}; }
        | stmts stmt     { $$ = $1; zl_add_statement(ps->arena, &$$, $2); }
        | stmts error RESYNC { $$ = $1; yyerrok; }
        ;
stmt    : kept pdefs init tag {
            $$ = zl_statement(ps->arena, ZL_S_PARAM, @$);
            $$->param.state = $1;
            $$->param.defs = $2.at;
            $$->param.ndefs = $2.n;
            $$->param.value = $3.value;
            $$->param.init = $3.name;
            $$->param.args = $3.args.at;
            $$->param.nargs = $3.args.n;
            $$->param.tags = $4;
          }
        | UPDATE IDENT '=' expr {
            $$ = zl_statement(ps->arena, ZL_S_UPDATE, @$);
            $$->update.name = $2;
            $$->update.value = $4;
          }
        | names '=' expr {
            $$ = zl_statement(ps->arena, ZL_S_LET, @$);
            $$->let.names = $1;
            $$->let.value = $3;
          }
        | REPEAT sexpr as '{' stmts '}' {
            $$ = zl_statement(ps->arena, ZL_S_REPEAT, between(@1, $3.s ? @3 : @2));
            $$->repeat.count = $2;
            $$->repeat.label = $3;
            $$->repeat.body = $5.at;
            $$->repeat.nbody = $5.n;
            $$->repeat.depth = $5.depth + 1;
          }
        | choice
        | AUX expr       { $$ = zl_statement(ps->arena, ZL_S_AUX, @$); $$->aux = $2; }
        | RETURN exprs   {
            $$ = zl_statement(ps->arena, ZL_S_RETURN, @$);
            $$->ret.values = $2.at;
            $$->ret.n = $2.n;
          }
        | AXIS axdefs    {
            $$ = zl_statement(ps->arena, ZL_S_AXIS, @$);
            $$->axis.defs = $2.at;
            $$->axis.ndefs = $2.n;
          }
        | INPUT IDENT ':' type {
            $$ = zl_statement(ps->arena, ZL_S_INPUT, @$);
            $$->input.name = $2;
            $$->input.type = $4;
          }
        | OUTPUT IDENT '=' expr {
            $$ = zl_statement(ps->arena, ZL_S_OUTPUT, @$);
            $$->output.name = $2;
            $$->output.value = $4;
          }
        | OUTPUT IDENT ':' type '=' expr {
            $$ = zl_statement(ps->arena, ZL_S_OUTPUT, @$);
            $$->output.name = $2;
            $$->output.typed = true;
            $$->output.type = $4;
            $$->output.value = $6;
          }
        | LOSS expr PER expr {
            $$ = zl_statement(ps->arena, ZL_S_LOSS, @$);
            $$->loss.num = $2;
            $$->loss.den = $4;
          }
        | LOSS expr PER expr AS IDENT { /* an error, of which more can be said than that */
            $$ = zl_statement(ps->arena, ZL_S_LOSS, @$);
            $$->loss.num = $2;
            $$->loss.den = $4;
            zl_name_in_front(ps->diags, $6);
          }
        | LOSS IDENT '=' expr PER expr {
            $$ = zl_statement(ps->arena, ZL_S_LOSS, @$);
            $$->loss.name = $2;
            $$->loss.num = $4;
            $$->loss.den = $6;
          }
        ;
kept    : PARAM          { $$ = false; }
        | STATE          { $$ = true; }
        ;
choice  : IF sexpr branch otherwise {
            $$ = zl_statement(ps->arena, ZL_S_IF, between(@1, @2));
            $$->choice.cond = $2;
            $$->choice.body = $3.at;
            $$->choice.nbody = $3.n;
            $$->choice.otherwise = $4.at;
            $$->choice.nother = $4.n;
            $$->choice.depth = ($3.depth > $4.depth ? $3.depth : $4.depth) + 1;
          }
        ;
branch  : '{' stmts '}'  { $$ = $2; } /* by itself: after its brace a mistake is no longer in it */
        ;
otherwise : %empty       { $$ = (ZlStmtList){0}; }
        | ELSE branch    { $$ = $2; }
        | ELSE choice    { $$ = (ZlStmtList){0}; zl_add_statement(ps->arena, &$$, $2); }
        ;
axdefs  : axdef          { $$ = (ZlAxisList){0}; PUSH($$, $1); }
        | axdefs ',' axdef { $$ = $1; PUSH($$, $3); }
        ;
axdef   : IDENT          { $$ = (ZlAxisDef){$1, NULL, NULL}; }
        | IDENT '=' sexpr { $$ = (ZlAxisDef){$1, $3, NULL}; }
        ;
pdefs   : pdef           { $$ = (ZlParamList){0}; PUSH($$, $1); }
        | pdefs ',' pdef { $$ = $1; PUSH($$, $3); }
        ;
pdef    : IDENT          { $$ = (ZlParamDef){.name = $1, .span = @$}; }
        | IDENT '[' names ']' { $$ = (ZlParamDef){$1, $3, @$}; }
        ;
init    : '=' expr       { memset(&$$, 0, sizeof $$); $$.value = $2; }
        | '~' IDENT '(' sexprs0 ')' { $$.value = NULL; $$.name = $2; $$.args = $4; }
        ;
tag     : %empty         { $$ = (ZlNames){0}; }
        | TAG names      { $$ = $2; }
        ;

/* ---- expressions ---- */
exprs   : expr           { $$ = (ZlExprList){0}; PUSH($$, $1); }
        | exprs ',' expr { $$ = $1; PUSH($$, $3); }
        ;
expr    : expr '+' expr  { $$ = zl_binary(ps->arena, @$, '+', $1, $3); }
        | expr '-' expr  { $$ = zl_binary(ps->arena, @$, '-', $1, $3); }
        | expr '*' expr  { $$ = zl_binary(ps->arena, @$, '*', $1, $3); }
        | expr '/' expr  { $$ = zl_binary(ps->arena, @$, '/', $1, $3); }
        | expr '<' expr { $$ = zl_binary(ps->arena, @$, ZL_LESS, $1, $3); }
        | expr '>' expr { $$ = zl_binary(ps->arena, @$, ZL_MORE, $1, $3); }
        | expr AT_MOST expr { $$ = zl_binary(ps->arena, @$, ZL_AT_MOST, $1, $3); }
        | expr AT_LEAST expr { $$ = zl_binary(ps->arena, @$, ZL_AT_LEAST, $1, $3); }
        | expr EQUALS expr { $$ = zl_binary(ps->arena, @$, ZL_EQUALS, $1, $3); }
        | expr DIFFERS expr { $$ = zl_binary(ps->arena, @$, ZL_DIFFERS, $1, $3); }
        | expr AND expr { $$ = zl_binary(ps->arena, @$, ZL_AND, $1, $3); }
        | expr OR expr { $$ = zl_binary(ps->arena, @$, ZL_OR, $1, $3); }
        | NOT expr      { $$ = zl_unary(ps->arena, @$, ZL_E_NOT, $2); }
        | '-' expr %prec UMINUS { $$ = zl_unary(ps->arena, @$, ZL_E_NEG, $2); }
        | '(' expr ')'   { $$ = $2; }
        | NUMBER         { $$ = zl_number(ps->arena, $1); }
        | IDENT          { $$ = zl_named(ps->arena, $1); }
        | call
        ;
call    : path axpar '(' args0 ')' as {
            $$ = zl_call(ps->arena, @$, $1, $4);
            $$->call.all_axes = $2.all;
            $$->call.axes = $2.names;
            $$->call.ax_span = $2.span;
            $$->call.label = $6;
          }
        | INDEX axpar '(' args0 ')' {
            ZlName word = {.s = "index", .span = @1};
            ZlPath path = {.span = @1};
            ADD(path.part, path.n, word);
            $$ = zl_call(ps->arena, @$, path, $4);
            $$->call.all_axes = $2.all;
            $$->call.axes = $2.names;
            $$->call.ax_span = $2.span;
          }
        | ELEM '(' expr ')' {
            $$ = zl_cast(ps->arena, @$, $1, $3);
          }
        ;
args0   : %empty         { $$ = (ZlArgList){0}; }
        | args
        ;
args    : arg            { $$ = (ZlArgList){0}; PUSH($$, $1); }
        | args ',' arg   { $$ = $1; PUSH($$, $3); }
        ;
arg     : expr           { $$ = (ZlArg){.value = $1}; }
        | IDENT '=' expr { $$ = (ZlArg){$1, $3}; }
        ;
sexpr   : sexpr '+' sexpr { $$ = zl_binary(ps->arena, @$, '+', $1, $3); }
        | sexpr '-' sexpr { $$ = zl_binary(ps->arena, @$, '-', $1, $3); }
        | sexpr '*' sexpr { $$ = zl_binary(ps->arena, @$, '*', $1, $3); }
        | sexpr '/' sexpr { $$ = zl_binary(ps->arena, @$, '/', $1, $3); }
        | sexpr '<' sexpr { $$ = zl_binary(ps->arena, @$, ZL_LESS, $1, $3); }
        | sexpr '>' sexpr { $$ = zl_binary(ps->arena, @$, ZL_MORE, $1, $3); }
        | sexpr AT_MOST sexpr { $$ = zl_binary(ps->arena, @$, ZL_AT_MOST, $1, $3); }
        | sexpr AT_LEAST sexpr { $$ = zl_binary(ps->arena, @$, ZL_AT_LEAST, $1, $3); }
        | sexpr EQUALS sexpr { $$ = zl_binary(ps->arena, @$, ZL_EQUALS, $1, $3); }
        | sexpr DIFFERS sexpr { $$ = zl_binary(ps->arena, @$, ZL_DIFFERS, $1, $3); }
        | sexpr AND sexpr { $$ = zl_binary(ps->arena, @$, ZL_AND, $1, $3); }
        | sexpr OR sexpr { $$ = zl_binary(ps->arena, @$, ZL_OR, $1, $3); }
        | NOT sexpr     { $$ = zl_unary(ps->arena, @$, ZL_E_NOT, $2); }
        | '-' sexpr %prec UMINUS { $$ = zl_unary(ps->arena, @$, ZL_E_NEG, $2); }
        | '(' sexpr ')'  { $$ = $2; }
        | NUMBER         { $$ = zl_number(ps->arena, $1); }
        | IDENT          { $$ = zl_named(ps->arena, $1); }
        | IDENT '(' sexprs0 ')' {
            ZlPath path = {.span = @1};
            ADD(path.part, path.n, $1);
            ZlArgList args = {0};
            for (uint32_t i = 0; i < $3.n; i++) PUSH(args, ((ZlArg){.value = $3.at[i]}));
            $$ = zl_call(ps->arena, @$, path, args);
          }
        ;
sexprs0 : %empty         { $$ = (ZlExprList){0}; }
        | sexprs
        ;
sexprs  : sexpr          { $$ = (ZlExprList){0}; PUSH($$, $1); }
        | sexprs ',' sexpr { $$ = $1; PUSH($$, $3); }
        ;

/* ---- weights by other names ---- */
weights : whead head wlines '}'
        ;
whead   : WEIGHTS IDENT FOR IDENT {
            $$ = ZB_NEW(ps->arena, ZlWeights);
            *$$ = (ZlWeights){.name = $2, .model = $4, .file = ps->file, .span = @$};
            ADD(ps->file->weights, ps->file->nweights, $$);
            ps->weights = $$;
            ps->cond = NULL;
          }
        ;
wlines  : %empty
        | wlines wline
        | wlines error RESYNC { yyerrok; }
        ;
wline   : target fix '=' STRING '[' dims ']' {
            ZlMapRule r = {.ours = $1.at, .nours = $1.n, .axis = $2.axis, .index = $2.index, .tensor = $4,
                           .dims = $6.at, .ndims = $6.n, .cond = ps->cond, .span = @$};
            ADD(ps->weights->rules, ps->weights->nrules, r);
          }
        | FROM IDENT WITHOUT STRING {
            if (!ps->weights->from.s) ps->weights->from = $2, ps->weights->without = $4;
            else zl_twice(ps->diags, "`from` of weights", $2, ps->weights->from.span);
          }
        | IGNORE strings
        | CONFIG head centries '}'
        | wif endif
        | wif welse endif
        ;
wif     : if wlines '}'
        ;
welse   : else0 wlines '}'
        ;
if      : IF sexpr head  { ps->cond = zl_cond(ps->arena, ps->cond, $2, false); }
        ;
else0   : ELSE head      { ps->cond = zl_cond(ps->arena, ps->cond->outer, ps->cond->expr, true); }
        ;
endif   : %empty         { ps->cond = ps->cond->outer; }
        ;
target  : ours           { $$ = (ZlPathList){0}; PUSH($$, $1); }
        | '(' tails ')'  { $$ = $2; }
        | ours '.' '(' tails ')' {
            $$ = (ZlPathList){0};
            for (uint32_t i = 0; i < $4.n; i++) PUSH($$, zl_path_joined(ps->arena, &$1, &$4.at[i]));
          }
        ;
ours    : word           { $$ = (ZlPath){.span = @1}; ADD($$.part, $$.n, $1); }
        | ours '.' word  { $$ = $1; $$.span = @$; ADD($$.part, $$.n, $3); }
        ;
word    : IDENT
        | PLACE
        ;
tails   : ours           { $$ = (ZlPathList){0}; PUSH($$, $1); }
        | tails ',' ours { $$ = $1; PUSH($$, $3); }
        ;
fix     : %empty         { memset(&$$, 0, sizeof $$); }
        | '[' IDENT '=' PLACE ']' { $$.axis = $2; $$.index = $4; }
        ;
strings : ignored
        | strings ',' ignored
        ;
ignored : STRING         { PUSH_IGNORED($1, ((ZlName){.s = NULL})); }
        | STRING AS STRING { PUSH_IGNORED($1, $3); }
        ;
dims    : dim            { $$ = (ZlDimList){0}; PUSH($$, $1); }
        | dims ',' dim   { $$ = $1; PUSH($$, $3); }
        ;
dim     : merged
        | dim '+' merged { $$ = zl_dim_add(ps->arena, ZL_DIM_JOIN, @$, $1, $3); }
        ;
merged  : dim1
        | merged dim1    { $$ = zl_dim_add(ps->arena, ZL_DIM_MERGE, @$, $1, $2); }
        ;
dim1    : IDENT          { $$ = zl_dim(ps->arena, ZL_DIM_AXIS, @$); $$->axis = $1; }
        | NUMBER         { $$ = zl_dim(ps->arena, ZL_DIM_NUMBER, @$); $$->number = $1.integer ? $1.i : -1; }
        | '(' dim ')'    { $$ = zl_dim_add(ps->arena, ZL_DIM_MERGE, @$, $2, NULL); }
        ;
centries : %empty
        | centries centry
        | centries IGNORE harmless
        | centries cif endif
        | centries cif celse endif
        | centries error RESYNC { yyerrok; }
        ;
cif     : if centries '}'
        ;
celse   : else0 centries '}'
        ;
harmless : path          { PUSH_HARMLESS($1); }
        | harmless ',' path { PUSH_HARMLESS($3); }
        ;
centry  : path '=' values absent {
            ZlConfigEntry c = {.key = zl_path_name(ps->arena, &$1), .values = $3.at, .nvalues = $3.n,
                               .cond = ps->cond};
            if ($4.span.file >= 0) {
              c.otherwise = ZB_NEW(ps->arena, ZlConfigValue);
              *c.otherwise = $4;
            }
            ADD(ps->weights->config, ps->weights->nconfig, c);
          }
        ;
absent  : %empty         { $$ = (ZlConfigValue){.span = ZL_NOWHERE}; }
        | ELSE value     { $$ = $2; }
        ;
values  : value          { $$ = (ZlValueList){0}; PUSH($$, $1); }
        | values ',' value { $$ = $1; PUSH($$, $3); }
        ;
value   : item0
        | ELEM '(' sexpr ')' {
            $$ = (ZlConfigValue){.kind = $1 == ZL_REAL ? ZL_V_REAL : ZL_V_BOOL, .expr = $3, .span = @$};
          }
        | NOTHING AS sexpr { $$ = (ZlConfigValue){.kind = ZL_V_NULL, .expr = $3, .span = @$}; }
        | '[' items0 ']' times {
            $$ = (ZlConfigValue){.kind = ZL_V_LIST, .expr = $4, .at = $2.at, .n = $2.n, .span = @$};
          }
        ;
times   : %empty         { $$ = NULL; }
        | FOR sexpr      { $$ = $2; }
        ;
item0   : sexpr          { $$ = (ZlConfigValue){.kind = ZL_V_NUMBER, .expr = $1, .span = @$}; }
        | STRING         { $$ = (ZlConfigValue){.json = zb_printf(ps->arena, "\"%s\"", $1.s)}; TEXT($$, @$); }
        | TRUTH          { $$ = (ZlConfigValue){.json = "true"}; TEXT($$, @$); }
        | UNTRUTH        { $$ = (ZlConfigValue){.json = "false"}; TEXT($$, @$); }
        | NOTHING        { $$ = (ZlConfigValue){.json = "null"}; TEXT($$, @$); }
        ;
items0  : %empty         { $$ = (ZlValueList){0}; }
        | items
        ;
items   : item0          { $$ = (ZlValueList){0}; PUSH($$, $1); }
        | items ',' item0 { $$ = $1; PUSH($$, $3); }
        ;

/* ---- recipes ---- */
recipe  : rhead head directives '}'
        ;
rhead   : RECIPE IDENT for from {
            $$ = ZB_NEW(ps->arena, ZlRecipeAst);
            *$$ = (ZlRecipeAst){.name = $2, .model = $3, .from = $4, .file = ps->file, .span = @$};
            ADD(ps->file->recipes, ps->file->nrecipes, $$);
          }
        ;
for     : %empty         { $$ = (ZlName){NULL, ZL_NOWHERE}; }
        | FOR IDENT      { $$ = $2; }
        ;
from    : %empty         { $$ = (ZlPath){.span = ZL_NOWHERE}; }
        | FROM path      { $$ = $2; }
        ;
directives : %empty
        | directives directive {
            ZlRecipeAst *r = ps->file->recipes[ps->file->nrecipes - 1];
            $2->span = @2;
            $2->maybe = ps->maybe;
            $2->open_else = ps->open_else;
            ps->maybe = (ZlNames){0};
            ps->open_else = false;
            ADD(r->at, r->n, $2);
          }
        | directives error RESYNC { yyerrok; }
        ;
directive : NUMBERED NUMBER { $$ = zl_directive(ps->arena, $1); $$->num = $2; $$->has_num = true; }
        | CHOSEN IDENT kws0 {
            $$ = zl_directive(ps->arena, $1);
            $$->word = $2;
            $$->kws = $3.at;
            $$->nkws = $3.n;
          }
        | MESH dims0     { $$ = NEW(MESH); $$->q = $2.at; $$->nq = $2.n; }
        | BIND nums      { $$ = NEW(BIND); $$->q = $2.at; $$->nq = $2.n; }
        | MICRO NUMBER   { $$ = NEW(MICRO); $$->num = $2; $$->has_num = true; }
        | MICRO '?'      { $$ = NEW(MICRO); $$->open = true; }
        | SPLIT split OVER names else order { $$ = $2; $$->names = $4; $$->others = $5; $$->order = $6; }
        | SHARD '?' OVER IDENT unit { $$ = NEW(SHARD); $$->open = true; $$->word = $4; $$->unit = $5; }
        | SHARD names OVER IDENT unit keep {
            $$ = NEW(SHARD);
            $$->names = $2;
            $$->word = $4;
            $$->unit = $5;
            $$->keep = $6;
          }
        | STAGES OVER IDENT BY IDENT { $$ = NEW(STAGES); $$->word = $3; $$->by = $5; }
        | STAGES OVER IDENT '=' '[' numlist ']' { $$ = NEW(STAGES); $$->word = $3; $$->q = $6.at; $$->nq = $6.n; }
        | STAGES OVER IDENT '=' '?' { $$ = NEW(STAGES); $$->word = $3; $$->open = true; }
        | RECOMPUTE paths { $$ = NEW(RECOMPUTE); $$->paths = $2.at; $$->npaths = $2.n; }
        | RECOMPUTE '?'  { $$ = NEW(RECOMPUTE); $$->open = true; }
        | OFFLOAD names TO IDENT { $$ = NEW(OFFLOAD); $$->names = $2; $$->word = $4; }
        | PRECISION precs { $$ = NEW(PRECISION); $$->precisions = $2.at; $$->nprecisions = $2.n; }
        | OPTIMIZER IDENT kws0 clauses { $$ = $4; $$->word = $2; $$->kws = $3.at; $$->nkws = $3.n; }
        | PAD axis TO NUMBER { $$ = NEW(PAD); ADD($$->q, $$->nq, zl_number_quantity($2, $4)); }
        | LIMIT quants   { $$ = NEW(LIMIT); $$->q = $2.at; $$->nq = $2.n; }
        | ATTENTION IDENT attended { $$ = NEW(ATTENTION); $$->word = $2; $$->by = $3; }
        | ATTENTION '?' attended { $$ = NEW(ATTENTION); $$->open = true; $$->by = $3; }
        | CHUNK IDENT    { $$ = NEW(CHUNK); $$->word = $2; }
        | CHUNK IDENT '=' NUMBER { $$ = NEW(CHUNK); $$->word = $2; $$->num = $4; $$->has_num = true; }
        | FREEZE paths but {
            $$ = NEW(FREEZE);
            $$->paths = $2.at;
            $$->npaths = $2.n;
            $$->but = $3.at;
            $$->nbut = $3.n;
          }
        ;
split   : '?'            { $$ = NEW(SPLIT); $$->open = true; }
        | prods          { $$ = NEW(SPLIT); $$->prods = $1.at; $$->nprods = $1.n; }
        ;
dims0   : dim0           { $$ = (ZlQuantityList){0}; PUSH($$, $1); }
        | dims0 ',' dim0 { $$ = $1; PUSH($$, $3); }
        ;
dim0    : IDENT '=' NUMBER { $$ = zl_number_quantity($1, $3); }
        | IDENT '=' '?'  { $$ = (ZlQuantity){.name = $1, .span = @3, .open = true}; }
        ;
nums    : axis '=' NUMBER { $$ = (ZlQuantityList){0}; PUSH($$, zl_number_quantity($1, $3)); }
        | nums ',' axis '=' NUMBER { $$ = $1; PUSH($$, zl_number_quantity($3, $5)); }
        ;
numlist : NUMBER         { $$ = (ZlQuantityList){0}; PUSH($$, zl_number_quantity((ZlName){NULL, @1}, $1)); }
        | numlist ',' NUMBER { $$ = $1; PUSH($$, zl_number_quantity((ZlName){NULL, @3}, $3)); }
        ;
prods   : prod           { $$ = (ZlProdList){0}; PUSH($$, $1); }
        | prods ',' prod { $$ = $1; PUSH($$, $3); }
        ;
prod    : axis           { $$ = (ZlProd){0}; ADD($$.axis, $$.n, $1); }
        | prod '*' axis  { $$ = $1; ADD($$.axis, $$.n, $3); }
        ;
axis    : IDENT
        | MAYBE          { $$ = $1; PUSH(ps->maybe, $1); }
        ;
axes    : axis           { $$ = (ZlNames){0}; PUSH($$, $1); }
        | axes ',' axis  { $$ = $1; PUSH($$, $3); }
        ;
else    : %empty         { $$ = (ZlNames){0}; }
        | ELSE axes      { $$ = $2; }
        | ELSE '?'       { $$ = (ZlNames){0}; ps->open_else = true; }
        ;
order   : %empty         { $$ = ZL_ORDER_AUTO; }
        | ZIGZAG         { $$ = ZL_ORDER_ZIGZAG; }
        | CONTIGUOUS     { $$ = ZL_ORDER_CONTIGUOUS; }
        ;
unit    : %empty         { $$ = (ZlPath){.span = ZL_NOWHERE}; }
        | UNIT path      { $$ = $2; }
        ;
attended : %empty        { $$ = (ZlName){NULL, ZL_NOWHERE}; }
        | OVER IDENT     { $$ = $2; }
        ;
keep    : %empty         { $$ = false; }
        | KEEP           { $$ = true; }
        ;
kws0    : %empty         { $$ = (ZlKwList){0}; }
        | '(' ')'        { $$ = (ZlKwList){0}; }
        | '(' kws ')'    { $$ = $2; }
        ;
kws     : kw             { $$ = (ZlKwList){0}; PUSH($$, $1); }
        | kws ',' kw     { $$ = $1; PUSH($$, $3); }
        ;
kw      : IDENT '=' amount { $$ = (ZlKwAst){.key = $1, .value = $3, .span = @$}; }
        | amount         { $$ = (ZlKwAst){.value = $1, .span = @$}; }
        ;
amount  : sexpr          { $$ = (ZlAmountAst){.first = $1}; }
        | amount TO sexpr OVER sexpr {
            $$ = $1;
            ADD($$.to, $$.n, $3);
            ADD($$.over, $$.nover, $5);
          }
        ;
paths   : path           { $$ = (ZlPathList){0}; PUSH($$, $1); }
        | paths ',' path { $$ = $1; PUSH($$, $3); }
        ;
/* A name behind a comma goes on the list before it. */
precs   : prec           { $$ = (ZlPrecisionList){0}; PUSH($$, $1); }
        | precs ',' prec { $$ = $1; PUSH($$, $3); }
        | precs ',' path { $$ = $1; zl_precision_more(ps->diags, ps->arena, &$$.at[$$.n - 1], $3); }
        | precs FOR path {
            $$ = $1;
            zl_precision_names(ps->diags, ps->arena, &$$.at[$$.n - 1], false, $3);
          }
        | precs EXCEPT path {
            $$ = $1;
            zl_precision_names(ps->diags, ps->arena, &$$.at[$$.n - 1], true, $3);
          }
        ;
prec    : IDENT IDENT    { $$ = (ZlPrecision){.key = $1, .type = $2, .span = @$}; }
        | IDENT IDENT IDENT NUMBER {
            $$ = (ZlPrecision){.key = $1, .type = $2, .word = $3, .num = $4, .span = @$};
          }
        ;
clauses : %empty         { $$ = NEW(OPTIMIZER); }
        | FOR path       {
            ZlClause c = {.kind = ZL_CLAUSE_FOR, .span = @$};
            ADD(c.of, c.nof, $2);
            $$ = NEW(OPTIMIZER);
            ADD($$->clauses, $$->nclauses, c);
          }
        | clauses clause { $$ = $1; ADD($$->clauses, $$->nclauses, $2); }
        | clauses ',' clause { $$ = $1; ADD($$->clauses, $$->nclauses, $3); }
        | clauses ',' path { $$ = $1; zl_clause_more(ps->diags, ps->arena, $$, $3); }
        | clauses EXCEPT path { $$ = $1; zl_clause_except(ps->diags, $$, $3, ps->arena); }
        ;
clause  : DECAY amount   { $$ = (ZlClause){.kind = ZL_CLAUSE_DECAY, .amount = $2, .span = @$}; }
        | DECAY amount FOR path {
            $$ = (ZlClause){.kind = ZL_CLAUSE_DECAY, .amount = $2, .span = @$};
            ADD($$.of, $$.nof, $4);
          }
        | IDENT NUMBER FOR path {
            $$ = (ZlClause){.kind = ZL_CLAUSE_RATE, .word = $1, .amount.first = zl_number(ps->arena, $2), .span = @$};
            ADD($$.of, $$.nof, $4);
          }
        | IDENT '(' sexpr ')' FOR path {
            $$ = (ZlClause){.kind = ZL_CLAUSE_RATE, .word = $1, .amount.first = $3, .span = @$};
            ADD($$.of, $$.nof, $6);
          }
        ;
but     : %empty         { $$ = (ZlPathList){0}; }
        | EXCEPT paths   { $$ = $2; }
        ;

/* ---- clusters ---- */
cluster : chead head clines '}'
        ;
chead   : CLUSTER IDENT  {
            $$ = ZB_NEW(ps->arena, ZlClusterAst);
            *$$ = (ZlClusterAst){.name = $2, .span = @$};
            ADD(ps->file->clusters, ps->file->nclusters, $$);
          }
        ;
clines  : %empty
        | clines cline   {
            ZlClusterAst *c = ps->file->clusters[ps->file->nclusters - 1];
            ADD(c->at, c->n, $2);
          }
        | clines error RESYNC { yyerrok; }
        ;
cline   : DEVICE consts  { $$ = (ZlClusterLine){.kind = ZL_C_DEVICE, .span = @$, .q = $2.at, .nq = $2.n}; }
        | HOST consts    { $$ = (ZlClusterLine){.kind = ZL_C_HOST, .span = @$, .q = $2.at, .nq = $2.n}; }
        | LEVEL IDENT NUMBER ',' consts {
            $$ = (ZlClusterLine){.kind = ZL_C_LEVEL, .span = @$, .name = $2, .size = $3, .q = $5.at, .nq = $5.n};
          }
        ;
quants  : IDENT QUANTITY { $$ = (ZlQuantityList){0}; $2.name = $1; PUSH($$, $2); }
        | quants ',' IDENT QUANTITY { $$ = $1; $4.name = $3; PUSH($$, $4); }
        ;
consts  : const          { $$ = (ZlQuantityList){0}; PUSH($$, $1); }
        | consts ',' const { $$ = $1; PUSH($$, $3); }
        ;
const   : IDENT QUANTITY { $$ = $2; $$.name = $1; }
        | IDENT NUMBER   { $$ = zl_number_quantity($1, $2); }
        ;
%%

/* The scanner's token, or in recovery what resync made of it. */
static int zl_bison_lex(ZL_BISON_STYPE *v, ZlSpan *span, ZlParser *ps) {
  ZlToken t = zl_next_token(ps);
  *span = t.span;
  if (t.kind == IDENT || t.kind == MAYBE || t.kind == PLACE || t.kind == STRING) v->name = t.name;
  else if (t.kind == NUMBER) v->number = t.number;
  else if (t.kind == QUANTITY) v->quantity = t.quantity;
  else if (t.kind == ELEM) v->elem = t.elem;
  else if (t.kind == NUMBERED || t.kind == CHOSEN) v->kind = t.directive;
  return t.kind;
}

static int yyreport_syntax_error(const yypcontext_t *ctx, ZlParser *ps) {
  yysymbol_kind_t kinds[YYNTOKENS];
  int n = yypcontext_expected_tokens(ctx, kinds, YYNTOKENS);
  ZlExpected e = {0};
  for (int i = 0; i < n; i++) e.at[e.n++] = yysymbol_name(kinds[i]);
  zl_syntax_error(ps, &e);
  return 0;
}

/* Only the parser's own stack overflow comes here. */
static void zl_bison_error(const ZlSpan *span, ZlParser *ps, const char *msg) {
  (void)msg;
  zl_help(zl_report(ps->diags, ZL_Z0003, *span, "parentheses, calls or repeats are nested thousands deep here"),
          "give parts of expressions names; blocks and repeats nest at most 64 deep");
}

void zl_parse(ZbArena *a, ZlSources *s, ZlDiags *d, ZlFile *f) {
  ZlParser ps = {.arena = a, .diags = d, .file = f, .line_start = true};
  size_t n;
  const char *text = zl_source_text(s, f->id, &n);
  zl_scan_open(&ps, text, n);
  zl_bison_parse(&ps);
  zl_scan_close(&ps);
}
