/* zc: the compiler's command line. Reads options, loads, compiles, prints, writes; decides nothing else. */
#include "base/options.h"
#include "compiler/compiler.h"
#include "lang/ast.h"

#include <stdlib.h>
#include <string.h>

enum { OK = 0, FAILED = 1, USAGE = 2 };

typedef struct {
  const char *input, *output, *list, *explain, *adapter;
  ZcOptions compile;
  ZbTexts defines, include;
  uint32_t dump; /* bit i: print after zc_pass_names[i] */
  bool check, quiet, strict;
  enum { TEXT, JSON } diag;
} Options;

static int usage(const char *fmt, ...) {
  char text[1024];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  zb_show_all(text, sizeof text);
  fprintf(stderr, "zc: %s\nTry `zc --help`.\n", text);
  return USAGE;
}

static void put_text(FILE *f, ZbText *t) {
  if (t->len) fwrite(t->s, 1, t->len, f);
  zb_text_free(t);
}

/* ---- options ------------------------------------------------------------------------------------------- */
static bool take_pass(void *options, const char *pass, ZbErr *err) {
  size_t n = 0;
  for (; zc_pass_names[n]; n++) {
    if (strcmp(zc_pass_names[n], pass)) continue;
    ((Options *)options)->dump |= 1u << n;
    return true;
  }
  const char *near = zb_nearest(pass, zc_pass_names, n);
  char help[64] = "";
  if (near) snprintf(help, sizeof help, "did you mean `%s`?", near);
  return zb_fail(err, help, "no such pass `%s`", zb_show(pass));
}

/* clang-format off */
enum { COMPILE, DUMP, FMT };
static const ZbCommand commands[] = {
  [COMPILE] = {NULL, "MODEL.zug", 0, ZB_ANY_NUMBER, "compile a model to a stage graph"},
  [DUMP] = {"dump", "GRAPH.zsg", 1, 1, "print a stage graph as text"},
  [FMT] = {"fmt", "FILE.zug...", 1, ZB_ANY_NUMBER,
   "format files; `-` reads the standard input and writes the standard output"},
  {NULL, "MODEL.zug --check [options]", 0, 0, "check all models and blocks of the file"},
  {NULL, "--explain CODE", 0, 0, "what a message means, and how to repair its cause"},
  {NULL, "--list LIBRARY [-I DIR]", 0, 0, "what a library, such as std.nn, holds: its blocks"},
};
#define FIELD(f) ZB_AT(Options, f), .commands = 1 << COMPILE
static const ZbOption options[] = {
  {NULL, 'o', ZB_TEXT, FIELD(output), .value = "OUT.zsg", .shown = 1 << COMPILE,
   .help = "write the stage graph here, all of it or nothing; only a stage graph is replaced"},
  {NULL, 'm', ZB_TEXT, FIELD(compile.model), .value = "MODEL",
   .help = "which model of the file (default: its only one)"},
  {NULL, 'D', ZB_TEXTS, FIELD(defines), .value = "NAME=VALUE",
   .help = "override a static of the model; may be repeated"},
  {"config", 0, ZB_TEXT, FIELD(compile.config), .value = "FILE",
   .help = "take the statics from a config.json, or from that of a folder, as the model's `weights` say; -D "
           "overrides them"},
  {"names", 0, ZB_TEXT, FIELD(compile.names), .value = "NAME",
   .help = "which `weights` of the model say so (default: the only ones with a `config`)"},
  {"lora", 0, ZB_TEXT, FIELD(compile.lora), .value = "NAMES",
   .help = "put low-rank adapters beside these matrices, by the last parts of their names in `weights`: "
           "q_proj,v_proj; or beside all-linear"},
  {"rank", 0, ZB_WHOLE, FIELD(compile.rank), .value = "N", .least = 1, .most = 1 << 20,
   .help = "of these adapters (default: 8)"},
  {"alpha", 0, ZB_REAL, FIELD(compile.alpha), .value = "X", .most = 1e6,
   .help = "adapters count alpha / rank times (default: twice the rank)"},
  {"dropout", 0, ZB_REAL, FIELD(compile.dropout), .value = "P", .most = 0.99,
   .help = "while adapters are trained, a number of what they read is 0 with this probability (default: 0)"},
  {"adapter", 0, ZB_TEXT, FIELD(adapter), .value = "FILE",
   .help = "put adapters where peft's adapter_config.json says, or that of a folder"},
  {"apart", 0, ZB_FLAG, FIELD(compile.apart),
   .help = "keep documents that share a sample apart: the model gets inputs `doc`, and `place` for a table of positions"},
  {NULL, 'I', ZB_TEXTS, FIELD(include), .value = "DIR",
   .help = "search `use` here after the file's own folder; may be repeated"},
  {NULL, 'd', ZB_OTHER, FIELD(dump), .value = "PASS", .take = take_pass,
   .help = "print the program after a pass: parse, elab, simpl, grad, final; may be repeated"},
  {NULL, 'q', ZB_FLAG, FIELD(quiet), .help = "print no line about success"},
  {"check", 0, ZB_FLAG, FIELD(check) | 1 << FMT,
   .help = "only check; no output. With `fmt`: name the files that it would change, and fail"},
  {"diag", 0, ZB_WORD, FIELD(diag), .value = "text|json", .usual = "text",
   .help = "format of messages; json: one object per line"},
  {"warn-as-error", 0, ZB_FLAG, FIELD(strict), .help = "fail on warnings, too"},
  {"explain", 0, ZB_TEXT, FIELD(explain), .value = "CODE",
   .help = "explain a message by its code, such as Z0201"},
  {"list", 0, ZB_TEXT, FIELD(list), .value = "LIBRARY",
   .help = "the blocks of a library or of a file: axes, arguments with their defaults, results"},
};
static const ZbNote codes[] = {
  {"0", "done"},
  {"1", "errors in the program or the files"},
  {"2", "wrong usage"},
  {NULL, NULL},
};
static const ZbNote examples[] = {
  {"zc gpt2.zug -o gpt2.zsg", "compile the only model of a file"},
  {"zc gpt2.zug -o small.zsg -D layers=4 -D width=192", "the same with other sizes"},
  {"zc llama3.zug -o llama.zsg --config DIR", "with the sizes of a Hugging Face folder"},
  {"zc llama3.zug -o adapted.zsg --config DIR --lora q_proj,v_proj --rank 8", "with adapters beside matrices"},
  {"zc --explain Z0201", "what a message means"},
  {"zc fmt --check *.zug", "whether files are formatted"},
  {NULL, NULL},
};
static const ZbNote files[] = {
  {"*.zug", "models, libraries, recipes and clusters"},
  {"*.zsg", "stage graphs, which zplan and zrun read"},
  {NULL, NULL},
};
static const ZbProgram program = {
  .name = "zc", .what = "compile a model to a stage graph",
  ZB_TABLES(commands, options),
  .codes = codes, .examples = examples, .files = files,
};
/* clang-format on */

static int explain(const char *code) {
  const char *text = zl_explain(code);
  if (!text) return usage("--explain %s: no such code; codes look like Z0201", code);
  printf("%s%s", text, text[0] && text[strlen(text) - 1] == '\n' ? "" : "\n");
  return OK;
}

static int add_defines(ZbArena *a, Options *o) {
  ZcDefine *d = ZB_NEWN(a, ZcDefine, o->defines.n);
  for (uint32_t i = 0; i < o->defines.n; i++) {
    const char *text = o->defines.s[i], *eq = strchr(text, '=');
    if (!eq || eq == text || !eq[1]) return usage("-D %s: write -D name=value", text);
    d[i] = (ZcDefine){zb_strndup(a, text, (size_t)(eq - text)), eq + 1};
  }
  o->compile.defines = d;
  o->compile.ndefines = o->defines.n;
  return OK;
}

static int check_options(const ZbArgs *args, Options *o) {
  if (o->list) return args->noperands ? usage("--list takes one library, and no input file") : OK;
  if (!args->noperands) return usage("no input file");
  if (args->noperands > 1)
    return usage("one input file at a time: `%s` and `%s`", args->operand[0], args->operand[1]);
  o->input = args->operand[0];
  if (o->check && o->output) return usage("--check writes nothing, so -o has no meaning");
  if (!o->check && !o->output && !o->dump) return usage("nothing to do: give -o OUT.zsg, --check or -d PASS");
  bool numbers = o->compile.rank || o->compile.alpha != 0 || o->compile.dropout != 0;
  if (o->adapter && (o->compile.lora || numbers))
    return usage("--adapter says all of adapters, so --lora, --rank, --alpha and --dropout have no meaning");
  if (!o->compile.lora && numbers)
    return usage("--rank, --alpha and --dropout are of --lora, which is missing");
  if (o->compile.names && !o->compile.config)
    return usage("--names says how to read the --config, which is missing");
  if (o->compile.config && o->output && zb_same_file(o->output, o->compile.config))
    return usage("-o %s would overwrite the --config", o->output);
  if (o->output && zb_same_file(o->output, o->input))
    return usage("-o %s would overwrite the input %s", o->output, o->input);
  o->compile.adapters = &o->adapter;
  o->compile.nadapters = o->adapter != NULL;
  return OK;
}

/* ---- output -------------------------------------------------------------------------------------------- */
static int fail_with(const ZbErr *err) {
  fprintf(stderr, "zc: %s\n", err->text);
  if (*err->help) fprintf(stderr, "  = help: %s\n", err->help);
  return FAILED;
}

/* Writes 124439808 as "124,439,808". */
static const char *grouped(ZbArena *a, uint64_t n) {
  char *s = zb_printf(a, "%llu", (unsigned long long)n);
  size_t len = strlen(s);
  char *out = zb_alloc(a, len + len / 3 + 1), *p = out;
  for (size_t i = 0; i < len; i++) {
    if (i && (len - i) % 3 == 0) *p++ = ',';
    *p++ = s[i];
  }
  return out;
}

static void say_done(ZbArena *a, const Options *o, const ZgGraph *g) {
  printf("%s: %s, %s parameters;", zb_show(o->output), g->model, grouped(a, zg_param_count(g)));
  for (uint32_t i = 0; i < g->naxes; i++) {
    printf("%s %s", i ? "," : "", g->axes[i].name);
    if (g->axes[i].size) printf(" %lld", (long long)g->axes[i].size);
  }
  printf("; hash %016llx%016llx\n", (unsigned long long)g->hash[0], (unsigned long long)g->hash[1]);
}

static void print_after(void *arg, const char *pass, const ZgGraph *g) {
  const Options *o = arg;
  for (size_t i = 0; zc_pass_names[i]; i++) {
    if (strcmp(zc_pass_names[i], pass) || !(o->dump >> i & 1)) continue;
    ZbText t = {0};
    printf("# after %s\n", pass);
    zg_print(g, ZG_NONE, &t);
    put_text(stdout, &t);
  }
}

/* ---- formatting ---------------------------------------------------------------------------------------- */
static bool is_any(const uint8_t *head, size_t n) {
  (void)head, (void)n;
  return true; /* it has been read and parsed */
}

static char *read_stdin(ZbArena *a, size_t *n) {
  ZbText t = {0};
  char part[4096];
  for (size_t got; (got = fread(part, 1, sizeof part, stdin));) zb_text_put(&t, part, got);
  char *text = zb_strndup(a, t.len ? t.s : "", *n = t.len);
  zb_text_free(&t);
  return text;
}

/* Replaces the file by the formatted text, all of it or nothing; for `-` prints it. */
static int put_formatted(const char *path, bool check, const char *text, size_t n, const ZbText *t) {
  bool same = t->len == n && (n == 0 || !memcmp(t->s, text, n)), filter = !strcmp(path, "-");
  ZbErr err;
  if (check) {
    if (!same) printf("%s\n", zb_show(path));
    return same ? OK : FAILED;
  }
  if (filter && t->len) fwrite(t->s, 1, t->len, stdout);
  if (filter || same) return OK;
  return zb_write_file(path, &(ZbKind){"a program", is_any}, t->s, t->len, &err) ? OK : fail_with(&err);
}

static int format_file(const char *path, bool check) {
  ZbArena *a = zb_arena_new();
  ZlSources *s = zl_sources_new(a);
  ZlDiags *d = zl_diags_new(a, s);
  ZbErr err;
  ZbText out = {0}, said = {0};
  size_t n;
  const char *text = strcmp(path, "-") ? zb_read_file(a, path, SIZE_MAX, &n, &err) : read_stdin(a, &n);
  int rc = text ? OK : fail_with(&err);
  if (text && !zl_format(a, s, d, strcmp(path, "-") ? path : "<stdin>", text, n, &out)) rc = FAILED;
  zl_print_text(d, &said);
  put_text(stderr, &said);
  if (rc == OK) rc = put_formatted(path, check, text, n, &out);
  zb_text_free(&out);
  zb_arena_free(a);
  return rc;
}

/* Formats files. One with errors is left alone, the others are done. */
static int format_files(const ZbArgs *args, bool check) {
  int rc = OK;
  for (uint32_t i = 0; i < args->noperands; i++)
    if (format_file(args->operand[i], check) != OK) rc = FAILED;
  return rc;
}

/* ---- the other commands -------------------------------------------------------------------------------- */
static int dump_graph(ZbArena *a, const char *path) {
  ZbErr err;
  ZgGraph *g = zg_read_file(a, path, &err);
  if (!g) return fail_with(&err);
  ZbText t = {0};
  zg_print(g, ZG_NONE, &t);
  put_text(stdout, &t);
  return OK;
}

/* Refuses an output that is one of the program's files. */
static bool leaves_sources(const ZlProgram *p, const char *output, ZbErr *err) {
  for (uint32_t i = 0; i < p->nfiles; i++)
    if (zb_same_file(output, p->files[i]->name))
      return zb_fail(err, "give the stage graph a name of its own",
                     "-o %s would overwrite %s, which the program uses", zb_show(output),
                     zb_show(p->files[i]->name));
  return true;
}

static ZgGraph *run_passes(ZbArena *a, ZlSources *s, ZlDiags *d, Options *o, ZlProgram **program) {
  ZlOptions load = {o->include.s, o->include.n};
  ZlProgram *p = *program = zl_load(a, s, d, o->input, &load);
  if (p && (o->dump & 1)) { /* zc_pass_names[0]: parse */
    ZbText t = {0};
    zl_dump(p, &t);
    put_text(stdout, &t);
  }
  if (!p || zl_errors(d)) return NULL;
  if (o->check) zc_check(a, s, d, p, &o->compile);
  else if (o->output || o->dump != 1) return zc_compile(a, s, d, p, &o->compile);
  return NULL;
}

static int compile(ZbArena *a, Options *o) {
  ZlSources *s = zl_sources_new(a);
  ZlDiags *d = zl_diags_new(a, s);
  o->compile.after = print_after;
  o->compile.arg = o;
  ZlProgram *p;
  ZgGraph *g = run_passes(a, s, d, o, &p);
  ZbText t = {0};
  (o->diag == JSON ? zl_print_json : zl_print_text)(d, &t);
  put_text(stderr, &t);
  if (zl_errors(d) || (o->strict && zl_warnings(d))) return FAILED;
  if (!o->output) return OK;
  ZbErr err;
  bool ok = zg_write(g, &t, &err) && leaves_sources(p, o->output, &err) &&
            zb_write_file(o->output, &(ZbKind){"a stage graph", zg_is_one}, t.s, t.len, &err);
  zb_text_free(&t);
  if (ok && !o->quiet) say_done(a, o, g);
  return ok ? OK : fail_with(&err);
}

/* Lists a file, or the library that `use` finds under that name. */
static int list_library(ZbArena *a, const Options *o) {
  ZlSources *s = zl_sources_new(a);
  ZlDiags *d = zl_diags_new(a, s);
  ZlOptions load = {o->include.s, o->include.n};
  size_t n = strlen(o->list);
  bool file = n > 4 && !strcmp(o->list + n - 4, ".zug");
  const char *use = zb_printf(a, "use %s\n", o->list);
  ZlProgram *p =
      file ? zl_load(a, s, d, o->list, &load) : zl_load_text(a, s, d, "<--list>", use, strlen(use), &load);
  ZbText t = {0};
  const ZlFile *f = p && !zl_errors(d) ? p->files[0] : NULL;
  if (f && !file) f = f->uses[0].file;
  if (f) zc_list(s, f, &t);
  put_text(stdout, &t);
  (o->diag == JSON ? zl_print_json : zl_print_text)(d, &t);
  put_text(stderr, &t);
  return f ? OK : FAILED;
}

static int run(ZbArena *a, int argc, char **argv) {
  Options o = {0};
  ZbArgs args;
  ZbErr err = {0};
  if (zb_tells(&program, argc, argv)) return OK;
  if (!zb_parse(&program, a, argc, argv, &o, &args, &err))
    return *err.help ? fprintf(stderr, "zc: %s; %s\n", err.text, err.help), USAGE : usage("%s", err.text);
  if (args.command == DUMP) return dump_graph(a, args.operand[0]);
  if (args.command == FMT) return format_files(&args, o.check);
  if (o.explain) return explain(o.explain);
  int rc = add_defines(a, &o);
  if (rc == OK) rc = check_options(&args, &o);
  return rc != OK ? rc : o.list ? list_library(a, &o) : compile(a, &o);
}

int main(int argc, char **argv) {
  zb_begin();
  ZbArena *a = zb_arena_new();
  int rc = run(a, argc, argv);
  zb_arena_free(a);
  ZbErr err;
  return zb_close_stdout(&err) ? rc : fail_with(&err);
}
